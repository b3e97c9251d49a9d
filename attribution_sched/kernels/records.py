"""Named tuples of arrays as kernels get them: where their fields stand, not the fields themselves.

numba hands a tuple over field by field, seven numbers for an array: kernels that take the world and its state had six
hundred arguments, and each call of one wrote them all out. That was most of the time of a first use.
"""

from __future__ import annotations

import hashlib
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
    natives = []
    for at, each in enumerate(kind.fields):
        native = c.unbox(each, c.pyapi.tuple_getitem(record, at))
        stored = context.data_model_manager[each].as_data(builder, native.value)
        builder.store(stored, _place(context, builder, kind, start, at))
        builder.store(builder.or_(builder.load(failed), native.is_error), failed)
        natives.append((each, native))

    def release() -> None:
        for each, native in natives:
            if native.cleanup is not None:
                native.cleanup()
            if context.enable_nrt:
                context.nrt.decref(builder, each, native.value)

    # The optimiser must not look through to the writes above: it takes what kernels read for constant.
    hidden = builder.asm(ir.FunctionType(start.type, [start.type]), "", "=r,0,~{memory}", [start], True)
    return NativeValue(hidden, is_error=builder.load(failed), cleanup=release)


unbox(Reference)(_read_record)
