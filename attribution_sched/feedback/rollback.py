"""What a change is judged by and what it goes back to: the user's objective, held-out returns, the state in between.

The objective is the reward as first given, less what missed targets cost; feedback never changes it. Held-out episodes
are paired, with a tolerance and a confidence level. The state is frozen, plain, and the same after a trip through JSON.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from attribution_sched.cluster.reward import total_of
from attribution_sched.cluster.world import Reward
from attribution_sched.errors import CheckpointError, ModelFitError, SettingsError, problem
from attribution_sched.feedback.ascent import WEIGHTS
from attribution_sched.feedback.targets import Targets
from attribution_sched.feedback.window import Window
from attribution_sched.stats.interval import quantile


@dataclass(frozen=True)
class Objective:
    """``U = w_eff·R_eff + w_util·R_util − w_cost·R_cost − penalty · Σ_t max(0, violation_t)``.

    Attributes:
        reward: The user's own weights.
        targets: What is to be reached.
        penalty: Price of missing a target by all of its size.
    """

    reward: Reward
    targets: Targets
    penalty: float = 1.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.penalty) and self.penalty >= 0):
            raise SettingsError(problem("penalty", self.penalty, "must be finite and >= 0", "Use 1"))

    def score(self, window: Window) -> float:
        """Worth of the decisions of a window, such as one held-out episode."""
        worth = float(total_of(window.terms(), [getattr(self.reward, name) for name in WEIGHTS]).mean())
        missed = [max(0.0, self.targets.violation(name, window.measure(name).value)) for name in self.targets.named()]
        return worth - self.penalty * sum(missed)


Returns = Sequence[float] | float
"""Return of each held-out episode under the user's objective, the same episodes in the same order every time; or
one number, which has no error bar."""

HeldOut = Callable[[], Returns] | Returns
"""Returns, or what plays the episodes."""


@dataclass(frozen=True)
class Verdict:
    """Held-out returns now against those of an earlier moment.

    Attributes:
        before: Mean then.
        now: Mean now.
        change: Mean of the paired differences.
        high: Upper confidence limit of the change, one-sided; NaN for a single number.
        allowed: Fall that is put up with.
        episodes: How many.
        level: Confidence of the limit.
        fallen: Whether it fell by more than allowed, and not by chance.
        risen: Whether it rose, and not by chance; a single number must rise by more than may fall.
    """

    before: float
    now: float
    change: float
    high: float
    allowed: float
    episodes: int
    level: float
    fallen: bool
    risen: bool


def read(held_out: HeldOut) -> tuple[float, ...]:
    """Returns of the episodes; plays them if asked to.

    Raises:
        ModelFitError: If there is none or one is not finite.
    """
    returns = held_out() if callable(held_out) else held_out
    values = tuple(float(value) for value in np.atleast_1d(np.asarray(returns, dtype=np.float64)).ravel())
    if not values:
        raise ModelFitError(problem("held_out", (), "there must be at least one return", "Play some episodes"))
    for i, value in enumerate(values):
        if not math.isfinite(value):
            fix = "Leave out episodes that did not end"
            raise ModelFitError(problem(f"held_out[{i}]", value, "must be finite", fix))
    return values


def judge(before: tuple[float, ...], now: tuple[float, ...], tolerance: float, level: float) -> Verdict:
    """Compare the same episodes at two moments.

    Fallen means that the mean fell by more than the tolerance and that, at the given level, it fell at all.

    Args:
        before: Returns then.
        now: Returns now.
        tolerance: Fall that is put up with, as a part of the typical size (root mean square) of a return then.
        level: Confidence, one-sided.
    """
    if len(before) != len(now):
        rule = f"must be {len(before)} as before: the same episodes, in the same order"
        raise ModelFitError(problem("held_out episodes", len(now), rule, "Play them with the same seeds"))
    then, today = np.array(before), np.array(now)
    change = today - then
    n, mean = len(change), float(change.mean())
    # The mean may be near 0 by accident; the typical size of a return is not.
    allowed = tolerance * float(np.sqrt((then**2).mean()))
    if n < 2:
        return Verdict(
            float(then.mean()), float(today.mean()), mean, math.nan, allowed, n, level, mean < -allowed, mean > allowed
        )
    half = quantile(n - 1.0, level) * float(change.std(ddof=1)) / math.sqrt(n)
    fallen, risen = mean < -allowed and mean + half < 0.0, mean - half > 0.0
    return Verdict(float(then.mean()), float(today.mean()), mean, mean + half, allowed, n, level, fallen, risen)


VERSION = 1

Row = tuple[float, float, float]
IDENTITY: tuple[Row, Row, Row] = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))


@dataclass(frozen=True)
class Undoable:
    """A change that may yet be taken back.

    Attributes:
        number: Its number.
        changed: What was changed.
        before: Its value before.
        after: Its value since.
        advocates: Drivers whose shares argued for it, as (component, player).
    """

    number: int
    changed: str
    before: Any
    after: Any
    advocates: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Anchor:
    """The last state that is known to be good.

    Attributes:
        returns: Held-out returns then.
        shares: Shares of the weights.
        multipliers: λ by target.
        price_log: Logarithm of the factor on the energy price.
        carbon_log: Logarithm of the factor on the carbon price.
    """

    returns: tuple[float, ...]
    shares: Row
    multipliers: Mapping[str, float]
    price_log: float
    carbon_log: float = 0.0


@dataclass(frozen=True)
class FeedbackState:
    """Where feedback stands.

    Attributes:
        shares: Parts of the sum of weights: w_eff, w_util, w_cost.
        multipliers: λ by target.
        active: Targets that are being pursued.
        matrix: Coupling of the components, smoothed over windows.
        price_log: Logarithm of the factor on the energy price.
        carbon_log: Logarithm of the factor on the carbon price.
        damping: Component → player → multiplier, where it is not 1.
        anchor: What to go back to; None before the first held-out return.
        pending: Changes since the anchor, oldest first.
        trial: Steps since the first of these.
        falls: Steps in a row at which the held-out return was below the anchor's.
        caution: Factor on every bound per step; halves with a rollback.
        cooldown: Steps without changes yet to come.
        failures: Rollbacks that were not made good since.
        steps: Steps so far.
        number: Changes so far.
        credit: How much of what explanations promise is believed.
        promised: Target → violation when weights were last turned by explanations, and what was promised of it; empty
            once that was held against outcomes.
    """

    shares: Row
    multipliers: Mapping[str, float] = field(default_factory=dict)
    active: tuple[str, ...] = ()
    matrix: tuple[Row, Row, Row] = IDENTITY
    price_log: float = 0.0
    carbon_log: float = 0.0
    damping: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    anchor: Anchor | None = None
    pending: tuple[Undoable, ...] = ()
    trial: int = 0
    falls: int = 0
    caution: float = 1.0
    cooldown: int = 0
    failures: int = 0
    steps: int = 0
    number: int = 0
    credit: float = 1.0
    promised: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, words and lists, ready for JSON."""
        return {"version": VERSION, **asdict(self)}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> FeedbackState:
        """Restore what :meth:`to_dict` wrote.

        Raises:
            CheckpointError: If it is something else.
        """
        try:
            if record["version"] != VERSION:
                raise ValueError(f"version {record['version']!r}, not {VERSION}")
            anchor = record["anchor"]
            state = cls(
                shares=_row(record["shares"]),
                multipliers=_numbers(record["multipliers"]),
                active=tuple(str(name) for name in record["active"]),
                matrix=_matrix(record["matrix"]),
                price_log=_number(record["price_log"]),
                # States of earlier releases have no price of carbon of their own.
                carbon_log=_number(record.get("carbon_log", 0.0)),
                damping={str(c): _numbers(trust) for c, trust in record["damping"].items()},
                anchor=None if anchor is None else _anchor(anchor),
                pending=tuple(_undoable(one) for one in record["pending"]),
                caution=_number(record["caution"]),
                # States of before explanations told how far to go have neither.
                credit=_number(record.get("credit", 1.0)),
                promised={str(t): (_number(a), _number(b)) for t, (a, b) in record.get("promised", {}).items()},
                **{name: int(record[name]) for name in ("trial", "falls", "cooldown", "failures", "steps", "number")},
            )
            if not math.isclose(sum(state.shares), 1.0, abs_tol=1e-6) or min(state.shares) < 0.0:
                raise ValueError("shares must be >= 0 and sum to 1")
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            rule = f"is not a state of feedback ({type(error).__name__}: {error})"
            raise CheckpointError(problem("feedback", record, rule, "Use what to_dict wrote")) from error
        return state


def _number(value: Any) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"{value!r} is not finite")
    return number


def _numbers(record: Mapping[str, Any]) -> dict[str, float]:
    return {str(name): _number(value) for name, value in record.items()}


def _row(values: Any) -> Row:
    one, two, three = (_number(value) for value in values)
    return one, two, three


def _matrix(values: Any) -> tuple[Row, Row, Row]:
    one, two, three = (_row(row) for row in values)
    return one, two, three


def _anchor(record: Mapping[str, Any]) -> Anchor:
    returns = tuple(_number(value) for value in record["returns"])
    return Anchor(
        returns, _row(record["shares"]), _numbers(record["multipliers"]), _number(record["price_log"]),
        _number(record.get("carbon_log", 0.0)),
    )  # fmt: skip


def _undoable(record: Mapping[str, Any]) -> Undoable:
    advocates = tuple((str(c), str(p)) for c, p in record["advocates"])
    return Undoable(int(record["number"]), str(record["changed"]), record["before"], record["after"], advocates)
