"""What the policy says of plans is what it says while it decides, whatever else a situation changes."""

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attribution_sched.cluster.decision import Decisions, encode, from_view, view
from attribution_sched.cluster.plan import PlanBatch
from attribution_sched.cluster.reward import value
from attribution_sched.errors import PlanError
from attribution_sched.explain.masked_states import stacked, widened
from attribution_sched.scheduler.hi_ppo.coordinator import HiPpo
from attribution_sched.scheduler.hi_ppo.decode import decode
from attribution_sched.scheduler.hi_ppo.reward_weights import AdaptiveWeights, RewardWeights
from attribution_sched.scheduler.policy import Appraiser, BatchAppraiser, Selective

from . import worlds

CASES = ["equal", "mixed", "tight", "many", "served"]


def policy(**options):
    given = {"weights": worlds.weights(), "attributor": worlds.attributor, "deadline_s": np.inf}
    return HiPpo(**(given | options))


def seen(name="mixed", seed=2):
    return view(worlds.begun(worlds.worlds()[name], 1, seed))


def drawn(asked, one, seed):
    """A plan for the view's own task drawn at random."""
    alone = asked.perceive(replace(one, queue=tuple(task for task in one.queue if task.slot == one.slot)))
    found = decode(asked.planner(one), alone, worlds.chooser(seed, must_act=True))
    return found.batch.plan(0) if found.batch.counts[0] else None


def varied(decisions, n, seed, **changed):
    """Situations in which every input is another one."""
    rng = np.random.default_rng(seed)
    many = decisions.take(np.zeros(n, dtype=np.int64))
    many.links[:, 0] *= np.exp(rng.normal(0.0, 0.5, many.links[:, 0].shape))
    many.links[:, 1] *= np.exp(rng.normal(0.0, 0.3, many.links[:, 1].shape))
    many.links[:, 3] = many.links[:, 0] * np.exp(rng.normal(0.0, 0.2, many.links[:, 0].shape))
    many.domains[:] = rng.uniform(0.0, 1.0, many.domains.shape)
    many.free[:] = rng.integers(0, many.free.max() + 1, many.free.shape)
    many.waiting[:] = rng.integers(1, 9, n)
    many.weights[:] = rng.uniform(0.1, 2.0, (n, 3))
    many.attribution[:] = rng.uniform(-0.9, 0.9, many.attribution.shape)
    for name, values in changed.items():
        getattr(many, name)[:] = values
    return many


def test_the_policy_can_be_asked():
    assert isinstance(policy(), Appraiser)


@pytest.mark.parametrize("name", CASES)
def test_a_decision_is_perceived_as_it_is_but_for_the_order(name):
    asked, one = policy(), seen(name)
    found, told = asked.perceive(one), from_view(one, worlds.attributor, one.bandwidth_gbps)
    assert found.slot[0, 0] == one.slot and sorted(found.slot[0]) == sorted(told.slot[0])
    order = [int(np.flatnonzero(told.slot[0] == slot)[0]) for slot in found.slot[0]]
    for field in fields(Decisions):
        ours, theirs = getattr(found, field.name), getattr(told, field.name)
        if field.name in ("kind", "slot", "left", "waited_s", "attribution"):
            theirs = theirs[:, order]
        if field.name == "links":
            ours, theirs = ours[:, :3], theirs[:, :3]
        assert np.array_equal(ours, theirs), field.name


def test_a_task_further_back_comes_first_and_the_others_keep_their_order():
    asked, one = policy(), seen("equal")
    own = one.queue[0]
    others = tuple(replace(own, slot=own.slot + 50 + i, counters=own.counters / (2.0 + i)) for i in range(3))
    found = asked.perceive(replace(one, queue=(*others[:2], own, others[2]), slot=own.slot))
    assert found.slot[0].tolist() == [own.slot, *(task.slot for task in others)]
    told = worlds.attributor(np.stack([task.counters for task in (own, *others)]))
    assert np.array_equal(found.attribution[0], told.astype(np.float32))
    with pytest.raises(PlanError, match="waiting tasks"):
        asked.perceive(replace(one, queue=others, slot=own.slot))


def test_asking_changes_no_later_decision():
    def run(ask):
        asked, told = policy(), []
        for i in range(4):
            one = seen("mixed", 3)
            one = replace(one, link_gbps=one.link_gbps * (1.0 + 0.2 * i), link_time_s=60.0 * i)
            if ask:
                asked.perceive(replace(one, link_time_s=one.link_time_s + 30.0, link_gbps=3.0 * one.link_gbps))
                asked.perceive(replace(one, link_time_s=0.0))
            told.append(asked._ahead(one).copy())
            if ask:
                asked.appraise(one, asked.perceive(one), [None])
                assert np.array_equal(asked.perceive(one).links[0, 3], told[-1])
        return told

    for ours, theirs in zip(run(True), run(False), strict=True):
        assert np.array_equal(ours, theirs)


def test_wishes_are_perceived():
    one = seen()
    asked = policy(wishes=AdaptiveWeights(RewardWeights(1.0, 0.5, 0.5)))
    wanted = asked.wishes.weights(one.link_gbps, one.cost.cluster.wan.bandwidth_gbps)
    reward = wanted.put_into(one.reward)
    assert asked.perceive(one).weights[0].tolist() == [reward.w_eff, reward.w_util, reward.w_cost]


@settings(deadline=None, max_examples=15)
@given(seed=st.integers(0, 10_000), name=st.sampled_from(CASES))
def test_what_was_on_offer_is_never_impossible(seed, name):
    asked, one = policy(), seen(name, seed % 5)
    plan = drawn(asked, one, seed)
    if plan is None:
        return
    told = asked.appraise(one, varied(asked.perceive(one), 6, seed), [plan, None])
    for array in (told.terms, told.log_probability):
        assert np.isfinite(array).all()
    assert (told.log_probability <= 1e-6).all()


@pytest.mark.parametrize("name", CASES)
def test_many_situations_are_judged_as_one_by_one(name):
    asked, one = policy(), seen(name, 2)
    some = varied(asked.perceive(one), 7, 1)
    some.attribution[:4, 0] = asked.perceive(one).attribution[0, 0]
    plans = [drawn(asked, one, 1), None, drawn(asked, one, 2)]
    whole = asked.appraise(one, some, plans)
    for row in range(7):
        alone = asked.appraise(one, some.take(np.array([row])), plans)
        for field in fields(whole):
            assert np.allclose(getattr(alone, field.name)[0], getattr(whole, field.name)[row], atol=1e-5)


def test_more_situations_than_go_together_are_judged_alike(monkeypatch):
    from attribution_sched.scheduler.hi_ppo import appraisal

    asked, one = policy(), seen()
    some, plan = varied(asked.perceive(one), 9, 1), drawn(asked, one, 1)
    whole = asked.appraise(one, some, [plan])
    proposed = asked.propose(one, some)
    monkeypatch.setattr(appraisal, "ROWS", 4)
    parts = asked.appraise(one, some, [plan])
    for field in fields(whole):
        assert np.allclose(getattr(whole, field.name), getattr(parts, field.name), atol=1e-5)
    assert asked.propose(one, some) == proposed


def test_energy_and_carbon_are_part_of_the_cost_where_they_have_a_price():
    asked, one = policy(), seen("equal")
    # Nothing was measured of it: a nominal task.
    one = replace(one, counters=np.zeros(0), queue=tuple(replace(t, counters=np.zeros(0)) for t in one.queue))
    priced = replace(one, reward=replace(one.reward, energy_usd_per_kwh=0.2, carbon_usd_per_kg=0.1))
    plan = drawn(asked, one, 0)
    told = asked.appraise(priced, asked.perceive(one), [plan], log_probability=False)
    assert told.terms[0, 0, 2] == pytest.approx(value(priced, PlanBatch.of([plan])).r_cost[0], rel=0.05)
    assert told.terms[0, 0, 2] > value(one, PlanBatch.of([plan])).r_cost[0]


@pytest.mark.parametrize("name", ["mixed", "tight", "many"])
def test_what_cannot_matter_to_a_plan_does_not(name):
    asked, one = policy(), seen(name)
    decision, plan = asked.perceive(one), drawn(asked, one, 5)
    unused = [k for k in range(len(one.free_devices)) if k not in plan.domains]
    moved = varied(decision, 5, 1, attribution=decision.attribution)
    kept = moved.links.copy()
    kept[:] = decision.links
    for k in unused:
        kept[:, :, k, :], kept[:, :, :, k] = moved.links[:, :, k, :], moved.links[:, :, :, k]
    moved.links[:] = kept
    terms = asked.appraise(one, moved, [plan], log_probability=False).terms
    itself = asked.appraise(one, decision, [plan], log_probability=False).terms
    assert (terms == itself).all() and itself.any()


def test_a_task_that_was_not_measured_has_no_demands_to_replace():
    asked, one = policy(), seen("equal")
    blank = replace(one, counters=np.zeros(0), queue=tuple(replace(t, counters=np.zeros(0)) for t in one.queue))
    told = asked.appraise(blank, asked.perceive(blank), [drawn(asked, one, 5)], log_probability=False)
    assert np.isfinite(told.terms).all()


@pytest.mark.parametrize("name", ["equal", "mixed", "tight"])
def test_proposals_are_those_behind_the_coordination(name):
    proposed = 0
    for seed in range(8):
        asked, one = policy(search=False), seen(name, seed)
        agreed = asked.coordinate(one)
        found = asked.propose(one, asked.perceive(one))
        expected = agreed.plan if agreed.slot == one.slot else None
        assert found == [expected]
        proposed += expected is not None
        many = asked.perceive(one).take(np.zeros(3, dtype=np.int64))
        assert asked.propose(one, many) == [expected] * 3
    assert proposed > 0


def test_a_proposal_uses_the_devices_of_the_situation():
    asked, one = policy(), seen("equal")
    decision = asked.perceive(one)
    none = replace(decision, free=np.zeros_like(decision.free))
    more = replace(decision, free=np.full_like(decision.free, 1_000))
    most = replace(decision, free=np.asarray(one.cost.domains.rows.devices)[None].copy())
    assert asked.propose(one, none) == [None]
    assert asked.propose(one, more) == asked.propose(one, most)


@pytest.mark.parametrize("name", ["mixed", "tight", "equal"])
def test_running_tasks_can_be_asked_about(name):
    asked, found = policy(), 0
    engine = worlds.begun(worlds.worlds()[name], 1, 1)
    for _ in range(60):
        one = view(engine)
        if one is None or found == 4:
            break
        if not one.replanning:
            engine.step(encode(engine, asked.decide(one), one.kind_index)[None])
            continue
        engine.step(encode(engine, None, one.kind_index)[None])
        decision = asked.perceive(one)
        terms = asked.appraise(one, decision, [one.current_plan, None], log_probability=False)
        assert decision.step_s[0] > 0.0 and np.isfinite(terms.terms[0, 0]).all()
        told = asked.appraise(one, decision, [one.current_plan, None])
        found += 1
        assert np.isfinite(told.log_probability).all()
    assert found > 0


def test_a_plan_that_is_not_on_offer_is_judged_by_the_nearest():
    asked, one = policy(), seen("equal")
    decision = asked.perceive(one)
    plan = next(p for p in (drawn(asked, one, i) for i in range(99)) if p.domains[1:] and p.segments[0].stop > 3)
    (replica, *more) = plan.replicas
    head, *others = replica.segments

    def with_layout(dp, tp, pp):
        changed = replace(head, dp=dp, tp=tp, pp=pp)
        return replace(plan, replicas=(replace(replica, segments=(changed, *others)), *more))

    assert not (asked.planner(one).tables.layouts == [1, 1, 3]).all(axis=1).any()
    odd, *near = asked.appraise(
        one, decision, [with_layout(1, 1, 3), with_layout(1, 1, 2), with_layout(1, 1, 4)]
    ).log_probability[0]
    assert np.isfinite(odd) and min(abs(odd - one) for one in near) == 0.0


def test_a_domain_that_is_not_on_offer_has_next_to_no_probability():
    asked, one = policy(), seen("equal")
    plan = next(p for p in (drawn(asked, one, i) for i in range(99)) if len(p.segments) == 1)
    full = np.array(one.free_devices)
    full[plan.domains[-1]] = 0
    less = replace(one, free_devices=full)
    told = asked.appraise(less, asked.perceive(less), [plan])
    assert told.log_probability[0, 0] <= -50.0 and np.isfinite(told.terms).all()


def test_bad_situations_and_plans_are_refused():
    asked, one = policy(), seen("equal")
    decision, plan = asked.perceive(one), drawn(policy(), one, 1)
    nothing = replace(decision, links=np.full_like(decision.links, np.nan))
    with pytest.raises(PlanError, match="must be finite"):
        asked.appraise(one, nothing, [plan])
    with pytest.raises(PlanError, match="must be finite"):
        asked.propose(one, nothing)
    with pytest.raises(PlanError, match="at least one"):
        asked.appraise(one, decision.take(np.zeros(0, dtype=np.int64)), [plan])
    with pytest.raises(PlanError, match="cluster has"):
        asked.appraise(one, asked.perceive(seen("pair")), [plan])
    with pytest.raises(PlanError, match="candidate 0"):
        asked.appraise(one, replace(decision, kind=1 - decision.kind), [plan])
    with pytest.raises(PlanError, match="must be <"):
        asked.appraise(one, replace(decision, kind=decision.kind + 9), [plan])
    empty = replace(plan.replicas[0], segments=())
    with pytest.raises(PlanError):
        asked.appraise(one, decision, [replace(plan, replicas=(empty,))])


def test_situations_of_several_decisions_can_be_put_together():
    asked, one = policy(), seen("mixed", 2)
    some = stacked([asked.perceive(one), varied(asked.perceive(one), 2, 0)])
    assert asked.appraise(one, some, [None]).log_probability.shape == (3, 1)


def test_many_decisions_judged_together_are_judged_as_each_by_itself():
    asked = policy()
    views = [seen("mixed", seed) for seed in range(2, 8)]
    parts = [varied(asked.perceive(one), 5, seed) for seed, one in enumerate(views)]
    plans = [drawn(asked, one, seed) if seed != 2 else None for seed, one in enumerate(views)]
    width = max(part.kind.shape[1] for part in parts)
    rows = stacked([widened(part, width) for part in parts])
    owner = np.repeat(np.arange(len(views)), 5)
    order = np.random.default_rng(0).permutation(len(owner))
    together = asked.appraise_each(views, rows.take(order), owner[order], plans)
    for decision, (one, part, plan) in enumerate(zip(views, parts, plans, strict=True)):
        alone = asked.appraise(one, part, [plan], log_probability=False)
        at = [int(np.flatnonzero(order == 5 * decision + row)[0]) for row in range(5)]
        assert np.allclose(together.terms[at], alone.terms, rtol=1e-9)
    assert isinstance(asked, BatchAppraiser) and isinstance(asked, Selective)
    other = seen("many", 2)
    with pytest.raises(PlanError, match="one cluster"):
        asked.appraise_each([views[0], other], rows, owner, plans[:2])


def test_terms_depend_on_what_they_are_said_to_depend_on():
    asked, one = policy(), seen("mixed", 3)
    own = asked.perceive(one)
    inside = next(p for p in (drawn(asked, one, seed) for seed in range(50)) if p and len(p.segments) == 1)
    assert asked.terms_read([inside]) == {"attribution"}
    base = asked.appraise(one, own, [inside], log_probability=False).terms
    moved = varied(own, 6, 4)
    for field in fields(Decisions):
        if field.name in ("kind", "slot", "replanning", "attribution"):
            continue
        part = replace(stacked([own] * 6), **{field.name: getattr(moved, field.name)})
        assert np.allclose(asked.appraise(one, part, [inside], log_probability=False).terms, base)


def test_attributions_and_pace_price_the_plan_as_the_beliefs_say():
    """The terms are the cost model's for the demands that are believed of the task: cut the vector and they move."""
    asked, one = policy(), seen("equal")
    decision, plan = asked.perceive(one), drawn(asked, one, 5)
    some = decision.take(np.zeros(3, dtype=np.int64))
    some.attribution[1, 0] *= -1.0
    some.attribution[2, 0] = 0.0
    told = asked.appraise(one, some, [plan], log_probability=False).terms[:, 0]
    speed = np.full(3, one.samples_per_s if one.counters.size else 0.0)
    given = some.attribution[:, 0].astype(np.float64)
    factors = np.exp(asked.demands(one.kinds).log_factors(some.kind[:, 0], given, speed))
    for row in range(3):
        step_s = one.cost.score(plan, one.kind_index, bandwidth_gbps=one.bandwidth_gbps, latency_s=one.latency_s,
                                factors=tuple(factors[row])).step_s[0]  # fmt: skip
        assert told[row, 0] == pytest.approx(1.0 - step_s / one.base_step_s[one.kind_index], rel=1e-9)
    assert (np.abs(told[1:] - told[0]).max(axis=1) > 1e-4).all()
