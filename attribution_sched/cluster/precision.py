"""Numeric formats a task can run in."""

from __future__ import annotations

from enum import StrEnum


class Precision(StrEnum):
    """A numeric format; the order is the order of the precision axis in every table."""

    FP32 = "fp32"
    FP16 = "fp16"
    BF16 = "bf16"
    INT8 = "int8"

    @property
    def index(self) -> int:  # type: ignore[override]
        """Position on the precision axis."""
        return PRECISIONS.index(self)

    @property
    def element_bytes(self) -> int:
        """Bytes of one activation or weight element in this format."""
        return {"fp32": 4, "fp16": 2, "bf16": 2, "int8": 1}[self.value]


PRECISIONS: tuple[Precision, ...] = tuple(Precision)
"""Every precision, in axis order: fp32, fp16, bf16, int8."""
