"""How faithful explanations of Q_c(s, a) are: judged by what follows in the simulator when inputs are replaced.

    python benchmarks/explain_returns.py [--decisions 48] [--output FILE]

A decision's state is put together anew for every coalition of four groups of inputs: links, load (who runs where),
queue (who else waits) and task (which instance of its kind, with its demands and work left). What is absent is another
real state's. From each such state the plan of the decision is carried out, the network goes on deciding, and the
discounted reward components are added up: the truth that Q_c(s, a) is judged by. Coalitions share random numbers, and
critic and truth share states. The plan must fit in every state, so states in which it does not are not drawn.

Rollouts are noisy, so agreement has a ceiling: two halves of the truth, from other states and other random numbers, are
compared with each other, and that is stepped up to the correlation of the whole with what it estimates (Spearman and
Brown). Correlations are of ranks, with signs.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
from explain_faithful import mean_interval

from attribution_sched.config.scenarios import build_scenario
from attribution_sched.explain.explanation import SIGNS
from attribution_sched.explain.quality import rank_correlation
from attribution_sched.scheduler.hi_ppo.checkpoint import SHIPPED, load
from attribution_sched.scheduler.hi_ppo.network import COMPONENTS
from research.composing import GROUPS
from research.returns_truth import critic_values, group_shares, roll_out

FIRST_SEED = 980_000
"""First seed of the days judged; critics learn from others."""


def report(said: np.ndarray, truth: np.ndarray, weights: np.ndarray) -> list[str]:
    """Agreement of the critic's shares with the rollouts', and of two halves of the rollouts."""
    half = truth.shape[1] // 2
    parts = [group_shares(values) for values in (said, truth, truth[:, :half], truth[:, half:])]
    lines = [
        "| output | per decision | noise ceiling | over all decisions | noise ceiling | right sign | same leader |",
        "|---|---|---|---|---|---|---|",
    ]
    signs = np.array(SIGNS) * weights
    for c, name in enumerate((*COMPONENTS, "R")):
        a, b, x, y = (part[..., c] if c < len(COMPONENTS) else part @ signs for part in parts)
        if np.abs(b).max() < 1e-12:
            continue
        each, top = (
            np.array([rank_correlation(p, q) for p, q in zip(*pair, strict=True)]) for pair in ((a, b), (x, y))
        )
        pooled, most = rank_correlation(a.ravel(), b.ravel()), rank_correlation(x.ravel(), y.ravel())
        leader = (np.abs(a).argmax(axis=1) == np.abs(b).argmax(axis=1)).mean()
        lines.append(
            f"| {name} | {mean_interval(each)} | {whole(float(np.nanmean(top))):.2f} | {pooled:.2f} | "
            f"{whole(most):.2f} | {right_sign(a, b):.0%} | {leader:.0%} |"
        )
    for g, group in enumerate(GROUPS):
        a, b, x, y = (part[:, g] @ signs for part in parts)
        lines.append(
            f"| R, {group} | | | {rank_correlation(a, b):.2f} | {whole(rank_correlation(x, y)):.2f} | "
            f"{right_sign(a, b):.0%} | |"
        )
    return lines


def right_sign(said: np.ndarray, truth: np.ndarray) -> float:
    """Share of the truth's mass with the right sign."""
    return float((np.abs(truth) * (np.sign(said) == np.sign(truth))).sum() / np.abs(truth).sum())


def whole(halves: float) -> float:
    """Correlation of the mean of two halves, which correlate so with each other, with what it estimates."""
    return float(np.sqrt(2.0 * halves / (1.0 + halves))) if halves > 0.0 else 0.0


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenario", default="ou30", help="scenario of the cross-domain preset")
    parser.add_argument("--decisions", type=int, default=48)
    parser.add_argument("--states", type=int, default=4, help="background states per decision")
    parser.add_argument("--steps", type=int, default=120, help="decisions per rollout")
    parser.add_argument("--seed", type=int, default=FIRST_SEED)
    parser.add_argument("--weights", type=Path, nargs="+", default=[SHIPPED], help="checkpoints that decide alike")
    parser.add_argument("--output", type=Path, help="write the tables to this file, too")
    args = parser.parse_args()
    began = time.process_time()
    networks = [load(path) for path in args.weights]
    world = build_scenario("cross-domain", args.scenario)
    rolled = roll_out(networks[0], world, args.decisions, args.states, args.steps, args.seed)
    truth = rolled.returns
    weights = np.array([world.reward.w_eff, world.reward.w_util, world.reward.w_cost])
    parts = [
        f"Scenario {args.scenario}, {len(truth)} placements, {args.states} background states each, "
        f"{truth[..., 0].size} rollouts of {args.steps} decisions, {time.process_time() - began:.0f} s of CPU time."
    ]
    for path, network in zip(args.weights, networks, strict=True):
        said = critic_values(network, rolled.inputs[0])
        parts.append(f"{path.name}\n\n" + "\n".join(report(said, truth, weights)))
    text = "\n\n".join(parts) + "\n"
    print(text)
    if args.output:
        args.output.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
