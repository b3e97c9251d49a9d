"""One definition of each idea: R, whether a plan is valid, a plan's neighbourhood, the format of checkpoints.

A second copy is found by what it must do, not by its name: weigh three terms by three weights, say that a plan is
refused, make plans by small changes of a plan's columns, read or write tensors of a file.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "attribution_sched"
WEIGHTS = ("w_eff", "w_util", "w_cost")
REFUSALS = {"UNCOVERED", "TWICE", "INDIVISIBLE", "STAGES", "TRAINED_INT8", "UNEVEN_BATCH", "MICROBATCH_SIZE"}


def weighs_three_terms(tree):
    """An expression in which each of the three weights is multiplied: by its name, or as items 0, 1, 2 of one thing."""
    for node in ast.walk(tree):
        if not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub)):
            continue
        factors = [
            side
            for part in ast.walk(node)
            if isinstance(part, ast.BinOp) and isinstance(part.op, ast.Mult)
            for side in (part.left, part.right)
        ]
        names = {getattr(side, "attr", getattr(side, "id", None)) for side in factors}
        items = {
            (ast.unparse(side.value), side.slice.value)
            for side in factors
            if isinstance(side, ast.Subscript) and isinstance(side.slice, ast.Constant)
        }
        of = {owner for owner, _ in items if "weight" in owner}
        if names >= set(WEIGHTS) or any({(owner, k) for k in range(3)} <= items for owner in of):
            return True
    return False


def refuses_plans(tree):
    """A function that returns a refusal which a plan earns by its form alone."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Return):
            parts = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
            named = any(isinstance(x, ast.Name) and x.id in REFUSALS for part in parts if part for x in ast.walk(part))
            if named or any(code_by_number(part) for part in parts):
                return True
    return False


def code_by_number(node):
    """``-7``, where nobody can look up what it means; −1 is "none" everywhere."""
    return (
        isinstance(node, ast.UnaryOp)
        and isinstance(node.op, ast.USub)
        and isinstance(node.operand, ast.Constant)
        and type(node.operand.value) is int
        and node.operand.value > 1
    )


def changes_many_columns(tree):
    """Functions that give copies of a plan with a cut shifted and with another layout."""
    steps = {"_shifted", "_laid_out", "_exchanged", "every_cut"}
    return any(isinstance(node, ast.FunctionDef) and node.name in steps for node in ast.walk(tree))


def stores_tensors(tree):
    """Reads or writes tensors of a file."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(("safetensors", "pickle")):
            return True
        if isinstance(node, ast.Import) and any(x.name.startswith(("safetensors", "pickle")) for x in node.names):
            return True
        if isinstance(node, ast.Call) and ast.unparse(node.func) in {"torch.save", "torch.load"}:
            return True
    return False


@pytest.mark.parametrize(
    ("idea", "home"),
    [
        (weighs_three_terms, "types.py"),
        (refuses_plans, "cluster/validity.py"),
        (changes_many_columns, "planning/local_search.py"),
        (stores_tensors, "storage.py"),
    ],
)
def test_each_idea_has_one_home(idea, home):
    homes = [
        str(path.relative_to(PACKAGE))
        for path in sorted(PACKAGE.rglob("*.py"))
        if idea(ast.parse(path.read_text("utf-8")))
    ]
    assert homes == [home]
