"""Which tasks may come in: what may be said of a task, which counters are believed, and whether it fits anywhere.

One clear error for the rest, at the door; what came in never has to be refused again.
"""

from __future__ import annotations

import contextlib
import math
import operator
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from attribution_sched.cluster.counters import COUNTER_NAMES, counters, throughput
from attribution_sched.cluster.demands import draw_demands
from attribution_sched.cluster.live import MOST_WAITING, SimulatedCluster, TaskInstance
from attribution_sched.cluster.world import SIMULATED as ALL_SIMULATED
from attribution_sched.cluster.world import TaskKind, World
from attribution_sched.errors import CounterError, JournalError, TaskError, nearest, problem
from attribution_sched.journal import Journal, TaskRecord
from attribution_sched.limits import name_rule
from attribution_sched.system.admission_counters import MEASURED, SIMULATED, checked, readings_of
from attribution_sched.system.operations import check_tenant
from attribution_sched.types import Task


@dataclass(frozen=True)
class TaskRequest:
    """A task to hand in.

    Attributes:
        kind: Name of a model of the preset.
        steps: Work in steps; the middle of what the preset gives such tasks by default.
        batch: Samples per step; only needed where the preset has the model with several.
        training: False for inference; whichever the preset has by default, training first.
        counters: Name of a counter → its reading, if somebody measured the task. Those of the seven that joules are
            attributed to and that are not given could not be read, and EmSHAP carries them. Simulated by default.
        provenance: Name of a counter → measured, estimated, simulated or unavailable; measured by default. One that is
            unavailable has no reading.
        samples_per_s: Measured throughput; estimated from the counters by default.
        id: A name of its own; given by default.
        tenant: Who asks for it; its kind's by default.
        priority: Larger is more urgent, a whole number from −1000 to 1000; its kind's by default.
        deadline_s: When it must have finished, in seconds from now; by default its kind's, if that has one.
        devices: Devices that it may use at most, in all; left to the scheduler by default.
        hold: Whether it is to wait aside, until ``System.release``.
        command: What runs for it on a real cluster, word by word; the cluster's own by default. A simulated cluster
            keeps it and runs nothing.
    """

    kind: str
    steps: int | None = None
    batch: int | None = None
    training: bool | None = None
    counters: Mapping[str, float] = field(default_factory=dict)
    provenance: Mapping[str, str] = field(default_factory=dict)
    samples_per_s: float | None = None
    id: str = ""
    tenant: str | None = None
    priority: int | None = None
    deadline_s: float | None = None
    devices: int | None = None
    hold: bool = False
    command: Sequence[str] | None = None


MOST_URGENT = 1000
"""Priorities go from minus this to this: more steps of urgency than anybody tells apart."""

FASTEST = 1e12
"""Samples a second; more than any machine works off."""

LONGEST_DEADLINE_S = 1e9
"""Seconds to a deadline; some thirty years."""

DEMO: tuple[TaskRequest, ...] = (
    TaskRequest("resnet-50", training=True, id="ResNet50"),
    TaskRequest("bert-base", training=True, id="BERT"),
    TaskRequest("efficientnet-b0", training=False, id="EfficientNet"),
)
"""The three tasks of the demonstration: a convolutional network and a language model trained, a light one served."""


def demo_of(world: World) -> tuple[TaskRequest, ...]:
    """The tasks of the demonstration; where the preset has other kinds, its three smallest, as short as any."""
    models = {kind.model.name.lower() for kind in world.kinds}
    if all(request.kind in models for request in DEMO):
        return DEMO
    smallest = {kind.model.name: kind for kind in sorted(world.kinds, key=lambda kind: -kind.model.params)}
    listed = sorted(smallest.values(), key=lambda kind: kind.model.params)[: len(DEMO)]
    return tuple(
        TaskRequest(kind.model.name, steps=kind.steps[0], batch=kind.batch_size, training=kind.training,
                    id=f"demo-{kind.model.name}")
        for kind in listed
    )  # fmt: skip


def as_request(task: Any, options: Mapping[str, Any]) -> TaskRequest:
    """A request from a name, a mapping or a request, with fields given beside it.

    Raises:
        TaskError: If it is none of these, or has a field that does not exist.
    """
    names = [each.name for each in fields(TaskRequest)]
    if isinstance(task, TaskRequest):
        task = {name: getattr(task, name) for name in names}
    elif isinstance(task, str):
        task = {"kind": task}
    elif not isinstance(task, Mapping):
        fix = "For example submit('resnet-50', steps=1000)"
        raise TaskError(problem("task", task, "must be a kind of task by name, a mapping or a TaskRequest", fix))
    merged = {**task, **options}
    for name in merged:
        if name not in names:
            raise TaskError(problem("task field", name, "does not exist", nearest(name, names)))
    if "kind" not in merged:
        raise TaskError(problem("task.kind", None, "is missing", "Name a kind of task of the preset"))
    return TaskRequest(**merged)


def kind_of(world: World, request: TaskRequest) -> int:
    """Row of the kind that a request means.

    Raises:
        TaskError: If the preset has no such kind.
    """
    listed = list(enumerate(world.kinds))
    models = sorted({kind.model.name for kind in world.kinds})
    by_name = {name.lower(): name for name in models}
    wanted = by_name.get(request.kind.lower()) if isinstance(request.kind, str) else None
    if wanted is None:
        own = "a model of your own goes under models: of the preset, see attribution-sched profile --into"
        fix = f"{nearest(request.kind, models)}; {own}"
        raise TaskError(problem("task.kind", request.kind, "is not a kind of this preset", fix))
    listed = [(row, kind) for row, kind in listed if kind.model.name == wanted]
    if request.training is not None:
        if not isinstance(request.training, int | np.bool_):
            raise TaskError(problem("task.training", request.training, "must be True or False", "Leave it out"))
        modes = sorted({kind.training for _, kind in listed})
        listed = [(row, kind) for row, kind in listed if kind.training == request.training]
        if not listed:
            rule = f"the preset has {wanted} only with training in {modes}"
            raise TaskError(problem("task.training", request.training, rule, f"Use training={modes[0]}"))
    if request.batch is not None:
        if not isinstance(request.batch, int | float | np.number):
            raise TaskError(problem("task.batch", request.batch, "must be a whole number", "Leave it out"))
        sizes = sorted({kind.batch_size for _, kind in listed})
        listed = [(row, kind) for row, kind in listed if kind.batch_size == request.batch]
        if not listed:
            rule = f"the preset has {wanted} with batches of {sizes} samples"
            raise TaskError(problem("task.batch", request.batch, rule, f"Use batch={sizes[0]}, or add a kind to it"))
    return min(listed, key=lambda entry: (not entry[1].training, entry[0]))[0]


MOST_STEPS = 10**12
"""Steps of a task at most: at a millisecond each, 30 years."""


def steps_of(kind: TaskKind, steps: Any) -> int:
    """Work in steps, a whole number from 1 on.

    Raises:
        TaskError: If it is none.
    """
    if steps is None:
        return max(1, round(math.sqrt(kind.steps[0] * kind.steps[1])))
    try:
        count = 0 if isinstance(steps, bool) else operator.index(steps)
    except TypeError:
        count = 0
    if not 1 <= count <= MOST_STEPS:
        usual = f"Tasks of this kind usually have {kind.steps[0]} to {kind.steps[1]}"
        raise TaskError(problem("task.steps", steps, f"must be a whole number >= 1 and <= {MOST_STEPS:,}", usual))
    return count


def asked_for(request: TaskRequest, world: World, now_s: float) -> dict[str, Any]:
    """What a request says of tenant, priority, deadline, devices and hold, as fields of a task.

    What it leaves out is left out.

    Raises:
        TaskError: If one of them is wrong.
    """
    fields: dict[str, Any] = {}
    if request.samples_per_s is not None:
        if not _is_number(request.samples_per_s) or not 0.0 < request.samples_per_s <= FASTEST:
            rule = f"must be a number of samples a second, above 0, at most {FASTEST:g}"
            fix = "Leave it out to have it estimated from the counters"
            raise TaskError(problem("task.samples_per_s", request.samples_per_s, rule, fix))
        fields["samples_per_s"] = float(request.samples_per_s)
    if request.tenant is not None:
        fields["tenant"] = check_tenant("task.tenant", request.tenant, TaskError)
    if request.priority is not None:
        rule = f"must be a whole number from -{MOST_URGENT} to {MOST_URGENT}"
        fix = "Larger is more urgent"
        fields["priority"] = _whole("priority", request.priority, -MOST_URGENT, MOST_URGENT, rule, fix)
    if request.deadline_s is not None:
        if not _is_number(request.deadline_s) or not 0.0 < request.deadline_s <= LONGEST_DEADLINE_S:
            rule = f"must be a number of seconds from now, above 0, at most {LONGEST_DEADLINE_S:g}"
            raise TaskError(problem("task.deadline_s", request.deadline_s, rule, "For example 3600.0 for an hour"))
        fields["deadline_s"] = now_s + float(request.deadline_s)
    if request.devices is not None:
        most = world.cluster.devices
        rule = f"must be a whole number from 1 to {most}, which the cluster has"
        fields["devices"] = _whole(
            "devices", request.devices, 1, most, rule, "Leave it out to let the scheduler choose"
        )
    if not isinstance(request.hold, bool | np.bool_):
        raise TaskError(problem("task.hold", request.hold, "must be True or False", "Leave it out"))
    return fields | ({"hold": True} if request.hold else {})


def _words(command: Any) -> list[str]:
    words = list(command) if isinstance(command, Sequence) and not isinstance(command, str | bytes) else []
    if not words or not all(isinstance(word, str) and "\0" not in word for word in words):
        fix = "For example command=['python', 'train.py']"
        raise TaskError(problem("task.command", command, "must be a list of words, at least one", fix))
    return words


def _whole(name: str, value: Any, least: int, most: int, rule: str, fix: str) -> int:
    try:
        integer = None if isinstance(value, bool | np.bool_) else operator.index(value)
    except TypeError:
        integer = None
    if integer is None or not least <= integer <= most:
        raise TaskError(problem(f"task.{name}", value, rule, fix))
    return integer


def _is_number(value: Any) -> bool:
    number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    return number and math.isfinite(value)


def instance(
    world: World,
    kind: int,
    steps: int,
    readings: Mapping[str, Any],
    seed: tuple[int, ...],
    how: Mapping[str, str] | None = None,
    fields: Mapping[str, Any] | None = None,
) -> TaskInstance:
    """A task as the cluster takes it; a measured one is simulated with the demands its architecture has by itself.

    Args:
        world: The world.
        kind: Row of its kind.
        steps: Work in steps.
        readings: Measured counters; none to have them simulated.
        seed: Of its latent demands and the noise of its counters.
        how: Provenance of every counter; those given are measured by default.
        fields: What was asked for besides, see :func:`asked_for`; as its kind by default.
    """
    rng = np.random.default_rng(seed)
    what = world.kinds[kind]
    demands = draw_demands([what.model], rng, 0.0 if readings else world.idiosyncrasy, training=what.training)
    simulated = counters(demands, rng).values[0]
    task = Task(
        kind_index=kind, model=what.model.name, steps=float(steps), batch_size=what.batch_size, training=what.training,
        tenant=what.tenant, priority=what.priority, counters=simulated, provenance=ALL_SIMULATED,
        measured_devices=what.measured_devices,
    )  # fmt: skip
    task = replace(task, **(fields or {}))
    if not readings:
        pace = task.samples_per_s or float(throughput(demands, rng)[0])
        return TaskInstance(replace(task, samples_per_s=pace), demands)
    values = readings_of(readings, simulated)
    ways = {name: MEASURED if name in readings else SIMULATED for name in COUNTER_NAMES} if how is None else dict(how)
    return TaskInstance(replace(task, counters=values, provenance=ways), demands)


def prepared(
    task: Any, fields: Mapping[str, Any], world: World, seed: int, journal: Journal, cluster: SimulatedCluster
) -> tuple[TaskRecord, TaskInstance]:
    """A task as the journal keeps it and as the cluster takes it; nothing is done yet.

    Raises:
        TaskError: If it is not a task of the preset, its id is taken, or the queue is full.
        CounterError: If a counter or its provenance is wrong.
    """
    request = as_request(task, fields)
    kind = kind_of(world, request)
    steps = steps_of(world.kinds[kind], request.steps)
    number = cluster.came
    name = _named(request.id, number, journal)
    given_readings, how = checked(request.counters, request.provenance)
    more = asked_for(request, world, cluster.now_s)
    made = instance(world, kind, steps, given_readings, (seed, number), how, more)
    _attributable(cluster, made.task)
    if not cluster.accepts:
        rule = f"{cluster.waiting} tasks wait already, and no more than {MOST_WAITING} may"
        raise TaskError(problem("task", name, rule, "Let some be placed with schedule_next_task() first"))
    meta = {
        "kind_index": kind,
        "number": number,
        "after_decisions": journal.count(),
        "measured": bool(given_readings),
        "provenance": how if given_readings else dict.fromkeys(COUNTER_NAMES, SIMULATED),
    }
    if more:
        meta["asked"] = more
    if request.command is not None:
        meta["command"] = _words(request.command)
    readings = dict(zip(COUNTER_NAMES, made.counters.tolist(), strict=True))
    return TaskRecord(name, world.kinds[kind].model.name, steps, cluster.now_s, readings, meta), made


def _attributable(cluster: SimulatedCluster, task: Task) -> None:
    """Refuse a task whose joules nobody can say the place of, before anything is recorded.

    Raises:
        CounterError: With what the attributor said.
    """
    try:
        vector = cluster.attributed(task).attribution
        state = None if vector is None else vector.state
    except Exception as error:  # Whatever an attributor raises, it must not be met again at every decision.
        reason = str(error) or type(error).__name__
        rule = f"the attributor cannot say where its joules go ({type(error).__name__}: {reason})"
        raise CounterError(problem("task.counters", task.model, rule, "Mend the counters or the attributor")) from error
    if state is not None and not np.isfinite(state).all():
        rule = "the attributor gives numbers that are not finite"
        raise CounterError(problem("task.counters", task.model, rule, "Mend the counters or the attributor"))


def _named(wanted: Any, number: int, journal: Journal) -> str:
    if wanted is None or (isinstance(wanted, str) and not wanted):
        return f"t{number:06d}"
    if isinstance(wanted, str) and (rule := name_rule(wanted)) is not None:
        raise TaskError(problem("task.id", wanted, rule, "Choose another name, or none"))
    if not isinstance(wanted, str) or re.fullmatch(r"t\d+", wanted):
        rule = "must be a word, and not of the form t000000, which tasks without a name get"
        raise TaskError(problem("task.id", wanted, rule, "Choose another name, or none"))
    with contextlib.suppress(JournalError):
        journal.task(wanted)
        raise TaskError(problem("task.id", wanted, "is another task's", "Give every task its own id"))
    return wanted


def from_record(world: World, record: TaskRecord, seed: int) -> TaskInstance:
    """The very task that was handed in, from the journal."""
    meta = record.meta
    readings = dict(record.counters) if meta["measured"] else {}
    return instance(
        world, int(meta["kind_index"]), record.steps, readings, (seed, int(meta["number"])), meta.get("provenance"),
        meta.get("asked"),
    )  # fmt: skip


def handed_in(world: World, record: TaskRecord, seed: int) -> TaskInstance | None:
    """The very task from the journal if it was handed in; None if the simulation sent it."""
    return from_record(world, record, seed) if "after_decisions" in record.meta else None
