"""``when`` against what happened: do 80 % intervals hold the real start, and how much narrower are they than history?

    python benchmarks/when_starts.py [--preset cross-domain] [--policy rule] [--seed 71000] [--runs 8] [--placements 60]

Fresh days. Every few placements every task that waits is asked when it starts; then the same system goes on until it
has started. *Covered*: share of real starts inside the interval, by how long the tasks then waited in truth (short,
middle and long third). *Interval score* (Winkler, lower is better): width, and ten times what a miss lies outside;
beside it that of history: quantiles of what tasks of the same tenant and kind, who had waited as long, had still to
wait in the same run so far. Intervals are bootstrapped over runs.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass

import numpy as np

from attribution_sched import System

LEVEL = 0.8
LEAST = 8


@dataclass(frozen=True)
class Asked:
    """A question, its answer, and what history said."""

    run: int
    task: str
    now_s: float
    low_s: float
    high_s: float
    history: tuple[float, float] | None


def history(past: list[tuple[str, str, float]], tenant: str, kind: str, waited_s: float) -> tuple[float, float] | None:
    """What tasks like it had still to wait, 10 and 90 %: same tenant and kind, else kind, else all."""
    for alike in (lambda t, k: t == tenant and k == kind, lambda _t, k: k == kind, lambda _t, _k: True):
        left = [wait - waited_s for t, k, wait in past if alike(t, k) and wait >= waited_s]
        if len(left) >= LEAST:
            low, high = np.quantile(left, [0.1, 0.9], method="weibull")
            return float(low), float(high)
    return None


def play(
    run: int, preset: str, policy: str, seed: int, placements: int, every: int
) -> tuple[list[Asked], dict[str, float], float]:
    """One run: what was asked, when tasks really started, and CPU seconds of the answers."""
    system = System(preset, policy, seed=seed)
    asked: list[Asked] = []
    started: dict[str, float] = {}
    past: list[tuple[str, str, float]] = []
    spent_s = 0.0
    waiting: set[str] = set()
    placed = 0
    while placed < placements or (waiting - set(started) and placed < 4 * placements):
        result = system.schedule_next_task()
        if result is None:
            break
        placed += 1
        started.setdefault(result.task.id, result.cluster_time_s)
        past.append((result.task.tenant, result.task.kind, result.task.waited_s))
        if placed <= placements and placed % every == 0:
            for row in system.queue().itertuples():
                if row.state != "window":
                    continue
                began = time.process_time()
                told = system.when(row.id, seed=placed)
                spent_s += time.process_time() - began
                said = history(past, row.tenant, row.kind, row.waited_s)
                asked.append(Asked(run, row.id, told.now_s, told.start.low_s, told.start.high_s, said))
                waiting.add(row.id)
    system.close()
    return asked, started, spent_s


def score(low: float, high: float, real: float) -> float:
    """Winkler's interval score in hours."""
    outside = max(0.0, low - real) + max(0.0, real - high)
    return (high - low + 2.0 / (1.0 - LEVEL) * outside) / 3600.0


def told_interval(found: tuple[float, float, float]) -> str:
    """A figure with its interval."""
    return f"{found[0]:.3f} [{found[1]:.3f}, {found[2]:.3f}]"


def main() -> None:
    """Print coverage and scores."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="cross-domain")
    parser.add_argument("--policy", default="rule")
    parser.add_argument("--seed", type=int, default=71_000)
    parser.add_argument("--runs", type=int, default=8)
    parser.add_argument("--placements", type=int, default=60)
    parser.add_argument("--every", type=int, default=4)
    given = parser.parse_args()
    rows: list[tuple[int, float, bool, float, float | None]] = []
    never = beyond = 0
    spent_s = 0.0
    for run in range(given.runs):
        asked, started, seconds = play(run, given.preset, given.policy, given.seed + run, given.placements, given.every)
        spent_s += seconds
        for each in asked:
            real = started.get(each.task)
            if real is None:
                never += 1
                continue
            beyond += not np.isfinite(each.high_s)
            inside = each.low_s <= real <= each.high_s
            high = each.high_s if np.isfinite(each.high_s) else each.now_s + 96 * 3600.0
            own = score(each.low_s, high, real)
            past = (
                None
                if each.history is None
                else score(each.now_s + each.history[0], each.now_s + each.history[1], real)
            )
            rows.append((run, real - each.now_s, bool(inside), own, past))
    waits = np.array([row[1] for row in rows])
    inside = np.array([row[2] for row in rows])
    runs = np.array([row[0] for row in rows])
    print(f"{given.preset}, {given.policy}: {len(rows)} answers in {given.runs} runs")
    print(f"{never} more never started; {beyond} intervals are open above")
    print(f"CPU per answer {1e3 * spent_s / max(1, len(rows) + never):.0f} ms")
    edges = np.quantile(waits, [0.0, 1 / 3, 2 / 3, 1.0])
    rng = np.random.default_rng(0)

    def boot(values: np.ndarray, mask: np.ndarray, ratio: np.ndarray | None = None) -> tuple[float, float, float]:
        def stat(chosen: np.ndarray) -> float:
            at = np.concatenate([np.flatnonzero((runs == run) & mask) for run in chosen])
            if len(at) == 0:
                return float("nan")
            return float(values[at].mean() if ratio is None else values[at].mean() / ratio[at].mean())

        every = np.unique(runs)
        drawn = [stat(rng.choice(every, len(every))) for _ in range(500)]
        return stat(every), *np.nanquantile(drawn, [0.025, 0.975])

    everything = np.ones(len(rows), dtype=bool)
    for name, mask in (
        ("all", everything),
        *(
            (f"{edges[i] / 3600:.2f}-{edges[i + 1] / 3600:.2f} h", (waits >= edges[i]) & (waits <= edges[i + 1]))
            for i in range(3)
        ),
    ):
        print(f"covered, wait {name}: {told_interval(boot(inside.astype(float), mask))} of {mask.sum()}")
    told = np.array([row[4] is not None for row in rows])
    own = np.array([row[3] for row in rows])
    past = np.array([np.nan if row[4] is None else row[4] for row in rows])
    print(f"interval score {own[told].mean():.2f} h, history {past[told].mean():.2f} h ({told.sum()} answers)")
    print(f"ratio {told_interval(boot(own, told, past))}")


if __name__ == "__main__":
    main()
