"""Parts of plans in words and numbers, from the rows of a plan."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from attribution_sched.cluster.gpus import PRECISIONS
from attribution_sched.cluster.plan import (
    DOMAIN,
    DP,
    FIRST,
    MICROBATCH,
    PP,
    PRECISION,
    REPLICA,
    STOP,
    TP,
    PlanBatch,
)
from attribution_sched.explain.findings import Player
from attribution_sched.explain.plan_mixtures import (
    CUTS,
    LAYOUT,
    MICRO,
    NUMBERS,
    SCHEDULE,
    STRUCTURE,
    Block,
    Hybrids,
)
from attribution_sched.explain.words import Phrase

IntArray = NDArray[np.int64]

SPELT_OUT = 4
"""More alternatives than this are counted, not listed."""

_SCHEDULES = ("1F1B", "GPipe")
_UNITS = {CUTS: "layer", NUMBERS: "bit", MICRO: "samples"}


def part_players(hybrids: Hybrids, domains: Sequence[str]) -> list[Player]:
    """Players of a plan's parts: what each is, and what it is in the plans that it is compared with."""
    last = (1 << len(hybrids.blocks)) - 1
    own, others = _plan(hybrids.plans, last), hybrids.others()
    listed = []
    for name, block in zip(hybrids.names, hybrids.blocks, strict=True):
        numbers = [_number(block, *_plan(others, draw)) for draw in range(hybrids.draws)]
        usual = _together([_usual(part, others, domains) for part in block])
        value = _together([say(part, *own, domains) for part in block])
        unit = _UNITS.get(block[0], "") if len(block) == 1 else ""
        listed.append(Player(name, "part", value, usual, _number(block, *own), float(np.mean(numbers)), unit))
    return listed


def say(part: str, rows: IntArray, schedule: int, domains: Sequence[str]) -> str:
    """A part of one plan ``(P, 11)``: replicas are set apart by +, segments by →; what is the same is said once."""
    if part == SCHEDULE:
        return _SCHEDULES[schedule]
    if part == MICRO:
        return Phrase("part.microbatch", sizes=_sizes(rows))
    if part == CUTS:
        return _once([_cut(replica) for replica in _replicas(rows)], "list.replicas")
    said = [[_segment(part, row, domains) for row in replica] for replica in _replicas(rows)]
    if len({text for chain in said for text in chain}) == 1:
        return said[0][0]
    return Phrase("list.replicas", parts=tuple(_once(chain, "list.segments") for chain in said))


def _segment(part: str, row: IntArray, domains: Sequence[str]) -> str:
    if part == LAYOUT:
        sides = [(name, row[at]) for name, at in (("dp", DP), ("tp", TP), ("pp", PP)) if row[at] > 1]
        return " · ".join(f"{name} {size}" for name, size in sides) or Phrase("part.one_device")
    if part == NUMBERS:
        return str(PRECISIONS[row[PRECISION]].value).upper()
    name = str(domains[row[DOMAIN]])
    return f"{name} {row[FIRST] + 1}–{row[STOP]}" if part == STRUCTURE else name


def _plan(batch: PlanBatch, at: int) -> tuple[IntArray, int]:
    return batch.segments[at, : batch.counts[at]], int(batch.schedules[at])


def _replicas(rows: IntArray) -> list[IntArray]:
    return [rows[rows[:, REPLICA] == r] for r in range(int(rows[-1, REPLICA]) + 1)]


def _once(texts: list[str], listed: str) -> str:
    return texts[0] if len(set(texts)) == 1 else Phrase(listed, parts=tuple(texts))


def _together(texts: list[str]) -> str:
    return texts[0] if len(texts) == 1 else Phrase("list.together", parts=tuple(texts))


def _sizes(rows: IntArray) -> tuple[str, ...]:
    """Microbatches of the replicas; once if they are the same."""
    sizes = tuple(str(replica[0, MICROBATCH]) for replica in _replicas(rows))
    return sizes[:1] if len(set(sizes)) == 1 else sizes


def _cut(replica: IntArray) -> str:
    cuts = [int(stop) for stop in replica[:-1, STOP]]
    if not cuts:
        return Phrase("part.whole")
    return Phrase("part.cut", layer=cuts[0]) if len(cuts) == 1 else Phrase("part.cuts", layers=tuple(cuts))


def _usual(part: str, others: PlanBatch, domains: Sequence[str]) -> str:
    """What a part is in the others: listed if few, a range if they are places of one cut, else counted."""
    said = list(dict.fromkeys(say(part, *_plan(others, at), domains) for at in range(len(others))))
    layers = [text.values["layer"] for text in said if isinstance(text, Phrase) and text.message == "part.cut"]
    if len(said) > SPELT_OUT and len(layers) == len(said):
        return Phrase("part.cut_between", first=min(layers), last=max(layers))
    if len(said) > SPELT_OUT:
        return Phrase("part.one_of", count=len(said))
    if part == MICRO:
        sizes = {" + ".join(_sizes(_plan(others, at)[0])) for at in range(len(others))}
        return Phrase("part.microbatches", sizes=tuple(sorted(sizes, key=lambda text: (len(text), text))))
    return said[0] if len(said) == 1 else Phrase("list.alternatives", parts=tuple(said))


def _number(block: Block, rows: IntArray, schedule: int) -> float:
    """The number to draw a part by; NaN if it has none."""
    if block == (CUTS,):
        return float(rows[0, STOP])
    if block == (NUMBERS,):
        return float(np.mean([8 * PRECISIONS[at].element_bytes for at in rows[:, PRECISION]]))
    return float(rows[:, MICROBATCH].mean()) if block == (MICRO,) else float("nan")
