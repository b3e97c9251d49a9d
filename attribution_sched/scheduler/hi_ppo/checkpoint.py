"""Hi-PPO on disk: the weights that decide, and the whole of a training run that was stopped.

Both are safetensors files with a JSON header under one checksum
(:mod:`attribution_sched.storage`): reading one executes nothing. The header names every feature the
networks were made for, so weights for other features are refused by the name of the feature, not by a shape.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from attribution_sched.errors import CheckpointError, SettingsError, nearest, problem
from attribution_sched.storage import Arrays, read, take, write
from attribution_sched.types import ATTRIBUTION_SCHEMA

if TYPE_CHECKING:
    from attribution_sched.scheduler.hi_ppo.network import HiPpoNetwork, NetworkSize
    from attribution_sched.scheduler.hi_ppo.trainer import Trainer

KIND = "hi-ppo"
TRAINING_KIND = "hi-ppo-training"
SHIPPED = Path(__file__).with_name("weights.safetensors")
"""The weights that come with the package."""

RUN = ("field", "adam.")
"""Parts of a training run beside its weights: clocks of clusters that may be infinite."""

DEMAND_HEAD = "demands."
"""How the names of the weights of the head of demands begin."""

COMMAND = "attribution-sched train --preset hi_ppo_tuned --output DIR"
"""What makes a checkpoint."""

LIMITS: Mapping[str, int] = {"width": 1024, "hidden": 1024, "rounds": 16}
"""Larger networks are not read: a file of a few bytes must not be able to ask for all memory."""


def save(path: str | Path, network: HiPpoNetwork, about: Mapping[str, Any]) -> None:
    """Write weights, complete or not at all.

    Args:
        path: Target, ``*.safetensors``.
        network: What to write.
        about: How it was made, ready for JSON.
    """
    from attribution_sched.scheduler.ppo.run_state import module_arrays

    header = {**_made_for(network), "about": dict(about)}
    write(path, KIND, header, module_arrays(network, ""), attribution_schema=ATTRIBUTION_SCHEMA)


def load(path: str | Path = SHIPPED, device: str = "cpu") -> HiPpoNetwork:
    """Read weights, refusing anything but exactly what was written for the features of this release.

    Args:
        path: File that :func:`save` wrote; the weights of the package by default.
        device: Where the network shall live.

    Raises:
        CheckpointError: If the file is missing, truncated, changed, of another version, made for other features, or
            holds other shapes or numbers than a network has.
    """
    header, arrays = _read(path, KIND)
    import torch

    from attribution_sched.kernels import one_thread
    from attribution_sched.scheduler.hi_ppo.network import HiPpoNetwork

    # Weights that will be replaced at once are not worth drawing: on this device they have only a shape.
    with one_thread(), torch.device("meta"):
        network = HiPpoNetwork(_checked_size(header))
    own = network.state_dict()
    arrays = _with_demands(arrays, own)
    odd = sorted(set(own) ^ set(arrays))
    if odd:
        rule = "is a weight of the file or of the network, but not of both"
        raise CheckpointError(problem("checkpoint weights", odd[0], rule, "Train and save again with this release"))
    for name, tensor in own.items():
        expected = (tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."))
        given = (arrays[name].shape, str(arrays[name].dtype))
        if given != expected:
            rule = f"must be {expected[0]} of {expected[1]}"
            raise CheckpointError(problem(f"checkpoint weight {name}", given, rule, "Train and save again"))
    network.load_state_dict({name: torch.from_numpy(array.copy()) for name, array in arrays.items()}, assign=True)
    return network.to(device).eval()


def describe(path: str | Path = SHIPPED) -> dict[str, Any]:
    """How the weights of a file were made, as given to :func:`save`; the file is checked, no network is built."""
    header, _ = _read(path, KIND)
    about = header.get("about")
    if not isinstance(about, dict):
        raise CheckpointError(problem("checkpoint about", about, "must say how it was made", f"Train: {COMMAND}"))
    return about


def save_training(path: str | Path, trainer: Trainer, extra: Mapping[str, Any]) -> None:
    """Write everything a training run needs to go on as if it had never stopped.

    Args:
        path: Target, ``*.safetensors``.
        trainer: Between two iterations, with nothing left for the upper agent to learn from.
        extra: What else belongs to the run, ready for JSON, without NaN.
    """
    from attribution_sched.scheduler.hi_ppo.cluster_batch import field_arrays
    from attribution_sched.scheduler.ppo.run_state import generator_array, module_arrays, optimiser_arrays

    if trainer._unlearnt:
        rule = f"the upper agent learns in every {trainer.settings.upper_every}-th and has not learnt from this one yet"
        raise CheckpointError(problem("iteration", trainer.number, rule, "Save after one in which it learns"))
    arrays: Arrays = {
        **module_arrays(trainer.network, "network."),
        **optimiser_arrays(trainer.optimiser, "adam."),
        "generator": generator_array(trainer.generator),
    }
    for i, field in enumerate(trainer.fields):
        arrays |= {f"field{i}.{name}": array for name, array in field_arrays(field).items()}
    header = {
        **_made_for(trainer.network),
        "settings": _plain(asdict(trainer.settings)),
        "multipliers": {name: getattr(trainer.multipliers, name) for name in _MULTIPLIERS},
        "fields": [{"name": field.name, "clusters": field.clusters} for field in trainer.fields],
        "returns": [list(field.returns) for field in trainer.fields],
        "counters": {name: getattr(trainer, name) for name in _COUNTERS},
        "extra": dict(extra),
    }
    write(path, TRAINING_KIND, header, arrays, attribution_schema=ATTRIBUTION_SCHEMA, any_number=RUN)


def resume_training(path: str | Path, trainer: Trainer) -> dict[str, Any]:
    """Bring a trainer to a stored state.

    Args:
        path: File that :func:`save_training` wrote.
        trainer: Built with the same network size, settings and fields.

    Returns:
        What was given as ``extra``.

    Raises:
        CheckpointError: If the file is not exactly what was written, or the trainer differs from the one it was
            written by.
    """
    from attribution_sched.scheduler.hi_ppo.cluster_batch import restore_field
    from attribution_sched.scheduler.ppo.run_state import restore_generator, restore_module, restore_optimiser

    header, arrays = _read(path, TRAINING_KIND)
    listed = [{"name": field.name, "clusters": field.clusters} for field in trainer.fields]
    own = {"size": trainer.network.size.to_json(), "settings": _plain(asdict(trainer.settings)), "fields": listed}
    for name, ours in own.items():
        if header.get(name) != ours:
            key, stored, given = first_difference(name, header.get(name), ours)
            rule = f"the run that was stopped had {stored!r}"
            raise CheckpointError(problem(key, given, rule, "Resume with the settings it was started with"))
    try:
        counters = {name: int(header["counters"][name]) for name in _COUNTERS}
        returns = [[float(value) for value in part] for part in header["returns"]]
        extra = dict(header["extra"])
        stored = header["multipliers"]
        prices = replace(
            trainer.multipliers,
            values=tuple(stored["values"]),
            integrals=tuple(stored["integrals"]),
            before=tuple(stored["before"]),
            updates=int(stored["updates"]),
        )
        generator = arrays["generator"]
    except (KeyError, TypeError, ValueError, SettingsError) as error:
        raise CheckpointError(problem("training state", str(path), "lacks a part", "Use an untouched copy")) from error
    restore_module(trainer.network, _with_demands(take(arrays, "network."), trainer.network.state_dict()))
    restore_optimiser(trainer.optimiser, take(arrays, "adam."))
    restore_generator(trainer.generator, generator)
    for name, value in counters.items():
        setattr(trainer, name, value)
    trainer.multipliers = prices
    trainer._unlearnt = []
    for i, field in enumerate(trainer.fields):
        restore_field(field, take(arrays, f"field{i}."))
        field.returns[:] = returns[i]
    return extra


def _with_demands(arrays: Arrays, own: Mapping[str, Any]) -> Arrays:
    """Files from before there was a head of demands lack it whole; its zeros say that every task is nominal.

    A head from before throughput was measured does not read it: its weights are zeros.
    """
    from attribution_sched.scheduler.hi_ppo.demand_head import INPUTS, SPEED_INPUTS

    if "agents" not in arrays:
        # Files from before the agents learnt: the networks' own heads decide.
        arrays = {**arrays, "agents": np.zeros(tuple(own["agents"].shape))}
    head = {name for name in own if name.startswith(DEMAND_HEAD)}
    if head & set(arrays):
        first = arrays.get(f"{DEMAND_HEAD}weight0")
        if first is not None and first.ndim == 2 and first.shape[1] == INPUTS - SPEED_INPUTS:
            arrays = {**arrays, f"{DEMAND_HEAD}weight0": np.pad(first, ((0, 0), (0, SPEED_INPUTS)))}
        return arrays
    return {**arrays, **{name: np.zeros(tuple(own[name].shape), dtype=np.float32) for name in head}}


_COUNTERS = ("number", "decisions", "agent_steps")
_MULTIPLIERS = ("values", "integrals", "before", "updates")


def _plain(value: Any) -> Any:
    """A value as it comes back from JSON."""
    return json.loads(json.dumps(value))


def feature_names() -> dict[str, list[str]]:
    """Everything the networks are told, by group: what a checkpoint is made for."""
    from attribution_sched.scheduler.hi_ppo import features, network, outcomes, partial_plans

    groups: dict[str, tuple[str, ...]] = {
        "nodes": features.NODE_NAMES,
        "edges": features.EDGE_NAMES,
        "globals": features.GLOBAL_NAMES,
        "candidates": features.CANDIDATE_NAMES,
        "lower": features.LOWER_NAMES,
        "plan": outcomes.PLAN_NAMES,
        "components": network.COMPONENTS,
    }
    for name in ("domain_choice", "cut_choice", "layout_choice", "format_choice", "level_choice", "draft_features"):
        groups[name] = tuple(f"{name}_{i}" for i in range(getattr(partial_plans, name.upper())))
    return {name: list(names) for name, names in groups.items()}


def _made_for(network: HiPpoNetwork) -> dict[str, Any]:
    return {"size": network.size.to_json(), "features": feature_names()}


def _read(path: str | Path, kind: str) -> tuple[dict[str, Any], Arrays]:
    if not Path(path).is_file():
        what = "weights" if kind == KIND else "training state"
        raise CheckpointError(problem(what, str(path), "does not exist", f"Check the path, or train: {COMMAND}"))
    header, arrays = read(path, kind, attribution_schema=ATTRIBUTION_SCHEMA, any_number=RUN if kind != KIND else ())
    given = header.get("features")
    if not isinstance(given, dict):
        raise CheckpointError(problem("checkpoint", str(path), "names no features", f"Train: {COMMAND}"))
    for group, names in feature_names().items():
        theirs = given.get(group)
        if theirs != names:
            theirs = theirs if isinstance(theirs, list) else []
            odd = [str(name) for name in theirs if name not in names] + [name for name in names if name not in theirs]
            rule = f"was made for other {group} features than this release has"
            fix = f"Train with this release: {COMMAND}"
            raise CheckpointError(problem("checkpoint features", odd[0] if odd else group, rule, fix))
    return header, arrays


def _checked_size(header: dict[str, Any]) -> NetworkSize:
    """The size a header gives, if it is one that a network can have."""
    from attribution_sched.scheduler.hi_ppo.network import NetworkSize
    from attribution_sched.scheduler.hi_ppo.topology_encoder import Conv, Pooling

    given = header.get("size")
    known = {field.name for field in fields(NetworkSize)}
    if not isinstance(given, dict) or set(given) != known:
        rule = f"must give {', '.join(sorted(known))}"
        raise CheckpointError(problem("checkpoint size", given, rule, f"Train: {COMMAND}"))
    for name, most in LIMITS.items():
        if type(given[name]) is not int or not 1 <= given[name] <= most:
            rule = f"must be a whole number from 1 to {most}"
            raise CheckpointError(problem(f"checkpoint size.{name}", given[name], rule, f"Train: {COMMAND}"))
    for name, valid in (("conv", get_args(Conv)), ("pooling", get_args(Pooling))):
        if given[name] not in valid:
            fix = nearest(str(given[name]), valid)
            raise CheckpointError(problem(f"checkpoint size.{name}", given[name], f"must be one of {valid}", fix))
    return NetworkSize(**given)


def first_difference(name: str, stored: Any, given: Any) -> tuple[str, Any, Any]:
    """The first place where two JSON values differ, as a dotted name with both values."""
    if isinstance(stored, dict) and isinstance(given, dict):
        for key in sorted({*stored, *given}, key=str):
            if stored.get(key) != given.get(key):
                return first_difference(f"{name}.{key}", stored.get(key), given.get(key))
    if isinstance(stored, list) and isinstance(given, list) and len(stored) == len(given):
        for i, (theirs, ours) in enumerate(zip(stored, given, strict=True)):
            if theirs != ours:
                return first_difference(f"{name}[{i}]", theirs, ours)
    return name, stored, given
