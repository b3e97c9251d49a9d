"""Compiled kernels: one decorator, a cache that cannot be stale, and a clock that does not count compilation.

A kernel is called from Python, or by other kernels, or both. Only what Python calls becomes machine code, once, with
all it calls in it; a kernel that is called by kernels is typed and lowered and left to them. numba by itself optimises
and emits every kernel alone and again inside each caller, which was two thirds of the time of a first use. Large ones
that many lead to are ``shared``: emitted once, by themselves, and called where they stand.

What was compiled is kept on disk under the digest of all that went into it: the kernel's own code, the kernels it
calls, the constants they freeze, the fields of records. numba looks only at the file a kernel stands in: it would run a
stale one when another file changes, and forgets all when the same files are installed again.
"""

from __future__ import annotations

import gc
import glob
import hashlib
import logging
import os
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from enum import IntEnum
from functools import cache, update_wrapper
from inspect import CO_GENERATOR, CO_VARARGS, CO_VARKEYWORDS
from itertools import accumulate
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, Literal, TypeVar, overload

import numba
import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from llvmlite.binding import Linkage, parse_assembly  # type: ignore[import-untyped]
from numba.core import cgutils
from numba.core import types as numba_types
from numba.core.caching import CompileResultCacheImpl, FunctionCache, _CacheLocator
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_lock import global_compiler_lock
from numba.core.imputils import impl_ret_borrowed, lower_getattr_generic
from numba.core.registry import cpu_target
from numba.core.typing.templates import AttributeTemplate, infer_getattr
from numba.extending import NativeValue, models, register_model, typeof_impl, unbox

from attribution_sched.errors import problem

# ------ Compiled kernels: one decorator, a cache that cannot be stale, and a clock that does not count compilation

types: Any = numba_types
Record = TypeVar("Record")

KEPT = 4
"""Versions of a kernel that are kept on disk in any case, last used first."""

UNUSED_S = 7 * 86_400.0
"""Others are kept until nobody has used them for so long: versions and branches are used in turns, and at once."""

_logger = logging.getLogger(__name__)


@overload
def kernel(function: Callable[..., Any], /) -> Callable[..., Any]: ...


@overload
def kernel(
    *,
    allocates: bool = False,
    fastmath: bool = False,
    inline: Literal["never", "always"] = "never",
    shared: bool = False,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]: ...


def kernel(function: Any = None, /, **options: Any) -> Any:
    """Compile a function with the package's options: no bounds checks, numpy's division, kept on disk.

    Args:
        function: What to compile, when it is first called with arguments of some types.
        options: ``allocates`` is for kernels that make arrays, or get one from a kernel that does: without it no
            references are counted, which otherwise is most of the code of a kernel whose arguments are tuples of
            fifty arrays. ``fastmath`` lets sums be reordered; ``inline="always"`` copies it into its callers;
            ``shared`` emits it once for all of them.
    """
    if function is None:
        return lambda given: Kernel(given, options)
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
        self.shared: bool = options.pop("shared", False)
        if self.shared:
            _shared_kernels[function] = self
        self.targetoptions = {"error_model": "numpy", "_nrt": options.pop("allocates", False)} | options
        self._door: Any = None
        self._part: Any = None
        self._part_type: Any = None
        self._digest = ""

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Run it from Python; the first call with arguments of some types loads or compiles it."""
        if self._door is None:
            began = time.perf_counter()
            compiled_for = {"pipeline_class": _DoorCompiler, "no_cfunc_wrapper": True}
            door = numba.njit(**compiled_for, **self.targetoptions)(_calling(self) if self.shared else self.py_func)
            door._cache = _DigestCache(self)
            door._compiler.compile = _quickly(door._compiler.compile)
            self._door = door
            _off_the_clock(time.perf_counter() - began)
        return self._door(*args, **named)

    @property
    def _numba_type_(self) -> Any:
        """What numba sees where another kernel calls this one."""
        if self._part is None:
            compiler = _SharedCompiler if self.shared else _PartCompiler
            compiled_for = {"pipeline_class": compiler, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
            self._part = numba.njit(**compiled_for, **self.targetoptions)(self.py_func)
            self._part_type = _PartType(self._part)
        return self._part_type

    def digest(self) -> str:
        """Hash of what is compiled and is ours; numba itself tells its version and processors apart."""
        if not self._digest:
            total = hashlib.sha256(_OWN)
            for each in _callees(self):
                options = sorted((each.targetoptions | {"shared": each.shared}).items())
                total.update(repr((each.py_func.__module__, each.py_func.__qualname__, options)).encode())
                code = each.py_func.__code__
                # What the first string tells a reader makes no other kernel.
                consts = code.co_consts[each.py_func.__doc__ is not None :]
                total.update(_told(code.replace(co_consts=consts)).encode())
                total.update(_told(each.py_func.__defaults__).encode())
                for name, value in sorted(_frozen(each.py_func).items()):
                    total.update(f"{name}={_told(value)}\n".encode())
            self._digest = total.hexdigest()[:20]
        return self._digest

    def __reduce__(self) -> str:
        # Copies and pickles refer to it by name, as to any function.
        return self.py_func.__qualname__


_shared_kernels: dict[Callable[..., Any], Kernel] = {}


def _calling(given: Kernel) -> Callable[..., Any]:
    """A function of the same arguments that only calls a kernel."""
    code, space = given.py_func.__code__, {"kernel": given}
    names = ", ".join(code.co_varnames[: code.co_argcount])
    exec(f"def call({names}):\n    return kernel({names})", space)
    call: Any = space["call"]
    call.__name__, call.__qualname__ = given.py_func.__name__, given.py_func.__qualname__
    call.__module__, call.__defaults__ = given.py_func.__module__, given.py_func.__defaults__
    return call  # type: ignore[no-any-return]


class _PartType(types.Dispatcher):
    """A kernel as its callers see it: compiled once for integers of any size, and not again for each constant."""

    def get_call_type(self, context: Any, args: Any, kws: Any) -> Any:
        return super().get_call_type(context, tuple(map(_plain, args)), {name: _plain(kws[name]) for name in kws})


register_model(_PartType)(models.OpaqueModel)


def _plain(given: Any) -> Any:
    given = types.unliteral(given)
    if isinstance(given, types.Integer) and given.signed and given.bitwidth < types.int64.bitwidth:
        return types.int64
    return given


class _Reference(types.Type):
    """A named tuple of arrays as kernels get it: where its fields stand, not the fields themselves.

    numba hands a tuple over field by field, seven numbers for an array: kernels that take the world and its state had
    six hundred arguments, and each call of one wrote them all out. That was most of the time of a first use.
    """

    def __init__(self, record: type[Any], fields: tuple[Any, ...]) -> None:
        self.names, self.fields = record._fields, fields
        shape = "|".join(f"{name} {_shape(each)}" for name, each in zip(self.names, fields, strict=True))
        told = hashlib.sha256(shape.encode()).hexdigest()[:12]
        super().__init__(f"Reference({record.__module__}.{record.__qualname__}.{told})")


def by_reference(record: type[Record]) -> type[Record]:
    """Let kernels get these named tuples by reference; a kernel reads their fields, and makes none of them."""
    fields: tuple[str, ...] = record._fields  # type: ignore[attr-defined]

    def kind_of(given: Any, context: Any) -> _Reference:
        return _Reference(record, tuple(typeof_impl(getattr(given, name), context) for name in fields))

    typeof_impl.register(record)(kind_of)
    return record


@register_model(_Reference)
class _ReferenceModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, ir.IntType(8).as_pointer())


@infer_getattr
class _ReferenceFields(AttributeTemplate):
    key = _Reference

    def generic_resolve(self, kind: _Reference, name: str) -> Any:
        names = kind.names
        return kind.fields[names.index(name)] if name in names else None


_offsets: dict[str, tuple[list[int], int]] = {}


def _layout(context: Any, kind: _Reference) -> tuple[list[int], int]:
    """Where each field stands, in bytes, and how many they take together."""
    if kind.name not in _offsets:
        sizes = [context.get_abi_sizeof(context.data_model_manager[each].get_data_type()) for each in kind.fields]
        ends = list(accumulate(-(-size // 8) * 8 for size in sizes))
        _offsets[kind.name] = [0, *ends[:-1]], ends[-1]
    return _offsets[kind.name]


def _place(context: Any, builder: Any, kind: _Reference, value: Any, at: int) -> Any:
    """Pointer to a field."""
    stored = context.data_model_manager[kind.fields[at]].get_data_type()
    there = builder.gep(value, [ir.Constant(ir.IntType(64), _layout(context, kind)[0][at])], inbounds=True)
    return builder.bitcast(there, stored.as_pointer())


def _field(context: Any, builder: Any, kind: _Reference, value: Any, name: str) -> Any:
    at = kind.names.index(name)
    model = context.data_model_manager[kind.fields[at]]
    before = len(builder.block.instructions)
    found = model.load_from_data_pointer(builder, _place(context, builder, kind, value, at))
    # Nobody writes to the fields while a kernel runs, so they need not be read again after every write to an array.
    never = builder.module.add_metadata([])
    for each in builder.block.instructions[before:]:
        if isinstance(each, ir.instructions.LoadInstr):
            each.set_metadata("invariant.load", never)
    return impl_ret_borrowed(context, builder, kind.fields[at], found)


lower_getattr_generic(_Reference)(_field)


def _read_record(kind: _Reference, given: Any, c: Any) -> Any:
    """Write the fields where kernels find them: on the stack of whoever calls from Python."""
    builder, context = c.builder, c.context
    place = cgutils.alloca_once(builder, ir.ArrayType(ir.IntType(64), _layout(context, kind)[1] // 8))
    plain = builder.bitcast(place, ir.IntType(8).as_pointer())
    failed = cgutils.alloca_once_value(builder, cgutils.false_bit)
    releases = []
    for at, each in enumerate(kind.fields):
        stored, item = _place(context, builder, kind, plain, at), c.pyapi.tuple_getitem(given, at)
        if isinstance(each, types.Array):
            wrong, cleanup = builder.call(_array_reader(c, each), [item, stored]), None
        else:
            native = c.unbox(each, item)
            builder.store(context.data_model_manager[each].as_data(builder, native.value), stored)
            wrong, cleanup = native.is_error, native.cleanup
        builder.store(builder.or_(builder.load(failed), wrong), failed)
        releases.append((each, stored, cleanup))

    def release() -> None:
        for each, stored, cleanup in releases:
            if cleanup is not None:
                cleanup()
            if context.enable_nrt and isinstance(each, types.Array):
                builder.call(_array_releaser(c, each), [stored])

    # The optimiser must not look through to the writes above: it takes what kernels read for constant.
    hidden = builder.asm(ir.FunctionType(plain.type, [plain.type]), "", "=r,0,~{memory}", [plain], True)
    return NativeValue(hidden, is_error=builder.load(failed), cleanup=release)


unbox(_Reference)(_read_record)


def _array_reader(c: Any, kind: Any) -> Any:
    """A function that reads an array of a kind; written out for each field it was a quarter of all machine code."""
    model = c.context.data_model_manager[kind]
    place = model.get_data_type().as_pointer()
    made, builder = _helper(c, f"read {kind}", ir.FunctionType(ir.IntType(1), [c.pyapi.pyobj, place]))
    if builder is not None:
        native = c._replace(builder=builder, pyapi=c.context.get_python_api(builder)).unbox(kind, made.args[0])
        builder.store(model.as_data(builder, native.value), made.args[1])
        builder.ret(native.is_error)
    return made


def _array_releaser(c: Any, kind: Any) -> Any:
    """A function that gives back an array that was read."""
    model = c.context.data_model_manager[kind]
    made, builder = _helper(c, f"release {kind}", ir.FunctionType(ir.VoidType(), [model.get_data_type().as_pointer()]))
    if builder is not None:
        c.context.nrt.decref(builder, kind, model.load_from_data_pointer(builder, made.args[0]))
        builder.ret_void()
    return made


def _helper(c: Any, name: str, kind: Any) -> tuple[Any, Any]:
    """A function of the module that is being written, and where to write it, or None if it is there already."""
    module = c.builder.module
    if name in module.globals:
        return module.globals[name], None
    made = ir.Function(module, kind, name)
    made.linkage = "internal"
    made.attributes.add("noinline")
    return made, ir.IRBuilder(made.append_basic_block("entry"))


class _PartLibrary(JITCodeLibrary):
    """LLVM code of a kernel that waits for the kernels that call it: they link, optimise and emit it with their own."""

    def _optimize_functions(self, ll_module: Any) -> None:
        ll_module.data_layout = self._codegen._data_layout

    def finalize(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True

    def own_module(self) -> Any:
        """Its code alone, for a door that links what it calls too."""
        return super()._get_module_for_linking()

    def _get_module_for_linking(self) -> Any:
        # Whoever is no door of ours (numba keeps what it compiled of its own for all) gets it with all it calls.
        whole = self.own_module().clone()
        for each in _linked(self._linking_libraries):
            whole.link_in(_module_of(each), preserve=True)
        return whole

    def get_pointer_to_function(self, name: str) -> int:
        # It has no address of its own; zero is numba's word for that.
        self._ensure_finalized()
        return 0

    @property
    def codegen(self) -> Any:
        return _WithoutEnvironment(self._codegen)


class _WithoutEnvironment:
    """A code generator that writes no environment (Python's objects, of which kernels have none) into emitted code."""

    def __init__(self, codegen: Any) -> None:
        self._codegen = codegen

    def __getattr__(self, name: str) -> Any:
        return getattr(self._codegen, name)

    def set_env(self, env_name: str, env: Any) -> None:
        pass


class _SharedLibrary(_PartLibrary):
    """LLVM code of a kernel that is emitted once, by itself, for all that call it."""

    def emit(self) -> list[str]:
        """Have it in memory, from disk if it is there; returns the symbols that must be there with it, itself last."""
        (symbol,) = _defined(self._final_module)
        if symbol not in _emitted:
            needs: dict[str, None] = {}
            for each in _linked(self._linking_libraries):
                needs |= dict.fromkeys(each.emit() if isinstance(each, _SharedLibrary) else ())
                self._reload_init.update(each._reload_init)
            if not _load(self._codegen, symbol):
                whole = _DoorLibrary(self._codegen, self.name)
                whole.enable_object_caching()
                whole._final_module.link_in(self._final_module, preserve=True)
                whole._linking_libraries = list(self._linking_libraries)
                whole.finalize()
                _keep(_object_path(self._codegen, symbol), whole._get_compiled_object())
            _emitted[symbol] = [*needs, symbol]
        return _emitted[symbol]


_emitted: dict[str, list[str]] = {}
_loaded: dict[str, JITCodeLibrary] = {}


def _defined(module: Any) -> list[str]:
    return [each.name for each in module.functions if not each.is_declaration and each.linkage == Linkage.external]


def _object_path(codegen: Any, symbol: str) -> Path:
    made_for = repr((symbol, codegen.magic_tuple(), numba.__version__))
    return folder() / "shared" / f"{hashlib.sha256(made_for.encode()).hexdigest()[:40]}.o"


def _load(codegen: Any, symbol: str) -> bool:
    """Have the kept code of a shared kernel in memory; whether it was there."""
    if symbol not in _loaded:
        path = _object_path(codegen, symbol)
        try:
            code = path.read_bytes()
            os.utime(path)
        except OSError:
            return False
        library = _loaded[symbol] = JITCodeLibrary(codegen, symbol)
        library.enable_object_caching()
        library._set_compiled_object(code)
        library._finalize_final_module()
        codegen._engine._defined_symbols.add(symbol)
    return True


def _keep(path: Path, code: bytes) -> None:
    """Write a file whole or not at all."""
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.write(code)
        Path(file.name).replace(path)


class _DoorLibrary(JITCodeLibrary):
    """LLVM code of a kernel that Python calls, with that of all it calls, each linked once.

    numba links what a function calls into it, with all that this calls in turn: a kernel at the bottom was copied once
    for every way that leads to it.
    """

    def _optimize_functions(self, ll_module: Any) -> None:
        ll_module.data_layout = self._codegen._data_layout

    needs: tuple[str, ...] = ()
    """Symbols of shared kernels that it calls, directly or not, in the order in which they can be loaded."""

    def finalize(self) -> None:
        called: list[Any] = _linked(self._linking_libraries)
        self._linking_libraries: list[Any] = []
        needs: dict[str, None] = {}
        for each in called:
            if isinstance(each, _SharedLibrary):
                needs |= dict.fromkeys(each.emit())
            else:
                self._final_module.link_in(_module_of(each), preserve=True)
            self._reload_init.update(each._reload_init)
        self.needs = tuple(needs)
        super().finalize()

    def serialize_using_object_code(self) -> Any:
        # Nobody links a door: of its code in LLVM's own form only the names are kept, which are looked up.
        self._ensure_finalized()
        names = "".join(f'define void @"{name}"() {{ ret void }}\n' for name in _defined(self._final_module))
        return self.name, "object", (self._get_compiled_object(), parse_assembly(names).as_bitcode())


def _module_of(library: Any) -> Any:
    return library.own_module() if isinstance(library, _PartLibrary) else library._get_module_for_linking()


def _linked(libraries: list[Any]) -> list[Any]:
    """Libraries and those that parts among them wait for, directly or not, each once; none behind a shared one."""
    linked = dict.fromkeys(libraries)
    open_ends = list(linked)
    while open_ends:
        one = open_ends.pop()
        inner = () if not isinstance(one, _PartLibrary) or isinstance(one, _SharedLibrary) else one._linking_libraries
        for each in inner:
            if each not in linked:
                linked[each] = None
                open_ends.append(each)
    return list(linked)


class _PartCompiler(CompilerBase):
    """numba's own passes, with a library that is only linked."""

    library: type[JITCodeLibrary] = _PartLibrary

    def define_pipelines(self) -> list[Any]:
        library = self.library(self.state.targetctx.codegen(), self.state.func_id.func_qualname)
        library.enable_object_caching()
        self.state.library = library
        return [DefaultPassBuilder.define_nopython_pipeline(self.state)]


class _DoorCompiler(_PartCompiler):
    """numba's own passes, with a library that is emitted."""

    library = _DoorLibrary


class _SharedCompiler(_PartCompiler):
    """numba's own passes, with a library that is emitted by itself, under a name that is the same in every process."""

    library = _SharedLibrary

    def define_pipelines(self) -> list[Any]:
        identity = self.state.func_id
        identity.unique_id = _shared_kernels[identity.func].digest()
        return super().define_pipelines()


_OWN = Path(__file__).read_bytes()
_SCALARS = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis), np.generic)
_CODE = ("co_code", "co_names", "co_varnames", "co_argcount", "co_kwonlyargcount", "co_freevars",
         "co_exceptiontable")  # fmt: skip
"""What a function's code is made of; where it stands in its file is no part of it."""


def _callees(first: Kernel) -> list[Kernel]:
    """A kernel and all kernels it calls, directly or not, in an order that depends on their code alone."""
    callees, open_ends = {id(first): first}, [first]
    while open_ends:
        for _, value in sorted(_frozen(open_ends.pop().py_func).items()):
            if isinstance(value, Kernel) and id(value) not in callees:
                callees[id(value)] = value
                open_ends.append(value)
    return list(callees.values())


def _frozen(function: Callable[..., Any]) -> dict[str, Any]:
    """What a function may read beyond its arguments: globals, the closure, and names in modules of the package.

    Names of attributes are looked up like those of globals: too much may be found, never too little.
    """
    names, spaces = _names(function.__code__), [function.__globals__]
    spaces += [
        vars(module) for name in names if isinstance(module := function.__globals__.get(name), ModuleType)
        and module.__name__.startswith(f"{__package__}.")
    ]  # fmt: skip
    constants = {f"{space['__name__']}.{name}": space[name] for space in spaces for name in names if name in space}
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    return constants | {name: cell.cell_contents for name, cell in cells}


def _names(code: CodeType) -> set[str]:
    inner = (each for each in code.co_consts if isinstance(each, CodeType))
    return {*code.co_names, *(name for each in inner for name in _names(each))}


def _told(value: Any) -> str:
    """A constant in words that are the same in every process; what kernels cannot freeze has only a name."""
    if isinstance(value, _SCALARS):
        return f"{type(value).__name__} {value!r}"
    if isinstance(value, tuple | frozenset):
        told = [_told(each) for each in value]
        return f"{type(value).__name__}({', '.join(told if isinstance(value, tuple) else sorted(told))})"
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{value.shape}{hashlib.sha256(value.tobytes()).hexdigest()}"
    if isinstance(value, CodeType):
        # Other flags than these tell how the code came about, and a profiler changes them.
        flags = value.co_flags & (CO_VARARGS | CO_VARKEYWORDS | CO_GENERATOR)
        return _told((*(getattr(value, name) for name in _CODE), flags, value.co_consts))
    if isinstance(value, type):
        parts = getattr(value, "_fields", ()) or [f"{name}={int(each)}" for name, each in _members(value)]
        return f"{value.__module__}.{value.__qualname__}{tuple(parts)}"
    if isinstance(value, Kernel | ModuleType) or (callable(value) and not hasattr(value, "py_func")):
        return str(getattr(value, "__qualname__", getattr(value, "__name__", "")))
    fix = "Use numbers, tuples, arrays and other kernels"
    raise TypeError(problem("constant", type(value).__name__, "nothing a kernel can be kept with", fix))


def _members(kind: type) -> list[tuple[str, Any]]:
    return list(kind.__members__.items()) if issubclass(kind, IntEnum) else []


def _shape(kind: Any) -> str:
    """A type in words; numba's own leave out the names of a record's fields, and a renamed one would be read wrong."""
    if isinstance(kind, types.BaseNamedTuple):
        record = kind.instance_class
        fields = (f"{name} {_shape(each)}" for name, each in zip(kind.fields, kind, strict=True))
        return f"{record.__module__}.{record.__qualname__}({', '.join(fields)})"
    if isinstance(kind, types.BaseTuple):
        return f"({', '.join(map(_shape, kind))})"
    return str(kind)


_resolved: dict[Any, tuple[Any, Any]] = {}
_resolve = types.BaseFunction.get_call_type


def _quickly(compile_: Callable[..., Any]) -> Callable[..., Any]:
    """Compile with what numba does again and again done once: half the time of a first use.

    To type ``a + b`` numba tries a dozen implementations, each time anew; what a function of its own registry answers
    for arguments of some types is remembered here. And garbage is not collected meanwhile: each collection would walk
    through everything that compilation, torch and the caller hold.
    """

    def compile_quickly(*args: Any, **named: Any) -> Any:
        with global_compiler_lock:
            collecting, before = gc.isenabled(), types.BaseFunction.get_call_type
            codegen = cpu_target.target_context.codegen()
            usual = codegen._library_class
            types.BaseFunction.get_call_type = _resolve_once
            codegen._library_class = _PartLibrary
            gc.disable()
            try:
                return compile_(*args, **named)
            finally:
                types.BaseFunction.get_call_type = before
                codegen._library_class = usual
                if collecting:
                    gc.enable()

    return compile_quickly


def _resolve_once(function: Any, context: Any, args: Any, kws: Any) -> Any:
    key = id(function), id(context), args, tuple(kws.items())
    if key in _resolved:
        return _resolved[key][1]
    found = _resolve(function, context, args, kws)
    # Overloads are compiled for the options of their caller, and have keys of their own: those are asked every time.
    if found is not None and function.get_impl_key(found) is function.typing_key:
        _resolved[key] = function, found
    return found


class _DigestLocator(_CacheLocator):
    """Where a kernel is kept: by module and digest, not by path and time of its file, so a reinstall finds it."""

    def __init__(self, given: Kernel) -> None:
        self._place = str(folder() / given.py_func.__module__)
        self._digest = given.digest()

    def get_cache_path(self) -> str:
        return self._place

    def get_source_stamp(self) -> str:
        return self._digest

    def get_disambiguator(self) -> str:
        return self._digest

    @classmethod
    def from_function(cls, py_func: Any, py_file: str) -> _DigestLocator:
        return cls(py_func)


class _DigestCacheImpl(CompileResultCacheImpl):
    def __init__(self, given: Kernel) -> None:
        # numba asks for the file of a function, to name what it keeps; the digest is in that name.
        self._lineno = given.py_func.__code__.co_firstlineno
        self._locator = _DigestLocator(given)
        self._filename_base = self.get_filename_base(given.py_func.__qualname__, sys.abiflags)

    def reduce(self, cres: Any) -> Any:
        return cres.library.needs, super().reduce(cres)

    def rebuild(self, target_context: Any, payload: Any) -> Any:
        needs, kept = payload
        if not all(_load(target_context.codegen(), symbol) for symbol in needs):
            raise _Swept
        return super().rebuild(target_context, kept)


class _Swept(Exception):
    """A shared kernel that a kept one calls is not there any more."""


class _DigestCache(FunctionCache):
    """numba's cache at our place; what it loads, and what is compiled because it has nothing, is off the clock."""

    _impl_class = _DigestCacheImpl

    def __init__(self, given: Kernel) -> None:
        super().__init__(given)
        self._began: dict[Any, float] = {}
        if not _writable(folder()):
            self.disable()

    def _index_key(self, sig: Any, codegen: Any) -> Any:
        return ", ".join(map(_shape, sig)), codegen.magic_tuple()

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        began = time.perf_counter()
        loaded = None
        with suppress(_Swept):
            loaded = super().load_overload(sig, target_context)
        if loaded is None:
            _announce()
            self._began[sig] = began
        else:
            # For whoever sweeps: this one is used.
            with suppress(OSError):
                os.utime(self._cache_file._index_path)
            _off_the_clock(time.perf_counter() - began)
        return loaded

    def save_overload(self, sig: Any, data: Any) -> None:
        # A full or read-only disk costs the next process the same time again, never this one its result.
        with suppress(OSError):
            super().save_overload(sig, data)
        _off_the_clock(time.perf_counter() - self._began.pop(sig, time.perf_counter()))


class _Spent(threading.local):
    seconds = 0.0


_spent = _Spent()


def _off_the_clock(seconds: float) -> None:
    _spent.seconds += seconds


def clock() -> float:
    """Seconds as :func:`time.perf_counter` counts them, except while this thread loads or compiles a kernel.

    Latencies and deadlines are taken from it, so that a decision does not depend on what is on disk.
    """
    return time.perf_counter() - _spent.seconds


_tell: list[Callable[[str], None]] = []


def announce_with(say: Callable[[str], None]) -> None:
    """Let ``say`` tell that kernels are being compiled, if it comes to that; a command line has its own console."""
    _tell[:] = [say]


@cache
def _announce() -> None:
    """Say once a process that kernels are being compiled: to whoever listens to the log, else on stderr."""
    where = folder()
    place = f"kept in {where}" if _writable(where) else f"again in every process: {where} cannot be written"
    words = f"Compiling the simulation's kernels: about a minute, once ({place})"
    _sweep(where)
    if _tell:
        _tell[0](words)
    elif _somebody_listens():
        _logger.warning(words)
    elif sys.stderr is not None:
        sys.stderr.write(f"attribution_sched: {words}\n")
        sys.stderr.flush()


def _somebody_listens() -> bool:
    """Whether a warning of ours reaches a handler: the package's own NullHandler does not count."""
    at: logging.Logger | None = _logger
    while at is not None:
        if any(not isinstance(handler, logging.NullHandler) for handler in at.handlers):
            return True
        at = at.parent if at.propagate else None
    return False


def folder() -> Path:
    """Where compiled kernels are kept: in the user's cache, or where ``NUMBA_CACHE_DIR`` says."""
    configured = os.environ.get("NUMBA_CACHE_DIR")
    return (Path(configured) if configured else _user_cache()) / "attribution_sched" / "kernels"


def compiled() -> int:
    """How many kernels are there, compiled, in whatever versions."""
    return len({_kernel_of(path) for path in folder().rglob("*.nbi")})


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
        for path in where.glob("shared/*"):
            if time.time() - path.stat().st_mtime > UNUSED_S:
                path.unlink()


# ------ One thread for torch and BLAS: small networks run many times slower when several threads wait for each other


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
