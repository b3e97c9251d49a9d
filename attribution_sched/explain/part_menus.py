"""What else each part of a plan could have been, on the same devices of the same domains.

Every draw is another plan whose mixtures with the plan itself can *all* run: draws of which one mixture is malformed or
overflows memory are rejected, so no coalition ever has to be given a made-up value. A draw changes as many parts at
once as can be changed together.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, product
from math import prod

import numpy as np
from numpy.typing import NDArray

from attribution_sched.cluster.decision import Decision
from attribution_sched.cluster.plan import DOMAIN, DP, PP, REPLICA, TP, Plan, layout_table
from attribution_sched.errors import ExplanationError, problem
from attribution_sched.explain.plan_mixtures import (
    COLUMNS,
    CUTS,
    LAYOUT,
    MICRO,
    NUMBERS,
    Hybrids,
    mixed,
    plans_of,
    rows_of,
)
from attribution_sched.planning.candidates import runnable
from attribution_sched.planning.local_search import every_cut
from attribution_sched.planning.segment_table import formats_of_all

IntArray = NDArray[np.int64]

MENU: tuple[str, ...] = (CUTS, LAYOUT, NUMBERS, MICRO)
"""Parts that the menu varies, in the order of the players."""

MOST_OPTIONS = 1024
"""Of a part with more alternatives than this, so many are drawn."""

TRIED = 1024
"""Combinations of alternatives that are tried; all of them if there are no more."""


def from_menu(view: Decision, plan: Plan, seed: int = 0) -> Hybrids:
    """Mixtures of a plan with what its parts could have been.

    Alternatives are, one format and one microbatch for all segments: other cut points, other layouts of as many
    devices, other formats that all GPUs in use have (never INT8 for training), other microbatches of the kind. A part
    without an alternative that can run is left out.

    Args:
        view: The decision.
        plan: The plan.
        seed: Of the drawing, where there are too many alternatives to list.

    Raises:
        PlanError: If the plan is malformed or does not fit memory.
        ExplanationError: If no part has an alternative.
    """
    view.cost.check(plan, view.kind_index)
    own, rng = rows_of(plan), np.random.default_rng([seed, TRIED])
    options: dict[str, IntArray] = {}
    complete = True
    for part in MENU:
        listed, all_of_them = _options(view, own, part, rng)
        able = _able(view, plan, _with(own, {part: listed}), (part,))
        complete &= all_of_them
        if able.any():
            options[part] = listed[able]
    if not options:
        rule = "there is no other way to run it that fits on these devices"
        raise ExplanationError(problem("plan", "the plan", rule, "Name a plan to compare with: against=plan"))
    found: list[IntArray] = []
    kept: list[set[str]] = []
    for size in range(len(options), 0, -1):
        for pattern in combinations(options, size):
            if any(set(pattern) <= larger for larger in kept):
                continue
            tried, all_of_them = _combined([len(options[part]) for part in pattern], rng)
            others = _with(own, {part: options[part][tried[:, p]] for p, part in enumerate(pattern)})
            others = others[_able(view, plan, others, pattern)]
            complete &= all_of_them
            if len(others):
                kept.append(set(pattern))
                found.append(others)
    parts = tuple(options)
    rows = mixed(own, np.concatenate(found), parts)
    draws = len(rows)
    plans = plans_of(view, rows.reshape(-1, *own.shape), np.full(rows.shape[0] * rows.shape[1], int(plan.schedule)))
    return Hybrids(tuple((part,) for part in parts), plans, draws, complete)


def _able(view: Decision, plan: Plan, others: IntArray, parts: Sequence[str]) -> NDArray[np.bool_]:
    """Others all of whose mixtures with the plan can run, shape ``(D,)``."""
    rows = mixed(rows_of(plan), others, parts)
    d, codes = rows.shape[:2]
    flat = rows.reshape(d * codes, *rows.shape[2:])
    can = runnable(view, plans_of(view, flat, np.full(len(flat), int(plan.schedule))))
    return np.asarray(can.reshape(d, codes).all(axis=1))


def _with(own: IntArray, changes: dict[str, IntArray]) -> IntArray:
    """The plan ``(P, 11)`` with some parts replaced, ``(D, P, columns)`` each, shape ``(D, P, 11)``."""
    rows = np.repeat(own[None], len(next(iter(changes.values()))), axis=0)
    for part, values in changes.items():
        rows[:, :, COLUMNS[part]] = values
    return rows


def _options(view: Decision, own: IntArray, part: str, rng: np.random.Generator) -> tuple[IntArray, bool]:
    """Alternatives of one part ``(D, P, columns)``, and whether they are all."""
    if part == CUTS:
        listed, complete = _cuts(own, len(view.kind.model), rng)
    elif part == LAYOUT:
        listed, complete = _layouts(view, own, rng)
    else:
        values = view.kind.microbatches if part == MICRO else formats_of_all(view.cost, view.kind_index, own[:, DOMAIN])
        listed, complete = np.array([np.full((len(own), 1), value) for value in dict.fromkeys(values)]), True
    listed = listed.reshape(-1, len(own), len(COLUMNS[part]))
    return listed[(listed != own[:, COLUMNS[part]]).any(axis=(1, 2))], complete


def _layouts(view: Decision, own: IntArray, rng: np.random.Generator) -> tuple[IntArray, bool]:
    cluster = view.cost.cluster
    table = layout_table(cluster, sharing=False)[:, :3]
    lists = []
    for row in own:
        same = table.prod(axis=1) == row[DP] * row[TP] * row[PP]
        near = table[:, 1] <= max(cluster.domains[row[DOMAIN]].node_devices, row[TP])
        lists.append(table[same & near])
    at, complete = _combined([len(some) for some in lists], rng)
    return np.stack([some[at[:, p]] for p, some in enumerate(lists)], axis=1), complete


def _cuts(own: IntArray, n_layers: int, rng: np.random.Generator) -> tuple[IntArray, bool]:
    """First and last layers ``(D, P, 2)``: every replica cut anywhere, all cuts equally likely."""
    listed = [every_cut(n_layers, int(count), MOST_OPTIONS, rng) for count in np.bincount(own[:, REPLICA])]
    at, all_of_them = _combined([len(spans) for spans, _ in listed], rng)
    rows = np.concatenate([spans[at[:, r]] for r, (spans, _) in enumerate(listed)], axis=1)
    return rows, all(complete for _, complete in listed) and all_of_them


def _combined(counts: Sequence[int], rng: np.random.Generator) -> tuple[IntArray, bool]:
    """Indices of combinations ``(D, lists)``: all, or a sample without repetition; and whether they are all."""
    if prod(counts) <= TRIED:
        return np.array(list(product(*(range(count) for count in counts))), dtype=np.int64), True
    drawn = rng.integers(0, counts, size=(2 * TRIED, len(counts)))
    _, first = np.unique(drawn, axis=0, return_index=True)
    return drawn[np.sort(first)[:TRIED]], False
