"""``attribution-sched compile``: compile ahead what the first run would."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from attribution_sched.cli.console import Stages, examples, notes, out, say_json

if TYPE_CHECKING:
    from attribution_sched.system.system import System

EXAMPLES = examples("attribution-sched compile", "NUMBA_CACHE_DIR=/shared/kernels attribution-sched compile")


def compile_kernels(
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print what is there as JSON.")] = False,
) -> None:
    """Compile the simulation's kernels ahead: about a minute, once; otherwise the first run does it.

    They are kept in the user's cache, or where ``NUMBA_CACHE_DIR`` says, until a newer version of the package needs
    others. What is there already is not compiled again.
    """
    from attribution_sched import kernels

    kernels.announce_with(notes(quiet=quiet).print)
    with Stages(quiet=quiet) as stages:
        for words, work in _uses():
            with stages.stage(words):
                work()
    if as_json:
        say_json({"kernels": kernels.compiled(), "folder": str(kernels.folder())})
        return
    out().print(f"{kernels.compiled()} kernels in {kernels.folder()}", soft_wrap=True)


def _uses() -> Iterator[tuple[str, Callable[[], object]]]:
    """Small uses of every part that computes; together they call each kernel that a run calls."""
    from attribution_sched import System

    with System(policy="rule", explain=False) as system:
        yield "the world and the rule", system.schedule_next_task
    with System() as system:
        yield "Hi-PPO and copies of the cluster", system.schedule_next_task
        yield "answers and bills", lambda: _ask(system)
    with System(policy="exact", explain=False) as system:
        yield "the rival that solves exactly", system.schedule_next_task


def _ask(system: System) -> None:
    """Every kind of answer once, in as few copies as there can be."""
    decided = system.schedule_next_task()
    system.what_if(carbon_price=1.0, futures=2, hours=0.5)
    if decided is not None:
        system.explain(decided)
    system.bill()
