"""The ranker taught by PPO with GAE on whole sampled days: the ablation of the fork as its advantage.

    δ_t = r_t + γ·V(s_{t+1}) − V(s_t),   Â_t = Σ_l (γλ)^l δ_{t+l},   L = min(r·Â, clip(r, 1 ± ε)·Â)

(Schulman et al., 2016 and 2017.) Days are played in compiled form by the agents and the ranker, one candidate of every
decision drawn at the temperature at which policies are compared; a step is a decision at which the ranker has a say,
its reward what all tasks earn until the next one. V is a small network of its own over the first candidate's numbers,
which hold the moment's. The networks, the candidates and the clipping are those that learn from the fork.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from attribution_sched.cluster.cost import Scratch
from attribution_sched.cluster.engine import state as st
from attribution_sched.cluster.engine.state import StateArrays, WorldArrays
from attribution_sched.cluster.fork import TenantLimits
from attribution_sched.kernels import kernel
from attribution_sched.scheduler.hi_ppo.candidate_features import EDGE, FEATURES, NODE
from attribution_sched.scheduler.hi_ppo.fork_ppo import as_ranker, log_policy, logits_of
from attribution_sched.scheduler.hi_ppo.policy_search import Days
from attribution_sched.scheduler.hi_ppo.ranker import Ranker
from attribution_sched.scheduler.ranked_follower import MOST, Listed, RankedFollower, enter, rank_pending
from attribution_sched.scheduler.rule_follower import AgentArrays, Buffers, RuleArrays, agents_decide, carry_out, go_on
from attribution_sched.types import BoolArray, FloatArray, IntArray

if TYPE_CHECKING:
    from torch import Tensor

    Tensors = dict[str, Tensor]


@dataclass(frozen=True)
class GaePpo:
    """How it learns.

    Attributes:
        iterations: Rollouts, each followed by ``epochs`` passes.
        epochs: Passes over the decisions of a rollout.
        batch: Decisions per step.
        gamma: Discount from one decision to the next.
        smoothing: λ.
        clip: ε.
        temperature: At which is drawn.
        learning_rate: Of Adam.
    """

    iterations: int = 100
    epochs: int = 2
    batch: int = 512
    gamma: float = 0.99
    smoothing: float = 0.95
    clip: float = 0.2
    temperature: float = 4.0
    learning_rate: float = 1e-3


@dataclass(frozen=True, eq=False)
class Rollout:
    """Decisions of whole days, in order; A candidates, K domains.

    Attributes:
        candidates: Shape ``(N, A, len(FEATURES))``.
        there: Shape ``(N, A)``.
        domain: Shape ``(N, A)``.
        nodes: Shape ``(N, K, len(NODE))``.
        edges: Shape ``(N, K, K, len(EDGE))``.
        taken: Candidate that was drawn, shape ``(N,)``.
        reward: Until the next decision, or the end, shape ``(N,)``.
        last: Whether the day's last, shape ``(N,)``.
        followed: Decisions that were taken in all, those without a say of the ranker included.
        returns: Of the days, shape ``(E,)``.
    """

    candidates: FloatArray
    there: FloatArray
    domain: IntArray
    nodes: FloatArray
    edges: FloatArray
    taken: IntArray
    reward: FloatArray
    last: BoolArray
    followed: int
    returns: FloatArray


@kernel
def _earned(state: StateArrays, e: int, ledger: FloatArray, weights: FloatArray) -> float:
    total = 0.0
    for task in range(min(ledger.shape[0], state.event[e, st.TAKEN])):
        total += (
            weights[0] * ledger[task, 2] + weights[1] * ledger[task, 3] - weights[2] * ledger[task, 4]
        )  # fmt: skip
    return total


@kernel(allocates=True)
def _roll(
    world: WorldArrays, state: StateArrays, e: int, rule: RuleArrays, believed: FloatArray, states: FloatArray,
    b: Buffers, learnt: AgentArrays, c: Listed, action: IntArray, paid_by_work: bool, ledger: FloatArray,
    scratch: Scratch, limits: TenantLimits, partners: FloatArray, temperature: float, drawn: FloatArray,
    weights: FloatArray, x: FloatArray, there: FloatArray, domain: IntArray, nodes: FloatArray, edges: FloatArray,
    taken: IntArray, earned: FloatArray,
) -> tuple[int, int]:  # fmt: skip
    """Play one day, candidates drawn; returns the decisions that were written and all that were taken."""
    n, followed = 0, 0
    while state.event[e, st.DONE] == 0:
        if state.event[e, st.EVENT] != st.NO_EVENT:
            state.outcome[e, st.INTEGRALS :] = 0.0
            many, _ = rank_pending(world, state, e, rule, believed, states, learnt, c, b)
            if many > 0 and n < taken.size:
                top = -np.inf
                for a in range(many):
                    top = max(top, c.logits[a] / temperature)
                mass = 0.0
                for a in range(many):
                    mass += np.exp(c.logits[a] / temperature - top)
                chosen, below = many - 1, 0.0
                for a in range(many):
                    below += np.exp(c.logits[a] / temperature - top) / mass
                    if drawn[n] < below:
                        chosen = a
                        break
                for a in range(many):
                    there[n, a], domain[n, a] = 1.0, c.domain[a]
                    for i in range(c.x.shape[1]):
                        x[n, a, i] = c.x[a, i]
                nodes[n], edges[n] = c.nodes, c.edges
                taken[n], earned[n] = chosen, _earned(state, e, ledger, weights)
                n += 1
                acts, possible = enter(world, state, e, rule, learnt, c, chosen, action), True
            else:
                acts, possible = agents_decide(world, state, e, rule, believed, learnt, b, action)
            followed += possible
            carry_out(world, state, e, rule, acts, action, paid_by_work, ledger, scratch, partners)
        go_on(world, state, e, b, paid_by_work, ledger, scratch, limits)
    earned[n] = _earned(state, e, ledger, weights)
    return n, followed


def roll(days: Days, by: RankedFollower, seed: int, temperature: float, most: int = 600) -> Rollout:
    """Play the days of a world by a follower whose ranker draws.

    Args:
        days: The days.
        by: Who plays them.
        seed: First seed of the days, and of the draws.
        temperature: Log-odds are divided by it.
        most: Decisions of a day that are written.
    """
    copies, k, rng = days.copies(seed), len(days.world.cluster), np.random.default_rng([seed, 21])
    reward = days.world.reward
    weights = np.array([reward.w_eff, reward.w_util, reward.w_cost])
    states = by.states(copies.believed, copies.tasks)
    action = np.zeros((copies.state.plans.shape[2], 5), dtype=np.int64)
    parts: list[tuple[FloatArray, ...]] = []
    followed, returns = 0, np.zeros(days.days)
    for e in range(days.days):
        held = (
            np.zeros((most, MOST, len(FEATURES)), dtype=np.float32), np.zeros((most, MOST), dtype=np.float32),
            np.full((most, MOST), -1, dtype=np.int64), np.zeros((most, k, len(NODE)), dtype=np.float32),
            np.zeros((most, k, k, len(EDGE)), dtype=np.float32), np.zeros(most, dtype=np.int64),
        )  # fmt: skip
        earned = np.zeros(most + 1)
        n, count = _roll(
            copies.world, copies.state, e, by.rule, copies.believed, states, by.buffers, by.learnt, by.listed, action,
            copies.paid_by_work, copies.ledger[e], copies.scratch, copies.limits, copies.partners, temperature,
            rng.random(most), weights, *held, earned,
        )  # fmt: skip
        last = np.zeros(n, dtype=np.bool_)
        last[n - 1 :] = True
        parts.append((*(array[:n] for array in held), np.diff(earned[: n + 1]), last))
        followed, returns[e] = followed + count, earned[n]
    return Rollout(*(np.concatenate(column) for column in zip(*parts, strict=True)), followed, returns)  # type: ignore[arg-type]


def advantages(reward: FloatArray, value: FloatArray, last: BoolArray, gamma: float, smoothing: float) -> FloatArray:
    """Â of every decision, shape ``(N,)``; nothing is expected beyond a day's last."""
    found, after, later = np.zeros(len(reward)), 0.0, 0.0
    for t in range(len(reward) - 1, -1, -1):
        if last[t]:
            after = later = 0.0
        later = reward[t] + gamma * after - value[t] + gamma * smoothing * later
        found[t], after = later, value[t]
    return found


def learn_by_gae(
    days: Days, theta: FloatArray, first: dict[str, FloatArray], settings: GaePpo, budget: int, seed: int = 0,
    told: Callable[[int, Rollout], None] | None = None,
) -> tuple[Ranker, int]:  # fmt: skip
    """Let the ranker learn from whole days; returns it and the decisions that were followed.

    Args:
        days: Days that are played in each part of a rollout.
        theta: What both agents have learnt.
        first: Numbers to begin with, see ``fork_ppo.untrained``.
        settings: How.
        budget: Decisions that may be followed, shared evenly by the iterations.
        seed: Of draws and days.
        told: Told after every rollout.
    """
    import torch

    torch.manual_seed(seed)
    w = {name: torch.tensor(value) for name, value in first.items()}
    learnt = [tensor.requires_grad_() for name, tensor in w.items() if name not in ("centre", "scale")]
    critic = torch.nn.Sequential(torch.nn.Linear(len(FEATURES), 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))
    adam = torch.optim.AdamW([*learnt, *critic.parameters()], lr=settings.learning_rate, weight_decay=1e-3)
    rng, followed, day, unit = np.random.default_rng(seed), 0, 520_000 + 100_000 * seed, 0.0
    for iteration in range(settings.iterations):
        by = RankedFollower(days.planner, days.world, theta, as_ranker(w), None)
        parts: list[Rollout] = []
        while followed < budget * (iteration + 1) // settings.iterations:
            parts.append(roll(days, by, day, settings.temperature))
            followed, day = followed + parts[-1].followed, day + days.days
        if not parts:
            continue
        batch = {
            name: torch.tensor(np.concatenate([getattr(part, name) for part in parts]))
            for name in ("candidates", "there", "domain", "nodes", "edges", "taken")
        }
        batch["standing"] = torch.ones(batch["nodes"].shape[:2])
        reward, last = (np.concatenate([getattr(part, name) for part in parts]) for name in ("reward", "last"))
        unit = unit or float(np.abs(reward).mean()) / (1.0 - settings.gamma) ** 0.5
        seen = (batch["candidates"][:, 0] - w["centre"]) / w["scale"]
        with torch.no_grad():
            old = _taken(w, batch, settings.temperature)
            value = critic(seen)[:, 0].numpy().astype(np.float64)
        found = advantages(reward / unit, value, last, settings.gamma, settings.smoothing)
        aim = torch.tensor(found + value, dtype=torch.float32)
        scaled = torch.tensor((found - found.mean()) / (found.std() + 1e-9), dtype=torch.float32)
        for _ in range(settings.epochs):
            for rows in np.array_split(rng.permutation(len(found)), max(1, len(found) // settings.batch)):
                at = torch.tensor(rows)
                part = {name: tensor[at] for name, tensor in batch.items()}
                ratio = (_taken(w, part, settings.temperature) - old[at]).exp()
                bounded = ratio.clamp(1.0 - settings.clip, 1.0 + settings.clip)
                loss = -torch.minimum(ratio * scaled[at], bounded * scaled[at]).mean()
                wrong = ((critic(seen[at])[:, 0] - aim[at]) ** 2).mean()
                adam.zero_grad()
                torch.autograd.backward(loss + 0.5 * wrong)
                adam.step()
        if told is not None:
            told(iteration, parts[-1])
    return as_ranker(w), followed


def _taken(w: Tensors, batch: Tensors, temperature: float) -> Tensor:
    """Log-probability of what was drawn."""
    policy = log_policy(logits_of(w, batch) / temperature, batch["there"])
    return policy.gather(1, batch["taken"][:, None])[:, 0]
