"""How fast explanations of Hi-PPO's decisions are, and how good those of its choices.

    python benchmarks/explain_decisions.py [--quick] [--output FILE]

Decisions are those of held-out days of the eight-domain scenario; the background are other days. Three parts, one table
each: time to explain a decision to ±5 % of its leading driver; many decisions in one call against one by one; quality
of explanations of the choice. Times are of this process on one thread. Whether they are true is measured by
``explain_faithful.py``.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from attribution_sched.cluster.world import World
from attribution_sched.config.scenarios import build_scenario
from attribution_sched.explain.background import Background
from attribution_sched.explain.explainer import Explainer
from attribution_sched.explain.quality import deletion, rank_correlation, stability
from attribution_sched.explain.recorder import Decided, Watch
from attribution_sched.scheduler.episode import play
from attribution_sched.scheduler.hi_ppo.coordinator import HiPpo

SCENARIO = "domains-8"
HELD_OUT = 970_000
"""First seed of the days explained."""

USUAL = 960_000
"""First seed of the background's days."""

PRECISION = 0.05

TURNS = 3
"""How often both ways of explaining many decisions are timed; the best counts for each."""


def days(world: World, policy: HiPpo, first: int, count: int) -> list[Decided]:
    """Placements of some days."""
    watch = Watch(policy, placed_only=True, most=100_000)
    for day in range(count):
        play(world, watch, first + day)
    return list(watch)


def spread(decisions: Sequence[Decided], count: int) -> list[Decided]:
    """So many decisions, evenly over all."""
    at = np.linspace(0, len(decisions) - 1, min(count, len(decisions))).astype(int)
    return [decisions[i] for i in at]


def speed(explainer: Explainer, decisions: Sequence[Decided]) -> list[str]:
    """Time and rows to the precision, at most the standard (terms) or quick (others) budget."""
    lines = [
        f"| target | links | background | read as | decisions | reached ±{100 * PRECISION:.0f} % | median ms of CPU "
        "time | p90 | wall clock, median | median rows | median half-width |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for target in ("terms", "log_probability"):
        for links in ("pair", "all"):
            own = explainer.background
            for reading in ("population", "sample"):
                if target != "terms" and reading == "sample":
                    continue
                made = Explainer(explainer.policy, own, links=links)
                most = "standard" if target == "terms" else "quick"
                ask: dict[str, Any] = {"target": target, "precision": PRECISION, "rows": most, "reading": reading}
                made.explain(decisions[0], sure=False, **ask)
                took, wall, rows, width, reached = [], [], [], [], 0
                for one in decisions:
                    began, cpu = time.perf_counter(), time.process_time()
                    told = made.explain(one, sure=False, **ask)
                    took.append(1e3 * (time.process_time() - cpu))
                    wall.append(1e3 * (time.perf_counter() - began))
                    rows.append(told.rows)
                    first, (low, high) = told.drivers(most=1)[0], told.interval()
                    width.append((high - low)[first, -1] / 2.0 / abs(told.values[first, -1]))
                    reached += told.converged
                lines.append(
                    f"| {target} | {links} | {len(own):,} | {reading} | {len(decisions)} | {reached} "
                    f"| {np.median(took):.0f} | {np.quantile(took, 0.9):.0f} | {np.median(wall):.0f} "
                    f"| {np.median(rows):.0f} | ±{100 * np.median(width):.0f} % |"
                )
                print(lines[-1], flush=True)
    return lines


def together(explainer: Explainer, decisions: Sequence[Decided], alone: int) -> list[str]:
    """Decisions per second in one call and one by one, the same rows each, in turns; how far the two are apart."""
    lines = [
        "| target | decisions | in one call, ms each | with all readings in words | one by one, ms each | ratio | "
        "ratio with words | largest difference of a share |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for target, count in (("terms", len(decisions)), ("log_probability", 4 * alone)):
        ask: dict[str, Any] = {"target": target, "rows": 300, "precision": None}
        some = spread(decisions, count)
        own = spread(some, alone)
        explainer.explain_many(own, **ask)
        many, words, single = [], [], []
        for _ in range(TURNS):
            began = time.process_time()
            told = explainer.explain_many(some, **ask)
            many.append(time.process_time() - began)
            for one in told:
                tuple(one.players)
            words.append(time.process_time() - began)
            began = time.process_time()
            each = [explainer.explain(one, sure=False, **ask) for one in own]
            single.append((time.process_time() - began) / len(own))
        known = {one.decision: one for one in told}
        apart = max(np.abs(known[one.decision].values - one.values).max() for one in each)
        together_s, said_s, single_s = min(many) / len(some), min(words) / len(some), min(single)
        lines.append(
            f"| {target} | {len(some)} | {1e3 * together_s:.2f} | {1e3 * said_s:.2f} | {1e3 * single_s:.2f} "
            f"| {single_s / together_s:.1f} | {single_s / said_s:.1f} | {apart:.0e} |"
        )
    return lines


def quality(explainer: Explainer, decisions: Sequence[Decided]) -> list[str]:
    """Deletion, stability and randomised weights for the log-probability of the choice."""
    ask = {"target": "log_probability", "rows": "quick", "precision": None}
    policy = explainer.policy
    assert isinstance(policy, HiPpo)
    forgot = HiPpo(policy.learnt.with_agents(np.random.default_rng(0).permutation(policy.learnt.theta)))
    other = Explainer(forgot, explainer.background)
    areas, shuffled, steady, overlap, likeness, gaps = [], [], [], [], [], []
    rng = np.random.default_rng(0)
    for one in decisions:
        told = explainer.explain(one, sure=False, **ask)
        game = explainer.game(one, target="log_probability")
        gaps.append(told.efficiency_gap().max())
        areas.append(deletion(game, told).area)
        order = rng.permutation(len(told.players))
        shuffled.append(deletion(game, replace(told, values=told.values[order])).area)
        found = stability(lambda seed, one=one: explainer.explain(one, sure=False, seed=seed, **ask), range(3))
        steady.append(found.rank_correlation)
        overlap.append(found.overlap)
        blank = other.explain(one, sure=False, **ask)
        likeness.append(abs(rank_correlation(told.values[:, 0], blank.values[:, 0])))
    return [
        "| check | measured |", "|---|---|",
        f"| decisions | {len(decisions)} |",
        f"| efficiency gap, largest | {max(gaps):.1e} |",
        f"| deletion area, explained order / random order | {np.mean(areas):.2f} / {np.mean(shuffled):.2f} |",
        f"| rank correlation of three seeds | {np.mean(steady):.3f} |",
        f"| overlap of the five leading players of three seeds | {np.mean(overlap):.0%} |",
        f"| rank correlation with shuffled weights, absolute | {np.nanmean(likeness):.2f} |",
    ]  # fmt: skip


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few decisions only")
    parser.add_argument("--only", choices=("speed", "many", "quality"), help="one of the three parts")
    parser.add_argument("--output", type=Path, help="write the tables to this file, too")
    args = parser.parse_args()
    world, policy = build_scenario("cross-domain-easy", SCENARIO), HiPpo()
    several = args.only in (None, "many") and not args.quick
    explained = days(world, policy, HELD_OUT, 1 if args.quick else 14 if several else 4)
    background = Background.of(days(world, policy, USUAL, 2 if args.quick else 16), "days of Hi-PPO")
    explainer = Explainer(policy, background, world=world)
    count = 6 if args.quick else 200
    many = explained[: 10 * count if args.quick else 1000]
    wanted = {
        "speed": (
            "Time to explain one decision",
            lambda: speed(explainer, spread(explained, max(4, count // 10))),
        ),
        "many": ("Many decisions", lambda: together(explainer, many, max(5, count // 5))),
        "quality": (
            "Quality of explanations of the choice",
            lambda: quality(explainer, spread(explained, max(3, count // 20))),
        ),
    }
    parts = [
        f"# Explanations of Hi-PPO's decisions\n\nScenario {SCENARIO}, {len(explained)} held-out placements, "
        f"background of {len(background)} placements of other days."
    ]
    for name, (title, measure) in wanted.items():
        if args.only in (None, name):
            parts.append(f"## {title}\n\n" + "\n".join(measure()))
    text = "\n\n".join(parts) + "\n"
    print(text)
    if args.output:
        args.output.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
