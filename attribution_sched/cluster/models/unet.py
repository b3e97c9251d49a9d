"""Text-conditioned U-Nets from their diffusers ``config.json``: Stable Diffusion XL (Podell et al. 2023) and its like.

Down the levels go pairs of residual blocks, some followed by transformers that attend to the picture's own tokens and
to those of the text; one more of each in the middle; then up again, each residual block fed what the level below hands
on and what the way down has kept (a *skip*). Skips that wait for their block go with the chain: what enters and leaves
a layer counts them, so a cut of the pipeline sends them too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from attribution_sched.cluster.models import Layer, Model, TaskType
from attribution_sched.errors import TaskError, problem
from attribution_sched.limits import MOST_LAYERS

TEXT_TOKENS = 77
"""Tokens of a prompt, as CLIP cuts or pads them."""


def _most(key: str) -> int:
    """Largest number of a key: every layer has a row in tables."""
    return MOST_LAYERS if "layers" in key else 10**9


def _levels(config: Mapping[str, Any], key: str, kind: type, count: int | None = None) -> tuple[Any, ...]:
    """A list with one entry for each level; one number stands for all of them."""
    found = config.get(key)
    if count is not None and isinstance(found, kind) and not isinstance(found, bool):
        found = [found] * count
    most = _most(key)
    good = isinstance(found, Sequence) and not isinstance(found, str) and all(isinstance(x, kind) for x in found)
    if (
        not good
        or not found
        or (count is not None and len(found) != count)
        or (kind is int and not 1 <= min(found) <= max(found) <= most)
    ):
        size = "each level" if count is None else f"each of {count} levels"
        word = f"whole number from 1 to {most:,}" if kind is int else "name"
        raise TaskError(problem(f"config.{key}", found, f"must be a {word} for {size}", "Mend the configuration"))
    return tuple(found)


def _number(config: Mapping[str, Any], key: str, default: int) -> int:
    value = config.get(key)
    value = default if value is None else value
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _most(key):
        rule = f"must be a whole number from 1 to {_most(key):,}"
        raise TaskError(problem(f"config.{key}", value, rule, "Mend the configuration"))
    return value


def _layer(name: str, params: float, conv: float, fc: float, attention: float, inside: float, outside: float,
           kept: float, *, kind: str) -> Layer:  # fmt: skip
    return Layer(
        name=name, kind=kind, params=params, conv_flops=conv, fc_flops=fc, attention_flops=attention,
        input_elements=inside, output_elements=outside, activation_elements=kept, score_elements=0.0,
        moved_elements=inside + 2.0 * kept + outside, tp_reduced_elements=0.0, tp_sharded=False,
    )  # fmt: skip


def _residual(name: str, inside: int, outside: int, time: int, side: int) -> Layer:
    """Two norms, two 3 × 3 convolutions, the time step added between; a 1 × 1 on the way past where sizes differ."""
    past = inside * outside + outside if inside != outside else 0
    first, second = 9 * inside * outside + outside, 9 * outside * outside + outside
    params = 2 * inside + first + (time + 1) * outside + 2 * outside + second + past
    pixels = side * side
    conv = 2.0 * pixels * (9 * inside * outside + 9 * outside * outside + (inside * outside if past else 0))
    return _layer(name, params, conv, 2.0 * time * outside, 0.0, pixels * inside, pixels * outside,
                  pixels * (2 * inside + 3 * outside), kind="conv")  # fmt: skip


def _transformer(name: str, width: int, depth: int, text: int, side: int) -> Layer:
    """Blocks of self-attention, attention to the text, and a gated feed-forward part, between two projections."""
    tokens = side * side
    own = 3 * width * width + width * width + width
    other = width * width + 2 * text * width + width * width + width
    fed = width * 8 * width + 8 * width + 4 * width * width + width
    params = 2 * width + 2 * (width * width + width) + depth * (6 * width + own + other + fed)
    per_token = 2 * width * width + depth * (4 * width * width + 2 * width * width + 12 * width * width)
    fc = 2.0 * (tokens * per_token + depth * TEXT_TOKENS * 2 * text * width)
    attention = depth * 4.0 * tokens * (tokens + TEXT_TOKENS) * width
    size = tokens * width
    return _layer(name, params, 0.0, fc, attention, size, size, size * (2 + depth * 18), kind="block")


def _convolution(
    name: str, inside: int, outside: int, side: int, *, kind: str = "conv", norm: int = 0, step: float = 1
) -> Layer:
    """A 3 × 3 convolution, its picture ``side`` wide afterwards and ``step`` times that before."""
    pixels, before = side * side, side * side * step * step
    return _layer(name, norm + 9 * inside * outside + outside, 18.0 * pixels * inside * outside, 0.0, 0.0,
                  before * inside, pixels * outside, max(before, pixels) * inside, kind=kind)  # fmt: skip


def unet(config: Mapping[str, Any], name: str, published_params: float = 0.0) -> Model:
    """Build a U-Net from its configuration.

    Args:
        config: The object of a ``config.json`` with ``_class_name: UNet2DConditionModel``.
        name: What to call it.
        published_params: Count stated by its authors; 0 if unknown.

    Raises:
        TaskError: A size is missing or wrong.
    """
    widths = _levels(config, "block_out_channels", int)
    n = len(widths)
    down, up = (_levels(config, f"{way}_block_types", str, n) for way in ("down", "up"))
    depths = _levels({"transformer_layers_per_block": 1} | dict(config), "transformer_layers_per_block", int, n)
    pairs, text = _number(config, "layers_per_block", 2), _number(config, "cross_attention_dim", 1280)
    side, channels = _number(config, "sample_size", 64), _number(config, "in_channels", 4)
    out, time = _number(config, "out_channels", 4), 4 * widths[0]
    told = 0
    if config.get("addition_embed_type") is not None:
        told = (_number(config, "projection_class_embeddings_input_dim", time) + 1) * time + (time + 1) * time
    embed = (widths[0] + 1) * time + (time + 1) * time + told
    first = _convolution("picture and time step", channels, widths[0], side, kind="embedding")
    skip_elements = first.output_elements
    chain = [_layer(first.name, first.params + embed, first.conv_flops, 2.0 * embed, 0.0, first.input_elements,
                    first.output_elements + skip_elements, first.activation_elements, kind="embedding")]  # fmt: skip
    width, skips, waiting = widths[0], [(widths[0], side)], widths[0] * side * side

    def passed(layer: Layer, taken: int = 0, kept: int = 0) -> None:
        """Put a layer behind the others: with the skips that wait, less the one it takes, more the one it leaves."""
        nonlocal waiting
        before, waiting = waiting, waiting - taken + kept
        inside, outside = layer.input_elements - taken + before, layer.output_elements + waiting
        chain.append(replace(layer, input_elements=inside, output_elements=outside))

    for level in range(n):
        for i in range(pairs):
            where = f"down {level + 1}.{i + 1}"
            attends, block = "CrossAttn" in down[level], _residual(where, width, widths[level], time, side)
            width = widths[level]
            skips.append((width, side))
            size = width * side * side
            passed(block, kept=0 if attends else size)
            if attends:
                passed(_transformer(f"{where} transformer", width, depths[level], text, side), kept=size)
        if level < n - 1:
            side //= 2
            skips.append((width, side))
            passed(_convolution(f"down {level + 1} half", width, width, side, step=2), kept=width * side * side)
    passed(_residual("middle 1", width, width, time, side))
    passed(_transformer("middle transformer", width, depths[-1], text, side))
    passed(_residual("middle 2", width, width, time, side))
    for step, level in enumerate(reversed(range(n))):
        for i in range(pairs + 1):
            where = f"up {step + 1}.{i + 1}"
            skip, there = skips.pop()
            passed(_residual(where, width + skip, widths[level], time, side), taken=skip * there * there)
            width = widths[level]
            if "CrossAttn" in up[step]:
                passed(_transformer(f"{where} transformer", width, depths[level], text, side))
        if level > 0:
            side *= 2
            passed(_convolution(f"up {step + 1} double", width, width, side, step=0.5))
    passed(_convolution("picture", width, out, side, kind="head", norm=2 * width))
    return Model(
        name=name, family="resnet", task_type=TaskType.VISION, layers=tuple(chain), sequence_length=1,
        input_size=(side, side), published_params=published_params,
    )  # fmt: skip
