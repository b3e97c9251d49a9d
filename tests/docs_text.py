"""What the tests of README and pages share: where texts are, and the Python in them."""

from __future__ import annotations

import importlib.util
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
TEXTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *PAGES]


@dataclass(frozen=True)
class Block:
    """A block of Python in a text.

    Attributes:
        where: File and line.
        code: The block.
        unrun: Why it is not run; empty if it is.
    """

    where: str
    code: str
    unrun: str


def named(path: Path) -> str:
    """Path as a reader of the repository knows it."""
    return path.relative_to(ROOT).as_posix()


def blocks(path: Path) -> list[Block]:
    """Blocks of Python, in order."""
    text = path.read_text("utf-8")
    found = []
    for match in re.finditer(r"(?:<!-- not run: (?P<why>[^\n]+?) -->\n)?```python\n(?P<code>.*?)```", text, re.DOTALL):
        line = text.count("\n", 0, match.start("code")) + 1
        found.append(Block(f"{named(path)}:{line}", match["code"], match["why"] or ""))
    return found


def script(path: str) -> ModuleType:
    """A script of the repository as a module."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module
