"""Must: "why is it waiting" answers that hold when they are followed.

    python benchmarks/why_waiting.py [--seed 91000] [--days 4] [--policy sjf] [--preset cross-domain] [--every 10]
        [--per-day 300] [--planted 100] [--skip 0] [--runs why_waiting.jsonl] [--seconds 300] [--live 10]
        [--unconfirmed]

Fresh days of a preset, as a system runs them. Beside what arrives, people submit tasks that ask for a number of devices
(drawn, whatever is free). After every so many placements tasks that wait are asked about (``System.why``), and the
answer is followed, not by what gave the answer but by the system itself:

- *blockers*: in a copy of the live cluster the running tasks that were named are stopped and the waiting ones that go
  first withdrawn; then the deployed policy decides, task after task, until time passes: did the task start? Every
  ``--live``-th answer is followed in the live system, with ``System.cancel`` and ``System.withdraw``: there
  is no way back.
- *advice*: the task is withdrawn and submitted anew as advised, in the live system, which goes on until time passes:
  did it start?
- *contradictions*: a cause that was removed as stated and a task that did not start.
- ``--unconfirmed`` cuts the last trial, that in the live cluster: answers as copies of what a decision shows give them.
- *planted causes*: clusters and policies made so that one cause is the binding one, as many of each token as asked for.

A line per day is kept in ``--runs``; days that are there already are not played again, and all of them are summed up.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import json
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from attribution_sched import System
from attribution_sched.cluster import live_trial
from attribution_sched.cluster.counters import COUNTER_NAMES
from attribution_sched.cluster.decision import Decision
from attribution_sched.cluster.live import PolicyCall, SimulatedCluster
from attribution_sched.cluster.live_trial import copied, starts_at_once
from attribution_sched.config import load_settings
from attribution_sched.errors import TaskError
from attribution_sched.explain.decision_table import least_devices
from attribution_sched.explain.room import empty_cluster, fits_at_all
from attribution_sched.explain.why import Cause, Why, why_waiting
from attribution_sched.rivals.greedy import Greedy
from attribution_sched.scheduler.policy import twin
from attribution_sched.system.moments import moment_of
from attribution_sched.types import Task

FAST_GBPS = 500.0

SIZES = (1, 2, 4, 8, 16)
"""Devices that people ask for."""


def starts_without(system: System, task: str, why: Why) -> bool:
    """Whether the task starts at once in a copy of the live cluster without those that the answer names."""
    cluster, policy, call = copied(system.cluster), twin(system.policy, remembers=True), PolicyCall()
    call.state = system.ring.call.state
    for name in why.blockers:
        cluster.stop(name)
    for name in why.ahead:
        cluster.take_out(name)
    return starts_at_once(cluster, policy, call, system.reward, task)


def starts_really(system: System, task: str, why: Why) -> bool:
    """Whether the task starts at once in the live system when those that the answer names are really taken out."""
    for name in why.blockers:
        system.cancel(name)
    for name in why.ahead:
        system.withdraw(name)
    then_s = system.now_s
    while (result := system.schedule_next_task()) is not None and result.cluster_time_s <= then_s + 1e-6:
        if result.task.id == task:
            return True
    return False


def follow(system: System, task: str, change: dict[str, int], request: dict[str, Any]) -> tuple[str, bool]:
    """Withdraw a task and submit it as advised; its new name, and whether it started before time passed."""
    kind = system.world.kinds[request["row"]]
    given = {key: value for key, value in request.items() if key not in ("row", "devices")}
    if kind.opaque:
        given |= {"kind": f"opaque-{change['devices']}"}
        given["steps"] = max(1, round(given["steps"] * kind.batch_size / change["devices"]))
    else:
        given["devices"] = change["devices"]
    # It is the same job: what was measured of it stays.
    slot = system.cluster.slot_of(task)
    seen = None if slot is None else system.cluster.residents[slot]
    if seen is not None and seen.counters.size:
        measured = dict(zip(COUNTER_NAMES, seen.counters.tolist(), strict=True))
        given |= {"counters": measured, "samples_per_s": seen.samples_per_s or None}
    system.withdraw(task)
    name, then_s = system.submit(given), system.now_s
    while (result := system.schedule_next_task()) is not None and result.cluster_time_s <= then_s + 1e-6:
        if result.task.id == name:
            return name, True
    return name, False


class Never:
    """Waits whatever comes."""

    name = "never"

    def decide(self, view: Decision) -> None:
        """Wait."""


class Alone:
    """Places a task only if nobody else waits."""

    name = "alone"

    def decide(self, view: Decision) -> object:
        """A plan if the queue is empty but for it."""
        return Greedy().decide(view) if len(view.queue) <= 1 else None


class Impatient:
    """Places a task only over links far faster than any of the preset."""

    name = "impatient"

    def decide(self, view: Decision) -> object:
        """A plan if links are fast."""
        return Greedy().decide(view) if view.bandwidth_gbps.max() >= FAST_GBPS else None


def waits(policy: Any, seed: int, world: Any) -> Iterator[tuple[SimulatedCluster, str]]:
    """Waiting tasks of a policy's days, day after day."""
    while True:
        cluster, call = SimulatedCluster(world, seed), PolicyCall()
        while cluster.advance() and cluster.now_s < 86_400.0:
            asked = call.ask(policy, cluster)
            if asked.plan is None and not asked.view.replanning:
                yield cluster, cluster.residents[asked.view.slot].id
            cluster.carry_out(cluster.encode(asked.plan, asked.view.kind_index))
            call.note(asked)
        seed += 1


def planted(cause: Cause, seed: int, count: int) -> tuple[int, int]:
    """Planted cases of a cause, and how many of them are named."""
    world = load_settings("cross-domain-easy").build_world()
    never = Never()
    policies = {Cause.HELD_FOR_ANOTHER: Alone(), Cause.LINK_OR_PRICE: Impatient(), Cause.NO_ROOM: Greedy()}
    policy = policies.get(cause, never)
    found = right = 0
    for cluster, name in waits(policy if cause is Cause.NO_ROOM else never, seed, world):
        view, holders, allowed, behind = moment_of(cluster, name)
        answered = plant(cause, policy, view, holders, allowed, behind)
        found += answered is not None
        right += answered is not None and answered.cause is cause
        if found >= count:
            return found, right
    return found, right


def shrunk(view: Decision) -> Decision:
    """The same decision where every domain has two devices left."""
    cost, rows = copy.copy(view.cost), view.cost.domains.rows.copy()
    rows.devices[:] = 2
    object.__setattr__(cost, "domains", view.cost.domains._replace(rows=rows))
    return replace(view, cost=cost, free_devices=np.minimum(view.free_devices, 2))


def plant(cause: Cause, policy: Any, view: Decision, holders: Any, allowed: Any, behind: int) -> Why | None:
    """What is answered where one cause is planted; None if this moment cannot carry it."""
    task = view.task or Task(kind_index=view.kind_index, slot=view.slot)
    needs = [need for k in range(len(view.free_devices)) if (need := least_devices(view, k)) is not None]
    if cause is Cause.FITS_NOWHERE:
        small = shrunk(view)
        return None if fits_at_all(empty_cluster(small)) else why_waiting(policy, small, holders, allowed)
    if cause is Cause.MISCONFIGURED:
        if not needs or min(needs) < 2:
            return None
        return why_waiting(policy, replace(view, task=replace(task, devices=min(needs) // 2)), holders, allowed)
    if cause is Cause.QUOTA:
        return why_waiting(policy, view, holders, np.zeros_like(view.free_devices))
    if cause is Cause.HELD_FOR_ANOTHER and len(view.queue) < 2:
        return None
    if cause is Cause.BEHIND:
        return why_waiting(Greedy(), view, holders, allowed, behind=3)
    return why_waiting(policy, view, holders, allowed, behind=behind)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=91_000)
    parser.add_argument("--days", type=int, default=4, help="days from the first seed on")
    parser.add_argument("--planted", type=int, default=0)
    parser.add_argument("--policy", default="sjf")
    parser.add_argument("--preset", default="cross-domain")
    parser.add_argument("--skip", type=int, default=0, help="placements of a day before the first question")
    parser.add_argument("--requests-only", action="store_true", help="nothing arrives but what people submit")
    parser.add_argument("--seconds", type=float, default=1e9, help="CPU seconds after which no day is begun")
    parser.add_argument("--per-day", type=int, default=300, help="placements of a day")
    parser.add_argument("--every", type=int, default=10, help="placements between questions")
    parser.add_argument("--runs", type=Path, default=Path("why_waiting.jsonl"), help="a line per day")
    parser.add_argument("--live", type=int, default=10, help="one answer of so many is followed in the live system")
    parser.add_argument("--unconfirmed", action="store_true", help="answers that were not tried in the live cluster")
    args = parser.parse_args()
    if args.unconfirmed:
        live_trial.LiveTrial = lambda *_: None  # type: ignore[assignment,misc]
    if args.planted:
        for cause in Cause:
            found, right = planted(cause, args.seed, args.planted)
            print(f"planted {cause.value}: named {right} of {found}", flush=True)
    known = [json.loads(line) for line in args.runs.read_text().splitlines()] if args.runs.exists() else []
    played = {(line["preset"], line["policy"], line["seed"]) for line in known}
    for seed in range(args.seed, args.seed + args.days):
        if (args.preset, args.policy, seed) in played or time.process_time() > args.seconds:
            continue
        line = {"preset": args.preset, "policy": args.policy, "seed": seed, **day(args, seed)}
        known.append(line)
        with args.runs.open("a") as file:
            file.write(json.dumps(line) + "\n")
    report(known)


def day(args: argparse.Namespace, seed: int) -> dict[str, Any]:
    """Ask, follow, count on one day."""
    causes: Counter[str] = Counter()
    tally: Counter[str] = Counter()
    took: list[float] = []
    rng = np.random.default_rng(seed)
    queue = "empty" if args.requests_only else "preset"
    with System(args.preset, args.policy, seed=seed, queue=queue) as system:
        requests: dict[str, dict[str, Any]] = {}
        for _ in range(24 if args.requests_only else 0):
            submit_one(system, rng, requests)
        if args.skip:
            system.run(args.skip)
        for number in range(args.per_day):
            if system.schedule_next_task() is None:
                break
            if args.requests_only or number % args.every == args.every - 1:
                submit_one(system, rng, requests)
            if number % args.every:
                continue
            rows = [row.id for row in system.queue().itertuples() if row.state == "window"]
            own = [name for name in rows if name in requests]
            others = [name for name in rows if name not in requests]
            for name in (*own[:2], *rng.permutation(others)[:2]):
                if system.cluster.place_of(name) not in (None, "running"):
                    ask(system, str(name), requests, causes, tally, took, args.live)
        return {"decisions": system.journal.count(), "causes": causes, "tally": tally, "took": took}


def submit_one(system: System, rng: np.random.Generator, requests: dict[str, dict[str, Any]]) -> None:
    """Somebody submits a task that asks for a number of devices."""
    row = int(rng.integers(len(system.world.kinds)))
    kind = system.world.kinds[row]
    steps = int(np.exp(rng.uniform(*np.log(kind.steps)))) + 1
    given: dict[str, Any] = {
        "kind": kind.model.name,
        "steps": steps,
        "training": kind.training,
        "batch": kind.batch_size,
    }
    if kind.opaque:
        given = {"kind": kind.model.name, "steps": min(steps, 20_000)}
    else:
        given["devices"] = int(rng.choice(SIZES))
    # Too few devices to hold it anywhere are refused at the door.
    with contextlib.suppress(TaskError):
        requests[system.submit(given)] = given | {"row": row}


def ask(
    system: System, name: str, requests: dict[str, dict[str, Any]], causes: Counter[str], tally: Counter[str],
    took: list[float], live: int,
) -> None:  # fmt: skip
    """Ask why one task waits, and follow the answer."""
    began = time.process_time()
    why = system.why(name)
    took.append(time.process_time() - began)
    causes[why.cause.value] += 1
    if why.blockers or why.ahead or why.cause is Cause.BEHIND:
        kind = "blockers" if why.blockers else "ahead" if why.ahead else "next"
        tally["followed"] += 1
        really = tally["followed"] % live == 0
        held = (starts_really if really else starts_without)(system, name, why)
        tally["followed in the live system"] += really
        tally[f"{kind} named"] += 1
        tally[f"{kind} held"] += held
        tally["contradictions"] += not held
        if not held:
            print("  contradiction:", system.seed, name, why.cause.value, why.blockers, why.ahead, flush=True)
        if really:
            # The cluster that the advice was for is gone.
            return
    if why.change is not None and name in requests:
        request = requests.pop(name)
        new, started = follow(system, name, dict(why.change), request)
        requests[new] = request | dict(why.change)
        tally["advised"] += 1
        tally["advice held"] += started
        tally["contradictions"] += not started
        if not started:
            print("  advice failed:", system.seed, name, why.cause.value, why.change, request, flush=True)


def report(lines: list[dict[str, Any]]) -> None:
    """Print what was counted, per world and policy and together."""
    pairs = sorted({(line["preset"], line["policy"]) for line in lines})
    print("| world, policy | days, seeds | decisions | answers | blockers | ahead | next | advice | contradictions "
          "| CPU ms median, p99 |\n|---|---|---:|---:|---|---|---|---|---:|---|")  # fmt: skip
    for pair in (*pairs, None):
        some = [line for line in lines if pair in (None, (line["preset"], line["policy"]))]
        if not some:
            continue
        tally = sum((Counter(line["tally"]) for line in some), Counter())
        answers = sum(sum(line["causes"].values()) for line in some)
        took = [each for line in some for each in line["took"]] or [0.0]
        seeds = [line["seed"] for line in some]
        held = [
            f"{tally[f'{kind} held']} of {tally[f'{kind} named']}" if tally[f"{kind} named"] else "–"
            for kind in ("blockers", "ahead", "next")
        ]
        advice = f"{tally['advice held']} of {tally['advised']}" if tally["advised"] else "–"
        name = "together" if pair is None else ", ".join(pair)
        cells = [
            name, f"{len(some)}, {min(seeds)}–{max(seeds)}", f"{sum(line['decisions'] for line in some):,}",
            f"{answers:,}", *held, advice, str(tally["contradictions"]),
            f"{1e3 * np.median(took):.0f}, {1e3 * np.quantile(took, 0.99):.0f}",
        ]  # fmt: skip
        print(f"| {' | '.join(cells)} |", flush=True)
    causes = sum((Counter(line["causes"]) for line in lines), Counter())
    live = sum(line["tally"].get("followed in the live system", 0) for line in lines)
    print(f"causes {dict(causes)}; followed in the live system itself: {live}", flush=True)


if __name__ == "__main__":
    main()
