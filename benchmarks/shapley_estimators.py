"""Estimators of Shapley values at equal budget: mean error, coverage of 95 % intervals, time.

    python benchmarks/shapley_estimators.py [--quick] [--players 16] [--draws 20] [--seed 0]

Games are small enough to be enumerated. Error is mean |φ − truth| over mean |truth|. *Regression* is the one estimator
of the package (``shapley/regression.py``), as EmSHAP uses it (a regression for each of four groups of coalitions) and
as the bill does (one, with the error of its own rows); *pooled* is the textbook's weighted least squares on the same
coalitions, which EmSHAP used before, its error by the jackknife over groups; *orders* are walks and their reverses,
which the bill used for congestion.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator

import numpy as np

from attribution_sched.shapley.exact import all_coalitions, shapley_of_table
from attribution_sched.shapley.explain import estimate
from attribution_sched.shapley.game import FunctionGame
from attribution_sched.shapley.regression import kernel_plan, kernel_values
from attribution_sched.stats.interval import half_width, standard_error

Game = Callable[[np.ndarray], np.ndarray]
GROUPS = 4


def games(d: int, seed: int) -> Iterator[tuple[str, Game]]:
    """Functions of masks (n, d): a common peak, an energy, pairs, triples, a threshold."""
    rng = np.random.default_rng([seed, d])
    held, weight = rng.integers(0, 9, (d, 24)).astype(float), rng.lognormal(0.0, 1.0, d)
    pair = np.triu(rng.normal(size=(d, d)), 1) * 0.3
    triples = [(rng.choice(d, 3, replace=False), rng.normal()) for _ in range(2 * d)]
    yield "peak of devices", lambda m: (m @ held).max(axis=-1)
    yield "product", lambda m: np.exp(2.0 * (m @ weight) / weight.sum())
    yield (
        "pairs and a wave",
        lambda m: m @ weight + np.einsum("ni,ij,nj->n", m, pair, m) + np.sin(2.0 * (m @ weight)) / 2,
    )
    yield "triples", lambda m: m @ weight + sum(c * m[:, t].all(axis=1) for t, c in triples)
    yield "threshold", lambda m: (m @ weight > 0.6 * weight.sum()) * 1.0


def regression(game: Game, d: int, budget: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A regression in each of four groups, their spread the error: EmSHAP's."""
    plan = kernel_plan(d, GROUPS, GROUPS, budget // (2 * GROUPS), seed)
    full = game(np.ones((1, d)))[None]
    means, _ = kernel_values(plan, game(plan.coalitions * 1.0)[None, :, None], full)
    each = means.values[0, :, :, 0]
    return each.mean(axis=0), half_width(standard_error(each), GROUPS - 1.0)


def walked(method: str) -> Callable[[Game, int, int, int], tuple[np.ndarray, np.ndarray]]:
    """The package's front door."""

    def run(game: Game, d: int, budget: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        function = FunctionGame(lambda masks: game(masks * 1.0), tuple(map(str, range(d))))
        found = estimate(function, method=method, budget_rows=budget, seed=seed)
        return found.values[:, 0], half_width(found.standard_error[:, 0], found.freedom)

    return run


def pooled(game: Game, d: int, budget: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Weighted least squares under Σφ = v(N) − v(∅), all groups in one, the jackknife over groups."""
    plan = kernel_plan(d, GROUPS, GROUPS, budget // (2 * GROUPS), seed)
    masks = plan.coalitions[plan.coalitions.any(axis=1)].reshape(GROUPS, -1, d) * 1.0
    base, full = float(game(np.zeros((1, d)))[0]), float(game(np.ones((1, d)))[0])
    size = masks.sum(axis=2)
    weighted = masks / (size * (d - size))[:, :, None]
    gram = np.einsum("gni,gnj->gij", weighted, masks)
    right = np.stack([(game(masks[g]) - base) @ weighted[g] for g in range(GROUPS)])

    def solved(parts: list[int]) -> np.ndarray:
        free, direction = np.linalg.solve(gram[parts].sum(0), np.column_stack([right[parts].sum(0), np.ones(d)])).T
        return free + direction * (full - base - free.sum()) / direction.sum()

    left_out = np.stack([solved([g for g in range(GROUPS) if g != out]) for out in range(GROUPS)])
    spread = np.square(left_out - left_out.mean(0)).sum(0) * (GROUPS - 1) / GROUPS
    return solved(list(range(GROUPS))), half_width(np.sqrt(spread), GROUPS - 1.0)


ESTIMATORS = {
    "regression, four groups": regression, "pooled": pooled, "regression, one": walked("kernel"),
    "orders": walked("permutation"),
}  # fmt: skip


def main(arguments: list[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--players", type=int, default=16)
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="ten players, four draws, one budget")
    asked = parser.parse_args(arguments)
    d, draws, budgets = asked.players, asked.draws, (1024, 4096)
    if asked.quick:
        d, draws, budgets = 10, 4, (512,)
    masks = all_coalitions(d) * 1.0
    print(f"{d} players, {draws} draws, seed {asked.seed}: error, coverage of 95 % intervals")
    print("| game | coalitions | " + " | ".join(ESTIMATORS) + " |")
    print("|---|--:|" + "--:|" * len(ESTIMATORS))
    took = dict.fromkeys(ESTIMATORS, 0.0)
    for name, game in games(d, asked.seed):
        truth = shapley_of_table(np.concatenate([game(part) for part in np.array_split(masks, 16)])[:, None])[:, 0]
        for budget in budgets:
            cells = []
            for label, run in ESTIMATORS.items():
                began = time.process_time()
                found = [run(game, d, budget, seed) for seed in range(draws)]
                took[label] += time.process_time() - began
                off = np.abs([values - truth for values, _ in found])
                inside = np.mean(off <= np.array([half for _, half in found]) + 1e-12)
                cells.append(f"{off.mean() / np.abs(truth).mean():.2%}, {inside:.0%}")
            print(f"| {name} | {budget:,} | " + " | ".join(cells) + " |")
    print(", ".join(f"{label} {seconds:.1f} CPU-s" for label, seconds in took.items()))


if __name__ == "__main__":
    main()
