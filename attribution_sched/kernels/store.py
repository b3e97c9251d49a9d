"""Compiled kernels on disk: by module and digest, not by path and time of a file, so that a reinstall finds them."""

from __future__ import annotations

import glob
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from numba.core.caching import CompileResultCacheImpl, FunctionCache, _CacheLocator

from attribution_sched.kernels.announce import announce
from attribution_sched.kernels.clock import off_the_clock
from attribution_sched.kernels.digest import type_text

KEPT = 4
"""Versions of a kernel that are kept on disk in any case, last used first."""

UNUSED_S = 7 * 86_400.0
"""Others are kept until nobody has used them for so long: versions and branches are used in turns, and at once."""


def folder() -> Path:
    """Where compiled kernels are kept: in the user's cache, or where ``NUMBA_CACHE_DIR`` says."""
    configured = os.environ.get("NUMBA_CACHE_DIR")
    return (Path(configured) if configured else _user_cache()) / "attribution_sched" / "kernels"


def compiled() -> int:
    """How many kernels are there, compiled, in whatever versions."""
    return len({_kernel_of(path) for path in folder().rglob("*.nbi")})


class KernelCache(FunctionCache):
    """numba's cache at our place; what it loads, and what is compiled because it has nothing, is off the clock.

    Args:
        function: The kernel's.
        digest: Of all that goes into it.
    """

    def __init__(self, function: Callable[..., Any], digest: str) -> None:
        self._impl_class = lambda py_func: _Entries(py_func, digest)
        super().__init__(function)
        self._began: dict[Any, float] = {}
        if not _writable(folder()):
            self.disable()

    def _index_key(self, sig: Any, codegen: Any) -> Any:
        return ", ".join(map(type_text, sig)), codegen.magic_tuple()

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Load what was compiled for arguments of these types, or None."""
        began = time.perf_counter()
        loaded = super().load_overload(sig, target_context)
        if loaded is None:
            _first_compilation()
            self._began[sig] = began
        else:
            # For whoever sweeps: this one is used.
            with suppress(OSError):
                os.utime(self._cache_file._index_path)
            off_the_clock(time.perf_counter() - began)
        return loaded

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep what was compiled for them."""
        # A full or read-only disk costs the next process the same time again, never this one its result.
        with suppress(OSError):
            super().save_overload(sig, data)
        off_the_clock(time.perf_counter() - self._began.pop(sig, time.perf_counter()))


class _Entries(CompileResultCacheImpl):
    """What numba keeps of one kernel, and under which name."""

    def __init__(self, function: Callable[..., Any], digest: str) -> None:
        self._lineno = function.__code__.co_firstlineno
        self._locator = _Place(function.__module__, digest)
        self._filename_base = self.get_filename_base(function.__qualname__, sys.abiflags)


class _Place(_CacheLocator):
    def __init__(self, module: str, digest: str) -> None:
        self._module, self._digest = module, digest

    def get_cache_path(self) -> str:
        return str(folder() / self._module)

    def get_source_stamp(self) -> str:
        return self._digest

    def get_disambiguator(self) -> str:
        return self._digest

    @classmethod
    def from_function(cls, py_func: Any, py_file: str) -> None:
        return None


@cache
def _first_compilation() -> None:
    """Say once a process that kernels are being compiled, and make room for them."""
    where = folder()
    place = f"kept in {where}" if _writable(where) else f"again in every process: {where} cannot be written"
    _sweep(where)
    announce(f"Compiling the simulation's kernels: about a minute, once ({place})")


@cache
def _user_cache() -> Path:
    """The user's cache folder; a private one for temporary files where there is no home to write to."""
    home = Path.home() if os.environ.get("HOME") or sys.platform == "win32" else None
    usual = os.environ.get("LOCALAPPDATA" if sys.platform == "win32" else "XDG_CACHE_HOME")
    wanted = Path(usual) if usual else None if home is None else home / ".cache"
    if wanted is not None and _writable(wanted):
        return wanted
    # Compiled code that another user could have put there must not be run: the folder has to be ours alone.
    mine = Path(tempfile.gettempdir()) / f"attribution_sched-{os.getuid() if hasattr(os, 'getuid') else 'user'}"
    with suppress(OSError):
        mine.mkdir(mode=0o700, exist_ok=True)
        about = mine.lstat()
        if not hasattr(os, "getuid") or (about.st_uid == os.getuid() and not about.st_mode & 0o077):
            return mine
    return wanted or mine / "unusable"


@cache
def _writable(place: Path) -> bool:
    try:
        place.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=place):
            return True
    except OSError:
        return False


def _kernel_of(index: Path) -> str:
    return f"{index.parent.name}.{index.name.rpartition('-')[0]}"


def _sweep(where: Path) -> None:
    """Remove versions of kernels that nobody uses any more; the last few that were used stay."""
    with suppress(OSError):
        used = {path: path.stat().st_mtime for path in where.rglob("*.nbi")}
        counts: Counter[str] = Counter()
        for path in sorted(used, key=used.__getitem__, reverse=True):
            counts[_kernel_of(path)] += 1
            if counts[_kernel_of(path)] > KEPT and time.time() - used[path] > UNUSED_S:
                for data in path.parent.glob(f"{glob.escape(path.stem)}.*"):
                    data.unlink()
