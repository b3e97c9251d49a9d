"""The private names of numba and llvmlite that this room rests on: a newer release without one fails here, by name."""

from __future__ import annotations

import ast
import operator
from importlib import import_module
from pathlib import Path

import numba
import pytest

from attribution_sched import kernels

ROOM = Path(kernels.__file__).parent
IMPORTED = sorted(
    {
        (node.module, name.name)
        for path in ROOM.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in ("numba", "llvmlite")
        for name in node.names
    }
)
"""Every name that the room imports, private or not."""

TOUCHED = [
    # What a door is given: its cache, and a compiler that is wrapped.
    ("numba.core.dispatcher", "Dispatcher.enable_caching"), ("numba.core.dispatcher", "_FunctionCompiler.compile"),
    # Code that waits, and code that is emitted.
    ("numba.core.codegen", "JITCodeLibrary._optimize_functions"),
    ("numba.core.codegen", "JITCodeLibrary._finalize_dynamic_globals"),
    ("numba.core.codegen", "JITCodeLibrary._get_module_for_linking"),
    ("numba.core.codegen", "JITCodeLibrary._ensure_finalized"), ("numba.core.codegen", "JITCodeLibrary._finalized"),
    ("numba.core.codegen", "JITCodeLibrary._get_compiled_object"),
    ("numba.core.codegen", "JITCodeLibrary.add_linking_library"),
    ("numba.core.codegen", "JITCodeLibrary.enable_object_caching"),
    ("numba.core.codegen", "JITCodeLibrary.get_pointer_to_function"),
    ("numba.core.codegen", "JITCodeLibrary.serialize_using_object_code"),
    ("numba.core.codegen", "JITCPUCodegen.set_env"), ("numba.core.codegen", "JITCPUCodegen.magic_tuple"),
    ("numba.core.compiler", "CompilerBase.define_pipelines"),
    ("numba.core.compiler", "DefaultPassBuilder.define_nopython_pipeline"),
    # How a call is typed.
    ("numba.core.types", "Dispatcher.get_call_type"), ("numba.core.types", "BaseFunction.get_call_type"),
    ("numba.core.types", "BaseFunction.get_impl_key"), ("numba.core.types", "unliteral"),
    ("numba.core.types", "BaseNamedTuple"),
    # Records.
    ("numba.core.typing.templates", "AttributeTemplate.generic_resolve"),
    ("numba.core.pythonapi", "_UnboxContext._replace"), ("numba.core.pythonapi", "PythonAPI.tuple_getitem"),
    ("numba.core.base", "BaseContext.get_abi_sizeof"), ("numba.core.base", "BaseContext.get_python_api"),
    ("numba.core.runtime.context", "NRTContext.decref"),
    # The cache.
    ("numba.core.caching", "FunctionCache._index_key"), ("numba.core.caching", "FunctionCache.load_overload"),
    ("numba.core.caching", "FunctionCache.save_overload"), ("numba.core.caching", "FunctionCache.disable"),
    ("numba.core.caching", "CompileResultCacheImpl.get_filename_base"),
    ("numba.core.caching", "_CacheLocator.get_cache_path"), ("numba.core.caching", "_CacheLocator.get_source_stamp"),
    ("numba.core.caching", "_CacheLocator.get_disambiguator"), ("numba.core.caching", "_CacheLocator.from_function"),
]  # fmt: skip
"""Attributes that it overrides or calls: module, and the way from there."""


def lacking(module: str, way: str) -> str:
    """What is said of a name that this numba does not have; empty if it has it."""
    where = f"numba {numba.__version__} has no {module}.{way}, which attribution_sched/kernels rests on"
    try:
        at = import_module(module)
        for name in way.split("."):
            at = getattr(at, name)
    except (ImportError, AttributeError):
        return where
    return ""


@pytest.mark.parametrize(("module", "name"), [*IMPORTED, *TOUCHED])
def test_numba_has_the_name(module, name):
    assert not lacking(module, name)


def test_attributes_of_instances_are_there():
    """What classes do not show: set when a library, a cache or a door is made."""
    from numba.core.registry import cpu_target

    @kernels.kernel
    def plus(x):
        return x + 1

    assert plus(1) == 2
    door, codegen = plus._door, cpu_target.target_context.codegen()
    library = codegen.create_library("empty")
    add = cpu_target.typing_context.resolve_value_type(operator.add)
    seen = {
        "BaseFunction.typing_key": hasattr(add, "typing_key"),
        "Dispatcher._cache": hasattr(door, "_cache"),
        "Dispatcher._compiler": hasattr(door, "_compiler"),
        "JITCodeLibrary._linking_libraries": hasattr(library, "_linking_libraries"),
        "JITCodeLibrary._reload_init": hasattr(library, "_reload_init"),
        "JITCodeLibrary._final_module": hasattr(library, "_final_module"),
        "JITCodeLibrary._codegen": hasattr(library, "_codegen"),
        "JITCPUCodegen._data_layout": hasattr(codegen, "_data_layout"),
        "FunctionCache._cache_file._index_path": hasattr(door._cache._cache_file, "_index_path"),
    }
    missing = [name for name, there in seen.items() if not there]
    assert not missing, f"numba {numba.__version__} has no {missing[0]}, which attribution_sched/kernels rests on"


def test_a_name_that_is_gone_is_told_in_one_sentence(monkeypatch):
    from numba.core.codegen import CPUCodeLibrary

    assert not lacking("numba.core.codegen", "JITCodeLibrary._optimize_functions")
    monkeypatch.delattr(CPUCodeLibrary, "_optimize_functions")
    words = lacking("numba.core.codegen", "JITCodeLibrary._optimize_functions")
    assert words.startswith(f"numba {numba.__version__} has no numba.core.codegen.JITCodeLibrary._optimize_functions")


def test_every_attribute_that_is_overridden_is_listed():
    """Methods of the room's classes that numba calls: whoever adds one adds its name above."""
    ours = {
        method.name
        for path in ROOM.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.ClassDef) and any(ast.unparse(base) in BASES for base in node.bases)
        for method in node.body
        if isinstance(method, ast.FunctionDef) and not method.name.startswith("__")
    }
    listed = {way.rpartition(".")[2] for _, way in TOUCHED}
    assert ours - listed <= {"finalize", "codegen", "own_module"}


BASES = {
    "JITCodeLibrary", "_Library", "CompilerBase", "_PartCompiler", "types.Dispatcher", "FunctionCache",
    "CompileResultCacheImpl", "_CacheLocator", "AttributeTemplate", "models.PrimitiveModel", "types.Type",
}  # fmt: skip
