"""``attribution-sched report``: the report of a journal."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from attribution_sched.cli.console import Stages, examples, say_json
from attribution_sched.cli.files import check_ending, check_folder, rebuild_system
from attribution_sched.errors import SettingsError, problem

EXAMPLES = examples(
    "attribution-sched report --journal runs/cross-domain-0-1/journal.sqlite -o report.html",
    "attribution-sched report -j runs/cross-domain-0-1/journal.sqlite -o report.md --lang zh",
)


def report(
    journal: Annotated[Path, typer.Option("--journal", "-j", help="Journal to read; another process may write it.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="File to write: .html, .json or .md; replaced if it is there.")
    ] = Path("report.html"),
    lang: Annotated[str, typer.Option(help="Language of words: en or zh.")] = "en",
    explain: Annotated[int, typer.Option(help="Decisions to explain, the most consequential.")] = 4,
    as_json: Annotated[bool, typer.Option("--json", help="Print path and size as JSON.")] = False,
) -> None:
    """Write the report of a journal: what was decided, why, what it came to, what was learnt."""
    from attribution_sched.explain.wording import check_language
    from attribution_sched.report.write import MOST

    check_language(lang)
    if not 0 <= explain <= MOST:
        rule = f"must be a whole number from 0 to {MOST}"
        raise SettingsError(problem("--explain", explain, rule, "Use 0 to explain nothing"))
    check_ending(output, "--output")
    check_folder(output, "--output")
    with Stages() as stages, rebuild_system(journal, stages) as system, stages.stage("writing the report") as tell:
        path = system.report(output, lang=lang, explain=explain, progress=lambda _, step, of: tell(step, of))
    if as_json:
        say_json({"path": str(path), "bytes": path.stat().st_size})
    else:
        typer.echo(str(path))
