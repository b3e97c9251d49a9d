"""The model zoo: named networks as chains of layers, computed from their architecture on first use.

To the scheduler a model is a chain of layers with real arithmetic behind each number. All per-sample figures
are for **one sample**: one image, or one sequence of ``Model.sequence_length`` tokens. "Elements" are tensor
elements; bytes follow from the precision a stage runs in.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache, cached_property

import numpy as np

from attribution_sched.errors import TaskError, nearest, problem
from attribution_sched.types import FloatArray

__all__ = ["MODELS", "Layer", "Model", "TaskType", "model", "model_names"]


class TaskType(StrEnum):
    """The coarse kind of a workload (the seed's one-number task type)."""

    VISION = "vision"
    LANGUAGE = "language"
    SPEECH = "speech"
    RECOMMENDATION = "recommendation"


@dataclass(frozen=True)
class Layer:
    """One schedulable unit of a model: the pipeline may be cut before or after it, never inside.

    Attributes:
        name: Readable name, for example ``block 7``.
        kind: ``embedding``, ``block``, ``conv``, ``norm`` or ``head``; layers of one kind and equal
            numbers share a measured profile.
        params: Number of trainable parameters.
        conv_flops: Forward FLOPs of convolutions per sample (a multiply-add counts as two).
        fc_flops: Forward FLOPs of matrix products with weights per sample.
        attention_flops: Forward FLOPs of the weight-free attention products per sample.
        input_elements: Elements entering the layer per sample.
        output_elements: Elements leaving the layer per sample: what a cut after it must send.
        activation_elements: Elements kept for the backward pass per sample, attention score
            matrices not counted.
        score_elements: Elements of attention score matrices kept per sample when attention is not
            fused; a fused (flash) kernel keeps none.
        moved_elements: Elements read and written in device memory by one forward pass per sample,
            weights not counted.
        tp_reduced_elements: Elements all-reduced across tensor-parallel ranks in one forward pass
            per sample (0 where the layer is replicated, not sharded).
        tp_sharded: Whether tensor parallelism divides this layer's weights and FLOPs.
        kv_elements: Keys and values per sample that generating text keeps in memory, at the model's full sequence.
        frozen_params: Of ``params``, those that are not trained (the weights under adapters).
    """

    name: str
    kind: str
    params: float
    conv_flops: float
    fc_flops: float
    attention_flops: float
    input_elements: float
    output_elements: float
    activation_elements: float
    score_elements: float
    moved_elements: float
    tp_reduced_elements: float
    tp_sharded: bool
    kv_elements: float = 0.0
    frozen_params: float = 0.0

    @property
    def forward_flops(self) -> float:
        """Forward FLOPs per sample."""
        return self.conv_flops + self.fc_flops + self.attention_flops


FROZEN_BYTES = 2.0
"""Bytes that a weight under adapters takes in training."""

TRAINED_BYTES = 16.0
"""Bytes of a trained weight with gradient and Adam's states, in full or mixed precision."""


@dataclass(frozen=True)
class Model:
    """A named chain of layers.

    Attributes:
        name: Catalogue name, for example ``llama-3-8b``.
        family: Architecture family (``resnet``, ``efficientnet``, ``bert``, ``gpt``, ``opt``,
            ``llama``, ``vit``), the key of measured batch and precision curves.
        task_type: Coarse workload type.
        layers: The chain, first layer first.
        sequence_length: Tokens per sample; 1 for vision models.
        input_size: The seed's two input-size numbers: (height, width) or (tokens, hidden size).
        published_params: Parameter count stated by the model's authors.
        output_tokens: Of the sequence, tokens that inference writes one by one after reading the others (its prompt) in
            one pass; 0 for a model that only reads. Training reads the whole sequence.
    """

    name: str
    family: str
    task_type: TaskType
    layers: tuple[Layer, ...]
    sequence_length: int
    input_size: tuple[int, int]
    published_params: float
    output_tokens: int = 0

    def __post_init__(self) -> None:
        if not self.layers:
            raise TaskError(problem("layers", self.layers, "a model needs at least one layer", "Add a layer"))
        if not 0 <= self.output_tokens < max(2, self.sequence_length):
            rule = f"must lie between 0 and sequence_length - 1 = {self.sequence_length - 1}: a prompt has a token"
            raise TaskError(problem(f"{self.name}.output_tokens", self.output_tokens, rule, "Write fewer tokens"))

    def __len__(self) -> int:
        return len(self.layers)

    @cached_property
    def params(self) -> float:
        """Number of parameters, frozen ones included."""
        return float(sum(layer.params for layer in self.layers))

    def stateful_params(self, training: bool) -> FloatArray:
        """Parameters of every layer by the memory their states take, shape ``(n_layers,)``.

        A frozen weight has neither gradient nor optimiser state: in training it counts as 2 of 16 bytes.
        """
        params = self.column("params")
        return params - self.column("frozen_params") * (1.0 - FROZEN_BYTES / TRAINED_BYTES) if training else params

    @cached_property
    def forward_flops(self) -> float:
        """Forward FLOPs per sample."""
        return float(sum(layer.forward_flops for layer in self.layers))

    def column(self, field: str) -> FloatArray:
        """One attribute of every layer as an array of shape ``(n_layers,)``."""
        return np.array([float(getattr(layer, field)) for layer in self.layers])


LONGEST = 10_000_000
"""Tokens a sequence may have: beyond it the arithmetic of attention leaves what anybody runs."""


@cache
def model_names() -> tuple[str, ...]:
    """Every catalogue name, in catalogue order."""
    from attribution_sched.cluster.models.catalogue import BUILDERS

    return tuple(BUILDERS)


@cache
def _built(name: str) -> Model:
    from attribution_sched.cluster.models.catalogue import BUILDERS, with_sequence

    base, _, tokens = name.partition("@")
    return with_sequence(base, int(tokens)) if tokens else BUILDERS[name](name)


def known_model(name: str) -> bool:
    """Whether :func:`model` can build ``name``: a catalogue name, or one of a language model with its length."""
    from attribution_sched.cluster.models.catalogue import has_sequence

    base, at, tokens = name.strip().lower().partition("@")
    if base not in model_names():
        return False
    return not at or (tokens.isdecimal() and 0 < int(tokens) <= LONGEST and has_sequence(base))


def model(name: str) -> Model:
    """Look a model up by name, upper or lower case; it is built once and then shared.

    Args:
        name: A catalogue name, for example ``llama-3-8b``; a language model takes another sequence length after an
            ``@``: ``bert-base@384``.

    Raises:
        TaskError: The name is not in the catalogue; the message gives the nearest one.
    """
    key = name.strip().lower() if isinstance(name, str) else ""
    if not known_model(key):
        raise TaskError(problem("model", name, "is not in the model zoo", nearest(key, model_names())))
    return _built(key)


class _LazyModels(Mapping[str, "Model"]):
    """Name → model, where a model is built when it is first asked for."""

    def __getitem__(self, name: str) -> Model:
        # A mapping answers a missing key with KeyError; ``model`` is the door with the kind message.
        if name not in self:
            raise KeyError(name)
        return _built(name)

    def __contains__(self, name: object) -> bool:
        return name in model_names()

    def __iter__(self) -> Iterator[str]:
        return iter(model_names())

    def __len__(self) -> int:
        return len(model_names())


MODELS: Mapping[str, Model] = _LazyModels()
"""Catalogue name → model; iterating over it builds nothing."""
