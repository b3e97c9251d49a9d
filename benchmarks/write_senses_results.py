"""Write the tables of ``docs/results_senses.md`` from the days that were played; words around them stay.

attribution-sched bench senses cross-domain --only rule --output arena/senses    # plays what is missing
python benchmarks/write_senses_results.py                                        # plays nothing
"""

from __future__ import annotations

import re
from pathlib import Path

from attribution_sched.cli.senses import measure_senses

TARGET = Path(__file__).parents[1] / "docs" / "results_senses.md"
DAYS = Path("arena") / "senses"
FIRST_SEED = 3_198_000

SECTIONS = (("Models that no region holds", "cross-domain", "rule"),)
"""Heading, preset and the arms that have been played on days enough."""


def main() -> None:
    """Replace the first table of every section."""
    page = TARGET.read_text("utf-8")
    for title, preset, only in SECTIONS:
        told = measure_senses(preset, 100, "0.9", FIRST_SEED, -1.0, DAYS, only)
        head, body = re.split(rf"(?<=^## {title}$)", page, maxsplit=1, flags=re.MULTILINE)
        before, _, rest = body.partition("```text\n")
        after = rest.partition("\n```")[2]
        page = f"{head}{before}```text\n{told}\n```{after}"
    TARGET.write_text(page, "utf-8")


if __name__ == "__main__":
    main()
