"""The live page as HTML: templates that escape everything, numbers in words, and charts as SVG without styles."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, Undefined
from markupsafe import Markup

from attribution_sched.words.say import say
from attribution_sched.words.text import clean_text

FOLDER = Path(__file__).parent
COLOURS = 4
WIDTH, ROW, LEFT, RIGHT = 860, 17, 150, 12
"""Of a chart, in its own units."""
ROWS_OF_A_DOMAIN = 10
"""Most rows that a domain's bars are packed into."""


class _Lenient(Undefined):
    """A figure that is not known is a dash, however deep it is looked for."""

    def __getattr__(self, name: str) -> Any:
        if name[:2] == "__":
            raise AttributeError(name)
        return self

    __getitem__ = __getattr__


@functools.cache
def environment() -> Environment:
    """Templates; everything that is put into them is escaped."""
    made = Environment(
        loader=FileSystemLoader(FOLDER / "templates"), autoescape=True, undefined=_Lenient, trim_blocks=True
    )
    made.policies["json.dumps_kwargs"] = {"sort_keys": True}
    return made


def render(template: str, lang: str, **given: Any) -> str:
    """A page in a language.

    Args:
        template: Its file.
        lang: ``en`` or ``zh``.
        **given: What it is filled with.
    """

    def t(message: str, **values: Any) -> str:
        return say(message, lang, **values)

    def starts(contextrval: Any) -> str:
        if not isinstance(contextrval, Mapping) or "low_s" not in contextrval:
            return t("serve.starts.none")
        ends = [contextrval["low_s"], contextrval["high_s"]]
        if ends[0] is None:
            return t("serve.starts.beyond", hours=24)
        high = t("serve.starts.beyond", hours=24) if ends[1] is None else span(ends[1])
        low = span(ends[0])
        return low if low == high else t("serve.starts.between", low=low, high=high)

    context = {
        "t": t, "lang": lang, "starts": starts, "span": span, "seconds": seconds, "percent": percent, "joules": joules,
        "count": count, "number": number, "signed": signed, "gbps": gbps, "subtitle": "",
    }  # fmt: skip
    return environment().get_template(template).render(context | given)


# --- Numbers ---


def known(value: Any) -> bool:
    """Whether it is a number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def span(value: Any) -> str:
    """A time that a person can read."""
    if not known(value):
        return "–"
    whole = max(0, round(value))
    if whole < 90:
        return f"{whole} s"
    if whole < 5400:
        return f"{whole // 60} min {whole % 60:02d} s"
    if whole < 172_800:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole / 86400:.1f} d"


def seconds(value: Any) -> str:
    """A short time."""
    if not known(value):
        return "–"
    return f"{1e3 * value:.3g} ms" if abs(value) < 1.0 else f"{value:,.4g} s"


def percent(value: Any) -> str:
    """A share."""
    return f"{100.0 * value:.1f} %" if known(value) else "–"


def joules(value: Any) -> str:
    """Energy."""
    if not known(value):
        return "–"
    for unit, size in (("GJ", 1e9), ("MJ", 1e6), ("kJ", 1e3)):
        if abs(value) >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.3g} J"


def count(value: Any) -> str:
    """A whole number."""
    return f"{round(value):,}" if known(value) else "–"


def number(value: Any) -> str:
    """Any number."""
    return f"{value:.4g}" if known(value) else "–"


def signed(value: Any) -> str:
    """A number with its sign."""
    return f"{value:+.3g}".replace("-", "−") if known(value) else "–"


def gbps(value: Any) -> str:
    """A bandwidth."""
    return f"{value:.3g} Gb/s" if known(value) else "–"


# --- Charts ---


def packed(bars: Sequence[Mapping[str, Any]], now_s: float) -> list[tuple[Mapping[str, Any], int]]:
    """Bars of one domain with the row of each: the first in which it overlaps nobody."""
    ends: list[float] = []
    placed = []
    for bar in sorted(bars, key=lambda each: each["start_s"]):
        row = next((at for at, end in enumerate(ends) if end <= bar["start_s"]), len(ends))
        if row == len(ends):
            if row == ROWS_OF_A_DOMAIN:
                row = min(range(row), key=lambda at: ends[at])
            else:
                ends.append(0.0)
        ends[row] = max(ends[row], now_s if bar["end_s"] is None else bar["end_s"])
        placed.append((bar, row))
    return placed


def gantt(view: Mapping[str, Any], lang: str) -> Markup:
    """Who ran where, as SVG; every word is escaped."""
    bars, now_s = list(view["bars"]), float(view["cluster_time_s"])
    if not bars:
        return Markup("")
    first = min(bar["start_s"] for bar in bars)
    # Old bars are left out before new ones become too small to see.
    shown = max(60.0, now_s - first)
    scale = (WIDTH - LEFT - RIGHT) / shown
    drawn, y = [], 6
    domains = [each["name"] for each in view["domains"]]
    for name in domains:
        own = packed([bar for bar in bars if bar["domain"] == name], now_s)
        rows = max((row for _, row in own), default=0) + 1
        drawn.append(f'<text x="0" y="{y + 12}">{escape(clean_text(name)[:20])}</text>')
        drawn.append(f'<rect class="track" x="{LEFT}" y="{y}" width="{WIDTH - LEFT - RIGHT}" height="{rows * ROW}"/>')
        for bar, row in own:
            end = now_s if bar["end_s"] is None else bar["end_s"]
            x, width = LEFT + (bar["start_s"] - first) * scale, max(1.5, (end - bar["start_s"]) * scale)
            colour = sum(map(ord, str(bar["task"]))) % COLOURS
            kind = f"b{colour}{' open' if bar['end_s'] is None else ''}"
            ending = "" if bar["end_s"] is None else f" – {span(end)}"
            label = f"{bar['task']}, ×{bar['devices']}, {span(bar['start_s'])}{ending}"
            drawn.append(
                f'<rect class="{kind}" x="{x:.1f}" y="{y + row * ROW + 2}" width="{width:.1f}" height="{ROW - 4}" '
                f'rx="2"><title>{escape(clean_text(label))}</title></rect>'
            )
        y += rows * ROW + 8
    for part in range(5):
        x = LEFT + part / 4 * (WIDTH - LEFT - RIGHT)
        anchor = "start" if part == 0 else "end" if part == 4 else "middle"
        drawn.append(f'<line class="axis" x1="{x:.1f}" x2="{x:.1f}" y1="2" y2="{y}"/>')
        when = span(first + part / 4 * shown)
        drawn.append(f'<text class="tick" text-anchor="{anchor}" x="{x:.1f}" y="{y + 13}">{when}</text>')
    tasks = len({bar["task"] for bar in bars})
    label = say("serve.gantt.alt", lang, bars=len(bars), tasks=tasks, domains=len(domains))
    return Markup(f'<svg viewBox="0 0 {WIDTH} {y + 18}" role="img" aria-label="{escape(label)}">{"".join(drawn)}</svg>')


def attribution_bars(parts: Sequence[Mapping[str, Any]]) -> Markup:
    """Contributions of counters, as SVG."""
    most = max((abs(each["value"]) for each in parts), default=0.0) or 1.0
    drawn = []
    for at, each in enumerate(parts):
        width = max(0.0, abs(each["value"]) / most * (WIDTH - LEFT - 130))
        y = 4 + at * 22
        drawn.append(f'<text x="0" y="{y + 13}">{escape(clean_text(str(each["name"])))}</text>')
        kind = "b0" if each["value"] >= 0 else "b2"
        drawn.append(f'<rect class="{kind}" x="{LEFT}" y="{y}" width="{width:.1f}" height="16" rx="2"/>')
        drawn.append(f'<text class="tick" x="{LEFT + width + 6:.1f}" y="{y + 13}">{number(each["value"])}</text>')
    return Markup(f'<svg viewBox="0 0 {WIDTH} {8 + 22 * len(parts)}" role="presentation">{"".join(drawn)}</svg>')
