"""From played episodes to figures with intervals: one row per policy and scenario, differences paired by episode."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attribution_sched.scheduler.arena.records import EpisodeRecord
from attribution_sched.scheduler.arena.stats import RESAMPLES, UNKNOWN, Estimate, PairedBootstrap, ratio
from attribution_sched.scheduler.episode import EpisodeSummary
from attribution_sched.scheduler.registry import UNIFORM

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Metric:
    """A figure of an episode: a field of its summary, or the quotient of the sums of two.

    Attributes:
        key: Name in results.
        heading: Heading in tables.
        form: How a value is printed.
        field: Field of :class:`EpisodeSummary`.
        over: Field it is divided by, if any.
        scale: Factor on the quotient.
    """

    key: str
    heading: str
    form: str
    field: str
    over: str | None = None
    scale: float = 1.0


METRICS: tuple[Metric, ...] = (
    Metric("return", "return", "{:+.1f}", "reward"),
    Metric("r_eff", "R_eff", "{:+.2f}", "r_eff"),
    Metric("r_util", "R_util", "{:.2f}", "r_util"),
    Metric("r_cost", "R_cost", "{:.2f}", "r_cost"),
    Metric("step_ratio", "step, × baseline", "{:.3f}", "running_h", "baseline_running_h"),
    Metric("step_s", "step, s", "{:.2f}", "running_h", "steps_done", 3600.0),
    Metric("energy_kwh", "energy, kWh", "{:,.0f}", "energy_kwh"),
    Metric("traffic_usd", "traffic, USD", "{:,.0f}", "traffic_usd"),
    Metric("deadline_misses", "deadlines missed", "{:.2f}", "deadline_misses"),
    Metric("refused", "refused", "{:.2f}", "refused_plans"),
    Metric("completed", "completed", "{:.1f}", "completed"),
    Metric("turned_away", "turned away", "{:.2f}", "turned_away"),
    Metric("moves", "moves", "{:.2f}", "moves"),
    Metric("waiting_h", "waiting, h", "{:.1f}", "waiting_h"),
    Metric("utilisation", "utilisation", "{:.3f}", "utilisation"),
    Metric("carbon_kg", "carbon, kg", "{:,.0f}", "carbon_kg"),
)
"""What is estimated for every policy, per episode."""


@dataclass(frozen=True)
class Latency:
    """Wall time of decisions, all episodes of a policy in a scenario together; NaN without a decision.

    Attributes:
        p50_ms: Median of all decisions.
        p99_ms: Their 99th percentile.
        plan_p50_ms: Median of the decisions that gave a plan. In a full cluster most decisions are a glance that
            ends in waiting, and the median of all says little about planning.
        decisions: How many were timed.
    """

    p50_ms: float
    p99_ms: float
    plan_p50_ms: float
    decisions: int


@dataclass(frozen=True)
class PolicyRow:
    """One policy in one scenario.

    Attributes:
        policy: Its name.
        metrics: Metric key → mean per episode with its interval.
        differences: Reference policy → metric key → this policy minus the reference, paired by episode.
        share: Share of the limit, see :func:`summarise`.
        latency: How long it took to decide.
    """

    policy: str
    metrics: Mapping[str, Estimate]
    differences: Mapping[str, Mapping[str, Estimate]]
    share: Estimate
    latency: Latency


@dataclass(frozen=True)
class ScenarioResult:
    """One scenario, its policies from the best return to the worst.

    Attributes:
        scenario: Its name.
        best: Policy with the highest mean return.
        limit: What the share of the limit refers to; None where there is none.
        rows: One per policy.
    """

    scenario: str
    best: str
    limit: str | None
    rows: tuple[PolicyRow, ...]

    def row(self, policy: str) -> PolicyRow:
        """Return the row of a policy."""
        return next(row for row in self.rows if row.policy == policy)


@dataclass(frozen=True)
class ArenaResult:
    """What an evaluation found; every figure can be made again from the records and the seed.

    Attributes:
        seed: Seed of the evaluation.
        episode_seeds: Seeds of the episodes, the same for every policy and scenario.
        resamples: Bootstrap resamples behind every interval.
        scenarios: Results by scenario, in the order asked for.
        records: All episodes, ordered by scenario, policy and seed.
    """

    seed: int
    episode_seeds: tuple[int, ...]
    resamples: int
    scenarios: tuple[ScenarioResult, ...]
    records: tuple[EpisodeRecord, ...]

    def scenario(self, name: str) -> ScenarioResult:
        """Return the result of a scenario."""
        return next(found for found in self.scenarios if found.scenario == name)

    def table(self, *, latency: bool = True) -> str:
        """Write the tables as Markdown; without latencies the same call always gives the same text."""
        from attribution_sched.scheduler.arena.report import markdown

        return markdown(self, latency=latency)

    def to_dict(self, *, latency: bool = True) -> dict[str, Any]:
        """Return everything but the records in plain types, ready for JSON."""
        from attribution_sched.scheduler.arena.report import plain

        return plain(self, latency=latency)


def summarise(
    scenario: str,
    played: Mapping[str, Sequence[EpisodeRecord]],
    *,
    seed: int,
    references: Sequence[str] = (),
    limit: str | None = None,
    bound: Sequence[float] | None = None,
    resamples: int = RESAMPLES,
) -> ScenarioResult:
    """Estimate every figure of a scenario.

    The share of the limit is ``(return − uniform) / (limit − uniform)`` of mean returns, where ``uniform`` is the
    static uniform split and ``limit`` the limit policy or a bound per episode. Means are divided, not episodes:
    an episode in which limit and uniform meet would make a quotient of its own meaningless.

    Args:
        scenario: Its name.
        played: Policy → its episodes, in the same order of seeds for all.
        seed: Seed of the resamples.
        references: Policies that differences are taken against; the best one is always added.
        limit: Policy that stands for the limit.
        bound: Highest possible return of each episode, in place of a limit policy.
        resamples: Bootstrap resamples.
    """
    names = list(played)
    episodes = len(next(iter(played.values())))
    bootstrap = PairedBootstrap(episodes, seed, resamples)
    draws = {name: _draws(bootstrap, [record.summary for record in played[name]]) for name in names}
    best = max(names, key=lambda name: float(draws[name]["return"][0]))
    against = dict.fromkeys([*(name for name in references if name in played), best])
    limit_draws = None
    if bound is not None:
        limit, limit_draws = "bound", bootstrap.means(np.asarray(bound, dtype=np.float64))
    elif limit is not None and limit in played:
        limit_draws = draws[limit]["return"]
    else:
        limit = None
    if UNIFORM not in played:
        limit, limit_draws = None, None
    rows = []
    for name in sorted(names, key=lambda name: -float(draws[name]["return"][0])):
        own = draws[name]
        share = UNKNOWN
        if limit_draws is not None:
            zero = draws[UNIFORM]["return"]
            share = bootstrap.estimate(ratio(own["return"] - zero, limit_draws - zero))
        rows.append(
            PolicyRow(
                policy=name,
                metrics={key: bootstrap.estimate(values) for key, values in own.items()},
                differences={
                    other: {key: bootstrap.estimate(own[key] - draws[other][key]) for key in own}
                    for other in against
                    if other != name
                },
                share=share,
                latency=_latency(played[name]),
            )
        )
    return ScenarioResult(scenario, best, limit, tuple(rows))


def _draws(bootstrap: PairedBootstrap, summaries: Sequence[EpisodeSummary]) -> dict[str, FloatArray]:
    """Metric key → its value over all episodes, then over every resample, shape ``(1 + resamples,)``."""
    names = [field.name for field in fields(EpisodeSummary) if field.name != "policy"]
    table = np.array([[float(getattr(summary, name)) for name in names] for summary in summaries])
    means = dict(zip(names, bootstrap.means(table).T, strict=True))
    return {
        metric.key: means[metric.field]
        if metric.over is None
        else metric.scale * ratio(means[metric.field], means[metric.over])
        for metric in METRICS
    }


def _latency(records: Sequence[EpisodeRecord]) -> Latency:
    planned = [us for record in records for us in record.plan_us]
    every = planned + [us for record in records for us in record.pass_us]
    p50, p99 = (float(np.percentile(every, q)) / 1e3 if every else math.nan for q in (50, 99))
    return Latency(p50, p99, float(np.median(planned)) / 1e3 if planned else math.nan, len(every))
