"""Transformers against torch modules, published formulas and algebraic laws."""

import dataclasses

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from attribution_sched.cluster.models import model
from attribution_sched.cluster.models.transformers import (
    Activation,
    BlockSpec,
    LanguageSpec,
    block_layer,
    block_params,
    language_model,
    megatron_gpt,
)
from attribution_sched.errors import TaskError

torch.set_num_threads(1)

# heads, hidden, layers → billions of parameters (Narayanan et al. 2021, table 1)
MEGATRON = {
    1.7: (24, 2304, 24),
    3.6: (32, 3072, 30),
    7.5: (32, 4096, 36),
    18.4: (48, 6144, 40),
    39.1: (64, 8192, 48),
    76.1: (80, 10240, 60),
    145.6: (96, 12288, 80),
    310.1: (128, 16384, 96),
    529.6: (128, 20480, 105),
    1008.0: (160, 25600, 128),
}


class Rms(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden))

    def forward(self, x):
        return x * self.weight


class TorchBlock(nn.Module):
    """A pre-norm block with grouped keys and values and an optional gate."""

    def __init__(self, hidden, heads, kv_heads, ffn, *, gated, bias, activation=F.gelu, fused=False):
        super().__init__()
        self.heads, self.kv_heads, self.head = heads, kv_heads, hidden // heads
        self.activation, self.fused = activation, fused
        norm = Rms if gated else nn.LayerNorm
        self.norm1, self.norm2 = norm(hidden), norm(hidden)
        self.qkv = nn.Linear(hidden, (heads + 2 * kv_heads) * self.head, bias=bias)
        self.out = nn.Linear(hidden, hidden, bias=bias)
        self.gate = nn.Linear(hidden, ffn, bias=bias) if gated else None
        self.up = nn.Linear(hidden, ffn, bias=bias)
        self.down = nn.Linear(ffn, hidden, bias=bias)

    def attend(self, x):
        batch, tokens, hidden = x.shape
        widths = [n * self.head for n in (self.heads, self.kv_heads, self.kv_heads)]
        q, k, v = (t.view(batch, tokens, -1, self.head).transpose(1, 2) for t in self.qkv(x).split(widths, dim=-1))
        if self.fused:
            mixed = F.scaled_dot_product_attention(q, k, v)
        else:
            k, v = (t.repeat_interleave(self.heads // self.kv_heads, dim=1) for t in (k, v))
            mixed = torch.softmax(q @ k.transpose(-1, -2), dim=-1) @ v
        return self.out(mixed.transpose(1, 2).reshape(batch, tokens, hidden))

    def forward(self, x):
        x = x + self.attend(self.norm1(x))
        y = self.norm2(x)
        inner = self.activation(self.up(y)) if self.gate is None else F.silu(self.gate(y)) * self.up(y)
        return x + self.down(inner)


def counted(module, x):
    with FlopCounterMode(display=False) as counter:
        module(x)
    return sum(p.numel() for p in module.parameters()), counter.get_total_flops()


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("gpt2-medium", (1024, 16, 16, 4096)),
        ("vit-b-16", (768, 12, 12, 3072)),
        ("opt-30b", (7168, 56, 56, 28672)),
        ("llama-2-7b", (4096, 32, 32, 11008)),
        ("llama-2-70b", (8192, 64, 8, 28672)),
        ("llama-3-8b", (4096, 32, 8, 14336)),
    ],
)
def test_block_has_the_parameters_and_flops_of_its_torch_twin(name, sizes):
    layer = model(name).layers[1]
    llama = name.startswith("llama")
    with torch.device("meta"):
        twin = TorchBlock(*sizes, gated=llama, bias=not llama)
        x = torch.empty(1, int(layer.input_elements) // sizes[0], sizes[0])
    assert (layer.params, layer.forward_flops) == counted(twin, x)


class TorchGpt2(nn.Module):
    def __init__(self, hidden, layers, heads, vocabulary=50257, positions=1024):
        super().__init__()
        self.words, self.positions = nn.Embedding(vocabulary, hidden), nn.Embedding(positions, hidden)
        self.blocks = nn.Sequential(
            *(TorchBlock(hidden, heads, heads, 4 * hidden, gated=False, bias=True) for _ in range(layers))
        )
        self.norm = nn.LayerNorm(hidden)
        self.head = nn.Linear(hidden, vocabulary, bias=False)
        self.head.weight = self.words.weight

    def forward(self, ids):
        x = self.words(ids) + self.positions.weight[: ids.shape[1]]
        return self.head(self.norm(self.blocks(x)))


def test_whole_gpt2_small_equals_its_torch_twin():
    built = model("gpt2-small")
    with torch.device("meta"):
        twin = TorchGpt2(768, 12, 12)
        ids = torch.empty(1, 1024, dtype=torch.long)
    assert (built.params, built.forward_flops) == counted(twin, ids)


@pytest.mark.parametrize(("activation", "function"), [(Activation.GELU, F.gelu), (Activation.RELU, F.relu)])
def test_block_keeps_what_autograd_saves_without_dropout(activation, function):
    batch, tokens, hidden, heads = 2, 64, 64, 4
    block = TorchBlock(hidden, heads, heads, 4 * hidden, gated=False, bias=True, activation=function, fused=True)
    own = {p.untyped_storage().data_ptr() for p in block.parameters()}
    held = {}

    def pack(t):
        held.setdefault(t.untyped_storage().data_ptr(), t)
        return t

    x = torch.randn(batch, tokens, hidden, generator=torch.Generator().manual_seed(0)).requires_grad_()
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        block(x)
    # Statistics per token or per head and token (norms, log-sum-exp) are below the model's resolution.
    large = [t for p, t in held.items() if p not in own and t.numel() >= batch * tokens * hidden]
    saved = sum(t.untyped_storage().nbytes() // t.element_size() for t in large)
    spec = BlockSpec(hidden, heads, tokens, activation=activation, dropout=False, score_dropout=False)
    assert saved / batch == block_layer(spec, "block").activation_elements


@pytest.mark.parametrize("billions", sorted(MEGATRON))
def test_megatron_sizes_and_flops_follow_the_published_formulas(billions):
    heads, h, n = MEGATRON[billions]
    built, s, v = megatron_gpt(heads, h, n), 2048, 51200
    assert round(built.params / 1e9, 1) == billions
    assert built.params - built.published_params == 2 * h  # the final norm
    # Blocks run four times (forward, recomputation, backward twice), the head three times.
    blocks = sum(layer.forward_flops for layer in built.layers if layer.kind == "block")
    head = built.layers[-1].forward_flops
    formula = 96 * s * n * h**2 * (1 + s / (6 * h) + v / (16 * n * h))
    assert 4 * blocks + 3 * head == pytest.approx(formula, rel=1e-12)
    # Counting the head four times as well stays within 2 % for every size of the study.
    assert 4 * built.forward_flops == pytest.approx(formula, rel=0.02)


@pytest.mark.parametrize("billions", sorted(MEGATRON))
def test_gpt_block_keeps_the_published_activation_bytes(billions):
    heads, h, n = MEGATRON[billions]
    block, s = megatron_gpt(heads, h, n).layers[1], 2048
    kept_bytes = 2 * (block.activation_elements + block.score_elements)
    formula = s * h * (34 + 5 * heads * s / h)  # Korthikanti et al. 2022, equation 1
    assert kept_bytes == pytest.approx(formula, rel=1e-12)
    assert block.tp_reduced_elements == 2 * s * h
    assert block.fc_flops == 24 * s * h**2 and block.attention_flops == 4 * s**2 * h


@st.composite
def block_specs(draw):
    kv_heads = draw(st.integers(1, 4))
    heads = kv_heads * draw(st.integers(1, 4))
    return BlockSpec(
        hidden=heads * draw(st.integers(1, 16)),
        heads=heads,
        tokens=draw(st.integers(1, 64)),
        ffn=draw(st.integers(1, 300)),
        kv_heads=kv_heads,
        activation=draw(st.sampled_from(list(Activation))),
        qkv_bias=(bias := draw(st.booleans())),
        linear_bias=bias,
    )


@settings(deadline=None, max_examples=40)
@given(block_specs())
def test_any_block_has_the_parameters_and_flops_of_a_torch_block(spec):
    gated = spec.activation is Activation.SWIGLU
    with torch.device("meta"):
        twin = TorchBlock(spec.hidden, spec.heads, spec.kv_heads, spec.ffn, gated=gated, bias=spec.qkv_bias)
        x = torch.empty(1, spec.tokens, spec.hidden)
    params, flops = counted(twin, x)
    rms = 0 if not gated else 2 * spec.hidden  # the twin's RMS norms have one number per feature, the spec two
    assert block_params(spec) == params + rms
    assert block_layer(spec, "block").forward_flops == flops


@settings(deadline=None, max_examples=40)
@given(spec=block_specs(), factor=st.integers(2, 5))
def test_longer_sequences_scale_as_they_must(spec, factor):
    short = block_layer(spec, "block")
    long = block_layer(dataclasses.replace(spec, tokens=factor * spec.tokens), "block")
    assert long.params == short.params
    for linear in ("fc_flops", "activation_elements", "moved_elements", "tp_reduced_elements"):
        assert getattr(long, linear) == pytest.approx(factor * getattr(short, linear), rel=1e-12)
    for quadratic in ("attention_flops", "score_elements"):
        assert getattr(long, quadratic) == pytest.approx(factor**2 * getattr(short, quadratic), rel=1e-12)


def test_tied_head_has_no_table_but_all_of_its_work():
    block = BlockSpec(64, 4, 32)
    tied, untied = (
        language_model("m", "gpt", LanguageSpec(block, 2, 1000, tied=t), published_params=1) for t in (True, False)
    )
    assert untied.params - tied.params == 64 * 1000
    assert tied.layers[-1].params == 2 * 64
    for field in ("fc_flops", "moved_elements", "activation_elements", "tp_reduced_elements"):
        assert getattr(tied.layers[-1], field) == getattr(untied.layers[-1], field) > 0


def test_opt_350m_has_a_narrow_word_table_and_no_final_norm():
    small = model("opt-350m")
    embedding, head = small.layers[0], small.layers[-1]
    assert embedding.params == 50272 * 512 + 2050 * 1024 + 512 * 1024
    assert head.params == 512 * 1024
    assert embedding.fc_flops == 2 * 2048 * 512 * 1024
    assert head.fc_flops == 2 * 2048 * 512 * (1024 + 50272)
    assert embedding.output_elements == 2048 * 1024


def test_grouped_keys_shrink_weights_and_activations_but_not_attention_flops():
    grouped = block_layer(BlockSpec(4096, 32, 1024, kv_heads=8), "grouped")
    full = block_layer(BlockSpec(4096, 32, 1024), "full")
    assert full.params - grouped.params == 2 * (4096 + 1) * (4096 - 1024)
    assert grouped.attention_flops == full.attention_flops
    assert grouped.activation_elements < full.activation_elements
    assert grouped.moved_elements < full.moved_elements


def test_vit_multiply_adds_match_the_published_ones():
    assert model("vit-b-16").forward_flops / 2e9 == pytest.approx(17.56, rel=0.005)
    assert model("vit-l-16").forward_flops / 2e9 == pytest.approx(61.55, rel=0.005)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"heads": 7}, "hidden = 1024: must be a multiple of heads = 7"),
        ({"hidden": 0}, "hidden = 0: must be a whole number"),
        ({"hidden": 64.0}, "hidden = 64.0: must be a whole number"),
        ({"layers": -1}, "layers = -1: must be a whole number"),
        ({"vocabulary": True}, "vocabulary = True: must be a whole number"),
        ({"sequence_length": 0}, "tokens = 0: must be a whole number"),
    ],
)
def test_wrong_sizes_are_one_clear_error(arguments, words):
    with pytest.raises(TaskError, match=words):
        megatron_gpt(**({"heads": 16, "hidden": 1024, "layers": 2} | arguments))


def test_key_value_heads_must_divide_the_heads():
    with pytest.raises(TaskError, match="kv_heads = 3: must divide heads = 8"):
        BlockSpec(64, 8, 16, kv_heads=3)
    with pytest.raises(TaskError, match="ffn = -1"):
        BlockSpec(64, 8, 16, ffn=-1)
