"""Proposal networks: one forward pass gives a one-dimensional mixture for every hidden feature.

Both networks see only what is observed: the hidden entries arrive as zeros, beside the mask.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from attribution_sched.attribution.conditionals.networks import linear

LOG_SPREAD_RANGE = (-4.0, 3.0)


class MlpProposal(nn.Module):
    """Residual network on (x_S, mask, linear prediction, its log spread), one mixture head for each feature.

    The heads speak in units of the linear (Gaussian) prediction's error, so a fresh network is already the
    Gaussian conditional and learns only the departure from it.

    Args:
        d: Number of features.
        components: Mixture components of each head.
        width: Hidden units.
        g: Source of the starting weights.
    """

    def __init__(self, d: int, components: int, width: int, g: torch.Generator) -> None:
        super().__init__()
        self.d, self.components, self.width = d, components, width
        self.enter = linear(4 * d, width, g, 1.7)
        self.middle = nn.ModuleList([linear(width, width, g, 1.7), linear(width, width, g)])
        self.head = _head(width, d, components, g)

    def context(self, x: Tensor, mask: Tensor, mean: Tensor, spread: Tensor) -> Tensor:
        """Features of the observed part, (batch, 1, width), the same for every head."""
        hidden = 1.0 - mask
        h = self.enter(torch.cat([x, mask, mean * hidden, spread.log() * hidden], dim=1))
        h = h + self.middle[1](functional.silu(self.middle[0](functional.silu(h))))
        return functional.silu(h)[:, None, :]

    def heads(self, context: Tensor) -> Tensor:
        """Parameters of all heads, (batch, d, 3, components)."""
        out = torch.einsum("bch,jph->bjp", context, self.head.weight) + self.head.bias
        return out.reshape(len(out), self.d, 3, self.components)

    def one_head(self, context: Tensor, j: int) -> Tensor:
        """Parameters of one head, (batch, 3, components)."""
        out = functional.linear(context[:, 0], self.head.weight[j], self.head.bias[j])
        return out.reshape(len(out), 3, self.components)


class GruProposal(nn.Module):
    """The paper's proposal: a GRU that reads the masked features one after another, batch first.

    It reads in both directions, so every feature's context covers all the others whatever their order.

    Args:
        d: Number of features.
        components: Mixture components of each head; the paper has one.
        width: Hidden units of each direction.
        g: Source of the starting weights.
    """

    def __init__(self, d: int, components: int, width: int, g: torch.Generator) -> None:
        super().__init__()
        self.d, self.components, self.width = d, components, 2 * width
        with torch.random.fork_rng(devices=[]):
            self.gru = nn.GRU(2 + d, width, batch_first=True, bidirectional=True)
        with torch.no_grad():
            for parameter in self.gru.parameters():
                parameter.uniform_(-(width**-0.5), width**-0.5, generator=g)
        self.mix = linear(2 * width, 2 * width, g, 1.7)
        self.head = _head(2 * width, d, components, g)

    def context(self, x: Tensor, mask: Tensor, mean: Tensor, spread: Tensor) -> Tensor:
        """Features of the observed part seen from each feature, (batch, d, width)."""
        which = torch.eye(self.d).expand(len(x), -1, -1)
        steps = torch.cat([x[:, :, None], mask[:, :, None], which], dim=2)
        out, _ = self.gru(steps)
        mixed: Tensor = out + functional.silu(self.mix(out))
        return mixed

    def heads(self, context: Tensor) -> Tensor:
        """Parameters of all heads, (batch, d, 3, components)."""
        out = torch.einsum("bjh,jph->bjp", context, self.head.weight) + self.head.bias
        return out.reshape(len(out), self.d, 3, self.components)

    def one_head(self, context: Tensor, j: int) -> Tensor:
        """Parameters of one head, (batch, 3, components)."""
        out = functional.linear(context[:, j], self.head.weight[j], self.head.bias[j])
        return out.reshape(len(out), 3, self.components)


class _Heads(nn.Module):
    """Weights (d, 3 * components, width) of all mixture heads."""

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(weight), nn.Parameter(bias)


def _head(width: int, d: int, components: int, g: torch.Generator) -> _Heads:
    """Heads that start as evenly spread components of nearly equal weight."""
    weight = (torch.rand((d, 3 * components, width), generator=g) - 0.5) * (0.1 / width**0.5)
    bias = torch.zeros(d, 3, components)
    if components > 1:
        bias[:, 1] = torch.linspace(-1.2, 1.2, components)
    return _Heads(weight, bias.flatten(1))


def log_density(heads: Tensor, residual: Tensor) -> Tensor:
    """Log density of standardised residuals (...,) under heads (..., 3, components)."""
    log_weight = torch.log_softmax(heads[..., 0, :], dim=-1)
    log_spread = heads[..., 2, :].clamp(*LOG_SPREAD_RANGE)
    z = (residual[..., None] - heads[..., 1, :]) * torch.exp(-log_spread)
    total: Tensor = torch.logsumexp(log_weight - log_spread - 0.5 * z * z, dim=-1) - 0.9189385332046727
    return total


def transform(heads: Tensor, uniform: Tensor) -> Tensor:
    """Turn uniforms (n,) into draws of heads (n, 3, components).

    The unit interval is cut into one piece for each component, in the order of their means, and each piece is
    stretched through that component's normal quantile: exact, and without root finding.
    """
    if heads.shape[-1] == 1:
        spread = heads[:, 2, 0].clamp(*LOG_SPREAD_RANGE).exp()
        plain: Tensor = heads[:, 1, 0] + spread * torch.special.ndtri(uniform.clamp(1e-6, 1 - 1e-6))
        return plain
    mean, order = heads[:, 1].sort(dim=-1)
    weight = torch.softmax(heads[:, 0], dim=-1).gather(-1, order)
    top = weight.cumsum(dim=-1)
    k = (uniform[:, None] > top[:, :-1]).sum(dim=-1, keepdim=True)
    component_weight = weight.gather(-1, k)
    inner = ((uniform[:, None] - (top.gather(-1, k) - component_weight)) / component_weight).clamp(1e-6, 1 - 1e-6)
    spread = heads[:, 2].clamp(*LOG_SPREAD_RANGE).gather(-1, order.gather(-1, k)).exp()
    samples: Tensor = (mean.gather(-1, k) + spread * torch.special.ndtri(inner))[:, 0]
    return samples
