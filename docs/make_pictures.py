"""Draw the pictures of the README and of these pages from a real run.

    python docs/make_pictures.py

One simulated day with the default preset, seed and policy. ``readme.png``: why one placement is worth what it is (the
one in which the inputs beside the leading one say most), and where the joules of the first tasks go. ``gallery.png``:
the same placement by components and by what would have changed it, and all explained placements together. The ground is
opaque, so that pictures read the same on light and dark pages.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from attribution_sched import System, explain, plots

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from attribution_sched import Explanation, SchedulingResult

FOLDER = Path(__file__).parent / "images"
PLACED, EXPLAINED, SHOWN = 24, 16, 9
DPI = 110


def most_said(told: list[Explanation]) -> int:
    """The explanation in which inputs other than the leading one say most about R."""
    shares = [np.sort(np.abs(one.values[:, one.outputs.index("R")])) for one in told]
    return int(np.argmax([share[:-1].sum() for share in shares]))


def readme(why: Explanation, placed: list[SchedulingResult]) -> Figure:
    """A waterfall beside the accounts of the first tasks."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(13.0, 4.6), width_ratios=(1.0, 1.05), layout="constrained")
    plots.waterfall(why, ax=left, output="R", most=7)
    vectors = [result.attribution for result in placed[:SHOWN]]
    labels = [result.task.kind for result in placed[:SHOWN]]
    parts, errors = (np.array([getattr(vector, name) for vector in vectors]) for name in ("values", "standard_error"))
    plots.accounts(parts, [vector.base for vector in vectors], errors, labels, ax=right, unit="J/sample")
    return figure


def gallery(why: Explanation, told: list[Explanation]) -> Figure:
    """Four other views."""
    figure, axes = plt.subplots(2, 2, figsize=(13.0, 8.6), layout="constrained")
    plots.components(why, ax=axes[0, 0])
    plots.counterfactual(why, ax=axes[0, 1])
    plots.timeline(told, ax=axes[1, 0])
    explain.Overview.of(told).plot(axes[1, 1])
    return figure


def save(figure: Figure, name: str) -> None:
    """Write a picture on an opaque ground."""
    engine = figure.get_layout_engine()
    if engine is not None:
        engine.set(w_pad=0.12, h_pad=0.1)
    figure.set_facecolor("white")
    FOLDER.mkdir(exist_ok=True)
    figure.savefig(FOLDER / name, dpi=DPI, metadata={"Software": None})


def main() -> None:
    """Run, explain, draw."""
    system = System()
    placed = [result for result in (system.schedule_next_task() for _ in range(PLACED)) if result is not None]
    explained = placed[-EXPLAINED:]
    told = [system.explain(result, target="terms") for result in explained]
    chosen = most_said(told)
    save(readme(told[chosen], placed), "readme.png")
    save(gallery(system.explain(explained[chosen], target="terms", tipping=True), told), "gallery.png")


if __name__ == "__main__":
    main()
