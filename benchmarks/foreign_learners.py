"""Learners of other libraries on our environments: a small budget of training, then the arena, whatever the place.

    python benchmarks/foreign_learners.py --learner maskable-ppo --steps 4096        # sb3-contrib, about two minutes
    python benchmarks/foreign_learners.py --learner rllib-levels --steps 4096        # RLlib (extra ray)
    python benchmarks/foreign_learners.py --learner rule,sjf,greedy,fcfs             # who they meet
    python benchmarks/foreign_learners.py --preset testbed --steps 1024 --trials 20  # sb3-contrib, settings drawn
    python benchmarks/foreign_learners.py --quick                                    # testbed: 340, untrained -282

``maskable-ppo`` and ``rllib`` choose one of 16 candidate plans, ``rllib-domains`` is one agent a domain (seed 001),
``rllib-levels`` an upper and a lower agent (seeds 003, 004). Each plays the same held-out episodes twice: before it has
learnt anything (``… untrained``) and after, so that what learning brought is a paired difference. Networks, batch sizes
and rates are the libraries' defaults but for what is written below; nothing was tuned. Episodes are kept in
``--output``, one JSON line each, and not played again. With ``--trials`` MaskablePPO learns so often with settings that
are drawn, each trial is scored on two days that are not held out and printed, and the best of them plays the arena.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from attribution_sched.attribution.attributor import state_of
from attribution_sched.config import load_settings
from attribution_sched.rivals.arena.play import held_out_seeds
from attribution_sched.rivals.candidate_env import CandidateEnv, SB3Policy
from attribution_sched.scheduler.episode import play
from attribution_sched.scheduler.policy import Policy
from attribution_sched.scheduler.registry import POLICIES, make_policy
from attribution_sched.stats.bootstrap import PairedBootstrap

SEED = 19_000
"""Of training; the arena's episodes are its held-out ones."""

ROLLOUT, MINIBATCH, EPOCHS = 512, 128, 6


TUNING = (19_500, 19_501)
"""Days that trials are scored on."""


def maskable_ppo(preset: str, **settings: Any) -> tuple[Policy, Callable[[int], None]]:
    """MaskablePPO of sb3-contrib as a scheduler, and how it learns."""
    from sb3_contrib import MaskablePPO

    world = load_settings(preset).build_world()
    attributor = state_of(None, world)
    env = CandidateEnv(world, attributor)
    env.reset(seed=SEED)
    given = {"n_steps": ROLLOUT, "batch_size": MINIBATCH, "n_epochs": EPOCHS} | settings
    model = MaskablePPO("MlpPolicy", env, seed=SEED, device="cpu", **given)

    def learn(steps: int) -> None:
        model.learn(steps)

    return SB3Policy(model, attributor), learn


def rllib_ppo(preset: str, game: str | None) -> tuple[Policy, Callable[[int], None]]:
    """PPO of RLlib as a scheduler, and how it learns."""
    import ray
    from ray.rllib.algorithms.ppo import PPOConfig

    from attribution_sched.cluster.envs.registration import AGENTS, PLANS, make_agents, register_rllib
    from attribution_sched.rivals.rllib import masked, trained

    if not ray.is_initialized():
        ray.init(num_cpus=1, include_dashboard=False, logging_level="error", log_to_driver=False)
    register_rllib()
    # The preset is told in the configuration: any of the names with candidate plans will do.
    name = AGENTS if game else next(iter(PLANS))
    asked = {"preset": preset} | ({"game": game, "seed": SEED} if game else {})
    config = masked(
        PPOConfig()
        .environment(name, env_config=asked)
        .env_runners(num_env_runners=0)
        .training(train_batch_size_per_learner=ROLLOUT, minibatch_size=MINIBATCH, num_epochs=EPOCHS)
        .debugging(seed=SEED, log_level="ERROR"),
        game,
    )
    algorithm = config.build_algo()

    def learn(steps: int) -> None:
        done = 0
        while done < steps:
            algorithm.train()
            done += ROLLOUT

    world = load_settings(preset).build_world()
    attributor = state_of(None, world)
    return trained(algorithm, make_agents(asked).game if game else None, attributor), learn


LEARNERS: dict[str, Callable[[str], tuple[Policy, Callable[[int], None]]]] = {
    "maskable-ppo": maskable_ppo,
    "rllib": lambda preset: rllib_ppo(preset, None),
    "rllib-domains": lambda preset: rllib_ppo(preset, "domains"),
    "rllib-levels": lambda preset: rllib_ppo(preset, "levels"),
}


def best_of(trials: int, preset: str, steps: int) -> tuple[Policy, str]:
    """MaskablePPO with the best of some settings that are drawn, each printed with its score."""
    rng, world = np.random.default_rng(SEED), load_settings(preset).build_world()
    found: list[tuple[float, Policy, str]] = []
    for trial in range(trials):
        settings = {
            "learning_rate": round(float(10 ** rng.uniform(-4.0, -2.0)), 6),
            "gamma": float(rng.choice([0.2, 0.8, 0.95, 0.99])), "gae_lambda": float(rng.choice([0.8, 0.95])),
            "ent_coef": float(rng.choice([0.0, 0.003, 0.03])), "n_epochs": int(rng.choice([3, 6, 12])),
            "n_steps": int(rng.choice([128, 256, 512])), "batch_size": int(rng.choice([32, 64, 128])),
        }  # fmt: skip
        policy, learn = maskable_ppo(preset, **settings)
        learn(steps)
        score = float(np.mean([play(world, policy, day).reward for day in TUNING]))
        told = ", ".join(f"{name} {value:g}" for name, value in settings.items())
        print(f"trial {trial:2d}: {score:10.2f}   {told}", flush=True)
        found.append((score, policy, told))
    _, policy, told = max(found, key=lambda each: each[0])
    return policy, told


def played(rows: list[dict[str, Any]], preset: str, steps: int, name: str, seed: int) -> bool:
    """Whether an episode is there already."""
    return any((r["preset"], r["steps"], r["policy"], r["seed"]) == (preset, steps, name, seed) for r in rows)


def table(rows: list[dict[str, Any]], preset: str) -> str:
    """Mean return a day by policy, and what learning brought, over the episodes that all have played."""
    by: dict[str, dict[int, float]] = {}
    for row in rows:
        if row["preset"] == preset:
            label = row["policy"] + (f" ({row['steps']} steps)" if row["steps"] else "")
            by.setdefault(label, {})[row["seed"]] = row["reward"]
    if not by:
        return f"{preset}: nothing played yet"
    seeds = sorted(set.intersection(*(set(runs) for runs in by.values())))
    draws = PairedBootstrap(len(seeds), 0)
    lines = [f"{preset}, {len(seeds)} held-out episodes"]
    for name in sorted(by, key=lambda each: -float(np.mean([by[each][s] for s in seeds]))):
        line = f"  {name:36}{np.mean([by[name][s] for s in seeds]):10.2f}"
        before = name.split(" (")[0] + " untrained"
        if before in by and name != before:
            gap = np.array([by[name][s] - by[before][s] for s in seeds])
            told = draws.estimate(draws.means(gap))
            line += f"   learning brought {told.value:+.2f} [{told.low:+.2f}, {told.high:+.2f}]"
        lines.append(line)
    return "\n".join(lines)


def main() -> None:
    """Train who is named, let all play what they have not played, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--learner", default="", help=f"of {', '.join(LEARNERS)}, or policies of the registry")
    parser.add_argument("--preset", default="cross-domain")
    parser.add_argument("--steps", type=int, default=4096)
    parser.add_argument("--episodes", type=int, default=12)
    parser.add_argument("--output", default="arena/foreign_learners.jsonl")
    parser.add_argument("--trials", type=int, default=0)
    parser.add_argument("--quick", action="store_true")
    asked = parser.parse_args()
    if asked.quick:
        asked.learner, asked.preset, asked.steps, asked.episodes = "maskable-ppo,sjf", "testbed", 512, 2
        asked.output = ""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    path = Path(asked.output) if asked.output else None
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path is not None and path.exists() else []
    world, seeds = load_settings(asked.preset).build_world(), held_out_seeds(asked.episodes, 0)

    def arena(name: str, policy: Policy, steps: int) -> None:
        for seed in seeds:
            if not played(rows, asked.preset, steps, name, seed):
                summary = play(world, policy, seed)
                row = {"policy": name, "preset": asked.preset, "steps": steps, "seed": seed,
                       "reward": round(summary.reward, 6), "completed": summary.completed,
                       "refused_plans": summary.refused_plans}  # fmt: skip
                rows.append(row)
                if path is not None:
                    with path.open("a") as file:
                        file.write(json.dumps(row) + "\n")

    if asked.trials:
        policy, told = best_of(asked.trials, asked.preset, asked.steps)
        print(f"best: {told}")
        arena(f"maskable-ppo, best of {asked.trials}", policy, asked.steps)
    for name in filter(None, asked.learner.split(",")):
        if name in POLICIES:
            arena(name, make_policy(name), 0)
            continue
        policy, learn = LEARNERS[name](asked.preset)
        arena(f"{name} untrained", policy, 0)
        began = time.process_time()
        learn(asked.steps)
        print(f"{name}: {asked.steps} steps in {time.process_time() - began:.0f} s of one core")
        arena(name, policy, asked.steps)
    print(table(rows, asked.preset))


if __name__ == "__main__":
    main()
