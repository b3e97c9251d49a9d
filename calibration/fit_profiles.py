"""Fit floor laws to the measured layer profiles of Sailor and write ``constants/profiles.json``.

Run: ``ATTRIBUTION_SCHED_DATA=<folder> python calibration/fit_profiles.py``
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

TARGET = Path(__file__).parents[1] / "attribution_sched" / "cluster" / "constants" / "profiles.json"
RENAMED = {"GH-96": "H100-96"}
SOURCE = {
    "dataset": "sailor/layer_profiles.json",
    "repository": "https://github.com/eth-easl/sailor",
    "commit": "cf2c8e3cc53ce178fe58a4003f46b4b6b848fc33",
    "licence": "MIT",
}


def fit_law(batches: NDArray[np.float64], seconds: NDArray[np.float64]) -> tuple[float, float, float]:
    """Fit ``t² = floor² + (b·slope)²`` with relative errors; returns slope, floor, mean relative error."""
    weight = 1.0 / np.maximum(seconds, 1e-7) ** 2
    design = np.stack([batches**2, np.ones_like(batches)], axis=1)
    if len(batches) == 1:
        design = design[:, :1]
    solution, _ = nnls(design * weight[:, None], seconds**2 * weight)
    slope, floor = np.sqrt(solution[0]), np.sqrt(solution[1]) if len(solution) > 1 else 0.0
    fitted = np.sqrt(floor**2 + (batches * slope) ** 2)
    return float(slope), float(floor), float(np.mean(np.abs(fitted / np.maximum(seconds, 1e-7) - 1)))


def layer_classes(n_layers: int, tables: list[dict[str, list[float]]]) -> list[int]:
    """Number the layers by class: the first, the repeated block, and whatever follows the blocks."""
    table = tables[0]
    block = table[str(n_layers // 2)]
    last_block = max(i for i in range(n_layers) if np.allclose(table[str(i)][:2], block[:2], rtol=0.02))
    return [0] + [1] * last_block + list(range(2, 2 + n_layers - 1 - last_block))


def main() -> None:
    """Fit every profile and write the constants."""
    data = Path(os.environ["ATTRIBUTION_SCHED_DATA"])
    profiles = json.loads((data / "sailor" / "layer_profiles.json").read_text())
    models: dict[str, object] = {}
    errors = []
    for name, by_gpu in profiles.items():
        tables = [table for gpu in by_gpu.values() for by_tp in gpu.values() for table in by_tp.values()]
        classes = layer_classes(len(tables[0]), tables)
        members = [[i for i, c in enumerate(classes) if c == kind] for kind in range(max(classes) + 1)]
        gpus: dict[str, dict[str, list[list[float]]]] = {}
        for gpu, by_batch in by_gpu.items():
            degrees = sorted({int(tp) for by_tp in by_batch.values() for tp in by_tp} & {1, 2, 4, 8})
            for tp in degrees:
                points = sorted((int(b), by_tp[str(tp)]) for b, by_tp in by_batch.items() if str(tp) in by_tp)
                batches = np.array([b for b, _ in points], dtype=float)
                rows = []
                for layers in members:
                    row: list[float] = []
                    for column in (0, 1):
                        seconds = np.array([np.median([t[str(i)][column] for i in layers]) for _, t in points])
                        slope, floor, error = fit_law(batches, seconds)
                        row += [float(f"{slope:.4g}"), float(f"{floor:.4g}")]
                        if len(layers) > 1:
                            errors.append(error)
                    rows.append(row)
                gpus.setdefault(RENAMED.get(gpu, gpu), {})[str(tp)] = rows
        models[f"profiled {name}"] = {"layer_classes": classes, "gpus": gpus}
    result = {
        "source": SOURCE,
        "law": "t(b) = sqrt(floor^2 + (b*slope)^2); rows per layer class: slope and floor forward, then backward, s",
        "precision": "fp32",
        "block_error_mean": float(f"{np.mean(errors):.4g}"),
        "models": models,
    }
    TARGET.write_text(json.dumps(result, separators=(",", ":"), indent=None) + "\n")
    print(f"{TARGET.name}: {len(errors)} block curves, mean relative error {np.mean(errors):.2%}")


if __name__ == "__main__":
    main()
