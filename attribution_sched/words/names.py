"""Names that stand in records (inputs, quantities, units, counters), in words of a language.

A name is an identifier: of a closed list, or a family and what of it, such as ``load us-east``. What is in neither is
somebody's own name, and stays.
"""

from __future__ import annotations

from attribution_sched.words.catalogue import MESSAGES
from attribution_sched.words.say import Phrase, say

FAMILIES: tuple[str, ...] = ("links of ", "link ", "load ", "attribution ")
"""Beginnings of inputs' names, before what of the family it is."""


def term(name: str, lang: str) -> str:
    """A quantity, a family of inputs or a part of plans."""
    message = f"term.{name}"
    return say(message, lang) if message in MESSAGES else name


def known(name: str) -> str:
    """A name as a phrase if it is a term; others stay."""
    message = f"term.{name}"
    return Phrase(message) if message in MESSAGES and not isinstance(name, Phrase) else name


def input_name(name: str, lang: str) -> str:
    """An input by name; in English as it is kept."""
    if lang == "en":
        return name
    for family in FAMILIES:
        if name.startswith(family) and f"term.{name}" not in MESSAGES:
            what = name.removeprefix(family)
            counter = f"counter.{what}"
            known = family == "attribution " and counter in MESSAGES
            return say(f"input.{family.strip()}", lang, what=say(counter, lang) if known else what)
    parts = name.split(" + ")
    if len(parts) > 1 and all(f"term.{part}" in MESSAGES for part in parts):
        return "＋".join(term(part, lang) for part in parts)
    return term(name, lang)


def unit_name(unit: str, lang: str) -> str:
    """Unit of a quantity; symbols such as Gb/s stay."""
    message = f"unit.{unit}"
    return say(message, lang) if message in MESSAGES else unit


def counter_name(counter: str, lang: str) -> str:
    """One of the seven attribution dimensions."""
    message = f"counter.{counter}"
    return say(message, lang) if message in MESSAGES else counter
