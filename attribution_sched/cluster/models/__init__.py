"""The model zoo: named networks as chains of layers, computed from their architecture on first use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING

from attribution_sched.errors import TaskError, nearest, problem

if TYPE_CHECKING:
    from attribution_sched.cluster.layers import Model

__all__ = ["MODELS", "model", "model_names"]


@cache
def model_names() -> tuple[str, ...]:
    """Every catalogue name, in catalogue order."""
    from attribution_sched.cluster.models.catalogue import BUILDERS

    return tuple(BUILDERS)


@cache
def _built(name: str) -> Model:
    from attribution_sched.cluster.models.catalogue import BUILDERS

    return BUILDERS[name](name)


def model(name: str) -> Model:
    """Look a model up by name, upper or lower case; it is built once and then shared.

    Args:
        name: A catalogue name, for example ``llama-3-8b``.

    Raises:
        TaskError: The name is not in the catalogue; the message gives the nearest one.
    """
    key = name.strip().lower() if isinstance(name, str) else ""
    if key not in model_names():
        raise TaskError(problem("model", name, "is not in the model zoo", nearest(key, model_names())))
    return _built(key)


class _LazyModels(Mapping[str, "Model"]):
    """Name → model, where a model is built when it is first asked for."""

    def __getitem__(self, name: str) -> Model:
        # A mapping answers a missing key with KeyError; ``model`` is the door with the kind message.
        if name not in self:
            raise KeyError(name)
        return _built(name)

    def __contains__(self, name: object) -> bool:
        return name in model_names()

    def __iter__(self) -> Iterator[str]:
        return iter(model_names())

    def __len__(self) -> int:
        return len(model_names())


MODELS: Mapping[str, Model] = _LazyModels()
"""Catalogue name → model; iterating over it builds nothing."""
