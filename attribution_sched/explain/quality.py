"""How good an explanation is: what it must pass before anybody believes it.

Shares that add up prove little: many wrong methods add up too. These checks look at what happens when inputs are taken
away, whether another seed tells the same, whether a network without knowledge is explained otherwise, and whether the
simulator agrees.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from attribution_sched.errors import ExplanationError, problem
from attribution_sched.explain.explanation import Explanation
from attribution_sched.shapley.game import Game
from attribution_sched.types import FloatArray

if TYPE_CHECKING:
    import torch
    from torch import nn


NOTHING = 1e-9
"""Shares below this part of the largest are rounding, not shares."""

TOP = 5
"""Leading players whose overlap is reported."""


@dataclass(frozen=True, eq=False)
class Curve:
    """An output while inputs are taken away (or given back) one after the other.

    Attributes:
        order: Players in the order they go.
        values: Mean output over the background after each, the start first, shape ``(P + 1,)``.
        area: Mean of the values between start and end, as a share of the way from the background mean (0) to the
            decision's own output (1).
    """

    order: tuple[str, ...]
    values: FloatArray
    area: float


def deletion(game: Game, explanation: Explanation, output: str | None = None, states: int = 32, seed: int = 0) -> Curve:
    """Take inputs away, those that speak most for the output first.

    A good explanation lets the output fall quickly: a small area.

    Args:
        game: The decision.
        explanation: Whose order is judged.
        output: Which output; the main one by default.
        states: Background states that what is taken away is replaced by, averaged over.
        seed: Of the draw of these states.
    """
    return _curve(game, explanation, output, states, seed, deleting=True)


def insertion(
    game: Game, explanation: Explanation, output: str | None = None, states: int = 32, seed: int = 0
) -> Curve:
    """Give inputs back to background states, those that speak most for the output first; a large area is good."""
    return _curve(game, explanation, output, states, seed, deleting=False)


def _curve(
    game: Game, explanation: Explanation, output: str | None, states: int, seed: int, *, deleting: bool
) -> Curve:
    column = explanation.column(output or explanation.main)
    shares = np.array([explanation.share(name, explanation.outputs[column]) for name in game.players])
    toward = np.sign(explanation.value[column] - explanation.base[column]) or 1.0
    order = np.argsort(-toward * shares, kind="stable")
    d = len(order)
    steps = np.zeros((d + 1, d), dtype=np.bool_)
    for k in range(d + 1):
        steps[k, order[:k]] = True
    coalitions = ~steps if deleting else steps
    rng = np.random.default_rng([seed, states])
    drawn = rng.choice(game.n_background, size=min(states, game.n_background), replace=False)
    values = game(np.repeat(coalitions, len(drawn), axis=0), np.tile(drawn, d + 1))
    mean = values[:, game.outputs.index(explanation.outputs[column])].reshape(d + 1, len(drawn)).mean(axis=1)
    full, empty = (mean[0], mean[-1]) if deleting else (mean[-1], mean[0])
    if abs(full - empty) < 1e-12:
        rule = "does not differ from the background mean"
        fix = "Judge a decision whose output does"
        raise ExplanationError(problem("output", float(full), rule, fix))
    area = float(np.trapezoid(mean, dx=1.0 / d) - empty) / float(full - empty)
    return Curve(tuple(game.players[i] for i in order), mean, area)


def rank_correlation(first: FloatArray, second: FloatArray) -> float:
    """Spearman's ρ of two vectors of shares; NaN if one of them is constant."""
    from scipy.stats import rankdata

    if len(first) < 2 or np.ptp(first) == 0.0 or np.ptp(second) == 0.0:
        return float("nan")
    return float(np.corrcoef(rankdata(first), rankdata(second))[0, 1])


@dataclass(frozen=True)
class Stability:
    """How alike explanations of one decision with several seeds are.

    Attributes:
        rank_correlation: Mean over pairs of seeds.
        overlap: Mean share of the leading :data:`TOP` players that two seeds have in common.
        seeds: How many seeds.
    """

    rank_correlation: float
    overlap: float
    seeds: int


def stability(run: Callable[[int], Explanation], seeds: Sequence[int], output: str | None = None) -> Stability:
    """Explain with several seeds and compare.

    Args:
        run: Explains the decision with a seed.
        seeds: At least two.
        output: Which output; the main one by default.
    """
    if len(seeds) < 2:
        raise ExplanationError(problem("seeds", list(seeds), "at least two are needed", "Use range(5)"))
    told = [run(seed) for seed in seeds]
    shares = [one.values[:, one.column(output or one.main)] for one in told]
    leading = [set(one.drivers(output, TOP)) for one in told]
    pairs = [(i, j) for i in range(len(told)) for j in range(i)]
    return Stability(
        float(np.mean([rank_correlation(shares[i], shares[j]) for i, j in pairs])),
        float(np.mean([len(leading[i] & leading[j]) / max(1, len(leading[i])) for i, j in pairs])),
        len(seeds),
    )


def randomised(network: nn.Module, generator: torch.Generator, *, only: str = "") -> nn.Module:
    """A copy of a network that has forgotten what it learnt: the entries of every weight are shuffled.

    Args:
        network: It.
        generator: Source of the shuffling.
        only: Shuffle only weights whose name begins so; all by default.
    """
    import copy

    import torch

    made = copy.deepcopy(network)
    with torch.no_grad():
        # What was fitted apart from learning by trial is kept in buffers.
        for name, weight in (*made.named_parameters(), *made.named_buffers()):
            if name.startswith(only) and weight.is_floating_point():
                order = torch.randperm(weight.numel(), generator=generator)
                weight.copy_(weight.reshape(-1)[order.to(weight.device)].reshape(weight.shape))
    return made


@dataclass(frozen=True)
class Agreement:
    """How far two explanations of one decision tell the same, per output.

    Players without a share in either are left out: a link that no plan uses agrees with anything.

    Attributes:
        outputs: Outputs that both have.
        rank_correlation: Spearman's ρ of the *sizes* of the shares: whether the same players drive the output, in the
            same order; NaN where one has no shares at all.
        signed_correlation: Spearman's ρ of the shares with their signs.
        same_sign: Share of the truth's mass with the right sign.
        same_leader: Whether the leading player is the same; False where one has no shares at all.
        players: How many players.
    """

    outputs: tuple[str, ...]
    rank_correlation: tuple[float, ...]
    signed_correlation: tuple[float, ...]
    same_sign: tuple[float, ...]
    same_leader: tuple[bool, ...]
    players: int


def agreement(explained: Explanation, truth: Explanation, groups: Sequence[str] | None = None) -> Agreement:
    """Compare an explanation with the truth, such as that of the simulator.

    Args:
        explained: What a policy's own critics tell.
        truth: What the simulator tells.
        groups: Compare only players of these families; all that both know by default.
    """
    known = {player.name: row for row, player in enumerate(truth.players)}
    pairs = [
        (row, known[player.name])
        for row, player in enumerate(explained.players)
        if player.name in known and (groups is None or player.group in groups)
    ]
    outputs = tuple(name for name in explained.outputs if name in truth.outputs)
    if not pairs or not outputs:
        rule = "has no player or no output in common with the truth"
        raise ExplanationError(problem("explanation", explained.decision, rule, "Compare explanations of one decision"))
    rows, others = (list(side) for side in zip(*pairs, strict=True))
    sizes, signed, signs, leaders = [], [], [], []
    for name in outputs:
        first = _rounded(explained.values[rows, explained.column(name)])
        second = _rounded(truth.values[others, truth.column(name)])
        matters = (first != 0.0) | (second != 0.0)
        first, second = first[matters], second[matters]
        sizes.append(rank_correlation(np.abs(first), np.abs(second)))
        signed.append(rank_correlation(first, second))
        mass = np.abs(second).sum()
        right = np.abs(second)[np.sign(first) == np.sign(second)].sum()
        signs.append(float(right / mass) if mass > 0 else float("nan"))
        moved = bool(first.any() and second.any())
        leaders.append(bool(moved and np.abs(first).argmax() == np.abs(second).argmax()))
    return Agreement(outputs, tuple(sizes), tuple(signed), tuple(signs), tuple(leaders), len(pairs))


def _rounded(shares: FloatArray) -> FloatArray:
    """Shares, rounding taken for nothing."""
    return np.where(np.abs(shares) > NOTHING * np.abs(shares).max(initial=0.0), shares, 0.0)
