"""Energy models on disk: one safetensors file of arrays and JSON, nothing executable, sealed by a digest.

The file is written beside its place and renamed, so it is whole or absent. Loading checks the digest first,
then every shape, then rebuilds the predictor; the same rows give the same bits as before saving.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attribution_sched.attribution.energy_boosting import BoostingPredictor, TreeEnsemble
from attribution_sched.attribution.energy_features import CounterFeatures
from attribution_sched.attribution.energy_interval import ConformalBands
from attribution_sched.attribution.energy_network import NetworkPredictor
from attribution_sched.attribution.energy_validation import Score
from attribution_sched.errors import CheckpointError, ModelFitError, problem

if TYPE_CHECKING:
    from attribution_sched.attribution.energy_model import EnergyModel, EnergyReport

_FORMAT, _VERSION = "attribution-sched energy model", 1
_FEATURE_ARRAYS = ("floor", "scale", "mean", "spread", "low", "high")
Arrays = dict[str, NDArray[Any]]


def _digest(arrays: Mapping[str, NDArray[Any]], meta: str) -> str:
    seal = hashlib.sha256(meta.encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        seal.update(f"{name}|{array.dtype.str}|{array.shape}|".encode())
        seal.update(array.tobytes())
    return seal.hexdigest()


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
    from safetensors.numpy import save_file

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
    meta = json.dumps(
        {
            "format": _FORMAT,
            "version": _VERSION,
            "names": model.names,
            **extra,
            "report": dataclasses.asdict(report),
        }
    )
    arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    part = path.with_name(path.name + ".part")
    # One key: safetensors writes several in no fixed order, and equal models should be equal files.
    save_file(arrays, part, metadata={"model": f"{_digest(arrays, meta)} {meta}"})
    part.replace(path)


def load_energy_model(path: Path) -> EnergyModel:
    """Read a model.

    Raises:
        CheckpointError: The file is missing, truncated, tampered with or of another version.
    """
    from attribution_sched.attribution.energy_candidates import BlendPredictor
    from attribution_sched.attribution.energy_model import EnergyModel

    arrays, meta = _read(path)
    try:
        if meta["version"] != _VERSION:
            raise _bad(path, meta["version"], f"is of another version than {_VERSION}")
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
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise _bad(path, str(error), "lacks a part of the model") from error
    return model


def _bad(path: Path, value: object, rule: str) -> CheckpointError:
    return CheckpointError(problem(path.name, value, rule, "Save the model again"))


def _read(path: Path) -> tuple[Arrays, dict[str, Any]]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            header = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise _bad(path, str(error), "is not a whole safetensors file") from error
    seal, _, text = header.get("model", "").partition(" ")
    if seal != _digest(arrays, text):
        raise _bad(path, "sha256", "does not match its digest: truncated or tampered with")
    meta = json.loads(text)
    if not isinstance(meta, dict) or meta.get("format") != _FORMAT:
        raise _bad(path, "format", "is not an energy model of this package")
    return arrays, meta


def _rebuild(kind: str, arrays: Arrays, n_counters: int) -> Any:
    own = {n.removeprefix(f"{kind}."): a for n, a in arrays.items() if n.startswith(f"{kind}.")}
    pairs = tuple((int(a), int(b)) for a, b in own["features.pairs"])
    features = CounterFeatures(pairs, *(own[f"features.{name}"] for name in _FEATURE_ARRAYS))
    wide = 2 * (n_counters + len(pairs))
    sizes = [len(features.floor), len(features.scale), len(features.mean), len(features.spread)]
    if sizes != [n_counters, n_counters, wide, wide] or any(not 0 <= j < n_counters for p in pairs for j in p):
        raise CheckpointError(problem(f"{kind}.features", sizes, "do not fit the counters", "Save the model again"))
    if kind == "network":
        return NetworkPredictor.from_arrays(features, own)
    trees = {f.name: own[f.name] for f in dataclasses.fields(TreeEnsemble)}
    return BoostingPredictor(features, TreeEnsemble.from_arrays(trees, n_counters + len(pairs)))


def _report(data: dict[str, Any]) -> EnergyReport:
    from attribution_sched.attribution.energy_candidates import CandidateScore
    from attribution_sched.attribution.energy_model import EnergyReport

    scores = tuple(CandidateScore(s["name"], Score(**s["blocked"]), Score(**s["shuffled"])) for s in data.pop("scores"))
    return EnergyReport(**{**data, "scores": scores, "block_coverage": tuple(data["block_coverage"])})
