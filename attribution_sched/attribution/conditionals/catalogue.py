"""Names of the conditional models, and how each is made and restored."""

from __future__ import annotations

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
    if kind == "gaussian":
        from attribution_sched.attribution.conditionals.gaussian import GaussianConditional

        return GaussianConditional
    if kind == "mixture":
        from attribution_sched.attribution.conditionals.mixture import MixtureConditional

        return MixtureConditional
    if kind == "regression":
        from attribution_sched.attribution.conditionals.regression import RegressionConditional

        return RegressionConditional
    if kind == "curved":
        from attribution_sched.attribution.conditionals.curved import CurvedConditional

        return CurvedConditional
    if kind in ATOM_KINDS:
        from attribution_sched.attribution.conditionals.strata import StrataConditional

        return StrataConditional
    if kind in ("student", "copula-student"):
        from attribution_sched.attribution.conditionals import student

        return student.StudentConditional if kind == "student" else student.StudentCopulaConditional
    if kind in ("copula", "copula-mixture"):
        from attribution_sched.attribution.conditionals.gaussianised import GaussianisedConditional

        return GaussianisedConditional
    if kind in ("energy", "energy-mixture"):
        from attribution_sched.attribution.conditionals.energy import EnergyConditional

        return EnergyConditional
    if kind == "marginal":
        from attribution_sched.attribution.conditionals.marginal import MarginalConditional

        return MarginalConditional
    if kind == "empirical":
        from attribution_sched.attribution.conditionals.empirical import EmpiricalConditional

        return EmpiricalConditional
    from attribution_sched.attribution.conditionals.autoregressive import AutoregressiveConditional

    return AutoregressiveConditional


def _typed(model: Any) -> Conditional:
    conditional: Conditional = model
    return conditional
