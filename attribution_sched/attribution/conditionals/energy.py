"""An energy network over a closed-form proposal, normalised by importance sampling.

``p(x) = q(x) exp(-E(x)) / Z``: the proposal q has closed-form conditionals, the network learns only what q misses, and
every conditional follows from the one joint, ``p(x_hidden | x_S) = q(x_hidden | x_S) exp(-E(x)) / Z(x_S)``. The
partition function ``Z(x_S) = E_q[exp(-E) | x_S]`` is a mean over quasi-random conditional draws of the proposal, which
then serve as weighted draws of p. Training maximises the likelihood, with Z from fresh proposal draws.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from attribution_sched.attribution.conditionals.base import Draws, State, pick
from attribution_sched.attribution.conditionals.gaussianised import GaussianisedConditional
from attribution_sched.attribution.conditionals.mixture import MixtureConditional
from attribution_sched.attribution.conditionals.networks import (
    Tick,
    cosine_rate,
    follow,
    generator,
    load_weights,
    mlp,
    set_rate,
    silent,
    tensor,
    weights_of,
)
from attribution_sched.attribution.conditionals.points import Points, sobol_points
from attribution_sched.kernels import one_thread
from attribution_sched.types import BoolArray, FloatArray

Proposal = GaussianisedConditional | MixtureConditional

LEAST_EFFECTIVE_SHARE = 0.25
"""Below this effective sample size, importance weights rest on few draws, and ``auto`` looks for another model."""


class EnergyConditional:
    """Energy network over a Gaussian copula or a mixture.

    Several networks are trained, each with another fold of the rows held out for early stopping; their mean energy is
    distilled into one small network, which answers the queries. The energy is dropped when it does not raise
    the held-out likelihood.

    Args:
        proposal: Closed-form model that is tilted.
        members: Networks in the ensemble.
        width: Units of the two hidden layers of a member.
        student: Units of the two hidden layers of the distilled network.
        steps: Training steps of a member, before early stopping.
        distil_steps: Training steps of the distilled network.
        least_gain: Held-out nats a row below which the energy is dropped.
        repeat: Train the first member a second time from another start, for :meth:`twins`.
    """

    def __init__(
        self,
        proposal: Proposal,
        members: int = 6,
        width: int = 64,
        student: int = 32,
        steps: int = 1200,
        distil_steps: int = 2000,
        least_gain: float = 0.005,
        repeat: bool = True,
    ) -> None:
        self.proposal = proposal
        self.members = members
        self.width = width
        self.student = student
        self.steps = steps
        self.distil_steps = distil_steps
        self.least_gain = least_gain
        self.repeat = repeat
        self.gain = 0.0
        self.effective_share = 1.0
        self.network: nn.Sequential | None = None
        self.networks: list[nn.Sequential] = []
        self.repeated: nn.Sequential | None = None
        self.tick: Tick = silent

    @property
    def kind(self) -> str:
        """``energy`` over a Gaussian copula, ``energy-mixture`` over a mixture."""
        return "energy-mixture" if isinstance(self.proposal, MixtureConditional) else "energy"

    @property
    def reliable(self) -> bool:
        """Whether the proposal's draws, weighted, still are worth a fair share of equal ones."""
        return self.effective_share > LEAST_EFFECTIVE_SHARE

    @property
    def kept(self) -> bool:
        """Whether the energy earned its place; if not, the model equals its proposal."""
        return self.network is not None

    def fit(self, x: FloatArray, rng: np.random.Generator) -> EnergyConditional:
        """Fit the proposal, train the ensemble on folds, distil it."""
        d = x.shape[1]
        self.proposal.fit(x, rng)
        noise = tensor(self._free_draws(d, 2**15, rng))
        scores = tensor(self._scores(x))
        fold = rng.permutation(len(x)) % self.members
        networks, gains = [], []
        with one_thread():
            for k in range(self.members):
                self.tick(f"energy network {k + 1} of {self.members}", k / (self.members + 1))
                network, gain = self._train(scores[fold != k], scores[fold == k], noise, rng)
                networks.append(network)
                gains.append(gain)
            self.gain = float(np.mean(gains))
            self.network = None
            if self.gain > self.least_gain:
                self.tick("distilling the energy", self.members / (self.members + 1))
                self.network = self._distil(networks, scores, noise, rng)
                self.networks = networks
                if self.repeat:
                    self.repeated = self._train(scores[fold != 0], scores[fold == 0], noise, rng)[0]
        weight = np.exp(-self._energy(noise.numpy().astype(np.float64)))
        self.effective_share = float(weight.sum() ** 2 / (len(weight) * np.square(weight).sum()))
        return self

    def twins(self) -> tuple[list[EnergyConditional], EnergyConditional | None]:
        """One model for each network of the ensemble, every one fitted without another fold; the first once more."""
        return [self._twin(n) for n in self.networks], None if self.repeated is None else self._twin(self.repeated)

    def _twin(self, network: nn.Sequential) -> EnergyConditional:
        twin = EnergyConditional(self.proposal, student=self.width)
        twin.network, twin.gain = network, self.gain
        return twin

    def log_likelihood(self, x: FloatArray, observed: BoolArray) -> FloatArray:
        """Log density of the hidden features given the observed ones, (n,)."""
        out = self.proposal.log_likelihood(x, observed)
        if self.network is None:
            return out
        points = sobol_points(256, x.shape[1], 1, np.random.default_rng(0))
        patterns, which = np.unique(observed, axis=0, return_inverse=True)
        out = out - self._energy(self._scores(x))
        for p in range(len(patterns)):
            rows = np.flatnonzero(which == p)
            out[rows] -= self.log_partition(x[rows], patterns[p : p + 1], points)[:, 0]
        return out

    def log_partition(self, x: FloatArray, masks: BoolArray, points: Points) -> FloatArray:
        """Log of ``E_q[exp(-E) | x_S]`` by importance sampling from the proposal, (n_rows, n_masks)."""
        draws = self._score_draws(x, masks, points)
        low = -self._energy(draws.rows)
        top = low.max(axis=(-1, -2), keepdims=True)
        return np.asarray(np.log(draws.mean(np.exp(low - top)).mean(-1)) + top[..., 0, 0])

    def draws(self, x: FloatArray, masks: BoolArray, points: Points) -> Draws:
        """Proposal draws, weighted by ``exp(-E)`` and normalised within each replicate."""
        if self.network is None:
            return self.proposal.draws(x, masks, points)
        rows = np.empty((len(x), len(masks), points.replicates, points.n_draws, x.shape[1]))
        weights = np.empty(rows.shape[:-1])
        # One row at a time: the networks then see the same shapes in every batch, so no row depends on its batch.
        for i in range(len(x)):
            draws = self._score_draws(x[i : i + 1], masks, points)
            low = -self._energy(draws.rows)
            weight = np.exp(low - low.max(axis=-1, keepdims=True))
            if draws.weights is not None:
                weight *= draws.weights
            weights[i] = (weight / weight.sum(axis=-1, keepdims=True))[0]
            rows[i] = self._features(draws.rows)[0]
        return Draws(rows, weights)

    def state(self) -> tuple[dict[str, Any], State]:
        """Settings and arrays that restore the model."""
        inner, arrays = self.proposal.state()
        settings = {
            "proposal": self.proposal.kind,
            "inner": inner,
            "members": self.members,
            "width": self.width,
            "student": self.student,
            "steps": self.steps,
            "distil_steps": self.distil_steps,
            "least_gain": self.least_gain,
            "gain": self.gain,
            "effective_share": self.effective_share,
            "kept": self.kept,
        }
        named: State = {f"proposal.{key}": value for key, value in arrays.items()}
        if self.network is not None:
            named |= weights_of(self.network, "network.")
        return settings, named

    @classmethod
    def restore(cls, settings: dict[str, Any], arrays: State) -> EnergyConditional:
        """Build the fitted model back."""
        closed = MixtureConditional if settings["proposal"] == "mixture" else GaussianisedConditional
        proposal = closed.restore(settings["inner"], pick(arrays, "proposal."))
        keys = ("members", "width", "student", "steps", "distil_steps", "least_gain")
        model = cls(proposal, **{key: settings[key] for key in keys})
        model.gain = float(settings["gain"])
        model.effective_share = float(settings["effective_share"])
        if settings["kept"]:
            weights = pick(arrays, "network.")
            d = weights["0.weight"].shape[1]
            model.network = mlp((d, model.student, model.student, 1), torch.Generator().manual_seed(0))
            load_weights(model.network, weights)
        return model

    def _scores(self, x: FloatArray) -> FloatArray:
        """Rows as the network sees them: normal scores behind margins, plain rows else."""
        return self.proposal.margins.to_scores(x) if isinstance(self.proposal, GaussianisedConditional) else x

    def _features(self, scores: FloatArray) -> FloatArray:
        inner = self.proposal
        return inner.margins.to_features(scores) if isinstance(inner, GaussianisedConditional) else scores

    def _score_draws(self, x: FloatArray, masks: BoolArray, points: Points) -> Draws:
        inner = self.proposal.inner if isinstance(self.proposal, GaussianisedConditional) else self.proposal
        return inner.draws(self._scores(x), masks, points)

    def _free_draws(self, d: int, n: int, rng: np.random.Generator) -> FloatArray:
        """Unconditional proposal draws of equal weight, (n, d), as the network sees them."""
        draws = self._score_draws(np.zeros((1, d)), np.zeros((1, d), dtype=bool), sobol_points(n, d, 1, rng))
        rows = draws.rows[0, 0, 0]
        if draws.weights is None:
            return np.asarray(rows)
        return np.asarray(rows[rng.choice(n, n, p=draws.weights[0, 0, 0] / draws.weights[0, 0, 0].sum())])

    def _energy(self, scores: FloatArray) -> FloatArray:
        if self.network is None:
            return np.zeros(scores.shape[:-1])
        with one_thread(), torch.inference_mode():
            flat = tensor(scores.reshape(-1, scores.shape[-1]))
            answer = torch.cat([self.network(flat[i : i + 2**14]) for i in range(0, len(flat), 2**14)])
        return answer.numpy().astype(np.float64).reshape(scores.shape[:-1])

    def _train(
        self, train: Tensor, held: Tensor, noise: Tensor, rng: np.random.Generator
    ) -> tuple[nn.Sequential, float]:
        """Maximum likelihood of the tilt with early stopping; returns the averaged network and its held-out gain."""
        g = generator(rng)
        network = mlp((train.shape[1], self.width, self.width, 1), g, last_gain=0.1)
        slow = copy.deepcopy(network)
        optimiser = torch.optim.AdamW(network.parameters(), weight_decay=0.3)
        best, best_network, waited = 0.0, None, 0
        probe = noise[:8192]
        batch, fresh = min(512, len(train)), 2048
        for step in range(self.steps):
            set_rate(optimiser, cosine_rate(step, self.steps, 5e-3))
            real = network(train[torch.randint(len(train), (batch,), generator=g)])[:, 0]
            free = network(noise[torch.randint(len(noise), (fresh,), generator=g)])[:, 0]
            loss = real.mean() + torch.logsumexp(-free, 0) + 1e-3 * free.square().mean()
            optimiser.zero_grad(set_to_none=True)
            torch.autograd.backward(loss)
            optimiser.step()
            follow(slow, network, 0.99)
            if step % 25 == 24:
                with torch.no_grad():
                    partition = torch.logsumexp(-slow(probe)[:, 0], 0) - float(np.log(len(probe)))
                    gain = float(-slow(held)[:, 0].mean() - partition)
                if gain > best:
                    best, best_network, waited = gain, copy.deepcopy(slow), 0
                else:
                    waited += 1
                    if waited > 8 and step > self.steps // 4:
                        break
        if best_network is None:
            best_network = slow
            with torch.no_grad():
                for parameter in best_network.parameters():
                    parameter.zero_()
        return best_network, best

    def _distil(
        self, networks: list[nn.Sequential], scores: Tensor, noise: Tensor, rng: np.random.Generator
    ) -> nn.Sequential:
        """Regress one small network on the mean energy of the ensemble, over proposal draws and rows."""
        g = generator(rng)
        inputs = torch.cat([noise, scores, scores + 0.3 * torch.randn(scores.shape, generator=g)])
        with torch.no_grad():
            target = torch.stack([network(inputs)[:, 0] for network in networks]).mean(0)
            target -= target.mean()
        student = mlp((scores.shape[1], self.student, self.student, 1), g)
        slow = copy.deepcopy(student)
        optimiser = torch.optim.Adam(student.parameters())
        steps = self.distil_steps
        for step in range(steps):
            set_rate(optimiser, cosine_rate(step, steps, 1e-2))
            chosen = torch.randint(len(inputs), (1024,), generator=g)
            loss = (student(inputs[chosen])[:, 0] - target[chosen]).square().mean()
            optimiser.zero_grad(set_to_none=True)
            torch.autograd.backward(loss)
            optimiser.step()
            follow(slow, student, 0.99)
        return slow
