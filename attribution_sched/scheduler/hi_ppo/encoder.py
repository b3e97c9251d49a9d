"""The topology encoder: domains and the links between them become one vector per domain and one for the whole.

The graph is the complete digraph over the domains, no self loops. Nodes carry the state of a domain (utilisation,
memory, queue, ...), edges that of a link (bandwidth, latency, price, ...). The default convolution is GraphSAGE
conditioned on the edge::

    m_i  = mean_j relu(W x_j + U e_ij + b)        over the neighbours j of i
    x_i' = relu(LayerNorm(W_self x_i + m_i))      plus x_i from the second round on

with ``e_ij = edges[i, j]``, the link from i to j: a domain hears of the links it would send over. Who needs the way
back as well gives both directions as features, ``cat([edges, edges.transpose(1, 2)], -1)``.

Two implementations share the weights of that convolution. The reference is a message-passing layer of torch-geometric
(:class:`~attribution_sched.scheduler.hi_ppo.encoder_convs.EdgeSageConv`); its twin below works on dense arrays and
spares a decision the three seconds that importing torch-geometric takes. GINE and GATv2 are torch-geometric's own.
"""

from __future__ import annotations

import math
from typing import Any, Literal, cast, get_args

import torch
from torch import Tensor, nn

from attribution_sched.errors import ModelFitError, SettingsError, nearest, problem
from attribution_sched.scheduler.hi_ppo.encoder_dense import EdgeSage, Links, unset_linear, widest

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
