"""What goes wrong with a cluster at a known time: a link that is cut down, a domain that is lost.

Incidents are part of a world, so every policy meets the same ones. They begin and end at the network's ticks: one
is in force from the first tick at or after its start until the first tick at or after its end.

- A *cut* multiplies the bandwidth of a link; cuts of the same link multiply. Tasks that use it may be re-planned
  as after any other jump.
- A *lost domain* has no free devices and draws no power. Every running task with a segment there goes back to the
  queue at once and falls back to its last epoch boundary. It keeps its arrival time and its turn. When it is placed
  again it pauses for ``restart_s``; it is restored from a checkpoint that is taken to be at hand everywhere, so
  sending its state is not charged.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from attribution_sched.errors import SettingsError, problem
from attribution_sched.kernels import kernel
from attribution_sched.types import FloatArray

I_DOMAIN, I_TARGET, I_START, I_END, I_FACTOR, I_LOSS = range(6)
"""Columns of the packed incidents: domain or source, target, start and end (s), factor, 1 for a lost domain."""


@dataclass(frozen=True)
class LinkCut:
    """A link that carries less for a while.

    Attributes:
        source: Index of the domain at one end.
        target: Index of the domain at the other.
        start_s: When it begins.
        end_s: When it is over.
        factor: What is left of the bandwidth, in (0, 1].
        both_ways: Whether the way back suffers too.
    """

    source: int
    target: int
    start_s: float
    end_s: float
    factor: float
    both_ways: bool = True

    def __post_init__(self) -> None:
        _check_window("link cut", self.start_s, self.end_s)
        if not 0 < self.factor <= 1:
            fix = "Write a dead link as a small number such as 0.01"
            raise SettingsError(problem("link cut factor", self.factor, "must lie in (0, 1]", fix))
        if self.source == self.target:
            fix = "Name two domains"
            raise SettingsError(problem("link cut target", self.target, "must differ from the source", fix))

    def active(self, time_s: float) -> bool:
        """Whether it is on at a time."""
        return self.start_s <= time_s < self.end_s


@dataclass(frozen=True)
class DomainLoss:
    """A domain that is gone for a while.

    Attributes:
        domain: Its index.
        start_s: When it goes.
        end_s: When it is back.
    """

    domain: int
    start_s: float
    end_s: float

    def __post_init__(self) -> None:
        _check_window("domain loss", self.start_s, self.end_s)

    def active(self, time_s: float) -> bool:
        """Whether it is on at a time."""
        return self.start_s <= time_s < self.end_s


Incident = LinkCut | DomainLoss


def _check_window(what: str, start_s: float, end_s: float) -> None:
    if not (math.isfinite(start_s) and start_s >= 0):
        fix = "Count from the start of the episode"
        raise SettingsError(problem(f"{what} start_s", start_s, "must be finite and >= 0", fix))
    if not end_s > start_s:
        fix = "Use infinity for one that never ends"
        raise SettingsError(problem(f"{what} end_s", end_s, f"must lie after its start, {start_s:g}", fix))


def check_incidents(incidents: Iterable[object], domains: tuple[str, ...]) -> None:
    """Refuse what is no incident, incidents of domains that a cluster does not have, a domain lost twice at once."""
    lost: dict[int, list[tuple[float, float, int]]] = {}
    for at, incident in enumerate(incidents):
        if isinstance(incident, LinkCut):
            places: dict[str, int] = {"source": incident.source, "target": incident.target}
        elif isinstance(incident, DomainLoss):
            places = {"domain": incident.domain}
        else:
            rule = "must be a LinkCut or a DomainLoss"
            raise SettingsError(problem(f"incidents[{at}]", incident, rule, "Use one of the two records"))
        for name, index in places.items():
            whole = isinstance(index, int | np.integer) and not isinstance(index, bool)
            if not whole or not 0 <= index < len(domains):
                rule = f"must be the index of a domain, 0 to {len(domains) - 1}"
                fix = f"The domains are {', '.join(domains)}"
                raise SettingsError(problem(f"incidents[{at}].{name}", index, rule, fix))
        if isinstance(incident, DomainLoss):
            lost.setdefault(incident.domain, []).append((incident.start_s, incident.end_s, at))
    for domain, spans in lost.items():
        for (_, end_s, before), (start_s, _, at) in pairwise(sorted(spans)):
            if start_s < end_s:
                rule = f"{domains[domain]} is lost already, by incidents[{before}] until {end_s:g} s"
                raise SettingsError(problem(f"incidents[{at}].start_s", start_s, rule, "Write the two losses as one"))


def pack(incidents: Iterable[Incident]) -> FloatArray:
    """Write incidents as the kernels take them, shape ``(n, 6)``; a cut of both ways is two rows."""
    rows: list[tuple[float, ...]] = []
    for incident in incidents:
        if isinstance(incident, DomainLoss):
            rows.append((incident.domain, -1, incident.start_s, incident.end_s, 0.0, 1.0))
            continue
        rows.append((incident.source, incident.target, incident.start_s, incident.end_s, incident.factor, 0.0))
        if incident.both_ways:
            rows.append((incident.target, incident.source, incident.start_s, incident.end_s, incident.factor, 0.0))
    return np.array(rows, dtype=np.float64).reshape(len(rows), 6)


@kernel
def is_lost(incidents: FloatArray, time_s: float, domain: int) -> bool:
    """Whether a domain is lost at the time of a tick."""
    for row in range(incidents.shape[0]):
        incident = incidents[row]
        if incident[I_LOSS] == 1.0 and incident[I_DOMAIN] == domain and incident[I_START] <= time_s < incident[I_END]:
            return True
    return False


@kernel
def cut_links(incidents: FloatArray, time_s: float, bandwidth: FloatArray) -> None:
    """Multiply the bandwidth of the links, shape ``(K, K)``, by what the cuts at the time of a tick leave of them."""
    for row in range(incidents.shape[0]):
        incident = incidents[row]
        if incident[I_LOSS] == 0.0 and incident[I_START] <= time_s < incident[I_END]:
            bandwidth[int(incident[I_DOMAIN]), int(incident[I_TARGET])] *= incident[I_FACTOR]
