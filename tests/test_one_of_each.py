"""One definition of each idea: R, whether a plan is valid, the Shapley value, the interval of a mean, checkpoints, …

A second copy is found by what it must do, not by its name: weigh three terms by three weights, say that a plan is
refused, make plans by small changes of a plan's columns, read or write tensors of a file; divide by a number of subsets
or of orders, walk a permutation and its reverse, weigh coalitions by 1/(s(d−s)), share out a total by one Lagrange
multiplier; divide a sample's spread by √n, read a quantile of Student's t, resample rows with replacement.
"""

from __future__ import annotations

import ast
import re
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
    steps = {"_shifted", "_laid_out", "_exchanged"}
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


def parts_of(node, *kinds):
    return [part for part in ast.walk(node) if isinstance(part, kinds)]


def names_in(node):
    return {getattr(part, "attr", getattr(part, "id", "")) for part in parts_of(node, ast.Name, ast.Attribute)}


def called(node, *names):
    """Calls of a function of one of these names, however it was imported."""
    return [c for c in parts_of(node, ast.Call) if getattr(c.func, "attr", getattr(c.func, "id", "")) in names]


def quotients(tree):
    return [node for node in parts_of(tree, ast.BinOp) if isinstance(node.op, ast.Div)]


def weighs_coalitions_or_orders(tree):
    """A Shapley weight: one over a number of subsets, a quotient of factorials, or of gammas for them."""
    counted = ("comb", "binom", "factorial", "gammaln", "perm")
    return any(called(node.right, *counted) for node in quotients(tree) if not isinstance(node.right, ast.Constant))


def walks_an_order_and_its_reverse(tree):
    """A function that draws or ranks an order of players, and has the reverse of an axis of it too."""

    def reverses(node):
        whole = node.slice.elts[-1] if isinstance(node.slice, ast.Tuple) else node.slice
        return isinstance(whole, ast.Slice) and whole.step is not None and ast.unparse(whole.step) == "-1"

    for function in parts_of(tree, ast.FunctionDef):
        turned = {ast.unparse(node.value) for node in parts_of(function, ast.Subscript) if reverses(node)}
        turned |= {ast.unparse(c.args[0]) for c in called(function, "flip", "reversed") if c.args}
        drawn = {
            name
            for part in parts_of(function, ast.Assign)
            if called(part.value, "permutation", "permuted", "permutations")
            for target in part.targets
            for name in names_in(target)
        }
        drawn |= {arg.arg for arg in function.args.args if arg.arg in ("order", "orders")}
        if {re.split(r"[.\[(]", text)[0] for text in turned} & drawn:
            return True
    return False


def regresses_on_coalitions(tree):
    """Shapley's kernel, sizes times what is missing of d: ``s * (d - s)``."""

    def is_kernel(node):
        # Of a product of many only the last factor before it is told.
        sides = [
            (getattr(one, "right", one) if isinstance(getattr(one, "op", None), ast.Mult) else one, other)
            for one, other in ((node.left, node.right), (node.right, node.left))
        ]
        return isinstance(node.op, ast.Mult) and any(
            isinstance(less, ast.BinOp)
            and isinstance(less.op, ast.Sub)
            and ast.unparse(less.right) == ast.unparse(size)
            and ast.unparse(less.left) in ("d", "n", "players", "n_players")
            for size, less in sides
        )

    return any(map(is_kernel, parts_of(tree, ast.BinOp)))


def errs_by_root_n(tree):
    """A standard error: the spread of a sample over √n."""

    def spread(node):
        return any("ddof" in {k.arg for k in c.keywords} for c in called(node, "std"))

    return any(spread(node.left) and called(node.right, "sqrt") for node in quotients(tree))


def reads_students_quantile(tree):
    """Student's quantile by scipy, or its normal stand-in 1.96 times something."""
    for node in parts_of(tree, ast.BinOp):
        factors = [getattr(side, "value", None) for side in (node.left, node.right)]
        if isinstance(node.op, ast.Mult) and 1.96 in factors:
            return True
    ppf = [c for c in called(tree, "ppf") if getattr(getattr(c.func, "value", None), "id", "") in ("t", "norm")]
    return bool(called(tree, "stdtrit") or ppf)


def resamples_rows(tree):
    """A bootstrap: multinomial counts of n rows at 1/n each."""
    return any("full" in names_in(call) and quotients(call) for call in called(tree, "multinomial"))


DECIDES = {
    "scheduler/hi_ppo/online_learning.py", "scheduler/hi_ppo/policy_search.py", "scheduler/training.py"
}  # fmt: skip
"""Intervals by which something learnt is taken or left: their numbers stay as they are until the chooser is rebuilt."""


@pytest.mark.parametrize(
    ("idea", "homes", "let_be"),
    [
        (weighs_coalitions_or_orders, {"shapley/exact.py", "shapley/tree.py"}, set()),
        (walks_an_order_and_its_reverse, {"shapley/orders.py"}, set()),
        (regresses_on_coalitions, {"shapley/regression.py"}, set()),
        (errs_by_root_n, {"stats/interval.py"}, DECIDES | {"feedback/rollback.py"}),
        # Margins of a distribution are no intervals of a mean.
        (
            reads_students_quantile,
            {"stats/interval.py"},
            DECIDES | {"attribution/conditionals/margins.py", "attribution/conditionals/student.py"},
        ),
        # Models fitted again, or judged against each other, are no intervals.
        (resamples_rows, {"stats/bootstrap.py"}, {"attribution/selection.py", "attribution/energy_model.py"}),
    ],
)
def test_statistics_have_one_home(idea, homes, let_be):
    found = {
        str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*.py") if idea(ast.parse(path.read_text("utf-8")))
    }
    assert found - let_be == homes
    assert let_be <= found, "what is let be is gone: take it from the list"


@pytest.mark.parametrize(
    ("idea", "copy"),
    [
        (weighs_coalitions_or_orders, "w = [1.0 / (n * math.comb(n - 1, s)) for s in range(n)]"),
        (weighs_coalitions_or_orders, "w = factorial(s) * factorial(d - s - 1) / factorial(d)"),
        (
            walks_an_order_and_its_reverse,
            "def f(rng):\n  order = rng.permutation(5)\n  for way in (order, order[::-1]): g(way)",
        ),
        (walks_an_order_and_its_reverse, "def f(orders):\n  return orders, np.flip(orders)"),
        (walks_an_order_and_its_reverse, "def f(table, orders):\n  return g(table, orders[:, ::-1])"),
        (regresses_on_coalitions, "k = (d - 1) / (binom * size * (d - size))"),
        (regresses_on_coalitions, "weights = 1.0 / (size * (d - size))"),
        (errs_by_root_n, "e = x.std(ddof=1) / np.sqrt(len(x))"),
        (errs_by_root_n, "e = np.std(x, axis=0, ddof=1) / math.sqrt(n)"),
        (reads_students_quantile, "half = stdtrit(n - 1, 0.975) * e"),
        (reads_students_quantile, "half = t.ppf(0.975, n - 1) * e"),
        (reads_students_quantile, "half = 1.96 * e"),
        (resamples_rows, "c = rng.multinomial(n, np.full(n, 1.0 / n), size=99)"),
    ],
)
def test_a_planted_copy_is_found(idea, copy):
    assert idea(ast.parse(copy))


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


def literal_shapes(tree):
    """Arrays and slices whose size is the number of counters, written as a number."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") in ("zeros", "ones", "full", "empty"):
            sizes = node.args[:1]
        elif isinstance(node, ast.Slice) and node.upper is not None and node.lower is None:
            sizes = [node.upper]
        else:
            continue
        for size in sizes:
            if any(isinstance(x, ast.Constant) and type(x.value) is int and x.value in (7, 12) for x in ast.walk(size)):
                yield node.lineno


# A digest's beginning, and columns of a log that is not ours.
OTHER_SIZES = {"executors/shadow.py", "kernels/record.py", "kernels/records.py", "kernels/__init__.py",
               "scheduler/ppo/run_state.py", "scheduler/hi_ppo/action_masks.py"}  # fmt: skip


def test_sizes_of_counters_come_from_their_list():
    """A counter more is a line in ``COUNTER_UNITS``: no array has its number of columns written down."""
    written = {
        f"{path.relative_to(PACKAGE)}:{line}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if str(path.relative_to(PACKAGE)) not in OTHER_SIZES
        for line in literal_shapes(ast.parse(path.read_text("utf-8")))
    }
    assert written == set()
