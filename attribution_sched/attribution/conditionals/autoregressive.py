"""Neural autoregressive conditionals: hidden features are drawn one after another, each given all before it.

One network gives ``p(x_j | x_S)`` for every j and S; a joint draw walks through the hidden features in a random order,
``p(x_hidden | x_S) = prod_j p(x_j | x_S, those before j)``. With ``energy`` each factor is tilted by a
one-dimensional energy.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from attribution_sched.attribution.conditionals.base import Draws, State, hide, pick
from attribution_sched.attribution.conditionals.energy_head import (
    EnergyHead,
    log_partition,
    tilted_log_density,
    tilted_transform,
)
from attribution_sched.attribution.conditionals.networks import (
    LinearTable,
    Tick,
    generator,
    load_weights,
    silent,
    tensor,
    weights_of,
)
from attribution_sched.attribution.conditionals.points import Points
from attribution_sched.attribution.conditionals.proposals import GruProposal, MlpProposal, log_density, transform
from attribution_sched.attribution.conditionals.training import train_energy, train_proposal
from attribution_sched.kernels import one_thread
from attribution_sched.types import BoolArray, FloatArray


class AutoregressiveConditional:
    """Network conditionals with mixture heads.

    Args:
        proposal: ``mlp``, or ``gru`` for the paper's network (one Gaussian a head, masking schedule).
        energy: Tilt every factor by an energy, kept only if it raises the held-out conditional likelihood.
        components: Mixture components of each head; default 6, and 1 for ``gru``.
        width: Hidden units; default 64, and 32 in each direction of the ``gru``.
        steps: Training steps at 2,000 rows; grows with the square root of the rows.
    """

    def __init__(
        self,
        proposal: str = "mlp",
        energy: bool = False,
        components: int | None = None,
        width: int | None = None,
        steps: int = 1500,
    ) -> None:
        self.proposal = proposal
        self.energy = energy
        self.components = components if components is not None else (1 if proposal == "gru" else 6)
        self.width = width if width is not None else (32 if proposal == "gru" else 64)
        self.steps = steps
        self.held_out: dict[str, float] = {}
        self.tick: Tick = silent
        self.head: EnergyHead | None = None

    @property
    def kind(self) -> str:
        """``neural-mlp``, ``neural-gru``, ``energy-mlp`` or ``energy-gru``."""
        return f"{'energy' if self.energy else 'neural'}-{self.proposal}"

    @property
    def kept(self) -> bool:
        """Whether an energy that was asked for is in use."""
        return not self.energy or self.head is not None

    def fit(self, x: FloatArray, rng: np.random.Generator) -> AutoregressiveConditional:
        """Train the proposal, then the energy on top of it."""
        d = x.shape[1]
        self._shift, self._scale = x.mean(axis=0), x.std(axis=0)
        z = (x - self._shift) / self._scale
        self._table = LinearTable(z.T @ z / len(z))
        order = rng.permutation(len(z))
        cut = max(len(z) // 7, 10)
        test_rows, train = tensor(z[order[:cut]]), tensor(z[order[cut:]])
        steps = int(self.steps * max(1.0, (len(z) / 2000) ** 0.5))
        with one_thread():
            g = generator(rng)
            self._network = self._build(d, g)
            settings: dict[str, Any] = {"dynamic": self.proposal == "gru", "steps": steps, "tick": self.tick}
            score = train_proposal(self._network, self._table, train, test_rows, rng, **settings)
            self.held_out = {"proposal": score}
            self.head = None
            if self.energy:
                head = EnergyHead(d, self._network.width, g)
                tilted = train_energy(head, self._network, self._table, train, test_rows, rng, **settings)
                self.held_out["energy"] = tilted
                self.head = head if tilted > score else None
        return self

    def log_likelihood(self, x: FloatArray, observed: BoolArray) -> FloatArray:
        """Log density of the hidden features given the observed ones, (n,), in the columns' own order."""
        z = (x - self._shift) / self._scale
        now = observed.copy()
        out = -np.where(observed, 0.0, np.log(self._scale)).sum(axis=1)
        with one_thread(), torch.inference_mode():
            for j in range(x.shape[1]):
                rows = np.flatnonzero(~now[:, j])
                if len(rows) == 0:
                    continue
                code = self._table.codes(now[rows])
                visible, mask = tensor(hide(z[rows], now[rows])), tensor(now[rows].astype(np.float64))
                context, mean, spread = self._look(visible, mask, code)
                standardised = (tensor(z[rows, j]) - mean[:, j]) / spread[:, j]
                heads = self._network.one_head(context, j)
                if self.head is None:
                    log = log_density(heads, standardised)
                else:
                    tilt = self.head.one(context, j)
                    log = tilted_log_density(heads, tilt, standardised, log_partition(heads, tilt))
                out[rows] += (log - spread[:, j].log()).numpy()
                now[rows, j] = True
        return np.asarray(out)

    def draws(self, x: FloatArray, masks: BoolArray, points: Points) -> Draws:
        """Walk through the hidden features in a random order that differs between replicates."""
        z = (x - self._shift) / self._scale
        out = np.empty((len(x), len(masks), points.replicates, points.n_draws, x.shape[1]))
        with one_thread(), torch.inference_mode():
            uniforms = tensor(points.uniforms)
            for r in range(points.replicates):
                order = np.argsort(points.uniforms[r, 0, :-1])
                # One row at a time: equal shapes in every batch, so no row depends on its batch.
                for i in range(len(x)):
                    out[i, :, r] = self._walk(hide(z[i], masks), masks, uniforms[r], order)
        out *= self._scale
        out += self._shift
        np.copyto(out, x[:, None, None, None, :], where=masks[None, :, None, None, :])
        return Draws(out)

    def _walk(self, shown: FloatArray, masks: BoolArray, uniform: Tensor, order: np.ndarray[Any, Any]) -> FloatArray:
        """Complete one row under all masks, (n_masks, n_draws, d)."""
        d = masks.shape[1]
        n = len(uniform)
        z = tensor(shown)[:, None, :].repeat(1, n, 1)
        now = masks.copy()
        for j in (int(k) for k in order):
            for first in (True, False):
                # Before its first hidden feature is drawn, all draws of a mask share one context.
                group = np.flatnonzero(~now[:, j] & ((now == masks).all(axis=1) == first))
                if len(group) == 0:
                    continue
                k = 1 if first else n
                code = self._table.codes(now[group]).repeat_interleave(k)
                observed = tensor(now[group].astype(np.float64)).repeat_interleave(k, 0)
                context, mean, spread = self._look(z[group][:, :k].reshape(-1, d), observed, code)
                heads = self._network.one_head(context, j)
                places = uniform[:, j].repeat(len(group))
                widen = n // k
                heads = heads.repeat_interleave(widen, 0)
                if self.head is None:
                    samples = transform(heads, places)
                else:
                    tilt = self.head.one(context, j).repeat_interleave(widen, 0)
                    samples = tilted_transform(heads, tilt, places)
                mean_j, spread_j = (t[:, j].repeat_interleave(widen, 0) for t in (mean, spread))
                z[group, :, j] = (mean_j + spread_j * samples).reshape(len(group), n)
            now[:, j] = True
        return z.numpy().astype(np.float64)

    def _look(self, shown: Tensor, mask: Tensor, code: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Context of the network, and the linear prediction with its spread."""
        mean, spread = linear_moments(self._table, self.proposal, shown, code)
        return self._network.context(shown, mask, mean, spread), mean, spread

    def _build(self, d: int, g: torch.Generator) -> MlpProposal | GruProposal:
        maker = GruProposal if self.proposal == "gru" else MlpProposal
        return maker(d, self.components, self.width, g)

    def state(self) -> tuple[dict[str, Any], State]:
        """Settings and arrays that restore the model."""
        settings = {
            "proposal": self.proposal,
            "energy": self.energy,
            "components": self.components,
            "width": self.width,
            "steps": self.steps,
            "held_out": self.held_out,
            "tilted": self.head is not None,
        }
        extra_arrays = {"shift": self._shift, "scale": self._scale, "covariance": self._table.covariance}
        arrays: State = {**extra_arrays, **weights_of(self._network, "network.")}
        if self.head is not None:
            arrays |= weights_of(self.head, "head.")
        return settings, arrays

    @classmethod
    def restore(cls, settings: dict[str, Any], arrays: State) -> AutoregressiveConditional:
        """Build the fitted model back."""
        keys = ("proposal", "energy", "components", "width", "steps")
        model = cls(**{key: settings[key] for key in keys})
        model.held_out = dict(settings["held_out"])
        model._shift, model._scale = arrays["shift"], arrays["scale"]
        model._table = LinearTable(arrays["covariance"])
        g = torch.Generator().manual_seed(0)
        model._network = model._build(len(model._shift), g)
        load_weights(model._network, pick(arrays, "network."))
        if settings["tilted"]:
            model.head = EnergyHead(len(model._shift), model._network.width, g)
            load_weights(model.head, pick(arrays, "head."))
        return model


def linear_moments(table: LinearTable, proposal: str, shown: Tensor, code: Tensor) -> tuple[Tensor, Tensor]:
    """Linear prediction and its spread for the MLP; the paper's network stands alone, on zero and one."""
    if proposal == "gru":
        return torch.zeros_like(shown), torch.ones_like(shown)
    mean = torch.bmm(table.gain[code], shown[:, :, None])[:, :, 0]
    return mean, table.spread[code]
