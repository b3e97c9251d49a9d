"""Every segment a plan could have, priced once: the bricks of the exact search.

``profile[o, i, j]`` describes layers ``[i, j)`` in layout ``o`` on a class of equal domains, for one microbatch
size. It depends neither on links nor on free devices, so a re-planning search finds it ready.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from attribution_sched.cluster.cost import split_stages, tp_index
from attribution_sched.cluster.gpus import PRECISIONS
from attribution_sched.kernels import kernel
from attribution_sched.planning.exact.problem import Problem
from attribution_sched.planning.segment_table import (
    FIXED_BYTES,
    HELD_BYTES,
    STAGE_BUSY_S,
    STAGE_COLUMNS,
    Pricing,
    write_stage,
)
from attribution_sched.types import FloatArray, IntArray

(
    WORK_S, SLOWEST_S, SLOWEST_FORWARD_S, SLOWEST_BACKWARD_S, BEFORE_S, STAGES_AFTER, BUSY_S, FIRST_END_S, MAX_TAIL,
    FIRST_FORWARD_S,
) = range(10)  # fmt: skip
"""Fields of a profile. Per microbatch: both passes of all stages with the sends between them; the slowest stage, its
passes, what lies before it in the segment, stages after it; mean compute per stage. Per step: optimiser and gradient
reduction of the first stage. Then the most stages that may follow before memory runs out (−1: does not fit), and the
forward pass of the first stage."""

FIELDS = 10

ANY_TAIL = 1e9


@kernel(allocates=True)
def _stages(
    pricing: Pricing, domain: int, option: IntArray, micro: int, microbatches: int, i: int, j: int, cuts: IntArray,
    out: FloatArray,
) -> None:  # fmt: skip
    """Write of each stage forward, backward and end seconds, bytes sent on, memory limit and compute seconds.

    The limit is minus the microbatches that there is room for; infinite where not even one fits.
    """
    dp, tp, pp, precision = option[0], option[1], option[2], option[3]
    tables, model = pricing.tables, pricing.workload.model
    here = pricing.domains.rows[domain]
    split_stages(tables.times_s[model, here.gpu, precision, tp_index(tp), 0], i, j, pp, 0, cuts)
    element = 4.0 if precision == 0 else 2.0
    stage = np.zeros(len(STAGE_COLUMNS))
    for s in range(pp):
        a, z = cuts[s], cuts[s + 1]
        write_stage(
            pricing.domains, pricing.runtime, pricing.power_law, tables, pricing.workload, domain, a, z, dp, tp,
            precision, micro, microbatches, stage,
        )  # fmt: skip
        out[s, :3] = stage[:3]
        # A send that leaves the domain carries the whole microbatch, whatever the layout.
        volume = micro * element * tables.boundary[model, z]
        out[s, 3] = volume / dp if s + 1 < pp else volume
        left, held = here.memory_bytes - stage[FIXED_BYTES], stage[HELD_BYTES]
        out[s, 4] = -np.inf
        if left < held:
            out[s, 4] = np.inf
        elif held > 0.0:
            out[s, 4] = -np.floor(left / held)
        out[s, 5] = stage[STAGE_BUSY_S]


@kernel(allocates=True)
def fill(pricing: Pricing, domain: int, option: IntArray, micro: int, microbatches: int, out: FloatArray) -> None:
    """Profile every segment ``[i, j)`` of one layout, shape ``(N + 1, N + 1, 10)``."""
    pp, here = option[2], pricing.domains.rows[domain]
    n = pricing.tables.n_layers[pricing.workload.model]
    cuts, stages = np.zeros(pp + 1, dtype=np.int64), np.zeros((pp, 6))
    for i in range(n):
        for j in range(i + pp, n + 1):
            _stages(pricing, domain, option, micro, microbatches, i, j, cuts, stages)
            row = out[i, j]
            work, busy, slowest, tail = 0.0, 0.0, -1.0, ANY_TAIL
            for s in range(pp):
                forward, backward, _, sent, limit, compute = stages[s]
                after = pp - 1 - s
                busy += compute / pp
                if forward + backward > slowest:
                    slowest = forward + backward
                    row[SLOWEST_FORWARD_S], row[SLOWEST_BACKWARD_S] = forward, backward
                    row[BEFORE_S], row[STAGES_AFTER] = work, after
                work += forward + backward
                if s + 1 < pp:
                    send = here.fabric_latency_s + sent / here.fabric_bytes_per_s
                    work += 2.0 * send if pricing.workload.training else send
                if limit == np.inf:
                    tail = -1.0
                elif -limit < microbatches:
                    # One microbatch is in flight for this stage and one for each stage behind it.
                    tail = min(tail, -limit - after - 1.0)
            row[FIRST_FORWARD_S], row[FIRST_END_S] = stages[0, 0], stages[0, 2]
            row[WORK_S], row[SLOWEST_S], row[BUSY_S], row[MAX_TAIL] = work, slowest, busy, tail


@kernel(allocates=True)
def keep_undominated(
    pricing: Pricing, domain: int, options: IntArray, usable: IntArray, micro: int, microbatches: int, kept: IntArray
) -> None:
    """List for every segment the layouts that no other layout with as many stages beats in every stage.

    The recurrence is monotone in every time, so a layout that is beaten in each of them is never needed.

    Args:
        pricing: Prices stages.
        domain: A domain of the class.
        options: Layouts, shape ``(O, 4)``.
        usable: Rows of the layouts that may be used.
        micro: Samples of a microbatch.
        microbatches: Microbatches of a step.
        kept: Output, shape ``(N + 1, N + 1, 1 + len(usable))``: how many, then which.
    """
    n = pricing.tables.n_layers[pricing.workload.model]
    count = usable.shape[0]
    deepest = 1
    for u in range(count):
        deepest = max(deepest, options[usable[u], 2])
    facts = np.zeros((count, deepest, 6))
    cuts = np.zeros(deepest + 1, dtype=np.int64)
    alive = np.zeros(count, dtype=np.bool_)
    for i in range(n):
        for j in range(i + 1, n + 1):
            for u in range(count):
                pp = options[usable[u], 2]
                alive[u] = pp <= j - i
                if alive[u]:
                    _stages(pricing, domain, options[usable[u]], micro, microbatches, i, j, cuts, facts[u])
                    for s in range(pp):
                        if facts[u, s, 4] == np.inf:
                            alive[u] = False
            found = 0
            for u in range(count):
                if not alive[u]:
                    continue
                pp = options[usable[u], 2]
                beaten = False
                for v in range(count):
                    if v == u or not alive[v] or options[usable[v], 2] != pp:
                        continue
                    as_good, same = True, True
                    for s in range(pp):
                        for c in range(5):
                            if facts[v, s, c] > facts[u, s, c]:
                                as_good = False
                            if facts[v, s, c] != facts[u, s, c]:
                                same = False
                    if as_good and (not same or v < u):
                        beaten = True
                        break
                if not beaten:
                    found += 1
                    kept[i, j, found] = usable[u]
            kept[i, j, 0] = found


MEGABYTE = 1 << 20


class SegmentProfiles:
    """Profiles and choices of every task a cost model knows, made when first asked for.

    What was used longest ago goes first when there is no room left.

    Args:
        megabytes: Room for profiles and choices together.
    """

    def __init__(self, megabytes: int = 512) -> None:
        self.megabytes = megabytes
        self._kept: dict[tuple[object, ...], NDArray[np.generic]] = {}

    def _keep(self, key: tuple[object, ...], table: NDArray[np.generic]) -> None:
        self._kept.pop(key, None)
        self._kept[key] = table
        size = sum(kept.nbytes for kept in self._kept.values())
        while size > self.megabytes * MEGABYTE and len(self._kept) > 1:
            size -= self._kept.pop(next(iter(self._kept))).nbytes

    def profile(self, task: Problem, option_rows: IntArray, micro: int, microbatches: int, domain: int) -> FloatArray:
        """Profile of all layouts on a class of domains, shape ``(O, N + 1, N + 1, 10)``.

        Args:
            task: The search problem.
            option_rows: Layouts, shape ``(O, 4)``.
            micro: Samples of a microbatch.
            microbatches: Microbatches of a step (limits what is in flight).
            domain: A domain of the class.
        """
        key = (task.cost, task.model, option_rows.tobytes(), micro, microbatches, domain)
        table = self._kept.get(key)
        if table is None:
            table = self._make(task, option_rows, micro, microbatches, domain)
        self._keep(key, table)
        return table.view(np.float64)

    def choices(
        self,
        task: Problem,
        option_rows: IntArray,
        usable: IntArray,
        micro: int,
        microbatches: int,
        domain: int,
        complete: bool,
    ) -> IntArray:
        """Layouts to try for every segment, shape ``(N + 1, N + 1, 1 + len(usable))``: how many, then which.

        Where only time and traffic count, layouts that others beat in every stage are left out, unless the list is to
        be ``complete``.
        """
        cost, n, time_only = task.cost, task.n_layers, task.objective.time_and_bill_only and not complete
        lists = (option_rows.tobytes(), usable.tobytes())
        key = (cost, task.model, *lists, micro, microbatches, domain, time_only)
        cached = self._kept.get(key)
        table = cached.view(np.int64) if cached is not None else None
        if table is None:
            table = np.zeros((n + 1, n + 1, 1 + len(usable)), dtype=np.int64)
            if time_only:
                keep_undominated(task.pricing(), domain, option_rows, usable, micro, microbatches, table)
            else:
                # Those that fit memory at all.
                profile = self.profile(task, option_rows, micro, microbatches, domain)
                fits = profile[usable][..., MAX_TAIL] >= 0.0
                table[..., 0] = fits.sum(axis=0)
                table[..., 1:] = np.moveaxis(usable[np.argsort(~fits, axis=0, kind="stable")], 0, -1)
        self._keep(key, table)
        return table

    @staticmethod
    def _make(task: Problem, option_rows: IntArray, micro: int, microbatches: int, domain: int) -> FloatArray:
        cost, n = task.cost, task.n_layers
        table = np.full((len(option_rows), n + 1, n + 1, FIELDS), np.nan)
        table[..., MAX_TAIL] = -1.0
        gpu = cost.cluster.domains[domain].gpu
        supported = [q.index for q in PRECISIONS if gpu.supports(q)]
        for o, option in enumerate(option_rows):
            if micro % option[0] == 0 and option[3] in supported:
                fill(task.pricing(), domain, option, micro, microbatches, table[o])
        return table
