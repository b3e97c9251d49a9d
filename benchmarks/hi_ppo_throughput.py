"""How fast Hi-PPO learns: decisions, agent steps and choices per CPU-second of one core, collecting and updating.

    python benchmarks/hi_ppo_throughput.py

An agent step is one act of an agent: the upper agent acts once per decision, a lower agent once per segment it lays
out. A choice is one draw from a head (task, domain, cut, layout, format, level) that had more than one option.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import time

import torch

from attribution_sched.config.scenarios import build_scenario
from attribution_sched.kernels import one_thread
from attribution_sched.scheduler.hi_ppo.checkpoint import SHIPPED, load
from attribution_sched.scheduler.hi_ppo.cluster_batch import ClusterBatch
from attribution_sched.scheduler.hi_ppo.constraints import Multipliers
from attribution_sched.scheduler.hi_ppo.rollout import collect
from attribution_sched.scheduler.hi_ppo.teachers import ShortestFirst
from attribution_sched.scheduler.hi_ppo.trainer import LIMITS, HiPpoSettings, learn
from attribution_sched.scheduler.ppo.settings import PpoSettings


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clusters", type=int, default=256)
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--weights", default=str(SHIPPED))
    options = parser.parse_args()
    network = load(options.weights).train()
    generator = torch.Generator().manual_seed(0)
    prices = Multipliers.start(tuple(LIMITS))
    print(
        "scenario     passes | us per decision: simulator  collect   learn | per CPU-s: decisions  agent steps  choices"
    )
    for scenario in ("ou30", "domains-8"):
        field = ClusterBatch(build_scenario("cross-domain", scenario), options.clusters, 0, network.attributions)
        with one_thread():
            teacher = ShortestFirst()
            for _ in range(40):
                field.step(teacher)
            began = time.process_time()
            for _ in range(options.steps):
                field.step(teacher)
            decisions = options.clusters * options.steps
            ruled = 1e6 * (time.process_time() - began) / decisions
            collect(network, field, 2, generator, 0.99, 0.9, 0.02, prices)
            began = time.process_time()
            told = collect(network, field, options.steps, generator, 0.99, 0.9, 0.02, prices)
            seen = 1e6 * (time.process_time() - began) / decisions
            choices = decisions + sum(len(steps.taken) for steps in told.trace.steps.values())
            for passes in (1, 3):
                settings = HiPpoSettings(
                    PpoSettings(lr=1e-6, update_epochs=passes, minibatch_size=1024, num_steps=decisions, target_kl=None)
                )
                optimiser = torch.optim.Adam(network.parameters(), lr=1e-6, eps=1e-5, fused=True)  # the trainer's
                learn(network, [told], optimiser, settings, generator)
                began = time.process_time()
                learn(network, [told], optimiser, settings, generator)
                learnt = 1e6 * (time.process_time() - began) / decisions
                rate = 1e6 / (seen + learnt)
                print(
                    f"{scenario:12s} {passes:6d} | {ruled:27.0f} {seen:8.0f} {learnt:7.0f} | {rate:20,.0f} "
                    f"{rate * told.agents / decisions:12,.0f} {rate * choices / decisions:8,.0f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
