"""Why this and nothing else: the decision of a policy, contrasted with what it did instead in earlier situations.

The *fact* is what was decided. The *foil* is what the policy does instead, with the same task and with room for the
same plan, in situations that it met before; those in which one input alone is enough come first: they are nearest to
the decision. These situations are the reference group. Two questions are asked of every coalition of inputs, the
decision's own where present and a reference state's where absent:

- *preference*, ``log_odds``: by how much the policy prefers what it did to the best other choice there, among plans
  that fit. Where a coalition leaves the plan too few devices it is given just enough, so that no driver of this output
  is a lack of room in disguise. A policy that tells no odds is asked again, ``choice``: 1 if it does the same, else 0.
  Where thinking overruled the agents, ``log π' = logit + β·q̂``: the first part is shared out over the inputs, the
  second is what the player ``thinking`` added.
- *feasibility*, ``fits``: whether the plan fits at all with the devices of the coalition. For a task that waits,
  ``nothing_fits``: whether no plan does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from attribution_sched.cluster.decision import Decision, Decisions
from attribution_sched.cluster.plan import Plan
from attribution_sched.explain.masked_states import Blender, to_view
from attribution_sched.explain.players import Lineup
from attribution_sched.explain.targets import proposals
from attribution_sched.scheduler.policy import ChoiceOdds, Overruled, Policy, Preferred, Redecider
from attribution_sched.types import BoolArray, FloatArray, IntArray

POOL = 64
"""Earlier situations that are looked at for a foil."""

FOILS = 16
"""Of these, at most so many in which it chooses otherwise are tried input by input."""

GROUP, LEAST = 8, 4
"""Situations of a reference group at most, and at least if so many are known."""

KEPT = 8
"""Inputs that are players of their own; the others, which hardly move anything, are one player together."""

TRIFLE = 0.01
"""An input is kept if it moves the output at least so far, as a part of the farthest one."""

REASKED_POOL, REASKED_FOILS, REASKED_KEPT = 16, 4, 4
"""The same for a policy that has to be asked again."""

ROWS, REASKED_ROWS = 1000, 140
"""Situations in which the policy is then asked for the shares, unless a budget is given."""

Where = tuple[tuple[int, int, int, int], ...] | None
"""Domains, layers and numbers of devices of a choice; None if nothing is done."""

Score = Callable[[Decisions], FloatArray]
"""Above 0 exactly where the policy makes the choice, shape ``(n,)``."""


def where(plan: Plan | None) -> Where:
    """What two plans share if they are the same choice; details that a search settles are no part of it."""
    return None if plan is None else tuple((s.domain, s.first, s.stop, s.device_count) for s in plan.segments)


def devices_needed(plan: Plan | None, domains: int) -> IntArray:
    """Devices per domain that a plan takes, shape ``(K,)``."""
    need = np.zeros(domains, dtype=np.int64)
    for segment in () if plan is None else plan.segments:
        need[segment.domain] += segment.device_count
    return need


def redecided(policy: Policy, view: Decision, situations: Decisions) -> Sequence[Plan | None]:
    """What the policy as it is deployed decides in each situation, with whatever searches come after its network."""
    if isinstance(policy, Redecider):
        return policy.redecide([to_view(view, situations, row) for row in range(len(situations))], situations)
    return proposals(policy, view, situations)


class AskedAgain:
    """A policy, as it is deployed, asked what it decides in situations of a decision; of equal ones only once.

    Most coalitions leave what it reads as it was, and the states that are tried input by input come up again as a
    reference group: a policy that searches is asked about half of them.

    Args:
        policy: Who decides.
        view: The decision.
    """

    def __init__(self, policy: Policy, view: Decision) -> None:
        self.policy, self.view = policy, view
        self._known: dict[bytes, Plan | None] = {}

    def __call__(self, situations: Decisions) -> list[Plan | None]:
        """What is decided in each."""
        keys = _rows_in_bytes(situations)
        new = {key: row for row, key in reversed(list(enumerate(keys))) if key not in self._known}
        if new:
            rows = sorted(new.values())
            made = redecided(self.policy, self.view, situations.take(np.array(rows)))
            self._known |= {keys[row]: plan for row, plan in zip(rows, made, strict=True)}
        return [self._known[key] for key in keys]

    def score(self, plan: Plan | None) -> Score:
        """Whether the same choice is made: 1, or −1."""
        own = where(plan)
        return lambda situations: np.array([1.0 if where(one) == own else -1.0 for one in self(situations)])


def _rows_in_bytes(situations: Decisions) -> list[bytes]:
    """Each situation, all of it."""
    parts = [np.ascontiguousarray(getattr(situations, field.name)) for field in fields(Decisions)]
    flat = [part.reshape(len(situations), -1).view(np.uint8) for part in parts if part.size]
    return [row.tobytes() for row in np.concatenate(flat, axis=1)]


@dataclass(frozen=True, eq=False)
class Preference:
    """The two questions, as a target of a game.

    Attributes:
        view: The decision.
        plan: What was decided.
        score: Tells whether it is decided in a situation, and by how much.
        fits_at_all: Whether any plan for the task fits in a situation ``(n,)``; asked only of tasks that wait.
        odds: Whether the score is log-odds; else its sign is all that is known.
        overruled: What thinking came to, where it overruled the agents whose odds these are.
        asked: Who is asked again, where there are no odds.
    """

    view: Decision
    plan: Plan | None
    score: Score
    fits_at_all: Callable[[Decisions], BoolArray]
    odds: bool
    overruled: Overruled | None = None
    asked: AskedAgain | None = None

    @property
    def outputs(self) -> tuple[str, ...]:
        """What is told of the choice, and of its room."""
        first = "log_odds" if self.odds else "choice"
        if self.plan is None:
            return (first,) if self.view.replanning else (first, "nothing_fits")
        return first, "fits"

    def movable(self, cast: Lineup, differing: BoolArray) -> BoolArray:
        """All that differ."""
        return differing

    def rooms(self, cast: Lineup) -> list[int]:
        """Players whose free devices the plan takes."""
        if self.plan is None or self.view.replanning:
            return []
        names = [domain.name for domain in self.view.cost.cluster.domains]
        wanted = [f"load {names[domain]}" for domain in dict.fromkeys(self.plan.domains)]
        return [cast.names.index(name) for name in wanted if name in cast.names]

    def __call__(self, situations: Decisions, coalitions: BoolArray, background: IntArray) -> FloatArray:
        """Outputs ``(n, C)``."""
        roomy, fits = self.roomy(situations)
        said = self.score(roomy)
        first = said if self.odds else (said > 0.0).astype(np.float64)
        if len(self.outputs) == 1:
            return first[:, None]
        if self.plan is None:
            fits = ~self.fits_at_all(situations)
        return np.column_stack([first, fits.astype(np.float64)])

    def roomy(self, situations: Decisions) -> tuple[Decisions, BoolArray]:
        """The situations with at least as many free devices as the plan takes, and where there were so many anyway."""
        need = devices_needed(self.plan, situations.free.shape[1])
        fits = np.asarray((situations.free >= need).all(axis=1))
        if fits.all():
            return situations, fits
        whole = Decisions(**{field.name: getattr(situations, field.name) for field in fields(Decisions)})
        return replace(whole, free=np.maximum(whole.free, need)), fits


def odds_of(policy: ChoiceOdds, view: Decision, plan: Plan | None) -> Score:
    """By how much a policy prefers a choice."""
    return lambda situations: policy.log_odds(view, situations, plan)


@dataclass(frozen=True, eq=False)
class Foil:
    """What the policy does instead, and where it did.

    Attributes:
        states: The reference group: rows of the background.
        plan: What is done there instead, most often; None waits, stays, or lets another go first.
        another: Whether another waiting task goes first there.
        looked_at: Earlier situations that were looked at.
        otherwise: Of these, those in which it chooses otherwise though the plan would fit.
        alone: Whether one input alone is enough in the states of the group.
        kept: Players that move the output by themselves, the farthest first.
        rows: Situations that were evaluated to find all this.
    """

    states: IntArray
    plan: Plan | None
    another: bool
    looked_at: int
    otherwise: int
    alone: bool
    kept: IntArray
    rows: int


def find_foil(policy: Policy, target: Preference, blend: Blender, seats: IntArray, cast: Lineup) -> Foil:
    """Find the reference group of a decision, and the inputs that matter there.

    Args:
        policy: Who decided.
        target: The decision as a target.
        blend: Puts situations together from all of the background.
        seats: Players that can make a difference.
        cast: All players.
    """
    n_players = len(cast.names)
    count = len(blend.background)
    most, tried, players = (POOL, FOILS, KEPT) if target.odds else (REASKED_POOL, REASKED_FOILS, REASKED_KEPT)
    pool = _evenly(np.arange(count), most)
    rows = 0

    def score(coalitions: BoolArray, states: IntArray) -> FloatArray:
        nonlocal rows
        rows += len(states)
        return target.score(target.roomy(blend(coalitions, states, np.zeros(len(states), dtype=np.int64)))[0])

    everybody = np.ones(n_players, dtype=np.bool_)
    nobody = everybody.copy()
    nobody[seats] = False
    own = float(score(everybody[None], pool[:1])[0])
    bare = score(np.repeat(nobody[None], len(pool), axis=0), pool)
    otherwise = np.flatnonzero(bare <= 0.0)

    def choices(at: IntArray) -> list[tuple[object, Preferred]]:
        rows = blend(np.repeat(nobody[None], len(at), axis=0), pool[at], 0 * pool[at])
        return _made(policy, target, target.roomy(rows)[0])

    chosen: dict[int, tuple[object, Preferred]] = {}
    if len(otherwise):
        # Odds below 0 are no other choice where the task must act all the same: such states contrast with nothing.
        chosen = dict(zip(otherwise.tolist(), choices(otherwise), strict=True))
        otherwise = otherwise[[one.another or where(one.plan) != where(target.plan) for _, one in chosen.values()]]
    kept = _evenly(otherwise if len(otherwise) else np.arange(len(pool)), tried)
    states, made = pool[kept], [chosen[i] for i in kept.tolist()] if len(otherwise) else choices(kept)
    # One input after the other is given up to each of these states.
    without = np.repeat(everybody[None], len(seats), axis=0)
    without[np.arange(len(seats)), seats] = False
    alone = score(np.repeat(without, len(states), axis=0), np.tile(states, len(seats))).reshape(len(seats), len(states))
    near = np.flatnonzero((alone <= 0.0).any(axis=0))
    among = near if len(near) else np.arange(len(states))
    commonest = Counter(made[i][0] for i in among).most_common(1)[0][0]
    group = [int(i) for i in among if made[i][0] == commonest][:GROUP]
    first = made[group[0]][1]
    # A group of very few says little; the next nearest join it.
    joining = [int(i) for i in (*among, *range(len(states)))]
    group = list(dict.fromkeys([*group, *joining]))[: max(len(group), LEAST)]
    moved = np.abs(own - alone[:, group])
    if target.odds:
        # And one input after the other is the decision's own, all else being those states'.
        only = np.repeat(nobody[None], len(seats), axis=0)
        only[np.arange(len(seats)), seats] = True
        given = score(np.repeat(only, len(group), axis=0), np.tile(states[group], len(seats)))
        moved = np.maximum(moved, np.abs(given.reshape(len(seats), -1) - bare[kept][group]))
    effect = moved.mean(axis=1)
    order = np.argsort(-effect, kind="stable")
    matter = seats[order[effect[order] > TRIFLE * effect.max()][:players]]
    # Whose devices the plan takes can leave it no room: players of their own, however little they move the preference.
    rooms = [p for p in target.rooms(cast) if p in seats and p not in matter]
    matter = np.concatenate([matter[: players - min(len(rooms), players // 2)], rooms[: players // 2]]).astype(np.int64)
    return Foil(
        states[group], first.plan, first.another, len(pool), len(otherwise), bool(len(near)), matter, rows
    )  # fmt: skip


def _evenly(values: IntArray, most: int) -> IntArray:
    """So many of them at most, evenly over all."""
    return values[np.unique(np.linspace(0, len(values) - 1, min(most, len(values))).astype(np.int64))]


def _made(policy: Policy, target: Preference, situations: Decisions) -> list[tuple[object, Preferred]]:
    """What is done in situations: what tells it from other choices, and the choice."""
    if target.odds and isinstance(policy, ChoiceOdds):
        made = policy.prefer(target.view, situations)
    else:
        asked = target.asked or AskedAgain(policy, target.view)
        made = [Preferred(plan) for plan in asked(situations)]
    return [((one.another, _domains(one.plan)), one) for one in made]


def _domains(plan: Plan | None) -> tuple[int, ...] | None:
    return None if plan is None else tuple(sorted(set(plan.domains)))
