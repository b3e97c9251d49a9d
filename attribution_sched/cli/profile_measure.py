"""A user's model on this machine: loaded, stepped, its counters with how each was got, and the task it is most like.

Plain steps are timed and metered first; operators are profiled in further steps, because the profiler slows what it
watches.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import math
import re
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from attribution_sched.attribution.sources.reading import Provenance, Reading, difference
from attribution_sched.cluster.counters import COUNTER_UNITS
from attribution_sched.errors import CounterError, TaskError, nearest, problem

if TYPE_CHECKING:
    from torch import Tensor, nn

    from attribution_sched.attribution.sources import OperatorProfile
    from attribution_sched.attribution.vector import AttributionVector
    from attribution_sched.cluster.models import Model
    from attribution_sched.cluster.world import TaskKind, World


FORM = "Write MODULE:FACTORY, for example mypackage.models:resnet or ./train.py:make"
SHAPE = re.compile(r"(?P<sizes>\d+(x\d+)*)(:int(?P<below>\d+))?")


class UsersError(Exception):
    """The user's own code raised; the message is one line, the cause has the rest."""


@dataclass(frozen=True, eq=False)
class Steppable:
    """What is profiled.

    Attributes:
        name: Of its class or function.
        model: A module; a plain function is wrapped into one.
        inputs: What a step is given.
        own_step: Whether it is a plain function that does a whole step by itself.
    """

    name: str
    model: nn.Module
    inputs: Tensor | tuple[Any, ...] | Mapping[str, Any]
    own_step: bool = False


def load(spec: str, shape: str | None, show: Callable[[str], None] | None = None) -> Steppable:
    """Import, call, and check what comes back.

    Args:
        spec: ``MODULE:FACTORY``, the module dotted or a path.
        shape: Of a random input, for a factory that returns a module alone.
        show: Shown the user's own traceback, should their code raise.

    Raises:
        TaskError: If there is no such module or factory, or it returns something else.
        UsersError: If the user's code raises.
    """
    where, colon, what = spec.rpartition(":")
    if not colon or not where or not what:
        raise TaskError(problem("MODULE:FACTORY", spec, "must be a module, a colon and a name in it", FORM))
    example = None if shape is None else random_input(shape)
    module = _module(where, show)
    factory = getattr(module, what, None)
    if factory is None:
        names = [name for name in vars(module) if not name.startswith("_") and callable(getattr(module, name))]
        raise TaskError(problem("FACTORY", what, f"is not in {where}", nearest(what, names) if names else FORM))
    if not callable(factory):
        rule = f"is {_a(factory)}, not something that can be called"
        raise TaskError(problem("FACTORY", what, rule, "Name a function that returns a module and its inputs"))
    made = _their(lambda: factory(), f"{what}()", show)
    return _steppable(what, made, example)


def random_input(text: str) -> Tensor:
    """A random tensor: ``8x3x224x224`` of standard normal numbers, ``4x128:int30522`` of whole ones below that.

    Raises:
        TaskError: If the text is not of that form, or there is no room for so many numbers.
    """
    match = SHAPE.fullmatch(text)
    sizes = [] if match is None else [int(size) for size in match["sizes"].split("x")]
    if match is None or not all(sizes) or (match["below"] is not None and int(match["below"]) < 1):
        fix = "For example --input 8x3x224x224, or --input 4x128:int30522 for tokens"
        raise TaskError(problem("--input", text, "must be sizes joined by x", fix))
    import torch

    generator = torch.Generator().manual_seed(0)
    try:
        if match["below"] is not None:
            return torch.randint(0, int(match["below"]), sizes, generator=generator)
        return torch.randn(sizes, generator=generator)
    except (RuntimeError, ValueError, TypeError, OverflowError) as error:
        rule = "is more than this machine has memory for, or than a whole number of a tensor can be"
        raise TaskError(problem("--input", text, rule, "Use smaller sizes")) from error


def _module(where: str, show: Callable[[str], None] | None) -> ModuleType:
    path = Path(where)
    if where.endswith(".py") or "/" in where:
        if not path.is_file():
            names = [f"{path.parent}/{each.name}" for each in path.parent.glob("*.py")] if path.parent.is_dir() else []
            raise TaskError(problem("MODULE", where, "is not a file", nearest(where, names) if names else FORM))
        # A script finds what lies beside it, as it does when Python runs it.
        sys.path.insert(0, str(path.resolve().parent))
        spec = importlib.util.spec_from_file_location(path.stem, path)
        if spec is None or spec.loader is None:
            raise TaskError(problem("MODULE", where, "is not a Python file", FORM))
        module = importlib.util.module_from_spec(spec)
        sys.modules[path.stem], loader = module, spec.loader
        _their(lambda: loader.exec_module(module), where, show)
        return module
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        there = importlib.util.find_spec(where) is not None
    except (ImportError, ValueError, AttributeError):
        there = False
    if not there:
        beside = [each.stem for each in Path.cwd().glob("*.py")]
        hint = nearest(where, beside) if beside else ""
        fix = hint if hint.startswith("Did you mean") else "Run it in the module's folder, or give its path"
        raise TaskError(problem("MODULE", where, "cannot be found", fix))
    imported: ModuleType = _their(lambda: importlib.import_module(where), where, show)
    return imported


def _their(work: Callable[[], Any], what: str, show: Callable[[str], None] | None) -> Any:
    """Run the user's code; its error is told in one line."""
    try:
        return work()
    except Exception as error:
        raise users_error(what, error, show) from error


def users_error(what: str, error: Exception, show: Callable[[str], None] | None) -> UsersError:
    """The error for something the user's code raised.

    Args:
        what: What was being run.
        error: What it raised.
        show: Shown the whole traceback.
    """
    if show is not None:
        show("".join(traceback.format_exception(error)))
    more = "" if show is not None else ". Add --traceback to see where"
    return UsersError(f"{what} raised {type(error).__name__}: {' '.join(str(error).split())}{more}")


def _steppable(name: str, made: Any, example: Tensor | None) -> Steppable:
    from torch import nn

    model: Any = made
    inputs: Any = example
    if isinstance(made, tuple) and len(made) == 2 and callable(made[0]):
        model, returned = made
        inputs = returned if example is None else example
    if isinstance(model, nn.Module):
        if inputs is None:
            inputs = getattr(model, "example_input_array", None)
        if inputs is None:
            rule = "returned a module without inputs"
            fix = "Return (module, example_inputs), or give --input 8x3x224x224"
            raise TaskError(problem("FACTORY", name, rule, fix))
        listed = tuple(inputs) if isinstance(inputs, list) else inputs
        return Steppable(type(model).__name__, model, listed)
    if callable(model) and not isinstance(model, type):
        listed = () if inputs is None else inputs
        return Steppable(getattr(model, "__name__", name), _wrapped(model), listed, own_step=True)
    rule = f"returned {_a(made)}"
    fix = "Return a torch.nn.Module with its inputs, (module, inputs), or a function that does one step"
    raise TaskError(problem("FACTORY", name, rule, fix))


def _wrapped(function: Callable[..., Any]) -> nn.Module:
    import torch
    from torch import nn

    class Step(nn.Module):
        """A plain function as a module; gradients are its own business."""

        def forward(self, *positional: Any, **named: Any) -> Any:
            with torch.enable_grad():
                return function(*positional, **named)

    return Step()


def _a(thing: Any) -> str:
    name = type(thing).__name__
    return "nothing" if thing is None else f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


LEAST_S = 1.0
"""Steps are repeated until so much time has passed: meters and clocks are coarse."""

PROFILED_S = 2.0
LEAST_REPEATS, MOST_REPEATS = 4, 16
"""Profiled steps: about so many seconds of them, within these bounds."""

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
    subject: Steppable,
    *,
    training: bool,
    steps: int,
    warmup: int,
    dcgm_url: str | None = None,
    tell: Callable[..., None] = lambda *_: None,
) -> Measured:
    """Run a model and read what this machine's sources say meanwhile.

    Args:
        subject: What to run.
        training: Forward and backward in training mode, else forward in evaluation mode.
        steps: Plain steps at least; more if they are short.
        warmup: Steps before, which are not counted.
        dcgm_url: Address of dcgm-exporter, if there is one.
        tell: Told how many plain steps were done.
    """
    import torch

    from attribution_sched.attribution.sources import profile

    with contextlib.ExitStack() as stack:
        sources = _sources(stack, dcgm_url)
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
    step_s = wall_s / done
    # Repeats give operators' shares their interval; long steps need fewer.
    repeats = int(min(max(PROFILED_S / step_s, LEAST_REPEATS), MOST_REPEATS))
    operators = profile(
        subject.model, subject.inputs, training=training and not subject.own_step, steps=repeats, warmup=1
    )
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


def _sources(stack: contextlib.ExitStack, dcgm_url: str | None) -> dict[str, Any]:
    """Every source that opens here."""
    from attribution_sched.attribution.sources.machine import open_sources

    sources: dict[str, Any] = open_sources(dcgm_url)
    if "perf" in sources:
        stack.enter_context(sources["perf"])
    return sources


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
    counters = {
        name: Figure(None, unit, Provenance.UNAVAILABLE.value, NO_SOURCE) for name, unit in COUNTER_UNITS.items()
    }
    for name, source, counter in (
        ("cpu_cycles", "perf", "cpu_cycles"),
        ("instructions", "perf", "cpu_instructions"),
        ("l3_misses", "perf", "llc_misses"),
        ("cpu_seconds", "process", "cpu_time_s"),
    ):
        if source in readings:
            counters[name] = _rate(readings[source], counter, COUNTER_UNITS[name], f"{source} {counter}", wall_s)
    # What the profiler adds to the step must not make the device busier than it can be.
    whole_s = max(step_s, sum(operators.time_s.values()))
    for group in ("conv", "fc", "attention"):
        how = f"torch.profiler: time in these operators per step on {operators.device}"
        if group in operators.share_interval:
            low, high = operators.share_interval[group]
            how += f", CPU time of the thread, {low:.0%} to {high:.0%} of it in {operators.steps} repeats"
        counters[group] = Figure(
            operators.time_s[group] / whole_s, COUNTER_UNITS[group], Provenance.MEASURED.value, how
        )
    if "dcgm" in readings:
        _add_gpu(counters, readings["dcgm"], "DCGM")
    elif "nvml" in readings:
        _add_gpu(counters, readings["nvml"], "NVML")
    else:
        for name in ("pcie_bandwidth", "sm_active"):
            counters[name] = Figure(
                None, COUNTER_UNITS[name], Provenance.UNAVAILABLE.value, "no GPU that NVML can read"
            )
    return counters


def _rate(reading: Reading, counter: str, unit: str, how: str, wall_s: float) -> Figure:
    label, note = reading.provenance[counter], reading.notes.get(counter, "")
    if label is Provenance.UNAVAILABLE:
        return Figure(None, unit, label.value, note)
    return Figure(reading.values[counter] / wall_s, unit, label.value, f"{how}; {note}" if note else how)


def _add_gpu(counters: dict[str, Figure], reading: Reading, source: str) -> None:
    """Traffic and utilisation of the GPUs together; levels, read at the end of the steps."""
    for name, endings, mean in (
        ("pcie_bandwidth", ("pcie_tx_bytes_per_s", "pcie_rx_bytes_per_s"), False),
        ("sm_active", ("sm_active",) if source == "DCGM" else ("utilisation",), True),
        ("dram_active", ("dram_active",), True),
    ):
        parts = [each for each in reading.available if each.split("/")[-1] in endings]
        if parts:
            total = sum(reading.values[each] for each in parts)
            value = total / len(parts) if mean else total
            how = f"{source} {' + '.join(endings)}, at the end of the steps"
            counters[name] = Figure(value, COUNTER_UNITS[name], Provenance.ESTIMATED.value, how)


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


TRAINING_FLOPS = 3.0
"""Forward and backward over forward alone."""

SIZE_WEIGHT = 0.25
"""A factor of ten in FLOPs per sample counts as much as a quarter of the arithmetic being of another sort."""

GROUPS: tuple[str, ...] = ("conv", "fc", "attention")


@dataclass(frozen=True, eq=False)
class Placed:
    """A model as a task of a preset.

    Attributes:
        kind: Row of the kind in the preset.
        model: Name of its model.
        nearest: Kinds by how near they are, the nearest first, with their distance.
        chosen: Whether the user named the kind.
        counters: The scheduler's counters; those that could not be measured have no value.
        samples_per_s: Measured throughput; None if the samples of a step are not known.
        training: Mode of the measured steps.
    """

    kind: int
    model: str
    nearest: tuple[tuple[str, float], ...]
    chosen: bool
    counters: Mapping[str, Figure]
    samples_per_s: float | None
    training: bool


def as_task(measured: Measured, world: World, wanted: str | None) -> Placed:
    """Find the kind of task a model is nearest to.

    Args:
        measured: The measurement.
        world: Of the preset.
        wanted: Name of a kind; the nearest by default.

    Raises:
        TaskError: If the preset has no such kind.
    """
    from attribution_sched.system.admission import TaskRequest, kind_of

    order = sorted(range(len(world.kinds)), key=lambda row: distance(measured, world.kinds[row]))
    listed: dict[str, float] = {}
    for row in order:
        listed.setdefault(world.kinds[row].model.name, distance(measured, world.kinds[row]))
    row = order[0] if wanted is None else kind_of(world, TaskRequest(wanted))
    pace = measured.samples / measured.step_s if measured.samples and measured.step_s > 0.0 else None
    return Placed(
        row, world.kinds[row].model.name, tuple(listed.items()), wanted is not None, measured.counters, pace,
        measured.training,
    )  # fmt: skip


def check_layers(subject: Steppable) -> None:
    """Refuse what :func:`as_model` cannot describe: a function that steps by itself, inputs that are given by name."""
    if subject.own_step or isinstance(subject.inputs, Mapping):
        rule = "steps by itself, so its layers are unknown" if subject.own_step else "takes its inputs by name"
        fix = "Return a torch module and a tuple of inputs, or leave --into out"
        raise TaskError(problem("--into", subject.name, rule, fix))


def as_model(subject: Steppable, name: str) -> Model:
    """What a module is, layer by layer, from one sample of its inputs on the meta device; its weights are given up."""
    import torch

    from attribution_sched.cluster.models.torch_module import from_torch

    check_layers(subject)
    inputs = subject.inputs if isinstance(subject.inputs, tuple) else (subject.inputs,)
    one = [each[:1] if isinstance(each, torch.Tensor) and each.ndim else each for each in inputs]
    return from_torch(subject.model, *one, name=name)


def having(worlds: Mapping[str, World], wanted: str) -> dict[str, World]:
    """The presets that have a kind of task.

    Raises:
        TaskError: If none has it.
    """
    named = {name: {kind.model.name.lower() for kind in world.kinds} for name, world in worlds.items()}
    having_it = {name: world for name, world in worlds.items() if wanted.lower() in named[name]}
    if not having_it:
        rule = f"is not a kind of task of {' or '.join(worlds)}"
        raise TaskError(problem("--submit-as", wanted, rule, nearest(wanted, set().union(*named.values()))))
    return having_it


def nearest_world(measured: Measured, worlds: Mapping[str, World]) -> str:
    """Name of the preset with the kind of task that is nearest."""
    return min(worlds, key=lambda name: min(distance(measured, kind) for kind in worlds[name].kinds))


def distance(measured: Measured, kind: TaskKind) -> float:
    """How unlike a kind of task a model is: by the sorts of its arithmetic, and by how much of it a sample takes."""
    flops = {group: measured.operators.flops[group] for group in GROUPS}
    theirs = {group: float(kind.model.column(f"{group}_flops").sum()) for group in GROUPS}
    total, known = sum(flops.values()), sum(theirs.values())
    if total <= 0 or known <= 0:
        return math.inf if known > 0 else 0.0
    mix = sum(abs(flops[group] / total - theirs[group] / known) for group in GROUPS) / 2
    per_sample = total / (measured.samples or 1) / (TRAINING_FLOPS if measured.training else 1.0)
    return mix + SIZE_WEIGHT * abs(math.log10(per_sample / known))


def joules(placed: Placed, world: World) -> tuple[AttributionVector | None, str]:
    """Where the joules go by the preset's energy model: per sample, from its idle machine.

    Returns:
        The attribution and how it was got; None, and why, if the model knows no tasks like this one.
    """
    import numpy as np

    from attribution_sched.attribution.attributor import as_attributor
    from attribution_sched.types import Task

    read = [math.nan if figure.value is None else figure.value for figure in placed.counters.values()]
    task = Task(
        counters=np.array(read, dtype=np.float64), samples_per_s=placed.samples_per_s or 0.0, training=placed.training
    )
    try:
        vector = as_attributor(None, world).vector(task)
    except CounterError as error:
        return None, f"the preset's energy model knows no such tasks: {error}"
    how = "estimated by the preset's energy model of simulated tasks on its GPUs, not a reading of this machine"
    carried = f"; EmSHAP carries {', '.join(vector.missing)}" if vector.missing else ""
    near = (
        f"nearest known task {vector.provenance['like']}, {vector.provenance['distance']:.1f} standard deviations off"
    )
    return vector, f"{how} (median error {vector.provenance['median_error']:.0%}; {near}{carried})"


def submission(placed: Placed) -> dict[str, Any]:
    """What ``System.submit`` takes, and how each number of it was got; what could not be read is said to be so."""
    fields = {
        "kind": placed.model,
        "counters": {name: figure.value for name, figure in placed.counters.items() if figure.value is not None},
        "provenance": {
            name: "unavailable" if figure.value is None else figure.provenance
            for name, figure in placed.counters.items()
        },
    }
    return fields | ({} if placed.samples_per_s is None else {"samples_per_s": placed.samples_per_s})
