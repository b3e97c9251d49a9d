"""Leaving out what is masked changes neither scores nor gradients."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as hyp

from attribution_sched.scheduler.hi_ppo.network import CROWDED, WORTHWHILE, Pointer, point, sparse, together


def drawn(seed, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@settings(deadline=None, max_examples=30)
@given(seed=hyp.integers(0, 1000), n=hyp.integers(1, 12), most=hyp.integers(1, 9), f=hyp.integers(1, 6))
def test_allowed_choices_are_scored_as_if_all_were(seed, n, most, f):
    rng = np.random.default_rng(seed)
    allowed = rng.random((n, most)) < 0.4
    allowed[:, 0] |= ~allowed.any(axis=1)
    pointer = Pointer(f, 5, 8).double()
    grads = []
    choices, context = drawn(seed, n, most, f).double(), drawn(seed + 1, n, 5).double()
    weight = drawn(seed + 2, n, most).double()
    row, column = (torch.from_numpy(part) for part in np.nonzero(allowed))
    for few in (False, True):
        pointer.zero_grad()
        x, c = choices.clone().requires_grad_(), context.clone().requires_grad_()
        scores = pointer.only(x[row, column], c, (row, column), most) if few else pointer(x, c)
        torch.where(torch.from_numpy(allowed), scores * weight, 0.0).sum().backward()
        told = scores.detach()[row, column]
        grads.append([told, x.grad, c.grad, *(p.grad.clone() for p in pointer.parameters())])
        if few:
            assert (scores.detach()[torch.from_numpy(~allowed)] == 0.0).all()
    for whole, part in zip(*grads, strict=True):
        assert torch.allclose(whole, part, rtol=1e-9, atol=1e-12)


@settings(deadline=None, max_examples=30)
@given(seed=hyp.integers(0, 1000), n=hyp.integers(1, 9), most=hyp.integers(1, 6))
def test_sums_and_largest_entries_are_those_of_the_padded_array(seed, n, most):
    rng = np.random.default_rng(seed)
    present = torch.from_numpy(rng.random((n, most)) < 0.5)
    # Few different values, so that there are ties, and none below 0, as behind a relu.
    values = torch.from_numpy(rng.integers(0, 3, (n, most, 4)).astype(np.float64))
    weights = drawn(seed, 2, n, 4).double()
    grads = []
    for few in (False, True):
        x = values.clone().requires_grad_()
        if few:
            row, column = present.nonzero(as_tuple=True)
            total, largest = together(x[row, column], row, n)
        else:
            each = torch.where(present[:, :, None], x, 0.0)
            total, largest = each.sum(dim=1), each.amax(dim=1)
        (total * weights[0] + largest * weights[1]).sum().backward()
        # Zeros share their gradient with those that are not there; a relu lets none of it through.
        grads.append([total.detach(), largest.detach(), torch.where((values > 0) & present[:, :, None], x.grad, 0.0)])
    for whole, part in zip(*grads, strict=True):
        assert torch.allclose(whole, part, rtol=1e-9, atol=1e-12)


def test_it_is_done_only_where_it_pays():
    few = np.zeros((WORTHWHILE, 2), dtype=np.bool_)
    few[:, 0] = True
    assert sparse(few)
    assert not sparse(few[: WORTHWHILE // 4])
    assert not sparse(np.ones((WORTHWHILE, 2), dtype=np.bool_))
    assert 0.5 < CROWDED < 1.0


def test_choices_without_gradient_get_none():
    weight, told, score = drawn(0, 3, 2).requires_grad_(), drawn(1, 2, 3), drawn(2, 1, 3)
    at = torch.tensor([0, 1, 1]), torch.tensor([0, 0, 1])
    choices = drawn(3, 3, 2)
    point(choices, weight, told, score, at, 2).sum().backward()
    assert choices.grad is None and weight.grad is not None
    with pytest.raises(IndexError):
        point(choices, weight, told, score, (torch.tensor([0, 1, 7]), at[1]), 2)
