"""Interactions of a game as findings."""

from __future__ import annotations

from collections.abc import Sequence
from math import isinf

from attribution_sched.explain.findings import Interaction
from attribution_sched.explain.shapley.game import Game
from attribution_sched.explain.shapley.interactions import interactions


def strongest_pairs(
    game: Game, players: Sequence[str] | None, *, rows: int, seed: int, reading: str
) -> tuple[Interaction, ...]:
    """All pairs among some players (or all), per output, the strongest first.

    Args:
        game: The decision.
        players: Whose pairs; None for all.
        rows: Most situations to evaluate.
        seed: Of the sampling.
        reading: What the background stands for, ``sample`` or ``population``.
    """
    found = interactions(game, players, budget_rows=rows, seed=seed, background=reading)
    degrees = 0 if isinf(found.freedom) else max(1, int(found.freedom))
    listed = [
        Interaction(
            found.players[i], found.players[j], output, float(value), float(found.standard_error[i, j, c]), degrees
        )
        for j in range(len(found.players))
        for i in range(j)
        for c, (output, value) in enumerate(zip(found.outputs, found.values[i, j], strict=True))
    ]
    return tuple(sorted(listed, key=lambda pair: -abs(pair.value)))
