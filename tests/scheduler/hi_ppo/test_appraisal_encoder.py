"""Encoding along situations that differ little is encoding each of them."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as hs

from attribution_sched.scheduler.hi_ppo.appraisal_encoder import encode, knows, look_along
from attribution_sched.scheduler.hi_ppo.encoder import TopologyEncoder
from attribution_sched.scheduler.hi_ppo.evaluate import look
from attribution_sched.scheduler.hi_ppo.policy import HiPpo

from . import worlds
from .test_appraisal import seen, varied


def graphs(n, k, rng, change):
    """Situations each of which has some numbers of its own; ``change`` is how likely each is to move."""
    nodes, edges = rng.normal(size=(n, k, 5)).astype(np.float32), rng.normal(size=(n, k, k, 4)).astype(np.float32)
    for b in range(1, n):
        stay = rng.random(k) >= change
        nodes[b, stay] = nodes[b - 1, stay]
        kept = rng.random((k, k)) >= change
        edges[b, kept] = edges[b - 1, kept]
    return nodes, edges


@settings(deadline=None, max_examples=40)
@given(hs.integers(1, 40), hs.integers(1, 6), hs.sampled_from([0.0, 0.02, 0.3, 1.0]), hs.integers(0, 99))
def test_the_numbers_are_the_encoders_own(n, k, change, seed):
    encoder = TopologyEncoder(5, 4, width=32, generator=torch.Generator().manual_seed(seed))
    with torch.no_grad():
        for weights in encoder.parameters():
            weights += 0.1 * torch.randn(weights.shape, generator=torch.Generator().manual_seed(seed + 1))
        nodes, edges = graphs(n, k, np.random.default_rng(seed), change)
        found = encode(encoder, nodes, edges)
        everywhere = torch.ones((n, k), dtype=torch.bool)
        embeddings, pooled = encoder(torch.from_numpy(nodes), torch.from_numpy(edges), everywhere)
    assert torch.allclose(found.embeddings[found.graph], embeddings, atol=2e-5)
    assert torch.allclose(found.pooled[found.graph], pooled, atol=2e-5)


def test_what_stays_the_same_is_encoded_once():
    encoder = TopologyEncoder(5, 4, width=16)
    nodes, edges = graphs(1, 3, np.random.default_rng(0), 1.0)
    nodes, edges = np.repeat(nodes, 5, axis=0), np.repeat(edges, 5, axis=0)
    edges[3:, 0, 1, 2] += 1.0
    with torch.no_grad():
        found = encode(encoder, nodes, edges)
    assert found.graph.tolist() == [0, 0, 0, 1, 1] and len(found.embeddings) == 2
    assert not torch.equal(found.pooled[0], found.pooled[1])


def test_a_row_is_the_same_whatever_stands_beside_it():
    encoder = TopologyEncoder(5, 4, width=128)
    nodes, edges = graphs(60, 4, np.random.default_rng(1), 0.2)
    with torch.no_grad():
        whole = encode(encoder, nodes, edges)
        for begin, end in ((0, 20), (20, 60), (33, 34)):
            part = encode(encoder, nodes[begin:end], edges[begin:end])
            assert torch.equal(part.pooled[part.graph], whole.pooled[whole.graph][begin:end])


@pytest.mark.parametrize(
    "options",
    [{"conv": "gatv2"}, {"rounds": 3}, {"pooling": "max"}, {"neighbours": 2}, {"sparse": True}, {"edge_features": 3}],
)
def test_encoders_of_another_kind_are_asked_themselves(options):
    given = {"node_features": 5, "edge_features": 4, "width": 16} | options
    assert not knows(TopologyEncoder(**given), 6)
    assert knows(TopologyEncoder(5, 4, 16), 6)


@pytest.mark.parametrize("name", ["mixed", "many"])
def test_looking_along_sees_what_looking_sees(name):
    policy = HiPpo(network=worlds.network(0, scale=4.0), attributor=worlds.attributor)
    one = seen(name)
    planner = policy.planner(one)
    situations = varied(policy.perceive(one), 7, 0)
    state, _ = planner.describe(situations)
    with torch.no_grad():
        apart = look(policy.network, state, np.zeros(len(situations), dtype=np.int64))
        along = look_along(policy.network, state)
        critics = look_along(policy.network, state, domains=False)
    for name_, wanted, found in zip(apart._fields, apart, along, strict=True):
        assert (wanted is None and found is None) or torch.allclose(wanted, found, atol=1e-4), name_
    assert torch.equal(critics.shared, along.shared) and torch.allclose(critics.context, along.context, atol=1e-6)
