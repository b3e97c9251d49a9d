"""The lower agent: with how many devices, and in which layout, a task runs in a domain.

    s_low  = (free devices, next release of the domain, hours of the task, who else waits)
    a_low  = number of devices; layout (dp, tp, pp), format and microbatch level are the best of that number
    score  = u·U − t·T/T_base·(1 + p·n),   p = (c·others/devices + d)·exp(θ·z)

T/T_base is the step time of the plan over the baseline's, U its utilisation, n its devices. p is what a device held
for an hour costs those that wait and those that will come; with θ = 0 it is the rule's price. The rule has u = 1.2,
t = 1, c = 0.8, d = 0.017. R_low of the specification, fragmentation and traffic inside the domain, is in this: traffic
inside is part of T, and devices that are left over too few to be of use are what p·n and the upper agent's ``left``
weigh.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from attribution_sched.cluster.world import BATCH_LEVELS
from attribution_sched.kernels import by_reference, kernel
from attribution_sched.planning.memory_feasibility import FORMATS, PlannerTables, fill
from attribution_sched.scheduler.hi_ppo.teachers import CROWD, SOON, USE
from attribution_sched.types import FloatArray, IntArray

PRESSURE: tuple[str, ...] = (
    "one", "waiting", "hours", "free_share", "queue_hours", "day_sine", "day_cosine", "running", "next_release",
)  # fmt: skip
"""z: what the price of a device is read off. Counts and hours are logarithms."""

PRICE: tuple[str, ...] = ("utilisation", "time", "others", "coming")
"""u, t, c and d of the score."""

PRICE_OF_THE_RULE = (USE, 1.0, CROWD, SOON)

SHORTEST_H = 0.02
"""Hours are not told apart below this."""


@by_reference
class LayoutTable(NamedTuple):
    """The best layout of every number of devices; n kinds, C classes of hardware, J powers of two.

    Attributes:
        seconds: Seconds of a step, shape ``(n, C, J)``; infinite where the model does not fit.
        use: Share of the time that the devices compute, shape ``(n, C, J)``.
        pick: Layout, format and microbatch level, shape ``(n, C, J, 3)``; −1 where there is none.
    """

    seconds: FloatArray
    use: FloatArray
    pick: IntArray


def layout_table(t: PlannerTables, weights: FloatArray) -> LayoutTable:
    """Lay out the table of a cluster; of layouts of one number of devices the one that is worth most by itself."""
    kinds, classes, most = len(t.batch), len(t.class_domain), int(np.log2(max(1, int(t.sizes.max())))) + 1
    seconds, use = np.full((kinds, classes, most), np.inf), np.zeros((kinds, classes, most))
    pick = np.full((kinds, classes, most, 3), -1, dtype=np.int64)
    for kind in range(kinds):
        n = int(t.cost.n_layers[kind])
        for c in range(classes):
            if not t.filled[kind, c, 0, n]:
                fill(t, kind, c, 0, n)
            fits = (t.reach[kind, c, 0, n] <= 0) & t.formats[kind, c][None, :, None]
            times, busy = t.whole_s[kind, c], t.whole_use[kind, c]
            worth = USE * weights[1] * busy - weights[0] * times / t.base_step_s[kind]
            worth = np.where(fits & np.isfinite(times), worth, -np.inf)
            for j in range(most):
                own = np.where((t.sizes == 2**j)[:, None, None], worth, -np.inf)
                best = int(own.argmax())
                if np.isfinite(own.flat[best]):
                    seconds[kind, c, j], use[kind, c, j] = times.flat[best], busy.flat[best]
                    lay, rest = divmod(best, FORMATS * BATCH_LEVELS)
                    pick[kind, c, j] = lay, rest // BATCH_LEVELS, rest % BATCH_LEVELS
    return LayoutTable(seconds, use, pick)


@kernel
def pressure(theta: FloatArray, z: FloatArray, others: float, devices: float, own: FloatArray) -> float:
    """What a device costs those that wait, as a share of the time it is held; ``own`` is head ``price``."""
    found = 0.0
    for i in range(z.size):
        found += theta[i] * z[i]
    return float((own[2] * others / devices + own[3]) * np.exp(max(-3.0, min(3.0, found))))


@kernel
def layout_score(
    table: LayoutTable, kind: int, c: int, j: int, base_s: float, weights: FloatArray, own: FloatArray, p: float
) -> float:
    """What a number of devices (2^j) is worth to a task; −inf where it does not fit. ``own`` is head ``price``."""
    s = table.seconds[kind, c, j]
    if not np.isfinite(s):
        return -np.inf
    time = own[1] * weights[0] * s / base_s
    return float(own[0] * weights[1] * table.use[kind, c, j] - time * (1.0 + p * 2.0**j))
