"""The last decisions, remembered so that they can be explained and serve as each other's background."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from attribution_sched.cluster.decision import Decision, Decisions
from attribution_sched.cluster.demands import Demands
from attribution_sched.cluster.plan import Plan
from attribution_sched.cluster.world import World
from attribution_sched.errors import ExplanationError
from attribution_sched.explain.background import LEAST_ALIKE, Background
from attribution_sched.explain.recorder import Decided, perceived
from attribution_sched.kernels import one_thread
from attribution_sched.scheduler.policy import Appraiser, Branching, Episodic, LinkWatcher, Policy, at_ease, twin
from attribution_sched.types import FloatArray
from attribution_sched.words.say import Phrase

if TYPE_CHECKING:
    from attribution_sched.explain.explainer import Explainer
    from attribution_sched.explain.explanation import Explanation


MOST = 1000
"""Decisions that are remembered by default."""

BLOCK, WINDOW = 50, 200
"""A decision is compared with so many before the block of decisions that it is one of: always with the same ones."""

WINDOWS = 8
"""Backgrounds that are kept ready."""

SEED_STEP = 7_919
"""Added to a system's seed for its warm-up: another day of the same world."""

QUICK: dict[str, Any] = {"rows": 1600, "precision": 0.1}
"""How decisions are explained as they are taken: short, and in rows, so that a busy machine explains no otherwise."""


WarmUp = Callable[[Policy, int], list[Decided]]
"""Decisions of a policy on a day of its own, by the day's seed."""


class KnownTask(Protocol):
    """A task of which more is known than its kind."""

    @property
    def counters(self) -> FloatArray:
        """Its counters."""
        ...

    @property
    def demands(self) -> Demands:
        """What it really asks for."""
        ...


@dataclass(eq=False)
class Memorised:
    """A decision as it was taken; how it was seen is worked out when somebody asks, and then kept.

    Attributes:
        view: What was decided on.
        plan: What was decided.
        see: How the policy saw it: what depends on what it saw before is known already.
        number: Its number in the journal.
        source: Who had the last word.
    """

    view: Decision
    plan: Plan | None
    see: Callable[[], Decisions]
    number: int = 0
    source: str = ""
    _seen: Decisions | None = None

    @property
    def seen(self) -> Decisions:
        """As the policy saw it."""
        if self._seen is None:
            self._seen = self.see()
        return self._seen


def seeing(policy: Policy) -> Callable[[Decision], Callable[[], Decisions]]:
    """How a policy sees decisions, for whoever asks later; to be called with each before the next one is taken."""
    if isinstance(policy, LinkWatcher):
        return policy.perceive_later
    if isinstance(policy, Appraiser):
        # What it sees may depend on what it saw before: it is asked now or never.
        return lambda view: partial(_same, perceived(policy, view))
    return lambda view: partial(perceived, policy, view)


def _same(seen: Decisions) -> Decisions:
    return seen


class Memory:
    """Remembers decisions of one policy in one world and explains them.

    Args:
        world: Where.
        policy: Who decides; explanations ask a copy of it.
        warm_up: Gives decisions of a policy on another day of the same world, by its seed: the background of a policy
            that has hardly decided yet.
        seed: Of the system; the warm-up takes another.
        most: How many decisions to remember; the oldest are forgotten first.
    """

    def __init__(self, world: World, policy: Policy, warm_up: WarmUp, seed: int, most: int = MOST) -> None:
        self.world = world
        self.most = most
        self._policy = policy
        self._warm_up = warm_up
        self._seed = seed
        # Shared by whoever decides and whoever explains; held for a moment only. Its own thread may take it again: an
        # exception that a trace function raises as the block ends leaves it taken, and the next call would wait for
        # ever.
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

    def remember(
        self, decision: str, view: Decision, plan: Plan | None, number: int | None = None, source: str = ""
    ) -> None:
        """Keep a decision; to be called before the next one is taken. Told twice, it is kept once.

        Args:
            decision: Its id.
            view: What was decided on.
            plan: What was decided.
            number: Its number in the journal; the next one by default.
            source: Who had the last word.
        """
        if decision in self._kept:
            return
        number = self._next if number is None else number
        see = seeing(self._policy)(view)
        with self._lock:
            self._kept[decision] = Memorised(view, plan, see, number, source)
            self._next = number + 1
            if len(self._kept) > self.most:
                self._kept.popitem(last=False)

    # With several threads BLAS adds up in another order, and a last digit of the record would tell how many there were.
    @one_thread(torch=False)
    def explain(self, decided: Decided, *, task: KnownTask | None = None, **options: Any) -> Explanation:
        """Explain a decision against the background of the others.

        How sure the policy was cannot be asked where its search left what the network itself could have proposed; the
        explanation then says so, unless it was asked for by name.

        Args:
            decided: The decision.
            task: What was handed in, if it was: the simulator then prices this very task, not a nominal one.
            **options: Of ``Explainer.explain``.
        """
        explainer = self._ready(decided.view.replanning, self._number(decided.id))
        if task is not None and explainer.simulator is not None:
            explainer.simulator.know(task.counters, task.demands.ratio[0])
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

    def looks(self, *, remembers: bool = False) -> Policy:
        """A copy of the policy that can be asked, or shown what was seen, without anybody noticing."""
        return twin(self._policy, remembers=remembers)

    def eyes(self) -> Policy:
        """A copy that is shown again what was seen long ago, as at the start; for one who explains at a time.

        One that follows the links and can branch shares what it has learnt, which is large and is only read; of what
        it remembers the branch has its own, so that forgetting is no harm to the original. Any other is copied.
        """
        if isinstance(self._policy, LinkWatcher) and isinstance(self._policy, Branching):
            other = self._policy.branch()
            if isinstance(other, Episodic):
                other.reset(0)
            return other
        return self.looks()

    def recall(
        self,
        decision: str,
        number: int,
        lived_through: Mapping[str, Memorised],
    ) -> Decided:
        """A decision of long ago, seen again together with those that it is compared with.

        Args:
            decision: Its id.
            number: Its number.
            lived_through: It and those before it, by their ids.
        """
        own = lived_through[decision]
        first, until = self.window(number)
        window = {name: kept for name, kept in lived_through.items() if first <= kept.number < until}
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
        return Decided(name, kept.view, kept.plan, kept.seen, kept.source)

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
            self._warm = self._warm_up(at_ease(self._policy), self._seed + SEED_STEP)
        how = {"count": len(self._warm), "seed": self._seed + SEED_STEP, "own": len(own)}
        name = Phrase("background.warm_up_and_own" if own else "background.warm_up", **how)
        return Background.of([*self._warm, *own], name)
