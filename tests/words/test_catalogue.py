"""Every message is there in both languages, with the same places, and somebody says it."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from string import Formatter

import pytest

import attribution_sched
from attribution_sched.words.catalogue import MESSAGES, PAGES

PACKAGE = Path(attribution_sched.__file__).parent


def places(text: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(text) if name is not None}


@pytest.mark.parametrize("message", MESSAGES)
def test_both_languages_have_the_same_places(message):
    english, chinese = MESSAGES[message]
    assert english and chinese
    assert places(english) == places(chinese)
    assert all(re.fullmatch("[a-z_0-9]+", place) for place in places(english))


@pytest.mark.parametrize("message", MESSAGES)
def test_english_is_english_and_chinese_is_chinese(message):
    english, chinese = (re.sub(r"\{[^}]*\}", "", text) for text in MESSAGES[message])
    if message == "serve.language":
        # What leads to the other language is named in it.
        english, chinese = chinese, english
    assert not re.search(r"[\u3000-\u9fff\uff00-\uffef]", english)
    # Names, and what is to be typed: System(targets=...), journal=, explain=0, `commands`.
    chinese = re.sub(r"System(\(.*?\))?|\b(journal|explain)=|`[^`]*`", "", chinese)
    assert set(re.findall(r"[A-Za-z]{4,}", chinese)) <= {"PCIe", "GPipe", "Shapley", "util", "cost", "EmSHAP"}


def test_no_message_is_there_twice():
    assert sum(len(page) for page in PAGES) == len(MESSAGES)


def test_every_message_is_said_somewhere_and_every_one_said_is_there():
    literal, patterns = set(), set()
    for path in PACKAGE.rglob("*.py"):
        if path.parent.name == "words" and path.stem.startswith("messages_"):
            continue
        text = path.read_text("utf-8")
        speaks = "explain.words" in text or "report.format" in text
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                literal.add(node.value)
            if isinstance(node, ast.JoinedStr) and isinstance(node.values[0], ast.Constant):
                parts = [re.escape(part.value) if isinstance(part, ast.Constant) else ".+" for part in node.values]
                patterns.add("".join(parts))
            called = getattr(getattr(node, "func", None), "id", "")
            if speaks and called in ("say", "Phrase") and isinstance(node.args[0], ast.Constant):
                assert node.args[0].value in MESSAGES, (path, node.args[0].value)
    for path in PACKAGE.rglob("*.html"):
        text = path.read_text("utf-8")
        literal |= set(re.findall(r"\bt\([\"']([a-z_.]+)[\"']", text))
        patterns |= {re.escape(prefix) + ".+" for prefix in re.findall(r"\bt\(\"([a-z_.]+\.)\" ~", text)}
    spoken = re.compile("|".join(pattern for pattern in patterns if re.match(r"[a-z_]+\\\.", pattern)))
    silent = [message for message in MESSAGES if message not in literal and not spoken.fullmatch(message)]
    assert silent == []


def test_no_sentence_is_translated_by_pattern():
    # What a text says in another language comes from the catalogue, never from the text.
    for path in PACKAGE.rglob("*.py"):
        for line in path.read_text("utf-8").splitlines():
            assert not re.search(r"re\.(sub|fullmatch|match|search)\([^)]*[\u4e00-\u9fff]", line), (path, line)
