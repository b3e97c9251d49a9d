"""J2 attribution → decision: the attributor inverted or zeroed changes decisions; the journal has what was seen."""

import numpy as np
import pytest

from attribution_sched import System
from attribution_sched.attribution.attributor import as_attributor
from attribution_sched.attribution.vector import AttributionVector
from attribution_sched.config import load_settings
from attribution_sched.scheduler.hi_ppo.coordinator import HiPpo
from tests.small_world import small

from .measure import NO_DEADLINE_S, chosen, cut, moments

CUTS = {"inverted": lambda state: -state, "zeroed": lambda state: 0.0 * state}


def differing(preset, count, **options):
    """Share of the same recorded moments at which Hi-PPO chooses another task or plan, per cut."""
    world = load_settings(preset).build_world()
    attributor = as_attributor(None, world)
    policy = HiPpo(deadline_s=NO_DEADLINE_S, **options)
    states = [seen for seen, _, _ in moments(world, attributor, HiPpo(deadline_s=NO_DEADLINE_S), count)]
    own = [chosen(policy, seen) for seen in states]
    assert own == [chosen(policy, cut(seen, lambda state: state)) for seen in states[:5]] + own[5:]
    found = {}
    for name, change in CUTS.items():
        other = [chosen(policy, cut(seen, change)) for seen in states]
        found[name] = float(np.mean([one != two for one, two in zip(own, other, strict=True)]))
    return found


class Spy:
    """A policy that keeps what it was given and lets another decide."""

    name = "spy"

    def __init__(self, policy):
        self.policy = policy
        self.given = []

    def decide(self, decision):
        self.given.append(decision.attribution)
        # Every waiting task came with its own.
        assert all(task.attribution is not None and task.attribution.state is not None for task in decision.queue)
        return self.policy.decide(decision)


@pytest.mark.parametrize("attributor", [None, lambda counters: np.tanh(np.log1p(counters[:, :7]) - 1.0)])
def test_the_journal_keeps_bitwise_the_vector_the_policy_was_given(tmp_path, attributor):
    from attribution_sched.journal import Journal
    from attribution_sched.rivals.greedy import Greedy

    spy, path = Spy(Greedy()), tmp_path / "run.journal"
    with System(small(), spy, seed=4, journal=path, attributor=attributor) as system:
        system.run(6)
    with Journal.read(path) as journal:
        records = [decision for decision, _ in journal.entries()]
    assert len(records) == len(spy.given) >= 6
    for record, given in zip(records, spy.given, strict=True):
        kept = AttributionVector.from_dict(record.attribution)
        for name in ("values", "standard_error", "prediction", "state"):
            mine, theirs = getattr(kept, name), getattr(given, name)
            assert mine.dtype == theirs.dtype and mine.tobytes() == theirs.tobytes(), name
        assert (kept.base, kept.units, kept.schema) == (given.base, given.units, given.schema)


def test_a_task_is_attributed_once_and_before_the_policy_is_asked():
    asked = []

    def attributor(counters):
        asked.append(len(counters))
        return np.tanh(np.log1p(counters[:, :7]) - 1.0)

    seen = []

    def policy(decision):
        seen.append((decision.task.id, decision.attribution, len(asked)))
        return None if len(seen) % 3 else Greedy().decide(decision)

    from attribution_sched.rivals.greedy import Greedy

    system = System(small(), policy, seed=4, attributor=attributor)
    for _ in range(12):
        system.cluster.advance()
        system.ring.decide()
    assert all(vector is not None for _, vector, _ in seen)
    # The same task is asked about again and again, with the very same record.
    by_task = {}
    for name, vector, _ in seen:
        assert by_task.setdefault(name, vector) is vector
    assert len(asked) <= 1 + len({tuple(v.values) for v in by_task.values()}) + len(system.cluster.residents)


def test_hi_ppo_reads_the_decision_and_not_its_own_reading_of_the_counters():
    """An attributor that is cut changes what the network is told, to the last bit; the policy's own is not asked."""
    world = small().build_world()
    attributor = as_attributor(None, world)

    def refuse(counters):
        raise AssertionError("the decision carries its attributions")

    policy = HiPpo(deadline_s=NO_DEADLINE_S)
    seen = next(iter(moments(world, attributor, policy, 1)))[0]
    policy.attributions = refuse
    told = policy.perceive(cut(seen, lambda state: -state))
    assert np.array_equal(told.attribution[0, 0], -seen.attribution.state)


def test_inverted_or_zeroed_attributions_change_decisions(tell):
    found = differing("cross-domain-easy", 40)
    tell("J2", states=40, **found, wanted=0.05)
    assert max(found.values()) > 0.0


@pytest.mark.slow
@pytest.mark.parametrize("preset", ["cross-domain-easy", "testbed"])
def test_inverted_or_zeroed_attributions_change_five_decisions_in_a_hundred(preset, tell):
    found = differing(preset, 200)
    proposed = differing(preset, 200, search=False)
    tell(
        "J2", preset=preset, states=200, **found, **{f"{k}_without_search": v for k, v in proposed.items()}, wanted=0.05
    )
    assert max(found.values()) >= 0.05
    assert min(found.values()) > 0.0
