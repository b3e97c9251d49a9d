"""Any closed-form model behind smooth margins: a Gaussian becomes the Gaussian copula, a mixture a copula mixture."""

from __future__ import annotations

from typing import Any

import numpy as np

from attribution_sched.attribution.conditionals.base import Draws, State, pick
from attribution_sched.attribution.conditionals.gaussian import GaussianConditional
from attribution_sched.attribution.conditionals.margins import Margins, fit_margins
from attribution_sched.attribution.conditionals.mixture import MixtureConditional
from attribution_sched.attribution.conditionals.points import Points
from attribution_sched.types import BoolArray, FloatArray


class GaussianisedConditional:
    """Maps every feature to normal scores, models those, and maps the draws back.

    Args:
        inner: Model of the scores.
    """

    def __init__(self, inner: GaussianConditional | MixtureConditional) -> None:
        self.inner = inner
        self.margins = Margins(np.zeros((0, 2)))

    @property
    def kind(self) -> str:
        """``copula`` around one Gaussian, ``copula-mixture`` around a mixture."""
        return "copula" if self.inner.kind == "gaussian" else "copula-mixture"

    def fit(self, x: FloatArray, rng: np.random.Generator) -> GaussianisedConditional:
        """Fit the margins, then the inner model on the scores."""
        self.margins = fit_margins(x)
        self.inner.fit(self.margins.to_scores(x), rng)
        return self

    def refit(self, x: FloatArray, rng: np.random.Generator) -> GaussianisedConditional:
        """The same model of other rows, started at this one's."""
        margins = fit_margins(x)
        twin = GaussianisedConditional(self.inner.refit(margins.to_scores(x), rng))
        twin.margins = margins
        return twin

    def log_likelihood(self, x: FloatArray, observed: BoolArray) -> FloatArray:
        """Log density of the hidden features given the observed ones, (n,)."""
        slope = np.where(observed, 0.0, self.margins.log_slope(x)).sum(-1)
        return np.asarray(self.inner.log_likelihood(self.margins.to_scores(x), observed) + slope)

    def draws(self, x: FloatArray, masks: BoolArray, points: Points) -> Draws:
        """Draw scores and map them back; observed values are kept up to rounding."""
        inner = self.inner.draws(self.margins.to_scores(x), masks, points)
        return Draws(self.margins.to_features(inner.rows), inner.weights)

    def state(self) -> tuple[dict[str, Any], State]:
        """Settings and arrays that restore the model."""
        settings, arrays = self.inner.state()
        named = {f"inner.{key}": value for key, value in arrays.items()}
        return {"inner": self.inner.kind, "settings": settings}, {"table": self.margins.table, **named}

    @classmethod
    def restore(cls, settings: dict[str, Any], arrays: State) -> GaussianisedConditional:
        """Build the fitted model back."""
        kinds: dict[str, Any] = {"gaussian": GaussianConditional, "mixture": MixtureConditional}
        inner = kinds[settings["inner"]].restore(settings["settings"], pick(arrays, "inner."))
        model = cls(inner)
        model.margins = Margins(arrays["table"])
        return model
