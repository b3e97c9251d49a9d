"""Who may import whom: the contracts of ``pyproject.toml`` hold, and they can be broken."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
COMMAND = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as run; run()", "--no-cache"]


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(COMMAND, cwd=folder, capture_output=True, text=True, check=False)


def test_rooms_import_only_what_they_may():
    run = lint(ROOT)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "0 broken" in run.stdout


@pytest.mark.parametrize(
    ("module", "line", "contract"),
    [
        ("cluster/zz.py", "import attribution_sched.attribution", "Rooms import only what lies below them"),
        ("errors.py", "import attribution_sched.cluster", "Rooms import only what lies below them"),
        ("cluster/engine/zz.py", "import attribution_sched.cluster.live", "Rooms import only what lies below them"),
        ("zz.py", "import attribution_sched.errors", "Rooms import only what lies below them"),
        ("scheduler/zz.py", "import attribution_sched.rivals.mast", "The scheduler does not know its rivals"),
        ("explain/zz.py", "import attribution_sched.scheduler", "Explanations know of the scheduler"),
        ("feedback/zz.py", "import attribution_sched.scheduler", "Feedback reads explanations"),
        ("scheduler/zz.py", "import attribution_sched.attribution", "The scheduler knows of attribution"),
    ],
)
def test_a_forbidden_import_breaks_its_contract(tmp_path, module, line, contract):
    run = lint(with_import(tmp_path, module, line))
    assert run.returncode == 1, run.stdout + run.stderr
    assert any(row.startswith(contract) and " BROKEN" in row for row in run.stdout.splitlines()), run.stdout


@pytest.mark.parametrize(
    ("module", "line", "provides"),
    [
        ("explain/zz.py", "import attribution_sched.scheduler.policy", "scheduler/policy.py"),
        ("scheduler/zz.py", "import attribution_sched.attribution.vector", "attribution/vector.py"),
    ],
)
def test_the_two_doors_between_rooms_are_open(tmp_path, module, line, provides):
    folder = with_import(tmp_path, module, line)
    (folder / "attribution_sched" / provides).touch()
    run = lint(folder)
    assert run.returncode == 0, run.stdout + run.stderr


def with_import(folder: Path, module: str, line: str) -> Path:
    """Copy the package and add one import to one of its modules."""
    ignore = shutil.ignore_patterns("__pycache__", "constants", "presets")
    shutil.copytree(ROOT / "attribution_sched", folder / "attribution_sched", ignore=ignore)
    shutil.copy(ROOT / "pyproject.toml", folder)
    (folder / "tests").mkdir()
    for name in ("__init__.py", "layers_by_module.py"):
        shutil.copy(ROOT / "tests" / name, folder / "tests")
    with (folder / "attribution_sched" / module).open("a", encoding="utf-8") as file:
        file.write(f"\n{line}\n")
    return folder
