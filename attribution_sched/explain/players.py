"""The players of a scheduling decision: named inputs, and groups of inputs that belong together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
from numpy.typing import NDArray

from attribution_sched.cluster.decision import ATTRIBUTIONS, PER_CANDIDATE, Decisions
from attribution_sched.cluster.demands import DEMAND_NAMES
from attribution_sched.cluster.engine.engine import DAY_S, DOMAIN_FEATURES, EVENT_FEATURES, GROUPS
from attribution_sched.errors import ExplanationError, problem
from attribution_sched.explain.digits import share
from attribution_sched.explain.findings import Player
from attribution_sched.explain.masked_states import DAY_COSINE, DAY_SINE, NOBODY, mean_state
from attribution_sched.types import FloatArray, IntArray
from attribution_sched.words.say import Phrase

if TYPE_CHECKING:
    from attribution_sched.attribution.vector import AttributionVector


Links = Literal["pair", "domain", "all"]
"""One player per pair of domains, per domain (what leaves it), or for the whole network."""

PRICE, FORECAST = 2, 3
"""Rows of the links of a decision: dollars per GB, and the bandwidth expected some time ahead."""

QUEUE_LENGTH = DOMAIN_FEATURES.index("queue_length")
STEPS_LEFT, WAITED = EVENT_FEATURES.index("steps_left"), EVENT_FEATURES.index("waited")

Columns = Callable[[Decisions], tuple[NDArray[Any], ...]]
"""What is read of a player in every state, each of shape ``(n,)``; its main number comes first."""

Words = Callable[..., str]
"""A player's readings in one state, in the order of the columns, in words with units."""


@dataclass(frozen=True, eq=False)
class Usual:
    """What is usual of P players.

    Attributes:
        numbers: Mean of each one's main number over the background (of the time of day: around the clock), ``(P,)``.
        words: Its reading in the mean state.
    """

    numbers: FloatArray
    words: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Lineup:
    """The players of a kind of decision, and which numbers of a decision are whose.

    Attributes:
        names: Unique names.
        groups: Family of each.
        units: Unit of each one's main number.
        owners: Per field of a decision the player that owns each number, :data:`~.situations.NOBODY` for none.
        columns: What is read of each, its main number first.
        words: How that is said.
    """

    names: tuple[str, ...]
    groups: tuple[str, ...]
    units: tuple[str, ...]
    owners: dict[str, IntArray]
    columns: tuple[Columns, ...]
    words: tuple[Words, ...]

    def numbers(self, player: int, states: Decisions) -> NDArray[Any]:
        """A player's main number in every state, shape ``(n,)``."""
        return self.columns[player](states)[0]

    def usual(self, background: Decisions) -> Usual:
        """What is usual of every player in the background."""
        typical = mean_state(background)
        told = [self._say(player, self.columns[player](typical), 0) for player in range(len(self.names))]
        numbers = [
            float(self.numbers(player, typical)[0] if group == "time" else self.numbers(player, background).mean())
            for player, group in enumerate(self.groups)
        ]
        return Usual(np.array(numbers), tuple(told))

    def players(self, decisions: Decisions, usual: Usual) -> list[tuple[Player, ...]]:
        """Players of every decision with their readings and what is usual."""
        columns = self.read(decisions)
        return [self.told(columns, row, usual) for row in range(len(decisions))]

    def read(self, decisions: Decisions) -> list[list[list[Any]]]:
        """Per player what is read of it, per column one entry for every decision."""
        # Plain numbers: numpy's own take three times as long to be put into words.
        return [[column.tolist() for column in read(decisions)] for read in self.columns]

    def told(self, columns: list[list[list[Any]]], row: int, usual: Usual) -> tuple[Player, ...]:
        """Players of one decision, from what :meth:`read` gave."""
        listed = zip(
            self.names, self.groups, self.units, columns, self.words, usual.numbers.tolist(), usual.words, strict=True
        )
        return tuple(
            Player(name, group, tell(*(column[row] for column in read)), words, float(read[0][row]), mean, unit)
            for name, group, unit, read, tell, mean, words in listed
        )

    def _say(self, player: int, read: tuple[NDArray[Any], ...], row: int) -> str:
        return self.words[player](*(column[row] for column in read))


def in_joules(players: tuple[Player, ...], vector: AttributionVector | None) -> tuple[Player, ...]:
    """The same players, with the joules and the 95 % interval of each attribution beside what the policy reads."""
    if vector is None or vector.units == "share":
        return players
    reach = (vector.interval(0.95)[1] - vector.values).tolist()
    parts = zip(vector.names, vector.values.tolist(), reach, strict=True)
    amounts = {name: share(value, half, signed=False) for name, value, half in parts}

    def told(player: Player) -> Player:
        amount = amounts[player.name.removeprefix("attribution ")]
        return replace(player, value=Phrase("reading.joules", amount=amount, units=vector.units, state=player.value))

    return tuple(told(player) if player.group == "attribution" else player for player in players)


def lineup(decision: Decisions, domains: tuple[str, ...], links: Links = "pair") -> Lineup:
    """Name the players of a decision.

    Args:
        decision: It, with its task as candidate 0.
        domains: Names of the domains.
        links: How links are grouped.
    """
    k = len(domains)
    if decision.free.shape[1] != k:
        fix = "Name the domains of the decision's own cluster"
        raise ExplanationError(problem("domains", k, f"must be {decision.free.shape[1]}", fix))
    book = _Book(decision)
    for name, cells in _links(domains, links):
        book.add(name, "link", "Gb/s", *_read_link(cells))
        for i, j in cells:
            book.own("links", (slice(2), i, j))
    if k > 1:
        book.add("link forecasts", "forecast", "% of now", *_read_forecast(k))
        book.own("links", (FORECAST, slice(None), slice(None)))
        book.add("egress prices", "price", "USD/GB", *_read_prices(k))
        book.own("links", (PRICE, slice(None), slice(None)))
    if decision.carbon.shape[1]:
        book.add("carbon intensity", "carbon", "g/kWh", *_read_signal("carbon", "reading.carbon"))
        book.own("carbon", (slice(None),))
    if decision.electricity.shape[1]:
        book.add("electricity price", "electricity", "USD/kWh", *_read_signal("electricity", "reading.electricity"))
        book.own("electricity", (slice(None),))
    for i, name in enumerate(domains):
        book.add(f"load {name}", "load", "free devices", *_read_free(i))
        book.own("domains", (i, slice(None)))
        book.own("free", (i,))
    book.add("queue", "queue", "waiting", lambda d: (d.waiting,), lambda n: Phrase("reading.waiting", count=int(n)))
    book.own("domains", (slice(None), QUEUE_LENGTH))
    book.own("waiting", ())
    for name in PER_CANDIDATE:
        book.own(name, (slice(1, None),))
    book.add("work left", "task", "steps", lambda d: (d.left[:, 0],), lambda n: Phrase("reading.steps", steps=float(n)))
    book.own("left", (0,))
    book.own("event", (STEPS_LEFT,))
    book.add("waited", "task", "h", lambda d: (d.waited_s[:, 0] / 3600.0,), lambda h: f"{h:.1f} h")
    book.own("waited_s", (0,))
    book.own("event", (WAITED,))
    book.add("time of day", "time", "h", _time_h, _say_time)
    book.own("event", (DAY_SINE,))
    book.own("event", (DAY_COSINE,))
    for c, name in enumerate(DEMAND_NAMES[:ATTRIBUTIONS]):
        book.add(f"attribution {name}", "attribution", "", *_read_attribution(c))
        book.own("attribution", (0, c))
    if bool(decision.replanning[0]):
        book.add("plan in force", "plan", "s per step", lambda d: (d.step_s, d.holding), _say_plan)
        for name in ("held", "holding", "step_s"):
            book.own(name, (...,))
    book.add("reward weights", "weights", "", lambda d: (d.weights.sum(axis=1), *d.weights.T), _say_weights)
    book.own("weights", (...,))
    return book.close()


class _Book:
    """Collects players; the last one added owns what is said to be owned."""

    def __init__(self, decision: Decisions) -> None:
        self.entries: list[tuple[str, str, str, Columns, Words]] = []
        self.decision = decision
        self.owners: dict[str, IntArray] = {}

    def add(self, name: str, group: str, unit: str, columns: Columns, words: Words) -> None:
        self.entries.append((name, group, unit, columns, words))

    def own(self, field: str, where: tuple[object, ...]) -> None:
        shape = getattr(self.decision, field).shape[1:]
        owner = self.owners.setdefault(field, np.full(shape, NOBODY, dtype=np.int64))
        owner[where] = len(self.entries) - 1  # type: ignore[index]

    def close(self) -> Lineup:
        names, groups, units, columns, words = zip(*self.entries, strict=True)
        return Lineup(names, groups, units, self.owners, columns, words)


def _links(domains: tuple[str, ...], links: Links) -> list[tuple[str, list[tuple[int, int]]]]:
    k = len(domains)
    both = [(i, j) for i in range(k) for j in range(k) if i != j]
    if not both:
        return []
    if links == "all":
        return [("links", both)]
    if links == "domain":
        return [(f"links of {domains[i]}", [cell for cell in both if cell[0] == i]) for i in range(k)]
    if links == "pair":
        return [(f"link {domains[i]}–{domains[j]}", [(i, j), (j, i)]) for i in range(k) for j in range(i + 1, k)]
    raise ExplanationError(problem("links", links, "must be pair, domain or all", "Use pair for few domains"))


def _read_link(cells: list[tuple[int, int]]) -> tuple[Columns, Words]:
    i, j = (list(side) for side in zip(*cells, strict=True))

    def columns(d: Decisions) -> tuple[FloatArray, ...]:
        gbps, latency_s = d.links[:, :2, i, j].mean(axis=2).T
        return gbps, latency_s

    def words(gbps: float, latency_s: float) -> str:
        return Phrase("reading.link", gbps=_digits(gbps), latency_ms=1e3 * float(latency_s))

    return columns, words


def _outside(k: int) -> NDArray[np.bool_]:
    return ~np.eye(k, dtype=np.bool_)


def _read_forecast(k: int) -> tuple[Columns, Words]:
    def columns(d: Decisions) -> tuple[FloatArray, ...]:
        now, ahead = d.links[:, 0][:, _outside(k)], d.links[:, FORECAST][:, _outside(k)]
        return (100.0 * ahead.sum(axis=1) / now.sum(axis=1),)

    return columns, lambda percent: Phrase("reading.forecast", percent=float(percent))


def _read_prices(k: int) -> tuple[Columns, Words]:
    def columns(d: Decisions) -> tuple[FloatArray, ...]:
        return (d.links[:, PRICE][:, _outside(k)].mean(axis=1),)

    return columns, lambda usd: Phrase("reading.price", usd=float(usd))


def _read_signal(name: str, message: str) -> tuple[Columns, Words]:
    def columns(d: Decisions) -> tuple[FloatArray, ...]:
        values = getattr(d, name)
        return values.mean(axis=1), values.min(axis=1), values.max(axis=1)

    return columns, lambda _, low, high: Phrase(message, low=float(low), high=float(high))


def _read_free(domain: int) -> tuple[Columns, Words]:
    def columns(d: Decisions) -> tuple[NDArray[Any], ...]:
        return d.free[:, domain], d.domains[:, domain, :GROUPS].mean(axis=1)

    return columns, lambda free, busy: Phrase("reading.load", free=int(free), busy=100 * float(busy))


def _read_attribution(c: int) -> tuple[Columns, Words]:
    return lambda d: (d.attribution[:, 0, c],), lambda value: f"{value:+.2f}".replace("-", "−")


def _time_h(d: Decisions) -> tuple[FloatArray, ...]:
    turn: FloatArray = np.arctan2(d.event[:, DAY_SINE], d.event[:, DAY_COSINE]) / (2.0 * np.pi) % 1.0
    return (turn * DAY_S / 3600.0,)


def _say_time(hours: float) -> str:
    minutes = round(60.0 * float(hours)) % 1440
    return f"{minutes // 60:02d}:{minutes % 60:02d}"


def _say_plan(step_s: float, devices: int) -> str:
    return Phrase("reading.plan", step_s=float(step_s), devices=int(devices))


def _say_weights(_: float, *weights: float) -> str:
    return " / ".join(f"{w:g}" for w in weights)


def _digits(value: float) -> str:
    return f"{value:.2g}" if abs(value) < 1 else f"{value:.1f}"


# ------ What players read in many decisions, put into words only when somebody looks


class Readings:
    """Readings of the players of a line-up in D decisions.

    Args:
        cast: The players.
        usual: What is usual of them.
        seen: The decisions.
        vectors: Attribution of the task of each.
    """

    def __init__(
        self, cast: Lineup, usual: Usual, seen: Decisions, vectors: Sequence[AttributionVector | None] = ()
    ) -> None:
        self.cast, self.usual, self.seen, self.vectors = cast, usual, seen, vectors

    @cached_property
    def columns(self) -> list[list[list[Any]]]:
        """Per player its columns, each with one entry per decision, read once for all of them."""
        return self.cast.read(self.seen)

    def of(self, row: int) -> LazyPlayers:
        """The players of one decision."""
        return LazyPlayers(self, row)


class LazyPlayers(Sequence[Player]):
    """The players of one of many decisions; like a tuple of them, made when it is first looked at.

    Args:
        readings: Of all decisions.
        row: Which decision.
    """

    def __init__(self, readings: Readings, row: int) -> None:
        self.names = readings.cast.names
        self._readings = readings
        self._row = row

    @cached_property
    def _made(self) -> tuple[Player, ...]:
        told = self._readings
        return in_joules(
            told.cast.told(told.columns, self._row, told.usual), told.vectors[self._row] if told.vectors else None
        )

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[Player]:
        return iter(self._made)

    @overload
    def __getitem__(self, at: int) -> Player: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[Player, ...]: ...
    def __getitem__(self, at: int | slice) -> Player | tuple[Player, ...]:
        return self._made[at]

    def __eq__(self, other: object) -> bool:
        return self._made == tuple(other) if isinstance(other, (tuple, LazyPlayers)) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._made)

    def __repr__(self) -> str:
        return repr(self._made)

    def __reduce__(self) -> tuple[Any, ...]:
        """Copied and stored as the tuple it stands for."""
        return tuple, (self._made,)
