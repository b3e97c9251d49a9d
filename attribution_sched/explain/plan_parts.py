"""Explain a plan by its own parts: cut points, layout, precision and microbatch, beside the links it crosses.

    told = PartsExplainer(policy, background, world=world).explain(decided)      # against what the menu offers
    told.interactions                                                            # link × cut, precision × microbatch, …

:class:`~attribution_sched.explain.explainer.Explainer` asks which *inputs* made a plan worth what it is; this asks
which of the *choices* in it did.
"""

from __future__ import annotations

import time
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from attribution_sched.cluster.decision import Decisions
from attribution_sched.cluster.plan import Plan, PlanBatch
from attribution_sched.cluster.world import World
from attribution_sched.errors import ExplanationError, nearest, problem
from attribution_sched.explain.alternatives import alternatives, like_situations
from attribution_sched.explain.background import Background
from attribution_sched.explain.explanation import Explanation
from attribution_sched.explain.findings import Interaction, Player
from attribution_sched.explain.masked_states import Blender, widened
from attribution_sched.explain.pairs import strongest_pairs
from attribution_sched.explain.part_menus import from_menu
from attribution_sched.explain.part_words import part_players
from attribution_sched.explain.parts_game import AppraisedPlans, PartsGame, SimulatedPlans, Valued
from attribution_sched.explain.plan_mixtures import between
from attribution_sched.explain.players import Lineup, lineup
from attribution_sched.explain.recorder import Decided
from attribution_sched.explain.shapley.explain import estimate
from attribution_sched.explain.shapley.plan import STANDARD_ROWS
from attribution_sched.explain.targets import chosen, need_appraiser
from attribution_sched.explain.truth import Simulator
from attribution_sched.explain.wording import describe_plan
from attribution_sched.explain.words import Phrase
from attribution_sched.scheduler.policy import Policy

IntArray = NDArray[np.int64]

STATES = 256
"""Background states that are used at most by default, and as many other plans: fewer states have several each."""

LEAST_STATES = 32
"""So many are kept even if the coalitions of all of them are then too many to list."""

TARGETS: tuple[str, ...] = ("simulator", "terms")

Others = Literal["menu", "runner-up"]
"""Where absent parts come from, if no plan is named."""


class PartsExplainer:
    """Explains plans by their parts.

    Absent parts are those of other plans, of which every mixture with the plan can run; absent links are as in states
    of the background. Links that the plan does not cross, and everything else, stay as they were.

    Args:
        policy: Whose plans; needed for ``target="terms"`` and the runner-up, else only its name is.
        background: States that links are taken from.
        world: The simulated world of the decisions: the simulator then knows the task's own demands. Without it a
            nominal task of the kind is priced.
        same_kind: See :class:`~attribution_sched.explain.explainer.Explainer`.
    """

    def __init__(
        self,
        policy: Policy | None,
        background: Background,
        *,
        world: World | None = None,
        same_kind: bool | None = None,
    ) -> None:
        self.policy = policy
        self.background = background
        self.same_kind = same_kind
        self.simulator = None if world is None else Simulator(world)

    def explain(
        self,
        decided: Decided,
        *,
        against: Plan | Others | None = None,
        target: str = "simulator",
        interactions: bool = True,
        states: int = STATES,
        seed: int = 0,
    ) -> Explanation:
        """Explain the plan of one decision.

        Args:
            decided: The decision.
            against: Where absent parts come from: ``menu`` (the default) draws them from what the kind's menu offers on
                the same devices; a plan, or the policy's ``runner-up``, gives its own parts, and what is explained is
                the difference to it.
            target: ``simulator`` for the plan's own terms as the simulator works them out, ``terms`` for what the
                policy expects them to be.
            interactions: Whether to give the interactions of all pairs of players.
            states: Background states, and other plans, to use at most.
            seed: Of the drawing.

        Raises:
            ExplanationError: If there is no plan, nothing to compare it with, or no such target.
            PlanError: If a plan is malformed or does not fit memory.
        """
        began = time.perf_counter()
        game, players, like = self._prepare(decided, against, target, states, seed)
        crossed = len(game.players) > len(game.hybrids.blocks)
        reading = "population" if game.population else "sample"
        found = estimate(game, seed=seed, background=reading)
        pairs: tuple[Interaction, ...] = ()
        if interactions and len(game.players) > 1:
            pairs = strongest_pairs(game, None, rows=STANDARD_ROWS, seed=seed, reading=reading)
        view = decided.view
        domains = [domain.name for domain in view.cost.cluster.domains]
        plan = describe_plan(decided.plan, domains)
        return Explanation(
            decision=decided.id,
            policy="scheduler" if self.policy is None else self.policy.name,
            subject=Phrase("plan.subject", task=view.kind.model.name, plan=plan),
            target=target,
            players=players,
            outputs=found.outputs,
            values=found.values,
            standard_error=found.standard_error,
            base=found.base,
            value=found.full,
            weights=tuple(float(w) for w in game.weights),  # type: ignore[arg-type]
            against=describe_plan(game.hybrids.others().plan(0), domains) if game.contrast else "",
            method=found.method,
            degrees=0 if np.isinf(found.freedom) else max(1, int(found.freedom)),
            rows=found.rows * game.repeats,
            background=found.background if crossed or not game.contrast else 0,
            background_name=like,
            seed=seed,
            seconds=time.perf_counter() - began,
            interactions=pairs,
        )

    def game(
        self,
        decided: Decided,
        *,
        against: Plan | Others | None = None,
        target: str = "simulator",
        states: int = STATES,
        seed: int = 0,
    ) -> PartsGame:
        """The same as a game, for own estimators."""
        return self._prepare(decided, against, target, states, seed)[0]

    def _prepare(
        self, decided: Decided, against: Plan | str | None, target: str, states: int, seed: int
    ) -> tuple[PartsGame, tuple[Player, ...], str]:
        """The game, its players, and where the background comes from."""
        if decided.plan is None:
            rule = "the task waits or stays, there are no parts to explain"
            raise ExplanationError(problem("plan", None, rule, "Explain a decision that places the task"))
        if target not in TARGETS:
            raise ExplanationError(problem("target", target, "is not offered for parts", nearest(target, TARGETS)))
        if states < 1:
            raise ExplanationError(problem("states", states, "must be >= 1", f"Use {STATES}"))
        view = decided.view
        seen = widened(decided.seen, max(decided.seen.kind.shape[1], self.background.states.kind.shape[1]))
        seen.check()
        like = self.background.like(seen, same_kind=self.same_kind)
        domains = tuple(domain.name for domain in view.cost.cluster.domains)
        cast = lineup(seen, domains, "pair")
        blend = Blender.of(seen, like.states, cast.owners)
        other = self._other(decided, seen, blend, cast, against)
        hybrids = from_menu(view, decided.plan, seed) if other is None else between(view, decided.plan, other)
        seats = _crossed(decided, cast, [decided.plan] if other is None else [decided.plan, other])
        number = min(states, max(LEAST_STATES, STANDARD_ROWS >> len(hybrids.blocks) + len(seats)))
        rng = np.random.default_rng([seed, STATES])
        if _varied(like.states, cast, seats):
            used = np.sort(rng.permutation(len(like))[:number])
            repeats = 1 if hybrids.draws == 1 else max(1, number // len(used))
            drawn, population = _dealt(hybrids.draws, repeats * len(used), rng), False
        else:
            # One state of the links: the background is the list of other plans, and may be all there are.
            drawn, repeats = np.sort(rng.permutation(hybrids.draws)[:number]), 1
            used, population = np.zeros(len(drawn), dtype=np.int64), hybrids.complete and hybrids.draws <= number
        offered, hybrids = hybrids.draws, hybrids.pick(drawn)
        read = cast.players(seen, cast.usual(like.states))[0]
        players = (*part_players(hybrids, domains), *(read[seat] for seat in seats))
        names = (*hybrids.names, *(cast.names[seat] for seat in seats))
        valued = self._valued(decided, cast, like, target, seen)
        game = PartsGame(
            names, hybrids, seats, len(cast.names), blend.only(seats), used, valued, seen.weights[0], other is not None,
            population, repeats,
        )  # fmt: skip
        source = like.name if len(seats) else ""
        if other is None:
            if source:
                source = Phrase("background.parts_and_links", count=offered, source=source)
            else:
                source = Phrase("background.parts", count=offered)
        return game, players, source

    def _other(
        self, decided: Decided, seen: Decisions, blend: Blender, cast: Lineup, against: Plan | str | None
    ) -> Plan | None:
        """The plan to compare with; None for the menu."""
        if isinstance(against, Plan) or against is None:
            return against
        if against == "menu":
            return None
        if against != "runner-up":
            fix = "Use a plan, 'menu' or 'runner-up'"
            raise ExplanationError(problem("against", against, "is not a plan", fix))
        if self.policy is None:
            raise ExplanationError(problem("against", against, "needs the policy", "Build the explainer with it"))
        found = alternatives(self.policy, decided, seen, like_situations(blend, len(cast.names))).others
        listed = [one.plan for one in found if one.plan is not None and chosen(one.plan) != chosen(decided.plan)]
        if not listed:
            rule = "the policy has no other plan for this task"
            raise ExplanationError(problem("against", against, rule, "Name a plan, or use 'menu'"))
        return listed[0]

    def _valued(self, decided: Decided, cast: Lineup, like: Background, target: str, seen: Decisions) -> Valued:
        view = decided.view
        if target == "terms":
            if self.policy is None:
                raise ExplanationError(problem("target", target, "needs the policy", "Use target='simulator'"))
            return AppraisedPlans(view, need_appraiser(self.policy, target))
        if self.simulator is None:
            return SimulatedPlans(view, np.ones(3))
        told = self.simulator.target(view, (decided.plan,), seen.weights[0], cast, like)
        return SimulatedPlans(view, told.own(told.ratio[None])[0])


def _crossed(decided: Decided, cast: Lineup, plans: list[Plan]) -> IntArray:
    """Seats of the links that carry traffic of a plan."""
    view = decided.view
    traffic = view.cost.score(PlanBatch.of(plans), view.kind_index, breakdown=False).traffic_bytes.sum(axis=0)
    owners = cast.owners.get("links")
    if owners is None:
        return np.zeros(0, dtype=np.int64)
    found = np.unique(owners[0][(traffic > 0) & (owners[0] >= 0)])
    return found.astype(np.int64)


def _varied(states: Decisions, cast: Lineup, seats: IntArray) -> bool:
    """Whether these links are not the same in all states."""
    if len(seats) == 0:
        return False
    cells = np.isin(cast.owners["links"], seats)
    return bool((states.links != states.links[:1])[:, cells].any())


def _dealt(draws: int, hands: int, rng: np.random.Generator) -> IntArray:
    """One of the draws for every hand, all of them about equally often."""
    rounds = [rng.permutation(draws) for _ in range(-(-hands // draws))]
    return np.concatenate(rounds)[:hands]
