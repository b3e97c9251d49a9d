"""Pictures as bytes to be put inside the file."""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from attribution_sched.explain.plots import style

if TYPE_CHECKING:
    from attribution_sched.report.document import Draw

WIDE, NARROW = 6.6, 3.7
"""Widths in inches: for a column of text, and for a telephone."""

DPI = 200
"""Sharp on paper and on dense screens; as PNG of few colours, smaller than the same picture as SVG with its glyphs."""

COLOURS = 128


@dataclass(frozen=True)
class Image:
    """A picture.

    Attributes:
        kind: Its media type.
        data: Its bytes.
        width: In pixels of the page.
        height: The same.
    """

    kind: str
    data: bytes
    width: int
    height: int

    @property
    def address(self) -> str:
        """The picture itself as an address."""
        return f"data:{self.kind};base64,{base64.b64encode(self.data).decode()}"


def image(draw: Draw, inches: float = WIDE) -> Image:
    """Draw a picture at a width; glyphs are painted, so that no font is needed to read the file."""
    from PIL import Image as Pillow

    held = io.BytesIO()
    with style.canvas(inches):
        figure: Any = draw().get_figure(root=True)
        width, height = (round(96 * float(size)) for size in figure.get_size_inches())
        figure.savefig(held, format="png", dpi=DPI, facecolor="white", metadata={"Software": None})
    small = io.BytesIO()
    # Few colours are used, though smoothed edges make them many: a third of the bytes will do.
    painted = Pillow.open(io.BytesIO(held.getvalue())).convert("RGB")
    painted.quantize(COLOURS, method=Pillow.Quantize.MEDIANCUT).save(small, format="png")
    return Image("image/png", small.getvalue(), width, height)
