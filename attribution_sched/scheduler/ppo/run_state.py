"""A run of learning as named arrays and back, bit for bit: weights, optimiser, generator, and a batch of clusters."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from attribution_sched.cluster.engine.engine import Engine
from attribution_sched.errors import CheckpointError, problem
from attribution_sched.storage import Arrays


def module_arrays(module: nn.Module, prefix: str) -> Arrays:
    """Every weight and buffer of a module, named ``prefix`` + its name."""
    return {prefix + name: tensor.detach().cpu().numpy().copy() for name, tensor in module.state_dict().items()}


def restore_module(module: nn.Module, arrays: Arrays) -> None:
    """Load what ``module_arrays`` gave (prefix taken off); names, shapes and types must match exactly."""
    own = module.state_dict()
    _same_names("weights", set(own), set(arrays))
    for name, tensor in own.items():
        _same_form(f"weight {name}", tensor, arrays[name])
    module.load_state_dict({name: torch.from_numpy(array.copy()) for name, array in arrays.items()})


def optimiser_arrays(optimiser: torch.optim.Optimizer, prefix: str) -> Arrays:
    """Moments and step counts, named ``prefix`` + parameter number + ``.`` + entry."""
    return {
        f"{prefix}{index}.{entry}": torch.as_tensor(value).detach().cpu().numpy().copy()
        for index, state in optimiser.state_dict()["state"].items()
        for entry, value in state.items()
    }


def restore_optimiser(optimiser: torch.optim.Optimizer, arrays: Arrays) -> None:
    """Load what ``optimiser_arrays`` gave (prefix taken off) into an optimiser over the same weights."""
    weights = [weight for group in optimiser.param_groups for weight in group["params"]]
    state: dict[int, dict[str, torch.Tensor]] = {}
    for name, array in arrays.items():
        index, _, entry = name.partition(".")
        if not index.isdecimal() or int(index) >= len(weights):
            rule = f"must begin with the number of one of {len(weights)} weights"
            raise CheckpointError(problem("optimiser entry", name, rule, "Use the checkpoint of this network"))
        if entry != "step":
            _same_form(f"optimiser entry {name}", weights[int(index)], array)
        state.setdefault(int(index), {})[entry] = torch.from_numpy(array.copy())
    optimiser.load_state_dict({"state": state, "param_groups": optimiser.state_dict()["param_groups"]})


def generator_array(generator: torch.Generator) -> NDArray[np.uint8]:
    """The state of a generator."""
    state: NDArray[np.uint8] = generator.get_state().numpy().copy()
    return state


def restore_generator(generator: torch.Generator, state: NDArray[Any]) -> None:
    """Bring a generator to a stored state."""
    try:
        generator.set_state(torch.from_numpy(state.copy()))
    except (RuntimeError, TypeError) as error:
        fix = "Load it on the kind of device it was saved on"
        raise CheckpointError(problem("generator state", state.shape, "does not fit this device", fix)) from error


def _same_names(what: str, own: set[str], given: set[str]) -> None:
    if own != given:
        odd = sorted(own ^ given)[0]
        rule = f"the checkpoint and this network differ in {len(own ^ given)} {what}"
        raise CheckpointError(problem(f"checkpoint {what}", odd, rule, "Build the network it was saved from"))


def _same_form(what: str, own: torch.Tensor, given: NDArray[Any]) -> None:
    expected = (tuple(own.shape), str(own.dtype).removeprefix("torch."))
    if (given.shape, str(given.dtype)) != expected:
        rule = f"must be {expected[0]} of {expected[1]}"
        fix = "Build the network it was saved from"
        raise CheckpointError(problem(f"checkpoint {what}", (given.shape, str(given.dtype)), rule, fix))


def state_to_tensors(engine: Engine) -> Arrays:
    """Copies of every array that changes while clusters run, their reward weights, and the mark of their world."""
    arrays = {f"state.{name}": array.copy() for name, array in engine.state._asdict().items()}
    return {**arrays, "weights": engine.weights.copy(), "world": _fingerprint(engine)}


def restore_engine(engine: Engine, tensors: Mapping[str, NDArray[Any]]) -> None:
    """Bring clusters to a stored state; nothing changes if it does not fit.

    Args:
        engine: Clusters of the same world, as many as were stored.
        tensors: What ``state_to_tensors`` gave.

    Raises:
        CheckpointError: If an array is missing, surplus or of another form, or the world is another one.
    """
    targets = {f"state.{name}": array for name, array in engine.state._asdict().items()}
    targets |= {"weights": engine.weights, "world": _fingerprint(engine)}
    odd = sorted(set(targets) ^ set(tensors))
    if odd:
        raise CheckpointError(problem("cluster state", odd[0], "is missing or not known", "Use an untouched copy"))
    for name, target in targets.items():
        given = tensors[name]
        if given.shape != target.shape or given.dtype != target.dtype:
            rule = f"must be {target.shape} of {target.dtype}"
            fix = "Build the environment with the preset and number of clusters it was saved with"
            raise CheckpointError(problem(f"cluster {name}", (given.shape, str(given.dtype)), rule, fix))
    if not np.array_equal(tensors["world"], targets["world"]):
        mark = tensors["world"].tobytes().hex()[:12]
        fix = "Build the environment with the preset it was saved with"
        raise CheckpointError(problem("cluster world", mark, "is not the world of this environment", fix))
    for name, target in targets.items():
        target[...] = tensors[name]


def env_arrays(env: Any) -> Arrays | None:
    """State of a cluster environment of ``cluster.env``; None for any other environment."""
    inner = env.unwrapped
    from attribution_sched.cluster.envs.env import ClusterVectorEnv

    if not isinstance(inner, ClusterVectorEnv):
        return None
    return {**state_to_tensors(inner.engine), "over": inner._over.copy()}


def restore_env(env: Any, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Bring a cluster environment to the state ``env_arrays`` gave."""
    inner = env.unwrapped
    over = arrays.get("over")
    if over is None or over.shape != inner._over.shape or over.dtype != np.bool_:
        fix = "Build the environment with the number of clusters it was saved with"
        given = None if over is None else over.shape
        raise CheckpointError(problem("finished clusters", given, f"must be {inner._over.shape} flags", fix))
    restore_engine(inner.engine, {name: array for name, array in arrays.items() if name != "over"})
    inner._over[...] = over


def _fingerprint(engine: Engine) -> NDArray[np.uint8]:
    """A mark of everything about the world that decides what happens next."""
    digest = hashlib.sha256()

    def add(part: Any) -> None:
        if isinstance(part, tuple):
            for item in part:
                add(item)
        elif isinstance(part, np.ndarray) and part.dtype.names:
            for name in part.dtype.names:
                add(part[name])
        else:
            array = np.ascontiguousarray(part)
            digest.update(f"{array.dtype.str} {array.shape}".encode())
            digest.update(array.tobytes())

    add(engine.arrays)
    add(engine.world.reward.per_decision)
    return np.frombuffer(digest.digest(), dtype=np.uint8).copy()
