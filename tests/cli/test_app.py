"""The commands under one name: help, versions, how it ends."""

import re

import pytest

from attribution_sched import __version__
from attribution_sched.cli import app
from attribution_sched.cli.console import Commands, RunTimeError, ending
from attribution_sched.errors import SettingsError

from ..test_import_cost import TRIES, fresh_import
from .helpers import command, invoke, refused

NAMES = (
    "run", "explain", "report", "export", "archive", "compact", "import", "train", "bench", "simulate", "profile",
    "compile", "doctor", "version",
)  # fmt: skip


def test_help_names_every_command_and_what_to_type():
    done = invoke("--help", columns=80)
    assert done.exit_code == 0
    for name in NAMES:
        assert re.search(rf"│ {name} ", done.stdout), name
    assert "attribution-sched run" in done.stdout
    assert "130 stopped by Ctrl-C" in " ".join(done.stdout.split())
    assert max(map(len, done.stdout.splitlines())) <= 80


@pytest.mark.parametrize("name", [each for each in NAMES if each not in ("bench", "version")])
def test_every_command_has_examples_that_name_it(name):
    done = invoke(name, "--help")
    assert done.exit_code == 0
    after = done.stdout.split("Examples:")[1]
    assert f"attribution-sched {name}" in after
    assert "--json" in done.stdout


def test_no_command_at_all_shows_the_help():
    assert "Commands" not in invoke().stdout
    assert "The loop" in invoke().stdout


@pytest.mark.parametrize("arguments", [(), ("bench",)])
def test_no_command_at_all_is_help_and_code_2_without_a_complaint(here, monkeypatch, arguments):
    monkeypatch.setattr("sys.argv", ["attribution-sched", *arguments])
    done = invoke(*arguments)
    assert done.exit_code == 2
    assert "Usage:" in done.stdout
    assert done.stderr.strip() == ""


def test_version_is_said_twice():
    assert invoke("--version").stdout.strip() == __version__
    assert invoke("version").stdout.strip() == __version__


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("rnu",), ("rnu", "'run'", "--help")),
        (("run", "--sed", "3"), ("--sed", "--seed", "attribution-sched", "run --help")),
        (("run", "--seed", "many"), ("--seed", "'many'")),
        (("run", "--tasks=3.5"), ("--tasks", "'3.5'")),
        (("explain",), ("--journal",)),
        (("explain", "last"), ("--journal",)),
        (("export", "--journal"), ("--journal",)),
        (("bench", "policy"), ("policy", "policies")),
    ],
)
def test_a_word_typed_wrong_is_one_line_and_code_2(here, arguments, words):
    refused(invoke(*arguments), *words)
    assert list(here.iterdir()) == []


def test_endings_have_their_codes(capsys, monkeypatch):
    def raising(error):
        def work():
            raise error

        return ending(work)

    assert ending(lambda: None) == 0
    assert ending(lambda: 130) == 130
    assert raising(SettingsError("x = 1: is wrong. Use 2")) == 2
    assert raising(RunTimeError("the disk is full")) == 1
    assert raising(KeyboardInterrupt()) == 130
    assert raising(ZeroDivisionError("one\nby zero")) == 1
    told = capsys.readouterr().err.splitlines()
    assert told[0] == "error: x = 1: is wrong. Use 2"
    assert told[1] == "failed: the disk is full"
    assert told[3].startswith("failed: ZeroDivisionError: one by zero")
    assert "ATTRIBUTION_SCHED_TRACEBACK=1" in told[3]
    monkeypatch.setenv("ATTRIBUTION_SCHED_TRACEBACK", "1")
    with pytest.raises(ZeroDivisionError):
        raising(ZeroDivisionError("one by zero"))


def test_square_brackets_in_a_message_are_not_markup(capsys):
    def work():
        raise SettingsError("kinds[0].share = [bold]: is wrong. Use 1")

    assert ending(work) == 2
    assert "kinds[0].share = [bold]: is wrong" in capsys.readouterr().err


def test_the_group_can_be_called_from_python():
    import typer

    group = typer.main.get_command(app)
    assert isinstance(group, Commands)
    assert group.main(["version"], standalone_mode=False) == 0


def test_the_command_starts_fast():
    tries = [fresh_import("attribution_sched.cli") for _ in range(TRIES)]
    assert min(cost_s for cost_s, _ in tries) < 0.6
    assert not {"torch", "numba", "numpy", "pandas", "matplotlib", "scipy"} & tries[0][1]


def test_exit_codes_of_a_real_process(tmp_path):
    assert command("version", cwd=tmp_path).returncode == 0
    wrong = command("run", "--policy", "gredy", cwd=tmp_path)
    refused(wrong, "policy = 'gredy'", "Did you mean 'greedy'?")
    (tmp_path / "mine.py").write_text("def make():\n    raise ValueError('no\\nweights')\n")
    failed = command("profile", "mine.py:make", cwd=tmp_path)
    assert failed.returncode == 1, failed.stderr
    assert failed.stdout == ""
    assert "failed: make() raised ValueError: no weights" in failed.stderr
    assert "Traceback" not in failed.stderr
