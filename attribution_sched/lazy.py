"""Public names that load on first use, so that importing a room costs nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
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
