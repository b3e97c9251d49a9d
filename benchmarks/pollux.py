"""Pollux's eight workloads on its measured step times: a shortest-first elastic rule of ours beside published results.

    python benchmarks/pollux.py                # eight workloads, 160 jobs each, on 16 × 4 T4
    python benchmarks/pollux.py --quick        # one workload: ours 2,629 s, Tiresias 2,474 s published

Needs ``pollux`` under ``ATTRIBUTION_SCHED_DATA`` (OSDI 2021): step times by placement, workloads, completion times of
every job under Tiresias, Optimus and Pollux. Rules of the replay are those of the artifact: decisions every 60 s, 30 s
lost whenever a job's devices change, step times interpolated between measured ones. Batch size is as submitted in
Tiresias, Optimus and ours; **Pollux also tunes it**, so its figure is no like for like.

How many iterations a job has is not in the data. It is taken from the published completion times under Tiresias: the
least over jobs of the same application and batch size, less the 30 s of a start, over the iteration time on packed
devices. That this is right is checked by replaying Tiresias itself (two queues, least attained service, devices as
submitted): its own mean completion time must come out. Ours knows what is left of a job, as Optimus does.

Ours takes, at every decision, the sizes that maximise Σ rate / work left: devices go one by one to the job whose
finishing they hasten most, short ones first, and a job's devices change only if that pays for the lost time.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import os
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np
from scipy.interpolate import LinearNDInterpolator

from attribution_sched.stats.bootstrap import PairedBootstrap

NODES, NODE_DEVICES, TICK_S, RESTART_S = 16, 4, 60, 30
PAYS = 2.0
"""A change of devices must save so many times the seconds that it costs."""

MOST_LOCAL = {"yolov3": 8}
"""Largest batch of one device where the artifact sets one below what was measured."""


def folder() -> Path:
    """Where the data are."""
    return Path(os.environ["ATTRIBUTION_SCHED_DATA"]) / "pollux"


class StepTimes:
    """Measured iteration times of one application."""

    def __init__(self, name: str) -> None:
        rows: dict[tuple[int, int, float], list[tuple[float, float]]] = defaultdict(list)
        self.placed: dict[str, list[tuple[float, float, float]]] = defaultdict(list)
        with (folder() / "throughput" / f"{name}_placements.csv").open() as file:
            for row in csv.DictReader(file):
                key, bsz = row["placement"], float(row["local_bsz"])
                times = float(row["step_time"]), float(row["sync_time"])
                self.placed[key].append((bsz, *times))
                rows[len(key), sum(map(int, key)), bsz].append(times)
        points = [(*key, *np.mean(each, axis=0)) for key, each in rows.items()]
        with (folder() / "throughput" / f"{name}_scalability.csv").open() as file:
            names = ("num_nodes", "num_replicas", "local_bsz", "step_time", "sync_time")
            points += [tuple(float(row[each]) for each in names) for row in csv.DictReader(file)]
        table = np.array(points, dtype=np.float64)
        self.least, most = float(table[:, 2].min()), float(table[:, 2].max())
        self.most = min(most, MOST_LOCAL.get(name, most))
        self._between = LinearNDInterpolator(table[:, :3], table[:, 3:])

    @cache  # noqa: B019 (six of them, for as long as the script runs)
    def iteration_s(self, placement: tuple[int, ...], batch: int) -> float:
        """Seconds of an iteration of so many samples on devices of so many nodes; infinite where nothing tells."""
        devices = sum(placement)
        local = math.ceil(batch / devices - 1e-8)
        if local < self.least:
            return math.inf
        more = math.ceil(local / self.most - 1e-8) - 1
        local = math.ceil(local / (more + 1) - 1e-8)
        key = "".join(map(str, min(placement[i:] + placement[:i] for i in range(len(placement)))))
        if key in self.placed:
            known = np.array(sorted(self.placed[key]))
            step, sync = (float(np.interp(local, known[:, 0], known[:, i])) for i in (1, 2))
        else:
            step, sync = (float(v) for v in self._between(min(len(placement), 16), devices, local).ravel())
        return step + (step - sync) * more if step == step else math.inf


@cache
def step_times(name: str) -> StepTimes:
    """Of an application, read once."""
    return StepTimes(name)


def packed(devices: int) -> tuple[int, ...]:
    """On as few nodes as can be."""
    full, rest = divmod(devices, NODE_DEVICES)
    return (NODE_DEVICES,) * full + ((rest,) if rest else ())


@dataclass
class Job:
    """A job of a workload, and how it stands."""

    name: str
    application: str
    submitted_s: float
    devices: int
    batch: int
    left: float = 0.0
    held: list[int] = field(default_factory=list)
    lost_s: float = 0.0
    served_s: float = 0.0
    finished_s: float | None = None

    def iteration_s(self, placement: tuple[int, ...]) -> float:
        """Seconds of an iteration there."""
        return step_times(self.application).iteration_s(placement, self.batch)

    @property
    def most_devices(self) -> int:
        """More would leave a device less than the smallest batch that was measured."""
        return max(1, min(NODES * NODE_DEVICES, int(self.batch // step_times(self.application).least)))


def read_jobs(workload: int) -> list[Job]:
    """The jobs of a workload, without their work."""
    with (folder() / "workloads" / f"workload-{workload}.csv").open() as file:
        return [
            Job(row["name"], row["application"], float(row["time"]), int(row["num_replicas"]), int(row["batch_size"]))
            for row in csv.DictReader(file)
        ]


def completion_times(system: str) -> dict[str, dict[str, float]]:
    """Published seconds from submission to end: workload → job."""
    found = json.loads((folder() / "published_results" / f"{system}-1.0.json").read_text())["jcts"]
    return {name: {job: float(s) for job, s in jobs.items()} for name, jobs in found.items()}


def iterations() -> dict[tuple[str, int], float]:
    """Iterations of jobs by application and batch size, from what Tiresias took for them at least."""
    told, found = completion_times("tiresias"), {}
    for workload in range(1, 9):
        for job in read_jobs(workload):
            alone = job.iteration_s(packed(job.devices))
            if not math.isfinite(alone):
                continue
            own = max(1.0, (told[f"workload-{workload}"][job.name] - RESTART_S) / alone)
            key = job.application, job.batch
            found[key] = min(found.get(key, math.inf), own)
    return found


Policy = Callable[[list[Job], float], dict[str, int]]
"""Jobs that are there, the time → devices of each."""


def tiresias(jobs: list[Job], now_s: float) -> dict[str, int]:
    """Least attained service in two queues, devices as submitted, all or nothing."""
    free, found = NODES * NODE_DEVICES, {}
    for job in sorted(jobs, key=lambda j: (j.served_s >= 16 * 3600.0, j.submitted_s)):
        if job.devices <= free:
            found[job.name] = job.devices
            free -= job.devices
    return found


def shortest_elastic(jobs: list[Job], now_s: float) -> dict[str, int]:
    """Devices one by one to whom they hasten most in proportion to the work left."""
    free, found = NODES * NODE_DEVICES, dict.fromkeys((job.name for job in jobs), 0)
    by = {job.name: job for job in jobs}

    def rate(job: Job, devices: int) -> float:
        return 1.0 / job.iteration_s(packed(devices)) / job.left if devices else 0.0

    def gain(job: Job, devices: int) -> tuple[float, int]:
        """The best gain per device of any number more: step times are bumpy where a node is full."""
        most = min(job.most_devices, devices + free)
        options = [
            ((rate(job, more) - rate(job, devices)) / (more - devices), more) for more in range(devices + 1, most + 1)
        ]
        return max(options, default=(0.0, devices))

    offers = {job.name: gain(job, 0) for job in jobs}
    while free > 0:
        name = max(offers, key=lambda each: offers[each][0], default=None)
        if name is None or offers[name][0] <= 0.0:
            break
        free -= offers[name][1] - found[name]
        found[name] = offers[name][1]
        for each in offers:
            if each == name or offers[each][1] - found[each] > free:
                offers[each] = gain(by[each], found[each])
    return {name: devices for name, devices in found.items() if devices}


def settle(jobs: list[Job], sizes: dict[str, int], *, keep: bool) -> None:
    """Give devices: who keeps a number keeps its devices; the others get the emptiest nodes first.

    ``keep`` lets a job go on as it is where a change would not pay for the time that it costs and room is left.
    """
    free = [NODE_DEVICES] * NODES
    staying = []
    for job in jobs:
        size = sizes.get(job.name, 0)
        if keep and job.held and size and size != len(job.held):
            placement = tuple(n for n in np.bincount(job.held, minlength=NODES).tolist() if n)
            saved = job.left * (job.iteration_s(placement) - job.iteration_s(packed(size)))
            # Growing that hardly pays is left undone; shrinking makes room for somebody and is not.
            if size > len(job.held) and saved < PAYS * RESTART_S:
                size = len(job.held)
        if job.held and size == len(job.held):
            staying.append(job)
            for node in job.held:
                free[node] -= 1
        sizes[job.name] = size
    for job in sorted(jobs, key=lambda j: -sizes[j.name]):
        if job in staying:
            continue
        size, held = sizes[job.name], []
        if size <= sum(free):
            while len(held) < size:
                # A node that takes all of the rest with the least left over, else the emptiest.
                need = size - len(held)
                fits = [k for k in range(NODES) if free[k] >= need]
                node = min(fits, key=lambda k: free[k]) if fits else max(range(NODES), key=lambda k: free[k])
                took = min(free[node], need)
                held += [node] * took
                free[node] -= took
        if held != job.held:
            job.held, job.lost_s = held, RESTART_S


def replay(workload: int, policy: Policy, work: dict[tuple[str, int], float], *, keep: bool = False) -> list[Job]:
    """Run a workload to its end."""
    jobs = read_jobs(workload)
    for job in jobs:
        job.left = work[job.application, job.batch]
    now_s = 0.0
    while any(job.finished_s is None for job in jobs):
        for job in jobs:
            if job.finished_s is None and job.held:
                seconds = float(TICK_S)
                lost = min(job.lost_s, seconds)
                job.lost_s -= lost
                pace = job.iteration_s(tuple(n for n in np.bincount(job.held, minlength=NODES).tolist() if n))
                done = min(job.left, (seconds - lost) / pace)
                job.left -= done
                job.served_s += seconds * len(job.held)
                if job.left <= 1e-9:
                    job.finished_s, job.held = now_s + lost + done * pace, []
        now_s += TICK_S
        present = [job for job in jobs if job.submitted_s <= now_s and job.finished_s is None]
        if present:
            settle(present, dict(policy(present, now_s)), keep=keep)
    return jobs


def main() -> None:
    """Replay, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workloads", default="1,2,3,4,5,6,7,8")
    parser.add_argument("--output", default="arena/pollux.jsonl")
    parser.add_argument("--quick", action="store_true")
    asked = parser.parse_args()
    if asked.quick:
        asked.workloads, asked.output = "1", ""
    began, work, rows = time.process_time(), iterations(), []
    policies: dict[str, tuple[Policy, bool]] = {
        "tiresias, replayed": (tiresias, False),
        "ours": (shortest_elastic, True),
    }
    workloads = [int(each) for each in asked.workloads.split(",")]
    for workload in workloads:
        for name, (policy, keep) in policies.items():
            jobs = replay(workload, policy, work, keep=keep)
            took = {job.name: round((job.finished_s or math.nan) - job.submitted_s, 1) for job in jobs}
            rows.append({"policy": name, "workload": f"workload-{workload}", "completion_s": took})
    for system in ("tiresias", "optimus", "pollux"):
        told = completion_times(system)
        rows += [{"policy": f"{system}, published", "workload": f"workload-{w}", "completion_s": told[f"workload-{w}"]}
                 for w in workloads]  # fmt: skip
    if asked.output:
        own = [row for row in rows if "published" not in row["policy"]]
        Path(asked.output).write_text("".join(json.dumps(row) + "\n" for row in own))
    means: dict[str, np.ndarray] = {}
    for row in rows:
        mean = float(np.mean(list(row["completion_s"].values())))
        means[row["policy"]] = np.append(means.get(row["policy"], np.empty(0)), mean)
    against = means["tiresias, published"]
    draws = PairedBootstrap(len(workloads), 0) if len(workloads) > 1 else None
    print(f"mean completion time of {len(workloads)} workloads, 160 jobs each, 64 T4")
    for name, each in sorted(means.items(), key=lambda item: float(item[1].mean())):
        line = f"  {name:22}{each.mean():8.0f} s"
        if draws is not None and name != "tiresias, published":
            gap = draws.estimate(draws.means(each - against))
            line += f"   over published Tiresias {gap.value:+.0f} [{gap.low:+.0f}, {gap.high:+.0f}]"
        print(line)
    print(f"{time.process_time() - began:.0f} s of one core")


if __name__ == "__main__":
    main()
