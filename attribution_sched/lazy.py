"""Public names that load on first use, so that importing a room costs nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any


def loader(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` of a package.

    Args:
        package: Its dotted name.
        homes: Public name → dotted name of the module that holds it, followed by ``:`` and its name there if that is
            another; a module by itself ends in its own name.
    """

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home, _, inside = homes[name].partition(":")
        module, inside = import_module(home), inside or name
        return module if home.rpartition(".")[2] == inside and not hasattr(module, inside) else getattr(module, inside)

    return load, lambda: sorted(homes)


def when_imported(package: str, then: Callable[[], object]) -> None:
    """Call something once a package is imported: now if it is, else right after whoever imports it first."""
    if package in sys.modules:
        then()
    else:
        sys.meta_path.insert(0, _AfterImport(package, then))


class _AfterImport(MetaPathFinder):
    """Finds one package as Python would, and calls something after it has run."""

    def __init__(self, package: str, then: Callable[[], object]) -> None:
        self.package, self.then = package, then

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self.package:
            return None
        sys.meta_path.remove(self)
        found = find_spec(fullname)
        if found is not None and found.loader is not None:
            loader: Any = found.loader
            run = loader.exec_module

            def run_then(module: ModuleType) -> None:
                run(module)
                self.then()

            loader.exec_module = run_then
        return found
