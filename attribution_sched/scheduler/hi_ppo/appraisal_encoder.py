"""The topology encoding of situations that differ little from one to the next.

An explanation asks about thousands of situations of one decision, each of which differs from the one before in a single
input: a link changes what two of the domains hear, the task's own numbers change nothing in the graph. What stays is
not worked out again: a domain's first embedding, and its product with the weights of the second round, is made once for
as long as the domain hears the same; a graph that stays the same is encoded once.

The numbers are those of :class:`~attribution_sched.scheduler.hi_ppo.encoder.TopologyEncoder` up to rounding in float32.
Encoders of another kind (convolution, rounds, device, more domains than are listened to) are asked themselves.
"""

from __future__ import annotations

from typing import NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray

from attribution_sched.kernels import kernel
from attribution_sched.scheduler.hi_ppo.encoder import TopologyEncoder
from attribution_sched.scheduler.hi_ppo.encoder_dense import EdgeSage
from attribution_sched.scheduler.hi_ppo.evaluate import SYSTEM, Seen, look
from attribution_sched.scheduler.hi_ppo.features import ATTRIBUTION_AT, TASK_AT, State
from attribution_sched.scheduler.hi_ppo.network import HiPpoNetwork

Float32Array = NDArray[np.float32]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

LEAST = 16
"""Fewer rows are filled up to this: products of few rows take another path and round differently."""

_ROUNDS, _EDGE_FEATURES = 2, 4


def knows(encoder: TopologyEncoder, domains: int) -> bool:
    """Whether situations of so many domains can be encoded here."""
    close = encoder.neighbours is None or encoder.neighbours >= domains - 1
    plain = encoder.conv == "edge-sage" and not encoder.sparse and encoder.pooling == "mean+max"
    sizes = len(encoder.norms) == _ROUNDS and encoder.edge_features == _EDGE_FEATURES
    weight = encoder.norms[0].weight
    return close and plain and sizes and weight.device.type == "cpu" and weight.dtype == torch.float32


class Encoded(NamedTuple):
    """Graphs that differ, and which of them each situation has.

    Attributes:
        embeddings: Of the domains, shape ``(g, K, W)``.
        pooled: Of the whole, shape ``(g, W)``.
        graph: Graph of each situation, shape ``(n,)``.
    """

    embeddings: torch.Tensor
    pooled: torch.Tensor
    graph: torch.Tensor


def encode(encoder: TopologyEncoder, nodes: Float32Array, edges: Float32Array) -> Encoded:
    """Encode graphs of domains ``(n, K, F)`` with links ``(n, K, K, 4)``."""
    graph, places, heard, told = _sameness(nodes, edges)
    one, two = (cast(EdgeSage, layer) for layer in encoder.layers)
    sent = _product(nodes.reshape(-1, nodes.shape[2])[told], one.node.weight)
    h = np.empty((len(heard), encoder.width), dtype=np.float32)
    _first_round(sent, places.senders, heard, edges, *_edge(one), *_norm(encoder.norms[0]), h)
    sent = _product(h, two.node.weight)
    kept = np.flatnonzero(np.diff(graph, prepend=-1))
    x = np.empty((len(kept), nodes.shape[1], encoder.width), dtype=np.float32)
    pooled = np.zeros((len(kept), 2 * encoder.width), dtype=np.float32)
    _second_round(sent, h, places.receivers, kept, edges, *_edge(two), *_norm(encoder.norms[1]), x, pooled)
    assert encoder.pool is not None
    vector = torch.from_numpy(_product(pooled, encoder.pool.weight)[: len(kept)])
    return Encoded(torch.from_numpy(x), vector, torch.from_numpy(graph))


def look_along(network: HiPpoNetwork, state: State, *, domains: bool = True) -> Seen:
    """What :func:`~attribution_sched.scheduler.hi_ppo.evaluate.look` says with candidate 0 as the task.

    Args:
        network: Who looks.
        state: Situations, best in an order in which neighbours differ little.
        domains: Whether the heads that choose will be asked; critics do not need what is known of each domain.
    """
    task = np.zeros(len(state.nodes), dtype=np.int64)
    if not knows(network.encoder, state.nodes.shape[1]):
        return look(network, state, task)
    found = encode(network.encoder, state.nodes, state.edges)
    general, candidates, present = (
        torch.from_numpy(part) for part in (state.globals, state.candidates, state.present)
    )  # fmt: skip
    shared, each = network.upper.see(found.pooled[found.graph], general, candidates, present)
    context = network.upper.context(shared, each[:, 0])
    if not domains:
        return Seen(found.embeddings[:0], found.embeddings[:0], shared, each, context, general[:0])
    told = state.candidates[:, 0]
    numbers = np.concatenate([told[:, TASK_AT : TASK_AT + 5], told[:, ATTRIBUTION_AT:]], axis=1)
    own = np.concatenate(
        [state.nodes[:, :, :SYSTEM], np.repeat(numbers[:, None], state.nodes.shape[1], axis=1)], axis=2
    )
    embeddings = found.embeddings[found.graph]
    nodes = network.upper.node(found.embeddings)[found.graph]
    return Seen(embeddings, nodes, shared, each, context, torch.from_numpy(own))


class _Places:
    """Where what a node sends and hears stands among what is different.

    Attributes:
        senders: Row of the projected node, shape ``(n, K)``.
        receivers: Row of the first embedding, shape ``(n, K)``.
    """

    def __init__(self, senders: IntArray, receivers: IntArray) -> None:
        self.senders, self.receivers = senders, receivers


def _sameness(nodes: Float32Array, edges: Float32Array) -> tuple[IntArray, _Places, IntArray, IntArray]:
    """What is different from the situation before.

    Returns:
        Number of the graph of each situation ``(n,)``; places; first situation and node ``(·, 2)`` of every embedding;
        flat index of every node that is projected.
    """
    n, k = nodes.shape[:2]
    node = np.ones((n, k), dtype=np.bool_)
    link = np.ones((n, k), dtype=np.bool_)
    np.any(nodes[1:] != nodes[:-1], axis=2, out=node[1:])
    np.any(edges[1:] != edges[:-1], axis=(2, 3), out=link[1:])
    hears = link | node.any(axis=1, keepdims=True)
    graph = np.cumsum(hears.any(axis=1)) - 1
    return graph, _Places(_latest(node), _latest(hears)), np.argwhere(hears), np.flatnonzero(node)


def _latest(fresh: BoolArray) -> IntArray:
    """Number of the last fresh entry of every column, counted over all in order of rows, ``(n, K)``."""
    number = np.cumsum(fresh.reshape(-1)).reshape(fresh.shape) - 1
    found: IntArray = np.maximum.accumulate(np.where(fresh, number, -1), axis=0)
    return found


def _product(x: Float32Array, weight: torch.Tensor) -> Float32Array:
    if len(x) < LEAST:
        x = np.concatenate([x, np.zeros((LEAST - len(x), x.shape[1]), dtype=np.float32)])
    found: Float32Array = (torch.from_numpy(np.ascontiguousarray(x)) @ weight.detach().t()).numpy()
    return found


def _edge(layer: EdgeSage) -> tuple[Float32Array, Float32Array]:
    return np.ascontiguousarray(layer.edge.weight.detach().numpy().T), layer.edge.bias.detach().numpy()


def _norm(norm: torch.nn.Module) -> tuple[Float32Array, Float32Array, float]:
    layer = cast(torch.nn.LayerNorm, norm)
    return layer.weight.detach().numpy(), layer.bias.detach().numpy(), layer.eps


@kernel(fastmath=True)
def _hear(
    sent: Float32Array, senders: IntArray, i: int, links: Float32Array, edge: Float32Array, bias: Float32Array,
    scale: Float32Array, shift: Float32Array, eps: float, out: Float32Array,
) -> None:  # fmt: skip
    """``relu(LayerNorm(kept_i + mean_j relu(sent_j + U e_ij + b)))`` of node i of one graph."""
    k, width = senders.size, bias.size
    out[:] = 0.0
    for j in range(k):
        if j == i:
            continue
        a, b, c, d = links[i, j, 0], links[i, j, 1], links[i, j, 2], links[i, j, 3]
        row = sent[senders[j]]
        for h in range(width):
            v = row[h] + bias[h] + a * edge[0, h] + b * edge[1, h] + c * edge[2, h] + d * edge[3, h]
            out[h] += max(v, np.float32(0.0))
    share = np.float32(1.0) / np.float32(max(1, k - 1))
    own = sent[senders[i]]
    total = np.float32(0.0)
    for h in range(width):
        out[h] = out[h] * share + own[width + h]
        total += out[h]
    mean = total / np.float32(width)
    square = np.float32(0.0)
    for h in range(width):
        square += (out[h] - mean) * (out[h] - mean)
    factor = np.float32(1.0) / np.sqrt(square / np.float32(width) + np.float32(eps))
    for h in range(width):
        out[h] = max((out[h] - mean) * factor * scale[h] + shift[h], np.float32(0.0))


@kernel(fastmath=True)
def _first_round(
    sent: Float32Array, senders: IntArray, heard: IntArray, links: Float32Array, edge: Float32Array,
    bias: Float32Array, scale: Float32Array, shift: Float32Array, eps: float, out: Float32Array,
) -> None:  # fmt: skip
    for u in range(len(heard)):
        b, i = heard[u]
        _hear(sent, senders[b], i, links[b], edge, bias, scale, shift, eps, out[u])


@kernel(fastmath=True)
def _second_round(
    sent: Float32Array, h: Float32Array, senders: IntArray, kept: IntArray, links: Float32Array, edge: Float32Array,
    bias: Float32Array, scale: Float32Array, shift: Float32Array, eps: float, out: Float32Array, pooled: Float32Array,
) -> None:  # fmt: skip
    k, width = senders.shape[1], bias.size
    for g in range(kept.size):
        b = kept[g]
        for i in range(k):
            row = out[g, i]
            _hear(sent, senders[b], i, links[b], edge, bias, scale, shift, eps, row)
            before = h[senders[b, i]]
            for w in range(width):
                row[w] += before[w]
                pooled[g, w] += row[w]
                pooled[g, width + w] = max(pooled[g, width + w], row[w])
        for w in range(width):
            pooled[g, w] /= np.float32(k)
