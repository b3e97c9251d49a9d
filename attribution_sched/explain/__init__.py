"""Explanations of decisions: Shapley estimators, reward drivers, plots and reports.

Names load on first use, so importing this package costs nothing.
"""

from __future__ import annotations

from attribution_sched import lazy_names

__all__ = [
    "Background",
    "Decided",
    "Explainer",
    "Explanation",
    "FlatExplainer",
    "Overview",
    "Watch",
    "agreement",
    "deletion",
    "describe_plan",
    "insertion",
    "randomised",
    "rank_correlation",
    "stability",
    "stack_shap",
]

_HOMES = {
    "Background": "attribution_sched.explain.background",
    "Decided": "attribution_sched.explain.recorder",
    "Explainer": "attribution_sched.explain.explainer",
    "Explanation": "attribution_sched.explain.explanation",
    "FlatExplainer": "attribution_sched.explain.flat",
    "Overview": "attribution_sched.explain.overview",
    "Watch": "attribution_sched.explain.recorder",
    "agreement": "attribution_sched.explain.quality",
    "deletion": "attribution_sched.explain.quality",
    "describe_plan": "attribution_sched.explain.wording",
    "insertion": "attribution_sched.explain.quality",
    "randomised": "attribution_sched.explain.quality",
    "rank_correlation": "attribution_sched.explain.quality",
    "stability": "attribution_sched.explain.quality",
    "stack_shap": "attribution_sched.explain.stacking",
}

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
