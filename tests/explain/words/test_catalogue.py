"""Every message is there in both languages, with the same places, and somebody says it."""

from __future__ import annotations

import re
from pathlib import Path
from string import Formatter

import pytest

import attribution_sched
from attribution_sched.explain.words.catalogue import MESSAGES, PAGES

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
    assert not re.search(r"[\u3000-\u9fff\uff00-\uffef]", english)
    words = re.findall(r"[A-Za-z]{4,}", chinese)
    assert set(words) <= {"PCIe", "GPipe", "Shapley", "R_eff", "R_util", "R_cost", "util", "cost", "EmSHAP", "Slurm"}


def test_no_message_is_there_twice():
    assert sum(len(page) for page in PAGES) == len(MESSAGES)


def test_no_sentence_is_translated_by_pattern():
    # What a text says in another language comes from the catalogue, never from the text.
    for path in PACKAGE.rglob("*.py"):
        for line in path.read_text("utf-8").splitlines():
            assert not re.search(r"re\.(sub|fullmatch|match|search)\([^)]*[\u4e00-\u9fff]", line), (path, line)
