"""`attribution-sched simulate`: a day of a preset under one policy."""

import json

import pytest

from .helpers import SHORT, invoke, refused


@pytest.fixture
def short(here):
    (here / "short.yaml").write_text(SHORT)


def test_json_is_the_summary_of_an_episode(short):
    done = invoke("simulate", "--json", "--preset", "short.yaml", "--seed", "3")
    assert done.exit_code == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["policy"] == "greedy"
    assert summary["seed"] == 3
    assert summary["arrived"] > 0
    assert summary["completed"] <= summary["placed"] <= summary["arrived"]
    parts = summary["task_energy_kwh"] + summary["idle_energy_kwh"]
    assert parts == pytest.approx(summary["energy_kwh"], rel=1e-9)


def test_people_get_a_table(short):
    done = invoke("simulate", "--preset", "short.yaml", "--policy", "sjf")
    assert done.exit_code == 0, done.stderr
    for words in ("Tasks completed", "Energy on the meters", "Σ reward", "simulated", "policy sjf"):
        assert words in done.stdout


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        (None, "testbed"),
        ("extends: testbed\nepisode: {horizn_s: 5.0}\n", "horizon_s"),
        ("extends: testbed\nepisode: {horizon_s: -5.0}\n", "horizon_s"),
        ("extends: [unclosed\n", "bad.yaml"),
    ],
)
def test_a_preset_that_is_wrong_is_one_line_and_code_2(here, text, hint):
    if text is not None:
        (here / "bad.yaml").write_text(text)
    refused(invoke("simulate", "--preset", "testbad" if text is None else "bad.yaml"), hint)


def test_other_mistakes_too(here):
    refused(invoke("simulate", "--policy", "gredy"), "Did you mean 'greedy'?")
    refused(invoke("simulate", "--seed", "-1"), "--seed = -1", ">= 0")
