"""A message in a language: looked up by its id, filled in with numbers and with other messages.

Nothing that was said in one language is ever read back to be said in another: what may have to be told in both is kept
as a :class:`Phrase`, its message and its numbers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal, get_args

from attribution_sched.errors import ExplanationError, nearest, problem

Language = Literal["en", "zh"]

LANGUAGES: tuple[str, ...] = get_args(Language)


def check_language(lang: str) -> None:
    """Raise ``ExplanationError`` unless texts are written in this language."""
    if lang not in LANGUAGES:
        raise ExplanationError(problem("lang", lang, "is not written here", nearest(lang, LANGUAGES)))


def say(message: str, lang: str = "en", **values: Any) -> str:
    """A message in a language.

    Values may be numbers, words, phrases (said in the same language), and tuples of these, whose separator is what
    stands after the colon of their place: ``{parts:, }``.

    Args:
        message: Its id in the catalogue.
        lang: ``en`` or ``zh``.
        **values: What its places are filled with.

    Raises:
        ExplanationError: If there is no such message or language, or a place has no value.
    """
    from attribution_sched.words.catalogue import MESSAGES

    check_language(lang)
    pair = MESSAGES.get(message)
    if pair is None:
        raise ExplanationError(problem("message", message, "is not in the catalogue", nearest(message, MESSAGES)))
    ready = {name: _ready(value, lang) for name, value in values.items()}
    try:
        text = pair[LANGUAGES.index(lang)].format(**ready)
    except KeyError as error:
        rule = f"has no value for the place {error}"
        raise ExplanationError(problem("message", message, rule, "Pass every value it names")) from error
    return text if lang == "en" else BETWEEN.sub("", text)


BETWEEN = re.compile(r"(?<=[\u3000-\u303f\u4e00-\u9fff\uff00-\uffef]) (?=[\u3000-\u303f\u4e00-\u9fff\uff00-\uffef])")
"""A space between two Chinese characters, as around a place that was filled with words: there is none in Chinese."""


class Phrase(str):
    """A message with its values: English words that can be said in every language.

    It is the English text, so that it can be compared, printed and written like one.

    Attributes:
        message: Its id in the catalogue.
        values: What its places are filled with.
    """

    __slots__ = ("message", "values")

    message: str
    values: Mapping[str, Any]

    def __new__(cls, message: str, /, **values: Any) -> Phrase:
        """Put together a message and its values."""
        made = super().__new__(cls, say(message, "en", **values))
        made.message, made.values = message, values
        return made

    def say(self, lang: str) -> str:
        """It in a language."""
        return str(self) if lang == "en" else say(self.message, lang, **self.values)

    def __copy__(self) -> Phrase:
        return self

    def __deepcopy__(self, _: Any) -> Phrase:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return _made, (self.message, dict(self.values))

    def to_dict(self) -> dict[str, Any]:
        """As plain words, numbers and lists."""
        return {"message": self.message, "values": {name: _plain(value) for name, value in self.values.items()}}

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> Phrase:
        """The inverse of :meth:`to_dict`.

        Raises:
            ExplanationError: If there is no such message.
        """
        return cls(given["message"], **{name: _read(value) for name, value in given["values"].items()})


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


def _made(message: str, values: Mapping[str, Any]) -> Phrase:
    return Phrase(message, **values)


def _plain(value: Any) -> Any:
    if isinstance(value, Phrase):
        return value.to_dict()
    return [_plain(part) for part in value] if isinstance(value, (tuple, list)) else value


def _read(value: Any) -> Any:
    if isinstance(value, Mapping):
        return Phrase.from_dict(value)
    return tuple(_read(part) for part in value) if isinstance(value, list) else value


def counted(what: str, count: int) -> Phrase:
    """So many of something, one of it in the singular: messages ``count.what.one`` and ``count.what.many``."""
    return Phrase(f"count.{what}.{'one' if count == 1 else 'many'}", count=int(count))


# ------ How Chinese is set


def spaced(text: str) -> str:
    """Set Latin letters and digits apart from Chinese characters by a space, as typesetters do."""
    text = re.sub(r"([\u4e00-\u9fff])([A-Za-z0-9])", r"\1 \2", text)
    return re.sub(r"([A-Za-z0-9%])([\u4e00-\u9fff])", r"\1 \2", text)
