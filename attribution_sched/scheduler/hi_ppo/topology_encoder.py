"""The topology encoder: domains and the links between them become one vector per domain and one for the whole.

The graph is the complete digraph over the domains, no self loops. Nodes carry the state of a domain (utilisation,
memory, queue, ...), edges that of a link (bandwidth, latency, price, ...). The default convolution is GraphSAGE
conditioned on the edge::

    m_i  = mean_j relu(W x_j + U e_ij + b)        over the neighbours j of i
    x_i' = relu(LayerNorm(W_self x_i + m_i))      plus x_i from the second round on

with ``e_ij = edges[i, j]``, the link from i to j: a domain hears of the links it would send over. Who needs the way
back as well gives both directions as features, ``cat([edges, edges.transpose(1, 2)], -1)``.

Two implementations share the weights of that convolution. The reference is a message-passing layer of torch-geometric
(:class:`~attribution_sched.scheduler.hi_ppo.topology_encoder.EdgeSageConv`); its twin below works on dense arrays and
spares a decision the three seconds that importing torch-geometric takes. GINE and GATv2 are torch-geometric's own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, Literal, cast, get_args

import torch
from torch import Tensor, nn

from attribution_sched.errors import ModelFitError, SettingsError, nearest, problem

Conv = Literal["edge-sage", "gine", "gatv2"]
Pooling = Literal["mean+max", "mean", "max"]

NEIGHBOURS = 16
"""Links a domain listens to in larger clusters."""


def orthogonal_start(module: nn.Module, generator: torch.Generator) -> None:
    """Give every matrix orthogonal rows or columns and every bias zeros; norms stay as they are.

    Matrices that widen are scaled up so that the root mean square of a vector is kept. Otherwise five edge features
    would whisper next to 128 node features in the same sum.
    """
    for layer in module.modules():
        if isinstance(layer, nn.LayerNorm):
            continue
        for parameter in layer.parameters(recurse=False):
            if parameter.ndim < 2:
                nn.init.zeros_(parameter)
            else:
                rows, columns = parameter.shape[0], parameter[0].numel()
                nn.init.orthogonal_(parameter, gain=math.sqrt(max(1.0, rows / columns)), generator=generator)


class TopologyEncoder(nn.Module):
    """Encode a batch of domain graphs of any size.

    Embeddings follow their domains under a reordering and the pooled vector does not change; domains that are masked
    out neither send nor receive nor count in the pooling, whatever their features hold.

    In graphs of more than ``neighbours + 1`` domains each one listens only to the links with the largest first edge
    feature, which should therefore be the bandwidth. Messages otherwise grow with K²: at 64 domains, 16 neighbours
    take 0.5 to 0.6 of the time of all 63. Between links of exactly equal bandwidth at that limit the choice is
    arbitrary.

    Args:
        node_features: Features of a domain, F.
        edge_features: Features of a link, D.
        width: Length of the embeddings.
        rounds: Convolutions, one after the other.
        conv: ``"edge-sage"``; ``"gine"`` or ``"gatv2"`` (4 heads) of torch-geometric.
        pooling: What is taken over the domains; ``"mean+max"`` is projected back to ``width``.
        neighbours: Links a domain listens to; None for all of them.
        sparse: Run the edge-SAGE by torch-geometric instead of its dense twin; same weights, same result.
        generator: Source of the start of the weights; by default always the same start.
    """

    def __init__(
        self,
        node_features: int,
        edge_features: int,
        width: int = 128,
        rounds: int = 2,
        conv: Conv = "edge-sage",
        pooling: Pooling = "mean+max",
        neighbours: int | None = NEIGHBOURS,
        sparse: bool = False,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        counts = {"node_features": node_features, "edge_features": edge_features, "width": width, "rounds": rounds}
        for name, value in {**counts, "neighbours": 1 if neighbours is None else neighbours}.items():
            if value < 1:
                raise SettingsError(problem(f"encoder.{name}", value, "must be >= 1", "Use a positive number"))
        for name, word, valid in (("conv", conv, get_args(Conv)), ("pooling", pooling, get_args(Pooling))):
            if word not in valid:
                raise SettingsError(problem(f"encoder.{name}", word, f"must be one of {valid}", nearest(word, valid)))
        self.node_features, self.edge_features, self.width = node_features, edge_features, width
        self.conv, self.pooling, self.neighbours = conv, pooling, neighbours
        self.sparse = sparse or conv != "edge-sage"
        sizes = [node_features] + [width] * rounds
        self.layers = nn.ModuleList(self._layer(n_in) for n_in in sizes[:-1])
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(rounds))
        self.pool = unset_linear(2 * width, width, bias=False) if pooling == "mean+max" else None
        # A tuple is not a submodule: these layers borrow the weights above and must not appear twice among them.
        self._reference: tuple[Any, ...] = ()
        orthogonal_start(self, generator or torch.Generator().manual_seed(0))

    def _layer(self, n_in: int) -> nn.Module:
        if self.conv == "edge-sage":
            return EdgeSage(n_in, self.width, self.edge_features)
        from attribution_sched.scheduler.hi_ppo.encoder_convs import make_conv

        return make_conv(self.conv, n_in, self.width, self.edge_features)

    def forward(self, nodes: Tensor, edges: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Encode graphs.

        Args:
            nodes: State of the domains, ``(B, K, F)``.
            edges: State of the links, ``(B, K, K, D)``; ``[b, i, j]`` is the link from i to j, the diagonal is unused.
            mask: Which domains exist, ``(B, K)``, bool.

        Returns:
            Embeddings ``(B, K, width)``, zero for masked domains, and the pooled vector ``(B, width)``, zero for a
            graph without domains.
        """
        self._check_shapes(nodes, edges, mask)
        present = mask.unsqueeze(1) & mask.unsqueeze(2)
        present = present & ~torch.eye(nodes.shape[1], dtype=torch.bool, device=mask.device)
        inside = mask.unsqueeze(-1)
        # Where all domains exist, as in any batch of one cluster, nothing needs to be taken out.
        whole = bool(mask.all())
        x = nodes if whole else torch.where(inside, nodes, 0.0)
        edges = torch.where(present.unsqueeze(-1), edges, 0.0)
        _check_finite(nodes=x, edges=edges)
        heard = self._hear(x, edges, present)
        for number, norm in enumerate(self.norms):
            fresh = torch.relu(norm(heard(number, x)))
            x = fresh if number == 0 else x + fresh
        x = x if whole else torch.where(inside, x, 0.0)
        return x, self._pooled(x, inside)

    def _hear(self, x: Tensor, edges: Tensor, present: Tensor) -> Any:
        """Prepare the links once and return ``(round, x) -> update`` for the implementation in use."""
        if not self.sparse:
            links = Links(edges, present, self.neighbours)
            return lambda number, x: self.layers[number](x, links)
        from attribution_sched.scheduler.hi_ppo import encoder_convs

        if self.conv == "edge-sage" and not self._reference:
            self._reference = tuple(encoder_convs.EdgeSageConv(cast(EdgeSage, layer)) for layer in self.layers)
        layers = self._reference or tuple(self.layers)
        if self.neighbours is not None and self.neighbours < present.shape[1] - 1:
            chosen = torch.zeros_like(present)
            present = present & chosen.scatter_(2, widest(edges, present, self.neighbours), True)
        index, attributes = encoder_convs.edge_list(edges, present)
        return lambda number, x: layers[number](x.flatten(0, 1), index, attributes).view(*x.shape[:2], self.width)

    def _pooled(self, x: Tensor, inside: Tensor) -> Tensor:
        parts = []
        if self.pooling != "max":
            parts.append(x.sum(dim=1) / inside.sum(dim=1).clamp(min=1))
        if self.pooling != "mean":
            # Embeddings are never negative (they end in relu), so the zeros of masked domains cannot win.
            parts.append(x.amax(dim=1))
        return parts[0] if self.pool is None else self.pool(torch.cat(parts, dim=-1))

    def _check_shapes(self, nodes: Tensor, edges: Tensor, mask: Tensor) -> None:
        shape = tuple(nodes.shape[:2])
        wanted = (*shape, self.node_features), (*shape, shape[-1], self.edge_features), shape
        given = tuple(nodes.shape), tuple(edges.shape), tuple(mask.shape)
        if nodes.ndim != 3 or shape[1] < 1 or given != wanted:
            rule = f"must be (B, K, {self.node_features}), (B, K, K, {self.edge_features}) and (B, K) with K >= 1"
            fix = "Use the observation this encoder was made for"
            raise ModelFitError(problem("shapes of nodes, edges, mask", given, rule, fix))
        kind = self.norms[0].weight.dtype
        if nodes.dtype != kind or edges.dtype != kind:
            fix = f"Use nodes.to({kind}), edges.to({kind})"
            raise ModelFitError(problem("types of nodes, edges", (nodes.dtype, edges.dtype), f"must be {kind}", fix))
        if mask.dtype != torch.bool:
            raise ModelFitError(problem("mask", mask.dtype, "must be bool", "Use mask.bool()"))


def _check_finite(**inputs: Tensor) -> None:
    """Refuse NaN and infinity; a sum is finite only if all its terms are, and costs one pass without a copy."""
    for name, given in inputs.items():
        value = given.detach()
        if math.isfinite(float(value.sum())):
            continue
        wrong = torch.nonzero(~torch.isfinite(value))
        if len(wrong):
            where = wrong[0].tolist()
            fix = "Repair the observation; only masked domains may hold anything"
            raise ModelFitError(problem(f"{name}{where}", float(value[tuple(where)]), "must be finite", fix))


# ------ The edge-conditioned GraphSAGE on dense arrays: no graph library, and no array of all messages of a large batch
#
# A batch of 256 graphs of 8 domains has 2 million message features per round. Written out, they cost more in fresh
# memory pages than in arithmetic; so graphs are taken a few at a time through one buffer that stays in the cache, and
# the backward pass computes the messages again instead of keeping them.

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
