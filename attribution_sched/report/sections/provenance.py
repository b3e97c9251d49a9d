"""Where every kind of number comes from, and how to get this report again."""

from __future__ import annotations

from attribution_sched.explain.digits import number
from attribution_sched.report.data import Report
from attribution_sched.report.document import Block, Code, Section, Table, Text
from attribution_sched.words.say import say, say_all, say_name

ROWS: dict[str, tuple[str, str]] = {
    "counters": ("1/s, B/s, s/s", "{counters}"),
    "attribution": ("{joules}", "estimated"),
    "outcomes": ("s, J, USD, 1", "simulated"),
    "totals": ("1, kWh, USD, kg", "simulated"),
    "targets": ("–", "given"),
    "traffic": ("GB", "simulated"),
    "shares": ("R", "estimated"),
    "thresholds": ("{own}", "estimated"),
    "rivals": ("1, kWh, USD, h", "simulated"),
    "times": ("s", "measured"),
    "given": ("–", "given"),
}
"""Kind of number → its unit and provenance."""


def section(report: Report, lang: str) -> Section:
    """A table over all kinds of numbers."""
    energy = report.energy
    counters = sorted({task.counters for task in energy.tasks}) if energy else ["simulated"]
    fill = {
        "{joules}": "J／样本" if lang == "zh" else "J/sample" if energy is None else energy.unit,
        "{own}": say("report.provenance.own", lang),
        "{counters}": ", ".join(say_name("report.provenance.kinds", name, lang) for name in counters),
    }
    rows = tuple(
        (
            say("report.provenance.rows", lang, variant=name),
            fill.get(unit, unit),
            fill.get(kind) or say("report.provenance.kinds", lang, variant=kind),
            say("report.provenance.how", lang, variant=name),
        )
        for name, (unit, kind) in ROWS.items()
    )
    blocks: list[Block] = [Table(say_all("report.provenance.head", lang), rows, text_columns=4, wide=False)]
    return Section("provenance", say("report.provenance.title", lang), tuple(blocks))


def footer(report: Report, lang: str) -> Section:
    """What the run needs to be repeated, and the lines that do it."""
    run = report.run
    journal = run.journal or say("report.provenance.memory", lang)
    if run.journal_version != run.version:
        journal += say("report.provenance.other", lang, version=run.journal_version)
    values = {
        "version": run.version,
        "preset": run.preset,
        "seed": str(run.seed),
        "policy": run.policy,
        "queue": run.queue,
        "weights": ", ".join(
            f"{name} {number(weight)}" for name, weight in zip(("w_eff", "w_util", "w_cost"), run.weights, strict=True)
        ),
        "journal": journal,
        "begun": run.created_at[:19].replace("T", " "),
        "print": run.fingerprint or "–",
        "resumed": str(run.resumed),
        "learnt": str(run.learnt),
    }
    rows = tuple((say("report.provenance.facts", lang, variant=name), value) for name, value in values.items())
    plain = (
        run.shipped and not (run.submitted and run.queue != "demo") and not report.changes.changes and not run.learnt
    )
    blocks: list[Block] = [Table(say_all("report.provenance.facts_head", lang), rows, text_columns=2, wide=False)]
    suffix = f', lang="{lang}"' if lang != "en" else ""
    if plain:
        blocks += [Code(_command(report, suffix)), Text(say("report.provenance.same", lang), "note")]
    else:
        blocks.append(Text(say("report.provenance.from_journal", lang), "note"))
        if run.journal:
            lines = [
                "from attribution_sched import System",
                "",
                f'System.resume("{run.journal}").report("report.html"{suffix})',
            ]
            blocks.append(Code("\n".join(lines)))
        else:
            blocks.append(Text(say("report.provenance.lost", lang), "note"))
    return Section("reproduce", say("report.provenance.again", lang), tuple(blocks))


def _targets(report: Report) -> str:
    """The targets as an argument of ``System``; nothing where there are none."""
    asked = ", ".join(f'"{one.target}": {one.limit.value!r}' for one in report.targets)
    return f", targets={{{asked}}}" if asked else ""


def _command(report: Report, suffix: str) -> str:
    run = report.run
    queue = "" if run.queue == "preset" else f', queue="{run.queue}"'
    lines = ["from attribution_sched import System", ""]
    lines.append(f'system = System("{run.preset}", "{run.policy}", seed={run.seed}{queue}{_targets(report)})')
    hours, placed = run.totals["cluster_h"].value or 0.0, round(run.totals["placed"].value or 0.0)
    if run.last_placed:
        lines.append(f"system.run({placed})")
    elif hours:
        lines.append(f"system.run(hours={hours!r})" if run.queue == "preset" else 'system.run(until="empty")')
    lines.append(f'system.report("report.html"{suffix})')
    return "\n".join(lines)
