"""`attribution-sched bench`, run as a user runs it; and the call behind it."""

import json

import pytest

from attribution_sched.cli.bench import DEFAULT_POLICIES
from attribution_sched.errors import SettingsError
from attribution_sched.rivals.arena.by_preset import evaluate

from .helpers import command, refused

SHORT = """\
extends: testbed
name: short
episode: {horizon_s: 600.0}
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "short.yaml").write_text(SHORT)
    return tmp_path


def bench(folder, *arguments):
    given = ("--preset", "short.yaml", "--scenarios", "steady,load+20", "--episodes", "2", "--output", "out")
    return command("bench", "schedulers", *given, *arguments, cwd=folder)


def test_it_plays_writes_and_goes_on(folder):
    done = bench(folder, "--policies", "greedy")
    assert done.returncode == 0, done.stderr
    for words in ("greedy", "steady", "load+20", "of the limit", "p99"):
        assert words in done.stdout
    for name in ("episodes.jsonl", "results.json", "table.md", "plot.png"):
        assert (folder / "out" / name).stat().st_size > 0
        assert name == "episodes.jsonl" or name in done.stderr
    lines = (folder / "out" / "episodes.jsonl").read_text()
    assert lines.count("\n") == 4
    again = bench(folder, "--policies", "greedy", "--json")
    assert again.returncode == 0, again.stderr
    assert (folder / "out" / "episodes.jsonl").read_text() == lines
    read = json.loads(again.stdout)
    assert read == json.loads((folder / "out" / "results.json").read_text())
    assert set(read["scenarios"]) == {"steady", "load+20"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--policies", "gredy"), "Did you mean 'greedy'?"),
        (("--policies", ","), "at least one policy"),
        (("--scenarios", "stedy"), "Did you mean 'steady'?"),
        (("--scenarios", ""), "at least one scenario"),
        (("--episodes", "0"), "episodes = 0"),
        (("--preset", "crossdomain"), "Did you mean 'cross-domain'?"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(folder, arguments, words):
    refused(bench(folder, *arguments), words)
    assert not (folder / "out").exists()


def test_the_teacher_plays_by_default_with_the_fork_and_without():
    """Else a table could not tell what Hi-PPO has learnt from what the fork brings anybody."""
    assert {"hi-ppo", "rule", "rule+fork"} <= set(DEFAULT_POLICIES.split(","))


def test_results_do_not_go_into_a_file(folder):
    (folder / "out").write_text("mine")
    refused(bench(folder, "--policies", "greedy"), "--output = 'out'", "is a file")
    assert (folder / "out").read_text() == "mine"


def test_policies_and_scenarios_are_listed(folder):
    listed = command("bench", "policies", cwd=folder)
    assert listed.returncode == 0, listed.stderr
    assert "greedy" in listed.stdout
    read = json.loads(command("bench", "policies", "--json", cwd=folder).stdout)
    assert read["greedy"]
    assert "domain-lost" in command("bench", "scenarios", cwd=folder).stdout
    assert "bench" in command("--help", cwd=folder).stdout


def test_the_call_takes_a_preset_by_name(folder):
    found = evaluate(["greedy"], folder / "short.yaml", 1, 0, scenarios=["steady"])
    assert found.scenario("steady").best == "greedy"
    with pytest.raises(SettingsError, match="must be a list"):
        evaluate(["greedy"], folder / "short.yaml", 1, scenarios="steady")
