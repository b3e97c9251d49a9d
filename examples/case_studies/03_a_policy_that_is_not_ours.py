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
# Yours, for example: whatever decides can be explained, be it a rule, a plain function or a model of another library.
#
# 1. *Shortest job first*, a rule, places tasks over four cloud regions. Its source is known, so the explanation can be
#    held against it: what the rule never reads must have a share of exactly 0. Put any object with `name` and
#    `decide(view)` in its place.
# 2. A *Stable-Baselines3* PPO decides on the 4-GPU testbed: your own `ppo.zip` if there is one, else a fresh one.
#    Nobody knows why it does what it does; so it is blindfolded to its strongest driver, and the explanation must
#    notice.
#
# Needs the extra `baselines` for the second part.

# %%
from pathlib import Path

import gymnasium as gym
import numpy as np
import torch
from matplotlib import pyplot as plt
from stable_baselines3 import PPO
from telling import COLOURS, say

from attribution_sched import Background, Explainer, cluster, config, explain, make_policy, play, plots, registration

torch.set_num_threads(1)
RULE, MODEL = make_policy("sjf"), Path("ppo.zip")

# %% [markdown]
# ## A rule
#
# `Watch` stands in the place of a policy, lets it decide, and remembers. Two simulated days of decisions serve as each
# other's background. A rule has no critics and no probabilities, so the question is the plainest there is: does it make
# this choice, yes or no? Shares tell what made it, thresholds tell when it would have chosen otherwise.

# %%
world = config.build_scenario("cross-domain-easy", "ou30")
watch = explain.Watch(RULE, placed_only=True)
for seed in (900_001, 900_002):
    play(world, watch, seed)
decided, domains = list(watch)[20], [domain.name for domain in world.cluster.domains]
explainer = Explainer(RULE, Background.of(watch, f"two days of {RULE.name}"), world=world)
chose = explainer.explain(decided, target="choice", rows=1500, precision=None, tipping=True)
say(f"Of {len(watch)} placements, the one explained: **{explain.describe_plan(decided.plan, domains)}**.")
plots.waterfall(chose)
ax = plots.counterfactual(chose)

# %% [markdown]
# The rule itself says: take the shortest waiting task, and the best free layout inside one region. It reads how many
# devices are free, and nothing about links, attributions, the hour or the weights.
#
# ## A Stable-Baselines3 model
#
# The model's two favourite actions are compared where it is surest of the first: what is special about that state? (If
# it is made here it learns for a moment only; this is not about how good it gets.)

# %%
NAMES = [*cluster.DOMAIN_FEATURES, *cluster.TASK_FEATURES, *(f"attribution {name}" for name in cluster.DEMAND_NAMES)]
gym.register_envs(registration)  # importing it has registered them; this says so
env = gym.make("attribution_sched/Testbed-v0")
if MODEL.is_file():
    model = PPO.load(MODEL, device="cpu")
else:
    model = PPO("MlpPolicy", env, n_steps=1024, learning_rate=2e-3, seed=0, device="cpu").learn(6144)

obs, states = env.reset(seed=0)[0], []
for step in range(1, 401):
    states.append(obs)
    obs, _, ended, truncated, _ = env.step(model.predict(obs, deterministic=False)[0])
    obs = env.reset(seed=step)[0] if ended or truncated else obs


def log_probabilities(obs: np.ndarray) -> np.ndarray:
    """Log-probabilities of the 64 actions, shape ``(n, 64)``."""
    with torch.no_grad():
        found = model.policy.get_distribution(torch.as_tensor(obs, dtype=torch.float32))
    return found.distribution.logits.numpy().astype(np.float64)


def log_odds(obs: np.ndarray) -> np.ndarray:
    """First favourite against second."""
    return log_probabilities(obs) @ (np.eye(64)[first] - np.eye(64)[second])


states = np.array(states, dtype=np.float64)
second, first = np.argsort(log_probabilities(states).mean(axis=0))[-2:]
surest = int(np.argmax(log_odds(states)))
state, others = states[surest], np.delete(states, surest, axis=0)
flat = explain.FlatExplainer(log_odds, others, NAMES, outputs=("log_odds",), policy="Stable-Baselines3 PPO")
preferred = flat.explain(state, decision="testbed", subject=f"action {first} rather than {second}", rows="standard")
ax = plots.waterfall(preferred)

# %% [markdown]
# Is that true of the model? Inputs are put back to the background, one by one: strongest first, and weakest first. If
# the shares mean anything, the first curve falls to the usual level long before the second.

# %%
order, curves = np.argsort(-np.abs(preferred.values[:, 0])), {}
_, ax = plt.subplots(figsize=(7.0, 3.2), layout="constrained")
for colour, label, sequence in zip(COLOURS, ("strongest first", "weakest first"), (order, order[::-1]), strict=False):
    back = [np.isin(np.arange(len(order)), sequence[:k]) for k in range(len(order) + 1)]
    curves[label] = np.array([log_odds(np.where(gone, others, state)).mean() for gone in back])
    ax.plot(curves[label], color=colour, marker=".", label=label)
ax.set(xlabel="inputs put back to the background", ylabel="mean log-odds")
_ = ax.legend(frameon=False)

# %% [markdown]
# ## The blindfold
#
# The weights that read the strongest driver are set to 0: the model cannot see it any more. Asked again, the
# explanation must give it nothing.

# %%
driver, seen = int(order[0]), float(preferred.values[order[0], 0])
with torch.no_grad():
    model.policy.mlp_extractor.policy_net[0].weight[:, driver] = 0.0
blind = flat.explain(state, decision="testbed", subject="the same, blindfolded", rows="standard")
say(f"**{NAMES[driver]}** had {seen:+.3f} of the log-odds; blindfolded, {float(blind.values[driver, 0]):+.3f}.")

# %% [markdown]
# ## What this shows, checked

# %%
assert all((told.efficiency_gap() < 1e-6).all() for told in (chose, preferred, blind)), "shares add up"
share = {player.name: float(part) for player, part in zip(chose.players, chose.values[:, 0], strict=True)}
group = {player.group: 0.0 for player in chose.players}
for player in chose.players:
    group[player.group] += abs(share[player.name])
assert set(group) >= {"link", "attribution", "time", "weights", "load"}, "all of these were asked about"
assert not any(group[unread] for unread in ("link", "attribution", "time", "weights")), "what the rule does not read"
assert group["load"] == max(group.values()), "what the rule reads is what drives it"
assert share[f"load {domains[decided.plan.segments[0].domain]}"] > 0, "room where it went speaks for going there"
assert chose.value[0] == 1.0, "asked again, the rule makes the same choice"
assert abs(seen) > 0.0, "the model saw its driver"
assert np.isclose(blind.values[driver, 0], 0.0, atol=1e-12), "a blind model is not said to see"
depth = {label: np.abs(curve - curve[-1])[1:-1].mean() for label, curve in curves.items()}
assert depth["strongest first"] < 0.8 * depth["weakest first"], "strong inputs matter more than weak ones"
say("All claims hold.")
