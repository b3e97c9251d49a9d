"""The decorator."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import update_wrapper
from typing import Any, Literal, overload

import numba
import numpy as np

from attribution_sched.kernels.clock import off_the_clock
from attribution_sched.kernels.digest import digest
from attribution_sched.kernels.linking import door_of, part_of
from attribution_sched.kernels.store import KernelCache


@overload
def kernel(function: Callable[..., Any], /) -> Callable[..., Any]: ...


@overload
def kernel(
    *, allocates: bool = False, inline: Literal["never", "always"] = "never"
) -> Callable[[Callable[..., Any]], Callable[..., Any]]: ...


def kernel(function: Any = None, /, **options: Any) -> Any:
    """Compile a function with the package's options: no bounds checks, numpy's division, kept on disk.

    Where numba is told to compile nothing (``NUMBA_DISABLE_JIT=1``) it stays a Python function. Its decisions are the
    same; numpy's logarithms and exponentials may differ from compiled ones in the last bit.

    Args:
        function: What to compile, when it is first called with arguments of some types.
        options: ``allocates`` is for kernels that make arrays, or get one from a kernel that does: without it no
            references are counted, which otherwise is most of the code of a kernel whose arguments are tuples of
            fifty arrays. ``inline="always"`` copies it into its callers.
    """
    if function is None:
        return lambda decorated: kernel(decorated, **options)
    if numba.config.DISABLE_JIT:
        # Words of random streams overflow, and numbers are divided by zero, as compiled ones are: without a warning.
        return np.errstate(all="ignore")(function)
    return Kernel(function, options)


class Kernel:
    """A function for Python and for other kernels.

    Args:
        function: What it computes.
        options: Options of numba beyond the package's own.
    """

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]) -> None:
        update_wrapper(self, function)
        self.py_func = function
        self.targetoptions = {"error_model": "numpy", "_nrt": options.pop("allocates", False)} | options
        self._door: Any = None
        self._part: Any = None
        self._digest = ""

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Run it from Python; the first call with arguments of some types loads or compiles it."""
        if self._door is None:
            began = time.perf_counter()
            self._door = door_of(self.py_func, self.targetoptions, KernelCache(self.py_func, self.digest()))
            off_the_clock(time.perf_counter() - began)
        return self._door(*args, **named)

    @property
    def _numba_type_(self) -> Any:
        """What numba sees where another kernel calls this one."""
        if self._part is None:
            self._part = part_of(self.py_func, self.targetoptions)
        return self._part[1]

    def digest(self) -> str:
        """Hash of what is compiled and is ours."""
        if not self._digest:
            self._digest = digest(self)
        return self._digest

    def __reduce__(self) -> str:
        # Copies and pickles refer to it by name, as to any function.
        return self.py_func.__qualname__
