"""Draw the picture of the front page: the card of one decision beside what the cluster then did.

    python docs/make_front.py

One simulated run of the default preset. The card is :meth:`System.alternatives` of a placement, word for word; the bars
are the same journal lived through again, devices up, time to the right, the decision's own task outlined.
"""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from attribution_sched import System
from attribution_sched.billing.metering import usage_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from attribution_sched.billing.usage import Usage
    from attribution_sched.explain.decision_table import DecisionTable

TARGET = Path(__file__).parent / "images" / "front.png"
PLACED, ASKED_FROM, CHOICES = 26, 8, 3
CLOUD, LONGEST = re.compile(r"\b(aws|azure|gcp):"), 40
COLOURS = ("#4a90c2", "#6aa84f", "#c27d4a", "#8e6bb5", "#c2a34a", "#5fb3a8")


def card(ax: Axes, title: str, table: DecisionTable) -> None:
    """The decision in a sentence, and what else could have been done."""
    ax.set_axis_off()
    ax.set(xlim=(0, 1), ylim=(0, 1))
    ax.text(0, 0.97, title, fontsize=13, fontweight="bold", va="top")
    ax.text(0, 0.88, textwrap.fill(CLOUD.sub("", str(table.sentence)), 70), fontsize=11.5, va="top")
    rows = [row for row in table.rows if not row.missing][:5]
    lacking = [row for row in table.rows if row.missing][:2]
    y = 0.62
    places = (0.0, 0.56, 0.635, 0.735, 1.0)
    for at, head in zip(places, ("instead", "hours", "kWh", "kg CO₂e", "ΔR, played on"), strict=True):
        ax.text(at, y, head, fontsize=10, color="0.4", ha="left" if at == 0 else "right")
    for row in rows:
        y -= 0.085
        cells = [row.hours, row.kwh, None if row.carbon_g is None else row.carbon_g / 1e3]
        weight = "bold" if row.chosen else "normal"
        words = CLOUD.sub("", str(row.what))
        words = words if len(words) <= LONGEST else f"{words[: LONGEST - 1]}…"
        ax.text(0, y, f"{words}  ✓" if row.chosen else words, fontsize=9.5, fontweight=weight)
        for at, value in zip(places[1:4], cells, strict=True):
            ax.text(at, y, "·" if row.chosen or value is None else f"{value:+.2g}", fontsize=9.5, ha="right")
        played = row.played
        told = (
            "·"
            if row.chosen or played is None
            else f"{played.reward.mean:+.2f} [{played.reward.low:+.2f}, {played.reward.high:+.2f}]"
        )
        ax.text(1.0, y, told, fontsize=9.5, ha="right")
    for row in lacking:
        y -= 0.085
        ax.text(0, y, str(row.what), fontsize=10.5, color="0.45")
        ax.text(1.0, y, textwrap.shorten(str(row.missing), 40, placeholder="…"), fontsize=10, color="0.45", ha="right")


def gantt(ax: Axes, usage: Usage, task: str) -> None:
    """Who held which devices when."""
    edges, offsets = usage.edges_s / 3600.0, np.concatenate([[0], np.cumsum(usage.devices + 2)])
    kinds = list(dict.fromkeys(each.model for each in usage.tasks))
    for domain, devices in enumerate(usage.devices.tolist()):
        taken: dict[int, list[int]] = {}
        for interval in range(len(edges) - 1):
            rows = np.flatnonzero((usage.span_interval == interval) & (usage.span_domain == domain))
            there = {int(usage.span_task[row]): round(float(usage.span_devices[row])) for row in rows}
            taken = {who: places for who, places in taken.items() if len(places) == there.get(who)}
            for who, count in there.items():
                if who not in taken:
                    busy = {place for places in taken.values() for place in places}
                    taken[who] = [place for place in range(devices) if place not in busy][:count]
                for place in taken[who]:
                    colour = COLOURS[kinds.index(usage.tasks[who].model) % len(COLOURS)]
                    ax.barh(
                        offsets[domain] + place, edges[interval + 1] - edges[interval], 1.0, edges[interval],
                        color=colour, align="edge", linewidth=0, alpha=1.0 if usage.tasks[who].id == task else 0.55,
                    )  # fmt: skip
    middle = offsets[:-1] + usage.devices / 2
    ax.set_yticks(middle, usage.domains, fontsize=10)
    ax.set(xlabel="hours", xlim=(0, edges[-1]), ylim=(0, offsets[-1] - 2))
    for side in ("top", "right", "left"):
        ax.spines[side].set_visible(False)
    ax.tick_params(axis="y", length=0)
    for at, kind in enumerate(kinds[: len(COLOURS)]):
        ax.plot([], [], color=COLOURS[at], linewidth=6, label=kind)
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, 1.13), ncols=3, frameon=False, fontsize=9)


def lost(table: DecisionTable) -> float:
    """What the best other choice would have lost for certain; negative where that is not certain."""
    played = [row.played.reward.high for row in table.rows if not row.chosen and row.played is not None]
    return -max(played) if len(played) >= CHOICES else -np.inf


def main() -> None:
    """Run, ask, draw."""
    system = System(seed=3)
    placed = [result for result in (system.schedule_next_task() for _ in range(PLACED)) if result is not None]
    # A model that no region holds: where it is cut is what this preset is about; of those, what mattered most.
    cut = [each for each in placed[ASKED_FROM:] if len(each.decision.plan.replicas[0].segments) > 1]
    tables = [system.alternatives(each) for each in cut]
    at = int(np.argmax([lost(table) for table in tables]))
    shown, table = cut[at], tables[at]
    figure, (left, right) = plt.subplots(1, 2, figsize=(14.4, 4.6), width_ratios=(1.3, 1.0), layout="constrained")
    card(left, f"{shown.task.id} · {shown.task.kind} · decision {shown.id}", table)
    gantt(right, usage_of(system.journal), shown.task.id)
    figure.set_facecolor("white")
    engine = figure.get_layout_engine()
    if engine is not None:
        engine.set(w_pad=0.12, h_pad=0.1)
    figure.savefig(TARGET, dpi=110, metadata={"Software": None})


if __name__ == "__main__":
    main()
