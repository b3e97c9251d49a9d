"""A model from a torch module, without its weights: built and run once on the meta device, which computes shapes only.

    with torch.device("meta"):
        net = MyNet()
    model = from_torch(net, torch.empty(1, 3, 224, 224, device="meta"), name="my-net")

The chain is the module's children in the order they are called; a container (``Sequential``, ``ModuleList``) is opened.
FLOPs are torch's own count by operator. A module whose children do not run one after the other (a U-Net) becomes a
chain in the order of the calls: its skips are not sent over a cut.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from attribution_sched.cluster.models import Layer, Model, TaskType
from attribution_sched.errors import TaskError, problem

if TYPE_CHECKING:
    import torch

_OPERATORS = {
    "conv": ("convolution",),
    "attention": ("scaled_dot_product", "flash_attention", "efficient_attention", "bmm", "baddbmm"),
}
"""Which operators of torch count as what; every other product is ``fc``."""


@dataclass
class _Seen:
    name: str
    module: Any
    inputs: float = 0.0
    outputs: float = 0.0
    kept: float = 0.0
    params: float = 0.0


def from_torch(
    module: torch.nn.Module,
    *inputs: Any,
    name: str = "module",
    family: str = "llama",
    task_type: TaskType = TaskType.LANGUAGE,
    sequence_length: int = 1,
) -> Model:
    """Describe a module by one forward pass on the meta device.

    Args:
        module: The network; its parameters may be on the meta device (nothing is computed).
        inputs: One sample as it enters ``forward``, with a leading batch axis of 1.
        name: What to call it.
        family: Family whose measured speed it is assumed to have.
        task_type: Coarse type.
        sequence_length: Tokens per sample.

    Raises:
        TaskError: The module cannot run on the meta device, or nothing of it ran.
    """
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    if not isinstance(module, torch.nn.Module):
        raise TaskError(problem("module", type(module).__name__, "must be a torch module", "Give the network itself"))
    children = _units(module)
    if not children and any(True for _ in module.parameters()):
        children = [(type(module).__name__, module)]
    units = {id(child): _Seen(label, child) for label, child in children}
    # Moving to the meta device makes two parameters of one that is tied.
    sizes = {id(p): p.numel() for p in module.parameters()}
    owned = {key: [id(p) for p in seen.module.parameters()] for key, seen in units.items()}
    order: list[_Seen] = []
    hooks = []

    def entered(child: Any, given: Any, result: Any) -> None:
        seen = units[id(child)]
        if seen not in order:
            order.append(seen)
        seen.inputs, seen.outputs = max(seen.inputs, _elements(given)), max(seen.outputs, _elements(result))

    for seen in units.values():
        hooks.append(seen.module.register_forward_hook(entered))
        leaves = [inner for inner in seen.module.modules() if not list(inner.children())]
        hooks += [leaf.register_forward_hook(_keeper(seen)) for leaf in leaves]
    counter = FlopCounterMode(display=False)
    try:
        with counter, torch.no_grad():
            module.to("meta")(*[x.to("meta") if isinstance(x, torch.Tensor) else x for x in inputs])
    except (RuntimeError, NotImplementedError, TypeError) as error:
        rule = f"cannot run on the meta device: {str(error).splitlines()[0]}"
        fix = "Give inputs as forward takes them, and no operation that reads values"
        raise TaskError(problem("module", type(module).__name__, rule, fix)) from error
    finally:
        for hook in hooks:
            hook.remove()
    if not order:
        raise TaskError(problem("module", type(module).__name__, "none of its children ran", "Give a module of layers"))
    counts = {key.removeprefix(f"{type(module).__name__}."): value for key, value in counter.get_flop_counts().items()}
    total = float(sum(sizes.values()))
    for seen in order:
        seen.params = float(sum(sizes.pop(p, 0) for p in owned[id(seen.module)]))
    # What stands beside the children (tables of positions, class tokens), and what did not run, enters with the first.
    order[0].params += float(sum(sizes.values()))
    layers = tuple(_layer(seen, counts.get(seen.name, {})) for seen in order)
    return Model(
        name=name, family=family, task_type=task_type, layers=layers, sequence_length=sequence_length,
        input_size=(sequence_length, max(1, int(order[0].outputs / sequence_length))), published_params=total,
    )  # fmt: skip


def _units(module: Any) -> list[tuple[str, Any]]:
    """Children that are layers; containers are opened."""
    import torch

    found: list[tuple[str, Any]] = []
    for label, child in module.named_children():
        if isinstance(child, torch.nn.Sequential | torch.nn.ModuleList | torch.nn.ModuleDict):
            found += [(f"{label}.{inner}", deeper) for inner, deeper in _units(child)]
        else:
            found.append((label, child))
    return found


def _keeper(seen: _Seen) -> Any:
    def kept(_: Any, __: Any, result: Any) -> None:
        seen.kept += _elements(result)

    return kept


def _elements(value: Any) -> float:
    import torch

    if isinstance(value, torch.Tensor):
        return float(value.numel())
    if isinstance(value, tuple | list):
        return sum(_elements(part) for part in value)
    if isinstance(value, dict):
        return sum(_elements(part) for part in value.values())
    return 0.0


def _layer(seen: _Seen, counts: Any) -> Layer:
    flops = {"conv": 0.0, "fc": 0.0, "attention": 0.0}
    for operator, number in counts.items():
        known = (kind for kind, words in _OPERATORS.items() if any(word in str(operator) for word in words))
        flops[next(known, "fc")] += float(number)
    params = seen.params
    convolves = flops["conv"] > flops["fc"] + flops["attention"]
    sharded = params > 0 and not convolves
    return Layer(
        name=seen.name, kind="conv" if convolves else "block", params=params, conv_flops=flops["conv"],
        fc_flops=flops["fc"], attention_flops=flops["attention"], input_elements=seen.inputs,
        output_elements=seen.outputs, activation_elements=seen.inputs + seen.kept, score_elements=0.0,
        moved_elements=seen.inputs + 2.0 * seen.kept, tp_reduced_elements=2.0 * seen.outputs if sharded else 0.0,
        tp_sharded=sharded,
    )  # fmt: skip
