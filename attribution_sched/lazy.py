"""Public names that load on first use, so that importing a room costs nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def loader(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` of a package.

    Args:
        package: Its dotted name.
        homes: Public name → dotted name of the module that holds it; a module by itself ends in its own name.
    """

    def load(name: str) -> Any:
        home = homes.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = import_module(home)
        return module if home.rpartition(".")[2] == name and not hasattr(module, name) else getattr(module, name)

    return load, lambda: sorted(homes)
