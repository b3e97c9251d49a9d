"""Weights, optimiser and generator as named arrays and back, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

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
        if not index.isdigit() or int(index) >= len(weights):
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
