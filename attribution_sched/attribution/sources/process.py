"""CPU time and context switches of a process and everything it started, through psutil."""

from __future__ import annotations

import time
from collections.abc import Callable

from attribution_sched.attribution.sources.reading import Reading, ReadingBuilder
from attribution_sched.errors import CounterError, problem


class ProcessSource:
    """CPU seconds and context switches since the source was opened, children included.

    A child that ended and was waited for lives on in its parent's account (``children_user`` and
    ``children_system``), so its seconds are neither lost nor counted twice. Context switches have no such
    account: those of ended children are gone, and the counter says so.
    """

    def __init__(self, pid: int | None = None, clock: Callable[[], float] = time.time) -> None:
        """Attach to a process.

        Args:
            pid: Process to follow; the calling one by default.
            clock: Gives the Unix time of a reading.
        """
        import psutil

        self._psutil = psutil
        self._clock = clock
        try:
            self._process = psutil.Process(pid)
            self._start = self._totals()
        except psutil.NoSuchProcess as error:
            raise CounterError(
                problem("pid", pid, "no process has this id", "Start the process first, or leave pid out")
            ) from error
        except psutil.AccessDenied as error:
            raise CounterError(problem("pid", pid, "belongs to another user", "Run as that user or as root")) from error

    def read(self) -> Reading:
        """Read the process tree once."""
        out = ReadingBuilder()
        names = (
            ("cpu_time_s", "s", ""),
            ("voluntary_switches", "switches", "live processes only: ended children take theirs with them"),
            ("involuntary_switches", "switches", "live processes only: ended children take theirs with them"),
        )
        try:
            totals = self._totals()
        except self._psutil.NoSuchProcess:
            for name, unit, _ in names:
                out.missing(name, unit, f"process {self._process.pid} has ended", cumulative=True)
            return out.build(self._clock())
        for (name, unit, note), now, start in zip(names, totals, self._start, strict=True):
            # Switches of a child that just ended may drop out of the sum; a total must not fall below zero.
            out.add(name, max(now - start, 0.0), unit, note=note, cumulative=name == "cpu_time_s")
        return out.build(self._clock())

    def _totals(self) -> tuple[float, float, float]:
        seconds = voluntary = involuntary = 0.0
        for process in (self._process, *self._process.children(recursive=True)):
            try:
                with process.oneshot():
                    times, switches = process.cpu_times(), process.num_ctx_switches()
            except (self._psutil.NoSuchProcess, self._psutil.AccessDenied):
                if process.pid == self._process.pid:
                    raise
                continue
            seconds += times.user + times.system
            seconds += getattr(times, "children_user", 0.0) + getattr(times, "children_system", 0.0)
            voluntary += switches.voluntary
            involuntary += switches.involuntary
        return seconds, voluntary, involuntary
