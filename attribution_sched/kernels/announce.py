"""Who is told, once a process, that kernels are being compiled."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable

_logger = logging.getLogger("attribution_sched.kernels")
_listeners: list[Callable[[str], None]] = []


def announce_with(say: Callable[[str], None]) -> None:
    """Let ``say`` tell that kernels are being compiled, if it comes to that; a command line has its own console."""
    _listeners[:] = [say]


def announce(words: str) -> None:
    """Tell whoever wants to be told, else whoever listens to the log, else stderr."""
    if _listeners:
        _listeners[0](words)
    elif _somebody_listens():
        _logger.warning(words)
    elif sys.stderr is not None:
        sys.stderr.write(f"attribution_sched: {words}\n")
        sys.stderr.flush()


def _somebody_listens() -> bool:
    """Whether a warning of ours reaches a handler: the package's own NullHandler does not count."""
    at: logging.Logger | None = _logger
    while at is not None:
        if any(not isinstance(handler, logging.NullHandler) for handler in at.handlers):
            return True
        at = at.parent if at.propagate else None
    return False
