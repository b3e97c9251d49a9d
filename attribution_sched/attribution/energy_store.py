"""Energy models on disk, in the one file format of :mod:`attribution_sched.storage`.

Loading checks the checksum first, then every shape, then rebuilds the predictor; the same rows give the same bits
as before saving.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from attribution_sched.attribution.energy_boosting import BoostingPredictor, TreeEnsemble
from attribution_sched.attribution.energy_features import CounterFeatures
from attribution_sched.attribution.energy_interval import ConformalBands
from attribution_sched.attribution.energy_network import NetworkPredictor
from attribution_sched.attribution.energy_validation import Score
from attribution_sched.errors import CheckpointError, ModelFitError, problem
from attribution_sched.storage import Arrays, read, rebuilding, write

if TYPE_CHECKING:
    from attribution_sched.attribution.energy_model import EnergyModel, EnergyReport

_KIND = "energy model"
_FEATURE_ARRAYS = ("floor", "scale", "mean", "spread", "low", "high")


def _part(predictor: BoostingPredictor | NetworkPredictor) -> Arrays:
    kind = "boosting" if isinstance(predictor, BoostingPredictor) else "network"
    inner = predictor.trees if isinstance(predictor, BoostingPredictor) else predictor
    arrays = {f"{kind}.{name}": array for name, array in inner.arrays().items()}
    arrays |= {f"{kind}.features.{name}": getattr(predictor.features, name) for name in _FEATURE_ARRAYS}
    arrays[f"{kind}.features.pairs"] = np.array(predictor.features.pairs, dtype=np.int64).reshape(-1, 2)
    return arrays


def save_energy_model(model: EnergyModel, path: Path) -> None:
    """Write a fitted model.

    Args:
        model: A fitted model whose chosen candidate is built in.
        path: File to write, usually ``*.safetensors``.
    """
    from attribution_sched.attribution.energy_candidates import BlendPredictor

    report, predictor, bands = model.report, model._predictor, model._bands
    extra: dict[str, Any] = {}
    if isinstance(predictor, BlendPredictor):
        arrays, extra["weight"] = _part(predictor.boosting) | _part(predictor.network), predictor.weight
    elif isinstance(predictor, BoostingPredictor | NetworkPredictor):
        arrays = _part(predictor)
    else:
        raise ModelFitError(
            problem(
                "save",
                report.chosen,
                "a user's own model cannot be stored without running its code on loading",
                "Save it by its own means and wrap it again as a candidate",
            )
        )
    if bands is not None:
        arrays |= {"bands.edges": bands.edges, "bands.half_widths": bands.half_widths}
    write(path, _KIND, {"names": model.names, **extra, "report": dataclasses.asdict(report)}, arrays)


def load_energy_model(path: Path) -> EnergyModel:
    """Read a model.

    Raises:
        CheckpointError: The file is missing, truncated, tampered with or of another version.
    """
    from attribution_sched.attribution.energy_candidates import BlendPredictor
    from attribution_sched.attribution.energy_model import EnergyModel

    meta, arrays = read(path, _KIND)
    with rebuilding(path, "energy model"):
        report = _report(meta["report"])
        names = tuple(str(n) for n in meta["names"])
        parts = {k: _rebuild(k, arrays, len(names)) for k in ("boosting", "network") if f"{k}.features.mean" in arrays}
        model = EnergyModel(
            names=names,
            unit=report.unit,
            folds=report.folds,
            coverage=report.coverage,
            negative="clip" if report.negative_rule == "clip" else "refuse",
            seed=report.seed,
        )
        if report.chosen == "blend":
            model._predictor = BlendPredictor(parts["boosting"], parts["network"], float(meta["weight"]))
        else:
            model._predictor = parts[report.chosen]
        model._bands = ConformalBands(arrays["bands.edges"], arrays["bands.half_widths"])
        model._report = report
    return model


def _rebuild(kind: str, arrays: Arrays, n_counters: int) -> Any:
    state = {n.removeprefix(f"{kind}."): a for n, a in arrays.items() if n.startswith(f"{kind}.")}
    pairs = tuple((int(a), int(b)) for a, b in state["features.pairs"])
    features = CounterFeatures(pairs, *(state[f"features.{name}"] for name in _FEATURE_ARRAYS))
    wide = 2 * (n_counters + len(pairs))
    sizes = [len(features.floor), len(features.scale), len(features.mean), len(features.spread)]
    if sizes != [n_counters, n_counters, wide, wide] or any(not 0 <= j < n_counters for p in pairs for j in p):
        raise CheckpointError(problem(f"{kind}.features", sizes, "do not fit the counters", "Save the model again"))
    if kind == "network":
        return NetworkPredictor.from_arrays(features, state)
    trees = {f.name: state[f.name] for f in dataclasses.fields(TreeEnsemble)}
    return BoostingPredictor(features, TreeEnsemble.from_arrays(trees, n_counters + len(pairs)))


def _report(data: dict[str, Any]) -> EnergyReport:
    from attribution_sched.attribution.energy_candidates import CandidateScore
    from attribution_sched.attribution.energy_model import EnergyReport

    scores = tuple(CandidateScore(s["name"], Score(**s["blocked"]), Score(**s["shuffled"])) for s in data.pop("scores"))
    return EnergyReport(**{**data, "scores": scores, "block_coverage": tuple(data["block_coverage"])})
