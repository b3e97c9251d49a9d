"""Decisions side by side: prepared together as each by itself, and judged the same."""

import functools
from dataclasses import fields, replace

import numpy as np
import pytest

from attribution_sched.errors import ExplanationError, PlanError
from attribution_sched.explain.background import Background
from attribution_sched.explain.batch import Batch, ManyDecisions
from attribution_sched.explain.explainer import Explainer
from attribution_sched.explain.recorder import Watch, perceived
from attribution_sched.rivals.greedy import Greedy
from attribution_sched.scheduler.episode import play

from ..scheduler.hi_ppo import worlds
from ..scheduler.hi_ppo.test_appraisal import policy as made_policy


@functools.cache
def watched():
    policy, watch = made_policy(), Watch(Greedy())
    for seed in range(3):
        play(worlds.worlds()["mixed"], watch, seed)
    decided = [replace(one, seen=perceived(policy, one.view)) for one in watch]
    return Explainer(policy, Background.of(decided, "tiny")), decided


@pytest.mark.parametrize(("target", "rounding"), [("terms", 1e-9), ("log_probability", 1e-6)])
def test_many_together_tell_the_same_as_one_by_one(target, rounding):
    """Networks count in float32, where products of other numbers of rows may round otherwise."""
    made, decided = watched()
    some = [one for one in decided if one.plan is not None][:20]
    ask = {"target": target, "rows": 300, "precision": None, "seed": 4}
    together = made.explain_many(some, **ask)
    for one, found in zip(some, together, strict=True):
        alone = made.explain(one, sure=False, **ask)
        for name in ("values", "standard_error", "base", "value"):
            scale = np.abs(alone.value).max()
            assert np.abs(getattr(found, name) - getattr(alone, name)).max() <= rounding * scale, name
        for item in fields(alone):
            if item.name not in ("values", "standard_error", "base", "value", "seconds"):
                assert getattr(found, item.name) == getattr(alone, item.name), item.name


def test_a_precision_is_reached_by_each_decision_on_its_own():
    made, decided = watched()
    some = [one for one in decided if one.plan is not None][:12]
    ask = {"target": "terms", "rows": 4000, "precision": 0.2, "reading": "population"}
    together = made.explain_many(some, **ask)
    alone = [made.explain(one, sure=False, **ask) for one in some]
    assert [one.rows for one in together] == [one.rows for one in alone] and len({one.rows for one in alone}) > 1
    assert all(np.allclose(a.values, b.values, rtol=1e-9, atol=1e-12) for a, b in zip(together, alone, strict=True))


def test_decisions_are_sorted_by_kind_of_event_task_and_players():
    made, decided = watched()
    batches = made._batches(decided, "terms")
    assert all(isinstance(batch, Batch) and isinstance(batch.game, ManyDecisions) for batch in batches)
    assert sorted(i for batch in batches for i in batch.members) == list(range(len(decided)))
    for batch in batches:
        assert len(set(batch.seen.kind[:, 0])) == 1 and len(set(batch.seen.replanning)) == 1
        for row, i in enumerate(batch.members):
            game = made.game(decided[i], target="terms")
            assert np.array_equal(game.seats, batch.seats) and game.players == batch.game.players
            assert np.array_equal(batch.seen.links[row], decided[i].seen.links[0])


def test_a_decision_that_nothing_can_move_is_refused_among_others_too():
    made, decided = watched()
    only = Explainer(made.policy, Background.of([decided[0]]), same_kind=False)
    with pytest.raises(ExplanationError, match="same as the decision"):
        only.explain_many([decided[0]], target="terms")


def test_a_decision_with_nan_is_refused_among_others_too():
    made, decided = watched()
    links = decided[0].seen.links.copy()
    links[0, 0, 0, 1] = np.nan
    broken = replace(decided[0], seen=replace(decided[0].seen, links=links))
    with pytest.raises(PlanError, match="must be finite"):
        made.explain_many([decided[1], broken], target="terms")
