"""The front door: Shapley values of one decision or many, by rows, precision or time.

    estimate(game)                                  # standard: 46,000 rows
    estimate(game, budget_rows="quick")             # 6,304 rows
    estimate(game, precision=0.05, time_s=0.1)      # whichever comes first

The same seed gives the same bytes, in repeated calls and with any chunk size, for a game that values a row alike
whatever rows stand beside it. A time limit ends the walks where the clock happens to stand; they are then still the
first ones of the same sequence.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from math import inf
from typing import NamedTuple

import numpy as np

from attribution_sched.errors import ExplanationError, problem
from attribution_sched.shapley.budget import LEAST_WALKS, Ask, Rows, settle
from attribution_sched.shapley.estimate import Estimate, StateMeans, StateSums, error_of_base, error_of_mean
from attribution_sched.shapley.exact import exact_states
from attribution_sched.shapley.game import BatchGame, Evaluator, Game, Progress, StackedGame, check_game, follow
from attribution_sched.shapley.orders import rows_per_walk, walk_plan, walk_values
from attribution_sched.shapley.regression import kernel_plan, kernel_values, least_pairs
from attribution_sched.stats.interval import half_width
from attribution_sched.types import BoolArray, FloatArray, IntArray

_BLOCK_ROWS = 1 << 19
"""Rows of all decisions that are held in memory at a time."""

_BLOCK_CELLS = 1 << 22
"""Numbers of running sums, or of a regression operator, that are held at a time."""

_GROWTH = 1.5
"""Walks grow by this factor from one look at the precision to the next."""


def estimate(
    game: Game,
    *,
    method: str = "auto",
    budget_rows: Rows | None = None,
    precision: float | None = None,
    precision_of: Sequence[str] | None = None,
    time_s: float | None = None,
    seed: int = 0,
    chunk: int = 4096,
    progress: bool | Progress | None = None,
    background: str = "sample",
) -> Estimate:
    """Explain one decision.

    Args:
        game: The decision.
        method: ``exact``, ``permutation``, ``kernel``, or ``auto``: exact if all coalitions with all background states
            fit the budget (the quick one where a precision is asked for), kernel if every background state can have
            four coalitions per player, else permutation (which alone can stop at a precision or a time).
        budget_rows: Most rows to value; ``quick``, ``standard`` or a number. Standard if nothing else ends the run.
        precision: Stop when, for every output, the half-width of the 95 % interval of the player with the largest
            absolute value is at most this share of that value, at the earliest after 16 walks. If it cannot be
            reached within the budget, or no number of walks could reach it because the background has too few states,
            the result says ``converged=False``.
        precision_of: Outputs for which the precision must hold; all by default.
        time_s: Stop before this many wall-clock seconds have passed; two walks are always made.
        seed: Seed of coalitions and background states.
        chunk: Most rows per call of the game.
        progress: True for a bar, or a function of the rows done and the most rows there may be.
        background: ``sample`` if the background states stand for a larger population, so that intervals cover the
            value over that population; ``population`` if they are all there is. With one walk per state the two are
            the same, and as a reading of the population conservative.

    Returns:
        The values with their standard errors. They sum to ``full - base``.
    """
    return estimate_many(
        [game],
        method=method,
        budget_rows=budget_rows,
        precision=precision,
        precision_of=precision_of,
        time_s=time_s,
        seed=seed,
        chunk=chunk,
        progress=progress,
        background=background,
    )[0]


def estimate_many(
    games: BatchGame | Sequence[Game],
    *,
    method: str = "auto",
    budget_rows: Rows | None = None,
    precision: float | None = None,
    precision_of: Sequence[str] | None = None,
    time_s: float | None = None,
    seed: int = 0,
    chunk: int = 4096,
    progress: bool | Progress | None = None,
    background: str = "sample",
) -> list[Estimate]:
    """Explain many decisions with one plan of coalitions, their rows valued together.

    Arguments as for :func:`estimate`. ``budget_rows`` is per decision, ``time_s`` for all of them; a decision that has
    reached the precision takes no more rows.

    Args:
        games: A batch game, or games with the same players, outputs and background.
        method: See :func:`estimate`.
        budget_rows: See :func:`estimate`.
        precision: See :func:`estimate`.
        precision_of: See :func:`estimate`.
        time_s: See :func:`estimate`.
        seed: See :func:`estimate`.
        chunk: See :func:`estimate`.
        progress: See :func:`estimate`.
        background: See :func:`estimate`.

    Returns:
        The estimates, each equal to that of :func:`estimate` on its own.
    """
    start_s = time.perf_counter()
    game: BatchGame = StackedGame(games) if isinstance(games, Sequence) else games
    check_game(game)
    if chunk < 1:
        raise ExplanationError(problem("chunk", chunk, "at least one row", "Use 256 to 4096 rows."))
    ask = settle(game, method, budget_rows, precision, precision_of, time_s, seed, background)
    at_once = _decisions_at_once(game, ask)
    blocks = [np.arange(i, min(i + at_once, game.n_decisions)) for i in range(0, game.n_decisions, at_once)]
    parts = []
    with follow(progress) as report:
        evaluate = Evaluator(game, chunk, report)
        evaluate.total = None if ask.rows == inf else int(ask.rows) * game.n_decisions
        for number, block in enumerate(blocks, start=1):
            deadline_s = None if ask.time_s is None else start_s + ask.time_s * number / len(blocks)
            parts.append(_explain_block(evaluate, block, ask, deadline_s))
    reading = "population" if game.n_background == 1 else ask.reading
    return [
        Estimate(
            game.players, game.outputs, method=ask.method, seed=seed, reading=reading,
            **{name: each[i] if each.ndim > 1 else each[i].item() for name, each in block._asdict().items()},
        )
        for block in parts
        for i in range(len(block.values))
    ]  # fmt: skip


class _Block(NamedTuple):
    """Results of some decisions; axes as in Estimate with the decisions in front."""

    values: FloatArray
    standard_error: FloatArray
    base: FloatArray
    base_error: FloatArray
    full: FloatArray
    evaluations: IntArray
    background: IntArray
    converged: BoolArray
    freedom: FloatArray


def _decisions_at_once(game: BatchGame, ask: Ask) -> int:
    """How many decisions share a block, by what they need in memory; never depends on the chunk size."""
    d, states = len(game.players), game.n_background
    if ask.method == "permutation":
        # Walks go in rounds that fit, so only their running sums and a first round of all decisions count.
        cells = min(states, max(1.0, ask.rows / rows_per_walk(d))) * d * len(game.outputs)
        return max(1, int(min(_BLOCK_ROWS // (LEAST_WALKS * rows_per_walk(d)), _BLOCK_CELLS // cells)))
    rows = min(ask.rows if ask.method == "kernel" else states << d, _BLOCK_ROWS)
    return max(1, int(_BLOCK_ROWS // rows))


def _explain_block(evaluate: Evaluator, decisions: IntArray, ask: Ask, deadline_s: float | None) -> _Block:
    if ask.method == "permutation":
        return _walk(evaluate, decisions, ask, deadline_s)
    before = evaluate.rows
    if ask.method == "exact":
        states, empty, full = exact_states(evaluate, decisions)
        means = StateMeans(states, np.zeros((len(states), *states.shape[2:])), inf)
    else:
        means, empty, full = _regress(evaluate, decisions, ask)
    rows = (evaluate.rows - before) // len(decisions)
    return _finish(evaluate.game, means, empty, full, rows, ask)


def _regress(evaluate: Evaluator, decisions: IntArray, ask: Ask) -> tuple[StateMeans, FloatArray, FloatArray]:
    """Kernel regressions on as many states as can have enough coalitions each."""
    game, rows = evaluate.game, int(ask.rows) - 1
    d = len(game.players)
    n_states = min(game.n_background, rows // (2 * least_pairs(d) + 1))
    pairs = (rows // n_states - 1) // 2
    # A long regression is cut into parts, each with an operator that stays small enough to be kept.
    parts = max(1, min(-(-n_states * d * pairs // (_BLOCK_CELLS // 2)), pairs // least_pairs(d)))
    errors = ask.reading == "population" or game.n_background == 1
    full = evaluate.full(decisions)
    solved = []
    for part in range(parts):
        plan = kernel_plan(d, game.n_background, n_states, pairs // parts, ask.seed, part, errors)
        solved.append(kernel_values(plan, evaluate.plan(plan.coalitions, plan.background, decisions), full))
    if parts == 1:
        return *solved[0], full
    values = np.mean([means.values for means, _ in solved], axis=0)
    within = np.mean([means.within for means, _ in solved], axis=0) / parts if errors else None  # type: ignore[arg-type]
    freedom = sum(means.freedom for means, _ in solved)
    return StateMeans(values, within, freedom), solved[0][1], full


def _walk(evaluate: Evaluator, decisions: IntArray, ask: Ask, deadline_s: float | None) -> _Block:
    """Walk until the rows, the precision or the time is reached."""
    game = evaluate.game
    d, n_background = len(game.players), game.n_background
    start_s = time.perf_counter()
    full = evaluate.full(decisions)
    most = inf if ask.rows == inf else (ask.rows - 1) // rows_per_walk(d)
    if ask.precision is None and deadline_s is None and most > n_background and most % n_background <= most // 10:
        # Whole rounds through the background are worth more than a few walks on some of its states.
        most -= most % n_background
    slots = int(min(n_background, most))
    sums = StateSums((len(decisions), slots, d, len(game.outputs)))
    active = np.arange(len(decisions))
    finished: list[tuple[IntArray, _Block]] = []
    done = look = 0
    while len(active):
        if done >= look:
            look = _next_look(done, most, ask, deadline_s, start_s)
        stop = min(look, done + max(1, _BLOCK_ROWS // (len(active) * rows_per_walk(d))))
        plan = walk_plan(d, n_background, done, stop, ask.seed)
        values = evaluate.plan(plan.coalitions, plan.background, decisions[active])
        sums.add(*walk_values(plan, values, full[active]), plan.slots)
        done = stop
        last = done >= most or _out_of_time(done, deadline_s, start_s)
        if not last and (done < look or ask.precision is None):
            continue
        means, empty = sums.means()
        block = _finish(game, means, empty, full[active], 1 + done * rows_per_walk(d), ask)
        ready = block.converged & (done >= min(LEAST_WALKS, most))
        if not last and ask.precision is not None and done >= 2 * n_background:
            ready |= _out_of_reach(means, block.values, ask.precision, ask)
        ready |= last
        if ready.any():
            finished.append((active[ready], _Block._make(each[ready] for each in block)))
            sums.keep(~ready)
            active = active[~ready]
    order = np.argsort(np.concatenate([where for where, _ in finished]))
    return _Block._make(np.concatenate(parts)[order] for parts in zip(*(block for _, block in finished), strict=True))


def _next_look(done: int, most: float, ask: Ask, deadline_s: float | None, start_s: float) -> int:
    """Number of walks after which to look at precision and clock again; the same for any number of decisions."""
    look = most
    if ask.precision is not None:
        look = min(look, max(LEAST_WALKS, int(np.ceil(done * _GROWTH))))
    if deadline_s is not None:
        if done == 0:
            look = min(look, 2)
        else:
            now_s = time.perf_counter()
            left = 0.8 * (deadline_s - now_s) / ((now_s - start_s) / done)
            look = min(look, 4 * done, done + max(1, int(left)))
    return int(look)


def _out_of_time(done: int, deadline_s: float | None, start_s: float) -> bool:
    """Whether one more walk would end after the deadline."""
    if deadline_s is None:
        return False
    now_s = time.perf_counter()
    return now_s + (now_s - start_s) / done > deadline_s


def _out_of_reach(means: StateMeans, values: FloatArray, precision: float, ask: Ask) -> BoolArray:
    """Whether no number of walks can reach the precision, (m,): the background has too few states for it."""
    m, g = means.values.shape[:2]
    if ask.reading == "population" or g == 1 or means.within is None:
        return np.zeros(m, dtype=bool)
    between = (means.values.var(axis=1, ddof=1) - means.within).clip(min=0.0)
    leader = np.abs(values).argmax(axis=1)[:, None]
    floor = half_width(np.sqrt(np.take_along_axis(between, leader, axis=1)[:, 0] / g), g - 1.0, 0.95)
    size = np.abs(np.take_along_axis(values, leader, axis=1)[:, 0])
    return np.asarray((floor > precision * size)[:, ask.precise].any(axis=1))


def _finish(game: BatchGame, means: StateMeans, empty: FloatArray, full: FloatArray, rows: int, ask: Ask) -> _Block:
    """Average over states and attach errors."""
    values = means.values.mean(axis=1)
    base = empty.mean(axis=1)
    # Means over states round; the sum is kept to the last bits by what they missed.
    values += (full - base - values.sum(axis=1))[:, None] / values.shape[1]
    error, freedom = error_of_mean(means, game.n_background, ask.reading)
    m, states = len(values), means.values.shape[1]
    return _Block(
        values, error, base, error_of_base(empty, game.n_background, ask.reading), full, np.full(m, rows),
        np.full(m, states), _precise(values, error, freedom, full, base, ask), np.full(m, freedom),
    )  # fmt: skip


def _precise(
    values: FloatArray, error: FloatArray, freedom: float, full: FloatArray, base: FloatArray, ask: Ask
) -> BoolArray:
    """Whether the leading player of every output is known as precisely as asked, (m,)."""
    if ask.precision is None:
        return np.ones(len(values), dtype=bool)
    leader = np.abs(values).argmax(axis=1)[:, None]
    size = np.abs(np.take_along_axis(values, leader, axis=1))[:, 0]
    half = half_width(np.take_along_axis(error, leader, axis=1)[:, 0], freedom, 0.95)
    # An output that does not move has no leader; rounding is all there is to its error.
    rounding = 1e-12 * (np.abs(full) + np.abs(base))
    return np.asarray((half <= np.maximum(ask.precision * size, rounding))[:, ask.precise].all(axis=1))
