"""Trees distilled from Hi-PPO's agents: what they say in states of whole days, learnt by one tree a head.

    days played by Hi-PPO              → states; what the agents say there → lessons of each head → trees
    days played by the trees, as well  → states that the trees come to; what the agents say there → more lessons → trees

The second line is DAgger (Ross et al., 2011): a tree that errs comes to states its teacher never saw. Growth is
scikit-learn's, best first, to at most :data:`~.trees.LEAVES` leaves; what is kept of it are arrays.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from attribution_sched.cluster.decision import Decision, Decisions
from attribution_sched.cluster.world import World
from attribution_sched.errors import SettingsError, problem
from attribution_sched.scheduler.episode import play
from attribution_sched.scheduler.glass_box.tree_policy import HiPpoTree, inputs_of
from attribution_sched.scheduler.glass_box.trees import (
    HEADS,
    LEAVES,
    Distilled,
    Trees,
    checked,
    joined,
)
from attribution_sched.scheduler.hi_ppo.agents import AgentsActor, Releases, Weighed
from attribution_sched.scheduler.hi_ppo.coordinator import HiPpo
from attribution_sched.scheduler.hi_ppo.decode import Planner
from attribution_sched.scheduler.hi_ppo.features import State
from attribution_sched.scheduler.hi_ppo.upper_agent import Agents
from attribution_sched.scheduler.policy import unhurried
from attribution_sched.types import BoolArray, FloatArray

_logger = logging.getLogger(__name__)

Lessons = dict[str, tuple[FloatArray, FloatArray]]
"""Head → inputs ``(n, inputs)`` and what the agents say ``(n,)``."""

FAR = {"layout": 0.4, "wait": 1.0, "task": 20.0, "move": 0.5}
"""What is said beyond this, either way, is no other choice: no leaf is spent on it."""

SMALLEST_LEAF = 25
"""Lessons of a leaf at least."""


class _Lessons:
    """Lessons that are being collected."""

    def __init__(self) -> None:
        self.rows: dict[str, list[tuple[FloatArray, FloatArray]]] = {head: [] for head in HEADS}

    def of(
        self, agents: Agents, decisions: Decisions, believed: FloatArray, fits: BoolArray, releases: Releases
    ) -> None:
        """Add what the agents say of a decision."""
        seen = inputs_of(agents, decisions, believed, fits, releases)
        for head, (x, said) in seen.items():
            if len(x):
                self.rows[head].append((x, said))

    def together(self) -> Lessons:
        """All of them."""
        return {
            head: (np.concatenate([x for x, _ in rows]), np.concatenate([said for _, said in rows]))
            if rows else (np.zeros((0, len(HEADS[head]))), np.zeros(0))
            for head, rows in self.rows.items()
        }  # fmt: skip


class _Taught(AgentsActor):
    """An actor by whose side the teacher is asked about every decision."""

    def __init__(self, own: AgentsActor, teacher: Agents, lessons: _Lessons) -> None:
        super().__init__(own.agents, own.decisions, own.believed, own.releases, must_act=own.must_act)
        self.teacher, self.lessons = teacher, lessons

    def _weigh(self, state: State) -> Weighed:
        if len(self.decisions) == 1 and len(state.mask) == 1:
            self.lessons.of(self.teacher, self.decisions, self.believed, state.mask[:, :-1], self.releases)
        return super()._weigh(state)


def lessons_of(worlds: Sequence[World], days: int, seed: int, teacher: HiPpo, trees: Trees | None = None) -> Lessons:
    """What the agents of a policy say in the states of whole days.

    Args:
        worlds: Where.
        days: How many of each.
        seed: Of the first.
        teacher: Whose agents are asked; it plays, too, unless trees do.
        trees: Who play; None for the teacher.
    """
    lessons = _Lessons()
    learnt = teacher.learnt

    class Player(HiPpo if trees is None else HiPpoTree):  # type: ignore[misc]
        def agents_actor(
            self, view: Decision, planner: Planner, decisions: Decisions, *, must_act: bool = False
        ) -> AgentsActor:
            own = super().agents_actor(view, planner, decisions, must_act=must_act)
            return _Taught(own, teacher.agents(planner), lessons)

    for world in worlds:
        player = Player(weights=learnt) if trees is None else Player(Distilled(trees, {}), weights=learnt)
        with unhurried(player):
            for day in range(days):
                play(world, player, seed + day)
    return lessons.together()


def grow(lessons: Lessons, leaves: int = LEAVES, seed: int = 0) -> Trees:
    """One tree a head of lessons.

    Args:
        lessons: From :func:`lessons_of`.
        leaves: Of a tree at most.
        seed: Between splits that are as good.
    """
    from sklearn.tree import DecisionTreeRegressor

    grown: dict[str, Mapping[str, Any]] = {}
    for head, (x, said) in lessons.items():
        y = np.clip(said, -FAR[head], FAR[head])
        smallest = max(1, min(SMALLEST_LEAF, len(x) // 100))
        tree = DecisionTreeRegressor(max_leaf_nodes=leaves, min_samples_leaf=smallest, random_state=seed)
        # float32 is what scikit-learn compares in: the kept thresholds then part the same rows.
        made = tree.fit(x.astype(np.float32), y, sample_weight=_weights(head, y)).tree_
        grown[head] = {
            "feature": made.feature, "threshold": made.threshold, "left": made.children_left,
            "right": made.children_right, "value": made.value[:, 0, 0], "cover": made.n_node_samples,
        }  # fmt: skip
    return checked(joined(grown))


USUAL = 64
"""Lessons of a head that are kept beside its tree."""


def usual_of(lessons: Lessons, seed: int = 0) -> dict[str, FloatArray]:
    """Lessons that stand for what a head is usually asked."""
    rng = np.random.default_rng(seed)
    return {head: x[rng.choice(len(x), min(USUAL, len(x)), replace=False)] for head, (x, _) in lessons.items()}


def _weights(head: str, said: FloatArray) -> FloatArray | None:
    """How much each lesson counts: of layouts those near the best, of the rest both answers alike."""
    if head == "layout":
        return np.exp(said / 0.1) + 0.05
    if head == "task":
        return None
    yes = max(1e-9, float((said > 0).mean()))
    return np.where(said > 0, 0.5 / yes, 0.5 / max(1e-9, 1.0 - yes)) if 0.0 < yes < 1.0 else None


ROUNDS, APART = 2, 10_000
"""Rounds of days that the trees play themselves, and how far the seeds of two rounds are apart."""


def distil(teacher: HiPpo, worlds: Sequence[tuple[World, int]], seed: int, rounds: int = ROUNDS) -> Distilled:
    """Trees that decide as a policy's agents do.

    Args:
        teacher: The policy.
        worlds: Where, and on how many days of each in a round.
        seed: Of the first days.
        rounds: Rounds after the first, played by the trees of the round before.
    """
    lessons: Lessons | None = None
    trees: Trees | None = None
    for number in range(1 + rounds):
        for world, days in worlds:
            more = lessons_of([world], days, seed + APART * number, teacher, trees)
            lessons = more if lessons is None else together(lessons, more)
        if lessons is None:
            raise SettingsError(problem("worlds", [], "must name at least one world", "Give a world and days"))
        trees = grow(lessons)
        counts = {head: len(x) for head, (x, _) in lessons.items()}
        _logger.info("Round %d of trees: lessons %s", number, counts)
    assert lessons is not None and trees is not None
    return Distilled(trees, usual_of(lessons))


def together(some: Lessons, more: Lessons) -> Lessons:
    """Lessons of two collections."""
    return {head: (np.concatenate([some[head][0], more[head][0]]), np.concatenate([some[head][1], more[head][1]]))
            for head in HEADS}  # fmt: skip
