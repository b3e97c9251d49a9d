"""What a cluster did over time: who held which devices, how many were in use, how many tasks waited."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from attribution_sched.errors import ExplanationError, problem
from attribution_sched.explain.digits import number
from attribution_sched.explain.plots import style
from attribution_sched.types import FloatArray
from attribution_sched.words.say import say

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_KINDS = 6
"""Kinds of tasks with a colour of their own, those that held most; the others are grey."""

MOST_NAMES = 16
"""Domains whose names fit beside the axis."""

STRIP = 0.17
"""Height of a strip below the bars, as a part of theirs."""


@dataclass(frozen=True)
class Bar:
    """Devices that a task held.

    Attributes:
        kind: Name of its model.
        domain: Where.
        devices: How many; two tasks on one device hold half of it each.
        start_h: From when.
        end_h: Until when.
    """

    kind: str
    domain: int
    devices: float
    start_h: float
    end_h: float


def gantt(
    bars: Sequence[Bar],
    domains: Sequence[tuple[str, int]],
    course: tuple[Sequence[float], Sequence[float], Sequence[float]],
    ax: Axes | None = None,
    *,
    lang: str = "en",
) -> Axes:
    """Draw bars as high as the devices they hold, and below them the share of devices in use and the queue.

    Args:
        bars: Who held what.
        domains: Name of each domain and its devices.
        course: Edges of intervals in hours, share of devices in use and tasks waiting in each of them.
        ax: Where to draw; new axes by default.
        lang: ``en`` or ``zh``.

    Raises:
        ExplanationError: If there is nothing to draw, or a bar is in no domain.
    """
    lang = style.drawn_language(lang)
    edges_h, busy, waiting = (np.asarray(each, dtype=np.float64) for each in course)
    if not domains or edges_h.size != busy.size + 1 or busy.size != waiting.size or not busy.size:
        rule = "need domains, and one edge more than values"
        sizes = (len(domains), edges_h.size, busy.size, waiting.size)
        raise ExplanationError(problem("course", sizes, rule, "Give the edges of all intervals"))
    if any(not 0 <= bar.domain < len(domains) for bar in bars):
        rule = f"must be below {len(domains)}"
        raise ExplanationError(problem("bars.domain", max(bar.domain for bar in bars), rule, "Number the domains"))
    ax = style.axes(ax, 2.7)
    offsets = _offsets(domains)
    colours = _colours(bars)
    _draw_bars(ax, bars, domains, offsets, colours)
    total = float(offsets[-1])
    strip = STRIP * total
    labels = [(float(offsets[k]) + 0.5 * devices, style.shortened(name, style.characters(ax, 0.2)))
              for k, (name, devices) in enumerate(domains)] if len(domains) <= MOST_NAMES else []  # fmt: skip
    mean_busy = float((busy * np.diff(edges_h)).sum() / max(edges_h[-1] - edges_h[0], 1e-12))
    strips = (
        (busy, 1.0, say("gantt.busy", lang), say("gantt.mean", lang, share=number(100.0 * mean_busy, 2)), style.GOOD),
        (waiting, float(waiting.max()) or 1.0, say("gantt.waiting", lang),
         say("gantt.most", lang, count=number(float(waiting.max()), 3)), style.BAD),
    )  # fmt: skip
    foot = total
    for values, most, name, note, tone in strips:
        foot += 0.06 * total + strip
        ax.stairs(foot - values / most * strip, edges_h, baseline=foot, fill=True, color=tone, alpha=0.55, linewidth=0)
        ax.plot(edges_h[[0, -1]], [foot, foot], color="#9A9A9A", linewidth=0.7)
        ax.text(float(edges_h[-1]), foot - strip, f" {note}", fontsize=7.5, color=style.FAINT, va="top", ha="left")
        labels.append((foot - 0.4 * strip, name))
    ax.set_yticks([place for place, _ in labels], [name for _, name in labels])
    ax.set_ylim(foot + 0.01 * total, -0.01 * total)
    ax.set_xlim(float(edges_h[0]), float(edges_h[-1]))
    style.finish(ax, lang, grid="x")
    for side in ("left", "bottom"):
        ax.spines[side].set_visible(False)
    ax.tick_params(axis="y", length=0)
    ax.set_xlabel(style.with_unit(say("gantt.time", lang), "h", lang), fontsize=8)
    if colours:
        for kind, tone in colours.items():
            ax.plot([], [], color=tone, linewidth=6, label=style.shortened(kind, style.characters(ax, 0.28)))
        style.legend_above(ax, len(colours), say("gantt.title", lang))
    else:
        style.title(ax, say("gantt.title", lang))
    return style.in_font(ax, lang)


def _offsets(domains: Sequence[tuple[str, int]]) -> FloatArray:
    """First row of every domain, and the end of the last: domains lie below one another with a gap between them."""
    gap = 0.03 * sum(devices for _, devices in domains)
    ends = np.cumsum([devices + gap for _, devices in domains])
    ends[-1] -= gap
    offsets: FloatArray = np.concatenate([[0.0], ends])
    return offsets


def _colours(bars: Sequence[Bar]) -> dict[str, str]:
    """A colour for each of the kinds that held most."""
    held: dict[str, float] = {}
    for bar in bars:
        held[bar.kind] = held.get(bar.kind, 0.0) + bar.devices * (bar.end_h - bar.start_h)
    return dict(zip(sorted(held, key=lambda kind: (-held[kind], kind))[:MOST_KINDS], style.LINES, strict=False))


def _draw_bars(
    ax: Axes,
    bars: Sequence[Bar],
    domains: Sequence[tuple[str, int]],
    offsets: FloatArray,
    colours: dict[str, str],
) -> None:
    """Each bar in the first rows that are free; devices have no names, so any free ones stand for those held."""
    until = [np.full(devices, -np.inf) for _, devices in domains]
    for k, (_, devices) in enumerate(domains):
        ax.axhspan(offsets[k], offsets[k] + devices, color="#F1F3F5", zorder=0)
    for bar in sorted(bars, key=lambda each: (each.start_h, -each.devices)):
        rows = until[bar.domain]
        count = min(rows.size, max(1, round(bar.devices)))
        free = np.flatnonzero(rows <= bar.start_h + 1e-9)[:count]
        if free.size < count:
            # Two tasks share devices: the second is drawn over those that become free first.
            free = np.sort(np.argsort(rows, kind="stable")[:count])
        rows[free] = np.maximum(rows[free], bar.end_h)
        for run in np.split(free, np.flatnonzero(np.diff(free) > 1) + 1):
            ax.broken_barh(
                [(bar.start_h, bar.end_h - bar.start_h)], (float(offsets[bar.domain] + run[0]), float(run.size)),
                facecolor=colours.get(bar.kind, style.UNSURE), edgecolor="white", linewidth=0.5, zorder=2,
            )  # fmt: skip
