"""Decisions on which schedulers are compared: models with measured layer profiles, real links, small pools.

Three families:

- :func:`chain_instance`: K small pools of A100 and V100 between AWS regions, for the speed of the exact search;
- :func:`memory_tight`: LLaMA-3-8B over pools none of which holds it with room to spare;
- :func:`two_regions`: the seven instances i1-i7 on which Sailor and its rivals were compared.

Measured layer profiles are of full precision. So that nothing rests on an assumed gain of half precision, the cards
have no other format (:func:`full_precision`): every planner then works with the times that were measured.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from attribution_sched.cluster.cost import BYTES_PER_GBIT, CostModel
from attribution_sched.cluster.decision import Decision
from attribution_sched.cluster.gpus import Gpu, Precision, gpu
from attribution_sched.cluster.models import Model
from attribution_sched.cluster.models.catalogue import profiled_model
from attribution_sched.cluster.plan import Plan
from attribution_sched.cluster.regions import wan_between
from attribution_sched.cluster.wan import Wan
from attribution_sched.cluster.world import Cluster, Domain, Reward, Runtime, TaskKind
from attribution_sched.planning.exact.problem import Objective, Problem
from attribution_sched.planning.instance import Instance

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

AWS = (
    "aws:us-east-1", "aws:us-west-2", "aws:eu-west-1", "aws:eu-central-1", "aws:ap-northeast-1", "aws:ap-southeast-1",
    "aws:us-east-2", "aws:ca-central-1", "aws:eu-west-2", "aws:ap-northeast-2", "aws:sa-east-1", "aws:ap-south-1",
    "aws:us-west-1", "aws:ap-southeast-2",
)  # fmt: skip
SHAKE = 0.3
"""Links are drawn within this share of their measured bandwidth."""

MEGATRON = Runtime(recompute=True, zero_stage=1, sequence_parallel=True)
"""As the cross-domain-easy preset trains: activations recomputed."""

SAILOR_RUNTIME = Runtime(recompute=False, zero_stage=0, flash_attention=False)
"""As the runs measured with Sailor: nothing recomputed, nothing sharded, score matrices kept."""

LAYERS = {26: "OPT-350", 35: "LLAMA-3-8", 101: "LLAMA-3-8 stretched"}
TIGHT_POOLS = (("A100-40", 1), ("A100-40", 2), ("A100-40", 4), ("A100-80", 1), ("A100-80", 2), ("V100-16", 2),
               ("V100-16", 4), ("V100-16", 8))  # fmt: skip
TIGHT = (1.1, 2.0)
"""Least and most memory of all pools together over what the model's states need: below 2 no two copies fit."""

STATE_BYTES = 16.0
"""Weights, gradients and Adam states of a parameter in full precision. Optimiser shards move this between
data-parallel ranks and never lower the sum over them."""


@dataclass(frozen=True, eq=False)
class InstanceDecision:
    """One decision: a task to place, outside any world.

    Attributes:
        name: Readable name.
        cost: Prices plans.
        batch_size: Samples per step.
        microbatches: Microbatch sizes (samples over all data-parallel ranks) to choose from.
        bandwidth_gbps: Links now, shape ``(K, K)``.
        latency_s: One-way latencies, shape ``(K, K)``.
        max_segments: Most domains in a plan.
        free: Devices that may be used per domain; all by default.
    """

    name: str
    cost: CostModel
    batch_size: int
    microbatches: tuple[int, ...]
    bandwidth_gbps: FloatArray
    latency_s: FloatArray
    max_segments: int
    free: tuple[int, ...] | None = None

    @property
    def free_devices(self) -> IntArray:
        """Devices that may be used, shape ``(K,)``."""
        all_devices = [domain.devices for domain in self.cost.cluster.domains]
        return np.array(all_devices if self.free is None else self.free, dtype=np.int64)

    def problem(self, objective: Objective | None = None, *, replicate: bool = True) -> Problem:
        """The decision as the exact search takes it; the step time is the objective by default."""
        return Problem(
            self.cost, 0, self.batch_size, self.microbatches, self.free_devices, self.bandwidth_gbps * BYTES_PER_GBIT,
            self.latency_s, self.max_segments, objective or Objective(), replicate,
        )  # fmt: skip

    def instance(self) -> Instance:
        """The decision as planners by rule take it."""
        return Instance(
            self.cost, 0, self.batch_size, self.microbatches, self.free_devices, self.bandwidth_gbps, self.latency_s,
            self.max_segments,
        )  # fmt: skip

    def view(self) -> Decision:
        """The decision as a policy sees it, with a reward that counts the step time alone."""
        model = self.cost.models[0]
        a, b, c, d = self.microbatches
        kind = TaskKind(model, self.batch_size, (a, b, c, d), steps=(100, 100), epoch_steps=100)
        return Decision(
            kind=kind, kind_index=0, counters=np.zeros(12), replanning=False, current_plan=None, steps_left=100.0,
            time_s=0.0, slot=0, queue=(), free_devices=self.free_devices, bandwidth_gbps=self.bandwidth_gbps,
            latency_s=self.latency_s, cost=self.cost, kinds=(kind,), reward=Reward(w_eff=1.0, w_util=0.0, w_cost=0.0),
            base_step_s=np.ones(1), base_cost_usd=np.ones(1), restart_s=0.0, max_segments=self.max_segments,
        )  # fmt: skip

    def step_s(self, plan: Plan | None) -> float:
        """Step time of a plan per global batch; infinite for none or one that overflows memory."""
        return self.price(plan)[0]

    def price(self, plan: Plan | None) -> tuple[float, float]:
        """Step time and bill of a plan per global batch."""
        if plan is None:
            return float("inf"), float("nan")
        priced = self.cost.score(plan, 0, bandwidth_gbps=self.bandwidth_gbps, latency_s=self.latency_s, breakdown=False)
        norm = self.batch_size / plan.samples
        step_s = float(priced.step_s[0]) * norm if priced.fits[0] else float("inf")
        return step_s, float(priced.bill_usd[0]) * norm

    def with_links(self, bandwidth_gbps: FloatArray) -> InstanceDecision:
        """The same decision on other links."""
        return replace(self, bandwidth_gbps=bandwidth_gbps)


def full_precision(card: Gpu) -> Gpu:
    """The card without its 16-bit and 8-bit formats."""
    return replace(card, peak_flops=MappingProxyType({Precision.FP32: card.peak_flops[Precision.FP32]}))


def stretched(model: Model, layers: int) -> Model:
    """A model of the same size and work whose blocks are cut into more, thinner ones.

    It has a name of its own, so its times come from layer arithmetic, not from a measured profile.
    """
    blocks = [layer for layer in model.layers if layer.kind == "block"]
    count = layers - (len(model) - len(blocks))
    share = len(blocks) / count
    thin = replace(
        blocks[0],
        **{
            field: share * getattr(blocks[0], field)
            for field in ("params", "fc_flops", "attention_flops", "activation_elements", "score_elements",
                          "moved_elements", "tp_reduced_elements")
        },
    )  # fmt: skip
    first = next(i for i, layer in enumerate(model.layers) if layer.kind == "block")
    rest = [layer for layer in model.layers[first:] if layer.kind != "block"]
    chain = (*model.layers[:first], *(replace(thin, name=f"block {n}") for n in range(count)), *rest)
    return replace(model, name=f"{model.name} stretched to {layers}", layers=chain)


def model_of(layers: int) -> Model:
    """The model of 26 (OPT-350M), 35 (LLaMA-3-8B) or 101 layers (LLaMA-3-8B in thinner blocks)."""
    if layers == 101:
        return stretched(profiled_model("LLAMA-3-8"), layers)
    return profiled_model(LAYERS[layers])


def shaken(bandwidth_gbps: FloatArray, rng: np.random.Generator, share: float = SHAKE) -> FloatArray:
    """Links drawn within ``±share`` of their bandwidth, each direction for itself."""
    return bandwidth_gbps * rng.uniform(1.0 - share, 1.0 + share, bandwidth_gbps.shape)


def chain_instance(
    layers: int, domains: int, seed: int, max_segments: int, *, single: bool = False
) -> InstanceDecision:
    """Small pools of A100-80, A100-40 and V100-16 in random AWS regions, 64 samples a step.

    Args:
        layers: 26, 35 or 101.
        domains: Pools.
        seed: Which cards, regions and links.
        max_segments: Most domains in a plan.
        single: One card per pool and one microbatch size, so that order and cuts are all there is to choose; else
            pools of 1, 2 or 4 and four sizes.
    """
    rng = np.random.default_rng([seed, layers, domains])
    names = [str(name) for name in rng.choice(AWS, domains, replace=False)]
    cards = rng.choice(["A100-80", "A100-40", "V100-16"], domains, p=[0.4, 0.4, 0.2])
    counts = np.ones(domains, dtype=np.int64) if single else rng.choice([1, 2, 4], domains)
    pools = tuple(
        Domain(name, _profiled_card(str(card)), int(count))
        for name, card, count in zip(names, cards, counts, strict=True)
    )
    wan = wan_between(names)
    cost = CostModel(Cluster(pools, wan, MEGATRON), [model_of(layers)])
    links = shaken(np.array(wan.bandwidth_gbps), rng)
    name = f"{layers} layers, {domains} domains, seed {seed}"
    sizes = (1,) if single else (1, 2, 4, 8)
    return InstanceDecision(name, cost, 64, sizes, links, np.array(wan.latency_s), max_segments)


def memory_tight(domains: int, seed: int, slower: float = 1.0) -> InstanceDecision:
    """LLaMA-3-8B over pools that together hold it once, but not twice.

    So replicas are out of the question, and a plan is one pipeline. An A100 with 80 GB has the times measured on the
    one with 40 GB: no profile of LLaMA-3-8B on it exists.

    Args:
        domains: Pools.
        seed: Which pools, regions and links.
        slower: Links are divided by this.
    """
    rng = np.random.default_rng([seed, domains])
    names = [str(name) for name in rng.choice(AWS, domains, replace=False)]
    model, wan = profiled_model("LLAMA-3-8"), wan_between(names)
    while True:
        picked = [TIGHT_POOLS[int(i)] for i in rng.integers(len(TIGHT_POOLS), size=domains)]
        pools = tuple(
            Domain(name, _profiled_card(card), count) for name, (card, count) in zip(names, picked, strict=True)
        )
        cost = CostModel(Cluster(pools, wan, MEGATRON), [model])
        if TIGHT[0] <= room_ratio(cost) < TIGHT[1]:
            break
    links = shaken(np.array(wan.bandwidth_gbps), rng) / slower
    return InstanceDecision(f"K={domains} seed {seed}", cost, 64, (1, 2, 4, 8), links, np.array(wan.latency_s), domains)


def room_ratio(cost: CostModel) -> float:
    """Memory of all devices over what the states of the first model need in full precision.

    What is reserved on every device, and the activations of its largest layer at the highest tensor-parallel degree,
    are taken off.
    """
    room = 0.0
    for domain in cost.cluster.domains:
        degree = min(domain.devices, domain.node_devices, 8).bit_length() - 1
        largest_layer = 4.0 * float(cost.tables.peak_layer[0, degree])
        room += domain.devices * (domain.gpu.memory_bytes - cost.runtime.reserved_bytes - largest_layer)
    return room / (STATE_BYTES * cost.models[0].params)


def _profiled_card(name: str) -> Gpu:
    if name == "A100-80":
        return full_precision(gpu("A100-40").override(memory_bytes=gpu("A100-80").memory_bytes))
    return full_precision(gpu(name))


SAILOR_INSTANCES = {
    "i1": ("OPT-350", ("A100-40", 16), ("A100-40", 16)),
    "i2": ("OPT-350", ("A100-40", 16), ("V100-16", 16)),
    "i3": ("OPT-350", ("A100-40", 8), ("A100-40", 24)),
    "i4": ("OPT-350", ("A100-40", 16), ("V100-16", 32)),
    "i5": ("OPT-350", ("V100-16", 16), ("V100-16", 16)),
    "i6": ("GPT-Neo-2.7", ("A100-40", 16), ("A100-40", 16)),
    "i7": ("GPT-Neo-2.7", ("A100-40", 16), ("V100-16", 32)),
}
SAILOR_REGIONS = ("gcp:us-central1-a", "gcp:us-west1-b")
SAILOR_BATCH = 1024
SAILOR_MICROBATCHES = (4, 8, 16, 32)
"""Samples over all data-parallel ranks. All powers of two from 1 to 128 give the same optima."""

GPUS_PER_NODE = 4


def two_regions(name: str, *, half: bool = False, blocking: bool = False, links: float = 1.0) -> InstanceDecision:
    """One of i1-i7: two GCP regions, heterogeneous cards, a batch of 1,024.

    Args:
        name: ``i1`` … ``i7``.
        half: Leave the cards their 16-bit formats.
        blocking: A stage computes nothing while it sends, as in the runtime that was measured.
        links: Bandwidth between the regions is this many times what was measured between two machines.
    """
    model, *pools = SAILOR_INSTANCES[name]
    wan: Wan = wan_between(SAILOR_REGIONS)
    domains = tuple(
        Domain(region, gpu(card) if half else full_precision(gpu(card)), count, node_devices=GPUS_PER_NODE)
        for region, (card, count) in zip(SAILOR_REGIONS, pools, strict=True)
    )
    runtime = replace(SAILOR_RUNTIME, blocking_sends=blocking)
    cost = CostModel(Cluster(domains, wan, runtime), [profiled_model(model)])
    bandwidth, latency = links * np.array(wan.bandwidth_gbps), np.array(wan.latency_s)
    return InstanceDecision(name, cost, SAILOR_BATCH, SAILOR_MICROBATCHES, bandwidth, latency, 2)
