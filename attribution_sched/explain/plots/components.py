"""Three-component stacked bars: each input's share of R, split into speed, utilisation and cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from attribution_sched.errors import ExplanationError, problem
from attribution_sched.explain import facts
from attribution_sched.explain.digits import share
from attribution_sched.explain.explanation import COMPONENTS, SIGNS, TOTAL, Explanation
from attribution_sched.explain.findings import Player
from attribution_sched.explain.plots import style
from attribution_sched.explain.wording import output_unit
from attribution_sched.types import FloatArray
from attribution_sched.words.say import say

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, eq=False)
class Row:
    """One stack.

    Attributes:
        player: Whose; None for all that are not shown by name.
        parts: w_eff·φ_eff, w_util·φ_util and −w_cost·φ_cost.
        total: Their sum, the share of R.
        half: Half-width of the total's 95 % interval; NaN for the folded rest.
        folded: How many players it stands for.
    """

    player: Player | None
    parts: FloatArray
    total: float
    half: float
    folded: int = 1


def rows(explanation: Explanation, most: int = 8) -> list[Row]:
    """Stacks by the size of the share of R; what is left over is folded into the last one."""
    if explanation.weights is None or not set(COMPONENTS) <= set(explanation.outputs):
        rule = f"must hold {', '.join(COMPONENTS)} and weights"
        raise ExplanationError(problem("outputs", explanation.outputs, rule, "Explain the reward terms or returns"))
    if most < 2:
        raise ExplanationError(problem("most", most, "must be >= 2", "Use 8"))
    at = [explanation.column(component) for component in COMPONENTS]
    scale = np.array(SIGNS) * np.array(explanation.weights)
    parts = explanation.values[:, at] * scale
    totals = parts.sum(axis=1)
    if TOTAL in explanation.outputs:
        half = facts.half_widths(explanation)[:, explanation.column(TOTAL)]
    else:
        # Without the components' joint spread, their errors added up bound the error of the sum.
        half = facts.half_widths(explanation)[:, at] @ np.abs(scale)
    order = [int(i) for i in np.argsort(-np.abs(totals), kind="stable")]
    large = [i for i in order if np.abs(parts[i]).max() > facts.ROUNDING * np.abs(parts).max()]
    kept = order if len(large) == len(order) <= most else large[: most - 1]
    found = [Row(explanation.players[i], parts[i], float(totals[i]), float(half[i])) for i in kept]
    if len(kept) < len(order):
        left = parts[[i for i in order if i not in kept]].sum(axis=0)
        found.append(Row(None, left, float(left.sum()), float("nan"), len(order) - len(kept)))
    return found


def components(explanation: Explanation, ax: Axes | None = None, *, most: int = 8, lang: str = "en") -> Axes:
    """Draw every input's share of R as the sum of its weighted component shares.

    Args:
        explanation: An explanation of reward components with weights.
        ax: Where to draw; new axes by default.
        most: Rows at most; the rest is folded into one.
        lang: ``en`` or ``zh``.
    """
    lang = style.drawn_language(lang)
    stacks = rows(explanation, most)
    ax = style.axes(ax, 1.6 + 0.4 * len(stacks))
    wide, lines = style.characters(ax, 0.27), style.lines_per_row(ax, len(stacks))
    largest = max(abs(part) for stack in stacks for part in stack.parts)
    weights = dict(zip(COMPONENTS, explanation.weights or (), strict=True))
    for i, component in enumerate(COMPONENTS):
        sizes = np.array([stack.parts[i] for stack in stacks])
        # Positive and negative parts are stacked apart, each on what was drawn before on its side.
        before = np.array(
            [sum(part for part in stack.parts[:i] if part * stack.parts[i] > 0) for stack in stacks], dtype=np.float64
        )
        sign = "−" if component == "R_cost" else ""
        ax.barh(
            range(len(stacks)), sizes, left=before, height=0.6, color=style.COMPONENT_COLOURS[component], zorder=2,
            hatch=style.COMPONENT_HATCHES[component], edgecolor="white", linewidth=0.4,
            label=f"{sign}{weights[component]:g}·{component}",
        )  # fmt: skip
    for row, stack in enumerate(stacks):
        half = stack.half if np.isfinite(stack.half) else 0.0
        ax.errorbar(
            stack.total, row, xerr=half or None, fmt="D", markersize=4.5, color=style.INK, markeredgecolor="white",
            elinewidth=1.0, capsize=2.5 if half else 0, zorder=4, label="R" if row == 0 else None,
        )  # fmt: skip
        certain = stack.player is not None and abs(stack.total) > half
        total = 0.0 if abs(stack.total) <= facts.ROUNDING * largest else stack.total
        ax.text(
            1.02, row, share(total, half), transform=ax.get_yaxis_transform(), va="center", fontsize=8,
            color=style.INK if certain else style.FAINT,
        )  # fmt: skip
    labels = [
        say("plot.others", lang, count=stack.folded)
        if stack.player is None
        else style.player_label(stack.player, lang, wide, lines)
        for stack in stacks
    ]
    edges = [float(side.sum()) for stack in stacks for side in (stack.parts.clip(0), stack.parts.clip(None, 0))]
    edges += [stack.total + sign * np.nan_to_num(stack.half) for stack in stacks for sign in (1, -1)]
    style.spread(ax, edges)
    ax.axvline(0.0, color=style.INK, linewidth=0.8, zorder=3)
    ax.set_yticks(range(len(stacks)), labels)
    ax.set_ylim(len(stacks) - 0.4, -0.6)
    unit = output_unit(TOTAL, explanation.target, lang)
    ax.set_xlabel(style.with_unit(say("plot.share_of_total", lang), unit, lang), fontsize=8)
    style.finish(ax, lang)
    heading = say("components.title", lang)
    style.legend_above(ax, 4, say("plot.decision", lang, decision=explanation.decision, what=heading))
    ax.tick_params(axis="y", length=0)
    return style.in_font(ax, lang)
