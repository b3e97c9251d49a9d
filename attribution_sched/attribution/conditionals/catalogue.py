"""Names of the conditional models, and how each is made and restored."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from attribution_sched.attribution.conditionals.base import Conditional, State
from attribution_sched.errors import CheckpointError, ModelFitError, nearest, problem

NETWORK_KINDS = ("neural-mlp", "neural-gru", "energy-mlp", "energy-gru")
CLOSED_KINDS = ("gaussian", "student", "mixture", "copula", "copula-student", "copula-mixture")
ATOM_KINDS = ("strata", "strata-student")
KINDS = (
    *CLOSED_KINDS,
    *ATOM_KINDS,
    "curved",
    "energy",
    "energy-mixture",
    *NETWORK_KINDS,
    "marginal",
    "empirical",
    "regression",
)

_HOMES = {
    "gaussian": ("attribution_sched.attribution.conditionals.gaussian", "GaussianConditional"),
    "mixture": ("attribution_sched.attribution.conditionals.mixture", "MixtureConditional"),
    "student": ("attribution_sched.attribution.conditionals.student", "StudentConditional"),
    "copula-student": ("attribution_sched.attribution.conditionals.student", "StudentCopulaConditional"),
    "curved": ("attribution_sched.attribution.conditionals.curved", "CurvedConditional"),
    "marginal": ("attribution_sched.attribution.conditionals.marginal", "MarginalConditional"),
    "empirical": ("attribution_sched.attribution.conditionals.empirical", "EmpiricalConditional"),
    "regression": ("attribution_sched.attribution.conditionals.regression", "RegressionConditional"),
    **dict.fromkeys(
        ("copula", "copula-mixture"),
        ("attribution_sched.attribution.conditionals.gaussianised", "GaussianisedConditional"),
    ),
    **dict.fromkeys(ATOM_KINDS, ("attribution_sched.attribution.conditionals.strata", "StrataConditional")),
    **dict.fromkeys(
        ("energy", "energy-mixture"), ("attribution_sched.attribution.conditionals.energy", "EnergyConditional")
    ),
    **dict.fromkeys(
        NETWORK_KINDS, ("attribution_sched.attribution.conditionals.autoregressive", "AutoregressiveConditional")
    ),
}


def make(kind: str, **options: Any) -> Conditional:
    """Make an unfitted model by name.

    Args:
        kind: One of :data:`KINDS`.
        options: Constructor settings of that model.
    """
    if kind not in KINDS:
        raise ModelFitError(problem("model", kind, "is not a conditional model", nearest(kind, KINDS)))
    if kind in NETWORK_KINDS:
        energy, proposal = kind.split("-")
        return _typed(_class(kind)(proposal=proposal, energy=energy == "energy", **options))
    if kind in ("copula", "copula-mixture"):
        inner = "gaussian" if kind == "copula" else "mixture"
        return _typed(_class(kind)(_class(inner)(**options)))
    if kind in ATOM_KINDS:
        return _typed(_class(kind)(tails=kind == "strata-student", **options))
    if kind in ("energy", "energy-mixture"):
        return _typed(_class("energy")(make("copula" if kind == "energy" else "mixture"), **options))
    return _typed(_class(kind)(**options))


def restore(kind: str, settings: dict[str, Any], arrays: State) -> Conditional:
    """Build a fitted model back from what its ``state`` returned."""
    if kind not in KINDS:
        raise CheckpointError(problem("model", kind, "is not a conditional model", nearest(kind, KINDS)))
    try:
        return _typed(_class(kind).restore(settings, arrays))
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        rule = f"the file lacks part of a {kind!r} model"
        raise CheckpointError(problem("settings", sorted(settings), rule, "Fit and save again.")) from error


def _class(kind: str) -> Any:
    """Load the class of a kind; the network models bring torch with them, so only on demand."""
    module, name = _HOMES[kind]
    return getattr(import_module(module), name)


def _typed(model: Any) -> Conditional:
    conditional: Conditional = model
    return conditional
