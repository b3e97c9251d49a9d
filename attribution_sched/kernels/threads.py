"""One thread for torch and BLAS: small networks run many times slower when several threads wait for each other."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class _Blas:
    """The BLAS libraries of this process, held at one thread while anyone asks for it.

    Their thread numbers belong to the whole process, so the first who enters lowers them and the last who leaves
    restores them, in whatever order threads come and go.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._controller: Any = None
        self._modules_seen = -1
        self._limit: Any = None

    def enter(self) -> None:
        with self._lock:
            self._inside += 1
            if self._inside == 1 and any(library.num_threads != 1 for library in self._libraries()):
                self._limit = self._controller.limit(limits=1, user_api="blas")

    def leave(self) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0 and self._limit is not None:
                # OpenBLAS heeds only the thread that lowered the number, and that one may be gone by now.
                _release()
                self._limit.restore_original_limits()
                _release()
                self._limit = None

    def _libraries(self) -> list[Any]:
        # Looking for libraries takes milliseconds, and only an import can bring a new one.
        if self._modules_seen != len(sys.modules):
            from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

            self._controller = ThreadpoolController()
            self._modules_seen = len(sys.modules)
        return [library for library in self._controller.lib_controllers if library.user_api == "blas"]


def _release() -> None:
    """Let any thread set the number of OpenBLAS threads; older releases of threadpoolctl always do."""
    import threadpoolctl

    clear = getattr(threadpoolctl.OpenBLASController, "clear_controlling_thread", None)
    if clear is not None:
        clear(force=True)


_BLAS = _Blas()


@contextmanager
def one_thread(*, torch: bool = True) -> Iterator[None]:
    """Run the body with one torch thread and one BLAS thread; the old numbers come back on exit.

    May be nested and used from several threads at once; where the numbers are 1 already it does next to nothing.
    Also works as a decorator: ``@one_thread()``.

    Args:
        torch: Whether to load torch for it, two seconds, where nothing has: without, for bodies that use it only
            through what has loaded it already.
    """
    if torch:
        import torch as _  # noqa: F401
    loaded = sys.modules.get("torch")
    before = 1 if loaded is None else loaded.get_num_threads()
    _BLAS.enter()
    if loaded is not None and before != 1:
        loaded.set_num_threads(1)
    try:
        yield
    finally:
        _BLAS.leave()
        if loaded is not None and before != 1:
            loaded.set_num_threads(before)


@contextmanager
def torch_threads(number: int) -> Iterator[None]:
    """Run the body with so many torch threads, BLAS untouched; the old number comes back on exit."""
    import torch

    before = torch.get_num_threads()
    if before != number:
        torch.set_num_threads(number)
    try:
        yield
    finally:
        if before != number:
            torch.set_num_threads(before)
