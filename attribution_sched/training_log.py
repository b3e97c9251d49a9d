"""What a training run writes on its way: one JSON line per event, and the same numbers for TensorBoard."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

METRICS = "metrics.jsonl"
EVENTS = "tensorboard"


class TrainingLog:
    """Metrics of a run that may have been stopped before.

    Args:
        folder: Where ``metrics.jsonl`` and ``tensorboard/`` go.
        after: Iteration and decisions that the run goes on from; what was logged beyond them is forgotten, so the
            log of a resumed run is that of one that never stopped. None begins anew.
    """

    def __init__(self, folder: Path, after: tuple[int, int] | None = None) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.path = folder / METRICS
        kept = [] if after is None else [row for row in read_metrics(self.path) if row["iteration"] <= after[0]]
        self.path.write_text("".join(_line(row) for row in kept), encoding="utf-8")
        self._file = self.path.open("a", encoding="utf-8")
        purge = 0 if after is None else after[1] + 1
        self._writer: Any = SummaryWriter(str(folder / EVENTS), purge_step=purge)

    def write(self, kind: str, iteration: int, decisions: int, numbers: Mapping[str, Any]) -> None:
        """Log one event.

        Args:
            kind: ``cloning``, ``comparing``, ``agents``, ``iteration`` or ``held_out``.
            iteration: Iterations done.
            decisions: Decisions taken, the axis of the plots.
            numbers: Name → number, or name → such a mapping.
        """
        flat = _flat(numbers)
        for name, value in flat.items():
            if value is not None:
                self._writer.add_scalar(f"{kind}/{name}", value, decisions)
        self._file.write(_line({"kind": kind, "iteration": iteration, "decisions": decisions, **flat}))
        self._file.flush()

    def close(self) -> None:
        """Write what is still held back."""
        self._file.close()
        self._writer.close()


def read_metrics(path: str | Path) -> list[dict[str, Any]]:
    """Read the lines of ``metrics.jsonl``; one that a killed process left unfinished ends the list."""
    rows: list[dict[str, Any]] = []
    file = Path(path)
    if not file.is_file():
        return rows
    for line in file.read_text(encoding="utf-8").splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            break
        if not isinstance(row, dict) or not isinstance(row.get("iteration"), int):
            break
        rows.append(row)
    return rows


def _flat(numbers: Mapping[str, Any], prefix: str = "") -> dict[str, float | int | None]:
    """Nested names joined by slashes; numbers that are not finite are None, as JSON has no word for them."""
    flat: dict[str, float | int | None] = {}
    for name, value in numbers.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{name}/")
        else:
            flat[prefix + name] = value if value is not None and math.isfinite(value) else None
    return flat


def _line(row: Mapping[str, Any]) -> str:
    return json.dumps(row, allow_nan=False) + "\n"
