"""PPO with the fork as its advantage: all candidates of a decision were played under the same futures.

    Â_high(g) = Q(g) − Σ_g π_high(g)·Q(g),     Q(g) = Σ_{a ∈ g} π_low(a|g)·Q(a)     averaged over lower choices
    Â_low(a)  = Q(a) − Q(g(a))                                                       within the same upper choice
    L = Σ_g π_high,old · min(r·Â, clip(r, 1 ± ε)·Â) + Σ_a π_old · min(r·Â, clip(r, 1 ± ε)·Â)

(the vine of TRPO, Schulman et al., 2015, with PPO's clipped objective). Nothing is sampled: expectations run over the
candidates. Q is shrunk by its noise first. Policies are compared at a temperature at which the other candidates have
mass; the order of the candidates, by which it acts, does not hang on it. GAE on sampled days has 13.8 of noise where a
choice is worth 2, the paired fork 0.5.

``expert_iteration`` is the alternative: cross-entropy to softmax(logit + β·Q̂).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from attribution_sched.scheduler.hi_ppo.forked_decisions import ForkedDecisions
from attribution_sched.scheduler.hi_ppo.ranker import HIDDEN, LOWER, SHAPES, UPPER, Ranker
from attribution_sched.types import FloatArray, IntArray

if TYPE_CHECKING:
    from torch import Tensor

    Tensors = dict[str, Tensor]


@dataclass(frozen=True)
class ForkPpo:
    """How the ranker learns.

    Attributes:
        rounds: How often the old policy is replaced by the new one.
        epochs: Passes over the decisions in each.
        batch: Decisions per step.
        clip: ε.
        temperature: Of the policies that are compared.
        learning_rate: Of Adam.
        decay: Of weights.
        expert: Weight β of cross-entropy to improved targets instead of the clipped objective; 0 for PPO.
    """

    rounds: int = 10
    epochs: int = 2
    batch: int = 512
    clip: float = 0.2
    temperature: float = 4.0
    learning_rate: float = 1e-3
    decay: float = 1e-3
    expert: float = 0.0


def shrunk(q: FloatArray, there: FloatArray) -> FloatArray:
    """Mean of Q over futures ``(N, A, F)``, shrunk toward 0 by how noisy it is, ``(N, A)``: empirical Bayes."""
    mean, noise = q.mean(axis=2), q.var(axis=2, ddof=1) / q.shape[2]
    inside = there.astype(bool).copy()
    inside[:, 0] = False
    signal = max(1e-6, float(np.median(mean[inside] ** 2) / 0.455 - np.median(noise[inside])))
    return np.asarray(np.where(inside, mean * signal / (signal + noise), 0.0))


def expected_worth(data: ForkedDecisions) -> FloatArray:
    """Q of every candidate, shrunk by the noise of its own world ``(N, A)``: one world's says nothing of another's."""
    found = np.zeros(data.there.shape)
    for world in np.unique(data.world):
        of_it = data.world == world
        found[of_it] = shrunk(data.q[of_it], data.there[of_it])
    return found


def untrained(data: ForkedDecisions, seed: int) -> dict[str, FloatArray]:
    """Numbers with which the agents decide: the last layers are 0, features are scaled to what was seen."""
    rng = np.random.default_rng(seed)
    arrays: dict[str, FloatArray] = {}
    for name, shape in SHAPES.items():
        bound = 1.0 / np.sqrt(shape[0]) if len(shape) == 2 else 0.0
        arrays[name] = np.asarray(rng.uniform(-bound, bound, shape) if bound else np.zeros(shape), dtype=np.float32)
    rows = data.candidates[data.there > 0]
    arrays["centre"] = rows.mean(axis=0).astype(np.float32)
    arrays["scale"] = np.maximum(rows.std(axis=0), 0.05).astype(np.float32)
    arrays["kappa"] = np.asarray(1.0, dtype=np.float32)
    for name in ("policy_3", "critic_3"):
        arrays[name] = np.zeros(SHAPES[name], dtype=np.float32)
    return arrays


def learn_ranker(
    data: ForkedDecisions, settings: ForkPpo, seed: int = 0, told: Callable[[int, Ranker], None] | None = None
) -> Ranker:
    """Let the ranker learn from forked decisions.

    Args:
        data: The decisions.
        settings: How.
        seed: Of first numbers and of the order of decisions.
        told: Told after every round.
    """
    import torch

    torch.manual_seed(seed)
    w = {name: torch.tensor(value) for name, value in untrained(data, seed).items()}
    learnt = [tensor.requires_grad_() for name, tensor in w.items() if name not in ("centre", "scale")]
    adam = torch.optim.AdamW(learnt, lr=settings.learning_rate, weight_decay=settings.decay)
    q = torch.tensor(expected_worth(data), dtype=torch.float32)
    parts = torch.tensor(data.components)
    noise = data.q.var(axis=2, ddof=1) / data.q.shape[2]
    sure = torch.tensor(1.0 / (noise + float(np.median(noise[data.there > 0])) + 1e-3), dtype=torch.float32)
    batch = {name: torch.tensor(getattr(data, name)) for name in ("candidates", "domain", "there", "nodes", "edges",
                                                                  "standing", "group")}  # fmt: skip
    rng = np.random.default_rng(seed)
    for done in range(settings.rounds):
        with torch.no_grad():
            old = log_policy(logits_of(w, batch) / settings.temperature, batch["there"])
        for _ in range(settings.epochs):
            for rows in np.array_split(rng.permutation(len(data)), max(1, len(data) // settings.batch)):
                at = torch.tensor(rows)
                part = {name: tensor[at] for name, tensor in batch.items()}
                logits = logits_of(w, part)
                new = log_policy(logits / settings.temperature, part["there"])
                if settings.expert > 0.0:
                    aim = log_policy(old[at] + settings.expert * q[at], part["there"]).exp()
                    loss = -(aim * torch.where(part["there"] > 0, new, torch.zeros_like(new))).sum(1).mean()
                else:
                    loss = -_clipped(new, old[at], q[at], part["group"], part["there"], settings.clip)
                said = _trunk(w, part, "critic", w["critic_node"])
                apart = (said - said[:, :1]) - parts[at]
                wrong = (sure[at][..., None] * apart**2 * part["there"][..., None]).mean()
                adam.zero_grad()
                # Separate trunks: critics cannot move the policy.
                torch.autograd.backward(loss + 0.1 * wrong)
                adam.step()
        if told is not None:
            told(done, as_ranker(w))
    return as_ranker(w)


def as_ranker(w: Tensors) -> Ranker:
    """The ranker of what is being learnt."""
    return Ranker({name: tensor.detach().numpy().astype(np.float64).copy() for name, tensor in w.items()})


def _trunk(w: Tensors, batch: Tensors, name: str, node: Tensor) -> Tensor:
    import torch

    h = torch.tanh(batch["nodes"] @ node)
    standing, edges = batch["standing"], batch["edges"]
    k = standing.shape[1]
    edge, edge_bias = w["edge"], w["edge_bias"]
    conv, conv_bias = w["conv"], w["conv_bias"]
    if name == "critic":
        edge, edge_bias, conv, conv_bias = (one.detach() for one in (edge, edge_bias, conv, conv_bias))
    said = torch.relu(h[:, :, None, :] + edges @ edge + edge_bias)
    other = standing[:, :, None] * standing[:, None, :] * (1.0 - torch.eye(k))
    count = torch.clamp(standing.sum(1) - 1.0, min=1.0)
    h = h + (said * other[..., None]).sum(1) / count[:, None, None]
    h = torch.relu(h @ conv + conv_bias) * standing[..., None]
    pooled = torch.cat([h.sum(1) / standing.sum(1)[:, None], h.amax(1)], dim=1)
    at = batch["domain"].clamp(min=0)
    here = torch.gather(h, 1, at[..., None].expand(-1, -1, HIDDEN)) * (batch["domain"] >= 0)[..., None]
    x = (batch["candidates"] - w["centre"]) / w["scale"]
    y = torch.cat([x, pooled[:, None, :].expand(-1, x.shape[1], -1), here], dim=2)
    y = torch.relu(y @ w[f"{name}_1"] + w[f"{name}_1_bias"])
    y = torch.relu(y @ w[f"{name}_2"] + w[f"{name}_2_bias"])
    return y @ w[f"{name}_3"]


def logits_of(w: Tensors, batch: Tensors) -> Tensor:
    """Log-odds of every candidate of a batch of decisions, ``(N, A)``; see ``ranker.py``."""
    odds = batch["candidates"][..., UPPER] + batch["candidates"][..., LOWER]
    return w["kappa"] * (odds - odds[:, :1]).clamp(max=0.0) + _trunk(w, batch, "policy", w["node"])[..., 0]


def log_policy(logits: Tensor, there: Tensor) -> Tensor:
    """Log-probabilities among the candidates that are there, ``(N, A)``."""
    import torch

    return torch.log_softmax(torch.where(there > 0, logits, torch.full_like(logits, -1e9)), dim=1)


def _clipped(new: Tensor, old: Tensor, q: Tensor, group: Tensor, there: Tensor, clip: float) -> Tensor:
    import torch

    inside = there > 0
    same = (group[:, :, None] == group[:, None, :]) & inside[:, :, None] & inside[:, None, :]

    def together(log_p: Tensor) -> Tensor:
        """Log-probability of every candidate's upper choice."""
        return torch.logsumexp(torch.where(same, log_p[:, None, :], torch.full_like(log_p[:, None, :], -1e9)), dim=2)

    old_up, new_up = together(old), together(new)
    p_old = old.exp() * inside
    # Q of an upper choice: its candidates as the lower level would take them.
    within = torch.where(same, (old[:, None, :] - old_up[:, :, None]).exp(), torch.zeros_like(old[:, None, :]))
    q_up = (within * q[:, None, :]).sum(2)
    value = (p_old * q).sum(1, keepdim=True)
    high, low = q_up - value, q - q_up
    found = torch.zeros(())
    for ratio, advantage in (((new_up - old_up).exp(), high), ((new - new_up - old + old_up).exp(), low)):
        bounded = torch.minimum(ratio * advantage, ratio.clamp(1.0 - clip, 1.0 + clip) * advantage)
        found = found + (p_old * torch.where(inside, bounded, torch.zeros_like(bounded))).sum(1).mean()
    return found


def chosen(ranker: Ranker, data: ForkedDecisions, margin: float = 0.0) -> IntArray:
    """Which candidate acts in each decision ``(N,)``, another than the own one only beyond a margin of log-odds."""
    import torch

    w = {name: torch.tensor(value, dtype=torch.float32) for name, value in ranker.arrays.items()}
    batch = {name: torch.tensor(getattr(data, name)) for name in ("candidates", "domain", "there", "nodes", "edges",
                                                                  "standing", "group")}  # fmt: skip
    with torch.no_grad():
        logits = np.where(data.there > 0, logits_of(w, batch).numpy(), -np.inf)
    logits[:, 0] += margin
    return np.asarray(logits.argmax(axis=1), dtype=np.int64)
