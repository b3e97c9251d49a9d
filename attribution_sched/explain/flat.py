"""Explain any model that reads one flat vector: a network, a Stable-Baselines3 policy, a plain function."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attribution_sched.errors import ExplanationError, problem
from attribution_sched.explain.digits import number
from attribution_sched.explain.explanation import COMPONENTS, TOTAL, Explanation, estimated
from attribution_sched.explain.findings import Player
from attribution_sched.explain.recorder import Decided
from attribution_sched.explain.targets import with_total
from attribution_sched.scheduler.policy import Policy, TreeReader
from attribution_sched.shapley.budget import Rows
from attribution_sched.shapley.estimate import Estimate
from attribution_sched.shapley.explain import estimate_many
from attribution_sched.shapley.game import BatchGame
from attribution_sched.shapley.tabular import Model, TabularGame
from attribution_sched.shapley.tree import FlatTree, explain_tree
from attribution_sched.types import BoolArray, FloatArray, IntArray
from attribution_sched.words.say import Phrase, in_language, say

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, eq=False)
class Totalled:
    """A game whose outputs are R_eff, R_util and R_cost, with their weighted sum R as a fourth.

    Attributes:
        game: The game.
        weights: w_eff, w_util and w_cost, shape ``(3,)``.
    """

    game: BatchGame
    weights: FloatArray
    outputs: tuple[str, ...] = (*COMPONENTS, TOTAL)

    @property
    def players(self) -> tuple[str, ...]:
        """Names of the players."""
        return self.game.players

    @property
    def n_background(self) -> int:
        """Number of background states."""
        return self.game.n_background

    @property
    def n_decisions(self) -> int:
        """Number of decisions."""
        return self.game.n_decisions

    def __call__(self, coalitions: BoolArray, background: IntArray, decision: IntArray) -> FloatArray:
        """Components and their sum, ``(n, 4)``."""
        return with_total(self.game(coalitions, background, decision), self.weights)


class FlatExplainer:
    """Explains outputs of a model of flat vectors.

    Args:
        model: A torch module (float32, without gradients) or a function from ``(n, f)`` to ``(n, C)`` or ``(n,)``; a
            :class:`~attribution_sched.shapley.tree.FlatTree` is explained exactly, leaf by leaf.
        background: Real inputs to compare with, shape ``(M, f)``.
        names: Names of the f inputs.
        groups: Inputs by player, ``{"gpu 0": [0, 4, 9], …}``; every input belongs to one player. None makes every input
            a player.
        outputs: Names of the outputs. R_eff, R_util and R_cost in this order get R as a fourth if weights are given.
        weights: w_eff, w_util and w_cost.
        policy: Name of the model, for the record.
    """

    def __init__(
        self,
        model: nn.Module | Model,
        background: ArrayLike,
        names: Sequence[str],
        *,
        groups: Mapping[str, Sequence[int]] | None = None,
        outputs: Sequence[str] = ("value",),
        weights: tuple[float, float, float] | None = None,
        policy: str = "model",
    ) -> None:
        self.model = model
        self.background: NDArray[np.float64] = np.asarray(background, dtype=np.float64)
        self.names = tuple(names)
        if self.background.ndim != 2 or len(self.background) == 0:
            rule = "must be (states, inputs) with at least one state"
            raise ExplanationError(problem("background.shape", self.background.shape, rule, "Pass real inputs"))
        if self.background.shape[1] != len(self.names):
            rule = f"must have one column per name, {len(self.names)}"
            raise ExplanationError(problem("background.shape", self.background.shape, rule, "Name every input once"))
        self.groups = None if groups is None else {name: list(at) for name, at in groups.items()}
        self.outputs = tuple(outputs)
        self.weights = weights
        if weights is not None and self.outputs != COMPONENTS:
            rule = f"must be {COMPONENTS} where weights are given"
            raise ExplanationError(problem("outputs", self.outputs, rule, "Leave the weights out"))
        self.policy = policy

    def explain(
        self,
        x: ArrayLike,
        *,
        decision: str = "0",
        subject: str = "",
        method: str = "auto",
        precision: float | None = None,
        rows: Rows | None = None,
        time_s: float | None = None,
        seed: int = 0,
    ) -> Explanation:
        """Explain the outputs at one input ``(f,)``; see :func:`~.shapley.explain.estimate` for the rest."""
        return self.explain_many(
            np.asarray(x, dtype=np.float64)[None], decisions=[decision], subjects=[subject], method=method,
            precision=precision, rows=rows, time_s=time_s, seed=seed,
        )[0]  # fmt: skip

    def explain_many(
        self,
        x: ArrayLike,
        *,
        decisions: Sequence[str] | None = None,
        subjects: Sequence[str] | None = None,
        method: str = "auto",
        precision: float | None = None,
        rows: Rows | None = None,
        time_s: float | None = None,
        seed: int = 0,
        progress: bool = False,
    ) -> list[Explanation]:
        """Explain the outputs at many inputs ``(n, f)`` in one batched call."""
        began = time.perf_counter()
        inputs = np.asarray(x, dtype=np.float64)
        if isinstance(self.model, FlatTree) and method in ("auto", "exact") and self.weights is None:
            game = TabularGame(self.model, inputs, self.background, self.groups, names=self.names)
            found = explain_tree(self.model, inputs, self.background, game.players, game.member, self.outputs[0])
        else:
            found = estimate_many(
                self.game(inputs), method=method, budget_rows=rows, precision=precision, time_s=time_s, seed=seed,
                progress=progress or None,
            )  # fmt: skip
        seconds = (time.perf_counter() - began) / len(inputs)
        ids = [str(i) for i in range(len(inputs))] if decisions is None else list(decisions)
        said = [""] * len(inputs) if subjects is None else list(subjects)
        return [self._explanation(row, found[i], ids[i], said[i], seconds) for i, row in enumerate(inputs)]

    def game(self, x: NDArray[np.float64]) -> BatchGame:
        """Inputs ``(n, f)`` as games."""
        game = TabularGame(self.model, x, self.background, self.groups, names=self.names, outputs=self.outputs)
        return game if self.weights is None else Totalled(game, np.array(self.weights))

    def _explanation(
        self, x: NDArray[np.float64], found: Estimate, decision: str, subject: str, seconds: float
    ) -> Explanation:
        at = {name: [i] for i, name in enumerate(self.names)} if self.groups is None else self.groups
        players = []
        for name in found.players:
            own, usual = x[at[name]], self.background[:, at[name]].mean(axis=0)
            number, mean = (float(own[0]), float(usual[0])) if len(own) == 1 else (float("nan"), float("nan"))
            players.append(Player(name, "input", _words(own), _words(usual), number, mean))
        return Explanation(
            decision=decision,
            policy=self.policy,
            subject=subject,
            target="model",
            players=tuple(players),
            **estimated(found),
            weights=self.weights,
            background_name=Phrase("background.inputs", count=len(self.background)),
            seconds=seconds,
        )


def _words(values: NDArray[np.float64]) -> str:
    return ", ".join(f"{value:.3g}" for value in values[:4]) + (", …" if len(values) > 4 else "")


# ------ What decision trees said at a decision: the way down each, and exact Shapley shares of its inputs
#
# A policy that decides by trees (:class:`~attribution_sched.scheduler.policy.TreeReader`) needs no sampling: what a
# tree says is shared out leaf by leaf, against the inputs that it is usually asked about, which are kept beside it.

SHOWN = 4
"""Shares that are told."""


def tree_readings(policy: Policy, decided: Decided) -> tuple[Explanation, ...]:
    """An explanation of each tree that had a say, exact; none for a policy without trees.

    Args:
        policy: Who decided.
        decided: The decision.
    """
    if not isinstance(policy, TreeReader):
        return ()
    found = []
    for reading in policy.readings(decided.view, decided.plan):
        nodes = {name: np.asarray(reading.nodes[name]) for name in ("feature", "threshold", "left", "right", "value")}
        explainer = FlatExplainer(
            FlatTree(**nodes), reading.usual, reading.inputs, outputs=(reading.head,), policy=policy.name
        )
        way = " · ".join(
            f"{name} {number(value)} {'≤' if value <= limit else '>'} {number(limit)}"
            for name, value, limit in reading.path
        )
        found.append(explainer.explain(reading.x, decision=decided.id, subject=way))
    return tuple(found)


def reading_words(reading: Explanation, lang: str = "en") -> str:
    """A tree's reading in one sentence: what it says, its way down, and the largest shares."""
    head = reading.outputs[0]
    shares = reading.values[:, 0]
    order = np.argsort(-np.abs(shares), kind="stable")[:SHOWN]
    told = tuple(
        f"{reading.players[i].name} {number(float(shares[i]), 2, signed=True)}" for i in order if shares[i] != 0.0
    )
    return in_language(
        Phrase(
            "tree.reading",
            head=say("tree.head", lang, variant=head),
            value=number(float(reading.value[0]), 3, signed=True),
            usual=number(float(reading.base[0]), 3, signed=True),
            path=tuple(str(reading.subject).split(" · ")),
            shares=told or (say("tree.none", lang),),
        ),
        lang,
    )
