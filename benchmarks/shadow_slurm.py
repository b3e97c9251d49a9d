"""Shadow mode beside a real Slurm queue: do our reasons agree with Slurm's, and when do jobs really start?

    python benchmarks/shadow_slurm.py [--jobs 60] [--seed 1]

Starts a Slurm on this machine (root; Debian's packages), fills a week of history in small, hands in jobs of random size
and length, reads the queue once, and waits until every job has started. Printed: agreement of causes, error and
coverage of the 80 % intervals, and the error of ``squeue --start`` for the same jobs.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time

from attribution_sched.executors.shadow import advise, agrees, read_live
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


def started(conf: object, names: list[str]) -> dict[str, float]:
    """Job → when it started, as accounting knows it."""
    told = ask_slurm(("sacct", "-n", "-P", "-X", "-o", "JobIDRaw,Start", "-j", ",".join(names)), conf)
    pairs = (line.split("|") for line in told.splitlines())
    return {number: float(at) for number, at in pairs if at.isdigit()}


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=60)
    parser.add_argument("--history", type=int, default=30)
    parser.add_argument("--longest", type=float, default=12.0, help="seconds of the longest jobs")
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    chance = random.Random(chosen.seed)
    try:
        with slurm_here() as slurm:
            conf = slurm.conf("east")
            past = hand_in(slurm, chosen.history, chance, chosen.longest)
            while len(started(conf, past)) < len(past):
                time.sleep(2.0)
            names = hand_in(slurm, chosen.jobs, chance, chosen.longest)
            time.sleep(6.0)  # the backfill scheduler has gone through the queue, and says why
            now = time.time()
            shadow = read_live(lambda *command: ask_slurm(command, conf), now)
            advice = {each.job: each for each in advise(shadow)}
            expected = {job.id: job.expected_start_unix_s for job in shadow.jobs if not job.running}
            while len(real := started(conf, names)) < len(names):
                time.sleep(2.0)
    except Unavailable as error:
        print(f"skipped: Slurm cannot be had here: {error}")
        return
    judged = [(each, agrees(each.cause, each.reason)) for each in advice.values()]
    spoken = [(each, same) for each, same in judged if same is not None]
    right = sum(bool(same) for _, same in spoken)
    print(f"queue: {len(shadow.jobs)} jobs, {len(advice)} waiting; history of {len(shadow.used_shares)}")
    print(f"why: agrees with Slurm's own reason in {right} of {len(spoken)} ({len(judged) - len(spoken)} without one)")
    for each, same in spoken:
        if not same:
            print(f"  job {each.job}: {each.cause!r}, Slurm: {each.reason!r}")
    ours, theirs, inside, widths = [], [], 0, []
    for name, each in advice.items():
        if each.starts is None or name not in real:
            continue
        ours.append(abs(each.starts.middle_unix_s - real[name]))
        inside += each.starts.low_unix_s - 1.0 <= real[name] <= each.starts.high_unix_s + 1.0
        widths.append(each.starts.high_unix_s - each.starts.low_unix_s)
        if expected.get(name):
            theirs.append((abs(expected[name] - real[name]), ours[-1]))
    waited = statistics.mean(real[name] - now for name in advice if name in real)
    print(
        f"when: {len(ours)} jobs, mean wait {waited:.0f} s; mean error {statistics.mean(ours):.1f} s, "
        f"80 % interval covers {inside / len(ours):.0%}, mean width {statistics.mean(widths):.0f} s"
    )
    if theirs:
        slurm_error, own_error = (statistics.mean(column) for column in zip(*theirs, strict=True))
        words = f"squeue --start: says a time for {len(theirs)}; mean error {slurm_error:.1f} s"
        print(f"{words}, ours {own_error:.1f} s on the same")
    else:
        print("squeue --start: says no time for any")


if __name__ == "__main__":
    main()
