"""Arithmetic of one transformer block: weights, FLOPs, what it keeps, what it moves, what it reduces.

With sequence length ``s``, hidden size ``h``, ``a`` heads, feed-forward size ``f`` and key/value width
``k`` (``k = h`` unless heads share keys and values):

* FLOPs: projections ``2·s·h·(2h + 2k)`` and feed-forward ``4·s·h·f`` (``6·s·h·f`` when gated); for the
  classic ``f = 4h`` that is ``24·s·h²``. Attention products ``4·s²·h``, counted in full: a causal mask
  does not halve them, as in the Megatron papers and in kernels that mask after the product. Local
  attention layers (GPT-Neo) are counted in full for the same reason.
* Kept activations follow Korthikanti et al. 2022 in 16-bit elements: ``17·s·h`` plus ``2.5·a·s²`` of
  scores for a GPT block. Other variants drop what they do not have: ReLU shares its output with the next
  product, a fused SwiGLU keeps gate, value and product, models without dropout keep no masks (a mask is
  half an element) and only one score matrix.
* Moved elements assume fused element-wise chains (bias + activation; bias + dropout + residual) and fused
  attention that never writes its scores. Unfused attention moves about ``6.5·a·s²`` more with score
  dropout (2.6 times the score elements) and ``4·a·s²`` without (4 times).
* Tensor parallelism all-reduces ``s·h`` after attention and after the feed-forward part.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from attribution_sched.cluster.layers import Layer
from attribution_sched.errors import TaskError, problem

DROPOUT_MASK = 0.5
"""A dropout mask is one byte where an element is two."""


class Activation(StrEnum):
    """The non-linearity of the feed-forward part."""

    GELU = "gelu"
    RELU = "relu"
    SWIGLU = "swiglu"


@dataclass(frozen=True)
class BlockSpec:
    """The shape of one transformer block and of the sequence it reads.

    Attributes:
        hidden: Width of the residual stream.
        heads: Query heads; they divide ``hidden``.
        tokens: Positions per sample.
        ffn: Feed-forward width; 0 means four times ``hidden``.
        kv_heads: Key/value heads; 0 means one per query head.
        activation: Feed-forward non-linearity; ``SWIGLU`` adds the gate matrix.
        qkv_bias: Whether query, key and value products have a bias.
        linear_bias: Whether the other products have a bias.
        norm_params: Trainable numbers per feature of a norm: 2 (layer norm) or 1 (RMS norm).
        dropout: Whether the residual branches end in dropout.
        score_dropout: Whether attention scores go through dropout.
        rotary: Whether queries and keys are rotated (one more pass over them).
    """

    hidden: int
    heads: int
    tokens: int
    ffn: int = 0
    kv_heads: int = 0
    activation: Activation = Activation.GELU
    qkv_bias: bool = True
    linear_bias: bool = True
    norm_params: int = 2
    dropout: bool = True
    score_dropout: bool = True
    rotary: bool = False

    def __post_init__(self) -> None:
        for field in ("hidden", "heads", "tokens"):
            value = getattr(self, field)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise TaskError(problem(field, value, "must be a whole number ≥ 1", "Give a positive integer"))
        if self.hidden % self.heads:
            rule = f"must be a multiple of heads = {self.heads}"
            raise TaskError(problem("hidden", self.hidden, rule, "Change hidden or heads"))
        if self.kv_heads < 0 or (self.kv_heads and self.heads % self.kv_heads):
            rule = f"must divide heads = {self.heads}"
            raise TaskError(problem("kv_heads", self.kv_heads, rule, "Use 0 for one per query head"))
        if self.ffn < 0:
            raise TaskError(problem("ffn", self.ffn, "must be ≥ 0", "Use 0 for four times hidden"))

    @property
    def ffn_width(self) -> int:
        """Feed-forward width with the default filled in."""
        return self.ffn or 4 * self.hidden

    @property
    def kv_width(self) -> int:
        """Width of all keys (or all values) of one token."""
        return self.hidden // self.heads * (self.kv_heads or self.heads)

    @property
    def gates(self) -> int:
        """Matrices that lead into the feed-forward width: one, or two when gated."""
        return 2 if self.activation is Activation.SWIGLU else 1


def block_params(spec: BlockSpec) -> int:
    """Trainable parameters of one block."""
    h, f, k = spec.hidden, spec.ffn_width, spec.kv_width
    weights = h * (h + 2 * k) + h * h + (spec.gates + 1) * h * f
    biases = spec.qkv_bias * (h + 2 * k) + spec.linear_bias * (h + spec.gates * f + h)
    return weights + biases + 2 * spec.norm_params * h


def block_kept_per_token(spec: BlockSpec) -> float:
    """Elements one token leaves for the backward pass, scores not counted."""
    h, f, k = spec.hidden, spec.ffn_width, spec.kv_width
    mask = DROPOUT_MASK * h * spec.dropout
    attention = h + h + k + k + h + mask  # product input, queries, keys, values, mixed values
    inner = {Activation.GELU: 2, Activation.RELU: 1, Activation.SWIGLU: 3}[spec.activation]
    feed_forward = h + inner * f + mask
    norms = 2 * h
    return attention + feed_forward + norms


def block_moved_per_token(spec: BlockSpec) -> float:
    """Elements one token reads and writes in device memory in a forward pass."""
    h, f, k = spec.hidden, spec.ffn_width, spec.kv_width
    norms = 2 * 2 * h
    qkv = h + (h + 2 * k)
    rotation = 2 * (h + k) * spec.rotary
    fused_attention = (h + 2 * k) + h
    projection = h + h
    residuals = 2 * (3 * h + DROPOUT_MASK * h * spec.dropout)
    feed_forward = (h + spec.gates * f) + (spec.gates * f + f) + (f + h)
    return norms + qkv + rotation + fused_attention + projection + residuals + feed_forward


def block_layer(spec: BlockSpec, name: str) -> Layer:
    """One block as a schedulable layer. Its norms are replicated; everything else is sharded."""
    s, h, f, k = spec.tokens, spec.hidden, spec.ffn_width, spec.kv_width
    score_copies = 2 + DROPOUT_MASK if spec.score_dropout else 1
    return Layer(
        name=name,
        kind="block",
        params=block_params(spec),
        conv_flops=0.0,
        fc_flops=2 * s * h * (2 * h + 2 * k) + 2 * s * h * f * (spec.gates + 1),
        attention_flops=4 * s * s * h,
        input_elements=s * h,
        output_elements=s * h,
        activation_elements=s * block_kept_per_token(spec),
        score_elements=score_copies * spec.heads * s * s,
        moved_elements=s * block_moved_per_token(spec),
        tp_reduced_elements=2 * s * h,
        tp_sharded=True,
    )
