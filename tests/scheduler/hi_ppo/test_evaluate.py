"""What a network said while it chose is what it says when it is asked again."""

import numpy as np
import pytest
import torch

from attribution_sched.errors import PlanError
from attribution_sched.scheduler.hi_ppo import evaluate
from attribution_sched.scheduler.hi_ppo.decode import decode
from attribution_sched.scheduler.hi_ppo.evaluate import judge, take_trace, trace_offsets
from attribution_sched.scheduler.hi_ppo.rollout import join_traces
from attribution_sched.scheduler.ppo.policy import masked_log_softmax

from . import worlds


def walked(name="tight", clusters=10, seed=1):
    engine = worlds.begun(worlds.worlds()[name], clusters, seed)
    chooser = worlds.chooser(seed, scale=4.0)
    return decode(worlds.planner_of(engine), worlds.gathered(engine), chooser).trace, chooser


@pytest.mark.parametrize("name", ["tight", "mixed"])
def test_log_probabilities_of_choosing_and_judging_agree(name):
    trace, chooser = walked(name)
    found = judge(chooser.network, trace)
    assert torch.allclose(found.upper, chooser.upper, atol=1e-5)
    assert torch.allclose(found.lower, chooser.lower, atol=1e-5)
    assert torch.allclose(found.values, chooser.values, atol=1e-5)
    assert (found.upper <= 1e-6).all() and found.lower.abs().sum() > 0


def test_parts_of_a_trace_are_judged_as_in_the_whole():
    trace, chooser = walked()
    whole, index = judge(chooser.network, trace), np.array([7, 0, 3, 3])
    part = judge(chooser.network, take_trace(trace, index, trace_offsets(trace)))
    for one, other in zip(part, whole, strict=True):
        assert torch.allclose(one, other[torch.from_numpy(index)], atol=1e-5)


def test_joined_traces_are_judged_as_they_were():
    trace, chooser = walked(seed=1)
    other, _ = walked(seed=2)
    joined = judge(chooser.network, join_traces([trace, other]))
    parts = [judge(chooser.network, t) for t in (trace, other)]
    for column, pieces in zip(joined, zip(*parts, strict=True), strict=True):
        assert torch.allclose(column, torch.cat(pieces), atol=1e-5)


@pytest.mark.parametrize("name", ["tight", "mixed"])
def test_leaving_out_what_is_masked_changes_neither_judgement_nor_gradients(name, monkeypatch):
    trace, chooser = walked(name, clusters=40)
    network, told = chooser.network, []
    for few in (False, True):
        monkeypatch.setattr(evaluate, "sparse", lambda allowed, few=few: few and allowed.size > 0)
        network.zero_grad()
        found = judge(network, trace)
        sum((k + 1.0) * part.square().mean() for k, part in enumerate(found)).backward()
        told.append([*found, *(weights.grad.clone() for weights in network.parameters() if weights.grad is not None)])
    assert len(told[0]) == len(told[1])
    for whole, part in zip(*told, strict=True):
        assert torch.allclose(whole, part, rtol=1e-4, atol=1e-5 * float(whole.detach().abs().max() + 1.0))


def test_gradients_are_finite():
    trace, chooser = walked()
    found = judge(chooser.network, trace)
    total = sum(part.sum() for part in found)
    total.backward()
    for name, weights in chooser.network.named_parameters():
        if name == "agents":
            # They learn from whole days, not by gradients.
            continue
        assert weights.grad is not None and torch.isfinite(weights.grad).all(), name


def test_a_row_without_any_choice_raises():
    with pytest.raises(PlanError, match="all False"):
        masked_log_softmax(torch.zeros(2, 3), torch.tensor([[True, True, False], [False, False, False]]))


def test_who_must_act_acts_where_something_fits():
    engine = worlds.begun(worlds.worlds()["equal"], 10)
    decisions = worlds.gathered(engine)
    for seed in range(3):
        found = decode(worlds.planner_of(engine), decisions, worlds.chooser(seed, must_act=True))
        able = found.trace.state.mask[:, :-1].any(axis=1)
        assert able.any() and (found.trace.task[able] < decisions.kind.shape[1]).all()
