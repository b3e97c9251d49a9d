"""Pictures to be put inside the file: SVG whose text is text, in the fonts of whoever reads it."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from attribution_sched.report.document import Picture

WIDE, NARROW = 6.6, 3.7
"""Widths in inches: for a column of text, and for a telephone."""


def figure(picture: Picture) -> str:
    """A picture as HTML, drawn twice: the page shows the one that fits the screen."""
    # Loads matplotlib, which reports without pictures do without.
    from attribution_sched.explain.plots.svg import to_svg

    drawn = "".join(
        to_svg(picture.draw, inches, f"{picture.name}-{kind}", picture.alt, kind).markup
        for kind, inches in (("wide", WIDE), ("narrow", NARROW))
    )
    caption = f"<figcaption>{escape(picture.caption)}</figcaption>"
    return f'<figure id="{escape(picture.name)}"><div class="paper">{drawn}</div>{caption}</figure>\n'
