"""Influence bars."""

from __future__ import annotations

import matplotlib
import pytest
from matplotlib import pyplot as plt

from attribution_sched.explain.overview import Overview
from attribution_sched.explain.plots import influence, style
from tests.explain.factory import episode, explanation


def test_bars_are_mean_sizes_coloured_by_what_they_do():
    overview = Overview.of(episode(30), resamples=300)
    ax = influence(overview, output="R_cost", most=5)
    found = overview.shares("R_cost")
    bars = ax.patches[:5]
    assert [bar.get_width() for bar in bars] == pytest.approx(list(found.size[:5]))
    tones = {
        name: matplotlib.colors.to_hex(bar.get_facecolor()).upper()
        for name, bar in zip(found.names, bars, strict=False)
    }
    # This load lowers the cost, this link raises it.
    assert tones["load us-east"] == style.GOOD
    assert tones["link us-east–eu-west"] == style.BAD


def test_groups_and_single_decisions_can_be_drawn():
    for overview, by in ((Overview.of(episode(12), resamples=100), "group"), (Overview.of([explanation()]), "player")):
        ax = influence(overview, by=by)
        ax.get_figure().canvas.draw()
        assert ax.patches
        plt.close(ax.get_figure())
