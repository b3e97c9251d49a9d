"""Answers to questions about tasks of a journal: the system is built again from a copy of it, and asked.

A copy is kept until the journal has grown, so that the second question is quick. Nothing of a real cluster is touched.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attribution_sched.errors import AttributionSchedError, problem
from attribution_sched.explain.what_if import read_change
from attribution_sched.journal import Journal
from attribution_sched.journal.journal import temporary_copy
from attribution_sched.report.document import Block, Fold, Table, Text
from attribution_sched.words.say import LANGUAGES

if TYPE_CHECKING:
    from attribution_sched.system.system import System

NEEDS: Mapping[str, tuple[str, ...]] = {
    "why": ("task",), "why-not": ("task", "domain"), "when": ("task",), "what-if": ("change",), "bill": ()
}  # fmt: skip
"""What can be asked, and what has to be said with it."""
REHEARSED = 2000
"""Decisions up to which a policy with a memory is asked all of them again."""


class JournalQuestions:
    """Answers questions about the tasks of a journal.

    Args:
        path: The journal; only read.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._open = contextlib.ExitStack()
        self._system: System | None = None
        self._at = (-1, -1)

    def close(self) -> None:
        """Forget the copy."""
        self._open.close()
        self._system = None

    def ask(self, question: dict[str, Any]) -> dict[str, Any]:
        """The answer, or ``error`` with what is wrong with the question."""
        try:
            kind, task, lang = (str(question.get(name, "")) for name in ("kind", "task", "lang"))
            lang = lang if lang in LANGUAGES else "en"
            if kind not in NEEDS:
                raise AttributionSchedError(problem("question", kind, f"must be one of {', '.join(NEEDS)}", "Ask why"))
            if kind == "bill":
                return self._bill(str(question.get("payer", "")) or None, lang)
            system = self._current()
            if kind == "why":
                return self._why(system, task, lang)
            if kind == "when":
                interval = system.when(task)
                fields: dict[str, Any] = _plain(asdict(interval))
                return fields | {"words": interval.say(lang), "decisions": self._at[0]}
            if kind == "what-if":
                found = system.what_if(**read_change(str(question.get("change", ""))))[0]
                effects = [asdict(effect) for effect in found.effects]
                return {"effects": effects, "words": found.say(lang), "decisions": self._at[0]}
            return self._why_not(system, task, str(question.get("domain", "")), lang)
        except AttributionSchedError as error:
            return {"error": str(error)}

    def _current(self) -> System:
        from attribution_sched.executors.live import onlooker
        from attribution_sched.system.system import System

        with Journal.read(self.path) as journal, journal.one_moment():
            operations = sum(1 for _ in journal.intents())
            at = journal.count(), journal.task_count() + operations
        if self._system is None or at != self._at:
            self.close()
            copy = self._open.enter_context(temporary_copy(self.path))
            made = System.resume(copy, cluster=onlooker(copy), rehearse=at[0] <= REHEARSED)
            self._system, self._at = self._open.enter_context(made), at
        return self._system

    def _bill(self, payer: str | None, lang: str) -> dict[str, Any]:
        """The journal's bill: its records, and the same as a section of a page."""
        from attribution_sched.report.collect.bill import bill
        from attribution_sched.report.sections.bill import bill_section
        from attribution_sched.report.write import plain

        with Journal.read(self.path) as journal, journal.one_moment():
            made, count = bill(journal, payer), journal.count()
        section = bill_section(made, lang)
        return {"bill": plain(made), "title": section.title, "blocks": blocks_of(section.blocks), "decisions": count}

    def _why(self, system: System, task: str, lang: str) -> dict[str, Any]:
        reason = system.why(task)
        plain = {"cause": reason.cause.value, "sentence": str(reason.sentence), "advice": str(reason.advice)}
        return asdict(reason) | plain | {"words": reason.say(lang), "decisions": self._at[0]}

    def _why_not(self, system: System, task: str, domain: str, lang: str) -> dict[str, Any]:
        row = system.why_not(task, domain)
        return {
            "task": task, "domain": domain, "missing": str(row.missing), "chosen": row.chosen, "reward": row.reward,
            "r_eff": row.r_eff, "r_util": row.r_util, "r_cost": row.r_cost, "change": str(row.change),
            "words": row.why_not(task, domain, lang), "decisions": self._at[0],
        }  # fmt: skip


def blocks_of(blocks: Sequence[Block]) -> list[dict[str, Any]]:
    """Blocks of a report as a template takes them."""
    made: list[dict[str, Any]] = []
    for block in blocks:
        if isinstance(block, Text):
            made.append({"kind": "text", "words": block.words, "tone": block.tone})
        elif isinstance(block, Table):
            table = {"head": block.head, "rows": block.rows, "words": block.text_columns, "caption": block.caption}
            made.append({"kind": "table", "strong": sorted(block.strong), **table})
        elif isinstance(block, Fold):
            made.append({"kind": "fold", "title": block.title, "blocks": blocks_of(block.blocks)})
    return made


def _plain(told: Any) -> Any:
    """As JSON takes it: what lies beyond all that was played is null."""
    if isinstance(told, dict):
        return {name: _plain(value) for name, value in told.items()}
    return None if isinstance(told, float) and not math.isfinite(told) else told
