"""How the training framework behaves: the switches that change time and memory but are no plan."""

from __future__ import annotations

from dataclasses import dataclass

from attribution_sched.errors import SettingsError, problem

GIGA = 1e9


@dataclass(frozen=True)
class Runtime:
    """Framework behaviour shared by every task of a cluster.

    Attributes:
        recompute: Recompute activations in the backward pass (keeps layer inputs only).
        zero_stage: ZeRO stage 0..3: what data-parallel ranks shard (optimiser, gradients, weights).
        sequence_parallel: Shard layer norms and dropout over tensor-parallel ranks too.
        flash_attention: Fused attention; no score matrices are kept or moved.
        blocking_sends: A stage computes nothing while it sends (as frameworks that synchronise after
            every point-to-point transfer do); otherwise sends overlap with computing.
        reserved_bytes: Device memory that context, communicators and allocator slack take.
    """

    recompute: bool = False
    zero_stage: int = 1
    sequence_parallel: bool = False
    flash_attention: bool = True
    blocking_sends: bool = False
    reserved_bytes: float = 2.0 * GIGA

    def __post_init__(self) -> None:
        if self.zero_stage not in (0, 1, 2, 3):
            raise SettingsError(problem("zero_stage", self.zero_stage, "must be 0, 1, 2 or 3", "Pick one of these"))
        if not self.reserved_bytes >= 0:
            raise SettingsError(problem("reserved_bytes", self.reserved_bytes, "must be >= 0", "Use bytes"))
