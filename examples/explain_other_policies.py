"""Explain policies that are not ours: a Stable-Baselines3 model on the testbed, and a rule across domains.

    python examples/explain_other_policies.py [--steps 6144] [--output FOLDER]

Prints a paragraph per decision; with ``--output`` also draws a waterfall of each. Needs ``stable-baselines3``.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

import attribution_sched.registration  # noqa: F401 (registers the environments)
from attribution_sched.cluster.demands import DEMAND_NAMES
from attribution_sched.cluster.engine_observe import DOMAIN_FEATURES, TASK_FEATURES
from attribution_sched.config.scenarios import build_scenario
from attribution_sched.explain.background import Background
from attribution_sched.explain.explainer import Explainer
from attribution_sched.explain.explanation import Explanation
from attribution_sched.explain.flat import FlatExplainer
from attribution_sched.explain.reasoning import reasoning
from attribution_sched.explain.watch import Watch
from attribution_sched.scheduler.episode import play
from attribution_sched.scheduler.rules import ShortestJobFirst

NAMES = [*DOMAIN_FEATURES, *TASK_FEATURES, *(f"attribution {name}" for name in DEMAND_NAMES)]
"""The 32 numbers of the testbed, in order."""


def explain_baseline(steps: int, seed: int = 0) -> Explanation:
    """Train a Stable-Baselines3 PPO for a moment and ask why it prefers its action to its second choice."""
    import torch
    from stable_baselines3 import PPO

    torch.set_num_threads(1)
    env = gym.make("attribution_sched/Testbed-v0")
    model = PPO("MlpPolicy", env, n_steps=1024, seed=seed, device="cpu")
    model.learn(steps)
    states = visited(model, env, 400, seed)
    x, background = states[-1], states[:-1]
    first, second = np.argsort(-log_probabilities(model, x[None])[0])[:2]

    def log_odds(obs: NDArray[np.float64]) -> NDArray[np.float64]:
        found = log_probabilities(model, obs)
        return found[:, first] - found[:, second]

    made = FlatExplainer(log_odds, background, NAMES, outputs=("log_odds",), policy="Stable-Baselines3 PPO")
    subject = f"{action_in_words(int(first))} rather than {action_in_words(int(second))}"
    return made.explain(x, decision="testbed", subject=subject, rows="standard")


def visited(model: Any, env: gym.Env[Any, Any], count: int, seed: int) -> NDArray[np.float64]:
    """States the model comes by when it acts, shape ``(count, 32)``."""
    found, done = [], True
    for step in range(count):
        if done:
            obs, _ = env.reset(seed=seed + step)
        found.append(obs)
        action, _ = model.predict(obs, deterministic=False)
        obs, _, ended, cut, _ = env.step(action)
        done = ended or cut
    return np.array(found, dtype=np.float64)


def log_probabilities(model: Any, obs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Log-probabilities of the 64 actions, shape ``(n, 64)``."""
    import torch

    with torch.no_grad():
        told = model.policy.get_distribution(torch.as_tensor(obs, dtype=torch.float32))
    logits: NDArray[np.float64] = told.distribution.logits.numpy().astype(np.float64)
    return logits


def action_in_words(action: int) -> str:
    """One of the 64 actions of the testbed."""
    device, rest = divmod(action, 16)
    precision, level = divmod(rest, 4)
    return f"GPU {device}, {('FP32', 'FP16', 'BF16', 'INT8')[precision]}, batch level {level + 1}"


def explain_rule(seed: int = 900_001) -> Explanation:
    """Watch a rule for two simulated days and ask why it placed a task where it did."""
    world = build_scenario("cross-domain", "ou30")
    policy = ShortestJobFirst()
    watch = Watch(policy, placed_only=True)
    for day in range(2):
        play(world, watch, seed + day)
    made = Explainer(policy, Background.of(watch, "two days of shortest job first"), world=world)
    return made.explain(list(watch)[20], rows=1500, precision=None, tipping=True)


def main() -> None:
    """Explain both, and draw them if asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=6144, help="decisions to train the Stable-Baselines3 model on")
    parser.add_argument("--output", type=Path, help="folder for the plots")
    args = parser.parse_args()
    for name, told in (("baseline", explain_baseline(args.steps)), ("rule", explain_rule())):
        print(f"== {name}\n{reasoning(told)}\n")
        if args.output:
            from attribution_sched.explain.plots import waterfall

            args.output.mkdir(parents=True, exist_ok=True)
            path = args.output / f"{name}.png"
            waterfall(told).figure.savefig(path, dpi=150, bbox_inches="tight")
            print(f"drawn: {path}")


if __name__ == "__main__":
    main()
