"""Forecasts of link bandwidth against persistence and against the best there can be, by regime and horizon.

    python benchmarks/link_forecast.py                      # 200 networks of 6 links per regime, about a minute
    python benchmarks/link_forecast.py --output FILE.md     # also writes the tables there
    python benchmarks/link_forecast.py --trace FILE.csv     # also a recording: time_s, src, dst, gbps

Regimes, read every 300 s for 12 hours, seeds that no predictor was fitted to:

- ``preset``: the network of the preset ``cross-domain-easy``: θ = 1/1800 s, spread 0.12, bound ±30 %;
- ``faster``: θ = 1/600 s; ``correlated``: as ``preset``, links correlated by 0.5;
- ``cut``: as ``preset``, every link loses 50 to 90 % once for 1 to 4 hours;
- ``daily``: as ``preset``, times a daily swing of ±15 %.

All but ``kalman-fit`` and persistence know the base bandwidth. ``kalman`` has the parameters of ``preset`` everywhere;
``kalman-fit`` is fitted by maximum likelihood to 20 other networks of the regime and learns levels from the readings,
base unknown; in ``cut``, ``kalman-repair`` is ``kalman`` told the mean length of cuts; ``gru`` is the shipped network.
``limit`` is the conditional mean of a reader who knows the process, its unbounded state, the swing, the cut in force
and since when, and the law of cuts, but not when the next one begins or this one ends. Errors are relative to the base
of the link; intervals are 95 % bootstrap intervals over networks of the ratio to persistence.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from scipy.special import ndtr

from attribution_sched.cluster.incidents import LinkCut, cut_links, pack
from attribution_sched.cluster.wan import BandwidthTrace, Wan, WanProcess, emit_epsilon, read_trace_rows
from attribution_sched.scheduler.predictor.forecast import (
    KalmanParams,
    KalmanPredictor,
    LinkPredictor,
    PersistencePredictor,
)
from attribution_sched.scheduler.predictor.gru import GruPredictor
from attribution_sched.types import FloatArray
from research.kalman_fit import fit
from research.link_score import HORIZONS_S, HorizonErrors, crps_gaussian, play, skill

NAMES = ("west", "east", "north")
TICK_S = 300.0
TICKS = 144
WARM_UP = 24
EVERY = 3
DAY_S = 86400.0
CUT_S = (3600.0, 4 * 3600.0)
MEAN_CUT_S = sum(CUT_S) / 2
CUT_FACTOR = (0.1, 0.5)
BETWEEN = ~np.eye(len(NAMES), dtype=bool)
PRESET = Wan.uniform(NAMES, gbps=5.0, latency_s=0.04, usd_per_gb=0.05, spread=0.12, reversion_per_s=1 / 1800.0)


@dataclass(frozen=True)
class Regime:
    """How links move.

    Attributes:
        wan: The process.
        cuts: Whether every link is cut once.
        swing: Amplitude of the daily swing.
    """

    wan: Wan
    cuts: bool = False
    swing: float = 0.0


REGIMES = {
    "preset": Regime(PRESET),
    "faster": Regime(replace(PRESET, reversion_per_s=1 / 600.0)),
    "correlated": Regime(replace(PRESET, correlation=0.5)),
    "cut": Regime(PRESET, cuts=True),
    "daily": Regime(PRESET, swing=0.15),
}


@dataclass(frozen=True, eq=False)
class Recording:
    """Networks of a regime, axes ``(tick, network, source, destination)``.

    Attributes:
        times_s: Time of each tick.
        gbps: Bandwidth.
        latent: The process before its bound.
        factor: What cuts and swing leave, so that ``gbps = base · factor · (1 + clip(latent))``.
        swing: The swing alone.
        cut_start_s: When the cut of each link begins, infinity for never, axes ``(network, source, destination)``.
        cut_factor: What it leaves.
    """

    times_s: FloatArray
    gbps: FloatArray
    latent: FloatArray
    factor: FloatArray
    swing: FloatArray
    cut_start_s: FloatArray
    cut_factor: FloatArray


def record(regime: Regime, networks: int, seed: int) -> Recording:
    """Run networks of a regime."""
    k = len(NAMES)
    times_s = TICK_S * np.arange(TICKS)
    rng = np.random.default_rng([seed, 1])
    latent = np.empty((TICKS, networks, k, k))
    epsilon = np.empty_like(latent)
    swing = np.ones_like(latent)
    factor = np.ones_like(latent)
    cut_start_s = np.full((networks, k, k), np.inf)
    cut_factor = np.ones((networks, k, k))
    for network, stream in enumerate(np.random.SeedSequence(seed).spawn(networks)):
        process = WanProcess(regime.wan, stream)
        cuts = draw_cuts(rng) if regime.cuts else []
        for cut in cuts:
            for link in ((cut.source, cut.target), (cut.target, cut.source)):
                cut_start_s[network][link], cut_factor[network][link] = cut.start_s, cut.factor
        packed = pack(cuts)
        phase = rng.random()
        for tick, time_s in enumerate(times_s):
            latent[tick, network] = process.latent
            emit_epsilon(latent[tick, network], regime.wan.bound, epsilon[tick, network])
            swing[tick, network] = 1.0 + regime.swing * np.sin(2.0 * np.pi * (time_s / DAY_S + phase))
            factor[tick, network] = swing[tick, network]
            cut_links(packed, time_s, factor[tick, network])
            process.step(TICK_S)
    gbps = regime.wan.bandwidth_gbps * factor * (1.0 + epsilon)
    return Recording(times_s, gbps, latent, factor, swing, cut_start_s, cut_factor)


def draw_cuts(rng: np.random.Generator) -> list[LinkCut]:
    """Cut every link of a network once."""
    cuts = []
    for i in range(len(NAMES)):
        for j in range(i):
            start_s = rng.uniform(0.0, TICK_S * TICKS)
            end_s = start_s + rng.uniform(*CUT_S)
            cuts.append(LinkCut(i, j, start_s, end_s, float(np.exp(rng.uniform(*np.log(CUT_FACTOR))))))
    return cuts


def longer(seconds: FloatArray) -> FloatArray:
    """Chance that a cut lasts longer."""
    return np.clip((CUT_S[1] - seconds) / (CUT_S[1] - CUT_S[0]), 0.0, 1.0)


def longer_sum(seconds: FloatArray) -> FloatArray:
    """Integral of :func:`longer` from 0."""
    late = np.clip(seconds - CUT_S[0], 0.0, CUT_S[1] - CUT_S[0])
    return np.minimum(seconds, CUT_S[0]) + late - 0.5 * late**2 / (CUT_S[1] - CUT_S[0])


def left_by_cuts(
    recording: Recording, time_s: float, in_force: FloatArray, ahead_s: float
) -> tuple[FloatArray, FloatArray]:
    """Mean and mean square of what cuts leave later, for one who knows their law and the past.

    A link is before its cut, in it, or past it. Every cut begins evenly within the recording and lasts evenly long.
    """
    low, high = CUT_FACTOR
    usual = (high - low) / np.log(high / low), 0.5 * (high**2 - low**2) / np.log(high / low)
    lasted_s = time_s - recording.cut_start_s
    stays = longer(lasted_s + ahead_s) / np.maximum(longer(lasted_s), 1e-12)
    rest_s = TICK_S * TICKS - time_s
    within_s = min(ahead_s, rest_s)
    comes = float(longer_sum(np.asarray(ahead_s)) - longer_sum(np.asarray(ahead_s - within_s))) / rest_s
    cut, ahead_of_cut = in_force < 1.0, np.isfinite(recording.cut_start_s) & (lasted_s < 0)
    chance = np.where(cut, stays, np.where(ahead_of_cut, comes, 0.0))
    first = np.where(cut, recording.cut_factor, usual[0])
    second = np.where(cut, recording.cut_factor**2, usual[1])
    return 1.0 - chance * (1.0 - first), 1.0 - chance * (1.0 - second)


def limit(regime: Regime, recording: Recording) -> list[HorizonErrors]:
    """Errors of the conditional mean, at the same origins as the predictors."""
    wan, found = regime.wan, []
    for horizon_s in HORIZONS_S:
        steps = round(horizon_s / TICK_S)
        origins = np.arange(WARM_UP - 1, TICKS - steps, EVERY)
        keeps = np.exp(-wan.reversion_per_s * horizon_s)
        mean, std = clipped(recording.latent[origins] * keeps, wan.spread * np.sqrt(1.0 - keeps**2), wan.bound)
        in_force = recording.factor[origins] / recording.swing[origins]
        moments = [
            left_by_cuts(recording, recording.times_s[at], now, horizon_s)
            for at, now in zip(origins, in_force, strict=True)
        ]
        left, left_square = (np.stack(part) for part in zip(*moments, strict=True))
        swing = recording.swing[origins + steps]
        truth = recording.gbps[origins + steps] / wan.bandwidth_gbps
        error = (swing * left * (1.0 + mean) - truth)[..., BETWEEN]
        square = left_square * (std**2 + (1.0 + mean) ** 2) - (left * (1.0 + mean)) ** 2
        scale = (swing * np.sqrt(np.maximum(square, 0.0)))[..., BETWEEN]
        inside = np.abs(error) <= 1.6448536269514722 * scale
        found.append(HorizonErrors("limit", horizon_s, error, crps_gaussian(error, scale), inside))
    return found


def clipped(mean: FloatArray, std: float, bound: float) -> tuple[FloatArray, FloatArray]:
    """Mean and standard deviation of a Gaussian clipped to ±bound."""
    low, high = (-bound - mean) / std, (bound - mean) / std
    pdf_low, pdf_high = (np.exp(-0.5 * z * z) / np.sqrt(2.0 * np.pi) for z in (low, high))
    below, above = ndtr(low), ndtr(-high)
    middle = 1.0 - below - above
    first = mean * middle + std * (pdf_low - pdf_high) + bound * (above - below)
    second = (
        (mean**2 + std**2) * middle
        + 2.0 * mean * std * (pdf_low - pdf_high)
        + std**2 * (low * pdf_low - high * pdf_high)
        + bound**2 * (above + below)
    )
    return first, np.sqrt(np.maximum(second - first**2, 0.0))


def rows_of(title: str, played: dict[str, list[HorizonErrors]], seed: int, *, path_axis: int = 1) -> list[str]:
    """Write the rows of a regime: one per predictor and horizon."""
    rows = []
    for name, errors in played.items():
        for ours, theirs in zip(errors, played["persistence"], strict=True):
            s = skill(ours, theirs, np.random.default_rng(seed), path_axis=path_axis)
            low, high = s.rmse_ratio_interval
            ratio = "1" if name == "persistence" else f"{s.rmse_ratio:.3f} [{low:.3f}, {high:.3f}]"
            rows.append(
                f"| {title} | {name} | {s.horizon_s:.0f} | {100 * s.rmse:.2f} % | {ratio} | {s.crps_ratio:.3f} | "
                f"{100 * s.coverage_90:.1f} % | {s.forecasts} |"
            )
    return rows


def replay(path: Path, seed: int) -> list[str]:
    """Play the second half of a recording from a file, fitted to the first; the bootstrap draws links."""
    names = sorted({row[end] for _, row in read_trace_rows(path, ("src", "dst")) for end in ("src", "dst")})
    trace = BandwidthTrace.from_csv(path, names)
    base = np.where(
        np.isnan(trace.gbps).any(axis=0), np.nan, np.nanmedian(np.where(np.isnan(trace.gbps), 1.0, trace.gbps), axis=0)
    )
    recorded = ~np.isnan(base)
    times_s = np.arange(0.0, trace.times_s[-1] + 1e-6, TICK_S)
    gbps = np.where(recorded, trace.at(times_s), 1.0)
    half = len(times_s) // 2
    found = fit(times_s[:half], gbps[:half][:, recorded])
    predictors: list[LinkPredictor] = [
        PersistencePredictor(),
        KalmanPredictor(),
        KalmanPredictor(found.params),
        GruPredictor(),
    ]
    keep = recorded[~np.eye(len(names), dtype=bool)]
    played = {}
    for name, predictor in zip(("persistence", "kalman", "kalman-fit", "gru"), predictors, strict=True):
        errors = play(predictor, times_s[half:], gbps[half:], np.where(recorded, base, 1.0), warm_up=WARM_UP)
        played[name] = [
            replace(e, error=e.error[:, keep], crps=e.crps[:, keep], inside_90=e.inside_90[:, keep]) for e in errors
        ]
    return rows_of(f"trace {path.name}", played, seed)


def timings() -> list[str]:
    """Process CPU time of an update and of a forecast after it."""
    rows = []
    rng = np.random.default_rng(0)
    for clusters, repeats in ((1, 200), (256, 10)):
        base = np.full((clusters, 8, 8), 5.0)
        readings = 5.0 * (1.0 + 0.1 * rng.uniform(-1, 1, (repeats + 30, clusters, 8, 8)))
        for predictor in (PersistencePredictor(), KalmanPredictor(base_gbps=base), GruPredictor(base_gbps=base)):
            spent = np.zeros((2, repeats))
            for at, reading in enumerate(readings):
                began = time.process_time_ns()
                predictor.observe(TICK_S * at, reading)
                middle = time.process_time_ns()
                predictor.forecast(1800.0)
                if at >= 30:
                    spent[:, at - 30] = middle - began, time.process_time_ns() - middle
            update, ask = np.median(spent, axis=1) / 1e6
            rows.append(f"| {clusters} x 8 x 8 | {predictor.name} | {update:.3f} | {ask:.3f} |")
    return rows


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", type=int, default=200, help="networks per regime, 6 links each")
    parser.add_argument("--seed", type=int, default=90_000)
    parser.add_argument("--trace", type=Path, help="CSV of recorded bandwidth, read every 300 s")
    parser.add_argument("--output", type=Path, help="where to write the tables too")
    args = parser.parse_args()
    lines = [
        "| regime | predictor | horizon (s) | RMSE / base | RMSE / persistence [95 %] | CRPS / persistence | "
        "coverage of 90 % | forecasts |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    notes = []
    base = PRESET.bandwidth_gbps
    for number, (title, regime) in enumerate(REGIMES.items()):
        held_out = record(regime, args.networks, args.seed + number)
        other = record(regime, 20, args.seed + 1000 + number)
        found = fit(other.times_s, other.gbps[..., BETWEEN])
        p = found.params
        notes.append(
            f"- `{title}`: 1/θ = {1 / p.reversion_per_s:.0f} s, spread {p.spread:.3f}, noise {p.noise:.4f}, "
            f"drift {p.drift_per_sqrt_s * np.sqrt(3600.0):.4f} per root hour; {found.evaluations} evaluations"
        )
        predictors: dict[str, LinkPredictor] = {
            "persistence": PersistencePredictor(),
            "kalman": KalmanPredictor(KalmanParams(PRESET.reversion_per_s, PRESET.spread), base),
            "kalman-fit": KalmanPredictor(p),
            "gru": GruPredictor(base_gbps=base),
        }
        if regime.cuts:
            predictors["kalman-repair"] = KalmanPredictor(
                KalmanParams(PRESET.reversion_per_s, PRESET.spread, repair_s=MEAN_CUT_S), base
            )
        played = {
            name: play(predictor, held_out.times_s, held_out.gbps, base, warm_up=WARM_UP, every=EVERY)
            for name, predictor in predictors.items()
        }
        lines += rows_of(title, played | {"limit": limit(regime, held_out)}, args.seed)
    if args.trace is not None:
        lines += replay(args.trace, args.seed)
    lines += ["", "Fitted to 20 other networks of the regime:", "", *notes]
    lines += [
        "",
        "| links | predictor | update (CPU ms) | forecast after it (CPU ms) |",
        "|---|---|---:|---:|",
        *timings(),
    ]
    text = "\n".join(lines)
    print(text)
    if args.output is not None:
        args.output.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
