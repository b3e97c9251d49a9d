"""One decision, several agents: who differs, why, and who was right in the copies."""

import json

import pytest

from attribution_sched import System
from attribution_sched.errors import JournalError, SettingsError
from tests.cli.helpers import invoke
from tests.small_world import small


class Waits:
    """Never does anything."""

    name = "waits"

    def decide(self, view):
        return None


class Raises:
    """Fails whenever it is asked."""

    name = "raises"

    def decide(self, view):
        raise RuntimeError("boom")


@pytest.fixture(scope="module")
def system():
    with System(small(), policy="sjf", seed=4) as made:
        made.run(8)
        yield made


def placed(system):
    return [each.id for each in system.journal.decisions() if each.plan is not None]


def test_who_only_waits_is_wrong_where_a_task_can_run_alone(system):
    found = system.compare_agents(placed(system)[0], [Waits(), "rule"], rows=200, precision=None)
    assert [row.agent for row in found.rows] == ["sjf", "waits", "rule"] and found.differ
    waits = found.rows[1]
    assert waits.plan is None and waits.reward.high < 0.0 and "waits" not in found.right
    assert found.rows[0].reward.mean == 0.0 and found.rows[0].explanation.policy == "sjf"
    assert found.rows[2].explanation.policy == "rule"
    alone = system.compare_agents(placed(system)[0], [Waits()], rows=200, precision=None)
    assert alone.right == ("sjf",) and alone.gain > 0.0 and "sjf was right" in alone.say() and "sjf" in alone.say("zh")


def test_the_same_agent_twice_decides_alike_and_nobody_is_better(system):
    found = system.compare_agents(placed(system)[1], ["sjf"], rows=200, precision=None)
    assert not found.differ and not found.right and "alike" in found.say()
    assert [row.reward.mean for row in found.rows] == [0.0, 0.0]


CASES = {
    "nobody": (lambda s: s.compare_agents(placed(s)[0], []), SettingsError, "agents"),
    "a name alone": (lambda s: s.compare_agents(placed(s)[0], "rule"), SettingsError, "must be a list"),
    "unknown": (lambda s: s.compare_agents(placed(s)[0], ["nosuch"]), SettingsError, "is not a known policy"),
    "raises": (lambda s: s.compare_agents(placed(s)[0], [Raises()]), SettingsError, "RuntimeError: boom"),
    "no futures": (lambda s: s.compare_agents(placed(s)[0], ["rule"], futures=0), SettingsError, "futures = 0"),
    "no decision": (lambda s: s.compare_agents("d999999", ["rule"]), JournalError, "is not in the journal"),
}


@pytest.mark.parametrize("ask", CASES)
def test_bad_input_is_one_clear_error_and_changes_nothing(system, ask):
    question, error, words = CASES[ask]
    before = (system.journal.count(), system.now_s)
    with pytest.raises(error, match=words):
        question(system)
    assert before == (system.journal.count(), system.now_s)


def test_as_a_user_types_it(tmp_path):
    path = tmp_path / "j.sqlite"
    with System(small(), "sjf", journal=path, seed=4) as system:
        system.run(4)
    done = invoke("explain", "last", "-j", path, "--agents", "rule,lucid", "--json")
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert [each["agent"] for each in told["agents"]] == ["sjf", "rule", "lucid"] and told["sentence"]
    shown = invoke("explain", "last", "-j", path, "--agents", "rule,lucid", "--lang", "zh")
    assert shown.exit_code == 0 and "lucid" in shown.stdout
    wrong = invoke("explain", "last", "-j", path, "--agents", "rule,nosuch")
    assert wrong.exit_code == 2 and sum(line.startswith("error:") for line in wrong.stderr.splitlines()) == 1
