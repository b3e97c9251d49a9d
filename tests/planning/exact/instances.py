"""Small random decisions, and their optimum by pricing every plan there is."""

from itertools import combinations, permutations, product

import numpy as np

from attribution_sched.cluster.cost import BYTES_PER_GBIT, CostModel, share_batch
from attribution_sched.cluster.gpus import PRECISIONS, Precision, gpu
from attribution_sched.cluster.models import Layer, Model, TaskType
from attribution_sched.cluster.plan import DP, PP, TP, PlanBatch
from attribution_sched.cluster.reward import samples
from attribution_sched.cluster.wan import Wan
from attribution_sched.cluster.world import Cluster, Domain, Runtime
from attribution_sched.planning.exact.problem import Objective, Problem

CARDS = ("A100-80", "V100-32", "A100-40", "H100-80")


def random_model(rng: np.random.Generator, layers: int, params: float) -> Model:
    """A chain of unequal layers; wide cuts and narrow ones."""
    listed = []
    for n in range(layers):
        size = params / layers * rng.uniform(0.3, 1.8)
        width = rng.choice([2e5, 1e6, 8e6]) * rng.uniform(0.5, 1.5)
        listed.append(
            Layer(
                name=f"layer {n}", kind="block", params=size, conv_flops=0.0, fc_flops=2.0 * size * 512,
                attention_flops=0.0, input_elements=width, output_elements=width, activation_elements=6.0 * width,
                score_elements=0.0, moved_elements=10.0 * width, tp_reduced_elements=2.0 * width,
                tp_sharded=bool(rng.random() < 0.8),
            )
        )  # fmt: skip
    return Model("random", "gpt", TaskType.LANGUAGE, tuple(listed), 512, (512, 1024), params)


def random_problem(seed: int) -> Problem:
    """A decision small enough to try every plan."""
    rng = np.random.default_rng(seed)
    k = int(rng.integers(2, 4))
    layers = int(rng.integers(2, 6 if k == 3 else 8))
    names = tuple(f"d{i}" for i in range(k))
    one_card = rng.random() < 0.5
    cards = [CARDS[int(rng.integers(len(CARDS)))] for _ in names]
    domains = tuple(
        Domain(
            name, gpu(cards[0] if one_card else card), int(rng.choice([1, 2] if k == 3 else [1, 2, 4])),
            node_devices=int(rng.choice([1, 2, 8])), fabric_gbps=float(rng.choice([25.0, 200.0])),
        )
        for name, card in zip(names, cards, strict=True)
    )  # fmt: skip
    inside = np.eye(k, dtype=bool)
    fast = rng.choice([0.3, 3.0, 30.0, 400.0])
    wan = Wan(
        names,
        bandwidth_gbps=np.where(inside, 100.0, fast * rng.uniform(0.5, 2.0, (k, k))),
        latency_s=np.where(inside, 1e-4, rng.uniform(0.001, 0.1, (k, k))),
        price_usd_per_gb=np.where(inside, 0.0, rng.choice([0.0, 0.02, 0.1], (k, k))),
    )
    runtime = Runtime(
        recompute=bool(rng.random() < 0.5), zero_stage=int(rng.integers(0, 4)),
        sequence_parallel=bool(rng.random() < 0.5), blocking_sends=bool(rng.random() < 0.2),
    )  # fmt: skip
    training = bool(rng.random() < 0.85)
    room = sum(d.devices * d.gpu.memory_bytes for d in domains) / 16.0
    params = float(rng.choice([3e8, 2e9, 0.3 * room, 0.6 * room]))
    cost = CostModel(Cluster(domains, wan, runtime), [random_model(rng, layers, params)], [training])
    batch = int(rng.choice([8, 16, 32]))
    levels = sorted(rng.choice([1, 2, 4, 8], 2, replace=False).tolist())
    free = np.array([int(rng.integers(0, d.devices + 1)) for d in domains])
    free[int(rng.integers(k))] = domains[0].devices if k == 1 else max(1, int(free.max()))
    free = np.minimum(np.maximum(free, 0), [d.devices for d in domains])
    if not free.any():
        free[0] = 1
    goal = (
        Objective(),
        Objective(dollar=float(rng.uniform(0.1, 30.0))),
        Objective(time=float(rng.uniform(0.05, 2.0)), utilisation=0.5, dollar=float(rng.uniform(0.0, 5.0))),
        Objective(max_bill_usd=float(rng.choice([0.0, 0.05, 0.5]))),
        Objective(time=0.3, utilisation=0.3, joule=1e-5),
        Objective(time=float(rng.uniform(0.05, 2.0)), utilisation=0.5, queue_pressure=float(rng.uniform(0.0, 1.0))),
    )[seed % 6]
    shake = rng.uniform(0.7, 1.3, (k, k))
    return Problem(
        cost, 0, batch, tuple(levels), free, np.array(wan.bandwidth_gbps) * BYTES_PER_GBIT * shake,
        np.array(wan.latency_s), min(k, int(rng.integers(1, 4))), goal,
    )  # fmt: skip


def all_plans(task: Problem) -> PlanBatch:
    """Every well-formed plan: orders, cuts, layouts, formats, microbatches, replicas."""
    n, width = task.n_layers, task.max_segments
    training = task.cost.training[0]
    powers = (1, 2, 4, 8)
    layouts: list[list[tuple[int, int, int, int]]] = []
    for k, domain in enumerate(task.cost.cluster.domains):
        layouts.append([
            (dp, tp, pp, q.index)
            for dp, tp, pp in product(powers, powers, powers)
            for q in PRECISIONS
            if dp * tp * pp <= task.free_devices[k] and tp <= domain.node_devices and domain.gpu.supports(q)
            and not (training and q is Precision.INT8)
        ])  # fmt: skip
    chains = []
    for length in range(1, width + 1):
        for order in permutations(range(len(layouts)), length):
            for cuts in combinations(range(1, n), length - 1):
                edges = [0, *cuts, n]
                for micro in sorted(set(task.microbatches)):
                    for chosen in product(*(layouts[k] for k in order)):
                        rows = [
                            (order[p], edges[p], edges[p + 1], *o, 0, micro, task.batch_size // micro)
                            for p, o in enumerate(chosen)
                        ]
                        if all(micro % row[3] == 0 and row[5] <= row[2] - row[1] for row in rows):
                            chains.append(rows)
    plans = list(chains)
    if width > 1:
        by_domains: dict[tuple[int, ...], list] = {}
        for chain in chains:
            by_domains.setdefault(tuple(row[0] for row in chain), []).append(chain)
        for first, second in permutations(by_domains, 2):
            if set(first) & set(second) or len(first) + len(second) > width:
                continue
            for one, other in product(by_domains[first], by_domains[second]):
                plans.append([*one, *((*row[:7], 1, *row[8:]) for row in other)])
        if width == 3:
            for trio in permutations(range(len(layouts)), 3):
                plans.extend(
                    [(*chain[0][:7], r, *chain[0][8:]) for r, chain in enumerate(group)]
                    for group in product(*(by_domains.get((k,), []) for k in trio))
                )
    counts = np.array([len(plan) for plan in plans], dtype=np.int64)
    rows = np.zeros((len(plans), width, 11), dtype=np.int64)
    for p, plan in enumerate(plans):
        rows[p, : len(plan), :10] = plan
        replicas = plan[-1][7] + 1
        if replicas > 1:
            share_batch(task.cost.tables, task.cost.domains, 0, float(task.batch_size), rows[p], len(plan), replicas)
    return PlanBatch(rows, counts, np.zeros(len(plans), dtype=np.int64))


def brute_force(task: Problem) -> tuple[float, int]:
    """Best objective over every plan (infinite if none fits), and how many there are."""
    batch = all_plans(task)
    if len(batch) == 0:
        return float("inf"), 0
    priced = task.cost.score(
        batch, 0, bandwidth_gbps=task.bandwidth / BYTES_PER_GBIT, latency_s=task.latency_s, breakdown=False
    )
    norm = task.batch_size / samples(batch)
    goal = task.objective
    rows, used = batch.segments, np.arange(batch.segments.shape[1]) < batch.counts[:, None]
    devices = (rows[:, :, DP] * rows[:, :, TP] * rows[:, :, PP] * used).sum(axis=1)
    time = goal.time * priced.step_s * (1 + goal.queue_pressure * devices)
    rest = goal.dollar * priced.bill_usd + goal.joule * priced.energy_j + goal.gram * priced.carbon_g
    value = norm * (time + rest) - goal.utilisation * priced.utilisation
    allowed = priced.fits & (priced.bill_usd * norm <= goal.max_bill_usd)
    return float(np.where(allowed, value, np.inf).min()), len(batch)
