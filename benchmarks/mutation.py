"""How many planted faults the fast tests of a room notice: one line changed in a copy, the room's tests run.

    python benchmarks/mutation.py --faults 40 --seed 1        a table, and runs/mutation.jsonl to go on from
    python benchmarks/mutation.py --only 7,12                 some of them again
    python benchmarks/mutation.py --faults 3 --room shapley   of one room

A fault is drawn in two steps, both by the seed: a central file, every room in turn; then a place in it where an
operator or a number can be changed: a comparison turned around, plus for minus, times for divided by, ``and`` for
``or``, a ``not`` left out, a whole number raised by one, another doubled. Messages, logging and what is only for the
type checker are left alone. The fast tests of the file's own room are run, those of the same name first, until one
fails; a run that takes longer than its limit (a loop that no longer ends) counts as noticed. Nothing is excluded
afterwards: a fault that changes nothing at all counts as unnoticed.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "attribution_sched"

CENTRAL: dict[str, str] = {
    "cluster": "decision.py plan.py cost.py reward.py live.py engine/*.py fork*.py fork/*.py pipeline.py",
    "attribution": "accounting.py emshap.py vector.py energy_model.py missing.py uncertainty.py",
    "scheduler": "hi_ppo/upper_agent.py hi_ppo/lower_agent.py hi_ppo/decode.py thinking.py beliefs.py pairing.py "
    "rule_follower.py",
    "explain": "explainer.py players.py masked_states.py targets.py why.py decision_table.py counterfactual.py",
    "shapley": "*.py",
    "planning": "local_search.py segment_table.py cut_table.py power_caps.py",
    "feedback": "loop.py ascent.py drivers.py rollback.py window.py",
    "billing": "bill.py games.py rules.py usage.py metering.py",
    "journal": "journal.py store*.py records.py archive.py",
    "system": "ring.py replay.py recovery.py operations.py admission.py decision_records.py",
    "executors": "live.py slurm.py shadow.py job_folder.py",
    "rivals": "splits.py mast.py sailor.py assignment.py hybrid.py",
    "config": "build.py schema*.py sources.py",
    "words": "say.py text.py",
    "report": "collect/gather.py format.py sections/summary.py",
    "serve": "follow.py rows.py",
}
"""Room → its files on which most of it hangs."""

LIMIT_S = 900.0

TURNED = {
    ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip


def places(tree: ast.Module) -> Iterator[ast.AST]:
    """Nodes of function bodies that can be changed, in the order of the file."""
    talk = (ast.Raise, ast.Assert, ast.AnnAssign)

    def walk(node: ast.AST, inside: bool) -> Iterator[ast.AST]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, talk) or (isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)):
                continue
            if isinstance(child, ast.Call) and ast.unparse(child.func).startswith(("log.", "_logger.", "problem")):
                continue
            if isinstance(child, ast.Assign) and ast.unparse(child.targets[0]) in ("rule", "fix", "rule, fix"):
                continue
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                if child.name != "__repr__":
                    for statement in child.body:
                        yield from walk_in(statement)
                continue
            if inside and changeable(child):
                yield child
            yield from walk(child, inside)

    def walk_in(statement: ast.AST) -> Iterator[ast.AST]:
        yield from walk(ast.Module(body=[statement], type_ignores=[]), True)

    yield from walk(tree, False)


def changeable(node: ast.AST) -> bool:
    """Whether a node can be changed into another of its kind."""
    if isinstance(node, ast.Compare):
        return len(node.ops) == 1 and node.lineno == node.end_lineno and type(node.ops[0]) in TURNED
    if isinstance(node, ast.BinOp):
        sides = [getattr(each, "value", 0) for each in (node.left, node.right) if isinstance(each, ast.Constant)]
        words = any(not isinstance(value, int | float) for value in sides)
        return type(node.op) in TURNED and node.lineno == node.end_lineno and not words
    if isinstance(node, ast.BoolOp):
        return node.lineno == node.end_lineno
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.op, ast.Not) and node.lineno == node.end_lineno
    if isinstance(node, ast.Constant):
        return isinstance(node.value, int | float) and not isinstance(node.value, bool) and node.value != 0
    return False


def changed(text: str, node: ast.AST) -> tuple[str, str, str]:
    """The file with one node changed; the line before and after."""
    lines = text.split("\n")
    line = lines[node.lineno - 1].encode()
    was = line[node.col_offset : node.end_col_offset].decode()
    if isinstance(node, ast.Compare):
        node.ops = [TURNED[type(node.ops[0])]()]
    elif isinstance(node, ast.BinOp | ast.BoolOp):
        node.op = TURNED[type(node.op)]()
    elif isinstance(node, ast.Constant):
        node.value = node.value + 1 if isinstance(node.value, int) else 2.0 * node.value
    now = ast.unparse(node.operand if isinstance(node, ast.UnaryOp) else node)
    new = line[: node.col_offset] + f"({now})".encode() + line[node.end_col_offset :]
    lines[node.lineno - 1] = new.decode()
    return "\n".join(lines), was, now


def draw(number: int, seed: int, room: str | None) -> dict[str, object]:
    """Fault ``number`` of a seed: file, line, what it was and what it is."""
    rng = np.random.default_rng([seed, number])
    rooms = sorted(CENTRAL)
    where = room or rooms[number % len(rooms)]
    files = sorted({path for each in CENTRAL[where].split() for path in (ROOT / PACKAGE / where).glob(each)})
    files = [path for path in files if path.name != "__init__.py"]
    sizes = np.array([len(list(places(ast.parse(path.read_text("utf-8"))))) for path in files], dtype=float)
    path = files[int(rng.choice(len(files), p=sizes / sizes.sum()))]
    text = path.read_text("utf-8")
    nodes = list(places(ast.parse(text)))
    node = nodes[int(rng.integers(len(nodes)))]
    new, was, now = changed(text, node)
    return {
        "number": number, "seed": seed, "room": where, "file": str(path.relative_to(ROOT)), "line": node.lineno,
        "was": was, "now": now, "text": new,
    }  # fmt: skip


def tried(fault: dict[str, object], folder: Path) -> dict[str, object]:
    """Run the room's fast tests on a copy with the fault."""
    file = Path(str(fault["file"]))
    if not (folder / "pyproject.toml").exists():
        for name in (PACKAGE, "tests", "benchmarks", "research", "docs", "examples", "calibration"):
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "runs"))
        for name in ("pyproject.toml", "README.md", "CONTRIBUTING.md", "Makefile", "constraints.txt", "mkdocs.yml"):
            shutil.copy(ROOT / name, folder / name)
    (folder / file).write_text(str(fault["text"]), "utf-8")
    tests = folder / "tests" / str(fault["room"])
    named = sorted(tests.rglob(f"test_{file.stem}*.py"))
    others = [path for path in sorted(tests.rglob("test_*.py")) if path not in named]
    began = time.perf_counter()
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    environment = {**os.environ, **threads, "PYTHONPATH": str(folder)}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-m", "not slow", *map(str, (*named, *others))]
    try:
        run = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
        noticed = run.returncode != 0
        by = next((row for row in run.stdout.splitlines() if row.startswith(("FAILED", "ERROR"))), "")
        by = by or (run.stdout + run.stderr)[-300:] * noticed
    except subprocess.TimeoutExpired:
        noticed, by = True, f"did not end within {LIMIT_S:g} s"
    (folder / file).write_bytes((ROOT / file).read_bytes())
    told = {name: value for name, value in fault.items() if name != "text"}
    return told | {"noticed": noticed, "by": by[:200], "seconds": round(time.perf_counter() - began, 1)}


def main() -> None:
    """Draw, try, tell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--room", choices=sorted(CENTRAL))
    parser.add_argument("--only", help="numbers with commas between")
    parser.add_argument("--list", action="store_true", help="draw only")
    parser.add_argument("--out", type=Path, default=ROOT / "runs" / "mutation.jsonl")
    given = parser.parse_args()
    numbers = [int(each) for each in given.only.split(",")] if given.only else range(given.faults)
    given.out.parent.mkdir(parents=True, exist_ok=True)
    known = {}
    if given.out.exists() and not given.only:
        for row in given.out.read_text("utf-8").splitlines():
            one = json.loads(row)
            known[one["seed"], one["file"], one["line"], one["was"], one["now"]] = one
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for number in numbers:
            fault = draw(number, given.seed, given.room)
            head = f"{number:3d} {fault['file']}:{fault['line']}  {fault['was']}  →  {fault['now']}"
            if given.list:
                print(head)
                continue
            key = given.seed, fault["file"], fault["line"], fault["was"], fault["now"]
            one = known.get(key) or tried(fault, Path(folder))
            if key not in known:
                with given.out.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(one) + "\n")
            results.append(one)
            word = "noticed" if one["noticed"] else "NOT NOTICED"
            print(f"{head}  {word} {one['seconds']} s {str(one['by'])[:90]}", flush=True)
    if results:
        noticed = sum(bool(one["noticed"]) for one in results)
        print(f"{noticed} of {len(results)} noticed by the fast tests of their own room")


if __name__ == "__main__":
    main()
