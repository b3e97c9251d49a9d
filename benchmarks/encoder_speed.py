"""Speed of the topology encoder: microseconds per graph, forward and with the backward pass, for 4 to 64 domains.

    python benchmarks/encoder_speed.py                  # about a minute
    python benchmarks/encoder_speed.py --output DIR     # also writes encoder_speed.md there

Complete digraphs without self loops, two rounds, 128 wide, five features per domain and link, one thread, float32; the
backward pass fills the gradients of all weights. Process CPU time, the best of several repeats, the contenders taking
turns. ``SAGEConv`` sees no edge features and is there for scale. "all messages in memory" is the dense edge-SAGE
without its buffer and hand-written gradient. At 64 domains everybody but ``SAGEConv`` listens to 16 neighbours.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn
from torch_geometric.nn import SAGEConv

from attribution_sched.scheduler.hi_ppo.encoder_convs import edge_list
from attribution_sched.scheduler.hi_ppo.topology_encoder import BLOCKED, EdgeSage, Links, TopologyEncoder

FEATURES, WIDTH = 5, 128
CASES = ((256, 4), (256, 8), (256, 16), (16, 64), (1, 8), (1, 64))
Step = Callable[[], object]


class PlainSage(nn.Module):
    """Two rounds of torch-geometric's SAGEConv, normalised and pooled like the others."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([SAGEConv(FEATURES, WIDTH), SAGEConv(WIDTH, WIDTH)])
        self.norms = nn.ModuleList([nn.LayerNorm(WIDTH) for _ in range(2)])
        self.pool = nn.Linear(2 * WIDTH, WIDTH, bias=False)

    def forward(self, nodes: Tensor, edges: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Encode graphs without looking at the edges."""
        present = mask.unsqueeze(1) & mask.unsqueeze(2) & ~torch.eye(nodes.shape[1], dtype=torch.bool)
        index, _ = edge_list(edges, present)
        x = nodes.flatten(0, 1)
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = torch.relu(norm(layer(x, index)))
        x = x.view(*mask.shape, WIDTH)
        return x, self.pool(torch.cat([x.mean(dim=1), x.amax(dim=1)], dim=-1))


class WrittenOut(EdgeSage):
    """The dense edge-SAGE as one would first write it."""

    def forward(self, x: Tensor, links: Links) -> Tensor:
        """The same numbers by torch's own derivatives."""
        sent, kept = self.project(x).chunk(2, dim=-1)
        weight = torch.cat([self.edge.weight.t(), self.edge.bias[None], sent.new_full((1, self.width), BLOCKED)])
        if links.senders is None:
            heard = sent.unsqueeze(1)
        else:
            graphs = torch.arange(len(x)).view(-1, 1, 1)
            heard = sent[graphs, links.senders]
        return kept + torch.relu(links.features @ weight + heard).sum(dim=2) * links.share


def contenders() -> dict[str, nn.Module]:
    """Every encoder by the name it has in the table."""
    written = TopologyEncoder(FEATURES, FEATURES)
    for layer in written.layers:
        layer.__class__ = WrittenOut
    return {
        "edge-SAGE, dense (default)": TopologyEncoder(FEATURES, FEATURES),
        "edge-SAGE, all messages in memory": written,
        "edge-SAGE, torch-geometric": TopologyEncoder(FEATURES, FEATURES, sparse=True),
        "GINE": TopologyEncoder(FEATURES, FEATURES, conv="gine"),
        "GATv2, 4 heads": TopologyEncoder(FEATURES, FEATURES, conv="gatv2"),
        "SAGEConv (no edge features)": PlainSage(),
    }


def steps(encoder: nn.Module, batch: int, nodes: int) -> tuple[Step, Step]:
    """A forward pass and a forward and backward pass over the same random graphs."""
    g = torch.Generator().manual_seed(0)
    x, e = torch.randn(batch, nodes, FEATURES, generator=g), torch.randn(batch, nodes, nodes, FEATURES, generator=g)
    mask = torch.ones(batch, nodes, dtype=torch.bool)
    flow = (torch.randn(batch, nodes, WIDTH, generator=g), torch.randn(batch, WIDTH, generator=g))

    def forward() -> None:
        with torch.inference_mode():
            encoder(x, e, mask)

    def both() -> None:
        torch.autograd.backward(encoder(x, e, mask), flow)

    return forward, both


def measure(repeats: int) -> dict[tuple[int, int], dict[str, tuple[float, float]]]:
    """Best seconds per call of both passes, by case and name."""
    encoders, table = contenders(), {}
    for batch, nodes in CASES:
        runs = {name: steps(encoder, batch, nodes) for name, encoder in encoders.items()}
        best = {name: [float("inf")] * 2 for name in runs}
        calls = max(2, 4000 // (batch * nodes))
        for repeat in range(repeats + 1):
            for name, passes in runs.items():
                for k, step in enumerate(passes):
                    start = time.process_time()
                    for _ in range(calls):
                        step()
                    if repeat:
                        best[name][k] = min(best[name][k], (time.process_time() - start) / calls)
        table[batch, nodes] = {name: (pair[0], pair[1]) for name, pair in best.items()}
    return table


def speed_of_light(repeats: int) -> float:
    """GFLOP/s of the one large product in the encoder (256 graphs of 8 domains), to tell how busy the machine was."""
    x, w = torch.ones(2048, WIDTH), torch.ones(WIDTH, 2 * WIDTH)
    best = float("inf")
    for _ in range(20 * repeats):
        start = time.process_time()
        x @ w
        best = min(best, time.process_time() - start)
    return 2.0 * x.numel() * w.shape[1] / best / 1e9


def markdown(table: dict[tuple[int, int], dict[str, tuple[float, float]]]) -> str:
    """The table, microseconds per graph, forward / forward and backward."""
    heads = [f"K={nodes}, B={batch}" for batch, nodes in table]
    lines = ["| µs per graph | " + " | ".join(heads) + " |", "|---" * (len(heads) + 1) + "|"]
    for name in next(iter(table.values())):
        cells = [f"{1e6 * r[name][0] / b:,.0f} / {1e6 * r[name][1] / b:,.0f}" for (b, _), r in table.items()]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=6)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    table = measure(options.repeats)
    text = f"{markdown(table)}\n\nDense product alone: {speed_of_light(options.repeats):.0f} GFLOP/s on one thread."
    print(text)
    if options.output:
        (options.output / "encoder_speed.md").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
