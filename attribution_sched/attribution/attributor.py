"""Who says where the joules of a task go: one attributor for policies, environments, training and explanations.

    attributor = as_attributor(None, world)      # the default: accounting, with EmSHAP where counters are missing
    attributor.vector(task)                      # an AttributionVector: joules per sample from idle, and the state
    attributor(counters)                         # (n, 12) -> the seven numbers in [-1, 1] of a policy's state, (n, 7)

The default is the account of :mod:`~attribution_sched.attribution.accounting` under the energy model of the world's
machines, and its mean over EmSHAP's ``p(x_missing | x_seen)`` where counters (or the throughput) could not be read.
What may enter is what a task shows and its submitter declares: counters, throughput, mode. ``System(attributor=...)``
and the registered environments take anything :func:`as_attributor` does.

**The state.** Weights belong to the schema they learnt from. Until networks are trained on accounts, their seven
numbers are those of :data:`~attribution_sched.types.ATTRIBUTION_SCHEMA` (:mod:`~attribution_sched.attribution.schema`):
an adapter, the same to the last bit for a task that was read in full, its mean over EmSHAP's draws for any other.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self, runtime_checkable

import numpy as np

from attribution_sched.attribution.simulated_meter import task_energy_j
from attribution_sched.attribution.vector import ACCOUNTING, AttributionVector, measured
from attribution_sched.cluster.demands import DEMAND_NAMES
from attribution_sched.errors import CheckpointError, CounterError, ModelFitError, SettingsError, problem
from attribution_sched.kernels import one_thread
from attribution_sched.types import BoolArray, FloatArray, IntArray, Task

if TYPE_CHECKING:
    from attribution_sched.attribution.emshap import EmSHAP
    from attribution_sched.attribution.missing import MissingCounters
    from attribution_sched.cluster.world import World
    from attribution_sched.types import Attributor


# ------ The energy model: what a task counts for one sample → joules for one sample, never less where a counter says
# more
#
#     f(x; s, training) = idle(s) + Σ_b w_b(s, training) · φ_b(x, s),      w ≥ 0,      f(0) = idle(s)
#
# ``x`` is a task's counters per *sample* (counter ÷ throughput ``s``: rates lose the pace), and ``φ`` are terms that
# rise
# with every counter and vanish without it,
#
#     x_j                a joule price for each cycle, miss, byte and second of an operator
#     √(x_j / s)         the same, levelling off where a resource is busy all the time
#     √(x_i · x_j)       what two resources draw only together.
#
# The weights are those of a non-negative least squares fit to metered joules (relative errors), one set for training
# and
# one for inference, each bent along the logarithm of the throughput between a few knots: small and huge tasks pay other
# prices. Nothing else enters: no model's name, no demand that only a simulator knows. ``idle(s)`` is what the machine
# draws while it does nothing, for as long as a sample takes.

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
class SampleEnergy:
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


# ------ What a machine's attributor is made of, fitted once: the energy model, EmSHAP's distribution, the tasks it
# knows
#
# Fitted.of_world(world)      # shipped for the presets, fitted on simulated metered tasks (a second) for others
# Fitted.fit(...)             # from metered tasks of one's own
# fitted.save(path)           # path.json (energy model, settings) and path.safetensors (EmSHAP)

SCHEMA = 1
"""Edition of the JSON file."""

TASKS = 2000
"""Simulated tasks that a world's attributor is fitted on; more where it has many kinds."""

TASKS_PER_KIND = 24

FARTHEST = 17.0
"""Standard deviations from every known task beyond which a counter is no reading of such a machine: thousands
of times what was ever seen. Tasks of one preset lie up to 16 from those of another."""

UNKNOWN = 1e12
"""Spread of a counter that was never read."""

LEAST_SPREAD, MOST_SPREAD = 0.5, 0.75
"""Of the logarithm of a counter within a kind: kinds that hardly vary must not make everything far, nor those that vary
by orders of magnitude everything near."""


@dataclass(frozen=True, eq=False)
class KnownTasks:
    """Tasks that an attributor was fitted on, by name, to say what a reading is like.

    Attributes:
        names: (k,) of the kinds of tasks.
        centres: (k, d) mean logarithms of their counters.
        spread: (d,) standard deviation of the logarithms within a kind.
        unit: (d,) counters that count as one under the logarithm.
    """

    names: tuple[str, ...]
    centres: FloatArray
    spread: FloatArray
    unit: FloatArray

    @classmethod
    def of(cls, counters: FloatArray, labels: list[str]) -> Self:
        """From counters per second ``(n, d)`` and a name for each row."""
        positive = counters > 0
        usual = np.where(positive, counters, 0.0).sum(0) / np.maximum(positive.sum(0), 1)
        unit = 0.01 * np.where(usual > 0, usual, 1.0)
        logs, each = np.log1p(counters / unit), np.array(labels)
        names = tuple(dict.fromkeys(labels))
        centres = np.array([logs[each == name].mean(axis=0) for name in names])
        within = np.concatenate([logs[each == name] - centre for name, centre in zip(names, centres, strict=True)])
        # Of a counter that such a machine never showed nothing is known, so nothing is far from it.
        spread = np.where(positive.any(axis=0), np.clip(within.std(axis=0), LEAST_SPREAD, MOST_SPREAD), UNKNOWN)
        return cls(names, centres, spread, unit)

    def nearest(self, counters: FloatArray) -> tuple[str, float, int]:
        """Name of the task most alike, its distance in standard deviations, and the counter that is farthest off.

        Args:
            counters: (d,) counters per second; NaN where one was not read.
        """
        apart = np.abs(np.log1p(counters / self.unit) - self.centres) / self.spread
        apart = np.where(np.isfinite(apart), apart, 0.0)
        far = apart.max(axis=1)
        kind = int(far.argmin())
        return self.names[kind], float(far[kind]), int(apart[kind].argmax())


@dataclass(frozen=True, eq=False)
class Fitted:
    """An attributor's parts.

    Attributes:
        energy: The energy model.
        known: Tasks it was fitted on.
        source: What it was fitted on, in words.
        shipped: Whether it came with the package.
    """

    energy: SampleEnergy
    known: KnownTasks
    source: str
    shipped: bool = False
    _missing: dict[str, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def fit(
        cls,
        counters: FloatArray,
        samples_per_s: FloatArray,
        energy_j: FloatArray,
        *,
        idle_j: FloatArray | float,
        idle_w: float,
        training: BoolArray,
        labels: list[str],
        source: str,
        names: tuple[str, ...] = DEMAND_NAMES,
        metered: str = "J",
        family: str = "mixture",
    ) -> Self:
        """Fit on metered tasks; EmSHAP's distribution waits until a counter is missing.

        Args:
            counters: (n, d) counters per second.
            samples_per_s: (n,) throughput.
            energy_j: (n,) joules per sample.
            idle_j: (n,) or one for all: joules per sample of the idle machine.
            idle_w: Watts of the idle machine.
            training: (n,) mode.
            labels: A name for each task, by which a reading is told what it is like.
            source: What these tasks are.
            names: Of the counters.
            metered: What was metered.
            family: Conditional model of EmSHAP.
        """
        energy = SampleEnergy.fit(
            counters, samples_per_s, energy_j, idle_j=idle_j, idle_w=idle_w, training=training, names=names,
            metered=metered,
        )  # fmt: skip
        fitted = cls(energy, KnownTasks.of(counters, labels), source)
        fitted._missing["fit"] = (counters, samples_per_s, training, energy, family)
        return fitted

    @classmethod
    def of_world(cls, world: World) -> Fitted:
        """The attributor of a simulated world: shipped, if its tasks and machines are a preset's; else fitted."""
        from attribution_sched.attribution.simulated_meter import nominal_readings

        readings = nominal_readings(world)
        for name in shipped_names():
            nominal, fitted = _shipped(name)
            if nominal.shape == readings.shape and np.allclose(nominal, readings, rtol=1e-6, atol=0.0):
                return fitted
        key = np.round(readings, 12).tobytes() + np.float64(world.idiosyncrasy).tobytes()
        if key not in _FITTED:
            while len(_FITTED) >= 32:
                _FITTED.pop(next(iter(_FITTED)))
            # Sums are added up in another order by several threads, and a journal keeps every bit of a vector.
            with one_thread():
                _FITTED[key] = cls.on_simulated_tasks(world)
        return _FITTED[key]

    @classmethod
    def on_simulated_tasks(cls, world: World, *, tasks: int = TASKS, seed: int = 0, family: str = "mixture") -> Self:
        """Fit on metered tasks that a world simulates."""
        from attribution_sched.attribution.simulated_meter import metered_tasks

        count = max(tasks, TASKS_PER_KIND * len(world.kinds))
        past = metered_tasks(world, count, seed)
        labels = list(past.labels)
        return cls.fit(
            past.counters, past.samples_per_s, past.energy_j, idle_j=past.idle_j, idle_w=past.idle_w,
            training=past.training, labels=labels, source=f"{count} simulated tasks, metered", family=family,
        )  # fmt: skip

    @property
    def missing(self) -> MissingCounters:
        """EmSHAP's distribution of the counters; fitted or read when it is first needed.

        Raises:
            ModelFitError: If there were too few tasks to learn how the counters move together.
        """
        from attribution_sched.attribution.missing import LEAST_RUNS, MissingCounters

        if not self.carries_missing:
            rule = f"tasks are too few to stand in for a counter that was not read (at least {LEAST_RUNS})"
            fix = "Record more, or read every counter of the task"
            raise ModelFitError(problem("metered tasks", self.energy.rows, rule, fix))
        if "ready" not in self._missing:
            if "file" in self._missing:
                path, payload = self._missing["file"]
                self._missing["ready"] = MissingCounters.load(path, payload)
            else:
                counters, pace, training, energy, family = self._missing["fit"]
                with one_thread():
                    self._missing["ready"] = MissingCounters.fit(counters, pace, training, energy, family=family)
        ready: MissingCounters = self._missing["ready"]
        return ready

    @property
    def carries_missing(self) -> bool:
        """Whether there were tasks enough to say what a counter is that was not read."""
        from attribution_sched.attribution.missing import LEAST_RUNS

        return "file" in self._missing or "ready" in self._missing or len(self._missing["fit"][0]) >= LEAST_RUNS

    def check(self, counters: FloatArray) -> tuple[str, float]:
        """The known task most alike and its distance; counters that are like none are refused.

        Raises:
            CounterError: If a counter is farther than any reading of such a machine.
        """
        name, distance, worst = self.known.nearest(counters)
        if distance > FARTHEST:
            rule = f"lies {distance:.0f} standard deviations from the nearest known task, {name} (at most {FARTHEST:g})"
            fix = f"Is it in the unit of {self.energy.names[worst]} per second, and from this kind of machine?"
            raise CounterError(problem(f"counters[{self.energy.names[worst]!r}]", float(counters[worst]), rule, fix))
        return name, distance

    def save(self, path: str | Path, **more: Any) -> None:
        """Write ``path.json`` and ``path.safetensors``; of few tasks only the first, without EmSHAP's distribution.

        Args:
            path: Without an ending.
            **more: Further facts for the JSON file.
        """
        target = Path(path)
        hidden = self.missing if self.carries_missing else None
        if hidden is not None:
            hidden.save(target.with_name(target.name + ".safetensors"))
        payload = {
            "schema": SCHEMA, "source": self.source, "energy": self.energy.as_dict(),
            "missing": None if hidden is None else hidden.as_dict(),
            "known": {"names": list(self.known.names)} | {k: getattr(self.known, k).tolist() for k in _KNOWN}, **more,
        }  # fmt: skip
        text = json.dumps(payload, separators=(",", ":"), allow_nan=False)
        target.with_name(target.name + ".json").write_text(text + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path, *, shipped: bool = False) -> tuple[Self, dict[str, Any]]:
        """Read what :meth:`save` wrote, and all of its JSON file.

        Raises:
            CheckpointError: If the file is not one of those.
        """
        target = Path(path)
        payload = _json(target.with_name(target.name + ".json"))
        try:
            if payload["schema"] != SCHEMA:
                raise ValueError(f"edition {payload['schema']} instead of {SCHEMA}")
            tasks = payload["known"]
            arrays = {name: np.array(tasks[name], dtype=np.float64) for name in _KNOWN}
            fitted = cls(
                SampleEnergy.from_dict(payload["energy"]), KnownTasks(tuple(tasks["names"]), **arrays),
                str(payload["source"]), shipped,
            )  # fmt: skip
            if payload["missing"] is None:
                fitted._missing["fit"] = ((),)
            else:
                fitted._missing["file"] = (target.with_name(target.name + ".safetensors"), payload["missing"])
        except (KeyError, TypeError, ValueError) as error:
            rule = f"is no fitted attributor ({error})"
            raise CheckpointError(problem("file", f"{target.name}.json", rule, "Fit and save it again")) from error
        return fitted, payload


_KNOWN = ("centres", "spread", "unit")

_FITTED: dict[bytes, Fitted] = {}
"""Attributors of worlds beyond the presets that this process has fitted."""


def shipped_names() -> tuple[str, ...]:
    """Presets whose attributor comes with the package."""
    folder = files("attribution_sched.attribution") / "shipped"
    return tuple(sorted(entry.name.removesuffix(".json") for entry in folder.iterdir() if entry.name.endswith(".json")))


@cache
def _shipped(name: str) -> tuple[FloatArray, Fitted]:
    fitted, payload = Fitted.load(Path(str(files("attribution_sched.attribution") / "shipped")) / name, shipped=True)
    return np.array(payload["nominal"], dtype=np.float64), fitted


def _json(path: Path) -> dict[str, Any]:
    try:
        payload = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        rule = f"cannot be read ({error})"
        raise CheckpointError(problem("file", path.name, rule, "Fit and save it again")) from error
    if not isinstance(payload, dict):
        raise CheckpointError(problem("file", path.name, "is no fitted attributor", "Fit and save it again"))
    return payload


# ------ Who says where the joules of a task go: one attributor for policies, environments, training and explanations

__all__ = ["AccountAttributor", "DefaultAttributor", "TaskAttributor", "as_attributor", "state_of", "task_energy_j"]

UNAVAILABLE = "unavailable"


@runtime_checkable
class TaskAttributor(Protocol):
    """A measured task in, attribution out: as a record, and as a policy's state."""

    @property
    def schema(self) -> str:
        """Name of the normalisation of its states."""
        ...

    def __call__(self, counters: FloatArray) -> FloatArray:
        """States ``(n, 7)`` in [-1, 1] of counters ``(n, 12)``."""
        ...

    def vector(self, task: Task | FloatArray) -> AttributionVector:
        """The attribution of one task (or of bare counters ``(12,)``), its state in it."""
        ...


def as_attributor(given: Any, world: World, policy: object = None) -> TaskAttributor:
    """An attributor from what a user has.

    Args:
        given: None for the default; a :class:`Fitted` (from a recording of one's own machine, say) or a
            ``SampleEnergy``: accounts under that energy model. A fitted ``EmSHAP`` over the seven counters, alone (it
            then explains the world's simulated meter) or as a pair with the energy model it explains, or an
            ``AmortisedAttribution``: conditional values. A fitted ``EnergyModel`` of the seven counters (EmSHAP's
            distribution is then fitted on the world's tasks). Or any function from counters ``(n, 12)`` to states ``(n,
            7)`` in [-1, 1].
        world: Where tasks come from.
        policy: Who will read the states. One whose weights have learnt from certain states (it has a method
            ``attributions``) is given these by default.

    Raises:
        SettingsError: If it is none of these.
    """
    learnt = getattr(policy, "attributions", None)
    states = learnt if callable(learnt) else None
    if given is None:
        return DefaultAttributor(world, states)
    if isinstance(given, Fitted):
        return AccountAttributor(given, states)
    if isinstance(given, SampleEnergy):
        default = Fitted.of_world(world)
        return AccountAttributor(
            Fitted(given, default.known, "an energy model of one's own", _missing=default._missing), states
        )
    if isinstance(given, type):
        raise _unknown(given)
    if isinstance(given, tuple) and len(given) == 2 and hasattr(given[0], "attribute"):
        return JoulesAttributor(_Explained(given[0], given[1]))
    if hasattr(given, "attribute"):
        from attribution_sched.attribution.amortised import AmortisedAttribution

        if isinstance(given, AmortisedAttribution):
            return JoulesAttributor(_Amortised(given))
        return JoulesAttributor(_Explained(given, _metered(world)))
    if hasattr(given, "predict") and hasattr(given, "interval"):
        from attribution_sched.attribution.emshap import EmSHAP
        from attribution_sched.cluster.world import build_pool

        fitted = EmSHAP("gaussian").fit(build_pool(world).counters.seven, DEMAND_NAMES, getattr(given, "unit", "J"))
        return JoulesAttributor(_Explained(fitted, given))
    if isinstance(given, TaskAttributor):
        return given
    if callable(given):
        return StateAttributor(given)
    raise _unknown(given)


def state_of(given: Any, world: World) -> Attributor:
    """What an environment shows: the states of an attributor, see :func:`as_attributor`."""
    return as_attributor(given, world)


def _unknown(given: Any) -> SettingsError:
    rule = "must be a fitted attributor, EmSHAP or energy model, or a function from counters (n, 12) to (n, 7)"
    return SettingsError(problem("attributor", given, rule, "Leave it out to have the preset's own"))


class AccountAttributor:
    """Accounts of tasks from the idle machine, under a fitted energy model; EmSHAP where counters are missing.

    Args:
        fitted: Energy model, EmSHAP's distribution and the tasks they know.
        states: Counters to states as some weights have learnt them; those of the shipped agents by default.
    """

    def __init__(self, fitted: Fitted, states: Attributor | None = None) -> None:
        self.fitted = fitted
        self.states = states
        _seven(fitted.energy.names)

    @property
    def schema(self) -> str:
        """Name of the normalisation of its states."""
        from attribution_sched.attribution.schema import closed_form

        return closed_form().schema

    def __call__(self, counters: FloatArray) -> FloatArray:
        """States ``(n, 7)`` of counters ``(n, 12)``."""
        from attribution_sched.attribution.schema import closed_form

        return (self.states or closed_form())(counters)

    def vector(self, task: Task | FloatArray) -> AttributionVector:
        """Joules per sample of each counter from the idle machine, and the state.

        Raises:
            CounterError: If a counter is negative, absurd for such a machine, or the throughput is no number above 0.
        """
        reading = measured(task)
        counters, missing = _read(reading)
        energy, d = self.fitted.energy, len(DEMAND_NAMES)
        # Counters are one device's, the pace is that of all devices a job was measured on.
        seven, pace = counters[:d] * reading.measured_devices, reading.samples_per_s
        x = per_sample(np.where(np.isnan(seven), 0.0, seven)[None], np.array([pace if pace != 0.0 else 1.0]))
        like, distance = self.fitted.check(seven)
        facts = {
            "estimated": True, "median_error": energy.median_error, "tasks": energy.rows, "source": self.fitted.source,
            "like": like, "distance": distance,
        }  # fmt: skip
        spread = None
        if not missing:
            s, training = np.array([pace]), np.array([reading.training])
            parts, idles, errors = energy.account(x, s, training)
            values, idle, error = parts[0], float(idles[0]), errors[0]
            state, method = self(counters[None])[0], "accounting"
        else:
            hidden = self.fitted.missing
            values, idle, error, completed = hidden.account(energy, seven, pace or np.nan, reading.training)
            pace = float(completed.weights @ completed.samples_per_s)
            rows = np.empty((len(completed.weights), len(counters)))
            rows[:, :d] = completed.counters / reading.measured_devices
            rows[:, d:] = np.where(np.isnan(counters[d:]), 0.0, counters[d:])
            states = self(rows)
            state = np.minimum(np.maximum(completed.weights @ states, -1.0), 1.0)
            # As wide as the interval of the joules: the factor that made that one right on tasks kept back.
            apart = (states - state) * (hidden.widening * np.sqrt(completed.weights))[:, None]
            spread = apart.T @ apart
            method = f"accounting over EmSHAP({hidden.explainer.model_.kind})"
        return AttributionVector(
            values, DEMAND_NAMES, idle, np.asarray(idle + values.sum()), error, f"{energy.metered}/sample", method,
            facts, state, self.schema, ACCOUNTING, pace, missing, 0.0, spread,
        )  # fmt: skip


class DefaultAttributor(AccountAttributor):
    """Accounts under the energy model of a world's own machines.

    Args:
        world: Its tasks and machines; shipped for the presets, fitted on its simulated meter for others.
        states: Counters to states as some weights have learnt them; those of the shipped agents by default.
    """

    def __init__(self, world: World, states: Attributor | None = None) -> None:
        super().__init__(Fitted.of_world(world), states)
        self.world = world


def _read(task: Task) -> tuple[FloatArray, tuple[str, ...]]:
    """Counters ``(12,)`` with NaN for those of the seven that were not read, and the names of what is missing."""
    from attribution_sched.attribution.missing import PACE

    counters = np.array(task.counters, dtype=np.float64)
    missing = [
        name for at, name in enumerate(DEMAND_NAMES)
        if task.provenance.get(name) == UNAVAILABLE or np.isnan(counters[at])
    ]  # fmt: skip
    counters[[DEMAND_NAMES.index(name) for name in missing]] = np.nan
    for name, value in zip(DEMAND_NAMES, counters.tolist(), strict=False):
        if value < 0.0 or value == math.inf:
            rule, fix = "must be a finite number >= 0", "Repair the reading, or leave it out to have it estimated"
            raise CounterError(problem(f"counters[{name!r}]", value, rule, fix))
    return counters, (*missing, *((PACE,) if task.samples_per_s == 0.0 else ()))


class JoulesAttributor:
    """States from an attribution in joules, by the schema.

    Args:
        source: What explains one row of counters.
    """

    def __init__(self, source: _Explained | _Amortised) -> None:
        self.source = source
        source.check()

    @property
    def schema(self) -> str:
        """Name of the normalisation."""
        from attribution_sched.attribution.schema import ATTRIBUTION_SCHEMA

        return ATTRIBUTION_SCHEMA

    def __call__(self, counters: FloatArray) -> FloatArray:
        """States ``(n, 7)`` of counters ``(n, 12)``; each row is explained by itself, as :meth:`vector` does."""
        rows = [np.asarray(self.vector(row).state, dtype=np.float64) for row in np.asarray(counters)]
        return np.stack(rows) if rows else np.zeros((0, len(DEMAND_NAMES)))

    def vector(self, task: Task | FloatArray) -> AttributionVector:
        """Contributions as the source gives them, and the state they come to."""
        from dataclasses import replace

        from attribution_sched.attribution.schema import encode

        reading = measured(task)
        explained = self.source.explain(reading.counters)
        state = encode(explained.values[None], explained.base)[0]
        return replace(explained, state=state, schema=self.schema, samples_per_s=reading.samples_per_s)


class StateAttributor:
    """A user's own function from counters to states; nothing in joules is known.

    Args:
        function: Counters ``(n, 12)`` → states ``(n, 7)`` in [-1, 1].
    """

    def __init__(self, function: Attributor) -> None:
        self.function = function

    @property
    def schema(self) -> str:
        """States are taken to be those that the networks know: whoever gives them says so."""
        from attribution_sched.attribution.schema import ATTRIBUTION_SCHEMA

        return ATTRIBUTION_SCHEMA

    def __call__(self, counters: FloatArray) -> FloatArray:
        """States ``(n, 7)`` of counters ``(n, 12)``.

        Raises:
            SettingsError: If the function gives something else.
        """
        values, shape = self.function(counters), (len(counters), len(DEMAND_NAMES))
        try:
            states = np.asarray(values, dtype=np.float64)
        except (TypeError, ValueError):
            states = np.empty(0)
        if states.shape != shape or not (np.abs(states) <= 1.0).all():
            rule = f"must give one finite row of {len(DEMAND_NAMES)} shares in [-1, 1] for a row of counters"
            raise SettingsError(problem("attributor", values, rule, "Return an array of shape (n, 7) for (n, 12)"))
        return states

    def vector(self, task: Task | FloatArray) -> AttributionVector:
        """The state, for its contributions too."""
        from attribution_sched.attribution.vector import state_vectors

        return state_vectors(self, DEMAND_NAMES, self.schema)(task)


class _Explained:
    """EmSHAP explains an energy model at a row."""

    def __init__(self, explainer: EmSHAP, energy: Any) -> None:
        self.explainer, self.energy = explainer, energy

    def check(self) -> None:
        if not hasattr(self.explainer, "model_"):
            rule = "has no distribution of the counters yet"
            raise SettingsError(problem("attributor", "unfitted EmSHAP", rule, "Call fit(X) first"))
        _seven(self.explainer.names_)

    def explain(self, counters: FloatArray) -> AttributionVector:
        attribution: AttributionVector = self.explainer.attribute(self.energy, counters[: len(DEMAND_NAMES)])
        return attribution


class _Amortised:
    """A network distilled from EmSHAP explains a row."""

    def __init__(self, explainer: Any) -> None:
        self.explainer = explainer

    def check(self) -> None:
        if not hasattr(self.explainer, "names_"):
            raise SettingsError(problem("attributor", "unfitted", "was distilled from nothing yet", "Call fit first"))
        _seven(self.explainer.names_)

    def explain(self, counters: FloatArray) -> AttributionVector:
        attribution: AttributionVector = self.explainer.attribute(counters[: len(DEMAND_NAMES)])
        return attribution


def _seven(names: tuple[str, ...]) -> None:
    if tuple(names) != DEMAND_NAMES:
        rule = f"must attribute to the seven counters {', '.join(DEMAND_NAMES)}"
        raise SettingsError(problem("attributor.names", list(names), rule, "Fit it on these, in this order"))


def _metered(world: World) -> Any:
    """The world's meter as a function of the seven counters alone: joules per sample, ``(n,)``.

    The throughput is what tasks with such counters usually have, by regression of its logarithm.
    """
    from attribution_sched.attribution.simulated_meter import metered_tasks

    fitted, past = Fitted.of_world(world), metered_tasks(world, 512, 1)
    energy, training = fitted.energy, bool(past.training.mean() >= 0.5)

    def columns(rows: FloatArray) -> FloatArray:
        # A distribution of counters may draw one below zero, where no counter ever is.
        return np.column_stack([np.ones(len(rows)), np.log1p(np.maximum(rows, 0.0) / fitted.known.unit)])

    slope = np.linalg.lstsq(columns(past.counters), np.log(past.samples_per_s), rcond=None)[0]
    low, high = np.log(past.samples_per_s.min()), np.log(past.samples_per_s.max())

    def joules(rows: FloatArray) -> FloatArray:
        pace = np.exp(np.clip(columns(rows) @ slope, low, high))
        return energy.predict(np.maximum(rows, 0.0) / pace[:, None], pace, np.full(len(rows), training))

    return joules
