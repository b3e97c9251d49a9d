"""The one protocol every scheduler satisfies, ours or anybody's."""

from __future__ import annotations

import contextlib
import copy
import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

from attribution_sched.cluster.decision import Decision, Decisions
from attribution_sched.cluster.plan import Plan
from attribution_sched.errors import SettingsError, problem
from attribution_sched.types import BoolArray, FloatArray, IntArray

if TYPE_CHECKING:
    from attribution_sched.cluster.decision import Moment
    from attribution_sched.cluster.fork import Beliefs, Follower

_logger = logging.getLogger(__name__)


class Policy(Protocol):
    """Decides where and how a task runs."""

    @property
    def name(self) -> str:
        """Short name for tables and logs."""
        ...

    def decide(self, view: Decision) -> Plan | None:
        """Return a plan; None leaves a waiting task in the queue and a running one where it is."""
        ...


def pairs(policy: Policy) -> bool:
    """Whether a policy puts two tasks on one device; it says so by an attribute ``pairs``."""
    return bool(getattr(policy, "pairs", False))


def plays_copies(policy: Policy) -> bool:
    """Whether a policy may look at a decision's ``moment``; one that never does says so by ``plays_copies = False``."""
    return bool(getattr(policy, "plays_copies", True))


@runtime_checkable
class QueueOrder(Protocol):
    """A policy that also chooses which waiting task is placed first."""

    def select(self, view: Decision) -> int:
        """Return the slot of a task of ``view.queue``; asked only when a waiting task is to be placed."""
        ...


@runtime_checkable
class Episodic(Protocol):
    """A policy that remembers, and must be told when an episode begins."""

    def reset(self, seed: int) -> None:
        """Forget the last episode; ``seed`` feeds the policy's own random choices."""
        ...


@runtime_checkable
class AttributionReader(Protocol):
    """A policy whose weights have learnt from certain attributions: whoever asks it fills its decisions with these."""

    def attributions(self, counters: FloatArray) -> FloatArray:
        """States ``(n, 7)`` in [−1, 1] of counters ``(n, 12)``, as in its training."""
        ...


@runtime_checkable
class Branching(Protocol):
    """A policy that can be had once more, as it is, without its tables being made or copied again."""

    def branch(self) -> Policy:
        """Another that decides on from here by all that this one remembers; neither notices the other."""
        ...


@runtime_checkable
class Recallable(Protocol):
    """A policy that can say what it remembers, so that it need not live through all of it again."""

    def memory(self) -> dict[str, FloatArray]:
        """What it remembers between two decisions, as arrays by name."""
        ...

    def recall(self, memory: Mapping[str, FloatArray]) -> None:
        """Remember what :meth:`memory` told, and nothing else."""
        ...


@runtime_checkable
class LinkWatcher(Protocol):
    """A policy that follows the links from decision to decision, and can be shown those it is not asked about."""

    def watch_links(self, view: Decision) -> None:
        """Take in what a decision tells of the links, and of pairs that run, as deciding on it does."""
        ...

    def perceive_later(self, view: Decision) -> Callable[[], Decisions]:
        """As :meth:`Appraiser.perceive`: links are forecast now, the rest is read when it is called."""
        ...


@runtime_checkable
class Foresight(Protocol):
    """A policy that says who plays copies of a cluster on in its place, quickly, and what it believes of tasks."""

    def foresight(self, view: Decision) -> tuple[Follower, Beliefs]:
        """Who goes on as it would, and its beliefs; the decision carries its moment."""
        ...


@dataclass(frozen=True, eq=False)
class Appraisal:
    """What a policy thinks of P plans for one task in each of n situations.

    Attributes:
        terms: The plans' own R_eff, R_util and R_cost as the policy expects them, shape ``(n, P, 3)``; 0 for none.
        log_probability: Of choosing this task and this plan, shape ``(n, P)``.
    """

    terms: FloatArray
    log_probability: FloatArray


@runtime_checkable
class Appraiser(Protocol):
    """A policy that can say what it thinks of plans, in many situations at once; the best to explain."""

    def perceive(self, view: Decision) -> Decisions:
        """One decision as the policy sees it: attributions of the tasks and forecasts of the links included."""
        ...

    def appraise(
        self,
        view: Decision,
        situations: Decisions,
        plans: Sequence[Plan | None],
        *,
        log_probability: bool = True,
    ) -> Appraisal:
        """Judge plans for the view's task.

        Args:
            view: The decision itself. What can be chosen stays as it is there: a situation changes what is seen and
                what links carry, not which devices a plan may use.
            situations: n variations of it; the view's task is candidate 0 of each.
            plans: Plans for that task; None lets it wait (or stay).
            log_probability: Whether it is asked for; zeros otherwise.
        """
        ...

    def propose(self, view: Decision, situations: Decisions) -> list[Plan | None]:
        """What the policy itself would do with the view's task in each situation."""
        ...


class Preferred(NamedTuple):
    """What a policy does about one task.

    Attributes:
        plan: Its plan; None if it waits or stays.
        another: Whether it waits because another waiting task goes first.
    """

    plan: Plan | None
    another: bool = False


@runtime_checkable
class ChoiceOdds(Protocol):
    """A policy that can say by how much it prefers a choice, with what each situation itself offers beside it."""

    def log_odds(self, view: Decision, situations: Decisions, plan: Plan | None) -> FloatArray:
        """Log-odds ``(n,)`` of a choice for the view's task against the best other one; > 0 exactly if it is chosen.

        Args:
            view: The decision itself.
            situations: n variations of it; the view's task is candidate 0 of each.
            plan: The choice; None lets the task wait (or stay).
        """
        ...

    def forced(self, view: Decision, situations: Decisions, plan: Plan | None) -> BoolArray:
        """Where a choice is all that is on offer, shape ``(n,)``: nothing that was learnt has a say there."""
        ...

    def prefer(self, view: Decision, situations: Decisions) -> list[Preferred]:
        """What is chosen for the view's task in each situation."""
        ...


@runtime_checkable
class Settles(Protocol):
    """A policy whose odds hang on what its search settled on: told that, it need not search again."""

    def settled(self, view: Decision, plan: Plan | None) -> None:
        """Take it that the search of this decision settled on a plan."""
        ...


@dataclass(frozen=True)
class Overruled:
    """A choice that was put in the place of a policy's own: it did better in copies, or experience prefers it.

    Attributes:
        own: The policy's own choice for the task; None waits, stays, or lets another go first.
        another: Whether its own choice is another task.
        gain: R over the own choice, mean over the copies; by experience, what its critics expect.
        error: Standard error of that; 0 by experience.
        copies: How many; 0 by experience.
        added: What this adds to the log-odds of the choice.
        added_error: Standard error of that.
    """

    own: Plan | None
    another: bool
    gain: float
    error: float
    copies: int
    added: float
    added_error: float


@runtime_checkable
class Thoughtful(Protocol):
    """A policy that puts other choices in the place of its own, by copies or by experience, and can tell why."""

    def overruled(self, view: Decision, plan: Plan | None) -> Overruled | None:
        """What came of that at a decision, asked again; None unless this choice was put in the own one's place."""
        ...


@runtime_checkable
class Redecider(Protocol):
    """An appraiser whose decision is more than its agents' proposal, and can be had again in any situation."""

    def redecide(self, views: Sequence[Decision], situations: Decisions) -> list[Plan | None]:
        """What is decided for the views' task in each situation; None where it waits, stays, or another goes first.

        Args:
            views: The situations as views.
            situations: The same as arrays, forecasts included, the views' task as candidate 0.
        """
        ...


@runtime_checkable
class Selective(Protocol):
    """An appraiser that knows which numbers of a decision its expectation of a plan's own terms depends on."""

    def terms_read(self, plans: Sequence[Plan | None]) -> frozenset[str]:
        """Fields of :class:`Decisions` that the terms of these plans depend on; of candidates, only the first one."""
        ...


@runtime_checkable
class BatchAppraiser(Protocol):
    """An appraiser that judges decisions of one cluster together, each with its own plan."""

    def appraise_each(
        self,
        views: Sequence[Decision],
        situations: Decisions,
        owner: IntArray,
        plans: Sequence[Plan | None],
    ) -> Appraisal:
        """Judge one plan per decision; log-probabilities are not asked for.

        Args:
            views: The decisions.
            situations: n variations of them.
            owner: Which decision each is a variation of, shape ``(n,)``.
            plans: A plan for each decision.
        """
        ...


class FunctionPolicy:
    """A plain function of the view in the place of a policy.

    Args:
        function: Returns a plan, or None to let the task wait (or stay).
    """

    def __init__(self, function: Callable[[Decision], Plan | None]) -> None:
        self.function = function
        self.name = getattr(function, "__name__", type(function).__name__)

    def decide(self, view: Decision) -> Plan | None:
        """What the function says."""
        return self.function(view)


@runtime_checkable
class Hurried(Protocol):
    """A policy that takes a fallback when a clock says so.

    Attributes:
        deadline_s: How long a decision may take.
    """

    deadline_s: float


@contextlib.contextmanager
def unhurried(policy: Policy) -> Iterator[None]:
    """A policy has all the time it needs: what is played in a simulation must not differ on a busy machine."""
    if not isinstance(policy, Hurried):
        yield
        return
    deadline_s, policy.deadline_s = policy.deadline_s, math.inf
    try:
        yield
    finally:
        policy.deadline_s = deadline_s


def twin(policy: Policy, *, remembers: bool = False) -> Policy:
    """A copy that can be asked without the original noticing, as at the start of an episode or with what it remembers.

    It has all the time it needs: what is explained, learnt or reshaped must not differ on a busy machine.
    What a foreign policy holds (a socket, a handle) may refuse to be copied: it is shared then, and a warning says so.
    """
    if isinstance(policy, FunctionPolicy):
        return policy
    try:
        other = copy.deepcopy(policy)
    except Exception as error:
        _logger.warning(
            "policy %s cannot be copied (%s: %s): asking its copy may change the original; give it __deepcopy__",
            policy.name, type(error).__name__, error,
        )  # fmt: skip
        other = copy.copy(policy)
    if isinstance(other, Episodic) and not remembers:
        other.reset(0)
    if isinstance(other, Hurried):
        other.deadline_s = math.inf
    return other


def at_ease(policy: Policy) -> Policy:
    """A copy that decides without playing copies of the cluster on, where it is the situations that count."""
    other = twin(policy)
    if getattr(other, "think", None) is not None:
        other.think = None  # type: ignore[attr-defined]
    return other


@dataclass(frozen=True, eq=False)
class TreeReading:
    """How a decision tree came to what it said at a decision.

    Attributes:
        head: What the tree decides: ``task``, ``wait``, ``layout`` or ``move``.
        path: Input, its value and the threshold it was compared with, from the root to the leaf.
        value: What the leaf says.
        inputs: Names of all inputs.
        x: Their values, shape ``(inputs,)``.
        usual: Inputs that it is usually asked about, shape ``(n, inputs)``.
        nodes: ``feature``, ``threshold``, ``left``, ``right`` and ``value`` of the tree, the root first.
    """

    head: str
    path: tuple[tuple[str, float, float], ...]
    value: float
    inputs: tuple[str, ...]
    x: FloatArray
    usual: FloatArray
    nodes: Mapping[str, Any]


@runtime_checkable
class TreeReader(Protocol):
    """A policy that decides by trees, and can say on which way down each came to what it said."""

    def readings(self, view: Decision, plan: Plan | None) -> tuple[TreeReading, ...]:
        """The trees that had a say in what was decided on the view's task."""
        ...


def go_on_as(policy: Policy, view: Decision, *, quick: bool = False) -> tuple[Follower, Beliefs]:
    """Who plays copies of a decision's cluster on as a policy would, and what is believed of tasks.

    A policy that can say so itself (:class:`Foresight`) does; any other is asked in
    every copy, which is far slower, and nothing is believed of a task but its kind.

    Args:
        policy: As whom.
        view: The decision.
        quick: Let the compiled rule go on in place of a policy that would have to be asked.

    Raises:
        SettingsError: If the decision does not carry its moment.
    """
    from attribution_sched.cluster.engine.engine import Engine
    from attribution_sched.cluster.fork import PriorBeliefs
    from attribution_sched.scheduler.policy_follower import PolicyFollower
    from attribution_sched.scheduler.rule_follower import RuleFollower

    if isinstance(policy, Foresight):
        return policy.foresight(view)
    moment = view.moment
    if moment is None:
        fix = "Take decisions from a cluster"
        raise SettingsError(problem("decision.moment", None, "is needed to play copies on", fix))
    rule, beliefs = RuleFollower.of(moment), PriorBeliefs(moment.world)
    return rule if quick else PolicyFollower(policy, rule, Engine(moment.world)), beliefs


def decides_now(policy: Policy, moment: Moment, until: int | None = None) -> Follower:
    """A policy, itself and whole, in the last copy of a moment's cluster: for what it would do at this instant.

    Args:
        policy: Who decides.
        moment: Of the cluster.
        until: Slot of a task; once it runs the rest of the queue is not asked about.
    """
    from attribution_sched.scheduler.policy_follower import PolicyFollower

    return PolicyFollower.at_once(policy, moment, until)
