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


def test_the_event_simulator_plays_the_same_day_beside_the_engine(short):
    done = invoke("simulate", "--preset", "short.yaml", "--engine", "simpy", "--json", "--policy", "greedy")
    assert done.exit_code == 0, done.stderr
    told = json.loads(done.stdout)
    engine, events = told["compiled"], told["simpy"]
    assert events["completed"] > 0
    for name in set(engine) & set(events) - {"policy"}:
        assert events[name] == pytest.approx(engine[name], rel=1e-6), name
    table = invoke("simulate", "--preset", "short.yaml", "--engine", "simpy", "--mtbf-h", "0.1").stdout
    assert "SimPy" in table and "Compiled engine" in table
    failures = next(line for line in table.splitlines() if "Device failures" in line)
    assert int(failures.split("│")[3].strip()) > 0


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
    refused(invoke("simulate", "--engine", "simpi"), "Did you mean 'simpy'?")
    refused(invoke("simulate", "--mtbf-h", "5"), "Add --engine simpy")
    refused(invoke("simulate", "--engine", "simpy", "--mtbf-h", "-5"), "mtbf_h")


def test_kinds_that_fit_nowhere_are_told_before_they_fill_the_queue(here):
    """Their tasks arrived, waited in vain and turned others away, and nothing said so."""
    (here / "small.yaml").write_text(
        "extends: testbed\ndomain_defaults: {gpu: T4-16}\nepisode: {horizon_s: 600.0}\n"
        "kinds:\n  - {model: sdxl-unet, batch_size: 32, microbatches: [4, 8, 16, 32], steps: [1, 2], epoch_steps: 2}\n"
        "  - {model: resnet-50, batch_size: 32, microbatches: [4, 8, 16, 32], steps: [1, 2], epoch_steps: 2}\n"
    )
    for command in (("simulate", "--policy", "sjf"), ("run", "--policy", "sjf", "--tasks", "1", "--no-explain")):
        done = invoke(*command, "--preset", "small.yaml")
        assert done.exit_code == 0, done.stderr
        assert "'sdxl-unet': fits nowhere" in done.stderr and "'resnet-50': fits" not in done.stderr
