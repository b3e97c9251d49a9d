"""Simulated bandwidth of many different links, from which the recurrent predictor learns.

Every path is relative to the base of its link. It is an Ornstein–Uhlenbeck process of random rate and spread, bounded
as in the simulated network, times a daily swing, times what cuts leave: a share of the paths has each. Readings may
carry noise and come at unequal steps.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

DAY_S = 86400.0


@dataclass(frozen=True)
class PathRange:
    """From where paths are drawn; pairs are lowest and highest, drawn evenly on a log scale.

    Attributes:
        reversion_per_s: Rate at which a deviation is forgotten.
        spread: Stationary standard deviation.
        bound: Largest deviation.
        swing: Largest amplitude of the daily swing, for a third of the paths; the others have none.
        cuts_per_day: Mean number of cuts of a path, for half of the paths.
        cut_factor: What a cut leaves.
        cut_s: How long it lasts.
        noise: Largest noise of readings, for a quarter of the paths.
    """

    reversion_per_s: tuple[float, float] = (1 / 7200.0, 1 / 400.0)
    spread: tuple[float, float] = (0.03, 0.25)
    bound: float = 0.3
    swing: float = 0.2
    cuts_per_day: float = 4.0
    cut_factor: tuple[float, float] = (0.05, 0.8)
    cut_s: tuple[float, float] = (1800.0, 21600.0)
    noise: float = 0.05


def draw_paths(rng: np.random.Generator, count: int, cells: int, cell_s: float, within: PathRange) -> FloatArray:
    """Draw the true bandwidth of links relative to their base, shape ``(count, cells)``, one value per ``cell_s``."""
    rate = _log_uniform(rng, within.reversion_per_s, count)
    spread = _log_uniform(rng, within.spread, count)
    decay = np.exp(-rate * cell_s)
    scale = spread * np.sqrt(-np.expm1(-2.0 * rate * cell_s))
    normals = rng.standard_normal((cells, count))
    latent = np.empty((cells, count))
    latent[0] = spread * normals[0]
    for cell in range(1, cells):
        latent[cell] = latent[cell - 1] * decay + scale * normals[cell]
    share = 1.0 + np.clip(latent.T, -within.bound, within.bound)
    time_s = cell_s * np.arange(cells, dtype=np.float64)
    amplitude = np.where(rng.random(count) < 1 / 3, within.swing * rng.random(count), 0.0)
    phase = rng.random(count)
    share *= 1.0 + amplitude[:, None] * np.sin(2.0 * np.pi * (time_s / DAY_S + phase[:, None]))
    left = _cuts(rng, count, time_s, within)
    return np.asarray(share * left)


def draw_readings(
    rng: np.random.Generator, paths: FloatArray, readings: int, within: PathRange
) -> tuple[IntArray, FloatArray]:
    """Choose when links are read and what is read.

    Args:
        rng: Source of chance.
        paths: The truth, shape ``(count, cells)``.
        readings: How many readings of each path.
        within: Range of the noise.

    Returns:
        Cells of the readings, shape ``(count, readings)``, and their values. Half of the paths are read at every
        second cell, a quarter at another fixed step and a quarter at steps of one to six cells.
    """
    count, cells = paths.shape
    kind = np.asarray(rng.random(count))
    evenly = np.asarray(kind < 0.75)
    fixed = np.where(kind < 0.5, 2, rng.integers(1, 5, count))
    steps = np.where(evenly[:, None], fixed[:, None], rng.integers(1, 7, (count, readings)))
    at = np.cumsum(steps, axis=1) - steps[:, :1]
    # Paths read at long steps would run out of cells: their later readings come cell by cell.
    at = np.minimum(at, cells - readings + np.arange(readings))
    noise = np.where(rng.random(count) < 0.25, within.noise * rng.random(count), 0.0)
    values = np.take_along_axis(paths, at, axis=1) * (1.0 + noise[:, None] * rng.standard_normal((count, readings)))
    return at, np.maximum(values, 1e-3)


def _cuts(rng: np.random.Generator, count: int, time_s: FloatArray, within: PathRange) -> FloatArray:
    """What cuts leave of each path; cuts may have begun before the first cell."""
    left = np.ones((count, time_s.size))
    span_s = float(time_s[-1]) + within.cut_s[1]
    some = rng.random(count) < 0.5
    number = np.where(some, rng.poisson(within.cuts_per_day * span_s / DAY_S, count), 0)
    for nth in range(int(number.max(initial=0))):
        start_s = rng.uniform(-within.cut_s[1], float(time_s[-1]), count)[:, None]
        end_s = start_s + _log_uniform(rng, within.cut_s, count)[:, None]
        factor = _log_uniform(rng, within.cut_factor, count)[:, None]
        on = (number > nth)[:, None] & (time_s >= start_s) & (time_s < end_s)
        left = np.where(on, np.minimum(left, factor), left)
    return left


def _log_uniform(rng: np.random.Generator, within: tuple[float, float], count: int) -> FloatArray:
    return np.asarray(np.exp(rng.uniform(np.log(within[0]), np.log(within[1]), count)), np.float64)
