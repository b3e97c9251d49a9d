"""The topology encoder: its laws, its two implementations, its refusals."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attribution_sched.errors import ModelFitError, SettingsError
from attribution_sched.scheduler.hi_ppo import topology_encoder
from attribution_sched.scheduler.hi_ppo.topology_encoder import TopologyEncoder

F, D = 3, 4
CONVS = ("edge-sage", "gine", "gatv2")
law = settings(deadline=None, max_examples=30)
sizes = st.integers(1, 9)
seeds = st.integers(0, 2**31 - 1)


def make(conv="edge-sage", trained=True, **keywords):
    """An encoder whose biases and norms have left their start, as after training."""
    g = torch.Generator().manual_seed(7)
    encoder = TopologyEncoder(F, D, conv=conv, **{"width": 16, "generator": g, **keywords}).double()
    if trained:
        with torch.no_grad():
            for parameter in encoder.parameters():
                parameter += 0.2 * torch.randn(parameter.shape, generator=g, dtype=torch.float64)
    return encoder


def graphs(seed, nodes, batch=3, present=0.7):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(batch, nodes, F, generator=g, dtype=torch.float64)
    e = torch.randn(batch, nodes, nodes, D, generator=g, dtype=torch.float64)
    return x, e, torch.rand(batch, nodes, generator=g) < present


def close(a, b, tolerance=1e-9):
    return torch.allclose(a, b, rtol=0.0, atol=tolerance)


@pytest.mark.parametrize("conv", CONVS)
@law
@given(seed=seeds, nodes=sizes)
def test_embeddings_follow_their_domains_and_the_pooled_vector_stays(conv, seed, nodes):
    encoder = make(conv)
    x, e, mask = graphs(seed, nodes)
    order = torch.randperm(nodes, generator=torch.Generator().manual_seed(seed))
    embeddings, pooled = encoder(x, e, mask)
    moved, pooled_again = encoder(x[:, order], e[:, order][:, :, order], mask[:, order])
    assert close(moved, embeddings[:, order])
    assert close(pooled_again, pooled)


@law
@given(seed=seeds)
def test_reordering_a_large_graph_with_few_neighbours(seed):
    encoder = make(neighbours=5)
    x, e, mask = graphs(seed, 20, batch=2)
    order = torch.randperm(20, generator=torch.Generator().manual_seed(seed))
    embeddings, pooled = encoder(x, e, mask)
    moved, pooled_again = encoder(x[:, order], e[:, order][:, :, order], mask[:, order])
    assert close(moved, embeddings[:, order])
    assert close(pooled_again, pooled)


@pytest.mark.parametrize("conv", CONVS)
@pytest.mark.parametrize("pooling", ["mean+max", "mean", "max"])
@law
@given(seed=seeds, nodes=sizes, extra=st.integers(1, 4))
def test_padding_changes_nothing_whatever_it_holds(conv, pooling, seed, nodes, extra):
    encoder = make(conv, pooling=pooling)
    x, e, mask = graphs(seed, nodes)
    embeddings, pooled = encoder(x, e, mask)
    wide_x = torch.full((3, nodes + extra, F), torch.nan, dtype=torch.float64)
    wide_e = torch.full((3, nodes + extra, nodes + extra, D), torch.inf, dtype=torch.float64)
    wide_mask = torch.zeros(3, nodes + extra, dtype=torch.bool)
    wide_x[:, :nodes], wide_e[:, :nodes, :nodes], wide_mask[:, :nodes] = x, e, mask
    padded, pooled_again = encoder(wide_x, wide_e, wide_mask)
    assert close(padded[:, :nodes], embeddings)
    assert not padded[:, nodes:].any()
    assert close(pooled_again, pooled)


@pytest.mark.parametrize("elements", [topology_encoder.BUFFER_ELEMENTS, 500])
@law
@given(seed=seeds, nodes=sizes, neighbours=st.sampled_from([None, 1, 3, 16]), present=st.floats(0.0, 1.0))
def test_dense_and_message_passing_are_the_same_function(elements, seed, nodes, neighbours, present):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(topology_encoder, "BUFFER_ELEMENTS", elements)
        compare_with_message_passing(seed, nodes, neighbours, present)


def compare_with_message_passing(seed, nodes, neighbours, present):
    dense, reference = make(neighbours=neighbours), make(neighbours=neighbours, sparse=True)
    reference.load_state_dict(dense.state_dict())
    x, e, mask = graphs(seed, nodes, present=present)
    results = []
    for encoder in (dense, reference):
        leaves = [x.clone().requires_grad_(), e.clone().requires_grad_()]
        embeddings, pooled = encoder(*leaves, mask)
        loss = (embeddings.sin().sum() + pooled.cos().sum()) if mask.any() else embeddings.sum()
        loss.backward()
        weights = [p.grad if p.grad is not None else torch.zeros_like(p) for p in encoder.parameters()]
        results.append([embeddings, pooled, *(leaf.grad for leaf in leaves), *weights])
    for one, other in zip(*results, strict=True):
        assert close(one, other, 1e-6)


def test_dense_and_message_passing_agree_for_64_domains():
    dense, reference = make(), make(sparse=True)
    x, e, mask = graphs(3, 64, batch=11)
    for one, other in zip(dense(x, e, mask), reference(x, e, mask), strict=True):
        assert close(one, other, 1e-6)


@pytest.mark.parametrize("neighbours", [None, 2])
def test_the_hand_written_backward_pass_is_the_derivative(monkeypatch, neighbours):
    monkeypatch.setattr(topology_encoder, "BUFFER_ELEMENTS", 600)
    layer = topology_encoder.EdgeSage(F, 6, D).double()
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, generator=torch.Generator().manual_seed(5))
    x, e, mask = graphs(1, 5, batch=7)
    present = (mask.unsqueeze(1) & mask.unsqueeze(2)) & ~torch.eye(5, dtype=torch.bool)
    names, start = zip(*layer.named_parameters(), strict=True)

    def run(x, e, *weights):
        links = topology_encoder.Links(e, present, neighbours)
        return torch.func.functional_call(layer, dict(zip(names, weights, strict=True)), (x, links))

    leaves = [leaf.detach().clone().requires_grad_() for leaf in (x, e, *start)]
    assert torch.autograd.gradcheck(run, leaves)


@pytest.mark.parametrize("neighbours", [None, 3])
def test_the_size_of_the_buffer_does_not_matter(monkeypatch, neighbours):
    encoder = make(neighbours=neighbours)
    x, e, mask = graphs(2, 6, batch=11)
    results = []
    for elements in (1, 6 * 6 * 16 * 4, 10**9):
        monkeypatch.setattr(topology_encoder, "BUFFER_ELEMENTS", elements)
        leaves = [x.clone().requires_grad_(), e.clone().requires_grad_()]
        embeddings, pooled = encoder(*leaves, mask)
        weights = list(encoder.parameters())
        loss = embeddings.sin().sum() + pooled.cos().sum()
        results.append([embeddings, pooled, *torch.autograd.grad(loss, [*leaves, *weights])])
    for other in results[1:]:
        assert all(close(a, b) for a, b in zip(results[0], other, strict=True))


def test_one_round_by_hand():
    encoder = make(rounds=1, pooling="mean")
    x, e, mask = graphs(4, 4, batch=1, present=1.1)
    layer = encoder.layers[0]
    sender, own = layer.node.weight.chunk(2)
    for i in range(4):
        messages = [
            torch.relu(sender @ x[0, j] + layer.edge.weight @ e[0, i, j] + layer.edge.bias) for j in range(4) if j != i
        ]
        raw = own @ x[0, i] + torch.stack(messages).mean(dim=0)
        normal = (raw - raw.mean()) / torch.sqrt(raw.var(unbiased=False) + 1e-5)
        wanted = torch.relu(normal * encoder.norms[0].weight + encoder.norms[0].bias)
        assert close(encoder(x, e, mask)[0][0, i], wanted)


@pytest.mark.parametrize("conv", CONVS)
def test_one_link_changes_the_domain_that_listens_to_it(conv):
    encoder = make(conv, rounds=1)
    x, e, mask = graphs(5, 5, present=1.1)
    before, pooled = encoder(x, e, mask)
    e[1, 2, 4, 3] += 0.5
    after, pooled_after = encoder(x, e, mask)
    changed = (before != after).any(dim=-1)
    assert changed.nonzero().tolist() == [[1, 2]]
    assert (pooled != pooled_after).any(dim=-1).tolist() == [False, True, False]


@pytest.mark.parametrize("conv", CONVS)
def test_every_edge_feature_has_a_gradient_and_the_diagonal_none(conv):
    encoder = make(conv)
    x, e, mask = graphs(6, 5, batch=1, present=1.1)
    e.requires_grad_()
    encoder(x, e, mask)[1].square().sum().backward()
    loops = torch.eye(5, dtype=torch.bool)
    assert e.grad[0][~loops].ne(0).all(dim=0).all()
    assert not e.grad[0][loops].any()


def test_only_the_widest_links_are_heard():
    encoder = make(rounds=1, neighbours=3)
    x, e, mask = graphs(8, 20, batch=1, present=1.1)
    before, _ = encoder(x, e, mask)
    others = e[0, 4, :, 0].clone()
    others[4] = -torch.inf
    ranked = others.argsort(descending=True)
    for place, sender in enumerate(ranked[:6].tolist()):
        changed = e.clone()
        changed[0, 4, sender, 1] += 1.0
        assert (encoder(x, changed, mask)[0] != before).any() == (place < 3)


@pytest.mark.parametrize("conv", CONVS)
@pytest.mark.parametrize("pooling", ["mean+max", "mean", "max"])
def test_empty_and_lonely_graphs_are_finite(conv, pooling):
    encoder = make(conv, pooling=pooling)
    x, e, mask = graphs(9, 4)
    mask[:] = torch.tensor([[False] * 4, [False, True, False, False], [True] * 4])
    x.requires_grad_()
    embeddings, pooled = encoder(x, e, mask)
    (embeddings.sum() + pooled.sum()).backward()
    assert not pooled[0].any() and pooled[1:].any(dim=1).all()
    assert embeddings.isfinite().all() and pooled.isfinite().all() and x.grad.isfinite().all()


@pytest.mark.parametrize("conv", CONVS)
def test_same_generator_same_start_and_the_global_one_is_left_alone(conv):
    state = torch.get_rng_state()
    starts = [TopologyEncoder(F, D, conv=conv) for _ in range(2)]
    starts += [TopologyEncoder(F, D, conv=conv, generator=torch.Generator().manual_seed(8)) for _ in range(2)]
    assert torch.equal(torch.get_rng_state(), state)
    for one, other in (starts[:2], starts[2:]):
        assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))
    assert not torch.equal(starts[0].pool.weight, starts[2].pool.weight)


@torch.no_grad()
def test_the_start_keeps_the_size_of_a_signal():
    encoder = TopologyEncoder(5, 4)
    g = torch.Generator().manual_seed(1)
    x, e = torch.randn(64, 8, 5, generator=g), torch.zeros(64, 8, 8, 4)
    for layer, signal in zip(encoder.layers, (x, torch.randn(64, 8, 128, generator=g)), strict=True):
        assert 0.8 < float(layer.project(signal).square().mean().sqrt()) < 1.25
    embeddings, pooled = encoder(x, e, torch.ones(64, 8, dtype=torch.bool))
    assert 0.3 < float(embeddings.std()) < 3.0 and 0.1 < float(pooled.std()) < 3.0


def test_the_reference_adds_no_weights_and_survives_loading():
    encoder = make(sparse=True)
    names = set(encoder.state_dict())
    x, e, mask = graphs(10, 5)
    encoder(x, e, mask)
    assert set(encoder.state_dict()) == names == set(make().state_dict())
    other = make(generator=torch.Generator().manual_seed(11))
    encoder.load_state_dict(other.state_dict())
    assert close(encoder(x, e, mask)[0], other(x, e, mask)[0])


def test_a_dense_encoder_does_not_load_torch_geometric():
    code = (
        "import sys, torch; from attribution_sched.scheduler.hi_ppo.topology_encoder import TopologyEncoder as T;"
        "T(3, 4)(torch.zeros(1, 5, 3), torch.zeros(1, 5, 5, 4), torch.ones(1, 5).bool())[1].sum().backward();"
        "sys.exit('torch_geometric' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("nodes", "edges", "mask"),
    [
        ((2, 5, F + 1), (2, 5, 5, D), (2, 5)),
        ((2, 5, F), (2, 5, 5, D - 1), (2, 5)),
        ((2, 5, F), (2, 5, 4, D), (2, 5)),
        ((2, 5, F), (1, 5, 5, D), (2, 5)),
        ((2, 5, F), (2, 5, 5, D), (2, 4)),
        ((5, F), (5, 5, D), (5,)),
        ((2, 0, F), (2, 0, 0, D), (2, 0)),
    ],
)
def test_other_shapes_are_refused(nodes, edges, mask):
    with pytest.raises(ModelFitError, match=r"shapes of nodes, edges, mask = .*must be \(B, K, 3\)"):
        make()(torch.zeros(nodes).double(), torch.zeros(edges).double(), torch.ones(mask, dtype=torch.bool))


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_what_is_not_finite_is_named(value):
    x, e, mask = graphs(12, 5, present=1.1)
    x[1, 2, 0] = value
    with pytest.raises(ModelFitError, match=r"nodes\[1, 2, 0\] = (nan|inf): must be finite"):
        make()(x, e, mask)
    x, e, mask = graphs(12, 5, present=1.1)
    e[2, 0, 3, 1] = value
    e.requires_grad_()
    with pytest.raises(ModelFitError, match=r"edges\[2, 0, 3, 1\] = (nan|inf): must be finite"):
        make()(x, e, mask)


def test_another_type_is_refused():
    x, e, mask = graphs(13, 4)
    with pytest.raises(ModelFitError, match=r"types of nodes, edges = .*must be torch.float64"):
        make()(x.float(), e, mask)


@pytest.mark.parametrize("conv", CONVS)
def test_an_empty_batch_gives_an_empty_result(conv):
    embeddings, pooled = make(conv)(*graphs(14, 4, batch=0))
    assert embeddings.shape == (0, 4, 16) and pooled.shape == (0, 16)


def test_a_mask_of_numbers_is_refused():
    x, e, mask = graphs(13, 4)
    with pytest.raises(ModelFitError, match="must be bool"):
        make()(x, e, mask.double())


@pytest.mark.parametrize(
    ("settings_", "message"),
    [
        ({"conv": "edge_sage"}, "edge-sage"),
        ({"pooling": "sum"}, "encoder.pooling = 'sum'"),
        ({"width": 0}, "encoder.width = 0"),
        ({"rounds": 0}, "encoder.rounds = 0"),
        ({"neighbours": 0}, "encoder.neighbours = 0"),
        ({"conv": "gatv2", "width": 18}, "Use 20"),
    ],
)
def test_wrong_settings_are_refused(settings_, message):
    with pytest.raises(SettingsError, match=message):
        make(**settings_)
