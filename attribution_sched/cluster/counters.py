"""What can be read off a running task: twelve noisy rates that its latent demands produce.

    counter = true rate · exp(s·z − s²/2),   z ~ N(0, C)

True rates follow from the demands per sample and the samples per second the task reaches on the reference
device. The noise is multiplicative and dependent the way real counters are: cycles and instructions
correlate at 0.73, cycles and misses at 0.44 (fitted, ``constants/host.json``), so conditional and marginal
explanations of a model of these counters differ.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from attribution_sched.cluster.constants import load_constants
from attribution_sched.cluster.demands import CLOCK_HZ, DEMAND_NAMES, Demands
from attribution_sched.errors import CounterError, nearest, problem
from attribution_sched.types import FloatArray

COUNTER_UNITS: dict[str, str] = {
    "cpu_cycles": "1/s",
    "l3_misses": "1/s",
    "memory_bandwidth": "B/s",
    "pcie_bandwidth": "B/s",
    "conv": "s/s",
    "fc": "s/s",
    "attention": "s/s",
    "instructions": "1/s",
    "llc_references": "1/s",
    "sm_active": "ratio",
    "dram_active": "ratio",
    "cpu_seconds": "s/s",
}
"""Counter name → unit; the first seven are the attribution dimensions. ``s/s`` is busy time per wall time."""

COUNTER_NAMES: tuple[str, ...] = tuple(COUNTER_UNITS)
"""Order of the counter axis."""

NOISE = 0.10
"""Spread of one reading (assumed: multiplexing, sampling and phase of the window)."""

SPEED_NOISE = 0.05
"""Spread of a measured throughput (assumed: samples are counted, only the window's phase is left)."""

REFERENCES_PER_MISS = 12.0
"""Last-level-cache references per miss (assumed)."""

DRAM_PER_ELEMENTWISE = 1.2
"""DRAM busy time per element-wise busy time: operators read their operands too (assumed)."""

_BOUNDED = [COUNTER_NAMES.index(name) for name in ("conv", "fc", "attention", "sm_active", "dram_active")]


_SM, _DRAM = COUNTER_NAMES.index("sm_active"), COUNTER_NAMES.index("dram_active")

FULL = 0.99
"""Share from which a counter of time is at its end."""

LEAST_WORKING = 0.02
"""Share of its time that a device works at least, whatever its counters say."""


def working_share(values: FloatArray) -> FloatArray:
    """Share of its time that a device works, as its counters tell: the busier of arithmetic and memory, ``(...)``.

    Arithmetic is what is left of ``sm_active`` once the time that waits for memory is taken off. Where that counter is
    at its end, the two overlap by nobody knows how much: half is assumed.

    Args:
        values: Readings, shape ``(..., 12)``.
    """
    active, dram = values[..., _SM], values[..., _DRAM]
    busier = np.maximum(np.where(active < FULL, active - dram, active - 0.5 * dram), dram)
    return np.clip(busier, LEAST_WORKING, 1.0)


@dataclass(frozen=True)
class Counters:
    """Readings of a batch of tasks; the axes are (task, counter).

    Attributes:
        values: Readings in ``COUNTER_UNITS``, shape ``(n_tasks, 12)``.
        provenance: Where they come from; ``simulated`` here.
    """

    values: FloatArray
    provenance: str = "simulated"

    def __len__(self) -> int:
        return len(self.values)

    def column(self, name: str) -> FloatArray:
        """One counter of every task, shape ``(n_tasks,)``."""
        if name not in COUNTER_UNITS:
            raise CounterError(problem("counter", name, "does not exist", nearest(name, COUNTER_NAMES)))
        return self.values[:, COUNTER_NAMES.index(name)]

    @property
    def seven(self) -> FloatArray:
        """The seven attribution dimensions, shape ``(n_tasks, 7)``, in the order of ``DEMAND_NAMES``."""
        return self.values[:, : len(DEMAND_NAMES)]


def sample_time_s(demands: Demands) -> FloatArray:
    """Seconds per sample on the reference device: host and device overlap with exponent 2, ``(n_tasks,)``.

    Operators and element-wise memory traffic follow one another on the device and add up.
    """
    seconds = demands.seconds
    device = seconds[:, 2] + seconds[:, 4:].sum(1)
    host = seconds[:, 0] + seconds[:, 1]
    time: FloatArray = np.hypot(np.maximum(device, seconds[:, 3]), host)
    return time


def throughput(demands: Demands, rng: np.random.Generator, noise: float = SPEED_NOISE) -> FloatArray:
    """Measure the samples per second of a batch of tasks on the reference device, shape ``(n_tasks,)``.

    Counters are rates and say how a task spends its time; this says how much work that time does.

    Args:
        demands: Latent demands of the tasks.
        rng: Source of the noise.
        noise: Relative spread of a measurement; 0 gives the true throughput.
    """
    if not (np.isfinite(noise) and noise >= 0):
        raise CounterError(problem("noise", noise, "must be finite and >= 0", f"Use {SPEED_NOISE} for the default"))
    return read_speed(sample_time_s(demands), rng, noise)


def read_speed(sample_s: FloatArray, rng: np.random.Generator, noise: float = SPEED_NOISE) -> FloatArray:
    """Measure the samples per second of tasks that take so many seconds a sample, shape ``(n_tasks,)``."""
    found: FloatArray = np.exp(noise * rng.standard_normal(len(sample_s)) - noise**2 / 2) / sample_s
    return found


def true_rates(demands: Demands) -> FloatArray:
    """Counters of a perfect instrument, shape ``(n_tasks, 12)``."""
    law = load_constants("host")["counters"]
    time = sample_time_s(demands)
    rate = demands.values / time[:, None]
    cycles, misses = rate[:, 0], rate[:, 1]
    busy = demands.seconds / time[:, None]
    # Misses stall the pipeline: every usual miss rate on top costs about 5 % of the instructions.
    stall = 1.0 + 0.05 * misses / np.maximum(cycles * law["misses_per_cycle"], 1e-12)
    instructions = cycles * law["instructions_per_cycle"] / stall
    extra = [
        instructions,
        misses * REFERENCES_PER_MISS,
        np.minimum(busy[:, 2] + busy[:, 4:].sum(1), 1.0),
        np.minimum(busy[:, 2] * DRAM_PER_ELEMENTWISE, 1.0),
        cycles / CLOCK_HZ,
    ]
    return np.column_stack([rate, *extra])


def noise_correlation() -> FloatArray:
    """Correlation of the noise of the twelve counters, shape ``(12, 12)``."""
    law = load_constants("host")["counters"]
    at = {name: i for i, name in enumerate(COUNTER_NAMES)}
    corr = np.eye(len(COUNTER_NAMES))
    pairs = {
        ("cpu_cycles", "instructions"): law["cycles_instructions"],
        ("cpu_cycles", "l3_misses"): law["cycles_misses"],
        ("instructions", "l3_misses"): law["instructions_misses"],
        ("l3_misses", "llc_references"): 0.6,
        ("cpu_cycles", "llc_references"): 0.3,
        ("cpu_cycles", "cpu_seconds"): 0.8,
        ("instructions", "cpu_seconds"): 0.6,
        ("l3_misses", "cpu_seconds"): 0.35,
        ("memory_bandwidth", "dram_active"): 0.8,
        ("sm_active", "dram_active"): 0.3,
        ("sm_active", "memory_bandwidth"): 0.25,
        ("sm_active", "fc"): 0.4,
        ("sm_active", "conv"): 0.4,
        ("sm_active", "attention"): 0.4,
    }
    for (a, b), value in pairs.items():
        corr[at[a], at[b]] = corr[at[b], at[a]] = value
    return corr


def counters(demands: Demands, rng: np.random.Generator, noise: float = NOISE) -> Counters:
    """Read the counters of a batch of tasks once.

    Args:
        demands: Latent demands of the tasks.
        rng: Source of the noise.
        noise: Relative spread of a reading; 0 gives the true rates.
    """
    if not (np.isfinite(noise) and noise >= 0):
        raise CounterError(problem("noise", noise, "must be finite and >= 0", f"Use {NOISE} for the default"))
    return read(true_rates(demands), rng, noise)


def read(truth: FloatArray, rng: np.random.Generator, noise: float = NOISE) -> Counters:
    """Read true rates ``(n_tasks, 12)`` once, with the noise of the instruments."""
    law = load_constants("host")["counters"]
    z = rng.standard_normal(truth.shape) @ np.linalg.cholesky(noise_correlation()).T
    spread = np.full(len(COUNTER_NAMES), noise)
    # Instructions per cycle differ far more between programs and phases than any reading error.
    spread[COUNTER_NAMES.index("instructions")] *= law["log_instructions_per_cycle_std"] / NOISE
    values = truth * np.exp(spread * z - spread**2 / 2)
    values[:, _BOUNDED] = np.minimum(values[:, _BOUNDED], 1.0)
    return Counters(values)
