"""The catalogue: id → text, a file per language, read when a language is first spoken.

A message may have variants: the id stands in the code as it stands in the file, and the variant is passed beside it.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import yaml

HERE = Path(__file__).parent


@cache
def texts(lang: str) -> dict[str, str]:
    """All texts of a language: a message by its id, a variant by ``id.variant``."""
    every: dict[str, str] = {}
    for message, text in _entries(lang).items():
        if isinstance(text, str):
            every[message] = text
        else:
            every |= {f"{message}.{variant}": each for variant, each in _by_variant(text).items()}
    return every


@cache
def variants(message: str) -> tuple[str, ...]:
    """Names of a message's variants, numbers where they are columns; empty if it has none."""
    text = _entries("en").get(message, "")
    return () if isinstance(text, str) else tuple(_by_variant(text))


@cache
def _entries(lang: str) -> dict[str, str | dict[str, str] | list[str]]:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    text = (HERE / f"{lang}.yaml").read_text("utf-8")
    return yaml.load(text, loader)  # type: ignore[no-any-return]  # noqa: S506 (a safe loader, whichever it is)


def _by_variant(text: dict[str, str] | list[str]) -> dict[str, str]:
    return text if isinstance(text, dict) else {str(column): each for column, each in enumerate(text)}
