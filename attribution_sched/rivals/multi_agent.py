"""One decision of the cluster as a game of several agents, for learners of other libraries.

``domains`` (seed 001: every computing unit is an agent that takes tasks from one queue). Agents ``domain_0 … domain_K``
are asked together. Each is offered plans that begin in its own domain and may pass (action 0); of those who take the
task, the one whose plan is worth most by its own reward gets it. If all pass, the task waits (or stays).
The seed's version took a task off an empty queue, forgot what it had used, and had no spaces, seeds or masks.

``levels`` (seeds 003 and 004: inter-domain above, intra-domain below). ``upper`` chooses the domains, in order, or
waits; ``lower`` then chooses devices, layout, precision and neighbour among the plans over these very domains.

Observations are those of :mod:`~attribution_sched.rivals.candidate_env`, of the choices that the agent has: the last
``choices × 7`` numbers are the rows of its choices, the last of each row says whether it is allowed. Every agent earns
the one R of the world since it was last asked.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping

import numpy as np

from attribution_sched.cluster.decision import Decision
from attribution_sched.cluster.plan import Plan, PlanBatch
from attribution_sched.cluster.reward import value
from attribution_sched.errors import ModelFitError, problem
from attribution_sched.rivals.candidate_env import CHOICES, Candidates, allowed_choices, candidate_plans
from attribution_sched.types import Attributor, Float32Array

MOST = 63
"""Plans that a decision is searched for; agents share them out."""

Observations = dict[str, Float32Array]
Dialogue = Generator[Observations, Mapping[str, int], Plan | None]
"""Yields what is shown to each agent that is asked, is sent their actions, and returns the plan."""


class AgentsGame:
    """How agents come to one plan.

    Args:
        domains: Domains of the cluster that it is played in.
        attributor: Counters ``(n, 12)`` → attributions ``(n, 7)``; zeros without one.
        choices: Size of every agent's action space; action 0 passes or waits.
    """

    agents: tuple[str, ...] = ()
    """Names of all agents."""

    def __init__(self, domains: int, attributor: Attributor | None = None, choices: int = CHOICES) -> None:
        self.choices, self.domains = choices, domains
        self._candidates = Candidates(attributor, choices)

    @property
    def size(self) -> int:
        """Length of every agent's observation."""
        return self._candidates.size(self.domains)

    def ask(self, seen: Decision, plans: list[Plan]) -> Dialogue:
        """Ask the agents about a decision."""
        raise NotImplementedError


class DomainAgents(AgentsGame):
    """Every domain is an agent that may take the task; a choice is passing, or a plan that begins in the domain."""

    def __init__(self, domains: int, attributor: Attributor | None = None, choices: int = 6) -> None:
        super().__init__(domains, attributor, choices)
        self.agents = tuple(f"domain_{k}" for k in range(domains))

    @property
    def size(self) -> int:
        """Length of every agent's observation: which domain it is comes first."""
        return self.domains + super().size

    def ask(self, seen: Decision, plans: list[Plan]) -> Dialogue:
        """Ask all domains that have something to offer, together."""
        offers = {
            agent: [plan for plan in plans if plan.domains[0] == k][: self.choices - 1]
            for k, agent in enumerate(self.agents)
        }
        offers = {agent: own for agent, own in offers.items() if own}
        if not offers:
            return None
        shown = {}
        for agent, own in offers.items():
            which = np.zeros(self.domains, dtype=np.float32)
            which[self.agents.index(agent)] = 1.0
            seen_by = self._candidates.observe(seen, own, allowed_choices(self.choices, own, waits=True))
            shown[agent] = np.concatenate([which, seen_by])
        actions = yield shown
        taken = [own[actions[agent] - 1] for agent, own in offers.items() if 0 < actions.get(agent, 0) <= len(own)]
        if not taken:
            return None
        return taken[int(np.argmax(value(seen, PlanBatch.of(taken)).reward))]


class TwoLevels(AgentsGame):
    """An upper agent for the domains and a lower one for what happens inside them."""

    agents = ("upper", "lower")

    def ask(self, seen: Decision, plans: list[Plan]) -> Dialogue:
        """Ask the upper agent, then the lower one about the plans that are left."""
        by_domains: dict[tuple[int, ...], list[Plan]] = {}
        for plan in plans:
            by_domains.setdefault(tuple(plan.domains), []).append(plan)
        groups = list(by_domains.values())[: self.choices - 1]
        if not groups:
            return None
        # A group is shown as the best of its plans: candidates come best first.
        best = [group[0] for group in groups]
        upper = (
            yield {"upper": self._candidates.observe(seen, best, allowed_choices(self.choices, best, waits=True))}
        )["upper"]
        if not 0 < upper <= len(groups):
            return None
        inside = groups[upper - 1][: self.choices - 1]
        mask = allowed_choices(self.choices, inside, waits=True)
        # Waiting was the upper agent's to choose.
        mask[0] = False
        lower = (yield {"lower": self._candidates.observe(seen, inside, mask)})["lower"]
        return inside[lower - 1] if 0 < lower <= len(inside) else inside[0]


GAMES: dict[str, Callable[..., AgentsGame]] = {"domains": DomainAgents, "levels": TwoLevels}
"""Name → game."""


class AgentsPolicy:
    """Agents that learnt a game, as one scheduler for ``System``, the arena and ``explain``.

    Args:
        game: The game they learnt.
        choose: Agent and observation → action.
        name: What tables call them.
    """

    pairs, plays_copies = True, False

    def __init__(self, game: AgentsGame, choose: Callable[[str, Float32Array], int], name: str = "agents") -> None:
        self.game, self.choose, self.name = game, choose, name

    def decide(self, seen: Decision) -> Plan | None:
        """What the agents come to; None waits or keeps.

        Raises:
            ModelFitError: If the decision is of a cluster with another number of domains than the game.
        """
        shown_domains = len(seen.free_devices)
        if shown_domains != self.game.domains:
            rule = f"{self.name} have learnt in a cluster of {self.game.domains}"
            raise ModelFitError(problem("domains", shown_domains, rule, "Use the preset that they were trained on"))
        dialogue = self.game.ask(seen, candidate_plans(seen, MOST))
        try:
            shown = next(dialogue)
            while True:
                shown = dialogue.send({agent: self.choose(agent, each) for agent, each in shown.items()})
        except StopIteration as end:
            plan: Plan | None = end.value
            return plan
