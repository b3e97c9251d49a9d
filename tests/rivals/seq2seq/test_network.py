"""The network: what it may depend on, and its file."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as some

from attribution_sched import storage
from attribution_sched.errors import CheckpointError
from attribution_sched.rivals.seq2seq.features import context, domain_choices, empty, features_of
from attribution_sched.rivals.seq2seq.network import KIND, SHIPPED, describe, load, log_probabilities, save

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


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "net.safetensors"
    save(small_network(2), path, {"seed": 2})
    return path


def test_a_network_survives_the_disk(saved):
    again = load(saved)
    for name, weight in small_network(2).state_dict().items():
        assert torch.equal(weight, again.state_dict()[name]), name
    assert describe(saved)["made"] == {"seed": 2}
    assert [p.name for p in saved.parent.iterdir()] == ["net.safetensors"]


def test_equal_networks_are_equal_files(saved, tmp_path):
    again = tmp_path / "again.safetensors"
    save(load(saved), again, {"seed": 2})
    assert again.read_bytes() == saved.read_bytes()


@pytest.mark.parametrize(
    ("size", "said"),
    [
        ({"width": 16}, "must give rounds, width"),
        ({"width": 32, "rounds": 2}, "a network of this size has"),
        ({"width": "16", "rounds": 2}, "size.width = '16'"),
        ({"width": 10**9, "rounds": 2}, "from 1 to 1024"),
        (None, "must give rounds, width"),
    ],
)
def test_a_size_that_does_not_fit_is_refused(saved, size, said):
    header, arrays = storage.read(saved, KIND)
    storage.write(saved, KIND, header | {"size": size}, arrays)
    with pytest.raises(CheckpointError, match=said):
        load(saved)


def test_other_weights_are_refused(saved):
    header, arrays = storage.read(saved, KIND)
    name = next(iter(arrays))
    for other in ({k: v for k, v in arrays.items() if k != name}, arrays | {name: arrays[name].astype("f8")}):
        storage.write(saved, KIND, header, other)
        with pytest.raises(CheckpointError, match="a network of this size has"):
            load(saved)


def test_tampered_truncated_and_missing_files_are_refused(saved):
    whole = saved.read_bytes()
    for wrong in (whole[:-1] + bytes([whole[-1] ^ 1]), whole[:100], b""):
        saved.write_bytes(wrong)
        with pytest.raises(CheckpointError, match=r"checksum does not match|truncated"):
            load(saved)
    saved.unlink()
    with pytest.raises(CheckpointError, match="does not exist"):
        load(saved)


def test_the_shipped_weights_are_small_and_load():
    assert SHIPPED.stat().st_size < 1_000_000
    assert describe()["made"]["examples"] > 0
    assert sum(p.numel() for p in load().parameters()) > 10_000
