"""The command, run inside this process or as a user runs it."""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

from typer.testing import CliRunner

from attribution_sched.cli import app

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "attribution_sched.cli"]

SHORT = """\
extends: testbed
name: short
episode: {horizon_s: 900.0}
"""


def environment(**more):
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return dict(os.environ, COLUMNS="200", NO_COLOR="1", PYTHONPATH=path, **more)


@contextlib.contextmanager
def started(*arguments, cwd):
    """Start it in a process of its own that heeds Ctrl-C, also where these tests run with it ignored, and ends here."""
    with subprocess.Popen(
        [*COMMAND, *map(str, arguments)], cwd=cwd, env=environment(), text=True, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as run:  # fmt: skip
        try:
            yield run
        finally:
            run.kill()


def command(*arguments, cwd, **more):
    """Run it in a process of its own."""
    return subprocess.run(
        [*COMMAND, *map(str, arguments)],
        capture_output=True, text=True, timeout=600, cwd=cwd, env=environment(**more), check=False,
    )  # fmt: skip


def invoke(*arguments, columns=200):
    """Run it in this process, in the present folder."""
    return CliRunner(env={"COLUMNS": str(columns), "NO_COLOR": "1"}).invoke(app, [str(each) for each in arguments])


def errors(told):
    """Lines of stderr that say what is wrong."""
    return [line for line in told.stderr.splitlines() if line.startswith(("error:", "failed:"))]


def refused(done, *words):
    """Assert that a command ended as it must when its input is wrong: code 2, one line, nothing on stdout."""
    code = done.exit_code if hasattr(done, "exit_code") else done.returncode
    assert code == 2, done.stderr
    assert done.stdout == ""
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    line = done.stderr.strip()
    assert line.startswith("error: ")
    for each in words:
        assert each in line
