"""Explain a plan by its own parts: cut points, layout, precision and microbatch, beside the links it crosses.

    told = PartsExplainer(policy, background, world=world).explain(decided)      # against what the menu offers
    told.interactions                                                            # link × cut, precision × microbatch, …

:class:`~attribution_sched.explain.explainer.Explainer` asks which *inputs* made a plan worth what it is; this asks
which of the *choices* in it did.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, product
from math import prod
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from attribution_sched.cluster.decision import Decision, Decisions
from attribution_sched.cluster.gpus import PRECISIONS
from attribution_sched.cluster.plan import (
    DOMAIN,
    DP,
    FIRST,
    MICROBATCH,
    PP,
    PRECISION,
    REPLICA,
    STOP,
    TP,
    Plan,
    PlanBatch,
    layout_table,
)
from attribution_sched.cluster.reward import worth
from attribution_sched.cluster.world import World
from attribution_sched.errors import ExplanationError, nearest, problem
from attribution_sched.explain.alternatives import alternatives, like_situations
from attribution_sched.explain.background import Background
from attribution_sched.explain.explanation import COMPONENTS, TOTAL, Explanation, estimated
from attribution_sched.explain.findings import Interaction, Player
from attribution_sched.explain.games import strongest_pairs
from attribution_sched.explain.masked_states import Blender, widened
from attribution_sched.explain.plan_mixtures import (
    COLUMNS,
    CUTS,
    LAYOUT,
    MICRO,
    NUMBERS,
    SCHEDULE,
    STRUCTURE,
    Block,
    Hybrids,
    between,
    mixed,
    plans_of,
    rows_of,
)
from attribution_sched.explain.players import Lineup, lineup
from attribution_sched.explain.recorder import Decided
from attribution_sched.explain.targets import chosen, need_appraiser, with_total
from attribution_sched.explain.truth import Simulator
from attribution_sched.explain.wording import describe_plan
from attribution_sched.planning.candidates import runnable, taken
from attribution_sched.planning.local_search import every_cut
from attribution_sched.planning.segment_table import formats_of_all
from attribution_sched.scheduler.policy import Appraiser, BatchAppraiser, Policy
from attribution_sched.shapley.budget import STANDARD_ROWS
from attribution_sched.shapley.exact import all_coalitions, codes_of
from attribution_sched.shapley.explain import estimate
from attribution_sched.types import BoolArray, FloatArray, IntArray
from attribution_sched.words.say import Phrase

# ------ A plan as a game of its own parts and of the links it crosses


_CHUNK_ROWS = 4096


class Valued(Protocol):
    """Says what plans are worth in situations."""

    def __call__(self, plans: PlanBatch, rows: IntArray, situations: Decisions) -> FloatArray:
        """R_eff, R_util and R_cost ``(n, 3)`` of plan ``rows[i]`` in situation ``i``."""
        ...


@dataclass(frozen=True, eq=False)
class SimulatedPlans:
    """As the simulator works them out.

    Attributes:
        view: The decision.
        factors: The task's demand multipliers, shape ``(3,)``; ones for a nominal task.
    """

    view: Decision
    factors: FloatArray

    def __call__(self, plans: PlanBatch, rows: IntArray, situations: Decisions) -> FloatArray:
        """Components ``(n, 3)``."""
        batch, kind = taken(plans, rows), self.view.kind_index
        priced = self.view.cost.score(
            batch, kind, bandwidth_gbps=situations.links[:, 0], latency_s=situations.links[:, 1], factors=self.factors,
            breakdown=False,
        )  # fmt: skip
        found = worth(self.view, batch, priced, kind)
        return np.column_stack([found.r_eff, found.r_util, found.r_cost])


@dataclass(frozen=True, eq=False)
class AppraisedPlans:
    """As a policy expects them."""

    view: Decision
    policy: Appraiser

    def __call__(self, plans: PlanBatch, rows: IntArray, situations: Decisions) -> FloatArray:
        """Components ``(n, 3)``."""
        asked, owner = np.unique(rows, return_inverse=True)
        listed = [plans.plan(int(row)) for row in asked]
        if isinstance(self.policy, BatchAppraiser):
            return self.policy.appraise_each([self.view] * len(listed), situations, owner, listed).terms[:, 0]
        found = np.empty((len(rows), len(COMPONENTS)))
        for at, plan in enumerate(listed):
            own = np.flatnonzero(owner == at)
            said = self.policy.appraise(
                self.view, situations.take(own), [plan], log_probability=False
            )  # fmt: skip
            found[own] = said.terms[:, 0]
        return found


@dataclass(frozen=True, eq=False)
class PartsGame:
    """Who is present is as in the decision: a part as in its plan, a link as it was.

    An absent part is that of another plan, an absent link is as in a background state. Background number ``b`` is one
    state with ``repeats`` other plans of its own, over which the value is averaged: few states do not mean few plans,
    and the spread between states still counts all that was drawn. The value is the plan's own, or the difference to
    the other plan in the same situation.

    Attributes:
        players: Parts first, then links.
        hybrids: Mixtures of the plan with ``B · repeats`` others.
        seats: Where the links stand in the line-up that ``blend`` knows.
        n_seats: Players of that line-up.
        blend: Puts situations together.
        states: Background state of each of the B, shape ``(B,)``.
        valued: What a plan is worth.
        weights: Frozen weights, shape ``(3,)``.
        contrast: Whether the difference to the other plan is asked for.
        population: Whether the background is all there is, not a sample.
        repeats: Other plans for each state.
    """

    players: tuple[str, ...]
    hybrids: Hybrids
    seats: IntArray
    n_seats: int
    blend: Blender
    states: IntArray
    valued: Valued
    weights: FloatArray
    contrast: bool
    population: bool = False
    repeats: int = 1
    outputs: tuple[str, ...] = (*COMPONENTS, TOTAL)

    @property
    def n_background(self) -> int:
        """Number of states, each with its other plans."""
        return len(self.states)

    def __call__(self, coalitions: BoolArray, background: IntArray) -> FloatArray:
        """Components and total ``(n, 4)``."""
        if self.n_background << len(self.players) > STANDARD_ROWS:
            return self._play(coalitions, background)
        return self._table[background, codes_of(coalitions)]

    @cached_property
    def _table(self) -> FloatArray:
        """Every coalition with every background, ``(B, 2^d, 4)``: shares and interactions ask for the same ones."""
        d, states = len(self.players), self.n_background
        every, background = np.tile(all_coalitions(d), (states, 1)), np.repeat(np.arange(states), 1 << d)
        parts = [slice(start, start + _CHUNK_ROWS) for start in range(0, len(every), _CHUNK_ROWS)]
        return np.concatenate([self._play(every[p], background[p]) for p in parts]).reshape(states, 1 << d, -1)

    def _play(self, coalitions: BoolArray, background: IntArray) -> FloatArray:
        parts = len(self.hybrids.blocks)
        code = codes_of(coalitions[:, :parts])
        everybody = np.ones((len(coalitions), self.n_seats), dtype=np.bool_)
        everybody[:, self.seats] = coalitions[:, parts:]
        situations = self.blend(everybody, self.states[background], np.zeros(len(coalitions), dtype=np.int64))
        terms = np.zeros((len(coalitions), len(COMPONENTS)))
        for turn in range(self.repeats):
            first = background * self.repeats + turn << parts
            terms += self.valued(self.hybrids.plans, first + code, situations)
            if self.contrast:
                terms -= self.valued(self.hybrids.plans, first, situations)
        return with_total(terms / self.repeats, self.weights)


# ------ Parts of plans in words and numbers, from the rows of a plan


SPELT_OUT = 4
"""More alternatives than this are counted, not listed."""

_SCHEDULES = ("1F1B", "GPipe")
_UNITS = {CUTS: "layer", NUMBERS: "bit", MICRO: "samples"}


def part_players(hybrids: Hybrids, domains: Sequence[str]) -> list[Player]:
    """Players of a plan's parts: what each is, and what it is in the plans that it is compared with."""
    last = (1 << len(hybrids.blocks)) - 1
    own, others = _plan(hybrids.plans, last), hybrids.others()
    listed = []
    for name, block in zip(hybrids.names, hybrids.blocks, strict=True):
        numbers = [_number(block, *_plan(others, draw)) for draw in range(hybrids.draws)]
        usual = _together([_usual(part, others, domains) for part in block])
        value = _together([part_words(part, *own, domains) for part in block])
        unit = _UNITS.get(block[0], "") if len(block) == 1 else ""
        listed.append(Player(name, "part", value, usual, _number(block, *own), float(np.mean(numbers)), unit))
    return listed


def part_words(part: str, rows: IntArray, schedule: int, domains: Sequence[str]) -> str:
    """A part of one plan ``(P, 11)``: replicas are set apart by +, segments by →; what is the same is said once."""
    if part == SCHEDULE:
        return _SCHEDULES[schedule]
    if part == MICRO:
        return Phrase("part.microbatch", sizes=_sizes(rows))
    if part == CUTS:
        return _once([_cut(replica) for replica in _replicas(rows)], "list.replicas")
    said = [[_segment(part, row, domains) for row in replica] for replica in _replicas(rows)]
    if len({text for chain in said for text in chain}) == 1:
        return said[0][0]
    return Phrase("list.replicas", parts=tuple(_once(chain, "list.segments") for chain in said))


def _segment(part: str, row: IntArray, domains: Sequence[str]) -> str:
    if part == LAYOUT:
        sides = [(name, row[at]) for name, at in (("dp", DP), ("tp", TP), ("pp", PP)) if row[at] > 1]
        return " · ".join(f"{name} {size}" for name, size in sides) or Phrase("part.one_device")
    if part == NUMBERS:
        return str(PRECISIONS[row[PRECISION]].value).upper()
    name = str(domains[row[DOMAIN]])
    return f"{name} {row[FIRST] + 1}–{row[STOP]}" if part == STRUCTURE else name


def _plan(batch: PlanBatch, at: int) -> tuple[IntArray, int]:
    return batch.segments[at, : batch.counts[at]], int(batch.schedules[at])


def _replicas(rows: IntArray) -> list[IntArray]:
    return [rows[rows[:, REPLICA] == r] for r in range(int(rows[-1, REPLICA]) + 1)]


def _once(texts: list[str], listed: str) -> str:
    return texts[0] if len(set(texts)) == 1 else Phrase(listed, parts=tuple(texts))


def _together(texts: list[str]) -> str:
    return texts[0] if len(texts) == 1 else Phrase("list.together", parts=tuple(texts))


def _sizes(rows: IntArray) -> tuple[str, ...]:
    """Microbatches of the replicas; once if they are the same."""
    sizes = tuple(str(replica[0, MICROBATCH]) for replica in _replicas(rows))
    return sizes[:1] if len(set(sizes)) == 1 else sizes


def _cut(replica: IntArray) -> str:
    cuts = [int(stop) for stop in replica[:-1, STOP]]
    if not cuts:
        return Phrase("part.whole")
    return Phrase("part.cut", layer=cuts[0]) if len(cuts) == 1 else Phrase("part.cuts", layers=tuple(cuts))


def _usual(part: str, others: PlanBatch, domains: Sequence[str]) -> str:
    """What a part is in the others: listed if few, a range if they are places of one cut, else counted."""
    said = list(dict.fromkeys(part_words(part, *_plan(others, at), domains) for at in range(len(others))))
    layers = [text.values["layer"] for text in said if isinstance(text, Phrase) and text.message == "part.cut"]
    if len(said) > SPELT_OUT and len(layers) == len(said):
        return Phrase("part.cut_between", first=min(layers), last=max(layers))
    if len(said) > SPELT_OUT:
        return Phrase("part.one_of", count=len(said))
    if part == MICRO:
        sizes = {" + ".join(_sizes(_plan(others, at)[0])) for at in range(len(others))}
        return Phrase("part.microbatches", sizes=tuple(sorted(sizes, key=lambda text: (len(text), text))))
    return said[0] if len(said) == 1 else Phrase("list.alternatives", parts=tuple(said))


def _number(block: Block, rows: IntArray, schedule: int) -> float:
    """The number to draw a part by; NaN if it has none."""
    if block == (CUTS,):
        return float(rows[0, STOP])
    if block == (NUMBERS,):
        return float(np.mean([8 * PRECISIONS[at].element_bytes for at in rows[:, PRECISION]]))
    return float(rows[:, MICROBATCH].mean()) if block == (MICRO,) else float("nan")


# ------ What else each part of a plan could have been, on the same devices of the same domains
#
# Every draw is another plan whose mixtures with the plan itself can *all* run: draws of which one mixture is
# malformed or overflows memory are rejected, so no coalition ever has to be given a made-up value. A draw changes as
# many parts at once as can be changed together.


MENU: tuple[str, ...] = (CUTS, LAYOUT, NUMBERS, MICRO)
"""Parts that the menu varies, in the order of the players."""

MOST_OPTIONS = 1024
"""Of a part with more alternatives than this, so many are drawn."""

TRIED = 1024
"""Combinations of alternatives that are tried; all of them if there are no more."""


def from_menu(view: Decision, plan: Plan, seed: int = 0) -> Hybrids:
    """Mixtures of a plan with what its parts could have been.

    Alternatives are, one format and one microbatch for all segments: other cut points, other layouts of as many
    devices, other formats that all GPUs in use have (never INT8 for training), other microbatches of the kind. A part
    without an alternative that can run is left out.

    Args:
        view: The decision.
        plan: The plan.
        seed: Of the drawing, where there are too many alternatives to list.

    Raises:
        PlanError: If the plan is malformed or does not fit memory.
        ExplanationError: If no part has an alternative.
    """
    view.cost.check(plan, view.kind_index)
    own, rng = rows_of(plan), np.random.default_rng([seed, TRIED])
    options: dict[str, IntArray] = {}
    complete = True
    for part in MENU:
        listed, all_of_them = _options(view, own, part, rng)
        able = _able(view, plan, _with(own, {part: listed}), (part,))
        complete &= all_of_them
        if able.any():
            options[part] = listed[able]
    if not options:
        rule = "there is no other way to run it that fits on these devices"
        raise ExplanationError(problem("plan", "the plan", rule, "Name a plan to compare with: against=plan"))
    found: list[IntArray] = []
    kept: list[set[str]] = []
    for size in range(len(options), 0, -1):
        for pattern in combinations(options, size):
            if any(set(pattern) <= larger for larger in kept):
                continue
            tried, all_of_them = _combined([len(options[part]) for part in pattern], rng)
            others = _with(own, {part: options[part][tried[:, p]] for p, part in enumerate(pattern)})
            others = others[_able(view, plan, others, pattern)]
            complete &= all_of_them
            if len(others):
                kept.append(set(pattern))
                found.append(others)
    parts = tuple(options)
    rows = mixed(own, np.concatenate(found), parts)
    draws = len(rows)
    plans = plans_of(view, rows.reshape(-1, *own.shape), np.full(rows.shape[0] * rows.shape[1], int(plan.schedule)))
    return Hybrids(tuple((part,) for part in parts), plans, draws, complete)


def _able(view: Decision, plan: Plan, others: IntArray, parts: Sequence[str]) -> NDArray[np.bool_]:
    """Others all of whose mixtures with the plan can run, shape ``(D,)``."""
    rows = mixed(rows_of(plan), others, parts)
    d, codes = rows.shape[:2]
    flat = rows.reshape(d * codes, *rows.shape[2:])
    can = runnable(view, plans_of(view, flat, np.full(len(flat), int(plan.schedule))))
    return np.asarray(can.reshape(d, codes).all(axis=1))


def _with(own: IntArray, changes: dict[str, IntArray]) -> IntArray:
    """The plan ``(P, 11)`` with some parts replaced, ``(D, P, columns)`` each, shape ``(D, P, 11)``."""
    rows = np.repeat(own[None], len(next(iter(changes.values()))), axis=0)
    for part, values in changes.items():
        rows[:, :, COLUMNS[part]] = values
    return rows


def _options(view: Decision, own: IntArray, part: str, rng: np.random.Generator) -> tuple[IntArray, bool]:
    """Alternatives of one part ``(D, P, columns)``, and whether they are all."""
    if part == CUTS:
        listed, complete = _cuts(own, len(view.kind.model), rng)
    elif part == LAYOUT:
        listed, complete = _layouts(view, own, rng)
    else:
        values = view.kind.microbatches if part == MICRO else formats_of_all(view.cost, view.kind_index, own[:, DOMAIN])
        listed, complete = np.array([np.full((len(own), 1), value) for value in dict.fromkeys(values)]), True
    listed = listed.reshape(-1, len(own), len(COLUMNS[part]))
    return listed[(listed != own[:, COLUMNS[part]]).any(axis=(1, 2))], complete


def _layouts(view: Decision, own: IntArray, rng: np.random.Generator) -> tuple[IntArray, bool]:
    cluster = view.cost.cluster
    table = layout_table(cluster, sharing=False)[:, :3]
    lists = []
    for row in own:
        same = table.prod(axis=1) == row[DP] * row[TP] * row[PP]
        near = table[:, 1] <= max(cluster.domains[row[DOMAIN]].node_devices, row[TP])
        lists.append(table[same & near])
    at, complete = _combined([len(some) for some in lists], rng)
    return np.stack([some[at[:, p]] for p, some in enumerate(lists)], axis=1), complete


def _cuts(own: IntArray, n_layers: int, rng: np.random.Generator) -> tuple[IntArray, bool]:
    """First and last layers ``(D, P, 2)``: every replica cut anywhere, all cuts equally likely."""
    listed = [every_cut(n_layers, int(count), MOST_OPTIONS, rng) for count in np.bincount(own[:, REPLICA])]
    at, all_of_them = _combined([len(spans) for spans, _ in listed], rng)
    rows = np.concatenate([spans[at[:, r]] for r, (spans, _) in enumerate(listed)], axis=1)
    return rows, all(complete for _, complete in listed) and all_of_them


def _combined(counts: Sequence[int], rng: np.random.Generator) -> tuple[IntArray, bool]:
    """Indices of combinations ``(D, lists)``: all, or a sample without repetition; and whether they are all."""
    if prod(counts) <= TRIED:
        return np.array(list(product(*(range(count) for count in counts))), dtype=np.int64), True
    drawn = rng.integers(0, counts, size=(2 * TRIED, len(counts)))
    _, first = np.unique(drawn, axis=0, return_index=True)
    return drawn[np.sort(first)[:TRIED]], False


# ------ Explain a plan by its own parts: cut points, layout, precision and microbatch, beside the links it crosses


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
            **{
                **estimated(found),
                "rows": found.evaluations * game.repeats,
                "background": found.background if crossed or not game.contrast else 0,
            },
            weights=tuple(float(w) for w in game.weights),  # type: ignore[arg-type]
            against=describe_plan(game.hybrids.others().plan(0), domains) if game.contrast else "",
            background_name=like,
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
