"""Amortised attribution: a network distilled from EmSHAP that answers in one forward pass.

It is trained on attributions of rows drawn from the fitted distribution. Each target is cheap and noisy, which the
regression averages out. Whatever the network says, the rest of ``f(x) - base`` is spread evenly over the counters
(additive efficient normalisation), so the parts always add up. Its results are labelled ``amortised``.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any, Self

import numpy as np

from attribution_sched import storage
from attribution_sched.attribution.checks import match_rows, predictor
from attribution_sched.attribution.emshap import EmSHAP
from attribution_sched.attribution.uncertainty import Uncertainty
from attribution_sched.attribution.vector import AttributionVector
from attribution_sched.errors import ModelFitError, problem
from attribution_sched.kernels import one_thread
from attribution_sched.types import FloatArray


class AmortisedAttribution:
    """One-pass attribution of one fixed energy model.

    Args:
        n_rows: Rows that EmSHAP attributes for training.
        width: Hidden units of the three hidden layers.
        steps: Training steps.
        seed: Seed of rows, draws and weights.

    Attributes:
        rmse_: (d,) root mean squared distance to EmSHAP on held-out rows and EmSHAP's own error; reported as the
            standard error.
        method_: What it was distilled from.
    """

    def __init__(self, n_rows: int = 12000, width: int = 128, steps: int = 4000, seed: int = 0) -> None:
        self.n_rows = n_rows
        self.width = width
        self.steps = steps
        self.seed = seed

    def fit(self, explainer: EmSHAP, f: Any) -> Self:
        """Distil ``explainer`` for the energy model ``f``.

        Args:
            explainer: Fitted EmSHAP.
            f: Function of rows (n, d), or an object with ``predict``; queries will use the same one.
        """
        if self.n_rows < 500:
            raise ModelFitError(problem("n_rows", self.n_rows, "must be at least 500", "Distil from more rows."))
        teacher = copy.copy(explainer)
        teacher.n_draws, teacher.replicates, teacher.uncertainty_ = 32, 2, Uncertainty()
        rng = np.random.default_rng([self.seed, 3])
        real = explainer.background_
        real = real[rng.permutation(len(real))[: self.n_rows // 2]]
        rows = np.concatenate([real, explainer.sample(self.n_rows - len(real), seed=self.seed)])
        block = 500
        # Another scrambling for each block, or all targets would share one error.
        parts = [teacher.attribute(f, rows[i : i + block], seed=self.seed + i + 1) for i in range(0, len(rows), block)]
        phi = np.concatenate([p.values for p in parts])
        self.names_, self.units_, self.nonnegative = explainer.names_, explainer.units_, explainer.nonnegative
        self.method_ = parts[0].method
        self.base_ = parts[0].base
        self._mean, self._spread = rows.mean(axis=0), rows.std(axis=0)
        self._f = f
        prediction = np.concatenate([p.prediction for p in parts])
        self._size = float(np.std(phi)) or 1.0
        order = rng.permutation(len(rows))
        cut = max(len(rows) // 20, 50)
        self._train(self._inputs(rows, prediction), phi, prediction, order[cut:], rng)
        judge = copy.copy(explainer)
        held_out = rows[order[:cut]]
        judged = judge.attribute(f, held_out)
        error = self._phi(held_out, prediction[order[:cut]]) - judged.values
        # What the teacher may be wrong by, its pupil inherits.
        self.rmse_ = np.sqrt((np.square(error) + np.square(judged.standard_error)).mean(axis=0))
        return self

    def attribute(self, X: Any) -> AttributionVector:
        """Attribute rows (n, d), one row (d,), or a data frame with the fitted columns, in one forward pass."""
        if not hasattr(self, "_weights"):
            raise ModelFitError(
                problem("AmortisedAttribution", "unfitted", "has no network yet", "Call fit(explainer, f) first.")
            )
        if self._f is None:
            rule = "a loaded network does not carry the energy model"
            raise ModelFitError(problem("f", None, rule, "Pass it: AmortisedAttribution.load(path, f)."))
        rows, alone = match_rows(X, self.names_)
        prediction = predictor(self._f, self.names_, self.nonnegative)(rows)
        phi = self._phi(rows, prediction)
        error = np.broadcast_to(self.rmse_, phi.shape)
        pick = 0 if alone else slice(None)
        provenance = {
            "amortised": True,
            "distilled_from": self.method_,
            "training_rows": self.n_rows,
            "seed": self.seed,
        }
        return AttributionVector(
            phi[pick],
            self.names_,
            self.base_,
            prediction[pick],
            error[pick],
            self.units_,
            f"amortised({self.method_})",
            provenance,
        )

    def save(self, path: str | Path) -> None:
        """Write the network to one safetensors file with a checksum; the energy model is not part of it."""
        header = {
            "parameters": {"n_rows": self.n_rows, "width": self.width, "steps": self.steps, "seed": self.seed},
            "names": list(self.names_),
            "units": self.units_,
            "nonnegative": self.nonnegative,
            "method": self.method_,
            "base": self.base_,
            "size": self._size,
            "layers": len(self._weights),
        }
        arrays = {"mean": self._mean, "spread": self._spread, "rmse": self.rmse_}
        for i, (weight, bias) in enumerate(self._weights):
            arrays[f"weight{i}"], arrays[f"bias{i}"] = weight, bias
        storage.write(path, "amortised", header, arrays)

    @classmethod
    def load(cls, path: str | Path, f: Any) -> Self:
        """Read a network back, for the energy model ``f`` it was distilled for."""
        header, arrays = storage.read(path, "amortised")
        with storage.rebuilding(path, "amortised attribution"):
            self = cls(**header["parameters"])
            self.names_, self.units_ = tuple(header["names"]), header["units"]
            self.nonnegative, self.method_ = bool(header["nonnegative"]), header["method"]
            self.base_, self._size = float(header["base"]), float(header["size"])
            self._mean, self._spread, self.rmse_ = arrays["mean"], arrays["spread"], arrays["rmse"]
            self._weights = [(arrays[f"weight{i}"], arrays[f"bias{i}"]) for i in range(header["layers"])]
        self._f = f
        return self

    def _inputs(self, rows: FloatArray, prediction: FloatArray) -> FloatArray:
        """Standardised counters and the prediction itself, which the attribution must add up to."""
        z = (rows - self._mean) / self._spread
        return np.column_stack([z, (prediction - self.base_) / self._size / 3])

    def _phi(self, rows: FloatArray, prediction: FloatArray) -> FloatArray:
        """Forward pass in plain numpy: at this size it beats the overhead of a framework."""
        h = self._inputs(rows, prediction)
        for weight, bias in self._weights[:-1]:
            h = h @ weight.T + bias
            h *= 0.5 * (1.0 + np.tanh(0.5 * h))
        weight, bias = self._weights[-1]
        phi = (h @ weight.T + bias) * self._size
        return np.asarray(phi + ((prediction - self.base_ - phi.sum(axis=1)) / phi.shape[1])[:, None])

    def _train(
        self, inputs: FloatArray, phi: FloatArray, prediction: FloatArray, chosen: Any, rng: np.random.Generator
    ) -> None:
        """Regress the normalised output on the targets."""
        import torch

        from attribution_sched.attribution.conditionals import networks

        with one_thread():
            g = networks.generator(rng)
            x, y = networks.tensor(inputs[chosen]), networks.tensor(phi[chosen] / self._size)
            total = networks.tensor((prediction[chosen] - self.base_) / self._size)
            network = networks.mlp((inputs.shape[1], self.width, self.width, self.width, phi.shape[1]), g)
            slow = copy.deepcopy(network)
            optimiser = torch.optim.AdamW(network.parameters(), weight_decay=1e-3)
            for step in range(self.steps):
                networks.set_rate(optimiser, networks.cosine_rate(step, self.steps, 3e-3))
                index = torch.randint(len(x), (256,), generator=g)
                out = network(x[index])
                out = out + ((total[index] - out.sum(1)) / out.shape[1])[:, None]
                loss = (out - y[index]).square().mean()
                optimiser.zero_grad(set_to_none=True)
                torch.autograd.backward(loss)
                optimiser.step()
                networks.follow(slow, network, 0.995)
        arrays = networks.weights_of(slow)
        layers = sorted({int(key.split(".")[0]) for key in arrays})
        self._weights = [
            (arrays[f"{i}.weight"].astype(np.float64), arrays[f"{i}.bias"].astype(np.float64)) for i in layers
        ]
