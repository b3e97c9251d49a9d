"""Which decisions matter most: those that commit most device-hours.

A decision that places or moves a task occupies so many devices for as long as the remaining steps take:
devices × step time × steps left. Decisions to wait or to stay commit nothing and are not ranked.
"""

from __future__ import annotations

from collections.abc import Sequence

from attribution_sched.report.data import Moment


def consequential(moments: Sequence[Moment], most: int) -> list[Moment]:
    """So many decisions, the largest first; of each kind of task one, and further ones only when kinds run out."""
    ranked = sorted(
        (moment for moment in moments if moment.device_hours is not None),
        key=lambda moment: -(moment.device_hours or 0.0),
    )
    turn: dict[str, int] = {}
    rounds: list[tuple[int, int, Moment]] = []
    for rank, moment in enumerate(ranked):
        rounds.append((turn.get(moment.kind, 0), rank, moment))
        turn[moment.kind] = turn.get(moment.kind, 0) + 1
    chosen = sorted(rounds, key=lambda entry: entry[:2])[:most]
    return [moment for _, _, moment in sorted(chosen, key=lambda entry: entry[1])]


def spread(moments: Sequence[Moment], most: int) -> list[Moment]:
    """So many of them at equal distances."""
    count = min(most, len(moments))
    return [moments[(2 * i + 1) * len(moments) // (2 * count)] for i in range(count)]
