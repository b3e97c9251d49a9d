"""A model's name, a GPU and a batch give watts: the shipped law through the cost model against measured cells."""

import os
from dataclasses import replace

import numpy as np
import pytest

from attribution_sched.cluster.cost import CostModel
from attribution_sched.cluster.gpus import Precision, gpu
from attribution_sched.cluster.models import model
from attribution_sched.cluster.plan import Plan, Replica, Segment
from attribution_sched.cluster.wan import Wan
from attribution_sched.cluster.world import Cluster, Domain, Runtime

needs_data = pytest.mark.skipif("ATTRIBUTION_SCHED_DATA" not in os.environ, reason="needs the measured tables")


def alone(card, chain, batch, *, training=True, precision=Precision.FP32, cap_w=None, micro=None, devices=1, tp=1):
    """Costs of a model by itself on one device (or tensor-parallel over a few)."""
    wan = Wan.uniform(("here",), gbps=10.0, latency_s=0.01, usd_per_gb=0.0)
    domain = Domain("here", gpu(card), devices, power_cap_w=cap_w)
    cost = CostModel(Cluster((domain,), wan, Runtime(zero_stage=0)), [chain], [training])
    micro = micro or batch
    return cost.score(Plan((Replica((Segment(0, 0, len(chain), 1, tp, 1, precision),), micro, batch // micro),)))


def watts(costs):
    return float(costs.energy_j[0] / costs.step_s[0])


# Median over the batches that fill the card, Zeus traces: V100 at 250 W, A40, RTX 6000, P100.
MEASURED = [
    ("V100-PCIE", "bert-base@384", 32, 228), ("V100-PCIE", "resnet-50", 128, 222), ("A40-48", "bert-base@384", 32, 267),
    ("A40-48", "resnet-50", 128, 244), ("RTX6000-24", "bert-base@384", 24, 236), ("RTX6000-24", "resnet-50", 128, 232),
    ("P100-16", "bert-base@384", 16, 174), ("P100-16", "resnet-50", 64, 164),
    ("V100-PCIE", "shufflenet-v2-cifar", 1024, 191),
]  # fmt: skip


@pytest.mark.parametrize(("card", "name", "batch", "measured"), MEASURED)
def test_natural_draw_of_training_is_within_a_tenth(card, name, batch, measured):
    assert watts(alone(card, model(name), batch)) == pytest.approx(measured, rel=0.10)


def test_a_launch_bound_step_draws_little_more_than_idle():
    assert watts(alone("V100-PCIE", model("shufflenet-v2-cifar"), 8)) == pytest.approx(39, abs=8)


@needs_data
def test_zeus_cells_through_the_cost_model():
    from attribution_sched.cluster.power import draw_law
    from benchmarks.watts import TARGET, Predictor, zeus_cells

    cells = zeus_cells()
    predictor = Predictor(cells)
    assert {cell.card for cell in cells} == {"V100-PCIE", "A40-48", "RTX6000-24", "P100-16"}
    found, _ = predictor.score()
    off = np.abs(found / np.array([cell.watts for cell in cells]) - 1)
    for card in predictor.cards:
        assert np.median(off[[cell.card == card for cell in cells]]) <= TARGET
        assert draw_law(gpu(card)).measured


@pytest.mark.parametrize(("batch", "measured_w", "measured_ms"), [(32, 198, 33.8), (64, 202, 50.2), (128, 188, 79.3)])
def test_decoding_draws_half_of_what_reading_a_prompt_does(batch, measured_w, measured_ms):
    """Llama-3.1-8B on an A100-40, ML.ENERGY: 481 tokens written after a prompt, here of 256 tokens."""
    served = replace(model("llama-3-8b@737"), output_tokens=481)
    prompt = replace(model("llama-3-8b@256"), output_tokens=0)
    both = alone("A100-40", served, batch, training=False, precision=Precision.FP16)
    read = alone("A100-40", prompt, batch, training=False, precision=Precision.FP16)
    assert watts(both) == pytest.approx(measured_w, rel=0.12)
    assert 1e3 * both.step_s[0] / 481 == pytest.approx(measured_ms, rel=0.25)
    written_w = (both.energy_j[0] - read.energy_j[0]) / (both.step_s[0] - read.step_s[0])
    assert written_w < 0.6 * watts(read) and watts(read) > 330


def test_batching_makes_a_written_token_cheaper_and_fills_the_cache():
    served = model("llama-3-8b@1024")
    few, many = (alone("A100-40", served, b, training=False, precision=Precision.FP16) for b in (8, 64))
    assert many.energy_j[0] / 64 < 0.4 * few.energy_j[0] / 8
    cache = 2.0 * float(served.column("kv_elements").sum())
    assert cache == 1024 * 131072  # bytes per token of Llama-3 8B: layers x kv heads x head size x 2 x 2
    grown = many.segment("memory_bytes")[0, 0] - few.segment("memory_bytes")[0, 0]
    assert grown >= 56 * cache
    # Microbatches are written one after the other, so only one of them is in the cache.
    one = alone("A100-40", served, 64, micro=8, training=False, precision=Precision.FP16)
    assert one.segment("memory_bytes")[0, 0] == few.segment("memory_bytes")[0, 0]


def test_an_encoder_writes_nothing():
    assert model("bert-base").output_tokens == 0
    costs = alone("A100-40", model("bert-base"), 16, training=False, precision=Precision.FP16)
    assert watts(costs) > 300


def test_training_does_not_see_the_output_length():
    chain = model("gpt2-small")
    a, b = (alone("A100-40", replace(chain, output_tokens=n), 16) for n in (0, 512))
    assert a.step_s[0] == b.step_s[0] and a.energy_j[0] == b.energy_j[0]


def test_a_cap_on_a_job_saves_energy_for_little_time():
    """BERT on a V100 (Zeus): 175 W takes 12 % longer and 20 % fewer joules than 250 W; a cap of the TDP is no cap."""
    free, capped = (alone("V100-PCIE", model("bert-base@384"), 32, cap_w=cap) for cap in (250.0, 175.0))
    assert capped.step_s[0] / free.step_s[0] == pytest.approx(1.12, abs=0.06)
    assert capped.energy_j[0] / free.energy_j[0] == pytest.approx(0.80, abs=0.08)
    assert free.energy_j[0] == alone("V100-PCIE", model("bert-base@384"), 32).energy_j[0]
    small = model("shufflenet-v2-cifar")
    unbound, bound = (alone("V100-PCIE", small, 16, cap_w=cap) for cap in (None, 100.0))
    assert unbound.step_s[0] == bound.step_s[0]


def test_tensor_parallel_writing_pays_a_round_per_token():
    served = model("llama-3-8b@1024")
    one, two = (alone("A100-80", served, 8, training=False, precision=Precision.FP16, devices=2, tp=t) for t in (1, 2))
    rounds = (1 + 512) * (2 * 32 + 2)  # blocks reduce twice, the tables once
    assert two.intra_comm_s[0] > 2 * 2e-6 * rounds * 0.9
    assert two.step_s[0] < one.step_s[0]
