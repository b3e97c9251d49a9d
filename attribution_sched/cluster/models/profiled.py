"""The four networks that Sailor (SOSP 2025) profiled layer by layer, as they really ran.

The measured layer times belong to Megatron-style builds that differ from the models whose names they
bear: every vocabulary is padded to 50,304, OPT-350M has a full-width word table and an untied second
copy in the head, and "LLAMA-3-8" has one key/value head per query head, a feed-forward width of four
times the hidden size, biases everywhere and an extra norm layer (8.8e9 parameters, not 8.0e9). Dividing
its measured block times by the FLOPs of a real LLaMA-3 8B block would overstate the cost of every FLOP
by 18 %, so calibration against those profiles must use these chains.

What a block keeps follows the measured size table: with ``t`` tensor-parallel ranks an OPT block kept
``s·h·(3 + 8/t) + a·s²/t`` elements and a GPT-Neo block ``s·h·(4.5 + 12/t) + a·s²/t``: one score matrix,
so no dropout on scores, and no dropout masks at all in OPT.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from attribution_sched.cluster.layers import Layer, Model
from attribution_sched.cluster.models.transformer_block import Activation, BlockSpec
from attribution_sched.cluster.models.transformers import LanguageSpec, language_model
from attribution_sched.errors import TaskError, nearest, problem

_PADDED_VOCABULARY = 50304


def _opt(hidden: int, heads: int, layers: int) -> LanguageSpec:
    """An OPT as it was profiled: ReLU, no dropout anywhere, an untied head."""
    block = BlockSpec(hidden, heads, tokens=2048, activation=Activation.RELU, dropout=False, score_dropout=False)
    return LanguageSpec(block, layers, _PADDED_VOCABULARY, positions=2048, tied=False)


def _gpt_neo(hidden: int, heads: int, layers: int) -> LanguageSpec:
    """A GPT-Neo as it was profiled: dropout on the residual branches, none on the scores."""
    block = BlockSpec(hidden, heads, tokens=2048, score_dropout=False)
    return LanguageSpec(block, layers, _PADDED_VOCABULARY, positions=2048, tied=True)


_SPECS = {
    "OPT-350": ("opt", _opt(1024, 16, 24), 407_431_168),
    "OPT-30": ("opt", _opt(7168, 56, 48), 30_335_334_400),
    "GPT-Neo-2.7": ("gpt", _gpt_neo(2560, 20, 32), 2_651_673_600),
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
PROFILED_NAMES = tuple(_SPECS)
"""Names as they stand in the profile tables."""


@cache
def profiled_model(name: str) -> Model:
    """Build the chain that was profiled under ``name``; its layers match the table's one to one.

    Raises:
        TaskError: No network was profiled under that name.
    """
    if name not in _SPECS:
        raise TaskError(problem("profiled model", name, "was not profiled", nearest(name, _SPECS)))
    family, spec, published = _SPECS[name]
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
