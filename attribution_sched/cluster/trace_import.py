"""Job logs of other systems as traces of this one: Philly, Alibaba's PAI, the Standard Workload Format, Slurm's sacct.

A log says when a job came, how many GPUs it held, for how long, and for whom. It hardly ever says what ran. So a model
is *drawn* for every job from the task kinds of a preset, by their shares, with a seed; and the job gets as many steps
of it as take its recorded duration when it is alone on the GPUs it asked for, by the cost model. Opaque kinds are drawn
only for jobs of their own number of devices; a number that none has is rounded down, and counted. All of this is said
in the result. GPU count and duration stay in the trace beside them (``gpus``, ``duration_s``).
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from attribution_sched.cluster.wan import read_trace_rows
from attribution_sched.errors import TraceError, nearest, problem
from attribution_sched.words.text import csv_text

if TYPE_CHECKING:
    from attribution_sched.cluster.world import World

COLUMNS = ("arrival_s", "model", "steps", "batch_size", "priority", "tenant", "mode", "gpus", "duration_s")
"""Columns of the trace that is written; the last two are kept from the log."""


@dataclass(frozen=True)
class LoggedJob:
    """One job of a log.

    Attributes:
        submitted_s: When it was submitted; any origin.
        duration_s: How long it ran.
        gpus: Devices it held.
        tenant: Who asked for it.
        line: Where it stands in the log.
    """

    submitted_s: float
    duration_s: float
    gpus: int
    tenant: str
    line: int


@dataclass(frozen=True)
class Imported:
    """What became of a log.

    Attributes:
        jobs: Jobs written.
        skipped: Jobs left out, by reason.
        gpu_hours: GPU-hours of those written.
        tenants: Tenants among them.
        drawn: Model → jobs that it was drawn for; a log does not say what ran.
        rounded: Jobs whose kind has fewer devices than the log says: no opaque kind has as many.
    """

    jobs: int
    skipped: dict[str, int]
    gpu_hours: float
    tenants: int
    drawn: dict[str, int]
    rounded: int = 0


def _error(path: str | Path, line: int, field: str, value: object, rule: str, fix: str) -> TraceError:
    return TraceError(f"{path}, line {line}: " + problem(field, value, rule, fix))


def _number(path: str | Path, line: int, field: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise _error(path, line, field, text, "must be a finite number", "Mend the line")
    return value


def _devices(path: str | Path, line: int, field: str, text: str) -> int:
    value = _number(path, line, field, text)
    if value < 0 or value != int(value):
        raise _error(path, line, field, text, "must be a whole number of GPUs, >= 0", "Mend the line")
    return int(value)


def _moment(path: str | Path, line: int, field: str, text: str) -> float:
    """A date and time, taken as UTC, in seconds."""
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()
    except ValueError:
        raise _error(
            path, line, field, text, "must be a date and time such as 2017-10-09 07:01:55", "Mend it"
        ) from None


def read_philly(path: str | Path) -> Iterator[LoggedJob]:
    """``timestamp, duration, num_gpus, gpu_time, cluster`` (Jeon et al. 2019, as in the AdaptDL simulator)."""
    for line, row in read_trace_rows(path, ("timestamp", "duration", "num_gpus", "cluster")):
        gpus = _devices(path, line, "num_gpus", row["num_gpus"])
        when = _moment(path, line, "timestamp", row["timestamp"])
        yield LoggedJob(when, _number(path, line, "duration", row["duration"]), gpus, row["cluster"], line)


def read_pai(path: str | Path) -> Iterator[LoggedJob]:
    """Alibaba's GPU trace (``openb_pod_list``): ``num_gpu, gpu_milli, creation_time, deletion_time, qos``.

    A share of a GPU counts as one.
    """
    for line, row in read_trace_rows(path, ("num_gpu", "creation_time", "deletion_time", "qos")):
        begun = _number(path, line, "creation_time", row["creation_time"])
        ended = _number(path, line, "deletion_time", row["deletion_time"])
        if ended < begun:
            rule = f"must not lie before creation_time = {begun:g}"
            raise _error(path, line, "deletion_time", row["deletion_time"], rule, "Swap them")
        yield LoggedJob(begun, ended - begun, _devices(path, line, "num_gpu", row["num_gpu"]), row["qos"], line)


def read_swf(path: str | Path) -> Iterator[LoggedJob]:
    """Standard Workload Format (Feitelson): 18 fields a line, comments after ``;``; processors stand for GPUs.

    ``-1`` means that a field is not known: a job of unknown length counts as one without time, and is left out.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise TraceError(problem("log", str(path), f"cannot be read ({error})", "Give a text file")) from error
    for line, text in enumerate(lines, start=1):
        fields = text.split(";")[0].split()
        if not fields:
            continue
        if len(fields) < 12:
            raise _error(path, line, "fields", len(fields), "must be 18, at least 12", "Give a file in SWF")
        numbers = [_number(path, line, f"field {i + 1}", fields[i]) for i in (1, 3, 4, 7, 11)]
        submitted, run, allocated, asked, user = numbers
        held = allocated if allocated > 0 else max(0.0, asked)
        if held != int(held):
            raise _error(path, line, "processors", held, "must be a whole number", "Mend the line")
        yield LoggedJob(submitted, 0.0 if run == -1.0 else run, int(held), f"user{int(user)}", line)


_GRES = re.compile(r"gres/gpu(:[\w.-]+)?=(\d{1,9})(?!\d)")


def _allocated(tres: str) -> int:
    """GPUs of a job: the total where Slurm writes one, else those of every type together."""
    found = _GRES.findall(tres)
    totals = [int(count) for kind, count in found if not kind]
    return totals[0] if totals else sum(int(count) for _, count in found)


def read_slurm(path: str | Path) -> Iterator[LoggedJob]:
    """``sacct -P -X -o JobID,Submit,ElapsedRaw,AllocTRES,Account`` (``User`` serves for the account)."""
    try:
        with Path(path).open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, delimiter="|")
            header = reader.fieldnames or []
            account = "Account" if "Account" in header else "User"
            for needed in ("JobID", "Submit", "ElapsedRaw", "AllocTRES", account):
                if needed not in header:
                    fix = "Write it by sacct -P -X -o JobID,Submit,ElapsedRaw,AllocTRES,Account"
                    raise _error(path, 1, "header", "|".join(header), f"must name the column {needed!r}", fix)
            for row in reader:
                line = reader.line_num
                if None in row or None in row.values():
                    rule = f"must have {len(header)} fields like the header"
                    raise _error(path, line, "row", list(row.values()), rule, "Mend the line")
                when = _moment(path, line, "Submit", row["Submit"])
                elapsed = _number(path, line, "ElapsedRaw", row["ElapsedRaw"])
                yield LoggedJob(when, elapsed, _allocated(row["AllocTRES"]), row[account] or "unknown", line)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise TraceError(problem("log", str(path), f"cannot be read ({error})", "Give a text file")) from error


READERS: dict[str, Callable[[str | Path], Iterator[LoggedJob]]] = {
    "philly": read_philly,
    "pai": read_pai,
    "swf": read_swf,
    "slurm": read_slurm,
}
"""Format → reader of its logs."""


def read_log(form: str, path: str | Path) -> list[LoggedJob]:
    """All jobs of a log in order of submission; negative times and an unknown format are errors."""
    if form not in READERS:
        raise TraceError(problem("format", form, "is not one that can be read", nearest(form, READERS)))
    jobs = list(READERS[form](path))
    for job in jobs:
        if job.duration_s < 0:
            raise _error(path, job.line, "duration", job.duration_s, "must be >= 0", "Remove the job or mend it")
        if job.submitted_s < 0:
            rule = "must be >= 0, seconds after the log begins"
            raise _error(path, job.line, "submission", job.submitted_s, rule, "Remove the job or mend it")
    if not jobs:
        raise TraceError(problem("log", str(path), "must hold at least one job", "Give another file"))
    return sorted(jobs, key=lambda job: (job.submitted_s, job.line))


def import_log(
    form: str,
    path: str | Path,
    world: World,
    output: str | Path,
    *,
    seed: int = 0,
    keep: float = 1.0,
    drop_larger: bool = False,
    hours: tuple[float, float] | None = None,
) -> Imported:
    """Turn a log into a trace that the world can replay.

    Args:
        form: Key of :data:`READERS`.
        path: The log.
        world: Where models are drawn from and durations become steps.
        output: CSV file to write.
        seed: Of the draw of models and of what is kept.
        keep: Part of the jobs to keep, drawn.
        drop_larger: Leave jobs out that ask for more GPUs than the cluster has, and count them; else they are an error.
        hours: Window after the first submission; all of the log by default.

    Raises:
        TraceError: The log cannot be read, a line is wrong, or a job is larger than the cluster.
    """
    if not 0 < keep <= 1:
        raise TraceError(problem("keep", keep, "must lie in (0, 1]", "Use 1 to keep all"))
    jobs = read_log(form, path)
    rng = np.random.default_rng(seed)
    origin = jobs[0].submitted_s + (hours[0] * 3600.0 if hours else 0.0)
    end = jobs[0].submitted_s + hours[1] * 3600.0 if hours else math.inf
    most = world.cluster.devices
    draw = _draws(world)
    skipped = {"no GPU or no time": 0, "not kept": 0, "larger than the cluster": 0, "outside the hours": 0}
    step_s = _step_times(world)
    rows, drawn, tenants = [], dict.fromkeys((kind.model.name for kind in world.kinds), 0), set()
    gpu_s, rounded = 0.0, 0
    for job in jobs:
        # Every job takes its numbers, so that a window or a limit leaves the others' models as they are.
        coin, choice = rng.random(), draw(job.gpus, rng.random())
        if not origin <= job.submitted_s < end:
            skipped["outside the hours"] += 1
        elif job.gpus < 1 or job.duration_s <= 0:
            skipped["no GPU or no time"] += 1
        elif coin >= keep:
            skipped["not kept"] += 1
        elif job.gpus > most:
            if not drop_larger:
                rule = f"is more than the cluster has, {most} devices"
                raise _error(path, job.line, "GPUs of the job", job.gpus, rule, "Leave such jobs out: --drop-larger")
            skipped["larger than the cluster"] += 1
        else:
            kind = world.kinds[choice]
            steps = max(1, round(job.duration_s / step_s(choice, job.gpus)))
            mode = "training" if kind.training else "inference"
            rows.append((f"{job.submitted_s - origin:.3f}", kind.model.name, steps, kind.batch_size, kind.priority,
                         csv_text(job.tenant), mode, job.gpus, f"{job.duration_s:.3f}"))  # fmt: skip
            drawn[kind.model.name] += 1
            rounded += kind.opaque and kind.measured_devices < job.gpus
            tenants.add(job.tenant)
            gpu_s += job.gpus * job.duration_s
    if not rows:
        raise TraceError(problem("log", str(path), f"no job is left ({skipped})", "Widen the hours or keep more"))
    try:
        with Path(output).open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(COLUMNS)
            writer.writerows(rows)
    except OSError as error:
        fix = "Name a file in a folder that is there"
        raise TraceError(problem("output", str(output), f"cannot be written ({error.strerror})", fix)) from error
    return Imported(len(rows), {k: n for k, n in skipped.items() if n}, gpu_s / 3600.0, len(tenants), drawn, rounded)


def _draws(world: World) -> Callable[[int, float], int]:
    """A job's GPUs and a number in [0, 1) → a kind, by the shares of those that may stand for it."""
    opaque = np.array([kind.opaque for kind in world.kinds])
    sizes = np.array([kind.measured_devices for kind in world.kinds])
    shares = np.array([kind.share for kind in world.kinds])

    def draw(gpus: int, at: float) -> int:
        own = sizes[opaque]
        size = max((int(each) for each in own if each <= gpus), default=int(own.min())) if own.size else 0
        weights = np.where(~opaque | (sizes == size), shares, 0.0).cumsum()
        return int(np.searchsorted(weights, at * weights[-1], side="right"))

    return draw


def _step_times(world: World) -> Callable[[int, int], float]:
    """Seconds of a step of a kind alone on so many devices of the largest domain (or all of it): its fastest layout."""
    from functools import cache

    from attribution_sched.cluster.compute import TP_DEGREES
    from attribution_sched.cluster.cost import CostModel
    from attribution_sched.cluster.gpus import Precision
    from attribution_sched.cluster.plan import Plan, Replica, Segment

    kinds = world.kinds
    cost = CostModel(world.cluster, [kind.model for kind in kinds], [kind.training for kind in kinds])
    where = max(range(len(world.cluster)), key=lambda k: world.cluster.domains[k].devices)
    domain = world.cluster.domains[where]
    precision = Precision.FP16 if domain.gpu.supports(Precision.FP16) else Precision.FP32

    @cache
    def seconds(kind: int, gpus: int) -> float:
        task, fastest = kinds[kind], math.inf
        usable = min(gpus, domain.devices)
        layouts = [(dp, tp, pp) for tp in TP_DEGREES for pp in (1, 2, 4, 8) for dp in (1, 2, 4, 8, 16, 32, 64)
                   if dp * tp * pp <= usable and tp <= domain.node_devices and pp <= len(task.model)]  # fmt: skip
        for dp, tp, pp in layouts:
            for micro in task.microbatches:
                if micro % dp == 0:
                    segment = Segment(where, 0, len(task.model), dp, tp, pp, precision)
                    plan = Plan((Replica((segment,), micro, task.batch_size // micro),))
                    # Where memory is too small the time still counts: the log ran the job somehow.
                    fastest = min(fastest, float(cost.score(plan, kind, breakdown=False).step_s[0]))
        return fastest

    return seconds
