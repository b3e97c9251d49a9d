import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from attribution_sched.cluster.compute import TP_DEGREES
from attribution_sched.cluster.gpus import PRECISIONS
from attribution_sched.scheduler.pointer.features import (
    EDGE_FEATURES,
    NODE_FEATURES,
    OPTION_FEATURES,
    TASK_FEATURES,
    features_of,
)

from .decisions import moment


@settings(deadline=None, max_examples=25)
@given(seed=some.integers(0, 10_000), domains=some.sampled_from([1, 3, 4, 9]))
def test_shapes_and_finite_numbers(seed, domains):
    task = features_of(moment(seed, domains, ("bert-large", "vit-l-16") if domains == 1 else None))
    k, o, m = domains, len(task.options), len(task.microbatches)
    assert task.nodes.shape == (k, NODE_FEATURES)
    assert task.edges.shape == (k, k, EDGE_FEATURES)
    assert task.task.shape == (TASK_FEATURES,)
    assert task.option_rows.shape == (k, m, o, OPTION_FEATURES)
    assert task.work.shape == task.params.shape == task.boundary.shape == (task.n_layers + 1,)
    for array in (task.nodes, task.edges, task.task, task.option_rows, task.work, task.params, task.boundary):
        assert np.isfinite(array).all() and np.abs(array).max() <= 40.0


@settings(deadline=None, max_examples=25)
@given(seed=some.integers(0, 10_000))
def test_profiles_rise_from_nothing_to_all(seed):
    task = features_of(moment(seed))
    for share in (task.work, task.params):
        assert share[0] == 0.0 and share[-1] == pytest.approx(1.0)
        assert (np.diff(share) >= 0.0).all()


@settings(deadline=None, max_examples=25)
@given(seed=some.integers(0, 10_000))
def test_layouts_are_allowed_exactly_where_room_node_and_hardware_are(seed):
    view = moment(seed)
    task = features_of(view)
    for k, domain in enumerate(view.cost.cluster.domains):
        for o, (dp, tp, pp, precision) in enumerate(task.options):
            has = domain.gpu.supports(PRECISIONS[precision])
            fits = dp * tp * pp <= view.free_devices[k] and tp <= domain.node_devices and tp in TP_DEGREES
            assert task.allowed[k, o] == (has and fits)


def test_what_a_full_domain_shows_does_not_reach_the_time_of_others():
    view = moment(3)
    task = features_of(view)
    assert (task.open == (view.free_devices > 0)).all()
    assert np.isinf(task.best_time[~task.open]).all()
