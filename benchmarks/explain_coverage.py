"""How often the 95 % intervals cover the truth, and what the coin-flip estimator misses of the sum.

    python benchmarks/explain_coverage.py                    # about three minutes of CPU time
    python benchmarks/explain_coverage.py --quick            # a smoke run; its figures mean nothing
    python benchmarks/explain_coverage.py --output DIR       # also writes explain_coverage.md there

The networks of ``explain_speed.py`` with their 32 inputs in 12 groups, so that the truth can be enumerated. Background
as a sample: each repetition draws 100 states from a population of 1,000 and must cover the exact value over all 1,000.
Background as the population: 100 fixed states, other walks or masks each time. Coin flips: exact Banzhaf values with
the zero baseline and with the 100 states, as a share of ``full - base``, beside the Shapley values' share.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import time
from pathlib import Path

import numpy as np
import torch
from explain_speed import COMPONENTS, Chosen, FloatArray, draw_states, nmse, train
from torch import nn

from attribution_sched.shapley.estimate import Estimate
from attribution_sched.shapley.explain import estimate
from attribution_sched.shapley.tabular import TabularGame
from research.banzhaf import banzhaf

GROUPS = {
    **{f"domain {k}": [k, 8 + k, 16 + k] for k in range(8)},
    "task size": [24, 25],
    "task traffic": [26],
    "task urgency": [27, 28],
    "network": [29, 30, 31],
}
WALK = 2 * len(GROUPS) - 1
SCHEMES = (
    ("permutation, 50 walks", {"method": "permutation", "budget_rows": 50 * WALK + 1}),
    ("permutation, 400 walks", {"method": "permutation", "budget_rows": 400 * WALK + 1}),
    ("kernel, 100 × 65 rows", {"method": "kernel", "budget_rows": 100 * 65 + 1}),
    ("kernel, 100 × 201 rows", {"method": "kernel", "budget_rows": 100 * 201 + 1}),
)


def covered(got: Estimate, truth: FloatArray) -> float:
    """Share of the values whose 95 % interval contains the truth."""
    low, high = got.interval()
    return float(((low <= truth) & (truth <= high)).mean())


def coverage_lines(name: str, model: nn.Module, outputs: tuple[str, ...], x: FloatArray, repeats: int) -> list[str]:
    """Coverage of one model on one state."""
    rng = np.random.default_rng(11)
    population = draw_states(1000, rng)
    make = lambda states: TabularGame(model, x, states, GROUPS, outputs=outputs)  # noqa: E731
    everyone = estimate(make(population), method="exact", background="population").values
    fixed = population[:100]
    truth = estimate(make(fixed), method="exact", background="population").values
    lines = []
    for scheme, wish in SCHEMES:
        sample, whole = [], []
        for seed in range(repeats):
            drawn = population[rng.integers(0, len(population), 100)]
            sample.append(covered(estimate(make(drawn), seed=seed, **wish), everyone))  # type: ignore[arg-type]
            got = estimate(make(fixed), seed=seed, background="population", **wish)  # type: ignore[arg-type]
            whole.append(covered(got, truth))
        met = 0.90 <= np.mean(sample) <= 0.98
        lines.append(
            f"| {name}: {scheme} | {100 * np.mean(sample):.1f} % | {100 * np.mean(whole):.1f} % "
            f"| 90–98 % | {'met' if met else 'MISSED'} |"
        )
        print(lines[-1], flush=True)
    return lines


def coin_flip_lines(name: str, model: nn.Module, outputs: tuple[str, ...], x: FloatArray) -> list[str]:
    """What Banzhaf and Shapley values sum to, and how far apart they are."""
    background = draw_states(100, np.random.default_rng(12))
    lines = []
    for baseline, states in (("zeros", np.zeros((1, len(x)))), ("100 states", background)):
        game = TabularGame(model, x, states, GROUPS, outputs=outputs)
        shapley, other = estimate(game, method="exact"), banzhaf(game, method="exact")
        total = shapley.full - shapley.base
        for c, output in enumerate(outputs):
            apart = nmse(other.values[:, c], shapley.values[:, c])
            lines.append(
                f"| {name}, {output} | {baseline} | {total[c]:+.3f} | {other.values[:, c].sum() / total[c]:.3f} "
                f"| {shapley.values[:, c].sum() / total[c]:.6f} | {apart:.1e} |"
            )
    return lines


def main() -> None:
    """Train, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a smoke run")
    parser.add_argument("--output", type=Path, help="folder for explain_coverage.md")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    repeats = 3 if arguments.quick else 100
    begin = time.process_time()
    policy, values, _ = train(100 if arguments.quick else 2500, np.random.default_rng(0))
    covers, sums = [], []
    for number, x in enumerate(draw_states(2, np.random.default_rng(20261117)), start=1):
        with torch.no_grad():
            action = int(policy(torch.tensor(x[None], dtype=torch.float32)).argmax())
        chosen = Chosen(policy, action).eval()
        covers += coverage_lines(f"state {number}, probability", chosen, ("probability",), x, repeats)
        covers += coverage_lines(f"state {number}, three values", values, COMPONENTS, x, repeats)
        sums += coin_flip_lines(f"state {number}", chosen, ("probability",), x)
        sums += coin_flip_lines(f"state {number}", values, COMPONENTS, x)
    text = "\n".join(
        [
            f"### Coverage of 95 % intervals, 12 groups, {repeats} repetitions",
            "",
            "| case | background as sample | as population | target (sample) | |",
            "|---|---|---|---|---|",
            *covers,
            "",
            "### Coin flips: what Banzhaf values sum to",
            "",
            "| case | baseline | full − base = T | Banzhaf sum / T | Shapley sum / T | NMSE between |",
            "|---|---|---|---|---|---|",
            *sums,
            "",
            f"Whole run: {time.process_time() - begin:.0f} s of CPU time. "
            f"Command: `python benchmarks/explain_coverage.py{' --quick' if arguments.quick else ''}`",
            "",
        ]
    )
    print(text)
    if arguments.output:
        arguments.output.mkdir(parents=True, exist_ok=True)
        (arguments.output / "explain_coverage.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
