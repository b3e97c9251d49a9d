"""Moved elements against the tensors that torch's own operations read and write."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from attribution_sched.cluster.models.convnets import efficientnet, resnet50
from attribution_sched.cluster.models.transformers import BlockSpec, block_layer
from tests.cluster.models.test_convnets import torch_efficientnet, torch_resnet50
from tests.cluster.models.test_transformers import TorchBlock

torch.set_num_threads(1)
VIEWS = ("view", "t.", "transpose", "reshape", "expand", "split", "detach", "unsqueeze", "squeeze", "alias")


class Traffic(TorchDispatchMode):
    """Adds up the elements every operation reads and writes; parameters, buffers and views are free."""

    def __init__(self, module):
        super().__init__()
        self.free = {id(t) for t in [*module.parameters(), *module.buffers()]}
        self.elements = 0
        self.views = []  # held so that no identity is reused

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        name = func._schema.name.removeprefix("aten::") + "."
        # A transposed weight is a view of a parameter, so it inherits the exemption.
        operands = [t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
        if name.startswith(VIEWS):
            if any(id(t) in self.free for t in operands):
                self.free |= {id(t) for t in tree_leaves(out)}
                self.views.append(out)
            return out
        read = [t for t in operands if id(t) not in self.free]
        written = [t for t in tree_leaves(out) if isinstance(t, torch.Tensor) and id(t) not in self.free]
        self.elements += sum(t.numel() for t in [*read, *written])
        if "batch_norm" in name:  # statistics first, then scaling: the input is read a second time
            self.elements += read[0].numel()
        return out


def moved(module, x):
    with torch.no_grad(), Traffic(module) as traffic:
        module(x)
    return traffic.elements / x.shape[0]


@pytest.mark.parametrize(
    ("built", "chain"),
    [
        (resnet50("small", published_params=1, resolution=64), torch_resnet50),
        (
            efficientnet("small", width=1.0, depth=1.0, resolution=64, published_params=1),
            lambda: torch_efficientnet(1.0, 1.0),
        ),
    ],
    ids=["resnet", "efficientnet"],
)
def test_convolutional_networks_move_what_torch_moves(built, chain):
    network = nn.Sequential(*chain()).train()
    # Per-channel statistics do not grow with the batch and are left out of the model's count.
    assert moved(network, torch.zeros(8, 3, 64, 64)) == pytest.approx(built.column("moved_elements").sum(), rel=0.01)


@pytest.mark.parametrize("activation", ["gelu", "relu"])
def test_classic_block_moves_what_torch_moves(activation):
    tokens, hidden, heads = 64, 256, 2
    twin = TorchBlock(
        hidden,
        heads,
        heads,
        4 * hidden,
        gated=False,
        bias=True,
        activation=getattr(F, activation),
        fused=True,
    )
    spec = BlockSpec(hidden, heads, tokens, dropout=False, score_dropout=False)
    expected = block_layer(spec, "block").moved_elements
    assert expected == 38 * tokens * hidden
    # Norm statistics and log-sum-exp: six numbers per token beside 38 · 256.
    assert moved(twin, torch.zeros(2, tokens, hidden)) == pytest.approx(expected, rel=0.005)


def test_dropout_adds_two_masks():
    with_masks, without = (block_layer(BlockSpec(64, 4, 16, dropout=d), "b").moved_elements for d in (True, False))
    assert with_masks - without == 2 * 0.5 * 16 * 64


def test_rotation_reads_and_writes_queries_and_keys_once():
    rotary, plain = (block_layer(BlockSpec(64, 4, 16, kv_heads=2, rotary=r), "b").moved_elements for r in (True, False))
    assert rotary - plain == 2 * 16 * (64 + 32)
