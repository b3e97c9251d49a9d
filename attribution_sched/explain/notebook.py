"""An explanation as a fragment of HTML: no script, no address, readable on light and dark pages."""

from __future__ import annotations

from html import escape

import numpy as np

from attribution_sched.explain import facts
from attribution_sched.explain.digits import alike, number, share
from attribution_sched.explain.explanation import Explanation
from attribution_sched.explain.reasoning import sections
from attribution_sched.explain.wording import output_name
from attribution_sched.words.names import input_name
from attribution_sched.words.say import check_language, in_language, say

STYLE = """
.atx{font:13px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans","Noto Sans SC",sans-serif;color:inherit;
max-width:60rem;text-align:left}
.atx p{margin:.35em 0}
.atx .atx-head{font-size:1.08em;font-weight:600}
.atx .atx-wrap{overflow-x:auto}
.atx table{border-collapse:collapse;margin:.5em 0;width:100%;color:inherit;font-size:1em;border:0}
.atx th,.atx td{padding:.22em .6em;border:0;border-bottom:1px solid rgba(128,128,128,.28);background:none;
text-align:left;vertical-align:middle;white-space:nowrap}
.atx th{font-weight:600}
.atx td.atx-n{text-align:right;font-variant-numeric:tabular-nums}
.atx .atx-sub{opacity:.72;font-size:.88em;display:block;white-space:normal}
.atx .atx-unsure{opacity:.55}
.atx .atx-track{display:block;position:relative;height:5px;min-width:5.5em;margin-top:2px;
background:rgba(128,128,128,.16);border-radius:2px}
.atx .atx-bar{position:absolute;top:0;bottom:0;border-radius:2px}
.atx .atx-zero{position:absolute;top:-1px;bottom:-1px;width:1px;left:50%;background:currentColor;opacity:.55}
.atx .atx-good{background:#2F8FCB}
.atx .atx-bad{background:#DE6A1C}
.atx .atx-grey{background:#9A9A9A}
.atx .atx-foot{opacity:.75;font-size:.88em}
.atx tr.atx-sum td{font-weight:600;border-bottom:0}
"""
"""Rules that touch nothing but the fragment; colours are mixed from the page's own or lie between light and dark."""


def to_html(explanation: Explanation, lang: str = "en", most: int = 8) -> str:
    """A headline, drivers × outputs with bars and intervals, the reasoning, and how it was found.

    Args:
        explanation: The explanation.
        lang: ``en`` or ``zh``.
        most: Rows at most; the rest is folded into one.
    """
    check_language(lang)
    told = sections(explanation, lang)
    head, method = told.pop("decision"), told.pop("method")
    body = (" " if lang == "en" else "").join(told.values())
    good = any(facts.direction(explanation, output) for output in explanation.outputs)
    key = say("table.key.choice" if good else "table.key.plain", lang)
    return (
        f'<div class="atx" lang="{lang}"><style>{STYLE}</style>'
        f'<p class="atx-head">{escape(head)}</p>'
        f'<div class="atx-wrap">{_table(explanation, lang, most)}</div>'
        f'<p class="atx-foot">{key}</p><p>{escape(body)}</p><p class="atx-foot">{escape(method)}</p></div>'
    )


def _table(explanation: Explanation, lang: str, most: int) -> str:
    kept = facts.shown(explanation, explanation.main, most)
    left = [i for i in explanation.drivers() if i not in kept]
    half = facts.half_widths(explanation)
    outputs = facts.per_output(explanation)
    heads = "".join(f"<th>{escape(output_name(output, lang))}{_level(explanation, output)}</th>" for output in outputs)
    rows = []
    for i in kept:
        cells = "".join(_cell(explanation, i, output, float(half[i, explanation.column(output)])) for output in outputs)
        rows.append(f"<tr><td>{_name(explanation, i, lang)}</td>{cells}</tr>")
    if left:
        sums = explanation.values[left].sum(axis=0)
        rest = [facts.rounded(explanation, output, float(sums[explanation.column(output)])) for output in outputs]
        cells = "".join(f'<td class="atx-n atx-unsure">{number(amount, 2, signed=True)}</td>' for amount in rest)
        rows.append(f'<tr><td class="atx-unsure">{say("plot.others", lang, count=len(left))}</td>{cells}</tr>')
    gap = explanation.value - explanation.base
    whole = [facts.rounded(explanation, output, float(gap[explanation.column(output)])) for output in outputs]
    cells = "".join(f'<td class="atx-n">{number(amount, signed=True)}</td>' for amount in whole)
    rows.append(f'<tr class="atx-sum"><td>{say("table.sum", lang)}</td>{cells}</tr>')
    head = f"<tr><th>{say('table.input', lang)}</th>{heads}</tr>"
    return f"<table><thead>{head}</thead><tbody>{''.join(rows)}</tbody></table>"


def _level(explanation: Explanation, output: str) -> str:
    c = explanation.column(output)
    base, value = alike(float(explanation.base[c]), float(explanation.value[c]))
    return f'<span class="atx-sub">{base} → {value}</span>'


def _name(explanation: Explanation, i: int, lang: str) -> str:
    player = explanation.players[i]
    name = input_name(player.name, lang)
    reading = [in_language(player.value, lang)] if player.value else []
    if player.usual:
        reading.append(say("table.usual", lang, reading=in_language(player.usual, lang)))
    below = say("table.readings", lang, readings=tuple(reading))
    return f'{escape(name)}<span class="atx-sub">{escape(below)}</span>' if below else escape(name)


def _cell(explanation: Explanation, i: int, output: str, half: float) -> str:
    c = explanation.column(output)
    value = float(explanation.values[i, c])
    largest = float(np.abs(explanation.values[:, c]).max(initial=0.0)) or 1.0
    certain = bool(facts.sure(explanation, output)[i])
    long = 50.0 * min(1.0, abs(value) / largest)
    left = 50.0 if value >= 0 else 50.0 - long
    good = (facts.direction(explanation, output) or 1) * value > 0
    tone = "atx-grey" if not certain else "atx-good" if good else "atx-bad"
    text = escape(share(*(facts.rounded(explanation, output, amount) for amount in (value, half))))
    return (
        f'<td class="atx-n{"" if certain else " atx-unsure"}">{text}<span class="atx-track">'
        f'<span class="atx-bar {tone}" style="left:{left:.1f}%;width:{long:.1f}%"></span>'
        f'<span class="atx-zero"></span></span></td>'
    )
