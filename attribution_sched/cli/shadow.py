"""``attribution-sched shadow``: a real queue, read and never touched."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from attribution_sched.cli.console import columns, examples, out, say_json
from attribution_sched.errors import SettingsError, problem

if TYPE_CHECKING:
    from attribution_sched.executors.shadow import Advice, Shadow

EXAMPLES = examples(
    "attribution-sched shadow --slurm",
    "attribution-sched shadow --slurm --job 4711",
    "attribution-sched shadow --slurm --what-if 'devices 4711 2'",
    "attribution-sched shadow --slurm --what-if 'drop node17'",
    "attribution-sched shadow --kueue workloads.json --queues queues.json",
    "attribution-sched shadow --squeue squeue.json --nodes nodes.json --sacct sacct.json --json",
)
READ, TELLING = "What is read", "What is printed"
MOST_SHIFTS = 5
"""Jobs that are named whose start a change would move."""


def shadow(
    slurm: Annotated[bool, typer.Option("--slurm", help="This machine's Slurm.", rich_help_panel=READ)] = False,
    conf: Annotated[Path | None, typer.Option(help="slurm.conf of another controller.", rich_help_panel=READ)] = None,
    squeue: Annotated[Path | None, typer.Option(help="Recorded squeue --json instead.", rich_help_panel=READ)] = None,
    nodes: Annotated[
        Path | None,
        typer.Option(help="Recorded sinfo --Node --json, or scontrol show nodes --json.", rich_help_panel=READ),
    ] = None,
    sacct: Annotated[Path | None, typer.Option(help="Recorded sacct --json.", rich_help_panel=READ)] = None,
    kueue: Annotated[
        Path | None,
        typer.Option(help="Recorded Kueue Workloads (kubectl get workloads -A -o json).", rich_help_panel=READ),
    ] = None,
    queues: Annotated[
        Path | None,
        typer.Option(help="Recorded ClusterQueues and LocalQueues that go with them.", rich_help_panel=READ),
    ] = None,
    resource: Annotated[
        str, typer.Option(help="What counts as a device there.", rich_help_panel=READ)
    ] = "nvidia.com/gpu",
    job: Annotated[str | None, typer.Option(help="One job only.", rich_help_panel=TELLING)] = None,
    change: Annotated[
        str | None,
        typer.Option(
            "--what-if",
            help="One change: 'drop NODE', 'add 4@DOMAIN', 'without JOB', 'move JOB DOMAIN', 'devices JOB 2', "
            "'limit JOB 30m' or 'first JOB'.",
            rich_help_panel=TELLING,
        ),
    ] = None,
    lang: Annotated[str, typer.Option(help="Language of --what-if: en or zh.", rich_help_panel=TELLING)] = "en",
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.", rich_help_panel=TELLING)] = False,
) -> None:
    """Read a real queue and say, for every job that waits, why, when it may start, and where it would have sooner.

    With --what-if, what a change would do instead: the queue is played on with and without it, under the same futures.

    Nothing is submitted, changed or cancelled, and no right is needed. Start times are intervals: the middle 80 % of
    futures in which jobs use of their limits what jobs of the past week did.
    """
    from attribution_sched.executors.shadow import advise

    if kueue is not None:
        cluster = read_recorded_kueue(kueue, queues, resource, alone=not slurm and squeue is None)
    else:
        cluster = read(slurm=slurm, conf=conf, squeue=squeue, nodes=nodes, sacct=sacct)
    if change is not None:
        answer(cluster, change, lang, as_json=as_json)
        return
    advice = advise(cluster)
    if job is not None:
        cluster.job(job)
        advice = [each for each in advice if each.job == job]
    if as_json:
        say_json(as_dict(cluster, advice))
    else:
        show(cluster, advice, job)


def answer(shadow: Shadow, change: str, lang: str, *, as_json: bool) -> None:
    """Say what a change would do.

    Raises:
        SettingsError: If it is none.
    """
    from attribution_sched.cli.what_if import as_dict as what_if_dict
    from attribution_sched.cli.what_if import effects_table
    from attribution_sched.explain.queue_what_if import queue_what_if, read_queue_change, shift_words
    from attribution_sched.explain.wording import check_language

    check_language(lang)
    effects = queue_what_if(shadow, read_queue_change(shadow, change))
    if as_json:
        say_json({"source": shadow.source, "unix_s": shadow.unix_s, "what_if": what_if_dict(effects, lang)})
        return
    console, width = out(), columns()
    console.print(escape(effects.say(lang)), width=width)
    console.print(effects_table(effects, lang))
    for shift in effects.shifts[:MOST_SHIFTS]:
        console.print(escape(shift_words(shift).say(lang)), width=width)


def read(*, slurm: bool, conf: Path | None, squeue: Path | None, nodes: Path | None, sacct: Path | None) -> Shadow:
    """The queue that was asked for.

    Raises:
        SettingsError: If it is not said which, or a file cannot be read.
        ExecutorError: If the engine does not answer.
    """
    from attribution_sched.executors.shadow import read_json, read_live
    from attribution_sched.executors.slurm import ask_slurm

    if slurm == (squeue is not None):
        rule = "either a live Slurm or recorded files are read"
        raise SettingsError(problem("shadow", {"--slurm": slurm, "--squeue": str(squeue)}, rule, "Give --slurm"))
    if slurm:
        return read_live(lambda *command: ask_slurm(command, conf), time.time())
    if nodes is None or squeue is None:
        raise SettingsError(problem("--nodes", None, "is missing", "Record sinfo --Node --json, and give it"))
    texts = [_text(path) for path in (squeue, nodes, sacct) if path is not None]
    past = texts[2] if len(texts) > 2 else ""
    return read_json(texts[0], texts[1], squeue.stat().st_mtime, past, source=f"recorded: {squeue.name}")


def read_recorded_kueue(workloads: Path, queues: Path | None, resource: str, *, alone: bool) -> Shadow:
    """The queue of recorded Kueue objects.

    Raises:
        SettingsError: If the queues are missing, or a Slurm is asked for as well.
        ExecutorError: If they are no such objects.
    """
    from attribution_sched.executors.kueue import read_kueue

    if not alone:
        raise SettingsError(problem("--kueue", str(workloads), "goes with no Slurm", "Ask for one of them"))
    if queues is None:
        fix = "Record kubectl get clusterqueues,localqueues -A -o json, and give it"
        raise SettingsError(problem("--queues", None, "is missing", fix))
    source, now = f"recorded: {workloads.name}", workloads.stat().st_mtime if workloads.exists() else 0.0
    return read_kueue(_text(workloads), _text(queues), now, resource=resource, source=source)


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(problem("file", str(path), f"cannot be read ({error})", "Give a recorded file")) from error


def as_dict(shadow: Shadow, advice: list[Advice]) -> dict[str, Any]:
    """Everything, for other programs."""
    return {
        "source": shadow.source,
        "unix_s": shadow.unix_s,
        "domains": {
            name: {"devices": shadow.devices(name), "free": shadow.free(name), "waiting": len(shadow.waiting(name))}
            for name in shadow.domains
        },
        "jobs": [asdict(each) for each in advice],
        "saved_s": sum(each.saved_s for each in advice),
    }


def show(shadow: Shadow, advice: list[Advice], job: str | None) -> None:
    """As a table, and in words."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    console = out(wide=True)
    for name in shadow.domains:
        free, devices, waiting = shadow.free(name), shadow.devices(name), len(shadow.waiting(name))
        console.print(f"[bold]{escape(name)}[/bold]: {free} of {devices} devices free, {waiting} jobs wait")
    if job is not None and not advice:
        console.print(f"job {escape(job)} runs")
        return
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for heading in ("Job", "Domain", "Why", "Slurm says", "Starts in", "80 % between", "Sooner in", "Saves"):
        table.add_column(heading)
    for each in advice[:200]:
        when = between = "-"
        if each.starts is not None:
            when = _span(each.starts.middle_unix_s - shadow.unix_s)
            low, high = (at - shadow.unix_s for at in (each.starts.low_unix_s, each.starts.high_unix_s))
            between = f"{_span(low)} and {_span(high)}"
        saves = _span(each.saved_s) if each.better and each.starts is not None else ""
        table.add_row(
            escape(each.job),
            escape(each.domain),
            each.cause,
            escape(each.reason),
            when,
            between,
            each.better or "",
            saves,
        )
    console.print(table)
    saved = sum(each.saved_s for each in advice)
    words = f"{len(advice)} jobs wait; deciding between domains would have saved {_span(saved)} of waiting"
    console.print(f"{words}. Nothing was touched.")


def _span(seconds: float) -> str:
    """A time that a person can read."""
    value = max(0.0, seconds)
    for unit, size in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if value >= size:
            return f"{value / size:.1f} {unit}"
    return f"{value:.0f} s"
