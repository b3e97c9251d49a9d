"""Hi-PPO with decision trees in the place of its numbers, as a policy: what it decides by can be read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from attribution_sched.cluster.decision import Decision, Decisions
from attribution_sched.cluster.plan import Plan
from attribution_sched.cluster.world import World
from attribution_sched.scheduler.glass_box.trees import (
    HEADS,
    SHIPPED,
    Distilled,
    load,
    nodes_of,
    path_of,
    write_inputs,
)
from attribution_sched.scheduler.hi_ppo.agents import Releases, weighed_by
from attribution_sched.scheduler.hi_ppo.coordinator import HiPpo
from attribution_sched.scheduler.hi_ppo.features import UTILISATION_SHARE
from attribution_sched.scheduler.hi_ppo.upper_agent import make_said, make_seen
from attribution_sched.scheduler.policy import TreeReading
from attribution_sched.scheduler.rule_follower import agents_of
from attribution_sched.scheduler.thinking import Think, Thinker
from attribution_sched.types import BoolArray, FloatArray

if TYPE_CHECKING:
    from attribution_sched.scheduler.hi_ppo.decode import Planner
    from attribution_sched.scheduler.hi_ppo.upper_agent import Agents


def inputs_of(
    agents: Agents, decisions: Decisions, believed: FloatArray, fits: BoolArray, releases: Releases
) -> dict[str, tuple[FloatArray, FloatArray]]:
    """What each head's tree reads of one decision, ``(n, inputs)``, and what the agents say of it, ``(n,)``.

    Args:
        agents: Who weighs.
        decisions: The decision, B = 1.
        believed: As for :func:`~.agents.weighed_by`.
        fits: As there.
        releases: As there.

    Returns:
        Rows of ``layout`` are the layouts on offer, candidate by candidate, domain by domain; those of ``wait`` and
        ``task`` the candidates that can be placed; ``move`` has one where a running task is decided on.
    """
    q = decisions.kind.shape[1]
    k, j = len(agents.devices), agents.table.seconds.shape[2]
    seen, said = make_seen(q, k), make_said(q, k, j)
    weighed_by(agents, decisions, believed, fits, releases, (seen, said))
    rows = {"layout": q * k * j, "wait": q, "task": q, "move": 1}
    x = {head: np.zeros((rows[head], len(names))) for head, names in HEADS.items()}
    y = {head: np.zeros(rows[head]) for head in HEADS}
    *counts, moves = write_inputs(
        agents, seen, said, q, bool(decisions.replanning[0]), x["layout"], y["layout"], x["wait"], y["wait"],
        x["task"], y["task"], x["move"][0],
    )  # fmt: skip
    y["move"][0] = said.move[0]
    found = dict(zip(HEADS, (*counts, int(moves)), strict=True))
    return {head: (x[head][:n], y[head][:n]) for head, n in found.items()}


class HiPpoTree(HiPpo):
    """Four trees decide who, when, where and with how many devices; the search settles details as for Hi-PPO.

    Args:
        trees: The trees, or a file of them; those that come with the package by default.
        **settings: As for :class:`~attribution_sched.scheduler.hi_ppo.coordinator.HiPpo`.
    """

    name = "hi-ppo-tree"

    def __init__(self, trees: Distilled | str | Path | None = None, **settings: Any) -> None:
        super().__init__(**settings)
        self.given = trees
        self._distilled: Distilled | None = None

    @classmethod
    def distilled_from(
        cls, teacher: HiPpo, worlds: Sequence[tuple[World, int]], seed: int, **settings: Any
    ) -> HiPpoTree:
        """The twin of a policy of one's own, for example of weights that were trained; needs scikit-learn.

        Args:
            teacher: The policy.
            worlds: Where, and on how many days of each; see :func:`~.tree_distil.distil`.
            seed: Of the days.
            **settings: Of the twin.
        """
        from attribution_sched.scheduler.glass_box.tree_distil import distil

        return cls(distil(teacher, worlds, seed), weights=teacher.learnt, **settings)

    @property
    def distilled(self) -> Distilled:
        """What it decides by, read on first use."""
        if self._distilled is None:
            given = self.given
            self._distilled = given if isinstance(given, Distilled) else load(given or SHIPPED)
        return self._distilled

    def agents(self, planner: Planner) -> Agents:
        """Both agents in a cluster, as the trees say."""
        known = self._agents.get(planner)
        if known is None:
            known = agents_of(planner, np.array([1.0, UTILISATION_SHARE]), None, self.distilled.trees)
            self._agents[planner] = known
        return known

    def thinker(self) -> Thinker:
        """Whose copies the trees play on."""
        if self._thinker is None:
            self._thinker = Thinker(self.think or Think(), self.attributions, trees=self.distilled.trees)
        return self._thinker

    def readings(self, view: Decision, plan: Plan | None) -> tuple[TreeReading, ...]:
        """How each tree that had a say came to it; see :class:`~.policy.TreeReader`."""
        planner, seen = self.planner(view), self.perceive(view).only(0)
        actor = self.agents_actor(view, planner, seen)
        fits = planner.describe(seen)[0].mask[:, :-1]
        rows = inputs_of(actor.agents, seen, actor.believed, fits, actor.releases)
        heads = ["move"] if view.replanning else ["wait", "task"]
        asked = {head: rows[head][0][0] for head in heads if len(rows[head][0])}
        if plan is not None and len(rows["layout"][0]):
            # The layout that was chosen, by its number of devices; the search settles in which domain.
            devices = sum(segment.device_count for segment in plan.segments)
            listed, said = rows["layout"]
            alike = np.flatnonzero(listed[:, 0] == devices)
            if len(alike):
                asked["layout"] = listed[alike[said[alike].argmax()]]
        trees, found = self.distilled.trees, []
        for head, x in asked.items():
            steps, value = path_of(trees, head, x)
            tree = nodes_of(trees, head)
            path = tuple((step.input, step.value, step.threshold) for step in steps)
            found.append(TreeReading(head, path, value, HEADS[head], x, self.distilled.usual[head], tree))
        return tuple(found)
