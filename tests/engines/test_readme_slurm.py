"""The README's three lines on a real Slurm, as they stand there."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

README = Path(__file__).parent.parent.parent / "README.md"


def lines():
    """Commands of the README's block about Slurm, comments left out."""
    after = README.read_text("utf-8").split("On Slurm, three lines", 1)[1]
    block = after.split("```console\n", 1)[1].split("```", 1)[0]
    return [shlex.split(line, comments=True) for line in block.strip().splitlines()]


def test_the_readmes_lines_run_on_slurm(slurm, tmp_path):
    environment = slurm.environment("east")
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    said = []
    for command in lines():
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=False
        )
        said.append(done.stdout + done.stderr)
        assert done.returncode == 0, said[-1][-2000:]
    assert len(said) == 3
    assert (tmp_path / "mine.yaml").exists()
    # Two tasks were launched, and Slurm itself remembers them.
    jobs = slurm.ask("east", "sacct", "-n", "-P", "-X", "-a", "-o", "JobName,State").stdout
    assert len([line for line in jobs.splitlines() if line.strip()]) >= 2, jobs
