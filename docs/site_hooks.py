"""What the built site needs beside the pages: files from outside ``docs/``, and docstrings' markup made plain.

Pages link to files of the repository (``../examples/…``, ``../CHANGELOG.md``) in the way a reader of the repository can
follow; here the same files become part of the site and the links are turned to them.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
TAKEN_ALONG = ("CHANGELOG.md", "CONTRIBUTING.md", "NOTICE", "LICENSE", "examples/**/*.py", "examples/**/*.ipynb")


def on_files(files: Files, config: Any) -> Files:
    """Add files of the repository that pages link to."""
    for pattern in TAKEN_ALONG:
        for path in sorted(ROOT.glob(pattern)):
            if "__pycache__" not in path.parts:
                where = path.relative_to(ROOT).as_posix()
                files.append(File.generated(config, where, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Turn links that leave ``docs/`` to where the files are in the site."""
    up = "../" * page.file.src_uri.count("/")
    if page.file.src_uri in ("CHANGELOG.md", "CONTRIBUTING.md"):
        return re.sub(r"\]\(docs/", "](", markdown)
    return re.sub(rf"\]\({re.escape(up)}\.\./(?=[A-Za-z])", f"]({up}", markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Show Sphinx roles of docstrings as plain code."""
    html = re.sub(r":(?:class|meth|func|data|mod|attr|exc):(?:`|<code>)~(?:[\w.]+\.)?(\w+)(?:`|</code>)",
                  r"<code>\1</code>", html)  # fmt: skip
    html = re.sub(r":(?:class|meth|func|data|mod|attr|exc):(<code>)", r"\1", html)
    return html.replace("::</p>", ":</p>")
