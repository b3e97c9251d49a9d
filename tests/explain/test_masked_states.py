"""Situations are mixtures: what is present is the decision's, what is absent a background state's."""

import functools
from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as hs

from attribution_sched.cluster.decision import Decisions, from_view, own_first
from attribution_sched.errors import ExplanationError, PlanError
from attribution_sched.explain.background import Background
from attribution_sched.explain.masked_states import Blender, stacked, to_view, widened
from attribution_sched.explain.players import lineup

from .policies import Planted, attributor, decided_by, views

DOMAINS = ("d0", "d1", "d2")


@functools.cache
def blender():
    decided = decided_by(Planted)
    states = Background.of(decided).states
    own = states.take(np.array([5]))
    return Blender.of(own, states, lineup(own, DOMAINS).owners), lineup(own, DOMAINS), own, states


def same(first, second):
    return all(np.array_equal(getattr(first, f.name), getattr(second, f.name)) for f in fields(Decisions))


def test_everybody_present_is_the_decision_itself():
    blend, cast, own, _ = blender()
    found = blend(np.ones((3, len(cast.names)), dtype=bool), np.array([0, 7, 9]), np.zeros(3, dtype=int))
    assert all(same(found.take(np.array([i])), own) for i in range(3))


def test_nobody_present_is_the_background_but_for_what_belongs_to_nobody():
    blend, cast, own, states = blender()
    found = blend(np.zeros((1, len(cast.names)), dtype=bool), np.array([8]), np.zeros(1, dtype=int))
    for name in ("links", "domains", "free", "waiting", "left", "waited_s", "attribution", "weights"):
        assert np.array_equal(getattr(found, name)[0], getattr(states, name)[8]), name
    assert found.kind[0, 0] == own.kind[0, 0] and found.replanning[0] == own.replanning[0]
    assert np.array_equal(found.event[0, :2], own.event[0, :2])


@settings(deadline=None, max_examples=40)
@given(hs.data())
def test_every_number_is_the_decisions_or_the_background_states(data):
    blend, cast, own, states = blender()
    present = np.array([data.draw(hs.lists(hs.booleans(), min_size=len(cast.names), max_size=len(cast.names)))])
    state = data.draw(hs.integers(0, len(states) - 1))
    found = blend(present, np.array([state]), np.zeros(1, dtype=int))
    for field in fields(Decisions):
        mixed, mine, other = (getattr(d, field.name)[r] for d, r in ((found, 0), (own, 0), (states, state)))
        owner = cast.owners.get(field.name)
        if owner is None:
            assert np.array_equal(mixed, mine)
            continue
        keep = np.append(present[0], True)[owner]
        assert np.array_equal(mixed, np.where(keep, mine, other)), field.name


def test_fields_are_put_together_when_they_are_read():
    blend, cast, _, _ = blender()
    some = np.random.default_rng(0).random((6, len(cast.names))) < 0.5
    at, nothing = np.arange(6), np.zeros(6, dtype=int)
    found = blend(some, at, nothing)
    assert len(found) == 6 and not set(vars(found)) & set(Decisions.__dataclass_fields__)
    part = found.take(np.array([4, 1]))
    assert found.links.shape[0] == 6 and set(vars(found)) & set(Decisions.__dataclass_fields__) == {"links"}
    assert np.array_equal(part.links, found.links[[4, 1]]) and len(part) == 2
    moved = replace(found, waiting=found.waiting + 1)
    assert same(replace(moved, waiting=found.waiting), found) and len(moved) == 6
    assert same(moved.take(np.array([2])), replace(found.take(np.array([2])), waiting=found.waiting[[2]] + 1))
    with pytest.raises(AttributeError):
        found.nothing_of_the_kind  # noqa: B018


@settings(deadline=None, max_examples=30)
@given(hs.data())
def test_leaving_out_players_that_are_always_present_changes_nothing(data):
    blend, cast, _, states = blender()
    asked = np.array(sorted(data.draw(hs.sets(hs.integers(0, len(cast.names) - 1), min_size=1))))
    present = np.ones((4, len(cast.names)), dtype=bool)
    present[:, asked] = np.random.default_rng(data.draw(hs.integers(0, 99))).random((4, len(asked))) < 0.5
    at = np.arange(4) * (len(states) // 5)
    assert same(blend.only(asked)(present, at, np.zeros(4, dtype=int)), blend(present, at, np.zeros(4, dtype=int)))


def test_a_link_has_both_directions_and_each_number_one_owner():
    _, cast, _, _ = blender()
    at = cast.names.index("link d0–d2")
    # Bandwidth and latency are the link's; what is expected of all links, and prices, are players of their own.
    assert (cast.owners["links"][:2, [0, 2], [2, 0]] == at).all() and (cast.owners["links"] == at).sum() == 4
    assert (cast.owners["links"][:2, np.arange(3), np.arange(3)] == -1).all()
    ahead, prices = (cast.names.index(name) for name in ("link forecasts", "egress prices"))
    assert ([prices, ahead] == cast.owners["links"][2:].reshape(2, -1).T).all()
    assert set(range(len(cast.names))) == {int(o) for owner in cast.owners.values() for o in owner.ravel()} - {-1}


@pytest.mark.parametrize(("links", "count"), [("pair", 3), ("domain", 3), ("all", 1)])
def test_links_can_be_grouped(links, count):
    _, _, own, _ = blender()
    cast = lineup(own, DOMAINS, links)
    assert sum(group == "link" for group in cast.groups) == count
    off = ~np.eye(3, dtype=bool)
    assert (cast.owners["links"][:, off] >= 0).all()


def test_unknown_grouping_and_wrong_names_are_refused():
    _, _, own, _ = blender()
    with pytest.raises(ExplanationError, match="pair, domain or all"):
        lineup(own, DOMAINS, "some")
    with pytest.raises(ExplanationError, match="must be 3"):
        lineup(own, ("a", "b"))


def test_a_background_of_another_cluster_is_refused():
    _, cast, own, states = blender()
    other = Decisions(**{f.name: getattr(states, f.name) for f in fields(Decisions)} | {"free": states.free[:, :2]})
    with pytest.raises(ExplanationError, match=r"background\.free"):
        Blender.of(own, other, cast.owners)


def test_own_task_goes_first_and_the_others_keep_their_order():
    long = next(view for view in views() if len(view.queue) > 2)
    seen = from_view(long, attributor)
    slot = int(seen.slot[0, 2])
    moved = own_first(seen, slot)
    assert moved.slot[0].tolist() == [slot, *[s for s in seen.slot[0].tolist() if s != slot]]
    assert np.array_equal(moved.attribution[0, 0], seen.attribution[0, 2])
    with pytest.raises(PlanError, match="waiting tasks"):
        own_first(seen, 999)


def test_stacking_makes_room_for_the_longest_queue():
    parts = [from_view(view, attributor) for view in views()[:20]]
    whole = stacked(parts)
    width = max(part.kind.shape[1] for part in parts)
    assert whole.kind.shape == (20, width)
    for row, part in enumerate(parts):
        q = part.kind.shape[1]
        assert np.array_equal(whole.kind[row, :q], part.kind[0]) and (whole.kind[row, q:] == -1).all()
    assert widened(whole, 1).left.shape == (20, 1)


def test_a_view_made_of_the_decision_itself_is_read_as_the_same_decision():
    for view in views()[:40]:
        seen = own_first(from_view(view, attributor), view.slot)
        again = own_first(from_view(to_view(view, seen, 0), attributor), view.slot)
        for field in fields(Decisions):
            if field.name == "attribution":
                # Counters of other waiting tasks are not in a situation.
                assert np.allclose(seen.attribution[:, 0], again.attribution[:, 0])
                continue
            assert np.allclose(getattr(seen, field.name), getattr(again, field.name), rtol=1e-5), field.name


def test_a_changed_situation_shows_in_the_view():
    view = views()[10]
    seen = own_first(from_view(view, attributor), view.slot)
    seen.links[0, 0, 0, 1] = 1.25
    seen.free[0, 2] = 0
    seen.weights[0] = (2.0, 0.0, 1.0)
    seen.left[0, 0] = 77.0
    changed = to_view(view, seen, 0)
    assert changed.bandwidth_gbps[0, 1] == 1.25 and changed.free_devices[2] == 0 and changed.steps_left == 77.0
    assert (changed.reward.w_eff, changed.reward.w_util, changed.reward.w_cost) == (2.0, 0.0, 1.0)
    assert view.bandwidth_gbps[0, 1] != 1.25


def test_waiting_tasks_stand_in_order_of_arrival_with_the_counters_they_had():
    long = [view for view in views() if len(view.queue) > 2][:10]
    for view in long:
        seen = own_first(from_view(view, attributor), view.slot)
        queue = to_view(view, seen, 0).queue
        assert [task.slot for task in queue] == [task.slot for task in view.queue]
        assert all(np.array_equal(a.counters, b.counters) for a, b in zip(queue, view.queue, strict=True))


def test_no_two_waiting_tasks_share_a_slot():
    view = next(view for view in views() if len(view.queue) > 2)
    seen = own_first(from_view(view, attributor), view.slot)
    seen.slot[0, 1:] = view.slot
    seen.left[0, 1:] += 1.0
    queue = to_view(view, seen, 0).queue
    assert len({task.slot for task in queue}) == len(queue) == len(view.queue)
    own = next(task for task in queue if task.slot == view.slot)
    assert own.counters.size and own.kind_index == view.kind_index
    assert not any(task.counters.size for task in queue if task is not own)
