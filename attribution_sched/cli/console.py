"""What all commands share: where words go, bars, JSON, and the form of help.

Results go to stdout, everything else to stderr, so that a pipe gets results only.
"""

from __future__ import annotations

import json
import math
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console

from attribution_sched.text import UNSEEN, clean_text

if TYPE_CHECKING:
    from rich.progress import Progress
    from rich.text import Text

Update = Callable[..., None]
"""Called with how much is done and, if that is known, of how much."""

WIDEST = 110
"""Columns beyond which lines are hard to read."""

FILE_WIDTH = 200
"""Columns of a table that goes into a file or a pipe, where nothing needs to be folded."""


class _CleanConsole(Console):
    """A console that passes no control character on: names come from other people's files and journals."""

    def render_str(self, text: str, **given: Any) -> Text:
        """Words with styles, from markup."""
        return super().render_str("\n".join(clean_text(line) for line in text.split("\n")), **given)


def out(*, wide: bool = False) -> Console:
    """The console of results.

    Args:
        wide: Do not fold tables that go into a file or a pipe.
    """
    console = _CleanConsole(highlight=False)
    if wide and not console.is_terminal:
        console.width = max(console.width, FILE_WIDTH)
    return console


def notes(*, quiet: bool = False) -> Console:
    """The console of everything that is no result."""
    return _CleanConsole(stderr=True, highlight=False, quiet=quiet)


def say_json(value: Any) -> None:
    """Print a result as JSON, the only thing on stdout then; what is not finite becomes null.

    Characters that nobody sees are written as their numbers, so that they reach a program but no terminal.
    """
    text = json.dumps(_finite(value), indent=2, ensure_ascii=False, allow_nan=False)
    sys.stdout.write(_UNSEEN_IN_JSON.sub(lambda found: json.dumps(found[0])[1:-1], text) + "\n")


# Line ends are JSON's own here: those of words are escaped already.
_UNSEEN_IN_JSON = re.compile(UNSEEN.replace("\x00-\x1f", ""))


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def examples(*lines: str) -> str:
    """The end of a command's help: what to type."""
    from rich.markup import escape

    return "\n".join(["Examples:", *(f"  {escape(line)}" for line in lines)])


def columns() -> int:
    """Width of paragraphs."""
    return min(shutil.get_terminal_size().columns, WIDEST)


@contextmanager
def shown(bars: Progress) -> Iterator[Progress]:
    """Show bars while the block lasts; where an error ends it, its line is the only one that is left."""
    bars.start()
    try:
        yield bars
    except Exception:
        _take_away(bars)
        raise
    finally:
        bars.stop()


def _take_away(bars: Progress) -> None:
    bars.live.transient = True
    bars.live.stop()


class Stages:
    """Bars on stderr, one for each stage of the work.

    Args:
        quiet: Show none.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._bars: Progress | None = None

    def __enter__(self) -> Stages:
        if not self._quiet:
            from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

            counts = TextColumn("{task.fields[counts]:>9}")
            named = TextColumn("{task.description:<30}")
            self._bars = Progress(named, BarColumn(20), counts, TimeElapsedColumn(), console=notes())
            self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bars is not None:
            if self._bars.tasks:
                self._bars.stop()
                return
            # Where no bar is left, no empty line may stand before the one that says what went wrong.
            _take_away(self._bars)

    @contextmanager
    def stage(self, words: str, total: float | None = None) -> Iterator[Update]:
        """One stage; its bar is full when the block ends, and goes away should an error end it."""
        if self._bars is None:
            yield lambda *_: None
            return
        bars, job = self._bars, self._bars.add_task(words, total=total, counts="")

        def update(done: float, of: float | None = None, *_: Any) -> None:
            of = total if of is None else of
            counts = "" if of is None or isinstance(done, float) else f"{done}/{of}"
            bars.update(job, completed=done, total=of, counts=counts)

        try:
            yield update
        except BaseException:
            bars.remove_task(job)
            raise
        ended = next(task for task in bars.tasks if task.id == job)
        counts = f"{ended.total:.0f}/{ended.total:.0f}" if ended.total and ended.fields["counts"] else ""
        bars.update(job, total=ended.total or 1.0, completed=ended.total or 1.0, counts=counts)
