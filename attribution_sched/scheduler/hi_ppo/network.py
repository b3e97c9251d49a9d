"""Hi-PPO's networks: one graph encoding per decision, shared by both levels and by the critics.

Upper level: which task, then segment by segment which domain (or the end of the plan) and which cut. Lower level, one
agent per domain used: layout, numeric format, microbatch level, given its own 32 numbers and the stage it was handed.
Every choice is scored by a perceptron over ``tanh(A choice + B context)``, so any number of domains, layers and layouts
goes with one set of weights; what is masked has probability 0.

Critics: V_c(s), one head per reward component, and Q_c(s, a), which also sees the plan. What a task's attributions say
of its demands is a head of its own, fitted afterwards (:mod:`~attribution_sched.scheduler.hi_ppo.demand_head`).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from attribution_sched.cluster.demands import DEMAND_NAMES
from attribution_sched.errors import ModelFitError, problem
from attribution_sched.scheduler.hi_ppo.demand_head import DemandHead
from attribution_sched.scheduler.hi_ppo.features import (
    CANDIDATE_NAMES,
    EDGE_NAMES,
    GLOBAL_NAMES,
    LOWER_NAMES,
    NODE_NAMES,
)
from attribution_sched.scheduler.hi_ppo.outcomes import PLAN_FEATURES
from attribution_sched.scheduler.hi_ppo.partial_plans import (
    CUT_CHOICE,
    DOMAIN_CHOICE,
    DRAFT_FEATURES,
    FORMAT_CHOICE,
    LAYOUT_CHOICE,
    LEVEL_CHOICE,
)
from attribution_sched.scheduler.hi_ppo.topology_encoder import Conv, Pooling, TopologyEncoder
from attribution_sched.scheduler.hi_ppo.upper_agent import SIZE
from attribution_sched.scheduler.ppo.quick_tanh import Tanh, quick_tanh, tanh_

FloatArray = NDArray[np.float64]

COMPONENTS: tuple[str, ...] = ("r_eff", "r_util", "r_cost")
"""Heads of the critics, in this order."""

STAGE_FEATURES = DRAFT_FEATURES + 3
"""What a lower agent is handed: the draft, and its own share of work, first and last layer."""


@dataclass(frozen=True)
class NetworkSize:
    """How large the networks are.

    Attributes:
        width: Units of the encoder and of the shared vectors.
        hidden: Units of a head.
        rounds: Rounds of message passing.
        conv: Convolution of the encoder.
        pooling: How the graph becomes one vector.
    """

    width: int = 128
    hidden: int = 64
    rounds: int = 2
    conv: Conv = "edge-sage"
    pooling: Pooling = "mean+max"

    def to_json(self) -> dict[str, Any]:
        """As plain numbers and words."""
        return asdict(self)


class Pointer(nn.Module):
    """Scores described choices against a context.

    Args:
        choice: Numbers that describe a choice.
        context: Numbers that all choices share.
        hidden: Units.
    """

    def __init__(self, choice: int, context: int, hidden: int) -> None:
        super().__init__()
        self.choice = nn.Linear(choice, hidden, bias=False)
        self.context = nn.Linear(context, hidden)
        self.score = nn.Linear(hidden, 1, bias=False)

    def forward(self, choices: Tensor, context: Tensor) -> Tensor:
        """Scores ``(n, choices)`` from ``(n, choices, f)`` and ``(n, c)``."""
        scores: Tensor = self.score(quick_tanh(self.choice(choices) + self.context(context)[:, None, :]))[..., 0]
        return scores

    def only(self, choices: Tensor, context: Tensor, at: tuple[Tensor, Tensor], most: int) -> Tensor:
        """The same for some choices ``(M, f)`` at places ``at``; the others get 0. See :mod:`~.pointing`."""
        return point(choices, self.choice.weight, self.context(context), self.score.weight, at, most)


def _perceptron(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, outputs), nn.ReLU())


class UpperPolicy(nn.Module):
    """Which task, which domains, where to cut, whether to replicate.

    Args:
        size: How large.
    """

    def __init__(self, size: NetworkSize) -> None:
        super().__init__()
        w, h = size.width, size.hidden
        self.candidate = _perceptron(len(CANDIDATE_NAMES), h, h)
        self.state = _perceptron(w + len(GLOBAL_NAMES) + 2 * h, w, w)
        self.task = Pointer(h, w, h)
        self.nothing = nn.Linear(w, 1)
        self.handed = _perceptron(w + h, w, w)
        self.domain = Pointer(DOMAIN_CHOICE, w + DRAFT_FEATURES, h)
        self.node = nn.Linear(w, h, bias=False)
        self.end = _end_head(w + DRAFT_FEATURES, h)
        self.cut = Pointer(CUT_CHOICE, 2 * w + DRAFT_FEATURES, h)

    def see(self, pooled: Tensor, general: Tensor, candidates: Tensor, present: Tensor) -> tuple[Tensor, Tensor]:
        """Shared vector ``(B, W)`` and candidates' vectors ``(B, Q, H)``, zero where there is no candidate."""
        # Queues are mostly short: only candidates that exist go through the network.
        each = candidates.new_zeros((*present.shape, self.task.choice.in_features))
        each[present] = self.candidate(candidates[present])
        mean = each.sum(dim=1) / present.sum(dim=1, keepdim=True).clamp_min(1)
        return self.state(torch.cat([pooled, general, mean, each.amax(dim=1)], dim=-1)), each

    def see_some(self, pooled: Tensor, general: Tensor, some: Tensor, owner: Tensor) -> tuple[Tensor, Tensor]:
        """The same from the candidates that exist, ``(M, f)``, of decisions ``owner``; their vectors ``(M, H)``."""
        each = self.candidate(some)
        total, most = together(each, owner, len(pooled))
        count = torch.bincount(owner, minlength=len(pooled)).clamp_min_(1).unsqueeze(1)
        return self.state(torch.cat([pooled, general, total / count, most], dim=-1)), each

    def task_logits(self, shared: Tensor, each: Tensor) -> Tensor:
        """Scores of the candidates and, last, of doing nothing, ``(B, Q + 1)``."""
        return torch.cat([self.task(each, shared), self.nothing(shared)], dim=-1)

    def some_task_logits(self, shared: Tensor, each: Tensor, at: tuple[Tensor, Tensor], most: int) -> Tensor:
        """The same from vectors ``(M, H)`` of candidates at places ``at``; the others get 0."""
        return torch.cat([self.task.only(each, shared, at, most), self.nothing(shared)], dim=-1)

    def context(self, shared: Tensor, chosen: Tensor) -> Tensor:
        """What both levels know once a task is chosen, ``(n, W)``."""
        found: Tensor = self.handed(torch.cat([shared, chosen], dim=-1))
        return found

    def domain_logits(self, nodes: Tensor, choices: Tensor, context: Tensor, draft: Tensor) -> Tensor:
        """Scores of the domains and, last, of the end, ``(n, K + 1)``; ``nodes`` is ``self.node(embeddings)``."""
        both = torch.cat([context, draft], dim=-1)
        head = self.domain
        scores = head.score(quick_tanh(head.choice(choices) + nodes + head.context(both)[:, None, :]))[..., 0]
        return torch.cat([scores, self.end(both)], dim=-1)


def _end_head(inputs: int, hidden: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, hidden), Tanh(), nn.Linear(hidden, 1))


class LowerPolicy(nn.Module):
    """How a domain runs the stage it was handed: layout or device, numeric format, microbatch level.

    Args:
        size: How large.
        handed: Numbers it is handed beside its own 32: the upper agent's context, the domain's embedding, the stage.
        layout: Numbers that describe a layout (or a device).
    """

    def __init__(self, size: NetworkSize, handed: int, layout: int = LAYOUT_CHOICE) -> None:
        super().__init__()
        w, h = size.width, size.hidden
        self.see = _perceptron(len(LOWER_NAMES) + handed, w, w)
        self.layout = Pointer(layout, w, h)
        self.format = Pointer(FORMAT_CHOICE, w + layout, h)
        self.level = Pointer(LEVEL_CHOICE, w + layout + FORMAT_CHOICE, h)


class HiPpoNetwork(nn.Module):
    """Encoder, both policies and the critics.

    Args:
        size: How large.
        generator: Source of the first weights.
    """

    def __init__(self, size: NetworkSize | None = None, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.size = size or NetworkSize()
        w, h = self.size.width, self.size.hidden
        source = generator or torch.Generator().manual_seed(0)
        self.encoder = TopologyEncoder(
            len(NODE_NAMES), len(EDGE_NAMES), w, self.size.rounds, self.size.conv, self.size.pooling, generator=source
        )
        self.upper = UpperPolicy(self.size)
        self.lower = LowerPolicy(self.size, 2 * w + STAGE_FEATURES)
        self.value = nn.Sequential(nn.Linear(w, w), Tanh(), nn.Linear(w, len(COMPONENTS)))
        self.action_value = nn.Sequential(
            nn.Linear(2 * w + PLAN_FEATURES, w), Tanh(), nn.Linear(w, h), Tanh(), nn.Linear(h, len(COMPONENTS))
        )
        counters = len(DEMAND_NAMES)
        self.register_buffer("attribution_unit", torch.ones(counters, dtype=torch.float64))
        self.register_buffer("attribution_weight", torch.zeros(counters, counters, dtype=torch.float64))
        self.register_buffer("attribution_bias", torch.zeros(counters, dtype=torch.float64))
        self.demands = DemandHead()
        # Learnt on whole days, not by gradients.
        self.agents = nn.Parameter(torch.zeros(SIZE, dtype=torch.float64), requires_grad=False)
        orthogonal_heads(self, source)

    def set_attribution(self, unit: FloatArray, weight: FloatArray, bias: FloatArray) -> None:
        """Fix how counters become attributions: ``tanh(weight · log1p(counters / unit) + bias)``.

        That is EmSHAP's closed form for a linear energy model of Gaussian log counters; it belongs to the weights
        because they have learnt from it.

        Args:
            unit: Units of the seven counters, shape ``(7,)``.
            weight: Shape ``(7, 7)``.
            bias: Shape ``(7,)``.
        """
        for name, values in (("unit", unit), ("weight", weight), ("bias", bias)):
            buffer: Tensor = getattr(self, f"attribution_{name}")
            given = torch.from_numpy(np.array(values, dtype=np.float64))
            if given.shape != buffer.shape or not torch.isfinite(given).all():
                rule = f"must be finite numbers of shape {tuple(buffer.shape)}"
                raise ModelFitError(
                    problem(f"attribution {name}", tuple(given.shape), rule, "Fit the attribution anew")
                )
            buffer.copy_(given)

    @property
    def theta(self) -> FloatArray | None:
        """What both agents have learnt, shape ``(SIZE,)``, names in ``upper_agent.HEADS``; None if they have not yet.

        Until then the networks' own heads decide.
        """
        held = self.agents.detach()
        return held.cpu().numpy().copy() if bool(held.any()) else None

    def set_agents(self, theta: FloatArray) -> None:
        """Let the agents decide by what they have learnt, shape ``(SIZE,)``."""
        given = torch.from_numpy(np.array(theta, dtype=np.float64))
        held = self.agents.data
        if given.shape != held.shape or not torch.isfinite(given).all():
            rule = f"must be finite numbers of shape {tuple(held.shape)}"
            raise ModelFitError(problem("agents", tuple(given.shape), rule, "Train the agents anew"))
        held.copy_(given)

    def attributions(self, counters: FloatArray) -> FloatArray:
        """Attributions ``(n, 7)`` in [−1, 1] of measured counters ``(n, 12)``; zeros until they are fixed."""
        unit, weight, bias = (getattr(self, f"attribution_{name}").cpu().numpy() for name in ("unit", "weight", "bias"))
        seven = np.asarray(counters, dtype=np.float64)[:, : len(unit)]
        # A matrix product may round otherwise in another batch; sums row by row do not.
        found: FloatArray = np.tanh((np.log1p(seven / unit)[:, None, :] * weight).sum(axis=-1) + bias)
        return found


def orthogonal_heads(network: nn.Module, source: torch.Generator) -> None:
    """Orthogonal weights outside the encoder, which sees to its own; heads begin nearly indifferent."""
    for name, module in network.named_modules():
        if isinstance(module, nn.Linear) and not name.startswith("encoder"):
            last = name.endswith((".score", ".nothing", "end.2")) or name in ("value.2", "action_value.4", "critic.4")
            nn.init.orthogonal_(module.weight, 0.1 if last else 2.0**0.5, generator=source)
            if module.bias is not None:
                nn.init.zeros_(module.bias)


# ------ Only choices that are allowed, only candidates that exist: in training most of what is described is masked
#
# A pointer scores choice j of decision i by ``s_ij = v · tanh(A x_ij + B c_i)``. Where few of the choices are allowed,
# those of all decisions are put one after the other, and the gradient is written out::
#
#     h_m = tanh(A x_m + b_i(m))      s_m = v · h_m
#     ∂v = Σ s'_m h_m                 g_m = s'_m v (1 − h_m²)
#     ∂A = Σ g_m x_mᵀ                 ∂b_i = Σ_{m of i} g_m               ∂x_m = Aᵀ g_m

BoolArray = NDArray[np.bool_]

WORTHWHILE = 4096
"""Choices, allowed or not, from which on masked ones are left out."""

CROWDED = 0.6
"""Share of allowed choices above which leaving out the others gains nothing."""


class _Point(torch.autograd.Function):
    """Scores ``(M,)`` of choices ``(M, f)`` with the context ``(n, H)`` of decision ``owner (M,)``."""

    @staticmethod
    def forward(ctx: Any, choices: Tensor, weight: Tensor, told: Tensor, score: Tensor, owner: Tensor) -> Tensor:
        hidden = torch.addmm(told.index_select(0, owner), choices, weight.t())
        tanh_(hidden)
        ctx.save_for_backward(choices, weight, score, owner, hidden)
        ctx.rows = len(told)
        return hidden @ score[0]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor, Tensor, Tensor, None]:
        choices, weight, score, owner, hidden = ctx.saved_tensors
        d_score = (grad @ hidden).unsqueeze(0)
        through = torch.ops.aten.tanh_backward(grad.unsqueeze(1) * score, hidden)
        d_told = through.new_zeros((ctx.rows, through.shape[1])).index_add_(0, owner, through)
        # Features on the left: the same product the other way round takes twice as long.
        d_weight = (choices.t() @ through).t()
        d_choices = through @ weight if ctx.needs_input_grad[0] else None
        return d_choices, d_weight, d_told, d_score, None


def sparse(allowed: BoolArray) -> bool:
    """Whether so few choices are allowed that leaving out the others pays."""
    return allowed.size >= WORTHWHILE and allowed.sum() <= CROWDED * allowed.size


def point(choices: Tensor, weight: Tensor, told: Tensor, score: Tensor, at: tuple[Tensor, Tensor], most: int) -> Tensor:
    """Scores ``(n, most)`` of the allowed choices; 0 elsewhere.

    Args:
        choices: The allowed choices one after the other, shape ``(M, f)``.
        weight: A, shape ``(H, f)``.
        told: B c of every decision, shape ``(n, H)``.
        score: v, shape ``(1, H)``.
        at: Decision and place of every choice, each of shape ``(M,)``.
        most: Choices of a decision.
    """
    scores: Tensor = _Point.apply(choices, weight, told, score, at[0])  # type: ignore[no-untyped-call]
    return scores.new_zeros(len(told) * most).scatter(0, at[0] * most + at[1], scores).view(len(told), most)


class _Together(torch.autograd.Function):
    """Sum and largest entry ``(n, H)`` of the vectors ``(M, H)`` of every owner; 0 for one without any.

    The gradient of the largest entry is shared by all that are as large, as ``amax`` does.
    """

    @staticmethod
    def forward(ctx: Any, each: Tensor, owner: Tensor, rows: int) -> tuple[Tensor, Tensor]:
        total = each.new_zeros((rows, each.shape[1])).index_add_(0, owner, each)
        most = each.new_zeros((rows, each.shape[1]))
        most.scatter_reduce_(0, owner.unsqueeze(1).expand_as(each), each, "amax", include_self=False)
        ctx.save_for_backward(each, owner, most)
        return total, most

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_total: Tensor, of_most: Tensor) -> tuple[Tensor, None, None]:
        each, owner, most = ctx.saved_tensors
        largest = (each == most.index_select(0, owner)).to(each.dtype)
        ties = torch.zeros_like(most).index_add_(0, owner, largest).clamp_min_(1.0)
        return largest.mul_((of_most / ties).index_select(0, owner)).add_(of_total.index_select(0, owner)), None, None


def together(each: Tensor, owner: Tensor, rows: int) -> tuple[Tensor, Tensor]:
    """Sum and largest entry of the vectors of every owner.

    Args:
        each: Vectors, shape ``(M, H)``.
        owner: Whose each is, shape ``(M,)``.
        rows: How many owners there are, n.

    Returns:
        Both of shape ``(n, H)``, 0 for an owner without any.
    """
    found: tuple[Tensor, Tensor] = _Together.apply(each, owner, rows)  # type: ignore[no-untyped-call]
    return found
