"""Plots of explanations: each takes ``ax``, returns Axes, shows nothing and leaves matplotlib's settings alone."""

from __future__ import annotations

from attribution_sched.explain.plots.accounts import accounts
from attribution_sched.explain.plots.attributions import attributions
from attribution_sched.explain.plots.components import components
from attribution_sched.explain.plots.contenders import contenders
from attribution_sched.explain.plots.counterfactual import counterfactual
from attribution_sched.explain.plots.gantt import gantt
from attribution_sched.explain.plots.influence import influence
from attribution_sched.explain.plots.rewards import rewards
from attribution_sched.explain.plots.timeline import timeline
from attribution_sched.explain.plots.traffic import traffic
from attribution_sched.explain.plots.waterfall import waterfall

__all__ = [
    "accounts",
    "attributions",
    "components",
    "contenders",
    "counterfactual",
    "gantt",
    "influence",
    "rewards",
    "timeline",
    "traffic",
    "waterfall",
]
