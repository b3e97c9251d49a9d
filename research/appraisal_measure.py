"""How near the expected reward terms of plans come to those that engines pay.

Clusters are driven by the network, which draws its choices; a share of the decisions is drawn at random from what is
allowed, so that other domains, cuts and layouts than the usual are priced too. Every placement is tried on the engine
before it is carried out, and the engine's own terms are compared with those expected, and with those of the cost model
alone, which takes every task for a nominal one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from attribution_sched.cluster.decision import Decisions, gather
from attribution_sched.cluster.engine import state as st
from attribution_sched.cluster.engine.engine import Engine
from attribution_sched.cluster.plan import PlanBatch
from attribution_sched.cluster.reward import priced_terms, samples
from attribution_sched.cluster.world import World
from attribution_sched.errors import SettingsError, problem
from attribution_sched.kernels import one_thread
from attribution_sched.scheduler.hi_ppo.decode import Choices, Planner, decode
from attribution_sched.scheduler.hi_ppo.demand_head import DEMANDS, DemandReader, NominalTask
from attribution_sched.scheduler.hi_ppo.evaluate import NetworkActor
from attribution_sched.scheduler.hi_ppo.features import State
from attribution_sched.scheduler.hi_ppo.network import COMPONENTS, HiPpoNetwork
from attribution_sched.scheduler.hi_ppo.outcomes import engine_actions
from attribution_sched.scheduler.hi_ppo.partial_plans import DONE, PartialPlans
from attribution_sched.scheduler.hi_ppo.runtime_estimate import paces_of

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

CLUSTERS = 32
RANDOM_SHARE = 0.3
_PLACED = 1


@dataclass(frozen=True)
class TermsFit:
    """Shares of the variance of the engine's terms that are explained, R_eff, R_util and R_cost; NaN if none varies.

    Attributes:
        decisions: Placements compared.
        crossing: How many of them use several domains.
        expected: By the policy's expectation.
        nominal: By the cost model alone.
        removed: Share of the cost model's squared error that the expectation removes.
    """

    decisions: int
    crossing: int
    expected: tuple[float, ...]
    nominal: tuple[float, ...]
    removed: tuple[float, ...]

    def to_json(self) -> dict[str, Any]:
        """Ready for JSON; None where nothing varies."""
        named = {"expected": self.expected, "nominal": self.nominal, "removed": self.removed}
        plain = {name: [None if np.isnan(v) else v for v in values] for name, values in named.items()}
        return {"decisions": self.decisions, "crossing": self.crossing, "components": list(COMPONENTS), **plain}


def measure_reward_terms(network: HiPpoNetwork, world: World, decisions: int = 2000, seed: int = 900_000) -> TermsFit:
    """Compare expected terms with those of engines.

    Args:
        network: Who decides and expects.
        world: Where.
        decisions: Placements to compare.
        seed: Of the first cluster and of all draws; held-out ones begin at 900,000.
    """
    if decisions < 2:
        raise SettingsError(problem("decisions", decisions, "must be >= 2", "Use for example 2000"))
    engine = Engine(world, CLUSTERS)
    engine.seed([seed + e for e in range(CLUSTERS)])
    engine.reset()
    kinds = engine.arrays.kinds
    base_step_s, base_cost = kinds[:, st.K_BASE_STEP].copy(), kinds[:, st.K_BASE_COST].copy()
    paces = paces_of(network, world.kinds)
    planner = Planner.of(engine.cost, world.kinds, base_step_s, base_cost, world.max_segments, paces)
    readers = [DemandReader.of(network.demands, NominalTask.of(kind, network.attributions)) for kind in world.kinds]
    attributions = network.attributions(engine.pool.counters.values).astype(np.float32)
    listed = engine.layouts.tolist()
    layouts = np.array([listed.index([*row, 0]) for row in planner.tables.layouts.tolist()])
    chooser = _Wandering(network, seed)
    parts: list[FloatArray] = []
    crossing = 0
    with one_thread():
        while sum(len(part) for part in parts) < decisions:
            engine.reset(engine.state.event[:, st.EVENT] == st.NO_EVENT)
            seen = gather(engine, np.arange(CLUSTERS), attributions)
            found = decode(planner, seen, chooser)
            actions = engine_actions(planner.tables, found.drafts, found.batch.segments, layouts)
            acting = (found.trace.task < seen.kind.shape[1]) & (found.drafts.status == DONE)
            rows = np.flatnonzero(~seen.replanning & acting)
            task = found.trace.task[rows]
            engine.state.event[rows, st.SLOT] = seen.slot[rows, task]
            paid = [engine.probe(int(e), actions[e][None]) for e in rows]
            placed = np.array([one["code"][0] == _PLACED for one in paid], dtype=np.bool_)
            truth = np.array([[one[name][0] for name in COMPONENTS] for one in paid]).reshape(-1, len(COMPONENTS))
            said = _expected(engine, readers, seen, rows, task, found.batch)
            both = np.stack([truth, *said], axis=1)[placed]
            parts.append(both)
            crossing += int((found.batch.counts[rows][placed] > 1).sum())
            engine.step(actions)
    told = np.concatenate(parts)
    truth, expected, nominal = (told[:, i] for i in range(3))
    spread = ((truth - truth.mean(axis=0)) ** 2).sum(axis=0)
    missed, plain = (((truth - one) ** 2).sum(axis=0) for one in (expected, nominal))
    return TermsFit(len(told), crossing, _shares(missed, spread), _shares(plain, spread), _shares(missed, plain))


class _Wandering:
    """Chooses by a network, and for some decisions at random."""

    def __init__(self, network: HiPpoNetwork, seed: int) -> None:
        self._policy = NetworkActor(network, torch.Generator().manual_seed(seed), must_act=True)
        self._rng = np.random.default_rng(seed)
        self._wild: BoolArray = np.zeros(0, dtype=np.bool_)

    def task(self, state: State) -> IntArray:
        """By the network; what is random is how the task is placed."""
        self._wild = self._rng.random(len(state.mask)) < RANDOM_SHARE
        return self._policy.task(state)

    def choose(self, head: str, offer: Choices, drafts: PartialPlans, rows: IntArray) -> IntArray:
        """Anything that is allowed, for the decisions that are drawn at random."""
        any_choice = (self._rng.random(offer.mask.shape) * offer.mask).argmax(axis=1)
        return np.where(self._wild[rows], any_choice, self._policy.choose(head, offer, drafts, rows))


def _expected(
    engine: Engine,
    readers: list[DemandReader],
    seen: Decisions,
    rows: IntArray,
    task: IntArray,
    batch: PlanBatch,
) -> tuple[FloatArray, FloatArray]:
    """Terms of the plans of some decisions as expected and as for nominal tasks, each ``(rows, 3)``."""
    found = np.zeros((2, len(rows), len(COMPONENTS)))
    kinds, reward = seen.kind[rows, task], engine.world.reward
    for kind in np.unique(kinds):
        at = np.flatnonzero(kinds == kind)
        here = rows[at]
        some = PlanBatch(batch.segments[here], batch.counts[here], batch.schedules[here])
        pool = engine.state.slots[here, seen.slot[here, task[at]], st.POOL]
        own = np.column_stack([seen.attribution[here, task[at]], engine.pool.samples_per_s[pool]])
        ratio = np.concatenate([readers[kind].ratios(one, one[None, :DEMANDS]) for one in own])
        base = engine.arrays.kinds[kind]
        norm = base[st.K_BATCH] / samples(some)
        for row, factors in enumerate((readers[kind].task.factors(ratio), np.ones((len(at), 3)))):
            priced = engine.cost.score(
                some, int(kind), bandwidth_gbps=seen.links[here, 0], latency_s=seen.links[here, 1], factors=factors,
                breakdown=False,
            )  # fmt: skip
            found[row, at] = priced_terms(
                reward, float(base[st.K_BASE_STEP]), float(base[st.K_BASE_COST]), priced.step_s * norm,
                priced.utilisation, priced.bill_usd * norm, priced.energy_j * norm, priced.carbon_g * norm,
            )  # fmt: skip
    return found[0], found[1]


def _shares(missed: FloatArray, whole: FloatArray) -> tuple[float, ...]:
    """One less the parts, NaN where there is no whole."""
    least = 1e-18
    return tuple(float(1.0 - m / w) if w > least else float("nan") for m, w in zip(missed, whole, strict=True))
