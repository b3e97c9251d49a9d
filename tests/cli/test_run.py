"""`attribution-sched run`: the whole loop, and targets on the command line."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import pytest

from attribution_sched.cli.run import USUAL, measured, targets_of
from attribution_sched.config import load_settings
from attribution_sched.config.sources import preset_names
from attribution_sched.errors import SettingsError
from attribution_sched.feedback.targets import Targets
from attribution_sched.journal import Journal
from tests.small_world import small

from .helpers import command, errors, invoke, refused, started

QUICK = ("--preset", "testbed", "--policy", "greedy", "--seed", "3")


def decided(path):
    with Journal.read(path) as journal:
        return [(each.task_id, each.plan, each.weights) for each in journal.decisions()]


def test_the_whole_loop_ends_with_the_path_of_the_report(here):
    done = invoke("run", *QUICK, "--tasks", "24", "--target", "utilisation_at_least=0.999", columns=80)
    assert done.exit_code == 0, done.stderr
    report = Path(done.stdout.splitlines()[-1])
    assert report == Path("runs/testbed-3-1/report.html")
    assert report.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    for words in ("Tasks placed", "simulated", "utilisation", "Feedback", "Most at stake", "attribution-sched explain"):
        assert words in done.stdout
    for words in ("getting ready", "placing tasks", "explaining", "feedback", "writing the report"):
        assert words in done.stderr
    with Journal.read(report.with_name("journal.sqlite")) as journal:
        placed = [outcome.code for _, outcome in journal.entries() if outcome is not None].count(1)
        told = [each.id for each in journal.decisions() if journal.explanations(each.id)]
        assert placed == 24
        assert len(told) >= 6
        assert journal.header.settings["targets"] == {"utilisation_at_least": 0.999}
        steps = [event.details for event in journal.events() if event.kind == "feedback"]
        assert len(steps) == 1
        weights = {each.weights for each in journal.decisions(steps[0]["after_decisions"])}
        before = {each.weights for each in journal.decisions(0, steps[0]["after_decisions"])}
        assert len(before) == len(weights) == 1
        assert (weights != before) == (steps[0]["kind"] == "changed")


def test_json_is_one_object_and_a_second_run_gets_its_own_folder(here):
    first, second = (invoke("run", *QUICK, "--tasks", "8", "--no-explain", "--json", "--quiet") for _ in range(2))
    assert first.exit_code == second.exit_code == 0, first.stderr + second.stderr
    told = json.loads(first.stdout)
    assert told["preset"] == "testbed"
    assert told["policy"] == "greedy"
    assert told["seed"] == 3
    assert told["summary"]["placed"] == 8
    assert told["summary"]["before_feedback"]["placed"] == told["summary"]["after_feedback"]["placed"] == 4
    assert set(told["feedback"]) == {"kind", "reason", "weights", "changes"}
    assert told["targets"]["utilisation_at_least"]["wanted"] == 0.95
    assert 0 < told["targets"]["utilisation_at_least"]["before_feedback"] <= 1
    assert told["explained"] == []
    paths = [json.loads(each.stdout)["paths"] for each in (first, second)]
    assert [each["journal"] for each in paths] == [f"runs/testbed-3-{n}/journal.sqlite" for n in (1, 2)]
    assert all(Path(each["report"]).is_file() for each in paths)
    assert decided(paths[0]["journal"]) == decided(paths[1]["journal"])


def test_without_feedback_nothing_moves_the_weights_and_quiet_says_the_path_only(here):
    less = ("--no-explain", "--no-feedback", "--quiet")
    done = invoke("run", *QUICK, "--tasks", "3", *less, "--journal", "a.sqlite", "--report", "a.md")
    assert done.exit_code == 0, done.stderr
    assert done.stdout == "a.md\n"
    assert done.stderr == ""
    assert sorted(each.name for each in here.iterdir() if "-" not in each.name) == ["a.md", "a.sqlite"]
    with Journal.read("a.sqlite") as journal:
        assert journal.feedback() == []
        assert [event for event in journal.events() if event.kind == "feedback"] == []


def test_a_journal_is_gone_on_with(here):
    short = ("--no-explain", "--no-feedback", "-q")
    assert invoke("run", *QUICK, "--tasks", "3", *short, "--journal", "a.sqlite").exit_code == 0
    before = decided("a.sqlite")
    done = invoke("run", "--resume", "a.sqlite", "--tasks", "2", *short)
    assert done.exit_code == 0, done.stderr
    assert done.stdout == "a-2.html\n"
    assert decided("a.sqlite")[: len(before)] == before
    assert invoke("run", *QUICK, "--tasks", "5", *short, "--journal", "b.sqlite").exit_code == 0
    assert decided("a.sqlite") == decided("b.sqlite")


def test_the_demonstration_places_its_three_tasks(here):
    done = invoke("run", "--demo", "--policy", "greedy", "--no-explain", "--json")
    assert done.exit_code == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["preset"] == "testbed"
    assert told["summary"]["placed"] == 3
    with Journal.read(told["paths"]["journal"]) as journal:
        assert {task.id for task in journal.tasks()} == {"ResNet50", "BERT", "EfficientNet"}


def test_hours_count_instead_of_tasks(here):
    done = invoke("run", *QUICK, "--hours", "0.2", "--no-explain", "--no-feedback", "--json")
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["summary"]["before_feedback"]["cluster_h"] == pytest.approx(0.2, rel=0.05)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--preset", "testbad"), ("preset = 'testbad'", "Did you mean 'testbed'?")),
        (("--preset", "bad.yaml"), ("horizn_s", "horizon_s")),
        (("--policy", "gredy"), ("policy = 'gredy'", "Did you mean 'greedy'?")),
        (("--seed", "-1"), ("seed = -1", ">= 0")),
        (("--queue", "demos"), ("queue = 'demos'", "'demo'")),
        (("--queue", "empty"), ("queue = 'empty'", "preset or demo")),
        (("--tasks", "0"), ("--tasks = 0", ">= 1", "--tasks 40")),
        (("--tasks", "9" * 20), ("--tasks = 99999999999999999999", "10,000,000", "--tasks 40")),
        (("--hours", "1e308"), ("hours = 1e+308", "1,000,000", "hours=2")),
        (("--hours", "nan"), ("hours = nan", "> 0")),
        (("--tasks", "3", "--hours", "1"), ("exactly one of tasks",)),
        (("--target", "utilisation_at_least=2"), ("utilisation_at_least = 2.0", "<= 1")),
        (("--target", "util=0.5"), ("--target = 'util'", "utilisation_at_least")),
        (("--lang", "fr"), ("lang = 'fr'", "en, zh")),
        (("--report", "x.pdf"), ("--report = 'x.pdf'", ".html")),
        (("--report", "no/x.html"), ("mkdir -p no",)),
        (("--journal", "bad.yaml"), ("--journal = 'bad.yaml'", "is there already")),
        (("--resume", "none.sqlite"), ("none.sqlite", "does not exist")),
        (("--resume", "bad.yaml"), ("bad.yaml", "damaged")),
        (("--resume", "bad.yaml", "--seed", "3"), ("--seed = '3'", "--resume")),
    ],
)
def test_a_mistake_is_one_line_and_leaves_nothing_behind(here, arguments, words):
    (here / "bad.yaml").write_text("extends: testbed\nepisode: {horizn_s: 5.0}\n")
    refused(invoke("run", *arguments), *words)
    assert [each.name for each in here.iterdir()] == ["bad.yaml"]


def test_what_fails_on_the_way_says_where_the_journal_is(here, monkeypatch):
    from attribution_sched.errors import ModelFitError
    from attribution_sched.system.system import System

    def fails(*_, **__):
        raise ModelFitError("outcome 3: energy_j = None: is needed. Fill it in")

    monkeypatch.setattr(System, "feedback", fails)
    done = invoke("run", *QUICK, "--tasks", "2", "--no-explain")
    assert done.exit_code == 1
    assert done.stdout == ""
    assert len(errors(done)) == 1
    assert "runs/testbed-3-1/journal.sqlite" in errors(done)[0]
    assert Path("runs/testbed-3-1/journal.sqlite").is_file()


def test_stopped_by_ctrl_c_it_can_be_gone_on_with(tmp_path):
    with started("run", *QUICK, "--tasks", "100000", "--json", cwd=tmp_path) as run:
        path, until = tmp_path / "runs/testbed-3-1/journal.sqlite", time.monotonic() + 300
        while time.monotonic() < until and (not path.is_file() or count(path) < 20):
            assert run.poll() is None, run.communicate()
            time.sleep(0.1)
        run.send_signal(signal.SIGINT)
        told, notes = run.communicate(timeout=120)
    assert run.returncode == 130, notes
    assert told == ""
    assert "Traceback" not in notes
    assert "stopped; go on with: attribution-sched run --resume runs/testbed-3-1/journal.sqlite" in notes
    before = decided(path)
    assert len(before) >= 20
    again = command("run", "--resume", path, "--tasks", "2", "--no-explain", "--no-feedback", "--json", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["summary"]["placed"] == 2
    assert decided(path)[: len(before)] == before


def count(path):
    with Journal.read(path) as journal:
        return journal.count()


@pytest.mark.slow
def test_the_default_run_as_a_newcomer_types_it(tmp_path):
    done = command("run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    report = tmp_path / done.stdout.splitlines()[-1]
    assert report == tmp_path / "runs/cross-domain-0-1/report.html"
    assert report.stat().st_size < 3_000_000


def test_words_become_targets():
    found = targets_of(["utilisation_at_least=0.8", " cost_ratio_at_most = 5e-1 "])
    assert found == Targets(utilisation_at_least=0.8, cost_ratio_at_most=0.5)


@pytest.mark.parametrize("preset", preset_names())
def test_without_words_the_presets_own_are_taken(preset):
    settings = load_settings(preset)
    assert settings.targets and targets_of([], settings).named() == settings.targets
    assert targets_of(["step_s_at_most=2"], settings).named() == {"step_s_at_most": 2.0}
    inherited = load_settings({"extends": preset, "name": "mine"})
    assert inherited.targets == settings.targets


def test_a_preset_without_targets_has_the_usual_ones():
    assert targets_of([], small()).named() == targets_of([]).named() == USUAL


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["utilisation_at_least"], "must be a name, an equals sign and a number"),
        (["utilization_at_least=0.8"], "Did you mean 'utilisation_at_least'?"),
        (["utilisation_at_least=much"], "'much': is not a number"),
        (["utilisation_at_least=0.8", "utilisation_at_least=0.9"], "is given twice"),
        (["utilisation_at_least=80"], "must be <= 1"),
        (["step_s_at_most=nan"], "must be finite"),
        (["step_s_at_most=-1"], "> 0"),
    ],
)
def test_wrong_words_are_refused(words, told):
    with pytest.raises(SettingsError) as caught:
        targets_of(words)
    assert told in str(caught.value)


def test_figures_are_means_over_the_plans_put_in_force(written):
    with Journal.read(written) as journal:
        placed = [outcome for _, outcome in journal.entries() if outcome is not None and outcome.code > 0]
        wanted = Targets(utilisation_at_least=0.9, step_ratio_at_most=0.5)
        found = measured(journal, wanted)
        assert found["utilisation_at_least"] == pytest.approx(sum(each.r_util for each in placed) / len(placed))
        assert found["step_ratio_at_most"] == pytest.approx(1 - sum(each.r_eff for each in placed) / len(placed))
        assert measured(journal, wanted, journal.count()) == {
            "utilisation_at_least": None,
            "step_ratio_at_most": None,
        }


@pytest.mark.parametrize(
    ("targets", "told"),
    [
        ({"utilization_at_least": 0.9}, "Did you mean 'utilisation_at_least'?"),
        ({"utilisation_at_least": 80.0}, "must be <= 1"),
        ({"step_s_at_most": -1.0}, "targets.step_s_at_most"),
        ({"step_s_at_most": float("nan")}, "targets.step_s_at_most"),
        ({"step_s_at_most": "soon"}, "targets.step_s_at_most"),
    ],
)
def test_wrong_targets_of_a_preset_are_refused(targets, told):
    with pytest.raises(SettingsError) as caught:
        load_settings({"extends": "testbed", "targets": targets})
    assert told in str(caught.value)
