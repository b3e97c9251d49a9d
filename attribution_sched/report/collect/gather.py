"""Everything a report says, gathered from a system in named steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from attribution_sched.report.collect.bill import bill_and_usage
from attribution_sched.report.collect.changes import changes
from attribution_sched.report.collect.course import course
from attribution_sched.report.collect.energy import energy
from attribution_sched.report.collect.passing import passed
from attribution_sched.report.collect.reasons import reasons
from attribution_sched.report.collect.rivals import rivals
from attribution_sched.report.collect.run import run_facts
from attribution_sched.report.collect.targets import standings
from attribution_sched.report.collect.traffic import traffic
from attribution_sched.report.data import SCHEMA, Report, Timeline
from attribution_sched.report.source import STEPS

if TYPE_CHECKING:
    from attribution_sched.report.source import Progress, Source


def gather(system: Source, *, explain: int, against: Sequence[str], progress: Progress | None = None) -> Report:
    """Read, explain and play again what the report is made of.

    Args:
        system: The system.
        explain: Consequential decisions to explain; 0 explains nothing.
        against: Names of the rivals.
        progress: Told when a step begins.
    """

    def begins(step: str) -> None:
        if progress is not None:
            progress(step, STEPS.index(step), len(STEPS))

    begins("journal")
    journaled = passed(system.journal)
    run, joules = run_facts(system, journaled), energy(system, journaled)
    moments = tuple(journaled.moments)
    begins("targets")
    stands, learnt = standings(system, journaled), changes(system.journal)
    begins("explanations")
    why = reasons(system, moments, explain)
    begins("traffic")
    sent = traffic(system, journaled)
    begins("bill")
    owed, usage = bill_and_usage(system.journal)
    begins("rivals")
    others = rivals(system, against, sum(journaled.counts.values()))
    return Report(
        schema=SCHEMA,
        run=run,
        targets=stands,
        energy=joules,
        course=None if usage is None else course(usage),
        timeline=Timeline(moments, journaled.in_force - len(moments)),
        traffic=sent,
        cross_domain=journaled.cross_domain,
        reasons=why,
        changes=learnt,
        rivals=others,
        bill=owed,
    )
