"""A task's own limit of devices: copies of the cluster obey it: thinking does not wait for what may not come."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from attribution_sched.cluster.decision import Decision, view
from attribution_sched.cluster.engine.engine import Engine
from attribution_sched.cluster.fork import fork
from attribution_sched.config import load_settings
from attribution_sched.scheduler.hi_ppo.coordinator import HiPpo
from attribution_sched.scheduler.policy import unhurried
from attribution_sched.scheduler.rule_follower import RuleFollower

ASKED = 2


@pytest.fixture(scope="module")
def limited() -> Decision:
    """A small task alone in an empty cluster, which asked for few devices."""
    world = load_settings("cross-domain-easy").build_world()
    engine = Engine(world)
    engine.seed([5])
    engine.reset()
    seen = view(engine)
    assert seen is not None and seen.task is not None and seen.moment is not None
    task = replace(seen.task, devices=ASKED, kind_index=[kind.model.name for kind in world.kinds].index("bert-large"))
    tasks = {**seen.moment.tasks, seen.slot: task}
    pool = seen.moment.arrays.pool.copy()
    pool[seen.slot, 0] = task.kind_index
    moment = replace(seen.moment, tasks=tasks, arrays=seen.moment.arrays._replace(pool=pool))
    return replace(
        seen, task=task, kind=world.kinds[task.kind_index], kind_index=task.kind_index, queue=(task,), moment=moment,
        free_devices=np.minimum(seen.free_devices, ASKED),
    )  # fmt: skip


def test_copies_give_a_task_no_more_devices_than_it_asked_for(limited: Decision) -> None:
    """The follower would give it a whole domain, and it would be done far sooner."""
    assert limited.moment is not None and limited.task is not None
    follower = RuleFollower.of(limited.moment)
    free = replace(limited.moment, tasks={**limited.moment.tasks, limited.slot: replace(limited.task, devices=None)})
    took = {
        name: float(fork(moment, [], 2, 6.0, follower, 3).of("finish_s")[0, :, 0].min()) - limited.time_s
        for name, moment in (("limited", limited.moment), ("free", free))
    }
    assert took["limited"] > 1.5 * took["free"]


def test_thinking_places_a_task_that_asked_for_few_devices(limited: Decision) -> None:
    """Before copies knew the limit, waiting looked better: they gave it a whole domain a moment later."""
    policy = HiPpo(think=True)
    with unhurried(policy):
        found = policy.coordinate(limited)
    assert found.plan is not None
    assert sum(segment.device_count for segment in found.plan.segments) <= ASKED
    assert found.thought is not None
    waits = [option.plan is None for option in found.thought.options]
    assert any(waits) and found.thought.gain[waits.index(True)] < 0.0
