"""The whole state of a batch of clusters as named arrays and back: a run goes on as if it had never stopped."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attribution_sched.cluster.engine.engine import Engine
from attribution_sched.cluster.env import ClusterVectorEnv
from attribution_sched.errors import CheckpointError, problem
from attribution_sched.storage import Arrays


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
