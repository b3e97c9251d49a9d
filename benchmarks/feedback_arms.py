"""J6: decisions until a target is met, by what feedback is told.

    python benchmarks/feedback_arms.py [--preset cross-domain-easy] [--policy rule] [--seed 71000] [--runs 10]
        [--target utilisation_at_least=0.94] [--windows 8] [--tasks 30] [--arms outcomes,fork,drivers,shuffled]

Each run begins with the preset's weights, which miss the target. After every window of tasks one step of feedback, with
the same tasks, arrivals and network in every arm until decisions differ; nothing is learnt or rolled back meanwhile:

- *outcomes*: what the windows came to.
- *coupling* (asked for by name): and the drivers of R_eff, R_util and R_cost, by which components hang together.
- *fork*: and what other choices were worth in copies of the cluster: with weights w, the choice best by w is expected.
- *drivers*: and what the policy itself would have done with other weights (what ``System.feedback`` does).
- *shuffled*: the same answers, given to the wrong weights.

Printed: placements until the target is first met by a window's measure (all windows if never), how many runs met it,
the mean of the measure over the last third of the windows and of R by the user's own weights there, with 95 % intervals
over runs; and the ratio of placements to *fork*'s and to *outcomes*'s, paired by run (bootstrap). A line per run is
kept in ``--keep``; what is there already is not played again, and runs that not every arm has played are left out.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from attribution_sched import System
from attribution_sched.cluster.world import Reward
from attribution_sched.explain.alternatives import expected_of
from attribution_sched.explain.played import play_choices
from attribution_sched.explain.room import best_across, best_inside
from attribution_sched.feedback.targets import Targets
from attribution_sched.feedback.window import DecisionOutcome, Window
from attribution_sched.planning.power_caps import levels_of, with_cap
from attribution_sched.types import FloatArray

ARMS = ("outcomes", "fork", "drivers", "shuffled")


@dataclass(frozen=True)
class Run:
    """One run of one arm."""

    placements: int
    met: bool
    measure: float
    reward: float


def by_fork(system: System, names: Sequence[str], rewards: Sequence[Reward]) -> list[list[DecisionOutcome | None]]:
    """What decisions would have come to, if the choice that copies of the cluster find best by the weights is made."""
    weights = np.array([(each.w_eff, each.w_util, -each.w_cost) for each in rewards])
    found: list[list[DecisionOutcome | None]] = []
    for name in names:
        decided = system.questions.recall(name)
        view, own = decided.view, decided.plan
        others = [best_inside(view, k) for k in range(len(view.free_devices))]
        others += [best_across(view)] if len(others) > 1 else []
        others += [] if own is None else [with_cap(own, level) for level in range(levels_of(view) + 1)]
        plans = [own, *(plan for plan in others if plan is not None and plan != own)]
        eyes = system.questions.memory_of(system.journal.decision(name)).looks()
        played = play_choices(eyes, view, plans, futures=8, seed=system.seed)
        terms = np.array([
            (0.0, 0.0, 0.0) if i == 0 else (np.nan,) * 3 if one is None else
            (one.r_eff.mean, one.r_util.mean, one.r_cost.mean) for i, one in enumerate(played)
        ])  # fmt: skip
        best = np.nanargmax(np.where(np.isnan(terms[:, :1]), -np.inf, terms) @ weights.T, axis=0)
        known = {"base_step_s": float(view.base_step_s[view.kind_index]), "steps": view.steps_left}
        answers = expected_of(view, [plans[i] for i in best])
        found.append([None if one is None else DecisionOutcome(**asdict(one), **known) for one in answers])
    return found


def shuffled(
    system: System, rng: np.random.Generator, names: Sequence[str], rewards: Sequence[Reward]
) -> list[list[DecisionOutcome | None]]:
    """The true answers, each decision's in an order of its own."""
    answers = System._revisit(system, names, rewards)
    return [[row[i] for i in rng.permutation(len(row))] for row in answers]


def play(arm: str, args: argparse.Namespace, seed: int, target: str, limit: float) -> Run:
    """One run."""
    with System(args.preset, policy=args.policy, seed=seed) as system:
        user = system.reward
        own: Any = system
        if arm == "coupling":
            own._revisit = lambda names, rewards: [[None] * len(rewards) for _ in names]
        elif arm == "fork":
            own._revisit = partial(by_fork, system)
        elif arm == "shuffled":
            own._revisit = partial(shuffled, system, np.random.default_rng(seed))
        targets, wanted = {target: limit}, Targets.of({target: limit})
        placements, met, measures, rewards, seen = 0, False, [], [], 0
        for _ in range(args.windows):
            system.run(args.tasks)
            entries = [o for _, o in system.journal.entries(seen) if o is not None and o.code > 0]
            seen = system.journal.count()
            window = Window.of(entries)
            if not met:
                placements += len(window)
            value = window.measure(target).value
            met = met or wanted.violation(target, value) <= 0.0
            measures.append(value)
            rewards.append(float((window.terms() @ np.array([user.w_eff, user.w_util, -user.w_cost])).mean()))
            system.feedback(targets, explain=0 if arm == "outcomes" else args.explain, episodes=0, decisions=1)
        last = -(args.windows // 3)
        return Run(placements, met, float(np.mean(measures[last:])), float(np.mean(rewards[last:])))


def interval(values: FloatArray) -> str:
    """Mean with a bootstrap interval over runs."""
    rng = np.random.default_rng(0)
    means = values[rng.integers(0, len(values), (4000, len(values)))].mean(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    return f"{values.mean():.4g} [{low:.4g}, {high:.4g}]"


def ratio(above: FloatArray, below: FloatArray) -> str:
    """Ratio of sums, runs drawn in pairs."""
    rng = np.random.default_rng(0)
    pick = rng.integers(0, len(above), (4000, len(above)))
    drawn = above[pick].sum(axis=1) / below[pick].sum(axis=1)
    low, high = np.quantile(drawn, [0.025, 0.975])
    return f"{above.sum() / below.sum():.2f} [{low:.2f}, {high:.2f}]"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="cross-domain-easy")
    parser.add_argument("--policy", default="rule")
    parser.add_argument("--seed", type=int, default=71_000)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--target", default="utilisation_at_least=0.94")
    parser.add_argument("--windows", type=int, default=8)
    parser.add_argument("--tasks", type=int, default=30)
    parser.add_argument("--explain", type=int, default=24)
    parser.add_argument("--arms", default=",".join(ARMS))
    parser.add_argument("--seconds", type=float, default=1e9, help="CPU seconds after which no run is begun")
    parser.add_argument("--keep", type=Path, default=Path("feedback_arms.jsonl"), help="a line per run and arm")
    args = parser.parse_args()
    target, limit = args.target.split("=")
    began = time.process_time()
    lines = [json.loads(line) for line in args.keep.read_text().splitlines()] if args.keep.exists() else []
    played = {tuple(line["run"]): Run(**line["came_to"]) for line in lines}
    arms = args.arms.split(",")
    for seed in range(args.seed, args.seed + args.runs):
        for arm in arms:
            key = (args.preset, args.policy, args.target, arm, seed)
            if key in played or time.process_time() > args.seconds:
                continue
            played[key] = play(arm, args, seed, target, float(limit))
            with args.keep.open("a") as file:
                file.write(json.dumps({"run": key, "came_to": asdict(played[key])}) + "\n")
    setting = (args.preset, args.policy, args.target)
    seeds = range(args.seed, args.seed + args.runs)
    whole = [seed for seed in seeds if all((*setting, arm, seed) in played for arm in arms)]
    runs = {arm: [played[*setting, arm, seed] for seed in whole] for arm in arms}
    print(f"{args.preset}, {args.policy}: {len(whole)} runs from seed {args.seed}")
    print(f"| told | placements to {args.target} | met | measure at the end | R by the user's weights |")
    print("|---|---|---|---|---|")
    counts = {arm: np.array([one.placements for one in kept], dtype=np.float64) for arm, kept in runs.items()}
    for arm, kept in runs.items():
        columns = [interval(np.array([getattr(one, name) for one in kept])) for name in ("measure", "reward")]
        met = sum(one.met for one in kept)
        print(f"| {arm} | {interval(counts[arm])} | {met} of {len(kept)} | {' | '.join(columns)} |")
    for arm in counts:
        for other in ("outcomes", "fork"):
            if other in counts and arm != other:
                print(f"placements, {arm} / {other}: {ratio(counts[arm], counts[other])}")
    print(f"{time.process_time() - began:.0f} s of CPU time")


if __name__ == "__main__":
    main()
