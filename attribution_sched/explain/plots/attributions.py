"""Attribution heatmap: where the energy of many tasks goes, counter by counter."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from attribution_sched.errors import ExplanationError, problem
from attribution_sched.explain.digits import number
from attribution_sched.explain.plots import style
from attribution_sched.words.names import counter_name
from attribution_sched.words.say import say

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COUNTERS = ("cpu_cycles", "l3_misses", "memory_bandwidth", "pcie_bandwidth", "conv", "fc", "attention")
"""The seven attribution dimensions."""

Scale = Literal["linear", "log"]

NUMBERED_CELLS = 90
"""Up to so many cells the numbers are written into them."""


def attributions(
    values: ArrayLike,
    task_labels: Sequence[str],
    ax: Axes | None = None,
    *,
    names: Sequence[str] = COUNTERS,
    normalise: bool = False,
    unit: str = "J",
    scale: Scale = "linear",
    lang: str = "en",
) -> Axes:
    """Draw tasks × counters: blue adds to the prediction, vermilion takes away.

    Args:
        values: Attributions, shape ``(n_tasks, n_counters)``.
        task_labels: One per task.
        ax: Where to draw; new axes by default.
        names: Names of the counters; the seven attribution dimensions by default.
        normalise: Show each as a share of the sum of sizes of its task, so that small tasks can be read beside large.
        unit: Unit of the values.
        scale: How values become colours: ``linear``, or ``log`` in both directions from 0 where tasks of very different
            size are to be seen beside each other.
        lang: ``en`` or ``zh``.

    Raises:
        ExplanationError: If the shape does not fit the labels or a value is not finite.
    """
    import seaborn as sns
    from matplotlib.colors import Normalize, SymLogNorm

    lang = style.drawn_language(lang)
    table = np.asarray(values, dtype=np.float64)
    if table.shape != (len(task_labels), len(names)) or not table.size:
        rule = f"must be {(len(task_labels), len(names))} and not empty"
        raise ExplanationError(
            problem("values.shape", table.shape, rule, "Give one label per task, a name per counter")
        )
    if not np.isfinite(table).all():
        raise ExplanationError(problem("values", "not finite", "every entry must be finite", "Leave out such tasks"))
    if normalise:
        sizes = np.abs(table).sum(axis=1, keepdims=True)
        table = np.divide(100.0 * table, sizes, out=np.zeros_like(table), where=sizes > 0)
        unit = "%"
    n, d = table.shape
    ax = style.axes(ax, min(9.0, 1.8 + 0.26 * n) if n <= 40 else 6.0)
    limit = float(np.abs(table).max()) or 1.0
    # Logarithmic down to a thousandth of the largest value, linear around 0.
    norm: Any = Normalize(-limit, limit) if scale == "linear" else SymLogNorm(limit / 1000.0, 0.3, -limit, limit)
    cells = np.vectorize(lambda value: number(value, 2))(table) if table.size <= NUMBERED_CELLS else np.empty(0, "<U1")
    longest = max((len(cell) for cell in cells.flat), default=0)
    numbered = cells.size > 0 and style.characters(ax, 0.62, 7.0) // d >= max(4, longest - 1)
    words = [counter_name(name, lang) for name in names]
    # Models differ in their last letters and tasks in their numbers: llama-2-70b #59 has to fit on a telephone too.
    wide = max(15, style.characters(ax, 0.24))
    sns.heatmap(
        table, ax=ax, cmap=style.diverging(), norm=norm, cbar=False,
        annot=cells if numbered else False, fmt="",
        annot_kws={"fontsize": 7}, linewidths=0.5 if n <= 40 else 0.0, linecolor="white", rasterized=n > 40,
        xticklabels=False, yticklabels=False,
    )  # fmt: skip
    ax.set_xticks(np.arange(d) + 0.5, [style.fitted(word, 18) for word in words], rotation=35, ha="right",
                  rotation_mode="anchor")  # fmt: skip
    # More labels than lines would overlap: then only every so many-th is written.
    step = int(np.ceil(n / style.rows_that_fit(ax)))
    ax.set_yticks(np.arange(0, n, step) + 0.5, [style.shortened(label, wide) for label in task_labels[::step]])
    ax.set_ylabel("")
    style.finish(ax, lang, grid="")
    ax.tick_params(length=0)
    label = style.with_unit(say("attributions.share" if normalise else "attributions.value", lang), unit, lang)
    ticks: dict[str, Any] = {}
    if scale == "log":
        # Whole powers of ten, and 0; those next to 0 would be written over each other.
        top = math.floor(math.log10(limit))
        powers = [10.0**power for power in (top, top - 1)]
        ticks = {"ticks": [*(-power for power in powers), 0.0, *powers[::-1]]}
    bar = style.colour_bar(ax, ax.collections[0], label, lang, shrink=0.85, **ticks)
    if ticks:
        bar.ax.set_yticklabels([number(tick) for tick in ticks["ticks"]])
    style.title(ax, say("attributions.title", lang))
    return style.in_font(ax, lang)
