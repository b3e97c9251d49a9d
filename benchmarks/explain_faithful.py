"""How faithful explanations of Hi-PPO's decisions are to what the simulator says of the same decisions.

    python benchmarks/explain_faithful.py [--quick] [--output FILE]

Decisions are placements of held-out days of the eight-domain scenario: some with the plan that was chosen, which nearly
always stays inside a domain, some with the best plan that crosses domains; the background are other days. Explained are
R_eff, R_util, R_cost and R of the plan as the policy expects them (``terms``); the truth is the simulator with the
task's latent demands and the links replaced. Both are asked with the same coalitions. Returns are judged by rollouts in
the fork.

Agreement is Spearman's rank correlation of the shares *with their signs*, decision by decision, over the players that
can have a share; brackets are 95 % bootstrap intervals of the mean over decisions.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from explain_decisions import HELD_OUT, SCENARIO, USUAL, days, spread

from attribution_sched.cluster.counters import SPEED_NOISE
from attribution_sched.cluster.decision import Decision
from attribution_sched.cluster.plan import Plan, PlanBatch
from attribution_sched.cluster.reward import value
from attribution_sched.config.scenarios import build_scenario
from attribution_sched.explain.background import Background
from attribution_sched.explain.explainer import Explainer
from attribution_sched.explain.explanation import Explanation
from attribution_sched.explain.quality import Agreement, agreement
from attribution_sched.explain.recorder import Decided
from attribution_sched.rivals.splits import SpeedProportional
from attribution_sched.scheduler.hi_ppo.coordinator import HiPpo

RESAMPLED = 2000
WALKED = 12_000
"""Situations for plans over several domains, which have too many players to try all coalitions."""

GROUPS: tuple[tuple[str, ...] | None, ...] = (None, ("attribution",), ("link",))


def crossing_plan(view: Decision) -> Plan | None:
    """The best plan over several domains, cut in proportion to speed; None if none fits."""
    batch = SpeedProportional().candidates(view)
    at = np.flatnonzero(batch.counts > 1)
    if len(at) == 0:
        return None
    some = PlanBatch(batch.segments[at], batch.counts[at], batch.schedules[at])
    reward = value(view, some).reward
    best = int(np.argmax(reward))
    return some.plan(best) if np.isfinite(reward[best]) else None


def mean_interval(values: np.ndarray) -> str:
    """Mean of what is finite, its 95 % bootstrap interval and how many there are."""
    known = values[np.isfinite(values)]
    if len(known) == 0:
        return "–"
    rng = np.random.default_rng(0)
    means = known[rng.integers(0, len(known), (RESAMPLED, len(known)))].mean(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    return f"{known.mean():.2f} [{low:.2f}, {high:.2f}] ({len(known)})"


def table(name: str, seen: Sequence[Agreement], players: str) -> str:
    """One row: with signs per output, by size, right sign, same leader."""
    signed = np.array([one.signed_correlation for one in seen])
    cells = [mean_interval(column) for column in signed.T]
    by_size = mean_interval(np.array([one.rank_correlation[-1] for one in seen]))
    sign = np.nanmean([one.same_sign[-1] for one in seen])
    leader = np.mean([one.same_leader[-1] for one in seen])
    return f"| {name} | {len(seen)} | {players} | {' | '.join(cells)} | {by_size} | {sign:.0%} | {leader:.0%} |"


def asked(explainer: Explainer, one: Decided, target: str) -> Explanation:
    """What the policy (``terms``) or the simulator (``simulator``) says of a decision.

    All coalitions and states where that is possible, else walks: the noise of regressions would drown small shares.
    """
    assert one.plan is not None
    inside = len(one.plan.segments) == 1
    method, rows = ("exact", None) if inside else ("permutation", WALKED)
    return explainer.explain(one, target=target, precision=None, seed=1, sure=False, method=method, rows=rows)


def with_speed(one: Decided, noise: float | None, rng: np.random.Generator) -> Decided:
    """The decision with its throughput measured worse, or (None) not at all."""
    more = 0.0 if noise is None else float(np.exp(rng.normal() * np.sqrt(noise**2 - SPEED_NOISE**2)))
    return replace(one, view=replace(one.view, samples_per_s=one.view.samples_per_s * more))


def faithful(explainer: Explainer, decisions: Sequence[Decided], count: int) -> list[str]:
    """How the policy's own drivers agree with the simulator's, over so many decisions."""
    lines = [
        "| plans | decisions | players | with signs: R_eff | R_util | R_cost | R | by size: R | right sign | "
        "same leader |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    # Where no second domain has room, no plan crosses domains; those decisions keep the plan that was chosen.
    plans = [(one, crossing_plan(one.view)) for one in decisions[1::2]]
    crossing = spread([replace(one, plan=plan) for one, plan in plans if plan is not None], count // 2)
    own = spread(decisions[::2], count - len(crossing))
    told = {id(one): (asked(explainer, one, "terms"), asked(explainer, one, "simulator")) for one in (*own, *crossing)}
    for name, group in (("all", own + crossing), ("chosen", own), ("over several domains", crossing)):
        for groups in GROUPS:
            seen = [agreement(*told[id(one)], groups) for one in group]
            if not any(np.isfinite(one.signed_correlation).any() for one in seen):
                continue
            lines.append(table(name, seen, "all that matter" if groups is None else groups[0]))
    rng = np.random.default_rng(3)
    for name, noise in (("all, throughput not measured", None), ("all, throughput known to 10 %", 0.1)):
        worse = [asked(explainer, with_speed(one, noise, rng), "terms") for one in (*own, *crossing)]
        for groups in GROUPS[:2]:
            pairs = zip(worse, (*own, *crossing), strict=True)
            seen = [agreement(other, told[id(one)][1], groups) for other, one in pairs]
            lines.append(table(name, seen, "all that matter" if groups is None else groups[0]))
    for kind in sorted({one.view.kind.model.name for one in decisions}):
        group = [one for one in (*own, *crossing) if one.view.kind.model.name == kind]
        seen = [agreement(*told[id(one)], None) for one in group]
        lines.append(table(kind, seen, "all that matter"))
    return lines


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a few decisions only")
    parser.add_argument("--output", type=Path, help="write the table to this file, too")
    args = parser.parse_args()
    world, policy = build_scenario("cross-domain-easy", SCENARIO), HiPpo()
    explained = days(world, policy, HELD_OUT, 1 if args.quick else 4)
    background = Background.of(days(world, policy, USUAL, 2 if args.quick else 16), "days of Hi-PPO")
    explainer = Explainer(policy, background, world=world)
    lines = faithful(explainer, explained, 8 if args.quick else 200)
    text = (
        f"Scenario {SCENARIO}, {len(explained)} held-out placements, background of {len(background)} placements of "
        "other days.\n\n" + "\n".join(lines) + "\n"
    )
    print(text)
    if args.output:
        args.output.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
