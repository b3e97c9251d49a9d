"""Device memory of a pipeline stage: weights, gradients, optimiser states, activations in flight.

With P parameters on the device, ZeRO stage z over d data-parallel ranks, A activation elements of one
microbatch and k microbatches in flight (1F1B: ``min(M, stages − s)``; GPipe: ``M``)::

    bytes = P·(weight/[d if z≥3] + gradient/[d if z≥2] + optimiser/[d if z≥1])
            + element_bytes·A·k + reserved

With recomputation only layer inputs stay in flight, plus one layer's full set while it is recomputed.
"""

from __future__ import annotations

from attribution_sched.kernels import kernel

#: Adam in mixed or full precision: fp32 master copy and two moments, or two moments next to fp32 weights.
OPTIMISER_BYTES_MIXED = 12.0
OPTIMISER_BYTES_FULL = 8.0


@kernel
def element_bytes(precision: int) -> float:
    """Bytes of one element in the format at a position of the precision axis: fp32, fp16, bf16, int8."""
    if precision == 0:
        return 4.0
    return 1.0 if precision == 3 else 2.0


@kernel
def state_bytes_per_parameter(each_bytes: float, training: bool, zero_stage: int, dp: float) -> float:
    """Bytes of weights, gradients and optimiser states that one device keeps per parameter."""
    if not training:
        return each_bytes
    # Below two bytes weights are still trained from a half-precision copy.
    weight = max(each_bytes, 2.0)
    gradient = weight
    optimiser = OPTIMISER_BYTES_FULL if weight >= 4.0 else OPTIMISER_BYTES_MIXED
    if zero_stage >= 1:
        optimiser /= dp
    if zero_stage >= 2:
        gradient /= dp
    if zero_stage >= 3:
        weight /= dp
    return weight + gradient + optimiser


@kernel
def in_flight(schedule: int, stages: int, stage: int, microbatches: int) -> int:
    """Microbatches whose activations stage ``stage`` holds at its peak."""
    # GPipe runs every forward pass before the first backward one; 1F1B frees a set as soon as the pipeline is full.
    if schedule == 1:
        return microbatches
    return min(microbatches, stages - stage)


@kernel
def activation_share(tp: float, sequence_parallel: bool) -> float:
    """Part of a sharded layer's activations that one tensor-parallel rank keeps.

    Without sequence parallelism 10 of the 34 s·b·h bytes of a transformer block (layer norms, dropout
    masks, block inputs) are kept whole on every rank; the other 24 are divided.
    """
    if sequence_parallel:
        return 1.0 / tp
    return 10.0 / 34.0 + 24.0 / 34.0 / tp
