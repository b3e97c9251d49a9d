"""Rules by which what was metered is shared: the ones people use, and the Shapley value.

Everything metered on a domain is one of three: what tasks drew above idle power (dynamic), the idle power of the
devices they held (static), and that of devices nobody held (idle).

| rule | a tenant answers for |
|---|---|
| ``reservation`` | its own draw; idle devices by the device-time it held |
| ``usage`` | its own draw; idle devices by the joules it drew |
| ``cpu-time`` | all of the meter by the device-time it computed |
| ``max-request-use`` | all of the meter by the larger of what it asked for and what it held, over what there is |
| ``shapley`` | its own draw above idle; static and idle by the Shapley value of the peak-capacity game |

``max-request-use`` and ``shapley`` leave a rest to nobody: devices that were not asked for, and those beyond the common
peak.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from attribution_sched.billing.games import ORDERS, CostShares, peak_capacity
from attribution_sched.billing.usage import Usage
from attribution_sched.errors import SettingsError, nearest, problem
from attribution_sched.types import FloatArray

RULES: tuple[str, ...] = ("shapley", "reservation", "usage", "cpu-time", "max-request-use")
"""All rules, by name."""


@dataclass(frozen=True, eq=False)
class Metered:
    """One quantity of a period, booked by cause.

    Attributes:
        dynamic: By group and domain, shape ``(G, K)``.
        static: Likewise, of devices held.
        idle: Of devices nobody held, shape ``(K,)``.
    """

    dynamic: FloatArray
    static: FloatArray
    idle: FloatArray

    @property
    def total(self) -> float:
        """The meter."""
        return float(self.dynamic.sum() + self.static.sum() + self.idle.sum())


@dataclass(frozen=True, eq=False)
class Allocation:
    """Who answers for how much of one quantity.

    Attributes:
        own: By what a group did itself, shape ``(G,)``.
        shared: Its part of what is shared, shape ``(G,)``.
        half_width: Half of the 95 % interval of ``shared``, shape ``(G,)``; zeros where nothing was sampled.
        unallocated: What nobody answers for.
        idle: The part of ``shared`` that is of devices nobody held, shape ``(G,)``.
        idle_half_width: Half of the 95 % interval of that, shape ``(G,)``.
    """

    own: FloatArray
    shared: FloatArray
    half_width: FloatArray
    unallocated: float
    idle: FloatArray
    idle_half_width: FloatArray


class Sharing:
    """The groups of a usage, and what the rules know of them.

    Args:
        usage: What was used.
        by: ``tenant``, ``task`` or ``model``.
        orders: Orders drawn for the Shapley rule with more groups than can be exact.
    """

    def __init__(self, usage: Usage, by: str, *, orders: int = ORDERS) -> None:
        self.usage, self.orders = usage, orders
        self.names, self.group = usage.groups(by)

    @cached_property
    def held(self) -> FloatArray:
        """Devices over time, shape ``(G, K, T)``."""
        return self.usage.held(self.group, len(self.names))

    @cached_property
    def held_s(self) -> FloatArray:
        """Device-seconds held, shape ``(G, K)``."""
        return np.asarray((self.held * self.usage.lengths_s).sum(axis=2))

    @cached_property
    def busy_s(self) -> FloatArray:
        """Device-seconds of computing, shape ``(G, K)``."""
        return self.usage.total(self.usage.span_busy_s, self.group, len(self.names))

    @cached_property
    def asked_s(self) -> FloatArray:
        """Device-seconds by the larger of what was asked for and what was held, shape ``(G, K)``."""
        usage = self.usage
        # A request is for the whole task: what it lacks is spread over the domains as what it holds is.
        together = np.zeros((len(usage.tasks), len(usage.lengths_s)))
        np.add.at(together, (usage.span_task, usage.span_interval), usage.span_devices)
        asked = np.array([float(task.requested or 0) for task in usage.tasks])
        holds = together[usage.span_task, usage.span_interval]
        larger = np.maximum(1.0, asked[usage.span_task] / np.maximum(holds, 1e-12)) if len(holds) else holds
        return usage.total(
            usage.span_devices * larger * usage.lengths_s[usage.span_interval], self.group, len(self.names)
        )

    @cached_property
    def peaks(self) -> tuple[CostShares, ...]:
        """The peak-capacity game of each domain."""
        return tuple(
            peak_capacity(self.held[:, domain], orders=self.orders) for domain in range(len(self.usage.domains))
        )

    def metered(self, what: str) -> Metered:
        """A quantity by cause.

        Args:
            what: ``energy`` (J) or ``CPU time`` (s), whichever is metered, ``electricity`` (USD), ``carbon`` (g) or
                ``device time`` (h).
        """
        usage, count = self.usage, len(self.names)
        if what == "device time":
            held_h = self.held_s / 3600.0
            return Metered(np.zeros_like(held_h), held_h, usage.devices * usage.hours - held_h.sum(axis=0))
        prices = usage.per_joule(what)
        each = prices[usage.span_interval, usage.span_domain]
        return Metered(
            usage.total(usage.span_dynamic_j * each, self.group, count),
            usage.total(usage.span_static_j * each, self.group, count),
            np.asarray((usage.idle_j * prices).sum(axis=0)),
        )

    def allocate(self, rule: str, what: str) -> Allocation:
        """Share one quantity by one rule; see the module.

        Raises:
            SettingsError: If there is no such rule.
        """
        if rule not in RULES:
            raise SettingsError(problem("rule", rule, "is no rule of billing", nearest(rule, RULES)))
        metered, sampled, idle_sampled = self.metered(what), np.zeros(len(self.names)), np.zeros(len(self.names))
        held = metered.static.sum(axis=0)
        if rule == "shapley":
            own = metered.dynamic.sum(axis=1)
            shared, sampled = self._by_peaks(held + metered.idle)
            idle, idle_sampled = self._by_peaks(metered.idle)
        elif rule in ("reservation", "usage"):
            own = metered.dynamic.sum(axis=1) + metered.static.sum(axis=1)
            shared = idle = _proportional(self.key(rule), metered.idle)
        else:
            totals = metered.dynamic.sum(axis=0) + held + metered.idle
            own = np.zeros(len(self.names))
            if rule == "cpu-time":
                shared, idle = _proportional(self.busy_s, totals), _proportional(self.busy_s, metered.idle)
            else:
                capacity = np.maximum(self.usage.devices * self.usage.hours * 3600.0, self.asked_s.sum(axis=0))
                part = self.asked_s / np.maximum(capacity, 1e-300)
                shared, idle = np.asarray((part * totals).sum(axis=1)), np.asarray((part * metered.idle).sum(axis=1))
        rest = metered.total - float(own.sum() + shared.sum())
        return Allocation(own, shared, sampled, rest, idle, idle_sampled)

    def _by_peaks(self, pool: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Share what each domain has ``(K,)`` by who needed its peak; shares and half their intervals, ``(G,)``."""
        shared, squares = np.zeros(len(self.names)), np.zeros(len(self.names))
        for peak, one in zip(self.peaks, pool / self.usage.devices, strict=True):
            shared += peak.values * one
            # Domains are sampled apart from each other, so their errors add up as squares.
            squares += (peak.half_width * one) ** 2
        return shared, np.sqrt(squares)

    def key(self, rule: str) -> FloatArray:
        """By what a rule shares, shape ``(G, K)``: device-seconds, or joules drawn."""
        if rule == "usage":
            metered = self.metered("energy")
            return metered.dynamic + metered.static
        return {"reservation": self.held_s, "cpu-time": self.busy_s, "max-request-use": self.asked_s}[rule]


def _proportional(keys: FloatArray, pool: FloatArray) -> FloatArray:
    """Split what each domain has in proportion to keys ``(G, K)``; what nobody has a key for stays, shape ``(G,)``."""
    sums = keys.sum(axis=0)
    return np.asarray((keys * np.divide(pool, sums, out=np.zeros_like(pool), where=sums > 0)).sum(axis=1))


def hour_prices(usage: Usage, device_h_usd: float) -> FloatArray:
    """A Shapley price list: USD per device-hour by domain and hour of the day, for the next day, shape ``(K, 24)``.

    The hours of a day are the players: v(H) is the capacity that the hours of H need, the largest of their demands, so
    an increment of capacity is paid in equal parts by the hours that need it (the airport game). Demand is the mean of
    the period by hour of the day; a day's capacity costs ``24 · device_h_usd`` a device.

    Args:
        usage: What was used.
        device_h_usd: What a device costs an hour, used or not.

    Returns:
        0 where nobody used the domain at that hour.

    Raises:
        SettingsError: If the price is negative.
    """
    if not device_h_usd >= 0:
        raise SettingsError(problem("device_h_usd", device_h_usd, "must be a price of 0 or more", "Use USD per hour"))
    at = (usage.edges_s[:-1] // 3600 % 24).astype(np.int64)
    everyone = np.zeros(len(usage.tasks), dtype=np.int64)
    held = usage.held(everyone, 1)[0] if usage.tasks else np.zeros((len(usage.domains), len(usage.lengths_s)))
    spent_s = np.zeros(24)
    np.add.at(spent_s, at, usage.lengths_s)
    demand = np.zeros((len(usage.domains), 24))
    np.add.at(demand.T, at, (held * usage.lengths_s).T)
    demand = np.divide(demand, spent_s, out=np.zeros_like(demand), where=spent_s > 0)
    prices = np.zeros_like(demand)
    for domain, row in enumerate(demand):
        order = np.argsort(row)
        steps = np.diff(row[order], prepend=0.0) / (24 - np.arange(24))
        share = np.empty(24)
        share[order] = np.cumsum(steps)
        prices[domain] = np.divide(share * 24.0 * device_h_usd, row, out=np.zeros(24), where=row > 0)
    return prices
