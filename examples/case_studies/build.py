"""Build the notebooks of the case studies from their scripts, and run them.

    python examples/case_studies/build.py [01 02 ...] [--output FOLDER]

Needs the extra ``notebooks``. Set ``ATTRIBUTION_SCHED_DATA`` to have the fourth study read the recorded tables.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
LIMIT_BYTES = 1_500_000
TIMEOUT_S = 1200


def scripts(wanted: list[str]) -> list[Path]:
    """The studies whose names begin as asked for; all by default."""
    listed = sorted(FOLDER.glob("[0-9][0-9]_*.py"))
    return [path for path in listed if not wanted or any(path.name.startswith(name) for name in wanted)]


def build(script: Path, output: Path) -> Path:
    """Turn one script into a notebook with its outputs."""
    import jupytext
    import nbformat
    from nbclient import NotebookClient

    # Figures go into the notebook, whatever backend this shell has chosen.
    os.environ["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"
    notebook = jupytext.read(script)
    client = NotebookClient(
        notebook, timeout=TIMEOUT_S, kernel_name="python3", resources={"metadata": {"path": str(FOLDER)}},
        record_timing=False,
    )  # fmt: skip
    client.execute()
    tidy(notebook)
    nbformat.validate(notebook)
    path = output / f"{script.stem}.ipynb"
    text = nbformat.writes(notebook)
    if len(text.encode()) > LIMIT_BYTES:
        sys.exit(f"{path.name}: {len(text.encode()):,} bytes are more than {LIMIT_BYTES:,}; draw smaller figures")
    if str(FOLDER.parents[1]) in text:
        sys.exit(f"{path.name}: an output names a folder of this machine")
    path.write_text(text + "\n", encoding="utf-8")
    return path


def tidy(notebook: Any) -> None:
    """Leave nothing that differs from run to run without meaning: ids, versions, addresses, names of styles."""
    for number, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{number:02d}"
        cell["metadata"] = {}
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            if "text/html" in data or "text/markdown" in data:
                data.pop("text/plain", None)
            if "text/html" in data:
                data["text/html"] = re.sub(r"T_[0-9a-f]{5}", f"T_{number:02d}", "".join(data["text/html"]))
    notebook["metadata"] = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }


def main() -> None:
    """Build what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("studies", nargs="*", help="numbers of studies, for example 01 03; all by default")
    parser.add_argument("--output", type=Path, default=FOLDER, help="where to put the notebooks")
    args = parser.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    found = scripts(args.studies)
    if not found:
        sys.exit(f"no study begins with {', '.join(args.studies)}")
    for script in found:
        began = time.perf_counter()
        path = build(script, args.output)
        print(f"{path.name}: {path.stat().st_size / 1e6:.2f} MB in {time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
