"""What the network sees: a decision, and the plans it has begun to write.

Of a decision, times over the baseline's and memory over a device's, as logarithms of such ratios, so that any number of
domains, layers, devices and layouts is seen alike.

A plan is written as a sequence: a domain, (where a replica begins) its microbatch, a layout, one past the last layer;
then the next domain, or the end. All functions of ``Prefixes`` take H unfinished plans of one decision at once. Masks
rule out what the cluster would refuse whatever follows: domains in use or full, layouts without room or hardware, cuts
that leave layers nobody can take.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from attribution_sched.cluster.cost import BYTES_PER_GBIT
from attribution_sched.cluster.decision import Decision
from attribution_sched.cluster.gpus import PRECISIONS
from attribution_sched.cluster.memory import state_bytes_per_parameter
from attribution_sched.cluster.plan import (
    DOMAIN,
    DP,
    FIRST,
    MICROBATCH,
    PP,
    PRECISION,
    REPLICA,
    SEGMENT_FIELDS,
    STOP,
    TP,
)
from attribution_sched.planning import segment_table
from attribution_sched.planning.exact.problem import MAX_DOMAINS, problem_of
from attribution_sched.planning.instance import Instance, tp_indices
from attribution_sched.planning.segment_table import usable_options
from attribution_sched.types import BoolArray, FloatArray, IntArray

DEPTHS = (0.1, 0.25, 0.5, 0.75, 0.9)
"""Relative depths at which the profile of the model's layers is described."""

NODE_NAMES: tuple[str, ...] = (
    "reach", "free_share", "memory", "node_size", "fabric", "best_time", "least_fill", "slower_than_best", "open",
)  # fmt: skip
EDGE_NAMES: tuple[str, ...] = ("hop_time", "latency", "hop_cost", "gradient_time", "gradient_cost")
TASK_NAMES: tuple[str, ...] = (
    "layers", "w_util", "w_cost", "fastest", "skew", *(f"parameters_before_{depth}" for depth in DEPTHS),
)  # fmt: skip
OPTION_NAMES: tuple[str, ...] = (
    "time", "reduce_time", "fill", "kept_fill", "dp", "tp", "pp", *(precision.value for precision in PRECISIONS),
    "spare_devices", "samples_per_rank", "bubble",
)  # fmt: skip
"""Columns of what the network sees of domains, links, the task and layouts."""

NODE_FEATURES, EDGE_FEATURES, TASK_FEATURES, OPTION_FEATURES = map(
    len, (NODE_NAMES, EDGE_NAMES, TASK_NAMES, OPTION_NAMES)
)

SMALLEST = 1e-6
LARGEST = 12.0


def log_ratio(values: FloatArray) -> FloatArray:
    """Logarithm that stays finite: ratios below a millionth count as one."""
    found: FloatArray = np.clip(np.log(np.maximum(values, SMALLEST)), -LARGEST, LARGEST)
    return found


@dataclass(frozen=True, eq=False)
class DecisionFeatures:
    """One decision as arrays: K domains, N layers, O layouts, M microbatch sizes.

    Attributes:
        nodes: Shape ``(K, 9)``, columns ``NODE_NAMES``; time and fill are those of the whole model.
        edges: Shape ``(K, K, 5)``, columns ``EDGE_NAMES``: what a hop and a reduction of gradients take.
        task: Shape ``(10,)``, columns ``TASK_NAMES``.
        options: Layouts, shape ``(O, 4)``: dp, tp, pp, precision.
        allowed: Which a domain has room and hardware for, shape ``(K, O)``.
        divides: Which share a microbatch evenly, shape ``(M, O)``.
        option_rows: Shape ``(K, M, O, 14)``, columns ``OPTION_NAMES``.
        time: Time of the whole model over the baseline's step, shape ``(K, M, O)``.
        state_fill: Weights and states of the whole model over the memory of the devices, shape ``(K, M, O)``.
        kept_fill: The same of activations in flight, shape ``(K, M, O)``.
        best_time: Least time in a domain over all layouts, shape ``(K,)``.
        least_fill: Least fill in a domain over all layouts, shape ``(K,)``.
        work: Share of the work before each layer, shape ``(N + 1,)``.
        params: Share of the parameters before each layer, shape ``(N + 1,)``.
        boundary: Log of what a cut sends over the median, shape ``(N + 1,)``.
        open: Domains with room, shape ``(K,)``.
        microbatches: Sizes, shape ``(M,)``.
        batch_size: Samples per step.
        max_segments: Most segments.
    """

    nodes: FloatArray
    edges: FloatArray
    task: FloatArray
    options: IntArray
    allowed: BoolArray
    divides: BoolArray
    option_rows: FloatArray
    time: FloatArray
    state_fill: FloatArray
    kept_fill: FloatArray
    best_time: FloatArray
    least_fill: FloatArray
    work: FloatArray
    params: FloatArray
    boundary: FloatArray
    open: BoolArray
    microbatches: IntArray
    batch_size: int
    max_segments: int

    @property
    def n_layers(self) -> int:
        """Layers of the model."""
        return len(self.work) - 1


def features_of(view: Decision) -> DecisionFeatures:
    """Describe the pending decision of a view."""
    instance = Instance.of(view)
    options = option_table(view, instance)
    rows = view.cost.domains.rows
    free_devices = instance.free_devices
    # Layouts are powers of two, so of 13 free devices a plan can use 8.
    reach = np.where(free_devices > 0, 2.0 ** np.floor(np.log2(np.maximum(1, free_devices))), 0.0)
    micro = np.array(tuple(dict.fromkeys(instance.microbatches)), dtype=np.int64)
    allowed = usable_options(view.cost, free_devices, options)
    divides = micro[:, None] % options[:, 0] == 0
    base_s = float(view.base_step_s[view.kind_index])
    time, reduce = _times(view, instance, options, micro, base_s)
    states, kept = _fills(view, instance, options, micro)
    usable = allowed[:, None, :] & divides
    best_time = np.where(usable, time, np.inf).min(axis=(1, 2))
    least_fill = np.where(usable, states + kept, np.inf).min(axis=(1, 2))
    open_domains = np.isfinite(best_time)
    work, params, boundary = _profile(view, instance)
    memory = np.asarray(rows.memory_bytes, dtype=np.float64)
    nodes = np.column_stack([
        np.log2(1.0 + reach) / 2.0, reach / np.asarray(rows.devices), log_ratio(memory / 8e10),
        np.log2(instance.nodes) / 3.0, log_ratio(np.asarray(rows.fabric_bytes_per_s) / 2.5e10),
        log_ratio(_finite(best_time)), log_ratio(_finite(least_fill)),
        log_ratio(_finite(best_time) / _finite(best_time).min()),
        np.asarray(open_domains, dtype=np.float64),
    ])  # fmt: skip
    edges = _edges(view, instance, base_s)
    return DecisionFeatures(
        nodes, edges, _task(view, instance, best_time, work, params), options, allowed, divides,
        _option_rows(options, micro, reach, time, reduce, states, kept, instance.batch_size), time, states, kept,
        best_time, least_fill, work, params, boundary, open_domains, micro, instance.batch_size, view.max_segments,
    )  # fmt: skip


def option_table(view: Decision, instance: Instance) -> IntArray:
    """List all layouts that some domain could use, shape ``(O, 4)``: dp, tp, pp, precision."""
    seen = view
    if (view.free_devices > 0).sum() > MAX_DOMAINS:
        # The formats depend on the hardware of the cluster, not on how many domains are open.
        few = np.zeros_like(view.free_devices)
        few[np.argmax(view.free_devices)] = view.free_devices.max()
        seen = replace(view, free_devices=few)
    formats = [q.index for q in problem_of(seen).precisions()] if (view.free_devices > 0).any() else [1]
    largest, node = int(instance.free_devices.max(initial=1)), int(instance.nodes.max())
    return segment_table.options(max(1, largest), node, formats, instance.n_layers)


def _finite(values: FloatArray) -> FloatArray:
    return np.where(np.isfinite(values), values, 1e6)


def _times(
    view: Decision, instance: Instance, options: IntArray, micro: IntArray, base_s: float
) -> tuple[FloatArray, FloatArray]:
    """Compute and tensor-parallel time of the whole model over the baseline's step, each ``(K, M, O)``."""
    tables, rows = view.cost.tables, view.cost.domains.rows
    whole = tables.times_s[instance.model][:, :, :, :, instance.n_layers]
    gpu = np.asarray(rows.gpu)
    per_pass = whole[gpu][:, options[:, 3], tp_indices(options[:, 1])]
    share = (micro[:, None] / options[:, 0])[None]
    seconds = np.zeros((len(gpu), len(micro), len(options)))
    passes = (0, 4) if instance.training else (0,)
    for c in passes:
        compute, memory, weights, floor = (per_pass[:, None, :, c + i] for i in range(4))
        seconds += np.hypot(floor, share * (compute + memory) + weights)
    count = instance.batch_size / micro[None, :, None]
    stages = options[:, 2]
    reduced = tables.sizes[instance.model, 6, instance.n_layers] * 2.0
    tp = options[:, 1]
    link = np.asarray(rows.nvlink_bytes_per_s)[:, None, None]
    reduce = 2.0 * (tp - 1) / tp * share * reduced / link * (3.0 if instance.training else 1.0)
    missing = np.isnan(seconds)
    time = np.where(missing, 1e6, (seconds + reduce) * count / stages / base_s)
    return time, reduce * count / stages / base_s


def _fills(view: Decision, instance: Instance, options: IntArray, micro: IntArray) -> tuple[FloatArray, FloatArray]:
    """Memory of states and of activations in flight over what a device has, each ``(K, M, O)``."""
    runtime, sizes, n = view.cost.cluster.runtime, view.cost.tables.sizes[instance.model], instance.n_layers
    memory = np.asarray(view.cost.domains.rows.memory_bytes) - runtime.reserved_bytes
    element = np.array([q.element_bytes for q in PRECISIONS], dtype=np.float64)[options[:, 3]]
    per_param = np.array([
        state_bytes_per_parameter(float(e), instance.training, runtime.zero_stage, float(dp))
        for e, dp in zip(element, options[:, 0], strict=True)
    ])  # fmt: skip
    tp, pp = options[:, 1], options[:, 2]
    states = per_param * (sizes[0, n] / tp + sizes[1, n]) / pp
    # With recomputation the inputs of layers stay in flight, else all that the backward pass needs.
    held = sizes[5, n] if runtime.recompute else sizes[2, n] + sizes[3, n]
    kept = element * held / tp * (micro[:, None] / options[:, 0]) * (2.0 if instance.training else 1.0)
    shape = (len(memory), len(micro), len(options))
    states_over = np.broadcast_to(states / memory[:, None, None], shape)
    return states_over, np.broadcast_to(kept[None] / memory[:, None, None], shape)


def _profile(view: Decision, instance: Instance) -> tuple[FloatArray, FloatArray, FloatArray]:
    n, tables = instance.n_layers, view.cost.tables
    sizes = tables.sizes[instance.model][:, : n + 1]
    flops, params = sizes[8], sizes[0] + sizes[1]
    crossing = tables.boundary[instance.model][: n + 1].copy()
    middle = float(np.median(crossing[1:n])) if n > 1 else 1.0
    return flops / flops[-1], params / max(params[-1], 1.0), log_ratio(crossing / max(middle, 1.0))


def _edges(view: Decision, instance: Instance, base_s: float) -> FloatArray:
    """What links cost this task, shape ``(K, K, 5)``."""
    n, tables = instance.n_layers, view.cost.tables
    crossing = tables.boundary[instance.model][1:n]
    volume = 2.0 * instance.batch_size * (float(np.median(crossing)) if n > 1 else 0.0)
    gradient = 2.0 * float(tables.sizes[instance.model, :2, n].sum())
    rate = view.bandwidth_gbps * BYTES_PER_GBIT
    base_usd = float(view.base_cost_usd[view.kind_index])
    weight = view.reward.w_cost / base_usd if base_usd > 0 else 0.0
    price = view.cost.domains.price_usd_per_byte
    k = len(rate)
    found = np.stack([
        log_ratio(volume / rate / base_s), log_ratio(view.latency_s * instance.batch_size / base_s),
        weight * volume * (price + price.T), log_ratio(gradient / rate / base_s),
        weight * gradient * (price + price.T),
    ], axis=-1)  # fmt: skip
    found[np.arange(k), np.arange(k)] = 0.0
    return np.clip(found, -LARGEST, LARGEST)


def _task(
    view: Decision, instance: Instance, best_time: FloatArray, work: FloatArray, params: FloatArray
) -> FloatArray:
    reward, n = view.reward, instance.n_layers
    depth = np.interp(DEPTHS, np.linspace(0.0, 1.0, n + 1), params)
    fastest = float(_finite(best_time).min())
    weights = (reward.w_util / max(reward.w_eff, 1e-3), reward.w_cost / max(reward.w_eff, 1e-3))
    skew = float(np.interp(0.5, np.linspace(0.0, 1.0, n + 1), work))
    return np.array([
        np.log(n) - 4.0, *np.clip(weights, 0.0, 4.0), float(log_ratio(np.array(fastest))), skew - 0.5,
        *(depth - np.array(DEPTHS)),
    ])  # fmt: skip


def _option_rows(
    options: IntArray, micro: IntArray, reach: FloatArray, time: FloatArray, reduce: FloatArray, states: FloatArray,
    kept: FloatArray, batch_size: int,
) -> FloatArray:  # fmt: skip
    """Describe every layout in every domain, shape ``(K, M, O, 14)``."""
    shape = time.shape
    log2 = np.log2(options[:, :3])
    size = options[:, 0] * options[:, 1] * options[:, 2]
    spare = np.log2(np.maximum(1.0, reach)[:, None] / size)[:, None, :]
    count = (batch_size / micro)[None, :, None]
    share = np.log2(micro[:, None] / options[:, 0])[None]
    columns = [
        log_ratio(time), log_ratio(reduce), log_ratio(states + kept), log_ratio(kept),
        log2[:, 0] / 3.0, log2[:, 1] / 3.0, log2[:, 2] / 3.0,
        *((options[:, 3] == q) * 1.0 for q in range(4)),
        np.clip(spare, -4.0, 6.0) / 3.0, share / 4.0, log_ratio(options[:, 2] / count),
    ]  # fmt: skip
    return np.stack([np.broadcast_to(column, shape) for column in columns], axis=-1)


CONTEXT_NAMES: tuple[str, ...] = (
    "complete", "work_left", "segments", "segments_left", "replica", "slowest", "has_segments", "memory_left",
    "speed_left",
)  # fmt: skip
DOMAIN_NAMES: tuple[str, ...] = (
    *(f"there_{name}" for name in EDGE_NAMES), *(f"back_{name}" for name in EDGE_NAMES),
    "linked", "complete", "time", "fill", "fits", "slower_than_slowest",
)  # fmt: skip
MICRO_NAMES: tuple[str, ...] = ("samples", "microbatches", "level", "time", "slower_than_best", "fill")
OPTION_CHOICE_NAMES: tuple[str, ...] = (
    *OPTION_NAMES,
    "slower_than_best",
    "fill_of_rest",
    "fits",
    "slower_than_slowest",
)
CUT_NAMES: tuple[str, ...] = (
    "depth", "work", "share_of_rest", "last", "time", "fill", "fits", "slower_than_slowest", "boundary", "fill_ratio",
)  # fmt: skip
"""Columns that describe an unfinished plan and each choice."""

CONTEXT, DOMAIN_CHOICE, MICRO_CHOICE, OPTION_CHOICE, CUT_CHOICE = map(
    len, (CONTEXT_NAMES, DOMAIN_NAMES, MICRO_NAMES, OPTION_CHOICE_NAMES, CUT_NAMES)
)


@dataclass(frozen=True, eq=False)
class Prefixes:
    """H unfinished plans of one decision.

    Attributes:
        rows: Segments so far, shape ``(H, P, 11)``, number of microbatches left 0.
        counts: Segments so far, shape ``(H,)``.
        used: Domains in use, shape ``(H, K)``.
        at: Layers covered by the current replica, shape ``(H,)``; all of them when it is complete.
        last: Domain of the last segment, −1 before the first, shape ``(H,)``.
        level: Microbatch size of the current replica as an index, shape ``(H,)``.
        slowest: Longest time of a segment over the baseline's step, as estimated, shape ``(H,)``.
    """

    rows: IntArray
    counts: IntArray
    used: BoolArray
    at: IntArray
    last: IntArray
    level: IntArray
    slowest: FloatArray

    def __len__(self) -> int:
        return len(self.counts)

    def take(self, index: IntArray) -> Prefixes:
        """Pick unfinished plans, possibly several times."""
        return Prefixes(
            self.rows[index], self.counts[index], self.used[index], self.at[index], self.last[index],
            self.level[index], self.slowest[index],
        )  # fmt: skip


def empty(task: DecisionFeatures, n: int = 1) -> Prefixes:
    """Begin ``n`` plans."""
    zero = np.zeros(n, dtype=np.int64)
    rows = np.zeros((n, task.max_segments, len(SEGMENT_FIELDS)), dtype=np.int64)
    return Prefixes(rows, zero, np.zeros((n, len(task.open)), dtype=bool), zero, zero - 1, zero, np.zeros(n))


def complete(task: DecisionFeatures, plans: Prefixes) -> BoolArray:
    """Which plans cover every layer and may end, shape ``(H,)``."""
    done: BoolArray = plans.at == task.n_layers
    return done


def begins(task: DecisionFeatures, plans: Prefixes) -> BoolArray:
    """Which plans begin a replica with their next segment, shape ``(H,)``."""
    fresh: BoolArray = (plans.counts == 0) | complete(task, plans)
    return fresh


def _rest(task: DecisionFeatures, plans: Prefixes) -> tuple[IntArray, FloatArray, FloatArray]:
    """First layer of the next segment, and the shares of work and parameters from there on, each ``(H,)``."""
    start = np.where(complete(task, plans), 0, plans.at)
    return start, 1.0 - task.work[start], 1.0 - task.params[start]


def _judged(plans: Prefixes, time: FloatArray, fill: FloatArray, relative: FloatArray | None = None) -> FloatArray:
    """Columns time (or another), fill, whether it fits, and time over the slowest segment's, for ``(H, n)`` choices."""
    slowest = plans.slowest[:, None]
    slower = np.where(slowest > 0, time / np.maximum(slowest, 1e-6), 1.0)
    shown = time if relative is None else relative
    return np.stack([log_ratio(shown), log_ratio(fill), (fill < 1.0) * 1.0, log_ratio(slower)], axis=-1)


def context(task: DecisionFeatures, plans: Prefixes) -> FloatArray:
    """Describe the unfinished plans, shape ``(H, 9)``."""
    _, rest, rest_params = _rest(task, plans)
    left = task.max_segments - plans.counts
    vacant = task.open & ~plans.used
    holds = _best_sum(np.where(vacant, 1.0 / task.least_fill, 0.0), left)
    speed = _best_sum(np.where(vacant, 1.0 / task.best_time, 0.0), left)
    return np.column_stack([
        complete(task, plans) * 1.0, rest, plans.counts / 4.0, left / 4.0,
        plans.rows[np.arange(len(plans)), np.maximum(0, plans.counts - 1), REPLICA] / 2.0,
        np.where(plans.slowest > 0, log_ratio(plans.slowest), 0.0), (plans.slowest > 0) * 1.0,
        log_ratio(holds / np.maximum(rest_params, 1e-3)), log_ratio(speed / np.maximum(rest, 1e-3)),
    ])  # fmt: skip


def _best_sum(values: FloatArray, counts: IntArray) -> FloatArray:
    """Sum of the ``counts[h]`` largest values of each row."""
    ranked = -np.sort(-values, axis=1)
    total: FloatArray = np.where(np.arange(values.shape[1]) < counts[:, None], ranked, 0.0).sum(axis=1)
    return total


def domain_choices(task: DecisionFeatures, plans: Prefixes) -> tuple[FloatArray, BoolArray]:
    """Describe every domain as the next one, shape ``(H, K, 16)``, and say which may be, shape ``(H, K + 1)``.

    The last column is the end.
    """
    done = complete(task, plans)
    mask = task.open & ~plans.used & (plans.counts < task.max_segments)[:, None]
    linked = plans.last >= 0
    near = np.maximum(0, plans.last)
    there, back = task.edges[near], task.edges[:, near].swapaxes(0, 1)
    _, rest, rest_params = _rest(task, plans)
    time = np.where(task.open, task.best_time, 1e6) * rest[:, None]
    fill = np.where(task.open, task.least_fill, 1e6) * rest_params[:, None]
    flags = np.broadcast_to(np.column_stack([linked, done])[:, None, :], (*time.shape, 2))
    found = np.concatenate([
        np.where(linked[:, None, None], there, 0.0), np.where(linked[:, None, None], back, 0.0), flags,
        _judged(plans, time, fill),
    ], axis=-1)  # fmt: skip
    return found, np.column_stack([mask, done])


def micro_choices(task: DecisionFeatures, plans: Prefixes, domain: IntArray) -> tuple[FloatArray, BoolArray]:
    """Describe every microbatch size of a replica that begins in a domain, shape ``(H, M, 6)``; all may be chosen."""
    usable = task.allowed[:, None, :] & task.divides
    time = np.where(usable, task.time, 1e6).min(axis=2)
    fill = np.where(usable, task.state_fill + task.kept_fill, 1e6).min(axis=2)
    m = len(task.microbatches)
    shape = (len(plans), m)
    own = np.stack([
        np.log2(task.microbatches) / 4.0, np.log2(task.batch_size / task.microbatches) / 4.0,
        np.arange(m) / max(1, m - 1),
    ], axis=-1)  # fmt: skip
    relative = time / time.min(axis=1, keepdims=True)
    looks = np.stack([log_ratio(time), log_ratio(relative), log_ratio(fill)], axis=-1)[domain]
    found = np.concatenate([np.broadcast_to(own, (*shape, 3)), looks], axis=-1)
    return found, np.broadcast_to(np.asarray(usable.any(axis=2))[domain], shape)


def option_choices(
    task: DecisionFeatures, plans: Prefixes, domain: IntArray, level: IntArray
) -> tuple[FloatArray, BoolArray]:
    """Describe every layout for the next segment, shape ``(H, O, 18)``, and say which may be, shape ``(H, O)``."""
    start, rest, rest_params = _rest(task, plans)
    mask = task.allowed[domain] & task.divides[level] & (task.options[:, 2] <= (task.n_layers - start)[:, None])
    time = task.time[domain, level] * rest[:, None]
    fill = task.state_fill[domain, level] * rest_params[:, None] + task.kept_fill[domain, level] * rest[:, None]
    quickest = np.where(mask, time, np.inf).min(axis=1, keepdims=True)
    return np.concatenate([task.option_rows[domain, level], _judged(plans, time, fill, time / quickest)], axis=-1), mask


def cut_choices(
    task: DecisionFeatures, plans: Prefixes, domain: IntArray, level: IntArray, option: IntArray
) -> tuple[FloatArray, BoolArray]:
    """Describe every layer before which the next segment may stop, shape ``(H, N, 10)``, and say which may be.

    Column n stands for ``stop = n + 1``; the last one completes the replica.
    """
    n = task.n_layers
    start, rest, _ = _rest(task, plans)
    stops = np.arange(1, n + 1)
    left = task.max_segments - plans.counts - 1
    others = (task.open & ~plans.used).sum(axis=1) - 1
    last = stops == n
    mask = (stops >= start[:, None] + task.options[option, 2][:, None]) & (last | ((left > 0) & (others > 0))[:, None])
    taken = task.work[1:] - task.work[start][:, None]
    taken_params = task.params[1:] - task.params[start][:, None]
    pick = (domain, level, option)
    time = task.time[pick][:, None] * np.maximum(taken, 0.0)
    fill = task.state_fill[pick][:, None] * np.maximum(taken_params, 0.0)
    fill = fill + task.kept_fill[pick][:, None] * np.maximum(taken, 0.0)
    depth, end, boundary = (
        np.broadcast_to(each, time.shape) for each in (task.work[1:], last * 1.0, task.boundary[1:])
    )
    before = np.stack([depth, taken, taken / np.maximum(rest[:, None], 1e-6), end], axis=-1)
    after = np.stack([boundary, np.clip(fill, 0.0, 2.0)], axis=-1)
    found = np.concatenate([before, _judged(plans, time, fill), after], axis=-1)
    return found, mask


def advance(
    task: DecisionFeatures, plans: Prefixes, domain: IntArray, level: IntArray, option: IntArray, stop: IntArray
) -> Prefixes:
    """Add a segment to every unfinished plan.

    Args:
        task: The decision.
        plans: Unfinished plans.
        domain: Where the segment runs, shape ``(H,)``.
        level: Index of its microbatch size, shape ``(H,)``.
        option: Row of its layout, shape ``(H,)``.
        stop: One past its last layer, shape ``(H,)``.
    """
    h = np.arange(len(plans))
    start, _, _ = _rest(task, plans)
    previous = plans.rows[h, np.maximum(0, plans.counts - 1), REPLICA]
    rows = plans.rows.copy()
    new = np.zeros((len(plans), rows.shape[2]), dtype=np.int64)
    new[:, DOMAIN], new[:, FIRST], new[:, STOP] = domain, start, stop
    new[:, [DP, TP, PP, PRECISION]] = task.options[option]
    new[:, REPLICA] = previous + complete(task, plans)
    new[:, MICROBATCH] = task.microbatches[level]
    rows[h, plans.counts] = new
    used = plans.used.copy()
    used[h, domain] = True
    time = task.time[domain, level, option] * (task.work[stop] - task.work[start])
    return Prefixes(rows, plans.counts + 1, used, stop, domain, level, np.maximum(plans.slowest, time))
