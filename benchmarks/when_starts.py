"""``when`` against what happened: do 80 % intervals hold the real start, and how much narrower are they than history?

    python benchmarks/when_starts.py [--preset cross-domain-easy] [--policy rule] [--seed 71000] [--runs 8]

Fresh days. Every few placements, if anybody waits, all that wait are asked when they start (``System.when_all``); then
the same system goes on until they have started. *Covered*: share of real starts inside the interval, by class of wait:
thirds of the wait that the answer itself expects (its middle). Beside it the thirds of the wait that came true, which
no forecast can hold at 80 % each: who is known to have waited longest was, on average, told too little. *Interval
score* (Winkler, lower is better): width, and ten times what a miss lies outside; beside it that of history: quantiles
of what tasks of the same tenant and kind, who had waited as long, had still to wait in the same run so far. Intervals
are bootstrapped over weeks (runs, where there are none). A line per run is kept in ``--keep-runs``; a run that is there
already is not played again.

With ``--weeks 2017-11-13,2017-11-20`` runs are weeks of the Philly log on the site of ``shared`` instead, one for each
of ``--parts`` of its tasks (data folder ``ATTRIBUTION_SCHED_DATA``). The log has no wall-time requests: what a backfill
estimate would be given in their place is what the futures are given, how long the tenant's tasks took, before the
first test week and in the run so far.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from attribution_sched import System
from attribution_sched.config import Settings, load_settings

LEVEL = 0.8
LEAST = 8


@dataclass(frozen=True)
class Asked:
    """A question, its answer, and what history said."""

    run: int
    task: str
    now_s: float
    low_s: float
    middle_s: float
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


def week(monday: str, keep: int, part: int = 0) -> Settings:
    """The site of ``shared`` under a week of the log, one task in so many, and which of these."""
    path = str(Path(os.environ["ATTRIBUTION_SCHED_DATA"]) / "philly" / "philly.csv")
    arrivals = {"kind": "philly_week", "path": path, "monday": monday, "keep": keep, "seed": part}
    return load_settings(load_settings("shared").model_dump(exclude_none=True) | {"arrivals": arrivals})


def play(
    run: int, preset: str | Settings, policy: str, seed: int, given: argparse.Namespace
) -> tuple[list[Asked], dict[str, float], float]:
    """One run: what was asked, when tasks really started, and CPU seconds of the answers."""
    placements, every = given.placements, given.every
    system, rng = System(preset, policy, seed=seed), np.random.default_rng(seed)
    asked: list[Asked] = []
    started: dict[str, float] = {}
    past: list[tuple[str, str, float]] = []
    spent_s = 0.0
    waiting: set[str] = set()
    placed, last, before, moments = 0, given.skip + placements, 0, 0
    while (placed < last and moments < given.moments) or (waiting - set(started) and placed < given.longest * last):
        result = system.schedule_next_task()
        if result is None:
            break
        placed += 1
        started.setdefault(result.task.id, result.cluster_time_s)
        past.append((result.task.tenant, result.task.kind, result.task.waited_s))
        due = given.skip < placed <= last and placed >= before + every and moments < given.moments
        if due and any(row.state == "window" for row in system.queue().itertuples()):
            before, moments = placed, moments + 1
            rows = {row.id: row for row in system.queue().itertuples() if row.state == "window"}
            began = time.process_time()
            answers = system.when_all(seed=placed, hours=given.hours)
            spent_s += time.process_time() - began
            for at in rng.permutation(len(answers))[: given.most]:
                told = answers[at]
                row = rows[told.task]
                said = history(past, row.tenant, row.kind, row.waited_s)
                start = told.start
                # Not begun in any future: not before the end of what was played.
                low_s = min(start.low_s, told.until_s)
                asked.append(Asked(run, row.id, told.now_s, low_s, start.middle_s, start.high_s, said))
                waiting.add(row.id)
    system.close()
    return asked, started, spent_s


def score(low: float, high: float, real: float) -> float:
    """Winkler's interval score in hours."""
    outside = max(0.0, low - real) + max(0.0, real - high)
    return (high - low + 2.0 / (1.0 - LEVEL) * outside) / 3600.0


def judged(asked: list[Asked], started: dict[str, float], spent_s: float) -> dict[str, object]:
    """What answers of a run came to: real wait, inside or not, own score, history's, wait told, later than told."""
    rows: list[tuple[float, bool, float, float | None, float, bool]] = []
    never = beyond = 0
    for each in asked:
        real = started.get(each.task)
        if real is None:
            never += 1
            continue
        beyond += not np.isfinite(each.high_s)
        high = each.high_s if np.isfinite(each.high_s) else each.now_s + 96 * 3600.0
        past = None
        if each.history is not None:
            past = score(each.now_s + each.history[0], each.now_s + each.history[1], real)
        inside = bool(each.low_s <= real <= each.high_s)
        told = min(each.middle_s, high) - each.now_s
        rows.append((real - each.now_s, inside, score(each.low_s, high, real), past, told, real > each.high_s))
    return {"rows": rows, "never": never, "beyond": beyond, "spent_s": spent_s}


def told_interval(found: tuple[float, float, float]) -> str:
    """A figure with its interval."""
    return f"{found[0]:.3f} [{found[1]:.3f}, {found[2]:.3f}]"


def main() -> None:
    """Print coverage and scores."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="cross-domain-easy")
    parser.add_argument("--policy", default="rule")
    parser.add_argument("--seed", type=int, default=71_000)
    parser.add_argument("--runs", type=int, default=8)
    parser.add_argument("--placements", type=int, default=60)
    parser.add_argument("--every", type=int, default=4, help="placements between moments at which somebody is asked")
    parser.add_argument("--moments", type=int, default=10**9, help="at which somebody is asked, at most, in a run")
    parser.add_argument("--skip", type=int, default=0, help="placements before the first question")
    parser.add_argument("--most", type=int, default=1000, help="tasks of one moment whose answers are judged")
    parser.add_argument("--hours", type=float, help="how far futures are played; as far as it takes by default")
    parser.add_argument("--longest", type=float, default=4.0, help="most placements waited for, over those asked at")
    parser.add_argument("--weeks", default="", help="Mondays of the Philly log, with commas")
    parser.add_argument("--keep", type=int, default=3, help="one task of the log in so many")
    parser.add_argument("--parts", default="0", help="which of the tasks are kept, with commas; a run for each")
    parser.add_argument("--seconds", type=float, default=1e9, help="CPU seconds after which no run is begun")
    parser.add_argument("--keep-runs", type=Path, default=Path("when_starts.jsonl"), help="a line per run")
    given = parser.parse_args()
    weeks = [(day, int(part)) for day in given.weeks.split(",") if day for part in given.parts.split(",")]
    presets = [week(day, given.keep, part) for day, part in weeks] or [given.preset] * given.runs
    kept = [json.loads(line) for line in given.keep_runs.read_text().splitlines()] if given.keep_runs.exists() else []
    names = [
        f"{given.policy} {weeks[run][0]} 1/{given.keep} {weeks[run][1]}" if weeks
        else f"{given.policy} {given.preset} {given.seed + run}"
        for run in range(len(presets))
    ]  # fmt: skip
    blocks = [[day for day, _ in weeks].index(day) for day, _ in weeks] or list(range(len(presets)))
    known = {line["name"] for line in kept}
    for run, (name, preset) in enumerate(zip(names, presets, strict=True)):
        if name in known or time.process_time() > given.seconds:
            continue
        line = {"name": name, **judged(*play(run, preset, given.policy, given.seed + run, given))}
        kept.append(line)
        with given.keep_runs.open("a") as file:
            file.write(json.dumps(line) + "\n")
    kept = [line for line in kept if line["name"] in names]
    rows = [(blocks[names.index(line["name"])], *row) for line in kept for row in line["rows"]]
    never, beyond, spent_s = (sum(line[name] for line in kept) for name in ("never", "beyond", "spent_s"))
    waits = np.array([row[1] for row in rows])
    inside = np.array([row[2] for row in rows])
    runs = np.array([row[0] for row in rows])
    late = np.array([row[6] for row in rows])
    told_s = np.array([row[5] for row in rows])
    print(f"{given.weeks or given.preset}, {given.policy}: {len(rows)} answers in {len(kept)} runs, "
          f"{len(np.unique(runs))} {'weeks' if weeks else 'days'}")  # fmt: skip
    print(f"{never} more never started; {beyond} intervals are open above")
    print(f"CPU per answer {1e3 * spent_s / max(1, len(rows) + never):.0f} ms")
    if not rows:
        print("nobody waited")
        return
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
    print(
        f"covered: {told_interval(boot(inside.astype(float), everything))}; started later than told {late.mean():.3f}"
    )
    for what, values in (("wait told", told_s), ("wait that came true", waits)):
        edges = np.quantile(values, [0.0, 1 / 3, 2 / 3, 1.0])
        for i in range(3):
            mask = (values >= edges[i]) & ((values < edges[i + 1]) | (i == 2))
            span = f"{edges[i] / 3600:.2f}-{edges[i + 1] / 3600:.2f} h"
            print(f"covered, {what} {span}: {told_interval(boot(inside.astype(float), mask))} of {mask.sum()}")
    told = np.array([row[4] is not None for row in rows])
    own = np.array([row[3] for row in rows])
    past = np.array([np.nan if row[4] is None else row[4] for row in rows])
    print(f"interval score {own[told].mean():.2f} h, history {past[told].mean():.2f} h ({told.sum()} answers)")
    print(f"ratio {told_interval(boot(own, told, past))}")


if __name__ == "__main__":
    main()
