"""Plan validity: one rule book. Each refusal by hand, and the engine's own verdict as the oracle."""

import ast
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import attribution_sched
from attribution_sched.cluster import validity as rules
from attribution_sched.cluster.engine.state import CODES
from attribution_sched.cluster.plan import DP, FIRST, PP, SEGMENT_FIELDS, STOP, TP, PlanBatch
from attribution_sched.cluster.validity import REFUSALS, VALID, fault, form_only, validity

from .test_plan import CUT, DOMAINS, LAYERS

ROOT = Path(attribution_sched.__file__).parent
COLUMN = {name: at for at, name in enumerate(SEGMENT_FIELDS)}
BATCH = PlanBatch.of([CUT])
LIMITS = rules.Limits(
    n_layers=LAYERS, devices=np.full(DOMAINS, 8), node_devices=np.full(DOMAINS, 8),
    formats=np.ones((DOMAINS, 4), dtype=np.bool_), microbatches=np.array([8, 16]), trained=True, max_segments=2,
)  # fmt: skip


def changed(segment=0, **fields):
    rows = BATCH.segments.copy()
    for name, value in fields.items():
        rows[0, segment, COLUMN[name]] = value
    return rows


def without(domain, precision):
    formats = LIMITS.formats.copy()
    formats[domain, precision] = False
    return formats


@pytest.mark.parametrize(
    ("rows", "limits", "code"),
    [
        (changed(), LIMITS, VALID),
        (changed(1, first=11), LIMITS, rules.UNCOVERED),
        (changed(1, stop=LAYERS - 1), LIMITS, rules.UNCOVERED),
        (changed(0, stop=0), LIMITS, rules.UNCOVERED),
        (changed(1, replica=1), LIMITS, rules.UNCOVERED),
        (changed(1, domain=2), LIMITS, rules.TWICE),
        (changed(), LIMITS._replace(devices=np.array([8, 8, 4, 8])), rules.DEVICES),
        (changed(0, precision=1), LIMITS._replace(formats=without(2, 1)), rules.FORMAT),
        (changed(0, dp=16), LIMITS, rules.INDIVISIBLE),
        (changed(0, pp=11), LIMITS, rules.STAGES),
        (changed(0, precision=3), LIMITS, rules.TRAINED_INT8),
        (changed(1, microbatch=16), LIMITS, rules.UNEVEN_BATCH),
        (changed(0, domain=DOMAINS), LIMITS, rules.OUTSIDE),
        (changed(0, tp=0), LIMITS, rules.OUTSIDE),
        (changed(0, precision=4), LIMITS, rules.OUTSIDE),
        (changed(0, pp=3), LIMITS, rules.LAYOUT),
        (changed(0, tp=8, dp=1, pp=1), LIMITS._replace(node_devices=np.full(DOMAINS, 4)), rules.NODE),
        (changed(), LIMITS._replace(max_segments=1), rules.SEGMENTS),
        (changed(), LIMITS._replace(microbatches=np.array([4])), rules.MICROBATCH_SIZE),
    ],
)
def test_every_refusal_by_hand(rows, limits, code):
    assert validity(limits, rows, BATCH.counts).tolist() == [code]
    assert fault(limits, replace(BATCH, segments=rows))[0] == code
    assert code == VALID or code in REFUSALS


def test_a_batch_is_judged_plan_by_plan_and_rows_beyond_the_count_are_not_looked_at():
    rows = np.concatenate([changed(), changed(0, pp=11), changed()])
    rows = np.concatenate([rows, np.full_like(rows[:, :1], -7)], axis=1)
    assert validity(LIMITS, rows, np.array([2, 2, 3])).tolist() == [VALID, rules.STAGES, rules.SEGMENTS]


def test_the_engine_refuses_in_the_same_words():
    assert {code: words for code, words in CODES.items() if code < 0}.items() <= REFUSALS.items()
    assert min(CODES) == rules.UNEVEN_BATCH


@settings(deadline=None, max_examples=200)
@given(st.data())
def test_whatever_stands_in_a_row_nothing_is_read_outside(data):
    """Kernels follow what passes: every index of a plan that is called valid lies inside its table."""
    rows = BATCH.segments.copy()
    for _ in range(data.draw(st.integers(1, 4))):
        at, column = data.draw(st.integers(0, 1)), data.draw(st.integers(0, len(SEGMENT_FIELDS) - 1))
        rows[0, at, column] = data.draw(st.integers(-3, 40))
    if validity(form_only(LAYERS, DOMAINS), rows, BATCH.counts)[0] == VALID:
        used = rows[0]
        assert (used[:, COLUMN["domain"]] >= 0).all() and (used[:, COLUMN["domain"]] < DOMAINS).all()
        assert used[0, FIRST] == 0 and (used[1:, FIRST] % LAYERS == used[:-1, STOP] % LAYERS).all()
        assert used[-1, STOP] == LAYERS
        assert (used[:, [DP, TP, PP]] >= 1).all() and (used[:, PP] <= used[:, STOP] - used[:, FIRST]).all()


def test_nobody_else_writes_the_rules():
    """The tell-tale of a private rule book: comparing dp·tp·pp with devices and taking a microbatch modulo dp."""
    homes = {"cluster/validity.py", "cluster/engine/engine.py"}
    again = []
    for path in ROOT.rglob("*.py"):
        name = path.relative_to(ROOT).as_posix()
        if name not in homes and private_rules(path.read_text(encoding="utf-8")):
            again.append(name)
    assert again == []


def private_rules(text):
    """Whether a function both counts a layout's devices against a limit and divides a microbatch by dp."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            words = ast.unparse(node)
            sized = any(
                isinstance(part, ast.Compare) and words_of(part) >= {"DP", "TP", "PP"} for part in ast.walk(node)
            )
            if sized and "MICROBATCH] %" in words:
                return True
    return False


def words_of(node):
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def test_a_private_rule_book_is_noticed():
    sized, divided = "rows[DP] * rows[TP] * rows[PP] <= free", "rows[MICROBATCH] % rows[DP] == 0"
    assert private_rules(f"def f(rows, free):\n    return ({sized}) & ({divided})")
    assert not private_rules(f"def f(rows, free):\n    return {sized}")
