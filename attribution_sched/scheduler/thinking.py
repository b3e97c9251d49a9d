"""Thinking before acting: the leading choices of a policy, compared by the fork of the very cluster.

    π'(a|s) ∝ exp(logit(a) + β·q̂(a)),   q̂ = 0 where nothing was thought

q̂ is what a choice was worth over the policy's own in paired futures. The best of a dozen noisy numbers is better than
it deserves, so futures are spent in two parts: all choices meet a few, and the best of them meet others, fresh ones, by
which alone they are judged. What is left of the luck of winning is shrunk away.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np

from attribution_sched.cluster.cost import joules_by_domain
from attribution_sched.cluster.decision import Decision, Decisions, Moment
from attribution_sched.cluster.engine import state as st
from attribution_sched.cluster.fork import Change, Choose, Fork, Hold, PairTable, fork, within_arrivals
from attribution_sched.cluster.plan import Plan, PlanBatch
from attribution_sched.cluster.reward import price, samples, total_of, usd_per_g, usd_per_j
from attribution_sched.cluster.signals import asked_at
from attribution_sched.cluster.world import Reward, TaskKind, World
from attribution_sched.errors import SettingsError, problem
from attribution_sched.scheduler.beliefs import AttributionBeliefs
from attribution_sched.scheduler.glass_box.trees import NO_TREES, Trees
from attribution_sched.scheduler.hi_ppo.candidates import OWN, TRIED, ComparedActor, Deviating, RuleActor, distinct
from attribution_sched.scheduler.hi_ppo.decode import Planner, decode
from attribution_sched.scheduler.rule_follower import RuleFollower
from attribution_sched.stats.interval import standard_error
from attribution_sched.types import Attributor, FloatArray, Task

if TYPE_CHECKING:
    from attribution_sched.scheduler.hi_ppo.ranker import Ranker

# ------ Waiting for a cleaner or cheaper hour: the start at which a plan's energy costs least by the forecasts
#
# c(h) = Σ_k W_k · ∫_h^{h+d} (usd_per_j · price_k(t) + usd_per_g · carbon_k(t)) dt
#
# W_k are the plan's mean watts in domain k, d how long it runs; prices and intensities are what is forecast now.
# Whether waiting pays is for thinking to say: what others do meanwhile, and what an hour of waiting costs, is not in c.

LEAST_SAVED = 0.02
"""Part of the cost of its energy that a later start must save to be looked at."""

LONGEST_H = 24
"""Hours of a plan's run that are looked at: forecasts beyond say little more than the profile."""


@dataclass(frozen=True)
class LaterStart:
    """What a later start is expected to save and to cost.

    Attributes:
        hours: How much later.
        carbon_g: Accounted carbon saved; negative if it is more.
        carbon_error_g: One standard deviation of that, by the forecasts' errors.
        usd: Dollars of electricity saved; negative if it is more.
    """

    hours: float
    carbon_g: float
    carbon_error_g: float
    usd: float

    def __str__(self) -> str:
        return (
            f"waits {self.hours:g} h for a cleaner hour: {self.carbon_g / 1e3:.3g} ± {self.carbon_error_g / 1e3:.2g} kg"
            f" and {self.usd:.2g} USD of electricity less, {self.hours:g} h later"
        )


def later_start(view: Decision, plan: Plan, most_h: float) -> LaterStart | None:
    """The start within some hours and the task's deadline at which a plan's energy costs least; None if none pays.

    Args:
        view: The decision; it must carry its moment.
        plan: What would be done now.
        most_h: Latest start.
    """
    moment = view.moment
    if moment is None:
        return None
    domains, reward = moment.world.cluster.domains, view.reward
    if all(domain.carbon is None and domain.electricity is None for domain in domains):
        return None
    batch = PlanBatch.of([plan], view.max_segments)
    priced = price(view, batch)
    steps = view.steps_left * view.kind.batch_size / float(samples(batch)[0])
    run_h = steps * float(priced.step_s[0]) / 3600.0
    if not math.isfinite(run_h):
        return None
    if view.task is not None and view.task.deadline_s is not None:
        most_h = min(most_h, (view.task.deadline_s - view.time_s) / 3600.0 - run_h)
    starts = int(most_h)
    if starts < 1:
        return None
    kw = joules_by_domain(view.cost, batch, priced)[0] / float(priced.step_s[0]) / 1e3
    looked_h = min(run_h, float(LONGEST_H))
    carbon, error, usd = (np.zeros(starts + 1) for _ in range(3))
    tick_s = float(moment.state.clock[0, st.LAST_TICK])
    began_s = math.floor(tick_s / st.HOUR_S) * st.HOUR_S
    for k in np.flatnonzero(kw).tolist():
        hours = starts + math.ceil(looked_h) + 1
        for signal, out, spread in ((domains[k].carbon, carbon, error), (domains[k].electricity, usd, None)):
            if signal is None:
                continue
            asked_s = asked_at(signal, began_s, moment.now_s)
            told = [signal.forecast(asked_s, h * st.HOUR_S) for h in range(hours)]
            out += kw[k] * _run(np.array([each.value for each in told]), starts, looked_h)
            if spread is not None:
                spread += kw[k] * _run(np.array([each.error for each in told]), starts, looked_h)
    cost = usd + usd_per_g(reward) * carbon if reward.energy_usd_per_kwh > 0.0 else usd_per_g(reward) * carbon
    best = int(np.argmin(cost))
    if best == 0 or not cost[0] - cost[best] > LEAST_SAVED * cost[0]:
        return None
    scale = run_h / looked_h
    return LaterStart(
        float(best), scale * float(carbon[0] - carbon[best]), scale * float(math.hypot(error[0], error[best])),
        scale * float(usd[0] - usd[best]),
    )  # fmt: skip


def _run(values: FloatArray, starts: int, run_h: float) -> FloatArray:
    """Sum over a run of some hours that begins at hour 0, 1, … of values by the hour, shape ``(starts + 1,)``."""
    summed = np.concatenate([[0.0], np.cumsum(values)])
    begin = np.arange(starts + 1)
    last = np.minimum((begin + run_h).astype(np.int64), len(values) - 1)
    return np.asarray(summed[last] + (begin + run_h - last) * values[last] - summed[begin])


# ------ Thinking before acting: the leading choices of a policy, compared by the fork of the very cluster

WAITED_SHARE = 0.7
"""Part of the time that copies are played which a task may be left waiting for a cleaner hour."""

TRUST = 0.5
"""How much of its gain a policy's whole choice is expected to bring at least."""


@dataclass(frozen=True)
class Think:
    """How much thinking a decision gets, in copies and futures; never in seconds.

    Attributes:
        screen: Futures that every choice meets at first.
        keep: Choices beside the own one that go on.
        confirm: Fresh futures that these meet, and are judged by.
        hours: How far copies are played at most.
        arrivals: They are played no further than so many tasks are expected to come: an hour of a busy node of short
            tasks is as long as a day of large ones.
        least: A choice replaces the policy's own only if it is better by so many standard errors.
        changes: Most other choices that are tried.
        end_value: How much of what unfinished tasks can expect beyond the horizon counts. Half by default: the value at
            the end lets a backlog drain alone, while in truth tasks come that it holds up or turns away.
        beta: How much a unit of R found by thinking weighs against a unit of the policy's own log-odds. Where tasks are
            so short that all of R is about less, what they are about is the unit.
        most_domains: In clusters with more domains nothing is thought: copies of them take too long.
    """

    screen: int = 6
    keep: int = 3
    confirm: int = 16
    hours: float = 6.0
    arrivals: float = 16.0
    least: float = 1.0
    changes: int = 11
    end_value: float = 0.5
    beta: float = 100.0
    most_domains: int = 16

    def __post_init__(self) -> None:
        for name, least in {"screen": 1, "keep": 1, "confirm": 2, "changes": 1, "most_domains": 1}.items():
            given = getattr(self, name)
            if isinstance(given, bool) or not isinstance(given, int) or given < least:
                rule = f"must be an integer >= {least}"
                raise SettingsError(problem(f"think.{name}", given, rule, f"Use {getattr(type(self), name)}"))
        for name in ("hours", "arrivals", "least", "end_value", "beta"):
            given, positive = getattr(self, name), name in ("hours", "arrivals")
            if not (math.isfinite(given) and (given > 0.0 if positive else given >= 0.0)):
                rule = f"must be finite and {'> 0' if positive else '>= 0'}"
                raise SettingsError(problem(f"think.{name}", given, rule, f"Use {getattr(type(self), name)}"))


@dataclass(frozen=True, eq=False)
class Option:
    """One choice at a decision.

    Attributes:
        slot: The task.
        plan: Its plan; None waits, or keeps a running task as it is.
        upper: Log-probability of task, domains and cuts; 0 for who has none.
        lower: Log-probability of layouts, formats and levels, given these.
        trusted: Whether it is a policy's whole choice, no change of one: it need not be better beyond its noise.
        later: For a task that is left until a cleaner hour, what that is expected to save and to cost.
    """

    slot: int
    plan: Plan | None
    upper: float = 0.0
    lower: float = 0.0
    trusted: bool = False
    later: LaterStart | None = None


@dataclass(frozen=True, eq=False)
class Thought:
    """What came of thinking about one decision; choice 0 is the policy's own.

    Attributes:
        options: The choices.
        gain: R over the own choice, mean over the futures it met, shape ``(n,)``.
        error: Standard error of that, shape ``(n,)``.
        shrunk: q̂, the gain that is to be expected: not above 0 for what was not confirmed or is not better beyond its
            noise, −∞ for what the cluster refuses, shape ``(n,)``.
        met: Futures each choice met, shape ``(n,)``.
        chosen: Which one acts.
        decisions: Decisions that were followed.
        beta: As in :class:`Think`.
    """

    options: tuple[Option, ...]
    gain: FloatArray
    error: FloatArray
    shrunk: FloatArray
    met: FloatArray
    chosen: int
    decisions: int
    beta: float

    @property
    def log_probability(self) -> FloatArray:
        """Log π′ among the choices: the policy's own log-odds and what thinking added, shape ``(n,)``."""
        scores = _scores(self.options, self.shrunk, self.beta)
        top = scores.max()
        return np.asarray(scores - top - np.log(np.exp(scores - top).sum()))


class Thinker:
    """Compares choices in copies of the decision's own cluster; tables and beliefs are made once per cluster.

    Args:
        think: How much.
        attributor: Counters → attributions, as the decisions' own vectors are in.
        theta: What Hi-PPO's agents have learnt, who then play the copies on; None lets the rule do it.
        reads: Names of the senses beliefs may use, of ``attributions`` and ``pace``.
        trees: Trees that play the copies on instead.
        ranker: What was learnt on top of the agents, to play the copies on by both.

    Attributes:
        followed: Decisions that were followed in all.
    """

    def __init__(
        self,
        think: Think,
        attributor: Attributor,
        theta: FloatArray | None = None,
        *,
        reads: tuple[str, ...] = ("attributions", "pace"),
        trees: Trees = NO_TREES,
        ranker: Ranker | None = None,
    ) -> None:
        self.think, self.attributor, self.theta, self.reads = think, attributor, theta, reads
        self.trees, self.ranker = trees, ranker
        self.followed = 0
        self._followers: WeakKeyDictionary[Planner, RuleFollower] = WeakKeyDictionary()
        self._beliefs: list[tuple[World, AttributionBeliefs]] = []

    def __deepcopy__(self, memo: dict[int, Any]) -> Thinker:
        """A thinker like it: followers and beliefs are made again by whoever asks, the same ones."""
        return Thinker(
            self.think, self.attributor, self.theta, reads=self.reads, trees=self.trees, ranker=self.ranker
        )  # fmt: skip

    def candidates(
        self, actor: ComparedActor, planner: Planner, decisions: Decisions, slot: int, plan: Plan | None
    ) -> list[Option]:
        """The own choice, then the rule's and single changes of what the actor and the rule would do; none twice."""
        who = [actor] if isinstance(actor, RuleActor) else [RuleActor(), actor]
        offered = [self._changes(each, actor, planner, decisions) for each in who]
        first = offered[-1][0]
        if len(who) > 1:
            # Where the network has never been, the rule's choice is as good a one to begin with.
            offered[0][0] = replace(offered[0][0], trusted=True)
        listed = [Option(slot, plan, first.upper, first.lower)]
        # In turns, so that both are heard where there is not room for all.
        for place in range(max(map(len, offered))):
            for options in offered:
                if place < len(options) and len(listed) <= self.think.changes and is_new(options[place], listed):
                    listed.append(options[place])
        return listed

    def _changes(
        self, who: ComparedActor, judge: ComparedActor, planner: Planner, decisions: Decisions
    ) -> list[Option]:
        """What somebody would do, then with one thing changed, as likely as ``judge`` finds it."""
        many = len(TRIED)
        # Which of the others a change takes: fixed, so that the same decision always offers the same.
        pick: FloatArray = (0.5 + np.arange(many, dtype=np.float64) * 0.618) % 1.0
        tried = Deviating(who, TRIED, pick)
        found = decode(planner, decisions.take(np.zeros(many, dtype=np.int64)), tried)
        kept = distinct(found, (TRIED == OWN) | tried.made, many)
        kept[0] = True
        odds, own = judge.log_probability(found), int(decisions.slot[0, 0])
        options = []
        for r in np.flatnonzero(kept).tolist():
            task = int(found.task[r])
            if task == decisions.kind.shape[1] or found.batch.counts[r] == 0:
                options.append(Option(own, None, *odds[r].tolist()))
            else:
                options.append(Option(int(decisions.slot[0, task]), found.batch.plan(r), *odds[r].tolist()))
        return options

    def later(self, view: Decision, own: Option) -> list[Option]:
        """Leaving the task of the own choice until a cleaner hour, if forecasts speak for one; nobody else may wait.

        The hour must come while copies are still played, with time left to show what it is worth.
        """
        if view.moment is None or view.replanning or own.plan is None or len(view.queue) != 1:
            return []
        played_h = min(self._hours(view.moment), (view.moment.ends_s - view.time_s) / 3600.0)
        found = later_start(view, own.plan, WAITED_SHARE * played_h)
        return [] if found is None else [replace(own, plan=None, later=found)]

    def compare(
        self, view: Decision, planner: Planner, listed: Sequence[Option], seed: int, pairs: PairTable | None = None
    ) -> Thought:
        """Say what each of some choices is worth over the first one.

        Args:
            view: The decision; it must carry its moment.
            planner: Tables of its cluster.
            listed: The choices, the policy's own first.
            seed: Of the futures.
            pairs: What is believed of tasks on the same devices.
        """
        n, think = len(listed), self.think
        weights = np.array([view.reward.w_eff, view.reward.w_util, view.reward.w_cost])
        paired = [np.zeros(0)] * n
        alive, followed, first = list(range(n)), 0, 0
        for futures in (think.screen, think.confirm):
            met = range(first, first + futures)
            found = self._fork(view, planner, [listed[i] for i in alive], met, seed, pairs)
            followed, first = followed + found.decisions, first + futures
            worth = total_of(found.totals[..., 2:5] + think.end_value * found.ends, weights)[1:]
            refused = found.codes[1:].min(axis=1) < 0
            for at, i in enumerate(alive):
                # Judged by the last futures only: those it was picked by have flattered it.
                paired[i] = np.where(refused[at], -np.inf, worth[at] - worth[0])
            best = sorted(alive[1:], key=lambda i: -float(paired[i].mean()))[: think.keep]
            # The own choice stays: the others are measured by it.
            alive = [0, *sorted(i for i in range(1, n) if (i in best and paired[i].mean() > 0.0) or listed[i].trusted)]
            if len(alive) == 1:
                break
        unit = min(1.0, reward_scale(view.kinds, view.base_step_s, view.reward.interval_s))
        return _judge(listed, paired, alive, replace(think, beta=think.beta / unit), followed)

    def worths(
        self, view: Decision, planner: Planner, listed: Sequence[Option], futures: int, seed: int, first: int
    ) -> tuple[FloatArray, FloatArray] | None:
        """R of each choice over the first one per future ``(n, F)``, and its mean per component ``(n, 3)``.

        None where the first one is refused; of others that are, R is what refusing came to.
        """
        found = self._fork(view, planner, listed, range(first, first + futures), seed)
        if found.codes[1].min() < 0:
            return None
        terms = found.totals[1:, :, 2:5] + self.think.end_value * found.ends[1:]
        weights = np.array([view.reward.w_eff, view.reward.w_util, view.reward.w_cost])
        worth = total_of(terms, weights)
        return worth - worth[:1], (terms - terms[:1]).mean(axis=1)

    def _fork(
        self, view: Decision, planner: Planner, listed: Sequence[Option], futures: Sequence[int], seed: int,
        pairs: PairTable | None = None,
    ) -> Fork:  # fmt: skip
        if view.moment is None:
            fix = "Take decisions from a cluster, or decide without thinking"
            raise SettingsError(problem("decision.moment", None, "is needed to play copies on", fix))
        moment = priced(view.moment, view.reward)
        changes = [_change(each) for each in listed]
        known = known_tasks(view)
        found = fork(
            moment, changes, futures, self._hours(moment), self.follower(planner, moment.world), seed,
            beliefs=self.beliefs(moment.world, planner), tasks=known, pairs=pairs, unchanged=False,
        )  # fmt: skip
        self.followed += found.decisions
        return found

    def _hours(self, moment: Moment) -> float:
        """How far copies are played."""
        return within_arrivals(moment, self.think.hours, self.think.arrivals)

    def follower(self, planner: Planner, world: World) -> RuleFollower:
        """The compiled rule of a cluster, or the agents, with what was learnt on top of them if it is told."""
        if planner not in self._followers:
            if self.ranker is None or self.theta is None:
                made = RuleFollower(planner, world, self.theta, self.trees)
            else:
                from attribution_sched.scheduler.ranked_follower import RankedFollower

                made = RankedFollower(planner, world, self.theta, self.ranker, self.beliefs(world, planner))
            self._followers[planner] = made
        return self._followers[planner]

    def beliefs(self, world: World, planner: Planner) -> AttributionBeliefs:
        """What is believed of the tasks of a world."""
        for known, beliefs in self._beliefs:
            if known is world or (known.kinds == world.kinds and known.idiosyncrasy == world.idiosyncrasy):
                return beliefs
        made = AttributionBeliefs(
            world, self.attributor, pace="pace" in self.reads, attributions="attributions" in self.reads
        )
        self._beliefs = [(world, made), *self._beliefs[:3]]
        return made


def _change(option: Option) -> Change:
    """What a choice changes in a copy."""
    if option.later is not None:
        return Hold(option.slot, option.later.hours)
    return Choose(option.slot, option.plan)


def is_new(option: Option, listed: Sequence[Option]) -> bool:
    """Whether a choice is not listed yet; waiting is waiting, whichever task is up."""
    if option.plan is None:
        return all(other.plan is not None for other in listed)
    return not any(option.slot == other.slot and option.plan == other.plan for other in listed)


def decision_seed(view: Decision, seed: int = 0) -> int:
    """A seed of the decision's own: the same moment is thought about in the same futures, whatever came before."""
    key = repr((seed, view.time_s, view.slot, [(task.slot, task.number) for task in view.queue])).encode()
    return int.from_bytes(hashlib.blake2b(key, digest_size=6).digest(), "big")


def priced(moment: Moment, reward: Reward) -> Moment:
    """A moment whose copies pay the prices that are in force; feedback may have changed them since the world began."""
    arrays, energy, carbon = moment.arrays, usd_per_j(reward), usd_per_g(reward)
    if arrays.energy_usd_per_j == energy and arrays.carbon_usd_per_g == carbon:
        return moment
    return replace(moment, arrays=arrays._replace(energy_usd_per_j=energy, carbon_usd_per_g=carbon))


def known_tasks(view: Decision) -> dict[int, Task]:
    """Slot → record of every task that the decision tells of, with the attribution that it tells."""
    known = {task.slot: task for task in view.queue}
    if view.task is not None:
        # Quick, because every decision asks it: the record with the decision's own attribution.
        task = known.get(view.slot, view.task)
        if task.attribution is not view.attribution:
            task = replace(task, attribution=view.attribution)
        known[view.slot] = task
    return known


def _judge(
    listed: Sequence[Option], paired: Sequence[FloatArray], able: Sequence[int], think: Think, followed: int
) -> Thought:
    """Shrink gains by how noisy they are, and keep the own choice unless another is clearly better."""
    n = len(listed)
    gain = np.array([values.mean() for values in paired])
    error, shrunk = np.zeros(n), np.zeros(n)
    for i in range(1, n):
        if len(paired[i]) > 1 and np.isfinite(gain[i]):
            error[i] = standard_error(paired[i])
            # James and Stein: of a gain whose square is hardly above its noise, little is to be expected again.
            shrunk[i] = gain[i] * max(0.0, 1.0 - error[i] ** 2 / gain[i] ** 2) if gain[i] != 0.0 else 0.0
            if listed[i].trusted and gain[i] > 0.0:
                shrunk[i] = max(shrunk[i], TRUST * gain[i])
    sure = {i for i in able if listed[i].trusted or gain[i] > think.least * error[i]}
    for i in range(1, n):
        if i not in sure:
            shrunk[i] = min(shrunk[i], 0.0)
        if np.isneginf(gain[i]):
            shrunk[i] = -np.inf
    met = np.array([len(values) for values in paired])
    # The first of equals: the own choice stays where nothing is better.
    chosen = int(_scores(listed, shrunk, think.beta).argmax())
    return Thought(tuple(listed), gain, error, shrunk, met, chosen, followed, think.beta)


def _scores(listed: Sequence[Option], q: FloatArray, beta: float) -> FloatArray:
    """logit(a) + β·q̂(a) over the own choice, shape ``(n,)``; no other is likelier than what the policy settled on."""
    odds = np.array([option.upper + option.lower for option in listed])
    return np.asarray(np.minimum(odds - odds[0], 0.0) + beta * q)


TASKS_PER_UNIT = 4.0
"""Rewards are divided by what so many average tasks take on the baseline, in the reward's hours."""


def reward_scale(kinds: tuple[TaskKind, ...], base_step_s: FloatArray, interval_s: float) -> float:
    """Unit in which the critics count: rewards of worlds with fast and slow baselines are then alike."""
    shares = np.array([kind.share for kind in kinds])
    steps = np.array([np.sqrt(float(kind.steps[0]) * kind.steps[1]) for kind in kinds])
    return float(TASKS_PER_UNIT * (shares * steps * base_step_s).sum() / shares.sum() / interval_s)
