"""The case studies tell the truth: scripts run to their last assertion, notebooks are what the scripts make."""

import ast
import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "examples" / "case_studies"
SCRIPTS = sorted(FOLDER.glob("[0-9][0-9]_*.py"))
NOTEBOOKS = [path.with_suffix(".ipynb") for path in SCRIPTS]
MACHINE = re.compile(r"/(?:home|root|tmp|work|Users|mnt|opt|var/folders)/|[A-Z]:\\\\")
LIMIT_BYTES = 1_500_000
MOST_LINES = 80


def named(paths):
    return pytest.mark.parametrize("path", paths, ids=lambda path: path.stem)


def notebook(path):
    return json.loads(path.read_text(encoding="utf-8"))


def run(script, **environment):
    env = {name: value for name, value in os.environ.items() if name not in ("ATTRIBUTION_SCHED_DATA", "DISPLAY")}
    env |= {"MPLBACKEND": "agg", "PYTHONWARNINGS": "error::RuntimeWarning", "PYTHONPATH": str(ROOT)} | environment
    return subprocess.run(
        [sys.executable, str(script)], env=env, capture_output=True, text=True, timeout=1800, check=False, cwd=ROOT
    )


def test_there_are_five():
    assert [path.name[:2] for path in SCRIPTS] == ["01", "02", "03", "04", "05"]


@named(SCRIPTS)
def test_a_study_ends_in_assertions(path):
    body = ast.parse(path.read_text(encoding="utf-8")).body
    last = path.read_text(encoding="utf-8").rsplit("# %%", 1)[1]
    assert ast.unparse(body[-1]) == "say('All claims hold.')"
    assert last.count("assert ") >= 8


@named(SCRIPTS)
def test_a_study_is_short(path):
    """Lines that are neither blank, nor comments, nor the Markdown between the cells."""
    lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    code = [line for line in lines if line and not line.startswith("#")]
    assert len(code) <= MOST_LINES, f"{len(code)} lines of code"


@pytest.mark.slow
@named(SCRIPTS)
def test_a_script_runs_without_jupyter_or_display(path):
    if path.name.startswith("03"):
        pytest.importorskip("stable_baselines3")
    done = run(path)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.rstrip().endswith("All claims hold.")


@pytest.mark.slow
def test_the_recording_is_read_where_it_is_given(data_folder):
    done = run(FOLDER / "04_real_counters.py", ATTRIBUTION_SCHED_DATA=str(data_folder))
    assert done.returncode == 0, done.stderr[-3000:]
    assert "server under a stress sweep" in done.stdout


@named(NOTEBOOKS)
def test_a_notebook_is_in_step_with_its_script(path):
    jupytext = pytest.importorskip("jupytext")
    made = jupytext.read(path.with_suffix(".py"))
    kept = notebook(path)["cells"]
    assert [(cell["cell_type"], cell["source"]) for cell in made.cells] == [
        (cell["cell_type"], "".join(cell["source"])) for cell in kept
    ]


@named(NOTEBOOKS)
def test_a_notebook_was_run_to_its_end(path):
    cells = [cell for cell in notebook(path)["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert not [output for output in outputs if output["output_type"] == "error"]
    assert not [output for output in outputs if output.get("name") == "stderr"]
    assert "All claims hold." in json.dumps(cells[-1]["outputs"])
    pictures = [output for output in outputs if "image/png" in output.get("data", {})]
    # The fifth is told in sentences: that is its point.
    assert len(pictures) >= (0 if path.name.startswith("05") else 3)


@named(NOTEBOOKS)
def test_a_notebook_names_no_folder_of_a_machine_and_is_small(path):
    text = path.read_text(encoding="utf-8")
    without_pictures = re.sub(r'"image/png": "[^"]*"', "", text)
    assert not MACHINE.search(without_pictures), MACHINE.search(without_pictures)
    assert len(text.encode()) < LIMIT_BYTES


def test_the_fourth_notebook_was_run_on_the_recording_and_keeps_no_rows_of_it():
    cells = notebook(NOTEBOOKS[3])["cells"]
    told = json.dumps([cell.get("outputs", []) for cell in cells])
    assert "server under a stress sweep" in told
    numbers = re.findall(r"\d+\.\d+", re.sub(r'"image/png": "[^"]*"', "", told))
    assert len(numbers) < 300, "aggregates are few"


def test_the_builder_finds_studies_and_refuses_none(monkeypatch):
    spec = importlib.util.spec_from_file_location("build_case_studies", FOLDER / "build.py")
    build = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(build)
    assert build.scripts([]) == SCRIPTS
    assert build.scripts(["02", "04"]) == [SCRIPTS[1], SCRIPTS[3]]
    monkeypatch.setattr(sys, "argv", ["build.py", "77"])
    with pytest.raises(SystemExit, match="no study begins with 77"):
        build.main()
