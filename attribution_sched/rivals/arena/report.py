"""The result of an evaluation: figures with intervals, and how they are read: as JSON, a table, a plot.

One row per policy and scenario, differences paired by episode. The plot sets return against decision latency, one panel
per scenario, policies labelled directly. Files appear whole or not at all.
"""

from __future__ import annotations

import dataclasses
import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from attribution_sched import __version__
from attribution_sched.rivals.arena.records import EpisodeRecord
from attribution_sched.scheduler.episode import EpisodeSummary
from attribution_sched.scheduler.registry import UNIFORM
from attribution_sched.stats.bootstrap import RESAMPLES, UNKNOWN, BootstrapInterval, PairedBootstrap, ratio
from attribution_sched.stats.interval import LEVEL
from attribution_sched.storage import replace_file
from attribution_sched.types import FloatArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.text import Annotation


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
    Metric("carbon_kg", "carbon, kg", "{:,.1f}", "carbon_kg"),
    Metric("mean_completion_h", "completion, h", "{:.2f}", "mean_completion_h"),
    Metric("p95_completion_h", "95th percentile, h", "{:.2f}", "p95_completion_h"),
    Metric("mean_queue_h", "in the queue, h", "{:.2f}", "waiting_h", "arrived"),
    Metric("gpu_h", "device-hours", "{:,.0f}", "gpu_h"),
    Metric("electricity_usd", "electricity, USD", "{:,.1f}", "electricity_usd"),
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
    metrics: Mapping[str, BootstrapInterval]
    differences: Mapping[str, Mapping[str, BootstrapInterval]]
    share: BootstrapInterval
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
        return markdown(self, latency=latency)

    def to_dict(self, *, latency: bool = True) -> dict[str, Any]:
        """Return everything but the records in plain types, ready for JSON."""
        return plain(self, latency=latency)


def summarise(
    scenario: str,
    played: Mapping[str, Sequence[EpisodeRecord]],
    *,
    seed: int,
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
        limit: Policy that stands for the limit.
        bound: Highest possible return of each episode, in place of a limit policy.
        resamples: Bootstrap resamples.
    """
    names = list(played)
    episodes = len(next(iter(played.values())))
    bootstrap = PairedBootstrap(episodes, seed, resamples)
    draws = {name: _draws(bootstrap, [record.summary for record in played[name]]) for name in names}
    best = max(names, key=lambda name: float(draws[name]["return"][0]))
    # Differences are taken against the static uniform split and the best.
    against = dict.fromkeys([name for name in (UNIFORM, best) if name in played])
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


MISSING = "n/a"
WITH_INTERVAL = ("return",)
"""Metrics whose interval is printed in tables; all intervals are in the JSON."""

TABLED = (
    "return", "r_eff", "r_util", "r_cost", "step_ratio", "energy_kwh", "traffic_usd", "deadline_misses", "refused",
)  # fmt: skip
"""Metrics that tables show."""

ABSOLUTE = (
    "completed", "mean_completion_h", "p95_completion_h", "mean_queue_h", "gpu_h", "energy_kwh", "electricity_usd",
    "traffic_usd", "carbon_kg",
)  # fmt: skip
"""Metrics of the table beside it, in units of their own: R has a baseline, which another world has another of."""

ACROSS = "In absolute units; comparisons across worlds use these, because R is against the baseline of its own world."

JSON_FILE, TABLE_FILE, PLOT_FILE = "results.json", "table.md", "plot.png"


def number(value: float, form: str) -> str:
    """Print a figure, or that there is none."""
    return form.format(value) if math.isfinite(value) else MISSING


def interval(found: BootstrapInterval, form: str) -> str:
    """Print a figure with its interval, as far as they are known."""
    if not found.bounded:
        return number(found.value, form)
    return f"{form.format(found.value)} [{form.format(found.low)}, {form.format(found.high)}]"


def headings(*, latency: bool = True) -> list[str]:
    """Headings of the tables."""
    named = {metric.key: metric.heading for metric in METRICS}
    found = ["policy", "return [95 %]", "− best", f"− {UNIFORM}", "share of the limit"]
    found += [named[key] for key in TABLED if key not in WITH_INTERVAL]
    return [*found, "p50, ms", "p99, ms", "plan p50, ms"] if latency else found


def cells(result: ScenarioResult, row: PolicyRow, *, latency: bool = True) -> list[str]:
    """One row of the table of a scenario."""
    forms = {metric.key: metric.form for metric in METRICS}
    found = [row.policy, interval(row.metrics["return"], forms["return"])]
    for other in (result.best, UNIFORM):
        versus = row.differences.get(other)
        found.append("—" if other == row.policy else interval(versus["return"], "{:+.1f}") if versus else MISSING)
    found.append(interval(row.share, "{:.1%}"))
    found += [number(row.metrics[key].value, forms[key]) for key in TABLED if key not in WITH_INTERVAL]
    if latency:
        times = row.latency
        found += [number(ms, "{:.2f}") for ms in (times.p50_ms, times.p99_ms, times.plan_p50_ms)]
    return found


def absolute(result: ScenarioResult) -> tuple[list[str], list[list[str]]]:
    """Headings and rows of the table in absolute units, policies in the order of the other."""
    known = {metric.key: metric for metric in METRICS}
    rows = [[row.policy, *(number(row.metrics[key].value, known[key].form) for key in ABSOLUTE)] for row in result.rows]
    return ["policy", *(known[key].heading for key in ABSOLUTE)], rows


def markdown(result: ArenaResult, *, latency: bool = True) -> str:
    """Write one table per scenario as Markdown."""
    first, last, count = result.episode_seeds[0], result.episode_seeds[-1], len(result.episode_seeds)
    played = f"{count} held-out episodes (seeds {first:,} to {last:,})" if count > 1 else f"Held-out episode {first:,}"
    lines = [
        f"{played} per policy and scenario, the same for all. Figures are means per episode, simulated; brackets are "
        f"{LEVEL:.0%} intervals of a paired bootstrap ({result.resamples:,} resamples).",
    ]
    for scenario in result.scenarios:
        titles = headings(latency=latency)
        lines += ["", f"## {scenario.scenario}", "", f"Best: {scenario.best}. Limit: {scenario.limit or MISSING}.", ""]
        lines += ["| " + " | ".join(titles) + " |", "|---" + "|---:" * (len(titles) - 1) + "|"]
        lines += ["| " + " | ".join(cells(scenario, row, latency=latency)) + " |" for row in scenario.rows]
        titles, rows = absolute(scenario)
        lines += ["", ACROSS, "", "| " + " | ".join(titles) + " |", "|---" + "|---:" * (len(titles) - 1) + "|"]
        lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def plain(result: ArenaResult, *, latency: bool = True) -> dict[str, Any]:
    """Return everything but the records in plain types; what is not known is None."""
    return {
        "version": __version__,
        "seed": result.seed,
        "episode_seeds": list(result.episode_seeds),
        "confidence": LEVEL,
        "resamples": result.resamples,
        "scenarios": {
            scenario.scenario: {
                "best": scenario.best,
                "limit": scenario.limit,
                "policies": {row.policy: _plain_row(row, latency) for row in scenario.rows},
            }
            for scenario in result.scenarios
        },
    }


def _plain_row(row: PolicyRow, latency: bool) -> dict[str, Any]:
    found: dict[str, Any] = {
        "metrics": {key: _plain(value) for key, value in row.metrics.items()},
        "minus": {
            other: {key: _plain(value) for key, value in values.items()} for other, values in row.differences.items()
        },
        "share_of_limit": _plain(row.share),
    }
    if latency:
        found["latency"] = _plain(row.latency)
    return found


def _plain(record: Any) -> dict[str, float | None]:
    values = dataclasses.asdict(record)
    return {name: value if math.isfinite(value) else None for name, value in values.items()}


def write_report(result: ArenaResult, folder: Path) -> tuple[Path, Path, Path]:
    """Write JSON, table and plot into a folder.

    Returns:
        The three files.
    """
    folder.mkdir(parents=True, exist_ok=True)
    files = folder / JSON_FILE, folder / TABLE_FILE, folder / PLOT_FILE
    replace_file(files[0], (json.dumps(plain(result), indent=2) + "\n").encode())
    replace_file(files[1], markdown(result).encode())
    replace_file(files[2], draw(result))
    return files


COLOURS = ("#0072B2", "#D55E00", "#009E73", "#B3548A", "#3795CC", "#B87C00", "#000000", "#7A6A00")
"""Okabe and Ito's palette for any kind of colour vision; light tones are darkened, as names are written in them."""

MARKERS = ("o", "s", "D", "^", "P", "X")
"""The first goes with the first round of colours, the second with the second."""

Styles = Mapping[str, tuple[str, str]]
"""Policy → colour and marker, the same in all panels."""

COLUMNS = 3
PANEL_INCHES, LONE_PANEL_INCHES = (5.2, 4.0), (7.5, 5.0)
LEAST_LATENCY_MS = 1e-3
"""The records resolve no less; what is faster, or never gave a plan, is drawn here."""

FAR_BELOW = 1.2
"""A policy is drawn at the lower edge if the gap above it is so many times the span of all better ones."""

LINE_POINTS = 11.0
"""Between the names of two policies."""


def draw(result: ArenaResult, *, dpi: int = 150) -> bytes:
    """Draw all scenarios as small multiples; returns a PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    count = len(result.scenarios)
    columns = min(COLUMNS, count)
    rows = math.ceil(count / columns)
    width, height = PANEL_INCHES if count > 1 else LONE_PANEL_INCHES
    figure = Figure(figsize=(width * columns, height * rows + 0.5), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(rows, columns, sharex=True, squeeze=False)
    styles = styles_of(dict.fromkeys(record.policy for record in result.records))
    latencies = [latency_ms(row) for scenario in result.scenarios for row in scenario.rows]
    panels[0, 0].set_xscale("log")
    # Names stand at the right.
    panels[0, 0].set_xlim(min(latencies) / 3.0, max(latencies) * 30.0)
    for i, ax in enumerate(panels.flat):
        if i >= count:
            ax.set_visible(False)
            continue
        draw_scenario(ax, result.scenarios[i], styles)
        if i + columns >= count:
            ax.set_xlabel("latency of a decision that gives a plan, median (ms, log scale)")
            ax.tick_params(labelbottom=True)
    for ax in panels[:, 0]:
        ax.set_ylabel("return per episode")
    episodes = len(result.episode_seeds)
    title = f"Return and decision latency: {episodes} held-out episode{'s' if episodes > 1 else ''} each (simulated)\n"
    title += "bars are 95 % intervals, ▼ is off the scale"
    figure.suptitle(title, fontsize=10)
    figure.draw_without_rendering()
    for ax, scenario in zip(panels.flat, result.scenarios, strict=False):
        place_labels(ax, scenario, styles)
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=dpi)
    return out.getvalue()


def styles_of(policies: Mapping[str, object]) -> Styles:
    """Give every policy its colour and marker."""
    n = len(COLOURS)
    return {name: (COLOURS[i % n], MARKERS[i // n % len(MARKERS)]) for i, name in enumerate(policies)}


def latency_ms(row: PolicyRow) -> float:
    """Where a policy stands on the horizontal axis."""
    found = row.latency.plan_p50_ms
    return max(found, LEAST_LATENCY_MS) if math.isfinite(found) else LEAST_LATENCY_MS


def far_below(rows: Sequence[PolicyRow]) -> tuple[str, ...]:
    """The worst policies, a third of all at most, if showing them to scale would press the others together."""
    returns = [row.metrics["return"].value for row in rows]
    for i in range(max(2, math.ceil(2 * len(rows) / 3)), len(rows)):
        if returns[i - 1] - returns[i] > FAR_BELOW * (returns[0] - returns[i - 1]):
            return tuple(row.policy for row in rows[i:])
    return ()


def draw_scenario(ax: Axes, result: ScenarioResult, styles: Styles) -> Axes:
    """Draw the points of one scenario; labels follow when the axes have their final size."""
    below = far_below(result.rows)
    shown = [row for row in result.rows if row.policy not in below]
    for row in shown:
        colour, marker = styles[row.policy]
        found, x = row.metrics["return"], latency_ms(row)
        if found.bounded:
            ax.plot([x, x], [found.low, found.high], color=colour, linewidth=1.6, alpha=0.5, solid_capstyle="butt")
        ax.plot([x], [found.value], marker, color=colour, markersize=6.5, markeredgecolor="white", zorder=3)
    ax.margins(y=0.14)
    if below:
        low, high = ax.get_ylim()
        ax.set_ylim(low - 0.14 * (high - low), high)
    for row in result.rows:
        if row.policy in below:
            transform = ax.get_xaxis_transform()
            ax.plot([latency_ms(row)], [0.035], "v", color=styles[row.policy][0], markersize=6.5, transform=transform)
    ax.set_title(result.scenario, loc="left", fontsize=10, fontweight="bold")
    ax.grid(True, which="major", axis="both", color="#dddddd", linewidth=0.6)
    ax.set_axisbelow(True)
    ax.xaxis.set_major_formatter("{x:g}")
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    return ax


def place_labels(ax: Axes, result: ScenarioResult, styles: Styles) -> list[Annotation]:
    """Write policies' names at the right edge, each as level with its point as others leave room, and a line to it."""
    below, (low, high) = far_below(result.rows), ax.get_ylim()
    gap = LINE_POINTS / 72.0 * ax.figure.dpi / ax.get_window_extent().height * (high - low)
    level = [
        low + 0.035 * (high - low) if row.policy in below else row.metrics["return"].value
        for row in reversed(result.rows)
    ]
    heights, least = list(level), low + gap / 2
    for i, at in enumerate(level):
        heights[i] = max(at, least)
        least = heights[i] + gap
    most = high - gap / 2
    for i in reversed(range(len(heights))):
        heights[i] = min(heights[i], most)
        most = heights[i] - gap
    labels = []
    for row, y, height in zip(reversed(result.rows), level, heights, strict=True):
        colour, name = styles[row.policy][0], row.policy
        if name in below:
            name += f" ({row.metrics['return'].value:+.0f})"
        label = ax.annotate(
            name, (latency_ms(row), y), xytext=(0.99, height), textcoords=("axes fraction", "data"), fontsize=8,
            color=colour, ha="right", va="center", zorder=4,
            arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.6, "alpha": 0.6},
        )  # fmt: skip
        labels.append(label)
    return labels
