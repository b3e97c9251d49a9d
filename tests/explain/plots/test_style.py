"""Colours every kind of eye can tell apart, labels that fit."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib import pyplot as plt
from matplotlib.colors import to_rgb

from attribution_sched.explain.findings import Player
from attribution_sched.explain.plots import style
from tests.explain.plots.fonts import machine_with_chinese

# Linear-light matrices of Viénot, Brettel and Mollon for missing long- and middle-wave cones.
BLIND = {
    "protan": np.array([[0.1124, 0.8876, 0.0], [0.1124, 0.8876, 0.0], [0.004, -0.004, 1.0]]),
    "deutan": np.array([[0.2928, 0.7072, 0.0], [0.2928, 0.7072, 0.0], [-0.0223, 0.0223, 1.0]]),
    "none": np.eye(3),
}


def lab(colour: str, eye: str) -> np.ndarray:
    """CIE Lab of a colour as an eye sees it."""
    rgb = np.array(to_rgb(colour))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    linear = np.clip(BLIND[eye] @ linear, 0.0, 1.0)
    xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]) @ linear
    x, y, z = np.cbrt(np.maximum(xyz / np.array([0.9505, 1.0, 1.089]), 1e-6))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("eye", BLIND)
@pytest.mark.parametrize(
    "colours", [(style.GOOD, style.BAD, style.UNSURE), tuple(style.COMPONENT_COLOURS.values())], ids=["signs", "parts"]
)
def test_colours_differ_for_every_eye(colours, eye):
    for one, other in itertools.combinations(colours, 2):
        assert np.linalg.norm(lab(one, eye) - lab(other, eye)) > 20.0


def test_text_is_fitted():
    assert style.fitted("one two three four", 8, 2) == "one two\nthree…"
    assert style.shortened("a very long name #12", 12) == "a very…#12"
    assert style.shortened("short", 12) == "short"


@given(st.text(alphabet="abc de–4.，。（）内存带宽归因 ", min_size=1), st.integers(4, 30), st.integers(1, 3))
def test_rows_are_never_wider_or_more_than_asked_for(text, wide, lines):
    with machine_with_chinese():
        rows = style.fitted(text, wide, lines).split("\n")
        assert len(rows) <= lines
        assert all(style.width(row) <= wide for row in rows)
        told = "".join(rows).replace("…", "").replace(" ", "")
        assert text.replace(" ", "").startswith(told)
        assert style.width(style.shortened(text, wide)) <= max(wide, 6)


def test_chinese_is_as_wide_as_it_is():
    with machine_with_chinese():
        assert style.width("内存ab") == 6
        assert style.fitted("内存带宽归因", 8) == "内存带宽\n归因"
        assert style.fitted("内存带宽，归因", 8) == "内存带\n宽，归因"
        assert style.fitted("abcdefghij", 4, 3) == "abcd\nefgh\nij"


def test_labels_hold_readings_only_where_there_is_room():
    player = Player("attribution memory_bandwidth", "attribution", "+0.61")
    assert style.player_label(player, "en", 40, 2, reading=True) == "attribution memory bandwidth\n+0.61"
    assert style.player_label(player, "en", 40, 1, reading=True) == "attribution memory bandwidth"
    with machine_with_chinese():
        assert style.player_label(player, "zh", 40, 2, reading=True) == "归因·内存带宽\n+0.61"


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-3e-9, 2e-8), (1.2340, 1.2352), (-0.0071, 0.0094), (5.0, 5.0)])
def test_ticks_are_numbers_that_differ(low, high):
    figure, ax = plt.subplots(figsize=(6.6, 2.0))
    style.spread(ax, [low, high])
    figure.canvas.draw()
    left, right = ax.get_xlim()
    assert left < low and high < right
    labels = [label.get_text() for label in ax.get_xticklabels()]
    assert len(set(labels)) == len(labels) >= 2
    assert not ax.xaxis.get_offset_text().get_text()


def test_ramps_are_neutral_in_the_middle():
    assert style.diverging()(0.5)[:3] == pytest.approx((1, 1, 1), abs=0.02)
    middle = style.low_to_high()(0.5)[:3]
    assert np.ptp(middle) < 0.03
