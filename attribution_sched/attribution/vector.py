"""The attribution vector: where a prediction's joules go, named, with units, error bars and how it was got."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from attribution_sched.errors import ModelFitError, nearest, problem
from attribution_sched.stats.interval import half_width
from attribution_sched.types import Attributor, Float32Array, FloatArray, Task

EFFICIENCY_TOLERANCE = 1e-6

ACCOUNTING, CONDITIONAL, MARGINAL, STATE = "accounting", "conditional", "marginal", "state"

QUESTIONS: Mapping[str, str] = MappingProxyType(
    {
        ACCOUNTING: "where the joules go: parts from the idle machine to the task",
        CONDITIONAL: "what the reading tells: above the mean task, each counter paid for what it says of the others",
        MARGINAL: "what the energy model makes of this reading: above the mean task, counter by counter; no what-if",
        STATE: "what a policy is shown: numbers without a unit",
    }
)
"""Questions that a vector can answer. They are different numbers, so a vector says which one it is."""


@dataclass(frozen=True)
class AttributionVector:
    """Contributions of named counters to one prediction, or to each of n predictions.

    The contributions and the base add up to the prediction; a vector that does not is refused.

    Attributes:
        values: (d,) or (n, d), contribution of each counter.
        names: The d counter names.
        base: What there is without them: joules of the idle machine (accounting), or the mean prediction (conditional
            and marginal values).
        prediction: () or (n,), what the contributions add up to, together with the base.
        standard_error: Like ``values``: of the sampling error; in an account of the energy model's error and of what
            missing counters leave open too. :meth:`interval` widens them by Student's factor.
        units: Unit of values, base and prediction.
        method: Which conditional model answered, for example ``mixture``.
        provenance: How it was got: exact or sampled coalitions, draws, seed.
        state: Like ``values`` in single precision: the numbers in [-1, 1] that a policy reads; None until somebody
            encodes them (:mod:`~attribution_sched.attribution.schema`).
        schema: Name of that encoding; empty without one.
        question: Which of :data:`QUESTIONS` it answers.
        samples_per_s: Throughput of the task, the pace at which the joules are drawn; 0 if nobody knows it.
        missing: Counters that were not read, and that EmSHAP's distribution stands in for.
        unattributed: What a meter says beyond the prediction; 0 where nothing was metered.
        state_covariance: (d, d) of the state's error: what missing counters leave open, in the policy's own unit; None
            for a task read in full, whose state is what it is.
    """

    values: FloatArray
    names: tuple[str, ...]
    base: float
    prediction: FloatArray
    standard_error: FloatArray
    units: str = "J"
    method: str = "unknown"
    provenance: Mapping[str, Any] = field(default_factory=dict)
    state: Float32Array | None = None
    schema: str = ""
    question: str = CONDITIONAL
    samples_per_s: float = 0.0
    missing: tuple[str, ...] = ()
    unattributed: float = 0.0
    state_covariance: FloatArray | None = None

    def __deepcopy__(self, _: dict[int, object]) -> AttributionVector:
        """It never changes, so a copy of whatever holds it may share it."""
        return self

    def __post_init__(self) -> None:
        """Freeze the arrays and refuse shapes, values or sums that are wrong."""
        if self.question not in QUESTIONS:
            raise ModelFitError(problem("question", self.question, "is none", nearest(self.question, QUESTIONS)))
        for name in ("values", "prediction", "standard_error"):
            array = np.array(getattr(self, name), dtype=np.float64)
            # A sum is finite only if everything in it is, and costs a third of asking each.
            if not math.isfinite(float(array.sum())) and not np.isfinite(array).all():
                raise ModelFitError(
                    problem(name, array, "every entry must be finite", "Check the energy model's output.")
                )
            array.setflags(write=False)
            object.__setattr__(self, name, array)
        object.__setattr__(self, "names", tuple(self.names))
        object.__setattr__(self, "base", float(self.base))
        object.__setattr__(self, "provenance", MappingProxyType(dict(self.provenance)))
        shape = self.values.shape
        if len(shape) not in (1, 2) or shape[-1] != len(self.names):
            raise ModelFitError(
                problem(
                    "values",
                    shape,
                    f"must be (d,) or (n, d) with d = {len(self.names)} names",
                    "Give one name for each column.",
                )
            )
        if self.standard_error.shape != shape or self.prediction.shape != shape[:-1]:
            got = (self.standard_error.shape, self.prediction.shape)
            raise ModelFitError(
                problem(
                    "standard_error, prediction",
                    got,
                    f"must be {shape} and {shape[:-1]}",
                    "Pass one of each for each row.",
                )
            )
        if self.state is not None:
            self._check_state()
        if self.state_covariance is not None:
            self._check_covariance()
        if self._gap() > EFFICIENCY_TOLERANCE:
            rule = "contributions and base must add up to the prediction to 1e-6"
            raise ModelFitError(problem("values", self._gap(), rule, "Recompute them; do not edit single entries."))

    def _gap(self) -> float:
        """By how much contributions and base miss the prediction, of what is added up."""
        if self.values.ndim == 1:
            whole = float(self.prediction)
            return abs(float(self.values.sum()) + self.base - whole) / max(1.0, abs(whole), abs(self.base))
        gap = np.abs(self.values.sum(-1) + self.base - self.prediction)
        return float(np.max(gap / np.maximum(1.0, np.maximum(np.abs(self.prediction), abs(self.base))), initial=0.0))

    def _check_state(self) -> None:
        state = np.array(self.state, dtype=np.float32)
        if state.shape != self.values.shape or not (np.abs(state) <= 1.0).all():
            rule = f"must be numbers in [-1, 1] of shape {self.values.shape}"
            raise ModelFitError(problem("state", state.tolist(), rule, "Encode the contributions by a schema."))
        state.setflags(write=False)
        object.__setattr__(self, "state", state)

    def _check_covariance(self) -> None:
        spread, shape = np.array(self.state_covariance, dtype=np.float64), (len(self.names), len(self.names))
        if (
            self.state is None
            or spread.shape != shape
            or not (np.isfinite(spread).all() and (spread == spread.T).all())
        ):
            rule = f"must be symmetric numbers of shape {shape} beside a state"
            raise ModelFitError(problem("state_covariance", spread.tolist(), rule, "Take it from the state's draws"))
        spread.setflags(write=False)
        object.__setattr__(self, "state_covariance", spread)

    def __len__(self) -> int:
        """Number of predictions explained (one for a single vector)."""
        return 1 if self.values.ndim == 1 else len(self.values)

    def __getitem__(self, name: str) -> Any:
        """Contribution of one named counter, a number or one for each row."""
        if name not in self.names:
            raise ModelFitError(problem("counter", name, "is not part of this attribution", nearest(name, self.names)))
        column = self.values[..., self.names.index(name)]
        return float(column) if column.ndim == 0 else column

    def row(self, index: int) -> AttributionVector:
        """The vector of one prediction out of a batch."""
        if self.values.ndim == 1:
            raise ModelFitError(problem("row", index, "this vector explains one prediction", "Use it directly."))
        return AttributionVector(
            self.values[index],
            self.names,
            self.base,
            self.prediction[index],
            self.standard_error[index],
            self.units,
            self.method,
            self.provenance,
            None if self.state is None else self.state[index],
            self.schema,
            self.question,
        )

    def with_state(self, state: ArrayLike) -> AttributionVector:
        """The vector of a task that a policy would see as ``state``, this one itself if it is its own.

        What explanations ask: the state is another task's, in part. An account keeps its joules, which are this task's
        and which no policy reads; contributions that the state was made of follow it by the schema.
        """
        new = np.asarray(state, dtype=np.float32)
        if self.state is not None and np.array_equal(new, self.state):
            return self
        if self.question == ACCOUNTING:
            return replace(self, state=new, provenance={"masked": True})
        from attribution_sched.attribution.schema import decode

        values = decode(new, self.base) if self.base > 0.0 else new.astype(np.float64)
        return replace(
            self, values=values, prediction=values.sum(-1) + self.base, state=new, provenance={"masked": True}
        )  # fmt: skip

    @property
    def metered(self) -> FloatArray:
        """What the meter said: base, parts and unattributed; the prediction where nothing was metered."""
        return np.asarray(self.prediction + self.unattributed)

    def shares(self) -> FloatArray:
        """Each part as a share of the task's whole: of idle, parts and unattributed joules, shape like ``values``."""
        whole = np.asarray(self.metered)[..., None]
        return np.asarray(np.divide(self.values, whole, out=np.zeros_like(self.values), where=whole > 0))

    def normalised(self) -> FloatArray:
        """Signed shares for the scheduler's state: each contribution over the sum of magnitudes, in [-1, 1]."""
        total = np.abs(self.values).sum(-1, keepdims=True)
        return np.asarray(np.divide(self.values, total, out=np.zeros_like(self.values), where=total > 0))

    def interval(self, level: float = 0.95) -> tuple[FloatArray, FloatArray]:
        """Lower and upper ends of the interval at ``level``: of the true contribution, as far as the errors are known.

        The factor is Student's at that level, with the ``degrees_of_freedom`` of the provenance where it names them.
        """
        reach = half_width(self.standard_error, self.provenance.get("degrees_of_freedom") or inf, level)
        return self.values - reach, self.values + reach

    def ranking(self) -> tuple[str, ...]:
        """Counter names by magnitude of their (mean) contribution, largest first."""
        size = np.abs(self.values) if self.values.ndim == 1 else np.abs(self.values).mean(axis=0)
        return tuple(self.names[i] for i in np.argsort(-size, kind="stable"))

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers and lists, ready for JSON."""
        spread = self.state_covariance
        return {
            "names": list(self.names),
            "values": self.values.tolist(),
            "standard_error": self.standard_error.tolist(),
            "base": self.base,
            "prediction": self.prediction.tolist(),
            "units": self.units,
            "method": self.method,
            "provenance": dict(self.provenance),
            "state": None if self.state is None else self.state.tolist(),
            "schema": self.schema,
            "question": self.question,
            "samples_per_s": self.samples_per_s,
            "missing": list(self.missing),
            "unattributed": self.unattributed,
        } | ({} if spread is None else {"state_covariance": spread.tolist()})

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> AttributionVector:
        """The inverse of :meth:`as_dict`, to the last bit; older records lack a state, a question and a pace."""
        return cls(
            np.array(record["values"], dtype=np.float64), tuple(record["names"]), record["base"],
            np.array(record["prediction"], dtype=np.float64), np.array(record["standard_error"], dtype=np.float64),
            record["units"], record["method"], record["provenance"], record.get("state"), record.get("schema", ""),
            record.get("question", CONDITIONAL), float(record.get("samples_per_s", 0.0)),
            tuple(record.get("missing", ())), float(record.get("unattributed", 0.0)),
            record.get("state_covariance"),
        )  # fmt: skip


def single(values: ArrayLike, names: tuple[str, ...], base: float, **details: Any) -> AttributionVector:
    """Build a vector whose prediction is what its parts add up to, with no sampling error (a share rule, say)."""
    array = np.asarray(values, dtype=np.float64)
    return AttributionVector(array, names, base, array.sum(-1) + base, np.zeros_like(array), **details)


def measured(task: Task | FloatArray) -> Task:
    """A task, or bare counters ``(12,)`` as a task of which nothing else is known."""
    return task if isinstance(task, Task) else Task(counters=np.asarray(task, dtype=np.float64))


def state_vectors(
    attributor: Attributor, names: tuple[str, ...], schema: str = ""
) -> Callable[[Task | FloatArray], AttributionVector]:
    """A function from a measured task (or its counters ``(12,)``) to its vector, from one that only knows states.

    The vector has the state for its contributions, without a base: nothing in joules is known of the task.

    Args:
        attributor: Counters ``(n, 12)`` → states ``(n, 7)`` in [-1, 1].
        names: Of the seven.
        schema: Name of the encoding.
    """

    def vector(task: Task | FloatArray) -> AttributionVector:
        reading = measured(task)
        state = np.asarray(attributor(reading.counters[None]), dtype=np.float64)
        if state.shape != (1, len(names)) or not np.isfinite(state).all():
            rule = f"must give one finite row of {len(names)} numbers for a row of counters"
            fix = "Return an array of shape (n, 7) for (n, 12)"
            raise ModelFitError(problem("attributor", state.tolist(), rule, fix))
        return single(
            state[0], names, 0.0, units="share", method="attributor", provenance={"estimated": True}, state=state[0],
            schema=schema, question=STATE, samples_per_s=reading.samples_per_s,
        )  # fmt: skip

    return vector
