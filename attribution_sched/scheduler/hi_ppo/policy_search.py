"""How the agents learn: whole simulated days, many corrections of them on the same days, the better half kept.

    θ_i = m + σ·ε_i,   A_i = J(θ_i; days) − mean_j J(θ_j; days),   days the same for all i of a group
    m ← m + σ·Σ_ranked w_i ε_i,   C ← (1 − c₁ − c_μ)·C + c₁·p pᵀ + c_μ·Σ_ranked w_i ε_i ε_iᵀ

Returns of days differ by 41, those of two policies on the same day by 3, so everybody of a group meets the same days
(Mao et al., ICLR 2019), and what is explored are the agents' numbers, not single choices: a correction acts in every
decision of a day, so its effect adds up where the noise of single choices does not. That is CMA-ES (Hansen) with
same-day groups. Compiled days make it cheap: hundreds of them a second of one core.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from attribution_sched.attribution.vector import state_vectors
from attribution_sched.cluster.demands import DEMAND_NAMES
from attribution_sched.cluster.engine import state as st
from attribution_sched.cluster.engine.engine import Engine
from attribution_sched.cluster.fork import Belief, Copies
from attribution_sched.cluster.reward import total_of
from attribution_sched.cluster.world import World
from attribution_sched.errors import SettingsError, problem
from attribution_sched.scheduler.beliefs import AttributionBeliefs
from attribution_sched.scheduler.hi_ppo.checkpoint import Weights
from attribution_sched.scheduler.hi_ppo.decode import Planner
from attribution_sched.scheduler.hi_ppo.upper_agent import SCALES, SIZE, rule_theta
from attribution_sched.scheduler.rule_follower import RuleFollower
from attribution_sched.types import FloatArray

TASKS = 2_000
"""Tasks of a day that the ledger has room for."""

STEP = 0.5
"""How far the first group spreads, in units of :data:`~.upper_agent.SCALES`."""


class Days:
    """Whole days of a world, played by the rule or by the agents in compiled form.

    Args:
        world: The world.
        days: How many side by side.
        weights: Whose attributions count.

    Attributes:
        tasks: Row of the world's pool → the task.
        planner: Tables of the cluster.
        decided: Decisions that were taken in all.
    """

    def __init__(self, world: World, days: int, weights: Weights) -> None:
        self.world, self.days = world, days
        self.engine = engine = Engine(world, days)
        engine.pool = engine.pool.attributed(state_vectors(weights.attributions, DEMAND_NAMES))
        kinds, beliefs = engine.arrays.kinds, AttributionBeliefs(world, weights.attributions)
        base = kinds[:, st.K_BASE_STEP].copy(), kinds[:, st.K_BASE_COST].copy()
        planner = Planner.of(engine.cost, world.kinds, *base, world.max_segments, beliefs.paces)
        self.tasks = {row: engine.pool.task(row, world.kinds) for row in range(len(engine.pool))}
        believed = beliefs.of(list(self.tasks.values()))
        self.planner = planner
        self.rule, self.agents = RuleFollower(planner, world), RuleFollower(planner, world, rule_theta())
        self.decided = 0
        self.believe(believed)

    def believe(self, believed: Belief) -> None:
        """From now on, let this be believed of the tasks of the world's pool."""
        self._believed = np.column_stack([believed.pace, believed.mean[:, :3]])

    def returns(self, theta: FloatArray | None, seed: int) -> FloatArray:
        """Return of every day, shape ``(days,)``, by the agents with these numbers, or by the rule."""
        reward = self.world.reward
        weights = np.array([reward.w_eff, reward.w_util, reward.w_cost])
        return np.asarray(total_of(self.sums(theta, seed)[:, 2:5], weights))

    def sums(self, theta: FloatArray | None, seed: int) -> FloatArray:
        """Columns of the ledger summed over the tasks of every day, shape ``(days, 8)``; times mean nothing."""
        follower = self.rule if theta is None else self.agents
        if theta is not None:
            follower.learnt.agents.theta[:] = theta
        return self.played(follower, seed)

    def played(self, follower: RuleFollower, seed: int) -> FloatArray:
        """The same by a follower of this cluster."""
        copies = self.copies(seed)
        self.decided += follower.play(copies)
        return np.asarray(copies.ledger.sum(axis=1))

    def copies(self, seed: int) -> Copies:
        """The days at their beginning, as followers play them."""
        engine, n = self.engine, self.days
        engine.seed([seed + day for day in range(n)])
        engine.reset()
        nothing = np.zeros(n, dtype=np.int64)
        ledger = np.zeros((n, TASKS, 8))
        ledger[:, :, :2] = np.nan
        return Copies(
            engine.arrays, engine.state, nothing, nothing,
            np.zeros((n, self.world.max_segments, 5), dtype=np.int64), self._believed, ledger, np.zeros((n, 3)),
            nothing.copy(), not self.world.reward.per_decision, engine._scratch, self.tasks,
            np.ones((n, TASKS), dtype=np.bool_),
        )  # fmt: skip


@dataclass(frozen=True, eq=False)
class Search:
    """Where a search stands between two groups; all of it goes into a checkpoint.

    Attributes:
        mean: Centre, in units of the scales and from the rule's numbers, shape ``(SIZE,)``.
        covariance: Shape of the next group, shape ``(SIZE, SIZE)``.
        path: Evolution path of the covariance, shape ``(SIZE,)``.
        step_path: Evolution path of the step, shape ``(SIZE,)``.
        step: How far a group spreads.
        groups: Groups that were played.
    """

    mean: FloatArray
    covariance: FloatArray
    path: FloatArray
    step_path: FloatArray
    step: float = STEP
    groups: int = 0

    @classmethod
    def begun(cls, theta: FloatArray | None = None) -> Search:
        """At the rule, or at other numbers."""
        mean = np.zeros(SIZE) if theta is None else (theta - rule_theta()) / SCALES
        return cls(mean, np.eye(SIZE), np.zeros(SIZE), np.zeros(SIZE))

    @property
    def theta(self) -> FloatArray:
        """What the agents have learnt so far, shape ``(SIZE,)``."""
        return rule_theta() + SCALES * self.mean


def next_group(search: Search, worth: Callable[[FloatArray], float], size: int, seed: int) -> Search:
    """Play one group and move toward its better half.

    Args:
        search: Where the search stands.
        worth: What numbers ``(SIZE,)`` are worth on the days of this group.
        size: Members of the group, half of them mirror images of the others.
        seed: Of the draws.
    """
    if size < 4 or size % 2:
        raise SettingsError(problem("group", size, "must be even and >= 4", "Use 20"))
    n, half = SIZE, size // 2
    ranked = np.log(half + 0.5) - np.log(np.arange(1, half + 1))
    ranked /= ranked.sum()
    mass = 1.0 / float((ranked**2).sum())
    c_path = (4.0 + mass / n) / (n + 4.0 + 2.0 * mass / n)
    c_step = (mass + 2.0) / (n + mass + 5.0)
    c_one = 2.0 / ((n + 1.3) ** 2 + mass)
    c_many = min(1.0 - c_one, 2.0 * (mass - 2.0 + 1.0 / mass) / ((n + 2.0) ** 2 + mass))
    damping = 1.0 + 2.0 * max(0.0, float(np.sqrt((mass - 1.0) / (n + 1.0))) - 1.0) + c_step
    expected = np.sqrt(n) * (1.0 - 1.0 / (4.0 * n) + 1.0 / (21.0 * n * n))
    root = np.linalg.cholesky(search.covariance)
    drawn = np.random.default_rng([seed, search.groups]).standard_normal((half, n))
    moved = np.concatenate([drawn, -drawn]) @ root.T
    values = np.array([worth(rule_theta() + SCALES * (search.mean + search.step * y)) for y in moved])
    better = moved[np.argsort(-values, kind="stable")[:half]]
    toward = ranked @ better
    step_path = (1.0 - c_step) * search.step_path + np.sqrt(c_step * (2.0 - c_step) * mass) * np.linalg.solve(
        root, toward
    )
    length = float(np.linalg.norm(step_path))
    steady = length / np.sqrt(1.0 - (1.0 - c_step) ** (2 * (search.groups + 1))) < (1.4 + 2.0 / (n + 1.0)) * expected
    path = (1.0 - c_path) * search.path + steady * np.sqrt(c_path * (2.0 - c_path) * mass) * toward
    covariance = (
        (1.0 - c_one - c_many) * search.covariance
        + c_one * np.outer(path, path)
        + c_many * (better.T * ranked) @ better
    )
    step = search.step * float(np.exp(min(0.3, c_step / damping * (length / expected - 1.0))))
    return Search(search.mean + search.step * toward, covariance, path, step_path, step, search.groups + 1)


@dataclass(frozen=True)
class Gain:
    """What the agents gain over the rule a day in one world, with the half-width of its 95 % interval."""

    mean: float
    half_width: float


def gains(days: Mapping[str, Days], theta: FloatArray, seed: int, repeats: int = 4) -> dict[str, Gain]:
    """What numbers gain over the rule on days of their own, paired by day, per world."""
    found = {}
    for name, one in days.items():
        apart = np.concatenate([
            one.returns(theta, seed + r * one.days) - one.returns(None, seed + r * one.days) for r in range(repeats)
        ])  # fmt: skip
        found[name] = Gain(float(apart.mean()), float(1.96 * apart.std(ddof=1) / np.sqrt(len(apart))))
    return found


def spreads(days: Sequence[Days], seed: int) -> FloatArray:
    """How much days of each world differ by a change of the agents: what one unit of its return weighs, ``(n,)``."""
    changed = rule_theta()
    changed[0] += 1.0
    return np.array([max(1e-6, float((one.returns(changed, seed) - one.returns(None, seed)).std())) for one in days])
