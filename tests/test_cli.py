"""The command, run as a user runs it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SHORT = """\
extends: testbed
name: short
episode: {horizon_s: 900.0}
"""


def command(*arguments, cwd):
    found = dict(os.environ, COLUMNS="200", NO_COLOR="1")
    root = str(Path(__file__).parents[1])
    found["PYTHONPATH"] = os.pathsep.join(filter(None, [root, found.get("PYTHONPATH")]))
    return subprocess.run(
        [sys.executable, "-m", "attribution_sched.cli", *arguments],
        capture_output=True, text=True, timeout=600, cwd=cwd, env=found, check=False,
    )  # fmt: skip


def test_run_prints_the_summary_of_an_episode_as_json(tmp_path):
    (tmp_path / "short.yaml").write_text(SHORT)
    done = command("run", "--json", "--preset", "short.yaml", "--seed", "3", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["policy"] == "greedy"
    assert summary["seed"] == 3
    assert summary["arrived"] > 0
    assert summary["completed"] <= summary["placed"] <= summary["arrived"]
    parts = summary["task_energy_kwh"] + summary["idle_energy_kwh"]
    assert parts == pytest.approx(summary["energy_kwh"], rel=1e-9)


def test_run_prints_a_table_for_people(tmp_path):
    (tmp_path / "short.yaml").write_text(SHORT)
    done = command("run", "--preset", "short.yaml", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for words in ("Tasks completed", "Energy on the meters", "Σ reward", "simulated"):
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
def test_a_mistake_is_one_line_and_exit_code_2(tmp_path, text, hint):
    if text is not None:
        (tmp_path / "bad.yaml").write_text(text)
    done = command("run", "--preset", "testbad" if text is None else "bad.yaml", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("error:")
    assert hint in lines[0]


def test_help_names_the_commands(tmp_path):
    done = command("--help", cwd=tmp_path)
    assert done.returncode == 0
    for name in ("run", "version"):
        assert name in done.stdout
    assert command("run", "--help", cwd=tmp_path).returncode == 0
