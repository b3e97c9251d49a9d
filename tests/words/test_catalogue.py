"""Every message is there in both languages, with the same places, and its id stands literally where it is said."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from string import Formatter

import pytest
import yaml

import attribution_sched
from attribution_sched.words import catalogue

PACKAGE = Path(attribution_sched.__file__).parent
SPEAKERS = ("say", "say_all", "say_name", "Phrase", "counted", "in_words", "variants")
"""Functions whose first argument is the id of a message."""
ENTRIES = {lang: catalogue._entries(lang) for lang in ("en", "zh")}
TEXTS = {lang: catalogue.texts(lang) for lang in ("en", "zh")}


def places(text: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(text) if name is not None}


@pytest.mark.parametrize("name", TEXTS["en"])
def test_both_languages_have_the_same_places(name):
    english, chinese = TEXTS["en"][name], TEXTS["zh"][name]
    assert english and chinese
    assert places(english) == places(chinese)
    assert all(re.fullmatch("[a-z_0-9]+", place) for place in places(english))
    assert not places(english) & {"message", "lang", "variant"}


@pytest.mark.parametrize("name", TEXTS["en"])
def test_english_is_english_and_chinese_is_chinese(name):
    english, chinese = (re.sub(r"\{[^}]*\}", "", TEXTS[lang][name]) for lang in ("en", "zh"))
    if name == "serve.language":
        # What leads to the other language is named in it.
        english, chinese = chinese, english
    assert not re.search(r"[\u3000-\u9fff\uff00-\uffef]", english)
    # Names, and what is to be typed: System(targets=...), journal=, explain=0, `commands`.
    chinese = re.sub(r"System(\(.*?\))?|\b(journal|explain)=|`[^`]*`", "", chinese)
    assert set(re.findall(r"[A-Za-z]{4,}", chinese)) <= {"PCIe", "GPipe", "Shapley", "util", "cost", "EmSHAP"}


def test_both_languages_have_the_same_messages_and_variants_in_the_same_order():
    assert list(ENTRIES["en"]) == list(ENTRIES["zh"])
    assert list(TEXTS["en"]) == list(TEXTS["zh"])
    assert all(isinstance(text, str) for texts in TEXTS.values() for text in texts.values())


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_no_message_is_there_twice(lang):
    # YAML takes the last of two equal keys without a word.
    node = yaml.compose((catalogue.HERE / f"{lang}.yaml").read_text("utf-8"))
    for entries in (node, *(value for _, value in node.value if isinstance(value, yaml.MappingNode))):
        names = [key.value for key, _ in entries.value]
        assert sorted(names) == sorted(set(names))


def calls(tree: ast.AST) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node.args and getattr(node.func, "id", "") in SPEAKERS:
            yield node


def literals(node: ast.AST) -> list[str] | None:
    """The constants that an expression names, or None if it puts strings together or asks somebody for one."""
    if isinstance(node, ast.Constant):
        return [node.value] if isinstance(node.value, str) else []
    if isinstance(node, ast.Name | ast.Attribute | ast.Subscript):
        return []
    if isinstance(node, ast.IfExp):
        branches = [literals(node.body), literals(node.orelse)]
        return None if None in branches else [each for branch in branches for each in branch]
    return None


def composed(node: ast.AST) -> Iterator[ast.JoinedStr]:
    """Strings that are put together of what an id is made of; settings, which have such names too, stand in errors."""
    if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "problem":
        return
    if isinstance(node, ast.JoinedStr):
        constants = [str(each.value) for each in node.values if isinstance(each, ast.Constant)]
        if re.fullmatch(r"[a-z_.]+", "".join(constants)):
            yield node
    for inner in ast.iter_child_nodes(node):
        yield from composed(inner)


def speaking(tree: ast.AST) -> bool:
    """Whether a module imports those that say messages."""
    return any(
        isinstance(node, ast.ImportFrom)
        and node.module
        and (".words." in node.module or node.module.endswith(("report.format", "feedback.words")))
        for node in ast.walk(tree)
    )


MODULES = {path: tree for path in PACKAGE.rglob("*.py") if speaking(tree := ast.parse(path.read_text("utf-8")))}
TEMPLATES = {path: path.read_text("utf-8") for path in PACKAGE.rglob("*.html")}


def test_every_message_stands_literally_in_code_and_every_one_said_is_there():
    written = {
        node.value
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    for text in TEMPLATES.values():
        written |= set(re.findall(r"\bt\([\"']([a-z_.]+)[\"']", text))
    assert set(ENTRIES["en"]) - written == set()


def test_every_message_that_is_said_is_there_with_the_variants_it_is_said_with():
    said = 0
    for path, tree in MODULES.items():
        for call in calls(tree):
            for message in literals(call.args[0]) or ():
                said += 1
                assert message in ENTRIES["en"], (path, call.lineno, message)
                chosen = next((each.value for each in call.keywords if each.arg == "variant"), None)
                if call.func.id in ("say", "Phrase", "in_words"):
                    assert (chosen is not None) == bool(catalogue.variants(message)), (path, call.lineno, message)
                for variant in literals(chosen) or () if chosen is not None else ():
                    assert variant in catalogue.variants(message), (path, call.lineno, variant)
    assert said > 500


def test_no_id_is_put_together():
    """The first argument is a constant, a choice of constants, or a name or field that holds one: never a sum."""
    for path, tree in MODULES.items():
        for call in calls(tree):
            assert literals(call.args[0]) is not None, (path, call.lineno, ast.unparse(call)[:90])
    families = {message.rpartition(".")[0] + "." for message in TEXTS["en"] if "." in message}
    for path, tree in MODULES.items():
        for node in composed(tree):
            begin = node.values[0].value if isinstance(node.values[0], ast.Constant) else ""
            assert begin not in families, (path, node.lineno, ast.unparse(node))
    for path, text in TEMPLATES.items():
        assert not re.search(r"\bt\([^)]*~", text), path
        for message in re.findall(r"\bt\([\"']([a-z_.]+)[\"']", text):
            assert message in ENTRIES["en"], (path, message)


def test_no_sentence_is_translated_by_pattern():
    # What a text says in another language comes from the catalogue, never from the text.
    for path in PACKAGE.rglob("*.py"):
        for line in path.read_text("utf-8").splitlines():
            assert not re.search(r"re\.(sub|fullmatch|match|search)\([^)]*[\u4e00-\u9fff]", line), (path, line)


def test_only_who_speaks_loads_the_messages():
    script = """
from attribution_sched import System
import attribution_sched.explain.wording, attribution_sched.feedback.loop, attribution_sched.serve.rows
from attribution_sched.words import catalogue
assert catalogue._entries.cache_info().currsize == 0
from attribution_sched.words.say import say
say("end", text="")
assert catalogue._entries.cache_info().currsize == 1
"""
    subprocess.run([sys.executable, "-c", script], check=True, cwd=PACKAGE.parent)


def test_a_language_loads_in_a_blink():
    spent = []
    for _ in range(5):
        began = time.process_time()
        catalogue._entries.__wrapped__("en")
        spent.append(time.process_time() - began)
    assert min(spent) < 0.06
