"""The bill: one line for each payer and part, with its interval and its reason; lines and rest add up to the meters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from attribution_sched.billing.games import ORDERS, CostShares, co_location
from attribution_sched.billing.rules import RULES, Sharing
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
class Tariff:
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
        price = {
            "electricity": 1.0,
            "egress": 1.0,
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
        return replace(self, lines=(*own, *rest), core={}, operators=operators)

    def rows(self) -> Iterator[dict[str, Any]]:
        """A row for each line and for the rest, with plain values."""
        rest = (Line(NOBODY, part, 0.0, left, 0.0, None, "") for part, left in self.unallocated.items())
        for line in (*self.lines, *rest):
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
    prices: Tariff | None = None,
    congestion: CostShares | None = None,
    orders: int = ORDERS,
) -> Bill:
    """Write the bill of a period.

    Args:
        usage: What was used.
        by: ``tenant``, ``task``, ``model`` or ``domain``.
        rule: One of :data:`~attribution_sched.billing.rules.RULES`.
        prices: What is charged beside electricity and egress.
        congestion: CostShares of the delay, of the payers in their order; left out if nobody worked them out.
        orders: Orders drawn for more payers than can be exact.

    Raises:
        SettingsError: If an argument is wrong.
    """
    if by not in BY:
        raise SettingsError(problem("by", by, "is nobody who can be billed", nearest(by, BY)))
    if rule not in RULES:
        raise SettingsError(problem("rule", rule, "is no rule of billing", nearest(rule, RULES)))
    tariff = prices or Tariff()
    lines: list[Line] = []
    unallocated: dict[str, float] = {}
    meter: dict[str, float] = {}
    core: dict[str, CostShares] = {}
    operators: tuple[OperatorPart, ...] = ()
    if by == "domain":
        for part, total, booked in _by_domain(usage, tariff):
            meter[part], unallocated[part] = total, 0.0
            lines += booked
        meter["egress"] = unallocated["egress"] = usage.meter_egress_usd
    else:
        sharing = Sharing(usage, by, orders=orders)
        for part, total, left, booked in _by_payer(sharing, rule, tariff, congestion):
            meter[part], unallocated[part] = total, left
            lines += booked
        core = dict(zip(usage.domains, sharing.peaks, strict=True)) if rule == "shapley" else {}
        operators = tuple(_operators(sharing))
    exact = all(peak.exact for peak in core.values()) and (congestion is None or congestion.exact)
    return Bill(
        by, rule, tuple(lines), unallocated, meter, exact, core, usage.hours, float(usage.edges_s[0]), usage.provenance,
        usage.repeated, operators, usage.no_carbon,
    )  # fmt: skip


def _by_payer(
    sharing: Sharing, rule: str, tariff: Tariff, congestion: CostShares | None
) -> Iterator[tuple[str, float, float, Iterator[Line]]]:
    """Of each part its meter, what nobody answers for, and its lines."""
    names, usage, nothing, facts = sharing.names, sharing.usage, np.zeros(len(sharing.names)), _facts(sharing, rule)

    def lines(part: str, own: FloatArray, shared: FloatArray, width: FloatArray, reason: str = "") -> Iterator[Line]:
        return _lines(names, part, own, shared, tariff, reason or REASONS[rule], width, None if reason else facts)

    for part in _metered_parts(usage):
        allocation, metered = sharing.allocate(rule, part), sharing.metered(part)
        total, rest, shared = metered.total, allocation.unallocated, allocation.shared
        booked = lines(part, allocation.own, shared - allocation.idle * (part == "energy"), allocation.half_width)
        if part == "energy":
            idle = float(metered.idle.sum())
            left = idle - float(allocation.idle.sum())
            booked = chain(lines("idle", nothing, allocation.idle, allocation.idle_half_width), booked)
            yield part, total - idle, _unrounded(rest - left, total), booked
            yield "idle", idle, _unrounded(left, total), iter(())
        else:
            yield part, total, _unrounded(rest, total), booked
    egress = np.zeros(len(names))
    np.add.at(egress, sharing.group, [task.egress_usd for task in usage.tasks])
    yield "egress", usage.meter_egress_usd, 0.0, lines("egress", egress, nothing, nothing, "bill.egress")
    if congestion is not None:
        booked = lines("congestion", nothing, congestion.values, congestion.half_width, "bill.congestion")
        yield "congestion", congestion.total, congestion.total - float(congestion.values.sum()), booked
    if usage.slowed:
        booked = lines("co-location", nothing, _co_location(sharing), nothing, "bill.co-location")
        yield "co-location", sum(hours for _, _, hours in usage.slowed), 0.0, booked


def _unrounded(rest: float, total: float) -> float:
    """A rest; what is left of rounding is none."""
    return rest if abs(rest) > 1e-12 * total else 0.0


def _lines(
    names: tuple[str, ...], part: str, own: FloatArray, shared: FloatArray, tariff: Tariff, reason: str,
    width: FloatArray | None = None, facts: list[dict[str, Any]] | None = None,
) -> Iterator[Line]:  # fmt: skip
    """A line of each payer."""
    widths = np.zeros(len(names)) if width is None else width
    numbers = zip(names, own.tolist(), shared.tolist(), widths.tolist(), facts or [{}] * len(names), strict=True)
    for name, mine, common, half, fact in numbers:
        yield Line(name, part, mine, common, half, tariff.usd(part, mine + common), reason, fact)


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


def _co_location(sharing: Sharing) -> FloatArray:
    """Hours that tasks lost to others on their devices: a pair of payers shares what they cost each other equally."""
    extra = np.zeros((len(sharing.names), len(sharing.names)))
    for task, other, hours in sharing.usage.slowed:
        mine, theirs = sharing.group[task], sharing.group[other]
        extra[mine, theirs] += hours
        if mine != theirs:
            extra[theirs, mine] += hours
    alone = np.diag(extra).copy()
    np.fill_diagonal(extra, 0.0)
    return co_location(alone, extra)


def _metered_parts(usage: Usage) -> tuple[str, ...]:
    """What was metered of a period; CPU-seconds have neither a price of electricity nor carbon.

    Where no grid's intensity is known there are no grams: a line of 0 would say that nothing was emitted.
    """
    if usage.metered != "energy":
        return "CPU time", "device time"
    known = len(usage.no_carbon) < len(usage.domains)
    return ("energy", "electricity", *(("carbon",) if known else ()), "device time")


def _facts(sharing: Sharing, rule: str) -> list[dict[str, Any]]:
    """What each payer's share rests on, as numbers for the sentence of the rule."""
    if rule == "shapley":
        needed = sum((peak.values for peak in sharing.peaks), np.zeros(len(sharing.names)))
        peak = sum(peak.total for peak in sharing.peaks)
        return [
            {"devices": float(value), "peak": float(peak), "of": int(sharing.usage.devices.sum())} for value in needed
        ]
    keys = sharing.key(rule).sum(axis=1)
    whole = float(keys.sum())
    if rule == "max-request-use":
        whole = float(sharing.usage.devices.sum()) * sharing.usage.hours * 3600.0
    return [{"share": float(key) / whole if whole > 0 else 0.0} for key in keys]


def _by_domain(usage: Usage, tariff: Tariff) -> Iterator[tuple[str, float, Iterator[Line]]]:
    """Where it was spent: nothing is shared between domains, so every rule says the same; egress has no one domain."""
    everyone = np.zeros(len(usage.tasks), dtype=np.int64)
    held_h = usage.total(usage.span_devices * usage.lengths_s[usage.span_interval], everyone, 1)[0] / 3600.0
    for part in _metered_parts(usage):
        if part == "device time":
            own, shared = held_h, usage.devices * usage.hours - held_h
        else:
            weight = usage.per_joule(part)
            each = (usage.span_dynamic_j + usage.span_static_j) * weight[usage.span_interval, usage.span_domain]
            own, shared = usage.total(each, everyone, 1)[0], (usage.idle_j * weight).sum(axis=0)
        nothing = np.zeros_like(own)
        if part == "energy":
            yield "idle", float(shared.sum()), _lines(usage.domains, "idle", nothing, shared, tariff, "bill.domain")
            shared = nothing
        lines = _lines(usage.domains, part, own, shared, tariff, "bill.domain")
        yield part, float(own.sum() + shared.sum()), lines


def compare_rules(usage: Usage, by: str = "tenant", part: str = "energy", *, payer: str | None = None) -> pd.DataFrame:
    """The rules side by side: payers down, rules across, and what makes them differ.

    Beside the shares stand the payer's part of all device-hours held, of the common peak, and how many watts a device
    of its draws: who holds devices when nobody else does answers for less of the peak than of the hours.

    Args:
        usage: What was used.
        by: ``tenant``, ``task`` or ``model``.
        part: One of energy, electricity, carbon and device time.
        payer: As this payer may see it: all others in one row.

    Raises:
        SettingsError: If nobody of that name is billed.
    """
    import pandas as pd

    sharing = Sharing(usage, by)
    columns: dict[str, FloatArray] = {}
    for rule in RULES:
        allocation = sharing.allocate(rule, part)
        rest = _unrounded(allocation.unallocated, sharing.metered(part).total)
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
