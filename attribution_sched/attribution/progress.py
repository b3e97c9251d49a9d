"""An optional progress bar; silent unless asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

Tick = Callable[[str, float], None]
"""Called with the stage's name and its progress from 0 to 1."""


def silent(stage: str, progress: float) -> None:
    """Show nothing."""


@contextmanager
def progress_bar(shown: bool) -> Iterator[Tick]:
    """Give a callback that moves a rich progress bar, or one that does nothing."""
    if not shown:
        yield silent
        return
    from rich.progress import Progress, TaskID

    with Progress(transient=True) as bar:
        tasks: dict[str, TaskID] = {}

        def tick(stage: str, progress: float) -> None:
            if stage not in tasks:
                for done in tasks.values():
                    bar.update(done, completed=1.0)
                tasks[stage] = bar.add_task(stage, total=1.0)
            bar.update(tasks[stage], completed=progress)

        yield tick
