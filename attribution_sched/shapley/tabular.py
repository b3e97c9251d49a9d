"""Games on models that read one flat vector: absent inputs are replaced by those of a background state.

Masking writes into one buffer that is reused for every batch, so that nearly all time is the model's own.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attribution_sched.errors import ExplanationError, problem
from attribution_sched.kernels import torch_threads
from attribution_sched.types import BoolArray, FloatArray, IntArray

if TYPE_CHECKING:
    from torch import nn

Model = Callable[[NDArray[np.float64]], ArrayLike]
"""A numpy model: takes inputs (n, f), returns values (n, C) or (n,)."""

_BATCH = 1024
"""Rows per call of the model: the activations of a small network then stay in the cache."""

_LEAST = 16
"""Shorter batches are filled up to this: products of few rows take another path and round differently."""


class TabularGame:
    """One or many decisions of one model on flat inputs.

    Args:
        model: A torch module (float32 in, evaluated without gradients) or a function of a float64 array.
        x: (n, f) inputs of the decisions; (f,) of a single one.
        background: (B, f) states that absent inputs are taken from.
        groups: Inputs by player, ``{"link 0-1": [0, 1], ...}``; each input belongs to exactly one player. Without it
            every input is a player.
        names: Names of the inputs, used where there are no groups.
        outputs: Names of the model's outputs.
        batch: Rows per call of the model.
        threads: Torch threads while the model runs.
    """

    def __init__(
        self,
        model: nn.Module | Model,
        x: ArrayLike,
        background: ArrayLike,
        groups: Mapping[str, Sequence[int]] | None = None,
        *,
        names: Sequence[str] | None = None,
        outputs: Sequence[str] = ("value",),
        batch: int = _BATCH,
        threads: int = 1,
    ) -> None:
        self.backend: Literal["torch", "numpy"] = "torch" if _is_module(model) else "numpy"
        kind: Any = np.float32 if self.backend == "torch" else np.float64
        self._x, self._background = _inputs(x, background, kind)
        features = self._x.shape[1]
        self.players, self._member = _players(groups, names, features)
        self.outputs = tuple(outputs)
        self.n_background = len(self._background)
        self.n_decisions = len(self._x)
        self._model, self._threads, self._batch = model, threads, max(_LEAST, batch)
        self._buffer = np.tile(self._x[:1], (self._batch, 1))
        self._select = np.empty((self._batch, features), dtype=np.int32 if kind is np.float32 else np.int64)

    @property
    def member(self) -> IntArray:
        """Player that owns each input, shape (f,)."""
        return np.arange(self._x.shape[1]) if self._member is None else self._member

    def __call__(self, coalitions: BoolArray, background: IntArray, decision: IntArray | None = None) -> FloatArray:
        """Value coalitions (n, d) of decisions (n,), of the only one without them, with background states (n,)."""
        if decision is None:
            if self.n_decisions > 1:
                rule = "must be one decision's inputs, (inputs,), where no decision is named"
                raise ExplanationError(problem("shape of x", self._x.shape, rule, "Use estimate_many."))
            decision = np.zeros(len(coalitions), dtype=np.int64)
        same = len(decision) > 0 and bool((decision == decision[0]).all())
        present = coalitions if self._member is None else coalitions[:, self._member]
        parts = []
        with self._running() as run:
            for start in range(0, len(present), self._batch):
                rows = slice(start, start + self._batch)
                own = self._x[decision[0]] if same else self._x[decision[rows]]
                count = len(present[rows])
                self._mix(own, background[rows], present[rows])
                parts.append(run(self._buffer[: max(count, _LEAST)])[:count])
        values = np.concatenate(parts).astype(np.float64)
        return values[:, None] if values.ndim == 1 else values

    def _mix(self, own: NDArray[Any], background: IntArray, present: BoolArray) -> None:
        """Write the decision's own inputs where present, else those of the background state, into the buffer."""
        mixed, select = self._buffer[: len(present)], self._select[: len(present)]
        np.take(self._background, background, axis=0, out=mixed, mode="clip")
        # Selecting by bits, all ones where present, takes a third of the time of a masked copy.
        np.subtract(0, present.view(np.int8), out=select, dtype=select.dtype)
        bits = mixed.view(select.dtype)
        np.bitwise_and(np.bitwise_xor(bits, own.view(select.dtype)), select, out=select)
        np.bitwise_xor(bits, select, out=bits)

    @contextmanager
    def _running(self) -> Iterator[Callable[[NDArray[Any]], NDArray[Any]]]:
        """The model as a function of rows; a torch module without gradients, in evaluation mode, with few threads."""
        model: Any = self._model
        if self.backend == "numpy":
            # The buffer is used again at once, and a model may return (a view of) what it was given.
            yield lambda mixed: np.array(model(mixed), dtype=np.float64)
            return
        import torch

        weight = next(model.parameters(), None)
        device = None if weight is None or weight.device.type == "cpu" else weight.device

        def run(mixed: NDArray[Any]) -> NDArray[Any]:
            rows = torch.from_numpy(mixed)
            values: NDArray[Any] = model(rows if device is None else rows.to(device)).cpu().numpy()
            return values.copy() if np.shares_memory(values, mixed) else values

        training = model.training
        with torch_threads(self._threads), torch.inference_mode():
            if training:
                model.eval()
            try:
                yield run
            finally:
                if training:
                    model.train()


def _is_module(model: object) -> bool:
    """Whether the model is a torch module, without importing torch to find out that it is not."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(model, torch.nn.Module)


def _inputs(x: ArrayLike, background: ArrayLike, kind: Any) -> tuple[NDArray[Any], NDArray[Any]]:
    rows = np.ascontiguousarray(np.atleast_2d(np.asarray(x)), dtype=kind)
    states = np.ascontiguousarray(background, dtype=kind)
    if rows.ndim != 2 or rows.shape[1] == 0:
        fix = "Pass one row of inputs per decision."
        raise ExplanationError(problem("shape of x", rows.shape, "must be (decisions, inputs) or (inputs,)", fix))
    if states.size == 0:
        fix = "Pass states from the journal or the environment; a hundred or more make the intervals meaningful."
        raise ExplanationError(problem("background", states.shape, "at least one state is needed", fix))
    if states.ndim != 2 or states.shape[1] != rows.shape[1]:
        rule = f"must be (states, {rows.shape[1]}), the inputs of the decision"
        fix = "Take the background from the same environment and features as the decision."
        raise ExplanationError(problem("shape of the background", states.shape, rule, fix))
    for field, array in (("x", rows), ("background", states)):
        if not np.isfinite(array).all():
            row, column = (int(i) for i in np.argwhere(~np.isfinite(array))[0])
            fix = "Drop the state or repair what recorded it."
            raise ExplanationError(
                problem(f"{field}[{row}, {column}]", float(array[row, column]), "inputs must be finite", fix)
            )
    return rows, states


def _players(
    groups: Mapping[str, Sequence[int]] | None, names: Sequence[str] | None, features: int
) -> tuple[tuple[str, ...], IntArray | None]:
    """Names of the players and the player (features,) each input belongs to; None if each is its own."""
    if groups is None:
        players = tuple(names) if names is not None else tuple(f"x{i}" for i in range(features))
        if len(players) != features:
            raise ExplanationError(
                problem("names", len(players), f"the model has {features} inputs", "Give one name per input.")
            )
        return players, None
    member = np.full(features, -1, dtype=np.int64)
    for number, (name, places) in enumerate(groups.items()):
        for place in places:
            if not 0 <= place < features or member[place] >= 0:
                rule = (
                    f"input {place} does not exist" if not 0 <= place < features else f"input {place} is in two groups"
                )
                fix = f"Put each of the inputs 0 to {features - 1} into exactly one group."
                raise ExplanationError(problem(f"groups[{name!r}]", list(places), rule, fix))
            member[place] = number
    if (member < 0).any():
        fix = "Add a group for the rest; an input outside all groups would have no part in the sum."
        raise ExplanationError(problem("groups", np.flatnonzero(member < 0).tolist(), "inputs without a player", fix))
    return tuple(groups), member
