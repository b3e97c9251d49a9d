"""Accounting, "where the joules go": baseline Shapley values of an energy model, from the idle machine to the task.

    φ_j = Σ_S |S|! (d − |S| − 1)! / d! · [f(x_S∪j, 0) − f(x_S, 0)]       metered = idle + Σ_j φ_j + unattributed

Idle is a real state of the machine, so zero is an honest baseline for every counter, and the dummy axiom does the rest:
a counter that reads 0 gets exactly 0 J, whatever the model. Nobody's "typical task" enters.

**The convention by which seven parts are one account.** Conv, fc and attention are seconds of operators; cycles, misses
and the two bandwidths are what the same work did to host and channels. They are not two bills of the same joules but
seven players of one game: operators carry the joules that rise with the time they compute, channels (memory, PCIe) the
joules that rise with bytes moved, the host (cycles, misses) those that rise with its work, and a joule that needs
several of them at once is split evenly between just those. The parts are a partition of ``f(x) − f(0)``, so no joule
counts twice; :data:`GROUPS` are the margins (compute, movement, host), and they add up to the same joules.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from attribution_sched.errors import CounterError, ModelFitError, problem
from attribution_sched.shapley.exact import all_coalitions, shapley_matrix
from attribution_sched.types import FloatArray

GROUPS: Mapping[str, tuple[str, ...]] = {
    "compute": ("conv", "fc", "attention"),
    "movement": ("memory_bandwidth", "pcie_bandwidth"),
    "host": ("cpu_cycles", "l3_misses"),
}
"""Margins of the account: compute joules by operator, movement joules by channel, host joules by counter."""


@dataclass(frozen=True, eq=False)
class Account:
    """Where the joules of n tasks go; all joules in one unit of work.

    Attributes:
        parts: (n, d) joules of each counter.
        idle: (n,) joules that the idle machine would have drawn.
        predicted: (n,) what the energy model expects: idle and parts.
        unattributed: (n,) metered minus predicted; 0 where nothing was metered.
        names: Of the counters.
    """

    parts: FloatArray
    idle: FloatArray
    predicted: FloatArray
    unattributed: FloatArray
    names: tuple[str, ...]

    @property
    def metered(self) -> FloatArray:
        """Idle, parts and unattributed: what the meter says, (n,)."""
        metered_j: FloatArray = self.idle + self.parts.sum(axis=1) + self.unattributed
        return metered_j

    def margins(self) -> dict[str, FloatArray]:
        """Joules of compute, movement and host, each (n,); they and idle add up to the prediction."""
        at = {name: i for i, name in enumerate(self.names)}
        return {group: self.parts[:, [at[n] for n in names if n in at]].sum(axis=1) for group, names in GROUPS.items()}


def from_idle(f: Callable[[FloatArray], FloatArray], x: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Baseline Shapley values of any energy model, exact over all coalitions.

    Args:
        f: Counters per sample ``(m, d)`` → joules per sample ``(m,)``. Rows come task by task, all 2^d coalitions of a
            task one after the other.
        x: (n, d) counters per sample.

    Returns:
        Parts (n, d), joules of the idle machine (n,) and of the task (n,).

    Raises:
        CounterError: If a counter is not a number >= 0.
        ModelFitError: If the model gives something that is no energy.
    """
    if not (np.isfinite(x) & (x >= 0.0)).all():
        bad = float(x[~(np.isfinite(x) & (x >= 0.0))][0])
        rule = "accounting needs every counter, as a number >= 0"
        raise CounterError(problem("counters", bad, rule, "Counters that cannot be read are EmSHAP's to carry"))
    d = x.shape[1]
    masks, matrix = all_coalitions(d), shapley_matrix(d)
    values = np.asarray(f((x[:, None, :] * masks).reshape(-1, d)), dtype=np.float64)
    if values.shape != (len(x) * len(masks),) or not np.isfinite(values).all():
        rule = f"must give {len(x) * len(masks)} finite joules"
        raise ModelFitError(problem("energy model", values.shape, rule, "Return one number for each row"))
    values = values.reshape(len(x), len(masks))
    parts = values @ matrix
    # The dummy axiom to the last bit: all terms of a counter that reads 0 are equal, their rounding is not.
    parts[x == 0.0] = 0.0
    return parts, values[:, 0], values[:, -1]


def settle(parts: FloatArray, idle: FloatArray, names: tuple[str, ...], metered: FloatArray | None = None) -> Account:
    """Close an account: what the meter says beyond idle and parts is unattributed, never spread over the parts.

    Args:
        parts: (n, d) joules of each counter.
        idle: (n,) joules of the idle machine.
        names: Of the counters.
        metered: (n,) what a meter says; None where there was none.
    """
    predicted: FloatArray = idle + parts.sum(axis=1)
    rest = np.zeros(len(parts)) if metered is None else np.asarray(metered, dtype=np.float64) - predicted
    return Account(parts, idle, predicted, rest, names)
