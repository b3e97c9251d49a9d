"""A user's model on this machine: the counters a scheduler reads, each with how it was got.

Plain steps are timed and metered first; operators are profiled in further steps, because the profiler slows what it
watches.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from attribution_sched.attribution.sources.reading import Provenance, Reading, difference
from attribution_sched.cluster.counters import COUNTER_UNITS
from attribution_sched.errors import CounterError

if TYPE_CHECKING:
    from attribution_sched.attribution.sources import OperatorProfile
    from attribution_sched.cli.profile_loading import Steppable

LEAST_S = 1.0
"""Steps are repeated until so much time has passed: meters and clocks are coarse."""

NO_SOURCE = "no source on this machine counts it"


@dataclass(frozen=True)
class Figure:
    """One number.

    Attributes:
        value: It; None if it is not available.
        unit: Its unit.
        provenance: Measured, estimated, simulated or unavailable.
        how: Where it is from, or why there is none.
    """

    value: float | None
    unit: str
    provenance: str
    how: str = ""


@dataclass(frozen=True, eq=False)
class Measured:
    """What was found out about a model on this machine.

    Attributes:
        name: Of the model.
        training: Whether a step is forward and backward.
        steps: Plain steps that were metered.
        step_s: Mean wall time of one.
        samples: Samples in a step: the first size of the first input; None if it has none.
        threads: Threads torch uses.
        operators: Time and FLOPs by kind of operator.
        counters: The scheduler's counters by name.
        energy: Joules of one step.
    """

    name: str
    training: bool
    steps: int
    step_s: float
    samples: int | None
    threads: int
    operators: OperatorProfile
    counters: Mapping[str, Figure]
    energy: Figure


def measure(
    subject: Steppable, *, training: bool, steps: int, warmup: int, tell: Callable[..., None] = lambda *_: None
) -> Measured:
    """Run a model and read what this machine's sources say meanwhile.

    Args:
        subject: What to run.
        training: Forward and backward in training mode, else forward in evaluation mode.
        steps: Plain steps at least; more if they are short.
        warmup: Steps before, which are not counted.
        tell: Told how many plain steps were done.
    """
    import torch

    from attribution_sched.attribution.sources import profile

    with contextlib.ExitStack() as stack:
        sources = _sources(stack)
        step = _step(subject, training)
        for _ in range(warmup):
            step()
        before = {name: source.read() for name, source in sources.items()}
        began, done = time.perf_counter(), 0
        while done < steps or time.perf_counter() - began < LEAST_S:
            step()
            done += 1
            tell(done, max(steps, done))
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        wall_s = time.perf_counter() - began
        readings = {name: difference(before[name], source.read()) for name, source in sources.items()}
    operators = profile(
        subject.model, subject.inputs, training=training and not subject.own_step, steps=min(3, steps), warmup=1
    )
    step_s = wall_s / done
    return Measured(
        subject.name, training, done, step_s, samples_of(subject.inputs), torch.get_num_threads(), operators,
        _counters(readings, operators, wall_s, step_s), _energy(readings, done),
    )  # fmt: skip


def samples_of(inputs: Any) -> int | None:
    """The first size of the first tensor."""
    import torch

    listed = inputs.values() if isinstance(inputs, Mapping) else inputs if isinstance(inputs, tuple) else [inputs]
    first = next((each for each in listed if isinstance(each, torch.Tensor) and each.ndim), None)
    return None if first is None else int(first.shape[0])


def _sources(stack: contextlib.ExitStack) -> dict[str, Any]:
    """Every source that opens here."""
    from attribution_sched.attribution.sources import NvmlSource, PerfSource, ProcessSource, RaplSource

    found: dict[str, Any] = {"process": ProcessSource()}
    for name, opened in (("perf", PerfSource), ("rapl", RaplSource), ("nvml", NvmlSource)):
        with contextlib.suppress(CounterError):
            found[name] = opened()
    if "perf" in found:
        stack.enter_context(found["perf"])
    return found


def _step(subject: Steppable, training: bool) -> Callable[[], None]:
    import torch

    model, inputs = subject.model, subject.inputs

    def call() -> Any:
        if isinstance(inputs, Mapping):
            return model(**inputs)
        return model(*inputs) if isinstance(inputs, tuple) else model(inputs)

    def step() -> None:
        model.train(training)
        with torch.set_grad_enabled(training):
            output = call()
        if training and not subject.own_step:
            tensors = output.values() if isinstance(output, Mapping) else output
            listed = [output] if isinstance(output, torch.Tensor) else list(tensors)
            scalar = next((each.mean() for each in listed if torch.is_tensor(each) and each.requires_grad), None)
            if scalar is not None:
                scalar.backward()  # type: ignore[no-untyped-call]
            model.zero_grad(set_to_none=True)

    return step


def _counters(
    readings: Mapping[str, Reading], operators: OperatorProfile, wall_s: float, step_s: float
) -> dict[str, Figure]:
    """The scheduler's twelve counters, as rates of plain steps."""
    found = {name: Figure(None, unit, Provenance.UNAVAILABLE.value, NO_SOURCE) for name, unit in COUNTER_UNITS.items()}
    for name, source, counter in (
        ("cpu_cycles", "perf", "cpu_cycles"),
        ("instructions", "perf", "cpu_instructions"),
        ("l3_misses", "perf", "llc_misses"),
        ("cpu_seconds", "process", "cpu_time_s"),
    ):
        if source in readings:
            found[name] = _rate(readings[source], counter, COUNTER_UNITS[name], f"{source} {counter}", wall_s)
    # What the profiler adds to the step must not make the device busier than it can be.
    whole_s = max(step_s, sum(operators.time_s.values()))
    for group in ("conv", "fc", "attention"):
        how = f"torch.profiler: time in these operators per step on {operators.device}"
        found[group] = Figure(operators.time_s[group] / whole_s, COUNTER_UNITS[group], Provenance.MEASURED.value, how)
    if "nvml" in readings:
        _add_gpu(found, readings["nvml"])
    else:
        for name in ("pcie_bandwidth", "sm_active"):
            found[name] = Figure(None, COUNTER_UNITS[name], Provenance.UNAVAILABLE.value, "no GPU that NVML can read")
    return found


def _rate(reading: Reading, counter: str, unit: str, how: str, wall_s: float) -> Figure:
    label, note = reading.provenance[counter], reading.notes.get(counter, "")
    if label is Provenance.UNAVAILABLE:
        return Figure(None, unit, label.value, note)
    return Figure(reading.values[counter] / wall_s, unit, label.value, f"{how}; {note}" if note else how)


def _add_gpu(found: dict[str, Figure], reading: Reading) -> None:
    """Traffic and utilisation of the GPUs together; NVML gives levels, read at the end of the steps."""
    for name, endings, mean in (
        ("pcie_bandwidth", ("pcie_tx_bytes_per_s", "pcie_rx_bytes_per_s"), False),
        ("sm_active", ("utilisation",), True),
    ):
        parts = [each for each in reading.available if each.split("/")[-1] in endings]
        if parts:
            total = sum(reading.values[each] for each in parts)
            value = total / len(parts) if mean else total
            how = f"NVML {' + '.join(endings)}, at the end of the steps"
            found[name] = Figure(value, COUNTER_UNITS[name], Provenance.ESTIMATED.value, how)


def _energy(readings: Mapping[str, Reading], steps: int) -> Figure:
    """Joules of a step: what the meters of processors and GPUs counted, idle power included."""
    parts: list[tuple[str, float]] = []
    whys: list[str] = []
    for source in ("rapl", "nvml"):
        reading = readings.get(source)
        if reading is None:
            whys.append(f"{source}: not on this machine")
            continue
        names = ["energy_j"] if "energy_j" in reading.names else [n for n in reading.names if n.endswith("/energy_j")]
        for name in names:
            if reading.provenance[name] is Provenance.UNAVAILABLE:
                whys.append(f"{source} {name}: {reading.notes.get(name, '')}")
            else:
                parts.append((f"{source} {name}", reading.values[name]))
    if not parts:
        return Figure(None, "J/step", Provenance.UNAVAILABLE.value, "; ".join(whys))
    how = " + ".join(name for name, _ in parts) + ", the whole machine's, idle power included"
    return Figure(sum(value for _, value in parts) / steps, "J/step", Provenance.MEASURED.value, how)
