"""A result and the summary of a run as text, and as HTML for a notebook."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from attribution_sched.attribution.vector import ACCOUNTING, QUESTIONS
from attribution_sched.explain.digits import number
from attribution_sched.words.duration import duration

if TYPE_CHECKING:
    from attribution_sched.attribution.vector import AttributionVector
    from attribution_sched.system.results import OutcomeInfo, RunSummary, SchedulingResult

BAR = 24
"""Characters of the longest bar in text."""

COLOURS = ("#c2410c", "#1d4ed8")
"""Joules that a counter adds, and that it takes away (conditional and marginal values only)."""


def _rows(result: SchedulingResult) -> list[tuple[str, str]]:
    """What is told of a result, a word and a line each; its joules come after ``joules``."""
    decision, asked = result.decision, _asked(result)
    return [
        ("plan", f"{decision.words}  [{decision.policy}: {decision.source}]"),
        ("outcome", f"{result.outcome.says}; {_outcome(result)}"),
        ("reward", _reward(result)),
        *(("breach", str(each)) for each in result.breaches),
        *([("note", result.note)] if result.note else []),
        *([("asked", asked)] if asked else []),
        ("joules", _base(result)),
        ("time", ", ".join(f"{part} {1e3 * s:.1f} ms" for part, s in result.latencies_s.items())),
        ("numbers", ", ".join(f"{name} {how}" for name, how in result.provenance.items())),
    ]


def _head(result: SchedulingResult) -> str:
    return f"{result.id}  {result.task.kind} ({result.task.id}) at {duration(result.cluster_time_s)}"


def as_text(result: SchedulingResult) -> str:
    """A result as a few lines."""
    lines = [f"{_head(result)}, waited {duration(result.task.waited_s)}"]
    vector = result.attribution
    largest = max(float(abs(vector.values).max()), 1e-300)
    for word, line in _rows(result):
        lines.append(f"  {word:<8} {line}")
        for name in vector.ranking() if word == "joules" else ():
            value = float(vector[name])
            bar = ("+" if value >= 0 else "-") * round(BAR * abs(value) / largest)
            lines.append(f"           {name:<17} {_part(vector, name)}  {bar}".rstrip())
    if result.explanation is not None:
        lines.append(f"  why      {result.reasoning()}")
    return "\n".join(lines)


def as_html(result: SchedulingResult) -> str:
    """A result for a notebook: no script, no address."""
    cells = "".join(
        f'<tr><th style="text-align:left;vertical-align:top">{word}</th>'
        f'<td style="text-align:left">{escape(line)}{_bars(result) if word == "joules" else ""}</td></tr>'
        for word, line in _rows(result)
    )
    why = "" if result.explanation is None else result.explanation._repr_html_()
    return f"<div><b>{escape(_head(result))}</b><table>{cells}</table>{why}</div>"


def summary_text(summary: RunSummary) -> str:
    """A run as a few lines."""
    lines = [
        f"{summary.decisions} decisions in {summary.wall_s:.1f} s, {duration(3600 * summary.cluster_h)} on the cluster "
        f"({summary.stopped})",
        f"  placed {summary.placed}, moved {summary.moved}, refused {summary.refused}, completed {summary.completed}, "
        f"turned away {summary.turned_away}; {summary.running} running, {summary.waiting} waiting",
        f"  {summary.energy_kwh:,.2f} kWh, {summary.traffic_usd:,.2f} USD of traffic, "
        f"{summary.electricity_usd:,.2f} USD of electricity",
        f"  {summary.carbon_kg:,.2f} kg CO2e of tasks, {summary.idle_carbon_kg:,.2f} of idle devices, "
        f"{summary.network_carbon_kg:,.2f} of the network (accounted, location-based average)"
        if summary.carbon_known
        else "  carbon intensity not given",
        f"  {summary.gpu_h:,.1f} device-hours of computing, {duration(3600 * summary.waiting_h)} in the queue",
    ]
    if summary.mean_completion_h is not None and summary.p95_completion_h is not None:
        lines.append(
            f"  from arrival to finish: mean {duration(3600 * summary.mean_completion_h)}, 95th percentile "
            f"{duration(3600 * summary.p95_completion_h)}"
        )
    if summary.missed or summary.breaches or summary.set_aside:
        lines.append(
            f"  {summary.missed} finished after their deadline, {summary.breaches} decisions passed over a wish, "
            f"{summary.set_aside} tasks set aside"
        )
    if summary.mean_reward is not None:
        lines.append(
            f"  mean of placements: R {summary.mean_reward:+.3f}, R_eff {summary.mean_r_eff:+.3f}, "
            f"R_util {summary.mean_r_util:+.3f}, R_cost {summary.mean_r_cost:+.3f}"
        )
    if summary.decision_p50_s is not None and summary.decision_p99_s is not None:
        p50, p99 = 1e3 * summary.decision_p50_s, 1e3 * summary.decision_p99_s
        lines.append(f"  decision: median {p50:.1f} ms, 99 of 100 below {p99:.1f} ms")
    return "\n".join(lines)


def _asked(result: SchedulingResult) -> str:
    """What the task asked for; empty if it left all of it to its kind and to the scheduler."""
    task = result.task
    wishes = [f"tenant {task.tenant}"] if task.tenant != "default" else []
    wishes += [f"priority {task.priority}"] if task.priority else []
    wishes += [] if task.deadline_s is None else [f"deadline at {duration(task.deadline_s)}"]
    wishes += [] if task.devices is None else [f"at most {task.devices} devices"]
    return ", ".join(wishes)


def _outcome(result: SchedulingResult) -> str:
    outcome = result.outcome
    if outcome.step_s == 0.0:
        return f"{outcome.cluster_busy_share:.0%} of devices busy"
    return (
        f"step {outcome.step_s:.4g} s (baseline {outcome.baseline_step_s:.4g} s), "
        f"{outcome.bill_usd_per_step:.4g} USD and {outcome.energy_j_per_step:,.4g} J per step, "
        f"utilisation {outcome.utilisation:.0%}, {outcome.cluster_busy_share:.0%} of devices busy{_expected(outcome)}"
    )


def _expected(outcome: OutcomeInfo) -> str:
    """What a nominal task of its kind was to take, after what came of it: attributions and pace are no part of it."""
    expected = outcome.predicted
    if expected is None or expected.step_s is None or expected.energy_j is None:
        return ""
    return f"; nominal for its kind {expected.step_s:.4g} s and {expected.energy_j:,.4g} J"


def _reward(result: SchedulingResult) -> str:
    r = result.reward
    return (
        f"R {r.total:+.3f} = {r.w_eff:g}·R_eff {r.r_eff:+.3f} + {r.w_util:g}·R_util {r.r_util:+.3f} "
        f"− {r.w_cost:g}·R_cost {r.r_cost:+.3f}"
    )


def _base(result: SchedulingResult) -> str:
    vector = result.attribution
    whole = float(vector.prediction)
    if vector.units == "share":
        return "shares of the seven counters, without unit"
    if vector.question != ACCOUNTING:
        return f"{whole:.4g} {vector.units} expected, {vector.base:.4g} of the mean task; {QUESTIONS[vector.question]}"
    carried = f"; EmSHAP carries {', '.join(vector.missing)}" if vector.missing else ""
    idle = f"idle {vector.base:.3g} ({vector.base / whole:.0%})"
    pace = f"at {vector.samples_per_s:.4g} samples/s"
    return f"{whole:.4g} {vector.units} {pace}, {idle}, parts with 95 % intervals{carried}"


def _part(vector: AttributionVector, name: str) -> str:
    """One part: joules with their interval and the share of this task in an account; a signed number otherwise."""
    value, at = float(vector[name]), vector.names.index(name)
    if vector.question != ACCOUNTING:
        return f"{value:>+12.4g}"
    reach = float(vector.interval(0.95)[1][at]) - value
    share = value / float(vector.metered) if float(vector.metered) > 0.0 else 0.0
    return f"{number(value, 4):>10} ± {number(reach, 2):<9} {share:>5.1%}"


def _bars(result: SchedulingResult) -> str:
    vector = result.attribution
    largest = max(float(abs(vector.values).max()), 1e-300)
    rows = []
    for name in vector.ranking():
        value = float(vector[name])
        width, colour = 120 * abs(value) / largest, COLOURS[value < 0]
        bar = f'<div style="width:{width:.0f}px;height:10px;background:{colour}"></div>'
        rows.append(f"<tr><td>{escape(name)}</td><td>{_part(vector, name)}</td><td>{bar}</td></tr>")
    return f"<table>{''.join(rows)}</table>"
