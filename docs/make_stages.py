"""Table and picture of what each stage of Hi-PPO brings, from the episodes of ``benchmarks/hi_ppo_presets.py``.

    python docs/make_stages.py days.jsonl

where the episodes are of ``--policies 'rule,imitation,hi-ppo[quick],rule+fork,hi-ppo'``.

Teacher, imitation, learnt, thinking: every figure is a mean over the same days, every difference to the teacher is
paired by day with its 95 % bootstrap interval. ``images/stages.png`` has the differences to the teacher.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from attribution_sched.stats.bootstrap import PairedBootstrap

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

TARGET = Path(__file__).parent / "images" / "stages.png"
TEACHER = "rule"
STAGES = {
    "rule": "teacher: rule",
    "imitation": "imitation",
    "hi-ppo[quick]": "learnt, no thinking",
    "rule+fork": "teacher, thinking",
    "hi-ppo": "learnt, thinking",
}
"""Policy of the episodes → what it is called here, in this order."""

PRESETS = {"cross-domain-easy:ou30": "±30 % network", "cross-domain": "cross-domain", "testbed": "testbed"}


@dataclass(frozen=True)
class Measure:
    """One column: its name, how it is read off an episode, decimals, and whether more of it is better."""

    name: str
    key: str
    decimals: int
    more_is_better: bool = False

    def of(self, row: dict[str, Any]) -> float:
        """Its value in one episode."""
        if self.key == "dollars":
            return float(row["traffic_usd"] + row["electricity_usd"] + row["carbon_usd"])
        return float(row[self.key])


MEASURES = (
    Measure("return", "reward", 2, more_is_better=True),
    Measure("completion h", "mean_completion_h", 3),
    Measure("kWh", "energy_kwh", 1),
    Measure("kWh of tasks", "task_energy_kwh", 1),
    Measure("$", "dollars", 2),
)
DRAWN = (0, 1, 3, 4)
"""Measures in the picture."""


@dataclass(frozen=True)
class Stages:
    """Episodes of one preset: stage → measure → values of the days that all have played."""

    preset: str
    values: dict[str, dict[str, NDArray[np.float64]]]
    days: int

    @classmethod
    def read(cls, rows: list[dict[str, Any]], preset: str) -> Stages:
        """Take the days that every stage has played."""
        by = {
            name: {row["seed"]: row for row in rows if row["preset"] == preset and row["name"] == name}
            for name in STAGES
        }
        by = {name: found for name, found in by.items() if found}
        days = sorted(set.intersection(*(set(found) for found in by.values())))
        return cls(
            preset,
            {n: {m.name: np.array([m.of(found[d]) for d in days]) for m in MEASURES} for n, found in by.items()},
            len(days),
        )

    def over(self, name: str, measure: Measure) -> tuple[float, float, float]:
        """Mean paired difference to the teacher with its interval."""
        boot = PairedBootstrap(self.days, 0)
        apart = self.values[name][measure.name] - self.values[TEACHER][measure.name]
        found = boot.estimate(boot.means(apart))
        return float(apart.mean()), found.low, found.high

    def table(self) -> str:
        """Markdown: means, and differences to the teacher."""
        heads = " | ".join(f"{measure.name} | over it" for measure in MEASURES)
        lines = [f"| `{self.preset}`, {self.days} days | {heads} |", "|---|" + "---:|---|" * len(MEASURES)]
        for name in self.values:
            cells = []
            for measure in MEASURES:
                d = measure.decimals
                cells.append(f"{self.values[name][measure.name].mean():.{d}f}")
                mean, low, high = self.over(name, measure)
                told = f"{mean:+.{d}f} [{low:+.{d}f}, {high:+.{d}f}]"
                cells.append("" if name == TEACHER else f"**{told}**" if low > 0.0 or high < 0.0 else told)
            lines.append(f"| {STAGES[name]} | {' | '.join(cells)} |")
        return "\n".join(lines)


def draw(stages: Stages, measure: Measure, ax: Axes, *, names: bool) -> Axes:
    """Difference of every stage to the teacher in one measure; teal where it is better beyond its interval."""
    others = [name for name in stages.values if name != TEACHER]
    for y, name in enumerate(reversed(others)):
        mean, low, high = stages.over(name, measure)
        better = low > 0.0 if measure.more_is_better else high < 0.0
        worse = high < 0.0 if measure.more_is_better else low > 0.0
        colour = "#1b7f79" if better else "#c2553c" if worse else "0.45"
        ax.plot([low, high], [y, y], color=colour, linewidth=2.2, solid_capstyle="round")
        ax.plot([mean], [y], "o", color=colour, markersize=7)
    ax.axvline(0.0, color="0.7", linewidth=1, zorder=0)
    ax.set_yticks(range(len(others)), [STAGES[name] for name in reversed(others)] if names else [""] * len(others))
    ax.set_ylim(-0.6, len(others) - 0.4)
    ax.tick_params(axis="y", length=0)
    for side in ("top", "right", "left"):
        ax.spines[side].set_visible(False)
    return ax


def main() -> None:
    """Print the tables and draw."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("runs", type=Path, help="episodes of benchmarks/hi_ppo_presets.py")
    asked.add_argument("--target", type=Path, default=TARGET)
    given = asked.parse_args()
    rows = [json.loads(line) for line in given.runs.read_text().splitlines()]
    played = [preset for preset in PRESETS if any(row["preset"] == preset for row in rows)]
    found = [Stages.read(rows, preset) for preset in played]
    for stages in found:
        print(stages.table(), end="\n\n")
    figure, axes = plt.subplots(
        len(found), len(DRAWN), figsize=(13.0, 0.6 + 1.9 * len(found)), layout="constrained", squeeze=False
    )  # fmt: skip
    for row, stages in enumerate(found):
        for column, at in enumerate(DRAWN):
            ax = draw(stages, MEASURES[at], axes[row, column], names=column == 0)
            if row == 0:
                ax.set_title(f"{MEASURES[at].name}, over the teacher's", fontsize=10.5)
            if column == 0:
                ax.set_ylabel(f"{PRESETS[stages.preset]}\n{stages.days} days", fontsize=10.5)
    figure.set_facecolor("white")
    given.target.parent.mkdir(exist_ok=True)
    figure.savefig(given.target, dpi=110)


if __name__ == "__main__":
    main()
