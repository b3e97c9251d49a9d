import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from attribution_sched.cluster.plan import MICROBATCHES
from attribution_sched.rivals.seq2seq.decoding import CUT_SHIFTS, decode, with_cuts_moved

from .decisions import moment, small_network

NETWORK = small_network()


@settings(deadline=None, max_examples=25)
@given(seed=some.integers(0, 10_000), domains=some.sampled_from([3, 4, 9]), width=some.sampled_from([1, 4, 16]))
def test_every_decoded_plan_is_well_formed(seed, domains, width):
    view = moment(seed, domains)
    decoded = decode(NETWORK, view, width)
    assert 1 <= len(decoded.batch) <= 2 * width
    assert (np.diff(decoded.log_probability) <= 1e-12).all() and (decoded.log_probability <= 1e-6).all()
    for p in range(len(decoded.batch)):
        plan = decoded.batch.plan(p)
        plan.check(len(view.kind.model), domains)
        if len(plan.replicas) == 1:
            assert plan.samples == view.kind.batch_size
        assert all(r.microbatch in view.kind.microbatches and r.microbatches >= 1 for r in plan.replicas)
        assert all(s.device_count <= view.free_devices[s.domain] for s in plan.segments)
    assert (decoded.batch.segments[:, 0, MICROBATCHES] >= 1).all()


def test_more_layers_and_domains_than_any_it_was_built_with():
    view = moment(2, 16, ("stretched:gpt3-13b:200",))
    decoded = decode(NETWORK, view, 8)
    decoded.batch.plan(0).check(200, 16)


def test_no_plan_is_listed_twice():
    decoded = decode(NETWORK, moment(7), 16)
    rows = decoded.batch.segments.reshape(len(decoded.batch), -1)
    assert len(np.unique(rows, axis=0)) == len(rows)


def test_all_plans_of_a_tiny_decision_add_up_to_one():
    view = moment(4)
    view.free_devices[:] = 0
    view.free_devices[2] = 1
    decoded = decode(NETWORK, view, 10_000)
    # One domain, one device: the microbatch and the format are the only choices.
    assert np.exp(decoded.log_probability).sum() == pytest.approx(1.0, abs=1e-5)
    assert {plan.segments[0].domain for plan in map(decoded.batch.plan, range(len(decoded.batch)))} == {2}


def test_the_same_decision_gives_the_same_plans():
    first, second = (decode(NETWORK, moment(11), 8) for _ in range(2))
    assert (first.batch.segments == second.batch.segments).all()
    assert (first.log_probability == second.log_probability).all()


@settings(deadline=None, max_examples=20)
@given(seed=some.integers(0, 10_000))
def test_a_moved_cut_moves_nothing_else(seed):
    view = moment(seed)
    batch = decode(NETWORK, view, 4).batch
    more = with_cuts_moved(batch)
    assert (more.segments[: len(batch)] == batch.segments).all()
    for p in range(len(batch), len(more)):
        plan = more.plan(p)
        plan.check(len(view.kind.model), 4)
        kin = [batch.plan(b) for b in range(len(batch)) if batch.plan(b).domains == plan.domains]
        cuts = np.array(sum(plan.cut_points, ()))
        moved = [
            cuts - np.array(sum(other.cut_points, ()))
            for other in kin
            if other.cut_points and len(other.replicas) == len(plan.replicas)
        ]
        assert any(np.count_nonzero(m) == 1 and m.sum() in CUT_SHIFTS for m in moved)
