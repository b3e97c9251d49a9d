"""Where settings come from: a preset, a YAML file, a mapping; and how one builds on another.

A document may say ``extends: cross-domain`` (a preset, or a file beside it) and then give only what
differs. Mappings are merged key by key; lists and plain values replace; ``null`` takes a key back to its
default. A mapping whose ``kind`` differs from that of its parent replaces it, and ``regions`` and
``domains`` replace each other, because the parent's other keys would make no sense there.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import ValidationError

from attribution_sched.config.fields import Record
from attribution_sched.config.schema import Settings
from attribution_sched.config.training import TrainingSettings
from attribution_sched.config.validation_errors import settings_error
from attribution_sched.errors import SettingsError, nearest, problem
from attribution_sched.limits import DEEPEST, MOST_NODES, check_document, check_path
from attribution_sched.words.text import clean_text

TRAINING_PRESET = "hi_ppo"
TRAINING_PRESETS = (TRAINING_PRESET,)
_PRESETS = resources.files("attribution_sched") / "presets"
PATH_KEYS = ("trace", "path", "config")
"""Keys that name a data file, wherever they stand."""
_RecordT = TypeVar("_RecordT", bound=Record)

MOST_BYTES = 4_000_000
"""Size of a settings file; three matrices of 250 domains take 1.5 MB."""

MOST_EXTENDED = 32
"""Documents that build on one another."""


def preset_names() -> tuple[str, ...]:
    """Return the names of the packaged worlds, sorted."""
    files = (entry.name for entry in _PRESETS.iterdir())
    names = (name.removesuffix(".yaml") for name in files if name.endswith(".yaml"))
    return tuple(sorted(name for name in names if name not in TRAINING_PRESETS))


def load_settings(source: str | Path | Mapping[str, Any] | Settings) -> Settings:
    """Load the settings of a world.

    Args:
        source: Name of a preset, path to a YAML file, a mapping, or settings, which are returned as they
            are.

    Raises:
        SettingsError: If the source does not exist, is malformed, or breaks a rule; one message with the
            dotted key, the value, the rule and the remedy.
    """
    if isinstance(source, Settings):
        return source
    return _load(source, Settings, preset_names())


def load_training_settings(
    source: str | Path | Mapping[str, Any] | TrainingSettings = TRAINING_PRESET,
) -> TrainingSettings:
    """Load how the learning scheduler learns, from the packaged settings of its specification by default.

    Args:
        source: ``hi_ppo``, path to a YAML file, a mapping, or ready settings.

    Raises:
        SettingsError: As :func:`load_settings`.
    """
    if isinstance(source, TrainingSettings):
        return source
    return _load(source, TrainingSettings, TRAINING_PRESETS)


def _load(source: object, record: type[_RecordT], presets: tuple[str, ...]) -> _RecordT:
    if not isinstance(source, str | Path | Mapping):
        rule = "must be the name of a preset, a path, a mapping or settings"
        raise SettingsError(problem("source", source, rule, f"For example {presets[0]!r}"))
    named = "" if isinstance(source, Mapping) else str(source)
    document = _resolve(source, presets, Path(), ())
    try:
        return record.model_validate(document)
    except ValidationError as error:
        raise settings_error(error, record, named) from None


def _resolve(
    source: str | Path | Mapping[str, Any], presets: tuple[str, ...], folder: Path, seen: tuple[str, ...]
) -> dict[str, Any]:
    """Read a document and everything it extends, merged into one."""
    if isinstance(source, Mapping):
        check_document(source, "settings")
        document = dict(source)
    elif str(source) in presets:
        key = str(source)
        document = _parse((_PRESETS / f"{key}.yaml").read_text(encoding="utf-8"), key)
    else:
        check_path("extends" if seen else "settings file", source)
        path = folder / source
        try:
            key = str(path.resolve())
        except (OSError, RuntimeError) as error:  # a circle of symbolic links is a RuntimeError
            raise SettingsError(
                problem("settings file", str(source), f"cannot be found ({error})", "Give the path of a YAML file")
            ) from None
        document = _anchored(_parse(_read(path, source, presets), str(path)), path.parent)
        folder = path.parent
    if not isinstance(source, Mapping):
        if key in seen:
            rule = "must not lead back to itself"
            raise SettingsError(problem("extends", str(source), rule, "Remove one of the extends keys"))
        if len(seen) >= MOST_EXTENDED:
            rule = f"at most {MOST_EXTENDED} documents may build on one another"
            raise SettingsError(problem("extends", str(source), rule, "Write some of them as one"))
        seen = (*seen, key)
    parent = document.pop("extends", None)
    if parent is None:
        return document
    if not isinstance(parent, str):
        rule = "must be the name of a preset or a path"
        raise SettingsError(problem("extends", parent, rule, nearest(parent, presets)))
    return merge(_resolve(parent, presets, folder, seen), document)


def merge(parent: Mapping[str, Any], child: Mapping[str, Any]) -> dict[str, Any]:
    """Lay ``child`` over ``parent``; neither is changed."""
    merged = dict(parent)
    for ours, other in (("regions", "domains"), ("domains", "regions")):
        if child.get(ours) is not None:
            merged.pop(other, None)
    for key, value in child.items():
        old = merged.get(key)
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, Mapping):
            inherited = old if isinstance(old, Mapping) and _same_kind(old, value) else {}
            merged[key] = merge(inherited, value)
        else:
            merged[key] = value
    return merged


def _same_kind(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    return "kind" not in new or new["kind"] == old.get("kind")


def read_mapping(path: Path) -> dict[str, Any]:
    """The fields of a YAML file, read as carefully as settings are.

    Raises:
        SettingsError: If it cannot be read, or holds no mapping.
    """
    return _parse(_read(path, path, ()), str(path))


def _read(path: Path, source: str | Path, presets: tuple[str, ...]) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            rule = f"must have at most {MOST_BYTES} bytes"
            raise SettingsError(problem("settings file", str(source), rule, "Give the path of a YAML file"))
        return content.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = "is not UTF-8 text" if isinstance(error, UnicodeDecodeError) else "cannot be read"
        text = str(source)
        if isinstance(source, str) and Path(text).name == text and not text.endswith((".yaml", ".yml")):
            rule = "is neither a preset nor a file that can be read"
            raise SettingsError(problem("preset", text, rule, nearest(text, presets))) from None
        detail = getattr(error, "strerror", None) or str(error)
        rule = f"{reason} ({detail})"
        raise SettingsError(problem("settings file", text, rule, "Give the path of a YAML file")) from None


def _parse(text: str, name: str) -> dict[str, Any]:
    """Parse YAML safely; a mistake is located by line and column."""
    try:
        loader = _Loader(text)
        document = loader.get_single_data()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{name}, {_position(mark)}" if mark else name
        rule = error.problem or error.context or "is not YAML"
        raise SettingsError(clean_text(f"{where}: malformed YAML, {rule}. Mend the line")) from None
    except (yaml.YAMLError, ValueError, AttributeError, TypeError, LookupError, OverflowError) as error:
        # Values that contradict their tag (`!!timestamp x`, `!!int ""`) end in errors of PyYAML's own code.
        first = [*str(error).splitlines(), "is not YAML"][0]
        raise SettingsError(clean_text(f"{name}: malformed YAML, {first}. Mend the file")) from None
    check_document(document, name)
    if not isinstance(document, dict):
        fix = "Write `key: value` lines; see the presets for an example"
        raise SettingsError(problem(name, document, "must hold a mapping of settings", fix))
    return document


class _Loader(yaml.SafeLoader):
    """The safe loader, which gives up on a document that is too deep or, with its aliases written out, too large.

    A kilobyte of aliases of aliases stands for more values than a machine can hold, so they are counted as they are
    read: an alias counts as often as what it stands for.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = 0
        self._nodes = 0
        self._sizes: dict[str, int] = {}

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Read a value and everything in it."""
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        anchor = getattr(event, "anchor", None)
        if isinstance(event, yaml.AliasEvent):
            if anchor in self.anchors and anchor not in self._sizes:
                raise _refused("a value must not contain itself", event)
            self._count(self._sizes.get(str(anchor), 1), event)
            return super().compose_node(parent, index)
        if self._depth > DEEPEST:
            raise _refused(f"values may be nested {DEEPEST} deep", event)
        before = self._nodes
        self._count(1, event)
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        if anchor is not None:
            self._sizes[anchor] = self._nodes - before
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Refuse a key that stands twice in one mapping, of which YAML would silently keep the last."""
        keys = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in keys:
                    raise yaml.MarkedYAMLError(
                        problem=f"the key {key.value!r} stands twice", problem_mark=key.start_mark
                    )
                keys.add(key.value)
        return super().construct_mapping(node, deep)

    def _count(self, more: int, event: Any) -> None:
        self._nodes += more
        if self._nodes > MOST_NODES:
            raise _refused(f"a document may hold {MOST_NODES} values, each alias counted as what it stands for", event)


def _refused(rule: str, event: Any) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=rule, problem_mark=event.start_mark)


def _position(mark: Any) -> str:
    return f"line {mark.line + 1}, column {mark.column + 1}"


def _anchored(part: Any, folder: Path) -> Any:
    """Let relative paths of data files start at the folder of the document that names them."""
    if isinstance(part, list):
        return [_anchored(each, folder) for each in part]
    if not isinstance(part, dict):
        return part
    return {
        key: str((folder / each).resolve()) if key in PATH_KEYS and isinstance(each, str) else _anchored(each, folder)
        for key, each in part.items()
    }
