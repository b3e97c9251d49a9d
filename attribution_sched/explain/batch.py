"""Many decisions as one batch of games: what is worked out for each decision alone is worked out for all at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from attribution_sched.cluster.decision import Decisions
from attribution_sched.cluster.plan import Plan
from attribution_sched.errors import ExplanationError, problem
from attribution_sched.explain.background import Alike, Background
from attribution_sched.explain.games import DecisionGame
from attribution_sched.explain.masked_states import Blender, stacked, widened
from attribution_sched.explain.players import Lineup
from attribution_sched.explain.preference import Foil
from attribution_sched.explain.recorder import Decided
from attribution_sched.explain.targets import AppraisedComponents, with_total
from attribution_sched.scheduler.policy import Appraiser, BatchAppraiser, Selective
from attribution_sched.types import BoolArray, FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class Prepared:
    """A decision ready to be explained.

    Attributes:
        decided: The decision.
        seen: It, with room for as many candidates as the background has.
        alike: What it is compared with.
        blend: Puts its situations together.
        against: The plan it is compared with, if any.
        contrasted: Whether it is compared with a plan, or with nothing done.
        game: It as a game.
        notes: What a reader must know.
        foil: What the policy does instead, where the decision itself is explained.
    """

    decided: Decided
    seen: Decisions
    alike: Alike
    blend: Blender
    against: Plan | None
    contrasted: bool
    game: DecisionGame
    notes: tuple[str, ...]
    foil: Foil | None = None

    @property
    def background(self) -> Background:
        """The states it is compared with."""
        return self.alike.background

    @property
    def cast(self) -> Lineup:
        """All players."""
        return self.alike.cast


@dataclass(frozen=True, eq=False)
class ManyDecisions:
    """Decisions with the same players and background as one batch of games.

    Attributes:
        alike: What they are compared with.
        seen: The D decisions.
        seats: Where the players in the games stand among all of the line-up, shape ``(d,)``.
        targets: What is asked of each decision, all alike but for view, plan and weights.
        blend: Puts situations of all of them together.
    """

    alike: Alike
    seen: Decisions
    seats: IntArray
    targets: tuple[AppraisedComponents, ...]
    blend: Blender

    @property
    def players(self) -> tuple[str, ...]:
        """Names of the players."""
        return tuple(self.alike.cast.names[i] for i in self.seats)

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the outputs."""
        return self.targets[0].outputs

    @property
    def n_background(self) -> int:
        """Number of background states."""
        return len(self.alike.background)

    @property
    def n_decisions(self) -> int:
        """Number of decisions."""
        return len(self.targets)

    def __call__(self, coalitions: BoolArray, background: IntArray, decision: IntArray) -> FloatArray:
        """Outputs of coalitions of the players in the games; everybody else is present."""
        everybody = np.ones((len(coalitions), len(self.alike.cast.names)), dtype=np.bool_)
        everybody[:, self.seats] = coalitions
        situations = self.blend(everybody, background, decision)
        first = self.targets[0]
        assert isinstance(first.policy, BatchAppraiser)
        views, plans = [one.view for one in self.targets], [one.plans[0] for one in self.targets]
        said = first.policy.appraise_each(views, situations, decision, plans)
        return with_total(said.terms[:, 0], self.seen.weights[decision])


@dataclass(frozen=True, eq=False)
class Batch:
    """Decisions with the same players and background.

    Attributes:
        members: Their places among all decisions.
        game: One game for all of them, or one each.
        seats: Where the players in the games stand among all of the line-up, shape ``(d,)``.
        seen: The decisions.
        alike: What they are compared with.
        notes: What a reader must know of each.
    """

    members: Sequence[int]
    game: ManyDecisions | list[DecisionGame]
    seats: IntArray
    seen: Decisions
    alike: Alike
    notes: Sequence[tuple[str, ...]]

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the outputs."""
        return self.game.outputs if isinstance(self.game, ManyDecisions) else self.game[0].outputs


def one_by_one(prepared: Sequence[Prepared]) -> list[Batch]:
    """Decisions that have to be judged each by itself, those with the same players and background together."""
    groups: dict[tuple[object, ...], list[int]] = {}
    for i, ready in enumerate(prepared):
        groups.setdefault((ready.game.players, id(ready.background)), []).append(i)
    batches = []
    for members in groups.values():
        some, first = [prepared[i] for i in members], prepared[members[0]]
        games, notes = [ready.game for ready in some], [ready.notes for ready in some]
        seen = stacked([ready.seen for ready in some])
        batches.append(Batch(members, games, first.game.seats, seen, first.alike, notes))
    return batches


def side_by_side(
    policy: Appraiser,
    decisions: Sequence[Decided],
    background: Background,
    like: Callable[[Decisions, tuple[str, ...]], Alike],
) -> list[Batch]:
    """Prepare decisions for a policy that judges many at once.

    Args:
        policy: It.
        decisions: The decisions.
        background: All states there are to compare with.
        like: Gives what a decision of a cluster with these domains is compared with.
    """
    groups: dict[tuple[tuple[str, ...], int, bool, int], list[int]] = {}
    widest = background.states.kind.shape[1]
    names: dict[int, tuple[str, ...]] = {}
    for i, one in enumerate(decisions):
        seen, cluster = one.seen, one.view.cost.cluster
        if id(cluster) not in names:
            names[id(cluster)] = tuple(domain.name for domain in cluster.domains)
        width = max(seen.kind.shape[1], widest)
        kind = (names[id(cluster)], width, bool(seen.replanning[0]), int(seen.kind[0, 0]))
        groups.setdefault(kind, []).append(i)
    batches = []
    for (domains, width, *_), members in groups.items():
        seen = widened(stacked([decisions[i].seen for i in members]), width)
        seen.check()
        alike = like(seen, domains)
        targets = [
            AppraisedComponents(policy, decisions[i].view, (decisions[i].plan,), seen.weights[row])
            for row, i in enumerate(members)
        ]
        blend = Blender.of(seen, alike.background.states, alike.cast.owners)
        for rows, seats in _by_players(alike, seen, targets):
            refuse_none(seats, alike.background)
            some = seen.take(np.array(rows))
            mine = replace(blend, decisions=some).only(seats)
            game = ManyDecisions(alike, some, seats, tuple(targets[row] for row in rows), mine)
            batches.append(Batch([members[row] for row in rows], game, seats, some, alike, [()] * len(rows)))
    return batches


def refuse_none(seats: IntArray, background: Background) -> None:
    """Refuse a decision in which no player can have a share."""
    if len(seats) == 0:
        rule = "is the same as the decision in every input that matters"
        raise ExplanationError(problem("background", background.name, rule, "Use states that differ from it"))


def _by_players(
    alike: Alike, seen: Decisions, targets: Sequence[AppraisedComponents]
) -> list[tuple[list[int], IntArray]]:
    """Decisions and seats ``(d,)`` of the players that can have a share in them."""
    differing = alike.differing(seen)
    policy = targets[0].policy
    selective = policy if isinstance(policy, Selective) else None
    groups: dict[bytes, list[int]] = {}
    known: dict[tuple[object, bytes], bytes] = {}
    for row, target in enumerate(targets):
        key = (None if selective is None else selective.terms_read(target.plans), differing[row].tobytes())
        if key not in known:
            known[key] = target.movable(alike.cast, differing[row]).tobytes()
        groups.setdefault(known[key], []).append(row)
    return [(rows, np.flatnonzero(np.frombuffer(key, dtype=np.bool_))) for key, rows in groups.items()]
