"""A report as sections of blocks, before it is HTML or Markdown: words are found once for both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Tone = Literal["plain", "lead", "note", "good", "bad"]

Draw = Callable[[], "Axes"]
"""Draws a picture at the width in force; see :func:`attribution_sched.explain.plots.style.canvas`."""


@dataclass(frozen=True)
class Text:
    """A paragraph.

    Attributes:
        words: It.
        tone: How it is set.
    """

    words: str
    tone: Tone = "plain"


@dataclass(frozen=True)
class Code:
    """Lines to be copied."""

    lines: str


@dataclass(frozen=True)
class Tile:
    """A headline number.

    Attributes:
        name: What.
        value: How much, with its unit.
        note: A few words below.
        tone: How it is set.
    """

    name: str
    value: str
    note: str = ""
    tone: Tone = "plain"


@dataclass(frozen=True)
class Tiles:
    """Headline numbers side by side."""

    tiles: tuple[Tile, ...]


@dataclass(frozen=True)
class Table:
    """A table.

    Attributes:
        head: Names of the columns.
        rows: Cells in words.
        caption: What it shows; empty if the text before says it.
        text_columns: How many columns from the left are words and not numbers.
        strong: Rows to be set off.
        wide: Whether words in it may not be broken; on narrow screens its rows stand as cards.
    """

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str = ""
    text_columns: int = 1
    strong: frozenset[int] = frozenset()
    wide: bool = True


@dataclass(frozen=True)
class Picture:
    """A picture.

    Attributes:
        name: Of it, unique in the report.
        draw: Draws it.
        alt: What it shows, for those who do not see it.
        caption: What one sees, and how to read it.
        numbers: The numbers behind it.
    """

    name: str
    draw: Draw
    alt: str
    caption: str
    numbers: Table | None = None


@dataclass(frozen=True)
class Fold:
    """Something that is opened on demand.

    Attributes:
        title: What.
        blocks: It.
    """

    title: str
    blocks: tuple[Block, ...]


Block = Text | Code | Tiles | Table | Picture | Fold


@dataclass(frozen=True)
class Section:
    """A section.

    Attributes:
        name: For addresses inside the file.
        title: Its heading.
        blocks: What is in it.
        parts: Sections inside it.
    """

    name: str
    title: str
    blocks: tuple[Block, ...]
    parts: tuple[Section, ...] = ()


@dataclass(frozen=True)
class Document:
    """All of it.

    Attributes:
        title: Heading.
        subtitle: A line below.
        lang: Language.
        sections: In order.
        contents: Heading of the list of contents.
        open_numbers: Title of the folded numbers behind a picture.
    """

    title: str
    subtitle: str
    lang: str
    sections: tuple[Section, ...]
    contents: str
    open_numbers: str
