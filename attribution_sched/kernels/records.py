"""Named tuples of arrays as kernels get them: where their fields stand, not the fields themselves.

numba hands a tuple over field by field, seven numbers for an array: kernels that take the world and its state had six
hundred arguments, and each call of one wrote them all out. That was most of the time of a first use.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import partial
from itertools import accumulate
from typing import Any, TypeVar

from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import cgutils
from numba.core import types as numba_types
from numba.core.imputils import impl_ret_borrowed, lower_getattr_generic
from numba.core.typing.templates import AttributeTemplate, infer_getattr
from numba.extending import NativeValue, models, register_model, typeof_impl, unbox

from attribution_sched.kernels.digest import type_text

types: Any = numba_types
Record = TypeVar("Record")


class Reference(types.Type):
    """The type of a record that is passed by reference: its class, and the types of its fields."""

    def __init__(self, record: type[Any], fields: tuple[Any, ...]) -> None:
        self.names, self.fields = record._fields, fields
        shape = "|".join(f"{name} {type_text(each)}" for name, each in zip(self.names, fields, strict=True))
        short = hashlib.sha256(shape.encode()).hexdigest()[:12]
        super().__init__(f"Reference({record.__module__}.{record.__qualname__}.{short})")


def by_reference(record: type[Record]) -> type[Record]:
    """Let kernels get these named tuples by reference; a kernel reads their fields, and makes none of them."""
    names: tuple[str, ...] = record._fields  # type: ignore[attr-defined]

    def kind_of(value: Any, context: Any) -> Reference:
        return Reference(record, tuple(typeof_impl(getattr(value, name), context) for name in names))

    typeof_impl.register(record)(kind_of)
    return record


@register_model(Reference)
class _ReferenceModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, ir.IntType(8).as_pointer())


@infer_getattr
class _ReferenceFields(AttributeTemplate):
    key = Reference

    def generic_resolve(self, kind: Reference, name: str) -> Any:
        return kind.fields[kind.names.index(name)] if name in kind.names else None


_offsets: dict[str, tuple[list[int], int]] = {}


def _layout(context: Any, kind: Reference) -> tuple[list[int], int]:
    """Where each field stands, in bytes, and how many they take together."""
    if kind.name not in _offsets:
        sizes = [context.get_abi_sizeof(context.data_model_manager[each].get_data_type()) for each in kind.fields]
        ends = list(accumulate(-(-size // 8) * 8 for size in sizes))
        _offsets[kind.name] = [0, *ends[:-1]], ends[-1]
    return _offsets[kind.name]


def _place(context: Any, builder: Any, kind: Reference, value: Any, at: int) -> Any:
    """Pointer to a field."""
    stored = context.data_model_manager[kind.fields[at]].get_data_type()
    there = builder.gep(value, [ir.Constant(ir.IntType(64), _layout(context, kind)[0][at])], inbounds=True)
    return builder.bitcast(there, stored.as_pointer())


def _read_field(context: Any, builder: Any, kind: Reference, value: Any, name: str) -> Any:
    at = kind.names.index(name)
    model = context.data_model_manager[kind.fields[at]]
    before = len(builder.block.instructions)
    field = model.load_from_data_pointer(builder, _place(context, builder, kind, value, at))
    # Nobody writes to the fields while a kernel runs, so they need not be read again after every write to an array.
    never = builder.module.add_metadata([])
    for each in builder.block.instructions[before:]:
        if isinstance(each, ir.instructions.LoadInstr):
            each.set_metadata("invariant.load", never)
    return impl_ret_borrowed(context, builder, kind.fields[at], field)


lower_getattr_generic(Reference)(_read_field)


def _read_record(kind: Reference, record: Any, c: Any) -> Any:
    """Write the fields where kernels find them: on the stack of whoever calls from Python."""
    builder, context = c.builder, c.context
    stack = cgutils.alloca_once(builder, ir.ArrayType(ir.IntType(64), _layout(context, kind)[1] // 8))
    start = builder.bitcast(stack, ir.IntType(8).as_pointer())
    failed = cgutils.alloca_once_value(builder, cgutils.false_bit)
    releases: list[Callable[[], None] | None] = []
    for at, each in enumerate(kind.fields):
        place, item = _place(context, builder, kind, start, at), c.pyapi.tuple_getitem(record, at)
        if isinstance(each, types.Array):
            wrong = builder.call(_array_reader(c, each), [item, place])
            releases.append(partial(builder.call, _array_releaser(c, each), [place]) if context.enable_nrt else None)
        else:
            native = c.unbox(each, item)
            builder.store(context.data_model_manager[each].as_data(builder, native.value), place)
            wrong = native.is_error
            releases.append(native.cleanup)
        builder.store(builder.or_(builder.load(failed), wrong), failed)

    def release() -> None:
        for each in releases:
            if each is not None:
                each()

    # The optimiser must not look through to the writes above: it takes what kernels read for constant.
    hidden = builder.asm(ir.FunctionType(start.type, [start.type]), "", "=r,0,~{memory}", [start], True)
    return NativeValue(hidden, is_error=builder.load(failed), cleanup=release)


unbox(Reference)(_read_record)


def _array_reader(c: Any, kind: Any) -> Any:
    """A function that reads an array of a kind; written out for each field it was a quarter of all machine code."""
    model = c.context.data_model_manager[kind]
    place = model.get_data_type().as_pointer()
    reader, builder = _helper(c, f"read {kind}", ir.FunctionType(ir.IntType(1), [c.pyapi.pyobj, place]))
    if builder is not None:
        native = c._replace(builder=builder, pyapi=c.context.get_python_api(builder)).unbox(kind, reader.args[0])
        builder.store(model.as_data(builder, native.value), reader.args[1])
        builder.ret(native.is_error)
    return reader


def _array_releaser(c: Any, kind: Any) -> Any:
    """A function that gives back an array that was read."""
    model = c.context.data_model_manager[kind]
    place = model.get_data_type().as_pointer()
    releaser, builder = _helper(c, f"release {kind}", ir.FunctionType(ir.VoidType(), [place]))
    if builder is not None:
        c.context.nrt.decref(builder, kind, model.load_from_data_pointer(builder, releaser.args[0]))
        builder.ret_void()
    return releaser


def _helper(c: Any, name: str, kind: Any) -> tuple[Any, Any]:
    """A function of the module that is being written, and where to write it, or None if it is there already."""
    module = c.builder.module
    if name in module.globals:
        return module.globals[name], None
    function = ir.Function(module, kind, name)
    function.linkage = "internal"
    function.attributes.add("noinline")
    return function, ir.IRBuilder(function.append_basic_block("entry"))
