"""Environments with one choice among real candidate plans: ``Discrete(k)`` with exact masks.

``attribution_sched/CrossDomainPlans-v0``, ``attribution_sched/SharedPlans-v0``, ``attribution_sched/TestbedPlans-v0``

Action ``0`` waits (or keeps a running task where it is). Actions ``1 … k − 1`` are plans for the task of the decision,
the best first by their own reward: inside each domain, then pipelines over two domains, then
beside neighbours where devices may be shared. Every plan was tried on the cluster: what the mask allows is carried out.

Observation, one vector of ``float32``: of the task its 7 attributions, 5 features and log pace; time of day, work left
and waiting time; of every domain 20 numbers of its instruments and its share of free devices; for every action its own
R_eff, R_util, R_cost, share of devices, domains used, whether it shares, and whether it is allowed. With
``signals=True`` (``gym.make(…, signals=True)``) also, of every domain, its carbon intensity and its price of
electricity: now, what is forecast six hours ahead, and the forecast's error (kg and USD per kWh).

Waiting is always a choice, as for every policy. ``waits=False`` forbids it where a waiting task could be placed: then
masked random actions place it.

Reward, start and end are those of the world (see :mod:`attribution_sched.cluster.envs.env`). ``action_masks()`` is what
sb3-contrib's MaskablePPO asks for; ``info["action_mask"]`` has the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from inspect import signature
from typing import Any, ClassVar, NamedTuple

import gymnasium as gym
import numpy as np

from attribution_sched.cluster.decision import Decision, check_known, encode, view
from attribution_sched.cluster.demands import DEMAND_NAMES
from attribution_sched.cluster.engine import state as st
from attribution_sched.cluster.engine.engine import DOMAIN_FEATURES, Engine
from attribution_sched.cluster.plan import Plan, PlanBatch
from attribution_sched.cluster.reward import value
from attribution_sched.cluster.world import World
from attribution_sched.errors import ModelFitError, problem
from attribution_sched.planning.candidates import feasible, join
from attribution_sched.planning.domain_orders import chain_plans, connected_orders
from attribution_sched.planning.instance import Instance
from attribution_sched.planning.segment_table import first_twins, plans_inside
from attribution_sched.scheduler.pairing import LawBelief, can_join, plan_beside
from attribution_sched.types import Attributor, BoolArray, Float32Array, FloatArray

CHOICES = 16
"""Actions: waiting, and so many less one plans."""

AHEAD_S = 6 * 3600.0
"""How far ahead signals are forecast in observations."""

SIGNAL_FEATURES = (
    "carbon_now", "carbon_ahead", "carbon_error", "electricity_now", "electricity_ahead", "electricity_error",
)  # fmt: skip
"""Of every domain, where an observation has them: kg and USD per kWh."""

PLAN_FEATURES = ("r_eff", "r_util", "r_cost", "devices", "domains", "shares", "allowed")
ORDERS = 6
"""Pairs of domains whose pipelines are offered, best connected first."""

_SHARED = 4
"""Most plans beside neighbours that are offered."""


def candidate_plans(seen: Decision, most: int = CHOICES - 1) -> list[Plan]:
    """Plans for the task of a decision that the cluster could carry out, best first by their own reward.

    Inside a domain layouts differ in devices and precision; of those with the same devices the best is taken.

    Raises:
        PlanError: If what was observed or measured is no number: a reading that is missing is not a reading of 0.
    """
    check_known(seen, "observed", "steps_left", "time_s")
    instance = Instance.of(seen, seen.kind_index)
    found: list[tuple[float, Plan]] = []
    if instance.free_devices.any():
        batches = [plans_inside(instance, first_twins(instance))]
        if min(seen.max_segments, len(instance.open_domains)) > 1:
            batches.append(chain_plans(instance, connected_orders(instance, 2, ORDERS)))
        batch = join([each for each in batches if len(each)]) if any(len(each) for each in batches) else None
        if batch is not None:
            found += _best_of_each_size(seen, batch)
    if not seen.replanning and seen.task is not None:
        belief, task = LawBelief(), seen.task
        beside = [n for n in seen.neighbours if can_join(seen, task, n)]
        beside.sort(key=lambda n: -sum(belief.speeds(task, n.task)))
        for neighbour in beside[:_SHARED]:
            plan = plan_beside(seen, seen.kind_index, task, neighbour)
            if plan is not None:
                found.append((-1e9, plan))
    return [plan for _, plan in found if feasible(seen, plan) is None][:most]


def _best_of_each_size(seen: Decision, batch: PlanBatch) -> list[tuple[float, Plan]]:
    """Of plans over the same domains with the same devices, the one of highest reward; all in order of reward."""
    reward = value(seen, batch).reward
    kept: dict[tuple[Any, ...], tuple[float, Plan]] = {}
    for at in np.argsort(-reward, kind="stable")[:256]:
        if not np.isfinite(reward[at]):
            break
        plan = batch.plan(int(at))
        key = (plan.domains, tuple(segment.device_count for segment in plan.segments))
        kept.setdefault(key, (float(reward[at]), plan))
    return sorted(kept.values(), key=lambda each: -each[0])


class Candidates:
    """What a learner sees of a decision, and the plans its choices stand for.

    Args:
        attributor: Counters ``(n, 12)`` → attributions ``(n, 7)``, where a decision does not carry them.
        choices: Size of the action space.
        signals: Whether carbon and prices of electricity are part of it.
    """

    def __init__(self, attributor: Attributor | None = None, choices: int = CHOICES, *, signals: bool = False) -> None:
        self.attributor, self.choices, self.signals = attributor, choices, signals

    def size(self, domains: int) -> int:
        """Length of the observation of a cluster of so many domains."""
        each = len(DOMAIN_FEATURES) + 1 + len(SIGNAL_FEATURES) * self.signals
        return len(DEMAND_NAMES) + 6 + 6 + domains * each + self.choices * len(PLAN_FEATURES)

    def observe(self, seen: Decision, plans: list[Plan], allowed: BoolArray) -> Float32Array:
        """The observation of a decision, shape ``(size,)``, every number in [−10, 10]."""
        domains = seen.cost.cluster.domains
        devices = np.array([domain.devices for domain in domains])
        observed = seen.observed if seen.observed is not None else np.zeros((len(domains), len(DOMAIN_FEATURES)))
        angle = 2.0 * math.pi * seen.time_s / 86_400.0
        own = np.array([
            *self._attributions(seen), *seen.kind.features, math.log10(1.0 + seen.samples_per_s) / 6.0,
            math.sin(angle), math.cos(angle), math.log10(1.0 + seen.steps_left) / 8.0, len(seen.queue) / 64.0,
            float(seen.replanning), min(1.0, (seen.task.waited_s if seen.task else 0.0) / 86_400.0),
        ])  # fmt: skip
        rows = np.zeros((self.choices, len(PLAN_FEATURES)))
        if plans:
            worth = value(seen, PlanBatch.of(plans))
            for i, plan in enumerate(plans):
                count = sum(segment.device_count for segment in plan.segments)
                rows[i + 1] = (worth.r_eff[i], worth.r_util[i], worth.r_cost[i], count / devices.max(),
                               len(set(plan.domains)) / 4.0, float(plan.beside is not None), 0.0)  # fmt: skip
        rows[:, -1] = allowed
        parts = [own, np.column_stack([observed, seen.free_devices / devices]).ravel(), rows.ravel()]
        if self.signals:
            parts.append(signals_of(seen).ravel())
        told = np.nan_to_num(np.concatenate(parts), nan=0.0, posinf=10.0, neginf=-10.0)
        return np.asarray(np.clip(told, -10.0, 10.0), dtype=np.float32)

    def _attributions(self, seen: Decision) -> FloatArray:
        if seen.attribution is not None and seen.attribution.state is not None:
            return np.asarray(seen.attribution.state, dtype=np.float64)
        if self.attributor is None or not seen.counters.size:
            return np.zeros(len(DEMAND_NAMES))
        found: FloatArray = np.asarray(self.attributor(seen.counters[None]), dtype=np.float64)[0]
        return found


def signals_of(seen: Decision) -> FloatArray:
    """Carbon and price of electricity of every domain as they may be known at a decision, shape ``(K, 6)``."""
    rows = []
    for domain in seen.cost.cluster.domains:
        row: list[float] = []
        usual = (domain.carbon_g_per_kwh or 0.0) * 1e-3, seen.reward.energy_usd_per_kwh
        for signal, unit, constant in zip((domain.carbon, domain.electricity), (1e-3, 1.0), usual, strict=True):
            now, ahead, error = constant, constant, 0.0
            if signal is not None:
                now = unit * signal.at(seen.time_s)
                ahead, error = (unit * number for number in signal.forecast(seen.time_s, AHEAD_S))
            row += [now, ahead, error]
        rows.append(row)
    return np.array(rows)


class CandidateCluster:
    """One cluster of the compiled engine, and the plans it would carry out at the decision it stands at.

    Args:
        world: The scheduling problem.
        most: Most plans at a decision.
    """

    def __init__(self, world: World, most: int = CHOICES - 1) -> None:
        self.engine, self.most = Engine(world), most
        self.engine.seed([0])
        self._kind = 0

    def reset(self, seed: int | None) -> None:
        """Begin an episode; a seed restarts the cluster's random streams, none lets them go on."""
        self.engine.seed([seed])
        self.engine.reset()

    @property
    def time_s(self) -> float:
        """Seconds since the episode began."""
        return float(self.engine.state.clock[0, st.NOW])

    def look(self) -> tuple[Decision | None, list[Plan]]:
        """The decision at hand (None after the last one) and the plans that the cluster would carry out."""
        seen = view(self.engine, moment=False)
        if seen is None:
            return None, []
        self._kind = seen.kind_index
        plans = candidate_plans(seen, self.most)
        if not plans:
            return seen, []
        codes = self.engine.probe(0, np.stack([encode(self.engine, plan, self._kind) for plan in plans]))["code"]
        # What the engine refuses (memory or power that two tasks leave) is no choice, nor is the plan in force.
        return seen, [plan for plan, code in zip(plans, codes, strict=True) if code > 0]

    def carry_out(self, plan: Plan | None) -> Step:
        """Carry a plan out (None waits or keeps) and run to the next decision."""
        rewards, terms = self.engine.step(encode(self.engine, plan, self._kind)[None])
        state = self.engine.state
        return Step(float(rewards[0]), terms[0], bool(state.outcome[0, st.D_CODE] > 0), bool(state.event[0, st.DONE]))


def allowed_choices(choices: int, plans: Sequence[Plan], *, waits: bool) -> BoolArray:
    """The mask ``(choices,)``: waiting or keeping, unless a waiting task could be placed and must be; and the plans."""
    allowed = np.zeros(choices, dtype=np.bool_)
    allowed[: len(plans) + 1] = True
    allowed[0] = waits or not plans
    return allowed


class Step(NamedTuple):
    """What came of one decision.

    Attributes:
        reward: Paid until the next decision.
        terms: R_eff, R_util and R_cost of it.
        placed: Whether a plan took effect.
        done: Whether the episode is over.
    """

    reward: float
    terms: FloatArray
    placed: bool
    done: bool


class CandidateEnv(gym.Env[Float32Array, Any]):
    """One cluster, one decision a step, one choice among plans; see the module for the tables.

    Args:
        world: The scheduling problem.
        attributor: Counters ``(n, 12)`` → attributions ``(n, 7)``; zeros without one.
        choices: Size of the action space.
        signals: Whether observations have carbon and prices of electricity.
        waits: Whether a task may be left waiting where it could be placed.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}

    def __init__(
        self,
        world: World,
        attributor: Attributor | None = None,
        choices: int = CHOICES,
        *,
        signals: bool = False,
        waits: bool = True,
    ) -> None:
        self.waits = waits
        self.cluster = CandidateCluster(world, choices - 1)
        self.candidates = Candidates(attributor, choices, signals=signals)
        size = self.candidates.size(len(world.cluster))
        self.observation_space = gym.spaces.Box(-10.0, 10.0, (size,), np.float32)
        self.action_space = gym.spaces.Discrete(choices)
        self._plans: list[Plan] = []
        self._allowed = np.zeros(choices, dtype=np.bool_)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Float32Array, dict[str, Any]]:
        """Begin an episode; a seed restarts the cluster's random streams, none lets them go on."""
        super().reset(seed=seed)
        self.cluster.reset(seed)
        return self._look(), self._info()

    def step(self, action: Any) -> tuple[Float32Array, float, bool, bool, dict[str, Any]]:
        """Carry out a choice and run to the next decision; a choice that the mask forbids waits."""
        chosen = int(action)
        plan = self._plans[chosen - 1] if 0 < chosen <= len(self._plans) else None
        done = self.cluster.carry_out(plan)
        seen = self._look()
        return seen, done.reward, False, done.done, self._info() | {"placed": done.placed, "reward_terms": done.terms}

    def action_masks(self) -> BoolArray:
        """Choices that the cluster would carry out now, shape ``(choices,)``; there always is one."""
        return self._allowed.copy()

    def _look(self) -> Float32Array:
        seen, self._plans = self.cluster.look()
        may_wait = self.waits or (seen is not None and seen.replanning)
        self._allowed = allowed_choices(self.candidates.choices, self._plans, waits=may_wait)
        if seen is None:
            return np.zeros(self.observation_space.shape or (0,), dtype=np.float32)
        return self.candidates.observe(seen, self._plans, self._allowed)

    def _info(self) -> dict[str, Any]:
        return {"action_mask": self.action_masks(), "time_s": self.cluster.time_s}


def check_size(name: str, learnt: int | None, shown: int) -> None:
    """Refuse an observation of another length than a learner knows; None knows any.

    Raises:
        ModelFitError: If they differ.
    """
    if learnt is not None and learnt != shown:
        rule = f"{name} has learnt with {learnt} numbers"
        raise ModelFitError(problem("observation size", shown, rule, "Use the preset that it was trained on"))


class AgentPolicy:
    """Whoever learnt on :class:`CandidateEnv`, as a scheduler for ``System``, the arena and ``explain``.

    Args:
        choose: Observation and mask → action.
        choices: Size of the action space it learnt with.
        attributor: As in training.
        name: What tables call it.
        size: Length of the observation that it learnt with, if that is known.
        signals: As in training.
        waits: As in training.
    """

    pairs, plays_copies = True, False

    def __init__(
        self,
        choose: Callable[[Float32Array, BoolArray], int],
        choices: int = CHOICES,
        attributor: Attributor | None = None,
        name: str = "agent",
        size: int | None = None,
        *,
        signals: bool = False,
        waits: bool = True,
    ) -> None:
        self.choose, self.name, self.size, self.waits = choose, name, size, waits
        self._candidates = Candidates(attributor, choices, signals=signals)

    def decide(self, seen: Decision) -> Plan | None:
        """The plan of the choice; None waits or keeps.

        Raises:
            ModelFitError: If the decision is of a cluster with another number of domains than it learnt in.
        """
        check_size(self.name, self.size, self._candidates.size(len(seen.free_devices)))
        plans = candidate_plans(seen, self._candidates.choices - 1)
        allowed = allowed_choices(self._candidates.choices, plans, waits=self.waits or seen.replanning)
        at = int(self.choose(self._candidates.observe(seen, plans, allowed), allowed))
        return plans[at - 1] if 0 < at <= len(plans) else None


class SB3Policy(AgentPolicy):
    """A Stable-Baselines3 or sb3-contrib model as a scheduler for ``System``, the arena and ``explain``.

    Args:
        model: Anything with ``predict(observation, action_masks=…, deterministic=True)``; models without masks are
            asked without, and wait where they choose what is not allowed.
        attributor: As in training.
        name: What tables call it.
        signals: As in training.
        waits: As in training.
    """

    def __init__(
        self,
        model: Any,
        attributor: Attributor | None = None,
        name: str = "sb3",
        *,
        signals: bool = False,
        waits: bool = True,
    ) -> None:
        shape = getattr(getattr(model, "observation_space", None), "shape", None)
        size = shape[0] if shape is not None and len(shape) == 1 else None
        space = getattr(model, "action_space", None)
        if not isinstance(space, gym.spaces.Discrete):
            given = type(model).__name__ if space is None else space
            fix = "Train it on an environment with candidate plans, attribution_sched/TestbedPlans-v0 for example"
            raise ModelFitError(problem("model", str(given), "must be a model whose action space is Discrete", fix))
        super().__init__(self._predict, int(space.n), attributor, name, size, signals=signals, waits=waits)
        self.model = model
        self._masks = "action_masks" in signature(model.predict).parameters

    def _predict(self, observation: Float32Array, allowed: BoolArray) -> int:
        more = {"action_masks": allowed} if self._masks else {}
        return int(self.model.predict(observation, deterministic=True, **more)[0])
