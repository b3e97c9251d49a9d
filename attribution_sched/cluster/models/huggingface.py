"""A model from its Hugging Face ``config.json``: decoders (experts, latent attention), Whisper, diffusion models.

A decoder block is the block of :mod:`~attribution_sched.cluster.models.transformers` with two changes where the
configuration asks for them:

* **Experts.** Of ``E`` experts a token visits ``k`` (and those shared by all). FLOPs, activations and traffic are those
  of the experts visited; parameters are those of all, and of the router.
* **Latent attention** (DeepSeek). Queries, keys and values pass through low-rank products, and a token's cache is
  the latent vector and one rotary key.

Sizes that a configuration leaves out are those of the family's own defaults; what cannot be read is an error.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from attribution_sched.cluster.models import Layer, Model, TaskType
from attribution_sched.cluster.models.transformers import (
    OUTPUT_SHARE,
    Activation,
    BlockSpec,
    LanguageSpec,
    block_layer,
    embedding_layer,
    language_head_layer,
)
from attribution_sched.cluster.models.unet import unet
from attribution_sched.errors import TaskError, problem
from attribution_sched.limits import MOST_BYTES_OF_CONFIG, MOST_LAYERS

LONGEST_DEFAULT = 4096
"""Tokens per sample where nobody says: a configuration states what a model can read, not what a task gives it."""

_ALIASES = {
    "hidden_size": ("hidden_size", "n_embd", "d_model", "dim"),
    "layers": ("num_hidden_layers", "n_layer", "num_layers", "n_layers"),
    "heads": ("num_attention_heads", "n_head", "n_heads"),
    "ffn": ("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size"),
    "positions": ("max_position_embeddings", "n_positions", "n_ctx"),
    "experts": ("num_local_experts", "num_experts", "n_routed_experts"),
    "top_k": ("num_experts_per_tok", "moe_topk", "top_k"),
}
_GATED = ("llama", "mistral", "mixtral", "qwen2", "qwen2_moe", "qwen3", "deepseek", "gemma", "phi3")
"""Families whose feed-forward part has a gate, whose norms have no bias and whose positions are rotary."""

_NO_POSITIONS = ("gpt_neox", "gptj", "falcon", "phi", "starcoder2", "bloom")
"""Other families that learn no table of positions."""

_TIED = ("gemma", "gemma2", "cohere")
"""Families with a gate that share the embedding with the head unless their configuration says otherwise."""

COUNTED = (
    "llama", "mistral", "mixtral", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "deepseek_v2", "deepseek_v3", "gemma",
    "gemma2", "cohere", "phi", "phi3", "olmo", "stablelm", "gpt2", "gptj", "gpt_neox", "opt", "bloom", "falcon",
    "starcoder2", "bert", "roberta",
)  # fmt: skip
"""Families of which a released model was counted within one percent of what its authors state."""


@dataclass(frozen=True)
class Shape:
    """What a task decides about a model and its configuration does not.

    Attributes:
        name: What to call it.
        sequence_length: Tokens per sample; 0 for the configuration's, at most ``LONGEST_DEFAULT``.
        published_params: Count stated by the authors; 0 if unknown.
    """

    name: str
    sequence_length: int = 0
    published_params: float = 0.0


def read_config(path: str | Path) -> dict[str, Any]:
    """Read a ``config.json``; one clear error if it is missing, too large or not an object."""
    file = Path(path)
    try:
        if file.stat().st_size > MOST_BYTES_OF_CONFIG:
            rule = f"must have at most {MOST_BYTES_OF_CONFIG} bytes"
            raise TaskError(problem("config", str(file), rule, "Give the model's config.json"))
        found = json.loads(file.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise TaskError(problem("config", str(file), "cannot be read", "Give the path of a config.json")) from error
    except ValueError as error:
        raise TaskError(problem("config", str(file), f"is no JSON: {error}", "Download it again")) from error
    if not isinstance(found, dict):
        raise TaskError(problem("config", str(file), "must be a JSON object", "Give the model's config.json"))
    return found


def from_config(config: Mapping[str, Any], shape: Shape) -> Model:
    """Build a model from a configuration.

    Args:
        config: The object of a ``config.json``.
        shape: Name and sequence length; of a family that was never counted here the published parameters too.

    Raises:
        TaskError: A size is missing or not a positive whole number, or the family is none that was counted and nothing
            says how many parameters there should be.
    """
    family = str(config.get("model_type") or config.get("_class_name") or "")
    if family == "whisper":
        return _whisper(config, shape)
    if family in ("DiTTransformer2DModel", "Transformer2DModel", "dit"):
        return _diffusion_transformer(config, shape)
    if family == "UNet2DConditionModel":
        return unet(config, shape.name, shape.published_params)
    if family not in COUNTED and not shape.published_params:
        rule = "is no family whose parameters were counted here against published ones"
        fix = "State params, so that the count is checked; or give its layers, or a torch module"
        raise TaskError(problem("config.model_type", family or None, rule, fix))
    return _decoder(config, shape, family)


def _whole(config: Mapping[str, Any], key: str, default: int | None = None) -> int:
    """A positive whole number under one of its names."""
    for name in _ALIASES.get(key, (key,)):
        value = config.get(name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise TaskError(problem(f"config.{name}", value, "must be a whole number ≥ 1", "Mend the configuration"))
        if "layer" in name and value > MOST_LAYERS:
            rule = f"must be at most {MOST_LAYERS:,}: every layer has a row in tables"
            raise TaskError(problem(f"config.{name}", value, rule, "Mend the configuration"))
        return value
    if default is None:
        names = " or ".join(_ALIASES.get(key, (key,)))
        raise TaskError(problem("config", "no " + names, "is needed to count parameters and FLOPs", "Add the key"))
    return default


def _decoder(config: Mapping[str, Any], shape: Shape, family: str) -> Model:
    hidden, heads = _whole(config, "hidden_size"), _whole(config, "heads")
    layers = _whole(config, "layers")
    gated = any(family.startswith(name) for name in _GATED) or config.get("hidden_act") == "silu"
    positions = 0 if gated or family in _NO_POSITIONS else _whole(config, "positions", 1024)
    tokens = shape.sequence_length or min(_whole(config, "positions", LONGEST_DEFAULT), LONGEST_DEFAULT)
    biased = bool(config.get("bias", not gated))
    bias = bool(config.get("attention_bias", family.startswith("qwen2") or biased))
    projected = config.get("word_embed_proj_dim", hidden)
    if projected != hidden:
        fix = "Give its layers, or a torch module"
        raise TaskError(problem("config.word_embed_proj_dim", projected, f"must be hidden_size = {hidden}", fix))
    block = BlockSpec(
        hidden, heads, tokens,
        ffn=_whole(config, "ffn", 4 * hidden),
        kv_heads=_whole(config, "num_key_value_heads", 1 if config.get("multi_query") is True else heads),
        activation=Activation.SWIGLU if gated else Activation.GELU,
        qkv_bias=bias, linear_bias=biased, norm_params=1 if gated else 2,
        dropout=not gated, score_dropout=not gated, rotary=gated,
        head_size=_whole(config, "head_dim", hidden // heads if hidden % heads == 0 else 0),
    )  # fmt: skip
    experts = _whole(config, "experts", 0)
    dense = _whole(config, "first_k_dense_replace") if config.get("first_k_dense_replace") else 0
    dense_first = dense if experts else layers
    chain = []
    for i in range(layers):
        name = f"block {i + 1}"
        each = block_layer(block, name) if i < dense_first else _expert_block(config, block, experts, name)
        chain.append(_latent(config, block, each))
    spec = LanguageSpec(block, layers, _whole(config, "vocab_size"), positions=positions,
                        tied=bool(config.get("tie_word_embeddings", not gated or family in _TIED)))  # fmt: skip
    return Model(
        name=shape.name,
        family="llama" if gated else "gpt",
        task_type=TaskType.LANGUAGE,
        layers=(embedding_layer(spec), *chain, language_head_layer(spec)),
        sequence_length=tokens,
        input_size=(tokens, hidden),
        published_params=shape.published_params,
        output_tokens=int(OUTPUT_SHARE * tokens),
    )


def _expert_block(config: Mapping[str, Any], block: BlockSpec, experts: int, name: str) -> Layer:
    """A block whose tokens visit some of its experts: arithmetic of those visited, parameters of all."""
    visited = _whole(config, "top_k")
    if visited > experts:
        raise TaskError(
            problem("config.num_experts_per_tok", visited, f"must be at most {experts} experts", "Lower it")
        )
    width = _whole(config, "moe_intermediate_size", block.ffn_width)
    always = int(config.get("n_shared_experts") or 0) * width
    # Qwen's shared expert has a width, and a gate, of its own.
    wide = _whole(config, "shared_expert_intermediate_size", 0)
    busy = block_layer(replace(block, ffn=visited * width + always + wide), name)
    idle = (experts - visited) * (block.gates + 1) * block.hidden * width
    router = block.hidden * (experts + (1 if wide else 0))
    return replace(busy, params=busy.params + idle + router, fc_flops=busy.fc_flops + 2 * block.tokens * router)


def _latent(config: Mapping[str, Any], block: BlockSpec, layer: Layer) -> Layer:
    """Replace plain attention by latent attention where the configuration has its ranks."""
    rank = config.get("kv_lora_rank")
    if rank is None:
        return layer
    h, heads = block.hidden, block.heads
    nope, rope = _whole(config, "qk_nope_head_dim"), _whole(config, "qk_rope_head_dim")
    value, latent = _whole(config, "v_head_dim"), _whole(config, "kv_lora_rank")
    through = config.get("q_lora_rank")
    queries = heads * (nope + rope)
    query_params = h * queries if through is None else h * int(through) + int(through) + int(through) * queries
    own = query_params + h * (latent + rope) + latent + latent * heads * (nope + value) + heads * value * h
    plain = h * (block.query_width + 2 * block.kv_width) + block.query_width * h
    plain += block.qkv_bias * (block.query_width + 2 * block.kv_width)
    s = block.tokens
    return replace(
        layer,
        params=layer.params + own - plain,
        fc_flops=layer.fc_flops + 2 * s * (own - plain),
        attention_flops=2 * s * s * heads * (nope + rope + value),
        kv_elements=s * (latent + rope),
    )


def _whisper(config: Mapping[str, Any], shape: Shape) -> Model:
    """Whisper (Radford et al. 2022): two convolutions over mel frames, an encoder, a decoder that attends to it."""
    hidden = _whole(config, "d_model")
    frames, words = _whole(config, "max_source_positions", 1500), _whole(config, "max_target_positions", 448)
    mel, vocabulary = _whole(config, "num_mel_bins", 80), _whole(config, "vocab_size")
    encoder = BlockSpec(hidden, _whole(config, "encoder_attention_heads"), frames,
                        ffn=_whole(config, "encoder_ffn_dim"), dropout=False, score_dropout=False)  # fmt: skip
    decoder = BlockSpec(hidden, _whole(config, "decoder_attention_heads"), words,
                        ffn=_whole(config, "decoder_ffn_dim"), dropout=False, score_dropout=False)  # fmt: skip
    convolved = 3 * mel * hidden + hidden + 3 * hidden * hidden + hidden
    stem = Layer(
        name="convolutions", kind="embedding", params=convolved + frames * hidden,
        conv_flops=2.0 * (3 * mel * hidden * 2 * frames + 3 * hidden * hidden * frames), fc_flops=0.0,
        attention_flops=0.0, input_elements=2 * frames * mel, output_elements=frames * hidden,
        activation_elements=2 * frames * (mel + hidden), score_elements=0.0,
        moved_elements=2 * frames * (mel + 2 * hidden) + 3 * frames * hidden, tp_reduced_elements=0.0, tp_sharded=False,
    )  # fmt: skip
    # Keys have no bias in any of its attentions; the norm before the loss stands with the head.
    blocks = [
        replace(layer, params=layer.params - hidden)
        for layer in (block_layer(encoder, f"encoder {i + 1}") for i in range(_whole(config, "encoder_layers")))
    ]
    cross = 4 * hidden * hidden + 3 * hidden + 2 * hidden
    for i in range(_whole(config, "decoder_layers")):
        own = block_layer(decoder, f"decoder {i + 1}")
        blocks.append(replace(
            own,
            params=own.params - hidden + cross,
            fc_flops=own.fc_flops + 4 * words * hidden * hidden + 4 * frames * hidden * hidden,
            attention_flops=own.attention_flops + 4 * words * frames * hidden,
            # The encoder's output travels with the words through every decoder block.
            input_elements=own.input_elements + frames * hidden,
            output_elements=own.output_elements + frames * hidden,
            activation_elements=own.activation_elements + (2 * frames + 4 * words) * hidden,
            moved_elements=own.moved_elements + (4 * frames + 6 * words) * hidden,
            kv_elements=own.kv_elements + 2 * frames * hidden,
        ))  # fmt: skip
    spec = LanguageSpec(decoder, 1, vocabulary, positions=words, tied=True)
    head, table = language_head_layer(spec), embedding_layer(spec)
    first = blocks.index(next(layer for layer in blocks if layer.name.startswith("decoder")))
    # The encoder's last norm; words enter where the decoder begins, and only they leave it.
    begun = blocks[first].params + table.params + 2 * hidden
    blocks[first] = replace(blocks[first], params=begun, input_elements=frames * hidden)
    blocks[-1] = replace(blocks[-1], output_elements=words * hidden)
    return Model(
        name=shape.name, family="bert", task_type=TaskType.SPEECH, layers=(stem, *blocks, head),
        sequence_length=words, input_size=(2 * frames, mel), published_params=shape.published_params,
        output_tokens=words - 4,
    )  # fmt: skip


def _diffusion_transformer(config: Mapping[str, Any], shape: Shape) -> Model:
    """DiT (Peebles & Xie 2023): patches of a latent image, blocks whose norms are set by time step and class."""
    heads, size = _whole(config, "num_attention_heads"), _whole(config, "attention_head_dim")
    hidden, layers = heads * size, _whole(config, "num_layers")
    side, patch = _whole(config, "sample_size"), _whole(config, "patch_size")
    channels = _whole(config, "in_channels")
    tokens = (side // patch) ** 2
    classes = _whole(config, "num_embeds_ada_norm", 1000)
    block = BlockSpec(hidden, heads, tokens, norm_params=0 + 1, dropout=False, score_dropout=False)
    modulation = 6 * hidden * hidden + 6 * hidden
    pixels = channels * side * side
    embed = Layer(
        name="patches", kind="embedding",
        params=channels * patch * patch * hidden + hidden + (classes + 1) * hidden + 256 * hidden + hidden * hidden
        + 2 * hidden,
        conv_flops=2.0 * channels * patch * patch * hidden * tokens, fc_flops=2.0 * (256 * hidden + hidden * hidden),
        attention_flops=0.0, input_elements=pixels, output_elements=tokens * hidden, activation_elements=pixels,
        score_elements=0.0, moved_elements=pixels + 3 * tokens * hidden, tp_reduced_elements=0.0, tp_sharded=False,
    )  # fmt: skip
    blocks = []
    for i in range(layers):
        each = block_layer(block, f"block {i + 1}")
        # Norms have no weights of their own: the modulation stands in their place.
        params = each.params - 2 * block.norm_params * hidden + modulation
        blocks.append(replace(each, params=params, fc_flops=each.fc_flops + 2 * modulation))
    out = 2 * channels if config.get("out_channels") is None else _whole(config, "out_channels")
    head_params = 2 * hidden * hidden + 2 * hidden + hidden * patch * patch * out + patch * patch * out
    head = Layer(
        name="head", kind="head", params=head_params, conv_flops=0.0,
        fc_flops=2.0 * (2 * hidden * hidden + tokens * hidden * patch * patch * out), attention_flops=0.0,
        input_elements=tokens * hidden, output_elements=out * side * side, activation_elements=2 * tokens * hidden,
        score_elements=0.0, moved_elements=3 * tokens * hidden + out * side * side, tp_reduced_elements=0.0,
        tp_sharded=False,
    )  # fmt: skip
    return Model(
        name=shape.name, family="vit", task_type=TaskType.VISION, layers=(embed, *blocks, head), sequence_length=1,
        input_size=(side, side), published_params=shape.published_params,
    )  # fmt: skip


EXAMPLES: Mapping[str, tuple[dict[str, Any], float]] = {
    "mixtral-8x7b": ({
        "model_type": "mixtral", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
        "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 32000, "num_local_experts": 8,
        "num_experts_per_tok": 2, "max_position_embeddings": 32768, "tie_word_embeddings": False,
    }, 46_702_792_704),
    "deepseek-v3": ({
        "model_type": "deepseek_v3", "hidden_size": 7168, "num_hidden_layers": 61, "num_attention_heads": 128,
        "num_key_value_heads": 128, "intermediate_size": 18432, "moe_intermediate_size": 2048, "vocab_size": 129280,
        "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8, "first_k_dense_replace": 3,
        "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
        "max_position_embeddings": 163840, "tie_word_embeddings": False,
    }, 671e9),
    "qwen-2.5-7b": ({
        "model_type": "qwen2", "hidden_size": 3584, "num_hidden_layers": 28, "num_attention_heads": 28,
        "num_key_value_heads": 4, "intermediate_size": 18944, "vocab_size": 152064, "max_position_embeddings": 131072,
        "tie_word_embeddings": False,
    }, 7_615_616_512),
    "qwen-2.5-72b": ({
        "model_type": "qwen2", "hidden_size": 8192, "num_hidden_layers": 80, "num_attention_heads": 64,
        "num_key_value_heads": 8, "intermediate_size": 29568, "vocab_size": 152064, "max_position_embeddings": 131072,
        "tie_word_embeddings": False,
    }, 72_706_203_648),
    "whisper-large-v3": ({
        "model_type": "whisper", "d_model": 1280, "encoder_layers": 32, "decoder_layers": 32,
        "encoder_attention_heads": 20, "decoder_attention_heads": 20, "encoder_ffn_dim": 5120, "decoder_ffn_dim": 5120,
        "num_mel_bins": 128, "max_source_positions": 1500, "max_target_positions": 448, "vocab_size": 51866,
    }, 1_543_490_560),
    "dit-xl-2": ({
        "model_type": "dit", "num_attention_heads": 16, "attention_head_dim": 72, "num_layers": 28, "patch_size": 2,
        "sample_size": 32, "in_channels": 4, "num_embeds_ada_norm": 1000,
    }, 675e6),
    "sdxl-unet": ({
        "_class_name": "UNet2DConditionModel", "block_out_channels": [320, 640, 1280], "layers_per_block": 2,
        "down_block_types": ["DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"],
        "up_block_types": ["CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"],
        "transformer_layers_per_block": [1, 2, 10], "cross_attention_dim": 2048, "sample_size": 128, "in_channels": 4,
        "out_channels": 4, "addition_embed_type": "text_time", "projection_class_embeddings_input_dim": 2816,
    }, 2_567_463_684),
}  # fmt: skip
"""Catalogue name → configuration as released, and the count its authors state."""


def example(name: str) -> Model:
    """Build a shipped example."""
    config, published = EXAMPLES[name]
    return from_config(config, Shape(name, published_params=published))
