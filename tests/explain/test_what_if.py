"""What if: nothing changed is nothing different, paired by future, in absolute units; every change by its words."""

from dataclasses import replace

import numpy as np
import pytest

from attribution_sched import System
from attribution_sched.errors import SettingsError, TaskError
from attribution_sched.explain import what_if as asking
from attribution_sched.explain.what_if import Effect, WhatIf
from attribution_sched.system.moments import present_moment
from attribution_sched.words.say import Phrase


@pytest.fixture(scope="module")
def system():
    made = System("cross-domain-easy", "rule", seed=3)
    while len(made.queue()) < 2:
        made.schedule_next_task()
    return made


def seen(system):
    return present_moment(system.cluster)


def test_nothing_changed_is_nothing_different(system):
    told = system.what_if(futures=16, hours=24.0)[0]
    assert all(effect.delta == effect.low == effect.high == 0.0 for effect in told.effects)
    assert told.shifts == ()
    assert told.decisions >= 1000
    # Played twice, in copies of their own, and compared to the bit.
    assert told.same and "nothing differs" in told.say()


def test_a_factor_of_one_is_nothing_too(system):
    ends = "-".join(system.domains[:2])
    told = system.what_if(link=(ends, "x1"), futures=4, hours=6.0)[0]
    assert all(effect.delta == 0.0 for effect in told.effects)


def test_more_devices_never_hurt_and_a_lost_domain_does(system):
    more, lost = system.what_if(add=f"16@{system.domains[0]}", drop=system.domains[1], futures=8, hours=6.0)
    assert more["wait"].delta <= 0.0
    assert lost["wait"].delta > 0.0
    assert lost["wait"].certain
    assert lost["finished"].delta < 0.0
    assert f"{system.domains[1]} gone" in lost.say()
    assert "下线" in lost.say("zh")
    assert lost.shifts and lost.shifts[0].finish_s > 0.0


def test_weights_times_components_are_the_reward(system):
    told = system.what_if(drop=system.domains[2], futures=4, hours=4.0)[0]
    weights = {"r_eff": system.reward.w_eff, "r_util": system.reward.w_util, "r_cost": -system.reward.w_cost}
    parts = sum(weight * told[name].delta for name, weight in weights.items())
    assert told["reward"].delta == pytest.approx(parts, abs=1e-6)


def test_another_policy_another_price_another_task(system):
    changes = {"policy": "fcfs", "carbon_price": 0.05, "energy_price": 0.2, "task": {"kind": "bert-large"}}
    answers = system.what_if(**changes, futures=3, hours=2.0)
    words = [str(each.change) for each in answers]
    assert words[1:] == ["fcfs in place of rule", "carbon at 0.05 USD/kg", "energy at 0.2 USD/kWh"]
    assert words[0].startswith("one more task, ")
    assert answers[2]["r_cost"].delta > 0.0
    assert answers[2]["energy"].delta == 0.0
    before = {task.id for task in system.journal.tasks()}
    assert words[0].split(", ")[1] not in before


def test_r_at_another_price_is_not_told_as_an_effect(system):
    """Nobody decides otherwise: only what R and its baseline are counted at differs."""
    [told] = system.what_if(carbon_price=0.5, futures=3, hours=2.0)
    assert told["reward"].certain and not told["energy"].certain
    assert "nothing changes for certain" in told.say() and "new price" in told.say()
    assert "R −" not in told.say() and "R +" not in told.say()
    assert "新价格" in told.say("zh")
    [other] = system.what_if(drop=system.domains[0], futures=3, hours=2.0)
    assert "new price" not in other.say()


def test_nothing_stays_changed(system):
    state = {name: array.copy() for name, array in system.cluster.engine.state._asdict().items()}
    count = system.journal.count()
    system.what_if(drop=system.domains[0], futures=2, hours=1.0)
    assert system.journal.count() == count
    assert all(np.array_equal(array, state[name]) for name, array in system.cluster.engine.state._asdict().items())


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"link": ("nowhere-here", "x2")}, "must name two domains"),
        ({"add": "many@there"}, "is not COUNT"),
        ({"drop": "nowhere"}, "does not exist"),
        ({"policy": "nobody"}, "is not a known policy"),
        ({"carbon_price": -1.0}, "must be finite and >= 0"),
        ({"energy_price": float("nan")}, "must be finite and >= 0"),
        ({"futures": 1}, "must be an integer >= 2"),
        ({"hours": 0.0}, "must be finite and > 0"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_one_clear_error(system, asked, words):
    with pytest.raises(SettingsError, match=words):
        system.what_if(**asked)


def test_devices_of_another_type_or_too_few(system):
    name = system.domains[0]
    with pytest.raises(SettingsError, match="must be the type that"):
        system.what_if(add=f"8xT4@{name}")
    with pytest.raises(SettingsError, match="must be >= 1"):
        system.what_if(add=f"-100000@{name}", futures=2, hours=1.0)
    with pytest.raises(SettingsError, match="x and a number"):
        asking.link(seen(system), "-".join(system.domains[:2]), "twice")


def test_an_empty_cluster_has_nothing_to_play_on():
    with pytest.raises(TaskError, match="nobody waits or runs"):
        System("testbed", "sjf", queue="empty").what_if(policy="fcfs")


def test_a_time_that_hardly_changes_is_not_said():
    def effect(delta):
        return Effect("wait", "h", 1.0, 1.0 + delta, delta, 0.9 * delta, 1.1 * delta)

    told = WhatIf(Phrase("what_if.unchanged"), (effect(0.001),), (), 8, 6.0, "rule", 100, 0)
    assert told["wait"].certain and "nothing changes for certain" in told.say()
    assert "wait per task +0.02 h" in replace(told, effects=(effect(0.02),)).say()


def test_a_cluster_of_one_domain_has_no_link_to_change():
    with System("testbed", "sjf", seed=3) as system:
        system.schedule_next_task()
        with pytest.raises(SettingsError, match="there are no links"):
            system.what_if(link=("a-b", "x2"))


def test_tasks_here_now_are_told_by_how_much_they_move(system):
    (told,) = system.what_if(drop=system.domains[0], futures=4, hours=12.0)
    assert told.shifts
    said = told.say_shifts()
    first = told.shifts[0]
    assert first.task in said and f"in {100.0 * first.share:.0f} % of futures" in said
    assert ("ends" in said) and said.count(" (in ") == min(5, len(told.shifts))
    assert told.say_shifts("zh").startswith("现有任务：")


def test_more_devices_under_the_same_power_budget_are_told_with_it():
    """They may do less: the boards draw no more together than before."""
    with System("testbed", "rule", seed=3) as system:
        system.schedule_next_task()
        words = [system.what_if(add=f"{n}@node-0", futures=2, hours=0.2)[0].change for n in (2, -1)]
    assert words[0] == "+2 A100-40 in node-0 (its power budget still 1,600 W)"
    assert "功率预算仍为 1,600 W" in words[0].say("zh") and "budget" not in words[1]
