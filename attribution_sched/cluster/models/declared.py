"""A model that somebody wrote down: a list of layers in YAML, a catalogue model with adapters, or figures of both.

What a person states is FLOPs, parameters and activations of each kind of layer; what they leave out follows from it as
in the zoo: a layer hands on what it keeps, and moves its activations in and out of memory once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from attribution_sched.cluster.models import Layer, Model, TaskType
from attribution_sched.errors import TaskError, problem

SUM_TOLERANCE = 0.01
"""How far the layers may add up to something else than the stated total."""


@dataclass(frozen=True)
class LayerFigures:
    """One kind of layer as stated.

    Attributes:
        count: How many follow each other.
        flops: Forward FLOPs per sample of one, without its experts.
        params: Parameters of one, without its experts.
        activations: Elements per sample it keeps for the backward pass, those of the experts visited included.
        outputs: Elements per sample it hands on; its activations when 0.
        operator: ``conv``, ``fc`` or ``attention``: what most of its FLOPs are.
        kind: ``block``, ``conv``, ``embedding``, ``norm`` or ``head``.
        sharded: Whether tensor parallelism divides it.
        experts: How many experts it has; every one has its parameters.
        top_k: How many of them a token visits; only their arithmetic is done.
        expert_params: Parameters of one expert.
        expert_flops: Forward FLOPs per sample of one expert if every token visits it.
        attention_flops: Forward FLOPs per sample of its attention, beside those of ``operator``.
    """

    count: int
    flops: float
    params: float
    activations: float
    outputs: float = 0.0
    operator: str = "fc"
    kind: str = "block"
    sharded: bool = True
    experts: int = 0
    top_k: int = 0
    expert_params: float = 0.0
    expert_flops: float = 0.0
    attention_flops: float = 0.0


def declared_model(
    name: str,
    layers: Sequence[LayerFigures],
    *,
    sequence_length: int = 1,
    task_type: TaskType = TaskType.LANGUAGE,
    total_params: float = 0.0,
    family: str = "llama",
) -> Model:
    """Build a model from stated layers.

    Args:
        name: What to call it.
        layers: Its chain, first layer first.
        sequence_length: Tokens per sample.
        task_type: Coarse type.
        total_params: Parameters of the whole; 0 if not stated.
        family: Family whose measured speed it is assumed to have.

    Raises:
        TaskError: The layers do not add up to ``total_params`` within one percent.
    """
    chain: list[Layer] = []
    before = max(1.0, layers[0].activations) if layers else 1.0
    for part in layers:
        for _ in range(part.count):
            handed = part.outputs or part.activations
            own = part.flops if part.operator != "fc" else 0.0
            routed = part.top_k * part.expert_flops + (part.flops if part.operator == "fc" else 0.0)
            flops = {f"{op}_flops": own if op == part.operator else 0.0 for op in ("conv", "attention")}
            flops["fc_flops"] = routed
            flops["attention_flops"] += part.attention_flops
            chain.append(Layer(
                name=f"{part.kind} {len(chain) + 1}", kind=part.kind,
                params=part.params + part.experts * part.expert_params, **flops,
                input_elements=before, output_elements=handed, activation_elements=part.activations,
                score_elements=0.0, moved_elements=2.0 * part.activations + before,
                tp_reduced_elements=2.0 * handed if part.sharded and part.kind == "block" else 0.0,
                tp_sharded=part.sharded,
            ))  # fmt: skip
            before = handed
    found = Model(
        name=name, family=family, task_type=task_type, layers=tuple(chain), sequence_length=sequence_length,
        input_size=(sequence_length, max(1, int(before / sequence_length))),
        published_params=total_params or sum(layer.params for layer in chain),
    )  # fmt: skip
    return check_total(found, total_params)


def check_total(model: Model, total_params: float | None) -> Model:
    """Return the model if its layers add up to a stated total within one percent (or none was stated)."""
    if total_params and abs(model.params / total_params - 1) > SUM_TOLERANCE:
        rule = f"its layers add up to {model.params:.4g}"
        raise TaskError(problem(f"{model.name}.params", f"{total_params:.4g}", rule, "Mend a count or the total"))
    return model


def with_adapters(base: Model, rank: int, name: str | None = None) -> Model:
    """Fine-tune a model by low-rank adapters (LoRA, Hu et al. 2021): its own weights are frozen.

    A product with an ``m × n`` matrix gets ``rank · (m + n)`` weights beside it. Blocks are taken to have products as
    wide as their residual stream, which is exact for attention and a little low for wide feed-forward parts.

    Args:
        base: The model.
        rank: Rank of every adapter.
        name: What to call the result; the base's name with ``+lora`` and the rank by default.
    """
    if isinstance(rank, bool) or not isinstance(rank, int) or rank < 1:
        raise TaskError(problem("lora_rank", rank, "must be a whole number ≥ 1", "Use 8 or 16"))
    width = float(base.input_size[1])
    layers = []
    for layer in base.layers:
        frozen = layer.params
        products = layer.params / width**2 if layer.kind == "block" else 0.0
        added = products * 2.0 * width * rank
        extra = 2.0 * base.sequence_length * added
        layers.append(replace(layer, params=frozen + added, frozen_params=frozen, fc_flops=layer.fc_flops + extra))
    return replace(base, name=name or f"{base.name}+lora{rank}", layers=tuple(layers))
