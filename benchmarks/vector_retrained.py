"""What the EmSHAP vector is worth to agents that learn with it, without it, or with raw counters in its place.

    python benchmarks/vector_retrained.py testbed ou30 cross-domain --runs retrained.jsonl
    python benchmarks/vector_retrained.py --runs retrained.jsonl --table

Every arm learns from the rule's numbers with the same short budget (``--groups`` groups of 20 on ``--days`` days, the
same days and draws for all arms of a seed), and is judged by whole held-out days with its own senses. Pace is told in
every arm; nothing is thought (compiled days). Arms: the vector; no vector; raw counters in its place; the vector of a
machine that cannot read the operators' counters (EmSHAP's estimate with its interval) and raw counters of the same
machine (the mean in the place of what is unread). Looks during learning are the sample efficiency. ``--draws`` fits
beliefs to so many profiled tasks of every kind instead of 512: what few measurements leave of each arm. Numbers learnt
on one GPU are also played on another that no arm has met (``--elsewhere``). ``zeroed`` is the first arm's numbers with
the vector zeroed at deployment. ``--groups 0`` learns nothing and plays the shipped numbers with every arm's senses,
paired by day. Finished searches are lines of ``--runs`` and not repeated; 95 % over seeds.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from fork_gain import world_of as fork_world
from hi_ppo_pareto import mean_return
from hi_ppo_presets import of_gpus, played
from vector_worth import OPERATORS, PartlyRead, raw_counters

from attribution_sched.attribution.attributor import as_attributor
from attribution_sched.attribution.vector import state_vectors
from attribution_sched.cluster.counters import COUNTER_NAMES
from attribution_sched.cluster.demands import DEMAND_NAMES
from attribution_sched.cluster.fork import Belief
from attribution_sched.cluster.world import World
from attribution_sched.scheduler import beliefs as believing
from attribution_sched.scheduler.beliefs import AttributionBeliefs
from attribution_sched.scheduler.hi_ppo.checkpoint import Weights, load
from attribution_sched.scheduler.hi_ppo.policy_search import Days, Search, next_group
from attribution_sched.types import FloatArray

ARMS = ("vector", "no vector", "raw counters", "unread: EmSHAP", "unread: raw mean")
GROUP = 20
HELD_OUT = 7_100_000
ELSEWHERE = {"ou30": ("H100-80", 8), "testbed": ("V100-16", 4), "cross-domain": ("H100-80", 8)}
"""A GPU and devices a domain that nothing has learnt on."""

Row = dict[str, Any]


def arm_beliefs(world: World, pool: Any, weights: Weights, arms: tuple[str, ...], draws: int) -> dict[str, Belief]:
    """Arm → what is believed of the tasks of a pool, beliefs fitted to so many tasks of every kind."""
    known, believing.DRAWS = believing.DRAWS, draws
    raw = raw_counters(pool.counters.values)
    unread = [COUNTER_NAMES.index(name) for name in OPERATORS]

    def raw_partly(counters: FloatArray) -> FloatArray:
        found = raw(counters)
        found[:, unread] = 0.0
        return found

    def of(fitted: AttributionBeliefs, attribute: Any) -> Belief:
        seen = pool.attributed(attribute)
        return fitted.of([seen.task(row, world.kinds) for row in range(len(pool))])

    states = state_vectors(weights.attributions, DEMAND_NAMES)
    made: dict[str, Belief] = {}
    try:
        vector, counted = AttributionBeliefs(world, weights.attributions), AttributionBeliefs(world, raw)
        for arm in (*arms, "zeroed"):
            if arm == "vector":
                made[arm] = of(vector, states)
            elif arm == "zeroed":
                made[arm] = of(vector, state_vectors(lambda c: np.zeros((len(c), 7)), DEMAND_NAMES))
            elif arm == "no vector":
                made[arm] = of(AttributionBeliefs(world, weights.attributions, attributions=False), states)
            elif arm == "raw counters":
                made[arm] = of(counted, state_vectors(raw, DEMAND_NAMES))
            elif arm == "unread: EmSHAP":
                partly = PartlyRead(as_attributor(None, world).fitted)  # type: ignore[attr-defined]
                made[arm] = of(vector, partly.vector)
            else:
                made[arm] = of(counted, state_vectors(raw_partly, DEMAND_NAMES))
    finally:
        believing.DRAWS = known
    return made


def searched(given: argparse.Namespace, name: str, rows: list[Row], began: float) -> None:
    """Let every arm learn in one world and judge it, seed by seed."""
    world, weights = fork_world(name), load()
    learning, judged = Days(world, given.days, weights), Days(world, given.held_out, weights)
    gpu, devices = ELSEWHERE[name]
    abroad = Days(of_gpus(world, gpu, devices), given.held_out, weights) if given.elsewhere else None
    beliefs = arm_beliefs(world, learning.engine.pool, weights, given.arms, given.draws)
    rule = {"here": judged.returns(None, HELD_OUT)}
    if abroad is not None:
        rule["abroad"] = abroad.returns(None, HELD_OUT)
    done = {(row["world"], row["arm"], row["seed"], row["draws"]) for row in rows}
    for seed in range(given.seeds):
        for arm in given.arms:
            if (name, arm, seed, given.draws) in done or (time.process_time() - began) / 60.0 > given.minutes:
                continue
            learning.believe(beliefs[arm])
            judged.believe(beliefs[arm])
            search, looks, since = Search.begun(), list[tuple[int, float]](), time.process_time()
            for group in range(given.groups):
                days = 7_000_000 + 10_000 * seed + group * given.days
                search = next_group(search, partial(mean_return, learning, days), GROUP, seed)
                if group + 1 in (1, 2, 4, 8, 16):
                    gain = judged.returns(search.theta, HELD_OUT) - rule["here"]
                    looks.append((group + 1, float(gain.mean())))
            row: Row = {"world": name, "arm": arm, "seed": seed, "draws": given.draws, "looks": looks}
            row["gain"] = float((judged.returns(search.theta, HELD_OUT) - rule["here"]).mean())
            if arm == "vector":
                judged.believe(beliefs["zeroed"])
                row["zeroed"] = float((judged.returns(search.theta, HELD_OUT) - rule["here"]).mean())
            if abroad is not None:
                abroad.believe(beliefs[arm])
                row["abroad"] = float((abroad.returns(search.theta, HELD_OUT) - rule["abroad"]).mean())
            row |= {"groups": given.groups, "days": given.days, "cpu_s": time.process_time() - since}
            rows.append(row)
            with given.runs.open("a") as file:
                file.write(json.dumps(row) + "\n")


def as_shipped(given: argparse.Namespace, name: str) -> str:
    """The shipped numbers with each arm's senses on the held-out days, paired by day."""
    world, weights = replace(fork_world(name), pool_seed=given.pool), load()
    judged = Days(world, given.held_out, weights)
    beliefs = arm_beliefs(world, judged.engine.pool, weights, given.arms, given.draws)
    rule, own = judged.returns(None, given.first), np.zeros(given.held_out)
    lines = [f"`{name}`, {given.held_out} days, shipped numbers, beliefs from {given.draws} tasks a kind", ""]
    lines += ["| arm | over `rule` | over the vector |", "|---|---|---|"]
    for arm in given.arms:
        judged.believe(beliefs[arm])
        returns = judged.returns(weights.theta, given.first)
        own = returns if arm == "vector" else own
        gaps = [
            f"{x.mean():+.2f} ± {1.96 * x.std(ddof=1) / np.sqrt(len(x)):.2f}" for x in (returns - rule, returns - own)
        ]
        lines.append(f"| {arm} | {gaps[0]} | {gaps[1]} |")
    return "\n".join(lines)


def _mean(values: list[float]) -> str:
    found = np.array(values)
    half = 2.776 * found.std(ddof=1) / np.sqrt(len(found)) if len(found) > 1 else np.nan
    return f"{found.mean():+.2f} ± {half:.2f}"


def table(rows: list[Row]) -> str:
    """Per world: gain over the rule, over the first arm (paired by seed), at the looks, and on the other GPU."""
    lines: list[str] = []
    for world, draws in dict.fromkeys((row["world"], row["draws"]) for row in rows):
        here = [row for row in rows if (row["world"], row["draws"]) == (world, draws)]
        first = {row["seed"]: row for row in here if row["arm"] == "vector"}
        at = ", ".join(str(group) for group, _ in here[0]["looks"])
        gpu, devices = ELSEWHERE[world]
        budget = f"{here[0]['groups']} groups of {GROUP} on {here[0]['days']} days"
        lines += ["", f"`{world}`, {len(first)} seeds, {budget}, beliefs from {draws} tasks a kind", ""]
        lines += [
            f"| arm | over `rule` | over the vector | after {at} groups, over it | on {devices} × {gpu}; over it |"
        ]
        lines += ["|---|---|---|---|---|"]
        for arm in dict.fromkeys(row["arm"] for row in here):
            mine = [row for row in here if row["arm"] == arm and row["seed"] in first]
            base = [first[row["seed"]] for row in mine]
            apart = [row["gain"] - own["gain"] for row, own in zip(mine, base, strict=True)]
            looks = [
                _mean([row["looks"][at][1] - (own["looks"][at][1] if arm != "vector" else 0.0)
                       for row, own in zip(mine, base, strict=True)])
                for at in range(len(mine[0]["looks"]))
            ]  # fmt: skip
            cells = [_mean([row["gain"] for row in mine]), "" if arm == "vector" else _mean(apart), ", ".join(looks)]
            if "abroad" in mine[0]:
                gap = [row["abroad"] - own["abroad"] for row, own in zip(mine, base, strict=True)]
                cells.append(_mean([row["abroad"] for row in mine]) + ("" if arm == "vector" else f"; {_mean(gap)}"))
            lines.append(f"| {arm} | {' | '.join(cells)} |")
            if arm == "vector":
                zeroed, paired = [row["zeroed"] for row in mine], [row["zeroed"] - row["gain"] for row in mine]
                lines.append(f"| the same numbers, zeroed at deployment | {_mean(zeroed)} | {_mean(paired)} | | |")
    return "\n".join(lines)


def main() -> None:
    """Learn what is missing and print the tables."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("worlds", nargs="*", default=["testbed"])
    asked.add_argument("--runs", type=Path, default=Path("retrained.jsonl"))
    asked.add_argument("--seeds", type=int, default=5)
    asked.add_argument("--groups", type=int, default=8)
    asked.add_argument("--days", type=int, default=24)
    asked.add_argument("--held-out", type=int, default=120)
    asked.add_argument("--draws", type=int, default=512)
    asked.add_argument("--arms", type=lambda text: tuple(text.split(",")), default=ARMS[:3])
    asked.add_argument("--elsewhere", action="store_true")
    asked.add_argument("--minutes", type=float, default=12.0, help="begin no further search after so many CPU minutes")
    asked.add_argument("--first", type=int, default=HELD_OUT, help="with --groups 0: first day")
    asked.add_argument("--pool", type=int, default=0, help="with --groups 0: seed of the tasks")
    asked.add_argument("--table", action="store_true")
    given = asked.parse_args()
    rows, began = played(given.runs), time.process_time()
    if given.groups == 0:
        print("\n\n".join(as_shipped(given, name) for name in given.worlds))
        return
    for name in () if given.table else given.worlds:
        searched(given, name, rows, began)
    print(table(rows))


if __name__ == "__main__":
    main()
