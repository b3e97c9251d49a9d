"""Targets on the command line: ``--target utilisation_at_least=0.85``, and what is taken if none is given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from attribution_sched.errors import SettingsError, nearest, problem

if TYPE_CHECKING:
    from attribution_sched.feedback.targets import Targets
    from attribution_sched.journal import Journal

SEVERAL: dict[str, float] = {"utilisation_at_least": 0.95, "step_ratio_at_most": 0.6, "cost_ratio_at_most": 0.7}
"""For presets of several domains, against the static uniform split: 40 % less step time, 30 % less cost."""

SINGLE: dict[str, float] = {"utilisation_at_least": 0.95, "step_ratio_at_most": 0.5, "cost_ratio_at_most": 0.4}
"""For presets of one domain, where the cost is that of energy."""


def targets_of(given: Sequence[str], domains: int) -> Targets:
    """Targets from ``NAME=NUMBER``, the usual ones if there are none.

    Args:
        given: One word for each target.
        domains: Domains of the preset.

    Raises:
        SettingsError: If a word is not of that form, or a target does not exist, is there twice or out of range.
    """
    from attribution_sched.feedback.targets import KINDS, Targets

    if not given:
        return Targets.of(SEVERAL if domains > 1 else SINGLE)
    found: dict[str, float] = {}
    for word in given:
        name, equals, text = (part.strip() for part in word.partition("="))
        if not equals:
            rule = "must be a name, an equals sign and a number"
            raise SettingsError(problem("--target", word, rule, "For example --target utilisation_at_least=0.85"))
        if name not in KINDS:
            raise SettingsError(problem("--target", name, "is not a target", nearest(name, KINDS)))
        if name in found:
            raise SettingsError(problem("--target", name, "is given twice", "Give each target once"))
        try:
            found[name] = float(text)
        except ValueError:
            fix = f"For example --target {name}=0.8"
            raise SettingsError(problem(f"--target {name}", text, "is not a number", fix)) from None
    return Targets.of(found)


def measured(journal: Journal, targets: Targets, start: int = 0, stop: int | None = None) -> dict[str, float | None]:
    """What the decisions of a part of a journal came to, target by target; None where outcomes do not tell.

    Args:
        journal: The journal.
        targets: Which figures.
        start: Number of the first decision.
        stop: Number after the last one; the newest by default.
    """
    from attribution_sched.errors import ModelFitError
    from attribution_sched.feedback.window import Window

    outcomes, times = [], []
    for decision, outcome in journal.entries(start, stop):
        times.append(decision.cluster_time_s)
        if outcome is not None and outcome.code > 0:
            outcomes.append(outcome)
    figures: dict[str, float | None] = {}
    for name in targets.named():
        try:
            figures[name] = (
                Window.of(outcomes, None, (times[-1] - times[0] or None) if times else None).measure(name).value
            )
        except ModelFitError:
            figures[name] = None
    return figures
