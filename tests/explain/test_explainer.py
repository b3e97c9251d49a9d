"""Explanations of decisions: they find what a policy really reads, add up, and refuse what cannot be explained."""

from dataclasses import replace

import numpy as np
import pytest

from attribution_sched.attribution.vector import state_vectors
from attribution_sched.cluster.decision import attributed, encode, view
from attribution_sched.cluster.demands import DEMAND_NAMES
from attribution_sched.cluster.engine import state as st
from attribution_sched.errors import ExplanationError, PlanError
from attribution_sched.explain.background import Background
from attribution_sched.explain.explainer import ASKED_ANEW, FIXED, LESS, Explainer
from attribution_sched.explain.explanation import SIGNS
from attribution_sched.explain.games import DecisionGame
from attribution_sched.explain.reasoning import reasoning
from attribution_sched.explain.recorder import Decided, Watch, perceived
from attribution_sched.explain.targets import chosen
from attribution_sched.rivals.greedy import Greedy
from attribution_sched.scheduler.rules import RoundRobin

from ..cluster.engine_worlds import begun
from .policies import WORLD, Planted, attributor, decided_by, explainer, views

LINK = "link d0–d1"


def share_of_mass(explanation, player, output):
    shares = np.abs(explanation.values[:, explanation.column(output)])
    return shares[explanation.names.index(player)] / shares.sum()


@pytest.mark.parametrize("target", ["terms", "log_probability", "choice"])
def test_a_policy_that_reads_one_link_is_found_out(target):
    made, decided = explainer(Planted())
    cut = [one for one in decided if len(one.plan.segments) == 2][:5]
    for one in cut:
        found = made.explain(one, target=target, rows=2000, precision=None)
        for output in found.outputs:
            assert share_of_mass(found, LINK, output) >= 0.95
        assert found.efficiency_gap().max() < 1e-9


def test_the_shares_of_a_lone_reader_are_known_in_closed_form():
    made, decided = explainer(Planted())
    one = next(d for d in decided if len(d.plan.segments) == 2)
    found = made.explain(one, target="terms", rows=4000, precision=None)
    like = made.background.like(one.seen).states
    gbps, usual = (0.5 * (s.links[:, 0, 0, 1] + s.links[:, 0, 1, 0]) for s in (one.seen, like))
    # All of the difference is the link's own, whatever the order.
    expected = np.log(gbps[0]) - np.log(usual).mean()
    assert found.share(LINK, "R_eff") == pytest.approx(expected, abs=3 * found.standard_error[0, 0] + 1e-9)


def test_components_add_up_to_the_total_with_the_frozen_weights():
    made, decided = explainer(Planted())
    found = made.explain(decided[7], target="terms", rows=1500, precision=None)
    scale = np.array(SIGNS) * np.array(found.weights)
    assert np.abs(found.values[:, :3] @ scale - found.values[:, 3]).max() < 1e-6
    assert found.value[:3] @ scale == pytest.approx(found.value[3], abs=1e-6)
    assert found.values.sum(axis=0) == pytest.approx(found.value - found.base, abs=1e-9)


def test_a_contrast_is_the_difference_of_two_explanations():
    made, decided = explainer(Planted())
    one = next(d for d in decided if len(d.plan.segments) == 2)
    _, whole = Planted().plans(one.view.kind)
    ask = {"target": "terms", "rows": 1500, "precision": None, "seed": 4}
    both = made.explain(one, against=whole, **ask)
    alone = made.explain(one, **ask)
    other = made.explain(Decided("x", one.view, whole, one.seen), **ask)
    assert both.against and np.allclose(both.values, alone.values - other.values, atol=1e-9)
    odds = made.explain(one, target="log_probability", against=whole, rows=1500, precision=None)
    assert odds.target == "log_odds" and share_of_mass(odds, LINK, "log_odds") >= 0.95


def test_the_runner_up_is_the_policys_own_other_plan():
    made, decided = explainer(Planted())
    one = next(d for d in decided if len(d.plan.segments) == 2)
    found = made.explain(one, against="runner-up", rows=1500, precision=None)
    assert "layers 1" not in found.against and "d0" in found.against
    assert found.confidence is not None and 0.5 < found.confidence.probability <= 1.0
    assert found.confidence.runner_up == found.against
    assert found.confidence.probability + found.confidence.runner_up_probability == pytest.approx(1.0)


def test_nothing_can_be_compared_with():
    made, decided = explainer(Planted())
    found = made.explain(decided[0], against="nothing", rows=1500, precision=None)
    assert found.against == "wait"


def test_any_policy_can_be_explained_by_its_choices():
    made, decided = explainer(Greedy())
    found = made.explain(decided[4], target="choice", rows=600, precision=None)
    assert found.target == "choice" and found.value[0] == 1.0 and 0.0 <= found.base[0] <= 1.0
    assert found.efficiency_gap().max() < 1e-9
    with pytest.raises(ExplanationError, match="no critics"):
        made.explain(decided[4], target="terms")


def test_the_simulator_tells_the_truth_of_links_and_demands():
    made, decided = explainer(Planted(), world=WORLD)
    crossing = next(d for d in decided if len(d.plan.segments) == 2)
    found = made.explain(crossing, target="simulator", rows=6000, precision=None)
    moved = {found.names[i] for i in range(len(found.names)) if np.abs(found.values[i]).max() > 1e-12}
    assert LINK in moved and all(name.startswith(("link", "attribution")) for name in moved)
    assert {"link d0–d2", "link d1–d2"}.isdisjoint(moved)
    assert "attribution pcie_bandwidth" not in moved
    alone = next(d for d in decided if len(d.plan.segments) == 1)
    inside = made.explain(alone, target="simulator", rows=6000, precision=None)
    assert not any(np.abs(inside.values[i]).max() > 0 for i, p in enumerate(inside.players) if p.group == "link")
    with pytest.raises(ExplanationError, match="world="):
        explainer(Planted())[0].explain(crossing, target="simulator")


def test_the_simulators_own_terms_are_the_engines():
    engine, policy = begun(WORLD, 3), Greedy()
    compared = 0
    while compared < 8 and engine.state.event[0, st.DONE] == 0:
        seen = view(engine)
        plan = policy.decide(seen) if seen else None
        action = encode(engine, plan, seen.kind_index if seen else 0)
        if plan is not None:
            real = engine.probe(0, action[None])
            one = Decided("x", seen, plan, perceived(policy, attributed(seen, state_vectors(attributor, DEMAND_NAMES))))
            made = Explainer(policy, Background.of(decided_by(Greedy)), world=WORLD)
            game = made.game(one, target="simulator")
            told = game(np.ones((1, len(game.players)), dtype=bool), np.zeros(1, dtype=int))[0]
            assert told[:3] == pytest.approx([real[name][0] for name in ("r_eff", "r_util", "r_cost")], rel=1e-6)
            compared += 1
        engine.step(action[None])
    assert compared == 8


def test_the_same_seed_tells_the_same():
    made, decided = explainer(Planted())
    one = next(d for d in decided if len(d.plan.segments) == 2)
    first, second, other = (made.explain(one, target="terms", rows=900, precision=None, seed=s) for s in (1, 1, 2))
    assert np.array_equal(first.values, second.values) and not np.array_equal(first.values, other.values)


def test_many_together_tell_the_same_as_one_by_one():
    made, decided = explainer(Planted())
    some = decided[:12]
    together = made.explain_many(some, target="terms", rows=600, precision=None)
    for one, found in zip(some, together, strict=True):
        alone = made.explain(one, target="terms", rows=600, precision=None, sure=False)
        assert found.decision == one.id and np.allclose(found.values, alone.values, atol=1e-12)


def test_placements_are_compared_with_placements_of_the_same_kind():
    made, decided = explainer(Planted())
    like = made.background.like(decided[0].seen)
    assert (like.states.kind[:, 0] == decided[0].seen.kind[0, 0]).all() and "same kind" in like.name
    everything = made.background.like(decided[0].seen, same_kind=False)
    assert len(everything) > len(like)


def test_a_watch_remembers_what_was_decided_and_forgets_the_oldest():
    watch = Watch(Planted(), most=5)
    for one in views()[:8]:
        watch.decide(one)
    assert len(watch) == 5 and [one.id for one in watch] == [f"0-{i}" for i in range(3, 8)]
    assert watch["0-7"].plan == Planted().decide(views()[7])
    with pytest.raises(ExplanationError, match="0-2"):
        watch["0-2"]
    with pytest.raises(ExplanationError, match="most"):
        Watch(Planted(), most=0)


def test_what_cannot_be_explained_is_refused_with_one_clear_error():
    made, decided = explainer(Planted())
    with pytest.raises(ExplanationError, match="Did you mean 'terms'"):
        made.explain(decided[0], target="term")
    with pytest.raises(ExplanationError, match="at least one decision"):
        Background.of([])
    with pytest.raises(ExplanationError, match="not a plan"):
        made.explain(decided[0], against="somebody")
    with pytest.raises(ExplanationError, match="budget"):
        made.explain(decided[0], rows=0, precision=None)
    with pytest.raises(ExplanationError, match="at least one"):
        made.explain_many([])
    only = Background.of([decided[0]])
    with pytest.raises(ExplanationError, match="same as the decision"):
        Explainer(Planted(), only).explain(decided[0])


@pytest.mark.parametrize(("broken", "target"), [("terms", "terms"), ("log_probability", "log_probability")])
def test_a_policy_that_answers_nan_is_named(broken, target):
    made, decided = explainer(Planted(broken=broken))
    with pytest.raises(ExplanationError, match=r"(?i)finite|nan"):
        made.explain(decided[0], target=target, rows=500, precision=None, sure=False)


def test_a_state_with_nan_is_refused():
    made, decided = explainer(Planted())
    one = decided[0]
    broken = one.seen.take(np.array([0]))
    broken.links[0, 0, 0, 1] = np.nan
    with pytest.raises(PlanError, match="finite"):
        made.explain(Decided("x", one.view, one.plan, broken))


def test_a_policy_that_remembers_is_asked_alike_every_time_and_keeps_its_memory():
    policy = RoundRobin()
    watch = Watch(policy, placed_only=True)
    for one in views()[:80]:
        watch.decide(one)
    policy._next = 2
    made = Explainer(policy, Background.of(watch))
    for one in list(watch)[4:8]:
        first, second = (made.explain(one, target="choice", rows=200, precision=None, tipping=True) for _ in range(2))
        assert np.array_equal(first.values, second.values) and first.value[0] == 1.0
        # Its turn at the decision is not known; asked anew, it begins with the first domain.
        same = chosen(RoundRobin().decide(one.view)) == chosen(one.plan)
        assert (ASKED_ANEW in first.notes) == (not same)
    assert policy._next == 2


class Settling(Planted):
    """Proposes what it is planted to, and decides otherwise: a search afterwards stays in domain 0."""

    def decide(self, view):
        return self.plans(view.kind)[1]


def test_where_a_search_settled_another_plan_the_choice_explained_is_the_policys_own():
    made, decided = explainer(Settling())
    one = next(d for d in decided if Settling().link(d.seen)[0] > 5.75)
    found = made.explain(one, target="choice", rows=600, precision=None)
    assert found.value[0] == 1.0 and share_of_mass(found, LINK, "choice") >= 0.95
    assert ASKED_ANEW in found.notes and "重新询问" in reasoning(found, "zh")


def test_choices_are_compared_by_their_difference():
    made, decided = explainer(Planted())
    one = next(d for d in decided if len(d.plan.segments) == 2)
    ask = {"target": "choice", "rows": 600, "precision": None}
    alone, both = made.explain(one, **ask), made.explain(one, against="runner-up", **ask)
    # One of the two is always chosen, so that the difference moves twice as far.
    assert both.value[0] == 1.0 and both.base[0] == pytest.approx(2.0 * alone.base[0] - 1.0)
    assert np.allclose(both.values, 2.0 * alone.values) and LESS in both.notes and not alone.notes


def test_a_decision_to_wait_is_not_its_own_runner_up():
    made, decided = explainer(Planted())
    waits = Decided("w", decided[0].view, None, decided[0].seen)
    told = made.explain(waits, against="runner-up", rows=1500, precision=None)
    assert told.against != "wait" and told.confidence.runner_up != "wait"


class Paired(Planted):
    """Reads the same link, and counts it by how many devices of domain 2 are free."""

    def appraise(self, view, situations, plans, *, log_probability=True):
        said = super().appraise(view, situations, plans, log_probability=log_probability)
        return replace(said, terms=said.terms * (1.0 + situations.free[:, 2])[:, None, None])


def test_interactions_read_the_background_as_the_shares_do():
    made, decided = explainer(Paired())
    one = next(d for d in decided if len(d.plan.segments) == 2)
    ask = {"target": "terms", "rows": 1500, "precision": None, "sure": False}
    found = [
        made.explain(one, reading=reading, interactions=2, **ask).interactions for reading in ("sample", "population")
    ]
    for as_sample, as_all in zip(*found, strict=True):
        assert {as_sample.first, as_sample.second} == {LINK, "load d2"} and as_sample.value == as_all.value
        assert as_all.standard_error < as_sample.standard_error


def test_interactions_of_all_players_have_draws_enough():
    made, decided = explainer(Paired())
    one = next(d for d in decided if len(d.plan.segments) == 2)
    asked = []
    game = DecisionGame.__call__

    def counted(self, coalitions, background):
        asked.append(len(coalitions))
        return game(self, coalitions, background)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DecisionGame, "__call__", counted)
        told = made.explain(one, target="terms", rows=1500, precision=None, sure=False, interactions=99)
    pairs = len(told.interactions) // 4
    assert pairs > 60 and sum(asked) >= 32 * 8 * pairs


def test_intervals_that_leave_the_background_out_say_so():
    made, decided = explainer(Planted())
    one = next(d for d in decided if len(d.plan.segments) == 2)
    ask = {"target": "terms", "rows": 1500, "precision": None, "sure": False}
    assert FIXED not in made.explain(one, **ask).notes
    assert FIXED in made.explain(one, reading="population", **ask).notes
    # A single state cannot tell how much states differ: what it is read as is said, whatever was asked for.
    lone = Explainer(Planted(), Background.of([next(d for d in decided if d is not one)])).explain(one, **ask)
    assert FIXED in lone.notes and "背景状态" in reasoning(lone, "zh")


def test_a_choice_is_never_compared_with_itself():
    made, decided = explainer(Settling())
    for one in decided[:6]:
        found = made.explain(one, target="choice", against="runner-up", rows=300, precision=None)
        assert found.value[0] == 1.0
