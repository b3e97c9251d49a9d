"""What the ranker learns from: decisions of whole days, every candidate of each forked under the same futures.

    Q(a) = R of the copy in which a was chosen,  per component, mean over the futures;  noise from their paired spread

Futures come in two halves, so that what was chosen by one can be judged by the other.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from attribution_sched.cluster.decision import Decision, Decisions
from attribution_sched.cluster.plan import Plan
from attribution_sched.cluster.world import World
from attribution_sched.errors import CheckpointError, problem
from attribution_sched.scheduler.episode import play
from attribution_sched.scheduler.hi_ppo.candidate_features import EDGE, FEATURES, NODE, Described
from attribution_sched.scheduler.hi_ppo.coordinator import Experience, HiPpo
from attribution_sched.scheduler.hi_ppo.decode import Planner
from attribution_sched.scheduler.thinking import Option, Think, Thinker, Thought, decision_seed, reward_scale
from attribution_sched.types import FloatArray, IntArray

MOST = 16
"""Candidates of a decision that are kept."""

MOST_DOMAINS = 16


@dataclass(frozen=True, eq=False)
class ForkedDecisions:
    """N decisions with their forked candidates, padded to A candidates and K domains.

    Attributes:
        candidates: Shape ``(N, A, len(FEATURES))``.
        group: Upper choice of every candidate, shape ``(N, A)``.
        domain: First domain of every candidate, shape ``(N, A)``.
        there: Which candidates exist, shape ``(N, A)``.
        nodes: Shape ``(N, K, len(NODE))``.
        edges: Shape ``(N, K, K, len(EDGE))``.
        standing: Which domains exist, shape ``(N, K)``.
        q: R over the own choice, in units of the world's, per candidate and future, shape ``(N, A, F)``.
        components: Mean R_eff, R_util and R_cost over the own choice's, shape ``(N, A, 3)``.
        day: Seed of the day, shape ``(N,)``.
        world: Number of the world it is of, shape ``(N,)``; how noisy futures are differs between worlds.
    """

    candidates: FloatArray
    group: IntArray
    domain: IntArray
    there: FloatArray
    nodes: FloatArray
    edges: FloatArray
    standing: FloatArray
    q: FloatArray
    components: FloatArray
    day: IntArray
    world: IntArray

    def __len__(self) -> int:
        return len(self.day)

    def save(self, path: Path) -> None:
        """Write the arrays."""
        np.savez_compressed(path, **{field.name: getattr(self, field.name) for field in fields(self)})

    @classmethod
    def load(cls, *paths: Path) -> ForkedDecisions:
        """Read files and put them together.

        Raises:
            CheckpointError: If one is damaged, or was written with other numbers of candidates, tasks or moments.
        """
        held = [_read(path) for path in paths]
        return cls(**{field.name: np.concatenate([one[field.name] for one in held]) for field in fields(cls)})

    def take(self, rows: IntArray) -> ForkedDecisions:
        """Some of the decisions."""
        return ForkedDecisions(**{field.name: getattr(self, field.name)[rows] for field in fields(self)})


ROW_SHAPES = {
    "candidates": (MOST, len(FEATURES)), "group": (MOST,), "domain": (MOST,), "there": (MOST,),
    "nodes": (MOST_DOMAINS, len(NODE)), "edges": (MOST_DOMAINS, MOST_DOMAINS, len(EDGE)), "standing": (MOST_DOMAINS,),
    "q": (MOST, 1), "components": (MOST, 3), "day": (), "world": (),
}  # fmt: skip
"""Shape of one decision in every array of :class:`ForkedDecisions`; futures are as many as were asked for."""


def _read(path: Path) -> dict[str, FloatArray]:
    """One file, if it holds what is written today."""
    fix = "Delete it: training forks that day again"
    try:
        with path.open("rb") as raw, np.load(raw) as opened:
            held = {name: np.asarray(opened[name]) for name in opened.files}
    except (OSError, ValueError, BadZipFile) as error:
        raise CheckpointError(problem("forked decisions", str(path), "cannot be read, or are damaged", fix)) from error
    for name, shape in ROW_SHAPES.items():
        found = held[name].shape[1:] if name in held else None
        if found is None or (found[:-1] if name == "q" else found) != (shape[:-1] if name == "q" else shape):
            rule = f"are of another version: {name} of a decision has shape {found}, now {shape}"
            raise CheckpointError(problem("forked decisions", str(path), rule, fix))
    return held


class ForkingHiPpo(HiPpo):
    """Hi-PPO that forks every candidate of its decisions, writes down what was found, and acts as it would have.

    Copies are played on by what decides itself: by the agents, and by the ranker too if they have one. Candidates are
    told from the agents' own choice in either case: a ranker adds to their log-odds.
    """

    thinks_where_full = False

    def __init__(self, futures: int = 16, **options: object) -> None:
        super().__init__(think=Think(screen=1, confirm=futures), deadline_s=np.inf, **options)  # type: ignore[arg-type]
        self.futures = futures
        self.rows: list[tuple[Described, FloatArray, FloatArray]] = []

    def thinker(self) -> Thinker:
        """Who forks for it."""
        if self._thinker is None:
            learnt = self.learnt
            self._thinker = Thinker(self.think or Think(), self.attributions, learnt.theta, ranker=learnt.ranker)
        return self._thinker

    def _rank(
        self, view: Decision, planner: Planner, decisions: Decisions, slot: int, plan: Plan | None, source: str
    ) -> tuple[int, Plan | None, str, Experience | None]:
        self._fork(view, planner, decisions, slot, plan)
        return super()._rank(view, planner, decisions, slot, plan, source)

    def _think(
        self, view: Decision, planner: Planner, decisions: Decisions, slot: int, plan: Plan | None, others: int
    ) -> Thought | None:
        if self.learnt.ranker is None:
            self._fork(view, planner, decisions, slot, plan)
        return None

    def _fork(self, view: Decision, planner: Planner, decisions: Decisions, slot: int, plan: Plan | None) -> None:
        listed = self.listed(view, planner, decisions, slot, plan)
        if len(listed) > 1:
            self.write(view, planner, listed[:MOST])

    def write(self, view: Decision, planner: Planner, listed: list[Option]) -> None:
        """Fork the candidates of a decision and keep what was found."""
        worth = self.thinker().worths(view, planner, listed, self.futures, decision_seed(view), 0)
        if worth is None:
            return
        totals, terms = worth
        unit = min(1.0, reward_scale(view.kinds, view.base_step_s, view.reward.interval_s))
        self.rows.append((self.described(view, planner, listed), totals / unit, terms / unit))


def collect(world: World, seeds: range, futures: int = 16, number: int = 0, **options: object) -> ForkedDecisions:
    """Play days of a world and fork all their decisions.

    Args:
        world: The world.
        seeds: Of the days.
        futures: That every candidate meets.
        number: Of the world, among those that are learnt from.
        options: Of :class:`~.coordinator.HiPpo`.
    """
    return collect_by(ForkingHiPpo(futures, **options), world, seeds, number)


def collect_by(policy: ForkingHiPpo, world: World, seeds: range, number: int = 0) -> ForkedDecisions:
    """The same by a policy that is kept: its tables are made once, and it has counted what was followed."""
    day, rows, futures = list[int](), list[tuple[Described, FloatArray, FloatArray]](), policy.futures
    for seed in seeds:
        policy.rows = []
        play(world, policy, seed)
        rows += policy.rows
        day += [seed] * len(policy.rows)
    n, a, k = len(rows), MOST, MOST_DOMAINS
    made = ForkedDecisions(
        np.zeros((n, a, len(FEATURES)), dtype=np.float32), np.full((n, a), -2, dtype=np.int64),
        np.full((n, a), -1, dtype=np.int64), np.zeros((n, a), dtype=np.float32),
        np.zeros((n, k, len(NODE)), dtype=np.float32), np.zeros((n, k, k, len(EDGE)), dtype=np.float32),
        np.zeros((n, k), dtype=np.float32), np.zeros((n, a, futures), dtype=np.float32),
        np.zeros((n, a, 3), dtype=np.float32), np.array(day, dtype=np.int64), np.full(n, number, dtype=np.int64),
    )  # fmt: skip
    for i, (seen, q, terms) in enumerate(rows):
        many, nodes = len(seen.candidates), len(seen.nodes)
        made.candidates[i, :many] = seen.candidates
        made.group[i, :many], made.domain[i, :many] = seen.group, seen.domain
        made.there[i, :many], made.nodes[i, :nodes], made.standing[i, :nodes] = 1.0, seen.nodes, 1.0
        made.edges[i, :nodes, :nodes] = seen.edges
        made.q[i, :many], made.components[i, :many] = q, terms
    return made
