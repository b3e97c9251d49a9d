"""One decision, several agents: what each does with the same task, why, and who was right in copies of the cluster.

All agents are asked about the same task at the same moment, each explained against the same earlier situations. Their
choices are then played on under the same futures; who plays on is whoever decided, so that a choice is judged by what
it brings to this cluster, not by the company it keeps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from attribution_sched.cluster.decision import Decision
from attribution_sched.cluster.fork import Choose, fork
from attribution_sched.cluster.plan import Plan
from attribution_sched.cluster.reward import total_of
from attribution_sched.errors import ExplanationError, SettingsError, problem
from attribution_sched.explain import facts
from attribution_sched.explain.digits import number
from attribution_sched.explain.explanation import Explanation
from attribution_sched.explain.recorder import Decided, perceived
from attribution_sched.scheduler.policy import Policy, go_on_as
from attribution_sched.stats.interval import MeanInterval, mean_interval
from attribution_sched.words.names import input_name
from attribution_sched.words.say import Phrase, in_language, say

SHOWN = 3
"""Drivers of each agent that are told."""


@dataclass(frozen=True, eq=False)
class AgentChoice:
    """What one agent does.

    Attributes:
        agent: Its name.
        plan: Its choice; None waits, or keeps.
        what: The choice in words.
        explanation: Why it is its choice; None if that cannot be explained.
        reward: R that the choice brings over what was decided, by copies; None where it cannot be played.
    """

    agent: str
    plan: Plan | None
    what: str
    explanation: Explanation | None
    reward: MeanInterval | None

    @property
    def delta(self) -> str:
        """Its R over what was decided, with half a 95 % interval."""
        if self.reward is None:
            return "–"
        if self.reward.mean == self.reward.low == self.reward.high == 0.0:
            return "0"
        half = (self.reward.high - self.reward.low) / 2.0
        return f"{number(self.reward.mean, 2, signed=True)} ± {number(half, 2)}"

    def drivers_in(self, lang: str = "en") -> list[str]:
        """Its certain drivers, the strongest first."""
        told = self.explanation
        if told is None:
            return []
        sure, shares = facts.sure(told, told.main), told.values[:, told.column(told.main)]
        order = np.argsort(-np.abs(shares), kind="stable")
        return [input_name(told.players[i].name, lang) for i in order if sure[i]][:SHOWN]


@dataclass(frozen=True, eq=False)
class AgentsCompared:
    """Several agents at one decision; who decided stands first.

    Attributes:
        decision: Its id.
        rows: One per agent.
        right: Agents whose choice is better than every other choice beyond its 95 % interval; none if nobody's is.
        gain: R of that choice over the next best one.
        futures: How many were played; 0 if none could be.
    """

    decision: str
    rows: tuple[AgentChoice, ...]
    right: tuple[str, ...]
    gain: float
    futures: int

    @property
    def differ(self) -> bool:
        """Whether the agents do not all decide alike."""
        return len({row.what for row in self.rows}) > 1

    def say(self, lang: str = "en") -> str:
        """Whether they differ, and who was right."""
        if not self.differ:
            what = in_language(self.rows[0].what, lang)
            return say("agents.alike", lang, decision=self.decision, count=len(self.rows), what=what)
        head = say("agents.differ", lang, decision=self.decision)
        if not self.futures:
            return head + " " + say("agents.unplayed", lang)
        if not self.right:
            return head + " " + say("agents.level", lang)
        return head + " " + say("agents.right", lang, who=", ".join(self.right), gain=number(self.gain, 2, signed=True))

    def to_dict(self, lang: str = "en") -> dict[str, Any]:
        """Ready for JSON."""
        rows = [
            {"agent": row.agent, "choice": in_language(row.what, lang), "drivers": row.drivers_in(lang),
             "reward": None if row.reward is None else [row.reward.mean, row.reward.low, row.reward.high]}
            for row in self.rows
        ]  # fmt: skip
        told = {"decision": self.decision, "differ": self.differ, "right": list(self.right), "gain": self.gain}
        return told | {"futures": self.futures, "agents": rows, "sentence": self.say(lang)}


def check_agents(agents: Sequence[Any], futures: int, hours: float) -> None:
    """Refuse what cannot be asked.

    Raises:
        SettingsError: If there is nobody to compare with, or no future to play.
    """
    if isinstance(agents, str) or not agents:
        rule = "must be a list with at least one policy"
        raise SettingsError(problem("agents", agents, rule, 'Use for example ["rule", "lucid"]'))
    if isinstance(futures, bool) or not isinstance(futures, int) or futures < 2:
        raise SettingsError(problem("futures", futures, "must be a whole number >= 2", "Use futures=32"))
    if not (math.isfinite(hours) and hours > 0.0):
        raise SettingsError(problem("hours", hours, "must be finite and > 0", "Use hours=6"))


def compare_agents(
    policy: Policy,
    agents: Sequence[Policy],
    decided: Decided,
    explain: Callable[..., Explanation],
    *,
    futures: int,
    hours: float,
    seed: int,
    **options: Any,
) -> AgentsCompared:
    """Ask agents about a decision, explain each, and play their choices.

    Args:
        policy: Who decided.
        agents: Who else is asked.
        decided: The decision.
        explain: Agent, decision and options → explanation.
        futures: How many to play.
        hours: How far.
        seed: Of the futures.
        **options: Of the explanations.
    """
    view = decided.view
    everybody = [(policy, decided.plan), *((each, _asked(each, view)) for each in agents)]
    plans = list(dict.fromkeys(plan for _, plan in everybody))
    spans, right, gain = _played(policy, view, plans, futures, hours, seed)
    rows = []
    for agent, plan in everybody:
        told: Explanation | None = None
        try:
            told = explain(agent, Decided(decided.id, view, plan, perceived(agent, view)), **options)
        except ExplanationError:
            told = None
        rows.append(AgentChoice(agent.name, plan, _words(plan, view), told, spans.get(plan)))
    who = tuple(row.agent for row in rows if right is not None and row.plan == right[0])
    return AgentsCompared(decided.id, tuple(rows), who, gain, futures if spans else 0)


def _asked(agent: Policy, view: Decision) -> Plan | None:
    """What an agent does with the view's task; a plan that is in force already is kept."""
    try:
        plan = agent.decide(view)
    except Exception as error:
        rule = f"failed on this decision: {type(error).__name__}: {error}"
        raise SettingsError(problem("agent", agent.name, rule, "Mend it, or leave it out")) from error
    return None if plan is not None and view.replanning and plan == view.current_plan else plan


def _words(plan: Plan | None, view: Decision) -> str:
    if plan is None:
        return Phrase("plan.keep" if view.replanning else "plan.wait")
    names = [domain.name for domain in view.cost.cluster.domains]
    return Phrase("list.segments", parts=tuple(f"{names[s.domain]} ×{s.device_count}" for s in plan.segments))


def _played(
    policy: Policy, view: Decision, plans: Sequence[Plan | None], futures: int, hours: float, seed: int
) -> tuple[dict[Plan | None, MeanInterval], tuple[Plan | None] | None, float]:
    """R of each choice over the first one, the choice that is best for certain, and by how much."""
    moment = view.moment
    if moment is None or view.slot not in moment.tasks:
        return {}, None, 0.0
    follower, beliefs = go_on_as(policy, view, quick=True)
    found = fork(moment, [Choose(view.slot, plan) for plan in plans], futures, hours, follower, seed, beliefs=beliefs)
    weights = np.array([view.reward.w_eff, view.reward.w_util, view.reward.w_cost])
    returns = total_of(found.totals[..., 2:5] + found.ends, weights)
    worth = {plan: returns[copy] for copy, plan in enumerate(plans, 1) if found.codes[copy].min() >= 0}
    if plans[0] not in worth:
        return {}, None, 0.0
    spans = {}
    for plan, values in worth.items():
        apart = values - worth[plans[0]]
        spans[plan] = mean_interval(apart)
    best = max(worth, key=lambda plan: float(worth[plan].mean()))
    apart_of = {plan: worth[best] - values for plan, values in worth.items() if plan != best}
    if not apart_of or any(mean_interval(apart).low <= 0.0 for apart in apart_of.values()):
        return spans, None, 0.0
    return spans, (best,), min(float(apart.mean()) for apart in apart_of.values())
