"""Messages are filled in from numbers, phrases say themselves in every language, mistakes are told."""

from __future__ import annotations

import copy
import json

import pytest

from attribution_sched.errors import ExplanationError
from attribution_sched.words.say import Phrase, counted, in_language, say, say_all, say_name


def test_a_message_in_both_languages():
    assert say("reading.waiting", count=3) == "3 waiting"
    assert say("reading.waiting", "zh", count=3) == "3 个任务在等待"


def test_phrases_and_lists_are_said_in_the_same_language():
    one, other = Phrase("queue.behind", capacity=4), Phrase("why.nobody")
    both = Phrase("list.together", parts=(one, other))
    assert both == "behind the 4 tasks that the policy compares, several tasks together"
    assert both.say("zh") == "排在策略所比较的 4 个任务之后、多个任务共同"
    assert in_language(both, "en") == both


def test_a_phrase_is_its_english_text_wherever_it_goes():
    phrase = Phrase("background.decisions", count=3)
    assert phrase == "3 decisions"
    assert {phrase: 1}["3 decisions"] == 1
    assert json.dumps([phrase]) == '["3 decisions"]'
    for again in (copy.deepcopy(phrase), copy.copy(phrase), Phrase.from_dict(phrase.to_dict())):
        assert again.say("zh") == "3 次决策"
    assert type(str(phrase)) is str


def test_mistakes_are_told():
    with pytest.raises(ExplanationError, match=r"reading\.wait.*not in the catalogue.*reading\.waiting"):
        say("reading.wait", count=3)
    with pytest.raises(ExplanationError, match="no value for the place 'count'"):
        say("reading.waiting")
    with pytest.raises(ExplanationError, match="lang = 'fr'"):
        say("reading.waiting", "fr", count=3)


def test_a_message_of_several_variants():
    assert say("bill.by", variant="task") == "task" and say("bill.by", "zh", variant="task") == "任务"
    assert say_all("report.changes.head", "zh") == ("编号", "此前决策数", "内容", "修改前", "修改后", "状态")
    assert say("report.changes.head", variant=1) == "after decisions"
    assert [counted("count.tasks", n) for n in (1, 2)] == ["1 task", "2 tasks"]
    assert say_name("counter", "conv", "zh") == "卷积算子" and say_name("counter", "my own", "zh") == "my own"


def test_a_phrase_keeps_its_variant_as_records_have_always_had_it():
    phrase = Phrase("plan.segment", variant="many", domain="east", devices=8, inside=("BF16",), layers="all")
    assert phrase.to_dict()["message"] == "plan.segment.many"
    again = Phrase.from_dict(json.loads(json.dumps(phrase.to_dict())))
    assert again == phrase and again.say("zh") == phrase.say("zh") == copy.deepcopy(phrase).say("zh")


@pytest.mark.parametrize("variant", ["tasks", None])
def test_an_unknown_variant_names_those_that_are_known(variant):
    with pytest.raises(ExplanationError, match=r"variant = .*none of bill\.by.*Valid: tenant, task, model, domain"):
        say("bill.by", variant=variant)


def test_a_blank_between_chinese_signs_goes_and_in_english_it_stays():
    """What a place is filled with brings its blanks along."""
    chinese, english = (say("feedback.sentence", lang, words="第 四") for lang in ("zh", "en"))
    assert chinese == "第四。" and english == "第 四."
