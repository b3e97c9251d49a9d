"""A simulated cluster is rebuilt exactly from the seed and the actions in the journal, pending ones included."""

from dataclasses import asdict

import numpy as np
import pytest

from attribution_sched.cluster.arrivals import Poisson
from attribution_sched.cluster.decision import encode, pend, view
from attribution_sched.cluster.engine import state as st
from attribution_sched.cluster.engine.engine import Engine
from attribution_sched.journal import DecisionRecord, Journal, OutcomeRecord, TaskRecord
from attribution_sched.rivals.greedy import Greedy
from tests.cluster.engine_worlds import restless, tiny_world
from tests.journal.journal_records import HEADER, killed

SEED = 4


@pytest.fixture(scope="module")
def world():
    return tiny_world(restless(), arrivals=Poisson(600.0))


def begin(world):
    engine = Engine(world)
    engine.seed([SEED])
    engine.reset()
    return engine


def apply(engine, made):
    """Let a decision take effect and say what it came to."""
    if made.slot is not None:
        pend(engine, made.slot)
    rewards, terms = engine.step(np.array(made.action, dtype=np.int64)[None])
    own = engine.state.outcome[0]
    return OutcomeRecord(
        made.id, *map(float, terms[0]), float(rewards[0]), float(own[st.D_STEP]), float(own[st.D_BILL]), None,
        int(own[st.D_CODE]), "simulated",
    )  # fmt: skip


def decide(engine, policy, chance):
    seen = view(engine)
    slot = None
    if seen and not seen.replanning and len(seen.queue) > 1:
        slot = int(chance.choice([each.slot for each in seen.queue]))
        pend(engine, slot)
        seen = view(engine)
    plan = policy.decide(seen) if seen else None
    action = encode(engine, plan, seen.kind_index if seen else 0)
    name = None if seen is None else f"slot{seen.slot}-{seen.kind.model.name}"
    task = None if seen is None else TaskRecord(name, seen.kind.model.name, 1, 0.0)
    time_s = float(engine.state.clock[0, st.NOW])
    return DecisionRecord(name, time_s, policy.name, action, plan and {"segments": len(plan.replicas)}, slot=slot), task


def same(one, other):
    for name in one.state._fields:
        assert np.array_equal(getattr(one.state, name), getattr(other.state, name), equal_nan=True), name


@pytest.mark.parametrize("effective", [False, True])
def test_resuming_gives_the_cluster_that_never_stopped(world, tmp_path, effective):
    engine, policy, chance = begin(world), Greedy(), np.random.default_rng(1)
    path = tmp_path / "run.journal"
    with Journal.create(path, HEADER) as journal:
        for _ in range(40):
            given, task = decide(engine, policy, chance)
            made = journal.record_decision(given, task=task)
            journal.record_outcome(apply(engine, made))
        given, task = decide(engine, policy, chance)
        made = journal.record_decision(given, task=task)
        if effective:
            # Killed after it took effect: in the simulation, that is forgotten with the process.
            apply(engine, made)
        copy = killed(path, tmp_path / "copy")
    if not effective:
        apply(engine, made)

    again = begin(world)
    with Journal.open(copy) as journal:
        assert [each.sequence for each in journal.pending()] == [40]
        for each, known in journal.entries():
            found = apply(again, each)
            if known is None:
                journal.record_outcome(found)
            else:
                assert asdict(found) == asdict(known)
        assert journal.pending() == []
        assert any(each.slot is not None for each in journal.decisions())
    same(again, engine)
