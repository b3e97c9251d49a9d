"""How the command ends: one clear line for whatever went wrong, and a code that scripts can rely on."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

import typer
from rich.markup import escape
from typer.core import TyperGroup

from attribution_sched.cli.console import notes
from attribution_sched.errors import AttributionSchedError, SettingsError, problem
from attribution_sched.limits import LONGEST_PATH, character_rule, path_rule

OK, FAILED, BAD_INPUT, STOPPED = 0, 1, 2, 130
"""All went well; something failed on the way; the input is wrong; stopped by Ctrl-C."""

TRACEBACK = "ATTRIBUTION_SCHED_TRACEBACK"
"""Environment variable that has unexpected errors shown in full."""

# Typer brings its own copy of click in some versions and uses the installed one in others.
_Click: Any = typer.BadParameter.__mro__[2]


class RunTimeError(Exception):
    """Something failed though the input was right; the message is for the user."""


class Commands(TyperGroup):
    """The commands, with our own ending."""

    def main(self, *args: Any, standalone_mode: bool = True, **given: Any) -> Any:
        """Run a command; the exit code is returned if it does not stand alone."""
        given["standalone_mode"] = False
        typed = given.get("args") or (args[0] if args else None) or sys.argv[1:]
        words = [str(word) for word in typed]

        def work() -> Any:
            _check_words(words)
            return super(Commands, self).main(*args, **given)

        code = ending(work, words)
        if standalone_mode:
            sys.exit(code)
        return code

    def invoke(self, ctx: Any) -> Any:
        """Run a command; one that says nothing of its own when it is stopped is spoken for."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise typer.Exit(_told("stopped", "by Ctrl-C", STOPPED)) from None


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
        return _told("error", str(error), BAD_INPUT)
    except RunTimeError as error:
        return _told("failed", str(error), FAILED)
    except _Click as error:
        # Where the help was shown instead of an answer, Click has nothing to add.
        return _told("error", _usage(error, typed), BAD_INPUT) if error.format_message().strip() else BAD_INPUT
    except KeyboardInterrupt:
        return _told("stopped", "by Ctrl-C", STOPPED)
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            return _nobody_reads()
        if error.errno == errno.ENAMETOOLONG:
            rule = path_rule(str(error.filename)) or "is longer than this file system takes"
            return _told("error", problem("path", error.filename, rule, "Use a shorter name"), BAD_INPUT)
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
    told = f"{type(error).__name__}: {' '.join(str(error).split())}"
    return _told("failed", f"{told}  (set {TRACEBACK}=1 to see where)", FAILED)


def _check_words(words: Sequence[str]) -> None:
    """Refuse words that no command can mean; a name that is too long for a file is noticed where it is used."""
    for number, word in enumerate(words, start=1):
        if len(word) > LONGEST_PATH:
            rule = f"must have at most {LONGEST_PATH} characters, not {len(word)}"
            raise SettingsError(problem(f"argument {number}", word, rule, "Use shorter names"))
        odd = character_rule(word)
        if odd is not None:
            raise SettingsError(problem(f"argument {number}", word, odd, "Type it again"))


def _told(head: str, words: str, code: int) -> int:
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
