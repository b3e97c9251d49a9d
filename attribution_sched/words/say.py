"""A message in a language: looked up by its id, filled in with numbers and with other messages.

Nothing that was said in one language is ever read back to be said in another: what may have to be told in both is kept
as a :class:`Phrase`, its message and its numbers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal, get_args

from attribution_sched.errors import ExplanationError, nearest, problem
from attribution_sched.words.catalogue import texts, variants

Language = Literal["en", "zh"]

LANGUAGES: tuple[str, ...] = get_args(Language)


def check_language(lang: str) -> None:
    """Raise ``ExplanationError`` unless texts are written in this language."""
    if lang not in LANGUAGES:
        raise ExplanationError(problem("lang", lang, "is not written here", nearest(lang, LANGUAGES)))


def say(message: str, lang: str = "en", *, variant: object = None, **values: Any) -> str:
    """A message in a language.

    Values may be numbers, words, phrases (said in the same language), and tuples of these, whose separator is what
    stands after the colon of their place: ``{parts:, }``.

    Args:
        message: Its id in the catalogue, literally: so that a sentence on a screen leads to the code that says it.
        lang: ``en`` or ``zh``.
        variant: Which of its variants, if it has any; a column's number where they are a table's columns.
        **values: What its places are filled with.

    Raises:
        ExplanationError: If there is no such message, variant or language, or a place has no value.
    """
    check_language(lang)
    text = texts(lang).get(_name(message, variant))
    if text is None:
        raise _unknown(message, variant)
    ready = {name: _ready(value, lang) for name, value in values.items()}
    try:
        text = text.format(**ready)
    except KeyError as error:
        rule = f"has no value for the place {error}"
        raise ExplanationError(problem("message", message, rule, "Pass every value it names")) from error
    return text if lang == "en" else BETWEEN.sub("", text)


def say_name(message: str, name: str, lang: str = "en") -> str:
    """The variant of this name, as names of records are kept; a name that has none is somebody's own, and stays."""
    check_language(lang)
    return say(message, lang, variant=name) if name in variants(message) else name


def say_all(message: str, lang: str = "en") -> tuple[str, ...]:
    """All variants of a message in their order, as the head of a table has them."""
    return tuple(say(message, lang, variant=each) for each in variants(message))


def plural(count: float) -> Literal["one", "many"]:
    """The variant for so many."""
    return "one" if count == 1 else "many"


def _unknown(message: str, variant: object) -> ExplanationError:
    known = variants(message)
    if known:
        return ExplanationError(problem("variant", variant, f"is none of {message}", f"Valid: {', '.join(known)}"))
    name = _name(message, variant)
    return ExplanationError(problem("message", name, "is not in the catalogue", nearest(name, texts("en"))))


def _name(message: str, variant: object) -> str:
    return message if variant is None else f"{message}.{variant}"


BETWEEN = re.compile(r"(?<=[\u3000-\u303f\u4e00-\u9fff\uff00-\uffef]) (?=[\u3000-\u303f\u4e00-\u9fff\uff00-\uffef])")
"""A space between two Chinese characters, as around a place that was filled with words: there is none in Chinese."""


class Phrase(str):
    """A message with its values: English words that can be said in every language.

    It is the English text, so that it can be compared, printed and written like one.

    Attributes:
        message: Its id in the catalogue, with its variant after a dot.
        values: What its places are filled with.
    """

    __slots__ = ("message", "values")

    message: str
    values: Mapping[str, Any]

    def __new__(cls, message: str, /, *, variant: object = None, **values: Any) -> Phrase:
        """Put together a message and its values."""
        phrase = super().__new__(cls, say(message, "en", variant=variant, **values))
        phrase.message, phrase.values = _name(message, variant), values
        return phrase

    def say(self, lang: str) -> str:
        """It in a language."""
        return str(self) if lang == "en" else say(self.message, lang, **self.values)

    def __copy__(self) -> Phrase:
        return self

    def __deepcopy__(self, _: Any) -> Phrase:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return _phrase, (self.message, dict(self.values))

    def to_dict(self) -> dict[str, Any]:
        """As plain words, numbers and lists."""
        return {"message": self.message, "values": {name: _plain(value) for name, value in self.values.items()}}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Phrase:
        """The inverse of :meth:`to_dict`.

        Raises:
            ExplanationError: If there is no such message.
        """
        return cls(record["message"], **{name: _read(value) for name, value in record["values"].items()})


def in_language(words: str, lang: str) -> str:
    """Words in a language if they are a phrase; names, and words of records that kept no phrase, stay as they are."""
    check_language(lang)
    return words.say(lang) if isinstance(words, Phrase) else words


class _Parts(tuple[str, ...]):
    """Words that are joined by what a place asks for."""

    def __format__(self, mark: str) -> str:
        return mark.join(self)


def _ready(value: Any, lang: str) -> Any:
    if isinstance(value, Phrase):
        return value.say(lang)
    if isinstance(value, (tuple, list)):
        return _Parts(str(_ready(part, lang)) for part in value)
    return value


def _phrase(message: str, values: Mapping[str, Any]) -> Phrase:
    return Phrase(message, **values)


def _plain(value: Any) -> Any:
    if isinstance(value, Phrase):
        return value.to_dict()
    return [_plain(part) for part in value] if isinstance(value, (tuple, list)) else value


def _read(value: Any) -> Any:
    if isinstance(value, Mapping):
        return Phrase.from_dict(value)
    return tuple(_read(part) for part in value) if isinstance(value, list) else value


def counted(message: str, count: int) -> Phrase:
    """So many of something, one of it in the singular."""
    return Phrase(message, variant=plural(count), count=int(count))


def spaced(text: str) -> str:
    """Set Latin letters and digits apart from Chinese characters by a space, as typesetters do."""
    text = re.sub(r"([\u4e00-\u9fff])([A-Za-z0-9])", r"\1 \2", text)
    return re.sub(r"([A-Za-z0-9%])([\u4e00-\u9fff])", r"\1 \2", text)
