"""The ``perf_event_open`` system call through ctypes: three methods, no extra package."""

from __future__ import annotations

import ctypes
import os
import platform
import struct
from typing import Protocol

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
