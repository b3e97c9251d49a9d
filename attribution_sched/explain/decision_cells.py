"""A table of alternatives as cells of text: the same words and digits in a terminal, on a page and in a report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from attribution_sched.explain.decision_table import DecisionTable
from attribution_sched.explain.digits import number, share
from attribution_sched.explain.played import Played, Span
from attribution_sched.explain.words import in_language, say

NONE = "–"
SMALL = 5e-4
"""Below this a difference of R is rounding."""
CERTAIN = 2e-3
"""An error below this part of its difference is not told."""
PRICED = ("reward", "r_eff", "r_util", "r_cost", "hours", "usd", "kwh", "carbon_g")
"""Differences of an alternative that was priced and not played, in the order of the columns."""


@dataclass(frozen=True)
class Row:
    """One choice.

    Attributes:
        chosen: Whether it was done.
        what: It, in words.
        below: What it lacks, and the one change with which the policy does it.
        cells: A text for every column.
    """

    chosen: bool
    what: str
    below: tuple[str, ...]
    cells: tuple[str, ...]


@dataclass(frozen=True)
class DecisionCells:
    """A table of alternatives in one language.

    Attributes:
        heads: Names of the columns in which something differs.
        rows: Choices, the one that was made first.
        note: What differences are against, and how they were found.
    """

    heads: tuple[str, ...]
    rows: tuple[Row, ...]
    note: str


def decision_cells(table: DecisionTable, lang: str = "en") -> DecisionCells:
    """Put a table into words and digits; a column in which nothing differs says nothing and is left out."""
    played = next((row.played for row in table.rows if row.played is not None), None)
    fifth = say("table.hours" if played is None else "table.start", lang)
    heads = ("ΔR", "ΔR_eff", "ΔR_util", "ΔR_cost", fifth, "Δ$", "ΔkWh", "Δg")
    if played is None:
        cells = [[_difference(getattr(row, name)) for name in PRICED] for row in table.rows]
        note = say("table.note", lang)
    else:
        cells = [_played(row.played) for row in table.rows]
        note = say("table.note_played", lang, futures=played.futures, hours=number(played.hours, 2))
    kept = [c for c in range(len(heads)) if any(each[c] not in (NONE, "0") for each in cells)]
    rows = []
    for row, every in zip(table.rows, cells, strict=True):
        below = [in_language(row.missing, lang)] if row.missing else []
        below += [say("table.wins", lang, change=row.change)] if row.change else []
        rows.append(Row(row.chosen, in_language(row.what, lang), tuple(below), tuple(every[c] for c in kept)))
    return DecisionCells(tuple(heads[c] for c in kept), tuple(rows), note)


def _difference(value: float | None) -> str:
    return NONE if value is None else number(value, 2, signed=True)


def _played(played: Played | None) -> list[str]:
    """Cells of a row that was played: rewards with half their interval, then start, dollars, energy, carbon."""
    if played is None:
        return [NONE] * len(PRICED)
    spans = (played.reward, played.r_eff, played.r_util, played.r_cost)
    others = (played.start_s / 3600.0, played.usd, played.kwh, played.carbon_g)
    return [*span_cells(spans), *(_difference(value) for value in others)]


def span_cells(spans: Sequence[Span]) -> list[str]:
    """Differences of R with half their 95 % interval."""

    def words(span: Span) -> str:
        if max(abs(span.low), abs(span.high)) < SMALL:
            return "0"
        half = (span.high - span.low) / 2.0
        # An error that no digit shown would tell is none.
        return share(span.mean, half if half > CERTAIN * abs(span.mean) else 0.0)

    return [words(span) for span in spans]
