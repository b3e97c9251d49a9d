"""The table of named models: architecture sizes, published parameter counts, and where both come from.

Sizes are those of the papers and of the released configuration files. Published counts are the exact
element counts of the released checkpoints where weights are public, and the rounded figures of the
paper where they are not (GPT-3). Two rows of GPT-3's table contradict themselves; both are read in the
way that gives the stated count and a head size of 128: XL has 16 heads (the table says 24 at width
2048) and 13B has width 5120 (the table says 5140 with 40 heads).

Beside them stand the four networks that Sailor (SOSP 2025) profiled layer by layer, as they really ran. Those
layer times belong to Megatron-style builds that differ from the models whose names they bear: every vocabulary
is padded to 50,304, OPT-350M has a full-width word table and an untied second copy in the head, and "LLAMA-3-8"
has one key/value head per query head, a feed-forward width of four times the hidden size, biases everywhere and
an extra norm layer (8.8e9 parameters, not 8.0e9). Dividing its measured block times by the FLOPs of a real
LLaMA-3 8B block would overstate the cost of every FLOP by 18 %, so calibration against those profiles must use
these chains.

What a block keeps follows the measured size table: with ``t`` tensor-parallel ranks an OPT block kept
``s·h·(3 + 8/t) + a·s²/t`` elements and a GPT-Neo block ``s·h·(4.5 + 12/t) + a·s²/t``: one score matrix,
so no dropout on scores, and no dropout masks at all in OPT.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache, partial
from types import MappingProxyType

from attribution_sched.cluster.models import Layer, Model
from attribution_sched.cluster.models.convnets import efficientnet, resnet50, shufflenet_v2
from attribution_sched.cluster.models.huggingface import EXAMPLES, Shape, example, from_config
from attribution_sched.cluster.models.transformers import (
    Activation,
    BlockSpec,
    LanguageSpec,
    language_model,
    vision_transformer,
)
from attribution_sched.errors import TaskError, nearest, problem

Builder = Callable[[str], Model]
"""Takes the catalogue name, returns the finished model."""


def _bert(hidden: int, layers: int, heads: int, published: float) -> Builder:
    """Devlin et al. 2019: post-norm encoder, segment table, pooler; no masked-language head."""
    block = BlockSpec(hidden, heads, tokens=512)
    spec = LanguageSpec(block, layers, vocabulary=30522, positions=512, token_types=2, embedding_norm=True, pooler=True)
    return partial(language_model, family="bert", spec=spec, published_params=published)


def _gpt(hidden: int, layers: int, heads: int, published: float, *, tokens: int) -> Builder:
    """Radford et al. 2019 (1024 tokens) and Brown et al. 2020 (2048 tokens): one architecture."""
    spec = LanguageSpec(BlockSpec(hidden, heads, tokens), layers, vocabulary=50257, positions=tokens)
    return partial(language_model, family="gpt", spec=spec, published_params=published)


def _gpt_neo(hidden: int, layers: int, heads: int, published: float) -> Builder:
    """Black et al. 2021: GPT without query, key and value biases, trained without dropout."""
    block = BlockSpec(hidden, heads, tokens=2048, qkv_bias=False, dropout=False, score_dropout=False)
    spec = LanguageSpec(block, layers, vocabulary=50257, positions=2048)
    return partial(language_model, family="gpt", spec=spec, published_params=published)


def _opt(
    hidden: int,
    layers: int,
    heads: int,
    published: float,
    *,
    embedding_width: int = 0,
    final_norm: bool = True,
) -> Builder:
    """Zhang et al. 2022: ReLU, no score dropout, position table two rows longer than the sequence."""
    block = BlockSpec(hidden, heads, tokens=2048, activation=Activation.RELU, score_dropout=False)
    spec = LanguageSpec(
        block,
        layers,
        vocabulary=50272,
        positions=2050,
        embedding_width=embedding_width,
        final_norm=final_norm,
    )
    return partial(language_model, family="opt", spec=spec, published_params=published)


def _llama(
    hidden: int,
    layers: int,
    heads: int,
    kv_heads: int,
    ffn: int,
    published: float,
    *,
    vocabulary: int,
    tokens: int,
) -> Builder:
    """Touvron et al. 2023 and Llama team 2024: RMS norm, rotary positions, SwiGLU, untied head."""
    block = BlockSpec(
        hidden,
        heads,
        tokens,
        ffn=ffn,
        kv_heads=kv_heads,
        activation=Activation.SWIGLU,
        qkv_bias=False,
        linear_bias=False,
        norm_params=1,
        dropout=False,
        score_dropout=False,
        rotary=True,
    )
    spec = LanguageSpec(block, layers, vocabulary=vocabulary, tied=False)
    return partial(language_model, family="llama", spec=spec, published_params=published)


_gpt2 = partial(_gpt, tokens=1024)
_gpt3 = partial(_gpt, tokens=2048)
_llama2 = partial(_llama, vocabulary=32000, tokens=4096)
_llama3 = partial(_llama, vocabulary=128256, tokens=8192)


def _efficientnet(width: float, depth: float, resolution: int, published: float) -> Builder:
    return partial(efficientnet, width=width, depth=depth, resolution=resolution, published_params=published)


def _vit(hidden: int, layers: int, heads: int, published: float) -> Builder:
    return partial(vision_transformer, hidden=hidden, layers=layers, heads=heads, published_params=published)


BUILDERS: Mapping[str, Builder] = MappingProxyType({
    # torchvision checkpoint
    "resnet-50": partial(resnet50, published_params=25_557_032),
    # width, depth, resolution and counts of the authors' code release
    "efficientnet-b0": _efficientnet(1.0, 1.0, 224, 5_288_548),
    "efficientnet-b1": _efficientnet(1.0, 1.1, 240, 7_794_184),
    "efficientnet-b2": _efficientnet(1.1, 1.2, 260, 9_109_994),
    "efficientnet-b3": _efficientnet(1.2, 1.4, 300, 12_233_232),
    "efficientnet-b4": _efficientnet(1.4, 1.8, 380, 19_341_616),
    # torchvision checkpoint; the variant for 32 × 32 images has no pooling, no stride in its stem and 100 classes
    "shufflenet-v2": partial(shufflenet_v2, published_params=2_278_604),
    "shufflenet-v2-cifar": partial(shufflenet_v2, resolution=32, classes=100, published_params=1_356_104),
    # torchvision checkpoints, 224 × 224
    "vit-b-16": _vit(768, 12, 12, 86_567_656),
    "vit-l-16": _vit(1024, 24, 16, 304_326_632),
    # released uncased checkpoints with pooler
    "bert-base": _bert(768, 12, 12, 109_482_240),
    "bert-large": _bert(1024, 24, 16, 335_141_888),
    # released checkpoints; the paper's own 117M and 345M are known to be miscounted
    "gpt2-small": _gpt2(768, 12, 12, 124_439_808),
    "gpt2-medium": _gpt2(1024, 24, 16, 354_823_168),
    "gpt2-large": _gpt2(1280, 36, 20, 774_030_080),
    "gpt2-xl": _gpt2(1600, 48, 25, 1_557_611_200),
    # Brown et al. 2020, table 2.1 (rounded there); 175B: 174.6e9 in table D.1
    "gpt3-small": _gpt3(768, 12, 12, 125e6),
    "gpt3-medium": _gpt3(1024, 24, 16, 350e6),
    "gpt3-large": _gpt3(1536, 24, 16, 760e6),
    "gpt3-xl": _gpt3(2048, 24, 16, 1.3e9),
    "gpt3-2.7b": _gpt3(2560, 32, 32, 2.7e9),
    "gpt3-6.7b": _gpt3(4096, 32, 32, 6.7e9),
    "gpt3-13b": _gpt3(5120, 40, 40, 13.0e9),
    "gpt3-175b": _gpt3(12288, 96, 96, 174.6e9),
    "gpt-neo-2.7b": _gpt_neo(2560, 32, 20, 2_651_307_520),
    # released checkpoints; 350M alone is post-norm with a 512-wide word table
    "opt-350m": _opt(1024, 24, 16, 331_196_416, embedding_width=512, final_norm=False),
    "opt-1.3b": _opt(2048, 24, 32, 1_315_758_080),
    "opt-2.7b": _opt(2560, 32, 32, 2_651_596_800),
    "opt-6.7b": _opt(4096, 32, 32, 6_658_473_984),
    "opt-13b": _opt(5120, 40, 40, 12_853_473_280),
    "opt-30b": _opt(7168, 48, 56, 29.975e9),
    "opt-66b": _opt(9216, 64, 72, 65.72e9),
    # released checkpoints
    "llama-2-7b": _llama2(4096, 32, 32, 32, 11008, 6_738_415_616),
    "llama-2-13b": _llama2(5120, 40, 40, 40, 13824, 13_015_864_320),
    "llama-2-70b": _llama2(8192, 80, 64, 8, 28672, 68_976_648_192),
    "llama-3-8b": _llama3(4096, 32, 32, 8, 14336, 8_030_261_248),
    "llama-3-70b": _llama3(8192, 80, 64, 8, 28672, 70_553_706_496),
    # configurations as released on Hugging Face, read by huggingface.py
    **dict.fromkeys(EXAMPLES, example),
})  # fmt: skip
"""Catalogue name → builder."""


def has_sequence(name: str) -> bool:
    """Whether a catalogue model reads a sequence whose length may be chosen."""
    builder = BUILDERS[name]
    decodes = name in EXAMPLES and EXAMPLES[name][0]["model_type"] not in ("whisper", "dit")
    return decodes or (isinstance(builder, partial) and "spec" in builder.keywords)


def with_sequence(name: str, tokens: int) -> Model:
    """Build a catalogue model that reads ``tokens`` per sample; its weights, position table included, stay."""
    builder = BUILDERS[name]
    if name in EXAMPLES and has_sequence(name):
        config, published = EXAMPLES[name]
        return from_config(config, Shape(f"{name}@{tokens}", tokens, published))
    if not (isinstance(builder, partial) and has_sequence(name)):
        raise TaskError(problem("model", f"{name}@{tokens}", "reads no sequence", "Leave the length out"))
    spec: LanguageSpec = builder.keywords["spec"]
    built: Model = builder(f"{name}@{tokens}", spec=replace(spec, block=replace(spec.block, tokens=tokens)))
    return built


_PADDED_VOCABULARY = 50304


def _profiled_opt(hidden: int, heads: int, layers: int) -> LanguageSpec:
    """An OPT as it was profiled: ReLU, no dropout anywhere, an untied head."""
    block = BlockSpec(hidden, heads, tokens=2048, activation=Activation.RELU, dropout=False, score_dropout=False)
    return LanguageSpec(block, layers, _PADDED_VOCABULARY, positions=2048, tied=False)


def _profiled_gpt_neo(hidden: int, heads: int, layers: int) -> LanguageSpec:
    """A GPT-Neo as it was profiled: dropout on the residual branches, none on the scores."""
    block = BlockSpec(hidden, heads, tokens=2048, score_dropout=False)
    return LanguageSpec(block, layers, _PADDED_VOCABULARY, positions=2048, tied=True)


_PROFILED = {
    "OPT-350": ("opt", _profiled_opt(1024, 16, 24), 407_431_168),
    "OPT-30": ("opt", _profiled_opt(7168, 56, 48), 30_335_334_400),
    "GPT-Neo-2.7": ("gpt", _profiled_gpt_neo(2560, 20, 32), 2_651_673_600),
    "LLAMA-3-8": (
        "llama",
        LanguageSpec(
            BlockSpec(
                4096,
                32,
                tokens=8192,
                activation=Activation.SWIGLU,
                norm_params=1,
                dropout=False,
                score_dropout=False,
                rotary=True,
            ),
            layers=32,
            vocabulary=_PADDED_VOCABULARY,
        ),
        8_797_954_048,
    ),
}
PROFILED_NAMES = tuple(_PROFILED)
"""Names as they stand in the profile tables."""


@cache
def profiled_model(name: str) -> Model:
    """Build the chain that was profiled under ``name``; its layers match the table's one to one.

    Raises:
        TaskError: No network was profiled under that name.
    """
    if name not in _PROFILED:
        raise TaskError(problem("profiled model", name, "was not profiled", nearest(name, _PROFILED)))
    family, spec, published = _PROFILED[name]
    model = language_model(f"profiled {name}", family, spec, published_params=published)
    if name == "LLAMA-3-8":
        *body, head = model.layers
        model = replace(model, layers=(*body, _norm_layer(spec.block), head))
    return model


def _norm_layer(spec: BlockSpec) -> Layer:
    """A norm that stands alone as a layer: replicated, one read and one write."""
    elements = spec.tokens * spec.hidden
    return Layer(
        name="norm",
        kind="norm",
        params=spec.norm_params * spec.hidden,
        conv_flops=0.0,
        fc_flops=0.0,
        attention_flops=0.0,
        input_elements=elements,
        output_elements=elements,
        activation_elements=elements,
        score_elements=0.0,
        moved_elements=2 * elements,
        tp_reduced_elements=0.0,
        tp_sharded=False,
    )
