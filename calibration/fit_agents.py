"""Let Hi-PPO's agents learn on whole days of several worlds, and put what they learnt into its weights.

Everything else of the weights stays as it is, bit by bit. Run from the repository root, about ten minutes of one
core; it goes on from where it was stopped::

    python calibration/fit_agents.py --state runs/agents.npz
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np

from attribution_sched.scheduler.hi_ppo.checkpoint import SHIPPED, describe, load, save
from attribution_sched.scheduler.hi_ppo.hi_ppo import HELD_OUT, Round, learn
from attribution_sched.scheduler.hi_ppo.policy_search import Days, Search
from attribution_sched.scheduler.hi_ppo.training_worlds import training_world

WORLDS = "ou30:90,burst:45,load+20:24,domains-8:10,mixed:60,testbed:45"
FIELDS = ("mean", "covariance", "path", "step_path", "step", "groups")


def main() -> None:
    """Learn, write."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--weights", type=Path, default=SHIPPED, help="checkpoint to start from")
    asked.add_argument("--output", type=Path, default=None, help="where to write it; the same file by default")
    asked.add_argument("--worlds", default=WORLDS, help="scenarios of cross-domain, or presets, and days per group")
    asked.add_argument("--groups", type=int, default=90)
    asked.add_argument("--seed", type=int, default=0)
    asked.add_argument("--state", type=Path, default=None, help="file to stop in and to go on from")
    given = asked.parse_args()
    network, about = load(given.weights), describe(given.weights)
    wanted = dict(one.rsplit(":", 1) for one in given.worlds.split(","))
    days = {name: Days(training_world(name), int(count), network) for name, count in wanted.items()}
    search, rounds, began = None, [], time.process_time()
    if given.state is not None and given.state.is_file():
        with np.load(given.state) as held:
            arrays = [held[name] for name in FIELDS[:4]]
            search = Search(*arrays, step=float(held["step"]), groups=int(held["groups"]))

    def told(one: Round, now: Search) -> None:
        row = {"groups": one.groups, "kept": one.kept, "gains": {k: asdict(g) for k, g in one.gains.items()}}
        rounds.append(row)
        print(json.dumps({**row, "cpu_s": round(time.process_time() - began, 1)}), flush=True)
        if given.state is not None:
            np.savez(given.state, **{name: np.asarray(getattr(now, name)) for name in FIELDS})

    network.set_agents(learn(days, given.groups, seed=given.seed, search=search, told=told))
    found = {"worlds": wanted, "seed": given.seed, "held_out_seed": HELD_OUT, "rounds": rounds}
    save(given.output or given.weights, network, {**about, "agents": found})


if __name__ == "__main__":
    main()
