"""The edge-conditioned GraphSAGE on dense arrays: no graph library, and no array of all messages of a large batch.

A batch of 256 graphs of 8 domains has 2 million message features per round. Written out, they cost more in fresh
memory pages than in arithmetic; so graphs are taken a few at a time through one buffer that stays in the cache, and
the backward pass computes the messages again instead of keeping them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

BLOCKED = -1e9
"""Added to the message of a link that is not there, so that its relu is exactly 0 and passes no gradient."""

BUFFER_ELEMENTS = 1 << 17
"""Message features computed at a time on a CPU: half a megabyte of float32."""


class Links:
    """The links of a batch of graphs, N per receiving node, ready for :class:`EdgeSage`.

    Attributes:
        features: Edge features, then 1, then 1 where there is no link and 0 elsewhere, shape ``(B, K, N, D + 2)``.
        senders: Sending node of every link, shape ``(B, K, N)``; None if N = K and all nodes send in order.
        share: One over the number of links a node hears, shape ``(B, K, 1)``; 1 where there is none.
    """

    def __init__(self, edges: Tensor, present: Tensor, neighbours: int | None) -> None:
        """Collect the links.

        Args:
            edges: Edge features, ``(B, K, K, D)``, receiver before sender.
            present: Which links exist, ``(B, K, K)``.
            neighbours: Most links a node listens to; None for all.
        """
        self.senders: Tensor | None = None
        if neighbours is not None and neighbours < present.shape[1] - 1:
            self.senders = widest(edges, present, neighbours)
            edges = edges.gather(2, self.senders.unsqueeze(-1).expand(-1, -1, -1, edges.shape[-1]))
            present = present.gather(2, self.senders)
        absent = (~present).unsqueeze(-1).to(edges.dtype)
        self.features = torch.cat([edges, torch.ones_like(absent), absent], dim=-1)
        self.share = present.sum(dim=2, keepdim=True).clamp_(min=1).to(edges.dtype).reciprocal_()


def widest(edges: Tensor, present: Tensor, neighbours: int) -> Tensor:
    """The ``neighbours`` senders with the largest first edge feature for every receiver, ``(B, K, neighbours)``."""
    width = edges[..., 0].detach().masked_fill(~present, -torch.inf)
    return width.topk(neighbours, dim=2, sorted=False).indices


def unset_linear(n_in: int, n_out: int, bias: bool = True) -> nn.Linear:
    """A layer whose weights are still to be set, made without drawing from torch's global generator."""
    layer = nn.Linear(n_in, n_out, bias=bias, device="meta")
    # ``nn.utils.skip_init`` would do the same, but its first call takes half a second.
    layer.weight = nn.Parameter(torch.empty(n_out, n_in))
    if bias:
        layer.bias = nn.Parameter(torch.empty(n_out))
    return layer


class EdgeSage(nn.Module):
    """Weights of the edge-conditioned GraphSAGE and its dense form.

    Args:
        n_in: Features of a node.
        width: Features of a node afterwards.
        edge_features: Features of an edge, D.
    """

    def __init__(self, n_in: int, width: int, edge_features: int) -> None:
        super().__init__()
        self.width = width
        # W and W_self in one matrix: one product per node serves both.
        self.node = unset_linear(n_in, 2 * width, bias=False)
        self.edge = unset_linear(edge_features, width)

    def project(self, x: Tensor) -> Tensor:
        """Return what nodes send and what they keep, ``[W x, W_self x]``, shape ``(..., 2·width)``."""
        # With a contiguous matrix on the right, the gradient of few features is 7 times cheaper than nn.Linear's.
        return x @ self.node.weight.t().contiguous()

    def forward(self, x: Tensor, links: Links) -> Tensor:
        """Return ``W_self x_i + mean_j relu(W x_j + U e_ij + b)``, shape ``(B, K, width)``."""
        both = self.project(x)
        blocked = both.new_full((1, self.width), BLOCKED)
        weight = torch.cat([self.edge.weight.t(), self.edge.bias.unsqueeze(0), blocked])
        elements = links.share.numel() * links.features.shape[2] * self.width
        if elements <= BUFFER_ELEMENTS or x.device.type != "cpu":
            return self._at_once(both, weight, links)
        heard: Tensor = _KeepAndHear.apply(both, weight, links.features, links.share, links.senders)  # type: ignore[no-untyped-call]
        return heard

    def _at_once(self, both: Tensor, weight: Tensor, links: Links) -> Tensor:
        """The same with all messages in memory: a third faster for one graph, where calls cost more than arithmetic."""
        sent, kept = both.chunk(2, dim=-1)
        message = links.features @ weight
        if links.senders is None:
            message += sent.unsqueeze(1)
        else:
            rows = _rows(links.senders, len(both))
            message += sent.flatten(0, 1).index_select(0, rows).view_as(message)
        return torch.addcmul(kept, message.relu_().sum(dim=2), links.share)


def _rows(senders: Tensor, few: int) -> Tensor:
    """Row ``(b mod few)·K + j`` of every sender among the nodes of ``few`` graphs, shape ``(B·K·N,)``."""
    batch, nodes = senders.shape[:2]
    first = torch.arange(batch, device=senders.device) % max(few, 1) * nodes
    return (senders + first.view(-1, 1, 1)).flatten()


class _KeepAndHear(torch.autograd.Function):
    """``kept_i + share_i · Σ_n relu(sent_{sender(i,n)} + f_in V)``.

    ``both = [sent, kept] (B, K, 2H)``, ``V (D, H)``, ``f (B, K, N, D)``, ``share (B, K, 1)``, ``senders (B, K, N)``.
    """

    @staticmethod
    def forward(
        ctx: Any, both: Tensor, weight: Tensor, features: Tensor, share: Tensor, senders: Tensor | None
    ) -> Tensor:
        ctx.save_for_backward(both, weight, features, share, senders)
        sent, kept = both.chunk(2, dim=-1)
        heard = torch.empty(kept.shape, dtype=kept.dtype, device=kept.device)
        few = _graphs_at_a_time(features, weight)
        parts = zip(torch.split(heard, few), _messages(features, weight, sent, senders), strict=True)
        for out, (_, message, _) in parts:
            torch.sum(message.relu_(), dim=2, out=out)
        return heard.mul_(share).add_(kept)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor | None, None, None]:
        both, weight, features, share, senders = ctx.saved_tensors
        d_weight = torch.zeros_like(weight)
        d_both = torch.empty_like(both)
        d_sent, d_kept = d_both.chunk(2, dim=-1)
        d_kept.copy_(grad)
        d_features: list[Tensor] = []
        few = _graphs_at_a_time(features, weight)
        flows, outs = torch.split((grad * share).unsqueeze(2), few), torch.split(d_sent, few)
        parts = zip(flows, outs, _messages(features, weight, both.chunk(2, dim=-1)[0], senders), strict=True)
        for flow, out, (rows, message, index) in parts:
            torch.ops.aten.threshold_backward.grad_input(flow.expand_as(message), message, 0.0, grad_input=message)
            through = message.flatten(0, 2)
            # Features on the left: the same product the other way round is 8 times slower.
            d_weight.addmm_(rows.t(), through)
            if index is None:
                torch.sum(message, dim=1, out=out)
            else:
                # Into a contiguous array: index_add_ is 10 times slower on a strided one.
                sums = torch.zeros_like(out, memory_format=torch.contiguous_format)
                sums.flatten(0, 1).index_add_(0, index, through)
                out.copy_(sums)
            if ctx.needs_input_grad[2]:
                d_features.append(through @ weight.t())
        return d_both, d_weight, torch.cat(d_features).view_as(features) if d_features else None, None, None


def _graphs_at_a_time(features: Tensor, weight: Tensor) -> int:
    """How many graphs share the buffer."""
    batch, nodes, heard = features.shape[:3]
    return max(1, min(batch, BUFFER_ELEMENTS // (nodes * heard * weight.shape[1])))


def _messages(
    features: Tensor, weight: Tensor, sent: Tensor, senders: Tensor | None
) -> Iterator[tuple[Tensor, Tensor, Tensor | None]]:
    """Yield links ``(rows, D)``, their messages before relu ``(few, K, N, H)`` in one buffer, and their senders."""
    nodes, heard, width = *features.shape[1:3], weight.shape[1]
    few = _graphs_at_a_time(features, weight)
    buffer = sent.new_empty(few * nodes * heard, width)
    lists = torch.split(features.flatten(0, 2), few * nodes * heard)
    indices: Sequence[Tensor | None] = [None] * len(lists)
    if senders is not None:
        indices = torch.split(_rows(senders, few), few * nodes * heard)
    for rows, some, index in zip(lists, torch.split(sent, few), indices, strict=True):
        message = torch.mm(rows, weight, out=buffer[: len(rows)]).view(len(some), nodes, heard, width)
        if index is None:
            message += some.unsqueeze(1)
        else:
            message += some.flatten(0, 1).index_select(0, index).view_as(message)
        yield rows, message, index
