"""Nothing is installed that no user can reach: every module is used by one of the doors, directly or further inside."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = "attribution_sched"
DOORS = re.compile(
    rf"{PACKAGE}(\.(system\.system|rivals\.arena\.by_preset|scheduler\.training|cluster\.envs\.registration|testing(\..+)?)|\.cli(\..+)?|\.executors(\..+)?|(\..+)?\.registry)?"
)
"""System and the public names, the arena, training, the environments, the command line, executors, registries."""


def modules(folder):
    """Dotted name → file."""
    found = {}
    for path in sorted((folder / PACKAGE).rglob("*.py")):
        parts = path.relative_to(folder).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def uses(path, known):
    """Modules that a file imports, at any level, or names as text (what is loaded by name)."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value.partition(":")[0])
    return found & set(known)


def unreachable(folder):
    """Modules that no door leads to."""
    known = modules(folder)
    seen, ahead = set(), [name for name in known if DOORS.fullmatch(name)]
    while ahead:
        name = ahead.pop()
        if name in seen:
            continue
        seen.add(name)
        parts = name.split(".")
        ahead += [".".join(parts[:i]) for i in range(1, len(parts))]  # importing a module loads the packages around it
        ahead += uses(known[name], known)
    return sorted(name for name in known if name not in seen and known[name].name != "__init__.py")


def test_every_installed_module_can_be_reached():
    assert unreachable(ROOT) == []


def test_a_module_that_nobody_uses_is_found(tmp_path):
    package = tmp_path / PACKAGE
    (package / "room").mkdir(parents=True)
    (package / "system").mkdir()
    (package / "system" / "__init__.py").touch()
    for name, text in {
        "__init__.py": "",
        "system/system.py": f"def f():\n    from {PACKAGE}.room import used\n",
        "lonely.py": f"from {PACKAGE}.system import system\n",
        "room/__init__.py": f"HOMES = {{'X': '{PACKAGE}.room.named'}}\n",
        "room/used.py": f"'''Not {PACKAGE}.room.spoken_of.'''\n",
        "room/named.py": "",
        "room/spoken_of.py": "",
    }.items():
        (package / name).write_text(text)
    assert unreachable(tmp_path) == [f"{PACKAGE}.lonely", f"{PACKAGE}.room.spoken_of"]
