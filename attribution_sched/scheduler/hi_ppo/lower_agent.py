"""The lower agent: with how many devices, and in which layout, a task runs in a domain.

    s_low  = (free devices, next release of the domain, hours of the task, who else waits)
    a_low  = number of devices; layout (dp, tp, pp), format and microbatch level are the best of that number
    score  = u·U − t·T/T_base·(1 + p·n),   p = (c·others/devices + d)·exp(θ·z)
    T      = T_nominal·exp(e·f),   f what attributions and pace tell of the task, e how the plan's time hangs on it

f are logarithms of the task's compute, memory and host time over its kind's
(:mod:`~attribution_sched.scheduler.beliefs`), e their elasticities: one task that is slow because it computes more is
worth more devices, another that is as slow because its host is late is not. Pace alone cannot tell the two apart.

T/T_base is the step time of the plan over the baseline's, U its utilisation, n its devices. p is what a device held
for an hour costs those that wait and those that will come; with θ = 0 it is the rule's price. The rule has u = 1.2,
t = 1, c = 0.8, d = 0.017. R_low of the specification, fragmentation and traffic inside the domain, is in this: traffic
inside is part of T, and devices that are left over too few to be of use are what p·n and the upper agent's ``left``
weigh.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from attribution_sched.cluster.cost import Workload
from attribution_sched.cluster.world import BATCH_LEVELS
from attribution_sched.kernels import by_reference, kernel
from attribution_sched.planning.memory_feasibility import FORMATS, PlannerTables, fill, whole_step
from attribution_sched.scheduler.hi_ppo.decode import CROWD, SOON, USE
from attribution_sched.types import FloatArray, IntArray

if TYPE_CHECKING:
    from attribution_sched.scheduler.hi_ppo.upper_agent import Agents, Seen

PRESSURE: tuple[str, ...] = (
    "one", "waiting", "hours", "free_share", "queue_hours", "day_sine", "day_cosine", "running", "next_release",
)  # fmt: skip
"""z: what the price of a device is read off. Counts and hours are logarithms."""

PRICE: tuple[str, ...] = ("utilisation", "time", "others", "coming")
"""u, t, c and d of the score."""

PRICE_OF_THE_RULE = (USE, 1.0, CROWD, SOON)

FACTORS = 3
"""What is believed of a task: logarithms of its compute, memory and host time over its kind's."""

USUAL_LOG = 0.3
"""How far these usually are from 0."""

SHORTEST_H = 0.02
"""Hours are not told apart below this."""


@by_reference
class LayoutTable(NamedTuple):
    """The best layout of every number of devices; n kinds, C classes of hardware, J powers of two.

    Attributes:
        seconds: Seconds of a step, shape ``(n, C, J)``; infinite where the model does not fit.
        use: Share of the time that the devices compute, shape ``(n, C, J)``.
        shares: Elasticities of the seconds by compute, memory and host time of the task, shape ``(n, C, J, 3)``.
        pick: Layout, format and microbatch level, shape ``(n, C, J, 3)``; −1 where there is none.
    """

    seconds: FloatArray
    use: FloatArray
    shares: FloatArray
    pick: IntArray


def layout_table(t: PlannerTables, weights: FloatArray) -> LayoutTable:
    """Lay out the table of a cluster; of layouts of one number of devices the one that is worth most by itself."""
    kinds, classes, most = len(t.batch), len(t.class_domain), int(np.log2(max(1, int(t.sizes.max())))) + 1
    seconds, use = np.full((kinds, classes, most), np.inf), np.zeros((kinds, classes, most))
    pick = np.full((kinds, classes, most, 3), -1, dtype=np.int64)
    shares = np.zeros((kinds, classes, most, FACTORS))
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
                    _elasticities(t, kind, c, *pick[kind, c, j], shares[kind, c, j])
    return LayoutTable(seconds, use, shares, pick)


@kernel(allocates=True)
def _elasticities(t: PlannerTables, kind: int, c: int, lay: int, q: int, v: int, out: FloatArray) -> None:
    """By how much a step takes longer if compute, memory or host time of the task do, in logarithms."""
    more = np.exp(USUAL_LOG)
    for f in range(FACTORS):
        high, low = np.ones(FACTORS), np.ones(FACTORS)
        high[f], low[f] = more, 1.0 / more
        slow, _ = whole_step(t, Workload(kind, t.training[kind], high[0], high[1], high[2]), c, lay, q, v)
        fast, _ = whole_step(t, Workload(kind, t.training[kind], low[0], low[1], low[2]), c, lay, q, v)
        out[f] = np.log(slow / fast) / (2.0 * USUAL_LOG)


@kernel
def step_s(table: LayoutTable, kind: int, c: int, j: int, factors: FloatArray) -> float:
    """Seconds of a step of one very task on 2^j devices; infinite where it does not fit."""
    e = table.shares[kind, c, j]
    return float(table.seconds[kind, c, j] * np.exp(e[0] * factors[0] + e[1] * factors[1] + e[2] * factors[2]))


@kernel
def write_pace(a: Agents, s: Seen, q: int) -> None:
    """Write how much longer than nominal a candidate takes; of models that no domain holds alone nothing is said."""
    kind, f = s.kind[q], s.factors[q]
    if a.nominal_s[kind] == a.base_s[kind]:
        f[0], f[1], f[2] = 0.0, 0.0, 0.0
    e = a.nominal_shares[kind]
    s.pace[q] = e[0] * f[0] + e[1] * f[1] + e[2] * f[2]


@kernel
def pressure(theta: FloatArray, z: FloatArray, others: float, devices: float, own: FloatArray) -> float:
    """What a device costs those that wait, as a share of the time it is held; ``own`` is head ``price``."""
    found = 0.0
    for i in range(z.size):
        found += theta[i] * z[i]
    return float((own[2] * others / devices + own[3]) * np.exp(max(-3.0, min(3.0, found))))


@kernel
def layout_score(
    seconds: float, use: float, j: int, base_s: float, weights: FloatArray, own: FloatArray, p: float
) -> float:
    """What a number of devices (2^j) is worth to a task; −inf where it does not fit. ``own`` is head ``price``."""
    if not np.isfinite(seconds):
        return -np.inf
    time = own[1] * weights[0] * seconds / base_s
    return float(own[0] * weights[1] * use - time * (1.0 + p * 2.0**j))
