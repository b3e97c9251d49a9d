"""A one-dimensional energy on top of a proposal: ``p(x_j | x_S) = q(x_j | x_S) exp(-E) / Z``.

The network maps the context of x_S to coefficients of smooth bumps of t, the feature in units of the proposal's own
mean and spread, so ``E = -sum_b c_b(x_S, S) B_b(t)``. In training Z is importance-sampled from the proposal, as in the
paper, with fresh draws at every step (fixed ones would be exploited: the network learns to put mass between them). At
a query Z is one-dimensional quadrature, so the density is normalised and draws come from an exact inverse.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from attribution_sched.attribution.conditionals.networks import linear
from attribution_sched.attribution.conditionals.proposals import LOG_SPREAD_RANGE, log_density, transform

BUMPS = 12
REACH = 3.5
EDGE = 5.0
GRID = 49
CLIP = 5.0
IMPORTANCE_DRAWS = 32


class EnergyHead(nn.Module):
    """Coefficients of the energy of every feature.

    Args:
        d: Number of features.
        width: Width of the proposal's context.
        g: Source of the starting weights.
    """

    def __init__(self, d: int, width: int, g: torch.Generator) -> None:
        super().__init__()
        self.enter = linear(width, 64, g, 1.7)
        self.weight = nn.Parameter((torch.rand((d, BUMPS, 64), generator=g) - 0.5) * 0.02)
        self.bias = nn.Parameter(torch.zeros(d, BUMPS))

    def coefficients(self, context: Tensor) -> Tensor:
        """Coefficients of all features, (batch, d, BUMPS)."""
        h = nn.functional.silu(self.enter(context))
        rule = "bch,jkh->bjk" if context.shape[1] == 1 else "bjh,jkh->bjk"
        return torch.einsum(rule, h, self.weight) + self.bias

    def one(self, context: Tensor, j: int) -> Tensor:
        """Coefficients of one feature, (batch, BUMPS)."""
        h = nn.functional.silu(self.enter(context[:, 0 if context.shape[1] == 1 else j]))
        return nn.functional.linear(h, self.weight[j], self.bias[j])


def log_tilt(coefficients: Tensor, t: Tensor) -> Tensor:
    """Negative energy at t (..., m) for coefficients (..., BUMPS), bounded by ±CLIP."""
    return _bound((_bumps(t) @ coefficients[..., None])[..., 0])


def log_partition(heads: Tensor, coefficients: Tensor) -> Tensor:
    """Log Z by quadrature, (...,)."""
    mass, _ = _grid_mass(heads)
    return torch.logsumexp(mass + _grid_tilt(coefficients), dim=-1)


def log_partition_sampled(
    heads: Tensor, coefficients: Tensor, g: torch.Generator, n_draws: int = IMPORTANCE_DRAWS
) -> Tensor:
    """Log Z by importance sampling from the proposal with stratified fresh draws, (...,)."""
    flat = heads.reshape(-1, *heads.shape[-2:])
    with torch.no_grad():
        place = (torch.arange(n_draws) + torch.rand((len(flat), n_draws), generator=g)) / n_draws
        samples = transform(flat.repeat_interleave(n_draws, 0), place.flatten()).reshape(*heads.shape[:-2], n_draws)
        centre, spread = moments(heads)
        t = (samples - centre[..., None]) / spread[..., None]
    return torch.logsumexp(log_tilt(coefficients, t), dim=-1) - math.log(n_draws)


def tilted_log_density(heads: Tensor, coefficients: Tensor, residual: Tensor, log_z: Tensor) -> Tensor:
    """Log density of residuals (...,) given the log partition function."""
    centre, spread = moments(heads)
    t = ((residual - centre) / spread)[..., None]
    return log_density(heads, residual) + log_tilt(coefficients, t)[..., 0] - log_z


def tilted_transform(heads: Tensor, coefficients: Tensor, uniform: Tensor) -> Tensor:
    """Turn uniforms (n,) into draws of heads (n, 3, k), by the inverse of the distribution function on the grid."""
    mass, (centre, spread) = _grid_mass(heads)
    p = torch.softmax(mass + _grid_tilt(coefficients), dim=-1)
    middle = p.cumsum(dim=-1) - 0.5 * p
    right = torch.searchsorted(middle, uniform[:, None]).clamp(1, GRID - 1)
    a, b = middle.gather(-1, right - 1), middle.gather(-1, right)
    share = ((uniform[:, None] - a) / (b - a).clamp_min(1e-9)).clamp(-0.5, 1.5)
    step = 2 * EDGE / (GRID - 1)
    t = -EDGE + step * (right - 1 + share)[:, 0]
    return centre + spread * t


def moments(heads: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and spread of the proposal's mixtures (..., 3, k)."""
    weight = torch.softmax(heads[..., 0, :], dim=-1)
    mean = heads[..., 1, :]
    variance = torch.exp(2 * heads[..., 2, :].clamp(*LOG_SPREAD_RANGE))
    centre = (weight * mean).sum(-1)
    second = (weight * (variance + (mean - centre[..., None]).square())).sum(-1)
    return centre, second.sqrt()


def _grid_mass(heads: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """Log of the proposal's mass at the grid nodes, (..., GRID), and its mean and spread."""
    centre, spread = moments(heads)
    t = torch.linspace(-EDGE, EDGE, GRID)
    log_step = math.log(2 * EDGE / (GRID - 1))
    if heads.shape[-1] == 1:
        return (-0.5 * t * t - 0.5 * math.log(2 * math.pi) + log_step).expand(*centre.shape, GRID), (centre, spread)
    r = centre[..., None] + spread[..., None] * t
    return log_density(heads[..., None, :, :], r) + spread.log()[..., None] + log_step, (centre, spread)


def _grid_tilt(coefficients: Tensor) -> Tensor:
    """Negative energy at the grid nodes; there the bumps are the same for every row."""
    return _bound(coefficients @ _bumps(torch.linspace(-EDGE, EDGE, GRID)).T)


def _bound(tilt: Tensor) -> Tensor:
    """Keep the tilt within ±CLIP, smoothly."""
    return CLIP * torch.tanh(tilt / CLIP)


def _bumps(t: Tensor) -> Tensor:
    """Values (..., BUMPS) of evenly spaced Gaussian bumps."""
    centres = torch.linspace(-REACH, REACH, BUMPS)
    width = 2 * REACH / (BUMPS - 1)
    return torch.exp(-0.5 * ((t[..., None] - centres) / width).square())
