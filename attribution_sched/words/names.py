"""Names that stand in records (inputs, quantities, units, counters), in words of a language.

A name is an identifier: of a closed list, or a family and what of it, such as ``load us-east``. What is in neither is
somebody's own name, and stays.
"""

from __future__ import annotations

from attribution_sched.words.catalogue import variants
from attribution_sched.words.say import Phrase, say, say_name

FAMILIES: tuple[str, ...] = ("links of ", "link ", "load ", "attribution ")
"""Beginnings of inputs' names, before what of the family it is."""


def term(name: str, lang: str) -> str:
    """A quantity, a family of inputs or a part of plans."""
    return say_name("term", name, lang)


def term_phrase(name: str) -> str:
    """A name as a phrase if it is a term; others stay."""
    return Phrase("term", variant=name) if name in variants("term") and not isinstance(name, Phrase) else name


def input_name(name: str, lang: str) -> str:
    """An input by name; in English as it is kept."""
    if lang == "en":
        return name
    terms = variants("term")
    for family in FAMILIES:
        if name.startswith(family) and name not in terms:
            what = name.removeprefix(family)
            what = counter_name(what, lang) if family == "attribution " else what
            return say("input", lang, variant=family.strip(), what=what)
    parts = name.split(" + ")
    if len(parts) > 1 and all(part in terms for part in parts):
        return "＋".join(term(part, lang) for part in parts)
    return term(name, lang)


def unit_name(unit: str, lang: str) -> str:
    """Unit of a quantity; symbols such as Gb/s stay."""
    return say_name("unit", unit, lang)


def counter_name(counter: str, lang: str) -> str:
    """One of the seven attribution dimensions."""
    return say_name("counter", counter, lang)
