"""How fast and how faithful explanations of Hi-PPO's decisions are.

    python benchmarks/explain_decisions.py [--quick] [--output FILE]

Decisions are those of held-out days of the eight-domain scenario; the background are other days. Four parts, one table
each: time to explain a decision to ±5 % of its leading driver; many decisions in one call against one by one; agreement
of the policy's own expectation with the simulator's truth; quality of explanations of the choice. Times are of this
process on one thread.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from attribution_sched.cluster.world import World
from attribution_sched.config.scenarios import build_scenario
from attribution_sched.explain.background import Background
from attribution_sched.explain.explainer import Explainer
from attribution_sched.explain.quality import agreement, deletion, randomised, rank_correlation, stability
from attribution_sched.explain.watch import Decided, Watch
from attribution_sched.scheduler.episode import play
from attribution_sched.scheduler.hi_ppo.policy import HiPpo
from attribution_sched.scheduler.splits import SpeedProportional

SCENARIO = "domains-8"
HELD_OUT = 970_000
"""First seed of the days explained."""

USUAL = 960_000
"""First seed of the background's days."""

PRECISION = 0.05


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
    """Wall time and rows to the precision, at most the standard (terms) or quick (others) budget."""
    lines = [
        f"| target | links | background read as | decisions | reached ±{100 * PRECISION:.0f} % | median ms | p90 ms | "
        "median rows |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for target in ("terms", "returns", "log_probability"):
        for links in ("pair", "all"):
            made = Explainer(explainer.policy, explainer.background, links=links)
            for reading in ("population", "sample"):
                most = "standard" if target == "terms" else "quick"
                ask = {"target": target, "precision": PRECISION, "rows": most, "sure": False, "reading": reading}
                made.explain(decisions[0], **ask)
                took, rows, reached = [], [], 0
                for one in decisions:
                    began = time.perf_counter()
                    told = made.explain(one, **ask)
                    took.append(1e3 * (time.perf_counter() - began))
                    rows.append(told.rows)
                    reached += told.converged
                lines.append(
                    f"| {target} | {links} | {reading} | {len(decisions)} | {reached} | {np.median(took):.0f} | "
                    f"{np.quantile(took, 0.9):.0f} | {np.median(rows):.0f} |"
                )
    return lines


def together(explainer: Explainer, decisions: Sequence[Decided], alone: int) -> list[str]:
    """Decisions per second in one call and one by one, the same rows each."""
    lines = ["| target | in one call, decisions/s | one by one, decisions/s | ratio |", "|---|---|---|---|"]
    for target in ("terms", "returns"):
        ask = {"target": target, "rows": 300, "precision": None}
        explainer.explain_many(decisions[:20], **ask)
        began = time.process_time()
        explainer.explain_many(decisions, **ask)
        many = len(decisions) / (time.process_time() - began)
        began = time.process_time()
        for one in decisions[:alone]:
            explainer.explain(one, sure=False, **ask)
        single = alone / (time.process_time() - began)
        lines.append(f"| {target} ({len(decisions)}) | {many:.0f} | {single:.0f} | {many / single:.1f} |")
    return lines


def faithful(explainer: Explainer, decisions: Sequence[Decided]) -> list[str]:
    """How the policy's own drivers agree with the simulator's."""
    lines = [
        "| plans | decisions | players | order of drivers, R_eff | R_util | R_cost | R | with signs, R | right sign | "
        "same leader |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    split = SpeedProportional()
    crossing = []
    for one in decisions:
        plan = split.decide(one.view)
        if plan is not None and len(plan.segments) > 1:
            crossing.append(replace(one, plan=plan))
    some = decisions[:: max(1, len(decisions) // 60)]
    for name, group, target in (
        ("its own", decisions, "terms"),
        ("speed-proportional over domains", crossing, "terms"),
        ("its own, by Q_c(s, a)", some, "returns"),
    ):
        ask = {"rows": "quick", "precision": None, "seed": 1, "sure": False}
        pairs = [
            (explainer.explain(one, target=target, **ask), explainer.explain(one, target="simulator", **ask))
            for one in group
        ]
        for groups in (None, ("link",), ("attribution",)):
            seen = [agreement(told, truth, groups) for told, truth in pairs]
            sizes = np.array([one.rank_correlation for one in seen])
            told_by = " | ".join(
                f"{np.nanmean(column):.2f} ({np.isfinite(column).sum()})" if np.isfinite(column).any() else "–"
                for column in sizes.T
            )
            signed = np.array([one.signed_correlation[-1] for one in seen])
            sign = np.array([one.same_sign[-1] for one in seen])
            if not np.isfinite(signed).any():
                continue
            leaders = np.mean([one.same_leader[-1] for one in seen])
            players = "all" if groups is None else groups[0]
            lines.append(
                f"| {name} | {len(group)} | {players} | {told_by} | {np.nanmean(signed):.2f} "
                f"| {np.nanmean(sign):.0%} | {leaders:.0%} |"
            )
    return lines


def quality(explainer: Explainer, decisions: Sequence[Decided]) -> list[str]:
    """Deletion, stability and randomised weights for the log-probability of the choice."""
    import torch

    ask = {"target": "log_probability", "rows": "quick", "precision": None}
    policy = explainer.policy
    assert isinstance(policy, HiPpo)
    forgot = HiPpo(network=randomised(policy.network, torch.Generator().manual_seed(0)))
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
    parser.add_argument("--only", choices=("speed", "many", "faithful", "quality"), help="one of the four parts")
    parser.add_argument("--output", type=Path, help="write the tables to this file, too")
    args = parser.parse_args()
    world, policy = build_scenario("cross-domain", SCENARIO), HiPpo()
    explained = days(world, policy, HELD_OUT, 1 if args.quick else 4)
    background = Background.of(days(world, policy, USUAL, 2 if args.quick else 16), "days of Hi-PPO")
    explainer = Explainer(policy, background, world=world)
    count = 6 if args.quick else 200
    many = (explained * 20)[: 10 * count if args.quick else 1000]
    wanted = {
        "speed": ("Time to explain one decision", lambda: speed(explainer, spread(explained, max(4, count // 10)))),
        "many": ("Many decisions", lambda: together(explainer, many, max(5, count // 5))),
        "faithful": (
            "Faithful to the simulator\n\nMean rank correlation over players (in how many decisions).",
            lambda: faithful(explainer, spread(explained, count)),
        ),
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
