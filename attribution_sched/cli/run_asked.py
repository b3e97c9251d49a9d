"""What ``attribution-sched run`` was asked for, checked before anything is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attribution_sched.cli import places
from attribution_sched.cli.targets import targets_of
from attribution_sched.errors import SettingsError, problem

if TYPE_CHECKING:
    from attribution_sched.feedback.targets import Targets
    from attribution_sched.system import System

TASKS = 80
PRESET, POLICY = "cross-domain", "hi-ppo"


@dataclass
class Asked:
    """A run as the user wants it, checked.

    Attributes:
        settings: Of the preset; None if a journal is gone on with.
        policy: Who decides.
        seed: Seed.
        queue: Where tasks come from.
        targets: What feedback works toward; None for those of the journal.
        tasks: Tasks to place; None if hours count.
        hours: Hours on the cluster's clock.
        journal: Path the user gave.
        report: Path the user gave.
        resume: Journal to go on with.
        lang: Language of the report.
        feedback: Whether a step of feedback is taken.
        explain: Whether anything is explained.
        places: Where it is written, once that is made.
    """

    settings: Any
    policy: Any
    seed: int
    queue: str
    targets: Targets | None
    tasks: int | None
    hours: float | None
    journal: Path | None
    report: Path | None
    resume: Path | None
    lang: str
    feedback: bool
    explain: bool
    places: places.Places | None = None

    @property
    def written(self) -> Path | None:
        """The journal, if there is one by now."""
        return self.places.journal if self.places is not None and self.places.journal.exists() else None

    def open(self) -> System:
        """Make the system; what was made for it is taken away again if that fails.

        Raises:
            AttributionSchedError: If the input is wrong after all.
        """
        from attribution_sched.system import System

        if self.resume is not None:
            system = System.resume(self.resume)
            self.places = places.Places(self.resume, self.report or places.beside(self.resume))
            system.targets = self.targets or system.targets or targets_of([], len(system.world.cluster))
            return system
        self.places = places.make(self.settings.name, self.seed, self.journal, self.report)
        try:
            return System(
                self.settings, self.policy, journal=self.places.journal, seed=self.seed, queue=self.queue,
                targets=self.targets,
            )  # fmt: skip
        except BaseException:
            self.places.discard()
            raise


def checked(
    *,
    preset: str | None,
    policy: str | None,
    seed: int | None,
    queue: str | None,
    tasks: int | None,
    hours: float | None,
    targets: Sequence[str],
    journal: Path | None,
    report: Path | None,
    resume: Path | None,
    lang: str,
    feedback: bool,
    explain: bool,
) -> Asked:
    """Check everything that can be checked without writing anything; arguments as the command has them.

    Raises:
        AttributionSchedError: If something is wrong.
    """
    from attribution_sched.config import load_settings
    from attribution_sched.explain.wording import check_language

    check_language(lang)
    places.check(journal, report)
    if resume is not None:
        given = {"--preset": preset, "--policy": policy, "--seed": seed, "--queue": queue, "--journal": journal}
        for option, value in given.items():
            if value is not None:
                fix = "Leave it out, or leave out --resume"
                raise SettingsError(problem(option, str(value), "the journal of --resume has its own", fix))
    settings = None if resume is not None else load_settings(preset or PRESET)
    wanted = None if resume is not None and not targets else targets_of(targets, _domains(settings))
    from attribution_sched.session import options
    from attribution_sched.session.asking import as_policy

    if queue == "empty":
        rule = "nobody could hand in tasks while the command runs"
        raise SettingsError(problem("queue", queue, rule, "Use preset or demo, or System(queue='empty') in Python"))
    tasks = TASKS if tasks is None and hours is None else tasks
    if tasks is not None and tasks < 1:
        raise SettingsError(problem("--tasks", tasks, "must be a whole number >= 1", "Use for example --tasks 40"))
    options.run_of(tasks, None, hours)
    return Asked(
        settings, None if resume is not None else as_policy(policy or POLICY), options.seed_of(seed or 0),
        options.queue_of(queue or "preset"), wanted, tasks, hours, journal, report, resume, lang, feedback, explain,
    )  # fmt: skip


def _domains(settings: Any) -> int:
    return 2 if settings is None else len(settings.domains or settings.regions or ())
