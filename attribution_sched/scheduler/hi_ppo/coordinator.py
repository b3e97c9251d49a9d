"""Hi-PPO as a policy: both agents propose, a local search settles the details, thinking compares, a rule stands by."""

from __future__ import annotations

import copy
import hashlib
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from attribution_sched import kernels
from attribution_sched.cluster.cost import CostModel
from attribution_sched.cluster.counters import LEAST_WORKING
from attribution_sched.cluster.decision import Decision, Decisions, from_view, own_first
from attribution_sched.cluster.plan import Plan, PlanBatch
from attribution_sched.cluster.world import TaskKind, task_working
from attribution_sched.errors import PlanError, SettingsError, problem
from attribution_sched.planning.domain_orders import best_by_domains
from attribution_sched.planning.local_search import NOMINAL, LocalSearch, SearchMemo, search_around
from attribution_sched.planning.power_caps import capped, with_cap
from attribution_sched.scheduler.beliefs import DemandBeliefs
from attribution_sched.scheduler.hi_ppo.action_masks import DONE
from attribution_sched.scheduler.hi_ppo.decode import Actor, Decoded, Planner, decode
from attribution_sched.scheduler.hi_ppo.features import UTILISATION_SHARE
from attribution_sched.scheduler.hi_ppo.partners import Partners
from attribution_sched.scheduler.hi_ppo.ranker import Ranker, as_levels
from attribution_sched.scheduler.hi_ppo.reward_weights import WeightMode, checked_mode, weighed
from attribution_sched.scheduler.pairing import TrialBelief
from attribution_sched.scheduler.policy import Appraisal, Overruled, Policy, Preferred
from attribution_sched.scheduler.predictor.forecast import ViewForecast, checked_method
from attribution_sched.scheduler.rules import ShortestJobFirst, first_with_room
from attribution_sched.scheduler.thinking import Option, Think, Thinker, Thought, decision_seed, is_new, known_tasks
from attribution_sched.types import ATTRIBUTION_SCHEMA, Attributor, BoolArray, FloatArray, IntArray

if TYPE_CHECKING:
    from attribution_sched.cluster.fork import Beliefs, Follower
    from attribution_sched.scheduler.hi_ppo.agents import AgentsActor
    from attribution_sched.scheduler.hi_ppo.candidate_features import Described
    from attribution_sched.scheduler.hi_ppo.candidates import ComparedActor
    from attribution_sched.scheduler.hi_ppo.checkpoint import Weights
    from attribution_sched.scheduler.hi_ppo.log_odds import Rivals
    from attribution_sched.scheduler.hi_ppo.upper_agent import Agents

# ------ The time both levels have to agree in, and who decides if they do not

COORDINATION_LIMIT_S = 2.0
"""Longest time from the upper agent's choice to the last lower agent's."""


@dataclass(frozen=True)
class Fallback:
    """A decision that was not the learner's.

    Attributes:
        reason: Why, for a person to read.
        policy: Who decided instead.
    """

    reason: str
    policy: str


class Deadline:
    """Time left for the two levels to agree.

    Starts when made and again when entered as a context.

    Args:
        limit_s: Time allowed.
        clock: Seconds that only ever rise.
    """

    def __init__(self, limit_s: float = COORDINATION_LIMIT_S, clock: Callable[[], float] = time.perf_counter) -> None:
        if not limit_s > 0:
            raise SettingsError(problem("deadline.limit_s", limit_s, "must be > 0", "Use infinity for no deadline"))
        self.limit_s = limit_s
        self._clock = clock
        self._start_s = clock()

    def __enter__(self) -> Self:
        self._start_s = self._clock()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    @property
    def elapsed_s(self) -> float:
        """Time since the start."""
        return self._clock() - self._start_s

    @property
    def expired(self) -> bool:
        """Whether no time is left."""
        return self.elapsed_s >= self.limit_s

    def fallback(self, policy: str, stage: str) -> Fallback | None:
        """Say who must decide because time ran out; None while there is time.

        Args:
            policy: Name of the policy that takes over.
            stage: What was going on, like "lower agents".
        """
        elapsed = self.elapsed_s
        if elapsed < self.limit_s:
            return None
        return Fallback(f"coordination took {elapsed:.3f} s of {self.limit_s:.3f} s allowed, at: {stage}", policy)


# ------ Hi-PPO as a policy: both agents propose, a local search settles the details, thinking compares

CLUSTERS = 4
"""Clusters whose tables are kept."""

CUTS, CUT_TASKS = 5, 3
"""Sets of domains that the cut of one task is compared over, and tasks that are cut among a decision's candidates."""

PAIRS = "pairs."
"""How the names of what was learnt of pairs begin in a policy's memory."""

REFUSED = "refused"
"""Name after that of pairs which the cluster refused."""

Moment = tuple[float, tuple[int, ...], tuple[int, ...]]
"""Time, free devices and waiting tasks: while none of these changes, what was chosen for the queue stands."""


@dataclass(frozen=True, eq=False)
class Experience:
    """What the ranker put in the place of the agents' choice.

    Attributes:
        own: The agents' choice.
        added: What was learnt adds to the log-odds that the agents give the ranker's choice over it.
        gain: R over it that the critics expect.
    """

    own: Option
    added: float
    gain: float


@dataclass(frozen=True, eq=False)
class Coordination:
    """How the last decision came about.

    Attributes:
        plan: What is done; None lets the task wait or stay.
        slot: The task it is for.
        source: ``policy``, ``policy+search``, ``search`` (a wide search, for a task that waiting would not help),
            ``keeps``, ``waits``, ``partner`` (beside another task, or apart from it), ``ranker`` (experience prefers
            another choice), ``thinking`` (another choice did better in copies of the cluster), or the fallback's name
            after ``fallback:``.
        reason: Why the fallback was taken, or what waiting for a cleaner hour is for; empty if neither.
        upper_s: Time of the upper agent, its masks included.
        lower_s: Time of the lower agents.
        search_s: Time of the local search.
        total_s: Everything.
        think_s: Time of thinking.
        thought: What the choices were worth that were compared; None if none were.
        experience: What the ranker put in the place of the agents' choice; None if it left that.
    """

    plan: Plan | None
    slot: int
    source: str
    reason: str
    upper_s: float
    lower_s: float
    search_s: float
    total_s: float
    think_s: float = 0.0
    thought: Thought | None = None
    experience: Experience | None = None


class HiPpo:
    """The hierarchical scheduler.

    Args:
        weights: A checkpoint, or what was read from one; the one that comes with the package by default.
        attributor: How counters become attributions where a decision does not carry them, and what attributions mean;
            as the weights have learnt it by default. A decision's own attributions are never worked out again.
        search: Whether a search settles details of a proposal, and places tasks that waiting would not help.
        widen: Whether the search around a proposal may always change numbers of devices and domains; devices that
            others wait for are charged.
        predict: Whether links are forecast, by a Kalman filter or as it says (``gru``, ``persistence``), for whoever
            asks about decisions; no choice hangs on it.
        wishes: Chooses the reward weights at every decision, for example by the state of the network; those of the
            view by default. ``adaptive`` lets those of the view follow the state of the network, ``pareto`` draws them.
        think: How much the leading choices are compared in copies of the cluster before one acts; True for the usual
            amount, False for not at all. Decisions that do not carry their moment are taken without.
        deadline_s: When to stop coordinating and take the fallback.
        fallback: Who decides then; shortest job first by default.
        clock: Where the time comes from.
    """

    name = "hi-ppo"
    pairs = True
    caps = True
    waits = True
    """Whether a task may be left waiting though it fits: a freedom that studies cut."""
    thinks_where_full = True
    """Whether sharing devices that others hold is thought about where none is free: days that are forked are not."""
    compares_window = True
    """Its upper agent chooses among all waiting tasks and waiting itself: one answer for the whole window."""

    def __init__(
        self,
        weights: str | Path | Weights | None = None,
        attributor: Attributor | None = None,
        *,
        search: bool = True,
        widen: bool = False,
        predict: bool | str = True,
        wishes: WeightMode | str | None = None,
        think: Think | bool = False,
        deadline_s: float = COORDINATION_LIMIT_S,
        fallback: Policy | None = None,
        clock: Callable[[], float] = kernels.clock,
    ) -> None:
        self.weights = weights
        self.attributor = attributor
        self.search = search
        self.widen = widen
        self.predict = checked_method(predict) if isinstance(predict, str) else predict
        self.wishes = checked_mode(wishes) if isinstance(wishes, str) else wishes
        self.think: Think | None = (Think() if think else None) if isinstance(think, bool) else think
        self.deadline_s = deadline_s
        self.fallback: Policy = fallback or ShortestJobFirst()
        self.clock = clock
        self.last: Coordination | None = None
        self._learnt: Weights | None = None
        self._planners: WeakKeyDictionary[CostModel, Planner] = WeakKeyDictionary()
        self._alike: dict[bytes, Planner] = {}
        self._demands: dict[tuple[TaskKind, ...], DemandBeliefs] = {}
        self._last_demands: tuple[tuple[TaskKind, ...], DemandBeliefs] | None = None
        self._batches: WeakKeyDictionary[CostModel, dict[tuple[object, ...], PlanBatch]] = WeakKeyDictionary()
        self._agents: WeakKeyDictionary[Planner, Agents] = WeakKeyDictionary()
        self._rivals: tuple[Decision, Rivals] | None = None
        self._warm = False
        self._searched = SearchMemo()
        self._chosen: tuple[Moment, Coordination] | None = None
        self._forecast: ViewForecast | None = None
        self._memory: dict[str, NDArray[np.float64]] = {}
        self._thinker: Thinker | None = None
        self.partners = Partners(self.attributions)

    @property
    def learnt(self) -> Weights:
        """What both agents have learnt, read on first use."""
        if self._learnt is None:
            from attribution_sched.scheduler.hi_ppo.checkpoint import SHIPPED, Weights, load

            given = self.weights
            self._learnt = given if isinstance(given, Weights) else load(given or SHIPPED)
        return self._learnt

    def reset(self, seed: int) -> None:
        """Forget the last episode."""
        self._chosen = None
        self._forecast = None
        self._memory = {}
        self.partners.reset(seed)

    def memory(self) -> dict[str, NDArray[np.float64]]:
        """What was learnt of the links and of pairs of tasks; the rest is worked out anew from what is seen."""
        links = dict(self._memory) if self._forecast is None else self._forecast.memory()
        pairs = self.partners.belief.memory() if isinstance(self.partners.belief, TrialBelief) else {}
        refused = self.partners.refusals()
        pairs |= {REFUSED: refused} if len(refused) else {}
        return links | {PAIRS + name: array for name, array in pairs.items()}

    def recall(self, memory: Mapping[str, NDArray[np.float64]]) -> None:
        """Remember what was learnt of the links and of pairs."""
        self.reset(0)
        self._memory = {name: array for name, array in memory.items() if not name.startswith(PAIRS)}
        if isinstance(self.partners.belief, TrialBelief):
            seen = {name.removeprefix(PAIRS): array for name, array in memory.items() if name.startswith(PAIRS)}
            self.partners.belief.recall(seen)
        self.partners.recall_refusals(memory.get(PAIRS + REFUSED, np.zeros((0, 0))))

    def planner(self, view: Decision) -> Planner:
        """Tables of the view's cluster, made once."""
        known = self._planners.get(view.cost)
        same = known is not None and known.tables.max_segments == view.max_segments
        if known is None or not (same and np.array_equal(known.tables.base_step_s, view.base_step_s)):
            # The same cluster comes with another cost model in every episode: what fits where is not worked out anew.
            alike = _digest(view)
            known = self._alike.get(alike)
            if known is None:
                base, paces = (view.base_step_s, view.base_cost_usd), self.demands(view.kinds).paces
                known = Planner.of(view.cost, view.kinds, *base, view.max_segments, paces)
                self._alike = dict([*self._alike.items(), (alike, known)][-CLUSTERS:])
            self._planners[view.cost] = known
        return known

    def demands(self, kinds: tuple[TaskKind, ...]) -> DemandBeliefs:
        """What attributions and pace say of the demands of tasks of some kinds; made once."""
        last = self._last_demands
        # Hashing a world's kinds, layer by layer, takes longer than what is asked of them.
        if last is not None and last[0] is kinds:
            return last[1]
        if kinds not in self._demands:
            made = DemandBeliefs(kinds, self.attributions)
            self._demands = dict([*self._demands.items(), (kinds, made)][-CLUSTERS:])
        self._last_demands = kinds, self._demands[kinds]
        return self._demands[kinds]

    def select(self, view: Decision) -> int:
        """Choose which waiting task goes first; its plan is kept for :meth:`decide`."""
        moment = _moment(view)
        if self._chosen is None or self._chosen[0] != moment or self._chosen[1].plan is not None:
            self._chosen = (moment, self.coordinate(view))
        found = self._chosen[1]
        return view.slot if found.plan is None else found.slot

    def decide(self, view: Decision) -> Plan | None:
        """Place, defer, move or keep the task of the view."""
        if not view.replanning and self._chosen is not None and self._chosen[0] == _moment(view):
            found = self._chosen[1]
            if found.slot == view.slot or found.plan is None:
                # What was chosen for the queue holds for the task that was put up; nothing chosen holds for all.
                self.last = found
                if found.plan is not None:
                    self._chosen = None
                return found.plan
        self.last = self.coordinate(view if view.replanning else _only(view), others=_others(view))
        if self.last.plan is not None:
            self._chosen = None
        return self.last.plan

    def warm_up(self, view: Decision) -> None:
        """Load the weights and go through one decision of a cluster, so that compiling counts in no decision's time."""
        decisions = self.read(view)
        decisions.check()
        planner = self.planner(view)
        self._decode(view, planner, decisions, {"upper": 0.0, "lower": 0.0})
        if view.moment is not None and (self.search or self.think is not None):
            self.thinker().beliefs(view.moment.world, planner)
        if self.search and not self._warm:
            self._warm = self._search_widely(view, planner, decisions.only(0), 0, late=-np.inf) is not None

    def coordinate(self, view: Decision, *, others: int | None = None) -> Coordination:
        """Let both levels agree on a task of the view's queue and its plan.

        Args:
            view: The decision.
            others: Tasks that wait beside the one to be placed, if the view's queue does not tell.
        """
        _check_moment(view)
        if view.cost not in self._planners:
            self.warm_up(view)
        others = _others(view) if others is None else others
        began = self.clock()
        timings = {"upper": 0.0, "lower": 0.0}
        if view.current_plan is not None and view.cost.cluster.cap_levels:
            # A task keeps its caps with its plan: they are no part of what a plan is compared by.
            view = replace(view, current_plan=view.current_plan.uncapped())
        sharing = self.pairs and self.partners.apply(view)
        if sharing:
            self.partners.learn(view)
        full = not (np.asarray(view.free_devices) > 0).any()
        if sharing and (full if not view.replanning else view.kind.opaque):
            return self._share(view, began, timings, others)
        if full:
            return self._done(None, view.slot, "waits", began, timings, 0.0)
        if self.wishes is not None:
            view = weighed(view, self.wishes)
        deadline = Deadline(self.deadline_s, self.clock)
        decisions = self.read(view, self._ahead(view))
        decisions.check()
        planner = self.planner(view)
        found = self._decode(view, planner, decisions, timings)
        agreed = self.clock()
        missed = deadline.fallback(self.fallback.name, "both levels")
        if missed is not None:
            return self._fall_back(view, began, timings, missed.reason)
        slot, plan, source = self._agree(view, planner, decisions, found, others, began + self.deadline_s)
        settled = self.clock()
        if settled > began + self.deadline_s:
            # A search that was cut short gives one plan on a busy machine and another on an idle one: nobody may take
            # it for what this policy decides.
            reason = f"coordination took {settled - began:.3f} s of {self.deadline_s:.3f} s allowed, at: search"
            return self._fall_back(view, began, timings, reason)
        if sharing and plan is None and not view.replanning:
            slot, plan, source = self._beside(view)
        experience: Experience | None = None
        if self.learnt.ranker is not None:
            slot, plan, source, experience = self._rank(view, planner, decisions, slot, plan, source)
        thought, reason = self._think(view, planner, decisions, slot, plan, others), ""
        plan = self._capped(view, planner, slot, plan, others) if thought is None else thought.options[0].plan
        if thought is not None and thought.chosen:
            better = thought.options[thought.chosen]
            slot, plan, source = better.slot, better.plan, "thinking"
            if plan is None or (view.replanning and plan == view.current_plan):
                slot, plan = view.slot, None
            reason = "" if better.later is None else str(better.later)
        if plan is not None:
            self.partners.asked(view, slot, plan)
        done = replace(self._done(plan, slot, source, began, timings, settled - agreed), experience=experience)
        return (
            done if thought is None else replace(done, think_s=self.clock() - settled, thought=thought, reason=reason)
        )

    def _beside(self, view: Decision) -> tuple[int, Plan | None, str]:
        """The lower agent's proposal where nobody gets devices of its own: beside another, or waiting."""
        found = self.partners.propose(view)
        return (view.slot, None, "waits") if found is None else (*found, "partner")

    def _share(self, view: Decision, began: float, timings: dict[str, float], waiting: int) -> Coordination:
        """Decide where devices can only be shared, or whether a task that shares gets devices of its own."""
        slot, plan, source = view.slot, None, "keeps"
        if not view.replanning:
            slot, plan, source = self._beside(view)
            others = [Option(view.slot, None)] if plan is not None else []
        elif self.partners.shares(view):
            plan = self.partners.separate(view)
            source = "keeps" if plan is None else "partner"
            apart = first_with_room(view, view.kind_index, range(len(view.free_devices))) if plan is None else None
            others = [Option(view.slot, apart)] if apart is not None or plan is not None else []
        else:
            return self._done(None, slot, source, began, timings, 0.0)
        settled, thought, planner = self.clock(), None, self.planner(view)
        if self.thinks_where_full and view.moment is not None and self._may_think(view):
            own = Option(slot, plan)
            listed = [own, *(each for each in self._partner_options(view, slot, own) if not view.replanning), *others]
            listed = self._with_caps(view, planner, listed, waiting)
            if len(listed) > 1:
                thinker = self.thinker()
                table = self.partners.table(view, view.moment.world)
                thought = thinker.compare(view, planner, listed, decision_seed(view), table)
                plan = listed[0].plan
                if thought.chosen:
                    slot, plan = thought.options[thought.chosen].slot, thought.options[thought.chosen].plan
                    slot, source = (view.slot if plan is None else slot), "thinking"
        if thought is None:
            plan = self._capped(view, planner, slot, plan, waiting)
        if plan is not None:
            self.partners.asked(view, slot, plan)
        done = self._done(plan, slot, source, began, timings, 0.0)
        return replace(done, think_s=self.clock() - settled, thought=thought)

    def _partner_options(self, view: Decision, slot: int, own: Option) -> list[Option]:
        """Partners of a task and of others that wait, the own choice left out."""
        found = [Option(each, plan, 0.0, odds) for each, odds, plan in self.partners.options(view, slot)]
        return [each for each in found if (each.slot, each.plan) != (own.slot, own.plan)]

    def _agree(
        self, view: Decision, planner: Planner, decisions: Decisions, found: Decoded, others: int, late: float,
        row: int = 0,
    ) -> tuple[int, Plan | None, str]:  # fmt: skip
        """What comes of the agents' proposal, one row of what they found: the task, its plan and where that is from."""
        slot, task = view.slot, int(found.task[row])
        plan: Plan | None = None
        source = "search"
        if task < decisions.kind.shape[1] and found.drafts.status[row] == DONE:
            slot = int(decisions.slot[0, task])
            plan, source = self._settle(view, planner, decisions.only(task), found, others, late, row)
        elif self.search and not view.replanning:
            able = found.state.mask[row, :-1] & planner.waiting_is_futile(decisions)[0]
            for candidate in np.flatnonzero(able):
                slot = int(decisions.slot[0, candidate])
                # With more waiting than it sees, time is worth more than the last percent of one plan.
                single, thorough = decisions.only(int(candidate)), view.backlog == 0
                plan = self._search_widely(view, planner, single, others, late, thorough=thorough)
                if plan is not None or self.clock() > late:
                    break
        if plan is None or (view.replanning and plan == view.current_plan):
            return view.slot, None, "keeps" if view.replanning else "waits"
        return slot, plan, source

    def redecide(self, views: Sequence[Decision], situations: Decisions) -> list[Plan | None]:
        """What is decided in each situation, the search included and no deadline; see :class:`~.policy.Redecider`."""
        found: list[Plan | None] = [None] * len(views)
        able = [row for row, view in enumerate(views) if (np.asarray(view.free_devices) > 0).any()]
        if not able:
            return found
        planner, seen = self.planner(views[able[0]]), situations.take(np.array(able))
        if self.learnt.ranker is not None:
            for row in able:
                found[row] = self._ranked_again(views[row], planner, situations.links[row, 3])
            return found
        walked = self._decode_each([views[row] for row in able], planner, seen)
        for at, row in enumerate(able):
            view, one, task = views[row], seen.take(np.array([at])), int(walked.task[at])
            if task < seen.kind.shape[1] and walked.drafts.status[at] == DONE and seen.slot[at, task] != view.slot:
                # Another goes first, whatever a search makes of its plan.
                continue
            slot, plan, _ = self._agree(view, planner, one, walked, _others(view), math.inf, at)
            found[row] = self._capped(view, planner, slot, plan, _others(view)) if slot == view.slot else None
        return found

    def _ranked_again(self, view: Decision, planner: Planner, ahead_gbps: FloatArray) -> Plan | None:
        """What is decided in one situation where experience has a say, which compares plans of all that wait there."""
        # Read from the view itself: a situation's array may have two tasks in one slot, its queue has not.
        decisions = self.read(view, ahead_gbps)
        decoded = self._decode(view, planner, decisions, {"upper": 0.0, "lower": 0.0})
        settled = self._agree(view, planner, decisions, decoded, _others(view), math.inf)
        slot, plan, _, _ = self._rank(view, planner, decisions, *settled)
        return self._capped(view, planner, slot, plan, _others(view)) if slot == view.slot else None

    def _decode_each(self, views: Sequence[Decision], planner: Planner, decisions: Decisions) -> Decoded:
        """What the agents propose in situations of one decision, each told by its own view."""
        each = [self.agents_actor(view, planner, decisions.take(np.array([row]))) for row, view in enumerate(views)]
        # Only what is believed of the tasks differs between them; what is about to be free is the decision's own.
        actor = copy.copy(each[0])
        actor.decisions, actor.believed = decisions, np.concatenate([one.believed for one in each])
        return decode(planner, decisions, actor)

    def _believed(self, view: Decision, planner: Planner, slot: int) -> tuple[float, float, float]:
        """How much longer than a nominal task's this very task's compute, memory and host time are believed to be."""
        task = known_tasks(view).get(slot)
        if view.moment is None or task is None:
            return NOMINAL
        compute, memory, host, _ = np.exp(self.thinker().beliefs(view.moment.world, planner).of([task]).mean[0])
        return float(compute), float(memory), float(host)

    def thinker(self) -> Thinker:
        """Who compares choices for it."""
        if self._thinker is None:
            self._thinker = Thinker(self.think or Think(), self.attributions, self.learnt.theta)
        return self._thinker

    def foresight(self, view: Decision) -> tuple[Follower, Beliefs]:
        """Its compiled agents go on in its place, with what it believes of tasks itself.

        Raises:
            SettingsError: If the decision does not carry its moment.
        """
        if view.moment is None:
            fix = "Take decisions from a cluster"
            raise SettingsError(problem("decision.moment", None, "is needed to play copies on", fix))
        planner, thinker = self.planner(view), self.thinker()
        return thinker.follower(planner, view.moment.world), thinker.beliefs(view.moment.world, planner)

    def _may_think(self, view: Decision) -> bool:
        """Whether a decision that carries its moment is thought about: not in clusters of too many domains.

        Nor, as with the wide search, with more waiting than it sees: a placement now is worth more than a better one.
        """
        return self.think is not None and len(view.cost.cluster) <= self.think.most_domains and not view.backlog

    def _think(
        self, view: Decision, planner: Planner, decisions: Decisions, slot: int, plan: Plan | None, others: int
    ) -> Thought | None:
        """Compare what was settled on with single changes of it; None if there is nothing to compare."""
        if view.moment is None or not self._may_think(view):
            return None
        sharing = self.pairs and self.partners.apply(view)
        alone = sharing and view.kind.opaque and len(view.queue) == 1
        if alone and plan is not None and self.partners.leaves_room(view, plan):
            return None
        thinker, listed = self.thinker(), self.listed(view, planner, decisions, slot, plan)
        ranker = self._ranker(view)
        if ranker is not None:
            # One formula: what was learnt is part of the log-odds that thinking adds to.
            odds = as_levels(ranker, self.described(view, planner, listed))
            listed = [replace(each, upper=high, lower=low) for each, (high, low) in zip(listed, odds, strict=True)]
        listed += thinker.later(view, listed[0])
        pairs = None
        if sharing and not view.replanning:
            listed += self._partner_options(view, slot, listed[0])
            pairs = self.partners.table(view, view.moment.world)
        if not (self.waits or view.replanning):
            listed = [each for at, each in enumerate(listed) if at == 0 or each.plan is not None]
        listed = self._with_caps(view, planner, listed, others)
        return thinker.compare(view, planner, listed, decision_seed(view), pairs) if len(listed) > 1 else None

    def _capped(self, view: Decision, planner: Planner, slot: int, plan: Plan | None, others: int) -> Plan | None:
        """The lower agent's last choice: the power caps of a plan's segments, by which it is worth most.

        Others that wait are told: a view of one task alone does not show them.
        """
        task = known_tasks(view).get(slot)
        if plan is None or task is None or not view.cost.cluster.cap_levels or not self.caps:
            return plan
        working = None
        if plan.beside is not None and plan.beside >= 0:
            other = view.beside(plan.beside).task
            own, theirs = self.partners.belief.speeds(task, other)
            working = own * task_working(view.kinds, task) + theirs * task_working(view.kinds, other)
            working = min(1.0, max(working, LEAST_WORKING))
        return capped(
            view, plan, task, factors=self._believed(view, planner, slot), working=working,
            pressure=_queue_pressure(view, others),
        )  # fmt: skip

    def _with_caps(self, view: Decision, planner: Planner, listed: list[Option], others: int) -> list[Option]:
        """The same choices, each with its caps; beside the own one the same plan with none and with the next lower."""
        levels = len(view.cost.cluster.cap_levels) if self.caps else 0
        if not levels:
            return listed
        found = [replace(each, plan=self._capped(view, planner, each.slot, each.plan, others)) for each in listed]
        own = found[0]
        if own.plan is not None and own.later is None:
            lower = min(levels, 1 + max(segment.cap for segment in own.plan.segments))
            found += [replace(own, plan=with_cap(own.plan, level)) for level in (0, lower)]
        return [each for at, each in enumerate(found) if at == 0 or each.later is not None or is_new(each, found[:at])]

    def _rank(
        self, view: Decision, planner: Planner, decisions: Decisions, slot: int, plan: Plan | None, source: str
    ) -> tuple[int, Plan | None, str, Experience | None]:
        """Let the ranker choose among what was settled on and what it would be compared with."""
        ranker, listed = self._ranker(view), list[Option]()
        if ranker is not None and not view.backlog:
            listed = self.listed(view, planner, decisions, slot, plan)
        if not (self.waits or view.replanning):
            listed = [each for at, each in enumerate(listed) if at == 0 or each.plan is not None]
        if ranker is None or len(listed) < 2:
            return slot, plan, source, None
        seen = self.described(view, planner, listed)
        logits = ranker.logits(seen)
        best = int(logits.argmax())
        if best == 0:
            return slot, plan, source, None
        reward = view.reward
        worth = ranker.components(seen)[best] @ np.array([reward.w_eff, reward.w_util, -reward.w_cost])
        # The agents' own odds of the two are in the logits: they are no part of what was learnt beyond them.
        own = min(0.0, listed[best].upper + listed[best].lower - listed[0].upper - listed[0].lower)
        found = Experience(listed[0], float(logits[best] - logits[0] - own), float(worth))
        better = listed[best]
        if better.plan is None or (view.replanning and better.plan == view.current_plan):
            return view.slot, None, "ranker", found
        return better.slot, better.plan, "ranker", found

    def _ranker(self, view: Decision) -> Ranker | None:
        """The ranker, where it has learnt something: it is taught in worlds whose models are known.

        Where jobs are opaque and go beside each other it meets candidates unlike any that it was taught by.
        """
        return None if view.kind.opaque else self.learnt.ranker

    def listed(
        self, view: Decision, planner: Planner, decisions: Decisions, slot: int, plan: Plan | None
    ) -> list[Option]:
        """The candidates of a decision: what was settled on, and what it is compared with."""
        listed = self.thinker().candidates(self._actor(view, planner, decisions), planner, decisions, slot, plan)
        if not view.replanning:
            listed = self._with_cuts(view, planner, listed)
            asked = {task.slot: task.devices for task in view.queue if task.devices is not None}
            listed = [each for at, each in enumerate(listed) if at == 0 or not _beyond(each, asked)]
        if view.replanning and plan is None and view.current_plan is not None and len(view.current_plan.domains) > 1:
            # A single change moves one end of a plan over several domains: a link that fails is left by moving both.
            single = decisions.only(0)
            elsewhere = self._search_widely(view, planner, single, len(view.queue), math.inf, thorough=False)
            if elsewhere is not None and elsewhere != view.current_plan:
                listed.insert(1, replace(listed[0], plan=elsewhere))
        return listed

    def _with_cuts(self, view: Decision, planner: Planner, listed: list[Option]) -> list[Option]:
        """Candidates with the cuts of models that no domain holds in the place of raw changes of one."""
        kinds = {task.slot: task.kind_index for task in view.queue}
        spans = [each.plan is not None and bool(planner.spanning[kinds[each.slot]]) for each in listed]
        if not any(spans):
            return listed
        found = [each for at, each in enumerate(listed) if at == 0 or not spans[at]]
        slots = dict.fromkeys(each.slot for each, spanning in zip(listed, spans, strict=True) if spanning)
        for number, slot in enumerate(list(slots)[:CUT_TASKS]):
            odds = next(each for each, spanning in zip(listed, spans, strict=True) if spanning and each.slot == slot)
            found += [replace(odds, plan=c) for c in best_by_domains(view, kinds[slot])[: CUTS if number == 0 else 1]]
        return [each for at, each in enumerate(found) if is_new(each, found[:at])]

    def described(self, view: Decision, planner: Planner, listed: Sequence[Option]) -> Described:
        """The candidates as the ranker sees them, with what is believed of their tasks."""
        from attribution_sched.scheduler.hi_ppo.candidate_features import describe_candidates

        known = known_tasks(view)
        slots = sorted(known)
        means = self._beliefs(view, planner).of([known[slot] for slot in slots]).mean[:, :3]
        believed = dict(zip(slots, means, strict=True))
        return describe_candidates(view, listed, self.agents(planner), known, believed)

    def _actor(self, view: Decision, planner: Planner, decisions: Decisions) -> ComparedActor:
        return self.agents_actor(view, planner, decisions)

    def read(self, view: Decision, forecast_gbps: FloatArray | None = None) -> Decisions:
        """A decision as arrays, with the attributions that it carries.

        Raises:
            PlanError: If these are of another schema than the weights have learnt from.
        """
        schema = "" if view.attribution is None else view.attribution.schema
        if schema not in ("", ATTRIBUTION_SCHEMA):
            rule = f"the weights have learnt from {ATTRIBUTION_SCHEMA!r}"
            raise PlanError(problem("attribution.schema", schema, rule, "Use an attributor of that schema"))
        return from_view(view, self.attributions, forecast_gbps)

    def attributions(self, counters: FloatArray) -> FloatArray:
        """States ``(n, 7)`` of counters ``(n, 12)`` that its weights have learnt from, for whoever makes decisions."""
        return (self.attributor or self.learnt.attributions)(counters)

    def _ahead(self, view: Decision) -> FloatArray | None:
        if not self.predict:
            return None
        if self._forecast is None:
            method = self.predict if isinstance(self.predict, str) else "kalman"
            self._forecast = ViewForecast(view.cost.cluster.wan, method=method)
            if self._memory:
                self._forecast.recall(self._memory)
                self._memory = {}
        return self._forecast.gbps(view)

    def watch_links(self, view: Decision) -> None:
        """Take in what a decision tells of pairs that run and, where a device is free, of links: as deciding does."""
        if self.pairs:
            self.partners.learn(view)
        if (np.asarray(view.free_devices) > 0).any():
            self._ahead(view)

    def agents_actor(
        self, view: Decision, planner: Planner, decisions: Decisions, *, must_act: bool = False
    ) -> AgentsActor:
        """The learnt agents for some situations of a decision."""
        from attribution_sched.scheduler.hi_ppo.agents import AgentsActor, Releases

        believed = self.believed(view, planner, decisions)
        return AgentsActor(self.agents(planner), decisions, believed, Releases.of(view), must_act=must_act)

    def agents(self, planner: Planner) -> Agents:
        """Both agents in a cluster, as they have learnt."""
        from attribution_sched.scheduler.rule_follower import agents_of

        known = self._agents.get(planner)
        if known is None:
            known = agents_of(planner, np.array([1.0, UTILISATION_SHARE]), self.learnt.theta)
            self._agents[planner] = known
        return known

    def believed(self, view: Decision, planner: Planner, decisions: Decisions) -> FloatArray:
        """Logarithms of compute, memory and host time of every candidate over nominal, ``(B, Q, 3)``."""
        kinds, states = decisions.kind, decisions.attribution
        b, q = kinds.shape
        slots, speed, unsure = decisions.slot.ravel(), np.zeros(b * q), dict[int, FloatArray]()
        for slot, task in known_tasks(view).items():
            vector = task.attribution
            if task.samples_per_s:
                speed[slots == slot] = task.samples_per_s
            if vector is not None and vector.state_covariance is not None:
                unsure |= dict.fromkeys(np.flatnonzero(slots == slot).tolist(), vector.state_covariance)
        beliefs = self._beliefs(view, planner)
        there = np.maximum(kinds.ravel(), 0)
        found = beliefs.log_factors(there, states.reshape(b * q, -1).astype(np.float64), speed, unsure)
        return found.reshape(b, q, 3)

    def _beliefs(self, view: Decision, planner: Planner) -> DemandBeliefs:
        """What is believed of the tasks of a decision: by the law of its world, if its moment tells one."""
        if view.moment is None:
            return self.demands(view.kinds)
        return self.thinker().beliefs(view.moment.world, planner)

    def _decode(self, view: Decision, planner: Planner, decisions: Decisions, timings: dict[str, float]) -> Decoded:
        return decode(planner, decisions, self.agents_actor(view, planner, decisions), timings, self.clock)

    def _settle(
        self, view: Decision, planner: Planner, chosen: Decisions, found: Decoded, others: int, late: float, row: int
    ) -> tuple[Plan, str]:
        """Improve the proposal for the chosen task while there is time."""
        rows, count, kind = found.batch.segments[row], int(found.batch.counts[row]), int(chosen.kind[0, 0])
        if not self.search:
            return found.batch.plan(row), "policy"
        spans = bool(planner.spanning[kind])
        if not view.replanning and (spans or (others == 0 and planner.waiting_is_futile(chosen)[0, 0])):
            plan = self._search_widely(view, planner, chosen, others, late, thorough=spans)
            if plan is not None:
                return plan, "policy+search"
        search = LocalSearch(
            view, planner.tables, kind, widen=self.widen, queue_pressure=_queue_pressure(view, others),
            factors=self._believed(view, planner, int(chosen.slot[0, 0])),
        )  # fmt: skip
        start = rows[None].copy()
        first = float(search.worth(start, np.array([count]))[0])
        best, count, reached = search.improve(start[0], count, first, expired=lambda: self.clock() > late)
        batch = PlanBatch(best[None], np.array([count]), np.zeros(1, dtype=np.int64))
        return batch.plan(0), "policy+search" if reached > first else "policy"

    def _search_widely(
        self,
        view: Decision,
        planner: Planner,
        chosen: Decisions,
        others: int,
        late: float,
        *,
        thorough: bool = True,
    ) -> Plan | None:
        """The best plan for a task as if it were alone, others that wait counted by the devices it holds; or None."""
        kind, pressure = int(chosen.kind[0, 0]), _queue_pressure(view, others)
        own = decode(planner, chosen, self._must_act(view, planner, chosen)).batch

        def search() -> Plan | None:
            local = LocalSearch(view, planner.tables, kind, widen=True, queue_pressure=pressure)
            return search_around(
                own.segments, own.counts, local, thorough=thorough, expired=lambda: self.clock() > late
            )

        # All that the search reads: copies of one moment, and coalitions of inputs, ask for the same many times.
        key = (
            kind, pressure, thorough, view.reward, view.max_segments, np.asarray(view.free_devices).tobytes(),
            view.bandwidth_gbps.tobytes(), view.latency_s.tobytes(), own.segments.tobytes(), own.counts.tobytes(),
            float(view.base_step_s[kind]), float(view.base_cost_usd[kind]),
        )  # fmt: skip
        return self._searched.of(view.cost, key, search, lambda: self.clock() <= late)

    def _must_act(self, view: Decision, planner: Planner, chosen: Decisions) -> Actor:
        """Who proposes a plan where waiting is out of the question."""
        return self.agents_actor(view, planner, chosen, must_act=True)

    def _done(
        self, plan: Plan | None, slot: int, source: str, began: float, timings: dict[str, float], search_s: float
    ) -> Coordination:
        total = self.clock() - began
        return Coordination(plan, slot, source, "", timings["upper"], timings["lower"], search_s, total)

    def _fall_back(self, view: Decision, began: float, timings: dict[str, float], reason: str) -> Coordination:
        plan = self.fallback.decide(view)
        total = self.clock() - began
        source = f"fallback:{self.fallback.name}"
        return Coordination(plan, view.slot, source, reason, timings["upper"], timings["lower"], 0.0, total)

    def perceive(self, view: Decision) -> Decisions:
        """One decision as :meth:`coordinate` sees it, the view's own task as candidate 0; nothing is remembered."""
        return self.perceive_later(view)()

    def perceive_later(self, view: Decision) -> Callable[[], Decisions]:
        """One decision as :meth:`coordinate` sees it, the view's own task as candidate 0, when it is called.

        Links are forecast now, from what was seen of them so far, so a decision is perceived as it was taken if this is
        asked before the next one; nothing that is asked here changes what is decided later.
        """
        if self.wishes is not None:
            view = weighed(view, self.wishes)
        kept, memory = self._forecast, self._memory
        self._forecast = kept if kept is not None and kept.knows(view) else copy.deepcopy(kept)
        try:
            ahead = self._ahead(view)
        finally:
            self._forecast, self._memory = kept, memory

        def perceive() -> Decisions:
            found = self.read(view, ahead)
            found.check()
            return own_first(found, view.slot)

        return perceive

    def appraise(
        self,
        view: Decision,
        situations: Decisions,
        plans: Sequence[Plan | None],
        *,
        log_probability: bool = True,
    ) -> Appraisal:
        """Judge plans for the view's task in many situations; see :class:`~.policy.Appraiser`."""
        from attribution_sched.scheduler.hi_ppo.appraisal import appraise

        return appraise(self, view, situations, plans, log_probability=log_probability)

    def appraise_each(
        self,
        views: Sequence[Decision],
        situations: Decisions,
        owner: IntArray,
        plans: Sequence[Plan | None],
    ) -> Appraisal:
        """Judge one plan of each of many decisions; see :class:`~.policy.BatchAppraiser`."""
        from attribution_sched.scheduler.hi_ppo.appraisal import appraise_each

        return appraise_each(self, views, situations, owner, plans)

    def propose(self, view: Decision, situations: Decisions) -> list[Plan | None]:
        """What the agents would do with the view's task in each situation, before the local search."""
        from attribution_sched.scheduler.hi_ppo.appraisal import propose

        return propose(self, view, situations)

    def log_odds(self, view: Decision, situations: Decisions, plan: Plan | None) -> FloatArray:
        """By how much the agents prefer a choice in each situation; see :class:`~.policy.ChoiceOdds`."""
        from attribution_sched.scheduler.hi_ppo.log_odds import log_odds

        return log_odds(self, view, situations, plan)

    def forced(self, view: Decision, situations: Decisions, plan: Plan | None) -> BoolArray:
        """Where a choice is all that is on offer; see :class:`~.policy.ChoiceOdds`."""
        from attribution_sched.scheduler.hi_ppo.log_odds import forced

        return forced(self, view, situations, plan)

    def rivals(self, view: Decision, plan: Plan | None = None) -> Rivals:
        """Plans that the wide search compares at a decision, at which a plan was chosen, if that is known.

        Those of the last decision asked about are kept.
        """
        if self._rivals is None or self._rivals[0] is not view:
            from attribution_sched.scheduler.hi_ppo.log_odds import Rivals

            self._rivals = view, Rivals.of(self, view, plan)
        return self._rivals[1]

    def settled(self, view: Decision, plan: Plan | None) -> None:
        """Take it that the search of this decision settled on a plan; see :class:`~.policy.Settles`."""
        from attribution_sched.scheduler.hi_ppo.log_odds import Rivals

        self._rivals = view, Rivals.of(self, view, plan, settled=True)

    def __getstate__(self) -> dict[str, Any]:
        """What a copy takes over: not the rivals of one decision, which hold its whole cluster."""
        return {**vars(self), "_rivals": None}

    def overruled(self, view: Decision, plan: Plan | None) -> Overruled | None:
        """What thinking or experience came to, if it put a choice in the place of the agents' own.

        See :class:`~.policy.Thoughtful`.

        Asked again, and nothing is remembered.
        """
        again = self._again(view)
        thought = None if again is None else again.thought
        if again is not None and again.experience is not None and (thought is None or thought.chosen == 0):
            return _by_experience(view, again, again.experience, plan)
        if thought is None or thought.chosen == 0:
            return None
        best, own = thought.options[thought.chosen], thought.options[0]
        if (best.plan is None) != (plan is None) or (best.slot != view.slot and plan is not None):
            return None
        if best.plan is not None and plan is not None and _places(best.plan) != _places(plan):
            return None
        gain, error, shrunk = (float(each[thought.chosen]) for each in (thought.gain, thought.error, thought.shrunk))
        another = own.plan is not None and own.slot != view.slot
        return Overruled(
            None if another else own.plan, another, gain, error, int(thought.met[thought.chosen]),
            thought.beta * shrunk, thought.beta * error,
        )  # fmt: skip

    def _again(self, view: Decision) -> Coordination | None:
        """The same decision once more; None where agents and search alone decide."""
        if self.learnt.ranker is None and (self.think is None or view.moment is None):
            return None
        other = self.branch()
        other.deadline_s = math.inf
        return other.coordinate(view)

    def branch(self) -> Self:
        """Another that decides on from here; see :class:`~.policy.Branching`.

        What deciding changes is copied, refusals of the cluster among it; what is only worked out is shared.
        """
        other = copy.copy(self)
        other._forecast, other.partners = copy.deepcopy((self._forecast, self.partners))
        other.wishes, other.fallback = copy.deepcopy((self.wishes, self.fallback))
        return other

    def prefer(self, view: Decision, situations: Decisions) -> list[Preferred]:
        """What the agents choose for the view's task in each situation; see :class:`~.policy.ChoiceOdds`."""
        from attribution_sched.scheduler.hi_ppo.log_odds import prefer

        return prefer(self, view, situations)

    def terms_read(self, plans: Sequence[Plan | None]) -> frozenset[str]:
        """Attributions, and links if a plan crosses any: all that the terms of :meth:`appraise` depend on."""
        crossing = any(plan is not None and len(plan.segments) > 1 for plan in plans)
        return frozenset({"attribution", "links"} if crossing else {"attribution"})


def _by_experience(view: Decision, again: Coordination, by: Experience, plan: Plan | None) -> Overruled | None:
    """What the ranker added to a choice it put in the place of the agents'; None if that is another choice."""
    if (again.plan is None) != (plan is None) or (again.slot != view.slot and plan is not None):
        return None
    if again.plan is not None and plan is not None and _places(again.plan) != _places(plan):
        return None
    another = by.own.plan is not None and by.own.slot != view.slot
    return Overruled(None if another else by.own.plan, another, by.gain, 0.0, 0, by.added, 0.0)


def _digest(view: Decision) -> bytes:
    """The same for views of clusters in which the same fits everywhere and takes as long."""
    cost = view.cost
    found = hashlib.blake2b(repr((cost.runtime, cost.power_law, view.max_segments)).encode())
    for array in (*cost.domains, *cost.tables, view.base_step_s, view.base_cost_usd):
        found.update(np.ascontiguousarray(array).tobytes())
    for kind in view.kinds:
        found.update(repr((kind.features, kind.training, kind.batch_size, kind.microbatches)).encode())
    return found.digest()


def _check_moment(view: Decision) -> None:
    """Refuse a decision whose moment is of another cluster: copies of that one would be compared.

    Raises:
        PlanError: If it is.
    """
    if view.moment is None or view.moment.world.kinds is view.kinds:
        return
    world = view.moment.world
    here, there = (
        (", ".join(f"{each.name} ×{each.devices}" for each in cluster.domains), ", ".join(k.model.name for k in kinds))
        for cluster, kinds in ((view.cost.cluster, view.kinds), (world.cluster, world.kinds))
    )  # fmt: skip
    if here != there:
        rule = f"is of another cluster than the decision: {' with '.join(here)}"
        given = " with ".join(there)
        raise PlanError(problem("decision.moment", given, rule, "Use the moment that came with the decision"))


def _others(view: Decision) -> int:
    """Tasks that wait beside the one in question."""
    return max(0, len(view.queue) - (not view.replanning))


def _places(plan: Plan) -> list[tuple[int, int, int, int]]:
    """Domains, layers and numbers of devices of a plan; what else a search settles is no other choice."""
    return [(each.domain, each.first, each.stop, each.device_count) for each in plan.segments]


def _queue_pressure(view: Decision, others: int) -> float:
    """What holding a device costs those that wait, as a share of the time it is held."""
    return others / sum(domain.devices for domain in view.cost.cluster.domains)


def _beyond(option: Option, asked: Mapping[int, int]) -> bool:
    """Whether a choice gives a task more devices than it asked for."""
    if option.plan is None or option.slot not in asked:
        return False
    return sum(segment.device_count for segment in option.plan.segments) > asked[option.slot]


def _only(view: Decision) -> Decision:
    """The view with its own task as the only candidate; how many others wait is still told by the instruments."""
    return replace(view, queue=tuple(task for task in view.queue if task.slot == view.slot))


def _moment(view: Decision) -> Moment:
    return view.time_s, tuple(int(n) for n in view.free_devices), tuple(task.slot for task in view.queue)
