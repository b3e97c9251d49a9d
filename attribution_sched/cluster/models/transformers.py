"""Transformers as chains: embedding, one layer per block, final norm and head.

Weight tying counts parameters once, in the embedding: a tied head has no parameters of its own, but
its FLOPs, its activations and its traffic are all counted. A pipeline that puts a tied head on another
stage than the embedding holds a second copy of the word table, which no single layer can express.

The head of a language model keeps 16-bit inputs and 32-bit logits (two elements each), as in
Korthikanti et al. 2022. Its tensor-parallel all-reduce of ``s·h`` is the one of its input gradient;
the loss itself reduces three numbers per token. Word tables and language heads are sharded over the
vocabulary; patch embeddings, poolers and image classifiers are replicated.

One block (``block_layer``): weights, FLOPs, what it keeps, what it moves, what it reduces. With sequence length
``s``, hidden size ``h``, ``a`` heads, feed-forward size ``f`` and key/value width ``k`` (``k = h`` unless heads
share keys and values):

* FLOPs: projections ``2·s·h·(2h + 2k)`` (queries ``h`` wide unless heads have a size of their own) and feed-forward
  ``4·s·h·f`` (``6·s·h·f`` when gated); for the
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

from attribution_sched.cluster.models import Layer, Model, TaskType
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
        head_size: Width of one head; 0 means ``hidden / heads``, which must then be whole.
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
    head_size: int = 0

    def __post_init__(self) -> None:
        for field in ("hidden", "heads", "tokens"):
            value = getattr(self, field)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise TaskError(problem(field, value, "must be a whole number ≥ 1", "Give a positive integer"))
        if self.head_size < 0:
            raise TaskError(problem("head_size", self.head_size, "must be ≥ 0", "Use 0 for hidden / heads"))
        if not self.head_size and self.hidden % self.heads:
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
    def query_width(self) -> int:
        """Width of all queries of one token."""
        return (self.head_size or self.hidden // self.heads) * self.heads

    @property
    def kv_width(self) -> int:
        """Width of all keys (or all values) of one token."""
        return (self.head_size or self.hidden // self.heads) * (self.kv_heads or self.heads)

    @property
    def gates(self) -> int:
        """Matrices that lead into the feed-forward width: one, or two when gated."""
        return 2 if self.activation is Activation.SWIGLU else 1


def block_params(spec: BlockSpec) -> int:
    """Trainable parameters of one block."""
    h, f, k, q = spec.hidden, spec.ffn_width, spec.kv_width, spec.query_width
    weights = h * (q + 2 * k) + q * h + (spec.gates + 1) * h * f
    biases = spec.qkv_bias * (q + 2 * k) + spec.linear_bias * (h + spec.gates * f + h)
    return weights + biases + 2 * spec.norm_params * h


def block_kept_per_token(spec: BlockSpec) -> float:
    """Elements one token leaves for the backward pass, scores not counted."""
    h, f, k, q = spec.hidden, spec.ffn_width, spec.kv_width, spec.query_width
    mask = DROPOUT_MASK * h * spec.dropout
    attention = h + q + k + k + q + mask  # product input, queries, keys, values, mixed values
    inner = {Activation.GELU: 2, Activation.RELU: 1, Activation.SWIGLU: 3}[spec.activation]
    feed_forward = h + inner * f + mask
    norms = 2 * h
    return attention + feed_forward + norms


def block_moved_per_token(spec: BlockSpec) -> float:
    """Elements one token reads and writes in device memory in a forward pass."""
    h, f, k, q = spec.hidden, spec.ffn_width, spec.kv_width, spec.query_width
    norms = 2 * 2 * h
    qkv = h + (q + 2 * k)
    rotation = 2 * (q + k) * spec.rotary
    fused_attention = (q + 2 * k) + q
    projection = q + h
    residuals = 2 * (3 * h + DROPOUT_MASK * h * spec.dropout)
    feed_forward = (h + spec.gates * f) + (spec.gates * f + f) + (f + h)
    return norms + qkv + rotation + fused_attention + projection + residuals + feed_forward


def block_layer(spec: BlockSpec, name: str) -> Layer:
    """One block as a schedulable layer. Its norms are replicated; everything else is sharded."""
    s, h, f, k, q = spec.tokens, spec.hidden, spec.ffn_width, spec.kv_width, spec.query_width
    score_copies = 2 + DROPOUT_MASK if spec.score_dropout else 1
    return Layer(
        name=name,
        kind="block",
        params=block_params(spec),
        conv_flops=0.0,
        fc_flops=2 * s * h * (2 * q + 2 * k) + 2 * s * h * f * (spec.gates + 1),
        attention_flops=4 * s * s * q,
        input_elements=s * h,
        output_elements=s * h,
        activation_elements=s * block_kept_per_token(spec),
        score_elements=score_copies * spec.heads * s * s,
        moved_elements=s * block_moved_per_token(spec),
        tp_reduced_elements=2 * s * h,
        tp_sharded=True,
        kv_elements=2 * s * k,
    )


OUTPUT_SHARE = 0.5
"""Part of its sequence that a served language model writes, the rest being its prompt (assumed; a task may say)."""

_RGB = 3
_LOGIT_ELEMENTS = 2
"""A 32-bit logit is two 16-bit elements."""


@dataclass(frozen=True)
class LanguageSpec:
    """A language model around its blocks.

    Attributes:
        block: Shape of every block.
        layers: Number of blocks.
        vocabulary: Rows of the word table.
        positions: Rows of the learned position table; 0 for rotary models.
        token_types: Rows of the segment table (BERT: 2).
        embedding_width: Width of the word table; 0 means the hidden size. Where it is narrower, a
            projection without bias leads in and another leads out (OPT-350M).
        embedding_norm: Whether the summed embeddings are normalised (BERT).
        final_norm: Whether a norm precedes the head; post-norm models have none.
        tied: Whether the head reuses the word table.
        pooler: Whether the model ends in BERT's pooler, a dense layer on the first token, and has no
            vocabulary head.
    """

    block: BlockSpec
    layers: int
    vocabulary: int
    positions: int = 0
    token_types: int = 0
    embedding_width: int = 0
    embedding_norm: bool = False
    final_norm: bool = True
    tied: bool = True
    pooler: bool = False

    def __post_init__(self) -> None:
        for field in ("layers", "vocabulary"):
            value = getattr(self, field)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise TaskError(problem(field, value, "must be a whole number ≥ 1", "Give a positive integer"))

    @property
    def word_width(self) -> int:
        """Width of the word table with the default filled in."""
        return self.embedding_width or self.block.hidden

    @property
    def projected(self) -> bool:
        """Whether the word table is narrower than the blocks."""
        return self.word_width != self.block.hidden


def language_model(name: str, family: str, spec: LanguageSpec, *, published_params: float) -> Model:
    """Assemble a language model from its specification."""
    head = pooler_layer(spec) if spec.pooler else language_head_layer(spec)
    return Model(
        name=name,
        family=family,
        task_type=TaskType.LANGUAGE,
        layers=(embedding_layer(spec), *block_layers(spec.block, spec.layers), head),
        sequence_length=spec.block.tokens,
        input_size=(spec.block.tokens, spec.block.hidden),
        published_params=published_params,
        # An encoder reads only.
        output_tokens=0 if spec.pooler else int(OUTPUT_SHARE * spec.block.tokens),
    )


def block_layers(spec: BlockSpec, count: int) -> tuple[Layer, ...]:
    """``count`` equal blocks, named from 1."""
    return tuple(block_layer(spec, f"block {index}") for index in range(1, count + 1))


def embedding_layer(spec: LanguageSpec) -> Layer:
    """Word, position and segment tables: a lookup, with no FLOPs but those of a projection."""
    s, h, e = spec.block.tokens, spec.block.hidden, spec.word_width
    norm, projected, dropout = spec.embedding_norm, spec.projected, spec.block.dropout
    tables = spec.vocabulary * e + (spec.positions + spec.token_types) * h
    kept = 1 + e * projected + h * norm + DROPOUT_MASK * h * dropout
    moved = 1 + 2 * e + (e + h) * projected + 2 * h * norm + (2 + DROPOUT_MASK) * h * dropout
    return Layer(
        name="embedding",
        kind="embedding",
        params=tables + e * h * projected + spec.block.norm_params * h * norm,
        conv_flops=0.0,
        fc_flops=2 * s * e * h * projected,
        attention_flops=0.0,
        input_elements=s,
        output_elements=s * h,
        activation_elements=s * kept,
        score_elements=0.0,
        moved_elements=s * moved,
        tp_reduced_elements=s * e,
        tp_sharded=True,
    )


def language_head_layer(spec: LanguageSpec) -> Layer:
    """Final norm, projection to the vocabulary and loss."""
    s, h, e, v = spec.block.tokens, spec.block.hidden, spec.word_width, spec.vocabulary
    norm, projected = spec.final_norm, spec.projected
    kept = h * norm + h * projected + e + _LOGIT_ELEMENTS * v
    moved = 2 * h * norm + (h + e) * projected + e + 2 * v
    return Layer(
        name="head",
        kind="head",
        params=spec.block.norm_params * h * norm + e * h * projected + v * e * (not spec.tied),
        conv_flops=0.0,
        fc_flops=2 * s * e * v + 2 * s * e * h * projected,
        attention_flops=0.0,
        input_elements=s * h,
        output_elements=s * v,
        activation_elements=s * kept,
        score_elements=0.0,
        moved_elements=s * moved,
        tp_reduced_elements=s * e,
        tp_sharded=True,
    )


def pooler_layer(spec: LanguageSpec) -> Layer:
    """BERT's pooler: a dense layer and tanh on the first token; the rest of the sequence ends here."""
    s, h = spec.block.tokens, spec.block.hidden
    return Layer(
        name="pooler",
        kind="head",
        params=h * h + h,
        conv_flops=0.0,
        fc_flops=2 * h * h,
        attention_flops=0.0,
        input_elements=s * h,
        output_elements=h,
        activation_elements=2 * h,
        score_elements=0.0,
        moved_elements=4 * h,
        tp_reduced_elements=0.0,
        tp_sharded=False,
    )


def megatron_gpt(
    heads: int,
    hidden: int,
    layers: int,
    vocabulary: int = 51200,
    sequence_length: int = 2048,
    name: str = "megatron-gpt",
) -> Model:
    """Build a GPT in the shape of the Megatron-LM scaling studies, of any size.

    Its published count is the formula of Narayanan et al. 2021, ``12·l·h²·(1 + 13/12h + (V + s)/12lh)``,
    which leaves out only the final norm.

    Args:
        heads: Attention heads; must divide ``hidden``.
        hidden: Hidden size.
        layers: Number of blocks.
        vocabulary: Rows of the (padded) word table.
        sequence_length: Tokens per sample.
        name: Name of the resulting model.

    Raises:
        TaskError: A size is not a positive whole number, or ``heads`` does not divide ``hidden``.
    """
    spec = LanguageSpec(
        block=BlockSpec(hidden, heads, sequence_length),
        layers=layers,
        vocabulary=vocabulary,
        positions=sequence_length,
    )
    published = 12 * layers * hidden**2 + 13 * layers * hidden + (vocabulary + sequence_length) * hidden
    return language_model(name, "gpt", spec, published_params=published)


def vision_transformer(
    name: str,
    *,
    hidden: int,
    layers: int,
    heads: int,
    published_params: float,
    patch: int = 16,
    resolution: int = 224,
    classes: int = 1000,
) -> Model:
    """Build a ViT (Dosovitskiy et al. 2021): patch embedding, blocks, final norm and classifier.

    It trains without dropout on the patches, as the released recipes do.
    """
    pixels, patches = _RGB * resolution * resolution, (resolution // patch) ** 2
    tokens = patches + 1
    patch_weights = _RGB * patch * patch * hidden
    block = BlockSpec(hidden, heads, tokens, dropout=False, score_dropout=False)
    embedding = Layer(
        name="patch embedding",
        kind="embedding",
        params=patch_weights + hidden + hidden + tokens * hidden,  # weights, bias, class token, positions
        conv_flops=2 * patch_weights * patches,
        fc_flops=0.0,
        attention_flops=0.0,
        input_elements=pixels,
        output_elements=tokens * hidden,
        activation_elements=pixels,
        score_elements=0.0,
        moved_elements=pixels + patches * hidden + 2 * tokens * hidden,
        tp_reduced_elements=0.0,
        tp_sharded=False,
    )
    head = Layer(
        name="head",
        kind="head",
        params=2 * hidden + hidden * classes + classes,
        conv_flops=0.0,
        fc_flops=2 * hidden * classes,
        attention_flops=0.0,
        input_elements=tokens * hidden,
        output_elements=classes,
        activation_elements=tokens * hidden + hidden,
        score_elements=0.0,
        moved_elements=2 * tokens * hidden + hidden + classes,
        tp_reduced_elements=0.0,
        tp_sharded=False,
    )
    return Model(
        name=name,
        family="vit",
        task_type=TaskType.VISION,
        layers=(embedding, *block_layers(block, layers), head),
        sequence_length=1,
        input_size=(resolution, resolution),
        published_params=published_params,
    )
