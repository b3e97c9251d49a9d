"""Label search over time: the best course of one task when the future of the network is known.

A label is a pair (steps done, utility) that a task can have at a moment on a plan. Utility counts what the task has
been paid, less ``gain`` per step done, where ``gain`` is more than any step ever pays: so it never rises. Of two
labels at the same moment on the same plan, one with at least as much of both can copy whatever the other does from
then on and finishes no later with no less. Dropping the other is therefore exact.

Two searches share the code:

- *Sequence*: changes happen at the given moments, pauses have their true length, labels are Pareto fronts. The
  result is a course that can be carried out.
- *Bound*: changes may happen at any time. Moments form a grid of cells, pauses are rounded down to whole cells, a
  task may also stand idle and change its layout in place for nothing, and every front is replaced by its concave hull.
  A course with changes anywhere is then the mean of courses with changes on the grid: round every moment up if it
  lies beyond a common threshold in its cell and down otherwise, and average over thresholds. Hulls hold all such
  means, so nothing is missed.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

FRONT = 1024
"""Most labels of one state at one moment."""

TOO_MANY_LABELS = -2
"""In place of the last label: a front or the store of labels has overflowed."""

_GRID_TOLERANCE = 1e-9


class Course(NamedTuple):
    """One task's problem as arrays; S states in G groups of equal placement, N cells, T ticks.

    In the sequence a state is a plan. In the bound it is a placement, with ways to work (plans, or standing idle)
    between which a task may change at no cost.

    Attributes:
        edges_s: Moments from the task's arrival to the horizon, shape ``(N + 1,)``.
        ticks: Tick that prices each cell, shape ``(N,)``.
        speed: Steps per second of every way to work, shape ``(S, O, T)``.
        loss: Utility lost per second, ≥ 0, infinite for a way that is none, shape ``(S, O, T)``.
        groups: Group of every state, shape ``(S,)``.
        pause_s: Pause of a move between groups that starts in a tick, shape ``(T, G, G)``.
        charge: Utility that the traffic of a move costs, shape ``(G, G)``.
        wait: Utility that a second of waiting or moving costs.
        steps: Work of the task.
        gain: What is taken off the pay of every step.
        cell_s: Length of a whole cell, in the bound.
    """

    edges_s: FloatArray
    ticks: IntArray
    speed: FloatArray
    loss: FloatArray
    groups: IntArray
    pause_s: FloatArray
    charge: FloatArray
    wait: float
    steps: float
    gain: float
    cell_s: float


@numba.njit(cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
def _absorb(
    front: FloatArray, tags: IntArray, n: int, more: FloatArray, more_tags: IntArray, begin: int, end: int,
    dx: float, du: float, derive: bool, hull: bool, spare: FloatArray, spare_tags: IntArray,
) -> tuple[int, bool]:  # fmt: skip
    """Merge shifted labels into a front, both by falling work; returns its new length (−1: full) and if it changed."""
    i, j, out = 0, begin, 0
    while i < n or j < end:
        own = i < n
        if own and j < end:
            x = more[0, j] + dx
            own = front[0, i] > x or (front[0, i] == x and front[1, i] >= more[1, j] + du)
        if own:
            x, u, tag = front[0, i], front[1, i], tags[i]
            i += 1
        else:
            x, u, tag = more[0, j] + dx, more[1, j] + du, more_tags[j]
            # A label that is yet to be numbered carries its parent as −2 − number.
            tag = -2 - tag if derive else tag
            j += 1
        if out > 0 and u <= spare[1, out - 1]:
            continue
        while hull and out >= 2:
            run, rise = spare[0, out - 2] - x, u - spare[1, out - 2]
            over, up = spare[0, out - 2] - spare[0, out - 1], spare[1, out - 1] - spare[1, out - 2]
            if up * run > rise * over:
                break
            out -= 1
        if out == spare.shape[1]:
            return -1, True
        spare[0, out], spare[1, out], spare_tags[out] = x, u, tag
        out += 1
    changed = out != n
    for i in range(out):
        changed = changed or front[0, i] != spare[0, i] or front[1, i] != spare[1, i]
        front[0, i], front[1, i], tags[i] = spare[0, i], spare[1, i], spare_tags[i]
    return out, changed


@numba.njit(cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
def _covered(front: FloatArray, n: int, x: float, u: float) -> bool:
    """Whether one label of a front has at least this much of both."""
    for i in range(n):
        if front[0, i] < x:
            return False
        if front[1, i] >= u:
            return True
    return False


@numba.njit(cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
def _height(front: FloatArray, n: int, x: float) -> float:
    """Utility of a concave front at an amount of work; −∞ beyond its end."""
    if n == 0 or x > front[0, 0]:
        return -np.inf
    for i in range(1, n):
        if front[0, i] <= x:
            share = (front[0, i - 1] - x) / (front[0, i - 1] - front[0, i])
            return float(front[1, i - 1] + share * (front[1, i] - front[1, i - 1]))
    return float(front[1, n - 1])


@numba.njit(cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
def _cut(front: FloatArray, n: int, most: float) -> int:
    """Cut a concave front off beyond an amount of work; returns its new length."""
    if n == 0 or front[0, 0] <= most:
        return n
    height = _height(front, n, most)
    keep = 1
    front_at = (most, height)
    for i in range(n):
        if front[0, i] < most and front[1, i] > height:
            front[0, keep], front[1, keep] = front[0, i], front[1, i]
            keep += 1
    front[0, 0], front[1, 0] = front_at
    return keep


@numba.njit(cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
def _number(fronts: IntArray, counts: IntArray, edge: int, store: IntArray, used: int) -> int:
    """Give new labels their numbers and write down parent, plan and moment; returns how many there are (−1: full)."""
    for q in range(counts.size):
        for i in range(counts[q]):
            if fronts[q, i] < 0:
                if used == store.shape[0]:
                    return -1
                store[used, 0], store[used, 1], store[used, 2] = -2 - fronts[q, i], q, edge
                fronts[q, i] = used
                used += 1
    return used


@numba.njit(cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
def search(course: Course, bound: bool, depth: int, store: IntArray) -> tuple[float, int, int]:
    """Find the highest pay of a task from its arrival to its end or the horizon.

    Args:
        course: The problem.
        bound: Bound every course instead of finding the best one with changes at the given moments.
        depth: Cells that the longest pause reaches ahead, plus two.
        store: Labels of the sequence: parent (−1: placed here), plan, moment, shape ``(n, 3)``; not used in the bound.

    Returns:
        Pay, the last label and the plan of a last change after it (−1: none); the label is −1 if the task is never
        placed, ``TOO_MANY_LABELS`` if there was no room.
    """
    n_plans, n_cells = course.groups.size, course.ticks.size
    n_groups = course.charge.shape[0]
    top = 0.0
    for q in range(n_plans):
        top = max(top, course.speed[q].max())
    # No mean of courses that ends by the task's work has a member that does more than one cell of work beyond it.
    most = course.steps + top * course.cell_s
    front, tags, count = (
        np.empty((n_plans, 2, FRONT)),
        np.empty((n_plans, FRONT), np.int64),
        np.zeros(n_plans, np.int64),
    )
    later, later_tags = np.empty((depth, n_plans, 2, FRONT)), np.empty((depth, n_plans, FRONT), np.int64)
    later_count = np.zeros((depth, n_plans), np.int64)
    away, away_tags, away_count = np.empty((n_groups, 2, FRONT)), np.empty((n_groups, FRONT), np.int64), 0
    away_counts = np.zeros(n_groups, np.int64)
    spare, spare_tags = np.empty((2, FRONT)), np.empty(FRONT, np.int64)
    past, past_tags, past_count = np.empty((n_plans, 2, FRONT)), np.zeros(FRONT, np.int64), np.zeros(n_plans, np.int64)
    start, start_tag = np.zeros((2, 1)), np.full(1, -1, np.int64)
    horizon_s = course.edges_s[n_cells]
    # Never placed: it waits to the end.
    best, best_label, best_plan = -course.wait * (horizon_s - course.edges_s[0]), -1, -1
    used = 0
    for at in range(n_cells + 1):
        now_s = course.edges_s[at]
        here = at % depth
        start[1, 0] = -course.wait * (now_s - course.edges_s[0])
        for q in range(n_plans):
            n, _ = _absorb(
                front[q], tags[q], count[q], later[here, q], later_tags[here, q], 0, later_count[here, q], 0.0, 0.0,
                False, bound, spare, spare_tags,
            )  # fmt: skip
            later_count[here, q] = 0
            if n < 0:
                return best, TOO_MANY_LABELS, -1
            n, _ = _absorb(
                front[q], tags[q], n, start, start_tag, 0, 1, 0.0, 0.0, False, bound, spare, spare_tags
            )  # fmt: skip
            if n < 0:
                return best, TOO_MANY_LABELS, -1
            if bound and at > 0:
                # Work that ended in the cell that lies behind is a mean of labels at its two ends.
                m, _ = _absorb(
                    past[q], past_tags, past_count[q], front[q], tags[q], 0, n, 0.0, 0.0, False, True, spare, spare_tags
                )  # fmt: skip
                if m < 0:
                    return best, TOO_MANY_LABELS, -1
                best = max(best, _height(past[q], m, course.steps) + course.gain * course.steps)
                n = _cut(front[q], n, most)
            count[q] = n
        if at == n_cells:
            if not bound:
                used = _number(tags, count, at, store, used)
                if used < 0:
                    return best, TOO_MANY_LABELS, -1
            for q in range(n_plans):
                for i in range(count[q]):
                    pay = front[q, 1, i] + course.gain * front[q, 0, i]
                    if front[q, 0, i] <= course.steps and pay > best:
                        best, best_label, best_plan = pay, tags[q, i], -1
                if bound:
                    best = max(best, _height(front[q], count[q], course.steps) + course.gain * course.steps)
            return best, best_label, best_plan
        # Moves. Those that take no time lead to labels of this moment, so they are repeated until nothing is new.
        tick = course.ticks[at]
        before = course.ticks[max(at - 1, 0)] if bound else tick
        timeless = True
        while True:
            if not bound:
                used = _number(tags, count, at, store, used)
                if used < 0:
                    return best, TOO_MANY_LABELS, -1
            if at == 0:
                break
            for group in range(n_groups):
                away_count = 0
                for q in range(n_plans):
                    if course.groups[q] == group:
                        away_count, _ = _absorb(
                            away[group], away_tags[group], away_count, front[q], tags[q], 0, count[q], 0.0, 0.0,
                            False, bound, spare, spare_tags,
                        )  # fmt: skip
                        if away_count < 0:
                            return best, TOO_MANY_LABELS, -1
                away_counts[group] = away_count
            again = False
            for group in range(n_groups):
                for q in range(n_plans):
                    goal = course.groups[q]
                    pause_s = course.pause_s[tick, group, goal]
                    if bound:
                        pause_s = min(pause_s, course.pause_s[before, group, goal])
                        cells = int(pause_s / course.cell_s + _GRID_TOLERANCE)
                        end, rest_s = at + cells, 0.0
                        pause_s = cells * course.cell_s
                    else:
                        end = at
                        while end < n_cells and course.edges_s[end] < now_s + pause_s - _GRID_TOLERANCE:
                            end += 1
                        rest_s = max(0.0, course.edges_s[end] - now_s - pause_s)
                    if (end == at) != timeless:
                        continue
                    du = -course.wait * pause_s - course.charge[group, goal]
                    if end == at:
                        count[q], changed = _absorb(
                            front[q], tags[q], count[q], away[group], away_tags[group], 0, away_counts[group], 0.0,
                            du, True, bound, spare, spare_tags,
                        )  # fmt: skip
                        if count[q] < 0:
                            return best, TOO_MANY_LABELS, -1
                        again = again or changed
                        continue
                    if end > n_cells or now_s + pause_s >= horizon_s:
                        # Still on the move at the end.
                        for i in range(away_counts[group] if not bound else 0):
                            pay = away[group, 1, i] + course.gain * away[group, 0, i] - course.charge[group, goal]
                            pay -= course.wait * (horizon_s - now_s)
                            if pay > best:
                                best, best_label, best_plan = pay, away_tags[group, i], q
                        continue
                    speed, loss = course.speed[q, 0, course.ticks[end - 1]], course.loss[q, 0, course.ticks[end - 1]]
                    first = 0
                    while not bound and first < away_counts[group]:
                        x = away[group, 0, first]
                        if x + speed * rest_s < course.steps:
                            break
                        pay = away[group, 1, first] + du - loss * (course.steps - x) / speed
                        if pay + course.gain * course.steps > best:
                            best = pay + course.gain * course.steps
                            best_label, best_plan = away_tags[group, first], q
                        first += 1
                    slot = end % depth
                    if first == away_counts[group] or _covered(
                        later[slot, q], later_count[slot, q], away[group, 0, first] + speed * rest_s,
                        away[group, 1, away_counts[group] - 1] + du - loss * rest_s,
                    ):  # fmt: skip
                        continue
                    later_count[slot, q], _ = _absorb(
                        later[slot, q], later_tags[slot, q], later_count[slot, q], away[group], away_tags[group], first,
                        away_counts[group], speed * rest_s, du - loss * rest_s, True, bound, spare, spare_tags,
                    )  # fmt: skip
                    if later_count[slot, q] < 0:
                        return best, TOO_MANY_LABELS, -1
            if timeless and not again:
                timeless = False
            elif not timeless:
                break
        # Work through the cell.
        length_s = course.edges_s[at + 1] - now_s
        slot = (at + 1) % depth
        for q in range(n_plans):
            first = 0
            speed, loss = course.speed[q, 0, tick], course.loss[q, 0, tick]
            while not bound and first < count[q]:
                x = front[q, 0, first]
                if x + speed * length_s < course.steps:
                    break
                pay = front[q, 1, first] - loss * (course.steps - x) / speed + course.gain * course.steps
                if pay > best:
                    best, best_label, best_plan = pay, tags[q, first], -1
                first += 1
            for way in range(course.speed.shape[1]):
                speed, loss = course.speed[q, way, tick], course.loss[q, way, tick]
                if not np.isfinite(loss):
                    continue
                later_count[slot, q], _ = _absorb(
                    later[slot, q], later_tags[slot, q], later_count[slot, q], front[q], tags[q], first, count[q],
                    speed * length_s, -loss * length_s, True, bound, spare, spare_tags,
                )  # fmt: skip
                if later_count[slot, q] < 0:
                    return best, TOO_MANY_LABELS, -1
            past[q, :, : count[q]] = front[q, :, : count[q]]
            past_count[q] = count[q]
            count[q] = 0
    return best, best_label, best_plan
