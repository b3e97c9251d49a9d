"""Words that no command can mean: code 2, one line, no control characters, nothing written."""

import json

import pytest

from attribution_sched.cli.console import notes, out, say_json
from attribution_sched.errors import SettingsError
from attribution_sched.rivals.arena.by_preset import evaluate

from .helpers import command, invoke, refused

LONG = "a" * 300


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("run", "--preset", "a\0b"), ("argument 3 = 'a\\x00b'", "control character U+0000")),
        (("run", "--journal", "a\0b"), ("U+0000",)),
        (("explain", "\0", "--journal", "x"), ("argument 2", "U+0000")),
        (("run", "--preset", "\x1b[2J"), ("U+001B",)),
        (("run", "--preset", "\udcff"), ("valid UTF-8",)),
        (("simulate", "--policy", "a" * 5000), ("argument 3", "at most 4096 characters, not 5000")),
        (("run", "--preset", LONG), ("parts of at most 255 bytes, not 300",)),
        (("run", "--journal", LONG), ("at most 255 bytes",)),
        (("run", "--report", LONG + ".html"), ("at most 255 bytes",)),
        (("run", "--resume", LONG), (LONG[:50],)),
        (("explain", "last", "--journal", LONG), (LONG[:50],)),
        (("export", "-j", "x", "-o", LONG + ".csv"), ("x",)),
        (("report", "-j", LONG, "-o", "x.html"), (LONG[:50],)),
        (("train", "-o", LONG), ("at most 255 bytes",)),
        (("train", "-o", "x", "--preset", LONG), ("at most 255 bytes",)),
        (("bench", "schedulers", "-o", LONG), ("at most 255 bytes",)),
        (("bench", "schedulers", "--workers", "100000"), ("workers = 100000", "1..256")),
        (("simulate", "--preset", "/" + "é" * 200), ("parts of at most 255 bytes, not 400",)),
        (("simulate", "--policy", "\u202egreedy"), ("policy =", "\\u202e")),
    ],
)
def test_one_line_and_code_2(here, arguments, words):
    done = invoke(*arguments)
    refused(done, *words)
    assert "\u202e" not in done.stderr
    assert [each.name for each in here.iterdir()] == []


def test_a_name_too_long_for_the_machine_itself(here):
    """As the shell hands it over, not as these tests do."""
    refused(command("run", "--preset", LONG, cwd=here), "at most 255 bytes")
    assert list(here.iterdir()) == []


def test_no_console_passes_control_characters_on(capsys):
    from rich.table import Table

    table = Table("\x1b[2Jhead\u202e")
    table.add_row("\x1b]0;title\x07cell\x9b")
    for console in (out(), notes()):
        console.print("\x1b[31mred\u2066", "two\nlines")
        console.print(table)
    told = "".join(capsys.readouterr())
    assert "two\nlines" in told
    assert "cell" in told
    assert not set(told) & set("\x1b\x07\x9b\u202e\u2066")


def test_json_writes_what_nobody_sees_as_numbers(capsys):
    given = {"id": "a\x1b\u202e\x7f\x9b\ud800b任务", "n": [1.5, "\u2028"]}
    say_json(given)
    told = capsys.readouterr().out
    assert json.loads(told) == given
    assert "任务" in told
    assert not set(told) & set("\x1b\u202e\x7f\x9b\ud800\u2028")


@pytest.mark.parametrize("thing", [object(), 3, None, lambda view: None, type("NoDecide", (), {"name": "x"})()])
def test_evaluate_says_what_a_policy_needs(thing):
    with pytest.raises(SettingsError, match=r"policies = .*an object with a name and decide\(view\)\. Wrap it"):
        evaluate([thing], "testbed", episodes=1, scenarios=["steady"])


def test_evaluate_refuses_a_name_that_cannot_be_shown():
    class Odd:
        name = "a\u202eb"

        def decide(self, view):
            return None

    with pytest.raises(SettingsError, match=r"not U\+202E"):
        evaluate([Odd()], "testbed", episodes=1, scenarios=["steady"])
