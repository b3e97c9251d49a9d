"""A clock that stands still while kernels are loaded or compiled."""

from __future__ import annotations

import threading
import time


class _Spent(threading.local):
    seconds = 0.0


_spent = _Spent()


def off_the_clock(seconds: float) -> None:
    """Take seconds that this thread has just spent off its clock."""
    _spent.seconds += seconds


def clock() -> float:
    """Seconds as :func:`time.perf_counter` counts them, except while this thread loads or compiles a kernel.

    Latencies and deadlines are taken from it, so that a decision does not depend on what is on disk.
    """
    return time.perf_counter() - _spent.seconds
