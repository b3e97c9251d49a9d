"""How an explanation is to be got: which estimator, how many rows, when to stop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Literal, get_args

from attribution_sched.errors import ExplanationError, nearest, problem
from attribution_sched.shapley.estimate import Reading
from attribution_sched.shapley.exact import MAX_PLAYERS
from attribution_sched.shapley.game import BatchGame
from attribution_sched.shapley.orders import rows_per_walk
from attribution_sched.shapley.regression import LEAST_PLAYERS, least_pairs

QUICK_ROWS = 6_304
"""A hundred walks over 32 players."""

STANDARD_ROWS = 46_000
"""About 460 coalitions for each of 100 background states."""

MOST_ROWS = 20 * STANDARD_ROWS
"""Where a search for precision gives up unless a budget says otherwise."""

LEAST_WALKS = 16
"""No precision is believed before this many walks."""

Wish = Literal["auto", "exact", "permutation", "kernel"]
Rows = int | Literal["quick", "standard"]


@dataclass(frozen=True)
class Ask:
    """A checked request.

    Attributes:
        method: The estimator to use.
        rows: The most rows per decision; infinite if only the clock limits them.
        precision: Largest half-width of the 95 % interval of the leading player, as a share of its value.
        precise: Outputs for which it must hold, by number.
        time_s: Wall-clock seconds for the whole call.
        seed: Seed of the plan.
        reading: What the background stands for.
    """

    method: Literal["exact", "permutation", "kernel"]
    rows: float
    precision: float | None
    precise: tuple[int, ...]
    time_s: float | None
    seed: int
    reading: Reading


def settle(
    game: BatchGame,
    method: str,
    budget_rows: Rows | None,
    precision: float | None,
    precision_of: Sequence[str] | None,
    time_s: float | None,
    seed: int,
    background: str,
) -> Ask:
    """Check a request against the game and choose the estimator."""
    if method not in get_args(Wish):
        raise ExplanationError(problem("method", method, "unknown estimator", nearest(method, get_args(Wish))))
    if background not in get_args(Reading):
        fix = "Use 'sample' if more states could have been drawn, 'population' if these are all there are."
        raise ExplanationError(problem("background", background, "must be 'sample' or 'population'", fix))
    for field, value in (("precision", precision), ("time_s", time_s)):
        if value is not None and not 0.0 < value < inf:
            fix = "Leave it out to stop at a number of rows."
            raise ExplanationError(problem(field, value, "must be a positive number", fix))
    if seed < 0:
        raise ExplanationError(problem("seed", seed, "must not be negative", "Use 0 or any larger whole number."))
    unknown = [name for name in precision_of or () if name not in game.outputs]
    if unknown:
        raise ExplanationError(problem("precision_of", unknown[0], "no such output", nearest(unknown[0], game.outputs)))
    asked = game.outputs if precision_of is None else precision_of
    precise = tuple(game.outputs.index(name) for name in asked)
    rows = _rows(budget_rows, precision, time_s)
    d, states = len(game.players), game.n_background
    everything = states * 2.0**d + 1
    chosen = method
    if method == "auto":
        affordable = min(rows, max(STANDARD_ROWS, rows if budget_rows is not None else 0))
        if precision is not None:
            # Walks that may stop early are done before a long enumeration is.
            affordable = min(rows, QUICK_ROWS)
        if time_s is None and d <= MAX_PLAYERS and everything <= affordable:
            chosen = "exact"
        elif precision is None and time_s is None and d >= LEAST_PLAYERS and rows > states * (2 * least_pairs(d) + 1):
            chosen = "kernel"
        else:
            chosen = "permutation"
    _refuse_what_cannot_be(chosen, d, rows, everything, precision, time_s, asked_rows=budget_rows is not None)
    reading: Reading = "population" if background == "population" else "sample"
    return Ask(chosen, rows, precision, precise, time_s, seed, reading)  # type: ignore[arg-type]


def _rows(budget_rows: Rows | None, precision: float | None, time_s: float | None) -> float:
    """The most rows per decision that the request allows."""
    if budget_rows is None:
        if precision is None and time_s is None:
            return STANDARD_ROWS
        return MOST_ROWS if time_s is None else inf
    if isinstance(budget_rows, str):
        modes = {"quick": QUICK_ROWS, "standard": STANDARD_ROWS}
        if budget_rows not in modes:
            rule = "unknown budget"
            fix = f"{nearest(budget_rows, modes)} A number of rows is fine too."
            raise ExplanationError(problem("budget_rows", budget_rows, rule, fix))
        return modes[budget_rows]
    if budget_rows <= 0:
        fix = f"Leave it out for {STANDARD_ROWS:,} rows, or use 'quick' for {QUICK_ROWS:,}."
        raise ExplanationError(problem("budget_rows", budget_rows, "at least one row is needed", fix))
    return budget_rows


def _refuse_what_cannot_be(
    method: str, d: int, rows: float, everything: float, precision: float | None, time_s: float | None, *,
    asked_rows: bool,
) -> None:  # fmt: skip
    if method == "exact":
        if d > MAX_PLAYERS:
            fix = "Group the players, or use method='auto'."
            raise ExplanationError(problem("players", d, f"exact needs at most {MAX_PLAYERS}", fix))
        if time_s is not None:
            fix = "Use method='permutation', which can stop at any time."
            raise ExplanationError(problem("time_s", time_s, "enumeration cannot stop before its end", fix))
        # A budget that was asked for is kept; the default budget is no reason to refuse what was asked for by name.
        if asked_rows and rows < everything:
            rule = f"all coalitions with all background states are {everything:,.0f} rows"
            raise ExplanationError(problem("budget_rows", rows, rule, "Raise the budget or use method='auto'."))
        return
    if method == "kernel":
        if time_s is not None or precision is not None:
            field, value = ("time_s", time_s) if time_s is not None else ("precision", precision)
            rule = "a regression is planned for a fixed number of rows"
            raise ExplanationError(problem(field, value, rule, "Use method='permutation' or pass budget_rows."))
        if d < LEAST_PLAYERS:
            rule = f"a regression needs at least {LEAST_PLAYERS}"
            raise ExplanationError(problem("players", d, rule, "Use method='exact'."))
    least = 2 * (2 * least_pairs(d) + 1) + 1 if method == "kernel" else 2 * rows_per_walk(d) + 1
    if rows < least:
        rule = f"{method} needs at least {least:,} rows for {d} players and a standard error"
        raise ExplanationError(problem("budget_rows", rows, rule, f"Ask for {least:,} rows or more."))
