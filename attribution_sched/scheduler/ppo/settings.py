"""Hyper-parameters of proximal policy optimisation: what a settings file may say and what learners take, in one record.

Limits stand in the annotations. A settings file is checked against them by pydantic, which names the file; a record
that is made in Python is checked against the same ones here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, ClassVar, get_args, get_origin, get_type_hints

from pydantic import ConfigDict, Field
from pydantic.fields import FieldInfo

from attribution_sched.errors import SettingsError, problem
from attribution_sched.limits import Rationale

_DIGITS = Rationale("beyond it sums lose their digits")
_KEPT = Rationale("all of them are kept in memory at once")
Positive = Annotated[float, Field(strict=True, gt=0, le=1e15, allow_inf_nan=False), _DIGITS]
NonNegative = Annotated[float, Field(strict=True, ge=0, le=1e15, allow_inf_nan=False), _DIGITS]
Fraction = Annotated[float, Field(strict=True, ge=0, le=1, allow_inf_nan=False)]
Discount = Annotated[float, Field(strict=True, gt=0, le=1, allow_inf_nan=False)]
LearningRate = Annotated[float, Field(strict=True, gt=0, le=10, allow_inf_nan=False), Rationale("weights would leap")]
Kept = Annotated[int, Field(strict=True, ge=1, le=10_000_000), _KEPT]
Passes = Annotated[
    int, Field(strict=True, ge=1, le=10_000), Rationale("each goes through everything that was collected")
]
Switch = Annotated[bool, Field(strict=True)]


@dataclass(frozen=True)
class PpoSettings:
    """How a policy learns; the defaults are those of ``presets/hi_ppo.yaml``.

    Attributes:
        lr: Learning rate of Adam.
        gamma: Discount of later rewards.
        gae_lambda: Bias against variance in the advantage estimate.
        clip_range: How far the probability ratio may leave 1 before the gradient stops.
        entropy_coef: Weight of the entropy bonus.
        value_coef: Weight of the value loss.
        max_grad_norm: Gradients are scaled down to this norm.
        target_kl: An update stops once the policy has moved this far; None never stops it.
        num_steps: Decisions collected between two updates, over all environments.
        update_epochs: Passes over the collected decisions.
        minibatch_size: Decisions per gradient step; at most ``num_steps``.
        value_clip: How far a value may move from its old estimate before its gradient stops; None lets it go.
        normalise_advantage: Advantages of a rollout are brought to mean 0 and deviation 1.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid", hide_input_in_errors=True)

    lr: LearningRate = 3.0e-4
    gamma: Discount = 0.99
    gae_lambda: Fraction = 0.95
    clip_range: Positive = 0.2
    entropy_coef: NonNegative = 0.01
    value_coef: NonNegative = 0.5
    max_grad_norm: Positive = 0.5
    target_kl: Positive | None = 0.02
    num_steps: Kept = 2048
    update_epochs: Passes = 10
    minibatch_size: Kept = 256
    value_clip: Positive | None = None
    normalise_advantage: Switch = True

    def __post_init__(self) -> None:
        for name, kind in _kinds().items():
            _check(f"ppo.{name}", getattr(self, name), kind)
        if self.minibatch_size > self.num_steps:
            rule = f"must be at most num_steps, {self.num_steps}"
            raise SettingsError(problem("ppo.minibatch_size", self.minibatch_size, rule, "Lower it"))


@cache
def _kinds() -> dict[str, Any]:
    """Name of a setting → its annotation; looked up once."""
    hints = get_type_hints(PpoSettings, include_extras=True)
    return {name: hint for name, hint in hints.items() if get_origin(hint) is not ClassVar}


def _check(key: str, value: Any, kind: Any) -> None:
    """Hold a value to the type and the limits of an annotation.

    Raises:
        SettingsError: If it is not of the type, or outside the limits.
    """
    if get_origin(kind) is not Annotated:  # what is left is an annotated type or None
        if value is None:
            return
        kind = next(member for member in get_args(kind) if member is not type(None))
    base, limits = get_args(kind)[0], next(part for part in get_args(kind) if isinstance(part, FieldInfo)).metadata
    bounds = [(sign, getattr(limit, name)) for limit in limits for name, sign in _SIGNS if hasattr(limit, name)]
    rule = " and ".join((_WORDS[base], *(f"{sign} {bound:g}" for sign, bound in bounds)))
    number = type(value) is int or (base is float and isinstance(value, float) and math.isfinite(value))
    sound = isinstance(value, bool) if base is bool else number and all(_HOLDS[s](value, b) for s, b in bounds)
    if not sound:
        raise SettingsError(problem(key, value, f"must be {rule}", "Change it, or leave it out for the default"))


_SIGNS = (("gt", ">"), ("ge", ">="), ("lt", "<"), ("le", "<="))
_HOLDS = {
    ">": lambda value, bound: value > bound,
    ">=": lambda value, bound: value >= bound,
    "<": lambda value, bound: value < bound,
    "<=": lambda value, bound: value <= bound,
}
_WORDS = {float: "finite", int: "a whole number", bool: "true or false"}
