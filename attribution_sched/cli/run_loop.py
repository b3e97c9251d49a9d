"""Once around the loop: place, explain, feed back, place on, report."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attribution_sched.cli.console import Stages
from attribution_sched.cli.exits import RunTimeError
from attribution_sched.cli.targets import measured
from attribution_sched.errors import AttributionSchedError, ExplanationError

if TYPE_CHECKING:
    from attribution_sched.cli.run_asked import Asked
    from attribution_sched.explain.explanation import Explanation
    from attribution_sched.feedback.loop import FeedbackChange
    from attribution_sched.feedback.targets import Targets
    from attribution_sched.journal import Journal
    from attribution_sched.session.results import RunSummary
    from attribution_sched.system import System

EXPLAINED = 6
"""Decisions that are explained, those that commit most device-hours."""


REPORTED = 4
"""Decisions the report explains in depth."""


@dataclass(frozen=True, eq=False)
class Told:
    """What came of a run.

    Attributes:
        preset: Name of the preset.
        policy: Name of the policy.
        seed: Seed.
        lang: Language of words.
        summaries: What happened before the step of feedback, and after it if there was one.
        targets: What was to be reached.
        figures: What the targets are held against, for each summary.
        explained: Explanations, the most consequential first.
        change: The step of feedback; None if there was none.
        journal: Path of the journal.
        report: Path of the report.
    """

    preset: str
    policy: str
    seed: int
    lang: str
    summaries: tuple[RunSummary, ...]
    targets: Targets | None
    figures: tuple[dict[str, float | None], ...]
    explained: tuple[Explanation, ...]
    change: FeedbackChange | None
    journal: Path
    report: Path

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        names = ("before_feedback", "after_feedback")
        total = {
            name: sum(getattr(each, name) for each in self.summaries)
            for name in ("decisions", "placed", "moved", "refused", "completed", "energy_kwh", "traffic_usd", "wall_s")
        }
        parts = {name: each.to_dict() for name, each in zip(names, self.summaries, strict=False)}
        wanted = {} if self.targets is None else self.targets.named()
        return {
            "preset": self.preset,
            "policy": self.policy,
            "seed": self.seed,
            "summary": {**total, **parts},
            "targets": {
                name: {"wanted": value, **{part: found[name] for part, found in zip(names, self.figures, strict=False)}}
                for name, value in wanted.items()
            },
            "explained": [each.decision for each in self.explained],
            "feedback": None if self.change is None else _feedback(self.change, self.lang),
            "paths": {"journal": str(self.journal), "report": str(self.report)},
        }


def _feedback(change: FeedbackChange, lang: str) -> dict[str, Any]:
    weights = {name: getattr(change.reward, name) for name in ("w_eff", "w_util", "w_cost")}
    reason = change.reason_zh if lang == "zh" else change.reason
    return {"kind": change.kind, "reason": reason, "weights": weights, "changes": change.records()}


def go_round(system: System, asked: Asked, stages: Stages) -> Told:
    """Place tasks, explain, feed back, place on under the changed weights, and write the report.

    Raises:
        RunTimeError: If something fails on the way; the message says where the journal is.
    """
    if asked.places is None:
        raise RunTimeError("the system was not opened by this run")
    try:
        return _round(system, asked, stages, asked.places.journal, asked.places.report)
    except AttributionSchedError as error:
        kept = f"What was decided is in {asked.places.journal}"
        raise RunTimeError(f"{error}. {kept}") from error


def _round(system: System, asked: Asked, stages: Stages, journal: Path, report: Path) -> Told:
    began = system.journal.count()
    summaries = [_place(system, asked, stages, "placing tasks", first=True)]
    explained: tuple[Explanation, ...] = ()
    if asked.explain:
        explained = _explain(system, stages, _consequential(system.journal, began))
    change, middle = None, system.journal.count()
    wanted = system.targets
    if asked.feedback and wanted is not None and wanted.named() and summaries[0].placed:
        with stages.stage("feedback") as tell:
            change = system.feedback(explain=24 if asked.explain else 0, progress=tell)
        words = "placing on" if change.kind == "still" else "placing under new weights"
        summaries.append(_place(system, asked, stages, words, first=False))
    figures = []
    if wanted is not None:
        figures = [measured(system.journal, wanted, began, middle)]
        figures += [measured(system.journal, wanted, middle)] if len(summaries) > 1 else []
    with stages.stage("writing the report") as tell:
        written = system.report(
            report,
            lang=asked.lang,
            explain=REPORTED if asked.explain else 0,
            progress=lambda _, step, of: tell(step, of),
        )
    return Told(
        system.settings.name, system.policy.name, system.seed, asked.lang, tuple(summaries), wanted, tuple(figures),
        explained, change, journal, Path(written),
    )  # fmt: skip


def _place(system: System, asked: Asked, stages: Stages, words: str, *, first: bool) -> RunSummary:
    whole = not asked.feedback
    if asked.hours is not None:
        with stages.stage(words) as tell:
            return system.run(hours=asked.hours if whole else asked.hours / 2, progress=lambda done, _: tell(done))
    tasks = asked.tasks or 1
    count = tasks if whole else math.ceil(tasks / 2) if first else max(1, tasks // 2)
    with stages.stage(words, count) as tell:
        return system.run(count, progress=tell)


def _explain(system: System, stages: Stages, names: list[str]) -> tuple[Explanation, ...]:
    found = []
    with stages.stage("explaining", len(names)) as tell:
        for number, name in enumerate(names):
            tell(number)
            try:
                found.append(system.explain(name, rows="quick", tipping=number == 0))
            except ExplanationError:
                # One decision that cannot be explained must not end the run; the report says which have reasons.
                continue
        tell(len(names))
    return tuple(found)


def _consequential(journal: Journal, start: int) -> list[str]:
    """Decisions since a number that commit most device-hours, as the report ranks them."""
    from attribution_sched.report.gathering.consequence import consequential
    from attribution_sched.report.gathering.passing import passed

    found = passed(journal)
    since = [moment for moment in found.moments if found.sequences[moment.decision] >= start]
    return [moment.decision for moment in consequential(since, EXPLAINED)]
