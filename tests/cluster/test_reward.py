"""R and its terms: the formulas by hand, the compiled and the numpy door, and that nobody else writes them.

The named baseline: the static uniform split, against which R_eff is 0 and R_cost is 1.
"""

from __future__ import annotations

import ast
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as hs

import attribution_sched
from attribution_sched.cluster import reward as r
from attribution_sched.cluster.engine import state as st
from attribution_sched.cluster.gpus import Precision
from attribution_sched.cluster.reward import baseline_plan, uniform_split
from attribution_sched.cluster.world import Reward

from .engine_worlds import BERT, GPT2, begun, decide, single, testbed_world, tiny_cluster, tiny_world, traced

ROOT = Path(attribution_sched.__file__).parent
HOME = ROOT / "cluster" / "reward.py"
WEIGHTS = {"w_eff", "w_util", "w_cost"}

positive = hs.floats(1e-3, 1e3)
weight = hs.floats(0.0, 10.0)


def test_terms_by_hand():
    assert r.r_eff(2.0, 8.0) == 0.75
    assert r.step_at(0.75, 8.0) == 2.0
    assert r.cost_usd(1.0, 2.0, 3.0, 10.0, 100.0) == 321.0
    assert r.r_cost(3.0, 4.0) == 0.75
    assert r.r_cost(3.0, 0.0) == 0.0
    assert r.total(0.75, 0.5, 0.25, 4.0, 2.0, 8.0) == 2.0


@given(positive, hs.floats(0, 1), positive, positive, positive, weight, weight, weight)
def test_the_upper_reward_is_the_reward_without_utilisation_up_to_a_constant(
    step_s, util, dollars, base_s, base_usd, w_eff, w_util, w_cost
):
    eff, cost = r.r_eff(step_s, base_s), r.r_cost(dollars, base_usd)
    whole = r.total(eff, util, cost, w_eff, w_util, w_cost)
    upper = r.r_high(eff, cost, w_eff, w_cost)
    scale = 1.0 + abs(w_eff * step_s / base_s) + abs(w_cost * cost) + w_util + w_eff
    assert upper == pytest.approx(whole - w_util * util - w_eff, abs=1e-12 * scale)
    line = r.rates(Reward(w_eff=w_eff, w_util=w_util, w_cost=w_cost), base_s, base_usd)
    assert upper == pytest.approx(-line.alpha * step_s - line.beta * dollars, abs=1e-12 * scale)


@settings(deadline=None)  # the first call compiles
@given(positive, hs.floats(0, 1), positive, positive, positive, weight, weight, weight)
def test_compiled_scalar_and_batch_agree_bit_for_bit(step_s, util, dollars, base_s, base_usd, w_eff, w_util, w_cost):
    eff, cost = r.r_eff(step_s, base_s), r.r_cost(dollars, base_usd)
    assert r.r_eff_kernel(step_s, base_s) == eff == r.r_eff(np.array([step_s]), base_s)[0]
    assert r.r_cost_kernel(dollars, base_usd) == cost == r.r_cost(np.array([dollars]), base_usd)[0]
    whole = r.total(eff, util, cost, w_eff, w_util, w_cost)
    assert r.total_kernel(eff, util, cost, w_eff, w_util, w_cost) == whole
    assert r.total_of(np.array([[eff, util, cost]]), (w_eff, w_util, w_cost))[0] == whole


# Nobody else writes R


def _named(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _saved_share(node: ast.AST) -> bool:
    """``(x − y) / x`` or ``1 − y / x`` with a baseline x, weighted or not."""
    if not isinstance(node, ast.BinOp):
        return False
    if isinstance(node.op, ast.Div):
        inner = (
            node.left.right if isinstance(node.left, ast.BinOp) and isinstance(node.left.op, ast.Mult) else node.left
        )
        base = ast.dump(node.right)
        saved = isinstance(inner, ast.BinOp) and isinstance(inner.op, ast.Sub) and ast.dump(inner.left) == base
        return saved and "base" in ast.unparse(node.right).lower()
    if isinstance(node.op, ast.Sub) and isinstance(node.left, ast.Constant) and node.left.value == 1.0:
        ratio = node.right
        if isinstance(ratio, ast.BinOp) and isinstance(ratio.op, ast.Div):
            return "base" in ast.unparse(ratio.right).lower() and "step" in ast.unparse(ratio).lower()
    return False


def _weighted(node: ast.AST) -> set[str]:
    """Weights of R that something is multiplied by inside a function or class body."""
    return {
        _named(side)
        for part in ast.walk(node)
        if isinstance(part, ast.BinOp) and isinstance(part.op, ast.Mult)
        for side in (part.left, part.right)
        if _named(side) in WEIGHTS
    }


def _signed(node: ast.AST) -> bool:
    """``(terms * weights * SIGNS).sum()`` or a product with ``SIGNS`` that is added up by hand."""
    called = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "sum"
    return called and any(_named(part) == "SIGNS" for part in ast.walk(node.func) if isinstance(part, ast.expr))


def written_again(text: str) -> list[str]:
    """Places of a module that compute a term of R or R itself."""
    tree = ast.parse(text)
    found = [f"line {node.lineno}: a share of the baseline saved" for node in ast.walk(tree) if _saved_share(node)]
    found += [f"line {node.lineno}: terms times weights" for node in ast.walk(tree) if _signed(node)]
    compound = ast.FunctionDef | ast.ClassDef | ast.If | ast.For | ast.With
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt) and not isinstance(node, compound) and len(_weighted(node)) > 1:
            found.append(f"line {node.lineno}: weights {sorted(_weighted(node))} times terms")
    return found


def test_nobody_else_computes_the_reward():
    files = [path for folder in (ROOT, ROOT.parent / "research") for path in folder.rglob("*.py") if path != HOME]
    assert len(files) > 200
    again = {path.name: places for path in files if (places := written_again(path.read_text(encoding="utf-8")))}
    # R itself stands with the records that walk the ring, once.
    assert [len(places) for places in again.values()] == [1]
    assert list(again) == ["types.py"]


@pytest.mark.parametrize(
    "copy",
    [
        "x = (base_s - step_s) / base_s",
        "x = w_eff * (t.base - step) / t.base + 1",
        "x = 1.0 - step_s / base[K_BASE_STEP]",
        "def f(k, eff, util):\n    return k.w_eff * eff + k.w_util * util",
        "total = (terms * weights * SIGNS).sum(axis=1)",
    ],
)
def test_a_copy_is_noticed(copy):
    assert written_again(copy)


def test_the_home_is_where_the_formulas_are():
    assert written_again(HOME.read_text(encoding="utf-8"))


@given(hs.integers(1, 120), hs.integers(1, 64))
def test_a_uniform_split_covers_the_chain_in_parts_of_nearly_equal_length(layers, parts):
    parts = min(layers, parts)
    runs = uniform_split(layers, parts)
    assert runs[0][0] == 0
    assert runs[-1][1] == layers
    assert all(before[1] == after[0] for before, after in pairwise(runs))
    lengths = [stop - first for first, stop in runs]
    assert min(lengths) >= 1
    assert max(lengths) - min(lengths) <= 2


def test_the_baseline_uses_every_domain_with_data_parallelism_first():
    world = tiny_world()
    plan = baseline_plan(world, BERT)
    plan.check(len(BERT.model), 3)
    assert plan.domains == (0, 1, 2)
    assert [(s.dp, s.tp, s.pp) for s in plan.segments] == [(4, 1, 1)] * 3
    assert {s.precision for s in plan.segments} == {Precision.FP16}
    assert plan.samples == BERT.batch_size


def test_with_more_domains_than_layers_the_first_ones_are_used():
    layers = len(BERT.model)
    world = tiny_world(tiny_cluster(layers + 3, 1))
    plan = baseline_plan(world, BERT)
    plan.check(layers, layers + 3)
    assert plan.domains == tuple(range(layers))


def test_on_one_domain_a_task_runs_on_one_device_in_single_precision():
    plan = baseline_plan(testbed_world(), BERT)
    (segment,) = plan.segments
    assert (segment.device_count, segment.precision) == (1, Precision.FP32)


@pytest.mark.parametrize("kind", [BERT, GPT2])
@pytest.mark.parametrize("priced", [False, True])
def test_the_baseline_itself_earns_no_efficiency_and_costs_one(kind, priced):
    reward = Reward(energy_usd_per_kwh=0.1 * priced, carbon_usd_per_kg=0.05 * priced, per_decision=True)
    engine = begun(traced((0, kind), reward=reward, max_segments=3))
    _, terms = decide(engine, baseline_plan(engine.world, kind))
    assert engine.decisions()["code"][0] == 1
    assert terms[0, 0] == pytest.approx(0.0, abs=1e-12)
    assert terms[0, 2] == pytest.approx(1.0, rel=1e-12)


def test_where_no_traffic_leaves_and_energy_has_no_price_there_is_no_cost():
    for price in (0.0, 0.2):
        reward = Reward(per_decision=True, energy_usd_per_kwh=price)
        still = tiny_cluster(1, motion={"spread": 0.0})
        engine = begun(traced((0, BERT), cluster=still, reward=reward, max_segments=1))
        assert (engine.arrays.kinds[0, st.K_BASE_COST] > 0.0) == (price > 0.0)
        _, terms = decide(engine, single(BERT))
        assert (terms[0, 2] > 0.0) == (price > 0.0)


def test_the_baseline_knows_nothing_of_the_present_network():
    slow = tiny_cluster(motion={"spread": 0.25})
    first = begun(tiny_world(slow), seed=1).arrays.kinds
    second = begun(replace(tiny_world(slow), idiosyncrasy=0.0), seed=2).arrays.kinds
    assert (first[:, st.K_BASE_STEP] == second[:, st.K_BASE_STEP]).all()
