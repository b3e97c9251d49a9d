"""The table of alternatives as words and figures, for a terminal and for a page."""

from __future__ import annotations

from collections.abc import Sequence

from attribution_sched.explain.decision_table import Alternative, DecisionTable
from attribution_sched.explain.digits import number, share
from attribution_sched.explain.played import Played
from attribution_sched.explain.when import who_goes_on
from attribution_sched.stats.interval import MeanInterval
from attribution_sched.words.say import in_language, say

NONE = "–"
"""Where nothing can be told."""

SMALL = 5e-4
"""Below this a difference of R is rounding."""

CERTAIN = 2e-3
"""An error below this part of its difference is not told."""

PRICED: tuple[str, ...] = ("reward", "r_eff", "r_util", "r_cost", "hours", "usd", "kwh", "carbon_g")

Row = tuple[list[str], list[str]]
"""What a choice is, what it lacks and what would make it win, a line each; then its figures."""


def cells_of(table: DecisionTable, lang: str) -> tuple[list[str], list[Row], str]:
    """Heads of the figures, a row for what was done and for each alternative, and how the figures were got."""
    heads = ["ΔR", "ΔR_eff", "ΔR_util", "ΔR_cost", say("table.hours", lang), "Δ$", "ΔkWh", "Δg"]
    played = next((row.played for row in table.rows if row.played is not None), None)
    if played is None:
        figures = [[_difference(getattr(row, name)) for name in PRICED] for row in table.rows]
        note = say("table.note", lang)
    else:
        heads[4] = say("table.start", lang)
        figures = [_played(row.played) for row in table.rows]
        follower = in_language(who_goes_on(played.follower), lang)
        note = say("table.note_played", lang, futures=played.futures, hours=number(played.hours, 2), follower=follower)
    rows = [(_lines(row, lang), cells) for row, cells in zip(table.rows, figures, strict=True)]
    return heads, rows, note


def as_text(table: DecisionTable, lang: str) -> str:
    """The sentence, the table with what was done marked, and how the figures were got; columns without any left out."""
    heads, rows, note = cells_of(table, lang)
    kept = [c for c in range(len(heads)) if any(cells[c] not in (NONE, "0") for _, cells in rows)]
    listed = [["", *(heads[c] for c in kept)]]
    for row, ((what, *below), cells) in zip(table.rows, rows, strict=True):
        listed.append([f"{'✔' if row.chosen else ' '} {what}", *(cells[c].replace("\n", " ") for c in kept)])
        listed += [[f"    {line}", *("" for _ in kept)] for line in below]
    wide = [max(map(len, column)) for column in zip(*listed, strict=True)]
    text = ["  ".join([one[0].ljust(wide[0]), *map(str.rjust, one[1:], wide[1:])]).rstrip() for one in listed]
    return "\n".join([in_language(table.sentence, lang), *text, note])


def _lines(row: Alternative, lang: str) -> list[str]:
    below = [in_language(row.missing, lang)] if row.missing else []
    below += [say("table.wins", lang, change=row.change)] if row.change else []
    return [in_language(row.what, lang), *below]


def spans_in_words(spans: Sequence[MeanInterval]) -> list[str]:
    """Differences with half their interval; 0 where that is all there is to see."""

    def told(span: MeanInterval) -> str:
        if max(abs(span.low), abs(span.high)) < SMALL:
            return "0"
        half = (span.high - span.low) / 2.0
        # An error that no digit shown would tell is none.
        return share(span.mean, half if half > CERTAIN * abs(span.mean) else 0.0)

    return [told(span) for span in spans]


def why_not(row: Alternative, task: str, what: str, lang: str) -> str:
    """An alternative as an answer to why a task is not there; see :meth:`Alternative.why_not`."""
    if row.chosen:
        return say("why_not.done", lang, task=task, what=what)
    told: list[str] = [in_language(row.missing, lang)] if row.missing else []
    if row.played is not None:
        spans = (row.played.reward, row.played.r_eff, row.played.r_util, row.played.r_cost)
        by, eff, util, cost = spans_in_words(spans)
        far = {"futures": row.played.futures, "hours": number(row.played.hours, 2)}
        terms = say("why_not.terms_played", lang, eff=eff, util=util, cost=cost, **far)
        kind = "level" if not spans[0].certain else "less" if spans[0].mean < 0.0 else "more"
        half = (spans[0].high - spans[0].low) / 2.0
        reward = by if kind == "level" else share(abs(spans[0].mean), half).lstrip("+")
        told.append(say("why_not.reward", lang, variant=kind, reward=reward, terms=terms))
    elif row.reward is not None:
        eff, util, cost = (
            number(0.0 if abs(value or 0.0) < SMALL else value or 0.0, 2, signed=True)
            for value in (row.r_eff, row.r_util, row.r_cost)
        )
        kind = "level" if abs(row.reward) < SMALL else "less" if row.reward < 0.0 else "more"
        terms = say("why_not.terms", lang, eff=eff, util=util, cost=cost)
        told.append(say("why_not.reward", lang, variant=kind, reward=number(abs(row.reward), 2), terms=terms))
    told.append(say("why_not.wins", lang, change=row.change) if row.change else say("why_not.no_change", lang))
    return say("why_not", lang, task=task, what=what, parts=tuple(told))


def _difference(value: float | None) -> str:
    return NONE if value is None else number(value, 2, signed=True)


def _played(played: Played | None) -> list[str]:
    """Cells of a row that was played: rewards with half their interval, then start, dollars, energy, carbon."""
    if played is None:
        return [NONE] * len(PRICED)
    spans = (played.reward, played.r_eff, played.r_util, played.r_cost)
    others = (played.start_s / 3600.0, played.usd, played.kwh, played.carbon_g)
    # The error goes under its difference, which leaves a narrow page room for all of R and for what it costs.
    told = [text.replace(" ± ", "\n± ") for text in spans_in_words(spans)]
    return [*told, *(_difference(value) for value in others)]
