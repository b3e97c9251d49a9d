"""``attribution-sched doctor``: does the product work here, and what can this machine measure?"""

from __future__ import annotations

import dataclasses
import os
import platform
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from attribution_sched import __version__
from attribution_sched.cli.console import FAILED, Stages, examples, out, say_json
from attribution_sched.cli.retention import verify

if TYPE_CHECKING:
    from attribution_sched.attribution.sources import Capability

EXAMPLES = examples(
    "attribution-sched doctor",
    "attribution-sched doctor --verify day.sqlite",
    "attribution-sched doctor --json | python -m json.tool",
)

PACKAGES: tuple[str, ...] = (
    "numpy", "scipy", "pandas", "numba", "torch", "torch-geometric", "safetensors", "pyarrow", "pydantic", "matplotlib",
    "typer", "rich",
)  # fmt: skip
"""Packages without which it does not work."""

THREADS: tuple[str, ...] = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@dataclass(frozen=True)
class Check:
    """One thing that was looked at.

    Attributes:
        name: What.
        good: Whether it is as it should be; None if it is neither good nor bad.
        found: What was found, in words.
        fix: What to do about it, if anything.
        essential: Whether the product does not work without it.
    """

    name: str
    good: bool | None
    found: str
    fix: str = ""
    essential: bool = False


def doctor(
    dcgm_url: Annotated[str | None, typer.Option(help="Address of a dcgm-exporter to try.", show_default=False)] = None,
    journal: Annotated[
        Path | None,
        typer.Option(
            "--verify", help="Check every row of this journal instead.", metavar="JOURNAL", show_default=False
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Check that the product works here, and list what this machine can measure; or check a journal.

    Ends with exit code 1 if something essential is broken, 2 if the journal is not what was written.
    """
    if journal is not None:
        verify(journal, as_json=as_json)
        return
    from attribution_sched.attribution.sources import detect

    checks: list[Check] = []
    with Stages(quiet=as_json) as stages:
        looks: tuple[Callable[[], Check], ...] = (
            _python, _packages, _threads, _kernels, _presets, _model, _journal, _folder, _engines,
        )  # fmt: skip
        with stages.stage("looking", len(looks)) as tell:
            for number, look in enumerate(looks):
                checks.append(_guarded(look))
                tell(number + 1)
            counters = detect(dcgm_url=dcgm_url)
    works = not any(check.essential and check.good is False for check in checks)
    if as_json:
        say_json(
            {
                "works": works,
                "version": __version__,
                "checks": [dataclasses.asdict(check) for check in checks],
                "counters": [{**dataclasses.asdict(each), "available": each.available} for each in counters],
            }
        )
    else:
        _show(checks, counters, works)
    if not works:
        raise typer.Exit(FAILED)


def _guarded(look: Callable[[], Check]) -> Check:
    try:
        return look()
    except Exception as error:  # Whatever is broken here is what the doctor was asked to find.
        name = look.__name__.lstrip("_")
        words = " ".join(f"{type(error).__name__}: {error}".split())
        return Check(name, False, words, "Install the package again, for example with `make install`", essential=True)


def _python() -> Check:
    good = sys.version_info >= (3, 11)
    version = f"{platform.python_version()} on {platform.system()} {platform.machine()}, {os.cpu_count()} processors"
    return Check("python", good, version, "" if good else "Use Python 3.11 or newer", essential=True)


def _packages() -> Check:
    from importlib.metadata import PackageNotFoundError, version

    installed, missing = [], []
    for name in PACKAGES:
        try:
            installed.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            missing.append(name)
    words = ", ".join(installed) + (f"; missing: {', '.join(missing)}" if missing else "")
    fix = f"Install: pip install {' '.join(missing)}" if missing else ""
    return Check("packages", not missing, words, fix, essential=True)


def _threads() -> Check:
    import torch

    limits = {name: os.environ.get(name) for name in THREADS}
    set_to = ", ".join(f"{name}={value}" for name, value in limits.items() if value) or "no limit in the environment"
    return Check("threads", None, f"torch {torch.get_num_threads()}; {set_to}")


def _kernels() -> Check:
    from attribution_sched import kernels

    count, where = kernels.compiled(), kernels.folder()
    if not count:
        return Check(
            "kernels",
            None,
            f"not compiled yet ({where})",
            "attribution-sched compile, or the first run: about a minute, once",
        )
    return Check("kernels", True, f"{count} compiled ({where})")


def _presets() -> Check:
    from attribution_sched.config import load_settings
    from attribution_sched.config.sources import preset_names

    names = preset_names()
    for name in names:
        load_settings(name)
    return Check("presets", bool(names), ", ".join(names), essential=True)


def _model() -> Check:
    began = time.perf_counter()
    from attribution_sched.scheduler.hi_ppo.coordinator import HiPpo

    size = HiPpo().learnt.theta.size
    return Check(
        "model", True, f"Hi-PPO, {size:,} weights, loaded in {time.perf_counter() - began:.1f} s", essential=True
    )


def _journal() -> Check:
    import sqlite3

    from attribution_sched.journal import Journal

    with Journal.memory() as journal:
        journal.count()
    return Check("journal", True, f"SQLite {sqlite3.sqlite_version}", essential=True)


def _folder() -> Check:
    here = Path.cwd()
    if os.access(here, os.W_OK):
        return Check("folder", True, f"{here} can be written")
    return Check("folder", False, f"{here} cannot be written", "Run it elsewhere, or name --journal and --report")


def _engines() -> Check:
    from attribution_sched.executors.engines import engines

    words = "; ".join(
        f"{each.name} {each.version}".strip() + (f" ({each.missing})" if each.missing else "") for each in engines()
    )
    return Check("engines", None, words)


def _show(checks: Sequence[Check], counters: Sequence[Capability], works: bool) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    console = out()
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), title="The product", title_justify="left")
    for heading in ("", "Check", "Found"):
        table.add_column(heading)
    for check in checks:
        mark = "[dim]·[/dim]" if check.good is None else "[green]ok[/green]" if check.good else "[red]no[/red]"
        table.add_row(mark, check.name, escape(check.found + (f". {check.fix}" if check.fix else "")))
    console.print(table)
    console.print(_counters(counters))
    for words in _reasons(counters):
        console.print(words)
    verdict = f"attribution-sched {__version__} works here" if works else "something essential is broken: see above"
    console.print(f"\n[bold {'green' if works else 'red'}]{verdict}[/]")


def _counters(counters: Sequence[Capability]) -> Any:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    title = "Counters of this machine"
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), title=title, title_justify="left")
    for heading in ("Source", "Counter", "Provenance"):
        table.add_column(heading)
    for item in counters:
        colour = "green" if item.available else "yellow"
        table.add_row(item.source, item.counter, f"[{colour}]{item.provenance.value}[/{colour}]")
    return table


def _reasons(counters: Sequence[Capability]) -> list[str]:
    """Why counters are missing or estimated, each reason once."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for item in counters:
        if item.detail:
            reasons.setdefault((item.detail, item.fix), []).append(f"{item.source} {item.counter}")
    return [
        f"[bold]{', '.join(names)}[/bold]: {escape(f'{detail}. {fix}' if fix else detail)}"
        for (detail, fix), names in reasons.items()
    ]
