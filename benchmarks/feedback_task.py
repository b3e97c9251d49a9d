"""A small scheduling task with a real conflict, for ``benchmarks/feedback_loop.py``: one domain or two?

Two of the cross-domain-easy preset's regions, three language models, one choice per task: where (the first domain, the
second, or cut in half over both), which layout, which microbatch. Cut over both a step is faster, costs traffic and
leaves devices waiting for the network; inside one domain it is slower, free of traffic and busy. Placements are made
once: re-planning is passed over, as on Testbed-v0.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import gymnasium as gym
import numpy as np
from counter_ranks import counter_ranks
from numpy.typing import NDArray

from attribution_sched.cluster.arrivals import Poisson
from attribution_sched.cluster.codecs import attributions_of
from attribution_sched.cluster.engine import state as st
from attribution_sched.cluster.engine.engine import ACTION_COLUMNS, Engine
from attribution_sched.cluster.envs.env import ClusterVectorEnv
from attribution_sched.cluster.gpus import Precision
from attribution_sched.cluster.world import Cluster, Reward, World
from attribution_sched.config import load_settings

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

DOMAINS = 2
MODELS = ("llama-2-70b", "opt-66b", "gpt3-13b")
LAYOUTS = ((1, 4, 4), (2, 2, 4), (4, 4, 1), (1, 4, 2), (2, 4, 1))
"""dp, tp, pp inside each domain used: sixteen devices or eight."""

LEVELS = (0, 2)
PLACES = ("first", "second", "both")
PLAYERS = ("load of the first", "load of the second", "link", "task", "time", "attributions", "plan")


def build_world(weights: tuple[float, float, float], pool_seed: int | None = None) -> World:
    """The world with given reward weights; another pool seed gives other tasks."""
    world = load_settings("cross-domain-easy").build_world()
    wan = world.cluster.wan
    cut = slice(0, DOMAINS)
    near = replace(
        wan,
        names=wan.names[cut],
        bandwidth_gbps=wan.bandwidth_gbps[cut, cut],
        latency_s=wan.latency_s[cut, cut],
        price_usd_per_gb=wan.price_usd_per_gb[cut, cut],
    )
    reward = Reward(*weights, per_decision=True)
    return replace(
        world,
        cluster=Cluster(world.cluster.domains[cut], near, world.cluster.runtime),
        kinds=tuple(kind for kind in world.kinds if kind.model.name in MODELS),
        arrivals=Poisson(0.3),
        reward=reward,
        max_segments=DOMAINS,
        pool_seed=world.pool_seed if pool_seed is None else pool_seed,
    )


@dataclass(frozen=True)
class Choice:
    """One action: where, which layout (row of the engine's table), which microbatch level, devices per domain."""

    place: int
    layout: int
    level: int
    devices: int


class ChoiceCodec:
    """The task as spaces, masks and actions (see ``attribution_sched.cluster.codecs.Codec``)."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.attributions = attributions_of(engine, counter_ranks)
        table = {tuple(row): i for i, row in enumerate(engine.layouts.tolist())}
        self.choices = [
            Choice(place, table[(*layout, 0)], level, int(np.prod(layout)))
            for place in range(len(PLACES))
            for layout in LAYOUTS
            for level in LEVELS
        ]
        self.action_space = gym.spaces.Discrete(len(self.choices))
        self.fits = self._fitting()
        size = self._features().shape[1]
        self.observation_space = gym.spaces.Box(-10.0, 1e4, (size,), np.float32)

    def _rows(self, chosen: Ints, kinds: Ints) -> Ints:
        """Choices as engine actions ``(n, P, 5)``."""
        layers = self.engine.arrays.tables.n_layers[kinds]
        rows = np.zeros((len(chosen), DOMAINS, len(ACTION_COLUMNS)), dtype=np.int64)
        for i, (c, n) in enumerate(zip(chosen.tolist(), layers.tolist(), strict=True)):
            own = self.choices[c]
            rest = (own.layout, Precision.BF16.index, own.level)
            if own.place == PLACES.index("both"):
                rows[i] = (0, n // 2, *rest), (1, n, *rest)
            else:
                rows[i, 0] = (own.place, n, *rest)
                rows[i, 1, 0] = DOMAINS
        return rows

    def _fitting(self) -> NDArray[np.bool_]:
        """Choices an empty cluster can take, kind by kind: memory and divisibility do not depend on the state."""
        world = self.engine.world
        fits = np.zeros((len(world.kinds), len(self.choices)), dtype=np.bool_)
        for k, kind in enumerate(world.kinds):
            one = Engine(replace(world, kinds=(kind,)), 1)
            one.seed([0])
            one.reset()
            rows = self._rows(np.arange(len(self.choices)), np.full(len(self.choices), k))
            fits[k] = one.probe(0, rows)["code"] > 0
        return fits

    def _features(self) -> NDArray[np.float32]:
        seen = self.engine.observe()
        n = self.engine.clusters
        off = seen.links[:, :, ~np.eye(DOMAINS, dtype=np.bool_)].reshape(n, -1)
        attribution = self.attributions[self.engine.pending_pool()]
        attribution[self.engine.state.event[:, st.EVENT] == st.NO_EVENT] = 0.0
        parts = [
            seen.domains.reshape(n, -1),
            off / [[10.0, 10.0, 0.1, 0.1, 0.1, 0.1]],
            seen.task,
            seen.event,
            attribution,
        ]
        return np.concatenate(parts, axis=1, dtype=np.float32)

    def observe(self) -> NDArray[np.float32]:
        """Observations ``(E, f)``: both domains, the link, the task, the event, the attributions."""
        return self._features()

    def masks(self) -> NDArray[np.bool_]:
        """Choices that fit memory and free devices."""
        free = self.engine.free_devices(share=False)
        room = np.stack([free[:, 0], free[:, 1], free.min(axis=1)], axis=1)
        need = np.array([choice.devices for choice in self.choices])
        place = np.array([choice.place for choice in self.choices])
        masks = self.fits[self.engine.pending_kind()] & (need <= room[:, place])
        # An episode in which nothing arrives offers nothing to decide; whatever is chosen there is ignored.
        masks[self.engine.state.event[:, st.EVENT] == st.NO_EVENT] = True
        return np.asarray(masks)

    def decode(self, actions: Any) -> tuple[Ints, Ints | None]:
        """Choices ``(E,)`` to engine actions."""
        return self._rows(np.asarray(actions, dtype=np.int64), self.engine.pending_kind()), None

    def settle(self, active: NDArray[np.bool_]) -> tuple[Array, Array]:
        """Pass over re-planning and tasks that fit nowhere now."""
        engine = self.engine
        stay = np.zeros((engine.clusters, DOMAINS, len(ACTION_COLUMNS)), dtype=np.int64)
        stay[:, :, 0] = DOMAINS
        while True:
            pending = engine.state.event[:, st.EVENT]
            stuck = active & (engine.state.event[:, st.DONE] == 0)
            stuck &= (pending == st.REPLAN) | ((pending == st.PLACE) & ~self.masks().any(axis=1))
            if not stuck.any():
                return np.zeros(engine.clusters), np.zeros((engine.clusters, 3))
            engine.step(stay, active=stuck)

    def plan_features(self, actions: Ints) -> Array:
        """What a choice is, as numbers ``(n, 5)``: both domains or one, the second, dp, pp, level."""
        layouts = self.engine.layouts
        return np.array(
            [
                (c.place == 2, c.place == 1, layouts[c.layout, 0], layouts[c.layout, 2], c.level)
                for c in (self.choices[a] for a in np.asarray(actions).tolist())
            ],
            dtype=np.float64,
        )

    def players(self) -> dict[str, list[int]]:
        """Columns of observation and plan, by player."""
        sizes = (20, 20, 6, 5, 6, 7, 5)
        ends = np.cumsum(sizes)
        return {
            name: list(range(int(end) - size, int(end))) for name, size, end in zip(PLAYERS, sizes, ends, strict=True)
        }


class ChoiceEnv(ClusterVectorEnv):
    """The task, batched."""

    def __init__(self, world: World, num_envs: int) -> None:
        super().__init__(ChoiceCodec(Engine(world, num_envs)))
