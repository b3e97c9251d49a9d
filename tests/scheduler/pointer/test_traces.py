from itertools import islice

import numpy as np
import pytest

from attribution_sched.cluster.plan import PlanBatch
from attribution_sched.cluster.reward import value
from attribution_sched.errors import SettingsError, TraceError
from attribution_sched.planning.validity import feasible
from attribution_sched.scheduler.pointer.scenarios import Range
from attribution_sched.scheduler.pointer.traces import cached_traces, from_line, read_traces, teach, to_line, views_of
from attribution_sched.scheduler.splits import SpeedProportional

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
    monkeypatch.setattr("attribution_sched.scheduler.pointer.traces.teach", None)
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
