"""The players of a scheduling decision: named inputs, and groups of inputs that belong together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from attribution_sched.cluster.decision_arrays import ATTRIBUTIONS, Decisions
from attribution_sched.cluster.demands import DEMAND_NAMES
from attribution_sched.cluster.engine_observe import DAY_S, DOMAIN_FEATURES, EVENT_FEATURES
from attribution_sched.errors import ExplanationError, problem
from attribution_sched.explain.findings import Player
from attribution_sched.explain.situations import DAY_COSINE, DAY_SINE, NOBODY

IntArray = NDArray[np.int64]

Links = Literal["pair", "domain", "all"]
"""One player per pair of domains, per domain (what leaves it), or for the whole network."""

QUEUE_LENGTH = DOMAIN_FEATURES.index("queue_length")
STEPS_LEFT, WAITED = EVENT_FEATURES.index("steps_left"), EVENT_FEATURES.index("waited")

Reading = Callable[[Decisions, int], tuple[float, str]]
"""A player's main number in one state, and its reading in words."""


@dataclass(frozen=True, eq=False)
class Lineup:
    """The players of a kind of decision, and which numbers of a decision are whose.

    Attributes:
        names: Unique names.
        groups: Family of each.
        units: Unit of each one's main number.
        owners: Per field of a decision the player that owns each number, :data:`~.situations.NOBODY` for none.
        readings: How each is read off a state.
    """

    names: tuple[str, ...]
    groups: tuple[str, ...]
    units: tuple[str, ...]
    owners: dict[str, IntArray]
    readings: tuple[Reading, ...]

    def players(self, decision: Decisions, background: Decisions, most: int = 200) -> tuple[Player, ...]:
        """Players with their readings in the decision, and on average over (at most so many of) the background."""
        step = max(1, len(background) // most)
        found = []
        for name, group, unit, read in zip(self.names, self.groups, self.units, self.readings, strict=True):
            number, words = read(decision, 0)
            usual = float(np.mean([read(background, row)[0] for row in range(0, len(background), step)]))
            found.append(Player(name, group, words, _amount(usual, unit), number, usual, unit))
        return tuple(found)


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
        book.add(name, "link", "Gb/s", _read_link(cells))
        for i, j in cells:
            book.own("links", (slice(None), i, j))
    for i, name in enumerate(domains):
        book.add(f"load {name}", "load", "free devices", _read_free(i))
        book.own("domains", (i, slice(None)))
        book.own("free", (i,))
    book.add("queue", "queue", "waiting", lambda d, r: (float(d.waiting[r]), f"{int(d.waiting[r])} waiting"))
    book.own("domains", (slice(None), QUEUE_LENGTH))
    book.own("waiting", ())
    for name in ("kind", "slot", "left", "waited_s", "attribution"):
        book.own(name, (slice(1, None),))
    book.add("work left", "task", "steps", lambda d, r: (float(d.left[r, 0]), f"{d.left[r, 0]:,.0f} steps"))
    book.own("left", (0,))
    book.own("event", (STEPS_LEFT,))
    book.add("waited", "task", "h", lambda d, r: (d.waited_s[r, 0] / 3600.0, f"{d.waited_s[r, 0] / 3600.0:.1f} h"))
    book.own("waited_s", (0,))
    book.own("event", (WAITED,))
    book.add("time of day", "time", "h", _read_time)
    book.own("event", (DAY_SINE,))
    book.own("event", (DAY_COSINE,))
    for c, name in enumerate(DEMAND_NAMES[:ATTRIBUTIONS]):
        book.add(f"attribution {name}", "attribution", "", _read_attribution(c))
        book.own("attribution", (0, c))
    if bool(decision.replanning[0]):
        book.add("plan in force", "plan", "s per step", _read_plan)
        for name in ("held", "holding", "step_s"):
            book.own(name, (...,))
    book.add("reward weights", "weights", "", _read_weights)
    book.own("weights", (...,))
    return book.close()


class _Book:
    """Collects players; the last one added owns what is said to be owned."""

    def __init__(self, decision: Decisions) -> None:
        self.entries: list[tuple[str, str, str, Reading]] = []
        self.decision = decision
        self.owners: dict[str, IntArray] = {}

    def add(self, name: str, group: str, unit: str, read: Reading) -> None:
        self.entries.append((name, group, unit, read))

    def own(self, field: str, where: tuple[object, ...]) -> None:
        shape = getattr(self.decision, field).shape[1:]
        owner = self.owners.setdefault(field, np.full(shape, NOBODY, dtype=np.int64))
        owner[where] = len(self.entries) - 1  # type: ignore[index]

    def close(self) -> Lineup:
        names, groups, units, readings = zip(*self.entries, strict=True)
        return Lineup(names, groups, units, self.owners, readings)


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


def _read_link(cells: list[tuple[int, int]]) -> Reading:
    i, j = (list(side) for side in zip(*cells, strict=True))

    def read(d: Decisions, row: int) -> tuple[float, str]:
        gbps, latency_s = float(d.links[row, 0, i, j].mean()), float(d.links[row, 1, i, j].mean())
        return gbps, f"{_digits(gbps)} Gb/s, {1e3 * latency_s:.0f} ms"

    return read


def _read_free(domain: int) -> Reading:
    def read(d: Decisions, row: int) -> tuple[float, str]:
        free = int(d.free[row, domain])
        busy = float(d.domains[row, domain, :4].mean())
        return float(free), f"{free} free devices, {100 * busy:.0f} % busy"

    return read


def _read_attribution(c: int) -> Reading:
    def read(d: Decisions, row: int) -> tuple[float, str]:
        value = float(d.attribution[row, 0, c])
        return value, f"{value:+.2f}"

    return read


def _read_time(d: Decisions, row: int) -> tuple[float, str]:
    turn = float(np.arctan2(d.event[row, DAY_SINE], d.event[row, DAY_COSINE])) / (2.0 * np.pi) % 1.0
    minutes = round(turn * DAY_S / 60.0) % 1440
    return turn * DAY_S / 3600.0, f"{minutes // 60:02d}:{minutes % 60:02d}"


def _read_plan(d: Decisions, row: int) -> tuple[float, str]:
    return float(d.step_s[row]), f"{d.step_s[row]:.3g} s per step on {int(d.holding[row])} devices"


def _read_weights(d: Decisions, row: int) -> tuple[float, str]:
    return float(d.weights[row].sum()), " / ".join(f"{w:g}" for w in d.weights[row])


def _digits(value: float) -> str:
    return f"{value:.2g}" if abs(value) < 1 else f"{value:.1f}"


def _amount(value: float, unit: str) -> str:
    number = f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2g}" if abs(value) < 1 else f"{value:.1f}"
    return f"{number} {unit}".strip()
