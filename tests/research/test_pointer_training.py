from itertools import islice

import numpy as np
import pytest
import torch

from attribution_sched.cluster.plan import DOMAIN, PlanBatch
from attribution_sched.errors import ModelFitError, TraceError
from attribution_sched.planning.candidates import feasible
from attribution_sched.rivals.seq2seq.decoding import decode
from attribution_sched.rivals.seq2seq.network import NetworkSize
from research.pointer_draws import teach, views_of
from research.pointer_examples import example_of, examples_of, shrunk
from research.pointer_training import TrainingSettings, loss_of, train

QUICK = TrainingSettings(epochs=150, batch=4, rate=5e-3, noise=0.0, size=NetworkSize(width=32))


@pytest.fixture(scope="module")
def traces():
    found = islice((t for t in teach(12, per_world=3, teacher="search")), 40)
    several = [trace for trace in found if len(trace.rows) > 1]
    return several[:3]


def test_a_handful_of_traces_is_learnt_by_heart(traces):
    examples = examples_of(traces, np.random.default_rng(0), (0, 0))
    losses = []
    network = train(examples, QUICK, report=lambda r: losses.append(r.train))
    assert losses[-1] < 0.1 * losses[0]
    right = 0
    for trace, view in views_of(traces):
        likeliest = decode(network, view, 4).batch.segments[0, : len(trace.rows)]
        right += (likeliest[:, :7] == trace.rows[:, :7]).all()
    assert right >= len(traces) - 1


def test_the_same_seed_gives_the_same_weights(traces):
    examples = examples_of(traces, np.random.default_rng(0), (0, 1))
    few = TrainingSettings(epochs=2, batch=4, seed=3, size=NetworkSize(width=16))
    first, second = (train(examples, few, examples[:2]) for _ in range(2))
    for name, weight in first.state_dict().items():
        assert torch.equal(weight, second.state_dict()[name]), name
    other = train(examples, TrainingSettings(epochs=2, batch=4, seed=4, size=NetworkSize(width=16)))
    assert not torch.equal(other.end[0].weight, first.end[0].weight)


def test_padding_does_not_change_the_loss(traces):
    examples = examples_of(traces, np.random.default_rng(0), (0, 0))
    network = train(examples, TrainingSettings(epochs=1, batch=4, size=NetworkSize(width=16)))
    together = float(loss_of(network, examples)[0].detach())
    alone = [float(loss_of(network, [example])[0].detach()) for example in examples]
    assert together == pytest.approx(np.mean(alone), rel=1e-4)


def test_the_plan_of_a_trace_survives_taking_devices_away(traces):
    rng = np.random.default_rng(1)
    for trace, view in views_of(traces):
        plan = PlanBatch(trace.rows[None], np.array([len(trace.rows)]), np.zeros(1, dtype=np.int64)).plan(0)
        for _ in range(5):
            less = shrunk(rng, view, trace.rows)
            assert (less.free_devices <= view.free_devices).all() and feasible(less, plan) is None


def test_a_trace_that_the_masks_rule_out_is_refused(traces):
    trace, view = next(views_of(traces))
    view.free_devices[trace.rows[0, DOMAIN]] = 0
    with pytest.raises(TraceError, match="trace"):
        example_of(view, trace.rows)


def test_nothing_to_learn_from_is_refused():
    with pytest.raises(ModelFitError, match="at least one"):
        train([])
