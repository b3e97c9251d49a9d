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
from attribution_sched.config.translate import settings_error
from attribution_sched.errors import SettingsError, nearest, problem

TRAINING_PRESET = "hi_ppo"
TRAINING_PRESETS = (TRAINING_PRESET, "hi_ppo_tuned")
_PRESETS = resources.files("attribution_sched") / "presets"
_PATH_KEYS = (("network", "trace"), ("arrivals", "path"))
_RecordT = TypeVar("_RecordT", bound=Record)


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
        source: ``hi_ppo``, ``hi_ppo_tuned``, path to a YAML file, a mapping, or ready settings.

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
        document = dict(source)
    elif str(source) in presets:
        key = str(source)
        document = _parse((_PRESETS / f"{key}.yaml").read_text(encoding="utf-8"), key)
    else:
        path = folder / source
        key = str(path.resolve())
        document = _anchored(_parse(_read(path, source, presets), str(path)), path.parent)
        folder = path.parent
    if not isinstance(source, Mapping):
        if key in seen:
            rule = "must not lead back to itself"
            raise SettingsError(problem("extends", str(source), rule, "Remove one of the extends keys"))
        seen = (*seen, key)
    parent = document.pop("extends", None)
    if parent is None:
        return document
    if not isinstance(parent, str):
        rule = "must be the name of a preset or a path"
        raise SettingsError(problem("extends", parent, rule, nearest(str(parent), presets)))
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


def _read(path: Path, source: str | Path, presets: tuple[str, ...]) -> str:
    try:
        return path.read_text(encoding="utf-8")
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
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        _refuse_repeats(node, name, set())
        document = yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{name}, {_position(mark)}" if mark else name
        rule = error.problem or error.context or "is not YAML"
        raise SettingsError(f"{where}: malformed YAML, {rule}. Mend the line") from None
    except (yaml.YAMLError, ValueError) as error:
        first = str(error).splitlines()[0]
        raise SettingsError(f"{name}: malformed YAML, {first}. Mend the file") from None
    if not isinstance(document, dict):
        fix = "Write `key: value` lines; see the presets for an example"
        raise SettingsError(problem(name, document, "must hold a mapping of settings", fix))
    return document


def _refuse_repeats(node: yaml.Node | None, name: str, visited: set[int]) -> None:
    """Refuse a key that stands twice in one mapping, of which YAML would silently keep the last."""
    if node is None or id(node) in visited:  # aliases share nodes, and may even form a circle
        return
    visited.add(id(node))
    if isinstance(node, yaml.SequenceNode):
        for entry in node.value:
            _refuse_repeats(entry, name, visited)
    if not isinstance(node, yaml.MappingNode):
        return
    keys = set()
    for key, value in node.value:
        if isinstance(key, yaml.ScalarNode):
            if key.value in keys:
                where = f"{name}, {_position(key.start_mark)}"
                raise SettingsError(f"{where}: the key {key.value!r} stands twice. Remove one of them")
            keys.add(key.value)
        _refuse_repeats(value, name, visited)


def _position(mark: Any) -> str:
    return f"line {mark.line + 1}, column {mark.column + 1}"


def _anchored(document: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Let relative paths of data files start at the folder of the document that names them."""
    for section, key in _PATH_KEYS:
        part = document.get(section)
        if isinstance(part, dict) and isinstance(part.get(key), str):
            part[key] = str((folder / part[key]).resolve())
    course = document.get("course")
    if isinstance(course, dict):
        worlds = course.get("worlds")
        for part in [*(worlds if isinstance(worlds, list) else ()), course.get("evaluation")]:
            # A world is a preset by its name or a file by its suffix.
            if isinstance(part, dict) and str(part.get("preset")).endswith((".yaml", ".yml")):
                part["preset"] = str((folder / part["preset"]).resolve())
    return document
