"""What people and programs read of an evaluation: JSON, a table, a plot. Files appear whole or not at all."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import tempfile
from pathlib import Path
from typing import Any

from attribution_sched import __version__
from attribution_sched.scheduler.arena.result import METRICS, ArenaResult, PolicyRow, ScenarioResult
from attribution_sched.scheduler.arena.stats import CONFIDENCE, Estimate
from attribution_sched.scheduler.registry import UNIFORM

MISSING = "n/a"
WITH_INTERVAL = ("return",)
"""Metrics whose interval is printed in tables; all intervals are in the JSON."""

TABLED = (
    "return", "r_eff", "r_util", "r_cost", "step_ratio", "energy_kwh", "traffic_usd", "deadline_misses", "refused",
)  # fmt: skip
"""Metrics that tables show."""

JSON_FILE, TABLE_FILE, PLOT_FILE = "results.json", "table.md", "plot.png"


def number(value: float, form: str) -> str:
    """Print a figure, or that there is none."""
    return form.format(value) if math.isfinite(value) else MISSING


def interval(found: Estimate, form: str) -> str:
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


def markdown(result: ArenaResult, *, latency: bool = True) -> str:
    """Write one table per scenario as Markdown."""
    first, last, count = result.episode_seeds[0], result.episode_seeds[-1], len(result.episode_seeds)
    played = f"{count} held-out episodes (seeds {first:,} to {last:,})" if count > 1 else f"Held-out episode {first:,}"
    lines = [
        f"{played} per policy and scenario, the same for all. Figures are means per episode, simulated; brackets are "
        f"{CONFIDENCE:.0%} intervals of a paired bootstrap ({result.resamples:,} resamples).",
    ]
    for scenario in result.scenarios:
        titles = headings(latency=latency)
        lines += ["", f"## {scenario.scenario}", "", f"Best: {scenario.best}. Limit: {scenario.limit or MISSING}.", ""]
        lines += ["| " + " | ".join(titles) + " |", "|---" + "|---:" * (len(titles) - 1) + "|"]
        lines += ["| " + " | ".join(cells(scenario, row, latency=latency)) + " |" for row in scenario.rows]
    return "\n".join(lines) + "\n"


def plain(result: ArenaResult, *, latency: bool = True) -> dict[str, Any]:
    """Return everything but the records in plain types; what is not known is None."""
    return {
        "version": __version__,
        "seed": result.seed,
        "episode_seeds": list(result.episode_seeds),
        "confidence": CONFIDENCE,
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
    from attribution_sched.scheduler.arena.plot import draw

    folder.mkdir(parents=True, exist_ok=True)
    files = folder / JSON_FILE, folder / TABLE_FILE, folder / PLOT_FILE
    write_whole(files[0], (json.dumps(plain(result), indent=2) + "\n").encode())
    write_whole(files[1], markdown(result).encode())
    write_whole(files[2], draw(result))
    return files


def write_whole(path: Path, data: bytes) -> None:
    """Write a file beside its place and move it there, so that no reader ever meets half of it."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
