"""Fit what attributions say of a task's demands, and put it into the weights of Hi-PPO.

Everything else of the weights stays as it is, bit by bit. Run from the repository root, about a minute::

    python calibration/fit_appraisal.py
    python calibration/fit_appraisal.py --weights runs/first/best.safetensors --output fitted.safetensors

Prints how well demands of tasks that were not learnt from are known, and how near expected reward terms come to those
that engines pay, beside the cost model alone.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from attribution_sched.config import load_settings
from attribution_sched.scheduler.hi_ppo.checkpoint import SHIPPED, describe, load, save
from attribution_sched.scheduler.hi_ppo.demand_head import fit_reward_terms
from research.appraisal_measure import measure_reward_terms


def main() -> None:
    """Fit, measure, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", type=Path, default=SHIPPED, help="checkpoint to start from")
    parser.add_argument("--output", type=Path, default=None, help="where to write it; the same file by default")
    parser.add_argument("--presets", nargs="+", default=["cross-domain", "large"], help="worlds whose tasks are learnt")
    parser.add_argument("--tasks", type=int, default=300_000, help="simulated tasks to learn from")
    parser.add_argument("--epochs", type=int, default=40, help="rounds over them")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--decisions", type=int, default=1500, help="placements to measure on; 0 measures none")
    chosen = parser.parse_args()
    network, about = load(chosen.weights), describe(chosen.weights)
    worlds = [load_settings(name).build_world() for name in chosen.presets]
    began = time.process_time()
    fitted = fit_reward_terms(network, worlds, chosen.tasks, chosen.seed, chosen.epochs)
    found = {"fit": fitted.to_json(), "cpu_s": round(time.process_time() - began, 1)}
    if chosen.decisions:
        found["terms"] = measure_reward_terms(network, worlds[0], chosen.decisions).to_json()
    save(chosen.output or chosen.weights, network, {**about, "demands": {**found["fit"], "presets": chosen.presets}})
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
