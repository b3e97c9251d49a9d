"""Fit the critics of plans to rollouts with inputs replaced, and put them into the weights of Hi-PPO.

Everything else of the weights stays as it is, bit by bit, and no decision depends on these. Run from the repository
root, about eleven minutes of one core::

    python calibration/fit_returns.py

``benchmarks/explain_returns.py`` measures on other days what it is good for.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from attribution_sched.config.scenarios import build_scenario
from attribution_sched.scheduler.hi_ppo.checkpoint import SHIPPED, describe, load, save
from research.returns_fit import fit_returns
from research.returns_truth import roll_out


def main() -> None:
    """Roll out, fit, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", type=Path, default=SHIPPED, help="checkpoint to start from")
    parser.add_argument("--output", type=Path, default=None, help="where to write it; the same file by default")
    parser.add_argument("--scenario", default="ou30", help="scenario of the cross-domain preset")
    parser.add_argument(
        "--seeds", type=int, nargs="+", default=list(range(950_000, 960_000, 1_000)), help="a set of days each"
    )
    parser.add_argument("--decisions", type=int, default=96, help="decisions of each set")
    parser.add_argument("--states", type=int, default=4, help="background states per decision")
    parser.add_argument("--steps", type=int, default=100, help="decisions per rollout")
    parser.add_argument("--epochs", type=int, default=24)
    chosen = parser.parse_args()
    network, about = load(chosen.weights), describe(chosen.weights)
    world = build_scenario("cross-domain", chosen.scenario)
    began = time.process_time()
    rolled = [roll_out(network, world, chosen.decisions, chosen.states, chosen.steps, seed) for seed in chosen.seeds]
    fitted = fit_returns(network, rolled, chosen.epochs)
    found = {**fitted.to_json(), "scenario": chosen.scenario, "seeds": chosen.seeds, "steps": chosen.steps}
    save(chosen.output or chosen.weights, network, {**about, "returns": found})
    print(json.dumps({**found, "cpu_s": round(time.process_time() - began, 1)}, indent=2))


if __name__ == "__main__":
    main()
