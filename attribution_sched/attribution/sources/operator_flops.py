"""FLOPs of one profiled torch operator from its input shapes; a multiply-add counts as two.

    mm                          2 n k m
    recurrent layer             2 T B (gates H I + gates H H), forward
    convolution                 2 B C_out (C_in / groups) prod(kernel) prod(output size)
    attention                   2 B H S_q S_k (D + D_v), that is 4 B H S^2 D in self-attention
    fused attention, backward   2 B H S_q S_k (3 D + 2 D_v): it computes the scores once more

Causal masks are not deducted.

torch counts fused attention on the CPU as zero; these formulas do not. Names are those torch.profiler prints.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any

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
