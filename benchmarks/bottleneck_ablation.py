"""Does an attribution of watts name the resource that really limits a task? An ablation in the simulated world.

    python benchmarks/bottleneck_ablation.py            # five seeds, writes docs/results_bottleneck.md
    python benchmarks/bottleneck_ablation.py --quick    # two small seeds, prints only

Tasks have latent demands; the truth is the demand that keeps its resource busy longest. Watts follow from the
latent demands by the world's power laws, an energy model learns them from the noisy counters, and every method
then explains held-out tasks. What a method says is turned into a named bottleneck by the same readouts for all.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attribution_sched.attribution.emshap import EmSHAP
from attribution_sched.cluster.counters import counters, sample_time_s
from attribution_sched.cluster.demands import (
    CLOCK_HZ,
    DEMAND_NAMES,
    MISS_S,
    REFERENCE_GPU,
    Demands,
    bottleneck,
    draw_demands,
)
from attribution_sched.cluster.gpus import gpu
from attribution_sched.cluster.power import natural_power_w
from attribution_sched.config import load_settings
from research.attribution_rivals import LinearCounters, cpu_time_share, sm_utilisation_share
from research.host_power import cpu_power_w

Array = NDArray[np.float64]
Predict = Callable[[Array], Array]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

DOC = Path(__file__).parents[1] / "docs" / "results_bottleneck.md"
PRESETS = ("testbed", "cross-domain-easy")
METER_NOISE = 0.02
HOST_CORES, HOST_MAX_W = 16.0, 56.0  # one GPU's eighth of a DGX A100: two 64-core processors of 225 W
CONTESTED = 0.9
RESAMPLES = 2000
HOST_COUNTER = DEMAND_NAMES.index("cpu_cycles")

TYPE, CPU, SM, SHARES, LINEAR, MARGINAL, EMSHAP, RAW = (
    "task type alone", "CPU-time share", "SM-utilisation share", "both shares", "linear counters", "marginal SHAP",
    "EmSHAP conditional", "raw counters (reference)",
)  # fmt: skip
TYPE_EMSHAP, TYPE_MARGINAL, TYPE_RAW, WITHIN_EMSHAP, WITHIN_MARGINAL = (
    "task type + EmSHAP", "task type + marginal SHAP", "task type + raw counters (reference)",
    "task type + EmSHAP within type", "task type + marginal within type",
)  # fmt: skip
REPLICATES = 3
ARGMAX, FLOOR, LOGISTIC, BOOSTED = "argmax", "above floor", "logistic", "boosted"


@dataclass(frozen=True)
class Budget:
    """How much is drawn and computed for one seed.

    Attributes:
        fit: Tasks that the energy model and the distribution of counters learn from.
        read: Further tasks on which the readouts are calibrated.
        test: Held-out tasks.
        seeds: Independent repetitions.
        model: Conditional model of EmSHAP.
        n_draws: Draws for each coalition in each replicate.
    """

    fit: int
    read: int
    test: int
    seeds: int
    model: str
    n_draws: int


FULL = Budget(fit=1500, read=700, test=700, seeds=5, model="auto", n_draws=32)
# Naming the family that `auto` chooses in the full run saves the half minute of its search.
QUICK = Budget(fit=400, read=400, test=400, seeds=2, model="copula-mixture", n_draws=32)


@dataclass(frozen=True)
class Tasks:
    """Tasks with what can be read of them and the truth; the first axis is the task.

    Attributes:
        seven: The seven counters, (n, 7).
        cpu_seconds: Processor seconds each second, (n,).
        sm_active: Share of time the multiprocessors are busy, (n,).
        watts: Metered draw of device and host, (n,).
        truth: True bottleneck as an index into ``DEMAND_NAMES``, (n,).
        kind: Model name, (n,).
        preset: Preset the task comes from, (n,).
    """

    seven: Array
    cpu_seconds: Array
    sm_active: Array
    watts: Array
    truth: Ints
    kind: NDArray[np.str_]
    preset: NDArray[np.str_]


@dataclass(frozen=True)
class Outcome:
    """What one seed found on its held-out tasks.

    Attributes:
        answers: (method, readout) to the bottleneck it names, (n,).
        truth: True bottleneck, (n,).
        atypical: Whether it differs from the usual one of the task's type, (n,).
        contested: Whether the type's usual bottleneck holds for less than 90 % of its training tasks, (n,).
        preset: Preset of each task, (n,).
        facts: Figures about the fitted models.
    """

    answers: Mapping[tuple[str, str], Ints]
    truth: Ints
    atypical: Bools
    contested: Bools
    preset: NDArray[np.str_]
    facts: Mapping[str, Any]


def true_watts(demands: Demands) -> Array:
    """Draw of the device and of its host by the world's own laws, from the latent demands, (n,)."""
    device = gpu(REFERENCE_GPU)
    time_s = sample_time_s(demands)
    busy = demands.seconds / time_s[:, None]
    compute, memory = np.clip(busy[:, 4:].sum(1), 0, 1), np.clip(busy[:, 2], 0, 1)
    # A core that waits for a cache miss is a busy core.
    cores = (demands.values[:, 0] / CLOCK_HZ + demands.values[:, 1] * MISS_S) / time_s
    host_w = cpu_power_w(np.minimum(cores / HOST_CORES, 1.0), HOST_MAX_W)
    working = np.clip(compute + memory, 1e-12, 1)
    return np.asarray(natural_power_w(device, working, compute / (compute + memory + 1e-300)) + host_w)


def draw_tasks(n_tasks: int, rng: np.random.Generator) -> Tasks:
    """Draw tasks from the kinds of both presets, half of them from each, by the presets' own shares."""
    kinds, share, origin = [], [], []
    for preset in PRESETS:
        found = load_settings(preset).build_world().kinds
        total = sum(kind.share for kind in found)
        kinds += [kind.model for kind in found]
        share += [kind.share / total / len(PRESETS) for kind in found]
        origin += [preset] * len(found)
    chosen = rng.choice(len(kinds), size=n_tasks, p=share)
    demands = draw_demands([kinds[c] for c in chosen], rng)
    read = counters(demands, rng)
    noise = np.exp(METER_NOISE * rng.standard_normal(n_tasks))
    return Tasks(
        seven=read.seven,
        cpu_seconds=read.column("cpu_seconds"),
        sm_active=read.column("sm_active"),
        watts=true_watts(demands) * noise,
        truth=np.array([DEMAND_NAMES.index(name) for name in bottleneck(demands)], dtype=np.int64),
        kind=np.array([kinds[c].name for c in chosen]),
        preset=np.array([origin[c] for c in chosen]),
    )


def energy_model(x: Array, watts: Array, seed: int) -> Predict:
    """Counters to watts: one small network, quick to ask the many times that two games need."""
    from sklearn.compose import TransformedTargetRegressor
    from sklearn.neural_network import MLPRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    network = MLPRegressor(
        hidden_layer_sizes=(16,), activation="tanh", alpha=0.1, solver="lbfgs", max_iter=5000, random_state=seed
    )
    scaled = TransformedTargetRegressor(make_pipeline(StandardScaler(), network), transformer=StandardScaler())
    scaled.fit(x, watts)
    return lambda rows: np.maximum(scaled.predict(rows), 0.0)


def explained(target: Array, by: Array) -> float:
    """Share of the variance of ``target`` (n,) that a linear regression on ``by`` (n, k) explains."""
    columns = np.column_stack([by / np.maximum(by.std(0), 1e-300), np.ones(len(by))])
    rest = target - columns @ np.linalg.lstsq(columns, target, rcond=None)[0]
    return 1 - float(rest.var() / target.var())


def explain(tasks: Tasks, budget: Budget, seed: int) -> tuple[dict[str, Array], dict[str, Any]]:
    """What each method says of the readout and test tasks: method to (n, k), and facts about the models."""
    learn, ask = slice(0, budget.fit), slice(budget.fit, None)
    x, asked = tasks.seven[learn], tasks.seven[ask]
    model = energy_model(x, tasks.watts[learn], seed)
    test = slice(budget.fit + budget.read, None)
    missed = model(tasks.seven[test]) - tasks.watts[test]
    facts: dict[str, Any] = {
        "mae_w": float(np.abs(missed).mean()),
        "r2": 1 - float((missed**2).mean() / tasks.watts[test].var()),
    }
    one_hot = (tasks.kind[ask, None] == np.unique(tasks.kind)).astype(float)
    said: dict[str, Array] = {}
    for name, kind in ((EMSHAP, budget.model), (MARGINAL, "marginal")):
        start = time.process_time()
        fit = EmSHAP(model=kind, n_draws=budget.n_draws, replicates=REPLICATES, seed=seed)
        fit.fit(x, DEMAND_NAMES, "W")
        facts[f"{name} fit_s"] = time.process_time() - start
        start = time.process_time()
        vector = fit.attribute(model, asked)
        facts[f"{name} row_ms"] = 1e3 * (time.process_time() - start) / len(asked)
        said[name] = np.asarray(vector.values)
        facts[f"{name} method"] = vector.method
        facts[f"{name} error"] = float(np.mean(vector.standard_error) / np.abs(vector.values).mean())
        ever = np.unique(tasks.truth)
        facts[f"{name} own"] = float(np.mean([explained(said[name][:, j], asked[:, [j]]) for j in ever]))
        facts[f"{name} type"] = float(np.mean([explained(said[name][:, j], one_hot) for j in ever]))
    said[LINEAR] = np.asarray(LinearCounters().fit(x, tasks.watts[learn], DEMAND_NAMES, "W").attribute(asked).values)
    for name, rule, weight in (
        (CPU, cpu_time_share, tasks.cpu_seconds[ask]),
        (SM, sm_utilisation_share, tasks.sm_active[ask]),
    ):
        # Readout and test tasks are metered apart, so that no test task moves what a readout is calibrated on.
        parts = []
        for rows in (slice(0, budget.read), slice(budget.read, None)):
            bill = tasks.watts[ask][rows]
            names = tuple(map(str, range(len(bill))))
            parts.append(rule(float(bill.sum()), weight[rows], names).values)
        said[name] = np.concatenate(parts)[:, None]
    said[SHARES] = np.hstack([said[CPU], said[SM]])
    said[RAW] = asked
    said |= {
        n: np.hstack([one_hot, said[p]]) for n, p in ((TYPE_EMSHAP, EMSHAP), (TYPE_MARGINAL, MARGINAL), (TYPE_RAW, RAW))
    }
    for name, kind in ((WITHIN_EMSHAP, "gaussian"), (WITHIN_MARGINAL, "marginal")):
        said[name] = np.hstack([one_hot, explain_within(tasks, model, kind, budget, seed)])
    return said, facts


def explain_within(tasks: Tasks, model: Predict, game: str, budget: Budget, seed: int) -> Array:
    """Contributions to a task's watts above the mean of its own type, (n, 7).

    The players are log ratios of the counters to their type's geometric mean, whose distribution all types share;
    a counter that a type never moves is a player without effect.
    """
    x, ratio, centre = tasks.seven, np.zeros_like(tasks.seven), {}
    for kind in np.unique(tasks.kind):
        rows = tasks.kind == kind
        known = x[: budget.fit][rows[: budget.fit]]
        moves = (known > 0).all(0)
        centre[kind] = np.where(moves, np.exp(np.log(np.where(moves, known, 1.0)).mean(0)), 0.0)
        ratio[np.ix_(rows, moves)] = np.log(x[np.ix_(rows, moves)] / centre[kind][moves])
    fit = EmSHAP(model=game, n_draws=budget.n_draws, replicates=REPLICATES, seed=seed)
    fit.fit(ratio[: budget.fit], DEMAND_NAMES, "W")
    phi = np.zeros_like(x)
    for kind, middle in centre.items():
        rows = np.flatnonzero((tasks.kind == kind) & (np.arange(len(x)) >= budget.fit))
        if len(rows):
            phi[rows] = fit.attribute(lambda z, m=middle: model(m * np.exp(z)), ratio[rows]).values
    return phi[budget.fit :]


def plain_answers(said: Mapping[str, Array], truth: Ints, n_read: int) -> dict[tuple[str, str], Ints]:
    """Readouts without labels (the share rules get one label-based default, to have an answer at all)."""
    out: dict[tuple[str, str], Ints] = {}
    for name in (EMSHAP, MARGINAL, LINEAR):
        known, asked = said[name][:n_read], said[name][n_read:]
        out[name, ARGMAX] = asked.argmax(1)
        out[name, FLOOR] = (asked - np.quantile(known, 0.01, axis=0)).argmax(1)
    low, high = np.quantile(said[RAW][:n_read], [0.01, 0.99], axis=0)
    out[RAW, ARGMAX] = ((said[RAW][n_read:] - low) / (high - low)).argmax(1)
    device = int(np.bincount(truth[:n_read][truth[:n_read] != HOST_COUNTER]).argmax())
    for name, above, below in ((CPU, HOST_COUNTER, device), (SM, device, HOST_COUNTER)):
        bill = said[name][:, 0]
        out[name, ARGMAX] = np.where(bill[n_read:] > bill[:n_read].mean(), above, below)
    return out


def calibrated_answers(said: Mapping[str, Array], truth: Ints, n_read: int) -> dict[tuple[str, str], Ints]:
    """Readouts trained on the readout tasks: multinomial logistic regression, and small boosted trees."""
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    out: dict[tuple[str, str], Ints] = {}
    for name, features in said.items():
        readouts = {
            LOGISTIC: make_pipeline(StandardScaler(), LogisticRegression(max_iter=5000)),
            BOOSTED: HistGradientBoostingClassifier(max_iter=60, max_leaf_nodes=8, random_state=0),
        }
        for readout, learner in readouts.items():
            learner.fit(features[:n_read], truth[:n_read])
            out[name, readout] = np.asarray(learner.predict(features[n_read:]), dtype=np.int64)
    return out


def run_seed(budget: Budget, seed: int) -> Outcome:
    """Draw, fit, explain and read out once; the same seed gives the same answers."""
    rng = np.random.default_rng([seed, 17])
    n_known = budget.fit + budget.read
    tasks = draw_tasks(n_known + budget.test, rng)
    said, facts = explain(tasks, budget, seed)
    usual, steady = {}, {}
    for kind in np.unique(tasks.kind):
        seen = tasks.truth[:n_known][tasks.kind[:n_known] == kind]
        count = np.bincount(seen, minlength=len(DEMAND_NAMES))
        usual[kind], steady[kind] = int(count.argmax()), count.max() / max(count.sum(), 1)
    truth, kind = tasks.truth[n_known:], tasks.kind[n_known:]
    by_type = np.array([usual[k] for k in kind], dtype=np.int64)
    answers = {
        (TYPE, ARGMAX): by_type,
        **plain_answers(said, tasks.truth[budget.fit :], budget.read),
        **calibrated_answers(said, tasks.truth[budget.fit :], budget.read),
    }
    contested = np.array([steady[k] < CONTESTED for k in kind])
    facts["bottlenecks"] = np.bincount(tasks.truth, minlength=len(DEMAND_NAMES))
    facts["watts"] = np.bincount(tasks.truth, tasks.watts, minlength=len(DEMAND_NAMES))
    return Outcome(answers, truth, truth != by_type, contested, tasks.preset[n_known:], facts)


class Tally:
    """Pools the held-out tasks of all seeds and resamples them."""

    def __init__(self, outcomes: Sequence[Outcome]) -> None:
        self.keys = list(outcomes[0].answers)
        self.truth = np.concatenate([o.truth for o in outcomes])
        self.right = np.column_stack(
            [np.concatenate([o.answers[key] == o.truth for o in outcomes]) for key in self.keys]
        ).astype(float)
        self.seed = np.repeat(np.arange(len(outcomes)), [len(o.truth) for o in outcomes])
        atypical = np.concatenate([o.atypical for o in outcomes])
        preset = np.concatenate([o.preset for o in outcomes])
        self.strata: dict[str, Bools] = {
            "all": np.ones(len(atypical), dtype=bool),
            "contested": np.concatenate([o.contested for o in outcomes]),
            "atypical": atypical,
            "typical": ~atypical,
            **{name: preset == name for name in PRESETS},
        }
        n = len(atypical)
        weights = np.random.default_rng(0).multinomial(n, np.full(n, 1 / n), size=RESAMPLES).astype(float)
        self._resampled = {
            name: (weights @ (self.right * mask[:, None])) / np.maximum(weights @ mask, 1)[:, None]
            for name, mask in self.strata.items()
        }

    def accuracy(self, method: str, readout: str, stratum: str = "all") -> float:
        """Share of the stratum's tasks whose bottleneck is named."""
        return float(self.right[self.strata[stratum], self.keys.index((method, readout))].mean())

    def interval(self, method: str, readout: str, stratum: str = "all") -> tuple[float, float]:
        """95 % bootstrap interval of the accuracy, over tasks."""
        draws = self._resampled[stratum][:, self.keys.index((method, readout))]
        low, high = np.quantile(draws, [0.025, 0.975])
        return float(low), float(high)

    def by_seed(self, method: str, readout: str, stratum: str = "all") -> list[float]:
        """Accuracy of every seed on its own."""
        column, mask = self.right[:, self.keys.index((method, readout))], self.strata[stratum]
        return [float(column[mask & (self.seed == s)].mean()) for s in np.unique(self.seed)]

    def gain(self, first: tuple[str, str], second: tuple[str, str], stratum: str = "all") -> tuple[float, float, float]:
        """Accuracy of the first minus that of the second on the same tasks, with its 95 % interval."""
        a, b = self.keys.index(first), self.keys.index(second)
        draws = self._resampled[stratum][:, a] - self._resampled[stratum][:, b]
        low, high = np.quantile(draws, [0.025, 0.975])
        return self.accuracy(*first, stratum) - self.accuracy(*second, stratum), float(low), float(high)


def run(budget: Budget, first_seed: int = 0) -> tuple[list[Outcome], Tally]:
    """All seeds of a budget."""
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    with threadpool_limits(1):
        outcomes = [run_seed(budget, first_seed + seed) for seed in range(budget.seeds)]
    return outcomes, Tally(outcomes)


def page(budget: Budget, outcomes: Sequence[Outcome], tally: Tally, cpu_s: float) -> list[str]:
    """The report; every verdict in it is worded from the intervals of this run."""

    def cell(method: str, readout: str, stratum: str) -> str:
        if (method, readout) not in tally.keys:
            return "-"
        low, high = (100 * v for v in tally.interval(method, readout, stratum))
        return f"{100 * tally.accuracy(method, readout, stratum):.1f} ({low:.1f}-{high:.1f})"

    def versus(a: tuple[str, str], b: tuple[str, str], stratum: str = "all") -> str:
        gain, low, high = (100 * v for v in tally.gain(a, b, stratum))
        word = "higher" if low > 0 else "lower" if high < 0 else "(no clear difference)"
        size = f"{abs(gain):.1f} points {word}" if low > 0 or high < 0 else f"{gain:+.1f} points {word}"
        return f"{size} [{low:+.1f}, {high:+.1f}]"

    def mean(fact: str) -> float:
        return float(np.mean([o.facts[fact] for o in outcomes]))

    def logistic(method: str) -> tuple[str, str]:
        return (method, ARGMAX if method == TYPE else LOGISTIC)

    counts = np.sum([o.facts["bottlenecks"] for o in outcomes], axis=0)
    share = ", ".join(f"{n} {100 * c / counts.sum():.1f} %" for n, c in zip(DEMAND_NAMES, counts, strict=True) if c)
    never = ", ".join(n for n, c in zip(DEMAND_NAMES, counts, strict=True) if not c) or "none"
    watts = np.sum([o.facts["watts"] for o in outcomes], axis=0)
    drawn = ", ".join(f"{n} {w / c:.0f} W" for n, w, c in zip(DEMAND_NAMES, watts, counts, strict=True) if c)
    size = {name: int(mask.sum()) for name, mask in tally.strata.items()}
    chosen = ", ".join(sorted({str(o.facts[f"{EMSHAP} method"]) for o in outcomes}))
    methods = (
        TYPE, CPU, SM, SHARES, LINEAR, MARGINAL, EMSHAP, RAW, TYPE_EMSHAP, TYPE_MARGINAL, WITHIN_EMSHAP,
        WITHIN_MARGINAL, TYPE_RAW,
    )  # fmt: skip
    em, marginal, kind = logistic(EMSHAP), logistic(MARGINAL), logistic(TYPE)
    both, within = logistic(TYPE_EMSHAP), logistic(WITHIN_EMSHAP)
    out = [
        "# Does the attribution vector name the bottleneck?",
        "",
        "Written by `benchmarks/bottleneck_ablation.py`; simulated throughout.",
        "",
        "## Set-up",
        "",
        f"{budget.seeds} seeds, each with {budget.fit} tasks to fit the energy model and the distribution of counters, "
        f"{budget.read} to calibrate readouts and {budget.test} held out ({size['all']} held-out tasks in all), half "
        f"from `{PRESETS[0]}`, half from `{PRESETS[1]}`. Watts of device ({REFERENCE_GPU}) and host come from the "
        f"latent demands by the power laws, metered with {100 * METER_NOISE:.0f} % noise; methods see noisy counters "
        f"only. True bottlenecks: {share}; never: {never}. Energy model (a 16-unit network): MAE {mean('mae_w'):.1f} "
        f"W, R2 {mean('r2'):.3f} on held-out tasks. EmSHAP (`{budget.model}`) answered with {chosen}; fit "
        f"{mean(f'{EMSHAP} fit_s'):.0f} s, {mean(f'{EMSHAP} row_ms'):.1f} ms a task (marginal "
        f"{mean(f'{MARGINAL} row_ms'):.1f}); mean standard error over mean contribution "
        f"{100 * mean(f'{EMSHAP} error'):.0f} % (marginal {100 * mean(f'{MARGINAL} error'):.0f} %). "
        f"Whole run: {cpu_s:.0f} s of CPU time.",
        "",
        f"Contested types ({size['contested']} tasks): the usual bottleneck of the type holds for less than "
        f"{100 * CONTESTED:.0f} % of its training tasks. Atypical tasks ({size['atypical']}): the bottleneck is not "
        "the usual one of the type, so the type alone scores 0 there by construction; read that column together with "
        "the typical one. Percent right, with 95 % bootstrap intervals over tasks.",
        "",
        "## Calibrated readout: multinomial logistic regression, the same for every method",
        "",
        "| method | all | contested types | atypical tasks | typical tasks | all, lowest and highest seed |",
        "|---|---|---|---|---|---|",
    ]
    for name in methods:
        cells = " | ".join(cell(*logistic(name), s) for s in ("all", "contested", "atypical", "typical"))
        seeds = [100 * v for v in tally.by_seed(*logistic(name))]
        out.append(f"| {name} | {cells} | {min(seeds):.1f}, {max(seeds):.1f} |")
    out += [
        "",
        "Task type alone is the most frequent bottleneck of the model in all training tasks. A linear model of "
        "counters is the counters themselves up to scale, so a linear readout cannot tell those two rows apart. "
        "Within type: the game explains the watts above the mean of the task's own type, over log ratios of the "
        "counters to their type's mean (Gaussian conditionals).",
        "",
        "## Other readouts, all held-out tasks",
        "",
        "| method | plain argmax | argmax above floor | boosted trees | boosted, contested types |",
        "|---|---|---|---|---|",
    ]
    for name in methods:
        cells = " | ".join(cell(name, r, "all") for r in (ARGMAX, FLOOR, BOOSTED))
        out.append(f"| {name} | {cells} | {cell(name, BOOSTED, 'contested')} |")
    presets = "; ".join(
        f"`{p}` type {cell(*kind, p)}, EmSHAP {cell(*em, p)}, marginal {cell(*marginal, p)}, both {cell(*both, p)}"
        for p in PRESETS
    )
    return [
        *out,
        "",
        "Plain argmax takes the counter with the largest contribution above the mean; above floor first adds back what "
        "the counter gives at its lowest (1st percentile over readout tasks). Raw counters have no common unit and are "
        "scaled to their 1-99 % range. A share rule has one number and no counters: above its mean it is read as "
        "host (CPU time) or as the most frequent device bottleneck (SM utilisation), below as the other.",
        "",
        "## What it says",
        "",
        f"- EmSHAP against marginal SHAP, logistic readout: {versus(em, marginal)} on all tasks, "
        f"{versus(em, marginal, 'contested')} on contested types; boosted readout: "
        f"{versus((EMSHAP, BOOSTED), (MARGINAL, BOOSTED))}; with the type known: "
        f"{versus(both, logistic(TYPE_MARGINAL))}; within type: {versus(within, logistic(WITHIN_MARGINAL))}.",
        f"- EmSHAP against the type alone: {versus(em, kind)} (boosted readout {versus((EMSHAP, BOOSTED), kind)}). "
        f"Type and EmSHAP together against the type alone: {versus(both, kind)}, on contested types "
        f"{versus(both, kind, 'contested')}; within type {versus(within, kind)} and "
        f"{versus(within, kind, 'contested')}.",
        f"- Type and EmSHAP against CPU-time share: {versus(both, logistic(CPU))}; marginal SHAP against it: "
        f"{versus(marginal, logistic(CPU))}; EmSHAP against it: {versus(em, logistic(CPU))}.",
        f"- Raw counters against marginal SHAP: {versus(logistic(RAW), marginal)}; with the type, against type and "
        f"EmSHAP within type: {versus(logistic(TYPE_RAW), within)}. An attribution is a function of the counters and "
        "cannot know more than they do; what it adds is a unit and a sum, not information.",
        f"- By preset: {presets}.",
        "- The largest contribution is not the bottleneck: contributions are watts above the mean task, a bottleneck "
        f"is the resource busy longest. Mean watts by bottleneck: {drawn}; a device that waits for its host draws "
        "less, so cycles push the watts down where the host is short. Do not act on an uncalibrated argmax.",
        "- Why the games differ, over the counters that are a bottleneck for some task: a straight line in its own "
        f"counter explains {100 * mean(f'{MARGINAL} own'):.0f} % of a marginal contribution's variance and "
        f"{100 * mean(f'{EMSHAP} own'):.0f} % of a conditional one's; the task type explains "
        f"{100 * mean(f'{MARGINAL} type'):.0f} % and {100 * mean(f'{EMSHAP} type'):.0f} %. A marginal contribution is "
        "nearly its counter in watts, so it keeps what the counter says of the resource. A conditional one counts "
        "what the counter reveals of all others, which differs from type to type and is no linear function of it; "
        "the first two lines say how much of that loss trees, or knowing the type, make good.",
        "",
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run, print, and write the page unless quick."""
    import torch

    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="two small seeds; prints, writes nothing")
    quick = parser.parse_args(arguments).quick
    start = time.process_time()
    budget = QUICK if quick else FULL
    outcomes, tally = run(budget)
    text = "\n".join(page(budget, outcomes, tally, time.process_time() - start)).rstrip() + "\n"
    print(text)
    if not quick:
        DOC.parent.mkdir(exist_ok=True)
        DOC.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
