"""A report as Markdown: the same words and numbers; instead of pictures, the numbers behind them."""

from __future__ import annotations

from collections.abc import Sequence

from attribution_sched.limits import clean_text
from attribution_sched.report.document import Block, Code, Document, Fold, Picture, Section, Table, Text, Tiles


def to_markdown(document: Document) -> str:
    """The whole file."""
    parts = [f"# {_safe(document.title)}", _safe(document.subtitle)]
    for section in document.sections:
        parts += _section(section, 2)
    return "\n\n".join(part for part in parts if part) + "\n"


def _section(section: Section, level: int) -> list[str]:
    parts = [f"{'#' * level} {_safe(section.title)}", *_blocks(section.blocks)]
    for part in section.parts:
        parts += _section(part, level + 1)
    return parts


def _blocks(blocks: Sequence[Block]) -> list[str]:
    return [words for block in blocks for words in _block(block)]


def _block(block: Block) -> list[str]:
    if isinstance(block, Text):
        words = _safe(block.words)
        return [f"> {words}" if block.tone in ("good", "bad") else f"*{words}*" if block.tone == "note" else words]
    if isinstance(block, Code):
        return [f"```python\n{block.lines}\n```"]
    if isinstance(block, Tiles):
        return ["\n".join(f"- {_safe(t.name)}: **{_safe(t.value)}**{f' ({_safe(t.note)})' * bool(t.note)}"
                          for t in block.tiles)]  # fmt: skip
    if isinstance(block, Table):
        return _table(block)
    if isinstance(block, Picture):
        return [f"*{_safe(block.caption)}*", *(_table(block.numbers) if block.numbers else [_safe(block.alt)])]
    return _fold(block)


def _fold(block: Fold) -> list[str]:
    return [f"**{_safe(block.title)}**", *_blocks(block.blocks)]


def _table(table: Table) -> list[str]:
    def line(cells: Sequence[str]) -> str:
        return f"| {' | '.join(_safe(cell).replace('|', '&#124;') for cell in cells)} |"

    rule = "|" + "|".join("---" if at < table.text_columns else "---:" for at in range(len(table.head))) + "|"
    rows = [
        [f"**{cell}**" if cell else "" for cell in row] if at in table.strong else row
        for at, row in enumerate(table.rows)
    ]
    body = "\n".join([line(table.head), rule, *(line(row) for row in rows)])
    return [body, f"*{_safe(table.caption)}*"] if table.caption else [body]


def _safe(words: str) -> str:
    """Words that mean nothing to Markdown: one line, without tags, links and pictures, or marks that nobody sees.

    Names with underscores are not emphasis, and a task called ``![x](http://...)`` fetches nothing.
    """
    flat = " ".join(clean_text(words).split())
    for mark in ("\\", "`", "<", "_", "[", "]", "!"):
        flat = flat.replace(mark, f"\\{mark}")
    return flat
