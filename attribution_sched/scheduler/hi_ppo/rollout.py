"""What both levels collect between two updates, and the advantages of it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from attribution_sched.cluster.decision import Decisions
from attribution_sched.cluster.reward import total_of
from attribution_sched.cluster.world import World
from attribution_sched.executors.workers import spread
from attribution_sched.kernels import one_thread
from attribution_sched.scheduler.hi_ppo.cluster_batch import ClusterBatch, field_arrays, restore_field
from attribution_sched.scheduler.hi_ppo.constraints import Multipliers
from attribution_sched.scheduler.hi_ppo.decode import HEADS, Choices, Planner, Steps, Trace
from attribution_sched.scheduler.hi_ppo.evaluate import NetworkActor, look
from attribution_sched.scheduler.hi_ppo.features import State
from attribution_sched.scheduler.hi_ppo.network import COMPONENTS, HiPpoNetwork, NetworkSize
from attribution_sched.scheduler.ppo.ppo import gae
from attribution_sched.storage import Arrays

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Experience:
    """T decisions in each of E clusters of a field, flattened to ``T·E`` rows.

    Attributes:
        trace: What was seen, offered and taken.
        upper: Log-probability of the upper agent's choices, shape ``(T·E,)``.
        lower: Log-probability of the lower agents' choices, shape ``(T·E,)``.
        values: V_c(s), shape ``(T·E, 3)``.
        returns: Targets of the critics, shape ``(T·E, 3)``.
        advantage: For the upper agent, shape ``(T·E,)``.
        lower_advantage: For the lower agents, shape ``(T·E,)``.
        agents: Upper and lower agents that acted, all together.
        violations: Mean violation of every constraint over the decisions that placed something; None if none did.
    """

    trace: Trace
    upper: FloatArray
    lower: FloatArray
    values: FloatArray
    returns: FloatArray
    advantage: FloatArray
    lower_advantage: FloatArray
    agents: int
    violations: dict[str, float | None]


@dataclass(frozen=True)
class Collecting:
    """How experience is collected; see :func:`collect`."""

    steps: int
    gamma: float
    lam: float
    low_coef: float
    multipliers: Multipliers
    bootstrap: bool


Collector = Callable[[HiPpoNetwork, Sequence[ClusterBatch], Sequence[int], Collecting], list[Experience]]
"""Lets a network decide in every field, by the seed of each; the fields are where they were left afterwards."""


def collect_here(
    network: HiPpoNetwork, fields: Sequence[ClusterBatch], seeds: Sequence[int], how: Collecting
) -> list[Experience]:
    """Collect in one field after the other, in this process."""
    return [collect_in(network, field, seed, how) for field, seed in zip(fields, seeds, strict=True)]


def collect_in(network: HiPpoNetwork, field: ClusterBatch, seed: int, how: Collecting) -> Experience:
    """Collect in one field, by a seed of its own."""
    generator = torch.Generator(device=next(network.parameters()).device).manual_seed(seed)
    return collect(
        network, field, how.steps, generator, how.gamma, how.lam, how.low_coef, how.multipliers,
        bootstrap=how.bootstrap,
    )  # fmt: skip


def values_of(network: HiPpoNetwork, planner: Planner, decisions: Decisions) -> FloatArray:
    """V_c(s) of decisions, shape ``(B, 3)``."""
    state, _ = planner.describe(decisions)
    with torch.no_grad():
        values = network.value(look(network, state, only_present=True).shared)
    found: FloatArray = values.cpu().numpy().astype(np.float64)
    return found


def collect(
    network: HiPpoNetwork,
    field: ClusterBatch,
    steps: int,
    generator: torch.Generator,
    gamma: float,
    lam: float,
    low_coef: float,
    multipliers: Multipliers,
    *,
    bootstrap: bool = True,
) -> Experience:
    """Let a network decide in every cluster of a field.

    Args:
        network: Both policies and the critics.
        field: The clusters.
        steps: Decisions per cluster.
        generator: Source of the choices.
        gamma: Discount per decision.
        lam: Bias against variance of the advantages.
        low_coef: Weight of the lower agents' own reward in their advantage, both in units of their spread.
        multipliers: Prices of the constraints; what a decision breaks is taken off its advantage.
        bootstrap: Whether work after the horizon counts (its value is estimated), or episodes end there for good.
    """
    e, c = field.clusters, len(COMPONENTS)
    upper, lower = np.zeros((steps, e)), np.zeros((steps, e))
    values, terms = np.zeros((steps + 1, e, c)), np.zeros((steps, e, c))
    final, ended = np.zeros((steps, e, c)), np.zeros((steps, e), dtype=np.bool_)
    low = np.zeros((steps, e))
    acted = np.zeros((steps, e), dtype=np.int64)
    weights = np.zeros((steps, e, c))
    broken = {name: np.zeros((steps, e)) for name in multipliers.names}
    traces: list[Trace] = []
    lasts: list[Decisions] = []
    for t in range(steps):
        chooser = NetworkActor(network, generator)
        weights[t] = field.engine.weights
        move = field.step(chooser)
        upper[t], lower[t] = chooser.upper.cpu().numpy(), chooser.lower.cpu().numpy()
        values[t] = chooser.values.cpu().numpy()
        terms[t], ended[t], low[t], acted[t] = move.terms, move.ended, move.low, move.agents
        for name, measured in broken.items():
            measured[t] = move.violations[name]
        if move.last is not None:
            lasts.append(move.last)
        traces.append(move.decoded.trace)
    if lasts and bootstrap:
        # All at once: few rows at a time take hardly less than many.
        final[ended] = values_of(network, field.planner, join_decisions(lasts))
    values[steps] = values_of(network, field.planner, field.decisions())
    advantages, returns = gae(terms, values, ended, final, gamma, lam)
    total = total_of(advantages, weights)
    some = acted > 0
    own = np.where(some, low - (low * some).sum() / max(1, some.sum()), 0.0)
    # R_low is in seconds and shares; it counts in the spread of the advantages, or it would drown them.
    own *= total.std() / (own.std() + 1e-8)
    price = -multipliers.penalised(np.zeros((steps, e)), broken)
    # Prices tell plans apart. Weighed against doing nothing, which breaks nothing, they would teach to do nothing.
    total = total - np.where(some, price - (price * some).sum() / max(1, some.sum()), 0.0)
    violations = {name: float(values[some].mean()) if some.any() else None for name, values in broken.items()}
    trace = join_traces(traces)
    return Experience(
        trace, upper.ravel(), lower.ravel(), values[:-1].reshape(-1, c), returns.reshape(-1, c), total.ravel(),
        (total + low_coef * own).ravel(), int(steps * e + acted.sum()), violations,
    )  # fmt: skip


def join_decisions(parts: list[Decisions]) -> Decisions:
    """Put decisions of the same world one after the other."""
    columns = {name: [getattr(part, name) for part in parts] for name in Decisions.__dataclass_fields__}
    return Decisions(**{name: np.concatenate(column) for name, column in columns.items()})


def join_traces(traces: list[Trace]) -> Trace:
    """Put traces of the same world one after the other."""
    sizes = np.cumsum([0] + [len(trace.task) for trace in traces])
    states = [trace.state for trace in traces]
    state = State(*(np.concatenate([getattr(s, name) for s in states]) for name in State.__dataclass_fields__))
    steps = {}
    for head in HEADS:
        full = [
            (trace.steps[head].offer.decision + at, trace.steps[head])
            for trace, at in zip(traces, sizes[:-1], strict=True)
            if len(trace.steps[head].taken)
        ]
        if not full:
            steps[head] = traces[0].steps[head]
            continue
        offers = [part.offer for _, part in full]
        steps[head] = Steps(
            Choices(
                np.concatenate([decision for decision, _ in full]),
                *(
                    np.concatenate([getattr(o, name) for o in offers])
                    for name in ("choices", "mask", "context", "domain")
                ),
            ),
            np.concatenate([part.taken for _, part in full]),
        )
    return Trace(
        state, np.concatenate([trace.task for trace in traces]), steps, np.concatenate([t.plans for t in traces])
    )


# ------ Rollouts on the workers of a Ray cluster: the same experience, to the bit, whoever collects it
#
# A task is given the network's weights, the state of one batch and a seed, and gives back experience and the batch's
# new state. Nothing is left at a worker that the next round needs, so one that is lost is replaced by any other.

Known = tuple[World, int, str, bool, bool, Any, Any]
"""World, clusters, name, whether weights are drawn and links forecast, attributions and paces: what a field is made of.
"""

Shared = tuple[NetworkSize, dict[str, Any], Collecting, Sequence[Known]]
Job = tuple[int, int, Arrays, list[float]]
"""Which field, its seed, its state and the returns of the episodes that ended in it."""


class RayRollouts:
    """Collects on a Ray cluster; fields are as many as work side by side.

    Args:
        address: Of the cluster; ``auto`` takes the one that this machine belongs to.
    """

    def __init__(self, address: str = "auto") -> None:
        self.address = address

    def __call__(
        self, network: HiPpoNetwork, fields: Sequence[ClusterBatch], seeds: Sequence[int], how: Collecting
    ) -> list[Experience]:
        """Collect in all fields; each of them is where it was left afterwards."""
        known = [
            (field.engine.world, field.clusters, field.name, field.pareto, field.forecast is not None,
             field.attributions, field.planner.paces)
            for field in fields
        ]  # fmt: skip
        weights = {name: tensor.detach().cpu().numpy() for name, tensor in network.state_dict().items()}
        jobs: list[Job] = [
            (number, seed, field_arrays(field), list(field.returns))
            for number, (field, seed) in enumerate(zip(fields, seeds, strict=True))
        ]
        found: dict[int, Experience] = {}
        shared: Shared = (network.size, weights, how, known)
        for number, (experience, state, returns) in spread(self.address, _collect, shared, jobs):
            restore_field(fields[number], state)
            fields[number].returns[:] = returns
            # What Ray hands out may only be read.
            found[number] = copy.deepcopy(experience)
        return [found[number] for number in range(len(fields))]


MOST_FIELDS = 8
_fields: dict[bytes, ClusterBatch] = {}


def _collect(run: str, shared: Shared, job: Job) -> tuple[Experience, Arrays, list[float]]:
    import torch

    size, weights, how, known = shared
    number, seed, state, returns = job
    network = HiPpoNetwork(size, torch.Generator().manual_seed(0))
    network.load_state_dict({name: torch.from_numpy(array.copy()) for name, array in weights.items()})
    with one_thread():
        field = _field(known[number], state)
        field.returns[:] = returns
        experience = collect_in(network, field, seed, how)
    return experience, field_arrays(field), list(field.returns)


def _field(known: Known, state: Mapping[str, Any]) -> ClusterBatch:
    """A field in a state; a worker keeps those of its last worlds, which are costly to make."""
    world, clusters, name, pareto, predict, attributions, paces = known
    mark = state["engine.world"].tobytes() + repr((clusters, name, pareto, predict)).encode()
    if mark not in _fields:
        while len(_fields) >= MOST_FIELDS:
            del _fields[next(iter(_fields))]
        _fields[mark] = ClusterBatch(world, clusters, 0, None, name, predict=predict, pareto=pareto)
    field = _fields[mark]
    field.attributions, field.planner = attributions, replace(field.planner, paces=paces)
    restore_field(field, state)
    return field
