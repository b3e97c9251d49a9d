"""Write the tables of ``docs/results_senses.md`` from the days that were played; words around them stay.

attribution-sched bench senses cross-domain --days 20 --seed 4910000 --output arena/senses      # plays what is missing
attribution-sched bench senses shared --days 16 --seed 4930000 --output arena/senses
python benchmarks/write_senses_results.py                                                       # plays nothing
"""

from __future__ import annotations

import re
from pathlib import Path

from attribution_sched.cli.senses import measure_senses

TARGET = Path(__file__).parents[1] / "docs" / "results_senses.md"
DAYS = Path("arena") / "senses"

SECTIONS = (
    ("Tasks that share devices, the rule with the fork", "shared", "", 4_930_000),
    ("Models that no region holds, the rule", "cross-domain", "rule", 4_910_000),
    ("Models that no region holds, the rule with the fork", "cross-domain", "", 4_910_000),
)
"""Heading, preset, the arms that have been played on days enough (all by default), and the first of these days."""


def main() -> None:
    """Replace the first table of every section."""
    page = TARGET.read_text("utf-8")
    for title, preset, only, first_seed in SECTIONS:
        told = measure_senses(preset, 100, "0.9", first_seed, -1.0, DAYS, only)
        head, body = re.split(rf"(?<=^## {title}$)", page, maxsplit=1, flags=re.MULTILINE)
        before, _, rest = body.partition("```text\n")
        after = rest.partition("\n```")[2]
        page = f"{head}{before}```text\n{told}\n```{after}"
    TARGET.write_text(page, "utf-8")


if __name__ == "__main__":
    main()
