"""Every plot with something to draw, for the tests that hold for all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from attribution_sched.cluster.gpus import Precision
from attribution_sched.cluster.plan import Plan, Replica, Segment
from attribution_sched.explain import plots
from attribution_sched.explain.overview import Overview
from attribution_sched.explain.plots.gantt import Bar
from tests.explain.factory import DOMAINS, PLAYERS, contrast, episode, explanation, full, log_odds


def segment(domain: int, first: int, stop: int) -> Segment:
    return Segment(domain, first, stop, 2, 4, 1, Precision.BF16)


PLAN = Plan(
    (
        Replica((segment(0, 0, 20), segment(2, 20, 48)), 4, 8),
        Replica((segment(1, 0, 31), segment(3, 31, 48)), 4, 8),
    )
)
TRAFFIC = np.zeros((4, 4))
TRAFFIC[0, 2] = TRAFFIC[2, 0] = 3.4e9
TRAFFIC[1, 3] = TRAFFIC[3, 1] = 2.9e9
TRAFFIC[0, 1] = TRAFFIC[1, 0] = 7.2e9
TRAFFIC[2, 3] = TRAFFIC[3, 2] = 9.8e9
ENERGY = np.random.default_rng(0).gamma(1.2, 30.0, (9, 7)) * np.array([1, 1, 1, -0.3, 1, 1, 1])

LONG = replace(
    full(),
    decision="a-decision-with-a-long-identifier-0001",
    players=tuple(
        replace(p, name=f"{p.name} with a name that goes on and on and on {i}") for i, p in enumerate(PLAYERS)
    ),
)
TINY = explanation(scale=1e-7, standard_error=np.full((11, 3), 4e-10), base=np.zeros(3))


def changed() -> list[Any]:
    return [replace(one, values=one.values * 1.4) for one in episode(12)]


BARS = [Bar(kind, at % 4, 4.0, 2.0 * at, 2.0 * at + 5.0) for at, kind in enumerate(("llama-2-7b", "vit-l-16") * 4)]
COURSE = (np.linspace(0.0, 20.0, 9), np.linspace(0.1, 0.9, 8), np.arange(8.0))

GALLERY: dict[str, Callable[..., Any]] = {
    "gantt": lambda **k: plots.gantt(BARS, [(name, 8) for name in DOMAINS], COURSE, **k),
    "waterfall": lambda **k: plots.waterfall(full(), **k),
    "waterfall of a component": lambda **k: plots.waterfall(full(), output="R_cost", **k),
    "waterfall of a contrast": lambda **k: plots.waterfall(contrast(), **k),
    "waterfall of log-odds": lambda **k: plots.waterfall(log_odds(), **k),
    "waterfall, long names": lambda **k: plots.waterfall(LONG, **k),
    "waterfall, tiny": lambda **k: plots.waterfall(TINY, **k),
    "components": lambda **k: plots.components(full(), **k),
    "components, small": lambda **k: plots.components(explanation(scale=0.03), **k),
    "components, long names": lambda **k: plots.components(LONG, **k),
    "traffic": lambda **k: plots.traffic(TRAFFIC, DOMAINS, PLAN, **k),
    "traffic, long names": lambda **k: plots.traffic(TRAFFIC, [f"region {d} somewhere" for d in DOMAINS], PLAN, **k),
    "attributions": lambda **k: plots.attributions(ENERGY, [f"bert #{i}" for i in range(9)], **k),
    "attributions, shares": lambda **k: plots.attributions(ENERGY, ["x" * 70] * 9, normalise=True, **k),
    "timeline": lambda **k: plots.timeline(episode(12), **k),
    "timeline, lines": lambda **k: plots.timeline(episode(12), kind="lines", most=4, **k),
    "counterfactual": lambda **k: plots.counterfactual(full(), **k),
    "counterfactual, long names": lambda **k: plots.counterfactual(LONG, **k),
    "influence": lambda **k: plots.influence(Overview.of(episode(12), resamples=200), **k),
}
