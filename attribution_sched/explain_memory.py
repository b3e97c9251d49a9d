"""The last decisions, remembered so that they can be explained and serve as each other's background."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from attribution_sched.cluster.decision import Decision
from attribution_sched.cluster.decision import view as view_of
from attribution_sched.cluster.decision_batch import Decisions
from attribution_sched.cluster.engine import state as st
from attribution_sched.cluster.plan import Plan
from attribution_sched.cluster.pool import Attribute
from attribution_sched.cluster.world import World
from attribution_sched.errors import ExplanationError, TaskError, nearest, problem
from attribution_sched.explain.background import LEAST_ALIKE, Background
from attribution_sched.explain.watch import Decided, perceived
from attribution_sched.explain.why import Holder, put_up
from attribution_sched.explain.words import Phrase
from attribution_sched.live_cluster import SimulatedCluster, TaskInstance
from attribution_sched.policy_call import PolicyCall, devices_of, twin
from attribution_sched.scheduler.policy import Appraiser, Policy
from attribution_sched.types import IntArray

if TYPE_CHECKING:
    from attribution_sched.explain.explainer import Explainer
    from attribution_sched.explain.explanation import Explanation


MOST = 1000
"""Decisions that are remembered by default."""

BLOCK, WINDOW = 50, 200
"""A decision is compared with so many before the block of decisions that it is one of: always with the same ones."""

WINDOWS = 8
"""Backgrounds that are kept ready."""

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
        # Shared by whoever decides and whoever explains; held for a moment only. Its own thread may take it again: an
        # exception that a trace function raises as the block ends leaves it taken, and the next call would wait for ever.
        self._lock = threading.RLock()
        self._kept: OrderedDict[str, Memorised] = OrderedDict()
        self._next = 0
        self._twin: Policy | None = None
        self._warm: list[Decided] | None = None
        self._since = 0
        # What was lived through again for decisions of long ago: their windows by where these end.
        self._recalled: OrderedDict[int, dict[str, Memorised]] = OrderedDict()
        self._explainers: OrderedDict[tuple[int, bool], Explainer] = OrderedDict()

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
            self._since = self._next
        self._recalled.clear()
        self._explainers.clear()

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
        explainer = self._ready(decided.view.replanning, self._number(decided.id))
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

    def window(self, number: int) -> tuple[int, int]:
        """First decision that a decision is compared with, and the one after the last.

        It follows from the decision's number alone, not from when somebody asks: all of them came before it, and the
        same question has the same answer for ever.
        """
        until = number - number % BLOCK
        return max(0, until - WINDOW), until

    def lacks(self, number: int) -> bool:
        """Whether some of the decisions that one is compared with are not remembered."""
        first, until = self.window(number)
        if until in self._recalled:
            return False
        with self._lock:
            known = {kept.number for kept in self._kept.values()}
        return not known.issuperset(range(max(first, self._since), until))

    def looks(self) -> Policy:
        """A copy of the policy that can be shown what was seen again, to see it as the policy did."""
        return twin(self._policy)

    def recall(
        self, decision: str, number: int, lived_through: Sequence[tuple[str, int, Decision, Plan | None, Decisions]]
    ) -> Decided:
        """A decision of long ago, seen again together with those that it is compared with.

        Args:
            decision: Its id.
            number: Its number.
            lived_through: Id, number, view, plan and what the policy saw, of it and of those before it.
        """
        found = {name: Memorised(view, plan, seen, at) for name, at, view, plan, seen in lived_through}
        own = found[decision]
        first, until = self.window(number)
        window = {name: kept for name, kept in found.items() if first <= kept.number < until}
        self._recalled[until] = {**window, decision: own, **self._recalled.get(until, {})}
        while len(self._recalled) > WINDOWS:
            self._recalled.popitem(last=False)
        return self._decided(decision, own)

    def _number(self, decision: str) -> int:
        known = self._kept.get(decision) or next(
            (window[decision] for window in self._recalled.values() if decision in window), None
        )
        return self._next if known is None else known.number

    def _decided(self, name: str, kept: Memorised) -> Decided:
        seen = kept.seen if kept.seen is not None else perceived(self._asked(), kept.view)
        return Decided(name, kept.view, kept.plan, seen)

    def _asked(self) -> Policy:
        """The copy of the policy that explanations ask."""
        if self._twin is None:
            self._twin = twin(self._policy)
        return self._twin

    def _ready(self, replanning: bool, number: int) -> Explainer:
        """What explains placements, or re-planning, of a block of decisions."""
        first, until = self.window(number)
        key = until, replanning
        if key not in self._explainers:
            from attribution_sched.explain.explainer import Explainer

            own = self._own(first, until)
            enough = sum(kept.view.replanning == replanning for kept in own.values()) >= LEAST_ALIKE
            self._explainers[key] = Explainer(self._asked(), self._background(own, enough), world=self.world)
            if len(self._explainers) > WINDOWS:
                self._explainers.popitem(last=False)
        return self._explainers[key]

    def _own(self, first: int, until: int) -> dict[str, Memorised]:
        """Decisions of a window, from memory or as they were lived through again."""
        known = self._recalled.get(until)
        if known is None:
            with self._lock:
                known = dict(self._kept)
        window = [(kept.number, name, kept) for name, kept in known.items() if first <= kept.number < until]
        return {name: kept for _, name, kept in sorted(window, key=lambda each: each[0])}

    def _background(self, kept: dict[str, Memorised], enough: bool) -> Background:
        own = [self._decided(name, each) for name, each in kept.items()]
        if enough:
            return Background.of(own, Phrase("background.before", count=len(own), first=own[0].id, last=own[-1].id))
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


def moment_of(cluster: SimulatedCluster, name: str) -> tuple[Decision, Sequence[Holder], IntArray, int]:
    """The moment as a decision about a task that does not run, whether one is pending or not.

    Args:
        cluster: Where.
        name: The task.

    Returns:
        The decision, with all devices that are free; who runs where; devices of the free ones that are not reserved for
        others, shape ``(K,)``; and how many tasks are before it if the policy does not look at it yet.

    Raises:
        TaskError: If there is no such task, or it runs already.
    """
    place = cluster.place_of(name)
    if place is None or place == "running":
        rule = "runs already" if place else "does not wait here: it ended, was withdrawn, or was never handed in"
        fix = "See queue() for what waits" if place else nearest(name, list(cluster.names()))
        raise TaskError(problem("task", name, rule, fix))
    state, k = cluster.engine.state, len(cluster.world.cluster)
    slot = cluster.slot_of(name)
    if slot is None:
        waiting = (
            cluster.held[name].waiting if place == "held" else next(w for w in cluster.backlog if w.task.id == name)
        )
        task = waiting.task
        at = next((each for each, there in cluster.residents.items() if there.id), None)
    else:
        task, at = None, slot
    if at is None:
        raise TaskError(problem("task", name, "is the only one, and on hold", f"Use release({name!r})"))
    event = state.event[0].copy()
    try:
        # As if it were put up now; nothing is decided.
        state.event[0, st.EVENT], state.event[0, st.SLOT] = st.PLACE, at
        seen = view_of(cluster.engine)
    finally:
        state.event[0] = event
    assert seen is not None
    if task is not None:
        seen = put_up(seen, replace(task, slot=-1, hold=place == "held"))
    running = [
        Holder(there.id, there.tenant, tuple(int(n) for n in devices_of(plan, k)))
        for each, there in cluster.residents.items()
        if state.slots[0, each, st.STATUS] == st.RUNNING and (plan := cluster.engine.running_plan(0, each)) is not None
    ]
    tenant = seen.task.tenant if seen.task is not None else ""
    allowed = (
        np.maximum(0, seen.free_devices - cluster.reserved_devices(tenant))
        if cluster.reservations
        else (seen.free_devices)
    )
    behind = len(seen.queue) if place == "backlog" else 0
    return seen, running, allowed, behind
