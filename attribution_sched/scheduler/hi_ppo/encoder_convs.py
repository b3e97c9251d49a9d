"""Convolutions of the topology encoder by torch-geometric, whose import takes seconds: load this module only to use it.

All of them take ``(x, edge_index, edge_attr)`` and return ``W_self x_i`` plus what they gathered from the neighbours.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor, nn

from attribution_sched.errors import SettingsError, problem
from attribution_sched.scheduler.hi_ppo.topology_encoder import EdgeSage

# torch-geometric still decorates with torch.jit.script, which newer versions of torch complain about at import.
with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from torch_geometric.nn import GATv2Conv, GINEConv, MessagePassing

HEADS = 4
"""Attention heads of GATv2."""


class EdgeSageConv(MessagePassing):
    r"""GraphSAGE that really uses edge features.

    .. math:: x_i' = W_{self} x_i + \mathrm{mean}_j\, \mathrm{relu}(W x_j + U e_{ij})

    Args:
        weights: The matrices; shared with whoever else holds them.

    Shapes:
        x ``(n, F)``, edge_index ``(2, E)`` with senders above receivers, edge_attr ``(E, D)``, result ``(n, width)``.
    """

    def __init__(self, weights: EdgeSage) -> None:
        super().__init__(aggr="mean")
        self.weights = weights

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        """Exchange one round of messages."""
        sent, kept = self.weights.project(x).chunk(2, dim=-1)
        heard: Tensor = self.propagate(edge_index, sent=sent, edge=self.weights.edge(edge_attr), size=(len(x), len(x)))
        return kept + heard

    def message(self, sent_j: Tensor, edge: Tensor) -> Tensor:
        """``relu(W x_j + U e_ij + b)``."""
        return torch.relu(sent_j + edge)


class EdgeGine(nn.Module):
    """torch-geometric's GINE at full width: its messages have the width of its input, so the input is widened first.

    Messages are averaged, not summed, so that weights learnt on a few domains serve on many.
    """

    def __init__(self, n_in: int, width: int, edge_features: int) -> None:
        super().__init__()
        self.widen = nn.Linear(n_in, width) if n_in != width else nn.Identity()
        self.conv = GINEConv(nn.Linear(width, width), edge_dim=edge_features, aggr="mean")

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        """Exchange one round of messages."""
        result: Tensor = self.conv(self.widen(x), edge_index, edge_attr)
        return result


class EdgeGat(nn.Module):
    """torch-geometric's GATv2 with edge features; the node itself enters by its own matrix, not by a self loop."""

    def __init__(self, n_in: int, width: int, edge_features: int) -> None:
        super().__init__()
        self.kept = nn.Linear(n_in, width)
        self.conv = GATv2Conv(n_in, width // HEADS, heads=HEADS, edge_dim=edge_features, add_self_loops=False)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        """Exchange one round of messages."""
        result: Tensor = self.kept(x) + self.conv(x, edge_index, edge_attr)
        return result


def make_conv(conv: str, n_in: int, width: int, edge_features: int) -> nn.Module:
    """Make one of torch-geometric's layers; its random start does not touch the global generator."""
    if conv == "gatv2" and width % HEADS:
        rule = f"must be a multiple of the {HEADS} attention heads"
        raise SettingsError(problem("encoder.width", width, rule, f"Use {-(-width // HEADS) * HEADS}"))
    kinds: dict[str, Any] = {"gine": EdgeGine, "gatv2": EdgeGat}
    with torch.random.fork_rng(devices=[]):
        layer: nn.Module = kinds[conv](n_in, width, edge_features)
    return layer


def edge_list(edges: Tensor, present: Tensor) -> tuple[Tensor, Tensor]:
    """Turn dense links into torch-geometric's lists.

    Args:
        edges: ``(B, K, K, D)``, receiver before sender.
        present: Which of them exist, ``(B, K, K)``.

    Returns:
        ``edge_index (2, E)`` of rows ``b·K + k``, senders above receivers, and ``edge_attr (E, D)``.
    """
    graph, receiver, sender = present.nonzero(as_tuple=True)
    first = graph * present.shape[1]
    return torch.stack([first + sender, first + receiver]), edges[graph, receiver, sender]
