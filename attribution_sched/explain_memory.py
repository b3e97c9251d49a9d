"""The last decisions, remembered so that they can be explained and serve as each other's background."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from attribution_sched.cluster.decision import Decision
from attribution_sched.cluster.decision_batch import Decisions
from attribution_sched.cluster.plan import Plan
from attribution_sched.cluster.pool import Attribute
from attribution_sched.cluster.world import World
from attribution_sched.errors import ExplanationError
from attribution_sched.explain.background import LEAST_ALIKE, Background
from attribution_sched.explain.watch import Decided, perceived
from attribution_sched.explain.words import Phrase
from attribution_sched.live_cluster import SimulatedCluster, TaskInstance
from attribution_sched.policy_call import PolicyCall, twin
from attribution_sched.scheduler.policy import Appraiser, Policy

if TYPE_CHECKING:
    from attribution_sched.explain.explainer import Explainer
    from attribution_sched.explain.explanation import Explanation


MOST = 1000
"""Decisions that are remembered by default."""

REFRESH = 250
"""Decisions after which the background is put together anew; sooner while there are few."""

WARM_UP = 160
"""Decisions of a warm-up at most."""

SEED_STEP = 7_919
"""Added to a system's seed for its warm-up: another day of the same world."""

QUICK: dict[str, Any] = {"rows": 1600, "precision": 0.1}
"""How decisions are explained as they are taken: short, and in rows, so that a busy machine explains no otherwise."""


@dataclass(frozen=True, eq=False)
class Memorised:
    """A decision as it was taken; what a policy that cannot say what it sees has seen is read off the view later."""

    view: Decision
    plan: Plan | None
    seen: Decisions | None
    number: int = 0


class Memory:
    """Remembers decisions of one policy in one world and explains them.

    Args:
        world: Where.
        policy: Who decides; explanations ask a copy of it.
        attribute: Who attributes the tasks of the warm-up, as those of the decisions were.
        seed: Of the system; the warm-up takes another.
        most: How many decisions to remember; the oldest are forgotten first.
    """

    def __init__(self, world: World, policy: Policy, attribute: Attribute | None, seed: int, most: int = MOST) -> None:
        self.world = world
        self.most = most
        self._policy = policy
        self._attribute = attribute
        self._seed = seed
        # Shared by whoever decides and whoever explains; held for a moment only.
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, Memorised] = OrderedDict()
        self._next = 0
        self._newest = False
        self._twin: Policy | None = None
        self._warm: list[Decided] | None = None
        self._explainers: dict[bool, tuple[int, bool, Explainer]] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def __contains__(self, decision: str) -> bool:
        return decision in self._kept

    def __iter__(self) -> Iterator[Decided]:
        with self._lock:
            kept = list(self._kept.items())
        for name, memorised in kept:
            yield self._decided(name, memorised)

    def __getitem__(self, decision: str) -> Decided:
        return self._decided(decision, self._kept[decision])

    def policy_changed(self, policy: Policy) -> None:
        """Another policy decides from now on: what the old one did is no background for it."""
        self._policy, self._twin, self._warm = policy, None, None
        with self._lock:
            self._kept.clear()
        self._explainers.clear()

    @contextmanager
    def refreshed(self) -> Iterator[None]:
        """Explain meanwhile against the background of all decisions that are remembered."""
        self._newest = True
        try:
            yield
        finally:
            self._newest = False

    def remember(self, decision: str, view: Decision, plan: Plan | None, number: int | None = None) -> None:
        """Keep a decision; to be called before the next one is taken. Told twice, it is kept once.

        Args:
            decision: Its id.
            view: What was decided on.
            plan: What was decided.
            number: Its number in the journal; the next one by default.
        """
        if decision in self._kept:
            return
        number = self._next if number is None else number
        # What such a policy sees depends on what it saw before, its forecasts for example: it is asked now or never.
        seen = perceived(self._policy, view) if isinstance(self._policy, Appraiser) else None
        with self._lock:
            self._kept[decision] = Memorised(view, plan, seen, number)
            self._next = number + 1
            if len(self._kept) > self.most:
                self._kept.popitem(last=False)

    def explain(
        self, decided: Decided, *, parts: bool = False, task: TaskInstance | None = None, **options: Any
    ) -> Explanation:
        """Explain a decision against the background of the others.

        How sure the policy was cannot be asked where its search left what the network itself could have proposed; the
        explanation then says so, unless it was asked for by name.

        Args:
            decided: The decision.
            parts: Whether to explain its plan by the plan's own parts.
            task: What was handed in, if it was: the simulator then prices this very task, not a nominal one.
            **options: Of ``Explainer.explain``, or of ``PartsExplainer.explain`` for parts.
        """
        explainer = self._ready(decided.view.replanning)
        if task is not None and explainer.simulator is not None:
            explainer.simulator.know(task.counters, task.demands.ratio[0])
        if parts:
            from attribution_sched.explain.plan_parts import PartsExplainer

            pieces = PartsExplainer(explainer.policy, explainer.background)
            pieces.simulator = explainer.simulator
            return pieces.explain(decided, **options)
        try:
            return explainer.explain(decided, **options)
        except ExplanationError as error:
            if "sure" in options:
                raise
            told = explainer.explain(decided, **options, sure=False)
            return replace(told, notes=(*told.notes, f"How sure the policy was is not known: {error}"))

    def recall(self, decision: str, view: Decision, plan: Plan | None) -> Decided:
        """A decision of long ago, seen again."""
        return self._decided(decision, Memorised(view, plan, None))

    def _decided(self, name: str, kept: Memorised) -> Decided:
        seen = kept.seen if kept.seen is not None else perceived(self._asked(), kept.view)
        return Decided(name, kept.view, kept.plan, seen)

    def _asked(self) -> Policy:
        """The copy of the policy that explanations ask."""
        if self._twin is None:
            self._twin = twin(self._policy)
        return self._twin

    def _ready(self, replanning: bool) -> Explainer:
        """What explains placements, or re-planning; made anew now and then, and once no warm-up is needed."""
        until = self._until()
        alike = sum(kept.view.replanning == replanning for kept in self._own(until).values())
        enough, known = alike >= LEAST_ALIKE, self._explainers.get(replanning)
        if known is None or known[:2] != (until, enough):
            from attribution_sched.explain.explainer import Explainer

            explainer = Explainer(self._asked(), self._background(enough), world=self.world)
            known = self._explainers[replanning] = (until, enough, explainer)
        return known[2]

    def _until(self) -> int:
        """Decisions before this one are the background.

        It follows from how many were taken, not from when somebody asked: a resumed system, whose memory is made anew,
        explains like one that never stopped.
        """
        if self._newest:
            return self._next
        fewest = next((step for step in (10, 50) if self._next < 5 * step), REFRESH)
        step = max(1, min(fewest, REFRESH, self.most // 4))
        return self._next - self._next % step

    def _own(self, until: int) -> dict[str, Memorised]:
        # Not the oldest: they are forgotten before the background is put together anew.
        first = until - self.most + self.most // 4
        with self._lock:
            return {name: kept for name, kept in self._kept.items() if first <= kept.number < until}

    def _background(self, enough: bool) -> Background:
        own = [self._decided(name, kept) for name, kept in self._own(self._until()).items()]
        if enough:
            return Background.of(own, f"the last {len(own)} decisions")
        if self._warm is None:
            self._warm = self._warm_up()
        how = {"count": len(self._warm), "seed": self._seed + SEED_STEP, "own": len(own)}
        name = Phrase("background.warm_up_and_own" if own else "background.warm_up", **how)
        return Background.of([*self._warm, *own], name)

    def _warm_up(self) -> list[Decided]:
        """Decisions of the same policy on another day of the same world; nothing of it is kept but these."""
        policy, call = twin(self._policy), PolicyCall()
        cluster = SimulatedCluster(self.world, self._seed + SEED_STEP, attribute=self._attribute)
        taken: list[Decided] = []
        placements = 0
        while len(taken) < WARM_UP and placements < 3 * LEAST_ALIKE and cluster.advance():
            asked = call.ask(policy, cluster)
            name = f"warm-up {len(taken)}"
            taken.append(Decided(name, asked.view, asked.plan, perceived(policy, asked.view)))
            placements += not asked.view.replanning
            cluster.carry_out(cluster.encode(asked.plan, asked.view.kind_index))
            call.note(asked)
        return taken
