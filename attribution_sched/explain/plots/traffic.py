"""Cross-domain traffic of a plan: what goes from domain to domain per step, and where the model is cut."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from attribution_sched.errors import ExplanationError, problem
from attribution_sched.explain.digits import number
from attribution_sched.explain.plots import style
from attribution_sched.explain.wording import layer_span
from attribution_sched.types import FloatArray
from attribution_sched.words.say import plural, say

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from attribution_sched.cluster.plan import Plan


WIDE_RANGE = 50.0
"""From this ratio of the largest to the smallest traffic on, colours are logarithmic."""


def cuts(plan: Plan) -> list[tuple[int, int, int]]:
    """Cut points of a plan: sending domain, receiving domain, and the layer (counted from 1) after which it is cut."""
    return [
        (one.domain, other.domain, one.stop)
        for replica in plan.replicas
        for one, other in zip(replica.segments[:-1], replica.segments[1:], strict=True)
    ]


def traffic(
    traffic_bytes: ArrayLike,
    domain_names: Sequence[str],
    plan: Plan | None = None,
    ax: Axes | None = None,
    *,
    lang: str = "en",
) -> Axes:
    """Draw the traffic of one step as a heatmap from rows to columns, in GB.

    Domains in use are bold and tell their layers. A framed cell is a cut of the pipeline: activations go that way, and
    gradients of training go back through the cell across the diagonal.

    Args:
        traffic_bytes: Bytes per step, shape ``(K, K)``.
        domain_names: Names of the K domains.
        plan: The plan that causes it; None marks nothing.
        ax: Where to draw; new axes by default.
        lang: ``en`` or ``zh``.

    Raises:
        ExplanationError: If the shape does not fit the names, or a number is negative or not finite.
    """
    from matplotlib.colors import LogNorm, Normalize

    lang = style.drawn_language(lang)
    gb = np.asarray(traffic_bytes, dtype=np.float64) / 1e9
    domain_names = [style.drawable(name) for name in domain_names]
    k = len(domain_names)
    if gb.shape != (k, k):
        raise ExplanationError(
            problem("traffic_bytes.shape", gb.shape, f"must be {(k, k)}", "Give one name per domain")
        )
    if not np.isfinite(gb).all() or (gb < 0).any():
        fix = "Take traffic_bytes of the cost model"
        raise ExplanationError(problem("traffic_bytes", gb * 1e9, "every entry must be finite and >= 0", fix))
    ax = style.axes(ax, min(6.6, 1.9 + 0.62 * k), min(8.0, 2.6 + 0.85 * k))
    sent = gb[gb > 0]
    wide = sent.size > 0 and sent.max() > WIDE_RANGE * sent.min()
    norm = LogNorm(sent.min(), sent.max()) if wide else Normalize(0.0, sent.max(initial=0.0) or 1.0)
    image = ax.imshow(np.where(gb > 0, gb, np.nan), cmap="cividis_r", norm=norm, aspect="auto")
    found, used = cuts(plan) if plan is not None else [], _layers(plan, lang)
    _numbers(ax, gb, norm(np.where(gb > 0, gb, np.nan)), {(i, j) for i, j, _ in found})
    labels = [f"{name}\n{used[i]}" if i in used else name for i, name in enumerate(domain_names)]
    chars = max(8, style.characters(ax, 0.7) // max(k, 1))
    steep = k > 4 or max(style.width(name) for name in domain_names) > chars
    ax.set_xticks(range(k), domain_names, rotation=40 if steep else 0, ha="right" if steep else "center")
    ax.set_yticks(range(k), labels)
    short = chars < 14
    key = say("traffic.key", lang) if short and found else ""
    style.key(ax, key, first=say("traffic.to", lang))
    ax.set_ylabel(say("traffic.from", lang), fontsize=8)
    style.finish(ax, lang, grid="")
    for axis_labels in (ax.get_xticklabels(), ax.get_yticklabels()):
        for i, text in enumerate(axis_labels):
            text.set(fontweight="bold" if i in used else "normal", color=style.INK if i in used else style.FAINT)
    _frame_cuts(ax, found, lang, short)
    style.colour_bar(ax, image, style.with_unit(say("traffic.per_step", lang), "GB", lang), lang, shrink=0.85)
    style.title(ax, _title(gb, plan, lang))
    ax.tick_params(length=0)
    return style.in_font(ax, lang)


def _numbers(ax: Axes, gb: FloatArray, shade: FloatArray, cut: set[tuple[int, int]]) -> None:
    k = len(gb)
    for i in range(k):
        _square(ax, i, i, facecolor="#F1F1F1", edgecolor="none", zorder=0.5)
        for j in range(k):
            if gb[i, j] > 0:
                # In a framed cell the lower half is for the cut.
                up = 0.16 if (i, j) in cut else 0.0
                tone = "white" if float(shade[i, j]) > 0.5 else style.INK
                size = 8 if k <= 8 else 6
                ax.text(j, i - up, number(gb[i, j], 2), ha="center", va="center", fontsize=size, color=tone)


def _square(ax: Axes, i: int, j: int, **how: Any) -> None:
    from matplotlib.patches import Rectangle

    ax.add_patch(Rectangle((j - 0.5, i - 0.5), 1.0, 1.0, **how))


def _layers(plan: Plan | None, lang: str) -> dict[int, str]:
    """Domain in use → its layers, in words."""
    if plan is None:
        return {}
    return {segment.domain: say("traffic.layers", lang, span=layer_span(segment)) for segment in plan.segments}


def _frame_cuts(ax: Axes, found: Sequence[tuple[int, int, int]], lang: str, short: bool) -> None:
    for i, j, layer in found:
        _square(ax, i, j, fill=False, edgecolor=style.BAD, linewidth=2.0, zorder=4)
        words = f"✂ {layer}" if short else say("traffic.cut", lang, layer=layer)
        box = {"boxstyle": "round,pad=0.1", "facecolor": "white", "edgecolor": "none", "alpha": 0.85}
        ax.text(j, i + 0.41, words, ha="center", va="bottom", fontsize=6.5, color=style.INK, zorder=5, bbox=box)


def _title(gb: FloatArray, plan: Plan | None, lang: str) -> str:
    total = number(float(gb.sum()))
    if plan is None:
        return say("traffic.title", lang, total=total)
    replicas, cut = len(plan.replicas), len(cuts(plan))
    return say(
        "traffic.title_plan",
        lang,
        total=total,
        replicas=say("traffic.replicas", lang, variant=plural(replicas), count=replicas),
        cuts=say("traffic.cuts", lang, variant=plural(cut), count=cut),
    )
