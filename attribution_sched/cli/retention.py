"""``attribution-sched archive`` and ``compact``: journals that have grown, and ``doctor --verify``: are they whole?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from attribution_sched.cli.console import Stages, examples, out, say_json

ARCHIVE = examples(
    "attribution-sched archive --journal day.sqlite -o day-old.sqlite",
    "attribution-sched archive --journal day.sqlite -o day-old.sqlite --before 100000 --json",
)
COMPACT = examples("attribution-sched compact --journal day.sqlite", "attribution-sched compact -j day.sqlite --json")

Writing = Annotated[Path, typer.Option("--journal", "-j", help="Journal; no other process may be writing it.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print what was done as JSON.")]


def archive(
    journal: Writing,
    output: Annotated[Path, typer.Option("--output", "-o", help="New file for the old decisions: a journal itself.")],
    before: Annotated[
        int | None,
        typer.Option(help="Move decisions numbered below this; by default what the newest snapshot includes."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Move old decisions of a journal to a file of their own, all of them or none.

    What is left can be resumed and verified: it begins with the hash of the last row that was moved. The room is given
    back by `compact`.
    """
    from attribution_sched.journal import Journal

    with Stages(quiet=as_json) as stages, Journal.open(journal) as recording, stages.stage("archiving"):
        first = recording.first()
        moved = recording.archive(output, before)
    if as_json:
        say_json({"path": str(output), "first": first, "before": moved.before, "last_hash": moved.last_hash})
    else:
        out().print(escape(f"decisions {first} to {moved.before - 1} are in {output}, up to {moved.last_hash}"))


def compact(
    journal: Writing,
    keep_newest: Annotated[int, typer.Option(help="Newest snapshots to keep.")] = 4,
    keep_every: Annotated[int, typer.Option(help="Of older snapshots, keep every so many-th; 0 keeps none.")] = 32,
    as_json: AsJson = False,
) -> None:
    """Drop old snapshots of a journal and give unused room back; no record is touched."""
    from attribution_sched.journal import Journal

    with Stages(quiet=as_json) as stages, Journal.open(journal) as recording, stages.stage("compacting"):
        before, after = recording.compact(keep_newest=keep_newest, keep_every=keep_every)
    if as_json:
        say_json({"bytes_before": before, "bytes_after": after})
    else:
        out().print(f"{before:,} bytes before, {after:,} now")


def verify(journal: Path, *, as_json: bool) -> None:
    """Check every row and page of a journal, say what its newest hash is, and live through it again."""
    from attribution_sched.executors.live import twin_of
    from attribution_sched.journal import Journal
    from attribution_sched.system.replay import live_through

    with Stages(quiet=as_json) as stages, Journal.read(journal) as recording:
        with stages.stage(f"verifying {recording.count()} decisions"):
            verified = recording.verify()
        archives = [each.path for each in recording.archives()]
        with stages.stage(f"living through {recording.count()} decisions again"):
            lived = live_through(recording, *(twin_of(recording.header) or ()))
    otherwise = None if lived is None else lived[1]
    if as_json:
        facts = {
            "rows": verified.rows, "first": verified.first, "head": verified.head, "archives": archives,
            "lived_through": otherwise is not None, "priced_otherwise": otherwise or [],
        }  # fmt: skip
        say_json({"journal": str(journal), "whole": True, **facts})
        return
    words = f"{journal} is whole: {verified.rows:,} rows from position {verified.first} on, newest hash {verified.head}"
    out().print(escape(words), soft_wrap=True)
    if archives:
        out().print(escape(f"Earlier rows are in {', '.join(archives)}; verify them there"), soft_wrap=True)
    if otherwise is None:
        out().print("It was not lived through again: no system wrote it, or its beginning is archived")
    elif otherwise:
        some = ", ".join(otherwise[:5]) + (" …" if len(otherwise) > 5 else "")
        out().print(escape(f"{len(otherwise)} decisions come out at other prices in this release: {some}"))
    else:
        out().print("Lived through again, every decision comes out as recorded")
