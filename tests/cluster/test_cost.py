"""The cost model against closed forms, its own laws, published runs and bad input.

Ring all-reduce: the textbook volume, its limits and its time.
"""

from __future__ import annotations

import math
from dataclasses import fields, replace
from itertools import pairwise

import megatron_scaling
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from measured_steps import DOUBTFUL, compare_all
from pipeline_agreement import cost_model as llama_cost_model
from pipeline_agreement import random_plans

from attribution_sched.cluster.compute import efficiencies
from attribution_sched.cluster.cost import CostModel, PlanCosts, ring_all_reduce_s, ring_sent_bytes, split_stages
from attribution_sched.cluster.gpus import Precision
from attribution_sched.cluster.pipeline import Schedule
from attribution_sched.cluster.plan import Plan, PlanBatch, Replica, Segment
from attribution_sched.cluster.power import cap_reached, natural_power_w, precision_factor
from attribution_sched.cluster.throughput import ANCHOR, efficiency, precision_table
from attribution_sched.cluster.world import Cluster
from attribution_sched.errors import NetworkError, PlanError
from research.pipeline_events import simulate_pipeline
from tests.cluster.plan_cases import CARDS, cluster, cost_model, network, plans

LAW = settings(deadline=None, max_examples=50)
COST = cost_model()
GPT = COST.models[0]
LAYERS = len(GPT)
BLOCKING = cost_model(blocking_sends=True, recompute=True, zero_stage=3, flash_attention=False)
INFERENCE = cost_model(training=False)
MODELS = {"training": COST, "blocking": BLOCKING, "inference": INFERENCE}


def whole(domain=0, **layout):
    return Segment(domain, 0, LAYERS, **layout)


def single(segment, microbatch=8, microbatches=4):
    return Plan((Replica((segment,), microbatch, microbatches),))


def closed_form(dp, tp, b, m, gpu_index=0):
    """Seconds, joules and bytes of one training step of one stage in fp16, straight from the layer arithmetic."""
    domain, achieved = COST.cluster.domains[gpu_index], efficiencies()
    card = domain.gpu
    hbm = achieved.memory * card.bandwidth_bytes_per_s
    sharded = np.array([layer.tp_sharded for layer in GPT.layers])
    part, kept = np.where(sharded, 1 / tp, 1.0), np.where(sharded, (10 + 24 / tp) / 34, 1.0)
    flops = np.array([layer.forward_flops for layer in GPT.layers])
    compute = (part * flops).sum() / (achieved.compute * card.peak_flops[Precision.FP16])
    memory = achieved.moved * (kept * GPT.column("moved_elements")).sum() * 2 / hbm
    params = (part * GPT.column("params")).sum()
    weights = 2 * params / hbm
    blocks = sum(layer.kind == "block" for layer in GPT.layers)
    per_block = efficiency("gpt", card, ANCHOR, training=True).floor_per_block_s
    floor = per_block * blocks * precision_table("gpt", card, True).floor_factor[Precision.FP16.index]
    work = b * (compute + memory) + weights
    forward, backward = math.hypot(floor / 3, work), math.hypot(2 * floor / 3, 2 * work)
    link = achieved.nvlink * card.nvlink_bytes_per_s
    volume = b * 2 * GPT.column("tp_reduced_elements").sum()
    rounds = 2 * (tp - 1) * (2 * blocks + 2)
    reduce_s = 2 * (tp - 1) / tp * volume / link + rounds * achieved.collective_latency_s
    states = 2 + 2 + 12 / dp
    update = 2 * params * states / hbm
    gradients = 2 * (dp - 1) / dp * 2 * params / link + 2 * (dp - 1) * domain.fabric_latency_s
    busy = m * (forward + backward)
    step = busy + 2 * m * reduce_s + update + gradients
    factor = precision_factor(Precision.FP16)
    power = natural_power_w(card, work / forward, b * compute / work, factor)
    energy = dp * tp * (card.idle_w * step + (power - card.idle_w) * busy)
    head = np.array([layer.kind == "head" for layer in GPT.layers])
    held = (np.where(head, 1 / tp, kept) * GPT.column("activation_elements")).sum()
    memory_bytes = params * states + 2 * b * held + COST.cluster.runtime.reserved_bytes
    return step, busy + update, energy, memory_bytes, 2 * m * reduce_s + gradients


@pytest.mark.parametrize(("dp", "tp", "b", "m"), [(1, 1, 2, 4), (1, 4, 8, 16), (4, 1, 1, 3), (2, 4, 4, 8)])
@pytest.mark.parametrize("domain", [0, 1, 3])
def test_a_single_stage_equals_the_closed_form(dp, tp, b, m, domain):
    step, compute, energy, memory_bytes, comm = closed_form(dp, tp, b, m, domain)
    cost = COST.score(single(whole(domain, dp=dp, tp=tp), b * dp, m))
    assert cost.step_s[0] == pytest.approx(step, rel=1e-9)
    assert cost.compute_s[0] == pytest.approx(compute, rel=1e-9)
    assert cost.comm_s[0] == pytest.approx(comm, rel=1e-6, abs=1e-12)
    assert cost.intra_comm_s[0] == pytest.approx(comm, rel=1e-9, abs=1e-15)
    assert cost.bubble_s[0] == pytest.approx(0.0, abs=1e-12)
    assert cost.energy_j[0] == pytest.approx(energy, rel=1e-9)
    assert cost.segment("memory_bytes")[0, 0] == pytest.approx(memory_bytes, rel=1e-9)
    assert cost.bill_usd[0] == 0


@pytest.mark.parametrize("schedule", list(Schedule))
def test_a_cut_pipeline_is_the_event_simulation_of_its_parts(schedule):
    """Two stages in two domains: compute from one-segment plans, links by hand, waiting by SimPy."""
    cut, micro, m = 9, 4, 7
    plan = Plan((Replica((Segment(3, 0, cut), Segment(1, cut, LAYERS)), micro, m),), schedule)
    cost = COST.score(plan)
    wan = network()
    volume = micro * 2 * GPT.layers[cut - 1].output_elements
    there = wan.latency_s[3, 1] + 8 * volume / (wan.bandwidth_gbps[3, 1] * 1e9)
    back = wan.latency_s[1, 3] + 8 * volume / (wan.bandwidth_gbps[1, 3] * 1e9)
    # Forward and backward of each stage from the tables; every floor law has p = 2 in training.
    passes, updates = [], []
    for domain, a, z in ((3, 0, cut), (1, cut, LAYERS)):
        t = COST.tables.times_s[0, COST.domains.rows.gpu[domain], Precision.FP16.index, 0]
        d = t[:, z] - t[:, a]
        passes.append([math.hypot(d[3], micro * (d[0] + d[1]) + d[2]), math.hypot(d[7], micro * (d[4] + d[5]) + d[6])])
        params = GPT.column("params")[a:z].sum()
        updates.append(
            2 * 16 * params / (efficiencies().memory * COST.cluster.domains[domain].gpu.bandwidth_bytes_per_s)
        )
    forward, backward = zip(*passes, strict=True)
    finish = simulate_pipeline(schedule, m, forward, backward, [there], [back])
    assert cost.step_s[0] == pytest.approx((finish + updates).max(), rel=1e-9)
    expected = np.zeros((4, 4))
    expected[3, 1] = expected[1, 3] = m * volume
    np.testing.assert_allclose(cost.traffic_bytes[0], expected)


@pytest.mark.parametrize("mode", list(MODELS))
@LAW
@given(data=st.data())
def test_the_three_terms_add_up_and_none_is_negative(mode, data):
    plan = data.draw(plans(LAYERS))
    cost = MODELS[mode].score(plan)
    terms = np.array([cost.compute_s, cost.comm_s, cost.bubble_s])
    assert (terms >= 0).all()
    assert terms.sum() == pytest.approx(cost.step_s[0], rel=1e-12)
    assert 0 < cost.utilisation[0] <= 1 + 1e-12
    assert np.isfinite(cost.segments).all()
    for field in fields(PlanCosts):
        assert np.isfinite(getattr(cost, field.name)).all()


@LAW
@given(plans(LAYERS))
def test_the_bill_is_traffic_times_price(plan):
    cost = COST.score(plan)
    price = network().price_usd_per_gb
    assert cost.bill_usd[0] == pytest.approx((cost.traffic_bytes[0] * price).sum() / 1e9)
    assert (np.diag(cost.traffic_bytes[0]) == 0).all()


@LAW
@given(plans(LAYERS))
def test_traffic_is_cuts_both_ways_and_rings(plan):
    expected, replicas = np.zeros((4, 4)), len(plan.replicas)
    for replica in plan.replicas:
        for left, right in zip(replica.segments[:-1], replica.segments[1:], strict=True):
            width = 4 if left.precision is Precision.FP32 else 2
            volume = replica.samples * width * GPT.layers[left.stop - 1].output_elements
            expected[left.domain, right.domain] += volume
            expected[right.domain, left.domain] += volume
    for index, layer in enumerate(GPT.layers):
        owners = [next(s for s in r.segments if s.first <= index < s.stop) for r in plan.replicas]
        width = 4 if any(s.precision is Precision.FP32 for s in owners) else 2
        sent = 2 * (replicas - 1) / replicas * width * layer.params
        for r, owner in enumerate(owners):
            if replicas > 1:
                expected[owner.domain, owners[(r + 1) % replicas].domain] += sent
    np.testing.assert_allclose(COST.score(plan).traffic_bytes[0], expected, rtol=1e-9, atol=1e-3)


def ring_s(volume, hops, replicas):
    """A ring over the WAN goes at the pace of its slowest hop."""
    wan, sent = network(), 2 * (replicas - 1) / replicas * volume
    return max(8 * sent / (wan.bandwidth_gbps[h] * 1e9) + 2 * (replicas - 1) * wan.latency_s[h] for h in hops)


def test_replicas_wait_for_the_slowest_and_then_average_gradients():
    copies = [Replica((whole(d),), 4, 2 + d) for d in (0, 1, 3)]
    alone = [COST.score(Plan((copy,))).step_s[0] for copy in copies]
    cost = COST.score(Plan(tuple(copies)))
    ring = ring_s(2 * GPT.params, [(0, 1), (1, 3), (3, 0)], 3)
    assert cost.step_s[0] == pytest.approx(max(alone) + ring, rel=1e-9)
    assert cost.comm_s[0] == pytest.approx(ring, rel=1e-6)


def test_a_whole_copy_beside_a_cut_one_averages_each_part_with_its_owner():
    cut, params = 9, GPT.column("params")
    pipeline = Replica((Segment(0, 0, cut), Segment(1, cut, LAYERS)), 4, 3)
    copy = Replica((whole(3),), 4, 3)
    before = max(COST.score(Plan((r,))).step_s[0] for r in (pipeline, copy))
    rings = [ring_s(2 * part.sum(), [(d, 3), (3, d)], 2) for d, part in ((0, params[:cut]), (1, params[cut:]))]
    # Domain 3 takes part in both rings, one after the other.
    assert COST.score(Plan((pipeline, copy))).step_s[0] == pytest.approx(before + sum(rings), rel=1e-9)


def test_sharded_weights_are_gathered_for_every_pass():
    def comm(stage, microbatches):
        cost = cost_model(zero_stage=stage).score(single(whole(dp=4), 4, microbatches))
        return cost.intra_comm_s[0]

    assert comm(2, 8) == comm(1, 8) == comm(1, 1) > 0
    assert [comm(3, m) / comm(1, m) for m in (1, 8)] == pytest.approx([1.5, 8.5])


@LAW
@given(plans(LAYERS), st.integers(0, 3), st.integers(0, 3), st.floats(1.0, 100.0))
def test_more_bandwidth_is_never_slower(plan, i, j, factor):
    faster = network().bandwidth_gbps.copy()
    faster[i, j] *= factor
    before, after = COST.score(plan), COST.score(plan, bandwidth_gbps=faster)
    assert after.step_s[0] <= before.step_s[0]
    assert after.comm_s[0] <= before.comm_s[0]
    assert after.bill_usd[0] == before.bill_usd[0]


@LAW
@given(plans(LAYERS), st.integers(0, 3), st.integers(0, 3), st.floats(0.0, 1.0))
def test_more_latency_is_never_faster(plan, i, j, more):
    slower = network().latency_s.copy()
    slower[i, j] += more
    assert COST.score(plan, latency_s=slower).step_s[0] >= COST.score(plan).step_s[0]


@LAW
@given(plans(LAYERS), st.data())
def test_a_slower_co_runner_is_never_faster(plan, data):
    factors = np.ones((1, len(plan.segments)))
    factors[0, data.draw(st.integers(0, len(plan.segments) - 1))] = data.draw(st.floats(1.0, 5.0))
    before, after = COST.score(plan), COST.score(plan, slowdown=factors)
    assert after.step_s[0] >= before.step_s[0]
    assert after.compute_s[0] >= before.compute_s[0]


@LAW
@given(plans(LAYERS), st.sampled_from([0, 1, 2]), st.floats(1.0, 4.0))
def test_heavier_demands_are_never_faster(plan, which, factor):
    factors = [1.0, 1.0, 1.0]
    factors[which] = factor
    assert COST.score(plan, factors=tuple(factors)).step_s[0] >= COST.score(plan).step_s[0]


@LAW
@given(plans(LAYERS))
def test_energy_is_idle_plus_something(plan):
    cost, idle, most = COST.score(plan), 0.0, 0.0
    for segment in plan.segments:
        card = COST.cluster.domains[segment.domain].gpu
        idle += segment.device_count * card.idle_w * cost.step_s[0]
        most += segment.device_count * card.tdp_w * cost.step_s[0]
    assert idle < cost.energy_j[0] <= most * (1 + 1e-12)


def test_energy_adds_up_over_the_stages_of_a_segment():
    """Uneven stages inside a domain: joules follow each stage's own power and busy time."""
    micro, m, pp = 1, 5, 5
    cost, card, joules = COST.score(single(whole(pp=pp), micro, m)), COST.cluster.domains[0].gpu, 0.0
    times = COST.tables.times_s[0, 0, Precision.FP16.index, 0]
    first = np.zeros(pp + 1, dtype=np.int64)
    split_stages(times[0], 0, LAYERS, pp, 0, first)
    busy = []
    for a, z in pairwise(first):
        d = times[:, z] - times[:, a]
        forward = math.hypot(d[3], micro * (d[0] + d[1]) + d[2])
        busy.append(m * (forward + math.hypot(d[7], micro * (d[4] + d[5]) + d[6])))
        work = micro * (d[0] + d[1]) + d[2]
        power = natural_power_w(card, work / forward, micro * d[0] / work, precision_factor(Precision.FP16))
        joules += card.idle_w * cost.step_s[0] + (power - card.idle_w) * busy[-1]
    assert max(busy) > 1.05 * min(busy)
    assert cost.energy_j[0] == pytest.approx(joules, rel=1e-9)
    assert cost.segment("busy_s")[0, 0] == pytest.approx(np.mean(busy))


@pytest.mark.parametrize("parts", [1, 2, 3, 5, LAYERS])
def test_stages_inside_a_domain_are_balanced_and_never_empty(parts):
    prefix = COST.tables.times_s[0, 0, Precision.FP16.index, 0, 0]
    for start, stop in ((0, LAYERS), (LAYERS - parts, LAYERS), (0, parts)):
        first = np.zeros(parts + 1, dtype=np.int64)
        split_stages(prefix, start, stop, parts, 0, first)
        assert first[0] == start
        assert first[-1] == stop
        assert (np.diff(first) >= 1).all()
        work, most = np.diff(prefix[first]), np.diff(prefix[start : stop + 1]).max()
        assert work.max() <= work.sum() / parts + most


def test_carbon_follows_the_grid_of_each_domain():
    clean, dirty = (COST.score(single(whole(d))) for d in (0, 3))
    assert clean.carbon_g[0] == pytest.approx(clean.energy_j[0] * 100 / 3.6e6)
    assert dirty.carbon_g[0] == pytest.approx(dirty.energy_j[0] * 400 / 3.6e6)


def test_a_power_cap_stretches_time_and_lowers_power():
    capped = Cluster(tuple(replace(d, power_cap_w=150.0) for d in cluster().domains if d.name != "west"), _three())
    free = Cluster(tuple(d for d in cluster().domains if d.name != "west"), _three())
    plan = single(whole(0), 32, 4)
    a, b = CostModel(free, [GPT]).score(plan), CostModel(capped, [GPT]).score(plan)
    assert b.step_s[0] > a.step_s[0]
    assert b.segment("power_w")[0, 0] == pytest.approx(cap_reached() * 150.0)
    assert a.segment("power_w")[0, 0] > 150.0


def _three():
    full, keep = network(), [0, 2, 3]
    pick = np.ix_(keep, keep)
    return replace(
        full,
        names=tuple(full.names[i] for i in keep),
        bandwidth_gbps=full.bandwidth_gbps[pick],
        latency_s=full.latency_s[pick],
        price_usd_per_gb=full.price_usd_per_gb[pick],
    )


@pytest.mark.parametrize("schedule", list(Schedule))
@pytest.mark.parametrize("gbps", [1.0, 20.0, 100.0])
def test_inference_streams_its_forwards(schedule, gbps):
    """No stage ever waits for a backward pass: messages follow one another as fast as links and stages allow."""
    m, micro, edges = 16, 4, (0, 12, 20, LAYERS)
    chain = tuple(Segment(d, a, z) for d, (a, z) in zip((1, 0, 3), pairwise(edges), strict=True))
    bandwidth, latency = np.full((4, 4), gbps), np.full((4, 4), 1e-3)
    reads = CostModel(INFERENCE.cluster, [replace(GPT, output_tokens=0)], [False])
    cost = reads.score(Plan((Replica(chain, micro, m),), schedule), bandwidth_gbps=bandwidth, latency_s=latency)
    busy = cost.segment("busy_s")[0] / m
    done, free = np.zeros(3), np.zeros(3)
    for _ in range(m):
        arrival = 0.0
        for stage, stop in enumerate(edges[1:]):
            done[stage] = max(done[stage], arrival) + busy[stage]
            volume = micro * 2 * GPT.layers[stop - 1].output_elements
            free[stage] = arrival = max(free[stage], done[stage]) + 1e-3 + 8 * volume / (gbps * 1e9)
    assert cost.step_s[0] == pytest.approx(done[-1], rel=1e-9)
    assert cost.traffic_bytes[0, 0, 1] == cost.traffic_bytes[0, 3, 0] == 0
    assert cost.traffic_bytes[0, 1, 0] > 0


def test_ten_thousand_plans_in_one_call_equal_one_by_one():
    cost = llama_cost_model()
    batch = random_plans(10_000, len(cost.models[0]), len(cost.cluster))
    together = cost.score(batch)
    for p in range(10_000):
        row = slice(p, p + 1)
        alone = cost.score(PlanBatch(batch.segments[row], batch.counts[row], batch.schedules[row]))
        for field in fields(PlanCosts):
            assert (getattr(alone, field.name)[0] == getattr(together, field.name)[p]).all()


def test_padding_and_neighbours_in_a_batch_do_not_matter():
    plan = Plan((Replica((Segment(2, 0, 5), Segment(0, 5, LAYERS)), 4, 3),))
    alone, padded = COST.score(PlanBatch.of([plan])), COST.score(PlanBatch.of([plan, single(whole())], width=6))
    noisy = PlanBatch.of([plan], width=6)
    noisy.segments[0, 2:] = -99
    assert COST.score(noisy).step_s[0] == alone.step_s[0]
    for field in fields(PlanCosts):
        if field.name != "segments":
            assert (getattr(alone, field.name)[0] == getattr(padded, field.name)[0]).all()


def test_a_score_without_breakdown_has_the_same_step():
    plan = single(whole(pp=2, tp=2))
    full, quick = COST.score(plan), COST.score(plan, breakdown=False)
    assert quick.step_s[0] == full.step_s[0]
    assert quick.comm_s[0] == quick.bubble_s[0] == 0


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (single(Segment(0, 0, LAYERS + 1)), "Move the cut inside the model"),
        (single(whole(dp=8, tp=8, pp=2)), "has 64 devices"),
        (single(whole(tp=3)), "must be one of"),
        (single(whole(2, precision=Precision.BF16)), "no hardware"),
        (single(whole(2, precision=Precision.INT8)), "no hardware"),
        (single(whole(devices=(64,))), "devices 0..63"),
    ],
)
def test_a_plan_the_cluster_cannot_run_is_refused(plan, words):
    for entry in (COST.check, COST.score):
        with pytest.raises(PlanError, match=words):
            entry(plan)


def test_a_precision_without_hardware_never_wins_in_a_batch():
    assert not COST.cluster.domains[2].gpu.supports(Precision.BF16)
    cut = Plan((Replica((Segment(2, 0, 5, precision=Precision.BF16), Segment(0, 5, LAYERS)), 4, 3),))
    cost = COST.score(PlanBatch.of([single(whole(2, precision=Precision.BF16)), cut, single(whole(2))]))
    assert np.isinf(cost.step_s[:2]).all()
    assert cost.fits.tolist() == [False, False, True]
    assert int(np.argmin(cost.step_s)) == 2


def test_a_plan_over_memory_is_refused_by_name_of_the_fullest_segment():
    big = cost_model("llama-3-8b")
    layers = len(big.models[0])
    # 20 layers fill more bytes of an 80 GB card than 8 layers of a 32 GB card, but only the latter overflows.
    plan = Plan((Replica((Segment(0, 0, 8), Segment(2, 8, 20, tp=2), Segment(1, 20, layers, tp=8)), 1, 4),))
    cost = big.score(plan)
    assert not cost.fits[0]
    ratios = cost.segment("memory_bytes")[0] / [big.cluster.domains[d].gpu.memory_bytes for d in plan.domains]
    assert cost.memory_ratio[0] == pytest.approx(ratios.max())
    with pytest.raises(PlanError, match=rf"segment {int(np.argmax(ratios))} .*ratio {ratios.max():.2f}"):
        big.check(plan)


def test_a_plan_that_fits_passes():
    COST.check(single(whole(tp=2, dp=2)))


@pytest.mark.parametrize("value", [math.nan, -1.0, 0.0, math.inf])
def test_a_bad_bandwidth_is_refused(value):
    wrong = network().bandwidth_gbps.copy()
    wrong[0, 1] = value
    with pytest.raises(NetworkError, match=r"bandwidth_gbps\[0, 1\]"):
        COST.score(single(whole()), bandwidth_gbps=wrong)
    with pytest.raises(NetworkError):
        replace(network(), bandwidth_gbps=wrong)


@pytest.mark.parametrize("value", [math.nan, -1.0, math.inf])
def test_a_bad_latency_is_refused(value):
    wrong = network().latency_s.copy()
    wrong[1, 0] = value
    with pytest.raises(NetworkError, match=r"latency_s\[1, 0\]"):
        COST.score(single(whole()), latency_s=wrong)


def test_links_of_the_wrong_shape_are_refused():
    with pytest.raises(NetworkError, match="shape"):
        COST.score(single(whole()), bandwidth_gbps=np.ones((3, 3)))


def test_links_may_differ_by_plan():
    plan = Plan((Replica((Segment(0, 0, 9), Segment(1, 9, LAYERS)), 4, 4),))
    base = network().bandwidth_gbps
    cost = COST.score([plan, plan], bandwidth_gbps=np.stack([base, base / 2]))
    assert cost.step_s[1] > cost.step_s[0] == COST.score(plan).step_s[0]


@pytest.mark.parametrize("wrong", [np.ones((2, 2)), np.array([[math.nan]]), np.array([[0.0]]), np.array([[-1.0]])])
def test_a_bad_slowdown_is_refused(wrong):
    with pytest.raises(PlanError, match="slowdown"):
        COST.score(single(whole()), slowdown=wrong)


@pytest.mark.parametrize("row", megatron_scaling.ROWS, ids=lambda row: row.name)
def test_published_megatron_runs_within_ten_percent(row):
    tflops, _ = megatron_scaling.predict(row)
    assert tflops == pytest.approx(row.published_tflops, rel=0.10)


def test_measured_steps_within_ten_percent_on_average(data_folder):
    folder = data_folder / "sailor" / "measured_steps"
    if not folder.is_dir():
        pytest.skip("the folder of measured data has no sailor/measured_steps")
    rows = compare_all(folder)
    assert len(rows) >= 18
    assert np.mean([abs(row.time_error) for row in rows]) <= 0.10
    assert np.mean([abs(row.memory_error) for row in rows if row.name not in DOUBTFUL]) <= 0.10


def test_every_card_of_the_cluster_was_tried():
    assert [domain.gpu.name for domain in COST.cluster.domains] == list(CARDS)


size, rate, delay = st.floats(0, 1e12), st.floats(1e6, 1e12), st.floats(0, 1.0)


@pytest.mark.parametrize(("ranks", "share"), [(1, 0.0), (2, 1.0), (4, 1.5), (8, 1.75), (1000, 1.998)])
def test_each_rank_sends_twice_all_but_its_own_part(ranks, share):
    assert ring_sent_bytes(float(ranks), 1e9) == pytest.approx(share * 1e9)


def test_time_by_hand():
    # 4 ranks, 8 GB at 2 GB/s: 1.5 * 8 / 2 = 6 s, and six rounds of 10 ms.
    assert ring_all_reduce_s(4.0, 8e9, 2e9, 0.01) == pytest.approx(6.06)


@LAW
@given(st.integers(1, 512), size, rate, delay)
def test_time_is_volume_over_bandwidth_plus_rounds(ranks, volume, bandwidth, latency):
    expected = ring_sent_bytes(float(ranks), volume) / bandwidth + 2 * (ranks - 1) * latency
    assert ring_all_reduce_s(float(ranks), volume, bandwidth, latency) == pytest.approx(expected)


@LAW
@given(st.integers(1, 512), size, rate, delay)
def test_more_ranks_or_less_bandwidth_never_help(ranks, volume, bandwidth, latency):
    base = ring_all_reduce_s(float(ranks), volume, bandwidth, latency)
    assert ring_all_reduce_s(float(ranks + 1), volume, bandwidth, latency) >= base
    assert ring_all_reduce_s(float(ranks), volume, bandwidth / 2, latency) >= base


def test_one_rank_has_nobody_to_talk_to():
    assert ring_all_reduce_s(1.0, 1e12, 1.0, 1.0) == 0.0
