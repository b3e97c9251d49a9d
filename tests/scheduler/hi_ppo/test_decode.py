"""Random walks: whatever is chosen from what is offered, the cluster carries it out."""

import numpy as np
import pytest

from attribution_sched.cluster.engine import state as st
from attribution_sched.cluster.plan import PlanBatch
from attribution_sched.errors import PlanError
from attribution_sched.scheduler.hi_ppo.action_masks import DEAD, DONE
from attribution_sched.scheduler.hi_ppo.decode import decode

from ...cluster.engine_worlds import random_actions
from . import worlds

CLUSTERS = 12


def layout_rows(engine, planner):
    listed = engine.layouts.tolist()
    return np.array([listed.index([*row, 0]) for row in planner.tables.layouts.tolist()])


def wander(world, rounds, seed, check):
    """Lead many clusters of a world through random states; ``check`` is told of every batch of walks."""
    engine = worlds.begun(world, CLUSTERS, seed)
    planner, rng = worlds.planner_of(engine), np.random.default_rng(seed)
    rows_of = layout_rows(engine, planner)
    # Random plans ask for two devices in a domain; where none has two, random nonsense stands in.
    wild = 0.1 if max(domain.devices for domain in world.cluster.domains) > 1 else 1.0
    for number in range(rounds):
        engine.reset(engine.state.event[:, st.DONE] == 1)
        rows = worlds.pending(engine)
        decisions = worlds.gathered(engine, rows)
        found = decode(planner, decisions, worlds.chooser(seed + number, must_act=number % 2 == 0))
        actions = worlds.engine_actions(planner.tables, found.drafts, found.batch.segments, rows_of)
        acted = found.batch.counts > 0
        placing = acted & ~decisions.replanning
        engine.state.event[rows[placing], st.SLOT] = decisions.slot[placing, found.task[placing]]
        check(engine, rows, decisions, found, actions)
        whole = np.zeros((CLUSTERS, *actions.shape[1:]), dtype=np.int64)
        whole[:, :, 0] = len(world.cluster)
        whole[rows] = actions
        engine.step(random_actions(engine, rng, wild) if number % 3 == 2 else whole)


@pytest.mark.parametrize("name", list(worlds.worlds()))
def test_no_plan_of_a_walk_is_refused_and_all_fit_memory(name):
    counts = {"plans": 0, "dead": 0}

    def check(engine, rows, decisions, found, actions):
        assert ((found.drafts.status == DONE) | (found.drafts.status == DEAD)).all()
        acted = found.batch.counts > 0
        counts["plans"] += int(acted.sum())
        counts["dead"] += int((found.drafts.status == DEAD).sum())
        for i in np.flatnonzero(acted):
            code = int(engine.probe(int(rows[i]), actions[i][None])["code"][0])
            assert code >= 0, st.CODES[code]
        for kind in np.unique(found.drafts.kind[acted]):
            some = acted & (found.drafts.kind == kind)
            batch = PlanBatch(found.batch.segments[some], found.batch.counts[some], np.zeros(some.sum(), dtype=int))
            assert engine.cost.score(batch, int(kind), breakdown=False).fits.all()

    wander(worlds.worlds()[name], 30, 3, check)
    assert counts["plans"] > 40
    assert counts["dead"] <= 0.01 * counts["plans"]


class Asked(worlds.Anything):
    """Chooses at random and counts what it was asked."""

    def __init__(self, counts):
        super().__init__(5, must_act=True)
        self.counts = counts

    def choose(self, head, offer, drafts, rows):
        assert len(offer.mask) == len(rows) == len(offer.choices) and (offer.mask.sum(axis=1) > 1).all()
        assert np.isfinite(offer.choices).all()
        self.counts[head] = self.counts.get(head, 0) + len(rows)
        return super().choose(head, offer, drafts, rows)


def test_whoever_chooses_is_asked_only_where_there_is_a_choice():
    counts = {}

    def check(engine, rows, decisions, found, actions):
        assert found.state.mask[np.arange(len(rows)), found.task].all()
        decode(worlds.planner_of(engine), decisions, Asked(counts))

    for name in ("tight", "mixed", "served"):
        wander(worlds.worlds()[name], 12, 5, check)
    assert set(counts) == {"domain", "cut", "layout", "format", "level"} and min(counts.values()) > 10


class Stubborn:
    """Takes the first choice, whatever the mask says."""

    def task(self, state):
        return np.zeros(len(state.mask), dtype=np.int64)

    def choose(self, head, offer, drafts, rows):
        if head == "layout":
            return np.full(len(rows), int(np.flatnonzero(~offer.mask[0])[0]))
        return offer.mask.argmax(axis=1)


def test_a_chooser_that_ignores_masks_is_told_so():
    engine = worlds.begun(worlds.worlds()["tight"], 4)
    with pytest.raises(PlanError, match="not on offer"):
        decode(worlds.planner_of(engine), worlds.gathered(engine), Stubborn())


def test_time_is_told_per_level():
    engine = worlds.begun(worlds.worlds()["equal"], 4)
    ticks = iter(range(1000))
    timings = {"upper": 0.0, "lower": 0.0}
    decode(
        worlds.planner_of(engine), worlds.gathered(engine), worlds.chooser(must_act=True), timings, lambda: next(ticks)
    )
    assert timings["upper"] > 0 and timings["lower"] > 0
