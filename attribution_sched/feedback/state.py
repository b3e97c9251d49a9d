"""What feedback remembers between steps: frozen, plain, and the same after a trip through JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from attribution_sched.errors import CheckpointError, problem

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
    """

    returns: tuple[float, ...]
    shares: Row
    multipliers: Mapping[str, float]
    price_log: float


@dataclass(frozen=True)
class FeedbackState:
    """Where feedback stands.

    Attributes:
        shares: Parts of the sum of weights: w_eff, w_util, w_cost.
        multipliers: λ by target.
        active: Targets that are being pursued.
        matrix: Coupling of the components, smoothed over windows.
        price_log: Logarithm of the factor on the energy price.
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
    """

    shares: Row
    multipliers: Mapping[str, float] = field(default_factory=dict)
    active: tuple[str, ...] = ()
    matrix: tuple[Row, Row, Row] = IDENTITY
    price_log: float = 0.0
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

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, words and lists, ready for JSON."""
        return {"version": VERSION, **asdict(self)}

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> FeedbackState:
        """Restore what :meth:`to_dict` wrote.

        Raises:
            CheckpointError: If it is something else.
        """
        try:
            if given["version"] != VERSION:
                raise ValueError(f"version {given['version']!r}, not {VERSION}")
            anchor = given["anchor"]
            found = cls(
                shares=_row(given["shares"]),
                multipliers=_numbers(given["multipliers"]),
                active=tuple(str(name) for name in given["active"]),
                matrix=_matrix(given["matrix"]),
                price_log=_number(given["price_log"]),
                damping={str(c): _numbers(own) for c, own in given["damping"].items()},
                anchor=None if anchor is None else _anchor(anchor),
                pending=tuple(_undoable(one) for one in given["pending"]),
                caution=_number(given["caution"]),
                **{name: int(given[name]) for name in ("trial", "falls", "cooldown", "failures", "steps", "number")},
            )
            if not math.isclose(sum(found.shares), 1.0, abs_tol=1e-6) or min(found.shares) < 0.0:
                raise ValueError("shares must be >= 0 and sum to 1")
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            rule = f"is not a state of feedback ({type(error).__name__}: {error})"
            raise CheckpointError(problem("feedback", given, rule, "Use what to_dict wrote")) from error
        return found


def _number(value: Any) -> float:
    found = float(value)
    if not math.isfinite(found):
        raise ValueError(f"{value!r} is not finite")
    return found


def _numbers(given: Mapping[str, Any]) -> dict[str, float]:
    return {str(name): _number(value) for name, value in given.items()}


def _row(given: Any) -> Row:
    one, two, three = (_number(value) for value in given)
    return one, two, three


def _matrix(given: Any) -> tuple[Row, Row, Row]:
    one, two, three = (_row(row) for row in given)
    return one, two, three


def _anchor(given: Mapping[str, Any]) -> Anchor:
    returns = tuple(_number(value) for value in given["returns"])
    return Anchor(returns, _row(given["shares"]), _numbers(given["multipliers"]), _number(given["price_log"]))


def _undoable(given: Mapping[str, Any]) -> Undoable:
    advocates = tuple((str(c), str(p)) for c, p in given["advocates"])
    return Undoable(int(given["number"]), str(given["changed"]), given["before"], given["after"], advocates)
