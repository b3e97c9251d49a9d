"""``attribution-sched export``: a journal for other tools."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from attribution_sched.cli.console import Stages, examples, say_json

EXAMPLES = examples(
    "attribution-sched export --journal runs/cross-domain-0-1/journal.sqlite -o decisions.parquet",
    "attribution-sched export --journal runs/cross-domain-0-1/journal.sqlite -o everything.json",
)


def export(
    journal: Annotated[Path, typer.Option("--journal", "-j", help="Journal to read; another process may write it.")],
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", help="New file: .parquet, .csv or .jsonl (one row per decision), or .json (everything)."
        ),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print path, size and number of decisions as JSON.")] = False,
) -> None:
    """Write the decisions of a journal for other tools; a file of that name is replaced."""
    from attribution_sched.journal import Journal

    with Stages() as stages, Journal.read(journal) as recording:
        count = recording.count()
        with stages.stage(f"exporting {count} decisions"):
            path = recording.export(output)
    if as_json:
        say_json({"path": str(path), "decisions": count, "bytes": path.stat().st_size})
    else:
        typer.echo(str(path))
