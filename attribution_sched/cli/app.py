"""The commands under one name."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated

import typer

from attribution_sched import __version__
from attribution_sched.cli.attribute import EXAMPLES as ATTRIBUTE
from attribution_sched.cli.attribute import attribute
from attribution_sched.cli.bench import bench
from attribution_sched.cli.bill import EXAMPLES as BILL
from attribution_sched.cli.bill import bill
from attribution_sched.cli.blame import EXAMPLES as BLAME
from attribution_sched.cli.blame import blame
from attribution_sched.cli.compile import EXAMPLES as COMPILE
from attribution_sched.cli.compile import compile_kernels
from attribution_sched.cli.console import Commands, examples
from attribution_sched.cli.doctor import EXAMPLES as DOCTOR
from attribution_sched.cli.doctor import doctor
from attribution_sched.cli.explain import EXAMPLES as EXPLAIN
from attribution_sched.cli.explain import explain
from attribution_sched.cli.export import EXAMPLES as EXPORT
from attribution_sched.cli.export import export
from attribution_sched.cli.import_log import EXAMPLES as IMPORT
from attribution_sched.cli.import_log import import_log
from attribution_sched.cli.init import EXAMPLES as INIT
from attribution_sched.cli.init import init
from attribution_sched.cli.probe import probe
from attribution_sched.cli.profile import EXAMPLES as PROFILE
from attribution_sched.cli.profile import profile
from attribution_sched.cli.report import EXAMPLES as REPORT
from attribution_sched.cli.report import report
from attribution_sched.cli.retention import ARCHIVE, COMPACT, archive, compact
from attribution_sched.cli.run import EXAMPLES as RUN
from attribution_sched.cli.run import run
from attribution_sched.cli.serve import EXAMPLES as SERVE
from attribution_sched.cli.serve import serve
from attribution_sched.cli.shadow import EXAMPLES as SHADOW
from attribution_sched.cli.shadow import shadow
from attribution_sched.cli.simulate import EXAMPLES as SIMULATE
from attribution_sched.cli.simulate import simulate
from attribution_sched.cli.train import EXAMPLES as TRAIN
from attribution_sched.cli.train import train
from attribution_sched.cli.what_if import EXAMPLES as WHAT_IF
from attribution_sched.cli.what_if import what_if
from attribution_sched.cli.when import EXAMPLES as WHEN
from attribution_sched.cli.when import when
from attribution_sched.cli.why import EXAMPLES as WHY
from attribution_sched.cli.why import why
from attribution_sched.cli.why_not import EXAMPLES as WHY_NOT
from attribution_sched.cli.why_not import why_not

LOOP, POLICIES, MACHINE = "The loop", "Policies", "This machine"

app = typer.Typer(
    name="attribution-sched",
    cls=Commands,
    help="Explainability-first scheduling of AI workloads: counters to joules, joules to placements, placements to "
    "reasons.",
    epilog=examples(
        "attribution-sched run",
        "attribution-sched explain last --journal runs/cross-domain-0-1/journal.sqlite",
    )
    + "\n\nExit codes: 0 all went well, 1 something failed, 2 the input is wrong, 130 stopped by Ctrl-C.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode="rich",
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _root(
    _: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Explainability-first scheduling of AI workloads."""


def _add(panel: str, command: Callable[..., None], epilog: str, name: str | None = None) -> None:
    # Typer keeps the line ends of all paragraphs but the first.
    paragraphs = inspect.cleandoc(command.__doc__ or "").split("\n\n")
    text = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
    app.command(name, rich_help_panel=panel, epilog=epilog, help=text)(command)


_add(LOOP, run, RUN)
_add(LOOP, explain, EXPLAIN)
_add(LOOP, why, WHY)
_add(LOOP, why_not, WHY_NOT)
_add(LOOP, when, WHEN)
_add(LOOP, what_if, WHAT_IF)
_add(LOOP, blame, BLAME)
_add(LOOP, report, REPORT)
_add(LOOP, serve, SERVE)
_add(LOOP, bill, BILL)
_add(LOOP, export, EXPORT)
_add(LOOP, shadow, SHADOW)
_add(LOOP, archive, ARCHIVE)
_add(LOOP, compact, COMPACT)
_add(LOOP, import_log, IMPORT, name="import")
_add(POLICIES, train, TRAIN)
app.add_typer(bench, rich_help_panel=POLICIES)
_add(POLICIES, simulate, SIMULATE)
_add(MACHINE, init, INIT)
_add(MACHINE, profile, PROFILE)
_add(MACHINE, attribute, ATTRIBUTE)
# `profile links` and `profile stages` are commands of their own, see console.spelled.
app.add_typer(probe, rich_help_panel=MACHINE, hidden=True)
_add(MACHINE, doctor, DOCTOR)
_add(MACHINE, compile_kernels, COMPILE, name="compile")


@app.command(rich_help_panel=MACHINE)
def version() -> None:
    """Print the version."""
    typer.echo(__version__)


def main() -> None:
    """Entry point."""
    app()
