"""Random decisions and the traces of their teacher."""

from itertools import islice

import numpy as np
import pytest

from attribution_sched.cluster.models import model
from attribution_sched.cluster.plan import PlanBatch
from attribution_sched.cluster.reward import value
from attribution_sched.errors import SettingsError, TraceError
from attribution_sched.planning.candidates import feasible
from attribution_sched.rivals.splits import SpeedProportional
from research.pointer_draws import (
    MOTION,
    Range,
    at,
    build_view,
    draw_decision,
    draw_world,
    named_model,
    teach,
    views_of,
)
from research.pointer_traces import cached_traces, from_line, read_traces, to_line


def test_the_same_seed_draws_the_same_world():
    first, second = (draw_world(np.random.default_rng(4)) for _ in range(2))
    assert first == second
    assert first != draw_world(np.random.default_rng(5))


@pytest.mark.parametrize("domains", [(3, 6), (8, 8)])
def test_worlds_keep_to_their_range(domains):
    rng = np.random.default_rng(0)
    for _ in range(5):
        drawn = draw_world(rng, Range(domains=domains))
        assert domains[0] <= len(drawn.regions) <= domains[1]
        assert len(drawn.gpus) == len(drawn.devices) == len(drawn.regions)
        assert 1 <= drawn.max_segments <= len(drawn.regions)
        assert all(24 <= len(model(name)) <= 84 for name, _, _ in drawn.kinds)


def test_a_decision_sets_the_moment():
    rng = np.random.default_rng(1)
    drawn = draw_world(rng)
    view = build_view(drawn)
    for _ in range(20):
        decision = draw_decision(rng, drawn, view.bandwidth_gbps)
        seen = at(view, decision)
        assert seen.kind is view.kinds[decision.kind]
        assert seen.free_devices.sum() > 0 and (seen.free_devices <= drawn.devices).all()
        ratio = seen.bandwidth_gbps / view.bandwidth_gbps
        assert (np.abs(ratio - 1.0) <= MOTION + 1e-3).all() and (np.diag(ratio) == 1.0).all()
        assert (seen.reward.w_eff, seen.reward.w_util, seen.reward.w_cost) == decision.weights


def test_a_stretched_model_repeats_blocks():
    base, long = model("gpt3-13b"), named_model("stretched:gpt3-13b:128")
    block = next(layer for layer in base.layers if layer.kind == "block")
    assert len(long) == 128
    assert long.params == pytest.approx(base.params + (128 - len(base)) * block.params)
    assert long.layers[0] == base.layers[0] and long.layers[-1] == base.layers[-1]


SMALL = Range(domains=(3, 3), models=("bert-large", "vit-l-16"), large=1, sizes=(8,), size_odds=(1.0,))


@pytest.fixture(scope="module")
def searched():
    return list(islice(teach(3, per_world=4, teacher="search"), 8))


def test_the_same_seed_gives_the_same_traces(searched):
    again = list(islice(teach(3, per_world=4, teacher="search"), 8))
    assert [t.rows.tolist() for t in again] == [t.rows.tolist() for t in searched]
    assert [t.decision.free for t in again] == [t.decision.free for t in searched]


def test_what_the_teacher_gives_is_feasible_and_no_worse_than_the_rule(searched):
    for trace, view in views_of(searched):
        batch = PlanBatch(trace.rows[None], np.array([len(trace.rows)]), np.zeros(1, dtype=np.int64))
        assert feasible(view, batch.plan(0)) is None
        assert float(value(view, batch).reward[0]) == pytest.approx(trace.reward)
        ruled = SpeedProportional().decide(view)
        assert trace.reward >= float(value(view, PlanBatch.of([ruled])).reward[0]) - 1e-9


def test_the_exact_teacher_is_no_worse_than_the_search():
    exact = list(islice(teach(5, SMALL, per_world=3), 3))
    searched = list(islice(teach(5, SMALL, per_world=3, teacher="search"), 3))
    for best, quick in zip(exact, searched, strict=True):
        assert best.decision.free == quick.decision.free
        assert best.reward >= quick.reward - 1e-9


def test_a_trace_survives_its_line(searched):
    for trace in searched:
        again = from_line(to_line(trace))
        assert again.world == trace.world
        assert (again.rows == trace.rows).all()
        assert (again.decision.bandwidth_gbps == trace.decision.bandwidth_gbps).all()
        assert (again.decision.kind, again.decision.free) == (trace.decision.kind, trace.decision.free)
        assert (again.reward, again.step_s, again.proven) == (trace.reward, trace.step_s, trace.proven)


def test_a_file_of_traces_is_written_once(tmp_path, monkeypatch):
    path = tmp_path / "deep" / "traces.jsonl"
    first = cached_traces(path, 3, 5, SMALL, 3, "search")
    monkeypatch.setattr("research.pointer_traces.teach", None)
    again = cached_traces(path, 2, 5, SMALL, 3, "search")
    assert [t.rows.tolist() for t in again] == [t.rows.tolist() for t in first[:2]]
    assert [p.name for p in path.parent.iterdir()] == ["traces.jsonl"]


@pytest.mark.parametrize("line", ["", "{", "[]", '{"world": {}}', "3"])
def test_a_bad_line_is_one_clear_error(line):
    with pytest.raises(TraceError, match="is not a trace of the teacher"):
        from_line(line)


def test_a_missing_file_and_an_unknown_teacher_are_refused(tmp_path):
    with pytest.raises(TraceError, match="does not exist"):
        read_traces(tmp_path / "none.jsonl")
    with pytest.raises(SettingsError, match="Did you mean 'exact'"):
        next(teach(0, teacher="exakt"))
