"""Plans put together from parts: some of one plan, the rest of another.

Parts are named here, mixed as rows of a :class:`~attribution_sched.cluster.plan.PlanBatch`, given the number of
microbatches that the cluster itself would give them, and held against what the cluster would refuse.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from attribution_sched.cluster.cost import share_batch
from attribution_sched.cluster.decision import Decision
from attribution_sched.cluster.plan import (
    DOMAIN,
    DP,
    FIRST,
    MICROBATCH,
    MICROBATCHES,
    PP,
    PRECISION,
    REPLICA,
    STOP,
    TP,
    Plan,
    PlanBatch,
)
from attribution_sched.errors import ExplanationError, problem
from attribution_sched.planning.candidates import runnable, taken
from attribution_sched.shapley.exact import all_coalitions
from attribution_sched.types import IntArray

DOMAINS, CUTS, LAYOUT, NUMBERS, MICRO = "domains", "cut points", "layout", "precision", "microbatch"
STRUCTURE, SCHEDULE = "domains and cuts", "schedule"

COLUMNS: dict[str, tuple[int, ...]] = {
    DOMAINS: (DOMAIN,),
    CUTS: (FIRST, STOP),
    LAYOUT: (DP, TP, PP),
    NUMBERS: (PRECISION,),
    MICRO: (MICROBATCH,),
}
"""Parts of plans of the same shape, and the columns of a segment that they are written in."""

Block = tuple[str, ...]
"""Parts that come or go together."""


@dataclass(frozen=True, eq=False)
class Hybrids:
    """All mixtures of a plan with D others; of each, every subset of the parts may be the plan's own.

    Attributes:
        blocks: The k players, each one part or several that cannot be told apart.
        plans: ``D · 2^k`` plans; plan ``d · 2^k + code`` has the parts whose bit is set from the plan itself.
        draws: D.
        complete: Whether the others are all there are, not a sample.
    """

    blocks: tuple[Block, ...]
    plans: PlanBatch
    draws: int
    complete: bool

    @property
    def names(self) -> tuple[str, ...]:
        """Name of each player."""
        return tuple(" + ".join(block) for block in self.blocks)

    def others(self) -> PlanBatch:
        """The D plans without any part of the plan itself."""
        return taken(self.plans, np.arange(self.draws) << len(self.blocks))

    def pick(self, draws: IntArray) -> Hybrids:
        """Mixtures with some of the others, in this order."""
        size = 1 << len(self.blocks)
        rows = (draws[:, None] * size + np.arange(size)).reshape(-1)
        return Hybrids(self.blocks, taken(self.plans, rows), len(draws), self.complete)


def rows_of(plan: Plan) -> IntArray:
    """Segments of one plan, shape ``(P, 11)``."""
    found: IntArray = PlanBatch.of([plan]).segments[0]
    return found


def mixed(own: IntArray, others: IntArray, parts: Sequence[str]) -> IntArray:
    """Every mixture of a plan ``(P, 11)`` with others of its shape ``(D, P, 11)``, shape ``(D, 2^k, P, 11)``."""
    present = all_coalitions(len(parts))
    keep = np.ones((len(present), own.shape[1]), dtype=np.bool_)
    for bit, part in enumerate(parts):
        keep[:, COLUMNS[part]] = present[:, bit, None]
    found: IntArray = np.where(keep[None, :, None, :], own, others[:, None])
    return found


def plans_of(view: Decision, segments: IntArray, schedules: IntArray, counts: IntArray | None = None) -> PlanBatch:
    """Plans ``(n, P, 11)`` as the cluster carries them out: replicas share the batch by their speed."""
    rows = np.ascontiguousarray(segments)
    counts = np.full(len(rows), rows.shape[1], dtype=np.int64) if counts is None else counts
    batch, cost, kind = float(view.kind.batch_size), view.cost, view.kind_index
    last = rows[np.arange(len(rows)), counts - 1, REPLICA]
    alone = last == 0
    rows[alone, :, MICROBATCHES] = np.maximum(1, np.rint(batch / rows[alone, :, MICROBATCH].clip(min=1)))
    for row in np.flatnonzero(~alone):
        share_batch(cost.tables, cost.domains, kind, batch, rows[row], int(counts[row]), int(last[row]) + 1)
    return PlanBatch(rows, counts, schedules)


def between(view: Decision, plan: Plan, other: Plan) -> Hybrids:
    """Mixtures of two plans, with as many players as the mixtures that can run allow.

    Parts of plans with as many segments per replica are exchanged segment by segment. Otherwise domains and cuts are
    one part, and layout, format or microbatch can only be exchanged if a plan has one for all its segments. Parts whose
    mixtures cannot run are joined into one player, as few of them as will do; the two plans themselves can run, so in
    the end all differing parts may be one.

    Raises:
        PlanError: If a plan is malformed or does not fit memory.
        ExplanationError: If the plans are the same.
    """
    for one in (plan, other):
        view.cost.check(one, view.kind_index)
    differing = _differing(plan, other)
    if not differing:
        fix = "Name a plan that runs elsewhere or otherwise, or use 'menu'"
        raise ExplanationError(problem("against", "the plan itself", "has no part that differs", fix))
    codes = all_coalitions(len(differing))
    made = [_hybrid(plan, other, dict(zip(differing, keep, strict=True))) for keep in codes]
    batch = _packed(view, [rows for rows, _ in made], np.array([schedule for _, schedule in made]))
    can = np.array([rows is not None for rows, _ in made]) & runnable(view, batch)
    for blocks in sorted(map(sorted, _partitions(list(range(len(differing))))), key=len, reverse=True):
        inside = all_coalitions(len(blocks))
        code = sum((inside[:, b] * sum(1 << part for part in block) for b, block in enumerate(blocks)), np.int64(0))
        if can[code].all():
            named = tuple(tuple(differing[part] for part in block) for block in blocks)
            return Hybrids(named, taken(batch, np.asarray(code)), 1, True)
    raise ExplanationError(problem("against", "a plan", "cannot run as a whole", "Name a plan that fits"))


def _differing(plan: Plan, other: Plan) -> tuple[str, ...]:
    own, its = rows_of(plan), rows_of(other)
    found = [SCHEDULE] if plan.schedule != other.schedule else []
    if _alike(own, its):
        return (*(part for part, at in COLUMNS.items() if (own[:, at] != its[:, at]).any()), *found)
    moved = [part for part in (LAYOUT, NUMBERS, MICRO) if not _carries_nothing(own, its, COLUMNS[part])]
    return (STRUCTURE, *moved, *found)


def _alike(own: IntArray, its: IntArray) -> bool:
    """Whether two plans have as many segments in every replica."""
    return np.array_equal(own[:, REPLICA], its[:, REPLICA])


def _carries_nothing(own: IntArray, its: IntArray, columns: tuple[int, ...]) -> bool:
    """Whether all segments of both plans have the same in some columns."""
    return len(np.unique(np.concatenate([own, its])[:, columns], axis=0)) == 1


def _hybrid(plan: Plan, other: Plan, keep: dict[str, bool]) -> tuple[IntArray | None, int]:
    """Rows of one mixture, None if a part cannot be put on the other plan's segments; and its schedule."""
    schedule = int((plan if keep.get(SCHEDULE, True) else other).schedule)
    own, its = rows_of(plan), rows_of(other)
    if _alike(own, its):
        code = sum(int(keep[part]) << bit for bit, part in enumerate(p for p in keep if p != SCHEDULE))
        return mixed(own, its[None], [part for part in keep if part != SCHEDULE])[0, code], schedule
    home, away = (own, its) if keep[STRUCTURE] else (its, own)
    made = home.copy()
    for part in (LAYOUT, NUMBERS, MICRO):
        if part in keep and keep[part] != keep[STRUCTURE]:
            values = np.unique(away[:, COLUMNS[part]], axis=0)
            if len(values) > 1:
                return None, schedule
            made[:, COLUMNS[part]] = values[0]
    return made, schedule


def _packed(view: Decision, listed: list[IntArray | None], schedules: IntArray) -> PlanBatch:
    """Plans of different widths as one batch; what could not be made stands as the first that could."""
    made = [rows for rows in listed if rows is not None]
    counts = np.array([len(made[0] if rows is None else rows) for rows in listed], dtype=np.int64)
    wide = np.zeros((len(listed), counts.max(), made[0].shape[1]), dtype=np.int64)
    for row, rows in enumerate(listed):
        wide[row, : counts[row]] = made[0] if rows is None else rows
    return plans_of(view, wide, schedules, counts)


def _partitions(items: list[int]) -> Iterator[list[list[int]]]:
    """Every way to group items."""
    if not items:
        yield []
        return
    first, rest = items[0], items[1:]
    for groups in _partitions(rest):
        yield [[first], *groups]
        for at, group in enumerate(groups):
            yield [*groups[:at], [first, *group], *groups[at + 1 :]]
