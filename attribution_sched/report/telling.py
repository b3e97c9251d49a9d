"""Numbers become a document: every section in the order a reader wants it."""

from __future__ import annotations

from attribution_sched.report.data import Report
from attribution_sched.report.document import Document
from attribution_sched.report.saying import clock, count, plural, say
from attribution_sched.report.sections import (
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

TITLE = ("What {policy} decided on {preset}, and why", "{policy} 在 {preset} 上的决策及其原因")
SUBTITLE = (
    "{decisions} decisions over {span} on a simulated cluster: {devices} devices, {domains}",
    "{domains} 个域、{devices} 块设备的仿真集群，{span}内 {decisions} 次决策",
)
CONTENTS = ("Contents", "目录")
NUMBERS = ("The numbers behind this picture", "图中数据")

ORDER = (summary, targets, energy, traffic, timeline, decisions, drivers, changes, rivals, quality, provenance)


def document(report: Report, lang: str) -> Document:
    """The whole report in words, tables and pictures that are drawn when asked for."""
    run = report.run
    sections = [made.section(report, lang) for made in ORDER]
    return Document(
        title=say(TITLE, lang, preset=run.preset, policy=run.policy),
        subtitle=say(
            SUBTITLE,
            lang,
            decisions=count(run.totals["decisions"]),
            span=clock(3600.0 * (run.totals["cluster_h"].value or 0.0), lang),
            devices=sum(run.devices),
            domains=len(run.domains) if lang == "zh" else plural(len(run.domains), "domain", "domains"),
        ),
        lang=lang,
        sections=(*sections, provenance.footer(report, lang)),
        contents=say(CONTENTS, lang),
        open_numbers=say(NUMBERS, lang),
    )
