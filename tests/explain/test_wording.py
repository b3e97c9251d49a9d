"""Plans in words: right layers, right devices, both languages."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attribution_sched.cluster.gpus import Precision
from attribution_sched.cluster.pipeline import Schedule
from attribution_sched.cluster.plan import Plan, Replica, Segment
from attribution_sched.errors import ExplanationError
from attribution_sched.explain.wording import (
    KEEP,
    WAIT,
    describe_plan,
    output_name,
    output_unit,
    plan_words,
    quantity_of,
    task_and_plan,
    unit_of,
)
from attribution_sched.words.names import input_name, unit_name
from attribution_sched.words.say import Phrase, in_language, say, spaced

NAMES = ("us-east", "eu-west", "ap-tokyo", "dc 4")


@st.composite
def plans(draw) -> Plan:
    domains = draw(st.permutations(range(4)))
    n_layers = draw(st.integers(4, 96))
    replicas = []
    for _ in range(draw(st.integers(1, 2))):
        n = draw(st.integers(1, 2))
        stops = [*sorted(draw(st.sets(st.integers(1, n_layers - 1), min_size=n - 1, max_size=n - 1))), n_layers]
        segments, first = [], 0
        for stop in stops:
            dp, tp, pp = (draw(st.sampled_from([1, 2, 4])) for _ in range(3))
            segments.append(Segment(domains.pop(), first, stop, dp, tp, pp, draw(st.sampled_from(list(Precision)))))
            first = stop
        replicas.append(Replica(tuple(segments), draw(st.integers(1, 64)), 4))
    return Plan(tuple(replicas), draw(st.sampled_from(list(Schedule))))


def test_a_plan_as_a_person_says_it():
    cut = Plan((Replica((Segment(0, 0, 24, 2, 4, 1, Precision.BF16), Segment(1, 24, 48, tp=8)), 4, 8),))
    assert describe_plan(cut, NAMES) == (
        "us-east ×8 GPUs (dp 2 · tp 4, BF16), layers 1–24 → eu-west ×8 GPUs (tp 8, FP16), layers 25–48, microbatch 4"
    )
    assert describe_plan(cut, NAMES, "zh") == (
        "us-east 8 张 GPU（dp 2 · tp 4，BF16）第 1–24 层 → eu-west 8 张 GPU（tp 8，FP16）第 25–48 层，微批 4"
    )
    one = Plan((Replica((Segment(2, 0, 12),), 1, 1),), Schedule.GPIPE)
    assert describe_plan(one, NAMES) == "ap-tokyo ×1 GPU (FP16), all 12 layers, microbatch 1, GPipe"
    both = Plan((one.replicas[0], Replica((Segment(0, 0, 11), Segment(1, 11, 12)), 2, 1)))
    assert describe_plan(both, NAMES) == (
        "2 replicas: ap-tokyo ×1 GPU (FP16), all 12 layers, microbatch 1 + "
        "us-east ×1 GPU (FP16), layers 1–11 → eu-west ×1 GPU (FP16), layer 12, microbatch 2"
    )


def test_no_plan_waits_or_stays():
    assert describe_plan(None, NAMES) == "wait"
    assert describe_plan(None, NAMES, replanning=True) == "keep the plan"
    assert describe_plan(None, NAMES, "zh") == "等待"
    assert describe_plan(None, NAMES, "zh", replanning=True) == "维持现有方案"


@settings(deadline=None, max_examples=50)
@given(plans())
def test_a_described_plan_can_be_said_in_chinese_later(plan):
    told = describe_plan(plan, NAMES)
    chinese = describe_plan(plan, NAMES, "zh")
    assert plan_words(told, "zh") == chinese
    kept = json.loads(json.dumps(told.to_dict()))
    assert Phrase.from_dict(kept) == told
    assert Phrase.from_dict(kept).say("zh") == chinese
    left = re.sub(r"us-east|eu-west|ap-tokyo|dc 4|GPU|GPipe|FP\d+|BF16|INT8|[dtp]p \d", "", chinese)
    assert not re.search("[A-Za-z]", left), left


@settings(deadline=None, max_examples=50)
@given(plans())
def test_layers_and_devices_are_all_told(plan):
    text = describe_plan(plan, NAMES)
    told = [int(n) for n in re.findall(r"×(\d+) GPU", text)]
    assert told == [segment.device_count for segment in plan.segments]
    for replica in plan.replicas:
        if len(replica.segments) > 1:
            first = replica.segments[0]
            assert re.search(rf"layers? {'1' if first.stop == 1 else f'1–{first.stop}'}\b", text)
            assert re.search(rf"[ –]{replica.segments[-1].stop}, microbatch {replica.microbatch}", text)


def test_names_that_cannot_be_are_refused():
    plan = Plan((Replica((Segment(4, 0, 2),), 1, 1),))
    with pytest.raises(ExplanationError, match="only 4 have names"):
        describe_plan(plan, NAMES)
    with pytest.raises(ExplanationError, match="lang = 'fr'"):
        describe_plan(plan, NAMES, "fr")


def test_subjects_split_into_task_and_plan():
    assert task_and_plan("gpt-24: wait") == ("gpt-24", "wait")
    assert task_and_plan("gpt: 2 replicas: a + b") == ("gpt", "2 replicas: a + b")
    assert task_and_plan("2 replicas: a + b") == ("", "2 replicas: a + b")
    assert task_and_plan("") == ("", "")


def test_quantities_and_units():
    assert quantity_of("link a–b", "bandwidth") == "bandwidth (link a–b)"
    assert quantity_of("link a–b", "link") == "link a–b"
    assert quantity_of("work left", "work left") == "work left"
    assert quantity_of("load a", "free devices", "zh") == "a 的空闲设备数"
    assert quantity_of("link a–b", "latency", "zh") == "链路 a–b的时延"
    assert unit_of("free devices", "devices") == ""
    assert unit_of("bandwidth", "Gb/s", "zh") == "Gb/s"
    assert unit_of("work left", "steps", "zh") == "步"


def test_names_and_readings_in_chinese():
    assert input_name("attribution memory_bandwidth", "zh") == "归因·内存带宽"
    assert input_name("attribution my counter", "zh") == "归因·my counter"
    assert input_name("links of us-east", "zh") == "us-east 出站链路"
    assert input_name("cut points + layout", "zh") == "切分点＋并行布局"
    assert input_name("my own input", "zh") == "my own input"
    assert input_name("load us-east", "en") == "load us-east"
    source = Phrase("background.decisions", count=512)
    like = Phrase("background.placement_same", source=source, count=90)
    assert like == "512 decisions: 90 placement decisions of the same kind of task"
    assert in_language(like, "zh") == "512 次决策，其中同类任务的放置决策 90 次"
    assert in_language(Phrase("reading.load", free=12, busy=40.0), "zh") == "12 块空闲设备、占用率 40%"
    assert in_language(Phrase("reading.plan", step_s=0.41, devices=8), "zh") == "每步 0.41 s（8 块设备）"
    assert in_language("somebody's own words", "zh") == "somebody's own words"
    assert unit_name("waiting", "zh") == "个等待任务"
    assert spaced("由abc升至3步") == "由 abc 升至 3 步"


def test_outputs_have_names_and_units():
    assert output_name("R_cost") == "cost (R_cost)"
    assert output_name("R_cost", "zh") == "成本（R_cost）"
    assert output_name("queue delay") == "queue delay"
    assert output_unit("R_cost", "terms") == "× the baseline's bill"
    assert output_unit("log_odds", "log_odds") == "nats"
    assert output_unit("y", "model") == ""


def test_waiting_and_keeping_are_known_by_their_english_words():
    assert (say("plan.wait"), say("plan.keep")) == (WAIT, KEEP)
    assert plan_words(WAIT, "zh") == say("plan.wait", "zh") and plan_words(KEEP, "zh") == say("plan.keep", "zh")
