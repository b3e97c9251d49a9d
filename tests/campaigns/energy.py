"""Random worlds under random policies: the joules of tasks and idle devices are those of the meters.

``python -m tests.campaigns.energy --worlds 500`` counts. Domains, GPUs, kinds, arrivals, network, incidents and the
policy are drawn; after each world energy is conserved to 1e-9 of the meter, time never went back, nothing is NaN.
"""

from __future__ import annotations

import argparse
import random
import sys
from typing import Any
from unittest import mock

import numpy as np

from attribution_sched import System
from attribution_sched.cluster.gpus import GPUS
from attribution_sched.config import load_settings
from attribution_sched.errors import AttributionSchedError
from attribution_sched.system import system as system_module

RELATIVE = 1e-9
FRUITLESS = 30
"""Decisions without a placement after which a world has been lived in long enough."""

PIECE = 50
"""Worlds of one seed."""

MODELS = ("bert-base", "bert-large", "gpt2-small", "resnet-50", "vit-l-16", "llama-2-7b", "gpt3-13b")
POLICIES = (
    "fcfs", "sjf", "greedy", "round-robin", "least-loaded", "greedy-bandwidth", "speed-proportional", "mast", "packing",
    "matching",
)  # fmt: skip


def draw(chance: random.Random) -> dict[str, Any]:
    """Settings of a random world."""
    count = chance.randint(1, 5)
    names = [f"d{number}" for number in range(count)]
    domains = [
        {
            "name": name, "gpu": chance.choice(sorted(GPUS)), "devices": chance.choice([1, 2, 4, 8, 16]),
            "node_devices": chance.choice([1, 2, 4]), "carbon_g_per_kwh": chance.uniform(0.0, 900.0),
        }
        for name in names
    ]  # fmt: skip
    for domain in domains:
        domain["node_devices"] = min(int(domain["node_devices"]), int(domain["devices"]))
    kinds = []
    for model in chance.sample(MODELS, chance.randint(1, 4)):
        steps = chance.randint(1, 800)
        kinds.append({
            "model": model, "batch_size": 32, "microbatches": [4, 8, 16, 32], "steps": [steps, steps * 3],
            "epoch_steps": chance.randint(1, 600), "training": chance.random() < 0.7, "priority": chance.randint(0, 2),
        })  # fmt: skip
    arrivals = {"kind": "poisson", "rate_per_hour": 10.0 ** chance.uniform(0.5, 3.0)}
    if chance.random() < 0.4:
        arrivals |= {"kind": "diurnal", "amplitude": chance.random(), "peak_hour": chance.uniform(0.0, 23.0)}
    incidents: list[dict[str, Any]] = []
    for _ in range(chance.randint(0, 2) if count > 1 else 0):
        start_h = chance.uniform(0.0, 0.5)
        span = {"start_h": start_h, "end_h": start_h + chance.uniform(0.01, 0.5)}
        if chance.random() < 0.5:
            lost = chance.choice(names)
            # A domain that is gone is not lost again.
            if all(each.get("domain") != lost for each in incidents):
                incidents.append({"kind": "domain_loss", "domain": lost, **span})
        else:
            one, other = chance.sample(names, 2)
            incidents.append(
                {"kind": "link_cut", "source": one, "target": other, "factor": chance.uniform(0.01, 1.0), **span}
            )
    links = {"kind": "uniform", "gbps": 10.0 ** chance.uniform(-1.0, 2.0), "latency_s": chance.uniform(0.0, 0.3),
             "usd_per_gb": chance.uniform(0.0, 0.2)}  # fmt: skip
    found: dict[str, Any] = {
        "name": "random", "domains": domains, "kinds": kinds, "arrivals": arrivals, "incidents": incidents,
        "network": {"links": links, "motion": {"spread": chance.uniform(0.0, 0.3), "congestion": chance.random() / 2}},
        "episode": {
            "horizon_s": 3600.0, "max_segments": min(count, 3), "max_running": chance.randint(1, 12),
            "queue_capacity": chance.randint(1, 12), "pool_size": 32, "retry_s": chance.uniform(10.0, 600.0),
            "share_limit": chance.choice([1, 2]),
        },
    }  # fmt: skip
    return found


def live(settings: Any, policy: str, seed: int, decisions: int) -> str:
    """Let a policy decide in a world; what is wrong with what came of it (nothing: empty)."""
    # No decision of this campaign asks for an attribution: fitting one would be most of its time.
    system = System(settings, policy, seed=seed, attributor=lambda counters: np.zeros((len(counters), 7)))
    last_s = 0.0
    for _ in range(decisions):
        # A world whose queue holds only what never fits would otherwise be asked a thousand times for each placement.
        with mock.patch.object(system_module, "PATIENCE", FRUITLESS):
            result = system.schedule_next_task()
        if result is None or result.note:
            break
        if system.now_s < last_s:
            return f"time went back from {last_s} to {system.now_s}"
        last_s = system.now_s
    totals = system.cluster.totals()
    for name, value in totals.items():
        if not np.isfinite(value):
            return f"{name} is {value}"
    for decision, outcome in system.journal.entries():
        if outcome is not None and not np.isfinite([outcome.reward, outcome.step_s, outcome.energy_j]).all():
            return f"{decision.id} came to {outcome}"
    state = system.cluster.engine.state
    for name in state._fields:
        array = getattr(state, name)
        if array.dtype.kind == "f" and np.isnan(array).any():
            return f"the cluster's {name} has NaN"
    gap = abs(totals["task_j"] + totals["idle_j"] - totals["meter_j"])
    if gap > RELATIVE * max(totals["meter_j"], 1e-300):
        tasks_j, idle_j, meter_j = (totals[name] for name in ("task_j", "idle_j", "meter_j"))
        return f"tasks {tasks_j} J and idle devices {idle_j} J are not the meter's {meter_j} J"
    return ""


def campaign(worlds: int, seed: int = 0, decisions: int = 25) -> tuple[int, int, list[str]]:
    """So many random worlds: how many were lived in, how many refused by a clear error, and what went wrong."""
    chance, refused, wrong = random.Random(seed), 0, []
    for number in range(worlds):
        settings, policy = draw(chance), chance.choice(POLICIES)
        try:
            load_settings(settings).build_world()
        except AttributionSchedError:
            refused += 1
            continue
        problem = live(settings, policy, number, decisions)
        if problem:
            wrong.append(f"world {number} of seed {seed}, {policy}: {problem}")
    return worlds - refused, refused, wrong


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worlds", type=int, default=500)
    parser.add_argument("--decisions", type=int, default=25)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    lived, refused, wrong = 0, 0, list[str]()
    # In pieces, each with a seed of its own: what was found by then is told if it is stopped.
    for piece, first in enumerate(range(0, chosen.worlds, PIECE)):
        more = campaign(min(PIECE, chosen.worlds - first), chosen.seed + piece, chosen.decisions)
        lived, refused, wrong = lived + more[0], refused + more[1], wrong + more[2]
        sys.stdout.write("".join(f"{each}\n" for each in more[2][:20]))
        told = f"{lived} worlds lived in, {refused} refused by a clear error"
        sys.stdout.write(f"{told}, {len(wrong)} wrong\n")
        sys.stdout.flush()
    sys.stdout.write(f"energy: {told}, {len(wrong)} wrong\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
