"""Thresholds and smallest changes: found where they are known to be, and verified by running the policy."""

import numpy as np
import pytest

from attribution_sched.explain.counterfactual import find_flips, smallest_flip
from attribution_sched.explain.masked_states import Blender, stacked
from attribution_sched.explain.players import FORECAST, lineup
from attribution_sched.explain.sensitivity import copies, sweeps
from attribution_sched.explain.targets import chosen
from attribution_sched.rivals.greedy import Greedy

from .policies import Planted, explainer

DOMAINS = ("d0", "d1", "d2")
DEVICES = [4, 4, 4]


def everything(one, background):
    return sweeps(one.seen, background.states, DOMAINS, DEVICES)


def test_the_threshold_of_a_planted_rule_is_found_in_its_unit():
    policy = Planted(threshold_gbps=5.75)
    made, decided = explainer(policy)
    for one in decided[:6]:
        found = made.explain(one, rows=500, precision=None, tipping=True)
        rule = next(r for r in found.rules if r.quantity == "bandwidth")
        assert rule.player == "link d0–d1" and rule.unit == "Gb/s"
        assert rule.threshold == pytest.approx(5.75, rel=0.02)
        assert rule.side == ("above" if len(one.plan.segments) == 2 else "below")
        assert len(found.rules) == 1


def test_the_smallest_flip_is_that_of_the_planted_link_and_really_flips():
    policy = Planted()
    made, decided = explainer(policy)
    one = decided[2]
    found = made.explain(one, rows=500, precision=None, tipping=True).counterfactual
    assert found.verified and [change.player for change in found.changes] == ["link d0–d1"]
    changed = copies(one.seen, 1)
    sweep = next(s for s in everything(one, made.background) if s.player == "link d0–d1" and s.quantity == "bandwidth")
    sweep.apply(changed, np.array([found.changes[0].after]))
    assert chosen(policy.propose(one.view, changed)[0]) != chosen(policy.propose(one.view, one.seen)[0])
    back = copies(one.seen, 1)
    sweep.apply(back, np.array([2 * found.changes[0].before - found.changes[0].after]))
    assert chosen(policy.propose(one.view, back)[0]) == chosen(one.plan)


def test_a_rule_without_critics_flips_too():
    made, decided = explainer(Greedy())
    one = decided[3]
    found = made.explain(one, rows=200, precision=None, tipping=True)
    assert found.counterfactual is not None and found.counterfactual.verified
    assert any(rule.quantity == "free devices" for rule in found.rules)


class Stubborn(Planted):
    """Changes its mind only if both a link and the queue are otherwise; no single quantity flips it."""

    def propose(self, view, situations):
        cut, whole = self.plans(view.kind)
        slow, alone = self.link(situations) < self.threshold_gbps, situations.free[:, 2] == 4
        return [whole if a and b else cut for a, b in zip(slow, alone, strict=True)]


def test_where_no_single_quantity_flips_a_few_together_do():
    policy = Stubborn()
    made, decided = explainer(policy)
    one = next(
        d for d in decided if policy.link(d.seen)[0] > 5.75 and d.seen.free[0, 2] < 4
    )  # fmt: skip
    flips = find_flips(policy, one.view, one.seen, everything(one, made.background))
    assert flips == []
    background = made.background.like(one.seen)
    cast = lineup(one.seen, DOMAINS)
    blend = Blender.of(one.seen, background.states, cast.owners)
    found = smallest_flip(policy, one.view, one.seen, flips, cast, blend)
    assert found is not None and {change.player for change in found.changes} == {"link d0–d1", "load d2"}


def test_sweeps_move_what_they_say_and_nothing_else():
    _, decided = explainer(Planted())
    one = next(d for d in decided if d.seen.kind.shape[1] > 1)
    cast = lineup(one.seen, DOMAINS)
    for sweep in sweeps(one.seen, stacked([d.seen for d in decided[:30]]), DOMAINS, DEVICES):
        value = sweep.values[0] if not np.isclose(sweep.values[0], sweep.value) else sweep.values[-1]
        moved = copies(one.seen, 1)
        sweep.apply(moved, np.array([value]))
        player = cast.names.index(sweep.player)
        for field, owner in cast.owners.items():
            before, after = getattr(one.seen, field)[0], getattr(moved, field)[0]
            changed = ~np.isclose(before, after)
            allowed = owner == player
            if field == "links" and sweep.quantity == "bandwidth":
                # What is expected of the link moves with it.
                allowed[FORECAST] = allowed[0]
            assert not (changed & ~allowed).any(), (sweep.player, sweep.quantity, field)
    assert sweep.spread > 0


@pytest.mark.parametrize("links", ["domain", "all"])
def test_thresholds_go_by_the_names_of_the_players_where_links_are_grouped(links):
    made, decided = explainer(Planted(), links=links)
    found = made.explain(decided[2], rows=500, precision=None, tipping=True)
    assert found.rules and {rule.player for rule in found.rules} <= set(found.names)
    assert found.rules[0].quantity == "bandwidth d0–d1" and found.rules[0].threshold == pytest.approx(5.75, rel=0.02)
