"""A report as one HTML file: no script, no address outside, pictures inside."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from attribution_sched.report.css import CSS
from attribution_sched.report.document import Block, Code, Document, Fold, Picture, Section, Table, Text, Tiles
from attribution_sched.report.pictures import figure

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
"""What the page may load: its own style, and the few pixels inside its pictures."""


def to_html(document: Document) -> str:
    """The whole file."""
    lang = "zh-CN" if document.lang == "zh" else document.lang
    sections = "".join(_section(section, 2, document) for section in document.sections)
    contents = "".join(
        f'<li><a href="#{escape(section.name)}">{escape(section.title)}</a></li>' for section in document.sections
    )
    return (
        f'<!DOCTYPE html>\n<html lang="{lang}">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<link rel="icon" href="data:,">\n'
        f"<title>{escape(document.title)}</title>\n<style>{CSS}</style>\n</head>\n<body>\n"
        f'<header><p class="eyebrow">attribution-sched</p><h1>{_unbroken(document.title)}</h1>'
        f'<p class="subtitle">{escape(document.subtitle)} '
        f'<a class="jump" href="#contents">{escape(document.contents)}</a></p></header>\n'
        # Behind the text, so that a narrow screen begins with the headline; beside it where there is room.
        f'<main>{sections}</main>\n<nav id="contents" aria-label="{escape(document.contents)}">'
        f"<strong>{escape(document.contents)}</strong><ol>{contents}</ol></nav>\n</body>\n</html>\n"
    )


def _unbroken(title: str) -> str:
    """A title whose names are not broken at their hyphens."""
    return escape(title.replace("-", "\u2011"))


def _section(section: Section, level: int, document: Document) -> str:
    blocks = _blocks(section.blocks, document)
    parts = "".join(_section(part, level + 1, document) for part in section.parts)
    return (
        f'<section id="{escape(section.name)}"><h{level}>{escape(section.title)}</h{level}>\n'
        f"{blocks}{parts}</section>\n"
    )


def _blocks(blocks: Sequence[Block], document: Document) -> str:
    return "".join(_block(block, document) for block in blocks)


def _block(block: Block, document: Document) -> str:
    if isinstance(block, Text):
        tone = "" if block.tone == "plain" else f' class="{block.tone}"'
        return f"<p{tone}>{escape(block.words)}</p>\n"
    if isinstance(block, Code):
        return f"<pre><code>{escape(block.lines)}</code></pre>\n"
    if isinstance(block, Tiles):
        tiles = "".join(
            f'<li class="{tile.tone}"><span>{escape(tile.name)}</span><b>{escape(tile.value)}</b>'
            f"<small>{escape(tile.note)}</small></li>"
            for tile in block.tiles
        )
        return f'<ul class="tiles">{tiles}</ul>\n'
    if isinstance(block, Table):
        return _table(block)
    if isinstance(block, Picture):
        return _picture(block, document)
    return _fold(block, document)


def _fold(block: Fold, document: Document) -> str:
    inner = _blocks(block.blocks, document)
    return f'<details><summary>{escape(block.title)}</summary><div class="inner">{inner}</div></details>\n'


def _table(table: Table) -> str:
    def cells(row: Sequence[str], tag: str) -> str:
        sorts = ['class="t"' if at < table.text_columns else "" for at in range(len(row))]
        return "".join(
            f"<{f'{tag} {sort}'.strip()}>{escape(word)}</{tag}>" for sort, word in zip(sorts, row, strict=True)
        )

    strong = ' class="strong"'
    rows = "".join(
        f"<tr{strong if at in table.strong else ''}>{cells(row, 'td')}</tr>" for at, row in enumerate(table.rows)
    )
    # Beside the table, not in it: it would scroll away with the table.
    caption = f'<p class="note">{escape(table.caption)}</p>\n' if table.caption else ""
    wide = ' class="wide"' if table.wide else ""
    # Scrolling by keyboard needs a place that can be reached by it.
    return (
        f'<div class="scroll" tabindex="0"><table{wide}>'
        f"<thead><tr>{cells(table.head, 'th')}</tr></thead><tbody>{rows}</tbody></table></div>\n{caption}"
    )


def _picture(picture: Picture, document: Document) -> str:
    numbers = _fold(Fold(document.open_numbers, (picture.numbers,)), document) if picture.numbers else ""
    return f"{figure(picture)}{numbers}"
