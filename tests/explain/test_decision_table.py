"""What else could have been done: complete, priced like the reward, and what would win was tried."""

import re
from dataclasses import replace

import numpy as np
import pytest

from attribution_sched import System
from attribution_sched.cluster.plan import PlanBatch
from attribution_sched.cluster.reward import value
from attribution_sched.errors import SettingsError
from attribution_sched.explain.decision_table import Alternative, DecisionTable, decision_table, with_free
from attribution_sched.explain.played import Played
from attribution_sched.explain.preference import redecided
from attribution_sched.explain.recorder import Decided, Watch, perceived
from attribution_sched.planning.candidates import as_carried_out
from attribution_sched.rivals.greedy import Greedy
from attribution_sched.stats.interval import MeanInterval

from .policies import views


def decided(policy=None, count=40):
    watch = Watch(policy or Greedy())
    for one in views()[:count]:
        watch.decide(one)
    return list(watch)


def test_every_other_domain_and_waiting_are_in_the_table():
    one = next(d for d in decided() if d.plan is not None and len(d.plan.domains) == 1)
    table = decision_table(Greedy(), one)
    names = {domain.name for domain in one.view.cost.cluster.domains}
    own = one.view.cost.cluster.domains[one.plan.domains[0]].name
    assert names - {own} <= {row.what for row in table.rows} and table.rows[0].chosen
    assert any(row.what == "wait" for row in table.rows)
    assert len(table.sentence.split()) <= 25 and table.sentence.say("zh")


def test_carbon_is_told_in_kilograms_against_the_alternative_that_differs_most():
    one = next(d for d in decided() if d.plan is not None and len(d.plan.domains) == 1)
    # A task long enough to emit kilograms.
    one = replace(one, view=replace(one.view, steps_left=1e4 * one.view.steps_left))
    table = decision_table(Greedy(), one, futures=0)
    grams = {row.what: row.carbon_g for row in table.rows if not row.chosen and row.carbon_g is not None}
    what = max(grams, key=lambda name: abs(grams[name]))
    assert what in table.carbon and ("less" if grams[what] > 0 else "more") in table.carbon
    own, more = (float(part.split()[0]) for part in table.carbon.split("steps: ")[1].split(", ")[:2])
    assert more == pytest.approx(abs(grams[what]) / 1e3, rel=0.01)
    assert own == pytest.approx(table.carbon_g / 1e3, rel=0.01)
    assert "核算碳排放" in table.carbon.say("zh")
    assert replace(table, rows=table.rows[:1]).carbon == ""


@pytest.mark.parametrize(
    ("own_g", "more_g", "told"),
    [(500.0, -2.92, False), (500.0, 9.9, False), (500.0, 10.1, True), (5_000.0, 49.0, False), (5_000.0, -51.0, True)],
)
def test_carbon_is_told_only_where_it_matters(own_g, more_g, told):
    rows = (Alternative("here", chosen=True), Alternative("there", carbon_g=more_g))
    said = DecisionTable("d0", "", rows, carbon_g=own_g).carbon
    assert bool(said) == told
    assert not told or said.say("zh")


def test_differences_are_those_of_the_reward():
    one = next(d for d in decided() if d.plan is not None)
    view = one.view
    table = decision_table(Greedy(), one)
    told = [row for row in table.rows[1:] if row.reward is not None]
    assert told
    plan = as_carried_out(view.cost, view.kind_index, view.kind.batch_size, one.plan)
    own = value(view, PlanBatch.of([plan])).reward[0]
    for row in told:
        r = view.reward
        assert row.reward == pytest.approx(
            r.w_eff * row.r_eff + r.w_util * row.r_util - r.w_cost * row.r_cost, abs=1e-6
        )
    assert np.isfinite(own)


def test_a_full_domain_says_how_many_devices_are_missing_and_the_change_told_wins():
    one = next(d for d in decided() if d.plan is not None)
    home = one.plan.domains[0]
    free = np.where(np.arange(len(one.view.free_devices)) == home, one.view.free_devices, 0)
    view = replace(one.view, free_devices=free)
    alone = Decided("x", view, Greedy().decide(view), perceived(Greedy(), view))
    table = decision_table(Greedy(), alone)
    lacking = [row for row in table.rows if row.missing]
    assert lacking and all("free" in row.missing or "small" in row.missing for row in lacking)
    names = [domain.name for domain in view.cost.cluster.domains]
    for row in [row for row in table.rows if row.change]:
        values = row.change.values
        changed, seen = with_free(alone, {names.index(values["domain"]): values["after"]})
        assert names.index(row.what) in redecided(Greedy(), changed, seen)[0].domains


def test_a_plan_that_is_asked_for_is_a_row_of_its_own():
    system = System("cross-domain-easy", "rule", seed=5)
    found = None
    while found is None or int(found[2]) < 2:
        result = system.schedule_next_task()
        found = re.fullmatch(r"(\S+) ×(\d+)", system.alternatives(result).rows[0].what)
    task, home, own = result.task.id, found[1], int(found[2])
    names = system.domains
    assert system.why_not(task, f"{home} x{own}").chosen
    fewer = system.why_not(task, f"{home} x{own // 2}")
    assert fewer.what == f"{home} ×{own // 2}" and fewer.played is not None and not fewer.chosen
    reward = fewer.played.reward
    told = fewer.why_not(task, f"{home} x{own // 2}")
    assert ("lower" in told) == (reward.certain and reward.mean < 0.0)
    assert "R_eff" in told and "futures" in told and ("would win if" in told or "no single change" in told)
    # Far more than there are is no plan of this cluster; what is only not free now says how many are missing.
    assert "refuses" in system.why_not(task, f"{home} x999").missing
    other = next(name for name in names if name != home)
    for text in (f"{other} x0", f"{other} x1 + {other} x1", f"{home} x1 + {other}"):
        with pytest.raises(SettingsError, match="must name each domain once"):
            system.why_not(task, text)
    with pytest.raises(SettingsError, match="mars"):
        system.why_not(task, "mars x4")


@pytest.mark.parametrize(("reward", "word"), [(0.4, "0.4 higher"), (-0.4, "0.4 lower"), (0.0, "about the same")])
def test_what_was_not_played_is_told_by_the_cost_model_and_by_no_copies(reward, word):
    row = Alternative("home ×2", chosen=False, reward=reward, r_eff=reward, r_util=0.0, r_cost=0.0)
    told = row.why_not("t1", "home x2")
    assert word in told and "by the cost model" in told and "copies" not in told
    assert "按成本模型" in row.why_not("t1", "home x2", "zh")


def test_an_asked_plan_without_room_says_which_number_is_missing():
    one = next(d for d in decided() if d.plan is not None and len(d.plan.domains) == 1)
    names = [domain.name for domain in one.view.cost.cluster.domains]
    free = np.zeros_like(one.view.free_devices)
    view = replace(one.view, free_devices=free)
    waits = Decided("x", view, None, perceived(Greedy(), view))
    row = decision_table(Greedy(), waits, asked={0: 2}).rows[-1]
    assert row.missing == f"2 devices needed in {names[0]} (0 free)"
    assert row.missing.say("zh") == f"{names[0]} 需 2 块（空闲 0 块）"


def test_waiting_for_room_is_told_in_one_sentence():
    one = decided()[0]
    view = replace(one.view, free_devices=np.zeros_like(one.view.free_devices))
    table = decision_table(Greedy(), Decided("x", view, None, perceived(Greedy(), view)))
    assert "waits" in table.sentence and len(table.sentence.split()) <= 25 and "等待" in table.sentence.say("zh")


def test_choices_are_played_against_what_was_done():
    system = System("cross-domain-easy", "rule", seed=5)
    result = system.schedule_next_task()
    while len(system.alternatives(result).rows) < 3:
        result = system.schedule_next_task()
    table = system.alternatives(result)
    assert table.rows[0].played is None
    told = [row for row in table.rows[1:] if row.played is not None]
    assert any(row.what == "wait" for row in told)
    weights = system.reward
    for row in told:
        each = row.played
        parts = weights.w_eff * each.r_eff.mean + weights.w_util * each.r_util.mean - weights.w_cost * each.r_cost.mean
        assert each.reward.mean == pytest.approx(parts, abs=1e-6)
        assert each.reward.low <= each.reward.mean <= each.reward.high
    # The same question has the same answer, and what does not fit is not played.
    assert system.alternatives(result) == table
    assert all(row.played is None for row in table.rows if row.missing)
    # Waiting is worth something, and delays the task.
    waits = next(row for row in told if row.what == "wait")
    assert waits.played.start_s >= 0.0


@pytest.mark.parametrize(
    ("policy", "english", "chinese"),
    [
        ("hi-ppo", "played on by hi-ppo's agents, without its search", "其后由 hi-ppo 的智能体（不经搜索）决策"),
        ("sjf", "played on by rule", "其后由 rule 决策"),
    ],
)
def test_a_table_names_who_went_on_in_the_copies(policy, english, chinese):
    system = System("testbed", policy, seed=5)
    table = system.alternatives(system.schedule_next_task())
    assert english in str(table).replace("\n", " ") and chinese in table.say("zh").replace("\n", "")


def test_clearness_is_of_the_best_other_choice_in_half_intervals():
    def row(mean, half):
        span = MeanInterval(mean, mean - half, mean + half, 16)
        played = Played(span, span, span, span, 0.0, 0.0, 0.0, 0.0, 16, 6.0)
        return Alternative("other", False, "", played=played)

    done, unplayed = Alternative("done", True, ""), Alternative("elsewhere", False, "too small")
    assert DecisionTable("d0", "", (done, unplayed)).clearness == 0.0
    assert DecisionTable("d0", "", (done, unplayed, row(-9.0, 1.0), row(-1.0, 0.5))).clearness == pytest.approx(2.0)
    assert DecisionTable("d0", "", (done, row(-9.0, 1.0), row(1.0, 2.0))).clearness == pytest.approx(0.5)


def test_a_table_is_printed_as_one():
    one = next(d for d in decided() if d.plan is not None and len(d.plan.domains) == 1)
    table = decision_table(Greedy(), one)
    english, chinese = str(table).splitlines(), table.say("zh").splitlines()
    assert english[0] == str(table.sentence) and len(english) == len(chinese) and english != chinese
    assert sum(line.startswith("✔") for line in english) == 1
    for row in table.rows:
        assert any(str(row.what) in line for line in english)
    assert not any("Alternative(" in line or "\n" in line for line in english)


def test_what_was_brought_is_shared_out_in_as_many_futures_as_asked_for():
    system = System(seed=3)
    shown = [system.schedule_next_task() for _ in range(3)][-1]
    assert system.alternatives(shown).brought is None
    told = system.alternatives(shown, drivers=5).brought
    assert told is not None and told.futures == 5
