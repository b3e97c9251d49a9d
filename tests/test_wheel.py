"""The wheel: built, installed where nothing of the repository can be imported, and used."""

import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

HERE = Path(__file__).parent.parent

USE = """
import attribution_sched, pathlib, sys
from attribution_sched import System
assert pathlib.Path(attribution_sched.__file__).is_relative_to(sys.prefix), attribution_sched.__file__
result = System("testbed", policy="sjf", seed=1).schedule_next_task()
assert result.placed and len(result.attribution.names) == 7
import gymnasium as gym
assert gym.make("attribution_sched/Testbed-v0").action_space.n == 64
print(attribution_sched.__version__)
"""


def run(*command, cwd):
    done = subprocess.run([str(part) for part in command], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Built by pip in an environment of its own; skipped where its builder cannot be had."""
    place = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(place), str(HERE)]
    done = subprocess.run(build, capture_output=True, text=True, check=False)
    if done.returncode != 0 and ("hatchling" in done.stderr or "connection" in done.stderr.lower()):
        pytest.skip("hatchling, which builds the wheel, cannot be had here")
    assert done.returncode == 0, done.stderr[-2000:]
    return next(place.glob("*.whl"))


@pytest.mark.slow
def test_every_file_of_the_package_is_in_the_wheel(wheel):
    """Presets, constants, weights, templates and words too: what is not code is what wheels forget."""
    within = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("attribution_sched/")}
    own = {
        path.relative_to(HERE).as_posix()
        for path in (HERE / "attribution_sched").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert own - within == set()
    assert not [name for name in zipfile.ZipFile(wheel).namelist() if name.startswith(("tests/", "research/"))]


@pytest.mark.slow
def test_the_wheel_works_where_the_repository_is_not(wheel, tmp_path):
    """Other packages are this environment's, by a path alone: its own way back to the sources is not followed."""
    venv.create(tmp_path / "clean", with_pip=False)
    python = tmp_path / "clean" / "bin" / "python"
    site = next((tmp_path / "clean" / "lib").glob("python*/site-packages"))
    (site / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    # What is installed here stays: it is the environment these tests run in.
    target = ["--no-deps", "--no-compile", "--ignore-installed", "--prefix", tmp_path / "clean", wheel]
    run(sys.executable, "-m", "pip", "install", "-q", *target, cwd=tmp_path)
    version = run(python, "-c", USE, cwd=tmp_path).strip().splitlines()[-1]
    assert version in wheel.name
    script = tmp_path / "clean" / "bin" / "attribution-sched"
    assert "why" in run(python, script, "--help", cwd=tmp_path)
