"""Transformers as chains: embedding, one layer per block, final norm and head.

Weight tying counts parameters once, in the embedding: a tied head has no parameters of its own, but
its FLOPs, its activations and its traffic are all counted. A pipeline that puts a tied head on another
stage than the embedding holds a second copy of the word table, which no single layer can express.

The head of a language model keeps 16-bit inputs and 32-bit logits (two elements each), as in
Korthikanti et al. 2022. Its tensor-parallel all-reduce of ``s·h`` is the one of its input gradient;
the loss itself reduces three numbers per token. Word tables and language heads are sharded over the
vocabulary; patch embeddings, poolers and image classifiers are replicated.
"""

from __future__ import annotations

from dataclasses import dataclass

from attribution_sched.cluster.layers import Layer, Model, TaskType
from attribution_sched.cluster.models.transformer_block import DROPOUT_MASK, BlockSpec, block_layer
from attribution_sched.errors import TaskError, problem

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
