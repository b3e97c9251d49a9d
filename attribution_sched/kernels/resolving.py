"""What numba does again and again while it compiles, done once: a third of the time of a first use."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from numba.core import types as numba_types
from numba.core.compiler_lock import global_compiler_lock

types: Any = numba_types

_answers: dict[Any, tuple[Any, Any]] = {}
_resolve: Callable[..., Any] = types.BaseFunction.get_call_type


@contextmanager
def quick_compilation() -> Iterator[None]:
    """Let numba remember which implementation answers for which types, and collect no garbage, inside the block.

    To type ``a + b`` it tries a dozen implementations, each time anew. Each collection would walk through everything
    that compilation, torch and the caller hold.
    """
    with global_compiler_lock:
        collecting, before = gc.isenabled(), types.BaseFunction.get_call_type
        types.BaseFunction.get_call_type = resolve_once
        gc.disable()
        try:
            yield
        finally:
            types.BaseFunction.get_call_type = before
            if collecting:
                gc.enable()


def resolve_once(function: Any, context: Any, args: Any, kws: Any) -> Any:
    """What a function of numba's own registry answers for arguments of some types; asked again, what it answered."""
    key = id(function), id(context), args, tuple(kws.items())
    if key in _answers:
        return _answers[key][1]
    answer = _resolve(function, context, args, kws)
    # Overloads are compiled for the options of their caller, and have keys of their own: those are asked every time.
    if answer is not None and function.get_impl_key(answer) is function.typing_key:
        _answers[key] = function, answer
    return answer
