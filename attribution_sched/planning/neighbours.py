"""Plans one change away from a plan: the only neighbourhood there is, by named moves.

A move changes one thing (or two that mostly go together) in the rows of a plan, ``(P, 10)`` with ``count`` in use, and
lists every way to do so as copies ``(n, P, 10)``, valid or not: that is for :mod:`attribution_sched.cluster.validity`
to say. Who searches picks the moves: a search that may not take more devices than it was given (``SAME_DEVICES``), one
that may change everything (``ANY_DEVICES`` and :meth:`Neighbourhood.restructured`), one that keeps formats.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable, Sequence
from itertools import combinations, pairwise
from math import comb

import numpy as np
from numpy.typing import NDArray

from attribution_sched.cluster.plan import DOMAIN, DP, FIRST, MICROBATCH, PP, PRECISION, REPLICA, STOP, TP

IntArray = NDArray[np.int64]

Plans = tuple[IntArray, IntArray]
"""Rows of plans, shape ``(n, P, 10)``, and how many of them are in use, shape ``(n,)``."""

Neighbours = Callable[[IntArray, int], Plans]
"""From a plan's rows and their number to plans one change away."""

SHIFTS = np.array((-8, -4, -2, -1, 1, 2, 4, 8))
"""How far a cut is moved."""

FAR = 2
"""Most layers that are handed to a segment that is not the next."""


class Move(enum.Flag):
    """One kind of change."""

    LAYOUT = enum.auto()
    """Another layout of as many devices."""
    SIZE = enum.auto()
    """Another layout of any number of devices the domain has free."""
    LAYOUT_AND_FORMAT = enum.auto()
    """Another layout of any number of devices, in any format."""
    FORMAT = enum.auto()
    """Another numeric format of one segment."""
    DOMAIN = enum.auto()
    """One segment moves to a domain that is not in use."""
    SWAP = enum.auto()
    """Two segments exchange their domains, with or without their layouts."""
    CUT = enum.auto()
    """The cut between two segments moves."""
    LAYOUT_AND_CUT = enum.auto()
    """Another layout of a segment mostly wants another cut beside it."""
    TWO_CUTS = enum.auto()
    """Two cuts that follow each other move together."""
    MICROBATCH = enum.auto()
    """Another microbatch of a replica."""
    LAYOUT_AND_MICROBATCH = enum.auto()
    """A layout that trades data-parallel ranks for stages mostly wants another microbatch."""


SAME_DEVICES = Move.LAYOUT | Move.FORMAT | Move.DOMAIN | Move.SWAP | Move.CUT | Move.MICROBATCH
"""What a snapshot can judge of a plan whose devices somebody else has decided on."""

ANY_DEVICES = (
    Move.SIZE | Move.FORMAT | Move.DOMAIN | Move.SWAP | Move.CUT | Move.LAYOUT_AND_CUT | Move.TWO_CUTS
    | Move.MICROBATCH | Move.LAYOUT_AND_MICROBATCH
)  # fmt: skip
"""All changes that keep the number of segments."""

SAME_FORMATS = Move.SIZE | Move.DOMAIN | Move.SWAP | Move.CUT | Move.MICROBATCH
"""One thing at a time, formats as they are."""

ONE_PIPELINE = Move.LAYOUT_AND_FORMAT | Move.DOMAIN | Move.SWAP | Move.CUT | Move.MICROBATCH
"""What is tried around a pipeline that an exact search found on the way."""

_LAYOUT = [DP, TP, PP]


class Neighbourhood:
    """Lists changes of plans of one task.

    Args:
        free_devices: Devices that may be used, shape ``(K,)``; a segment moves only to domains that have some.
        layouts: Layouts to choose from, shape ``(L, 3)``: dp, tp, pp.
        microbatches: Microbatch sizes to choose from.
        formats: Rows of the formats to choose from on the precision axis.
    """

    def __init__(
        self, free_devices: IntArray, layouts: IntArray, microbatches: Sequence[int] | IntArray, formats: Sequence[int]
    ) -> None:
        self.free_devices, self.layouts, self.sizes = free_devices, layouts, layouts.prod(axis=1)
        self.microbatches = np.unique(np.asarray(microbatches, dtype=np.int64))
        self.formats = np.asarray(formats, dtype=np.int64)

    def idle(self, rows: IntArray, count: int) -> IntArray:
        """Domains with free devices that a plan does not use."""
        return np.setdiff1d(np.flatnonzero(self.free_devices > 0), rows[:count, DOMAIN])

    def one_change(self, rows: IntArray, count: int, moves: Move = SAME_DEVICES) -> Plans:
        """Plans of the same segments one of the moves away."""
        found: list[IntArray] = []
        sizes = rows[:count, DP] * rows[:count, TP] * rows[:count, PP]
        idle = self.idle(rows, count)
        for p in range(count):
            room = self.layouts[self.sizes <= self.free_devices[rows[p, DOMAIN]]]
            if Move.LAYOUT in moves or Move.SIZE in moves:
                found.append(_laid_out(rows, p, room if Move.SIZE in moves else self.layouts[self.sizes == sizes[p]]))
            if Move.LAYOUT_AND_FORMAT in moves:
                both = _laid_out(rows, p, np.repeat(room, len(self.formats), axis=0))
                both[:, p, PRECISION] = np.tile(self.formats, len(room))
                found.append(both)
            if Move.DOMAIN in moves:
                found.append(_changed(rows, p, DOMAIN, idle))
            if Move.FORMAT in moves:
                found.append(_changed(rows, p, PRECISION, self.formats))
            if Move.SWAP in moves:
                found += [_exchanged(rows, p, q) for q in range(p + 1, count)]
            if p + 1 < count and rows[p, REPLICA] == rows[p + 1, REPLICA]:
                found += self._cut_behind(rows, count, p, moves)
        for inside in replicas(rows, count):
            if Move.MICROBATCH in moves:
                others = _copies(rows, len(self.microbatches))
                others[:, inside, MICROBATCH] = self.microbatches[:, None]
                found.append(others)
            if Move.LAYOUT_AND_MICROBATCH in moves:
                for own in inside:
                    same = self.layouts[(self.sizes == sizes[own]) & (self.layouts[:, 0] != rows[own, DP])]
                    both = _laid_out(rows, own, np.repeat(same, len(self.microbatches), axis=0))
                    both[:, inside, MICROBATCH] = np.tile(self.microbatches, len(same))[:, None]
                    found.append(both)
        return _same(np.concatenate(found), count)

    def _cut_behind(self, rows: IntArray, count: int, p: int, moves: Move) -> list[IntArray]:
        """Plans whose cut behind segment ``p`` is elsewhere."""
        found = []
        if Move.CUT in moves:
            found.append(_shifted(_copies(rows, len(SHIFTS)), p, SHIFTS))
        if Move.LAYOUT_AND_CUT in moves:
            for at in (p, p + 1):
                room = self.layouts[self.sizes <= self.free_devices[rows[at, DOMAIN]]]
                both = _laid_out(rows, at, np.repeat(room, len(SHIFTS), axis=0))
                found.append(_shifted(both, p, np.tile(SHIFTS, len(room))))
        if Move.TWO_CUTS in moves and p + 2 < count and rows[p + 1, REPLICA] == rows[p + 2, REPLICA]:
            found.append(_shifted(_shifted(_copies(rows, len(SHIFTS)), p, SHIFTS), p + 1, SHIFTS))
        return found

    def cuts(self, rows: IntArray, count: int) -> Plans:
        """Plans in which one segment hands layers to another of its replica; the cuts between them move along."""
        found = [rows[None][:0]]
        for inside in replicas(rows, count):
            handed = _handed(len(inside))
            moved = _copies(rows, len(handed))
            moved[:, inside, STOP] += handed
            moved[:, inside[1:], FIRST] += handed[:, :-1]
            found.append(moved)
        return _same(np.concatenate(found), count)

    def orders(self, rows: IntArray, count: int) -> Plans:
        """Plans whose segments stand in another order within a replica, with their layers' number or in its place."""
        found = [rows[None][:0]]
        for inside in replicas(rows, count):
            if len(inside) < 2:
                continue
            orders = inside[orders_near(len(inside))]
            moved = _copies(rows, len(orders))
            lengths = (rows[:, STOP] - rows[:, FIRST])[orders]
            moved[:, inside] = rows[orders]
            moved[:, inside, STOP] = np.cumsum(lengths, axis=1)
            moved[:, inside, FIRST] = moved[:, inside, STOP] - lengths
            stays = moved.copy()
            stays[:, inside, FIRST], stays[:, inside, STOP] = rows[inside, FIRST], rows[inside, STOP]
            found += [moved, stays]
        return _same(np.concatenate(found), count)

    def restructured(self, rows: IntArray, count: int) -> Plans:
        """Plans with one segment less, or with one more in an idle domain."""
        found: list[IntArray] = []
        counts: list[IntArray] = []
        for p in range(count):
            for heir in (p - 1, p + 1):
                if not 0 <= heir < count or rows[heir, REPLICA] != rows[p, REPLICA]:
                    continue
                fewer = _copies(rows, 1)
                fewer[0, heir, FIRST] = min(rows[p, FIRST], rows[heir, FIRST])
                fewer[0, heir, STOP] = max(rows[p, STOP], rows[heir, STOP])
                fewer[0, p:-1] = fewer[0, p + 1 :].copy()
                found.append(fewer)
                counts.append(np.array([count - 1]))
        if count < rows.shape[0]:
            for idle in self.idle(rows, count):
                most = 2 ** int(np.log2(self.free_devices[idle]))
                layouts = self.layouts[self.sizes == most]
                for p in range(count):
                    length = int(rows[p, STOP] - rows[p, FIRST])
                    for share in (length // 4, length // 2, 3 * length // 4):
                        for before in (True, False):
                            found.append(_split(rows, p, share, before, int(idle), layouts))
                            counts.append(np.full(len(layouts), count + 1, dtype=np.int64))
        if not found:
            return rows[None][:0], np.zeros(0, dtype=np.int64)
        return np.concatenate(found), np.concatenate(counts)

    def everything(self, rows: IntArray, count: int) -> Plans:
        """Plans with another layout, domain, format or number of segments."""
        near, counts = self.one_change(rows, count, ANY_DEVICES)
        others, other_counts = self.restructured(rows, count)
        return np.concatenate([near, others]), np.concatenate([counts, other_counts])


def every_cut(n_layers: int, segments: int, most: int, rng: np.random.Generator) -> tuple[IntArray, bool]:
    """First and last layers of so many segments, shape ``(n, segments, 2)``, wherever a model may be cut.

    Returns:
        All of them, or ``most`` drawn with equal chances where there are more; and whether they are all.
    """
    complete = comb(n_layers - 1, segments - 1) <= most
    if complete:
        places: Sequence[Sequence[int]] = list(combinations(range(1, n_layers), segments - 1))
    else:
        drawn = [rng.choice(n_layers - 1, segments - 1, replace=False) + 1 for _ in range(most)]
        places = [sorted(int(cut) for cut in cuts) for cuts in drawn]
    return np.array([list(pairwise([0, *cuts, n_layers])) for cuts in places], dtype=np.int64), complete


def replicas(rows: IntArray, count: int) -> list[IntArray]:
    """Rows of each replica."""
    return [np.flatnonzero(rows[:count, REPLICA] == replica) for replica in range(int(rows[count - 1, REPLICA]) + 1)]


@functools.cache
def orders_near(count: int) -> IntArray:
    """Orders one step away: one taken out and put in elsewhere, two exchanged, or a stretch turned round."""
    found: dict[tuple[int, ...], None] = {}
    for a in range(count):
        for b in range(count):
            rest = [i for i in range(count) if i != a]
            found[(*rest[:b], a, *rest[b:])] = None
            if a < b:
                order = list(range(count))
                order[a], order[b] = b, a
                found[tuple(order)] = None
                found[(*range(a), *range(b, a - 1, -1), *range(b + 1, count))] = None
    found.pop(tuple(range(count)))
    return np.array(list(found), dtype=np.int64)


@functools.cache
def _handed(count: int) -> IntArray:
    """How far the end of every segment moves when one hands layers to another, shape ``(n, count)``."""
    found: list[list[int]] = []
    for p in range(count):
        for q in range(p + 1, count):
            far = SHIFTS[-1] if q == p + 1 else FAR
            found += [[by if p <= i < q else 0 for i in range(count)] for by in SHIFTS[np.abs(SHIFTS) <= far].tolist()]
    return np.array(found, dtype=np.int64).reshape(-1, count)


def _same(rows: IntArray, count: int) -> Plans:
    return rows, np.full(len(rows), count, dtype=np.int64)


def _copies(rows: IntArray, count: int) -> IntArray:
    return np.repeat(rows[None], count, axis=0)


def _changed(rows: IntArray, p: int, column: int, values: IntArray) -> IntArray:
    changed = _copies(rows, len(values))
    changed[:, p, column] = values
    return changed


def _laid_out(rows: IntArray, p: int, layouts: IntArray) -> IntArray:
    changed = _copies(rows, len(layouts))
    changed[:, p, _LAYOUT] = layouts
    return changed


def _exchanged(rows: IntArray, p: int, q: int) -> IntArray:
    """Two segments in each other's domain: with their own layouts, and with those of the other."""
    both = _copies(rows, 2)
    both[:, p, DOMAIN], both[:, q, DOMAIN] = rows[q, DOMAIN], rows[p, DOMAIN]
    both[1, p, _LAYOUT], both[1, q, _LAYOUT] = rows[q, _LAYOUT], rows[p, _LAYOUT]
    return both


def _shifted(plans: IntArray, p: int, by: IntArray) -> IntArray:
    """Move the cut behind segment ``p``."""
    plans[:, p, STOP] += by
    plans[:, p + 1, FIRST] += by
    return plans


def _split(rows: IntArray, p: int, share: int, before: bool, idle: int, layouts: IntArray) -> IntArray:
    """Segment ``p`` hands its first or last layers to an idle domain."""
    more = _copies(rows, len(layouts))
    more[:, p + 1 :] = more[:, p:-1].copy()
    own, other = (p, p + 1) if before else (p + 1, p)
    cut = int(rows[p, FIRST]) + (share if before else int(rows[p, STOP] - rows[p, FIRST]) - share)
    more[:, p, STOP] = more[:, p + 1, FIRST] = cut
    more[:, p, FIRST], more[:, p + 1, STOP] = rows[p, FIRST], rows[p, STOP]
    more[:, own, DOMAIN] = idle
    more[:, own, _LAYOUT] = layouts
    more[:, other, DOMAIN] = rows[p, DOMAIN]
    return more
