"""A file that is there as a whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from attribution_sched.errors import SettingsError, problem


def write_whole(target: Path, text: str, name: str = "report") -> Path:
    """Write a text beside its place, then put it there; what was there before stays until then.

    Args:
        target: Where to.
        text: What.
        name: What to call it in an error.

    Raises:
        SettingsError: If it cannot be written.
    """
    draft = target.with_name(f".{target.name}.{os.getpid()}.new")
    try:
        draft.write_text(text, encoding="utf-8", newline="\n")
        draft.replace(target)
    except OSError as error:
        rule = f"cannot be written ({error.strerror or error})"
        fix = "Use a folder with room that can be written"
        raise SettingsError(problem(name, str(target), rule, fix)) from error
    finally:
        draft.unlink(missing_ok=True)
    return target
