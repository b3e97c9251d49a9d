"""Reports by the ending of their name: ``.html``, ``.json`` or ``.md``, whole or not at all."""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attribution_sched.errors import SettingsError, nearest, problem
from attribution_sched.explain.wording import LANGUAGES
from attribution_sched.report.collect.rivals import DEFAULT
from attribution_sched.report.data import Report
from attribution_sched.report.files import write_whole
from attribution_sched.report.source import STEPS

if TYPE_CHECKING:
    from attribution_sched.report.source import Progress, Source

MOST = 50
"""Decisions that are explained in depth at most."""


def write_report(
    system: Source,
    path: str | os.PathLike[str],
    *,
    lang: str = "en",
    explain: int = 4,
    rivals: Sequence[str] = DEFAULT,
    progress: Progress | None = None,
) -> Path:
    """Write what a run came to, why, and against whom.

    What is explained for it is journaled too, as with every explanation.

    Args:
        system: The system.
        path: Where to; the ending decides: ``.html`` (one file, pictures inside), ``.json``, ``.md``.
        lang: ``en`` or ``zh``.
        explain: Consequential decisions to explain in depth; 0 explains nothing.
        rivals: Policies to play the same span with; those that cannot are named with the reason.
        progress: Told when a step begins: its name, its number, and how many there are.

    Returns:
        The file.

    Raises:
        SettingsError: If an argument is wrong or the file cannot be written; nothing is half-written.
    """
    target = _target(path)
    names = _checked(lang, explain, rivals)
    from attribution_sched.report.collect.gather import gather

    found = gather(system, explain=explain, against=names, progress=progress)
    if progress is not None:
        progress("pictures", STEPS.index("pictures"), len(STEPS))
    text = WRITERS[target.suffix.lower()](found, lang)
    if progress is not None:
        progress("file", STEPS.index("file"), len(STEPS))
    return write_whole(target, text)


def _html(report: Report, lang: str) -> str:
    from attribution_sched.report.build import document
    from attribution_sched.report.html import to_html

    return to_html(document(report, lang))


def _markdown(report: Report, lang: str) -> str:
    from attribution_sched.report.build import document
    from attribution_sched.report.markdown import to_markdown

    return to_markdown(document(report, lang))


def _json(report: Report, lang: str) -> str:
    return to_json(report)


WRITERS: dict[str, Callable[[Report, str], str]] = {".html": _html, ".json": _json, ".md": _markdown}
"""Ending → how it is written."""


def _target(path: Any) -> Path:
    """A file that can be written, as far as can be told beforehand."""
    try:
        target = Path(path)
    except TypeError as error:
        raise SettingsError(problem("report", path, "is no path", "Use for example 'report.html'")) from error
    ending = target.suffix.lower()
    if ending not in WRITERS:
        rule = f"ending {ending!r} is not known"
        raise SettingsError(problem("report", str(path), rule, "Use .html, .json or .md"))
    if target.is_dir():
        raise SettingsError(problem("report", str(path), "is a folder", "Give the name of a file"))
    if not target.parent.is_dir():
        rule = f"folder {str(target.parent)!r} does not exist"
        raise SettingsError(problem("report", str(path), rule, "Make it first, or use another"))
    return target


def _checked(lang: Any, explain: Any, rivals: Any) -> tuple[str, ...]:
    from attribution_sched.scheduler.registry import POLICIES

    if lang not in LANGUAGES:
        raise SettingsError(problem("lang", lang, "is not written here", nearest(str(lang), LANGUAGES)))
    if isinstance(explain, bool) or not isinstance(explain, int) or not 0 <= explain <= MOST:
        rule = f"must be a whole number from 0 to {MOST}"
        raise SettingsError(problem("explain", explain, rule, "Use for example 4"))
    if isinstance(rivals, str) or not isinstance(rivals, Sequence):
        fix = "For example rivals=('greedy', 'sjf'); () for none"
        raise SettingsError(problem("rivals", rivals, "must be a list of names of policies", fix))
    for name in rivals:
        if name not in POLICIES:
            raise SettingsError(problem("rivals", name, "is not a known policy", nearest(str(name), POLICIES)))
    return tuple(rivals)


# ------ Reports as JSON: records become mappings, tuples lists


def to_json(report: Report) -> str:
    """A report as JSON text; what is not finite is null."""
    return json.dumps(plain(report), ensure_ascii=False, allow_nan=False, indent=1) + "\n"


def plain(value: Any) -> Any:
    """Records, mappings and sequences as what JSON knows."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(name): plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
