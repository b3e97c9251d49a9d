"""The quick tanh is tanh, with its gradient."""

import numpy as np
import pytest
import torch

from attribution_sched.scheduler.ppo.quick_tanh import LARGE, Tanh, quick_tanh, tanh_


@pytest.mark.parametrize("size", [7, LARGE, LARGE + 1])
def test_values_and_gradient_are_those_of_tanh(size):
    x = 4.0 * torch.randn(size, generator=torch.Generator().manual_seed(1))
    weight = torch.randn(size, generator=torch.Generator().manual_seed(2))
    own, other = (x.clone().requires_grad_() for _ in range(2))
    found, expected = quick_tanh(own), torch.tanh(other)
    (found * weight).sum().backward()
    (expected * weight).sum().backward()
    assert torch.allclose(found, expected, rtol=0, atol=2e-7)
    assert torch.allclose(own.grad, other.grad, rtol=0, atol=1e-6)


def test_the_input_is_left_as_it_is_unless_that_was_asked_for():
    x = torch.randn(LARGE, generator=torch.Generator().manual_seed(3))
    before = x.clone()
    quick_tanh(x)
    Tanh()(x)
    assert torch.equal(x, before)
    assert tanh_(x) is x
    assert np.allclose(x.numpy(), np.tanh(before.numpy()), atol=2e-7)


def test_arrays_with_gaps_are_taken_too():
    x = torch.randn(2 * LARGE, 2, generator=torch.Generator().manual_seed(4))[:, 0]
    assert torch.allclose(quick_tanh(x), torch.tanh(x), atol=2e-7)
    expected = torch.tanh(x)
    assert torch.allclose(tanh_(x), expected, atol=2e-7)
