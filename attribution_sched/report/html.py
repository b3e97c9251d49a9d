"""A report as one HTML file: no script, no address outside, pictures inside."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from attribution_sched.report.document import Block, Code, Document, Fold, Picture, Section, Table, Text, Tiles

if TYPE_CHECKING:
    from attribution_sched.report.document import Picture

# ------ How a report looks: system fonts, one column, light and dark, paper

CSS = """
:root{color-scheme:light dark;--ink:#1c2330;--soft:#5b6472;--line:#dfe3e8;--page:#fff;--card:#f6f7f9;--accent:#0b6aa2;
--good:#0a6b4f;--good-bg:#e7f4ee;--bad:#a63d00;--bad-bg:#fdefe6;--code:#f1f3f6}
@media (prefers-color-scheme:dark){:root{--ink:#e6e9ee;--soft:#a3acb9;--line:#343b46;--page:#15181d;--card:#1d2128;
--accent:#6cb8ea;--good:#6fd3ae;--good-bg:#16302a;--bad:#ffab7a;--bad-bg:#38241a;--code:#20252d}}
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%;text-size-adjust:100%}
body{margin:0;background:var(--page);color:var(--ink);line-height:1.55;font-size:16px;overflow-wrap:break-word;
font-family:system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,"Noto Sans","PingFang SC",
"Hiragino Sans GB","Microsoft YaHei","Noto Sans CJK SC","Source Han Sans SC",sans-serif}
:lang(zh) body,body:lang(zh){line-height:1.7}
main,header,nav{max-width:48rem;margin:0 auto;padding:0 1.25rem}
header{padding-top:1.4rem}
.eyebrow{font-size:.8rem;letter-spacing:.08em;text-transform:uppercase;color:var(--accent);font-weight:600;margin:0}
h1{font-size:1.9rem;line-height:1.22;margin:.3rem 0 .4rem;letter-spacing:-.012em;text-wrap:balance}
.subtitle{color:var(--soft);margin:0 0 .6rem}
section:first-child>h2{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%)}
#decisions>section{border:1px solid var(--line);border-radius:12px;padding:.2rem 1.1rem .6rem;margin:1.2rem 0}
#decisions>section>h3{margin-top:.8rem}
h2{font-size:1.32rem;line-height:1.3;margin:3rem 0 .8rem;padding-top:1.1rem;border-top:1px solid var(--line);
letter-spacing:-.006em}
h3{font-size:1.06rem;margin:2.1rem 0 .5rem}
p{margin:.55rem 0 .9rem}
p.lead{font-size:1.1rem;line-height:1.55}
p.note{color:var(--soft);font-size:.9rem}
p.good,p.bad{border-left:4px solid;padding:.55rem .9rem;border-radius:0 6px 6px 0}
p.good{border-color:var(--good);background:var(--good-bg)}
p.bad{border-color:var(--bad);background:var(--bad-bg)}
a{color:var(--accent)}
nav{padding-top:1rem;padding-bottom:2.5rem;border-top:1px solid var(--line)}
nav ol{padding-left:1.9rem;margin:.4rem 0 0;font-size:.9rem}
nav li{margin:.2rem 0}
nav a{text-decoration:none}
nav a:hover{text-decoration:underline}
nav strong{font-size:.85rem;color:var(--soft)}
.tiles{display:grid;grid-template-columns:repeat(3,1fr);gap:.7rem;margin:.9rem 0 1.1rem;padding:0;
list-style:none}
.tiles li{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:.75rem .9rem}
.tiles b{display:block;font-size:1.42rem;line-height:1.2;font-weight:650;font-variant-numeric:tabular-nums;
margin:.1rem 0}
.tiles span,.tiles small{display:block;color:var(--soft);font-size:.82rem;line-height:1.35}
.tiles li.good b{color:var(--good)}
.tiles li.bad b{color:var(--bad)}
figure{margin:1.3rem 0 1.6rem;break-inside:avoid}
figure .paper{background:#fff;border:1px solid var(--line);border-radius:10px;padding:.7rem .6rem}
figure svg{display:block;width:100%;height:auto;margin:0 auto;font-family:inherit}
figure svg *{stroke-linejoin:round;stroke-linecap:butt}
figure svg.narrow{display:none}
figcaption{color:var(--soft);font-size:.88rem;line-height:1.5;margin:.55rem .2rem 0}
.scroll{overflow-x:auto;margin:.8rem 0 1.1rem;-webkit-overflow-scrolling:touch}
table{border-collapse:collapse;width:100%;font-size:.88rem;line-height:1.4}
th,td{padding:.42rem .55rem;border-bottom:1px solid var(--line);text-align:right;vertical-align:top;
font-variant-numeric:tabular-nums}
th{font-weight:600;color:var(--soft);border-bottom:2px solid var(--line);vertical-align:bottom}
th.t,td.t{text-align:left}
table:not(.wide) td.t{min-width:3.2em}
table:not(.wide) tr.strong td.t{min-width:11em}
.wide td.t{min-width:5.6rem}
.wide td:not(.t){white-space:nowrap}
.wide th:not(.t){min-width:3.6rem}
.wide{font-size:.8rem}
#decisions th,#decisions td,.wide th,.wide td{padding-left:.35rem;padding-right:.35rem}
tr.strong td{font-weight:650;background:var(--card)}
details{margin:.5rem 0 1rem;font-size:.92rem}
summary{cursor:pointer;color:var(--accent);font-size:.88rem}
details>.inner{padding-left:.1rem}
pre{background:var(--code);border:1px solid var(--line);border-radius:8px;padding:.8rem 1rem;overflow-x:auto;
font-size:.84rem;
line-height:1.5;font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace}
@media (min-width:1100px){body{display:grid;grid-template-columns:13.5rem minmax(0,62rem);justify-content:center;
column-gap:2rem}header,main{grid-column:2;max-width:none;width:100%}nav{grid-column:1;grid-row:1/span 2;
position:sticky;top:0;align-self:start;max-height:100vh;overflow:auto;padding:1.5rem 0 1rem;border-top:0;margin:0}
.jump{display:none}p,figure,.tiles{max-width:50rem}}
@media (max-width:560px){body{font-size:15.5px}h1{font-size:1.5rem}h2{font-size:1.2rem;margin-top:2.3rem}
main,header,nav{padding-left:.95rem;padding-right:.95rem}header{padding-top:.9rem}
.tiles{gap:.4rem}.tiles li{padding:.5rem .5rem}.tiles b{font-size:1.05rem}.tiles span,.tiles small{font-size:.75rem}
#decisions>section{padding:.1rem .7rem .4rem}
p.lead{font-size:1.03rem}table{font-size:.82rem}th,td{padding:.36rem .4rem}figure .paper{padding:.35rem .2rem}
figure svg.wide{display:none}figure svg.narrow{display:block}}
@media screen and (max-width:560px){table,tbody,td{display:block}thead{position:absolute;width:1px;height:1px;
overflow:hidden;clip-path:inset(50%)}tr{display:grid;grid-template-columns:repeat(3,minmax(0,1fr));
gap:.15rem .5rem;padding:.45rem .4rem;border-bottom:1px solid var(--line)}tr.strong{background:var(--card)}
td,.wide td:not(.t),#decisions td{padding:0;border:0;text-align:left;white-space:normal;min-width:0}
td.t{grid-column:1/-1}td:first-child{font-weight:600;grid-column:1/-1}td.none{display:none}
td:not(:first-child)::before{content:attr(data-head);display:block;color:var(--soft);font-size:.72rem;
font-weight:400}}
@media print{@page{size:A4;margin:16mm 15mm}:root{color-scheme:light;--ink:#000;--soft:#444;--line:#bbb;--page:#fff;
--card:#f4f4f4;--accent:#0b4f79;--good:#07543e;--good-bg:#fff;--bad:#8a3300;--bad-bg:#fff;--code:#f4f4f4}
body{font-size:10.2pt;line-height:1.42}main,header,nav{max-width:none;padding:0}.jump{display:none}body{display:block}header{padding-top:0}
h2{margin-top:1.6rem}h2,h3{break-after:avoid}p{orphans:3;widows:3}
figure,.tiles li,tr,pre{break-inside:avoid}figure svg{max-height:220mm}
.scroll{overflow:visible}table{font-size:7.9pt}th,td{padding:.25rem .35rem}.wide td:not(.t){white-space:normal}
td.t,th{min-width:0}
details:not([open]){display:none}a{color:inherit;text-decoration:none}}
"""
"""Rules of the page; figures keep white paper on dark pages, since their colours were chosen on white."""


# ------ Pictures to be put inside the file: SVG whose text is text, in the fonts of whoever reads it

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


# ------ A report as one HTML file: no script, no address outside, pictures inside

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


NONE = "–"
"""A cell in which there is nothing to tell."""


def _table(table: Table) -> str:
    def cells(row: Sequence[str], tag: str) -> str:
        # On a narrow screen a row stands as a card, and each figure under the name of its column.
        marks = [["t"] if at < table.text_columns else ["none"] if word == NONE else [] for at, word in enumerate(row)]
        told = [f' class="{" ".join(mark)}"' if mark else "" for mark in marks]
        if tag == "td":
            told = [f'{mark} data-head="{escape(head)}"' for mark, head in zip(told, table.head, strict=True)]
        return "".join(f"<{tag}{mark}>{escape(word)}</{tag}>" for mark, word in zip(told, row, strict=True))

    strong = ' class="strong"'
    rows = "".join(
        f"<tr{strong if at in table.strong else ''}>{cells(row, 'td')}</tr>" for at, row in enumerate(table.rows)
    )
    # Beside the table, not in it: it would scroll away with the table.
    caption = f'<p class="note">{escape(table.caption)}</p>\n' if table.caption else ""
    wide = ' class="wide"' if table.wide else ""
    # Scrolling, where a word is wider than the page, by keyboard needs a place that can be reached by it.
    return (
        f'<div class="scroll" tabindex="0"><table{wide}>'
        f"<thead><tr>{cells(table.head, 'th')}</tr></thead><tbody>{rows}</tbody></table></div>\n{caption}"
    )


def _picture(picture: Picture, document: Document) -> str:
    numbers = _fold(Fold(document.open_numbers, (picture.numbers,)), document) if picture.numbers else ""
    return f"{figure(picture)}{numbers}"
