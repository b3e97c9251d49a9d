"""A small network that has learnt to explain: one pass instead of thousands of rows, for dashboards and feedback.

It learns from a few walks per decision, whose noise averages out over many decisions, and shares the rest of
``full - base`` among the players alike, so that its values add up as exactly as sampled ones. Its standard error is
what it missed on decisions kept back from training. Results are always marked ``amortised``: look at sampled values
before acting.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from math import inf
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from attribution_sched.errors import ExplanationError, problem
from attribution_sched.explain.shapley.estimate import Estimates
from attribution_sched.explain.shapley.evaluate import Evaluator, Progress
from attribution_sched.explain.shapley.explain import estimate_many
from attribution_sched.explain.shapley.game import BatchGame, BoolArray, FloatArray, IntArray
from attribution_sched.explain.shapley.permutation import rows_per_walk
from attribution_sched.kernels import torch_threads

if TYPE_CHECKING:
    from torch import nn

_HELD_OUT_WALKS = 100


@dataclass(frozen=True)
class Distilled:
    """A trained explainer.

    Attributes:
        players: Names of the d players.
        outputs: Names of the C outputs.
        network: From standardised features (f,) to scaled values (d * C,).
        center: (f,) mean of the features.
        spread: (f,) their standard deviation.
        scale: (C,) scale of the values of each output.
        offset: (d, C) mean values.
        base: (C,) base of the training decisions; None if each decision has a base of its own.
        standard_error: (d, C) root mean squared error on decisions kept back.
        nmse: (C,) squared error over squared length on the decisions kept back.
        rows: Rows that training took.
        background: Background states behind the targets.
        seed: Seed of targets and training.
    """

    players: tuple[str, ...]
    outputs: tuple[str, ...]
    network: nn.Module
    center: FloatArray
    spread: FloatArray
    scale: FloatArray
    offset: FloatArray
    base: FloatArray | None
    standard_error: FloatArray
    nmse: FloatArray
    rows: int
    background: int
    seed: int

    def predict(self, features: ArrayLike, full: ArrayLike, base: ArrayLike | None = None) -> Estimates:
        """Explain decisions by one pass of the network.

        Args:
            features: (m, f) features of the decisions, as in training.
            full: (m, C) values of the decisions themselves.
            base: (m, C) or (C,) value to explain from; that of training if not given.
        """
        import torch

        x = np.atleast_2d(np.asarray(features, dtype=np.float64))
        whole = np.atleast_2d(np.asarray(full, dtype=np.float64))
        if x.shape[1:] != self.center.shape or whole.shape != (len(x), len(self.outputs)):
            rule = f"must be (m, {len(self.center)}) and (m, {len(self.outputs)})"
            fix = "Pass the features the network was trained on and one value per output."
            raise ExplanationError(problem("shapes of features and full", (x.shape, whole.shape), rule, fix))
        if base is None and self.base is None:
            fix = "Pass the mean value of each decision over the background."
            raise ExplanationError(problem("base", None, "decisions of this game have bases of their own", fix))
        start = np.broadcast_to(np.asarray(self.base if base is None else base, dtype=np.float64), whole.shape)
        with torch_threads(1), torch.inference_mode():
            raw = self.network(torch.from_numpy(((x - self.center) / self.spread).astype(np.float32)))
        m, d = len(x), len(self.players)
        values = raw.numpy().astype(np.float64).reshape(m, d, -1) * self.scale + self.offset
        values += (whole - start - values.sum(axis=1))[:, None] / d
        return Estimates(
            players=self.players,
            outputs=self.outputs,
            values=values,
            standard_error=np.broadcast_to(self.standard_error, values.shape),
            base=start,
            base_error=np.zeros_like(whole),
            full=whole,
            rows=np.ones(m, dtype=np.int64),
            method="amortised",
            background=np.full(m, self.background),
            seed=self.seed,
            converged=np.ones(m, dtype=bool),
            freedom=np.full(m, inf),
        )


def distil(
    game: BatchGame,
    features: ArrayLike,
    *,
    walks: int = 4,
    held_out: int = 64,
    width: int = 256,
    epochs: int = 60,
    batch: int = 512,
    learning_rate: float = 2e-3,
    seed: int = 0,
    progress: bool | Progress | None = None,
) -> Distilled:
    """Train a network to explain the decisions of a game.

    Args:
        game: Decisions to learn from, thousands of them.
        features: (n, f) what the network sees of each decision.
        walks: Antithetic walks behind each target; many decisions with few walks teach more than the reverse.
        held_out: Decisions kept back for the error.
        width: Units of the two hidden layers.
        epochs: Passes through the decisions.
        batch: Decisions per step.
        learning_rate: Of Adam, falling to zero as a cosine.
        seed: Seed of targets and training.
        progress: Shown while the targets are made.
    """
    x = np.asarray(features, dtype=np.float64)
    if x.ndim != 2 or len(x) != game.n_decisions or not np.isfinite(x).all():
        rule = f"must be finite, one row for each of the {game.n_decisions} decisions"
        raise ExplanationError(problem("features", x.shape, rule, "Pass the inputs of the explained decisions."))
    if game.n_decisions < 2 * held_out or held_out < 2:
        rule = f"at least twice the {held_out} decisions kept back, and two of those, are needed"
        raise ExplanationError(problem("decisions", game.n_decisions, rule, "Record more decisions."))
    d = len(game.players)
    targets, full, base, rows = _targets(game, walks, seed, progress)
    if base is not None:
        # Walks of a decision start from a few states only; the sum over players is known for all of them.
        targets += (full - base - targets.sum(axis=1))[:, None] / d
    mine = np.ones(len(x), dtype=bool)
    mine[np.random.default_rng([seed, 6]).choice(len(x), held_out, replace=False)] = False
    center, spread = x[mine].mean(axis=0), x[mine].std(axis=0) + 1e-9
    offset = targets[mine].mean(axis=0)
    scale = (targets[mine] - offset).std(axis=(0, 1)) + 1e-30
    scaled = ((targets[mine] - offset) / scale).reshape(mine.sum(), -1)
    network = _train((x[mine] - center) / spread, scaled, width, epochs, batch, learning_rate, seed)
    untested = Distilled(
        game.players, game.outputs, network, center, spread, scale, offset, base,
        np.zeros_like(offset), np.zeros(len(game.outputs)), rows, game.n_background, seed,
    )  # fmt: skip
    return _tested(untested, game, x, np.flatnonzero(~mine))


@dataclass(frozen=True)
class _Some:
    """Some of a game's decisions."""

    game: BatchGame
    chosen: IntArray

    @property
    def players(self) -> tuple[str, ...]:
        return self.game.players

    @property
    def outputs(self) -> tuple[str, ...]:
        return self.game.outputs

    @property
    def n_background(self) -> int:
        return self.game.n_background

    @property
    def n_decisions(self) -> int:
        return len(self.chosen)

    def __call__(self, coalitions: BoolArray, background: IntArray, decision: IntArray) -> FloatArray:
        return self.game(coalitions, background, self.chosen[decision])


def _targets(
    game: BatchGame, walks: int, seed: int, progress: bool | Progress | None
) -> tuple[FloatArray, FloatArray, FloatArray | None, int]:
    """Noisy values (n, d, C), full (n, C) and base (C,) if common; blocks of decisions have walks of their own."""
    budget = max(2, walks) * rows_per_walk(len(game.players)) + 1
    blocks = np.array_split(np.arange(game.n_decisions), max(1, game.n_decisions // 64))
    parts = [
        estimate_many(
            _Some(game, block), method="permutation", budget_rows=budget, seed=seed + 1 + i, progress=progress
        )
        for i, block in enumerate(blocks)
    ]
    values, full = (np.concatenate([getattr(part, field) for part in parts]) for field in ("values", "full"))
    # Within a block all decisions meet the same states: their bases agree if the decision has no part in them.
    common = all(np.allclose(part.base, part.base[0], rtol=1e-5, atol=1e-6 * np.abs(full).max()) for part in parts)
    rows = int(sum(part.rows.sum() for part in parts))
    if not common:
        return values, full, None, rows
    states = np.arange(game.n_background)
    empty = np.zeros((len(states), len(game.players)), dtype=bool)
    base = Evaluator(game, 4096).plan(empty, states, np.zeros(1, dtype=np.int64))[0].mean(axis=0)
    return values, full, base, rows + len(states)


def _train(
    x: FloatArray, y: FloatArray, width: int, epochs: int, batch: int, learning_rate: float, seed: int
) -> nn.Module:
    import torch
    from torch import nn

    generator = torch.Generator().manual_seed(seed)
    sizes = (x.shape[1], width, width, y.shape[1])
    layers: list[nn.Module] = []
    for inside, outside in pairwise(sizes):
        layer = nn.Linear(inside, outside)
        with torch.no_grad():
            layer.weight.normal_(0.0, (2.0 / inside) ** 0.5, generator=generator)
            layer.bias.zero_()
        layers += [layer, nn.SiLU()]
    network = nn.Sequential(*layers[:-1])
    inputs, wanted = (torch.tensor(array, dtype=torch.float32) for array in (x, y))
    steps = epochs * max(1, len(x) // batch)
    optimiser = torch.optim.AdamW(network.parameters(), lr=learning_rate, weight_decay=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    with torch_threads(1):
        for step in range(steps):
            place = step % max(1, len(x) // batch)
            if place == 0:
                order = torch.randperm(len(x), generator=generator)
            pick = order[place * batch : (place + 1) * batch]
            loss = nn.functional.mse_loss(network(inputs[pick]), wanted[pick])
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            schedule.step()
    return network.eval()


def _tested(trained: Distilled, game: BatchGame, x: FloatArray, kept: IntArray) -> Distilled:
    """Measure the error on decisions kept back, against many walks each."""
    budget = max(_HELD_OUT_WALKS, game.n_background) * rows_per_walk(len(game.players)) + 1
    truth = estimate_many(_Some(game, kept), method="permutation", budget_rows=budget, seed=trained.seed)
    missed = np.square(trained.predict(x[kept], truth.full, truth.base).values - truth.values)
    nmse = missed.sum(axis=(0, 1)) / np.square(truth.values).sum(axis=(0, 1))
    return replace(
        trained,
        standard_error=np.sqrt(missed.mean(axis=0)),
        nmse=nmse,
        rows=trained.rows + int(truth.rows.sum()),
    )
