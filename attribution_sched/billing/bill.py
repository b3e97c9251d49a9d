"""The bill: one line for each payer and part, with its interval and its reason; lines and rest add up to the meters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from attribution_sched.billing.games import ORDERS, CostShares, co_location
from attribution_sched.billing.rules import RULES, Allocation, Sharing
from attribution_sched.billing.usage import Usage
from attribution_sched.errors import SettingsError, nearest, problem
from attribution_sched.types import FloatArray

if TYPE_CHECKING:
    import pandas as pd

BY: tuple[str, ...] = ("tenant", "task", "model", "domain")
"""Who may be billed."""

PARTS: Mapping[str, str] = {
    "energy": "J",
    "idle": "J",
    "CPU time": "s",
    "electricity": "USD",
    "carbon": "g",
    "device time": "h",
    "egress": "USD",
    "congestion": "task-h",
    "co-location": "task-h",
}
"""What a bill consists of, and its unit. Energy is that of devices that hold a task, idle that of those that hold none:
together they are the meter in joules; electricity, carbon and device time are of both. CPU time stands for energy where
no device has a meter. Congestion and co-location have sums of their own: hours waited for others, and hours of a run
lost to others on the same devices."""

UNATTRIBUTED = "(not attributed)"
"""Joules of tasks that nobody attributed to operators."""

NOBODY = "(unallocated)"
"""Name of the rest that nobody answers for."""

OTHERS = "(others)"
"""Name of everybody else in a bill shown to one payer."""

REASONS: dict[str, str] = {
    "shapley": "bill.shapley",
    "reservation": "bill.reservation",
    "usage": "bill.usage",
    "cpu-time": "bill.cpu-time",
    "max-request-use": "bill.max-request-use",
}
"""The message that says why a payer answers for a line, by rule."""


@dataclass(frozen=True)
class Prices:
    """What the user charges for; None leaves a part unpriced.

    Attributes:
        carbon_usd_per_kg: Of accounted CO2-equivalent.
        device_usd_per_h: Of a device, used or not.
        congestion_usd_per_h: Of an hour that a task waits for others, or loses to others on its devices.
    """

    carbon_usd_per_kg: float | None = None
    device_usd_per_h: float | None = None
    congestion_usd_per_h: float | None = None

    def __post_init__(self) -> None:
        for name, price in vars(self).items():
            if price is not None and not (np.isfinite(price) and price >= 0):
                raise SettingsError(
                    problem(name, price, "must be a price of 0 or more", "Leave it out to charge nothing")
                )

    def usd(self, part: str, quantity: float) -> float | None:
        """Dollars of a quantity in the unit of its part; None if nobody set a price."""
        if part in ("electricity", "egress"):
            return quantity
        price = {
            "carbon": None if self.carbon_usd_per_kg is None else self.carbon_usd_per_kg / 1e3,
            "device time": self.device_usd_per_h,
            "congestion": self.congestion_usd_per_h,
            "co-location": self.congestion_usd_per_h,
        }.get(part)
        return None if price is None else quantity * price


@dataclass(frozen=True)
class Line:
    """One line of a bill.

    Attributes:
        payer: Who answers for it.
        part: What it is for, one of :data:`PARTS`.
        own: In the part's unit: what the payer drew or held itself.
        shared: Its share of what all have in common.
        half_width: Half of the 95 % interval of ``shared``; 0 if it is exact.
        usd: Dollars; None if the part has no price.
        reason: Id of the sentence that says why, in the catalogue of words.
        facts: The numbers in that sentence.
    """

    payer: str
    part: str
    own: float
    shared: float
    half_width: float
    usd: float | None
    reason: str
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def quantity(self) -> float:
        """Both together."""
        return self.own + self.shared


@dataclass(frozen=True)
class OperatorPart:
    """Joules above idle power that one kind of operator drew for a payer.

    Attributes:
        payer: Whose tasks.
        operator: Kind of operator, or :data:`UNATTRIBUTED`.
        energy_j: Metered joules, split by the accounting of every task's attribution.
        half_width_j: Half of the 95 % interval. Errors of tasks that one energy model accounts for go together, so they
            are added up.
    """

    payer: str
    operator: str
    energy_j: float
    half_width_j: float


@dataclass(frozen=True, eq=False)
class Bill:
    """Who answers for what of a period.

    Attributes:
        by: Who is billed: tenant, task, model or domain.
        rule: By which rule.
        lines: All lines.
        unallocated: Part → what nobody answers for.
        meter: Part → what the meter reads; lines and rest add up to it.
        exact: Whether no share was sampled.
        core: Domain → its peak-capacity game, under the Shapley rule.
        hours: Length of the period.
        start_s: Its beginning, on the cluster's clock.
        provenance: How the numbers were got.
        repeated: Domain and hours of every recorded signal that ends inside the period and begins again.
        operators: What the payers' joules above idle power went into; of each they add up to what it drew itself.
        no_carbon: Domains of whose grid no carbon intensity is known: their grams are not counted.
    """

    by: str
    rule: str
    lines: tuple[Line, ...]
    unallocated: Mapping[str, float]
    meter: Mapping[str, float]
    exact: bool
    core: Mapping[str, CostShares]
    hours: float
    start_s: float
    provenance: str
    repeated: tuple[tuple[str, float], ...] = ()
    operators: tuple[OperatorPart, ...] = ()
    no_carbon: tuple[str, ...] = ()

    @property
    def payers(self) -> tuple[str, ...]:
        """In order."""
        return tuple(dict.fromkeys(line.payer for line in self.lines))

    def amount(self, payer: str, part: str) -> float:
        """What a payer answers for of one part, in its unit."""
        return sum(line.quantity for line in self.lines if line.payer == payer and line.part == part)

    def gap(self) -> float:
        """Largest relative difference between a meter and the lines and rest that should add up to it."""
        gaps = []
        for part, meter in self.meter.items():
            booked = sum(line.quantity for line in self.lines if line.part == part) + self.unallocated[part]
            gaps.append(abs(booked - meter) / max(1.0, abs(meter)))
        return max(gaps, default=0.0)

    def seen_by(self, payer: str) -> Bill:
        """The same bill as one payer may see it: all others only in sum.

        Raises:
            SettingsError: If nobody of that name is billed.
        """
        if payer not in self.payers:
            raise SettingsError(problem(self.by, payer, "has no line in this bill", nearest(payer, self.payers)))
        own = [line for line in self.lines if line.payer == payer]
        rest = []
        for part in self.meter:
            theirs = [line for line in self.lines if line.payer != payer and line.part == part]
            if theirs:
                priced = [line.usd for line in theirs if line.usd is not None]
                own_sum, shared_sum = sum(line.own for line in theirs), sum(line.shared for line in theirs)
                # Errors of shares of a whole are opposed to each other: the sum is known as well as the own share.
                width = next((line.half_width for line in own if line.part == part), 0.0)
                usd = sum(priced) if priced else None
                rest.append(Line(OTHERS, part, own_sum, shared_sum, width, usd, "bill.others"))
        operators = tuple(part for part in self.operators if part.payer == payer)
        changed = {**vars(self), "lines": (*own, *rest), "core": {}, "operators": operators}
        return Bill(**changed)

    def rows(self) -> Iterator[dict[str, Any]]:
        """A row for each line and for the rest, with plain values."""
        for line in self.lines:
            yield {
                self.by: line.payer,
                "part": line.part,
                "quantity": line.quantity,
                "own": line.own,
                "shared": line.shared,
                "half_width": line.half_width,
                "unit": PARTS[line.part],
                "usd": line.usd,
            }
        for part, rest in self.unallocated.items():
            yield {self.by: NOBODY, "part": part, "quantity": rest, "own": 0.0, "shared": rest, "half_width": 0.0,
                   "unit": PARTS[part], "usd": None}  # fmt: skip

    def operator_table(self) -> pd.DataFrame:
        """Payers down, kinds of operators across: joules drawn above the idle power of devices."""
        import pandas as pd

        frame = pd.DataFrame([vars(part) for part in self.operators], columns=[*OperatorPart.__dataclass_fields__])
        wide = frame.pivot_table(index="payer", columns="operator", values="energy_j", aggfunc="sum", sort=False)
        return wide.fillna(0.0).rename_axis(index=self.by)

    def table(self) -> pd.DataFrame:
        """Payers down, parts across, in their units; the rest and the meter below."""
        import pandas as pd

        frame = pd.DataFrame(list(self.rows()))
        wide = frame.pivot_table(index=self.by, columns="part", values="quantity", aggfunc="sum", sort=False)
        wide = wide.reindex(columns=[part for part in PARTS if part in wide.columns])
        wide.loc["meter"] = [self.meter[part] for part in wide.columns]
        return wide.rename(columns={part: f"{part} ({PARTS[part]})" for part in wide.columns})


def make_bill(
    usage: Usage,
    by: str = "tenant",
    rule: str = "shapley",
    *,
    prices: Prices | None = None,
    congestion: CostShares | None = None,
    orders: int = ORDERS,
    seed: int = 0,
) -> Bill:
    """Write the bill of a period.

    Args:
        usage: What was used.
        by: ``tenant``, ``task``, ``model`` or ``domain``.
        rule: One of :data:`~attribution_sched.billing.rules.RULES`.
        prices: What is charged beside electricity and egress.
        congestion: CostShares of the delay, of the payers in their order; left out if nobody worked them out.
        orders: Orders drawn for more payers than can be exact.
        seed: Of those orders.

    Raises:
        SettingsError: If an argument is wrong.
    """
    if by not in BY:
        raise SettingsError(problem("by", by, "is nobody who can be billed", nearest(by, BY)))
    if rule not in RULES:
        raise SettingsError(problem("rule", rule, "is no rule of billing", nearest(rule, RULES)))
    prices = prices or Prices()
    if by == "domain":
        return _by_domain(usage, rule, prices)
    sharing = Sharing(usage, by, orders=orders, seed=seed)
    lines: list[Line] = []
    unallocated: dict[str, float] = {}
    meter: dict[str, float] = {}
    for part in _metered_parts(usage):
        allocation = sharing.allocate(rule, part)
        total = meter[part] = sharing.metered(part).total
        rest = {part: allocation.unallocated}
        if part == "energy":
            meter["idle"] = float(sharing.metered(part).idle.sum())
            rest["idle"] = meter["idle"] - float(allocation.idle.sum())
            rest[part] -= rest["idle"]
            meter[part] -= meter["idle"]
            lines += _idle_lines(sharing, rule, allocation)
            allocation = replace(allocation, shared=allocation.shared - allocation.idle)
        for name, left in rest.items():
            # What is left of rounding is no rest.
            unallocated[name] = left if abs(left) > 1e-12 * total else 0.0
        lines += _lines(sharing, rule, part, allocation, prices)
    egress = np.zeros(len(sharing.names))
    np.add.at(egress, sharing.group, [task.egress_usd for task in usage.tasks])
    lines += [
        Line(name, "egress", usd, 0.0, 0.0, usd, "bill.egress")
        for name, usd in zip(sharing.names, egress.tolist(), strict=True)
    ]
    unallocated["egress"], meter["egress"] = 0.0, usage.meter_egress_usd
    if congestion is not None:
        lines += _congestion(sharing.names, congestion, prices)
        unallocated["congestion"] = congestion.total - float(congestion.values.sum())
        meter["congestion"] = congestion.total
    if usage.slowed:
        lines += _co_location(sharing, prices)
        meter["co-location"], unallocated["co-location"] = sum(hours for _, _, hours in usage.slowed), 0.0
    core = dict(zip(usage.domains, sharing.peaks, strict=True)) if rule == "shapley" else {}
    exact = all(peak.exact for peak in core.values()) and (congestion is None or congestion.exact)
    return Bill(
        by, rule, tuple(lines), unallocated, meter, exact, core, usage.hours, float(usage.edges_s[0]), usage.provenance,
        usage.repeated, tuple(_operators(sharing)), usage.no_carbon,
    )  # fmt: skip


def _operators(sharing: Sharing) -> Iterator[OperatorPart]:
    """Joules above idle power of every payer by operator: each task's own, split as its attribution accounts."""
    usage, count = sharing.usage, len(sharing.usage.tasks)
    if usage.metered != "energy":
        return
    drawn = usage.total(usage.span_dynamic_j, np.arange(count), count).sum(axis=1)
    for at, payer in enumerate(sharing.names):
        sums: dict[str, list[float]] = {}
        for task in np.flatnonzero(sharing.group == at).tolist():
            for operator, (share, width) in (usage.tasks[task].operators or {UNATTRIBUTED: (1.0, 0.0)}).items():
                booked = sums.setdefault(operator, [0.0, 0.0])
                booked[0] += drawn[task] * share
                booked[1] += drawn[task] * width
        yield from (OperatorPart(payer, operator, *booked) for operator, booked in sums.items())


def _co_location(sharing: Sharing, prices: Prices) -> Iterator[Line]:
    """Hours that tasks lost to others on their devices: a pair of payers shares what they cost each other equally."""
    players = len(sharing.names)
    alone, extra = np.zeros(players), np.zeros((players, players))
    for task, other, hours in sharing.usage.slowed:
        mine, theirs = int(sharing.group[task]), int(sharing.group[other])
        if mine == theirs:
            alone[mine] += hours
        else:
            extra[mine, theirs] += hours
            extra[theirs, mine] += hours
    for name, value in zip(sharing.names, co_location(alone, extra).tolist(), strict=True):
        yield Line(name, "co-location", 0.0, value, 0.0, prices.usd("co-location", value), "bill.co-location")


def _metered_parts(usage: Usage) -> tuple[str, ...]:
    """What was metered of a period; CPU-seconds have neither a price of electricity nor carbon.

    Where no grid's intensity is known there are no grams: a line of 0 would say that nothing was emitted.
    """
    if usage.metered != "energy":
        return "CPU time", "device time"
    known = len(usage.no_carbon) < len(usage.domains)
    return ("energy", "electricity", *(("carbon",) if known else ()), "device time")


def _lines(sharing: Sharing, rule: str, part: str, allocation: Allocation, prices: Prices) -> Iterator[Line]:
    facts = _facts(sharing, rule)
    for at, name in enumerate(sharing.names):
        own, shared = float(allocation.own[at]), float(allocation.shared[at])
        usd = prices.usd(part, own + shared)
        yield Line(name, part, own, shared, float(allocation.half_width[at]), usd, REASONS[rule], facts[at])


def _idle_lines(sharing: Sharing, rule: str, allocation: Allocation) -> Iterator[Line]:
    """What each payer answers for of devices that nobody held, in joules."""
    facts = _facts(sharing, rule)
    for at, name in enumerate(sharing.names):
        yield Line(name, "idle", 0.0, float(allocation.idle[at]), float(allocation.idle_half_width[at]), None,
                   REASONS[rule], facts[at])  # fmt: skip


def _facts(sharing: Sharing, rule: str) -> list[dict[str, Any]]:
    """What each payer's share rests on, as numbers for the sentence of the rule."""
    if rule == "shapley":
        needed = sum((peak.values for peak in sharing.peaks), np.zeros(len(sharing.names)))
        peak = sum(peak.total for peak in sharing.peaks)
        return [
            {"devices": float(value), "peak": float(peak), "of": int(sharing.usage.devices.sum())} for value in needed
        ]
    keys: FloatArray = {
        "reservation": sharing.held_s,
        "usage": sharing.metered("energy").dynamic + sharing.metered("energy").static,
        "cpu-time": sharing.busy_s,
        "max-request-use": sharing.asked_s,
    }[rule].sum(axis=1)
    whole = float(keys.sum())
    if rule == "max-request-use":
        whole = float(sharing.usage.devices.sum()) * sharing.usage.hours * 3600.0
    return [{"share": float(key) / whole if whole > 0 else 0.0} for key in keys]


def _congestion(names: tuple[str, ...], shares: CostShares, prices: Prices) -> Iterator[Line]:
    for name, value, width in zip(names, shares.values.tolist(), shares.half_width.tolist(), strict=True):
        yield Line(name, "congestion", 0.0, value, width, prices.usd("congestion", value), "bill.congestion")


def _by_domain(usage: Usage, rule: str, prices: Prices) -> Bill:
    """Where it was spent: nothing is shared between domains, so every rule says the same; egress has no one domain."""
    everyone = np.zeros(len(usage.tasks), dtype=np.int64)
    held_h = usage.total(usage.span_devices * usage.lengths_s[usage.span_interval], everyone, 1)[0] / 3600.0
    lines, meter = [], {}
    weights = {
        "energy": np.ones_like(usage.idle_j),
        "CPU time": np.ones_like(usage.idle_j),
        "electricity": usage.electricity_usd_per_j,
        "carbon": usage.carbon_g_per_j,
    }
    for part in _metered_parts(usage):
        weight = weights.get(part)
        if weight is None:
            own, shared = held_h, usage.devices * usage.hours - held_h
        else:
            each = (usage.span_dynamic_j + usage.span_static_j) * weight[usage.span_interval, usage.span_domain]
            own, shared = usage.total(each, everyone, 1)[0], (usage.idle_j * weight).sum(axis=0)
        if part == "energy":
            meter["idle"] = float(shared.sum())
            lines += [
                Line(name, "idle", 0.0, common, 0.0, None, "bill.domain")
                for name, common in zip(usage.domains, shared.tolist(), strict=True)
            ]
            shared = np.zeros_like(shared)
        meter[part] = float(own.sum() + shared.sum())
        for name, mine, common in zip(usage.domains, own.tolist(), shared.tolist(), strict=True):
            lines.append(Line(name, part, mine, common, 0.0, prices.usd(part, mine + common), "bill.domain"))
    unallocated = dict.fromkeys(meter, 0.0) | {"egress": usage.meter_egress_usd}
    meter["egress"] = usage.meter_egress_usd
    return Bill(
        "domain",
        rule,
        tuple(lines),
        unallocated,
        meter,
        True,
        {},
        usage.hours,
        float(usage.edges_s[0]),
        usage.provenance,
        usage.repeated,
        no_carbon=usage.no_carbon,
    )


def compare_rules(
    usage: Usage, by: str = "tenant", part: str = "energy", *, payer: str | None = None, orders: int = ORDERS
) -> pd.DataFrame:
    """The rules side by side: payers down, rules across, and what makes them differ.

    Beside the shares stand the payer's part of all device-hours held, of the common peak, and how many watts a device
    of its draws: who holds devices when nobody else does answers for less of the peak than of the hours.

    Args:
        usage: What was used.
        by: ``tenant``, ``task`` or ``model``.
        part: One of energy, electricity, carbon and device time.
        payer: As this payer may see it: all others in one row.
        orders: As in :func:`make_bill`.

    Raises:
        SettingsError: If nobody of that name is billed.
    """
    import pandas as pd

    sharing = Sharing(usage, by, orders=orders)
    columns: dict[str, FloatArray] = {}
    for rule in RULES:
        allocation = sharing.allocate(rule, part)
        # What is left of rounding is no rest.
        rest = allocation.unallocated if abs(allocation.unallocated) > 1e-12 * sharing.metered(part).total else 0.0
        columns[rule] = np.append(allocation.own + allocation.shared, rest)
    names, held = list(sharing.names), sharing.held_s.sum(axis=1)
    peak = sum((one.values for one in sharing.peaks), np.zeros(len(names)))
    metered = sharing.metered("energy")
    joules = (metered.dynamic + metered.static).sum(axis=1)
    if payer is not None:
        if payer not in names:
            raise SettingsError(problem(by, payer, "has no line in this bill", nearest(payer, names)))
        own = np.array([name == payer for name in names])
        both = np.stack([own, ~own]).astype(np.float64)
        columns = {rule: np.append(both @ amounts[:-1], amounts[-1]) for rule, amounts in columns.items()}
        names, held, peak, joules = [payer, OTHERS], both @ held, both @ peak, both @ joules
    columns["share of hours"] = np.append(held / max(held.sum(), 1e-300), np.nan)
    columns["share of peak"] = np.append(peak / max(peak.sum(), 1e-300), np.nan)
    columns["watts per device"] = np.append(np.divide(joules, held, out=np.zeros_like(held), where=held > 0), np.nan)
    return pd.DataFrame(columns, index=pd.Index([*names, NOBODY], name=by))
