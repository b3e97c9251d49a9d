"""Sections say what there is to say, and say so where there is nothing."""

from dataclasses import replace

import pytest

from attribution_sched.explain.plots import style
from attribution_sched.report.data import Changes, FeedbackStep, Why
from attribution_sched.report.document import Picture, Table, Text
from attribution_sched.report.saying import clock, share
from attribution_sched.report.sections import changes, decisions, provenance, rivals, targets, traffic
from attribution_sched.report.telling import document
from tests.report.runs import report

CHANGE = FeedbackStep(
    0, 12, "reward weights", {"w_eff": 1.0}, {"w_eff": 1.2}, "Too slow.", "太慢。", None, rolled_back=True
)


def words(section):
    return " ".join(block.words for block in section.blocks if isinstance(block, Text))


def test_no_feedback_is_told():
    assert "No changes were made" in words(changes.section(report("alone"), "en"))
    assert "没有任何修改" in words(changes.section(report("alone"), "zh"))


def test_feedback_is_told_with_its_reasons():
    undo = replace(CHANGE, number=1, undoes=0, rolled_back=False, english="Worse than before.", chinese="")
    told = replace(report("alone"), changes=Changes(3, (CHANGE, undo), ((20, "All met.", "全部达成。"),)))
    english, chinese = (changes.section(told, lang) for lang in ("en", "zh"))
    table = next(block for block in english.blocks if isinstance(block, Table))
    assert [row[-1] for row in table.rows] == ["rolled back", "takes back no. 0"]
    assert table.rows[0][3:5] == ("w_eff 1", "w_eff 1.2")
    assert "3 time(s)" in words(english)
    assert "Too slow." in words(english)
    assert "All met." in words(english)
    assert "太慢。" in words(chinese)
    assert "日志仅存英文原文" in words(chinese)


def test_one_domain_has_no_traffic():
    assert "one domain" in words(traffic.section(report("alone"), "en"))


def test_cut_points_are_told():
    section = traffic.section(report("ruled"), "en")
    pictures = [block for block in section.blocks if isinstance(block, Picture)]
    assert pictures
    assert all("cut after layer" in picture.caption for picture in pictures)


def test_no_targets_are_told():
    assert "No targets were set" in words(targets.section(report("alone"), "en"))


def test_a_missing_explanation_is_told_with_its_reason():
    told = report("ruled")
    first = told.reasons.consequential[0]
    why = replace(told.reasons, consequential=(Why(first.decision, None, "no background"),))
    part = decisions.section(replace(told, reasons=why), "en").parts[0]
    assert "could not be explained: no background" in words(part)


def test_rivals_say_what_was_compared():
    told = words(rivals.section(report("ruled"), "en"))
    assert "seed 2" in told
    assert "ranks" in told
    assert "nothing was decided" in words(rivals.section(report("empty"), "en"))
    assert "尚无任何决策" in words(rivals.section(report("empty"), "zh"))


def test_without_a_chinese_font_pictures_are_english_and_it_is_told(monkeypatch):
    monkeypatch.setattr(style, "chinese_font", lambda: None)
    told = words(provenance.section(report("alone"), "zh"))
    assert "没有中文字体" in told
    monkeypatch.undo()
    if style.chinese_font():
        assert "没有中文字体" not in words(provenance.section(report("alone"), "zh"))


@pytest.mark.parametrize("name", ["ruled", "alone"])
def test_pictures_have_captions_and_words_for_those_who_do_not_see(name):
    for lang in ("en", "zh"):
        stack = list(document(report(name), lang).sections)
        seen = 0
        while stack:
            section = stack.pop()
            stack += section.parts
            for block in section.blocks:
                if isinstance(block, Picture):
                    seen += 1
                    assert len(block.caption) > 15
                    assert len(block.alt) > 12
        assert seen >= 4


def test_the_command_repeats_the_run():
    code = provenance.footer(report("alone"), "en").blocks[1]
    assert 'System("testbed", "sjf", seed=0, queue="demo")' in code.lines
    assert 'system.run(until="empty")' in code.lines or "system.run(3)" in code.lines
    assert "only its journal tells" in words(provenance.footer(report("ruled"), "en"))


def test_times_in_words():
    assert clock(30.0) == "30 s"
    assert clock(3600.0 * 30) == "1 d 6 h"
    assert clock(3600.0 * 30, "zh") == "1 天 6 小时"
    assert clock(125.0) == "2 min"
    assert share(-0.25) == "−25 %"
    assert share(0.25, "zh") == "25%"
