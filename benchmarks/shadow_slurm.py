"""Shadow mode beside a real Slurm queue: do our reasons agree with Slurm's, and when do jobs really start?

    python benchmarks/shadow_slurm.py [--jobs 60] [--seeds 1 7] [--record FOLDER]
    python benchmarks/shadow_slurm.py --replay FOLDER/*.json

Starts a Slurm on this machine (root; Debian's packages), fills a week of history in small, hands in jobs of random size
and length, reads the queue once, and waits until every job has ended. Printed: agreement of causes, error and coverage
of the 80 % intervals, the error of ``squeue --start`` for the same jobs, and how far the queue played on with the run
times that came lies from what happened: what is left then is not the run times' fault. What was read is recorded, so
that a queue can be judged again.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from pathlib import Path
from typing import Any

from attribution_sched.executors.shadow import Shadow, advise, agrees, play, read_live
from attribution_sched.executors.slurm import ask_slurm
from tests.engines.slurm_here import SlurmHere, Unavailable, slurm_here


def hand_in(slurm: SlurmHere, count: int, chance: random.Random, longest_s: float) -> list[str]:
    """Jobs of 1 to 8 devices that use a part of their limit."""
    names = []
    for _ in range(count):
        devices, minutes = chance.choice([1, 1, 2, 2, 4, 8]), chance.choice([1, 2, 3])
        lasts = chance.uniform(1.0, longest_s * minutes / 3.0)
        told = slurm.ask(
            "east", "sbatch", "--parsable", "-p", "east", f"--gpus={devices}", f"--time={minutes}", "-o", "/dev/null",
            "--wrap", f"sleep {lasts:.1f}",
        )  # fmt: skip
        names.append(told.stdout.strip())
    return names


def ended(conf: object, names: list[str]) -> dict[str, tuple[float, float]]:
    """Job → when it started and ended, as accounting knows it."""
    told = ask_slurm(("sacct", "-n", "-P", "-X", "-o", "JobIDRaw,Start,End", "-j", ",".join(names)), conf)
    rows = (line.split("|") for line in told.splitlines())
    return {number: (float(start), float(end)) for number, start, end in rows if start.isdigit() and end.isdigit()}


def happened(jobs: int, history: int, longest_s: float, seed: int) -> dict[str, Any]:
    """One queue: every answer of Slurm when it was read, and what came of its jobs.

    Raises:
        Unavailable: If Slurm cannot be had here.
    """
    chance = random.Random(seed)
    with slurm_here() as slurm:
        conf = slurm.conf("east")
        past = hand_in(slurm, history, chance, longest_s)
        while len(ended(conf, past)) < len(past):
            time.sleep(2.0)
        names = hand_in(slurm, jobs, chance, longest_s)
        time.sleep(6.0)  # the backfill scheduler has gone through the queue, and says why
        now, answers = time.time(), {}

        def ask(*command: str) -> str:
            answers[" ".join(command)] = told = ask_slurm(command, conf)
            return told

        read_live(ask, now)
        while len(real := ended(conf, names)) < len(names):
            time.sleep(2.0)
    return {"seed": seed, "now": now, "answers": answers, "real": real}


def judge(told: dict[str, Any]) -> dict[str, Any]:
    """What shadow mode says of a queue beside what came."""
    answers, real, now = told["answers"], told["real"], told["now"]
    shadow = read_live(lambda *command: answers[" ".join(command)], now)
    advice = {each.job: each for each in advise(shadow)}
    expected = {job.id: job.expected_start_unix_s for job in shadow.jobs if not job.running}
    spoken = [(each, agrees(each.cause, each.reason)) for each in advice.values()]
    rows = []
    truth = play(shadow, "east", held(shadow, real))
    for name, each in advice.items():
        if each.starts is not None and name in real:
            start = real[name][0]
            inside = each.starts.low_unix_s - 1.0 <= start <= each.starts.high_unix_s + 1.0
            rows.append({
                "waited_s": start - now, "error_s": each.starts.middle_unix_s - start, "inside": inside,
                "width_s": each.starts.high_unix_s - each.starts.low_unix_s, "replayed_s": truth[name] - start,
                "slurm_s": expected[name] - start if expected.get(name) else None,
            })  # fmt: skip
    wrong = [(each.job, each.cause, each.reason) for each, same in spoken if same is False]
    known = sum(same is not None for _, same in spoken)
    return {"seed": told["seed"], "jobs": len(shadow.jobs), "waiting": len(advice), "wrong": wrong, "spoken": known,
            "past": len(shadow.used_shares), "rows": rows}  # fmt: skip


def held(shadow: Shadow, real: dict[str, tuple[float, float]]) -> dict[str, float]:
    """How long the jobs of a queue really ran, and the usual turnaround."""
    turnaround_s = statistics.mean(shadow.turnarounds_s or (0.0,))
    return {job.id: real[job.id][1] - real[job.id][0] + turnaround_s for job in shadow.jobs if job.id in real}


def tell(found: dict[str, Any]) -> None:
    """One queue in words."""
    rows = found["rows"]

    def mean(name: str) -> float:
        return statistics.mean(abs(row[name]) for row in rows if row[name] is not None)

    said = found["spoken"] - len(found["wrong"])
    print(f"seed {found['seed']}: {found['jobs']} jobs, {found['waiting']} waiting; history of {found['past']}")
    print(f"  why: agrees with Slurm's own reason in {said} of {found['spoken']}")
    for name, cause, reason in found["wrong"]:
        print(f"    job {name}: {cause!r}, Slurm: {reason!r}")
    print(
        f"  when: {len(rows)} jobs, mean wait {mean('waited_s'):.0f} s; mean error {mean('error_s'):.1f} s (bias "
        f"{statistics.mean(row['error_s'] for row in rows):+.1f}), 80 % interval covers "
        f"{statistics.mean(row['inside'] for row in rows):.0%}, mean width {mean('width_s'):.0f} s"
    )
    bias = statistics.mean(row["replayed_s"] for row in rows)
    print(f"  played with the run times that came: mean error {mean('replayed_s'):.1f} s (bias {bias:+.1f})")
    named = [row for row in rows if row["slurm_s"] is not None]
    if named:
        ours = statistics.mean(abs(row["error_s"]) for row in named)
        inside = f"mean error {mean('slurm_s'):.1f} s, ours {ours:.1f} s on the same"
        print(f"  squeue --start: says a time for {len(named)}; {inside}")
    else:
        print("  squeue --start: says no time for any")


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=60)
    parser.add_argument("--history", type=int, default=30)
    parser.add_argument("--longest", type=float, default=12.0, help="seconds of the longest jobs")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--record", type=Path, help="folder for what was read and what came")
    parser.add_argument("--replay", type=Path, nargs="+", help="judge what was recorded instead")
    chosen = parser.parse_args()
    found = []
    if chosen.replay:
        found = [judge(json.loads(path.read_text())) for path in chosen.replay]
    for seed in () if chosen.replay else chosen.seeds:
        try:
            told = happened(chosen.jobs, chosen.history, chosen.longest, seed)
        except Unavailable as error:
            print(f"skipped: Slurm cannot be had here: {error}")
            return
        if chosen.record:
            chosen.record.mkdir(parents=True, exist_ok=True)
            (chosen.record / f"queue-{seed}.json").write_text(json.dumps(told))
        found.append(judge(told))
        tell(found[-1])
    if chosen.replay:
        for each in found:
            tell(each)
    rows = [row for each in found for row in each["rows"]]
    covered = statistics.mean(row["inside"] for row in rows)
    print(f"all {len(found)} queues: {len(rows)} jobs, 80 % interval covers {covered:.1%}")


if __name__ == "__main__":
    main()
