"""Lessons from recorded traces: decisions that an optimiser solved, retold as Hi-PPO's own choices."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from itertools import groupby

import numpy as np

from attribution_sched.cluster.decision import Decisions, from_view
from attribution_sched.scheduler.hi_ppo.cloning import Lesson
from attribution_sched.scheduler.hi_ppo.evaluate import take_trace, trace_offsets
from attribution_sched.scheduler.hi_ppo.teachers import PlanFollower
from attribution_sched.scheduler.hi_ppo.walk import Planner, walk
from attribution_sched.scheduler.seq2seq.traces import Trace, views_of


def stack(decisions: list[Decisions]) -> Decisions:
    """Put decisions of one cluster together; all must have as many candidates."""
    return Decisions(
        **{f.name: np.concatenate([getattr(part, f.name) for part in decisions]) for f in fields(Decisions)}
    )


def retell(traces: Iterable[Trace], weight: float = 1.0) -> tuple[list[Lesson], int, int]:
    """Turn traces into lessons, one per world.

    Returns:
        Lessons, how many decisions they hold, and how many were left out because a choice of the teacher's plan is not
        on offer (another order of filling the domains, or a layout drafts do not know).
    """
    lessons: list[Lesson] = []
    kept = left_out = 0
    for _, group in groupby(views_of(traces), key=lambda pair: id(pair[1].cost)):
        pairs = list(group)
        first = pairs[0][1]
        planner = Planner.of(first.cost, first.kinds, first.base_step_s, first.base_cost_usd, first.max_segments)
        decisions = stack([from_view(view, None) for _, view in pairs])
        kind = np.array([view.kind_index for _, view in pairs])
        follower = PlanFollower(planner.tables, np.zeros(len(pairs), dtype=np.int64), [t.rows for t, _ in pairs], kind)
        found = walk(planner, decisions, follower)
        follower.compare(found.drafts)
        rows = np.flatnonzero(follower.followed)
        kept, left_out = kept + len(rows), left_out + len(pairs) - len(rows)
        if len(rows):
            lessons.append(Lesson(take_trace(found.trace, rows, trace_offsets(found.trace)), None, weight))
    return lessons, kept, left_out
