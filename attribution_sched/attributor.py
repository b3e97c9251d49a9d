"""Who says where the joules of a task go: one attributor for policies, environments, training and explanations.

    attributor = as_attributor(None, world)      # the default: what the shipped networks were trained with
    attributor(counters)                         # (n, 12) -> the seven numbers in [-1, 1] of a policy's state, (n, 7)
    attributor.vector(counters[0])               # an AttributionVector: joules, and that very state

``System(attributor=...)`` and the registered environments take anything :func:`as_attributor` does. What gives joules
is brought to a policy's state by one normalisation, :mod:`~attribution_sched.attribution.schema`.

In a simulated world energies stand for what a meter recorded of past tasks: the joules per sample that the cost model
gives a task with its own latent demands on one device, at 16 bits. Counters are those a scheduler sees. The joules of
the default belong to the world's mix of tasks; its state is the fixed one that networks know, which in the world they
learnt from is the same model.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from attribution_sched.cluster.demands import DEMAND_NAMES
from attribution_sched.errors import SettingsError, problem
from attribution_sched.types import FloatArray, IntArray

if TYPE_CHECKING:
    from attribution_sched.attribution.emshap import EmSHAP
    from attribution_sched.attribution.linear import LinearAttribution
    from attribution_sched.attribution.vector import AttributionVector
    from attribution_sched.cluster.demands import Demands
    from attribution_sched.cluster.world import World
    from attribution_sched.types import Attributor

ENOUGH_TASKS = 512
"""A smaller pool is filled up to this with further tasks of the same kinds."""


@runtime_checkable
class TaskAttributor(Protocol):
    """Counters in, attribution out: as a record, and as a policy's state."""

    @property
    def schema(self) -> str:
        """Name of the normalisation of its states."""
        ...

    def __call__(self, counters: FloatArray) -> FloatArray:
        """States ``(n, 7)`` in [-1, 1] of counters ``(n, 12)``."""
        ...

    def vector(self, counters: FloatArray) -> AttributionVector:
        """The attribution of one task by its counters ``(12,)``, its state in it."""
        ...


def as_attributor(given: Any, world: World, policy: object = None) -> TaskAttributor:
    """An attributor from what a user has.

    Args:
        given: None for the default; a ``LinearAttribution``; a fitted ``EmSHAP`` over the seven counters, alone (it
            then explains the world's simulated meter) or as a pair with the energy model it explains; an
            ``AmortisedAttribution``; a fitted ``EnergyModel`` of the seven counters (EmSHAP's distribution is then
            fitted on the world's tasks); or any function from counters ``(n, 12)`` to states ``(n, 7)`` in [-1, 1].
        world: Where tasks come from.
        policy: Who will read the states. One whose weights have learnt from certain states (it has a method
            ``attributions``) is given these by default.

    Raises:
        SettingsError: If it is none of these.
    """
    from attribution_sched.attribution.linear import LinearAttribution

    if given is None:
        learnt = getattr(policy, "attributions", None)
        return DefaultAttributor(world, learnt if callable(learnt) else None)
    if isinstance(given, LinearAttribution):
        return JoulesAttributor(_Linear(given))
    if isinstance(given, type):
        raise _unknown(given)
    if isinstance(given, tuple) and len(given) == 2 and hasattr(given[0], "attribute"):
        return JoulesAttributor(_Explained(given[0], given[1]))
    if hasattr(given, "attribute"):
        from attribution_sched.attribution.amortised import AmortisedAttribution

        if isinstance(given, AmortisedAttribution):
            return JoulesAttributor(_Amortised(given))
        return JoulesAttributor(_Explained(given, _metered(world)))
    if hasattr(given, "predict") and hasattr(given, "interval"):
        from attribution_sched.attribution.emshap import EmSHAP
        from attribution_sched.cluster.pool import build_pool

        fitted = EmSHAP("gaussian").fit(build_pool(world).counters.seven, DEMAND_NAMES, getattr(given, "unit", "J"))
        return JoulesAttributor(_Explained(fitted, given))
    if isinstance(given, TaskAttributor):
        return given
    if callable(given):
        return StateAttributor(given)
    raise _unknown(given)


def state_of(given: Any, world: World) -> Attributor:
    """What an environment shows: the states of an attributor, see :func:`as_attributor`."""
    return as_attributor(given, world)


def _unknown(given: Any) -> SettingsError:
    rule = "must be a LinearAttribution, a fitted EmSHAP or EnergyModel, or a function from counters (n, 12) to (n, 7)"
    return SettingsError(problem("attributor", given, rule, "Leave it out to have the one that the networks know"))


class DefaultAttributor:
    """Joules by the world's own closed form, states by the coefficients that the shipped networks were trained with.

    Args:
        world: Its tasks and cost model give the joules; they are fitted when the first vector is asked for.
        states: Counters to states as some weights have learnt them; those of the shipped networks by default.
    """

    def __init__(self, world: World, states: Attributor | None = None) -> None:
        self.world = world
        self.states = states

    @property
    def schema(self) -> str:
        """Name of the normalisation."""
        from attribution_sched.attribution.schema import closed_form

        return closed_form().schema

    @cached_property
    def energy(self) -> LinearAttribution:
        """The world's energy model."""
        return simulated_attributor(self.world)

    def __call__(self, counters: FloatArray) -> FloatArray:
        """States ``(n, 7)`` of counters ``(n, 12)``."""
        from attribution_sched.attribution.schema import closed_form

        return (self.states or closed_form())(counters)

    def vector(self, counters: FloatArray) -> AttributionVector:
        """Joules per sample above the typical task of the world, and the state."""
        from dataclasses import replace

        row = np.asarray(counters, dtype=np.float64)
        return replace(_Linear(self.energy).explain(row), state=self(row[None])[0], schema=self.schema)


class JoulesAttributor:
    """States from an attribution in joules, by the schema.

    Args:
        source: What explains one row of counters.
    """

    def __init__(self, source: _Linear | _Explained | _Amortised) -> None:
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

    def vector(self, counters: FloatArray) -> AttributionVector:
        """Contributions as the source gives them, and the state they come to."""
        from dataclasses import replace

        from attribution_sched.attribution.schema import encode

        found = self.source.explain(np.asarray(counters, dtype=np.float64))
        return replace(found, state=encode(found.values[None], found.base)[0], schema=self.schema)


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
        given, shape = self.function(counters), (len(counters), len(DEMAND_NAMES))
        try:
            states = np.asarray(given, dtype=np.float64)
        except (TypeError, ValueError):
            states = np.empty(0)
        if states.shape != shape or not (np.abs(states) <= 1.0).all():
            rule = f"must give one finite row of {len(DEMAND_NAMES)} shares in [-1, 1] for a row of counters"
            raise SettingsError(problem("attributor", given, rule, "Return an array of shape (n, 7) for (n, 12)"))
        return states

    def vector(self, counters: FloatArray) -> AttributionVector:
        """The state, for its contributions too."""
        from attribution_sched.attribution.vector import state_vectors

        return state_vectors(self, DEMAND_NAMES, self.schema)(counters)


class _Linear:
    """The closed form explains a row."""

    def __init__(self, model: LinearAttribution) -> None:
        self.model = model

    def check(self) -> None:
        _seven(self.model.names)

    def explain(self, counters: FloatArray) -> AttributionVector:
        from attribution_sched.attribution.vector import single

        model = self.model
        base = float(np.exp(model.base)) if model.log_energy else model.base
        facts = {"estimated": True, "r_squared": model.r_squared, "tasks": model.rows, "coalitions": "all"}
        joules = model.joules(counters[None])[0]
        return single(joules, model.names, base, units="J/sample", method="closed form", provenance=facts)


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
        found: AttributionVector = self.explainer.attribute(self.energy, counters[: len(DEMAND_NAMES)])
        return found


class _Amortised:
    """A network distilled from EmSHAP explains a row."""

    def __init__(self, explainer: Any) -> None:
        self.explainer = explainer

    def check(self) -> None:
        if not hasattr(self.explainer, "names_"):
            raise SettingsError(problem("attributor", "unfitted", "was distilled from nothing yet", "Call fit first"))
        _seven(self.explainer.names_)

    def explain(self, counters: FloatArray) -> AttributionVector:
        found: AttributionVector = self.explainer.attribute(counters[: len(DEMAND_NAMES)])
        return found


def _seven(names: tuple[str, ...]) -> None:
    if tuple(names) != DEMAND_NAMES:
        rule = f"must attribute to the seven counters {', '.join(DEMAND_NAMES)}"
        raise SettingsError(problem("attributor.names", list(names), rule, "Fit it on these, in this order"))


def _metered(world: World) -> Any:
    """The world's simulated meter as a function of the seven counters: joules per sample, ``(n,)``."""
    model = simulated_attributor(world)
    # A distribution of counters may draw one below zero, where no counter ever is.
    return lambda rows: np.exp(model.predict(np.maximum(rows, 0.0)))


def simulated_attributor(world: World, *, log_energy: bool = True) -> LinearAttribution:
    """Fit EmSHAP's closed form on the tasks of a world.

    Args:
        world: Its pool of tasks gives the counters, its cost model the energies.
        log_energy: Explain the logarithm of the joules per sample.
    """
    from attribution_sched.attribution.linear import LinearAttribution
    from attribution_sched.cluster.counters import counters
    from attribution_sched.cluster.demands import draw_demands
    from attribution_sched.cluster.pool import build_pool

    pool = build_pool(world)
    readings, energy = pool.counters.values, task_energy_j(world, pool.kinds, pool.demands)
    missing = ENOUGH_TASKS - len(pool)
    if missing > 0:
        rng = np.random.default_rng([world.pool_seed, 1])
        kinds = np.resize(pool.kinds, missing)
        more = draw_demands([world.kinds[k].model for k in kinds], rng, world.idiosyncrasy)
        readings = np.vstack([readings, counters(more, rng).values])
        energy = np.concatenate([energy, task_energy_j(world, kinds, more)])
    return LinearAttribution.fit(readings, energy, log_energy=log_energy)


def task_energy_j(world: World, kinds: IntArray, demands: Demands) -> FloatArray:
    """Joules per sample of each task alone on one device of the first domain, at its largest microbatch, (n,).

    A model too large for one device is priced as if it fitted: the joules of a sample are what tasks differ by.

    Args:
        world: Task kinds and cluster.
        kinds: (n,) index of each task's kind.
        demands: Latent demands of the tasks.
    """
    from attribution_sched.cluster.cost import CostModel
    from attribution_sched.cluster.plan import Plan, PlanBatch, Replica, Segment
    from attribution_sched.cluster.precision import Precision

    half = world.cluster.domains[0].gpu.supports(Precision.FP16)
    precision = Precision.FP16 if half else Precision.FP32
    cost = CostModel(world.cluster, [k.model for k in world.kinds], [k.training for k in world.kinds])
    plans = []
    for kind in world.kinds:
        micro = kind.microbatches[-1]
        segment = Segment(0, 0, len(kind.model), precision=precision)
        plans.append(PlanBatch.of([Plan((Replica((segment,), micro, kind.batch_size // micro),))]))
    energy = np.empty(len(kinds))
    for task, (kind_index, factors) in enumerate(zip(kinds.tolist(), demands.factors.tolist(), strict=True)):
        scored = cost.score(plans[kind_index], kind_index, factors=tuple(factors), breakdown=False)
        energy[task] = scored.energy_j[0] / world.kinds[kind_index].batch_size
    return energy
