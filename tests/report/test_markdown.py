"""Markdown says the same as the page, in tables that hold."""

import re

import pytest

from attribution_sched.report.build import document
from attribution_sched.report.document import Document, Section, Table, Text
from attribution_sched.report.html import to_html
from attribution_sched.report.markdown import to_markdown
from tests.report.runs import SYSTEMS, report


def tables(text):
    return [block.strip().split("\n") for block in re.split(r"\n\n", text) if block.startswith("|")]


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("name", SYSTEMS)
def test_tables_have_as_many_cells_in_every_row(name, lang):
    found = tables(to_markdown(document(report(name), lang)))
    assert found
    for rows in found:
        assert re.fullmatch(r"(\|-{3}:?)+\|", rows[1])
        assert len({row.count("|") for row in rows}) == 1


def test_the_same_sentences_stand_in_both_forms():
    told = document(report("learnt"), "en")
    page = to_html(told).replace("&#x27;", "'").replace("&lt;", "<").replace("&amp;", "&")
    text = to_markdown(told).replace("\\", "")
    for section in told.sections:
        assert f"## {section.title}" in text
        for block in section.blocks:
            if isinstance(block, Text):
                assert block.words in page
                assert block.words in text
            if isinstance(block, Table):
                for row in block.rows:
                    for cell in row:
                        assert cell in page
                        assert cell in text


def test_there_are_no_pictures_and_no_tags():
    text = to_markdown(document(report("learnt"), "en"))
    assert "![" not in text
    assert "data:" not in text


def test_nothing_somebody_named_becomes_a_link_a_picture_or_an_escape():
    evil = "![b](http://evil/x.png) [c](javascript:x)\x1b[2J\u202e\x00 d\u2028e"
    made = Document(
        evil,
        evil,
        "en",
        (
            Section(
                "s",
                evil,
                (Text(evil), Table((evil,), ((evil,),))),
            ),
        ),
        "",
        "",
    )
    text = to_markdown(made)
    assert "\\!\\[b\\](http" in text
    assert not re.search(r"(?<!\\)[\[\]!]", text)
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]", text)


def test_marks_in_words_are_only_words():
    odd = "a|b _c_ `d` <e>\nf"
    made = Document(odd, "", "en", (Section("s", "t", (Table((odd,), ((odd,),)),)),), "", "")
    rows = tables(to_markdown(made))[0]
    assert len(rows) == 3
    assert rows[0].count("|") == 2
    assert "&#124;" in rows[2]
