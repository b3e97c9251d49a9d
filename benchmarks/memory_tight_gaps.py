"""How far rules stay from the optimum where memory is tight, and what a moving network costs a plan that stands still.

    python benchmarks/memory_tight_gaps.py                  # both tables, about three minutes
    python benchmarks/memory_tight_gaps.py --instances 10   # a quick look

LLaMA-3-8B (measured layer profiles, full precision, batch of 64 sequences) over K pools of A100 and V100 that
together hold it once but not twice, in random AWS regions; bandwidth within 30 % of what was measured. No replica
fits, so the optimum is a pipeline. The gap is the step time of a rule's plan over the best one known, less 1. The
search proves most of these optimal; where it does not, its own bound says by how much at most they could be missed.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product

import numpy as np
from scheduler_instances import FloatArray, InstanceDecision, memory_tight, shaken

from attribution_sched.cluster.compute import TP_DEGREES
from attribution_sched.cluster.decision import Decision
from attribution_sched.cluster.gpus import Precision
from attribution_sched.cluster.plan import (
    DOMAIN,
    DP,
    FIRST,
    MAX_PP,
    MICROBATCH,
    MICROBATCHES,
    PP,
    PRECISION,
    SEGMENT_FIELDS,
    STOP,
    TP,
    Plan,
    Replica,
)
from attribution_sched.planning.candidates import chain_batch
from attribution_sched.planning.domain_orders import all_orders, chain_plans, proportional_cuts
from attribution_sched.planning.exact.solver import ExactSolver, Solution
from attribution_sched.rivals.greedy import Greedy
from attribution_sched.rivals.mast import Mast
from attribution_sched.rivals.sailor import search
from attribution_sched.rivals.splits import StaticUniform, best_splits

DOMAINS = (3, 4, 5)
INSTANCES = 60
MOVED_INSTANCES, DRAWS = 30, 20
BUDGET = 10_000_000
"""Effort of the proof per microbatch size; about 1 s at most."""

THIN = 5.0
"""One connection carries about a fifth of what the 64 of the measurement do."""

Rule = Callable[[InstanceDecision], float]


class FullPrecisionGreedy(Greedy):
    """The greedy rule for cards without 16-bit formats, which it otherwise takes for granted."""

    def _candidates(self, view: Decision) -> list[Plan]:
        return [
            Plan(tuple(
                Replica(
                    tuple(replace(s, precision=Precision.FP32) for s in r.segments), r.microbatch, r.microbatches
                )
                for r in plan.replicas
            ))
            for plan in super()._candidates(view)
        ]  # fmt: skip


def even_over_all(decision: InstanceDecision) -> float:
    """Step time of the best layout of an even split over all domains in the order given."""
    instance = decision.instance()
    batch = chain_plans(instance, np.arange(len(decision.cost.cluster), dtype=np.int64)[None], even=True)
    if len(batch) == 0:
        return float("inf")
    priced = instance.score(batch)
    return float(np.where(priced.fits, priced.step_s, np.inf).min())


def any_degree(decision: InstanceDecision, *, even: bool) -> float:
    """Step time of the best even or proportional split in which every domain has a tensor-parallel degree of its own.

    All devices of a domain are used, dp = 1. The rules of the package, by contrast, give all domains of a chain of
    three or more the same degree.
    """
    instance = decision.instance()
    n, seconds = instance.n_layers, instance.seconds_per_sample()[Precision.FP32.index]
    best = float("inf")
    for size in range(1, len(instance.free_devices) + 1):
        for order in all_orders(instance.open_domains, size):
            degrees = [[t for t in TP_DEGREES if t <= instance.free_devices[d]] for d in order]
            tp = np.array(list(product(*degrees)), dtype=np.int64)
            pp = instance.free_devices[order] // tp
            speeds = pp / seconds[order, np.log2(tp).astype(np.int64)]
            stops = proportional_cuts(np.ones_like(speeds) if even else speeds, n)
            firsts = np.concatenate([np.zeros((len(tp), 1), dtype=np.int64), stops[:, :-1]], axis=1)
            sound = ((stops - firsts >= pp) & (pp <= MAX_PP)).all(axis=1)
            micro = np.repeat(np.array(instance.microbatches), int(sound.sum()))[:, None]
            rows = np.zeros((len(micro), size, len(SEGMENT_FIELDS)), dtype=np.int64)
            rows[:, :, [DP, PRECISION]] = (1, Precision.FP32.index)
            rows[:, :, DOMAIN] = order
            for column, values in ((FIRST, firsts), (STOP, stops), (TP, tp), (PP, pp)):
                rows[:, :, column] = np.tile(values[sound], (len(instance.microbatches), 1))
            rows[:, :, MICROBATCH], rows[:, :, MICROBATCHES] = micro, instance.batch_size // micro
            if len(rows):
                priced = instance.score(chain_batch(rows))
                best = min(best, float(np.where(priced.fits, priced.step_s, np.inf).min()))
    return best


def sailor(decision: InstanceDecision) -> float:
    """Step time of the plan that a search in the manner of Sailor chooses."""
    found = search(decision.instance())
    return float("inf") if found is None else decision.step_s(found.plan)


def rules(decision: InstanceDecision) -> Iterator[tuple[str, float]]:
    """Step time of every rule; infinite where it finds nothing that fits."""
    split = best_splits(decision.instance())
    yield "proportional, best subset, order, any tp", any_degree(decision, even=False)
    yield "even, best subset, order, any tp", any_degree(decision, even=True)
    yield "proportional, best subset and order", split["proportional"].step_s
    yield "even, best subset and order", split["even"].step_s
    yield "even over all K, order as given", even_over_all(decision)
    yield "greedy (one domain or a pair)", decision.step_s(FullPrecisionGreedy(0.0, 0.0).decide(decision.view()))
    yield "Sailor-style search", sailor(decision)
    yield "MAST-style", decision.step_s(Mast().decide(decision.view()))
    yield "static uniform", decision.step_s(StaticUniform().decide(decision.view()))


def feasible(domains: int, count: int, slower: float = 1.0) -> Iterator[tuple[InstanceDecision, Solution]]:
    """The first ``count`` decisions that have a plan, with the best one."""
    seed = found = 0
    while found < count:
        decision = memory_tight(domains, seed, slower)
        best = ExactSolver(BUDGET).try_solve(decision.problem(replicate=False))
        seed += 1
        if best is not None:
            found += 1
            yield decision, best


def gap_table(count: int) -> None:
    """Print the gap of every rule for every K."""
    columns: list[dict[str, str]] = []
    for k in DOMAINS:
        begun = time.process_time()
        gaps: dict[str, list[float]] = {}
        proofs, used, beaten = [], [], 0
        for decision, best in feasible(k, count):
            proofs.append(1.0 - best.bound / best.value)
            used.append(len(best.plan.segments))
            for rule, step_s in rules(decision):
                gaps.setdefault(rule, []).append(step_s / best.step_s - 1.0)
                beaten += step_s < best.step_s * (1 - 1e-9)
        columns.append({rule: _cell(np.array(values)) for rule, values in gaps.items()})
        open_gaps = [gap for gap in proofs if gap > 0.0]
        rest = ""
        if open_gaps:
            rest = f", the others within {np.median(open_gaps):.1%} (median), {max(open_gaps):.1%} (most)"
        print(
            f"K={k}: {count} instances, optimum proven for {count - len(open_gaps)}{rest}; plans "
            f"use {np.mean(used):.1f} domains on average, all {k} in {used.count(k)}; rules beat the search {beaten} "
            f"times; {time.process_time() - begun:.0f} s"
        )
    print(f"\n{'gap to the best plan, mean (max)':<44}" + "".join(f"{f'K={k}':>24}" for k in DOMAINS))
    for rule in columns[0]:
        print(f"{rule:<44}" + "".join(f"{column[rule]:>24}" for column in columns))


def _cell(gaps: FloatArray) -> str:
    fits = np.isfinite(gaps)
    share = "" if fits.all() else f" {fits.sum()}/{fits.size}"
    if not fits.any():
        return f"fits{share}"
    return f"{100 * gaps[fits].mean():.1f} ({100 * gaps[fits].max():.1f}) %{share}"


def changes(links: FloatArray, rng: np.random.Generator) -> Iterator[tuple[str, list[FloatArray]]]:
    """Ways the network may move, and the links after each."""
    yield f"{DRAWS} independent draws", [shaken(links, rng) for _ in range(DRAWS)]
    yield "all links -30 %", [0.7 * links]
    lowered = []
    for i, j in zip(*np.triu_indices(len(links), 1), strict=True):
        lowered.append(links.copy())
        lowered[-1][[i, j], [j, i]] *= 0.7
    yield "one link -30 %", lowered


def moved_table(count: int) -> None:
    """Print what a network within 30 % costs a plan that stays and one that is solved anew, K = 3."""
    print(f"\n{'links, change (worst per instance)':<44}{'static plan':>16}{'re-solved':>16}{'static over it':>18}")
    for label, slower in (("measured", 1.0), ("a fifth", THIN)):
        rows: dict[str, list[FloatArray]] = {}
        solver, unproven, solved = ExactSolver(BUDGET), 0, 0
        for n, (decision, best) in enumerate(feasible(3, count, slower)):
            for change, moved in changes(decision.bandwidth_gbps, np.random.default_rng(n)):
                found = []
                for links in moved:
                    now = decision.with_links(links)
                    again = solver.solve(now.problem(replicate=False), best.plan)
                    solved, unproven = solved + 1, unproven + (not again.proven)
                    # What the plan in force gives is never lost by looking for another.
                    stay = now.step_s(best.plan)
                    found.append((stay, min(again.step_s, stay)))
                stays, news = np.array(found).T
                loss = (stays.max() / best.step_s, news.max() / best.step_s, (stays / news).max())
                rows.setdefault(change, []).append(100.0 * (np.array(loss) - 1.0))
        for change, losses in rows.items():
            mean, most = np.mean(losses, axis=0), np.max(losses, axis=0)
            cells = [f"{a:.2f} ({b:.2f}) %" for a, b in zip(mean, most, strict=True)]
            print(f"{f'{label}, {change}':<44}{cells[0]:>16}{cells[1]:>16}{cells[2]:>18}")
        print(f"  {count} instances, {solved} searches, {solved - unproven} proven")


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--instances", type=int, default=INSTANCES, help="instances per K of the first table")
    parser.add_argument("--moved", type=int, default=MOVED_INSTANCES, help="instances of the second table")
    given = parser.parse_args()
    for _ in rules(memory_tight(3, 1)):  # Compiles every kernel.
        pass
    gap_table(given.instances)
    moved_table(given.moved)


if __name__ == "__main__":
    main()
