"""Does thinking keep its promises? Promised against realised gain of every choice that replaced the policy's own.

    python benchmarks/fork_promise.py --preset cross-domain --seeds 300-305 --hours 110 --runs promise.jsonl
    python benchmarks/fork_promise.py --runs promise.jsonl --table

One policy plays the same stretch of time with thinking and without. *Promised* is the sum of the shrunk gains of the
choices that replaced its own. *Realised* is the difference of the two returns: by the performance-difference identity
the two agree if thinking is honest. One stretch is one draw of many, so every replaced choice is also measured again in
fresh futures, four times as far (``--long`` hours), both choices followed by the agents as copies are: a promise that a
longer look does not find was the horizon's. By kind of choice; 95 %.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from hi_ppo_presets import played, world_of

from attribution_sched.cluster.decision import Decision
from attribution_sched.cluster.fork import Choose, Wait, fork
from attribution_sched.scheduler.episode import play
from attribution_sched.scheduler.hi_ppo.coordinator import Coordination, HiPpo
from attribution_sched.scheduler.thinking import Option, decision_seed, known_tasks, priced
from attribution_sched.stats.bootstrap import PairedBootstrap

FRESH = 1_000
"""Number of the first future that a replaced choice is measured again in."""


def kind_of(view: Decision, own: Option, new: Option) -> str:
    """What thinking changed."""
    if view.replanning:
        return "stay instead of move" if new.plan in (None, view.current_plan) else "move"
    if new.later is not None:
        return "a cleaner hour"
    if own.plan is None or new.plan is None:
        return "place instead of wait" if own.plan is None else "wait instead of place"
    if own.slot != new.slot:
        return "another task"
    if set(own.plan.domains) != set(new.plan.domains):
        return "cut over other domains" if max(len(own.plan.domains), len(new.plan.domains)) > 1 else "another domain"
    return "devices or layout"


class Watched(HiPpo):
    """Hi-PPO whose replaced choices are written down and measured again."""

    def __init__(self, futures: int, hours: float) -> None:
        super().__init__(think=True)
        self.futures, self.hours, self.thought, self.rows = futures, hours, 0, list[dict[str, Any]]()

    def coordinate(self, view: Decision, *, others: int | None = None) -> Coordination:
        """As ever; a thought that changed something is booked."""
        done = super().coordinate(view, others=others)
        thought = done.thought
        self.thought += thought is not None
        if thought is not None and thought.chosen:
            own, new = thought.options[0], thought.options[thought.chosen]
            row = {"kind": kind_of(view, own, new), "promised": float(thought.shrunk[thought.chosen])}
            if self.futures and new.later is None:
                row["later"], row["error"] = self._again(view, own, new)
            self.rows.append(row)
        return done

    def _again(self, view: Decision, own: Option, new: Option) -> tuple[float, float]:
        """Gain in fresh futures and further, and its standard error."""
        assert view.moment is not None
        moment, planner, thinker = priced(view.moment, view.reward), self.planner(view), self.thinker()
        sharing = self.pairs and self.partners.apply(view)
        changes = [Choose(c.slot, c.plan) if c.plan is not None or view.replanning else Wait() for c in (own, new)]
        found = fork(
            moment, changes, self.futures, self.hours, thinker.follower(planner, moment.world), decision_seed(view, 1),
            beliefs=thinker.beliefs(moment.world, planner), tasks=known_tasks(view), first=FRESH,
            pairs=self.partners.table(view, moment.world) if sharing else None,
        )  # fmt: skip
        apart = found.returns[2] - found.returns[1]
        return float(apart.mean()), float(apart.std(ddof=1) / np.sqrt(len(apart)))


def table(rows: list[dict[str, Any]]) -> str:
    """Promised, measured again and realised, per preset."""
    lines = []
    for preset in dict.fromkeys(row["preset"] for row in rows):
        mine = [row for row in rows if row["preset"] == preset]
        apart = np.array([row["thinking"] - row["without"] for row in mine])
        boot = PairedBootstrap(len(apart), 0)
        found = boot.estimate(boot.means(apart))
        promised = np.mean([sum(each["promised"] for each in row["switches"]) for row in mine])
        switches = [each for row in mine for each in row["switches"]]
        lines += [
            "", f"`{preset}`, {len(mine)} stretches of {mine[0]['hours']:g} h from seed {mine[0]['seed']}: "
            f"thinking over none {apart.mean():+.2f} [{found.low:+.2f}, {found.high:+.2f}], promised {promised:+.2f}; "
            f"{len(switches)} of {sum(row['thought'] for row in mine)} thoughts replaced a choice", "",
            f"| choice | times | promised | again, {mine[0]['long']:g} h, fresh futures |", "|---|---:|---:|---:|",
        ]  # fmt: skip
        for kind in [*sorted({each["kind"] for each in switches}), "all"]:
            here = [each for each in switches if kind in (each["kind"], "all")]
            told = [each for each in here if "later" in each]
            half = 1.96 * np.sqrt(sum(each["error"] ** 2 for each in told))
            again = f"{sum(e['later'] for e in told):+.2f} ± {half:.2f}, of {sum(e['promised'] for e in told):+.2f}"
            total = sum(each["promised"] for each in here)
            lines.append(f"| {kind} | {len(here)} | {total:+.2f} | {again if told else ''} |")
    return "\n".join(lines)


def main() -> None:
    """Play what is missing and print the tables."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--preset", default="cross-domain")
    asked.add_argument("--seeds", default="300-303", help="first and last")
    asked.add_argument("--hours", type=float, default=110.0, help="of a stretch; the cluster goes on meanwhile")
    asked.add_argument("--long", type=float, default=24.0, help="hours that a replaced choice is measured again over")
    asked.add_argument("--futures", type=int, default=16, help="of that; 0 leaves it out")
    asked.add_argument("--runs", type=Path, default=Path("promise.jsonl"))
    asked.add_argument("--minutes", type=float, default=12.0, help="begin no further stretch after so many CPU minutes")
    asked.add_argument("--table", action="store_true")
    given = asked.parse_args()
    rows = played(given.runs)
    done = {(row["preset"], row["seed"]) for row in rows}
    world = replace(world_of(given.preset), horizon_s=3600.0 * given.hours)
    first, last = map(int, given.seeds.split("-"))
    for seed in () if given.table else range(first, last + 1):
        if (given.preset, seed) in done or time.process_time() / 60.0 > given.minutes:
            continue
        watched = Watched(given.futures, given.long)
        row = {
            "preset": given.preset, "seed": seed, "hours": given.hours, "long": given.long,
            "without": play(world, HiPpo(), seed).reward, "thinking": play(world, watched, seed).reward,
            "thought": watched.thought, "switches": watched.rows,
        }  # fmt: skip
        rows.append(row)
        with given.runs.open("a") as file:
            file.write(json.dumps(row) + "\n")
    print(table(rows))


if __name__ == "__main__":
    main()
