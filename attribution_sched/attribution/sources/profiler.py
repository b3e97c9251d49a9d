"""Convolution, fully-connected and attention time and FLOPs of a user's torch module.

Every profiled operator's *self* time goes to one of four groups, so the groups add up to the whole:

- an operator belongs to the outermost known operator around it, so the time inside ``mkldnn_convolution`` is
  convolution and a ``bmm`` inside ``scaled_dot_product_attention`` is attention;
- products of two activations (``bmm``, ``softmax``) inside a module whose class is called "...Attention..."
  are attention, its projections with weights stay fully-connected; so are, whatever the class is called, a batched
  product, the softmax over its last axis and the batched product that takes what comes out of it;
- recurrent layers (LSTM, GRU, plain) are products with weights: fully-connected;
- a backward operator belongs to the group of the forward operator that created it.

On a CPU the clock of an operator also runs while another process has the core. So steps are repeated; an operator's
time is a low quantile over the repeats of *its place in the step*, which an interruption of one of them does not move,
all of them together scaled to the CPU time of the thread; and shares have an interval between the repeats.
"""

from __future__ import annotations

import contextlib
import math
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from attribution_sched.attribution.sources.reading import Reading, ReadingBuilder
from attribution_sched.errors import CounterError, problem
from attribution_sched.types import FloatArray

if TYPE_CHECKING:
    from torch import Tensor, nn

# ------ FLOPs of one profiled torch operator from its input shapes; a multiply-add counts as two
#
# mm                          2 n k m
#     recurrent layer             2 T B (gates H I + gates H H), forward
#     convolution                 2 B C_out (C_in / groups) prod(kernel) prod(output size)
#     attention                   2 B H S_q S_k (D + D_v), that is 4 B H S^2 D in self-attention
#     fused attention, backward   2 B H S_q S_k (3 D + 2 D_v): it computes the scores once more
#
# Causal masks are not deducted.
#
# torch counts fused attention on the CPU as zero; these formulas do not. Names are those torch.profiler prints.

Shape = Sequence[int]

# The composite operators take (B, H, S, D); the kernels below them (B, S, H, D).
_COMPOSITE = re.compile(r"aten::_scaled_dot_product_\w*attention(_for_cpu)?(?P<backward>_backward)?")
_KERNEL = re.compile(r"aten::_(flash|efficient)_attention_(forward|(?P<backward>backward))")


def mm_flops(left: Shape, right: Shape) -> int:
    """FLOPs of ``(n, k) @ (k, m)`` or, with one leading batch axis, of a batch of them."""
    batch = left[0] if len(left) == 3 else 1
    return 2 * batch * left[-2] * left[-1] * right[-1]


def attention_flops(query: Shape, key: Shape, value: Shape) -> int:
    """FLOPs of scaled dot-product attention, shapes ``(B, H, S, D)`` or ``(H, S, D)``."""
    heads = math.prod(query[:-2])
    return 2 * heads * query[-2] * key[-2] * (query[-1] + value[-1])


def attention_backward_flops(query: Shape, key: Shape, value: Shape) -> int:
    """FLOPs of the fused backward pass: five products, the recomputed scores among them."""
    heads = math.prod(query[:-2])
    return 2 * heads * query[-2] * key[-2] * (3 * query[-1] + 2 * value[-1])


def conv_flops(data: Shape, weight: Shape, arguments: Sequence[Any], first: int) -> int:
    """FLOPs of a convolution of any rank, transposed or not.

    Args:
        data: ``(B, C_in, ...)``.
        weight: ``(C_out, C_in / groups, kernel...)``; transposed ``(C_in, C_out / groups, kernel...)``.
        arguments: The operator's arguments as recorded by the profiler.
        first: Position of ``stride`` among them.
    """
    stride, padding, dilation, transposed = arguments[first : first + 4]
    # Per input position (transposed) or output position, each weight is used once.
    positions = data[2:] if transposed else _out_sizes(data[2:], weight[2:], stride, padding, dilation)
    return 2 * data[0] * math.prod(weight) * math.prod(positions)


def _out_sizes(size: Shape, kernel: Shape, stride: Shape, padding: Shape, dilation: Shape) -> list[int]:
    rank = len(size)
    stride, padding, dilation = (list(v) * rank if len(v) == 1 else v for v in (stride, padding, dilation))
    return [
        (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, k, s, p, d in zip(size, kernel, stride, padding, dilation, strict=True)
    ]


def _conv(shapes: Sequence[Shape], arguments: Sequence[Any]) -> int:
    return conv_flops(shapes[0], shapes[1], arguments, 3)


def _conv_backward(shapes: Sequence[Shape], arguments: Sequence[Any]) -> int:
    # Gradients of the data and of the weight each cost one convolution; the bias is not counted.
    output_mask = arguments[10]
    return conv_flops(shapes[1], shapes[2], arguments, 4) * (bool(output_mask[0]) + bool(output_mask[1]))


def _recurrent(shapes: Sequence[Shape]) -> int:
    # Input (T, B, I), then the weights of input (gates·H, I) and of state (gates·H, H).
    return 2 * math.prod(shapes[0][:2]) * (math.prod(shapes[1]) + math.prod(shapes[2]))


_FORMULAS: dict[str, Callable[[Sequence[Shape], Sequence[Any]], int]] = {
    "aten::mm": lambda s, _: mm_flops(s[0], s[1]),
    "aten::bmm": lambda s, _: mm_flops(s[0], s[1]),
    "aten::addmm": lambda s, _: mm_flops(s[1], s[2]),
    "aten::baddbmm": lambda s, _: mm_flops(s[1], s[2]),
    "aten::mv": lambda s, _: 2 * math.prod(s[0]),
    "aten::addmv": lambda s, _: 2 * math.prod(s[1]),
    "aten::mkldnn_rnn_layer": lambda s, _: _recurrent(s),
    "aten::convolution": _conv,
    "aten::convolution_backward": _conv_backward,
}


def operator_flops(name: str, shapes: Sequence[Shape], arguments: Sequence[Any]) -> int | None:
    """FLOPs of one operator call, or None where this operator is not counted by itself.

    Args:
        name: Name as printed by torch.profiler, for example ``aten::mm``.
        shapes: Shape of each argument; empty where it is not a tensor.
        arguments: Value of each argument that is not a tensor.
    """
    if name in _FORMULAS:
        return _FORMULAS[name](shapes, arguments)
    if name == "aten::_scaled_dot_product_attention_math":
        return None  # its products are counted one by one
    composite, kernel = _COMPOSITE.fullmatch(name), _KERNEL.fullmatch(name)
    match = composite or kernel
    if match is None:
        return None
    first = 1 if match["backward"] else 0
    query, key, value = (list(s) for s in shapes[first : first + 3])
    if kernel is not None:
        if len(query) != 4:
            return None  # packed sequences: their lengths are data, not shape
        query, key, value = ([s[0], s[2], s[1], s[3]] for s in (query, key, value))
    return (attention_backward_flops if first else attention_flops)(query, key, value)


# ------ Convolution, fully-connected and attention time and FLOPs of a user's torch module

GROUPS = ("conv", "fc", "attention", "other")

_MARK = "attribution_sched::attention"
_STEP = "attribution_sched::step"

LOW_QUANTILE = 0.25
"""Of the repeats of an operator: three in four may be interrupted somewhere without moving it."""

RESAMPLES = 200
_ATTENTION = re.compile(r"scaled_?dot_?product|(flash|efficient)_attention", re.IGNORECASE)
_CONV = re.compile(r"aten::(\w*conv(\d|olution|_|$)\w*)|ConvolutionBackward\d*")
_FC = re.compile(
    r"aten::(linear|addmm|mm|bmm|baddbmm|matmul|mv|addmv|einsum|bilinear)_?"
    r"|aten::(lstm|gru|rnn_tanh|rnn_relu)(_cell)?|aten::(mkldnn_rnn_layer|_cudnn_rnn|_thnn_fused_(lstm|gru)_cell)\w*"
)
_BATCHED = frozenset({"aten::bmm", "aten::baddbmm"})
_SOFTMAX = frozenset({"aten::_softmax"})
_AROUND = frozenset({"aten::matmul", "aten::einsum", "aten::softmax"})
_SCORES = re.compile(r"aten::(bmm|baddbmm|matmul|einsum|_?softmax)_?")


@dataclass(frozen=True)
class OperatorProfile:
    """Where the time and the arithmetic of one step go.

    Attributes:
        time_s: Group to self time of one step.
        flops: Group to FLOPs of one step.
        steps: Steps averaged over.
        training: Whether a step is forward and backward, or forward only.
        device: Where time was taken, ``cpu`` or ``cuda``.
        share_interval: Group to the 95 % interval of its share of time between repeats; empty for a single step.
        thread_s: CPU time of the thread in one step, the median over steps; 0 where nobody took it.
        interrupted: Part of the steps' wall time in which the thread had no core.
    """

    time_s: Mapping[str, float]
    flops: Mapping[str, float]
    steps: int
    training: bool
    device: str
    share_interval: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    thread_s: float = 0.0
    interrupted: float = 0.0

    @property
    def time_share(self) -> Mapping[str, float]:
        """Group to its share of time; the shares sum to 1."""
        return _shares(self.time_s)

    @property
    def flops_share(self) -> Mapping[str, float]:
        """Group to its share of FLOPs; the shares sum to 1 (all "other" where nothing was counted)."""
        return _shares(self.flops)

    def reading(self, timestamp_s: float | None = None) -> Reading:
        """The profile as a reading: ``conv_time_s`` ... ``other_time_s`` and ``conv_flops`` ..."""
        out = ReadingBuilder()
        for group in GROUPS:
            out.add(f"{group}_time_s", self.time_s[group], "s", note=f"self time per step on {self.device}")
        for group in GROUPS[:-1]:
            out.add(f"{group}_flops", self.flops[group], "FLOP", note="counted from shapes")
        return out.build(time.time() if timestamp_s is None else timestamp_s)


def _shares(parts: Mapping[str, float]) -> Mapping[str, float]:
    total = sum(parts.values())
    if total <= 0:
        return MappingProxyType({g: float(g == "other") for g in GROUPS})
    return MappingProxyType({g: parts[g] / total for g in GROUPS})


def profile(
    model: nn.Module,
    inputs: Tensor | tuple[Any, ...] | Mapping[str, Any],
    *,
    training: bool = False,
    steps: int = 8,
    warmup: int = 1,
    loss: Callable[[Any], Tensor] | None = None,
) -> OperatorProfile:
    """Profile a module as it is: weights, mode and gradients are left as found.

    Args:
        model: Any torch module.
        inputs: One tensor, a tuple of positional arguments, or a mapping of keyword arguments.
        training: Profile forward and backward in training mode, else forward in evaluation mode.
        steps: Profiled steps; from 4 on their spread gives an interval.
        warmup: Unprofiled steps first, so that lazy set-up is not charged to an operator.
        loss: Maps the output to a scalar for backward; by default the mean of the first floating tensor.
    """
    for name, value, least in (("steps", steps, 1), ("warmup", warmup, 0)):
        if value < least:
            raise CounterError(problem(name, value, f"must be at least {least}", f"Use {name}={least}"))
    import torch
    from torch.profiler import ProfilerActivity, record_function
    from torch.profiler import profile as torch_profile

    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if torch.cuda.is_available() else [])
    with _as_found(model, training), _marks(model):
        for _ in range(warmup):
            _step(model, inputs, training, loss)
        clocks: list[tuple[float, float]] = []
        with torch_profile(activities=activities, record_shapes=True) as recorder:
            for _ in range(steps):
                wall, thread = time.perf_counter(), time.thread_time()
                with record_function(_STEP):
                    _step(model, inputs, training, loss)
                clocks.append((time.perf_counter() - wall, time.thread_time() - thread))
    return _summarise(list(recorder.events() or []), steps, training, clocks)


class ProfilerSource:
    """A module and its inputs as a counter source: each read profiles it once."""

    def __init__(self, model: nn.Module, inputs: Any, *, training: bool = False, steps: int = 8) -> None:
        """Keep what to profile; arguments as in `profile`."""
        self._model, self._inputs, self._training, self._steps = model, inputs, training, steps

    def read(self) -> Reading:
        """Profile the module once."""
        return profile(self._model, self._inputs, training=self._training, steps=self._steps).reading()


@contextlib.contextmanager
def _as_found(model: nn.Module, training: bool) -> Iterator[None]:
    modes = {module: module.training for module in model.modules()}
    grads = [(p, p.grad) for p in model.parameters()]
    buffers = [(b, b.detach().clone()) for b in model.buffers()]  # batch norm moves its averages in training
    model.train(training)
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode
        for parameter, grad in grads:
            parameter.grad = grad
        for buffer, saved in buffers:
            buffer.detach().copy_(saved)


@contextlib.contextmanager
def _marks(model: nn.Module) -> Iterator[None]:
    """Wrap each attention module's forward in a named range, so that its score products can be told apart."""
    from torch.profiler import record_function

    open_ranges: list[Any] = []

    def enter(*_: Any) -> None:
        open_ranges.append(record_function(_MARK))
        open_ranges[-1].__enter__()

    def leave(*_: Any) -> None:
        open_ranges.pop().__exit__(None, None, None)

    hooks: list[Any] = []
    for module in model.modules():
        if "attention" in type(module).__name__.lower():
            hooks.append(module.register_forward_pre_hook(enter))
            hooks.append(module.register_forward_hook(leave, always_call=True))
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _step(model: nn.Module, inputs: Any, training: bool, loss: Callable[[Any], Tensor] | None) -> None:
    import torch

    with torch.set_grad_enabled(training):
        if isinstance(inputs, Mapping):
            output = model(**inputs)
        else:
            output = model(*inputs) if isinstance(inputs, tuple) else model(inputs)
        if not training:
            return
        scalar = loss(output) if loss is not None else _mean(output)
    for parameter in model.parameters():
        parameter.grad = None
    scalar.backward()  # type: ignore[no-untyped-call]


def _mean(output: Any) -> Tensor:
    import torch

    candidates = output.values() if isinstance(output, Mapping) else output
    for item in [output] if isinstance(output, torch.Tensor) else candidates:
        if isinstance(item, torch.Tensor) and item.is_floating_point() and item.requires_grad:
            return item.mean()
    raise CounterError(
        problem("loss", None, "the output holds no tensor with a gradient", "Pass loss=, a function of the output")
    )


def _chain(event: Any) -> list[Any]:
    """The event and its ancestors, outermost first."""
    chain = [event]
    while (parent := chain[-1].cpu_parent) is not None:
        chain.append(parent)
    return chain[::-1]


def _group(chain: list[Any], forward_group: Mapping[int, str], scores: frozenset[int] = frozenset()) -> str:
    in_attention = False
    if scores and any(id(event) in scores for event in chain):
        return "attention"
    for event in chain:
        name = event.name
        if name == _MARK or name == "aten::_native_multi_head_attention":
            in_attention = True
        elif name.startswith("autograd::engine::evaluate_function") and event.sequence_nr in forward_group:
            return forward_group[event.sequence_nr]
        elif _ATTENTION.search(name):
            return "attention"
        elif _CONV.fullmatch(name):
            return "conv"
        elif in_attention and _SCORES.fullmatch(name) and not _by_weight(event):
            return "attention"
        elif _FC.fullmatch(name):
            return "fc"
    return "other"


def _by_weight(event: Any) -> bool:
    """Whether a product has a two-dimensional right side: a weight, not a batch of keys or values."""
    shapes = [s for s in event.input_shapes or [] if s]
    return "matmul" in event.name and len(shapes) > 1 and len(shapes[1]) <= 2


def _score_products(host: list[Any], chains: list[list[Any]]) -> frozenset[int]:
    """Events of attention written as plain products: Q·Kᵀ in a batch, softmax over its last axis, times V."""
    ordered = sorted(
        ((event, chain) for event, chain in zip(host, chains, strict=True) if event.name in _BATCHED | _SOFTMAX),
        key=lambda pair: pair[0].time_range.start if hasattr(pair[0], "time_range") else 0.0,
    )
    attention: set[int] = set()
    for at, (event, chain) in enumerate(ordered):
        shape = _operand(event, 0)
        if event.name not in _SOFTMAX or len(shape) < 3:
            continue
        size, last = prod(shape), shape[-1]
        before = next((pair for pair in reversed(ordered[:at]) if pair[0].name in _BATCHED), None)
        after = next((pair for pair in ordered[at + 1 :] if pair[0].name in _BATCHED), None)
        if before is None or after is None:
            continue
        (left, right), weighed = _factors(before[0]), _factors(after[0])[0]
        scores = len(left) == len(right) == 3 and left[0] * left[1] * right[2] == size and right[2] == last
        if scores and len(weighed) == 3 and prod(weighed) == size and weighed[2] == last:
            for part in (before[1], chain, after[1]):
                # Around the product itself lie matmul or einsum, which copy its operands.
                attention |= {id(each) for each in part if each is part[-1] or each.name in _AROUND}
    return frozenset(attention)


def _factors(event: Any) -> tuple[list[int], list[int]]:
    first = 1 if event.name == "aten::baddbmm" else 0
    return _operand(event, first), _operand(event, first + 1)


def _operand(event: Any, at: int) -> list[int]:
    shapes = event.input_shapes or []
    return list(shapes[at]) if len(shapes) > at else []


def _places(host: list[Any], steps: int) -> list[list[Any]] | None:
    """Events of every step in their order; None where steps differ or are not marked."""
    marks = sorted((e.time_range.start, e.time_range.end) for e in host if e.name == _STEP)
    if len(marks) != steps:
        return None
    inside: list[list[Any]] = [[] for _ in marks]
    for event in sorted(host, key=lambda e: e.time_range.start):
        for at, (start, end) in enumerate(marks):
            if start <= event.time_range.start <= end:
                inside[at].append(event)
                break
    names = [[event.name for event in each] for each in inside]
    if any(other != names[0] for other in names[1:]):
        return None
    return inside


def _summarise(
    events: list[Any], steps: int, training: bool, clocks: list[tuple[float, float]] | None = None
) -> OperatorProfile:
    # Device kernels appear a second time as events of their own; their time is already on the operator.
    host = [e for e in events if str(e.device_type).endswith("CPU")]
    cuda = any(e.self_device_time_total > 0 for e in host)
    chains = [_chain(e) for e in host]
    scores = _score_products(host, chains)
    forward: dict[int, str] = {}
    for event, chain in zip(host, chains, strict=True):
        backward = any(e.name.startswith("autograd::engine") for e in chain)
        if event.sequence_nr >= 0 and not backward:
            # The innermost event of a number made the autograd node; outer ones merely contain it.
            group = _group(chain, {}, scores)
            if group != "other" or event.sequence_nr not in forward:
                forward[event.sequence_nr] = group
    seconds, flops = dict.fromkeys(GROUPS, 0.0), dict.fromkeys(GROUPS, 0)
    counted: set[int] = set()
    groups: dict[int, str] = {}
    for event, chain in zip(host, chains, strict=True):
        if event.name == _STEP:
            # Between operators lies Python, which is none.
            continue
        group = groups[id(event)] = _group(chain, forward, scores)
        seconds[group] += 1e-6 * (event.self_device_time_total if cuda else event.self_cpu_time_total) / steps
        if any(id(e) in counted for e in chain[:-1]):
            continue
        count = operator_flops(event.name, event.input_shapes or [], event.concrete_inputs or [])
        if count is not None:
            counted.add(id(event))
            flops[group] += count
    interval: dict[str, tuple[float, float]] = {}
    thread_s, interrupted = 0.0, 0.0
    if clocks:
        wall = sum(w for w, _ in clocks)
        thread_s = float(np.median([t for _, t in clocks]))
        interrupted = max(0.0, 1.0 - sum(t for _, t in clocks) / wall) if wall > 0 else 0.0
    if clocks and not cuda:
        seconds, interval = _by_place(host, groups, steps, seconds, thread_s)
    return OperatorProfile(
        MappingProxyType(seconds),
        MappingProxyType({g: n / steps for g, n in flops.items()}),
        steps,
        training,
        "cuda" if cuda else "cpu",
        MappingProxyType(interval),
        thread_s,
        interrupted,
    )


def _by_place(
    host: list[Any],
    groups: Mapping[int, str],
    steps: int,
    mean_s: dict[str, float],
    thread_s: float,
) -> tuple[dict[str, float], dict[str, tuple[float, float]]]:
    """Seconds of the groups in a step nobody interrupted, and the 95 % interval of their shares between repeats."""
    inside = _places(host, steps)
    if inside is None:
        return mean_s, {}
    each: FloatArray = np.array([[1e-6 * event.self_cpu_time_total for event in step] for step in inside])
    first = inside[0]
    member = np.array([[groups.get(id(e)) == group for group in GROUPS] for e in first], dtype=np.float64)
    quiet = np.quantile(each, LOW_QUANTILE, axis=0) @ member
    if quiet.sum() <= 0.0:
        return mean_s, {}
    seconds = quiet * (thread_s / quiet.sum() if thread_s > 0.0 else 1.0)
    seconds_by_group = dict(zip(GROUPS, seconds.tolist(), strict=True))
    if steps < 4:
        return seconds_by_group, {}
    rng = np.random.default_rng(0)
    again = np.array([
        np.quantile(each[rng.integers(steps, size=steps)], LOW_QUANTILE, axis=0) @ member for _ in range(RESAMPLES)
    ])  # fmt: skip
    shares = again / np.maximum(again.sum(axis=1, keepdims=True), 1e-12)
    low, high = np.quantile(shares, (0.025, 0.975), axis=0)
    return seconds_by_group, {group: (float(a), float(b)) for group, a, b in zip(GROUPS, low, high, strict=True)}
