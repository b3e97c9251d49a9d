"""Cycles, instructions and last-level cache misses of a process, through ``perf_event``.

Where the machine has no performance-monitoring unit (most virtual machines), cycles fall back, in this order,
to the time-stamp counter while the task runs (``msr/tsc``), to task-clock times the nominal clock, and to
nothing; each fallback is labelled *estimated* and names itself. Instructions and misses have no honest
stand-in.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import platform
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Protocol

from attribution_sched.attribution.sources.reading import Provenance, Reading, ReadingBuilder
from attribution_sched.errors import CounterError, problem

# ------ The ``perf_event_open`` system call through ctypes: three methods, no extra package

_SYSCALL_NUMBER = {"x86_64": 298, "aarch64": 241, "riscv64": 241, "ppc64le": 319, "s390x": 331}
_ATTR_SIZE = 112  # PERF_ATTR_SIZE_VER5: understood by every kernel since 4.1
_FLAG_CLOEXEC = 8
_READ_TIMES = 1 | 2  # total time enabled and total time running, to undo multiplexing
_INHERIT, _EXCLUDE_KERNEL, _EXCLUDE_HV = 1 << 1, 1 << 5, 1 << 6


class PerfKernel(Protocol):
    """What the source needs of a kernel; tests put a fake in its place."""

    def open(self, kind: int, config: int, pid: int, exclude_kernel: bool) -> int:
        """Start counting an event of one thread and its future children.

        Args:
            kind: Type number of the event source.
            config: Event number inside that source.
            pid: Thread to count.
            exclude_kernel: Count user space only.

        Returns:
            A handle for `read` and `close`.

        Raises:
            OSError: ENOENT where the event does not exist, EACCES or EPERM where it is not allowed.
        """
        ...

    def read(self, handle: int) -> tuple[int, int, int]:
        """Return (count, nanoseconds enabled, nanoseconds really counting)."""
        ...

    def close(self, handle: int) -> None:
        """Stop counting."""
        ...


class LinuxPerf:
    """The real kernel."""

    def __init__(self) -> None:
        number = _SYSCALL_NUMBER.get(platform.machine()) if platform.system() == "Linux" else None
        self._number = number
        self._libc = ctypes.CDLL(None, use_errno=True) if number is not None else None

    def open(self, kind: int, config: int, pid: int, exclude_kernel: bool) -> int:
        """See `PerfKernel.open`."""
        if self._libc is None or self._number is None:
            raise OSError(38, f"perf_event_open is not known on {platform.system()} {platform.machine()}")
        flags = _INHERIT | (_EXCLUDE_KERNEL | _EXCLUDE_HV if exclude_kernel else 0)
        head = struct.pack("=IIQQQQQ", kind, _ATTR_SIZE, config, 0, 0, _READ_TIMES, flags)
        attr = ctypes.create_string_buffer(head, _ATTR_SIZE)
        call = self._libc.syscall
        call.restype = ctypes.c_long
        handle = call(
            ctypes.c_long(self._number),
            attr,
            ctypes.c_int(pid),
            ctypes.c_int(-1),
            ctypes.c_int(-1),
            ctypes.c_ulong(_FLAG_CLOEXEC),
        )
        if handle < 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
        return int(handle)

    def read(self, handle: int) -> tuple[int, int, int]:
        """See `PerfKernel.read`."""
        count, enabled, running = struct.unpack("=QQQ", os.read(handle, 24))
        return count, enabled, running

    def close(self, handle: int) -> None:
        """See `PerfKernel.close`."""
        os.close(handle)


# ------ Cycles, instructions and last-level cache misses of a process, through ``perf_event``

_HARDWARE, _SOFTWARE, _HW_CACHE = 0, 1, 3
_LLC_READ_MISS = 2 | (0 << 8) | (1 << 16)  # cache LL, operation read, result miss
_TASK_CLOCK = 1
MSR_TYPE_PATH = Path("/sys/bus/event_source/devices/msr/type")


@dataclass(frozen=True)
class _Route:
    """One way to get a counter: an event and what to multiply its count by."""

    kind: int
    config: int
    scale: float = 1.0
    note: str = ""


@dataclass
class _Counter:
    """A counter that was opened (handles) or could not be (reason)."""

    name: str
    unit: str
    route: _Route | None
    handles: tuple[int, ...]
    reason: str
    user_only: bool = False


def explain_errno(code: int | None) -> str:
    """Say what a failed ``perf_event_open`` means and what to do."""
    if code in (errno.EACCES, errno.EPERM):
        return (
            "permission denied (EACCES): lower /proc/sys/kernel/perf_event_paranoid to 1 or below, or grant "
            "CAP_PERFMON; inside a container allow perf_event_open in the seccomp profile"
        )
    if code in (errno.ENOENT, errno.ENODEV, errno.EOPNOTSUPP, errno.EINVAL):
        return (
            "event does not exist here (ENOENT): the processor's performance-monitoring unit is hidden, as "
            "in most virtual machines; use bare metal or ask for a virtual PMU"
        )
    if code == errno.ENOSYS:
        return "the system has no perf_event_open (ENOSYS): Linux with CONFIG_PERF_EVENTS is needed"
    if code == errno.EMFILE:
        return "too many open files (EMFILE): raise `ulimit -n`"
    return f"perf_event_open failed: {os.strerror(code or 0)}"


def nominal_clock_hz() -> float | None:
    """The processor's nominal clock, or None where the system does not say."""
    base = Path("/sys/devices/system/cpu/cpu0/cpufreq/base_frequency")
    with contextlib.suppress(OSError, ValueError):
        return float(base.read_text(encoding="ascii")) * 1e3
    import psutil

    with contextlib.suppress(Exception):  # psutil raises many types on exotic systems
        frequency = psutil.cpu_freq()
        if frequency is not None and frequency.current > 0:
            return float(frequency.current) * 1e6
    return None


class PerfSource:
    """Event totals of a process since the source was opened, its later threads and children included."""

    def __init__(
        self,
        pid: int | None = None,
        kernel: PerfKernel | None = None,
        clock_hz: float | None = None,
        msr_type_path: Path = MSR_TYPE_PATH,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Open the counters.

        Args:
            pid: Process to follow; the calling one by default.
            kernel: Stands for the system call; the real one by default.
            clock_hz: Nominal clock for the last fallback; looked up by default.
            msr_type_path: File with the type number of the ``msr`` event source.
            clock: Gives the Unix time of a reading.
        """
        self._kernel = kernel if kernel is not None else LinuxPerf()
        self._clock = clock
        self._threads = _threads(pid if pid is not None else os.getpid())
        hertz = clock_hz if clock_hz is not None else nominal_clock_hz()
        cycles = [_Route(_HARDWARE, 0)]
        with contextlib.suppress(OSError, ValueError):
            tsc = int(msr_type_path.read_text(encoding="ascii"))
            cycles.append(_Route(tsc, 0, 1.0, "time-stamp counter while the task ran: nominal-clock cycles"))
        if hertz is not None:
            note = f"task clock x nominal {hertz / 1e9:.3f} GHz"
            cycles.append(_Route(_SOFTWARE, _TASK_CLOCK, hertz * 1e-9, note))
        self._counters = (
            self._open("cpu_cycles", "cycles", cycles),
            self._open("cpu_instructions", "instructions", [_Route(_HARDWARE, 1)]),
            self._open("llc_misses", "misses", [_Route(_HW_CACHE, _LLC_READ_MISS), _Route(_HARDWARE, 3)]),
        )

    def __enter__(self) -> PerfSource:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Release the kernel's counters; later reads call them unavailable."""
        for counter in self._counters:
            for handle in counter.handles:
                self._kernel.close(handle)
            counter.handles, counter.reason = (), "the source was closed"

    def read(self) -> Reading:
        """Read every counter once."""
        out = ReadingBuilder()
        for counter in self._counters:
            self._read_one(counter, out)
        return out.build(self._clock())

    def _open(self, name: str, unit: str, routes: list[_Route]) -> _Counter:
        """Take the first route that opens; full access first, then user space only."""
        reasons: list[str] = []
        for route in routes:
            for user_only in (False, True):
                try:
                    handles = self._open_threads(route, user_only)
                except OSError as error:
                    reasons.append(explain_errno(error.errno))
                else:
                    return _Counter(name, unit, route, handles, "", user_only)
        return _Counter(name, unit, None, (), reasons[0])

    def _open_threads(self, route: _Route, user_only: bool) -> tuple[int, ...]:
        handles: list[int] = []
        try:
            handles.extend(self._kernel.open(route.kind, route.config, thread, user_only) for thread in self._threads)
        except OSError:
            for handle in handles:
                self._kernel.close(handle)
            raise
        return tuple(handles)

    def _read_one(self, counter: _Counter, out: ReadingBuilder) -> None:
        if counter.route is None or not counter.handles:
            out.missing(counter.name, counter.unit, counter.reason, cumulative=True)
            return
        total, scaled, counted = 0.0, False, False
        for handle in counter.handles:
            count, enabled, running = self._kernel.read(handle)
            counted = counted or running > 0 or enabled == 0
            scaled = scaled or 0 < running < enabled
            total += count * (enabled / running if 0 < running < enabled else 1.0)
        if not counted:
            out.missing(
                counter.name,
                counter.unit,
                "the event never got a hardware counter (all taken by others); close other profilers",
                cumulative=True,
            )
            return
        notes = [counter.route.note] if counter.route.note else []
        notes += ["scaled up: the event shared its hardware counter"] if scaled else []
        notes += ["user space only (perf_event_paranoid forbids the kernel part)"] if counter.user_only else []
        estimated = bool(counter.route.note) or scaled
        label = Provenance.ESTIMATED if estimated else Provenance.MEASURED
        total *= counter.route.scale
        out.add(counter.name, total, counter.unit, label, "; ".join(notes), cumulative=True)


def _threads(pid: int) -> tuple[int, ...]:
    """Threads alive now; `inherit` covers only those born later."""
    tasks = Path(f"/proc/{pid}/task")
    try:
        return tuple(sorted(int(p.name) for p in tasks.iterdir()))
    except FileNotFoundError as error:
        raise CounterError(
            problem("pid", pid, "no process has this id (or /proc is not mounted)", "Start the process first")
        ) from error
