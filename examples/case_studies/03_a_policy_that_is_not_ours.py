# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Explaining a policy that is not ours
#
# Whatever decides can be explained: a rule, a plain function, a model of another library. Two of them here.
#
# 1. *Shortest job first*, a rule, places tasks over four cloud regions. Its source is known, so the explanation can be
#    held against it: what the rule never reads must have a share of exactly 0.
# 2. A *Stable-Baselines3* PPO decides on the 4-GPU testbed. Nobody knows why it does what it does; so it is blindfolded
#    to its strongest driver, and the explanation must notice.
#
# Needs the extra `baselines` for the second part.

# %%
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from matplotlib import pyplot as plt
from numpy.typing import NDArray
from stable_baselines3 import PPO
from telling import COLOURS, say, show, table

from attribution_sched import (
    Background,
    Explainer,
    Explanation,
    cluster,
    config,
    explain,
    make_policy,
    play,
    plots,
    registration,
)

torch.set_num_threads(1)

# %% [markdown]
# ## A rule
#
# `Watch` stands in the place of a policy, lets it decide, and remembers. Two simulated days of decisions serve as each
# other's background.

# %%
world = config.build_scenario("cross-domain-easy", "ou30")
rule = make_policy("sjf")
watch = explain.Watch(rule, placed_only=True)
for seed in (900_001, 900_002):
    play(world, watch, seed)
decided = list(watch)[20]
domains = [domain.name for domain in world.cluster.domains]
say(
    f"{len(watch)} placements were watched. The one explained: {decided.view.kind.model.name} on "
    f"**{explain.describe_plan(decided.plan, domains)}**, with {', '.join(map(str, decided.view.free_devices))} "
    "devices free in the four regions."
)

# %% [markdown]
# A rule has no critics and no probabilities, so the question is the plainest there is: does it make this choice, yes or
# no? Shares tell what made it, thresholds tell when it would have chosen otherwise.

# %%
explainer = Explainer(rule, Background.of(watch, "two days of shortest job first"), world=world)
chose = explainer.explain(decided, target="choice", rows=1500, precision=None, tipping=True)
plots.waterfall(chose)
show(chose)

# %%
plots.counterfactual(chose)
say("\n".join(
    f"- It chooses this while {one.quantity} ({one.player}) stays {one.side} {one.threshold:g} {one.unit}; it was "
    f"{one.value:g}." for one in chose.rules
) or "No single quantity flips the choice.")  # fmt: skip

# %% [markdown]
# The rule itself says: take the shortest waiting task, and the best free layout inside one region. It reads how many
# devices are free, and nothing about links, attributions, the hour or the weights.

# %%
read = {player.name: float(share) for player, share in zip(chose.players, chose.values[:, 0], strict=True)}
groups: dict[str, float] = {}
for player in chose.players:
    groups[player.group] = groups.get(player.group, 0.0) + abs(read[player.name])
table({"inputs": name, "sum of sizes of their shares": f"{size:.3f}"} for name, size in groups.items())

# %% [markdown]
# ## A Stable-Baselines3 model
#
# A PPO of Stable-Baselines3 learns on the registered environment for a moment (this is not about how good it gets). Its
# two favourite actions are compared where it is surest of the first: what is special about that state?

# %%
NAMES = [
    *cluster.DOMAIN_FEATURES,
    *cluster.TASK_FEATURES,
    *(f"attribution {name}" for name in cluster.DEMAND_NAMES),
]
TRAIN_STEPS, STATES, SEED = 6144, 400, 0


def visited(model: Any, env: gym.Env[Any, Any]) -> NDArray[np.float64]:
    """States the model comes by when it acts, shape ``(STATES, 32)``."""
    found, done = [], True
    for step in range(STATES):
        if done:
            obs, _ = env.reset(seed=SEED + step)
        found.append(obs)
        action, _ = model.predict(obs, deterministic=False)
        obs, _, ended, cut, _ = env.step(action)
        done = ended or cut
    return np.array(found, dtype=np.float64)


def log_probabilities(model: Any, obs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Log-probabilities of the 64 actions, shape ``(n, 64)``."""
    with torch.no_grad():
        told = model.policy.get_distribution(torch.as_tensor(obs, dtype=torch.float32))
    return told.distribution.logits.numpy().astype(np.float64)


def in_words(action: int) -> str:
    """One of the 64 actions of the testbed."""
    device, rest = divmod(action, 16)
    precision, level = divmod(rest, 4)
    return f"GPU {device}, {('FP32', 'FP16', 'BF16', 'INT8')[precision]}, batch level {level + 1}"


gym.register_envs(registration)  # importing it has registered them; this says so
env = gym.make("attribution_sched/Testbed-v0")
model = PPO("MlpPolicy", env, n_steps=1024, learning_rate=2e-3, seed=SEED, device="cpu")
model.learn(TRAIN_STEPS)
states = visited(model, env)
habits = log_probabilities(model, states)
first, second = (int(action) for action in np.argsort(-habits.mean(axis=0))[:2])
surest = int(np.argmax(habits[:, first] - habits[:, second]))
state, others = states[surest], np.delete(states, surest, axis=0)


def log_odds(obs: NDArray[np.float64]) -> NDArray[np.float64]:
    """First favourite against second."""
    found = log_probabilities(model, obs)
    return found[:, first] - found[:, second]


def preference() -> Explanation:
    """Why the first rather than the second."""
    made = explain.FlatExplainer(log_odds, others, NAMES, outputs=("log_odds",), policy="Stable-Baselines3 PPO")
    subject = f"{in_words(first)} rather than {in_words(second)}"
    return made.explain(state, decision="testbed", subject=subject, rows="standard")


preferred = preference()
plots.waterfall(preferred)
show(preferred)

# %% [markdown]
# Is that true of the model? Inputs are put back to the background, one by one: strongest first, and weakest first. If
# the shares mean anything, the first curve falls to the usual level long before the second.

# %%
order = np.argsort(-np.abs(preferred.values[:, 0]))


def emptied(sequence: NDArray[np.int64]) -> NDArray[np.float64]:
    """Mean log-odds with the first k inputs of the sequence from other states, for every k."""
    curve = []
    for k in range(len(sequence) + 1):
        mixed = np.tile(state, (len(others), 1))
        mixed[:, sequence[:k]] = others[:, sequence[:k]]
        curve.append(log_odds(mixed).mean())
    return np.array(curve)


strongest, weakest = emptied(order), emptied(order[::-1])
fig, ax = plt.subplots(figsize=(7.0, 3.2), layout="constrained")
ax.plot(strongest, color=COLOURS[0], marker=".", label="strongest first")
ax.plot(weakest, color=COLOURS[1], marker=".", label="weakest first")
ax.axhline(strongest[-1], color="#999999", linewidth=0.8, linestyle=":")
ax.set(xlabel="inputs put back to the background", ylabel="mean log-odds")
ax.spines[["top", "right"]].set_visible(False)
ax.legend(frameon=False)
plt.show()

# %% [markdown]
# ## The blindfold
#
# The weights that read the strongest driver are set to 0: the model cannot see it any more. Asked again, the
# explanation must give it nothing.

# %%
driver = int(order[0])
seen_before = float(preferred.values[driver, 0])
with torch.no_grad():
    model.policy.mlp_extractor.policy_net[0].weight[:, driver] = 0.0
blind = preference()
say(
    f"**{NAMES[driver]}** had a share of {seen_before:+.3f} of the log-odds. To the blindfolded model it has "
    f"{float(blind.values[driver, 0]):+.3f}; its strongest driver is now "
    f"**{NAMES[int(np.argmax(np.abs(blind.values[:, 0])))]}**."
)

# %% [markdown]
# ## What this shows, checked

# %%
for told in (chose, preferred, blind):
    assert (told.efficiency_gap() < 1e-6).all(), "shares add up"
for player in chose.players:
    if player.group in ("link", "attribution", "time", "weights"):
        assert read[player.name] == 0.0, f"the rule does not read {player.name}"
home = domains[decided.plan.segments[0].domain]
loads = {name: share for name, share in read.items() if name.startswith("load ")}
assert groups["load"] == max(groups.values()), "what the rule reads is what drives it"
assert loads[f"load {home}"] > 0, "room where it went speaks for going there"
assert chose.value[0] == 1.0, "asked again, the rule makes the same choice"
assert abs(seen_before) > 0.0
assert np.isclose(blind.values[driver, 0], 0.0, atol=1e-12), "a blind model is not said to see"
depth = np.abs(strongest - strongest[-1])[1:-1].mean(), np.abs(weakest - weakest[-1])[1:-1].mean()
assert depth[0] < 0.8 * depth[1], "strong inputs matter more than weak ones"
say("All claims hold.")
