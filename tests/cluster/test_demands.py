"""Latent demands: architecture in the mean, the task's own in the spread, and what they drive."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attribution_sched.cluster.demands import (
    DEMAND_NAMES,
    DEMAND_UNITS,
    FACTOR_NAMES,
    SIGMA,
    Demands,
    bottleneck,
    draw_demands,
    nominal_demands,
)
from attribution_sched.cluster.gpus import Precision, gpu
from attribution_sched.cluster.interference import RESOURCES, slowdown
from attribution_sched.cluster.models import model
from attribution_sched.errors import TaskError
from research.interference_fit import resource_demands

NAMES = ("resnet-50", "efficientnet-b0", "vit-b-16", "bert-base", "gpt2-small", "llama-3-8b")


def draw(name, n=1, seed=0, **options):
    return draw_demands([model(name)] * n, np.random.default_rng(seed), **options)


@given(st.sampled_from(NAMES), st.integers(0, 2**31))
@settings(deadline=None, max_examples=30)
def test_demands_are_finite_non_negative_and_reproducible(name, seed):
    found = draw(name, 4, seed)
    assert found.values.shape == (4, len(DEMAND_NAMES)) == (4, len(DEMAND_UNITS))
    assert np.isfinite(found.values).all() and (found.values >= 0).all()
    assert (found.values == draw(name, 4, seed).values).all()
    assert (found.factors > 0).all() and found.factors.shape == (4, len(FACTOR_NAMES))


def test_operator_shares_are_those_of_the_architecture():
    conv, attention = DEMAND_NAMES.index("conv"), DEMAND_NAMES.index("attention")
    vision, _ = nominal_demands(model("resnet-50"))
    text, _ = nominal_demands(model("bert-base"))
    assert vision[conv] > 0 and vision[attention] == 0
    assert text[conv] == 0 and text[attention] > 0
    flops = model("bert-base")
    share = flops.column("attention_flops").sum() / flops.forward_flops
    assert text[attention] / text[4:].sum() == pytest.approx(share)


def test_idiosyncrasy_has_mean_one_and_the_stated_spread():
    ratio = draw("resnet-50", 40_000).ratio
    used = ratio.std(0) > 0
    assert ratio.mean(0) == pytest.approx(np.ones(7), abs=0.02)
    assert np.log(ratio[:, used]).std(0) == pytest.approx(SIGMA[used], rel=0.03)
    assert np.corrcoef(np.log(ratio[:, 0]), np.log(ratio[:, 1]))[0, 1] == pytest.approx(0.5, abs=0.03)


def test_two_tasks_of_one_type_differ_and_zero_spread_is_nominal():
    found = draw("bert-base", 2)
    assert not np.allclose(found.values[0], found.values[1])
    plain = draw("bert-base", 2, spread=0.0)
    assert (plain.values == plain.nominal).all() and plain.factors == pytest.approx(np.ones((2, 3)))


def with_ratio(name, **ratio):
    nominal, seconds = nominal_demands(model(name))
    factor = np.array([ratio.get(d, 1.0) for d in DEMAND_NAMES])
    return Demands((nominal * factor)[None], nominal[None], seconds[None])


def test_factors_answer_to_their_own_demand():
    plain = with_ratio("bert-base").factors[0]
    assert with_ratio("bert-base", memory_bandwidth=2.0).factors[0] == pytest.approx(plain * [1, 2, 1])
    assert with_ratio("bert-base", fc=2.0, attention=2.0).factors[0] == pytest.approx(plain * [2, 1, 1])
    assert with_ratio("bert-base", cpu_cycles=2.0, l3_misses=2.0).factors[0] == pytest.approx(plain * [1, 1, 2])


def test_interference_follows_the_latent_demand():
    base = resource_demands(model("resnet-50"), gpu("V100-32"), Precision.FP32, 16)
    plain, heavy = with_ratio("resnet-50"), with_ratio("resnet-50", memory_bandwidth=3.0)
    assert plain.resources(base)[0] == pytest.approx(base)
    memory = RESOURCES.index("memory")
    assert heavy.resources(base)[0, memory] > base[memory]
    victim = np.eye(len(RESOURCES))[memory] * 0.5
    assert slowdown(victim, heavy.resources(base)[0]) > slowdown(victim, base)
    assert (heavy.resources(base) <= 1).all()


def test_bottleneck_names_the_longest_resource():
    assert bottleneck(with_ratio("bert-base")) == ["fc"]
    assert bottleneck(with_ratio("bert-base", memory_bandwidth=20.0)) == ["memory_bandwidth"]
    assert bottleneck(with_ratio("resnet-50", cpu_cycles=20.0)) == ["cpu_cycles"]
    assert len(set(bottleneck(draw("resnet-50", 300)))) >= 2


def test_mixed_batches_match_single_draws_in_shape_and_take_selects():
    found = draw_demands([model(n) for n in NAMES], np.random.default_rng(1))
    assert len(found) == len(NAMES)
    assert (found.take(2).values[0] == found.values[2]).all()


@pytest.mark.parametrize("bad", [-1.0, float("nan")])
def test_bad_input_is_refused(bad):
    with pytest.raises(TaskError, match="spread"):
        draw("resnet-50", spread=bad)
    with pytest.raises(TaskError, match="at least one task"):
        draw_demands([], np.random.default_rng(0))


def test_a_served_language_model_is_read_as_it_writes():
    """Every token it writes reads all weights and launches every kernel; a forward pass does so once."""
    one = model("gpt2-small")
    trained, trained_s = nominal_demands(one)
    served, served_s = nominal_demands(one, training=False)
    at = {name: i for i, name in enumerate(DEMAND_NAMES)}
    # Projections are paid once a token whoever reads or writes it, a third of training's.
    assert served[at["fc"]] < 0.75 * trained[at["fc"]]
    assert served[at["cpu_cycles"]] > 10.0 * trained[at["cpu_cycles"]]
    assert served_s.sum() > 3.0 * trained_s.sum(), "token by token takes longer than three passes at once"
    read = 4.0 * one.params * (1.0 + one.output_tokens) / 32.0
    assert served[at["memory_bandwidth"]] > read


def test_a_served_vision_model_takes_one_pass_of_three():
    trained, _ = nominal_demands(model("resnet-50"))
    served, _ = nominal_demands(model("resnet-50"), training=False)
    assert served[2] == pytest.approx(trained[2] / 3.0)
    assert served[3] == trained[3]


def test_tasks_of_both_modes_are_drawn_together():
    both = draw_demands([model("gpt2-small")] * 2, np.random.default_rng(0), 0.0, training=[True, False])
    assert both.nominal[0] == pytest.approx(nominal_demands(model("gpt2-small"))[0])
    assert both.nominal[1] == pytest.approx(nominal_demands(model("gpt2-small"), training=False)[0])
