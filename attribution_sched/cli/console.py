"""What all commands share: where words go, bars, JSON, the form of help, and how a command ends.

Results go to stdout, everything else to stderr, so that a pipe gets results only. Whatever goes wrong is one clear line
and an exit code that scripts can rely on.
"""

from __future__ import annotations

import errno
import json
import math
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.markup import escape
from typer.core import TyperGroup

from attribution_sched.errors import AttributionSchedError, SettingsError, problem
from attribution_sched.limits import LONGEST_PATH, character_rule, path_rule
from attribution_sched.words.text import UNSEEN, clean_text

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

    def render_str(self, text: str, **options: Any) -> Text:
        """Words with styles, from markup."""
        return super().render_str("\n".join(clean_text(line) for line in text.split("\n")), **options)


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
    sys.stdout.write(_UNSEEN_IN_JSON.sub(lambda match: json.dumps(match[0])[1:-1], text) + "\n")


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


OK, FAILED, BAD_INPUT, STOPPED = 0, 1, 2, 130
"""All went well; something failed on the way; the input is wrong; stopped by Ctrl-C."""

TRACEBACK = "ATTRIBUTION_SCHED_TRACEBACK"
"""Environment variable that has unexpected errors shown in full."""

# Typer brings its own copy of click in some versions and uses the installed one in others.
_Click: Any = typer.BadParameter.__mro__[2]


class RunTimeError(Exception):
    """Something failed though the input was right; the message is for the user."""


def spelled(words: list[str]) -> list[str]:
    """Words of a command as it is kept: ``profile links`` and ``profile stages`` have a group of their own."""
    return ["probe", *words[1:]] if words[:1] == ["profile"] and words[1:2] in (["links"], ["stages"]) else words


class Commands(TyperGroup):
    """The commands, with our own ending."""

    def main(self, *args: Any, standalone_mode: bool = True, **options: Any) -> Any:
        """Run a command; the exit code is returned if it does not stand alone."""
        options["standalone_mode"] = False
        typed = options.get("args") or (args[0] if args else None) or sys.argv[1:]
        words = [str(word) for word in typed]

        def work() -> Any:
            _check_words(words)
            return super(Commands, self).main(*args, **options)

        code = ending(work, words)
        if standalone_mode:
            sys.exit(code)
        return code

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find a command by its words."""
        return super().resolve_command(ctx, spelled(args))

    def invoke(self, ctx: Any) -> Any:
        """Run a command; one that says nothing of its own when it is stopped is spoken for."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise typer.Exit(_say_end("stopped", "by Ctrl-C", STOPPED)) from None


def ending(work: Callable[[], Any], typed: Sequence[str] = ()) -> int:
    """Do the work, and say in one line what went wrong if anything did.

    Args:
        work: The command.
        typed: The words after its name.

    Returns:
        The exit code.
    """
    try:
        code = work()
    except AttributionSchedError as error:
        return _say_end("error", str(error), BAD_INPUT)
    except RunTimeError as error:
        return _say_end("failed", str(error), FAILED)
    except _Click as error:
        # Where the help was shown instead of an answer, Click has nothing to add.
        return _say_end("error", _usage(error, typed), BAD_INPUT) if error.format_message().strip() else BAD_INPUT
    except KeyboardInterrupt:
        return _say_end("stopped", "by Ctrl-C", STOPPED)
    except typer.Abort:
        sys.stderr.write("\n")  # the question stands on the line before
        return _say_end("error", "a question was not answered. Give the answers as options, see --help", BAD_INPUT)
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            return _nobody_reads()
        if error.errno == errno.ENAMETOOLONG:
            rule = path_rule(str(error.filename)) or "is longer than this file system takes"
            return _say_end("error", problem("path", error.filename, rule, "Use a shorter name"), BAD_INPUT)
        return _unexpected(error)
    except Exception as error:
        return _unexpected(error)
    return code if isinstance(code, int) else OK


def _nobody_reads() -> int:
    """Whoever read our output has enough of it. Nothing may be flushed into the closed pipe at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return FAILED


def _unexpected(error: Exception) -> int:
    if os.environ.get(TRACEBACK):
        raise error
    words = f"{type(error).__name__}: {' '.join(str(error).split())}"
    return _say_end("failed", f"{words}  (set {TRACEBACK}=1 to see where)", FAILED)


def _check_words(words: Sequence[str]) -> None:
    """Refuse words that no command can mean; a name that is too long for a file is noticed where it is used."""
    for number, word in enumerate(words, start=1):
        if len(word) > LONGEST_PATH:
            rule = f"must have at most {LONGEST_PATH} characters, not {len(word)}"
            raise SettingsError(problem(f"argument {number}", word, rule, "Use shorter names"))
        odd = character_rule(word)
        if odd is not None:
            raise SettingsError(problem(f"argument {number}", word, odd, "Type it again"))


def _say_end(head: str, words: str, code: int) -> int:
    notes().print(f"[bold red]{head}:[/bold red] {escape(words)}", soft_wrap=True)
    return code


def _usage(error: Any, typed: Sequence[str]) -> str:
    """Click's complaint in one line, with the value it is about and where to read more."""
    words = " ".join(error.format_message().split())
    value = _value(getattr(error, "param", None), typed)
    if value is not None and value not in words:
        words = f"{words.rstrip('.')}, not {value!r}"
    end = "" if words.endswith((".", "?", "!")) else "."
    context = getattr(error, "ctx", None)
    return f"{words}{end}" if context is None else f"{words}{end} See {context.command_path} --help"


def _value(option: Any, typed: Sequence[str]) -> str | None:
    """What was typed for an option; some versions of Typer do not say."""
    names = tuple(name for name in getattr(option, "opts", ()) if name.startswith("-"))
    for word, following in zip(typed, [*typed[1:], ""], strict=False):
        name, equals, value = word.partition("=")
        if name in names:
            return value if equals else following
    return None
