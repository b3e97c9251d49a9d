"""`attribution-sched train`, run as a user runs it."""

import json
import signal
import time

import pytest

from .helpers import command, refused, started

COURSE = """\
agents: {worlds: {testbed: 2}, groups: GROUPS, members: 4, every: 1}
ranker: {rounds: 0}
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "course.yaml").write_text(COURSE.replace("GROUPS", "2"))
    return tmp_path


def train(folder, *arguments):
    return command("train", *arguments, cwd=folder)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--preset", "hi_po"), "Did you mean 'hi_ppo'?"),
        (("--preset", "cross-domain-easy"), "is neither a preset"),
        (("--groups", "-1"), "agents.groups = -1: must be >= 0"),
        (("--output", "."), "must be a new or empty folder"),
        (("--resume",), "holds no training run to resume"),
        (("--preset", "course.yaml", "--start", "none.safetensors"), "weights = 'none.safetensors': does not exist"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(folder, arguments, words):
    refused(train(folder, "--output", "out", *arguments), words)
    assert not (folder / "out").exists()


def test_it_is_stopped_resumed_and_says_where_the_weights_are(folder):
    (folder / "course.yaml").write_text(COURSE.replace("GROUPS", "40"))
    with started("train", "--preset", "course.yaml", "--output", "out", "--json", cwd=folder) as run:
        log, until = folder / "out" / "metrics.jsonl", time.monotonic() + 300
        while time.monotonic() < until and not (log.is_file() and '"iteration": 2' in log.read_text()):
            assert run.poll() is None, run.communicate()
            time.sleep(0.05)
        run.send_signal(signal.SIGINT)
        told, notes = run.communicate(timeout=60)
    assert run.returncode == 130, notes
    assert "attribution-sched train --output out --resume" in notes
    assert "Traceback" not in notes
    assert json.loads(told)["interrupted"] and json.loads(told)["groups"] >= 2
    again = train(folder, "--output", "out", "--resume")
    assert again.returncode == 0, again.stderr
    for words in ("Agents over the rule a day", "out/best.safetensors", "HiPpo('out/best.safetensors')", "simulated"):
        assert words in again.stdout
