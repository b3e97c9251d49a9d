"""Placing requests for parts of GPUs so that what is left can still be used: Alibaba's openb cluster, FGD and ours.

Fragmentation of a node (Weng et al., USENIX ATC 2023): GPU that the typical requests cannot use there, in expectation.

    F(node) = Σ_m p_m · F_m,   F_m = all free GPU if request m does not fit, else the free GPU of devices too full for m

FGD takes the node where F grows least, rounded to whole points of a sigmoid, the first by name among equals. Ours keeps
the exact value and adds two terms: GPU that the CPU left on the node can no longer serve at the rate at which requests
ask for both (a node out of CPU strands its GPUs, and F sees that only once a typical request no longer fits), and,
small, what is left of the node at all, so that full nodes are filled before empty ones are opened:

    score = ΔF + price · Δmax(0, free − CPU/rate) + fit · (free + CPU/rate) / 1000
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit

MILLI = 1000
DEVICES = 8

RANDOM, BEST_FIT, FGD, OURS = 0, 1, 2, 3
POLICIES = {"random": RANDOM, "best-fit": BEST_FIT, "fgd": FGD, "fgd, ties at random": FGD, "ours": OURS}


@dataclass(frozen=True)
class Nodes:
    """Machines: CPU and memory ``(n,)``, free milli-GPUs of every device ``(n, 8)`` (−1 for none), model ``(n,)``."""

    cpu: np.ndarray
    memory: np.ndarray
    gpu: np.ndarray
    model: np.ndarray

    @property
    def capacity(self) -> int:
        """Milli-GPUs of all devices."""
        return int(self.gpu[self.gpu > 0].sum())


@dataclass(frozen=True)
class Requests:
    """Pods: CPU, memory, devices, milli-GPUs of each ``(m,)``, and models allowed, a bit each; 0 allows all."""

    cpu: np.ndarray
    memory: np.ndarray
    devices: np.ndarray
    milli: np.ndarray
    models: np.ndarray

    def take(self, rows: np.ndarray) -> Requests:
        """Some of them, in an order."""
        return Requests(*(getattr(self, name)[rows] for name in ("cpu", "memory", "devices", "milli", "models")))

    @property
    def demand(self) -> np.ndarray:
        """Milli-GPUs in all."""
        return self.devices * self.milli


def typical(requests: Requests, share: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
    """The commonest requests that make up a share of all, ``(t, 4)`` CPU, devices, milli, models; and their weights."""
    rows = zip(requests.cpu, requests.devices, requests.milli, requests.models, strict=True)
    counts = Counter(tuple(int(v) for v in row) for row in rows).most_common()
    total, kept = sum(n for _, n in counts), 0
    while sum(n for _, n in counts[:kept]) < share * total:
        kept += 1
    weights = np.array([n for _, n in counts[:kept]], dtype=np.float64)
    return np.array([row for row, _ in counts[:kept]], dtype=np.int64), weights / weights.sum()


def inflated(requests: Requests, capacity: int, ratio: float, rng: np.random.Generator) -> Requests:
    """All requests in random order, then more of them, drawn, until they ask for ``ratio`` of the capacity."""
    order = rng.permutation(len(requests.cpu)).tolist()
    asked, limit = int(requests.demand.sum()), ratio * capacity
    while True:
        one = int(rng.integers(len(requests.cpu)))
        if asked + requests.milli[one] > limit:
            return requests.take(np.array(order))
        order.append(one)
        asked += int(requests.demand[one])


@njit(cache=True)
def fragmentation(cpu: float, gpu: Any, model: int, shapes: Any, weights: Any) -> float:
    """Milli-GPUs that typical requests cannot use on a node, in expectation."""
    free = 0
    for d in range(gpu.shape[0]):
        free += max(gpu[d], 0)
    if free == 0:
        return 0.0
    lost = 0.0
    for t in range(shapes.shape[0]):
        need, milli = shapes[t, 1], shapes[t, 2]
        if milli == 0 or (shapes[t, 3] != 0 and (shapes[t, 3] >> model) & 1 == 0) or cpu < shapes[t, 0]:
            lost += weights[t] * free
            continue
        fits, useless = 0, 0
        for d in range(gpu.shape[0]):
            if gpu[d] >= milli:
                fits += 1
            elif gpu[d] > 0:
                useless += gpu[d]
        lost += weights[t] * (free if fits < need else useless)
    return lost


@njit(cache=True)
def _fits(cpu: float, memory: float, gpu: Any, model: int, want: Any) -> bool:
    if cpu < want[0] or memory < want[1]:
        return False
    if want[2] == 0:
        return True
    if want[4] != 0 and (want[4] >> model) & 1 == 0:
        return False
    fits = 0
    for d in range(gpu.shape[0]):
        if gpu[d] >= want[3]:
            fits += 1
    return fits >= want[2]


@njit(cache=True)
def _take(gpu: Any, want: Any, device: int, out: Any) -> None:
    """Devices after a request: a part on ``device``, whole ones on the first that are free."""
    left = want[2]
    for d in range(gpu.shape[0]):
        out[d] = gpu[d]
        if want[2] == 1 and want[3] < 1000:
            if d == device:
                out[d] -= want[3]
        elif left > 0 and gpu[d] >= want[3]:
            out[d] -= want[3]
            left -= 1


@njit(cache=True)
def place(
    cpu: Any, memory: Any, gpu: Any, model: Any, wants: Any, shapes: Any, weights: Any, policy: int, settings: Any,
    rng: Any, shuffled: bool,
) -> Any:  # fmt: skip
    """Place requests one after the other, none leaves; returns where each went, −1 for nowhere.

    Arrays of the nodes are changed. ``settings`` of ours: price and fit. ``shuffled`` breaks ties at random, else the
    first node keeps them.
    """
    n, m = cpu.shape[0], wants.shape[0]
    where = np.full(m, -1)
    known = np.empty(n)
    for i in range(n):
        known[i] = fragmentation(cpu[i], gpu[i], model[i], shapes, weights)
    after = np.empty(gpu.shape[1], dtype=gpu.dtype)
    # What a request takes of CPU for a milli-GPU, in expectation: nodes with less of it will strand GPU.
    asked_cpu, asked_gpu = 0.0, 0.0
    for t in range(shapes.shape[0]):
        asked_cpu += weights[t] * shapes[t, 0]
        asked_gpu += weights[t] * shapes[t, 1] * shapes[t, 2]
    rate = asked_cpu / asked_gpu
    for j in range(m):
        want = wants[j]
        best, best_device, ties = -1, 0, 0
        best_score = np.inf
        for i in range(n):
            if not _fits(cpu[i], memory[i], gpu[i], model[i], want):
                continue
            part = want[2] == 1 and want[3] < 1000
            own, own_device = np.inf, 0
            if policy == 0:
                own = 0.0
            elif policy == 1:
                free = 0.0
                for d in range(gpu.shape[1]):
                    free += max(gpu[i, d], 0)
                own = 0.5 * (cpu[i] - want[0]) / 128_000.0 + 0.5 * (free - want[2] * want[3]) / 8_000.0
                own = -np.floor((1.0 - own) * 100.0)
            if policy <= 1 and part:
                # The fullest device that has room; at random for the random policy.
                tightest, seen = 1e9, 0
                for d in range(gpu.shape[1]):
                    if gpu[i, d] >= want[3]:
                        seen += 1
                        if policy == 0:
                            if rng.random() * seen < 1.0:
                                own_device = d
                        elif gpu[i, d] < tightest:
                            tightest, own_device = gpu[i, d], d
            if policy >= 2:
                last = -1
                for d in range(gpu.shape[1] if part else 1):
                    if part and (gpu[i, d] < want[3] or gpu[i, d] == last):
                        # The same as a device looked at already.
                        continue
                    last = gpu[i, d]
                    _take(gpu[i], want, d, after)
                    left = cpu[i] - want[0]
                    grown = fragmentation(left, after, model[i], shapes, weights) - known[i]
                    if policy == 2:
                        score = -np.floor(100.0 / (1.0 + np.exp(grown / 1000.0)))
                    else:
                        free = 0.0
                        for e in range(gpu.shape[1]):
                            free += max(after[e], 0)
                        before = free + want[2] * want[3]
                        # GPU that the CPU left over cannot serve, more of it than before.
                        short = max(0.0, free - left / rate) - max(0.0, before - cpu[i] / rate)
                        score = grown + settings[0] * short + settings[1] * (free + left / rate) / 1000.0
                    if score < own:
                        own, own_device = score, d
            if own < best_score - 1e-9:
                best, best_device, best_score, ties = i, own_device, own, 1
            elif own <= best_score + 1e-9 and shuffled:
                # Among equals each is as likely as any other; else the first by name stays, as in the published runs.
                ties += 1
                if rng.random() * ties < 1.0:
                    best, best_device = i, own_device
        if best < 0:
            continue
        where[j] = best
        _take(gpu[best], want, best_device, after)
        for d in range(gpu.shape[1]):
            gpu[best, d] = after[d]
        cpu[best] -= want[0]
        memory[best] -= want[1]
        known[best] = fragmentation(cpu[best], gpu[best], model[best], shapes, weights)
    return where
