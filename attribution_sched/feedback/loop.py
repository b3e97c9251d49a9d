"""The loop back: a window of explained decisions in, a bounded, reasoned and revocable change of the reward out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import numpy as np

from attribution_sched.cluster.world import Reward
from attribution_sched.errors import SettingsError, problem
from attribution_sched.explain.explanation import COMPONENTS
from attribution_sched.feedback import words
from attribution_sched.feedback.ascent import WEIGHTS, Miss, Tilt, ascend, pursued, toward
from attribution_sched.feedback.drivers import Coupling, DriverEvidence, coupling, damped, evidence
from attribution_sched.feedback.foresight import Foreseen, Revisit, credited, foresee
from attribution_sched.feedback.rollback import (
    IDENTITY,
    Anchor,
    FeedbackState,
    HeldOut,
    Row,
    Undoable,
    Verdict,
    judge,
    read,
)
from attribution_sched.feedback.targets import KINDS, FeedbackSettings, Targets
from attribution_sched.feedback.window import Window
from attribution_sched.feedback.words import Words
from attribution_sched.types import FloatArray

Kind = Literal["changed", "rolled back", "still"]

WEIGHTS_CHANGED = "reward weights"
PRICE_CHANGED = "reward.energy_usd_per_kwh"
CARBON_CHANGED = "reward.carbon_usd_per_kg"


@dataclass(frozen=True)
class Change:
    """One thing that was changed, or taken back.

    Attributes:
        number: Number of changes before it.
        changed: What: ``reward weights``, ``reward.energy_usd_per_kwh``, ``reward.carbon_usd_per_kg`` or
            ``damping of <driver> in <component>``.
        before: Its value before; plain numbers and names.
        after: Its value since.
        reason: Why, in English.
        reason_zh: The same in Chinese.
        undoes: Number of the change that this one takes back.
    """

    number: int
    changed: str
    before: Any
    after: Any
    reason: str
    reason_zh: str
    undoes: int | None = None

    def to_record(self) -> dict[str, Any]:
        """What a journal keeps of it: changed, before, after, both reasons, undoes."""
        return {name: value for name, value in asdict(self).items() if name != "number"}


@dataclass(frozen=True, eq=False)
class FeedbackChange:
    """One step of feedback.

    Attributes:
        step: Number of steps before it.
        kind: Whether something was changed, something was rolled back, or everything stayed.
        changes: Every change, in order.
        reward: The reward from now on.
        reason: What was done and why, in English.
        reason_zh: The same in Chinese.
        evidence: The numbers behind it, ready for JSON: measurements and violations of the targets, multipliers,
            coupling.
        drivers: What outcomes say of the certain drivers.
        verdict: Held-out returns against the last good state; None if there was nothing to compare.
        anchored: Whether this is now the last good state. A learner keeps a copy of itself here and goes back to it
            when ``kind`` is ``rolled back``: taking back a reward does not take back what was learnt from it.
    """

    step: int
    kind: Kind
    changes: tuple[Change, ...]
    reward: Reward
    reason: str
    reason_zh: str
    evidence: Mapping[str, Any] = field(default_factory=dict)
    drivers: tuple[DriverEvidence, ...] = ()
    verdict: Verdict | None = None
    anchored: bool = False

    def records(self) -> list[dict[str, Any]]:
        """What a journal keeps, one record per change, in order."""
        return [change.to_record() for change in self.changes]


ENERGY, BILL, CARBON = "energy_j_per_unit_at_most", "bill_usd_per_day_at_most", "carbon_kg_per_day_at_most"
SMOOTHING = 0.5
"""Weight of the newest window in the coupling."""

ADVOCATE = 0.3
"""A driver with this part of a coupling that counted answers for the change it argued for."""

COUNTED = 0.1
"""A coupling below this changes next to nothing and is not spoken of."""

LONGEST_COOLDOWN = 64
LEAST_CAUTION = 0.125


@dataclass
class _Step:
    """What is gathered during one step."""

    state: FeedbackState
    changes: list[Change]
    words: list[Words]
    rolled_back: bool = False
    anchored: bool = False

    def add(self, changed: str, before: Any, after: Any, why: Words, undoes: int | None = None) -> int:
        number = self.state.number
        self.changes.append(Change(number, changed, before, after, why[0], why[1], undoes))
        # One rollback may take back many changes, all for the same reason: that is said once.
        if undoes is None:
            self.words.append(why)
        self.state = replace(self.state, number=number + 1)
        return number


class Feedback:
    """Turns explanations and outcomes into reward weights, step by step.

    The user's reward is where it starts from, what it returns to when targets are exceeded, and never forgotten.
    Randomness has no part in it: the same windows give the same changes.

    Args:
        reward: The user's own.
        settings: Bounds, rates and levels.
        state: Where an earlier run stopped.
    """

    def __init__(
        self, reward: Reward, settings: FeedbackSettings | None = None, state: FeedbackState | None = None
    ) -> None:
        self.user_reward = reward
        self.settings = settings or FeedbackSettings()
        tilt = Tilt.of(reward, [], self.settings)
        self.state = state or FeedbackState(shares=_row(tilt.start))
        self._total, self._user = tilt.total, tilt.start

    @property
    def reward(self) -> Reward:
        """The reward in force."""
        w_eff, w_util, w_cost = self._weights(self.state.shares).values()
        price = self.user_reward.energy_usd_per_kwh * math.exp(self.state.price_log)
        carbon = self.user_reward.carbon_usd_per_kg * math.exp(self.state.carbon_log)
        return replace(
            self.user_reward, w_eff=w_eff, w_util=w_util, w_cost=w_cost, energy_usd_per_kwh=price,
            carbon_usd_per_kg=carbon,
        )  # fmt: skip

    def trust(self, player: str, component: str) -> float:
        """Multiplier of a driver's shares of a component, 1 unless outcomes contradicted it."""
        return float(self.state.damping.get(component, {}).get(player, 1.0))

    def step(
        self, window: Window, targets: Targets, held_out: HeldOut | None = None, revisit: Revisit | None = None
    ) -> FeedbackChange:
        """Read a window, judge earlier changes, and make the next one if there is reason to.

        Args:
            window: Decisions since the last step, with their outcomes and, where there are any, explanations.
            targets: What is to be reached.
            held_out: Returns of held-out episodes under the user's objective
                (:class:`~attribution_sched.feedback.rollback.Objective`), the same episodes every time, or what plays
                them. None leaves changes unjudged: nothing is rolled back.
            revisit: Asks the explained decisions again with other weights, and so tells how far to turn them. None
                feels its way by outcomes.

        Raises:
            SettingsError: If energy or carbon is a target and has no price in the reward.
            ModelFitError: If the window does not tell what a target needs.
        """
        misses = self._misses(window, targets)
        returns = None if held_out is None else read(held_out)
        now = _Step(self.state, [], [])
        verdict = None if returns is None else self._judge(now, returns)
        drivers = evidence(window, self.settings)
        self._damp(now, drivers)
        coupled = coupling(window, now.state.damping, self.settings)
        self._credit(now, misses)
        if now.rolled_back or now.state.falls:
            pass
        elif now.state.cooldown > 0:
            left = now.state.cooldown - 1
            now.state = replace(now.state, cooldown=left)
            now.words.append(words.in_words("feedback.cooldown", left=left))
        elif len(window) < self.settings.fewest:
            too_few = words.in_words("feedback.too_few", count=len(window), fewest=self.settings.fewest)
            now.words.append(too_few)
        else:
            misses = self._move(now, misses, coupled, window, targets, revisit)
        return self._finish(now, misses, coupled, tuple(drivers), verdict)

    def to_dict(self) -> dict[str, Any]:
        """The state, ready for JSON."""
        return self.state.to_dict()

    @classmethod
    def from_dict(cls, reward: Reward, state: Mapping[str, Any], settings: FeedbackSettings | None = None) -> Feedback:
        """Go on where :meth:`to_dict` was called, with the same user's reward."""
        return cls(reward, settings, FeedbackState.from_dict(state))

    def _misses(self, window: Window, targets: Targets) -> list[Miss]:
        if targets.energy_j_per_unit_at_most is not None and not self.user_reward.energy_usd_per_kwh > 0:
            rule = f"must be > 0 where {ENERGY} is a target: energy is no part of R_cost without a price"
            fix = "Set the price, for example 0.12"
            raise SettingsError(problem("reward.energy_usd_per_kwh", self.user_reward.energy_usd_per_kwh, rule, fix))
        if targets.carbon_kg_per_day_at_most is not None and not self.user_reward.carbon_usd_per_kg > 0:
            rule = f"must be > 0 where {CARBON} is a target: carbon is no part of R_cost without a price"
            fix = "Set the price, for example 0.1"
            raise SettingsError(problem("reward.carbon_usd_per_kg", self.user_reward.carbon_usd_per_kg, rule, fix))
        listed = []
        for name, limit in targets.named().items():
            measured = window.measure(name)
            multiplier = self.state.multipliers.get(name, 0.0)
            listed.append(Miss(name, limit, measured, targets.violation(name, measured.value), multiplier, multiplier))
        return listed

    def _judge(self, now: _Step, returns: tuple[float, ...]) -> Verdict | None:
        """Hold held-out returns against the last good state; go back to it if they fell."""
        state = now.state
        here = Anchor(returns, state.shares, dict(state.multipliers), state.price_log, state.carbon_log)
        if state.anchor is None:
            self._anchor(now, here)
            return None
        verdict = judge(state.anchor.returns, returns, self.settings.tolerance, self.settings.level)
        falls = state.falls + 1 if verdict.fallen and state.pending else 0
        now.state = state = replace(state, falls=falls)
        if falls >= self.settings.looks:
            self._roll_back(now, verdict)
        elif falls:
            now.words.append(words.in_words("feedback.another_look", fall=words.fall(verdict)))
        elif state.pending:
            # A learner follows its reward late, so a return that merely holds proves a change only after a while.
            proven = verdict.risen or (verdict.change >= 0.0 and state.trial + 1 >= self.settings.probation)
            if proven:
                grown, failures = min(1.0, state.caution * 1.25), max(0, state.failures - 1)
                now.state = replace(state, pending=(), trial=0, caution=grown, failures=failures)
                self._anchor(now, here)
            else:
                now.state = replace(state, trial=state.trial + 1)
        elif verdict.change >= 0.0:
            self._anchor(now, here)
        elif verdict.fallen and state.cooldown == 0:
            # Nothing of ours is in force that could be taken back: the world changed, so measure from here.
            self._anchor(now, here)
            now.words.append(words.in_words("feedback.none_pending", fall=words.fall(verdict)))
        return verdict

    @staticmethod
    def _anchor(now: _Step, here: Anchor) -> None:
        now.state, now.anchored = replace(now.state, anchor=here), True

    def _roll_back(self, now: _Step, verdict: Verdict) -> None:
        state, anchor = now.state, now.state.anchor
        if anchor is None:
            return
        failures = state.failures + 1
        cooldown = min(self.settings.cooldown * 2 ** (failures - 1), LONGEST_COOLDOWN)
        for change in reversed(state.pending):
            why = words.rollback_reason(verdict, [change.number], change.changed, cooldown)
            now.add(change.changed, change.after, change.before, why, change.number)
        undone, what = [change.number for change in state.pending], dict.fromkeys(one.changed for one in state.pending)
        now.words.append(words.rollback_reason(verdict, undone, ", ".join(what), cooldown))
        damping = {component: dict(trust) for component, trust in state.damping.items()}
        for component, player in dict.fromkeys(pair for change in state.pending for pair in change.advocates):
            trust = damping.setdefault(component, {})
            old = trust.get(player, 1.0)
            trust[player] = self.settings.damping_floor
            if trust[player] < old:
                why = words.blame_reason(player, component, old, trust[player])
                now.add(f"damping of {player} in {component}", old, trust[player], why)
        now.rolled_back = True
        now.state = replace(
            now.state, shares=anchor.shares, multipliers=dict(anchor.multipliers), price_log=anchor.price_log,
            carbon_log=anchor.carbon_log, active=(), matrix=IDENTITY, damping=damping, pending=(), trial=0, falls=0,
            failures=failures, cooldown=cooldown, caution=max(LEAST_CAUTION, state.caution / 2),
        )  # fmt: skip

    def _damp(self, now: _Step, drivers: Sequence[DriverEvidence]) -> None:
        before = now.state.damping
        # A driver that answers for a rollback in this very step is not damped twice.
        blamed = {change.changed for change in now.changes}
        unblamed = [one for one in drivers if f"damping of {one.player} in {one.component}" not in blamed]
        after = damped(before, unblamed, self.settings)
        for one in unblamed:
            old, new = (each.get(one.component, {}).get(one.player, 1.0) for each in (before, after))
            if old != new:
                what = f"damping of {one.player} in {one.component}"
                now.add(what, old, new, words.damping_reason(one, old, new))
        now.state = replace(now.state, damping=after)

    def _credit(self, now: _Step, misses: list[Miss]) -> None:
        """Hold what explanations promised of the last turn against what came of it."""
        promised = now.state.promised
        if promised:
            before, expected = ({name: pair[i] for name, pair in promised.items()} for i in (0, 1))
            credit = credited(now.state.credit, before, expected, misses)
            now.state = replace(now.state, credit=credit, promised={})

    def _foresee(
        self, now: _Step, misses: list[Miss], active: Sequence[str], tilt: Tilt, targets: Targets, revisit: Revisit
    ) -> Foreseen | None:
        state = now.state

        def reward_of(shares: FloatArray) -> Reward:
            w_eff, w_util, w_cost = self._weights(_row(shares)).values()
            return replace(self.reward, w_eff=w_eff, w_util=w_util, w_cost=w_cost)

        return foresee(
            misses, active, state.multipliers, np.array(state.shares), tilt, targets, revisit, reward_of, self.settings,
            credit=state.credit, caution=state.caution,
        )  # fmt: skip

    def _move(
        self,
        now: _Step,
        misses: list[Miss],
        coupled: Coupling,
        window: Window,
        targets: Targets,
        revisit: Revisit | None,
    ) -> list[Miss]:
        """Move multipliers, weights and price toward the targets."""
        state, settings = now.state, self.settings
        served = [KINDS[miss.target].component for miss in misses if KINDS[miss.target].weight]
        tilt = Tilt.of(self.user_reward, served, settings)
        shares = np.array(state.shares)
        full = [name for name, share, high in zip(WEIGHTS, shares, tilt.high, strict=True) if share >= high - 1e-9]
        active = pursued(misses, state.active, settings)
        moved = ascend(misses, state.multipliers, active, full, settings, state.caution)
        foreseen = (
            self._foresee(now, misses, active, tilt, targets, revisit) if active and revisit is not None else None
        )
        if foreseen is not None:
            moved = [replace(m, after=foreseen.multipliers[m.target]) if m.target in active else m for m in moved]
        multipliers = {miss.target: miss.after for miss in moved if miss.after > 0.0}
        # What a price serves alone does not turn the weights: w_cost weighs traffic too.
        turning = {name: value for name, value in multipliers.items() if KINDS[name].weight}
        back = not turning and not np.allclose(shares, self._user, atol=1e-9)
        back = back or (state.carbon_log != 0.0 and CARBON not in multipliers)
        if not (active or back) and multipliers == dict(state.multipliers):
            now.state = replace(state, active=())
            return moved
        old = np.array(state.matrix)
        matrix = old + SMOOTHING * (coupled.matrix - old) if coupled.decisions else old
        # Without multipliers nothing pulls: the weights go back to exactly what the user gave.
        goal = tilt.shares(turning, matrix, settings.coupling) if turning else self._user
        after = toward(shares, goal, settings.weight_step * state.caution) if foreseen is None else foreseen.shares
        now.state = state = replace(
            state, active=active, multipliers=multipliers, matrix=(_row(matrix[0]), _row(matrix[1]), _row(matrix[2]))
        )
        if foreseen is not None:
            stood = {miss.target: miss.violation for miss in misses}
            promised = {name: (stood[name], left) for name, left in foreseen.violations.items()}
            now.state = state = replace(state, promised=promised)
        reasons = [miss for miss in moved if miss.target in active or miss.before != miss.after] or moved
        if np.abs(after - shares).max() > 1e-9:
            couplings, advocates = self._couplings(reasons, matrix, coupled) if foreseen is None else ([], ())
            if foreseen is not None:
                couplings = [words.foreseen(name, foreseen) for name in foreseen.values]
            had, have = self._weights(state.shares), self._weights(_row(after))
            why = words.weights_reason(reasons, had, have, couplings)
            number = now.add(WEIGHTS_CHANGED, had, have, why)
            undoable = Undoable(number, WEIGHTS_CHANGED, had, have, advocates)
            now.state = replace(now.state, shares=_row(after), pending=(*now.state.pending, undoable))
        self._price(now, reasons, multipliers, window)
        self._carbon(now, reasons, multipliers)
        return moved

    def _carbon(self, now: _Step, reasons: list[Miss], multipliers: Mapping[str, float]) -> None:
        """Move the price of carbon inside R_cost with its multiplier: dual ascent, one price for all grams."""
        settings, price, old = self.settings, self.user_reward.carbon_usd_per_kg, now.state.carbon_log
        goal = math.log(settings.carbon_range) * multipliers.get(CARBON, 0.0) / max(settings.multiplier_cap, 1e-9)
        most = settings.carbon_step * now.state.caution
        new = old + min(max(goal - old, -most), most)
        if new != old:
            had, have = price * math.exp(old), price * math.exp(new)
            why = words.carbon_reason([miss for miss in reasons if miss.target == CARBON], had, have)
            number = now.add(CARBON_CHANGED, had, have, why)
            undoable = Undoable(number, CARBON_CHANGED, had, have)
            now.state = replace(now.state, carbon_log=new, pending=(*now.state.pending, undoable))

    def _price(self, now: _Step, reasons: list[Miss], multipliers: Mapping[str, float], window: Window) -> None:
        """Shift R_cost between energy and traffic where it holds both and energy is a target."""
        price = self.user_reward.energy_usd_per_kwh
        traffic = sum(outcome.bill_usd or 0.0 for outcome in window.outcomes)
        if not (traffic > 0.0 and price > 0.0 and (ENERGY in multipliers or now.state.price_log != 0.0)):
            return
        reach = math.log(self.settings.price_range)
        goal = min(max(multipliers.get(ENERGY, 0.0) - multipliers.get(BILL, 0.0), -reach), reach)
        most = self.settings.price_step * now.state.caution
        old = now.state.price_log
        new = old + min(max(goal - old, -most), most)
        if new != old:
            had, have = price * math.exp(old), price * math.exp(new)
            number = now.add(PRICE_CHANGED, had, have, words.price_reason(reasons, had, have))
            undoable = Undoable(number, PRICE_CHANGED, had, have)
            now.state = replace(now.state, price_log=new, pending=(*now.state.pending, undoable))

    def _couplings(
        self, reasons: list[Miss], matrix: FloatArray, coupled: Coupling
    ) -> tuple[list[Words], tuple[tuple[str, str], ...]]:
        """Couplings that counted, in words, and the drivers that answer for them."""
        couplings: dict[tuple[str, str], Words] = {}
        answering: dict[tuple[str, str], None] = {}
        for component in dict.fromkeys(KINDS[miss.target].component for miss in reasons if miss.after > 0.0):
            for other in COMPONENTS:
                strength = self.settings.coupling * float(matrix[COMPONENTS.index(component), COMPONENTS.index(other)])
                if (component, other) not in coupled.advocates or abs(strength) < COUNTED:
                    continue
                driver, part = coupled.advocates[component, other]
                couplings[component, other] = words.coupling_words(component, other, strength, driver, part)
                if part >= ADVOCATE:
                    answering[component, driver] = None
                    answering[other, driver] = None
        return list(couplings.values()), tuple(answering)

    def _finish(
        self,
        now: _Step,
        misses: list[Miss],
        coupled: Coupling,
        drivers: tuple[DriverEvidence, ...],
        verdict: Verdict | None,
    ) -> FeedbackChange:
        if not now.changes:
            now.words += [words.in_words("feedback.sentence", words=words.standing(miss)) for miss in misses]
            now.words.append(words.in_words("feedback.nothing"))
        english, chinese = words.joined(now.words)
        kind: Kind = "rolled back" if now.rolled_back else "changed" if now.changes else "still"
        numbers = {
            "targets": {
                miss.target: {
                    "asked": miss.limit, "measured": miss.measured.value, "violation": miss.violation,
                    "standard_error": _plain(miss.measured.standard_error), "decisions": miss.measured.count,
                    "multiplier": miss.after,
                }
                for miss in misses
            },
            "coupling": [list(row) for row in now.state.matrix],
            "explained_decisions": coupled.decisions,
            "credit": now.state.credit,
            "promised": {name: pair[1] for name, pair in now.state.promised.items()},
            "weights": self._weights(now.state.shares),
        }  # fmt: skip
        number, self.state = self.state.steps, replace(now.state, steps=now.state.steps + 1)
        return FeedbackChange(
            number, kind, tuple(now.changes), self.reward, english, chinese, numbers, drivers, verdict, now.anchored
        )

    def _weights(self, shares: Row) -> dict[str, float]:
        return {name: self._total * share for name, share in zip(WEIGHTS, shares, strict=True)}


def _row(values: FloatArray) -> Row:
    one, two, three = (float(value) for value in values)
    return one, two, three


def _plain(value: float) -> float | None:
    return value if math.isfinite(value) else None
