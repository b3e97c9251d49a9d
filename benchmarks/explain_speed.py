"""Speed and error of the explainer beside shap, captum and shapiq, in one run.

    python benchmarks/explain_speed.py                    # about five minutes of CPU time
    python benchmarks/explain_speed.py --quick            # a smoke run; its figures mean nothing
    python benchmarks/explain_speed.py --output DIR       # also writes explain_speed.md there

A policy 32 → 128 → 128 tanh → 64 and a twin network with three component values learn to imitate a synthetic scheduler
with memory cliffs, thermal throttling and correlated counters. Explained are the probability of the chosen action and
the three values, on states that took part in nothing else, against 100 background states. NMSE = |φ̂ − φ|² / |φ|², the
reference φ being antithetic walks over the same 100 states, with its own error beside it. One thread, process CPU time,
the best of several repeats. Everybody runs the same network in the same batches; captum and shapiq, which know no
background, get a function that averages over it without a loop in Python.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from attribution_sched.shapley.explain import estimate
from attribution_sched.shapley.regression import kernel_plan
from attribution_sched.shapley.tabular import TabularGame

FloatArray = NDArray[np.float64]
INPUTS, ACTIONS, DOMAINS = 32, 64, 8
COMPONENTS = ("R_eff", "R_util", "R_cost")
RIVAL_COALITIONS = 2112
"""Coalitions of shap.Kernel's default for 32 inputs; with 100 background states 211,200 rows."""

QUICK, STANDARD = 6_304, 46_000
REPEATS = 1
"""Timings per fresh state, for ours and for rivals alike; the best over all states counts."""
CURVE_ROWS = (254, 505, 1_009, 2_017, 3_152, QUICK, 12_604, 25_204, STANDARD, 92_000, 211_000)
LIMIT_MS = {QUICK: 15.0, STANDARD: 95.0}
LIMIT_NMSE = {
    QUICK: {"probability": 1.5e-2, "three values": 4e-4},
    STANDARD: {"probability": 1.5e-3, "three values": 3e-5},
}
FACTORS = {"shap.Permutation": 12, "shap.Kernel": 50, "captum": 25, "shapiq": 8}


# --- the synthetic scheduler -------------------------------------------------------------------------------------


def draw_states(n: int, rng: np.random.Generator) -> FloatArray:
    """States (n, 32): load, free memory and temperature of 8 domains, 5 task fields, 3 network readings."""
    weather, demand = rng.normal(size=(2, n, 1))
    load = 1 / (1 + np.exp(-(0.9 * demand + rng.normal(size=(n, DOMAINS)))))
    memory = np.clip(1.1 - 0.7 * load + 0.15 * rng.normal(size=(n, DOMAINS)), 0, 1.2)
    heat = np.clip(0.35 + 0.4 * load + 0.1 * weather + 0.1 * rng.normal(size=(n, DOMAINS)), 0, 1.2)
    task = 1 / (1 + np.exp(-(0.5 * demand + rng.normal(size=(n, 5)))))
    network = np.clip(0.6 - 0.15 * weather + 0.2 * rng.normal(size=(n, 3)), 0, 1.2)
    return np.concatenate([load, memory, heat, task, network], axis=1)


def score_actions(states: FloatArray) -> FloatArray:
    """Component rewards (n, 64, 3) of the 64 actions: 8 domains by 8 kinds of layout."""
    load, memory, heat = (states[:, k * 8 : k * 8 + 8, None] for k in range(3))
    need, work, talk, hurry, price = (states[:, None, 24 + k, None] for k in range(5))
    wide, local, loss = (states[:, None, 29 + k, None] for k in range(3))
    layout = np.arange(8)[None, None, :]
    shards, small, spread = 1 + layout % 2, (layout // 2) % 2, layout // 4
    step = lambda z, sharp: 1 / (1 + np.exp(-sharp * z))  # noqa: E731
    fits = step(memory - need * (1 - 0.35 * small) / shards, 18.0)
    throttled = step(heat + 0.1 * small - 0.75, 15.0)
    bandwidth = spread * wide + (1 - spread) * local
    traffic = talk * (shards - 0.5) / (0.15 + bandwidth) * (1 + loss * spread)
    speed = (1 - load) * (1 - 0.6 * throttled) * (0.6 + 0.4 * shards) * fits
    eff = speed * (0.5 + work) - 0.35 * traffic - 1.2 * (1 - fits) * (0.5 + hurry)
    util = fits * (0.4 + 0.6 * need / shards) * (1 - 0.5 * load) + 0.3 * spread * (1 - load) - 0.3 * throttled
    cost = (0.4 + price) * (0.5 * shards + 0.6 * traffic * spread) + 0.4 * throttled * heat + 0.2 * small * hurry
    return np.stack(np.broadcast_arrays(eff, util, cost), axis=-1).reshape(len(states), ACTIONS, 3)


def network(outputs: int, seed: int) -> nn.Sequential:
    """Two hidden layers of 128 tanh units."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(INPUTS, 128), nn.Tanh(), nn.Linear(128, 128), nn.Tanh(), nn.Linear(128, outputs))


def train(steps: int, rng: np.random.Generator) -> tuple[nn.Sequential, nn.Sequential, float]:
    """Imitate the scheduler; returns policy, values and the mean divergence of the policy from its teacher."""
    states = draw_states(40_000, rng)
    rewards = np.concatenate([score_actions(part) for part in np.array_split(states, 20)])
    total = rewards @ np.array([0.5, 0.3, -0.2])
    logits = 9.0 * (total - total.max(axis=1, keepdims=True))
    chance = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    worth = np.einsum("na,nac->nc", chance, rewards)
    worth = (worth - worth.mean(axis=0)) / worth.std(axis=0)
    x, teacher, target = (torch.tensor(array, dtype=torch.float32) for array in (states, chance, worth))
    policy, values = network(ACTIONS, 1), network(3, 2)
    optimiser = torch.optim.Adam([*policy.parameters(), *values.parameters()], lr=3e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    for _ in range(steps):
        pick = torch.from_numpy(rng.integers(0, len(states), 512))
        guess = torch.log_softmax(policy(x[pick]), dim=1)
        loss = nn.functional.kl_div(guess, teacher[pick], reduction="batchmean")
        loss = loss + nn.functional.mse_loss(values(x[pick]), target[pick])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
    with torch.no_grad():
        divergence = nn.functional.kl_div(torch.log_softmax(policy(x), 1), teacher, reduction="batchmean")
    return policy.eval(), values.eval(), float(divergence)


class Chosen(nn.Module):
    """Probability (n, 1) of one action."""

    def __init__(self, policy: nn.Module, action: int) -> None:
        super().__init__()
        self.policy, self.action = policy, action

    def forward(self, x: Tensor) -> Tensor:
        """Softmax over all actions, one column kept."""
        return torch.softmax(self.policy(x), dim=1)[:, self.action : self.action + 1]


# --- measuring ---------------------------------------------------------------------------------------------------


def cpu_ms(run: Callable[[], object], repeats: int) -> float:
    """Least process time of several runs, in milliseconds."""
    best = np.inf
    for _ in range(repeats):
        start = time.process_time()
        run()
        best = min(best, time.process_time() - start)
    return 1e3 * best


def nmse(guess: FloatArray, truth: FloatArray) -> float:
    """Squared error over squared length."""
    return float(np.square(guess - truth).sum() / np.square(truth).sum())


@dataclass
class Case:
    """One state to be explained with one model."""

    kind: str
    model: nn.Module
    game: TabularGame
    x: FloatArray
    background: FloatArray
    truth: FloatArray = field(default_factory=lambda: np.empty(0))
    truth_error: float = 0.0

    def predict(self, rows: FloatArray) -> FloatArray:
        """The bare model on numpy rows, in the batches that suit it."""
        x = torch.from_numpy(np.ascontiguousarray(rows, dtype=np.float32))
        with torch.inference_mode():
            return torch.cat([self.model(part) for part in x.split(1024)]).numpy().astype(np.float64)

    def averaged(self, coalitions: NDArray[np.bool_]) -> FloatArray:
        """Values (n, C) of coalitions (n, 32), each averaged over the whole background."""
        wanted = np.atleast_2d(np.asarray(coalitions, dtype=bool))
        n, states = len(wanted), len(self.background)
        rows = np.repeat(wanted, states, axis=0)
        values = self.game(rows, np.tile(np.arange(states), n))
        return values.reshape(n, states, -1).mean(axis=1)


def refer(case: Case, rows: int) -> None:
    """Attach the reference and its own error."""
    got = estimate(case.game, method="permutation", budget_rows=rows, seed=99, background="population")
    case.truth = got.values
    case.truth_error = float(np.square(got.standard_error).sum() / np.square(got.values).sum())


# --- the rivals --------------------------------------------------------------------------------------------------


def shap_permutation(case: Case, seed: int) -> FloatArray:
    """32 antithetic permutations, each averaged over the background: 208,000 rows."""
    import shap

    masker = shap.maskers.Independent(case.background, max_samples=len(case.background))
    explainer = shap.PermutationExplainer(case.predict, masker, seed=seed)
    return np.asarray(explainer(case.x[None], max_evals=32 * 65, silent=True).values)[0].reshape(INPUTS, -1)


def shap_kernel(case: Case, seed: int) -> FloatArray:
    """All defaults: 2,112 coalitions and the default regularisation."""
    import shap

    state = np.random.get_state()  # noqa: NPY002
    np.random.seed(seed)  # noqa: NPY002 - the explainer knows no other source
    values = shap.KernelExplainer(case.predict, case.background).shap_values(case.x[None], silent=True)
    np.random.set_state(state)  # noqa: NPY002
    return np.asarray(values)[0].reshape(INPUTS, -1)


def captum_sampling(case: Case, seed: int) -> FloatArray:
    """66 permutations of ShapleyValueSampling, 2,112 coalitions; one run per output."""
    try:
        from captum.attr import ShapleyValueSampling
    except ImportError as error:
        raise SystemExit("This benchmark compares with captum: pip install captum") from error
    columns = []
    for output in range(len(case.game.outputs)):
        forward = lambda mask, c=output: torch.from_numpy(case.averaged(mask.numpy() > 0.5)[:, c])  # noqa: E731
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            got = ShapleyValueSampling(forward).attribute(
                torch.ones(1, INPUTS), baselines=torch.zeros(1, INPUTS),
                n_samples=RIVAL_COALITIONS // INPUTS, perturbations_per_eval=INPUTS,
            )  # fmt: skip
        columns.append(got.numpy()[0])
    return np.column_stack(columns)


def shapiq_with(name: str, **options: object) -> Callable[[Case, int], FloatArray]:
    """An estimator of shapiq with 2,112 coalitions; one run per output."""

    def explain(case: Case, seed: int) -> FloatArray:
        import shapiq.approximator as approximators

        columns = []
        for output in range(len(case.game.outputs)):
            game = lambda coalitions, c=output: case.averaged(coalitions)[:, c]  # noqa: E731
            found = getattr(approximators, name)(n=INPUTS, random_state=seed, **options)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                got = found.approximate(budget=RIVAL_COALITIONS, game=game)
            columns.append(np.asarray(got.get_n_order_values(1)))
        return np.column_stack(columns)

    return explain


UNIFORM = np.ones(INPUTS + 1)
RIVALS: dict[str, Callable[[Case, int], FloatArray]] = {
    "shap.Permutation, 208,000 rows": shap_permutation,
    "shap.Kernel, all defaults, 211,200 rows": shap_kernel,
    "captum.ShapleyValueSampling, 211,200 rows per output": captum_sampling,
    "shapiq.KernelSHAP paired, even sizes": shapiq_with("KernelSHAP", pairing_trick=True, sampling_weights=UNIFORM),
    "shapiq.kADDSHAP paired": shapiq_with("kADDSHAP", max_order=2, pairing_trick=True),
    "shapiq.PermutationSamplingSV": shapiq_with("PermutationSamplingSV"),
}


# --- the table ---------------------------------------------------------------------------------------------------


def make_cases(policy: nn.Module, values: nn.Module, count: int) -> list[Case]:
    """States and background that nothing was trained, chosen or tuned on."""
    rng = np.random.default_rng(20261116)
    background, states = draw_states(100, rng), draw_states(count, rng)
    cases = []
    for x in states:
        with torch.no_grad():
            action = int(policy(torch.tensor(x[None], dtype=torch.float32)).argmax())
        chosen = Chosen(policy, action).eval()
        cases.append(Case("probability", chosen, TabularGame(chosen, x, background), x, background))
        game = TabularGame(values, x, background, outputs=COMPONENTS)
        cases.append(Case("three values", values, game, x, background))
    return cases


def our_curve(
    cases: list[Case], rows: tuple[int, ...], seeds: int, repeats: int
) -> dict[int, tuple[float, float, float]]:
    """CPU milliseconds, mean and median NMSE of the explainer by budget; its plan is made before the clock starts."""
    curve = {}
    for budget in rows:
        errors = [
            nmse(estimate(case.game, budget_rows=budget, seed=seed).values, case.truth)
            for seed in range(seeds)
            for case in cases
        ]
        spent = [cpu_ms(lambda c=case, b=budget: estimate(c.game, budget_rows=b), repeats) for case in cases]
        curve[budget] = (min(spent), float(np.mean(errors)), float(np.median(errors)))
    return curve


def time_for(error: float, curve: dict[int, tuple[float, float, float]]) -> tuple[float, str]:
    """Milliseconds in which the curve reaches an error, between its points in logarithms; and how sure that is."""
    spent, reached = (np.log([point[k] for point in curve.values()]) for k in (0, 1))
    if np.log(error) >= reached[0]:
        return float(np.exp(spent[0])), "≥ "
    # Noise may lift a point above its neighbour; the best so far is what a user would take.
    best = np.minimum.accumulate(reached)
    if np.log(error) < best[-1]:
        return float("nan"), ""
    return float(np.exp(np.interp(-np.log(error), -best, spent))), ""


def bare_share(case: Case, repeats: int) -> tuple[float, float]:
    """Rows per second (millions) of the bare network in its best batch, and of a standard explanation, in turns."""
    batches = [torch.randn(size, INPUTS) for size in (256, 512, 1024, 2048, 4096)]

    def bare(batch: Tensor) -> None:
        with torch.inference_mode():
            for _ in range(-(-STANDARD // len(batch))):
                case.model(batch)

    bare_ms, ours_ms = np.inf, np.inf
    rows = estimate(case.game).evaluations
    for _ in range(repeats):
        for batch in batches:
            count = -(-STANDARD // len(batch)) * len(batch)
            bare_ms = min(bare_ms, cpu_ms(lambda b=batch: bare(b), 1) * rows / count)
            # As many tries as the bare network has: on a busy machine the least of more tries is smaller.
            ours_ms = min(ours_ms, cpu_ms(lambda: estimate(case.game), 1))
    return rows / bare_ms / 1e3, rows / ours_ms / 1e3


def mark(met: bool) -> str:
    """Whether a target is met."""
    return "met" if met else "MISSED"


def own_lines(kind: str, curve: dict[int, tuple[float, float, float]]) -> list[str]:
    """Rows of the table of named modes."""
    lines = []
    for name, budget in (("quick", QUICK), ("standard", STANDARD)):
        spent, mean, median = curve[budget]
        limit_ms, limit = LIMIT_MS[budget], LIMIT_NMSE[budget][kind]
        verdict = mark(spent <= limit_ms and mean <= limit)
        target = f"≤ {limit_ms:.0f} ms, ≤ {limit:.1e}"
        lines.append(f"| {name}, {kind} | {spent:.1f} | {mean:.1e} ({median:.1e}) | {target} | {verdict} |")
    return lines


def rival_lines(kind: str, cases: list[Case], curve: dict[int, tuple[float, float, float]], repeats: int) -> list[str]:
    """Rows of the table of rivals: their time and error, our time for the same error, the ratio."""
    lines, shapiq_best = [], ("", np.inf, 0.0)
    for name, explain in RIVALS.items():
        errors, spent = [], np.inf
        for case in cases:
            found: list[FloatArray] = []
            once = cpu_ms(lambda c=case, e=explain, f=found: f.append(e(c, 0)), repeats)
            spent = min(spent, once)
            errors.append(nmse(found[0], case.truth))
        error = float(np.mean(errors))
        print(f"  {kind}: {name}: {spent:.0f} ms, {error:.1e}", flush=True)
        ours, sure = time_for(error, curve)
        ratio = spent / ours
        line = f"| {name}, {kind} | {spent:.0f} | {error:.1e} | {ours:.1f} | {sure}{ratio:.0f}× |"
        if name.startswith("shapiq"):
            # The strongest rival is the one that leaves us the smallest advantage.
            lines.append(f"{line} |  |")
            if ratio < shapiq_best[1]:
                shapiq_best = (name, ratio, error)
        else:
            factor = next(f for prefix, f in FACTORS.items() if name.startswith(prefix))
            lines.append(f"{line} ≥ {factor}× | {mark(ratio >= factor)} |")
    factor = FACTORS["shapiq"]
    name, ratio, error = shapiq_best
    verdict = mark(ratio >= factor)
    return [*lines, f"| best of shapiq: {name}, {kind} |  | {error:.1e} |  | {ratio:.0f}× | ≥ {factor}× | {verdict} |"]


def main() -> None:
    """Train, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a smoke run")
    parser.add_argument("--output", type=Path, help="folder for explain_speed.md")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    small = arguments.quick
    begin = time.process_time()
    policy, values, divergence = train(200 if small else 2500, np.random.default_rng(0))
    cases = make_cases(policy, values, 2 if small else 6)
    for case in cases:
        refer(case, 60_000 if small else 3_000_000)
    print(f"trained and referred after {time.process_time() - begin:.0f} s of CPU time", flush=True)
    own, rivals, notes = [], [], []
    for kind in LIMIT_NMSE[QUICK]:
        mine = [case for case in cases if case.kind == kind]
        curve = our_curve(mine, CURVE_ROWS, 1 if small else 4, REPEATS)
        own += own_lines(kind, curve)
        rivals += rival_lines(kind, mine, curve, REPEATS)
        bare, ours = bare_share(mine[0], 2 if small else 7)
        share = ours / bare
        own.append(
            f"| rows per second, {kind} | {ours:.2f} M | {100 * share:.0f} % of the bare network's {bare:.2f} M "
            f"| ≥ 80 % | {mark(share >= 0.8)} |"
        )
        worst = max(case.truth_error for case in mine)
        points = "; ".join(f"{rows:,} rows {spent:.1f} ms {mean:.1e}" for rows, (spent, mean, _) in curve.items())
        notes += [f"Our curve, {kind}: {points}.", f"Reference error, {kind}: NMSE ≤ {worst:.1e}.", ""]
    kernel_plan.cache_clear()
    cold = cpu_ms(lambda: estimate(cases[0].game), 1)
    text = "\n".join(
        [
            "### Explaining one decision: 32 inputs, 100 background states",
            "",
            "| mode | CPU ms | NMSE mean (median) | target | |",
            "|---|---|---|---|---|",
            *own,
            "",
            "| rival | CPU ms | NMSE | ours at that error, ms | ratio | target | |",
            "|---|---|---|---|---|---|---|",
            *rivals,
            "",
            *notes,
            f"{len(cases) // 2} fresh states; ours with {1 if small else 4} seeds each, rivals with one; "
            f"mean divergence of the policy from its teacher {divergence:.3f}. "
            f"The first standard explanation of a process also makes its plan and takes {cold:.0f} ms. "
            f"Whole run: {time.process_time() - begin:.0f} s of CPU time. "
            f"Command: `python benchmarks/explain_speed.py{' --quick' if small else ''}`",
            "",
        ]
    )
    print(text)
    if arguments.output:
        arguments.output.mkdir(parents=True, exist_ok=True)
        (arguments.output / "explain_speed.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
