"""The energy model: what a task counts for one sample → joules for one sample, never less where a counter says more.

    f(x; s, training) = idle(s) + Σ_b w_b(s, training) · φ_b(x, s),      w ≥ 0,      f(0) = idle(s)

``x`` is a task's counters per *sample* (counter ÷ throughput ``s``: rates lose the pace), and ``φ`` are terms that rise
with every counter and vanish without it,

    x_j                a joule price for each cycle, miss, byte and second of an operator
    √(x_j / s)         the same, levelling off where a resource is busy all the time
    √(x_i · x_j)       what two resources draw only together.

The weights are those of a non-negative least squares fit to metered joules (relative errors), one set for training and
one for inference, each bent along the logarithm of the throughput between a few knots: small and huge tasks pay other
prices. Nothing else enters: no model's name, no demand that only a simulator knows. ``idle(s)`` is what the machine
draws while it does nothing, for as long as a sample takes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from attribution_sched.cluster.demands import DEMAND_NAMES
from attribution_sched.errors import CheckpointError, CounterError, ModelFitError, problem
from attribution_sched.types import BoolArray, FloatArray, IntArray

KNOTS = 6
"""Throughputs between which prices bend, at most; fewer where there are few tasks."""

ROWS_PER_KNOT = 40
"""Metered tasks of one mode that a knot needs."""

RIDGE = 1e-4
"""Of the mean square of a column: terms that move together share, instead of one taking all by chance."""

SMOOTHNESS = 0.1
"""Weight of the squared change of a price from knot to knot: a price bends only where tasks insist, so that one of them
cannot be told from the others by a counter that costs nothing."""

HELD_OUT = 5
"""One row in so many judges the fit before it is made again on all of them."""

MEMBERS = 8
"""Fits to resampled rows whose spread is the model's own error of each part."""

LEAST_TASKS = 30
"""Metered tasks that a fit needs."""

ARRAYS = ("unit", "knots", "weights", "idle_s", "members")


@dataclass(frozen=True, eq=False)
class EnergyModel:
    """A fitted energy model over the counters of one sample.

    Attributes:
        unit: (d,) usual counters per sample; counters enter as multiples of them.
        sample_s: Usual seconds of a sample, the unit of ``1 / s``.
        knots: (k,) logarithms of throughputs.
        modes: Which modes it has seen: ``(True,)``, ``(False,)`` or both; True is training.
        weights: (modes, k, terms) joules per sample of each term.
        members: (members, modes, k, terms), the same from resampled rows.
        idle_w: Watts of the idle machine.
        idle_s: (modes, k) seconds that a sample takes on the metered machine, per second on the reference.
        median_error: Of held-out tasks: median of |predicted − metered| / metered.
        spread: Of held-out tasks: root mean square of that, without the worst hundredth.
        rows: Tasks it was fitted on.
        names: Of the d counters.
        metered: What was metered: joules of which meter, or CPU-seconds where there is none.
    """

    unit: FloatArray
    sample_s: float
    knots: FloatArray
    modes: tuple[bool, ...]
    weights: FloatArray
    members: FloatArray
    idle_w: float
    idle_s: FloatArray
    median_error: float
    spread: float
    rows: int
    names: tuple[str, ...] = DEMAND_NAMES
    metered: str = "J"

    @classmethod
    def fit(
        cls,
        counters: FloatArray,
        samples_per_s: FloatArray,
        energy_j: FloatArray,
        *,
        idle_j: FloatArray | float,
        idle_w: float,
        training: BoolArray | bool = True,
        names: tuple[str, ...] = DEMAND_NAMES,
        metered: str = "J",
        seed: int = 0,
    ) -> Self:
        """Fit on tasks whose joules were metered.

        Args:
            counters: (n, d) counters per second.
            samples_per_s: (n,) throughput.
            energy_j: (n,) joules per sample, the idle machine's among them.
            idle_j: (n,) joules per sample that the idle machine would have drawn meanwhile, or one for all.
            idle_w: Watts of the idle machine.
            training: (n,) whether a task trains.
            names: Of the d counters.
            metered: What was metered.
            seed: Of the resampled rows.

        Raises:
            ModelFitError: If there are too few tasks, or a figure of one is not what it must be.
        """
        n = len(energy_j)
        modes_of = np.broadcast_to(np.asarray(training, dtype=bool), (n,))
        idle = np.broadcast_to(np.asarray(idle_j, dtype=np.float64), (n,))
        _check_fit(counters, samples_per_s, energy_j, idle, names)
        x = counters / samples_per_s[:, None]
        positive = x > 0
        unit = np.where(positive.any(axis=0), np.where(positive, x, 0.0).sum(0) / np.maximum(positive.sum(0), 1), 1.0)
        modes = tuple(bool(mode) for mode in np.unique(modes_of))
        fewest = min(int((modes_of == mode).sum()) for mode in modes)
        count = int(np.clip(fewest // ROWS_PER_KNOT, 1, KNOTS))
        logs = np.log(samples_per_s)
        knots = np.unique(np.quantile(logs, np.linspace(0.0, 1.0, count))) if count > 1 else logs[:1] * 0.0
        zeros = np.zeros((len(modes), len(knots), _terms(len(names))))
        empty = cls(
            unit, float(np.mean(1.0 / samples_per_s)), knots, modes, zeros, zeros[None], float(idle_w),
            np.zeros((len(modes), len(knots))), 0.0, 0.0, n, tuple(names), metered,
        )  # fmt: skip
        rows = _Rows(x, samples_per_s, modes_of, energy_j, idle)
        judged = np.arange(n) % HELD_OUT == HELD_OUT - 1
        trial = empty._solved(rows, ~judged)
        off = np.abs(trial.predict(x[judged], samples_per_s[judged], modes_of[judged]) / energy_j[judged] - 1.0)
        final = empty._solved(rows, np.ones(n, dtype=bool))
        rng = np.random.default_rng(seed)
        again = [final._weights(rows, rng.multinomial(n, np.full(n, 1.0 / n)).astype(float)) for _ in range(MEMBERS)]
        inliers = off[off <= np.quantile(off, 0.99)]
        return replace(
            final, members=np.stack(again), median_error=float(np.median(off)),
            spread=float(np.sqrt(np.mean(np.square(inliers)))),
        )  # fmt: skip

    def idle_j(self, samples_per_s: FloatArray, training: BoolArray) -> FloatArray:
        """Joules that the idle machine draws during a sample, f(0), shape ``(n,)``."""
        hats, mode = self._hats(samples_per_s), self._mode(training)
        idle: FloatArray = self.idle_w * (hats * self.idle_s[mode]).sum(axis=1) / samples_per_s
        return idle

    def predict(self, x: FloatArray, samples_per_s: FloatArray, training: BoolArray) -> FloatArray:
        """Joules per sample ``(n,)`` of counters per sample ``(n, d)``; one throughput and mode may stand for all."""
        terms = self._terms(x, samples_per_s)
        prices = self._prices(self.weights, samples_per_s, training)
        energy_j: FloatArray = self.idle_j(samples_per_s, training) + (terms * prices).sum(axis=1)
        return energy_j

    def parts(self, x: FloatArray, samples_per_s: FloatArray, training: BoolArray) -> FloatArray:
        """Baseline Shapley values of :meth:`predict` from the idle machine, ``(n, d)``, in closed form.

        A term of one counter is that counter's; a term of two is there only with both, and they halve it. Equal to
        :func:`~attribution_sched.attribution.accounting.from_idle`, which takes any model.
        """
        terms = self._terms(x, samples_per_s)
        parts_j: FloatArray = (terms * self._prices(self.weights, samples_per_s, training)) @ self._owners
        return parts_j

    def part_errors(self, x: FloatArray, samples_per_s: FloatArray, training: BoolArray) -> FloatArray:
        """Standard error of each part, ``(n, d)``: between resampled fits, and by how far metered joules lie off."""
        return self.account(x, samples_per_s, training)[2]

    def account(
        self, x: FloatArray, samples_per_s: FloatArray, training: BoolArray
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Parts ``(n, d)``, idle joules ``(n,)`` and standard errors of the parts ``(n, d)``, in one pass."""
        hats, mode = self._hats(samples_per_s), self._mode(training)
        terms = self._terms(x, samples_per_s)
        mine = (terms * (hats[:, :, None] * self.weights[mode]).sum(axis=1)) @ self._owners
        # Prices of all members at once, (members, n, terms).
        prices = (hats[:, :, None] * self.members[:, mode]).sum(axis=2)
        each = (terms * prices) @ self._owners
        idle = self.idle_w * (hats * self.idle_s[mode]).sum(axis=1) / samples_per_s
        error = np.sqrt(np.square(each - mine).mean(axis=0) + np.square(self.spread * mine))
        return mine, idle, error

    def expected(
        self, x: FloatArray, weights: FloatArray, samples_per_s: FloatArray, training: bool
    ) -> tuple[FloatArray, float, FloatArray, FloatArray]:
        """The account of a task of which only weighed guesses are known.

        Args:
            x: (m, d) counters per sample.
            weights: (m,) adding up to one.
            samples_per_s: (m,) throughput of each guess, or (1,) where it was measured.
            training: Its mode.

        Returns:
            Mean parts (d,), idle joules, variance of the parts between the guesses (d,) and of the model itself (d,).
        """
        mode = int(training) if len(self.modes) == 2 else 0
        terms = self._terms(x, samples_per_s)
        # Parts are linear in the terms: every member's mean part is its price of the mean term.
        usual = weights @ terms
        if len(samples_per_s) == 1:
            hats = self._hat(float(samples_per_s[0]))
            each = terms @ ((hats @ self.weights[mode])[:, None] * self._owners)
            idle = self.idle_w * float(hats @ self.idle_s[mode]) / float(samples_per_s[0])
        else:
            every = self._hats(samples_per_s)
            each = (terms * (every @ self.weights[mode])) @ self._owners
            idle = self.idle_w * float(weights @ (every @ self.idle_s[mode] / samples_per_s))
            hats = weights @ every
        mean = weights @ each
        prices = (hats @ self._member_prices[mode]).reshape(len(self.members), -1)
        members = (prices * usual) @ self._owners
        model = np.square(members - mean).mean(axis=0) + np.square(self.spread * mean)
        return mean, idle, weights @ np.square(each) - np.square(mean), model

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers and lists, ready for JSON."""
        payload = {name: getattr(self, name) for name in self.__dataclass_fields__}
        payload |= {name: getattr(self, name).tolist() for name in ARRAYS}
        return payload | {"modes": list(self.modes), "names": list(self.names)}

    @classmethod
    def from_dict(cls, told: Mapping[str, Any]) -> Self:
        """The inverse of :meth:`as_dict`.

        Raises:
            CheckpointError: If it is not what a fit has written.
        """
        try:
            arrays: dict[str, Any] = {name: np.array(told[name], dtype=np.float64) for name in ARRAYS}
            rest: dict[str, Any] = {name: told[name] for name in cls.__dataclass_fields__ if name not in ARRAYS}
            rest |= {"modes": tuple(bool(m) for m in told["modes"]), "names": tuple(told["names"])}
            model = cls(**arrays, **rest)
            shape = (len(model.modes), len(model.knots), _terms(len(model.names)))
            if arrays["weights"].shape != shape or arrays["members"].shape[1:] != shape:
                raise ValueError(f"weights of {arrays['weights'].shape} instead of {shape}")
            if not all(
                np.isfinite(array).all() and (array >= 0).all() for name, array in arrays.items() if name != "knots"
            ):
                raise ValueError("weights below zero or not finite")
        except (KeyError, TypeError, ValueError) as error:
            rule = f"is not what a fit has written ({error})"
            raise CheckpointError(problem("energy model", type(told).__name__, rule, "Fit it again")) from error
        return model

    @cached_property
    def _owners(self) -> FloatArray:
        """Which share of a term belongs to a counter, ``(terms, d)``."""
        d = len(self.names)
        first, second = _pairs(d)
        owners = np.zeros((_terms(d), d))
        owners[np.arange(d), np.arange(d)] = owners[d + np.arange(d), np.arange(d)] = 1.0
        both = 2 * d + np.arange(len(first))
        owners[both, first] = owners[both, second] = 0.5
        return owners

    def _terms(self, x: FloatArray, samples_per_s: FloatArray) -> FloatArray:
        """The terms φ, ``(n, terms)``."""
        d = len(self.names)
        first, second = _pairs(d)
        y = x / self.unit
        root = np.sqrt(y)
        terms = np.empty((len(y), _terms(d)))
        terms[:, :d] = y
        np.multiply(root, np.sqrt(1.0 / (samples_per_s * self.sample_s))[:, None], out=terms[:, d : 2 * d])
        np.multiply(root[:, first], root[:, second], out=terms[:, 2 * d :])
        return terms

    def _hats(self, samples_per_s: FloatArray) -> FloatArray:
        """Weights of the knots at throughputs, ``(n, k)``; beyond the last knot prices stay."""
        count = len(self.knots)
        if count == 1:
            return np.ones((len(samples_per_s), 1))
        logs = np.minimum(np.maximum(np.log(samples_per_s), self.knots[0]), self.knots[-1])
        at = np.minimum(np.maximum(np.searchsorted(self.knots, logs) - 1, 0), count - 2)
        share = (logs - self.knots[at]) / (self.knots[at + 1] - self.knots[at])
        hats = np.zeros((len(logs), count))
        rows = np.arange(len(logs))
        hats[rows, at], hats[rows, at + 1] = 1.0 - share, share
        return hats

    @cached_property
    def _member_prices(self) -> FloatArray:
        """Weights of all members in one row for each knot, ``(modes, k, members · terms)``."""
        by_mode = self.members.transpose(1, 2, 0, 3)
        return np.ascontiguousarray(by_mode).reshape(*by_mode.shape[:2], -1)

    @cached_property
    def _knot_list(self) -> list[float]:
        return self.knots.tolist()  # type: ignore[no-any-return]

    def _hat(self, samples_per_s: float) -> FloatArray:
        """The same for one throughput, ``(k,)``: arrays of one number cost more than the number."""
        knots = self._knot_list
        hats = np.zeros(len(knots))
        if len(knots) == 1:
            hats[0] = 1.0
            return hats
        log = min(max(float(np.log(samples_per_s)), knots[0]), knots[-1])
        at = min(max(bisect_left(knots, log) - 1, 0), len(knots) - 2)
        share = (log - knots[at]) / (knots[at + 1] - knots[at])
        hats[at], hats[at + 1] = 1.0 - share, share
        return hats

    def _mode(self, training: BoolArray) -> IntArray:
        """Row of the weights of each task; a mode that was never metered is taken for the one that was."""
        mode = np.asarray(training, dtype=np.int64)
        return mode if len(self.modes) == 2 else np.zeros_like(mode)

    def _prices(self, weights: FloatArray, samples_per_s: FloatArray, training: BoolArray) -> FloatArray:
        """Joules of each term at these throughputs, ``(n, terms)``."""
        prices: FloatArray = (self._hats(samples_per_s)[:, :, None] * weights[self._mode(training)]).sum(axis=1)
        return prices

    def _solved(self, rows: _Rows, chosen: BoolArray) -> Self:
        """Idle seconds and weights from some rows."""
        weight = chosen.astype(np.float64)
        idle_s = np.zeros_like(self.idle_s)
        if self.idle_w > 0.0:
            for m, mode in enumerate(self.modes):
                mine = chosen & (rows.training == mode)
                basis = self._hats(rows.samples_per_s[mine]) * (self.idle_w / rows.samples_per_s[mine])[:, None]
                idle = _nonnegative(basis[:, :, None], rows.idle_j[mine], rows.energy_j[mine], np.ones(int(mine.sum())))
                idle_s[m] = idle[:, 0]
        solved = replace(self, idle_s=idle_s)
        return replace(solved, weights=solved._weights(rows, weight))

    def _weights(self, rows: _Rows, counts: FloatArray) -> FloatArray:
        """Weights from rows that count so many times each, ``(modes, k, terms)``."""
        weights = np.zeros_like(self.weights)
        for m, mode in enumerate(self.modes):
            mine = (counts > 0) & (rows.training == mode)
            x, s = rows.x[mine], rows.samples_per_s[mine]
            basis = self._hats(s)[:, :, None] * self._terms(x, s)[:, None, :]
            residual_j = np.maximum(rows.energy_j[mine] - self.idle_j(s, rows.training[mine]), 0.0)
            weights[m] = _nonnegative(basis, residual_j, rows.energy_j[mine], counts[mine])
        return weights


@dataclass(frozen=True, eq=False)
class _Rows:
    """Metered tasks, per sample."""

    x: FloatArray
    samples_per_s: FloatArray
    training: BoolArray
    energy_j: FloatArray
    idle_j: FloatArray


def per_sample(counters: FloatArray, samples_per_s: FloatArray) -> FloatArray:
    """Counters per sample ``(n, d)`` from counters per second.

    Raises:
        CounterError: If a throughput is not a number above 0, or a counter is below 0.
    """
    if not (np.isfinite(samples_per_s) & (samples_per_s > 0.0)).all():
        bad = float(np.asarray(samples_per_s)[~(np.isfinite(samples_per_s) & (samples_per_s > 0.0))][0])
        rule = "joules per sample need a throughput, a finite number above 0"
        raise CounterError(problem("samples_per_s", bad, rule, "Measure it, or leave it out to have it estimated"))
    if not (counters >= 0.0).all():
        rule = "a counter must be a number >= 0"
        raise CounterError(problem("counters", float(counters[~(counters >= 0.0)][0]), rule, "Repair the reading"))
    rates: FloatArray = counters / samples_per_s[:, None]
    return rates


def _nonnegative(basis: FloatArray, target: FloatArray, size: FloatArray, counts: FloatArray) -> FloatArray:
    """Weights ``(k, terms)`` >= 0 with the least squared error relative to ``size``, smooth from knot to knot.

    Args:
        basis: (n, k, terms).
        target: (n,) what they should add up to.
        size: (n,) what errors are relative to.
        counts: (n,) how often a row counts.
    """
    from scipy.optimize import nnls

    n, k, terms = basis.shape
    relative = basis / size[:, None, None]
    scale = np.tile(relative.sum(axis=1).mean(axis=0), k)
    flat = relative.reshape(n, k * terms)
    used = flat.any(axis=0)
    flat = flat[:, used] / scale[used]
    gram = (flat * counts[:, None]).T @ flat / counts.sum()
    right = (flat * (counts * target / size)[:, None]).sum(axis=0) / counts.sum()
    usual = np.trace(gram) / len(gram)
    change = np.kron(np.diff(np.eye(k), axis=0), np.eye(terms))[:, used]
    gram += usual * SMOOTHNESS * change.T @ change
    gram[np.diag_indices_from(gram)] += usual * RIDGE
    lower = np.linalg.cholesky(gram)
    coefficients = np.zeros(k * terms)
    coefficients[used] = nnls(lower.T, np.linalg.solve(lower, right), maxiter=30 * len(gram))[0] / scale[used]
    return coefficients.reshape(k, terms)


def _terms(d: int) -> int:
    return 2 * d + d * (d - 1) // 2


def _pairs(d: int) -> tuple[IntArray, IntArray]:
    if d not in _PAIRS:
        first, second = np.triu_indices(d, 1)
        _PAIRS[d] = (first.astype(np.int64), second.astype(np.int64))
    return _PAIRS[d]


_PAIRS: dict[int, tuple[IntArray, IntArray]] = {}


def _check_fit(
    counters: FloatArray, samples_per_s: FloatArray, energy_j: FloatArray, idle_j: FloatArray, names: tuple[str, ...]
) -> None:
    n = len(energy_j)
    if counters.shape != (n, len(names)) or samples_per_s.shape != (n,):
        shapes = (counters.shape, samples_per_s.shape)
        raise ModelFitError(
            problem("counters, samples_per_s", shapes, f"must be ({n}, {len(names)}) and ({n},)", "One row a task")
        )
    if n < LEAST_TASKS:
        rule = f"an energy model needs at least {LEAST_TASKS} metered tasks"
        raise ModelFitError(problem("tasks", n, rule, "Record more, at several batches and of several models"))
    for name, values, least in (
        ("counters", counters, 0.0), ("samples_per_s", samples_per_s, None), ("energy_j", energy_j, None),
        ("idle_j", idle_j, 0.0),
    ):  # fmt: skip
        good = np.isfinite(values) & ((values > 0.0) if least is None else (values >= least))
        if not good.all():
            row = int(np.argwhere(~good)[0][0])
            rule = f"must be finite and {'> 0' if least is None else '>= 0'} (row {row})"
            fix = "A meter that ran backwards or a counter that was not read: leave the row out"
            raise ModelFitError(problem(name, float(values[~good].flat[0]), rule, fix))
    if (idle_j > energy_j).any():
        row = int(np.argmax(idle_j - energy_j))
        rule = f"the idle machine would draw more than was metered, {float(energy_j[row]):.4g} J (row {row})"
        raise ModelFitError(
            problem("idle_j", float(idle_j[row]), rule, "Measure idle on this machine, with nothing running")
        )
