"""A planning instance: rooms within power budgets, formats, speeds."""

from dataclasses import replace

import numpy as np
import pytest

from attribution_sched.cluster.decision import view
from attribution_sched.cluster.gpus import Precision
from attribution_sched.errors import PlanError
from attribution_sched.planning.instance import Instance, half_precision, inside_precisions, tp_indices, usable_devices
from attribution_sched.planning.segment_table import twins
from tests.cluster.engine_worlds import BERT, GPT2, SERVE, begun, decide, single, tiny_cluster, traced
from tests.scheduler.states import mixed_cluster


def test_it_takes_the_pending_task_or_another_kind():
    seen = view(begun(traced((0, BERT), (0, GPT2), kinds=(BERT, GPT2))))
    pending, other = Instance.of(seen), Instance.of(seen, 1)
    assert pending.model == seen.kind_index == 0
    assert (other.batch_size, other.microbatches, other.n_layers) == (32, GPT2.microbatches, len(GPT2.model))
    assert other.training
    assert other.open_domains.tolist() == [0, 1, 2]


def test_a_power_budget_leaves_devices_that_could_all_run_at_their_cap():
    # Four devices of 55 W idle and 400 W at most: 900 W feed 1.97 of them beside the idle rest.
    cluster = tiny_cluster(2, 4, motion={"spread": 0.0}, power_budget_w=900.0)
    engine = begun(traced((0, BERT), (0, BERT), kinds=(BERT,), cluster=cluster))
    assert usable_devices(view(engine)).tolist() == [1, 1]
    decide(engine, single(BERT, 0))
    assert view(engine).free_devices.tolist() == [3, 4]
    assert usable_devices(view(engine)).tolist() == [0, 1]
    free = begun(traced((0, BERT), kinds=(BERT,)))
    assert usable_devices(view(free)).tolist() == [4, 4, 4]


def test_formats_are_those_all_domains_have():
    instance = Instance.of(view(begun(traced((0, SERVE), kinds=(SERVE,), cluster=mixed_cluster()))))
    chosen = half_precision(instance, np.array([[0, 1], [0, 2]]))
    assert chosen.tolist() == [Precision.FP16.index, Precision.BF16.index]
    assert inside_precisions(instance, 0) == (0, 1, 2, 3)
    assert inside_precisions(instance, 1) == (0, 1)
    told = replace(instance, precision=Precision.FP32)
    assert half_precision(told, np.array([[0, 1], [0, 2]])).tolist() == [0, 0]
    assert inside_precisions(told, 0) == (0,)


def test_speeds_follow_hardware_and_degree():
    instance = Instance.of(view(begun(traced((0, BERT), kinds=(BERT,), cluster=mixed_cluster()))))
    seconds = instance.seconds_per_sample()
    half = seconds[Precision.FP16.index]
    assert seconds.shape == (4, 3, 4)
    assert half[1, 0] > half[0, 0] > half[2, 0] > 0
    assert (np.diff(half, axis=1) < 0).all()
    assert np.isnan(seconds[Precision.BF16.index, 1]).all()
    assert tp_indices(np.array([1, 2, 4, 8])).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"free_devices": np.array([1, 2])}, "one per domain"),
        ({"free_devices": np.array([1, 2, -1])}, "one per domain"),
        ({"microbatches": (3,)}, "divisors of the batch"),
        ({"microbatches": ()}, "divisors of the batch"),
    ],
)
def test_nonsense_is_refused(change, message):
    instance = Instance.of(view(begun(traced((0, BERT), kinds=(BERT,)))))
    with pytest.raises(PlanError, match=message):
        replace(instance, **change)


def test_twins_differ_in_hardware_room_or_priced_carbon():
    cluster = tiny_cluster(4, motion={"spread": 0.0})
    greener = replace(cluster.domains[2], carbon_g_per_kwh=10.0)
    slower = replace(cluster.domains[3], fabric_gbps=100.0)
    cluster = replace(cluster, domains=(*cluster.domains[:2], greener, slower))
    instance = Instance.of(view(begun(traced((0, BERT), kinds=(BERT,), cluster=cluster))))
    assert not instance.carbon_priced
    same = twins(instance)
    assert same[0] == same[1] == same[2] != same[3]
    priced = twins(replace(instance, carbon_priced=True))
    assert priced[0] == priced[1] != priced[2]
    rooms = twins(replace(instance, free_devices=np.array([4, 3, 4, 4])))
    assert rooms[0] == rooms[2] != rooms[1]
