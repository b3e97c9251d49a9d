"""Attributions tell how long a task will take: as the head of demands says, and nothing where nothing was measured."""

from dataclasses import replace

import numpy as np
import pytest

from attribution_sched.cluster.counters import counters
from attribution_sched.cluster.decision import gather, view
from attribution_sched.cluster.demands import draw_demands
from attribution_sched.config import load_settings, load_training_settings
from attribution_sched.config.scenarios import build_scenario
from attribution_sched.scheduler.hi_ppo.checkpoint import SHIPPED, load
from attribution_sched.scheduler.hi_ppo.cluster_batch import ClusterBatch
from attribution_sched.scheduler.hi_ppo.coordinator import HiPpo
from attribution_sched.scheduler.hi_ppo.demand_head import DemandReader, NominalTask
from attribution_sched.scheduler.hi_ppo.features import CANDIDATE_NAMES, GLOBAL_NAMES, PACE, log_pace
from attribution_sched.scheduler.hi_ppo.runtime_estimate import read_paces
from attribution_sched.training_phases import course_fields

from . import worlds

HOURS, GAIN = CANDIDATE_NAMES.index("nominal_hours"), CANDIDATE_NAMES.index("gain")
QUEUE_HOURS = GLOBAL_NAMES.index("queue_hours")


@pytest.fixture(scope="module")
def shipped():
    return load(SHIPPED)


@pytest.fixture(scope="module")
def kinds():
    return load_settings("cross-domain").build_world().kinds


def test_planes_say_what_the_head_says_and_what_is_true(shipped, kinds):
    planes = read_paces(shipped.demands, kinds, shipped.attributions)
    for kind, plane in zip(kinds, planes, strict=True):
        rng = np.random.default_rng(7)
        demands = draw_demands([kind.model] * 500, rng)
        seen = np.asarray(shipped.attributions(counters(demands, rng).values))
        reader = DemandReader.of(shipped.demands, NominalTask.of(kind, shipped.attributions))
        said = np.log(reader.task.factors(reader.ratios(seen, seen, np.arange(500)))[:, 0])
        found = np.array([log_pace(plane, row.astype(np.float32)) for row in seen])
        assert np.corrcoef(found, said)[0, 1] > 0.99 and abs(found.mean() - said.mean()) < 0.01
        assert np.corrcoef(found, np.log(demands.factors[:, 0]))[0, 1] > 0.7


def test_a_head_that_was_not_fitted_says_nothing(kinds):
    assert not read_paces(worlds.network().demands, kinds, worlds.attributor).any()


def test_a_task_that_was_not_measured_is_nominal(shipped, kinds):
    plane = read_paces(shipped.demands, kinds[:1], shipped.attributions)[0]
    assert log_pace(plane, np.zeros(7, dtype=np.float32)) == 0.0 != plane[-1]


def test_who_decides_and_who_learns_read_the_same_hours(shipped):
    world = build_scenario("cross-domain")
    said = read_paces(shipped.demands, world.kinds, shipped.attributions)
    seen = view(worlds.begun(world, 1, 2))
    assert said.any() and np.array_equal(HiPpo(network=shipped).planner(seen).paces, said)
    field = ClusterBatch(world, 2, 0, shipped.attributions)
    assert not field.planner.paces.any()
    field.read_hours(shipped)
    assert np.array_equal(field.planner.paces, said)
    settings = load_training_settings({"extends": "hi_ppo_tuned"})
    worlds_of = {one.label: world for one in settings.course.worlds}
    assert all(np.array_equal(one.planner.paces, said) for one in course_fields(settings, worlds_of, shipped, 0))


def test_a_slower_task_is_seen_as_a_longer_one_that_gains_less_by_moving():
    engine = worlds.begun(worlds.worlds()["equal"], 6, 1)
    planner = worlds.planner_of(engine)
    rows = np.arange(6)
    decisions = gather(engine, rows, np.full((len(engine.pool), 7), 0.1, dtype=np.float32))
    running = replace(decisions, step_s=np.where(rows < 3, 1.2 * planner.nominal_s[decisions.kind[:, 0]], 0.0))
    slower = np.zeros_like(planner.paces)
    slower[:, -1] = 0.3
    assert slower.shape[1] == PACE
    (before, _), (after, _) = planner.describe(running), replace(planner, paces=slower).describe(running)
    present = before.present
    assert np.allclose((after.candidates - before.candidates)[present][:, HOURS], 0.3 / 4.0, atol=1e-6)
    moved = before.candidates[:3, 0, GAIN]
    inside = np.abs(moved) < 1.5
    assert inside.any() and np.allclose(after.candidates[:3, 0, GAIN][inside], moved[inside] - 0.3, atol=1e-6)
    rest = [c for c in range(len(CANDIDATE_NAMES)) if c not in (HOURS, GAIN)]
    assert np.array_equal(after.candidates[:, :, rest], before.candidates[:, :, rest])
    assert (after.globals[:, QUEUE_HOURS] > before.globals[:, QUEUE_HOURS]).all()
