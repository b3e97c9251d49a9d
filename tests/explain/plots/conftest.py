"""Plots are drawn without a screen, and closed after each test."""

from __future__ import annotations

from collections.abc import Iterator

import matplotlib
import pytest

from tests.explain.plots.fonts import bare_machine


@pytest.fixture(autouse=True)
def off_screen() -> Iterator[None]:
    """No window is opened, and no figure outlives its test."""
    from matplotlib import pyplot as plt

    matplotlib.use("Agg")
    yield
    plt.close("all")


@pytest.fixture
def no_chinese_font(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine that has no fonts but matplotlib's own, whatever this one has."""
    with bare_machine(monkeypatch):
        yield
