"""Compiled kernels: one decorator, a cache that cannot be stale, and a clock that does not count compilation.

A kernel is called from Python, or by other kernels, or both. Only what Python calls becomes machine code, once, with
all it calls in it (:mod:`.linking`); records reach kernels by reference (:mod:`.records`). What was compiled is kept
on disk (:mod:`.store`) under the digest of all that went into it (:mod:`.digest`). With ``NUMBA_DISABLE_JIT=1`` kernels
are the Python functions they are written as: slow, and open to a debugger.
"""

from attribution_sched.kernels.announce import announce_with
from attribution_sched.kernels.clock import clock
from attribution_sched.kernels.kernel import Kernel, kernel
from attribution_sched.kernels.records import by_reference
from attribution_sched.kernels.store import compiled, folder
from attribution_sched.kernels.threads import one_thread, torch_threads

__all__ = [
    "Kernel",
    "announce_with",
    "by_reference",
    "clock",
    "compiled",
    "folder",
    "kernel",
    "one_thread",
    "torch_threads",
]
