"""Grams by the hour: thinking that pays for carbon against the cleanest grid first by annual mean, on the same days.

    python benchmarks/carbon_days.py --days 24 --seed 1960000
    python benchmarks/carbon_days.py --days 24 --seed 1962000 --without-bpat
    python benchmarks/carbon_days.py --quick     # sjf 615.7 kg per 1,000 baseline hours, cleanest-first 583.2

Every day begins at another hour of the year and has its own deviations of the four grids from their profiles. Grams are
location-based average intensity, accounted, idle devices that hold no task not included; they are told per thousand
baseline hours of work done, so that a policy gains nothing by leaving work undone. Intervals: 95 %, paired by day. The
last rows play one change each: carbon known as its annual mean only, and no carbon price at all.

    python benchmarks/carbon_days.py --frontier --days 4 --seed 1970000 --load 1.5

plays every policy with more work than the devices hold, and tells grams × delay × dollars for the same work, with 95 %
intervals paired by day (``--json FILE`` keeps the rows, so that policies may be played in several calls); those that no
other beats in all three are named. Grams at a flat marginal intensity, the same everywhere and always, are the energy:
that column says what is left of a saving if every kilowatt-hour displaces the same plant.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from attribution_sched.cluster.decision import Decision
from attribution_sched.cluster.plan import Plan
from attribution_sched.cluster.signals import Grid
from attribution_sched.cluster.world import World
from attribution_sched.config import load_settings
from attribution_sched.scheduler.episode import EpisodeSummary, play
from attribution_sched.scheduler.hi_ppo.rule import RuleFork
from attribution_sched.scheduler.registry import make_policy
from attribution_sched.scheduler.thinking import Think
from attribution_sched.stats.bootstrap import PairedBootstrap

PRESET = "cross-domain"


def world_of(number: int, price: float, w_cost: float, *, without_bpat: bool = False) -> World:
    """A day of the preset at a carbon price and a weight of cost; day and grids hang on its number alone."""
    rng = np.random.default_rng([20261117, number])
    begins = int(rng.integers(365)) * 24
    world = load_settings(PRESET).build_world()
    domains = []
    for k, domain in enumerate(world.cluster.domains):
        name = domain.carbon.name if isinstance(domain.carbon, Grid) else ""
        if without_bpat and name == "BPAT":
            # Oregon's neighbour: the same hardware and links on California's grid, with deviations of its own.
            name = "CISO"
        grid = Grid(name, seed=int(rng.integers(2**31)) + k, start_h=float(begins))
        domains.append(replace(domain, carbon=grid, carbon_g_per_kwh=grid.annual_mean))
    cluster = replace(world.cluster, domains=tuple(domains))
    return replace(world, cluster=cluster, reward=replace(world.reward, carbon_usd_per_kg=price, w_cost=w_cost))


class AnnualMean:
    """A policy that is told the annual mean of every grid in place of its hours."""

    def __init__(self, policy: Any) -> None:
        self.policy, self.name = policy, f"{policy.name}, annual mean"

    def __getattr__(self, name: str) -> Any:
        return getattr(self.policy, name)

    def select(self, view: Decision) -> int:
        """Which task goes first."""
        return int(self.policy.select(self._told(view)))

    def decide(self, view: Decision) -> Plan | None:
        """The policy's plan."""
        plan: Plan | None = self.policy.decide(self._told(view))
        return plan

    def _told(self, view: Decision) -> Decision:
        moment = view.moment
        if moment is None:
            return view
        world = moment.world
        domains = tuple(replace(domain, carbon=None) for domain in world.cluster.domains)
        blind = replace(world, cluster=replace(world.cluster, domains=domains))
        arrays = moment.arrays._replace(signals=np.ones_like(moment.arrays.signals))
        return replace(view, moment=replace(moment, world=blind, arrays=arrays))


def grams(day: EpisodeSummary) -> float:
    """Kilograms per thousand baseline hours of work done."""
    return 1e3 * day.carbon_kg / day.baseline_running_h


def slowness(day: EpisodeSummary) -> float:
    """Hours that tasks spent in the cluster over the baseline hours of the work done, less one: −R_eff of all work."""
    return -day.r_eff / day.baseline_running_h


FRONTIER = (
    "fcfs", "sjf", "cleanest-first", "round-robin", "least-loaded", "greedy-bandwidth", "greedy", "mast",
    "dual-smoothing", "exact-switch", "rule", "rule+fork", "rule+fork, 1000 USD/kg, w_cost 2", "hi-ppo[propose]",
    "hi-ppo[quick]", "hi-ppo", "sjf+correct", "speed-proportional", "integer-programme", "sailor",
)  # fmt: skip
"""Policies of the frontier; the uniform split is left out, whose plans are the baseline itself."""


Frontier = dict[str, list[list[float]]]
"""Policy → rows of a day: grams, delay, dollars and energy of the same work, and the share of busy devices."""


def frontier(days: int, seed: int, load: float, only: str, kept: str) -> None:
    """Grams, delay and dollars of every policy on the same days, with capacity binding.

    Args:
        days: How many.
        seed: Number of the first.
        load: Arrivals, times the preset's.
        only: Policies whose name holds one of these words.
        kept: File with rows of policies that were played on the same days before; those played now are added to it.
    """
    path = Path(kept or "/dev/null")
    found: Frontier = json.loads(path.read_text("utf-8")) if path.is_file() else {}
    for label in (name for name in FRONTIER if any(word in name for word in only.split(","))):
        priced = "USD/kg" in label
        policy: Any = RuleFork(think=Think()) if label.startswith("rule+fork") else make_policy(label)
        rows: list[list[float]] = found.setdefault(label, [])
        for number in range(seed + len(rows), seed + days):
            world = world_of(number, 1000.0 if priced else 0.1, 2.0 if priced else 0.5)
            rate = replace(world.arrivals, rate_per_hour=load * world.arrivals.rate_per_hour)  # type: ignore[union-attr,call-arg,type-var]
            day = play(replace(world, arrivals=rate), policy, number)
            work = day.baseline_running_h
            usd = day.traffic_usd + day.electricity_usd
            rows.append(
                [grams(day), slowness(day), 1e3 * usd / work, 1e3 * day.task_energy_kwh / work, day.utilisation]
            )
            print(f"  {label}, day {number}: {rows[-1][0]:.1f} kg/kh, delay {rows[-1][1]:.2f}", flush=True)
            if kept:
                path.write_text(json.dumps(found), "utf-8")
    print_frontier(found)


def print_frontier(found: Frontier) -> None:
    """The table with 95 % intervals, paired by day with ``cleanest-first``, and who is not beaten in all three."""
    days = min(len(rows) for rows in found.values())
    table = {label: np.array(rows)[:days] for label, rows in found.items()}
    against = table.get("cleanest-first")
    boot = PairedBootstrap(days, seed=0)
    print("| policy | grams, kg | delay | USD | kWh (flat marginal intensity) | busy |\n|---|---|---|---|---|---|")
    for label, rows in sorted(table.items(), key=lambda each: float(each[1][:, 0].mean())):
        cells = [label]
        for at, digits in enumerate((1, 2, 0, 0)):
            cell = f"{rows[:, at].mean():,.{digits}f}"
            if against is not None and against is not rows and days > 1:
                # The delay has a zero of its own; what is above it is told in its unit.
                unit, off = (
                    ("", rows[:, 1] - against[:, 1])
                    if at == 1
                    else (" %", 100.0 * (rows[:, at] / against[:, at] - 1.0))
                )
                gap, places = boot.estimate(boot.means(off)), 2 if at == 1 else 1
                cell += f", {gap.value:+.{places}f}{unit} [{gap.low:+.{places}f}, {gap.high:+.{places}f}]"
            cells.append(cell)
        print(f"| {' | '.join(cells)} | {rows[:, 4].mean():.2f} |", flush=True)
    means = {label: rows.mean(axis=0)[:3] for label, rows in table.items()}
    best = [a for a, own in means.items() if not any((o <= own).all() and (o < own).any() for o in means.values())]
    print(f"{days} days; not beaten in all three: " + "; ".join(best), flush=True)


def main() -> None:
    """Play the days and print the table."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--days", type=int, default=12)
    asked.add_argument("--seed", type=int, default=1_960_000)
    asked.add_argument("--prices", default="100", help="USD per kg that thinking pays for carbon, comma-separated")
    asked.add_argument("--w-cost", type=float, default=0.5, help="weight of R_cost while thinking pays for carbon")
    asked.add_argument("--only", default="", help="arms whose label holds one of these words, comma-separated")
    asked.add_argument("--without-bpat", action="store_true")
    asked.add_argument("--json", default="", help="file of the days that were played; those are not played again")
    asked.add_argument("--quick", action="store_true", help="four days, the two rules without thinking")
    asked.add_argument("--frontier", action="store_true", help="every policy, with capacity binding")
    asked.add_argument("--load", type=float, default=1.5, help="arrivals of the frontier, times the preset's")
    given = asked.parse_args()
    if given.quick:
        given.days, given.seed, given.only = 4, 4_400_000, "sjf,cleanest"
    if given.frontier:
        frontier(given.days, given.seed, given.load, given.only, given.json)
        return
    prices = [float(price) for price in given.prices.split(",")]
    think = Think()
    arms: list[tuple[str, float, Any]] = [
        ("sjf", 0.1, lambda: make_policy("sjf")),
        ("cleanest-first", 0.1, lambda: make_policy("cleanest-first")),
        ("rule", 0.1, lambda: make_policy("rule")),
        ("rule+fork, no price", 0.0, lambda: RuleFork(think=think)),
    ]
    arms += [(f"rule+fork, {price:g} USD/kg", price, lambda: RuleFork(think=think)) for price in prices]
    arms.append((f"the same, annual mean ({prices[-1]:g})", prices[-1], lambda: AnnualMean(RuleFork(think=think))))
    path = Path(given.json or "/dev/null")
    kept = json.loads(path.read_text("utf-8")) if path.is_file() else {}
    played: dict[str, list[EpisodeSummary]] = {}
    wanted = given.only.split(",")
    for label, price, make in (arm for arm in arms if any(word in arm[0] for word in wanted)):
        policy, weight = make(), given.w_cost if price > 1.0 else 0.5
        days = played[label] = [EpisodeSummary(**day) for day in kept.get(label, [])][: given.days]
        for number in range(given.seed + len(days), given.seed + given.days):
            days.append(play(world_of(number, price, weight, without_bpat=given.without_bpat), policy, number))
            kept[label] = [vars(day) for day in days]
            if given.json:
                path.write_text(json.dumps(kept), "utf-8")
        print_row(label, days, played.get("cleanest-first"))


def print_row(label: str, days: list[EpisodeSummary], against: list[EpisodeSummary] | None) -> None:
    """One policy: grams, time, dollars; and both over cleanest-first, paired."""
    mean = {
        name: float(np.mean([getattr(d, name) for d in days]))
        for name in ("carbon_kg", "r_eff", "traffic_usd", "waiting_h", "baseline_running_h")
    }
    line = (
        f"{label:36s} {np.mean([grams(d) for d in days]):8.1f} kg/kh  {mean['carbon_kg']:6.1f} kg/day"
        f"  R_eff {mean['r_eff']:7.2f}  waited {mean['waiting_h']:5.1f} h  {mean['traffic_usd']:6.0f} USD"
        f"  work {mean['baseline_running_h']:6.1f} h"
    )
    if against is not None and against is not days:
        ratio = np.array([grams(d) / grams(a) - 1.0 for d, a in zip(days, against, strict=True)])
        slower = np.array([slowness(d) - slowness(a) for d, a in zip(days, against, strict=True)])
        boot = PairedBootstrap(len(days), seed=0)
        found, late = (boot.estimate(boot.means(100.0 * values)) for values in (ratio, -slower))
        line += (
            f"\n{'':36s} grams {found.value:+.1f} % [{found.low:+.1f}, {found.high:+.1f}] of cleanest-first,"
            f" R_eff of the work {late.value:+.2f} % [{late.low:+.2f}, {late.high:+.2f}]"
        )
    print(line, flush=True)


if __name__ == "__main__":
    main()
