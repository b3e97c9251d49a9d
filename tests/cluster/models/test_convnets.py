"""Convolutional networks against the same networks built and run in torch."""

import math

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from attribution_sched.cluster.models import model
from attribution_sched.cluster.models.convnets import efficientnet, resnet50, round_width

torch.set_num_threads(1)


def unit(cin, cout, kernel, stride=1, groups=1, act=None):
    layers = [
        nn.Conv2d(cin, cout, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(cout),
    ]
    return nn.Sequential(*layers, *([act] if act else []))


class Bottleneck(nn.Module):
    def __init__(self, cin, width, stride):
        super().__init__()
        self.branch = nn.Sequential(
            unit(cin, width, 1, act=nn.ReLU()),
            unit(width, width, 3, stride, act=nn.ReLU()),
            unit(width, 4 * width, 1),
        )
        same = cin == 4 * width and stride == 1
        self.shortcut = nn.Identity() if same else unit(cin, 4 * width, 1, stride)
        self.relu = nn.ReLU()

    def forward(self, x):
        return self.relu(self.branch(x) + self.shortcut(x))


class MBConv(nn.Module):
    def __init__(self, cin, cout, kernel, stride, expansion):
        super().__init__()
        wide = cin * expansion
        self.expand = unit(cin, wide, 1, act=nn.SiLU()) if expansion > 1 else nn.Identity()
        self.depthwise = unit(wide, wide, kernel, stride, groups=wide, act=nn.SiLU())
        self.gate = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Conv2d(wide, cin // 4, 1),
            nn.SiLU(),
            nn.Conv2d(cin // 4, wide, 1),
            nn.Sigmoid(),
        )
        self.project = unit(wide, cout, 1)
        self.residual = cin == cout and stride == 1

    def forward(self, x):
        y = self.depthwise(self.expand(x))
        y = self.project(y * self.gate(y))
        return x + y if self.residual else y


def classifier(channels):
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1000)]


def torch_resnet50():
    chain = [nn.Sequential(unit(3, 64, 7, 2, act=nn.ReLU()), nn.MaxPool2d(3, 2, 1))]
    cin = 64
    for width, blocks, stride in [(64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)]:
        for i in range(blocks):
            chain.append(Bottleneck(cin, width, stride if i == 0 else 1))
            cin = 4 * width
    return [*chain, nn.Sequential(*classifier(cin))]


BASELINE = (
    (1, 16, 1, 1, 3),
    (6, 24, 2, 2, 3),
    (6, 40, 2, 2, 5),
    (6, 80, 3, 2, 3),
    (6, 112, 3, 1, 5),
    (6, 192, 4, 2, 5),
    (6, 320, 1, 1, 3),
)


def torch_efficientnet(width, depth):
    def scaled(c):  # independent spelling of the rounding rule
        low = max(8, math.floor((c * width + 4) / 8) * 8)
        return low if low >= 0.9 * c * width else low + 8

    cin = scaled(32)
    chain = [unit(3, cin, 3, 2, act=nn.SiLU())]
    for expansion, channels, repeats, stride, kernel in BASELINE:
        for i in range(math.ceil(repeats * depth)):
            chain.append(MBConv(cin, scaled(channels), kernel, stride if i == 0 else 1, expansion))
            cin = scaled(channels)
    return [*chain, nn.Sequential(unit(cin, scaled(1280), 1, act=nn.SiLU()), *classifier(scaled(1280)))]


CASES = {
    "resnet-50": torch_resnet50,
    "efficientnet-b0": lambda: torch_efficientnet(1.0, 1.0),
    "efficientnet-b2": lambda: torch_efficientnet(1.1, 1.2),
    "efficientnet-b4": lambda: torch_efficientnet(1.4, 1.8),
}


@pytest.mark.parametrize("name", sorted(CASES))
def test_every_layer_has_the_parameters_flops_and_shapes_of_its_torch_twin(name):
    built = model(name)
    with torch.device("meta"):
        chain = CASES[name]()
        x = torch.empty(1, 3, *built.input_size)
    assert len(chain) == len(built)
    for layer, module in zip(built.layers, chain, strict=True):
        assert layer.input_elements == x.numel()
        with FlopCounterMode(display=False) as counter:
            x = module.eval()(x)
        assert layer.output_elements == x.numel(), layer.name
        assert layer.params == sum(p.numel() for p in module.parameters()), layer.name
        assert layer.forward_flops == counter.get_total_flops(), layer.name


def saved_elements(run, module):
    """Elements autograd holds for the backward pass of ``run()``; parameters and buffers not counted."""
    own = {t.untyped_storage().data_ptr() for t in [*module.parameters(), *module.buffers()]}
    held = {}

    def pack(t):
        held.setdefault(t.untyped_storage().data_ptr(), t)
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        out = run()
    total = sum(t.untyped_storage().nbytes() // t.element_size() for p, t in held.items() if p not in own)
    return total, out


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
def test_kept_activations_are_what_autograd_saves(built, chain):
    batch = 4
    network = nn.Sequential(*chain()).train()
    image = torch.randn(batch, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    saved, _ = saved_elements(lambda: network(image), network)
    # Left out of the count on purpose: per-channel statistics, which do not grow with the batch.
    assert saved / batch == pytest.approx(built.column("activation_elements").sum(), rel=0.03)


@pytest.mark.parametrize(
    ("name", "gmac", "tolerance"),
    [
        ("resnet-50", 4.09, 0.02),
        ("efficientnet-b0", 0.39, 0.03),
        ("efficientnet-b1", 0.70, 0.03),
        ("efficientnet-b2", 1.0, 0.03),
        ("efficientnet-b3", 1.8, 0.03),
        ("efficientnet-b4", 4.35, 0.035),
    ],
)
def test_flops_match_the_published_multiply_adds(name, gmac, tolerance):
    assert model(name).forward_flops / 2e9 == pytest.approx(gmac, rel=tolerance)


def test_granularity_is_stem_blocks_head():
    assert [len(model(f"efficientnet-b{i}")) - 2 for i in range(5)] == [16, 23, 23, 26, 32]
    resnet = model("resnet-50")
    assert len(resnet) == 18 and resnet.layers[-1].kind == "head"
    assert {layer.kind for layer in resnet.layers[:-1]} == {"conv"}
    assert not resnet.column("tp_sharded").any() and not resnet.column("tp_reduced_elements").any()


@pytest.mark.parametrize(
    ("channels", "width", "expected"),
    [(32, 1.0, 32), (32, 1.4, 48), (80, 1.1, 88), (16, 0.5, 8), (24, 1.2, 32)],
)
def test_width_rounding_never_loses_more_than_a_tenth(channels, width, expected):
    assert round_width(channels, width) == expected
    assert round_width(channels, width) >= 0.9 * channels * width
