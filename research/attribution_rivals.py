"""The energy field's own attributions, as plain functions: one share, or one regression, for the whole bill.

They answer another question than EmSHAP (whose energy, not where it goes), and are here to be compared with it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attribution_sched.attribution.checks import as_rows, check_training, match_rows
from attribution_sched.attribution.vector import AttributionVector, single
from attribution_sched.errors import CounterError, ModelFitError, problem

FloatArray = NDArray[np.float64]


def cpu_time_share(
    energy_j: float, cpu_time_s: ArrayLike, names: tuple[str, ...], idle_j: float = 0.0
) -> AttributionVector:
    """Split energy between tasks by processor time, as Scaphandre and Kepler's ratio model do.

    Args:
        energy_j: Measured energy of the interval.
        cpu_time_s: (d,) processor time of each task.
        names: Task names.
        idle_j: Energy that is nobody's; becomes the base.
    """
    return _share(energy_j, cpu_time_s, names, idle_j, "cpu_time_s", "cpu-time share")


def sm_utilisation_share(
    energy_j: float, sm_utilisation: ArrayLike, names: tuple[str, ...], idle_j: float = 0.0
) -> AttributionVector:
    """Split GPU energy between tasks by streaming-multiprocessor utilisation, as Kepler does for GPUs.

    Args:
        energy_j: Measured energy of the interval.
        sm_utilisation: (d,) utilisation of each task, 0 to 1.
        names: Task names.
        idle_j: Energy that is nobody's; becomes the base.
    """
    return _share(energy_j, sm_utilisation, names, idle_j, "sm_utilisation", "sm-utilisation share")


def load_times_tdp(load: ArrayLike, tdp_w: ArrayLike, duration_s: float, names: tuple[str, ...]) -> AttributionVector:
    """Energy of each device as load × thermal design power × time, as CodeCarbon does without a meter.

    Args:
        load: (d,) load of each device, 0 to 1.
        tdp_w: (d,) thermal design power of each device.
        duration_s: Length of the interval.
        names: Device names.
    """
    share, power = _weights(load, names, "load"), _weights(tdp_w, names, "tdp_w")
    if (share > 1).any():
        raise CounterError(
            problem("load", float(share.max()), "must lie between 0 and 1", "Divide percentages by 100.")
        )
    if not duration_s > 0:
        raise CounterError(problem("duration_s", duration_s, "must be positive", "Give the interval in seconds."))
    return single(share * power * duration_s, names, 0.0, method="load × TDP", provenance={"estimated": True})


class LinearCounters:
    """Linear regression of energy on counters; each counter gets ``coefficient × (x - mean)``.

    The classic counter model of power. Its parts add up, but what correlated counters share goes to whichever the
    regression happened to pick.
    """

    def fit(self, X: Any, energy_j: ArrayLike, names: Any = None, units: str = "J") -> LinearCounters:
        """Fit by least squares.

        Args:
            X: (n, d) counters.
            energy_j: (n,) measured energy, not negative.
            names: Column names; a data frame brings its own.
            units: Unit of the energy.
        """
        rows, self.names_ = as_rows(X, names)
        check_training(rows, self.names_)
        target = check_energy(energy_j, len(rows))
        self.units_ = units
        self.mean_, self.base_ = rows.mean(axis=0), float(target.mean())
        self.coefficients_ = np.linalg.lstsq(rows - self.mean_, target - self.base_, rcond=None)[0]
        return self

    def predict(self, X: Any) -> FloatArray:
        """Energy of rows (n, d)."""
        rows, _ = match_rows(X, self.names_)
        return np.asarray(self.base_ + (rows - self.mean_) @ self.coefficients_)

    def attribute(self, X: Any) -> AttributionVector:
        """Contributions to the regression's own prediction."""
        rows, alone = match_rows(X, self.names_)
        values = (rows - self.mean_) * self.coefficients_
        return single(
            values[0] if alone else values, self.names_, self.base_, units=self.units_, method="linear counters"
        )


def check_energy(energy_j: ArrayLike, n_rows: int | None = None) -> FloatArray:
    """Refuse energies that are not finite, negative, or not one for each row."""
    target = np.asarray(energy_j, dtype=np.float64)
    if n_rows is not None and target.shape != (n_rows,):
        raise ModelFitError(problem("energy_j", target.shape, f"must be ({n_rows},)", "Give one energy for each row."))
    if not np.isfinite(target).all():
        raise ModelFitError(problem("energy_j", "non-finite", "energies must be finite", "Drop those rows."))
    if (target < 0).any():
        rule = "an energy cannot be negative"
        raise ModelFitError(
            problem("energy_j", float(target.min()), rule, "Check the meter for a counter that wrapped.")
        )
    return target


def _share(
    energy_j: float, weight: ArrayLike, names: tuple[str, ...], idle_j: float, field: str, method: str
) -> AttributionVector:
    """Split what is above idle in proportion to the weights."""
    total = float(check_energy(energy_j))
    idle = float(check_energy(idle_j))
    if idle > total:
        raise CounterError(
            problem("idle_j", idle, f"exceeds the measured {total} J", "Measure idle over the same interval.")
        )
    share = _weights(weight, names, field)
    if share.sum() <= 0:
        raise CounterError(problem(field, share.tolist(), "someone must have run", "Skip intervals without activity."))
    return single((total - idle) * share / share.sum(), names, idle, method=method)


def _weights(weight: ArrayLike, names: tuple[str, ...], field: str) -> FloatArray:
    """Check one non-negative finite weight for each name."""
    share = np.asarray(weight, dtype=np.float64)
    if share.shape != (len(names),):
        raise CounterError(problem(field, share.shape, f"must be ({len(names)},)", "Give one for each name."))
    if not np.isfinite(share).all() or (share < 0).any():
        raise CounterError(problem(field, share.tolist(), "must be finite and not negative", "Repair the reading."))
    return share
