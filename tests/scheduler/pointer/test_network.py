import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as some

from attribution_sched.scheduler.pointer.features import features_of
from attribution_sched.scheduler.pointer.network import log_probabilities
from attribution_sched.scheduler.pointer.prefix import context, domain_choices, empty

from .decisions import moment, small_network

NETWORK = small_network()


def tensors(task, order=None):
    order = np.arange(len(task.open)) if order is None else order
    nodes, edges, opened = task.nodes[order], task.edges[np.ix_(order, order)], task.open[order]
    return (
        torch.tensor(nodes, dtype=torch.float32)[None], torch.tensor(edges, dtype=torch.float32)[None],
        torch.tensor(task.task, dtype=torch.float32)[None], torch.tensor(opened)[None],
    )  # fmt: skip


def scores(task, order):
    """Scores of all domains and the end for an empty plan, domains listed in some order."""
    nodes, edges, about, opened = tensors(task, order)
    with torch.inference_mode():
        embedded, memory = NETWORK.encode(nodes, edges, about, opened)
        start = empty(task)
        state = NETWORK.state(memory, torch.tensor(context(task, start), dtype=torch.float32), about)
        looks = torch.tensor(domain_choices(task, start)[0][:, order], dtype=torch.float32)
        return embedded[0].numpy(), memory[0].numpy(), NETWORK.domain_scores(state, embedded, looks)[0].numpy()


@settings(deadline=None, max_examples=40)
@given(seed=some.integers(0, 10_000), domains=some.sampled_from([3, 4, 9]))
def test_the_order_of_the_domains_does_not_matter(seed, domains):
    task = features_of(moment(seed, domains))
    order = np.random.default_rng(seed).permutation(domains)
    embedded, memory, scored = scores(task, np.arange(domains))
    moved, same, scored_moved = scores(task, order)
    np.testing.assert_allclose(moved, embedded[order], atol=2e-5)
    np.testing.assert_allclose(same, memory, atol=2e-5)
    np.testing.assert_allclose(scored_moved[:-1], scored[:-1][order], atol=2e-5)
    np.testing.assert_allclose(scored_moved[-1], scored[-1], atol=2e-5)


def test_links_matter():
    task = features_of(moment(5))
    nodes, edges, about, opened = tensors(task)
    with torch.inference_mode():
        first = NETWORK.encode(nodes, edges, about, opened)[0]
        second = NETWORK.encode(nodes, edges + torch.eye(4)[None, :, :, None].roll(1, 1), about, opened)[0]
    assert (first - second).abs().max() > 1e-3


def test_a_full_domain_is_not_heard():
    view = moment(5)
    view.free_devices[:] = 8
    view.free_devices[1] = 0
    task = features_of(view)
    nodes, edges, about, opened = tensors(task)
    others = [0, 2, 3]
    with torch.inference_mode():
        first = NETWORK.encode(nodes, edges, about, opened)
        nodes[0, 1] = 5.0
        second = NETWORK.encode(nodes, edges, about, opened)
    torch.testing.assert_close(first[0][0, others], second[0][0, others])
    torch.testing.assert_close(first[1], second[1])


@settings(deadline=None, max_examples=40)
@given(seed=some.integers(0, 10_000))
def test_what_is_masked_has_probability_zero(seed):
    draws = torch.Generator().manual_seed(seed)
    raw = 30.0 * torch.randn(3, 7, generator=draws)
    mask = torch.rand(3, 7, generator=draws) < 0.5
    mask[:, 0] = True
    chance = log_probabilities(raw, mask).exp()
    assert (chance[~mask] == 0.0).all()
    torch.testing.assert_close(chance.sum(dim=-1), torch.ones(3))
