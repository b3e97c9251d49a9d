"""Only choices that are allowed, only candidates that exist: in training most of what is described is masked.

A pointer scores choice j of decision i by ``s_ij = v · tanh(A x_ij + B c_i)``. Where few of the choices are allowed,
those of all decisions are put one after the other, and the gradient is written out::

    h_m = tanh(A x_m + b_i(m))      s_m = v · h_m
    ∂v = Σ s'_m h_m                 g_m = s'_m v (1 − h_m²)
    ∂A = Σ g_m x_mᵀ                 ∂b_i = Σ_{m of i} g_m               ∂x_m = Aᵀ g_m
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.function import once_differentiable

from attribution_sched.scheduler.ppo.quick_tanh import tanh_

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
