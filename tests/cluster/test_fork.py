"""The fork: paired copies, an untouched original, futures that know nothing of what will really come."""

from dataclasses import replace

import numpy as np
import pytest

from attribution_sched.cluster.decision import view
from attribution_sched.cluster.engine import state as st
from attribution_sched.cluster.fork import (
    Add,
    Choose,
    Devices,
    Follow,
    Hold,
    Link,
    Price,
    PriorBeliefs,
    Remove,
    Wait,
    draw_futures,
    fork,
    resident_slots,
)
from attribution_sched.cluster.incidents import DomainLoss, pack
from attribution_sched.errors import PlanError, SettingsError
from attribution_sched.explain.brought import without
from attribution_sched.rivals.greedy import Greedy
from attribution_sched.scheduler.policy_follower import PolicyFollower
from attribution_sched.scheduler.rule_follower import RuleFollower
from attribution_sched.types import Task

from .fork_cases import engine_at


@pytest.fixture(scope="module")
def engine():
    return engine_at()


@pytest.fixture(scope="module")
def moment(engine):
    return view(engine).moment


@pytest.fixture(scope="module")
def rule(moment):
    return RuleFollower.of(moment)


@pytest.fixture(scope="module")
def beliefs(moment):
    return PriorBeliefs(moment.world)


def same(one, two):
    return all(
        np.asarray(getattr(one, name)).tobytes() == np.asarray(getattr(two, name)).tobytes()
        for name in ("ledger", "totals", "ends", "codes")
    )


def waiting(moment):
    return next(slot for slot in moment.tasks if moment.state.slots[0, slot, st.STATUS] == st.QUEUED)


def running(moment):
    return next(slot for slot in moment.tasks if moment.state.slots[0, slot, st.STATUS] == st.RUNNING)


def test_copies_with_nothing_changed_are_equal_to_the_last_bit(moment, rule, beliefs):
    found = fork(moment, [Follow(rule), Follow(rule), Price()], 3, 0.4, rule, 7, beliefs=beliefs)
    for copy in range(1, 4):
        assert found.ledger[copy].tobytes() == found.ledger[0].tobytes()
        assert found.totals[copy].tobytes() == found.totals[0].tobytes()
    assert np.all(found.gains == 0.0)
    # Futures do differ.
    assert len({found.returns[0, f] for f in range(3)}) == 3


def test_the_original_stays_as_it_was_and_the_same_seed_gives_the_same(engine, moment, rule, beliefs):
    before = [array.copy() for array in engine.state]
    held = [np.array(array) for array in moment.state]
    one = fork(moment, [Wait()], 2, 0.3, rule, 1, beliefs=beliefs)
    two = fork(moment, [Wait()], 2, 0.3, rule, 1, beliefs=beliefs)
    assert same(one, two) and not same(one, fork(moment, [Wait()], 2, 0.3, rule, 2, beliefs=beliefs))
    assert all(np.array_equal(a, b) for a, b in zip(before, engine.state, strict=True))
    assert all(np.array_equal(a, b) for a, b in zip(held, moment.state, strict=True))


def test_more_futures_begin_with_the_fewer(moment, rule, beliefs):
    few, many = (fork(moment, [Wait()], n, 0.3, rule, 5, beliefs=beliefs) for n in (2, 4))
    assert np.array_equal(few.ledger, many.ledger[:, :2], equal_nan=True)
    rest = fork(moment, [Wait()], [2, 3], 0.3, rule, 5, beliefs=beliefs)
    assert np.array_equal(rest.ledger, many.ledger[:, 2:], equal_nan=True)


def test_without_the_unchanged_copy_the_others_are_the_same(moment, rule, beliefs):
    with_it, alone = (fork(moment, [Wait()], 2, 0.3, rule, 5, beliefs=beliefs, unchanged=u) for u in (True, False))
    assert np.array_equal(with_it.ledger[1:], alone.ledger[1:], equal_nan=True)
    assert np.isnan(alone.ledger[0]).all() and alone.decisions < with_it.decisions


def test_a_task_that_is_to_wait_does_wait_although_others_wait_too():
    """Whoever goes on is asked about the others at once, and must not begin with this one again."""
    full = view(engine_at(28)).moment
    queued = [slot for slot in full.tasks if full.state.slots[0, slot, st.STATUS] == st.QUEUED]
    empty = without(full, queued[0], {"running"})
    rule, beliefs = RuleFollower.of(empty), PriorBeliefs(empty.world)
    at_once = []
    for slot in queued:
        found = fork(empty, [Choose(slot, None), Wait()], 4, 3.0, rule, 3, beliefs=beliefs)
        starts_s = found.of("start_s")[:, :, found.tasks.index(slot)]
        at_once.append(starts_s[0].min() == empty.now_s)
        assert starts_s[1].min() > empty.now_s
        assert found.ledger[1].tobytes() == found.ledger[2].tobytes()
    assert len(queued) > 2 and any(at_once)


def test_nothing_of_the_real_future_or_of_real_demands_is_in_it(rule, beliefs):
    """Plant a coming arrival, a coming loss, true demands and a true remaining time: the fork must not notice any."""
    plain, planted = engine_at(), engine_at()
    wanted = fork(view(plain).moment, [Wait()], 2, 0.5, rule, 11, beliefs=beliefs)
    state, slots = planted.state, planted.state.slots[0]
    # An arrival at once, and other streams of arrivals and network.
    state.clock[0, st.NEXT_ARRIVAL] = state.clock[0, st.NOW] + 1.0
    state.streams[:] = 12345
    # All that is here, and all that may come, demands ten times what it seems to; of what is here, nothing shows.
    pool = planted.arrays.pool.copy()
    pool[:, st.P_FACTORS : st.P_FACTORS + 3] *= 10.0
    # A running task has, in truth, fifty times the work left that its request says; what it has done stays as it was.
    slot = next(s for s in range(len(slots)) if slots[s, st.STATUS] == st.RUNNING)
    row = slots[slot, st.POOL]
    extra = 50.0 * state.tasks[0, slot, st.LEFT]
    pool[row, st.P_STEPS] += extra
    state.tasks[0, slot, st.LEFT] += extra
    loss = DomainLoss(0, float(state.clock[0, st.NOW]) + 600.0, np.inf)
    planted.arrays = planted.arrays._replace(pool=pool, incidents=pack([loss]))
    found = fork(view(planted).moment, [Wait()], 2, 0.5, rule, 11, beliefs=beliefs)
    assert np.allclose(found.ledger, wanted.ledger, rtol=1e-9, equal_nan=True)
    assert np.allclose(found.totals, wanted.totals, rtol=1e-9, equal_nan=True)


def test_what_is_measured_is_in_it(rule, beliefs):
    """The counterpart: a running task that is measured to be slower finishes later in the fork."""
    plain, slower = engine_at(), engine_at()
    slots = slower.state.slots[0]
    slot = next(s for s in range(len(slots)) if slots[s, st.STATUS] == st.RUNNING)
    slower.state.tasks[0, slot, st.STEP] *= 1.5
    before, after = (fork(view(e).moment, [], 2, 1.0, rule, 11, beliefs=beliefs) for e in (plain, slower))
    at = before.tasks.index(slot)
    assert (after.of("finish_s")[0, :, at] > before.of("finish_s")[0, :, at]).all()


def test_one_differing_event_does_not_unpair_the_rest(moment, beliefs):
    """What futures hold for a task does not hang on who else is there."""
    until_s = moment.now_s + 1800.0
    plain = draw_futures(moment, beliefs, 2, until_s, 3)
    more = draw_futures(moment, beliefs, 2, until_s, 3, added=[Task(kind_index=1, steps=100.0)])
    n = len(resident_slots(moment))
    gone = resident_slots(moment)[0]
    slots = moment.state.slots.copy()
    slots[0, gone] = 0
    fewer = draw_futures(replace(moment, state=moment.state._replace(slots=slots)), beliefs, 2, until_s, 3)
    for f in range(2):
        assert np.array_equal(plain[f].pool[:n], more[f].pool[:n])
        assert np.array_equal(plain[f].pool[n:], more[f].pool[n + 1 :])
        assert np.array_equal(plain[f].links, more[f].links)
        assert np.array_equal(plain[f].pool[1:], fewer[f].pool)
        assert np.array_equal(plain[f].arrival_times_s[n:], fewer[f].arrival_times_s[n - 1 :])


def test_arrivals_meet_every_copy_at_the_same_time(moment, rule, beliefs):
    """Tasks that come later are there in every copy, whatever was changed: their energy is in the totals only."""
    found = fork(moment, [Wait()], 2, 1.0, rule, 0, beliefs=beliefs)
    energy = found.ledger[..., 5].sum(axis=2)
    assert (found.totals[..., 5] > energy).all()


def test_each_change_does_what_it_says(engine, moment, rule, beliefs):
    slot, busy = waiting(moment), running(moment)
    greedy = PolicyFollower(Greedy(), rule, engine)
    changes = [
        Choose(slot, Greedy().decide(view(engine))) if view(engine).slot == slot else Choose(slot, None),
        Remove(busy), Add(Task(id="new", kind_index=0, steps=500.0)), Devices(0, -3), Devices(0, 4), Link(0, 1, 0.01),
        Price(energy_usd_per_kwh=50.0), Follow(greedy), Choose(busy, None),
    ]  # fmt: skip
    found = fork(moment, changes, 2, 0.75, rule, 4, beliefs=beliefs)
    at = {s: i for i, s in enumerate(found.tasks)}
    energy, finish, start = found.of("energy_j"), found.delta("finish_s"), found.of("start_s")
    assert energy[2, :, at[busy]].max() == 0.0 and energy[0, :, at[busy]].min() > 0.0
    assert found.names[-1] == "new" and energy[3, :, at[-1]].min() > 0.0 and energy[[0, 1, 2], :, at[-1]].max() == 0.0
    assert finish[3].sum() > 0.0, "fewer devices, later ends"
    assert finish[4].sum() < 0.0, "more devices, earlier ends"
    assert found.totals[7, :, 4].min() > found.totals[0, :, 4].max(), "energy that is paid for is in R_cost"
    assert not np.array_equal(found.totals[8], found.totals[0], equal_nan=True), "greedy decides otherwise"
    assert np.isfinite(start).all() and np.isfinite(found.gains).all()
    assert found.codes.min() >= 0


def test_a_plan_that_does_not_fit_is_said_to_be_refused(engine, moment, rule, beliefs):
    plan = Greedy().decide(view(engine_at(0)))
    full = moment.state.occupant.copy()
    full[:, :, :, 0] = running(moment)
    packed = replace(moment, state=moment.state._replace(occupant=full))
    found = fork(packed, [Choose(waiting(moment), plan)], 1, 0.1, rule, 0, beliefs=beliefs)
    assert found.codes[1, 0] < 0 and found.codes[0, 0] == 0


def test_bad_input_is_one_clear_error_each(moment, rule, beliefs):
    with pytest.raises(SettingsError, match="futures"):
        fork(moment, [Wait()], 0, 1.0, rule, 0, beliefs=beliefs)
    with pytest.raises(SettingsError, match="hours"):
        fork(moment, [Wait()], 1, 0.0, rule, 0, beliefs=beliefs)
    with pytest.raises(PlanError, match="neither waits nor runs"):
        fork(moment, [Remove("finished-long-ago")], 1, 1.0, rule, 0, beliefs=beliefs)
    with pytest.raises(PlanError, match="neither waits nor runs"):
        fork(moment, [Choose(97, None)], 1, 1.0, rule, 0, beliefs=beliefs)
    with pytest.raises(SettingsError, match="devices"):
        fork(moment, [Devices(0, -4)], 1, 1.0, rule, 0, beliefs=beliefs)
    with pytest.raises(SettingsError, match="link"):
        fork(moment, [Link(0, 5, 0.5)], 1, 1.0, rule, 0, beliefs=beliefs)

    class Raises:
        name = "raises"

        def play(self, copies):
            raise ZeroDivisionError("by nought")

        def elsewhere(self, world):
            return self

    with pytest.raises(SettingsError, match=r"follower.*by nought"):
        fork(moment, [Wait()], 1, 1.0, Raises(), 0, beliefs=beliefs)
    links = moment.state.links.copy()
    links[0, 1, 0, 1] = np.nan
    with pytest.raises(SettingsError, match=r"state\.links"):
        fork(replace(moment, state=moment.state._replace(links=links)), [Wait()], 1, 1.0, rule, 0, beliefs=beliefs)


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"seed": -1}, "seed = -1: must be an integer >= 0"),
        ({"seed": 0.5}, r"seed = 0\.5"),
        ({"futures": [10**12]}, "futures = 1000000000000: must lie below"),
        ({"drain_hours": -5.0}, r"drain_hours = -5\.0: must be finite and >= 0"),
        ({"drain_hours": float("nan")}, "drain_hours = nan"),
        ({"state": None}, "state = None: must be a Moment"),
        ({"changes": [Devices(0, 10**9)]}, "devices more = 1000000000: must be an integer of at most"),
        ({"changes": [Devices(0, 0.5)]}, r"devices more = 0\.5"),
        ({"changes": [Add(Task(kind_index=0, steps=float("inf")))]}, "added steps = inf: must be finite"),
    ],
)
def test_numbers_that_cannot_be_played_are_refused_by_name(moment, rule, beliefs, wrong, match):
    """They ended in the middle of numpy, or filled the machine's memory; a negative drain was played."""
    given = {"state": moment, "changes": [Wait()], "futures": 1, "hours": 1.0, "follower": rule, "seed": 0} | wrong
    with pytest.raises(SettingsError, match=match):
        fork(**given, beliefs=beliefs)


def test_a_follower_that_does_not_say_what_it_decided_is_named(moment, beliefs):
    class Silent:
        name = "silent"

        def play(self, copies):
            return None

    with pytest.raises(SettingsError, match="follower = 'silent': failed while it played copies on"):
        fork(moment, [Wait()], 1, 1.0, Silent(), 0, beliefs=beliefs)


@pytest.mark.parametrize("futures", [0, -3, 1.5, float("nan"), True, (), "8"])
def test_no_futures_are_no_answer(moment, rule, beliefs, futures):
    with pytest.raises(SettingsError, match=r"futures = .*must be an integer >= 1"):
        fork(moment, [Wait()], futures, 1.0, rule, 0, beliefs=beliefs)


def test_a_change_that_is_none_and_numbers_that_are_none_are_refused(moment, rule, beliefs):
    """They were played as if nothing had changed."""
    slot = waiting(moment)
    for change, match in (
        ("wait", r"change = 'wait': must be one of Choose, .*Follow"),
        (Hold(slot, float("nan")), "hold hours = nan"),
        (Hold(slot, -1.0), "hold hours = -1"),
        (Hold("finished-long-ago", 1.0), "neither waits nor runs"),
        (Hold(running(moment), 1.0), "only a task that waits can be held back"),
        (Price(energy_usd_per_kwh=float("inf")), "energy_usd_per_kwh"),
        (Price(carbon_usd_per_kg=-0.1), "carbon_usd_per_kg"),
        (Price(traffic_factor=float("nan")), "traffic_factor"),
    ):
        with pytest.raises((SettingsError, PlanError), match=match):
            fork(moment, [change], 1, 1.0, rule, 0, beliefs=beliefs)


def test_a_follower_that_raises_is_named_wherever_it_is_asked(moment, rule, beliefs):
    class Lost(RuleFollower):
        name = "lost"

        def __init__(self):
            """Knows nothing."""

        def elsewhere(self, world):
            raise KeyError("where?")

    class Undecided:
        name = "undecided"

        def decide(self, seen):
            raise ZeroDivisionError("by nought")

    with pytest.raises(SettingsError, match=r"follower = 'lost': failed while it was asked about .*where\?"):
        fork(moment, [Devices(0, 1)], 1, 1.0, Lost(), 0, beliefs=beliefs, unchanged=False)
    asked = PolicyFollower(Undecided(), rule, engine_at())
    with pytest.raises(SettingsError, match=r"follower = 'undecided': failed while it played copies on: .*by nought"):
        fork(moment, [Follow(asked)], 1, 1.0, rule, 0, beliefs=beliefs)


@pytest.mark.parametrize("name", ["tasks", "links", "loads", "clock"])
def test_a_state_that_is_no_number_is_not_played_on(moment, rule, beliefs, name):
    held = getattr(moment.state, name).copy()
    held[0].flat[1] = np.nan
    with pytest.raises(SettingsError, match=rf"state\.{name}\[.*\] = nan: must be a number"):
        fork(replace(moment, state=moment.state._replace(**{name: held})), [Wait()], 1, 1.0, rule, 0, beliefs=beliefs)


def test_every_task_of_a_future_has_a_draw_of_its_own(moment, beliefs):
    """One stream for all tasks would let them be slow together: what is done first would hardly matter any more."""
    drawn = draw_futures(moment, beliefs, 64, moment.now_s + 3600.0, 5)
    present = len(resident_slots(moment))
    assert present > 2
    logs = np.log([future.pool[:present, st.P_FACTORS] for future in drawn])
    apart = np.corrcoef(logs.T)[np.triu_indices(present, 1)]
    assert np.abs(apart).max() < 0.6
    assert np.ptp(logs, axis=1).min() > 0.0
