"""Joint J1: are the joules that ``System`` shows the task's own, and what does EmSHAP carry when counters are missing?

    python benchmarks/attribution_accounts.py            # two minutes of processor time; seeds 1,000,000 and on
    python benchmarks/attribution_accounts.py --quick

Prints the tables of ``docs/results_accounts.md``. Everything is asked of the attributor that ``System`` runs by
default; tasks are fresh, from seeds that neither the shipped fits (seed 20) nor the choice of their form looked at.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.stats import spearmanr

from attribution_sched.attribution.attributor import AccountAttributor, as_attributor
from attribution_sched.attribution.energy_model import EnergyModel
from attribution_sched.attribution.fitted import Fitted
from attribution_sched.attribution.simulated_meter import MeteredTasks, meter, metered_tasks, task_energy_j
from attribution_sched.cluster.counters import true_rates
from attribution_sched.cluster.demands import DEMAND_NAMES, draw_demands
from attribution_sched.cluster.world import World
from attribution_sched.config import load_settings
from attribution_sched.types import FloatArray, Task

FIRST_SEED = 1_000_000
PRESETS = ("cross-domain-easy", "large", "shared", "testbed")
SAVED = 0.2
"""Share of one demand that a what-if takes away."""


# --- Must 1: joules of fresh tasks ---


def within_kind_r2(kinds: FloatArray, shown: FloatArray, own: FloatArray) -> float:
    """R² of log joules with each kind's mean taken out of both."""
    apart = []
    for values in (np.log(shown), np.log(own)):
        left = values.copy()
        for kind in np.unique(kinds):
            left[kinds == kind] -= left[kinds == kind].mean()
        apart.append(left)
    return float(1.0 - np.square(apart[0] - apart[1]).sum() / np.square(apart[1]).sum())


def shown_joules(attributor: AccountAttributor, tasks: MeteredTasks) -> list:
    """The vectors that the default attributor gives these tasks."""
    zeros = np.zeros(5)
    return [
        attributor.vector(Task(counters=np.append(row, zeros), samples_per_s=float(pace), training=bool(mode)))
        for row, pace, mode in zip(tasks.counters, tasks.samples_per_s, tasks.training, strict=True)
    ]


def fresh_tasks(world: World, count: int, seed: int) -> dict[str, float]:
    """Error, R² within kinds and absent operators of the vectors of fresh tasks."""
    attributor, tasks = as_attributor(None, world), metered_tasks(world, count, seed)
    began = time.process_time()
    vectors = shown_joules(attributor, tasks)
    spent = (time.process_time() - began) / count
    shown = np.array([float(vector.prediction) for vector in vectors])
    parts = np.array([vector.values for vector in vectors])
    absent = tasks.counters == 0.0
    balance = np.abs(parts.sum(axis=1) + [vector.base for vector in vectors] - shown).max()
    return {
        "median_error": float(np.median(np.abs(shown / tasks.energy_j - 1.0))),
        "r2_within": within_kind_r2(tasks.kinds, shown, tasks.energy_j),
        "absent": int(absent.sum()),
        "absent_j": float(np.abs(parts[absent]).max(initial=0.0)),
        "balance_j": float(balance),
        "cpu_ms": 1e3 * spent,
    }


def hot_path(world: World, seed: int, count: int = 100, batches: int = 12) -> dict[str, float]:
    """CPU milliseconds of one vector, the least of several batches: read in full, counters unread, no throughput."""
    attributor, tasks = as_attributor(None, world), metered_tasks(world, count, seed)
    rng = np.random.default_rng([seed, 4])
    patterns = [rng.permutation(7)[: rng.integers(2, 5)] for _ in range(count // 8)]
    out: dict[str, float] = {}
    for name in ("in full", "2-4 unread", "no throughput"):
        asked = []
        for i, (row, pace, mode) in enumerate(zip(tasks.counters, tasks.samples_per_s, tasks.training, strict=True)):
            counters = np.append(row, np.zeros(5))
            if name == "2-4 unread":
                counters[patterns[i % len(patterns)]] = np.nan
            known = 0.0 if name == "no throughput" else float(pace)
            asked.append(Task(counters=counters, samples_per_s=known, training=bool(mode)))
        spent = []
        for _ in range(batches + 1):
            began = time.process_time()
            for task in asked:
                attributor.vector(task)
            spent.append(time.process_time() - began)
        out[name] = 1e3 * min(spent[1:]) / count
    return out


# --- Must 2: J1 is cut: EmSHAP replaced ---


@dataclass(frozen=True, eq=False)
class Cut:
    """What stands in for EmSHAP: counters (n, d) with NaN, throughput and mode → complete counters (n, d)."""

    name: str
    complete: Callable[[FloatArray, FloatArray, FloatArray], FloatArray]


def cuts(past: MeteredTasks) -> list[Cut]:
    """The mean of past tasks, a linear regression of logarithms on what was read, and dropping the counter."""
    unit = 0.01 * np.array([column[column > 0].mean() if (column > 0).any() else 1.0 for column in past.counters.T])

    def columns(counters: FloatArray, pace: FloatArray, mode: FloatArray) -> FloatArray:
        return np.column_stack([np.log1p(counters / unit), np.log(pace), mode])

    known = columns(past.counters, past.samples_per_s, past.training)

    def regress(counters: FloatArray, pace: FloatArray, mode: FloatArray) -> FloatArray:
        filled = counters.copy()
        for row in range(len(counters)):
            hidden = np.isnan(counters[row])
            seen = ~np.append(hidden, [False, False])
            design = np.column_stack([np.ones(len(known)), known[:, seen]])
            gram = design.T @ design + 1e-6 * len(known) * np.eye(design.shape[1])
            slope = np.linalg.solve(gram, design.T @ known[:, :-2][:, hidden])
            given = columns(np.nan_to_num(counters[row])[None], pace[row : row + 1], mode[row : row + 1])[:, seen]
            filled[row, hidden] = np.maximum(np.expm1(np.column_stack([[1.0], given])[0] @ slope), 0.0) * unit[hidden]
        return filled

    mean = past.counters.mean(axis=0)
    return [
        Cut("mean", lambda counters, _pace, _mode: np.where(np.isnan(counters), mean, counters)),
        Cut("regression", regress),
        Cut("dropped", lambda counters, _pace, _mode: np.nan_to_num(counters)),
    ]


def missing_counters(world: World, count: int, seed: int) -> dict[str, FloatArray]:
    """Error of the account with 2 to 4 of 7 counters hidden, by who stands in for them: (count,) each.

    The error of a task is Σ|part − part with all counters read| / Σ parts.
    """
    attributor, tasks = as_attributor(None, world), metered_tasks(world, count, seed)
    energy, hidden = attributor.fitted.energy, attributor.fitted.missing
    rng = np.random.default_rng([seed, 1])
    holes = tasks.counters.copy()
    for row in range(count):
        holes[row, rng.permutation(holes.shape[1])[: rng.integers(2, 5)]] = np.nan
    pace, mode = tasks.samples_per_s, tasks.training
    truth = energy.parts(tasks.counters / pace[:, None], pace, mode)
    found = np.empty_like(truth)
    inside = []
    for row in range(count):
        found[row], _, opened, _, _ = hidden._mean(energy, holes[row], float(pace[row]), bool(mode[row]))
        unread = np.isnan(holes[row])
        # Both sides have the same energy model, so the interval is that of what the missing counters leave open.
        reach = 1.96 * hidden.widening * np.sqrt(opened) + 1e-12
        inside += list((np.abs(found[row] - truth[row]) <= reach)[unread])
    errors = {"EmSHAP": np.abs(found - truth).sum(axis=1) / truth.sum(axis=1)}
    for cut in cuts(metered_tasks(world, 3000, 21)):
        other = energy.parts(cut.complete(holes, pace, mode.astype(float)) / pace[:, None], pace, mode)
        errors[cut.name] = np.abs(other - truth).sum(axis=1) / truth.sum(axis=1)
    errors["covered"] = np.array(inside, dtype=float)
    return errors


def rise(errors: dict[str, FloatArray], name: str, rng: np.random.Generator) -> tuple[float, float, float]:
    """Mean rise of the error when EmSHAP is replaced, and its 95 % interval (paired bootstrap over tasks)."""
    gap = errors[name] - errors["EmSHAP"]
    again = gap[rng.integers(len(gap), size=(2000, len(gap)))].mean(axis=1)
    return float(gap.mean()), float(np.quantile(again, 0.025)), float(np.quantile(again, 0.975))


# --- What the parts are good for: bottleneck and what-if ---


def what_ifs(world: World, count: int, seed: int) -> dict[str, float]:
    """The simulator's saving when one demand falls by a fifth, against the parts of the account."""
    rng = np.random.default_rng([seed, 2])
    kinds = np.resize(np.arange(len(world.kinds)), count)
    demands = draw_demands(
        [world.kinds[k].model for k in kinds], rng, world.idiosyncrasy,
        training=[world.kinds[k].training for k in kinds],
    )  # fmt: skip
    tasks = meter(world, kinds, demands, rng, exact=False)
    saving = np.empty((count, len(DEMAND_NAMES)))
    for j in range(saving.shape[1]):
        less = demands.values.copy()
        less[:, j] *= 1.0 - SAVED
        saving[:, j] = tasks.energy_j - task_energy_j(world, kinds, replace(demands, values=less))
    saving = np.where(saving > 1e-9 * tasks.energy_j[:, None], saving, 0.0)
    parts = np.array([vector.values for vector in shown_joules(as_attributor(None, world), tasks)])
    top, rows = parts.argmax(axis=1), np.arange(count)
    return {
        "rank": float(np.nanmean([spearmanr(parts[i], saving[i]).statistic for i in rows])),
        "named": float(np.mean(top == saving.argmax(axis=1))),
        "reached": float(np.mean(saving[rows, top] / saving.max(axis=1))),
    }


def roofline(count: int, seed: int) -> dict[str, float]:
    """A world where resources overlap entirely: seconds = max(compute, memory, host), joules = watts × seconds.

    Asked of the largest margin of the parts: does it name the resource with most joules, and the one that is the
    bottleneck in time, whose seconds are largest? The two are not the same where a slow resource draws little.
    """
    names = ("resnet-50", "bert-base", "gpt2-small", "efficientnet-b0", "vit-b-16")
    from attribution_sched.cluster.models import model

    rng = np.random.default_rng([seed, 3])
    models = [model(names[i]) for i in rng.integers(len(names), size=2 * count)]
    demands = draw_demands(models, rng, 2.0)
    seconds = demands.seconds
    groups = np.column_stack([seconds[:, 4:].sum(1), seconds[:, 2], seconds[:, :2].sum(1)])
    time_s = groups.max(axis=1)
    joules = 60.0 * time_s + 250.0 * groups[:, 0] + 120.0 * groups[:, 1] + 40.0 * groups[:, 2]
    counters = np.maximum(true_rates(demands)[:, :7], 0.0) * np.exp(0.1 * rng.standard_normal((2 * count, 7)))
    # The machine's own pace: all resources overlap.
    pace = np.exp(0.05 * rng.standard_normal(2 * count)) / time_s
    x = counters * (1.0 / (true_rates(demands)[:, 0] / demands.values[:, 0]))[:, None]
    model_ = EnergyModel.fit(
        x[:count] * pace[:count, None], pace[:count], joules[:count], idle_j=60.0 * time_s[:count] * 0.99, idle_w=60.0
    )
    parts = model_.parts(x[count:], pace[count:], np.ones(count, bool))
    margins = np.column_stack([parts[:, 4:].sum(1), parts[:, 2], parts[:, :2].sum(1)])
    most = np.column_stack([250.0 * groups[:, 0], 120.0 * groups[:, 1], 40.0 * groups[:, 2]])[count:]
    found = np.mean(margins.argmax(1) == most.argmax(1))
    slowest = np.mean(margins.argmax(1) == groups[count:].argmax(1))
    limit = np.mean(most.argmax(1) == groups[count:].argmax(1))
    off = np.median(np.abs(model_.predict(x[count:], pace[count:], np.ones(count, bool)) / joules[count:] - 1.0))
    return {"named": float(found), "slowest": float(slowest), "limit": float(limit), "median_error": float(off)}


def main(arguments: list[str] | None = None) -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args(arguments).quick
    count = 300 if quick else 10_000
    print("| preset | median error of J/sample | R² within kinds | counters at 0 | their largest J | CPU ms a task |")
    print("|---|---|---|---|---|---|")
    for preset in PRESETS:
        world = load_settings(preset).build_world()
        f = fresh_tasks(world, count, FIRST_SEED)
        how = "" if Fitted.of_world(world).shipped else " (refitted)"
        print(f"| {preset}{how} | {f['median_error']:.1%} | {f['r2_within']:.3f} "
              f"| {f['absent']:,} | {f['absent_j']:g} | {f['cpu_ms']:.2f} |")  # fmt: skip
    print("\n| preset | CPU ms a vector, in full | 2-4 of 7 counters unread | no throughput |\n|---|---|---|---|")
    for preset in PRESETS:
        h = hot_path(load_settings(preset).build_world(), FIRST_SEED + 5)
        print(f"| {preset} | " + " | ".join(f"{ms:.2f}" for ms in h.values()) + " |")
    print("\n| preset | EmSHAP | mean | regression | dropped | 95 % interval holds |")
    print("|---|---|---|---|---|---|")
    rng = np.random.default_rng(0)
    for preset in PRESETS:
        errors = missing_counters(load_settings(preset).build_world(), 200 if quick else 2000, FIRST_SEED + 12)
        cells = []
        for name in ("mean", "regression", "dropped"):
            gap, low, high = rise(errors, name, rng)
            cells.append(f"{errors[name].mean():.4f} ({gap:+.4f} [{low:+.4f}, {high:+.4f}])")
        print(f"| {preset} | {errors['EmSHAP'].mean():.4f} | {' | '.join(cells)} | {errors['covered'].mean():.1%} |")
    print("\n| world | bottleneck by argmax of the parts | best saving reached | rank correlation |")
    print("|---|---|---|---|")
    for preset in PRESETS:
        if preset == "shared":
            continue  # Its jobs are measured: the simulator has no other demands to price them with.
        w = what_ifs(load_settings(preset).build_world(), 110 if quick else 600, FIRST_SEED + 2)
        print(f"| {preset} | {w['named']:.0%} | {w['reached']:.1%} | {w['rank']:.2f} |")
    r = roofline(300 if quick else 1500, FIRST_SEED + 3)
    print(f"| roofline maximum (three margins) | {r['named']:.0%} | | (median error {r['median_error']:.1%}) |")
    print(f"\nRoofline: the slowest resource is named in {r['slowest']:.0%}; true joules name it in {r['limit']:.0%}.")


if __name__ == "__main__":
    main()
