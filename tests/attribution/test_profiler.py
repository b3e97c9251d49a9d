from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from attribution_sched.attribution.sources.profiler import (
    GROUPS,
    ProfilerSource,
    _summarise,
    attention_backward_flops,
    attention_flops,
    operator_flops,
    profile,
)
from attribution_sched.errors import CounterError

torch.set_num_threads(1)


class Attend(nn.Module):
    def forward(self, q, k, v):
        return functional.scaled_dot_product_attention(q, k, v)


class EagerAttention(nn.Module):
    """Attention written out by hand, as many model files do."""

    def __init__(self, width=16, heads=2):
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        b, s, w = x.shape
        q, k, v = self.qkv(x).view(b, s, 3, self.heads, w // self.heads).permute(2, 0, 3, 1, 4)
        scores = torch.softmax(torch.matmul(q, k.transpose(-1, -2)), dim=-1)
        return self.out(torch.matmul(scores, v).transpose(1, 2).reshape(b, s, w))


class AllThree(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8)
        self.project, self.attend = nn.Linear(8, 16), EagerAttention()

    def forward(self, x):
        h = self.project(self.norm(self.conv(x)).flatten(2).transpose(1, 2))
        q = h.view(h.shape[0], -1, 2, 8).transpose(1, 2)
        fused = functional.scaled_dot_product_attention(q, q, q).transpose(1, 2).reshape(h.shape)
        return self.attend(h + fused)


def counted(model, *inputs, backward=False):
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        out = model(*inputs)
        if backward:
            out.mean().backward()
    return counter.get_total_flops()


@pytest.mark.parametrize(("b", "h", "s", "d"), [(1, 1, 8, 4), (2, 3, 32, 8), (3, 2, 17, 5)])
def test_fused_cpu_attention_is_counted_by_the_formula_and_as_torch_counts_its_parts(b, h, s, d):
    q = torch.randn(b, h, s, d)
    flops = profile(Attend(), (q, q, q)).flops
    assert flops["attention"] == 4 * b * h * s * s * d
    assert flops["attention"] == counted(Attend(), q, q, q)
    assert flops["fc"] == flops["conv"] == flops["other"] == 0


def test_cross_attention_with_wider_values():
    q, k, v = torch.randn(2, 2, 5, 4), torch.randn(2, 2, 9, 4), torch.randn(2, 2, 9, 6)
    expected = 2 * 2 * 2 * 5 * 9 * (4 + 6)
    assert profile(Attend(), (q, k, v)).flops["attention"] == expected == counted(Attend(), q, k, v)


def test_formulas_with_wider_values():
    """torch falls back to separate products here, so the fused formulas are checked by themselves."""
    q, k, v = (2, 3, 5, 4), (2, 3, 9, 4), (2, 3, 9, 6)
    product = 2 * 2 * 3 * 5 * 9
    assert attention_flops(q, k, v) == product * (4 + 6)
    assert attention_backward_flops(q, k, v) == product * (3 * 4 + 2 * 6)
    name = "aten::_scaled_dot_product_flash_attention"
    assert operator_flops(name, [q, k, v], []) == product * 10
    assert operator_flops(f"{name}_backward", [q, q, k, v], []) == product * 24
    assert operator_flops("aten::add", [q, q], []) is None


def fake_event(name, parent=None, shapes=(), device_us=0.0):
    return SimpleNamespace(
        name=name,
        cpu_parent=parent,
        sequence_nr=-1,
        input_shapes=[list(x) for x in shapes],
        concrete_inputs=[],
        device_type="DeviceType.CPU",
        self_cpu_time_total=1.0,
        self_device_time_total=device_us,
    )


def test_a_kernel_inside_a_counted_operator_is_not_counted_again():
    """What a GPU shows: the composite operator, its kernel in another layout, and time on the device."""
    outer, inner = [(2, 3, 5, 4)] * 3, [(2, 5, 3, 4)] * 3
    a = fake_event("aten::scaled_dot_product_attention")
    b = fake_event("aten::_scaled_dot_product_flash_attention", a, outer)
    c = fake_event("aten::_flash_attention_forward", b, inner, device_us=30.0)
    d = fake_event("aten::mm", None, [(2, 3), (3, 4)], device_us=10.0)
    result = _summarise([a, b, c, d], steps=1, training=False)
    assert result.flops["attention"] == 4 * 2 * 3 * 25 * 4
    assert result.flops["fc"] == 48
    assert result.device == "cuda"
    assert result.time_share["attention"] == pytest.approx(0.75)
    alone = _summarise([fake_event("aten::_flash_attention_forward", None, inner)], steps=1, training=False)
    assert alone.flops["attention"] == 4 * 2 * 3 * 25 * 4
    packed = _summarise([fake_event("aten::_flash_attention_forward", None, [(9, 3, 4)] * 3)], 1, False)
    assert packed.flops["attention"] == 0


@pytest.mark.parametrize("training", [False, True])
def test_double_precision_takes_another_route_to_the_same_count(training):
    layer, x = nn.Conv2d(3, 4, 3).double(), torch.randn(2, 3, 8, 8, dtype=torch.float64)
    result = profile(layer, x, training=training)
    assert result.flops["conv"] == 2 * 2 * 4 * 3 * 9 * 36 * (2 if training else 1)
    assert result.flops["fc"] == 0


def test_fused_backward_has_five_products_and_unfused_four():
    q = torch.randn(2, 2, 16, 4, requires_grad=True)
    product = 2 * 2 * 2 * 16 * 16 * 4
    assert profile(Attend(), (q, q, q), training=True).flops["attention"] == (2 + 5) * product
    with sdpa_kernel(SDPBackend.MATH):
        unfused = profile(Attend(), (q, q, q), training=True)
    assert unfused.flops["attention"] == (2 + 4) * product
    assert unfused.flops["fc"] == 0  # the backward products are traced to their forward attention


@pytest.mark.parametrize(
    ("layer", "shape", "expected"),
    [
        (nn.Conv2d(3, 8, 3, padding=1), (2, 3, 10, 12), 2 * 2 * 8 * 3 * 9 * 10 * 12),
        (nn.Conv2d(4, 8, 3, stride=2, groups=2), (1, 4, 9, 9), 2 * 8 * 2 * 9 * 4 * 4),
        (nn.Conv2d(2, 2, 3, dilation=2, bias=False), (1, 2, 8, 8), 2 * 2 * 2 * 9 * 4 * 4),
        (nn.Conv1d(2, 3, 4), (2, 2, 11), 2 * 2 * 3 * 2 * 4 * 8),
        (nn.Conv3d(1, 2, 2), (1, 1, 4, 4, 4), 2 * 2 * 8 * 27),
        (nn.ConvTranspose2d(3, 5, 2, stride=2), (1, 3, 4, 4), 2 * 3 * 5 * 4 * 16),
    ],
)
def test_convolutions_by_closed_form(layer, shape, expected):
    x = torch.randn(shape)
    assert profile(layer, x).flops["conv"] == expected == counted(layer, x)
    both = profile(layer, x, training=True).flops["conv"]
    assert both == 2 * expected  # the input needs no gradient, the weight's costs one more convolution
    if layer.groups == 1:  # torch's own counter forgets the groups in the weight's gradient
        assert both == counted(layer, x, backward=True)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(7, 5), (2, 7, 5)])
def test_linear_by_closed_form(bias, shape):
    layer, rows = nn.Linear(5, 3, bias=bias), torch.Size(shape[:-1]).numel()
    assert profile(layer, torch.randn(shape)).flops["fc"] == 2 * rows * 5 * 3
    assert profile(layer, torch.randn(shape), training=True).flops["fc"] == 2 * (2 * rows * 5 * 3)


@pytest.mark.parametrize("training", [False, True])
def test_a_module_with_all_three(training):
    model, x = AllThree(), torch.randn(2, 3, 16, 16)
    result = profile(model, x, training=training, steps=2)
    s, product = 64, 2 * 2 * 2 * 64 * 64 * 8
    forward = {"conv": 2 * 2 * 8 * 27 * 64, "fc": 2 * 2 * s * (8 * 16 + 16 * 48 + 16 * 16)}
    assert result.flops["conv"] == forward["conv"] * (2 if training else 1)
    assert result.flops["fc"] == forward["fc"] * (3 if training else 1)
    assert result.flops["attention"] == product * (2 + 2 + (5 + 4 if training else 0))
    for shares in (result.time_share, result.flops_share):
        assert set(shares) == set(GROUPS)
        assert sum(shares.values()) == pytest.approx(1.0, abs=1e-12)
    assert all(t > 0 for t in result.time_s.values())
    fused_recompute = product if training else 0
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        out = model.train(training)(x)
        if training:
            out.mean().backward()
    assert sum(result.flops.values()) == counter.get_total_flops() + fused_recompute


def test_time_goes_where_the_work_is():
    conv = profile(nn.Conv2d(16, 32, 5), torch.randn(2, 16, 40, 40)).time_share
    linear = profile(nn.Linear(512, 512), torch.randn(256, 512)).time_share
    q = torch.randn(2, 4, 256, 32)
    attention = profile(Attend(), (q, q, q)).time_share
    assert conv["conv"] > 0.9
    assert linear["fc"] > 0.9
    assert attention["attention"] > 0.9


@pytest.mark.parametrize("training", [False, True])
def test_torch_multihead_attention_splits_into_projections_and_scores(training):
    model = nn.MultiheadAttention(16, 2, batch_first=True)
    x = torch.randn(2, 10, 16)
    flops = profile(model, (x, x, x), training=training).flops
    factor = 3 if training else 1
    # The input needs no gradient, so the first projection's backward costs one product, not two.
    spared = 2 * 20 * 16 * 48 if training else 0
    assert flops["fc"] == 2 * 20 * 16 * (48 + 16) * factor - spared
    assert flops["attention"] == 4 * 2 * 2 * 100 * 8 * factor


def test_the_module_is_left_as_it_was():
    model, x = AllThree().eval(), torch.randn(2, 3, 16, 16)
    model.norm.train()
    model.project.weight.grad = torch.ones_like(model.project.weight)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    profile(model, x, training=True)
    assert not model.training
    assert model.norm.training
    assert torch.equal(model.project.weight.grad, torch.ones_like(model.project.weight))
    assert model.conv.weight.grad is None
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


def test_keyword_inputs_dictionary_outputs_and_loss():
    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 2)

        def forward(self, *, x, scale):
            return {"mask": torch.ones(1, dtype=torch.bool), "y": self.layer(x) * scale}

    inputs = {"x": torch.randn(3, 4), "scale": 2.0}
    assert profile(Named(), inputs, training=True).flops["fc"] == 2 * 2 * 3 * 4 * 2
    assert profile(Named(), inputs, training=True, loss=lambda o: o["y"].sum()).flops["fc"] == 96
    with pytest.raises(CounterError, match="no tensor with a gradient"):
        profile(nn.Identity(), torch.randn(2), training=True)
    with pytest.raises(CounterError, match="steps"):
        profile(nn.Identity(), torch.randn(2), steps=0)


def test_as_a_source():
    reading = ProfilerSource(nn.Linear(4, 2), torch.randn(3, 4), steps=1).read()
    assert reading.values["fc_flops"] == 48
    assert reading.units["fc_time_s"] == "s"
    assert reading.values["conv_time_s"] == 0.0


@pytest.mark.parametrize("layer", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_layers_are_products_with_weights(layer):
    found = profile(layer(32, 64), torch.randn(20, 4, 32), steps=2)
    assert found.time_share["fc"] > 0.5
    gates = {nn.LSTM: 4, nn.GRU: 3, nn.RNN: 1}[layer]
    assert found.flops["fc"] == pytest.approx(2 * 20 * 4 * gates * 64 * (32 + 64), rel=0.01)


class Unnamed(nn.Module):
    """Attention as plain products, in a class that does not say so."""

    def __init__(self, how="matmul", width=32, heads=4):
        super().__init__()
        self.how, self.heads = how, heads
        self.project, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        b, s, w = x.shape
        q, k, v = self.project(x).view(b, s, 3, self.heads, w // self.heads).permute(2, 0, 3, 1, 4)
        if self.how == "einsum":
            scores = torch.softmax(torch.einsum("bhid,bhjd->bhij", q, k), -1)
            mixed = torch.einsum("bhij,bhjd->bhid", scores, v)
        else:
            mixed = torch.softmax(q @ k.transpose(-1, -2) / 3.0, -1) @ v
        return self.out(mixed.transpose(1, 2).reshape(b, s, w))


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("how", ["matmul", "einsum"])
def test_attention_is_known_by_its_products_whatever_the_class_is_called(how, training):
    b, s, w = 2, 48, 32
    found = profile(Unnamed(how), torch.randn(b, s, w), training=training)
    products = 2 * 2 * b * s * s * w
    assert found.flops["attention"] == products * (3 if training else 1)
    assert found.time_share["attention"] > 0.0
    projections = 2 * b * s * w * (3 * w + w)
    # The gradient of the input of the first projection is not asked for.
    assert found.flops["fc"] == projections * (3 if training else 1) - (2 * b * s * w * 3 * w if training else 0)


def test_a_softmax_over_classes_is_no_attention():
    head = nn.Sequential(nn.Linear(16, 8), nn.Softmax(-1), nn.Linear(8, 4))
    assert profile(head, torch.randn(4, 16)).time_share["attention"] == 0.0
    batched = profile(Attend(), tuple(torch.randn(1, 1, 6, 4) for _ in range(3)))
    assert batched.time_share["attention"] > 0.0


def placed_event(name, start, took_us, parent=None):
    event = fake_event(name, parent)
    event.self_cpu_time_total = took_us
    event.time_range = SimpleNamespace(start=start, end=start + took_us)
    return event


def test_an_interruption_does_not_move_the_shares():
    """Eight steps of a convolution and a product; in two of them another process had the core for a while."""
    events = []
    for step in range(8):
        begin = step * 10_000.0
        mark = placed_event("attribution_sched::step", begin, 0.0)
        mark.time_range.end = begin + 9_999.0
        slow = 5_000.0 if step in (2, 5) else 0.0
        conv = placed_event("aten::conv2d", begin + 1, 30.0 + (slow if step == 2 else 0.0), mark)
        product = placed_event("aten::linear", begin + 5_500, 70.0 + (slow if step == 5 else 0.0), mark)
        events += [mark, conv, product]
    found = _summarise(events, 8, False, [(1e-3, 1e-4)] * 8)
    assert found.time_share["conv"] == pytest.approx(0.3) and found.time_share["fc"] == pytest.approx(0.7)
    assert sum(found.time_s.values()) == pytest.approx(1e-4), "scaled to the CPU time of the thread"
    assert found.interrupted == pytest.approx(0.9)
    low, high = found.share_interval["conv"]
    assert low <= 0.3 <= high


def test_repeats_give_an_interval_and_few_steps_none():
    layer, x = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.Linear(8 * 36, 16)), torch.randn(4, 3, 8, 8)
    found = profile(layer, x)
    for group in GROUPS:
        low, high = found.share_interval[group]
        assert 0.0 <= low <= high <= 1.0
    assert found.thread_s > 0.0
    assert not profile(layer, x, steps=2).share_interval
