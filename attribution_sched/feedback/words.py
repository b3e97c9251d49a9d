"""Reasons in words, English and Chinese: messages of the catalogue, filled in from numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from attribution_sched.explain.digits import alike, number, percent
from attribution_sched.feedback.ascent import Miss
from attribution_sched.feedback.drivers import DriverEvidence
from attribution_sched.feedback.foresight import Foreseen
from attribution_sched.feedback.rollback import Verdict
from attribution_sched.feedback.targets import KINDS
from attribution_sched.words.names import input_name
from attribution_sched.words.say import LANGUAGES, plural, say


class Words(NamedTuple):
    """The same in two languages.

    Attributes:
        english: In English.
        chinese: In Chinese.
    """

    english: str
    chinese: str


def in_words(message: str, **values: Any) -> Words:
    """A message of the catalogue in both languages; values that are words themselves go into their own language."""
    return Words(*(
        say(message, lang, **{name: _in_language(value, i) for name, value in values.items()})
        for i, lang in enumerate(LANGUAGES)
    ))  # fmt: skip


def _in_language(value: Any, i: int) -> Any:
    if isinstance(value, Words):
        return value[i]
    return tuple(_in_language(part, i) for part in value) if isinstance(value, list) else value


def standing(miss: Miss) -> Words:
    """Where a target stands."""
    kind = KINDS[miss.target]
    shown, limit = alike(miss.measured.value, miss.limit)
    ends = miss.measured.interval()
    # No figure can be below 0, and no utilisation above 1, whatever Student says of a few decisions.
    most = 1.0 if kind.component == "R_util" and miss.measured.value <= 1.0 else math.inf
    low = number(max(0.0, ends[0]) if miss.measured.value >= 0.0 else ends[0])
    high = number(min(most, ends[1]))
    missed = miss.violation > 0
    return in_words(
        "feedback.standing",
        target=miss.target, what=Words(kind.english, kind.chinese), shown=shown, limit=limit, low=low, high=high,
        unit=f" {kind.unit}" if kind.unit else "", count=miss.measured.count,
        bound=in_words("feedback.bound.least" if kind.at_least else "feedback.bound.most"),
        state=in_words("feedback.state.missed" if missed else "feedback.state.met", far=_share(abs(miss.violation))),
        doubt=in_words("feedback.chance") if missed and ends[0] <= miss.limit <= ends[1] else "",
    )  # fmt: skip


def weights_reason(
    misses: Sequence[Miss], before: Mapping[str, float], after: Mapping[str, float], coupled: Sequence[Words]
) -> Words:
    """Why the weights moved."""
    parts = [in_words("feedback.pursued", standing=standing(m), pull=f"λ {_change(m.before, m.after)}") for m in misses]
    moved = ", ".join(f"{name} {_change(before[name], after[name])}" for name in before)
    parts = [*(parts or [in_words("feedback.no_target")]), in_words("feedback.weights", moved=moved), *coupled]
    return in_words("feedback.list", parts=parts)


def price_reason(misses: Sequence[Miss], before: float, after: float) -> Words:
    """Why the energy price moved."""
    price = in_words("feedback.price", price=_change(before, after))
    return in_words("feedback.list", parts=[*map(standing, misses), price])


def carbon_reason(misses: Sequence[Miss], before: float, after: float) -> Words:
    """Why the carbon price moved."""
    price = in_words("feedback.carbon", price=_change(before, after))
    return in_words("feedback.list", parts=[*map(standing, misses), price])


def coupling_words(component: str, other: str, strength: float, driver: str, part: float) -> Words:
    """What explanations say of two components."""
    return in_words(
        "feedback.coupling",
        component=component, other=other, strength=number(strength, 2, signed=True), part=_share(part),
        effect=in_words("feedback.effect.good" if strength > 0 else "feedback.effect.bad"),
        driver=Words(driver, _input(driver).rstrip()),
    )  # fmt: skip


def foreseen(target: str, expected: Foreseen) -> Words:
    """What explanations expect of a turn of the weights."""
    kind = KINDS[target]
    return in_words(
        "feedback.foreseen",
        changed=expected.changed, count=expected.decisions, what=Words(kind.english, kind.chinese),
        value=number(expected.values[target]), unit=f" {kind.unit}" if kind.unit else "",
    )  # fmt: skip


def damping_reason(driver: DriverEvidence, before: float, after: float) -> Words:
    """Why a driver is damped or trusted again."""
    chinese = _input(driver.player)
    return in_words(
        "feedback.contradicted" if driver.contradicted else "feedback.supported",
        driver=Words(driver.player, chinese if driver.contradicted else chinese.strip()), component=driver.component,
        claim=number(driver.claimed), measured=number(driver.measured, signed=True), count=driver.decisions,
        chance=number(driver.p_value, 2), trust=_change(before, after),
    )  # fmt: skip


def blame_reason(player: str, component: str, before: float, after: float) -> Words:
    """Why the driver behind a rolled-back change is damped."""
    driver = Words(player, _input(player).lstrip())
    return in_words("feedback.blamed", driver=driver, component=component, trust=_change(before, after))


def fall(verdict: Verdict) -> Words:
    """What became of the held-out return."""
    before, now = alike(verdict.before, verdict.now)
    certainty = in_words("feedback.certainty.single")
    if verdict.episodes > 1:
        limit = number(verdict.high, signed=True)
        certainty = in_words(
            "feedback.certainty.paired", level=_share(verdict.level), limit=limit, episodes=verdict.episodes
        )
    change, allowed = number(verdict.change, signed=True), number(verdict.allowed)
    return in_words("feedback.fall", before=before, now=now, change=change, certainty=certainty, allowed=allowed)


def rollback_reason(verdict: Verdict, undone: Sequence[int], what: str, cooldown: int) -> Words:
    """Why changes are taken back."""
    numbers, variant = ", ".join(map(str, undone)), plural(len(undone))
    return in_words(
        "feedback.rollback", variant=variant, numbers=numbers, what=what, fall=fall(verdict), cooldown=cooldown
    )


def joined(parts: Sequence[Words]) -> Words:
    """Sentences, one after the other."""
    return Words(" ".join(part.english for part in parts), "".join(part.chinese for part in parts))


def _change(before: float, after: float) -> str:
    return "{} → {}".format(*alike(before, after))


def _share(value: float) -> Words:
    """A share as each language writes it."""
    shown = percent(value)
    return Words(shown, shown.replace(" %", "%"))


def _input(name: str) -> str:
    """An input by name, set apart from Chinese text where it begins or ends in Latin letters."""
    words = input_name(name, "zh")
    return f"{' ' * words[0].isascii()}{words}{' ' * words[-1].isascii()}"
