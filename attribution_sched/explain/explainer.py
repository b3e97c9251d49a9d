"""Explain decisions of a policy: which inputs made the plan worth what it is, or made it the choice."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from math import comb, inf
from typing import Any, Literal

import numpy as np

from attribution_sched.cluster.decision import Decision, Decisions
from attribution_sched.cluster.plan import Plan
from attribution_sched.cluster.world import World
from attribution_sched.errors import ExplanationError, nearest, problem
from attribution_sched.explain.alternatives import Alternatives, alternatives, confidence, like_situations, proposed
from attribution_sched.explain.background import Alike, Background
from attribution_sched.explain.batch import Batch, Prepared, one_by_one, refuse_none, side_by_side
from attribution_sched.explain.counterfactual import find_flips, rules, smallest_flip
from attribution_sched.explain.digits import number
from attribution_sched.explain.explanation import COMPONENTS, TARGETS, Explanation, estimated
from attribution_sched.explain.findings import EXPERIENCE, OTHERS, THINKING, Confidence, Interaction, Player
from attribution_sched.explain.games import DecisionGame
from attribution_sched.explain.masked_states import Blender, widened
from attribution_sched.explain.players import Lineup, Links, Readings, in_joules, lineup
from attribution_sched.explain.preference import (
    REASKED_ROWS,
    ROWS,
    AskedAgain,
    Preference,
    find_foil,
    odds_of,
    where,
)
from attribution_sched.explain.recorder import Decided
from attribution_sched.explain.room import RoomTable
from attribution_sched.explain.sensitivity import Sweep, sweeps
from attribution_sched.explain.targets import (
    AppraisedComponents,
    Choice,
    ChoiceProbability,
    Target,
    chosen,
    need_appraiser,
    proposals,
)
from attribution_sched.explain.truth import Simulator
from attribution_sched.explain.wording import describe_plan
from attribution_sched.scheduler.policy import (
    Appraiser,
    BatchAppraiser,
    ChoiceOdds,
    Overruled,
    Policy,
    Settles,
    Thoughtful,
)
from attribution_sched.shapley.budget import Rows
from attribution_sched.shapley.estimate import Estimate
from attribution_sched.shapley.explain import estimate, estimate_many
from attribution_sched.stats.interval import half_width
from attribution_sched.types import FloatArray
from attribution_sched.words.say import Phrase

PRECISION = 0.05
"""Half-width of the leading player's 95 % interval that is aimed at by default, as a share of its value."""

SETTLED = Phrase("note.settled")
"""Said where the plan itself was not among the policy's choices."""

ASKED_ANEW = Phrase("note.asked_anew")
"""Said where a search, or what the policy remembered, made it decide otherwise."""

LESS = Phrase("note.less")
"""Said where choices are compared."""

SEARCHED = Phrase("note.searched")
"""Said where the search decided against the agents, so that their odds explain nothing."""

REASKED = Phrase("note.reasked")
"""Said where a policy tells no odds and was asked again in every situation."""

STEADFAST = Phrase("note.steadfast")
"""Said where no earlier situation is known in which the policy would have chosen otherwise."""

FORCED = Phrase("note.forced")
"""Said where nothing else was on offer: no weight of the policy had a say."""

FIXED = Phrase("note.fixed")
"""Said where the background is read as all there is."""

OWN = ("policy", "policy+search", "search")
"""Sources of decisions that a policy settled on itself: no fallback, and nothing that thinking put in their place."""

EXPERIENCED = "ranker"
"""Source of decisions in which what PPO on the fork learnt had the last word: asked again, the policy says the same."""

CHUNK = 1 << 15
"""Situations of many decisions that are put together at a time."""

LEAST_DRAWS = 32
"""Draws behind each sampled interaction at least."""

Against = Literal["runner-up", "nothing"]
"""Whom to compare with, if no plan is named: the policy's next choice, or letting the task wait or stay."""


class Explainer:
    """Explains decisions of one policy on one cluster.

    Args:
        policy: Whose decisions; any policy.
        background: States to compare with; real ones, as of :class:`~attribution_sched.explain.recorder.Watch`.
        links: How links are grouped: per ``pair`` of domains, per ``domain``, or ``all`` together.
        world: The simulated world the decisions are from; needed for ``target="simulator"``.
        same_kind: Compare only with tasks of the same kind (True), with all (False), or as many there are (None).
    """

    def __init__(
        self,
        policy: Policy,
        background: Background,
        *,
        links: Links = "pair",
        world: World | None = None,
        same_kind: bool | None = None,
    ) -> None:
        self.policy = policy
        self.background = background
        self.links: Links = links
        self.same_kind = same_kind
        self.simulator = None if world is None else Simulator(world)
        self._alike: dict[tuple[object, ...], Alike] = {}

    def explain(
        self,
        decided: Decided,
        *,
        target: str | None = None,
        against: Plan | Against | None = None,
        method: str = "auto",
        precision: float | None = PRECISION,
        rows: Rows | None = None,
        time_s: float | None = None,
        seed: int = 0,
        interactions: int = 0,
        tipping: bool = False,
        sure: bool = True,
        reading: str | None = None,
    ) -> Explanation:
        """Explain one decision.

        Args:
            decided: The decision.
            target: One of :data:`~attribution_sched.explain.explanation.TARGETS`; by default the decision itself,
                contrasted with the best other choice (:mod:`~attribution_sched.explain.preference`). ``terms`` is what
                the plan is worth by itself.
            against: For the other targets: a plan to compare with, ``runner-up`` for the policy's own next choice,
                ``nothing`` for letting the task wait or stay; None explains the plan by itself. With it the default
                target is ``terms``.
            method: See :func:`~attribution_sched.shapley.explain.estimate`.
            precision: Stop when the leading player of the last output (R where there are components) is known so well;
                None runs the whole budget.
            rows: Most situations to evaluate; ``quick``, ``standard`` or a number.
            time_s: Stop before so much time has passed.
            seed: Of the sampling.
            interactions: Pairwise interactions among so many of the strongest players.
            tipping: Whether to look for thresholds of single quantities and for the smallest change that flips the
                choice; takes longer than the rest.
            sure: Whether to ask how sure the policy was (a few more evaluations).
            reading: ``sample`` if the background stands for a larger population: the error of having only these states
                is part of the interval, and often most of it. ``population`` if the question is how the decision
                differs from these very states, as it is for a decision and its reference group; there it is the
                default.
        """
        began = time.perf_counter()
        target = self._target(target, against)
        ready = self._prepare(decided, target, against)
        main = ready.game.outputs[-1:]
        if reading is None:
            reading = "sample" if ready.foil is None else "population"
        if ready.foil is not None:
            main = ready.game.outputs[:1]
            if rows is None:
                rows, precision = ROWS if main == ("log_odds",) else REASKED_ROWS, None
        found = estimate(
            ready.game, method=method, budget_rows=rows, precision=precision, precision_of=main,
            time_s=time_s, seed=seed, background=reading,
        )  # fmt: skip
        said = self._confidence(ready) if sure else None
        players = in_joules(ready.cast.players(ready.seen, ready.alike.usual)[0], decided.view.attribution)
        fused = ready.game.fused
        shares = np.zeros((2, len(ready.cast.names) + (fused is not None), len(found.outputs)))
        shares[:, ready.game.seats] = tuple(
            part[: len(ready.game.seats)] for part in (found.values, found.standard_error)
        )
        if fused is not None:
            players = (*players, Player(OTHERS, "input", Phrase("reading.others", count=len(fused))))
            shares[:, -1] = found.values[-1], found.standard_error[-1]
        told = self._explanation(
            decided, target, found, said, players, ready.seen.weights[0], shares, ready.background,
            ready.notes, against=ready.against, contrasted=ready.contrasted,
        )  # fmt: skip
        if ready.foil is not None:
            told = replace(told, rows=told.rows + ready.foil.rows, against=self._instead(ready))
            policy, plan, aim = self.policy, decided.plan, ready.game.target
            if isinstance(aim, Preference) and aim.overruled is not None:
                told = _with_thinking(told, decided.view, aim.overruled)
            elif isinstance(policy, ChoiceOdds) and policy.forced(decided.view, ready.seen, plan)[0]:
                told = replace(told, notes=(*told.notes, FORCED))
        elif said is not None and SETTLED not in told.notes and self._settled(ready):
            told = replace(told, notes=(*told.notes, SETTLED))
        if interactions:
            told = replace(told, interactions=self._interactions(ready, told, interactions, seed, reading))
        if tipping:
            told = self._tipping(ready, told)
        return replace(told, seconds=time.perf_counter() - began)

    def explain_many(
        self,
        decisions: Sequence[Decided],
        *,
        target: str | None = None,
        method: str = "auto",
        precision: float | None = PRECISION,
        rows: Rows | None = None,
        seed: int = 0,
        reading: str = "sample",
        progress: bool = False,
    ) -> list[Explanation]:
        """Explain many decisions together; see :meth:`explain`.

        Decisions that have the same players and background share coalitions and are evaluated side by side.
        """
        if not decisions:
            raise ExplanationError(problem("decisions", [], "at least one is needed", "Pass decisions of a Watch"))
        began = time.perf_counter()
        name = self._target(target)
        if name == "decision":
            # Every decision has a reference group of its own.
            own: dict[str, Any] = {"method": method, "rows": rows, "precision": precision, "seed": seed}
            return [self.explain(one, target=name, sure=False, **own) for one in decisions]
        ask: dict[str, Any] = {"method": method, "precision": precision, "budget_rows": rows, "seed": seed}
        ask["background"] = reading
        parts: list[Explanation | None] = [None] * len(decisions)
        for batch in self._batches(decisions, name):
            found = estimate_many(
                batch.game, precision_of=batch.outputs[-1:], progress=progress or None, chunk=CHUNK, **ask
            )
            vectors = [decisions[i].view.attribution for i in batch.members]
            readings = Readings(batch.alike.cast, batch.alike.usual, batch.seen, vectors)
            shares = np.zeros((2, len(found), len(batch.alike.cast.names), len(batch.outputs)))
            for row, each in enumerate(found):
                shares[:, row, batch.seats] = each.values, each.standard_error
            weights, compared = batch.seen.weights, batch.alike.background
            for row, i in enumerate(batch.members):
                parts[i] = self._explanation(
                    decisions[i], name, found[row], None, readings.of(row), weights[row], shares[:, row], compared,
                    batch.notes[row],
                )  # fmt: skip
        seconds = (time.perf_counter() - began) / len(decisions)
        for told in parts:
            # Nobody has seen it yet.
            object.__setattr__(told, "seconds", seconds)
        return [told for told in parts if told is not None]

    def game(
        self, decided: Decided, *, target: str | None = None, against: Plan | Against | None = None
    ) -> DecisionGame:
        """A decision as a game, for :mod:`~attribution_sched.explain.quality` and own estimators."""
        return self._prepare(decided, self._target(target, against), against).game

    def _target(self, target: str | None, against: object = None) -> str:
        if target is None and against is None:
            return "decision"
        if target is None:
            return "terms" if isinstance(self.policy, Appraiser) else "choice"
        if target == "decision" and against is not None:
            rule = "finds the other choice itself"
            raise ExplanationError(problem("against", against, rule, "Leave out against=, or use another target"))
        valid = [name for name in TARGETS if name not in ("model", "log_odds")]
        if target not in valid:
            raise ExplanationError(problem("target", target, "cannot be explained", nearest(target, valid)))
        return target

    def _like(self, seen: Decisions, domains: tuple[str, ...]) -> Alike:
        """What a decision is compared with."""
        key = (domains, seen.kind.shape[1], bool(seen.replanning[0]), int(seen.kind[0, 0]))
        if key not in self._alike:
            like = self.background.like(seen, same_kind=self.same_kind)
            self._alike[key] = Alike.of(like, lineup(seen, domains, self.links))
        return self._alike[key]

    def _batches(self, decisions: Sequence[Decided], target: str) -> list[Batch]:
        """Decisions with the same players and background, side by side if the policy can judge them so."""
        if target == "terms":
            policy = need_appraiser(self.policy, target)
            if isinstance(policy, BatchAppraiser):
                return side_by_side(policy, decisions, self.background, self._like)
        return one_by_one([self._prepare(decided, target, None) for decided in decisions])

    def _prepare(self, decided: Decided, target: str, against: Plan | str | None) -> Prepared:
        width = max(decided.seen.kind.shape[1], self.background.states.kind.shape[1])
        seen = widened(decided.seen, width)
        seen.check()
        alike = self._like(seen, tuple(domain.name for domain in decided.view.cost.cluster.domains))
        background, cast = alike.background, alike.cast
        blend = Blender.of(seen, background.states, cast.owners)
        if target == "decision":
            return self._contrast(decided, seen, alike, blend)
        contrasted = against is not None
        notes: tuple[str, ...] = ()
        own = decided.plan
        if target == "log_probability":
            own, settled = proposed(need_appraiser(self.policy, "log_probability"), decided, seen)
            notes = (SETTLED,) if settled else ()
        elif target == "choice":
            own = proposals(self.policy, decided.view, seen)[0]
            notes = (ASKED_ANEW,) if chosen(own) != chosen(decided.plan) else ()
            notes = (*notes, LESS) if contrasted else notes
        other: Plan | None = None
        if isinstance(against, Plan):
            other = against
        elif against == "runner-up":
            found = alternatives(self.policy, decided, seen, like_situations(blend, len(cast.names))).others
            listed = [one.plan for one in found if chosen(one.plan) != chosen(own)]
            if not listed:
                rule = "the policy has no other plan for this task"
                raise ExplanationError(problem("against", against, rule, "Name a plan to compare with"))
            other = listed[0]
        elif against not in (None, "nothing"):
            fix = "Use a plan, 'runner-up' or 'nothing'"
            raise ExplanationError(problem("against", against, "is not a plan", fix))
        plans = (own, other) if contrasted else (own,)
        aim = self._aim(target, decided, seen, plans, cast, background)
        moving = np.flatnonzero(aim.movable(cast, alike.differing(seen)[0]))
        refuse_none(moving, background)
        names = tuple(cast.names[i] for i in moving)
        game = DecisionGame(names, moving, len(cast.names), blend.only(moving), aim)
        return Prepared(decided, seen, alike, blend, other, contrasted, game, notes)

    def _contrast(self, decided: Decided, seen: Decisions, alike: Alike, blend: Blender) -> Prepared:
        """The decision against what the policy does instead where it chooses otherwise."""
        cast = alike.cast
        target, notes = self._preference(decided, seen)
        moving = np.flatnonzero(target.movable(cast, alike.differing(seen)[0]))
        refuse_none(moving, alike.background)
        foil = find_foil(self.policy, target, blend, moving, cast)
        group = alike.background.only(foil.states)
        # Inputs that no state of the group has otherwise have no share in the contrast.
        alike = Alike.of(group, cast)
        differing = alike.differing(seen)[0]
        kept = np.array([i for i in foil.kept if differing[i]], dtype=np.int64)
        fused = np.array([i for i in moving if differing[i] and i not in kept], dtype=np.int64)
        if foil.otherwise == 0:
            notes = (*notes, STEADFAST)
        own = Blender.of(seen, group.states, cast.owners)
        names = (*(cast.names[i] for i in kept), *((OTHERS,) if len(fused) else ()))
        refuse_none(np.concatenate([kept, fused]), group)
        present = own.only(np.concatenate([kept, fused]))
        game = DecisionGame(names, kept, len(cast.names), present, target, fused if len(fused) else None)
        return Prepared(decided, seen, alike, own, foil.plan, foil.otherwise > 0, game, notes, foil)

    def _preference(self, decided: Decided, seen: Decisions) -> tuple[Preference, tuple[str, ...]]:
        """What is asked about the choice, and what a reader must know about how."""
        view, plan = decided.view, decided.plan
        notes: tuple[str, ...] = ()
        asked = AskedAgain(self.policy, view)
        if decided.source in OWN and isinstance(self.policy, Settles):
            self.policy.settled(view, plan)
        for attempt in range(2):
            if isinstance(self.policy, ChoiceOdds):
                target = Preference(view, plan, odds_of(self.policy, view, plan), RoomTable(view), odds=True)
                if float(target.score(seen)[0]) > 0.0:
                    return target, notes
            again = asked(seen)[0]
            same = where(again) == where(plan)
            if attempt or (same and decided.source != EXPERIENCED):
                break
            overruled = self.policy.overruled(view, plan) if isinstance(self.policy, Thoughtful) else None
            if overruled is not None and isinstance(self.policy, ChoiceOdds):
                score = odds_of(self.policy, view, plan)
                return Preference(view, plan, score, RoomTable(view), odds=True, overruled=overruled), notes
            if same:
                break
            # Its memory or a deadline made it decide otherwise; asked anew, it does this.
            notes, plan = (ASKED_ANEW,), again
        notes = (*notes, SEARCHED if isinstance(self.policy, ChoiceOdds) else REASKED)
        return Preference(view, plan, asked.score(plan), RoomTable(view), odds=False, asked=asked), notes

    def _instead(self, ready: Prepared) -> str:
        """What the policy does instead, in words; empty if it never does."""
        foil, view = ready.foil, ready.decided.view
        if foil is None or foil.otherwise == 0:
            return ""
        if foil.another:
            return Phrase("plan.another_first")
        return describe_plan(
            foil.plan, [domain.name for domain in view.cost.cluster.domains], replanning=view.replanning
        )

    def _aim(
        self,
        target: str,
        decided: Decided,
        seen: Decisions,
        plans: tuple[Plan | None, ...],
        cast: Lineup,
        background: Background,
    ) -> Target:
        weights = seen.weights[0]
        if target == "terms":
            return AppraisedComponents(need_appraiser(self.policy, target), decided.view, plans, weights)
        if target == "log_probability":
            return ChoiceProbability(need_appraiser(self.policy, target), decided.view, plans)
        if target == "choice":
            return Choice(self.policy, decided.view, plans)
        if self.simulator is None:
            fix = "Build the Explainer with world=, the simulated world of the decisions"
            raise ExplanationError(problem("target", target, "needs a simulator", fix))
        return self.simulator.target(decided.view, plans, weights, cast, background)

    def _settled(self, ready: Prepared) -> bool:
        return isinstance(self.policy, Appraiser) and proposed(self.policy, ready.decided, ready.seen)[1]

    def _confidence(self, ready: Prepared) -> Confidence | None:
        if ready.foil is not None:
            looked_at, otherwise = ready.foil.looked_at, ready.foil.otherwise
            return Confidence(float("nan"), agreement=1.0 - otherwise / looked_at)
        if not isinstance(self.policy, Appraiser):
            return None
        situations = like_situations(ready.blend, ready.game.n_players)
        found: Alternatives = alternatives(self.policy, ready.decided, ready.seen, situations)
        view = ready.decided.view
        return confidence(found, [domain.name for domain in view.cost.cluster.domains], replanning=view.replanning)

    def _explanation(
        self,
        decided: Decided,
        target: str,
        found: Estimate,
        said: Confidence | None,
        players: Sequence[Player],
        weights: FloatArray,
        shares: FloatArray,
        background: Background,
        notes: tuple[str, ...],
        *,
        against: Plan | None = None,
        contrasted: bool = False,
    ) -> Explanation:
        domains = [domain.name for domain in decided.view.cost.cluster.domains]
        replanning = decided.view.replanning
        plan = describe_plan(decided.plan, domains, replanning=replanning)
        return Explanation(
            decision=decided.id,
            policy=self.policy.name,
            subject=Phrase("plan.subject", task=decided.view.kind.model.name, plan=plan),
            target="log_odds" if target == "log_probability" and contrasted else target,
            players=players,
            **{**estimated(found), "values": shares[0], "standard_error": shares[1]},
            weights=tuple(weights.tolist()) if found.outputs[0] in COMPONENTS else None,
            against=describe_plan(against, domains, replanning=replanning) if contrasted else "",
            background_name=background.name,
            background_ids=background.ids,
            confidence=said,
            notes=(*notes, FIXED) if found.reading == "population" else notes,
        )

    def _tipping(self, ready: Prepared, told: Explanation) -> Explanation:
        view, seen = ready.decided.view, ready.seen
        domains = [domain.name for domain in view.cost.cluster.domains]
        devices = [domain.devices for domain in view.cost.cluster.domains]
        listed = [_named(one, ready.cast) for one in sweeps(seen, ready.background.states, tuple(domains), devices)]
        flips = find_flips(self.policy, view, seen, listed)
        return replace(
            told,
            rules=rules(flips, domains, replanning=view.replanning),
            counterfactual=smallest_flip(self.policy, view, seen, flips, ready.cast, ready.blend),
        )

    def _interactions(
        self, ready: Prepared, told: Explanation, most: int, seed: int, reading: str
    ) -> tuple[Interaction, ...]:
        from attribution_sched.explain.games import strongest_pairs
        from attribution_sched.shapley.budget import QUICK_ROWS

        strongest = [name for name in (told.names[i] for i in told.drivers(most=most)) if name in ready.game.players]
        if len(strongest) < 2:
            return ()
        rows = max(QUICK_ROWS, LEAST_DRAWS * 8 * comb(len(strongest), 2))
        return strongest_pairs(ready.game, strongest, rows=rows, seed=seed, reading=reading)


def _with_thinking(told: Explanation, view: Decision, by: Overruled) -> Explanation:
    """What thinking, or experience, added beside what the agents said, and their own choice as the other one."""
    domains = [domain.name for domain in view.cost.cluster.domains]
    error = float(half_width(by.error, by.copies - 1.0 if by.copies > 1 else inf))
    shown = {"gain": number(by.gain, 2, signed=True), "error": number(error, 2)}
    name, value = THINKING, Phrase("reading.thought", futures=by.copies, **shown)
    if not by.copies:
        name, value = EXPERIENCE, Phrase("reading.experience", added=number(by.added, 2, signed=True))
    shares = np.zeros((2, 1, len(told.outputs)))
    shares[:, 0, 0] = by.added, by.added_error
    against: str = Phrase("plan.another_first")
    if not by.another:
        against = describe_plan(by.own, domains, replanning=view.replanning)
    total = told.value.copy()
    total[0] += shares[0, 0, 0]
    return replace(
        told,
        players=(*told.players, Player(name, name, value, number=by.gain)),
        values=np.concatenate([told.values, shares[0]]),
        standard_error=np.concatenate([told.standard_error, shares[1]]),
        value=total,
        against=against,
        notes=tuple(note for note in told.notes if note not in (STEADFAST, SEARCHED)),
    )


def _named(sweep: Sweep, cast: Lineup) -> Sweep:
    """The sweep under the name its player has where links are grouped."""
    if sweep.player in cast.names:
        return sweep
    pair = sweep.player.removeprefix("link ")
    group = f"links of {pair.split('–')[0]}"
    return replace(sweep, player=group if group in cast.names else "links", quantity=f"{sweep.quantity} {pair}")
