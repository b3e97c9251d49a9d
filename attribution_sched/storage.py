"""The one file format for everything learnt or stopped: safetensors arrays and a JSON header under one checksum.

A file carries one JSON object in its safetensors metadata (key ``checkpoint``):

=====================  ==============================================================================
``format``             version of this layout
``schema``, ``version``  what the file holds and in which edition, such as ``hi-ppo`` 1
``attribution_schema``  the attribution vector that the network was trained on; null where it reads none
``header``             settings, as JSON text
``sha256``             checksum over all of the above and every array
=====================  ==============================================================================

Reading executes nothing, allocates nothing a small file could only promise, and refuses everything that is not
exactly what was written with one :class:`~attribution_sched.errors.CheckpointError`. Writing leaves a complete file
or the old one. Files of release 0.1 (three layouts) are read through :func:`_convert`.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attribution_sched.errors import AttributionSchedError, CheckpointError, problem

FORMAT = 2
"""Version of the layout; raised whenever a reader of the old one would go wrong."""

MOST_BYTES = 1 << 30
"""A larger file is not read."""

MOST_HEADER_BYTES = 16 << 20
"""Names, shapes and settings together; more than this is no checkpoint of ours."""

DEEPEST_JSON = 64
"""Nesting of a header."""

STALE_S = 600.0
"""A half-written file that nobody has touched for so long was left by a process that was killed."""

Arrays = dict[str, NDArray[Any]]

_COPY = "Use an untouched copy"


def write(
    path: str | Path,
    schema: str,
    header: Mapping[str, Any],
    arrays: Mapping[str, NDArray[Any]],
    *,
    version: int = 1,
    attribution_schema: str | None = None,
    any_number: tuple[str, ...] = (),
) -> None:
    """Write a checkpoint, complete or not at all.

    Args:
        path: Target file, ``*.safetensors``.
        schema: What it holds; :func:`read` refuses another schema.
        header: Settings and counters, ready for JSON, without NaN.
        arrays: Named arrays.
        version: Edition of the schema.
        attribution_schema: The attribution vector the network reads; None if it reads none.
        any_number: How the names of arrays begin in which NaN and infinity mean something.

    Raises:
        CheckpointError: If a weight is not finite, the header is not JSON, or the file cannot be written.
    """
    target = Path(path)
    try:
        text = json.dumps(header, sort_keys=True, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        rule = f"must be ready for JSON ({error})"
        raise CheckpointError(problem("checkpoint header", target.name, rule, "Give plain finite values")) from error
    packed = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    _refuse_odd_numbers(packed, str(path), any_number)
    about = {"format": FORMAT, "schema": schema, "version": version, "attribution_schema": attribution_schema}
    about |= {"header": text, "sha256": _digest(_Mark(schema, version, attribution_schema), text, packed)}
    # One key: safetensors writes several in no fixed order, and equal states should be equal files.
    content = pack(packed, {"checkpoint": json.dumps(about, sort_keys=True)})
    try:
        _sweep(target)
        replace_file(target, content)
    except OSError as error:
        rule = f"cannot be written ({error.strerror or error})"
        raise CheckpointError(problem("checkpoint", str(path), rule, "Give another path or make room")) from error


def read(
    path: str | Path,
    schema: str,
    *,
    version: int = 1,
    attribution_schema: str | None = None,
    any_number: tuple[str, ...] = (),
) -> tuple[dict[str, Any], Arrays]:
    """Read header and arrays back.

    Args:
        path: File written by :func:`write`, or by release 0.1.
        schema: What the file must hold.
        version: Which edition of it.
        attribution_schema: The attribution vector that the reader will feed the network; None accepts only networks
            that read none, or that come from 0.1, which did not say.
        any_number: As given to :func:`write`.

    Raises:
        CheckpointError: If the file is missing, too large, truncated, changed, not finite, or of another schema or
            version, or was trained on another attribution vector.
    """
    content = _content(path)
    checkpoint = _unpack(content, path)
    mark, header, arrays = checkpoint if checkpoint is not None else _convert(content, path, schema)
    if mark.schema != schema:
        fix = "Load it with the class that wrote it"
        raise CheckpointError(problem("checkpoint schema", mark.schema, f"must be {schema!r}", fix))
    if mark.version != version:
        fix = "Train and save again with this release"
        rule = f"this release reads version {version} of {schema!r}"
        raise CheckpointError(problem("checkpoint version", mark.version, rule, fix))
    if checkpoint is not None and mark.attribution_schema != attribution_schema:
        rule = f"it would read {attribution_schema!r} here, other numbers than it learnt on"
        fix = "Train again with this attributor, or use the attributor it was trained with"
        raise CheckpointError(problem("checkpoint attribution_schema", mark.attribution_schema, rule, fix))
    _refuse_odd_numbers(arrays, str(path), any_number)
    return header, arrays


def pack(arrays: Mapping[str, NDArray[Any]], metadata: Mapping[str, str] | None = None) -> bytes:
    """Arrays as the bytes of a safetensors file, for whoever keeps them elsewhere than in a file of their own."""
    from safetensors.numpy import save

    return bytes(save(dict(arrays), metadata=None if metadata is None else dict(metadata)))


def unpack(content: bytes, where: str) -> Arrays:
    """What :func:`pack` packed; nothing of it is executed.

    Args:
        content: The bytes.
        where: What to call them in a message.

    Raises:
        CheckpointError: If they are not those of a safetensors file.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        arrays: Arrays = load(content)
    # What safetensors raises for an element type that numpy lacks differs from release to release.
    except (SafetensorError, ValueError, TypeError, KeyError, AttributeError, OverflowError, MemoryError) as error:
        raise CheckpointError(problem("checkpoint", where, "is truncated or not a checkpoint", _COPY)) from error
    return arrays


def take(arrays: Mapping[str, NDArray[Any]], prefix: str) -> Arrays:
    """The arrays whose names begin with ``prefix``, without it."""
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def expected_sizes(path: str | Path, sizes: Any, most: Mapping[str, int]) -> dict[str, int]:
    """Whole numbers of a header that decide how much memory a network takes, within their limits.

    Args:
        path: The file, for the message.
        sizes: What the header says.
        most: Name → largest value; exactly these names must be there.

    Raises:
        CheckpointError: If a name is missing, unknown, or its value is no whole number from 1 to its limit.
    """
    if not isinstance(sizes, dict) or set(sizes) != set(most):
        rule = f"must give {', '.join(sorted(most))} as whole numbers"
        raise CheckpointError(problem(f"{Path(path).name} checkpoint size", sizes, rule, _COPY))
    for name, limit in most.items():
        value = sizes[name]
        if type(value) is not int or not 1 <= value <= limit:
            rule = f"must be a whole number from 1 to {limit}"
            raise CheckpointError(problem(f"checkpoint size.{name}", value, rule, _COPY))
    return {name: int(sizes[name]) for name in most}


@contextmanager
def rebuilding(path: str | Path, what: str) -> Iterator[None]:
    """Build an object from what a file holds; a part that is missing or of another form is one clear error."""
    try:
        yield
    except CheckpointError:
        raise
    except (
        AttributionSchedError,
        KeyError,
        TypeError,
        ValueError,
        IndexError,
        AttributeError,
        RuntimeError,
        OverflowError,
    ) as error:
        rule = f"holds no complete {what} ({type(error).__name__}: {error})"
        raise CheckpointError(problem("checkpoint", str(path), rule, "Save it again with this release")) from error


class _Mark(NamedTuple):
    """What a file says it is."""

    schema: Any
    version: Any
    attribution_schema: Any


def _content(path: str | Path) -> bytes:
    """The bytes of a file, unless they are absurdly many."""
    target = Path(path)
    if not target.is_file():
        raise CheckpointError(problem("checkpoint", str(path), "does not exist", "Check the path, or train"))
    try:
        size = target.stat().st_size
        if size > MOST_BYTES:
            rule = f"has {size} bytes, at most {MOST_BYTES} are read"
            raise CheckpointError(problem("checkpoint", str(path), rule, "Check that it is a checkpoint"))
        return target.read_bytes()
    except OSError as error:
        rule = f"cannot be read ({error.strerror or error})"
        raise CheckpointError(problem("checkpoint", str(path), rule, "Check its permissions")) from error


def _unpack(content: bytes, path: str | Path) -> tuple[_Mark, dict[str, Any], Arrays] | None:
    """What is in a file of this format, checked against its checksum; None if it is of 0.1."""
    about = _metadata(content, path).get("checkpoint")
    if about is None:
        return None
    description = _json(about, path, "description")
    if "format" not in description and "kind" in description:
        return None
    if description.get("format") != FORMAT:
        rule, fix = f"this release reads format {FORMAT}", "Use the release that wrote it, or train and save again"
        raise CheckpointError(problem("checkpoint format", description.get("format"), rule, fix))
    mark = _Mark(description.get("schema"), description.get("version"), description.get("attribution_schema"))
    text, arrays = str(description.get("header", "")), unpack(content, str(path))
    if description.get("sha256") != _digest(mark, text, arrays):
        raise _changed(path)
    return mark, _json(text, path, "header"), arrays


def _metadata(content: bytes, path: str | Path) -> dict[str, Any]:
    """The metadata of a safetensors file, read without its arrays: eight bytes of length, then JSON."""
    length = int.from_bytes(content[:8], "little")
    if len(content) < 8 or length > len(content) - 8:
        raise CheckpointError(problem("checkpoint", str(path), "is truncated or not a checkpoint", _COPY))
    if length > MOST_HEADER_BYTES:
        rule = f"has a header of {length} bytes, at most {MOST_HEADER_BYTES} are read"
        raise CheckpointError(problem("checkpoint", str(path), rule, "Check that it is a checkpoint"))
    try:
        header = json.loads(content[8 : 8 + length])
        metadata = header.get("__metadata__", {})
    except (ValueError, RecursionError, AttributeError) as error:
        raise CheckpointError(problem("checkpoint", str(path), "is truncated or not a checkpoint", _COPY)) from error
    return metadata if isinstance(metadata, dict) else {}


def _json(text: Any, path: str | Path, what: str) -> dict[str, Any]:
    """A JSON object, no deeper than anything we write."""
    try:
        value = json.loads(text)
        sound = isinstance(value, dict) and _depth(value) <= DEEPEST_JSON
    except (ValueError, TypeError, RecursionError):
        sound = False
    if not sound:
        rule = f"has a broken {what}: it must be a JSON object at most {DEEPEST_JSON} deep"
        raise CheckpointError(problem("checkpoint", str(path), rule, _COPY))
    mapping: dict[str, Any] = value
    return mapping


def _depth(value: Any) -> int:
    """How deep lists and objects are nested; counted level by level, so that no depth can exhaust the stack."""
    level, depth = [value], 0
    while level and depth <= DEEPEST_JSON:
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        depth += 1
    return depth


def _digest(mark: _Mark, text: str, arrays: Mapping[str, NDArray[Any]]) -> str:
    """Checksum over everything a reader relies on."""
    digest = hashlib.sha256(json.dumps([FORMAT, *mark, text]).encode())
    _add_arrays(digest, arrays)
    return digest.hexdigest()


def _add_arrays(digest: Any, arrays: Mapping[str, NDArray[Any]]) -> None:
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(np.asarray(array, order="C").data)


def _changed(path: str | Path) -> CheckpointError:
    rule = "was changed after it was written: its checksum does not match"
    return CheckpointError(problem("checkpoint", str(path), rule, _COPY))


def _refuse_odd_numbers(arrays: Mapping[str, NDArray[Any]], path: str, any_number: tuple[str, ...]) -> None:
    """A weight that is not finite makes every later decision undefined, so it is neither written nor read."""
    for name, array in arrays.items():
        if array.dtype.kind == "f" and not name.startswith(any_number or "\0") and not np.isfinite(array).all():
            rule = f"{path} must hold finite weights only"
            fix = "Use an earlier checkpoint, or train again with a lower learning rate"
            raise CheckpointError(problem(f"checkpoint weight {name}", "NaN or infinity", rule, fix))


def replace_file(target: Path, content: bytes) -> None:
    """Put a file in its place in one step, on the disk and not only in its cache."""
    partial = target.with_name(f"{target.name}.{os.getpid()}.partial")
    try:
        with partial.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
    if os.name == "posix":
        # The new name itself is durable only with its folder.
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _sweep(target: Path) -> None:
    """Remove what killed processes left half written beside a target."""
    for partial in target.parent.glob(f"{glob.escape(target.name)}.*.partial"):
        number = partial.name.removeprefix(target.name).split(".")[1]
        if number.isdecimal() and time.time() - partial.stat().st_mtime > STALE_S:
            partial.unlink(missing_ok=True)


# Files of release 0.1 ---------------------------------------------------------------------------------------------


def _convert(content: bytes, path: str | Path, schema: str) -> tuple[_Mark, dict[str, Any], Arrays]:
    """Read a file of 0.1, which had three layouts, checked by its own checksum.

    Runs (``checkpoint`` in the metadata) and estimators (``estimator``) keep their header inside; the attention
    network and the link forecaster have a JSON file beside them, which becomes the header.
    """
    metadata = _metadata(content, path)
    for key in ("checkpoint", "estimator"):
        if key in metadata:
            description = _json(metadata[key], path, "description")
            old = description.get("schema" if key == "checkpoint" else "version")
            if old != 1:
                rule, fix = "files of 0.1 have version 1", "Train and save again with this release"
                raise CheckpointError(problem("checkpoint version", old, rule, fix))
            kind, text, arrays = description.get("kind"), str(description.get("header", "")), unpack(content, str(path))
            digest = hashlib.sha256(f"{kind}\n1\n{text}\n".encode())
            _add_arrays(digest, arrays)
            if description.get("sha256") != digest.hexdigest():
                raise _changed(path)
            return _Mark(kind, 1, None), _json(text, path, "header"), arrays
    beside = Path(path).with_suffix(".json")
    if not beside.is_file() or beside.stat().st_size > MOST_HEADER_BYTES:
        raise CheckpointError(
            problem("checkpoint schema", None, f"must be {schema!r}", "Check that it is a checkpoint")
        )
    description = _json(beside.read_bytes(), beside, "description")
    if set(description) != {"format", "sha256", "size", "made"} or description["format"] != 1:
        rule = "must describe weights of release 0.1: format 1, sha256, size, made"
        raise CheckpointError(problem(beside.name, sorted(description), rule, "Train and save again with this release"))
    if description["sha256"] != hashlib.sha256(content).hexdigest():
        raise _changed(path)
    return (
        _Mark(schema, 1, None),
        {"size": description["size"], "made": description["made"]},
        unpack(content, str(path)),
    )
