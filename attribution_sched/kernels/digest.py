"""Hash of all that goes into a kernel: its code, the kernels it calls, the constants they freeze, fields of records.

numba looks only at the file a kernel stands in: it would run a stale one when another file changes, and forgets all
when the same files are installed again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from enum import IntEnum
from inspect import CO_GENERATOR, CO_VARARGS, CO_VARKEYWORDS
from pathlib import Path
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
from numba.core import types as numba_types

from attribution_sched.errors import problem

if TYPE_CHECKING:
    from attribution_sched.kernels.kernel import Kernel

types: Any = numba_types

# What this room itself puts into machine code.
_COMPILER = b"".join((Path(__file__).parent / f"{name}.py").read_bytes() for name in ("kernel", "linking", "records"))
_SCALARS = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis), np.generic)
_CODE = ("co_code", "co_names", "co_varnames", "co_argcount", "co_kwonlyargcount", "co_freevars",
         "co_exceptiontable")  # fmt: skip
"""What a function's code is made of; where it stands in its file is no part of it."""


def digest(kernel: Kernel) -> str:
    """Hash of what is compiled and is ours; numba itself tells its version and processors apart."""
    total = hashlib.sha256(_COMPILER)
    for each in callees(kernel):
        function = each.py_func
        total.update(repr((function.__module__, function.__qualname__, sorted(each.targetoptions.items()))).encode())
        # What the first string tells a reader makes no other kernel.
        consts = function.__code__.co_consts[function.__doc__ is not None :]
        total.update(text_of(function.__code__.replace(co_consts=consts)).encode())
        total.update(text_of(function.__defaults__).encode())
        for name, value in sorted(_constants(function).items()):
            total.update(f"{name}={text_of(value)}\n".encode())
    return total.hexdigest()[:20]


def callees(first: Kernel) -> list[Kernel]:
    """A kernel and all kernels it calls, directly or not, in an order that depends on their code alone."""
    reached, open_ends = {id(first): first}, [first]
    while open_ends:
        for _, value in sorted(_constants(open_ends.pop().py_func).items()):
            if _is_kernel(value) and id(value) not in reached:
                reached[id(value)] = value
                open_ends.append(value)
    return list(reached.values())


def _is_kernel(value: Any) -> bool:
    return hasattr(value, "digest") and hasattr(value, "py_func")


def _constants(function: Callable[..., Any]) -> dict[str, Any]:
    """What a function may read beyond its arguments: globals, the closure, and names in modules of the package.

    Names of attributes are looked up like those of globals: there may be too many, never too few.
    """
    names, spaces = _names(function.__code__), [function.__globals__]
    package = __package__.partition(".")[0]
    for name in names:
        module = function.__globals__.get(name)
        if isinstance(module, ModuleType) and module.__name__.startswith(f"{package}."):
            spaces.append(vars(module))
    constants = {f"{space['__name__']}.{name}": space[name] for space in spaces for name in names if name in space}
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    return constants | {name: cell.cell_contents for name, cell in cells}


def _names(code: CodeType) -> set[str]:
    inner = (each for each in code.co_consts if isinstance(each, CodeType))
    return {*code.co_names, *(name for each in inner for name in _names(each))}


def text_of(value: Any) -> str:
    """A constant in words that are the same in every process; what kernels cannot freeze has only a name."""
    if isinstance(value, _SCALARS):
        return f"{type(value).__name__} {value!r}"
    if isinstance(value, tuple | frozenset):
        parts = [text_of(each) for each in value]
        return f"{type(value).__name__}({', '.join(parts if isinstance(value, tuple) else sorted(parts))})"
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{value.shape}{hashlib.sha256(value.tobytes()).hexdigest()}"
    if isinstance(value, CodeType):
        # Other flags than these tell how the code came about, and a profiler changes them.
        flags = value.co_flags & (CO_VARARGS | CO_VARKEYWORDS | CO_GENERATOR)
        return text_of((*(getattr(value, name) for name in _CODE), flags, value.co_consts))
    if isinstance(value, type):
        members = value.__members__.items() if issubclass(value, IntEnum) else ()
        names = getattr(value, "_fields", None) or tuple(f"{name}={int(each)}" for name, each in members)
        return f"{value.__module__}.{value.__qualname__}{names}"
    if _is_kernel(value) or isinstance(value, ModuleType) or (callable(value) and not hasattr(value, "py_func")):
        return str(getattr(value, "__qualname__", getattr(value, "__name__", "")))
    fix = "Use numbers, tuples, arrays and other kernels"
    raise TypeError(problem("constant", type(value).__name__, "nothing a kernel can be kept with", fix))


def type_text(kind: Any) -> str:
    """A type in words; numba's own leave out the names of a record's fields, and a renamed one would be read wrong."""
    if isinstance(kind, types.BaseNamedTuple):
        record = kind.instance_class
        fields = (f"{name} {type_text(each)}" for name, each in zip(kind.fields, kind, strict=True))
        return f"{record.__module__}.{record.__qualname__}({', '.join(fields)})"
    if isinstance(kind, types.BaseTuple):
        return f"({', '.join(map(type_text, kind))})"
    return str(kind)
