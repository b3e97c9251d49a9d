"""Words that others wrote, made safe to show: short, on one line, without marks that only a machine sees."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

MOST_SHOWN = 200
"""Characters of a value that a message shows."""

DEEPEST_SHOWN = 6
"""Levels of a nested value that a message shows."""

_LINE_ENDS = re.compile(r"[\t\n\r\v\f\x1c-\x1f\x85\u2028\u2029]+")
# Control characters, directions of writing, characters without width, halves of surrogate pairs, tags.
# The two joiners (U+200C, U+200D) stay: Persian and some emoji are misspelt without them.
UNSEEN = (
    "[\x00-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]+"
)
_UNSEEN = re.compile(UNSEEN)
_FORMULA = ("=", "+", "-", "@")


def clean_text(text: str) -> str:
    """Text for a terminal, a page or a table: ends of lines become a space, what cannot be seen goes.

    Removed are control characters (escape sequences of terminals among them), marks that turn the direction of
    writing, characters without width and lone surrogates.
    """
    return _UNSEEN.sub("", _LINE_ENDS.sub(" ", text))


def csv_text(text: str) -> str:
    """Text for a cell of a CSV file: clean, and never a formula to the program that opens it.

    Spreadsheets run what begins with ``=``, ``+``, ``-`` or ``@``; an apostrophe before it has them show it.
    """
    clean = clean_text(text)
    return f"'{clean}" if clean.lstrip().startswith(_FORMULA) else clean


def shown(value: object, most: int = MOST_SHOWN) -> str:
    """A value as Python writes it, cut to ``most`` characters.

    Work is bounded too: of a value that contains itself, or a small one whose ``repr`` would fill the memory (lists
    of the same list), only as much is written as is shown.
    """
    text = ""
    for piece in _pieces(value, most, 0):
        text += piece
        if len(text) > most:
            return text[:most] + "…"
    return text


def _pieces(value: Any, most: int, depth: int) -> Iterator[str]:
    written: Any = type(value).__repr__
    if isinstance(value, str | bytes | bytearray):
        yield repr(value[: most + 1])
    elif written is int.__repr__ and value.bit_length() > 4 * most:
        # Python refuses to write whole numbers of more than 4,300 digits.
        yield f"a whole number of about {int(value.bit_length() * 0.30103)} digits"
    elif written in (list.__repr__, tuple.__repr__, set.__repr__, frozenset.__repr__, dict.__repr__):
        opening, closing = _BRACKETS[written]
        if not value:
            yield _EMPTY.get(written, opening + closing)
            return
        yield opening
        if depth >= DEEPEST_SHOWN:
            yield f"…{closing}"
            return
        for number, each in enumerate(value):
            yield ", " if number else ""
            yield from _pieces(each, most, depth + 1)
            if written is dict.__repr__:
                yield ": "
                yield from _pieces(value[each], most, depth + 1)
        yield ",)" if written is tuple.__repr__ and len(value) == 1 else closing
    else:
        try:
            yield " ".join(repr(value).split())
        except Exception:
            yield f"<{type(value).__name__} that cannot be written>"


_BRACKETS: dict[Any, tuple[str, str]] = {
    list.__repr__: ("[", "]"),
    tuple.__repr__: ("(", ")"),
    set.__repr__: ("{", "}"),
    frozenset.__repr__: ("frozenset({", "})"),
    dict.__repr__: ("{", "}"),
}
_EMPTY: dict[Any, str] = {set.__repr__: "set()", frozenset.__repr__: "frozenset()"}
