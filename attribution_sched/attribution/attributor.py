"""Who says where the joules of a task go: one attributor for policies, environments, training and explanations.

    attributor = as_attributor(None, world)      # the default: accounting, with EmSHAP where counters are missing
    attributor.vector(task)                      # an AttributionVector: joules per sample from idle, and the state
    attributor(counters)                         # (n, 12) -> the seven numbers in [-1, 1] of a policy's state, (n, 7)

The default is the account of :mod:`~attribution_sched.attribution.accounting` under the energy model of the world's
machines, and its mean over EmSHAP's ``p(x_missing | x_seen)`` where counters (or the throughput) could not be read.
What may enter is what a task shows and its submitter declares: counters, throughput, mode. ``System(attributor=...)``
and the registered environments take anything :func:`as_attributor` does.

**The state.** Weights belong to the schema they learnt from. Until networks are trained on accounts, their seven
numbers are those of :data:`~attribution_sched.types.ATTRIBUTION_SCHEMA` (:mod:`~attribution_sched.attribution.schema`):
an adapter, the same to the last bit for a task that was read in full, its mean over EmSHAP's draws for any other.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from attribution_sched.attribution.energy_model import EnergyModel, per_sample
from attribution_sched.attribution.fitted import Fitted
from attribution_sched.attribution.vector import ACCOUNTING, AttributionVector, measured
from attribution_sched.cluster.demands import DEMAND_NAMES
from attribution_sched.errors import CounterError, SettingsError, problem
from attribution_sched.types import FloatArray, Task

if TYPE_CHECKING:
    from attribution_sched.attribution.emshap import EmSHAP
    from attribution_sched.cluster.world import World
    from attribution_sched.types import Attributor

UNAVAILABLE = "unavailable"


@runtime_checkable
class TaskAttributor(Protocol):
    """A measured task in, attribution out: as a record, and as a policy's state."""

    @property
    def schema(self) -> str:
        """Name of the normalisation of its states."""
        ...

    def __call__(self, counters: FloatArray) -> FloatArray:
        """States ``(n, 7)`` in [-1, 1] of counters ``(n, 12)``."""
        ...

    def vector(self, task: Task | FloatArray) -> AttributionVector:
        """The attribution of one task (or of bare counters ``(12,)``), its state in it."""
        ...


def as_attributor(given: Any, world: World, policy: object = None) -> TaskAttributor:
    """An attributor from what a user has.

    Args:
        given: None for the default; a :class:`Fitted` (from a recording of one's own machine, say) or a
            ``EnergyModel``: accounts under that energy model. A fitted ``EmSHAP`` over the seven counters, alone (it
            then explains the world's simulated meter) or as a pair with the function or regressor of the seven counters
            that it explains: conditional values. Or any function from counters
            ``(n, 12)`` to states ``(n, 7)`` in [-1, 1].
        world: Where tasks come from.
        policy: Who will read the states. One whose weights have learnt from certain states (it has a method
            ``attributions``) is given these by default.

    Raises:
        SettingsError: If it is none of these.
    """
    learnt = getattr(policy, "attributions", None)
    states = learnt if callable(learnt) else None
    if given is None:
        return DefaultAttributor(world, states)
    if isinstance(given, Fitted):
        return AccountAttributor(given, states)
    if isinstance(given, EnergyModel):
        default = Fitted.of_world(world)
        return AccountAttributor(
            Fitted(given, default.known, "an energy model of one's own", _missing=default._missing), states
        )
    if isinstance(given, type):
        raise _unknown(given)
    if isinstance(given, tuple) and len(given) == 2 and hasattr(given[0], "attribute"):
        return JoulesAttributor(_Explained(given[0], given[1]))
    if hasattr(given, "attribute"):
        return JoulesAttributor(_Explained(given, _metered(world)))
    if isinstance(given, TaskAttributor):
        return given
    if callable(given):
        return StateAttributor(given)
    raise _unknown(given)


def state_of(given: Any, world: World) -> Attributor:
    """What an environment shows: the states of an attributor, see :func:`as_attributor`."""
    return as_attributor(given, world)


def _unknown(given: Any) -> SettingsError:
    rule = "must be a fitted attributor, EmSHAP or energy model, or a function from counters (n, 12) to (n, 7)"
    fix = "Leave it out for the preset's own; a regressor goes with the EmSHAP that explains it, (emshap, regressor)"
    return SettingsError(problem("attributor", given, rule, fix))


class AccountAttributor:
    """Accounts of tasks from the idle machine, under a fitted energy model; EmSHAP where counters are missing.

    Args:
        fitted: Energy model, EmSHAP's distribution and the tasks they know.
        states: Counters to states as some weights have learnt them; those of the shipped agents by default.
    """

    def __init__(self, fitted: Fitted, states: Attributor | None = None) -> None:
        self.fitted = fitted
        self.states = states
        _seven(fitted.energy.names)

    @property
    def schema(self) -> str:
        """Name of the normalisation of its states."""
        from attribution_sched.attribution.schema import closed_form

        return closed_form().schema

    def __call__(self, counters: FloatArray) -> FloatArray:
        """States ``(n, 7)`` of counters ``(n, 12)``."""
        from attribution_sched.attribution.schema import closed_form

        return (self.states or closed_form())(counters)

    def vector(self, task: Task | FloatArray) -> AttributionVector:
        """Joules per sample of each counter from the idle machine, and the state.

        Raises:
            CounterError: If a counter is negative, absurd for such a machine, or the throughput is no number above 0.
        """
        reading = measured(task)
        counters, missing = _read(reading)
        energy, d = self.fitted.energy, len(DEMAND_NAMES)
        # Counters are one device's, the pace is that of all devices a job was measured on.
        seven, pace = counters[:d] * reading.measured_devices, reading.samples_per_s
        x = per_sample(np.where(np.isnan(seven), 0.0, seven)[None], np.array([pace if pace != 0.0 else 1.0]))
        like, distance = self.fitted.check(seven)
        facts = {
            "estimated": True, "median_error": energy.median_error, "tasks": energy.rows, "source": self.fitted.source,
            "like": like, "distance": distance,
        }  # fmt: skip
        spread = None
        if not missing:
            s, training = np.array([pace]), np.array([reading.training])
            parts, idles, errors = energy.account(x, s, training)
            values, idle, error = parts[0], float(idles[0]), errors[0]
            state, method = self(counters[None])[0], "accounting"
        else:
            hidden = self.fitted.missing
            values, idle, error, completed = hidden.account(energy, seven, pace or np.nan, reading.training)
            pace = float(completed.weights @ completed.samples_per_s)
            rows = np.empty((len(completed.weights), len(counters)))
            rows[:, :d] = completed.counters / reading.measured_devices
            rows[:, d:] = np.where(np.isnan(counters[d:]), 0.0, counters[d:])
            states = self(rows)
            state = np.minimum(np.maximum(completed.weights @ states, -1.0), 1.0)
            # As wide as the interval of the joules: the factor that made that one right on tasks kept back.
            apart = (states - state) * (hidden.widening * np.sqrt(completed.weights))[:, None]
            spread = apart.T @ apart
            method = f"accounting over EmSHAP({hidden.explainer.model_.kind})"
        return AttributionVector(
            values, DEMAND_NAMES, idle, np.asarray(idle + values.sum()), error, f"{energy.metered}/sample", method,
            facts, state, self.schema, ACCOUNTING, pace, missing, 0.0, spread,
        )  # fmt: skip


class DefaultAttributor(AccountAttributor):
    """Accounts under the energy model of a world's own machines.

    Args:
        world: Its tasks and machines; shipped for the presets, fitted on its simulated meter for others.
        states: Counters to states as some weights have learnt them; those of the shipped agents by default.
    """

    def __init__(self, world: World, states: Attributor | None = None) -> None:
        super().__init__(Fitted.of_world(world), states)
        self.world = world


def _read(task: Task) -> tuple[FloatArray, tuple[str, ...]]:
    """Counters ``(12,)`` with NaN for those of the seven that were not read, and the names of what is missing."""
    from attribution_sched.attribution.missing import PACE

    counters = np.array(task.counters, dtype=np.float64)
    missing = [
        name for at, name in enumerate(DEMAND_NAMES)
        if task.provenance.get(name) == UNAVAILABLE or np.isnan(counters[at])
    ]  # fmt: skip
    counters[[DEMAND_NAMES.index(name) for name in missing]] = np.nan
    for name, value in zip(DEMAND_NAMES, counters.tolist(), strict=False):
        if value < 0.0 or value == math.inf:
            rule, fix = "must be a finite number >= 0", "Repair the reading, or leave it out to have it estimated"
            raise CounterError(problem(f"counters[{name!r}]", value, rule, fix))
    return counters, (*missing, *((PACE,) if task.samples_per_s == 0.0 else ()))


class JoulesAttributor:
    """States from an attribution in joules, by the schema.

    Args:
        source: What explains one row of counters.
    """

    def __init__(self, source: _Explained) -> None:
        self.source = source
        source.check()

    @property
    def schema(self) -> str:
        """Name of the normalisation."""
        from attribution_sched.attribution.schema import ATTRIBUTION_SCHEMA

        return ATTRIBUTION_SCHEMA

    def __call__(self, counters: FloatArray) -> FloatArray:
        """States ``(n, 7)`` of counters ``(n, 12)``; each row is explained by itself, as :meth:`vector` does."""
        rows = [np.asarray(self.vector(row).state, dtype=np.float64) for row in np.asarray(counters)]
        return np.stack(rows) if rows else np.zeros((0, len(DEMAND_NAMES)))

    def vector(self, task: Task | FloatArray) -> AttributionVector:
        """Contributions as the source gives them, and the state they come to."""
        from attribution_sched.attribution.schema import encode

        reading = measured(task)
        explained = self.source.explain(reading.counters)
        state = encode(explained.values[None], explained.base)[0]
        return replace(explained, state=state, schema=self.schema, samples_per_s=reading.samples_per_s)


class StateAttributor:
    """A user's own function from counters to states; nothing in joules is known.

    Args:
        function: Counters ``(n, 12)`` → states ``(n, 7)`` in [-1, 1].
    """

    def __init__(self, function: Attributor) -> None:
        self.function = function

    @property
    def schema(self) -> str:
        """States are taken to be those that the networks know: whoever gives them says so."""
        from attribution_sched.attribution.schema import ATTRIBUTION_SCHEMA

        return ATTRIBUTION_SCHEMA

    def __call__(self, counters: FloatArray) -> FloatArray:
        """States ``(n, 7)`` of counters ``(n, 12)``.

        Raises:
            SettingsError: If the function gives something else.
        """
        values, shape = self.function(counters), (len(counters), len(DEMAND_NAMES))
        try:
            states = np.asarray(values, dtype=np.float64)
        except (TypeError, ValueError):
            states = np.empty(0)
        if states.shape != shape or not (np.abs(states) <= 1.0).all():
            rule = f"must give one finite row of {len(DEMAND_NAMES)} shares in [-1, 1] for a row of counters"
            raise SettingsError(problem("attributor", values, rule, "Return an array of shape (n, 7) for (n, 12)"))
        return states

    def vector(self, task: Task | FloatArray) -> AttributionVector:
        """The state, for its contributions too."""
        from attribution_sched.attribution.vector import state_vectors

        return state_vectors(self, DEMAND_NAMES, self.schema)(task)


class _Explained:
    """EmSHAP explains an energy model at a row."""

    def __init__(self, explainer: EmSHAP, energy: Any) -> None:
        self.explainer, self.energy = explainer, energy

    def check(self) -> None:
        if not hasattr(self.explainer, "model_"):
            rule = "has no distribution of the counters yet"
            raise SettingsError(problem("attributor", "unfitted EmSHAP", rule, "Call fit(X) first"))
        _seven(self.explainer.names_)

    def explain(self, counters: FloatArray) -> AttributionVector:
        attribution: AttributionVector = self.explainer.attribute(self.energy, counters[: len(DEMAND_NAMES)])
        return attribution


def _seven(names: tuple[str, ...]) -> None:
    if tuple(names) != DEMAND_NAMES:
        rule = f"must attribute to the seven counters {', '.join(DEMAND_NAMES)}"
        raise SettingsError(problem("attributor.names", list(names), rule, "Fit it on these, in this order"))


def _metered(world: World) -> Any:
    """The world's meter as a function of the seven counters alone: joules per sample, ``(n,)``.

    The throughput is what tasks with such counters usually have, by regression of its logarithm.
    """
    from attribution_sched.attribution.simulated_meter import metered_tasks

    fitted, past = Fitted.of_world(world), metered_tasks(world, 512, 1)
    energy, training = fitted.energy, bool(past.training.mean() >= 0.5)

    def columns(rows: FloatArray) -> FloatArray:
        # A distribution of counters may draw one below zero, where no counter ever is.
        return np.column_stack([np.ones(len(rows)), np.log1p(np.maximum(rows, 0.0) / fitted.known.unit)])

    slope = np.linalg.lstsq(columns(past.counters), np.log(past.samples_per_s), rcond=None)[0]
    low, high = np.log(past.samples_per_s.min()), np.log(past.samples_per_s.max())

    def joules(rows: FloatArray) -> FloatArray:
        pace = np.exp(np.clip(columns(rows) @ slope, low, high))
        return energy.predict(np.maximum(rows, 0.0) / pace[:, None], pace, np.full(len(rows), training))

    return joules
