"""``attribution-sched export``: a journal for other tools."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from attribution_sched.cli.console import Stages, examples, say_json
from attribution_sched.errors import SettingsError, problem

EXAMPLES = examples(
    "attribution-sched export --journal runs/cross-domain-0-1/journal.sqlite -o decisions.parquet",
    "attribution-sched export --journal runs/cross-domain-0-1/journal.sqlite -o everything.json",
    "attribution-sched export --journal run.sqlite --kubernetes d000042 --image pytorch/pytorch:2.4.0 -o jobs.yaml",
    "attribution-sched export --journal run.sqlite --chakra d000042 -o traces/",
)


def export(
    journal: Annotated[Path, typer.Option("--journal", "-j", help="Journal to read; another process may write it.")],
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", help="New file: .parquet, .csv or .jsonl (one row per decision), or .json (everything)."
        ),
    ],
    kubernetes: Annotated[
        str | None,
        typer.Option(metavar="DECISION", help="Write the plan of this decision as Kubernetes Jobs (.yaml) instead."),
    ] = None,
    image: Annotated[str, typer.Option(help="Container image of those Jobs.")] = "",
    jobset: Annotated[
        bool, typer.Option("--jobset", help="One JobSet instead, for domains of one Kubernetes.")
    ] = False,
    chakra: Annotated[
        str | None,
        typer.Option(
            metavar="DECISION",
            help="Write the pipeline of this decision as Chakra traces for ASTRA-sim instead; --output is a folder.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print path, size and number of decisions as JSON.")] = False,
) -> None:
    """Write the decisions of a journal for other tools; a file of that name is replaced."""
    from attribution_sched.journal import Journal

    if chakra is not None:
        typer.echo(str(_chakra(journal, output, chakra)))
        return
    if kubernetes is not None:
        _kubernetes(journal, output, kubernetes, image, jobset=jobset)
        typer.echo(str(output))
        return

    with Stages() as stages, Journal.read(journal) as recording:
        count = recording.count()
        with stages.stage(f"exporting {count} decisions"):
            path = recording.export(output)
    if as_json:
        say_json({"path": str(path), "decisions": count, "bytes": path.stat().st_size})
    else:
        typer.echo(str(path))


def _chakra(path: Path, folder: Path, decision: str) -> Path:
    """Write the pipeline of a decision as traces.

    Raises:
        SettingsError: If it placed nothing, or the folder cannot be written.
        PlanError: If its plan is no pipeline.
        JournalError: If there is no such decision.
    """
    from attribution_sched.cluster.chakra import program_of, write
    from attribution_sched.cluster.live import SimulatedCluster
    from attribution_sched.executors.live import twin_of
    from attribution_sched.journal import Journal
    from attribution_sched.system.decision_records import plan_of
    from attribution_sched.system.replay import replay

    with Journal.read(path) as recording:
        record, header = recording.decision(decision), recording.header
        if record.plan is None:
            raise SettingsError(problem("decision", decision, "placed nothing", "Give one that placed a task"))
        from attribution_sched.config import load_settings

        made, world = twin_of(header) or (SimulatedCluster, load_settings(header.settings["world"]).build_world())
        seed = int(header.seeds["cluster"])
        cluster = made(world, seed, arrivals=header.settings.get("queue") == "preset")
        replay(cluster, recording, seed, stop=record.sequence, otherwise=[])
        view = cluster.pending()
    plan = plan_of(record.plan, [each.name for each in world.cluster.domains])
    assert plan is not None
    pipeline = program_of(view, plan)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return write(pipeline, folder, decision)
    except OSError as error:
        rule = f"cannot be written ({error.strerror})"
        raise SettingsError(problem("--output", str(folder), rule, "Choose another folder")) from error


def _kubernetes(path: Path, output: Path, decision: str, image: str, *, jobset: bool) -> None:
    """Write the plan of a decision as Jobs, or as one JobSet.

    Raises:
        SettingsError: If it placed nothing, or the file cannot be written.
        JournalError: If there is no such decision.
    """
    import yaml

    from attribution_sched.config import load_settings
    from attribution_sched.executors import kubernetes
    from attribution_sched.executors.records import jobs_of
    from attribution_sched.journal import Journal
    from attribution_sched.system.decision_records import plan_of

    with Journal.read(path) as recording:
        record = recording.decision(decision)
        task = recording.task(str(record.task_id))
        cluster = load_settings(recording.header.settings["world"]).build_world().cluster
        domains = [each.name for each in cluster.domains]
        plan, key = plan_of(record.plan, domains), recording.key(record.id)
    if plan is None:
        raise SettingsError(problem("decision", decision, "placed nothing", "Give one that placed a task"))
    command = tuple(task.meta.get("command") or ("true",))
    jobs = jobs_of(key, task.id, plan, domains, command, steps=task.steps, cap_w=cluster.cap_w)
    made = kubernetes.jobset(key, jobs, image=image) if jobset else None
    objects = kubernetes.manifests(key, jobs, image=image) if made is None else [made]
    try:
        output.write_text(yaml.safe_dump_all(objects, sort_keys=False), encoding="utf-8")
    except OSError as error:
        rule = f"cannot be written ({error.strerror})"
        raise SettingsError(problem("--output", str(output), rule, "Choose another file")) from error
