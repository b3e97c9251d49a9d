"""How kernels become machine code: those that Python calls are doors, the others parts of them.

A part is typed and lowered and left to the doors it leads from; a door links the code of all its parts, each once,
and only then is that optimised and emitted. numba by itself optimises and emits every kernel alone and again inside
each caller, which was half of the time of a first use.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
from llvmlite.binding import Linkage, parse_assembly  # type: ignore[import-untyped]
from numba.core import types as numba_types
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.extending import models, register_model

from attribution_sched.kernels.resolving import quick_compilation

types: Any = numba_types


def door_of(function: Callable[..., Any], options: dict[str, Any], cache: Any) -> Any:
    """What Python calls: compiled with all it calls, or loaded from the cache."""
    door = numba.njit(pipeline_class=_DoorCompiler, no_cfunc_wrapper=True, **options)(function)
    door._cache = cache
    door._compiler.compile = quick_compilation()(door._compiler.compile)
    return door


def part_of(function: Callable[..., Any], options: dict[str, Any]) -> tuple[Any, Any]:
    """What other kernels call, and as what they see it, which does not keep it alive."""
    compiled_for = {"pipeline_class": _PartCompiler, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    part = numba.njit(**compiled_for, **options)(function)
    return part, _PartType(part)


class _PartType(types.Dispatcher):
    """A kernel as its callers see it: compiled once for integers of any size, and not again for each constant."""

    def get_call_type(self, context: Any, args: Any, kws: Any) -> Any:
        return super().get_call_type(context, tuple(map(_widened, args)), {name: _widened(kws[name]) for name in kws})


register_model(_PartType)(models.OpaqueModel)


def _widened(kind: Any) -> Any:
    kind = types.unliteral(kind)
    if isinstance(kind, types.Integer) and kind.signed and kind.bitwidth < types.int64.bitwidth:
        return types.int64
    return kind


class _Library(JITCodeLibrary):
    """LLVM code that is optimised in the door alone, and that names all parts it needs, those of its parts too."""

    def _optimize_functions(self, ll_module: Any) -> None:
        ll_module.data_layout = self._codegen._data_layout

    def add_linking_library(self, library: Any) -> None:
        behind = library._linking_libraries if isinstance(library, _PartLibrary) else ()
        for each in (library, *behind):
            if each not in self._linking_libraries:
                super().add_linking_library(each)


class _PartLibrary(_Library):
    """LLVM code of a kernel that waits for the doors that lead to it, which link, optimise and emit it."""

    def finalize(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True

    def own_module(self) -> Any:
        """Its code alone, for a door that links what it calls too."""
        return super()._get_module_for_linking()

    def _get_module_for_linking(self) -> Any:
        # Whoever is no door of ours (a function that others compile) gets it with all it calls.
        whole = self.own_module().clone()
        for each in self._linking_libraries:
            whole.link_in(_module_of(each), preserve=True)
        return whole

    def get_pointer_to_function(self, name: str) -> int:
        # It has no address of its own; zero is numba's word for that.
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


class _DoorLibrary(_Library):
    """LLVM code of a kernel that Python calls, with that of all it calls."""

    def finalize(self) -> None:
        for each in self._linking_libraries:
            self._reload_init.update(each._reload_init)
            self._final_module.link_in(_module_of(each), preserve=True)
        self._linking_libraries: list[Any] = []
        super().finalize()

    def serialize_using_object_code(self) -> Any:
        # Nobody links a door: of its code in LLVM's own form only the names are kept, which are looked up.
        self._ensure_finalized()
        defined = (each for each in self._final_module.functions if not each.is_declaration)
        names = [each.name for each in defined if each.linkage == Linkage.external]
        stubs = "".join(f'define void @"{name}"() {{ ret void }}\n' for name in names)
        return self.name, "object", (self._get_compiled_object(), parse_assembly(stubs).as_bitcode())


def _module_of(library: Any) -> Any:
    return library.own_module() if isinstance(library, _PartLibrary) else library._get_module_for_linking()


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
