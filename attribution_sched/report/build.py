"""Numbers become a document: every section in the order a reader wants it."""

from __future__ import annotations

from attribution_sched.report.data import Report
from attribution_sched.report.document import Document
from attribution_sched.report.format import clock, count, counted
from attribution_sched.report.sections import (
    bill,
    changes,
    decisions,
    drivers,
    energy,
    provenance,
    quality,
    rivals,
    summary,
    targets,
    timeline,
    traffic,
)
from attribution_sched.words.say import say

ORDER = (summary, decisions, targets, energy, traffic, timeline, drivers, changes, bill, rivals, quality, provenance)


def document(report: Report, lang: str) -> Document:
    """The whole report in words, tables and pictures that are drawn when asked for."""
    run = report.run
    sections = [part.section(report, lang) for part in ORDER]
    return Document(
        title=say("report.title", lang, preset=run.preset, policy=run.policy),
        subtitle=say(
            "report.subtitle",
            lang,
            decisions=count(run.totals["decisions"]),
            span=clock(3600.0 * (run.totals["cluster_h"].value or 0.0), lang),
            devices=sum(run.devices),
            domains=counted("count.domains", len(run.domains)),
        ),
        lang=lang,
        sections=(*sections, provenance.footer(report, lang)),
        contents=say("report.contents", lang),
        open_numbers=say("report.numbers", lang),
    )
