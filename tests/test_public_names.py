"""The public face: what is declared exists, is lazy and is documented, and pages and examples use nothing else."""

from __future__ import annotations

import ast
import importlib
import json
import re
import subprocess
import sys

import pytest

import attribution_sched
from tests.docs_text import ROOT, TEXTS, blocks, named

ROOMS = ("attribution", "cluster", "config", "executors", "explain", "feedback", "journal", "testing")

NAMES = [name for name in attribution_sched.__all__ if name != "__version__"]
EXAMPLES = sorted((ROOT / "examples").rglob("*.py")) + sorted((ROOT / "docs").glob("make_pictures.py"))


def imported(code):
    """Module → names, of every import from the package in some code."""
    found = {}
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "attribution_sched":
            found.setdefault(node.module, set()).update(alias.name for alias in node.names)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "attribution_sched":
                    found.setdefault(alias.name, set())
    return found


@pytest.mark.parametrize("name", NAMES)
def test_a_declared_name_exists(name):
    assert getattr(attribution_sched, name) is not None


def test_there_are_about_thirty_and_the_type_checker_knows_the_same():
    assert 20 <= len(NAMES) <= 36
    assert set(NAMES) == set(attribution_sched._HOMES)
    assert set(NAMES) <= set(dir(attribution_sched))
    source = ast.parse((ROOT / "attribution_sched" / "__init__.py").read_text("utf-8"))
    told = {a.asname or a.name for node in ast.walk(source) if isinstance(node, ast.ImportFrom) for a in node.names}
    assert set(NAMES) <= told
    with pytest.raises(AttributeError, match="has no attribute 'Sistem'"):
        _ = attribution_sched.Sistem


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_offers_what_it_declares(room):
    module = importlib.import_module(f"attribution_sched.{room}")
    for name in module.__all__:
        assert getattr(module, name) is not None
    with pytest.raises(AttributeError, match="has no attribute"):
        _ = module.nothing_of_that_name


def test_every_declared_name_is_documented():
    pages = {path.name: path.read_text("utf-8") for path in (ROOT / "docs" / "api").glob("*.md")}
    listed = set(re.findall(r"`(\w+)`", "\n".join(re.findall(r"^\| `.*?\|", pages["public.md"], re.MULTILINE))))
    assert listed == set(NAMES)
    entries = re.findall(r"^::: (attribution_sched[\w.]*)", "\n".join(pages.values()), re.MULTILINE)
    homes = {entry.rpartition(".")[0]: set() for entry in entries} | {entry: set() for entry in entries}
    for entry in entries:
        homes[entry.rpartition(".")[0]].add(entry.rpartition(".")[2])
    for name, home in attribution_sched._HOMES.items():
        if name in ROOMS or name == "plots":
            continue
        home, _, inside = home.partition(":")
        name = inside or name
        whole = home in entries and name not in homes[home]
        assert whole or name in homes.get(home, ()), f"{home}.{name} has no entry under docs/api"


PAGE_BLOCKS = [block for path in TEXTS for block in blocks(path)]


@pytest.mark.parametrize("block", PAGE_BLOCKS, ids=[block.where for block in PAGE_BLOCKS])
def test_pages_import_declared_names_only(block):
    found = imported(block.code)
    assert set(found) <= {"attribution_sched"}
    assert found.get("attribution_sched", set()) <= set(attribution_sched.__all__)


@pytest.mark.parametrize("path", EXAMPLES, ids=named)
def test_examples_import_declared_names_only(path):
    found = imported(path.read_text("utf-8"))
    assert set(found) <= {"attribution_sched"}
    assert found.get("attribution_sched", set()) <= set(attribution_sched.__all__)


def test_nothing_heavy_is_loaded_by_looking_at_the_names():
    probe = "import sys, json, attribution_sched; dir(attribution_sched); print(json.dumps(sorted(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    loaded = set(json.loads(run.stdout))
    assert not loaded & {"numpy", "torch", "pydantic", "gymnasium"}
    assert {name for name in loaded if name.startswith("attribution_sched.")} == set()
