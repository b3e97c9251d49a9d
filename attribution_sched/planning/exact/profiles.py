"""Every segment a plan could have, priced once: the bricks of the exact search.

``profile[o, i, j]`` describes layers ``[i, j)`` in layout ``o`` on a class of equal domains, for one microbatch
size. It depends neither on links nor on free devices, so a re-planning search finds it ready.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from attribution_sched.cluster.compute import CostTables
from attribution_sched.cluster.cost import DomainArrays, PowerArrays, RuntimeArrays, Workload, split_stages, tp_index
from attribution_sched.cluster.gpus import PRECISIONS
from attribution_sched.kernels import kernel
from attribution_sched.planning.exact.problem import Problem
from attribution_sched.planning.segment_table import (
    BACKWARD_S,
    END_S,
    FIXED_BYTES,
    FORWARD_S,
    HELD_BYTES,
    STAGE_BUSY_S,
    STAGE_COLUMNS,
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
def fill(
    domains: DomainArrays,
    runtime: RuntimeArrays,
    power_law: PowerArrays,
    tables: CostTables,
    workload: Workload,
    domain: int,
    option: IntArray,
    micro: int,
    microbatches: int,
    out: FloatArray,
) -> None:
    """Profile every segment ``[i, j)`` of one layout, shape ``(N + 1, N + 1, 10)``."""
    dp, tp, pp, precision = option[0], option[1], option[2], option[3]
    here = domains.rows[domain]
    n = tables.n_layers[workload.model]
    prefix = tables.times_s[workload.model, here.gpu, precision, tp_index(tp), 0]
    cuts = np.zeros(pp + 1, dtype=np.int64)
    element = 4.0 if precision == 0 else 2.0
    stage = np.zeros(len(STAGE_COLUMNS))
    for i in range(n):
        for j in range(i + pp, n + 1):
            split_stages(prefix, i, j, pp, 0, cuts)
            row = out[i, j]
            work, busy, slowest, tail = 0.0, 0.0, -1.0, ANY_TAIL
            for s in range(pp):
                write_stage(
                    domains, runtime, power_law, tables, workload, domain, cuts[s], cuts[s + 1], dp, tp, precision,
                    micro, microbatches, stage,
                )  # fmt: skip
                forward, backward = stage[FORWARD_S], stage[BACKWARD_S]
                after = pp - 1 - s
                busy += stage[STAGE_BUSY_S] / pp
                if forward + backward > slowest:
                    slowest = forward + backward
                    row[SLOWEST_FORWARD_S] = forward
                    row[SLOWEST_BACKWARD_S] = backward
                    row[BEFORE_S] = work
                    row[STAGES_AFTER] = after
                work += forward + backward
                if s + 1 < pp:
                    volume = micro * element * tables.boundary[workload.model, cuts[s + 1]]
                    send = here.fabric_latency_s + volume / dp / here.fabric_bytes_per_s
                    work += 2.0 * send if workload.training else send
                left, held = here.memory_bytes - stage[FIXED_BYTES], stage[HELD_BYTES]
                if left < min(1, microbatches) * held:
                    tail = -1.0
                elif held > 0.0 and np.floor(left / held) < microbatches:
                    # One microbatch is in flight for this stage and one for each stage behind it.
                    tail = min(tail, np.floor(left / held) - after - 1.0)
                if s == 0:
                    row[FIRST_FORWARD_S] = forward
                    row[FIRST_END_S] = stage[END_S]
            row[WORK_S] = work
            row[SLOWEST_S] = slowest
            row[BUSY_S] = busy
            row[MAX_TAIL] = tail


@kernel(allocates=True)
def _stages(
    domains: DomainArrays,
    runtime: RuntimeArrays,
    power_law: PowerArrays,
    tables: CostTables,
    workload: Workload,
    domain: int,
    option: IntArray,
    micro: int,
    microbatches: int,
    i: int,
    j: int,
    cuts: IntArray,
    out: FloatArray,
) -> None:
    """Write what the step time depends on: per stage forward, backward, end and send seconds and memory limit."""
    dp, tp, pp, precision = option[0], option[1], option[2], option[3]
    here = domains.rows[domain]
    prefix = tables.times_s[workload.model, here.gpu, precision, tp_index(tp), 0]
    split_stages(prefix, i, j, pp, 0, cuts)
    element = 4.0 if precision == 0 else 2.0
    stage = np.zeros(len(STAGE_COLUMNS))
    for s in range(pp):
        a, z = cuts[s], cuts[s + 1]
        write_stage(
            domains, runtime, power_law, tables, workload, domain, a, z, dp, tp, precision, micro, microbatches, stage
        )  # fmt: skip
        out[s, :3] = stage[:3]
        # A send that leaves the domain carries the whole microbatch, whatever the layout.
        volume = micro * element * tables.boundary[workload.model, z]
        out[s, 3] = volume / dp if s + 1 < pp else volume
        left, held = here.memory_bytes - stage[FIXED_BYTES], stage[HELD_BYTES]
        out[s, 4] = -np.inf
        if left < held:
            out[s, 4] = np.inf
        elif held > 0.0:
            out[s, 4] = -np.floor(left / held)


@kernel(allocates=True)
def keep_undominated(
    domains: DomainArrays,
    runtime: RuntimeArrays,
    power_law: PowerArrays,
    tables: CostTables,
    workload: Workload,
    domain: int,
    options: IntArray,
    usable: IntArray,
    micro: int,
    microbatches: int,
    kept: IntArray,
) -> None:
    """List for every segment the layouts that no other layout with as many stages beats in every stage.

    The recurrence is monotone in every time, so a layout that is beaten in each of them is never needed.

    Args:
        domains: The cluster.
        runtime: Framework behaviour.
        power_law: Constants of the power laws.
        tables: Layer cost tables.
        workload: The task.
        domain: A domain of the class.
        options: Layouts, shape ``(O, 4)``.
        usable: Rows of the layouts that may be used.
        micro: Samples of a microbatch.
        microbatches: Microbatches of a step.
        kept: Output, shape ``(N + 1, N + 1, 1 + len(usable))``: how many, then which.
    """
    n = tables.n_layers[workload.model]
    count = usable.shape[0]
    deepest = 1
    for u in range(count):
        deepest = max(deepest, options[usable[u], 2])
    facts = np.zeros((count, deepest, 5))
    cuts = np.zeros(deepest + 1, dtype=np.int64)
    alive = np.zeros(count, dtype=np.bool_)
    for i in range(n):
        for j in range(i + 1, n + 1):
            for u in range(count):
                pp = options[usable[u], 2]
                alive[u] = pp <= j - i
                if alive[u]:
                    _stages(
                        domains, runtime, power_law, tables, workload, domain, options[usable[u]], micro,
                        microbatches, i, j, cuts, facts[u],
                    )  # fmt: skip
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


@kernel(allocates=True)
def keep_feasible(profile: FloatArray, usable: IntArray, kept: IntArray) -> None:
    """List for every segment the layouts that fit memory at all; arguments as above."""
    n = profile.shape[1] - 1
    for i in range(n):
        for j in range(i + 1, n + 1):
            found = 0
            for u in range(usable.shape[0]):
                if profile[usable[u], i, j, MAX_TAIL] >= 0.0:
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
                keep_undominated(
                    cost.domains, cost.runtime, cost.power_law, cost.tables, cost.workload(task.model), domain,
                    option_rows, usable, micro, microbatches, table,
                )  # fmt: skip
            else:
                keep_feasible(self.profile(task, option_rows, micro, microbatches, domain), usable, table)
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
                fill(
                    cost.domains, cost.runtime, cost.power_law, cost.tables, cost.workload(task.model), domain,
                    option, micro, microbatches, table[o],
                )  # fmt: skip
        return table
