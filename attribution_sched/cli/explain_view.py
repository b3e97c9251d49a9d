"""An explanation for people at a terminal, and as a page."""

from __future__ import annotations

from html import escape as escaped
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from attribution_sched.cli.console import columns, out

if TYPE_CHECKING:
    from attribution_sched.explain.explanation import Explanation

RULES = 4
"""Thresholds that are shown."""

WORDS: dict[str, dict[str, str]] = {
    "en": {
        "driver": "Driver (reading; usually)",
        "others": "{} other inputs",
        "sum": "Together",
        "level": "{} → {}",
        "key": "± is half a 95 % interval; grey: the interval includes 0. Green speaks for the choice, red against it.",
        "usual": "usually {}",
        "sure": "How sure",
        "probability": "probability {}",
        "chance": " (probability {})",
        "agreement": "the same choice in {} of like situations",
        "runner_up": "Runner-up",
        "against": "Compared with",
        "thresholds": "Holds while",
        "above": "stays above",
        "below": "stays below",
        "rule": "{} {} {} (is {}); else {}",
        "more": "and {} more, with --json",
        "flip": "Smallest flip",
        "then": "{}; then {}",
        "notes": "Note",
        "why": "Why",
        "found": "How found",
    },
    "zh": {
        "driver": "驱动因素（读数；通常）",
        "others": "其余 {} 个输入",
        "sum": "合计",
        "level": "{} → {}",
        "key": "± 为 95% 置信区间的半宽；灰色表示区间包含 0。绿色支持该选择，红色不利于该选择。",
        "usual": "通常为 {}",
        "sure": "把握",
        "probability": "概率 {}",
        "chance": "（概率 {}）",
        "agreement": "在 {} 的相似情形中选择相同",
        "runner_up": "次优方案",
        "against": "对照方案",
        "thresholds": "成立条件",
        "above": "高于",
        "below": "低于",
        "rule": "{}{} {}（当前为 {}）；否则选择{}",
        "more": "另有 {} 项，见 --json",
        "flip": "最小翻转",
        "then": "{}；则选择{}",
        "notes": "说明",
        "why": "原因",
        "found": "方法",
    },
}


def show(told: Explanation, lang: str, most: int) -> None:
    """Print the decision, the drivers, how sure the policy was, what would change it, and the reasons in words."""
    from attribution_sched.explain.reasoning import sections

    console, width, words = out(), columns(), WORDS[lang]
    parts = sections(told, lang)
    console.print(f"[bold]{escape(parts.pop('decision'))}[/bold]", width=width)
    console.print(_drivers(told, lang, most))
    console.print(words["key"], style="dim", width=width)
    console.print(_facts(told, lang))
    method = parts.pop("method", "")
    for section in ("rule", "counterfactual"):  # They stand in the table above.
        parts.pop(section, None)
    console.print(
        f"[bold]{words['why']}[/bold]  {escape((' ' if lang == 'en' else '').join(parts.values()))}", width=width
    )
    console.print(f"\n[dim][bold]{words['found']}[/bold]  {escape(method)}[/dim]", width=width)


def _drivers(told: Explanation, lang: str, most: int) -> Any:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from attribution_sched.explain import facts
    from attribution_sched.explain.digits import alike, number

    words = WORDS[lang]
    outputs = facts.per_output(told)
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), show_footer=True)
    table.add_column(words["driver"], footer=words["sum"], max_width=34)
    for output in outputs:
        c = told.column(output)
        levels = words["level"].format(*alike(float(told.base[c]), float(told.value[c])))
        total = number(facts.rounded(told, output, float(told.value[c] - told.base[c])), 2, signed=True)
        table.add_column(f"{output}\n[dim]{levels}[/dim]", justify="right", footer=total)
    kept = facts.shown(told, told.main, most)
    for i in kept:
        table.add_row(_name(told, i, lang), *(_cell(told, i, output) for output in outputs))
    left = [i for i in range(len(told.players)) if i not in kept]
    if left:
        sums = told.values[left].sum(axis=0)
        cells = [number(facts.rounded(told, each, float(sums[told.column(each)])), 2, signed=True) for each in outputs]
        table.add_row(words["others"].format(len(left)), *cells, style="dim")
    return table


def _name(told: Explanation, i: int, lang: str) -> str:
    from attribution_sched.explain.words import in_language, input_name

    player, zh = told.players[i], lang == "zh"
    name = input_name(player.name, lang)
    value, usual = (in_language(each, lang) for each in (player.value, player.usual))
    told_of = [value] if value else []
    told_of += [WORDS[lang]["usual"].format(usual)] if usual else []
    below = ("；" if zh else "; ").join(told_of)
    return escape(name) + (f"\n[dim]{escape(below)}[/dim]" if below else "")


def _cell(told: Explanation, i: int, output: str) -> str:
    from attribution_sched.explain import facts
    from attribution_sched.explain.digits import number, share

    c = told.column(output)
    value, half = float(told.values[i, c]), float(facts.half_widths(told)[i, c])
    value, half = facts.rounded(told, output, value), facts.rounded(told, output, half)
    # The error goes under its share, which keeps four columns narrow enough for a terminal.
    text = share(value, half).replace(" ± ", "\n± ") if half else number(value, 2, signed=True)
    if not facts.sure(told, output)[i]:
        return f"[dim]{text}[/dim]"
    good = (facts.direction(told, output) or 1) * value > 0
    return f"[{'green' if good else 'red'}]{text}[/]"


def _facts(told: Explanation, lang: str) -> Any:
    """How sure, the runner-up, thresholds and the smallest flip."""
    from rich.table import Table

    from attribution_sched.explain.digits import apart, percent
    from attribution_sched.explain.wording import plan_words
    from attribution_sched.explain.words import input_name, unit_name

    words, zh = WORDS[lang], lang == "zh"

    def plan(text: str) -> str:
        return escape(plan_words(text, lang))

    def named(player: str, quantity: str) -> str:
        who, what = input_name(player, lang), input_name(quantity, lang)
        return escape(who if who == what else f"{who}{'的' if zh else ': '}{what}")

    def unit(name: str) -> str:
        return unit_name(name, lang)

    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    sure = told.confidence
    if sure is not None:
        said = [words["probability"].format(percent(sure.probability))] if sure.probability == sure.probability else []
        if sure.agreement == sure.agreement:
            said.append(words["agreement"].format(percent(sure.agreement)))
        if said:
            table.add_row(words["sure"], ("，" if zh else ", ").join(said))
        if sure.runner_up:
            known = sure.runner_up_probability == sure.runner_up_probability
            chance = words["chance"].format(percent(sure.runner_up_probability)) if known else ""
            table.add_row(words["runner_up"], plan(sure.runner_up) + chance)
    if told.against:
        table.add_row(words["against"], plan(told.against))
    for i, rule in enumerate(told.rules[:RULES]):
        limit, value = apart(rule.threshold, rule.value, unit(rule.unit))
        text = words["rule"].format(named(rule.player, rule.quantity), words[rule.side], limit, value, plan(rule.plan))
        table.add_row("" if i else words["thresholds"], text)
    if len(told.rules) > RULES:
        table.add_row("", words["more"].format(len(told.rules) - RULES), style="dim")
    flip = told.counterfactual
    if flip is not None:
        moved = [
            f"{named(each.player, each.quantity)} {' → '.join(apart(each.before, each.after, unit(each.unit)))}"
            for each in flip.changes
        ]
        table.add_row(words["flip"], words["then"].format(("、" if zh else ", ").join(moved), plan(flip.plan)))
    for note in told.notes:
        table.add_row(words["notes"], escape(note))
    return table


def page(told: Explanation, lang: str) -> str:
    """The explanation as a page: one file, no script, no address."""
    from attribution_sched.explain.notebook import to_html

    title = escaped(f"{told.decision}: {told.policy}")
    return (
        f'<!DOCTYPE html>\n<html lang="{lang}"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title><style>:root{{color-scheme:light dark}}body{{margin:1.5rem auto;max-width:64rem;"
        f"padding:0 1rem}}</style></head><body>{to_html(told, lang)}</body></html>\n"
    )
