"""Sections say what there is to say, and say so where there is nothing."""

import io
import re
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.text import Text as Drawn

from attribution_sched.billing.bill import make_bill
from attribution_sched.billing.usage import TaskUse, Usage
from attribution_sched.explain.plots import style
from attribution_sched.report.build import document
from attribution_sched.report.collect.bill import MOST_PAYERS, billing
from attribution_sched.report.collect.rivals import BLOCKS
from attribution_sched.report.data import Changes, FeedbackStep, Number, Why
from attribution_sched.report.document import Code, Fold, Picture, Table, Text, Tiles
from attribution_sched.report.format import clock, hours, moment, share
from attribution_sched.report.sections import bill, changes, decisions, provenance, rivals, summary, targets, traffic
from attribution_sched.words.catalogue import variants
from tests.explain.plots.fonts import bare_machine
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
    assert "looked 3 times and made 2 changes, 1 taken back" in words(english)
    assert "Too slow." in words(english)
    assert "All met." in words(english)
    assert "太慢。" in words(chinese)
    assert "日志仅存英文原文" in words(chinese)


def test_one_of_anything_is_told_as_one():
    told = report("alone")
    once = replace(told, changes=Changes(1, (replace(CHANGE, rolled_back=False),), ()))
    assert "looked once and made 1 change, none taken back" in words(changes.section(once, "en"))
    assert "looked once and left" in words(changes.section(replace(told, changes=Changes(1, (), ())), "en"))
    ones = {name: Number(1.0, "", "simulated") for name in ("running", "waiting", "refused", "decisions", "arrived")}
    section = summary.section(replace(told, run=replace(told.run, totals=told.run.totals | ones)), "en")
    assert "1 task is running and 1 is waiting; the cluster refused 1 plan." in words(section)
    assert ": 1 decision, " in words(section)
    assert "of 1 task placed" in words(section)


def test_energy_without_a_carbon_intensity_is_not_called_clean():
    told = report("alone")
    for carbon_kg, note in ((0.0, "carbon intensity not given"), (2.0, "of the tasks, accounted by the location")):
        totals = told.run.totals | {
            "carbon_kg": Number(carbon_kg, "kg CO2e", "simulated"), "energy_kwh": Number(5.0, "kWh", "simulated"),
        }  # fmt: skip
        section = summary.section(replace(told, run=replace(told.run, totals=totals)), "en")
        tiles = [tile for block in section.blocks if isinstance(block, Tiles) for tile in block.tiles]
        assert any(tile.note.startswith(note) for tile in tiles)


def test_the_network_s_grams_stand_beside_the_tasks():
    told = report("learnt")
    assert len(told.run.domains) > 1
    grams = {"carbon_kg": 204.0, "network_carbon_kg": 61.2}
    totals = told.run.totals | {name: Number(value, "kg CO2e", "simulated") for name, value in grams.items()}
    for lang, note in (("en", "and the network's 61.2 kg CO"), ("zh", "、网络 61.2 kg CO")):
        section = summary.section(replace(told, run=replace(told.run, totals=totals)), lang)
        tiles = [tile for block in section.blocks if isinstance(block, Tiles) for tile in block.tiles]
        assert any(note in tile.note for tile in tiles)


def test_rivals_say_by_which_weights_they_are_judged():
    told = replace(report("learnt"), changes=Changes(1, (CHANGE,), ()))
    assert "weights at the end of the run" in words(rivals.section(told, "en"))
    alone = replace(told, changes=Changes(0, (), ()))
    assert "weights at the end of the run" not in words(rivals.section(alone, "en"))


@pytest.mark.parametrize(
    ("value_h", "english", "chinese"),
    [(3.448, "3.45 h", "3.45 小时"), (0.0268, "1.61 min", "1.61 分钟"), (0.005, "18 s", "18 秒"),
     (0.0, "0 h", "0 小时"), (None, "–", "–")],
)  # fmt: skip
def test_short_times_are_not_told_in_hours(value_h, english, chinese):
    told = Number(value_h, "h", "simulated")
    assert (hours(told), hours(told, "zh")) == (english, chinese)


def test_the_command_that_repeats_a_run_has_its_targets():
    told = report("learnt")
    plain = replace(told, run=replace(told.run, shipped=True))
    code = next(block.lines for block in provenance.footer(plain, "en").blocks if isinstance(block, Code))
    assert '"utilisation_at_least": 0.5' in code
    compile(code, "report", "exec")


def test_one_domain_has_no_traffic():
    assert "one domain" in words(traffic.section(report("alone"), "en"))


def test_cut_points_are_told():
    section = traffic.section(report("ruled"), "en")
    pictures = [block for block in section.blocks if isinstance(block, Picture)]
    assert pictures
    assert all("cut after layer" in picture.caption for picture in pictures)


def test_no_targets_are_told():
    assert "No targets were set" in words(targets.section(report("alone"), "en"))


@pytest.mark.parametrize("source", variants("report.decisions.source"))
def test_whoever_made_a_decision_is_named_in_both_languages(source):
    english, chinese = (decisions._source(source, lang) for lang in ("en", "zh"))
    assert english and chinese and english != chinese


def test_a_missing_explanation_is_told_with_its_reason():
    told = report("ruled")
    first = told.reasons.consequential[0]
    why = replace(told.reasons, consequential=(Why(first.decision, None, "no background"),))
    part = decisions.section(replace(told, reasons=why), "en").parts[0]
    assert "could not be explained: no background" in words(part)


@pytest.mark.parametrize(("lang", "wait"), [("en", "wait"), ("zh", "等待")])
def test_a_card_begins_with_the_reason_and_what_else_could_have_been_done(lang, wait):
    made = report("learnt")
    part = decisions.section(made, lang).parts[0]
    assert part.blocks[0].words == made.reasons.consequential[0].instead[lang]["sentence"]
    table = next(block for block in part.blocks if isinstance(block, Table))
    marked = [row[0].startswith("✔ ") for row in table.rows]
    assert marked[0] and not any(marked[1:]) and any(row[0].startswith(wait) for row in table.rows)
    # The choice itself is what others are compared with.
    assert set(table.rows[0][1:]) == {"–"} and {len(row) for row in table.rows} == {len(table.head)}


def test_rivals_say_what_was_compared():
    told = words(rivals.section(report("ruled"), "en"))
    assert "seed 2" in told
    assert "ranks" in told
    assert "nothing was decided" in words(rivals.section(report("empty"), "en"))
    assert "尚无任何决策" in words(rivals.section(report("empty"), "zh"))


@pytest.mark.filterwarnings("ignore::attribution_sched.errors.MissingFontWarning")
def test_pictures_drawn_as_pixels_without_a_chinese_font_are_english(monkeypatch):
    section = rivals.section(report("ruled"), "zh")
    picture = next(block for block in section.blocks if isinstance(block, Picture))
    with bare_machine(monkeypatch), style.canvas(6.6):
        figure = picture.draw().get_figure()
        figure.savefig(io.BytesIO(), format="png")
    told = " ".join(text.get_text() for text in figure.findobj(Drawn))
    assert "the same span" in told
    assert not re.search(r"[\u4e00-\u9fff□]", told)


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
    assert clock(120.0) == "2 min"
    assert clock(125.0) == "2 min 5 s"
    assert moment(46.0) == "46 s"
    assert moment(5400.0, "zh") == "1.50 小时"
    assert share(-0.25) == "−25 %"
    assert share(0.25, "zh") == "25%"


def test_the_bill_adds_up_in_words_and_says_why_rules_differ():
    told = report("ruled")
    assert told.bill is not None and told.bill.gap < 1e-9 and not told.bill.missing
    for lang, mark in (("en", "add up to the meters"), ("zh", "之和等于计量值")):
        made = bill.section(told, lang)
        assert mark in words(made)
        by_payer, by_operator, by_rule = (block for block in made.blocks if isinstance(block, Table))
        assert len(by_operator.rows) == len(by_payer.rows) - 2
        fold = next(block for block in made.blocks if isinstance(block, Fold))
        assert len(by_payer.rows) == len({line.payer for line in told.bill.lines}) + 2
        # Every line has its reason, and every payer stands under every rule.
        assert all(row[-1] for row in fold.blocks[0].rows) and len(fold.blocks[0].rows) == len(told.bill.lines)
        assert len(by_rule.head) == 1 + 5 + 3


def test_a_run_without_decisions_has_no_bill():
    assert "no bill" in words(bill.section(report("empty"), "en"))


def test_many_payers_end_in_one_line_that_keeps_the_sum():
    many = [TaskUse(f"t{i}", f"tenant{i:02d}", "m", 0.0) for i in range(60)]
    count = np.arange(60)
    usage = Usage(
        ("a",), np.array([64]), np.array([0.0, 3600.0]), tuple(many), np.zeros(60, dtype=np.int64), count,
        np.zeros(60, dtype=np.int64), np.ones(60), np.full(60, 3600.0), 1.0 + count, np.ones(60), np.full((1, 1), 4.0),
        np.ones((1, 1)), np.ones((1, 1)), float((1.0 + count).sum() + 64.0), 0.0,
    )  # fmt: skip
    made = billing(make_bill(usage, orders=64), usage)
    energy = sum(line.own + line.shared for line in made.lines if line.part == "energy")
    assert len({line.payer for line in made.lines}) == MOST_PAYERS + 1
    assert energy + made.unallocated["energy"] == pytest.approx(made.meter["energy"])


@pytest.mark.parametrize(
    ("own", "other", "uneven", "tone", "word"),
    [
        (10.0, 8.0, 0.01, "good", "ahead of"),
        (8.0, 10.0, 0.01, "bad", "behind"),
        (8.0, 10.0, 2.0, "plain", "level within chance"),
        (10.0, 8.0, 2.0, "plain", "level within chance"),
    ],
)
def test_the_verdict_is_against_the_rival_that_earned_most_and_level_within_chance(own, other, uneven, tone, word):
    told = report("ruled")
    earned = {"static-uniform": own, "greedy": other, "sjf": 1.0}

    def blocks(policy):
        swing = uneven * (np.arange(12) - 5.5) if policy == "greedy" else np.zeros(12)
        return tuple((earned[policy] / 12 + swing).tolist())

    contenders = tuple(
        replace(
            one,
            figures=one.figures | {"earned": Number(earned[one.policy], "", "simulated")},
            blocks=blocks(one.policy),
            missing="",
        )
        for one in told.rivals.contenders
        if one.policy in earned and one.figures
    )
    section = summary.section(replace(told, rivals=replace(told.rivals, contenders=contenders)), "en")
    verdict = section.blocks[0]
    assert verdict.tone == tone
    assert word in verdict.words
    assert "greedy" in verdict.words
    assert "sjf" not in verdict.words


def test_without_rivals_the_verdict_says_so():
    told = report("ruled")
    section = summary.section(replace(told, rivals=replace(told.rivals, contenders=())), "en")
    assert "no rival was played" in section.blocks[0].words


def test_returns_of_blocks_add_up_to_what_was_earned():
    played = [one for one in report("ruled").rivals.contenders if not one.missing]
    assert len(played) > 1
    for one in played:
        assert len(one.blocks) == BLOCKS
        assert sum(one.blocks) == pytest.approx(one.figures["earned"].value)
