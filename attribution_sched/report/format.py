"""Words for numbers, in both languages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attribution_sched.explain.digits import MINUS, number, percent
from attribution_sched.explain.plots.style import input_label
from attribution_sched.explain.wording import describe_plan, plan_words
from attribution_sched.report.data import Number
from attribution_sched.system.decision_records import plan_of
from attribution_sched.words.say import Phrase, say, spaced


def amount(value: Number | None, lang: str = "en", digits: int = 3) -> str:
    """A number with its unit; a dash if it is not known."""
    if value is None or value.value is None:
        return "–"
    unit = value.unit.replace("CO2e", "CO₂e")
    return f"{number(value.value, digits)} {unit}".strip()


def count(told: Number | float | None) -> str:
    """A whole number."""
    value = told.value if isinstance(told, Number) else told
    return "–" if value is None else f"{round(value):,}"


def share(told: Number | float | None, lang: str = "en") -> str:
    """A share in percent."""
    value = told.value if isinstance(told, Number) else told
    if value is None:
        return "–"
    words = f"{MINUS if value < 0 else ''}{percent(abs(value))}"
    return words.replace(" %", "%") if lang == "zh" else words


def signed(told: Number | float | None, digits: int = 3) -> str:
    """A number with its sign."""
    value = told.value if isinstance(told, Number) else told
    return "–" if value is None else number(value, digits, signed=True)


def seconds(value: float | None) -> str:
    """A short time."""
    if value is None:
        return "–"
    return f"{number(1e3 * value, 2)} ms" if value < 1.0 else f"{number(value)} s"


def hours(told: Number | None, lang: str = "en") -> str:
    """A time that is kept in hours, in minutes or seconds where it is short."""
    if told is None or told.value is None:
        return "–"
    units = [say("time_unit", lang, variant=unit) for unit in ("hour", "minute", "second")]
    value, unit = told.value, units[0]
    if 0.0 < value < 1.0 / 60.0:
        value, unit = 3600.0 * value, units[2]
    elif 0.0 < value < 1.0:
        value, unit = 60.0 * value, units[1]
    return f"{number(value)} {unit}"


def clock(value_s: float, lang: str = "en") -> str:
    """A time on the cluster's clock."""
    units = [say("time_unit", lang, variant=unit) for unit in ("day", "hour", "minute", "second")]
    if value_s < 60.0:
        return f"{number(value_s)} {units[3]}"
    # The two largest units that count.
    parts = (int(value_s // 86400), int(value_s // 3600) % 24, int(value_s // 60) % 60, int(value_s) % 60)
    first = next(at for at, part in enumerate(parts) if part)
    words = [f"{part} {unit}" for part, unit in list(zip(parts, units, strict=True))[first : first + 2] if part]
    return " ".join(words)


def moment(value_s: float, lang: str = "en") -> str:
    """A moment on the cluster's clock: hours, as on the timeline; minutes and seconds within the first."""
    if value_s < 3600.0:
        return clock(value_s, lang)
    return f"{value_s / 3600.0:,.2f} {say('time_unit', lang, variant='hour')}"


def player(name: str, lang: str) -> str:
    """An input by name."""
    return input_label(name, lang)


def plan(words: str, lang: str) -> str:
    """A plan that was described."""
    return spaced(plan_words(words, lang)) if lang == "zh" else words


def recorded_plan(record: Mapping[str, Any], domains: Sequence[str], lang: str) -> str:
    """A plan as the journal keeps it, in words."""
    return plan(describe_plan(plan_of(record, domains), domains), lang)


def listed(words: Sequence[str], lang: str) -> str:
    """A, B and C."""
    if lang == "zh":
        return "、".join(words)
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def counted(message: str, value: float | Number | None) -> Phrase:
    """``1 task``, ``3 tasks``."""
    number_of = value.value if isinstance(value, Number) else value
    return Phrase(message, variant="one" if number_of == 1 else "many", count=count(number_of))
