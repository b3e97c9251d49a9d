"""The network: edge-aware attention over domains, a recurrent decoder, and one pointer per kind of choice.

Encoder, twice, over the domains with room::

    a_ij = v · LeakyReLU(W x_i + U x_j + E e_ij)
    x_i' = LayerNorm(x_i + MLP[x_i, Σ_j softmax_j(a_ij)(U x_j + E e_ij)])

Nothing depends on the order of the domains or their number. The decoder is a GRU cell fed with the segment just
written; each choice (next domain or the end, microbatch, layout, last layer) is scored by a perceptron over
``tanh(A c + B h)`` with c the description of the choice, and what is masked gets probability 0.

It is kept on disk in the one file format of :mod:`attribution_sched.storage`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from attribution_sched import storage
from attribution_sched.errors import CheckpointError, problem
from attribution_sched.rivals.seq2seq.features import (
    CONTEXT,
    CUT_CHOICE,
    DOMAIN_CHOICE,
    EDGE_FEATURES,
    MICRO_CHOICE,
    NODE_FEATURES,
    OPTION_CHOICE,
    TASK_FEATURES,
)


@dataclass(frozen=True)
class NetworkSize:
    """How large the network is.

    Attributes:
        width: Units of every layer.
        rounds: Rounds of attention over the domains.
    """

    width: int = 64
    rounds: int = 2


class EdgeAttention(nn.Module):
    """One round of attention between domains that sees what the links cost."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.own = nn.Linear(width, width)
        self.other = nn.Linear(width, width)
        self.edge = nn.Linear(2 * EDGE_FEATURES, width)
        self.score = nn.Linear(width, 1)
        self.update = nn.Sequential(nn.Linear(2 * width, width), nn.ReLU(), nn.Linear(width, width))
        self.norm = nn.LayerNorm(width)

    def forward(self, nodes: Tensor, edges: Tensor, mask: Tensor) -> Tensor:
        """Exchange messages: ``nodes (B, K, W)``, ``edges (B, K, K, 10)``, ``mask (B, K)`` of domains with room."""
        sent = self.other(nodes)[:, None, :, :] + self.edge(edges)
        scores = self.score(nn.functional.leaky_relu(self.own(nodes)[:, :, None, :] + sent, 0.1))[..., 0]
        weights = torch.softmax(scores.masked_fill(~mask[:, None, :], -1e9), dim=-1)
        heard = torch.einsum("bij,bijw->biw", weights, sent)
        updated: Tensor = self.norm(nodes + self.update(torch.cat([nodes, heard], dim=-1)))
        return updated


class Pointer(nn.Module):
    """Scores a set of described choices against what they share: the decoder's state and what was chosen before."""

    def __init__(self, choice: int, shared: int, width: int) -> None:
        super().__init__()
        self.choice = nn.Sequential(nn.Linear(choice, width), nn.ReLU(), nn.Linear(width, width))
        self.shared = nn.Linear(shared, width)
        self.mixed = nn.Linear(width, width)
        self.score = nn.Linear(width, 1)

    def forward(self, choices: Tensor, shared: Tensor) -> Tensor:
        """Score ``choices (H, C, F)`` that share ``(H, S)``; returns ``(H, C)``."""
        looked = torch.tanh(self.choice(choices) + self.shared(shared)[..., None, :])
        scores: Tensor = self.score(torch.relu(self.mixed(looked)))[..., 0]
        return scores


def log_probabilities(scores: Tensor, mask: Tensor) -> Tensor:
    """Logarithms of the probabilities of choices; −∞ exactly where masked."""
    return torch.log_softmax(scores.masked_fill(~mask, float("-inf")), dim=-1)


class PointerNetwork(nn.Module):
    """Encoder, decoder and the four pointers.

    Args:
        size: How large it is.
    """

    def __init__(self, size: NetworkSize | None = None) -> None:
        super().__init__()
        self.size = size or NetworkSize()
        width = self.size.width
        self.nodes = nn.Sequential(nn.Linear(NODE_FEATURES + TASK_FEATURES, width), nn.ReLU(), nn.Linear(width, width))
        self.rounds = nn.ModuleList(EdgeAttention(width) for _ in range(self.size.rounds))
        self.begin = nn.Sequential(nn.Linear(2 * width + TASK_FEATURES, width), nn.Tanh())
        self.segment = nn.Linear(width + OPTION_CHOICE + CUT_CHOICE + MICRO_CHOICE, width)
        self.memory = nn.GRUCell(width, width)
        self.context = nn.Linear(CONTEXT + TASK_FEATURES, width)
        self.domain = Pointer(width + DOMAIN_CHOICE, width, width)
        self.end = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))
        self.micro = Pointer(MICRO_CHOICE, 2 * width, width)
        self.option = Pointer(OPTION_CHOICE, 2 * width + MICRO_CHOICE, width)
        self.cut = Pointer(CUT_CHOICE, 2 * width + OPTION_CHOICE, width)

    def encode(self, nodes: Tensor, edges: Tensor, task: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Read the decisions.

        Args:
            nodes: Shape ``(B, K, 9)``.
            edges: Shape ``(B, K, K, 5)``.
            task: Shape ``(B, 10)``.
            mask: Domains with room, shape ``(B, K)``; at least one each.

        Returns:
            Embeddings of the domains ``(B, K, W)`` and the first state of the decoder ``(B, W)``.
        """
        k = nodes.shape[1]
        both = torch.cat([edges, edges.transpose(1, 2)], dim=-1)
        x = self.nodes(torch.cat([nodes, task[:, None, :].expand(-1, k, -1)], dim=-1))
        for layer in self.rounds:
            x = layer(x, both, mask)
        kept = mask[..., None]
        mean = (x * kept).sum(dim=1) / kept.sum(dim=1)
        most = x.masked_fill(~kept, -1e9).max(dim=1).values
        return x, self.begin(torch.cat([mean, most, task], dim=-1))

    def state(self, memory: Tensor, context: Tensor, task: Tensor) -> Tensor:
        """Join what the decoder remembers with what can be read off the unfinished plan, shape ``(..., W)``."""
        joined: Tensor = memory + self.context(torch.cat([context, task], dim=-1))
        return joined

    def domain_scores(self, state: Tensor, embedded: Tensor, choices: Tensor) -> Tensor:
        """Score every domain and, last, the end, shape ``(..., K + 1)``."""
        scores = self.domain(torch.cat([embedded, choices], dim=-1), state)
        return torch.cat([scores, self.end(state)], dim=-1)

    def micro_scores(self, state: Tensor, here: Tensor, choices: Tensor) -> Tensor:
        """Score every microbatch size in a domain whose embedding is ``here (H, W)``."""
        scores: Tensor = self.micro(choices, torch.cat([state, here], dim=-1))
        return scores

    def option_scores(self, state: Tensor, here: Tensor, micro: Tensor, choices: Tensor) -> Tensor:
        """Score every layout in that domain, given the description of the microbatch size ``(H, 6)``."""
        scores: Tensor = self.option(choices, torch.cat([state, here, micro], dim=-1))
        return scores

    def cut_scores(self, state: Tensor, here: Tensor, layout: Tensor, choices: Tensor) -> Tensor:
        """Score every last layer, given the description of the chosen layout ``(H, 18)``."""
        scores: Tensor = self.cut(choices, torch.cat([state, here, layout], dim=-1))
        return scores

    def remember(self, memory: Tensor, here: Tensor, micro: Tensor, layout: Tensor, cut: Tensor) -> Tensor:
        """Take in the segment just written; all of shape ``(H, …)``."""
        written = torch.relu(self.segment(torch.cat([here, layout, cut, micro], dim=-1)))
        remembered: Tensor = self.memory(written, memory)
        return remembered


KIND = "pointer"
SHIPPED = Path(__file__).with_name("weights.safetensors")
"""The weights that come with the package."""

LIMITS = {"width": 1024, "rounds": 16}
"""Larger networks are not read: a file of a few bytes must not be able to ask for all memory."""


def save(network: PointerNetwork, path: str | Path, made: dict[str, Any]) -> None:
    """Write a network, complete or not at all.

    Args:
        network: What to write.
        path: Target, ``*.safetensors``.
        made: How the weights were made, ready for JSON.
    """
    arrays = {name: tensor.detach().cpu().numpy() for name, tensor in network.state_dict().items()}
    storage.write(path, KIND, {"size": asdict(network.size), "made": made}, arrays)


def describe(path: str | Path = SHIPPED) -> dict[str, Any]:
    """What a file says of its weights: their size, and how they were made.

    Raises:
        CheckpointError: If it is missing, damaged, of another version or holds something else.
    """
    header, _ = storage.read(path, KIND)
    return header


def load(path: str | Path = SHIPPED) -> PointerNetwork:
    """Read a network back, refusing anything but exactly what was written.

    Raises:
        CheckpointError: If a file is missing, was changed, or is of another version or shape.
    """
    import torch

    header, arrays = storage.read(path, KIND)
    network = PointerNetwork(NetworkSize(**storage.expected_sizes(path, header.get("size"), LIMITS)))
    own = network.state_dict()
    expected = {name: (tuple(tensor.shape), str(tensor.dtype).removeprefix("torch.")) for name, tensor in own.items()}
    given = {name: (array.shape, str(array.dtype)) for name, array in arrays.items()}
    if given != expected:
        odd = sorted(name for name in {*given, *expected} if given.get(name) != expected.get(name))[0]
        rule = f"{odd!r} is {given.get(odd)}, a network of this size has {expected.get(odd)}"
        raise CheckpointError(problem("checkpoint weights", str(path), rule, "Train and save again"))
    network.load_state_dict({name: torch.from_numpy(array.copy()) for name, array in arrays.items()})
    return network.eval()
