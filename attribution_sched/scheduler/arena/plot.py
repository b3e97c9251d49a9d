"""The picture of an evaluation: return against decision latency, one panel per scenario, policies labelled directly."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from attribution_sched.scheduler.arena.result import ArenaResult, PolicyRow, ScenarioResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.text import Annotation
    from matplotlib.transforms import Bbox

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#B3548A", "#3795CC", "#B87C00", "#000000", "#7A6A00")
"""Okabe and Ito's palette for any kind of colour vision; light tones are darkened, as names are written in them."""

MARKERS = ("o", "s", "D", "^", "P", "X")
"""The first goes with the first round of colours, the second with the second."""

Styles = Mapping[str, tuple[str, str]]
"""Policy → colour and marker, the same in all panels."""

COLUMNS = 3
PANEL_INCHES, LONE_PANEL_INCHES = (5.2, 4.0), (7.5, 5.0)
LEAST_LATENCY_MS = 1e-3
"""The records resolve no less; what is faster, or never gave a plan, is drawn here."""

FAR_BELOW = 1.2
"""A policy is drawn at the lower edge if the gap above it is so many times the span of all better ones."""

OVER_A_BAR = 0.3
"""How bad it is to write over the bar of an interval, next to writing over another name."""


def draw(result: ArenaResult, *, dpi: int = 150) -> bytes:
    """Draw all scenarios as small multiples; returns a PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    count = len(result.scenarios)
    columns = min(COLUMNS, count)
    rows = math.ceil(count / columns)
    width, height = PANEL_INCHES if count > 1 else LONE_PANEL_INCHES
    figure = Figure(figsize=(width * columns, height * rows + 0.5), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(rows, columns, sharex=True, squeeze=False)
    styles = styles_of(dict.fromkeys(record.policy for record in result.records))
    latencies = [latency_ms(row) for scenario in result.scenarios for row in scenario.rows]
    panels[0, 0].set_xscale("log")
    panels[0, 0].set_xlim(min(latencies) / 3.0, max(latencies) * 5.0)
    for i, ax in enumerate(panels.flat):
        if i >= count:
            ax.set_visible(False)
            continue
        draw_scenario(ax, result.scenarios[i], styles)
        if i + columns >= count:
            ax.set_xlabel("latency of a decision that gives a plan, median (ms, log scale)")
            ax.tick_params(labelbottom=True)
    for ax in panels[:, 0]:
        ax.set_ylabel("return per episode")
    episodes = len(result.episode_seeds)
    title = f"Return and decision latency: {episodes} held-out episode{'s' if episodes > 1 else ''} each (simulated)\n"
    title += "bars are 95 % intervals, ▼ is off the scale"
    figure.suptitle(title, fontsize=10)
    figure.draw_without_rendering()
    for ax, scenario in zip(panels.flat, result.scenarios, strict=False):
        place_labels(ax, scenario, styles)
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=dpi)
    return out.getvalue()


def styles_of(policies: Mapping[str, object]) -> Styles:
    """Give every policy its colour and marker."""
    n = len(COLOURS)
    return {name: (COLOURS[i % n], MARKERS[i // n % len(MARKERS)]) for i, name in enumerate(policies)}


def latency_ms(row: PolicyRow) -> float:
    """Where a policy stands on the horizontal axis."""
    found = row.latency.plan_p50_ms
    return max(found, LEAST_LATENCY_MS) if math.isfinite(found) else LEAST_LATENCY_MS


def far_below(rows: Sequence[PolicyRow]) -> tuple[str, ...]:
    """The worst policies, a third of all at most, if showing them to scale would press the others together."""
    returns = [row.metrics["return"].value for row in rows]
    for i in range(max(2, math.ceil(2 * len(rows) / 3)), len(rows)):
        if returns[i - 1] - returns[i] > FAR_BELOW * (returns[0] - returns[i - 1]):
            return tuple(row.policy for row in rows[i:])
    return ()


def draw_scenario(ax: Axes, result: ScenarioResult, styles: Styles) -> Axes:
    """Draw the points of one scenario; labels follow when the axes have their final size."""
    below = far_below(result.rows)
    shown = [row for row in result.rows if row.policy not in below]
    for row in shown:
        colour, marker = styles[row.policy]
        found, x = row.metrics["return"], latency_ms(row)
        if found.bounded:
            ax.plot([x, x], [found.low, found.high], color=colour, linewidth=1.6, alpha=0.5, solid_capstyle="butt")
        ax.plot([x], [found.value], marker, color=colour, markersize=6.5, markeredgecolor="white", zorder=3)
    ax.margins(y=0.14)
    if below:
        low, high = ax.get_ylim()
        ax.set_ylim(low - 0.14 * (high - low), high)
    for row in result.rows:
        if row.policy in below:
            transform = ax.get_xaxis_transform()
            ax.plot([latency_ms(row)], [0.035], "v", color=styles[row.policy][0], markersize=6.5, transform=transform)
    ax.set_title(result.scenario, loc="left", fontsize=10, fontweight="bold")
    ax.grid(True, which="major", axis="both", color="#dddddd", linewidth=0.6)
    ax.set_axisbelow(True)
    ax.xaxis.set_major_formatter("{x:g}")
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    return ax


def place_labels(ax: Axes, result: ScenarioResult, styles: Styles) -> list[Annotation]:
    """Write every policy's name beside its point, where it meets no other name or point, and few bars."""
    from matplotlib.patheffects import withStroke
    from matplotlib.transforms import Bbox

    renderer = ax.figure.canvas.get_renderer()  # type: ignore[attr-defined]
    frame, unit = ax.get_window_extent(renderer), ax.figure.dpi / 72.0
    below, bottom = far_below(result.rows), ax.transAxes.transform((0.0, 0.035))[1]
    points: dict[str, tuple[float, float]] = {}
    taken: list[tuple[Bbox, float]] = []
    for row in result.rows:
        found = row.metrics["return"]
        x, y = ax.transData.transform((latency_ms(row), found.value))
        y = bottom if row.policy in below else y
        points[row.policy] = (float(x), float(y))
        taken.append((Bbox.from_bounds(x - 4 * unit, y - 4 * unit, 8 * unit, 8 * unit), 1.0))
        if found.bounded and row.policy not in below:
            ends = ax.transData.transform([(latency_ms(row), found.low), (latency_ms(row), found.high)])
            taken.append((Bbox([ends[0] - unit, ends[1] + unit]), OVER_A_BAR))
    labels = []
    for row in result.rows:
        colour, (x, y) = styles[row.policy][0], points[row.policy]
        text = f"{row.policy} ({row.metrics['return'].value:+.0f})" if row.policy in below else row.policy
        label = ax.annotate(
            text, (x, y), xycoords="figure pixels", xytext=(0, 0), textcoords="offset points", fontsize=8,
            color=colour, zorder=4, path_effects=[withStroke(linewidth=2.0, foreground="white")],
            arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.6, "alpha": 0.6, "shrinkA": 1, "shrinkB": 3},
        )  # fmt: skip
        size = label.get_window_extent(renderer)
        dx, dy = _free_place((x, y), (size.width, size.height), unit, taken, frame)
        across, up = ax.transAxes.inverted().transform((x, y))
        label.xy = (float(across), float(up))
        label.xycoords = "axes fraction"
        label.set_position((dx, dy))
        taken.append((Bbox.from_bounds(x + dx * unit, y + dy * unit, size.width, size.height), 1.0))
        labels.append(label)
    return labels


def _free_place(
    at: tuple[float, float], size: tuple[float, float], unit: float, taken: Sequence[tuple[Bbox, float]], frame: Bbox
) -> tuple[float, float]:
    """Offset in points that overlaps least and is nearest; pixels everywhere else."""
    from matplotlib.transforms import Bbox

    width, height = size[0] / unit, size[1] / unit
    rises = [step * sign for step in range(0, 100, 6) for sign in (1, -1)]
    offsets = [(x, rise - height / 2) for rise in rises for x in (6.0, -6.0 - width, 20.0, -20.0 - width)]
    offsets += [(-width / 2, y) for gap in range(6, 90, 6) for y in (float(gap), -gap - height)]
    best, least = offsets[0], math.inf
    for dx, dy in offsets:
        box = Bbox.from_bounds(at[0] + dx * unit, at[1] + dy * unit, *size)
        outside = max(0.0, frame.x0 - box.x0) + max(0.0, box.x1 - frame.x1)
        outside += max(0.0, frame.y0 - box.y0) + max(0.0, box.y1 - frame.y1)
        penalty = sum(weight * _overlap(box, other) for other, weight in taken) + 50.0 * outside
        penalty += math.hypot(max(dx, -dx - width, 0.0), max(dy, -dy - height, 0.0))
        if penalty < least:
            best, least = (dx, dy), penalty
    return best


def _overlap(one: Bbox, other: Bbox) -> float:
    width = min(one.x1, other.x1) - max(one.x0, other.x0)
    height = min(one.y1, other.y1) - max(one.y0, other.y0)
    return width * height if width > 0 and height > 0 else 0.0
