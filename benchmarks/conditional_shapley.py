"""EmSHAP and its peers against exact conditional Shapley values, on seven correlated counters.

    python benchmarks/conditional_shapley.py                 # full table, writes docs/results_attribution.md
    python benchmarks/conditional_shapley.py --quick         # two seeds, fewer rows, prints only
    python benchmarks/conditional_shapley.py --cache DIR     # keep finished cells, continue after an interruption
    python benchmarks/conditional_shapley.py --families kinds,student --samples 10,11    # every family of worlds

Score: mean absolute error over rows and features, divided by the mean absolute true value. Times are processor time of
one thread, after a warm-up call where a library compiles on first use.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.conditional_truth import (
    BurrWorld,
    CurvedWorld,
    Function,
    GaussianWorld,
    KindsWorld,
    MixtureWorld,
    StudentWorld,
    World,
    boosted_energy,
    product_energy,
    quadratic_energy,
    saturating_energy,
    seven_counter_energy,
    shapley_from_values,
    step_energy,
    true_values,
)

FUNCTIONS: dict[str, Function] = {
    "reference": seven_counter_energy,
    "saturating": saturating_energy,
    "quadratic": quadratic_energy,
}
DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "results_attribution.md"
Attribute = Callable[[Function, np.ndarray], np.ndarray]


def world(name: str, seed: int) -> World:
    """One of the three test worlds; another seed is another mixture and always another sample."""
    makers = {"gaussian": GaussianWorld, "mixture": lambda: MixtureWorld(seed), "burr": BurrWorld}
    made: World = makers[name]()
    return made


def shap_method(kind: str) -> Callable[[np.ndarray], Attribute]:
    """An explainer of shap with a background of 100 training rows."""

    def fit(train: np.ndarray) -> Attribute:
        import shap

        background = train[:100]

        def attribute(f: Function, rows: np.ndarray) -> np.ndarray:
            if kind == "kernel":
                return np.asarray(shap.KernelExplainer(f, background).shap_values(rows, silent=True))
            masker = shap.maskers.Independent(background, max_samples=100)
            maker = {"exact": shap.explainers.Exact, "permutation": shap.explainers.Permutation}[kind]
            return np.asarray(maker(f, masker)(rows, silent=True).values)

        return attribute

    return fit


def shapiq_method(kind: str) -> Callable[[np.ndarray], Attribute]:
    """A conditional imputer of shapiq with 1,000 draws, all coalitions."""

    def fit(train: np.ndarray) -> Attribute:
        import shapiq
        from shapiq import imputer

        names = {
            "gaussian": "GaussianImputer",
            "copula": "GaussianCopulaImputer",
            "generative": "GenerativeConditionalImputer",
        }

        def attribute(f: Function, rows: np.ndarray) -> np.ndarray:
            maker = getattr(imputer, names[kind])
            size = 100 if kind == "generative" else 1000
            made = maker(f, train, sample_size=size, random_state=0)
            out = np.empty(rows.shape)
            for i, row in enumerate(rows):
                made.fit(row)
                answer = shapiq.ExactComputer(made, n_players=rows.shape[1])("SV", 1)
                out[i] = [answer[(j,)] for j in range(rows.shape[1])]
            return out

        return attribute

    return fit


def emshap_method(**settings: Any) -> Callable[[np.ndarray], Attribute]:
    """EmSHAP or one of the rivals behind its interface."""

    def fit(train: np.ndarray) -> Attribute:
        from attribution_sched.attribution import EmSHAP

        model = EmSHAP(**settings).fit(train)

        def attribute(f: Function, rows: np.ndarray) -> np.ndarray:
            return model.attribute(f, rows).values

        attribute.explainer = model  # type: ignore[attr-defined]
        return attribute

    return fit


METHODS: dict[str, Callable[[np.ndarray], Attribute]] = {
    "shap Exact": shap_method("exact"),
    "shap Permutation": shap_method("permutation"),
    "shap Kernel": shap_method("kernel"),
    "shapiq Gaussian": shapiq_method("gaussian"),
    "shapiq Gaussian copula": shapiq_method("copula"),
    "shapiq generative": shapiq_method("generative"),
    "empirical kernel (Aas)": emshap_method(model="empirical"),
    "**EmSHAP auto**": emshap_method(),
    "EmSHAP energy": emshap_method(model="energy"),
    "EmSHAP neural (MLP)": emshap_method(model="neural"),
    "EmSHAP gru (the paper's, repaired)": emshap_method(proposal="gru"),
}
SLOW = ("EmSHAP energy", "EmSHAP gru (the paper's, repaired)", "EmSHAP neural (MLP)")
LARGE: dict[str, Callable[[np.ndarray], Attribute]] = {
    "EmSHAP auto": emshap_method(),
    "EmSHAP energy (closed-form proposal)": emshap_method(model="energy"),
}


def measure(
    fit: Callable[[np.ndarray], Attribute], train: np.ndarray, test: np.ndarray, truth: np.ndarray
) -> dict[str, Any]:
    """Fit, attribute with every function, and compare with the truth (functions, rows, d)."""
    start = time.process_time()
    attribute = fit(train)
    result: dict[str, Any] = {"fit_s": time.process_time() - start}
    functions = list(FUNCTIONS.values())
    for i, (name, f) in enumerate(FUNCTIONS.items()):
        start = time.process_time()
        phi = attribute(f, test)
        spent = time.process_time() - start
        result[name] = float(np.abs(phi - truth[i]).mean() / np.abs(truth[i]).mean())
        if i == 0:
            result["row_ms"] = 1000 * spent / len(test)
    explainer = getattr(attribute, "explainer", None)
    if explainer is not None:
        start = time.process_time()
        for row in test[:5]:
            explainer.attribute(functions[0], row)
        result["single_ms"] = 1000 * (time.process_time() - start) / 5
        result["model"] = explainer.model_.kind
    return result


class Cells:
    """Finished measurements, kept on disk if a directory is given."""

    def __init__(self, folder: Path | None, finished_only: bool = False) -> None:
        self.folder = folder
        self.finished_only = finished_only
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)

    def _path(self, key: str) -> Path | None:
        return None if self.folder is None else self.folder / (key.replace(" ", "_").replace("*", "") + ".json")

    def has(self, key: str) -> bool:
        """Whether ``key`` has been measured before."""
        path = self._path(key)
        return path is not None and path.exists()

    def get(self, key: str, compute: Callable[[], Any]) -> Any:
        """Return the kept value of ``key``, or compute and keep it."""
        path = self._path(key)
        if path is not None and path.exists():
            return json.loads(path.read_text())
        value = compute()
        if path is not None:
            path.write_text(json.dumps(value))
        return value


def run(
    seeds: int, slow_seeds: int, large_seeds: int, rows: int, log2: int, cells: Cells
) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """All cells: table → "case/method" → one result for each seed."""
    table: dict[str, dict[str, list[dict[str, Any]]]] = {"small": {}, "large": {}}
    warm_up()
    for seed in range(seeds):
        for case in ("gaussian", "mixture", "burr"):
            made = world(case, seed)
            train = made.sample(10_000, np.random.default_rng([21, seed]))
            test = made.sample(rows, np.random.default_rng([22, seed]))
            size = f"{case}-{seed}-{rows}-{log2}"
            values = cells.get(f"truth-{size}", partial(_truth, made, test, log2))
            truth = shapley_from_values(np.array(values), made.dimension)
            jobs = [
                ("small", name, fit, train[:2000])
                for name, fit in METHODS.items()
                if name not in SLOW or seed < slow_seeds
            ]
            jobs += [("large", name, fit, train) for name, fit in LARGE.items() if seed < large_seeds]
            for group, name, fit, data in jobs:
                if cells.finished_only and not cells.has(f"{group}-{name}-{size}"):
                    continue
                try:
                    job = partial(measure, fit, data, test, truth)
                    cell = cells.get(f"{group}-{name}-{size}", job)
                except ImportError as error:
                    cell = {"missing": str(error).split(".")[0]}
                table[group].setdefault(f"{case}/{name}", []).append(cell)
                print(f"{case} seed {seed} {group} {name}: {summary(cell)}", flush=True)
    return table


def _truth(made: World, test: np.ndarray, log2: int) -> Any:
    """Coalition values of all functions, as nested lists."""
    return true_values(made, list(FUNCTIONS.values()), test, log2).tolist()


def summary(cell: dict[str, Any]) -> str:
    """One line of a cell."""
    if "missing" in cell:
        return cell["missing"]
    return ", ".join(
        f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}" for key, value in cell.items()
    )


def warm_up() -> None:
    """Let shap compile before anything is timed."""
    train = np.random.default_rng(0).normal(size=(120, 7))
    for kind in ("exact", "permutation", "kernel"):
        shap_method(kind)(train)(seven_counter_energy, train[:2])


def report(table: dict[str, dict[str, list[dict[str, Any]]]], rows: int) -> str:
    """Markdown of the tables."""
    lines = [
        "### 2,000 training rows",
        "",
        f"{rows} test rows a seed, reference function; mean over seeds (range).",
        "",
    ]
    lines += _errors(table["small"], "reference")
    lines += [
        "",
        "Two other functions (mean over seeds). All three were in view while settings were chosen, on other samples.",
        "",
    ]
    lines += _others(table["small"])
    lines += [
        "",
        "Processor time, reference function, mean over seeds.",
        "",
    ]
    lines += _times(table["small"])
    if table["large"]:
        large = table["large"]
        lines += ["", "### 10,000 training rows", "", *_errors(large, "reference"), "", *_times(large)]
    return "\n".join(lines)


def _names(group: dict[str, list[dict[str, Any]]]) -> list[str]:
    return list(dict.fromkeys(key.split("/", 1)[1] for key in group))


def _column(group: dict[str, list[dict[str, Any]]], case: str, name: str, key: str) -> list[float]:
    return [cell[key] for cell in group.get(f"{case}/{name}", []) if key in cell]


def _errors(group: dict[str, list[dict[str, Any]]], key: str) -> list[str]:
    lines = ["| method | Gaussian | mixture | Burr | seeds |", "|---|---|---|---|---|"]
    for name in _names(group):
        parts, count = [], 0
        for case in ("gaussian", "mixture", "burr"):
            cells = group.get(f"{case}/{name}", [])
            got = _column(group, case, name, key)
            count = max(count, len(got))
            if got:
                parts.append(f"{np.mean(got):.3f} ({min(got):.3f}–{max(got):.3f})")
            else:
                parts.append(f"not run: {cells[0].get('missing', '')}" if cells else "–")
        lines.append(f"| {name} | {' | '.join(parts)} | {count} |")
    return lines


def _others(group: dict[str, list[dict[str, Any]]]) -> list[str]:
    head = [f"{case}, {key}" for case in ("Gaussian", "mixture", "Burr") for key in ("saturating", "quadratic")]
    lines = ["| method | " + " | ".join(head) + " |", "|---" * 7 + "|"]
    for name in _names(group):
        parts = []
        for case in ("gaussian", "mixture", "burr"):
            for key in ("saturating", "quadratic"):
                got = _column(group, case, name, key)
                parts.append(f"{np.mean(got):.3f}" if got else "–")
        lines.append(f"| {name} | {' | '.join(parts)} |")
    return lines


def _times(group: dict[str, list[dict[str, Any]]]) -> list[str]:
    lines = [
        "| method | fit, s | query, ms a row in batches | query, ms alone | model chosen |",
        "|---|---|---|---|---|",
    ]
    for name in _names(group):
        parts = []
        for key in ("fit_s", "row_ms", "single_ms"):
            each = [_column(group, case, name, key) for case in ("gaussian", "mixture", "burr")]
            text = " / ".join(f"{np.mean(got):.1f}" if got else "–" for got in each)
            parts.append(text if any(each) else "–")
        kinds = [
            "+".join(sorted({cell["model"] for cell in group.get(f"{case}/{name}", []) if "model" in cell}))
            for case in ("gaussian", "mixture", "burr")
        ]
        lines.append(f"| {name} | {' | '.join(parts)} | {' / '.join(kinds) if any(kinds) else '–'} |")
    lines.append("")
    lines.append("Entries are Gaussian / mixture / Burr.")
    return lines


def write_section(marker: str, text: str) -> None:
    """Put a generated section between its markers in the document, creating what is missing."""
    begin, end = f"<!-- begin {marker} -->", f"<!-- end {marker} -->"
    old = DOCUMENT.read_text() if DOCUMENT.exists() else INTRODUCTION
    if begin not in old:
        old = old.rstrip() + f"\n\n{begin}\n{end}\n"
    head, rest = old.split(begin, 1)
    DOCUMENT.parent.mkdir(exist_ok=True)
    DOCUMENT.write_text(f"{head}{begin}\n{text}\n{end}{rest.split(end, 1)[1]}")


FAMILIES: dict[str, Callable[[int], World]] = {
    "kinds": KindsWorld,
    "gaussian": lambda seed: GaussianWorld((0.7, 0.9, 0.4)[seed % 3]),
    "mixture": MixtureWorld,
    "burr": lambda _: BurrWorld(),
    "student": StudentWorld,
    "student copula": lambda seed: StudentWorld(seed, "mixed"),
    "curved": CurvedWorld,
}
LOG2_DRAWS = {"kinds": 8, "mixture": 9, "curved": 12}
"""Sobol points a coalition and scrambling; worlds of many components take them for each component."""


def family_functions(made: World, train: np.ndarray) -> dict[str, Function]:
    """Smooth, with products, with steps, boosted: all on standardised counters."""
    centre = getattr(made, "centre", np.zeros(7)) if isinstance(made, KindsWorld) else np.zeros(7)
    spread = made.spread if isinstance(made, KindsWorld) else np.ones(7)
    boosted = boosted_energy((train[:1000] - centre) / spread)
    plain = {"smooth": seven_counter_energy, "products": product_energy, "steps": step_energy, "boosted": boosted}
    return {name: (lambda x, f=f: f((x - centre) / spread)) for name, f in plain.items()}


@lru_cache(maxsize=1)
def family_truth(case: str, seed: int, rows: int) -> tuple[np.ndarray, np.ndarray, dict[str, Function], np.ndarray]:
    """Training rows, test rows, functions and exact values (functions, rows, d) of one sample of one family."""
    made = FAMILIES[case](seed)
    train = made.sample(2000, np.random.default_rng([51, seed]))
    test = made.sample(rows, np.random.default_rng([52, seed]))
    functions = family_functions(made, train)
    log2 = LOG2_DRAWS.get(case, 10)
    values = np.concatenate(
        [
            true_values(made, list(functions.values())[:3], test, log2),
            true_values(made, list(functions.values())[3:], test, max(log2 - 3, 6)),
        ]
    )
    return train, test, functions, shapley_from_values(values, made.dimension)


def family_cell(case: str, seed: int, rows: int, methods: dict[str, Any]) -> dict[str, Any]:
    """Errors, coverage of the truth and times of every method on one sample of one family."""
    train, test, functions, truth = family_truth(case, seed, rows)
    out: dict[str, Any] = {}
    for name, fit in methods.items():
        start = time.process_time()
        try:
            attribute = fit(train)
        except ImportError as error:
            out[name] = {"missing": str(error)}
            continue
        cell: dict[str, Any] = {"fit_s": time.process_time() - start}
        explainer = getattr(attribute, "explainer", None)
        for i, (key, f) in enumerate(functions.items()):
            start = time.process_time()
            if explainer is None:
                phi = attribute(f, test)
            else:
                got = explainer.attribute(f, test)
                phi = got.values
                if explainer.bootstrap:
                    low, high = got.interval(0.95)
                    cell[f"covers {key}"] = float(((low <= truth[i]) & (truth[i] <= high)).mean())
                cell["model"] = explainer.model_.kind
            cell[f"ms {key}"] = 1000 * (time.process_time() - start) / rows
            cell[key] = float(np.abs(phi - truth[i]).mean() / np.abs(truth[i]).mean())
        out[name] = cell
        print(f"{case} {seed} {name}: {summary(cell)}", flush=True)
    return out


def family_methods(names: str) -> dict[str, Any]:
    """``auto``, peers, and EmSHAP families by name."""
    known = {"auto": "**EmSHAP auto**", "empirical": "empirical kernel (Aas)", "shap": "shap Exact"}
    known |= {"shapiq": "shapiq Gaussian", "shapiq-copula": "shapiq Gaussian copula"}
    # Families by name are there to be compared with: their values, not their intervals.
    return {n: METHODS[known[n]] if n in known else emshap_method(model=n, bootstrap=0) for n in names.split(",")}


KEYS = ("smooth", "products", "steps", "boosted")


def run_families(cases: list[str], seeds: list[int], rows: int, names: str, cells: Cells) -> str:
    """Measure, and write the table of every family of worlds that the cells hold, means over the samples."""
    lines = [
        "### Families of worlds, four functions, intervals of the truth",
        "",
        f"d = 7, 2,000 training rows, {rows} test rows a sample, means over samples {', '.join(map(str, seeds))};",
        "nothing was chosen on these (models were built on samples 0 to 3, 10 and 30). Error as above, f smooth ·",
        "products · with steps · boosted; share of cells whose 95 % interval holds the truth, by function, and the",
        "mean of each sample: the error of a fit is common to all cells of a sample, so a sample is one throw. Truth:",
        "closed-form conditionals, Sobol points as in the script. Processor time of one thread.",
        "",
        "| world | method | error | mean | truth inside 95 % | mean (samples) | fit, s | ms a row | model |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    regrets = ["", "| world | auto | best by name | regret, mean | by sample |", "|---|---|---|---|---|"]
    for case in cases:
        means: dict[str, dict[int, float]] = {}
        for name in names.split(","):
            found: dict[int, dict[str, Any]] = {}
            for seed in seeds:
                place = f"family-{case}-{seed}-{rows}-{name}"
                if cells.finished_only and not cells.has(place):
                    continue
                cell = cells.get(place, partial(family_cell, case, seed, rows, family_methods(name)))[name]
                if "missing" not in cell:
                    found[seed] = cell
            if found:
                lines.append(_family_row(case, name, list(found.values())))
                means[name] = {s: float(np.mean([c[k] for k in KEYS])) for s, c in found.items()}
        regrets += _regret_row(case, means)
    return "\n".join([*lines, *regrets])


def _family_row(case: str, name: str, found: list[dict[str, Any]]) -> str:
    """One method in one world, means over samples."""
    errors = [float(np.mean([c[k] for c in found])) for k in KEYS]
    covers, by_sample = "–", "–"
    if f"covers {KEYS[0]}" in found[0]:
        inside = np.array([[c[f"covers {k}"] for k in KEYS] for c in found])
        covers = " · ".join(f"{v:.2f}" for v in inside.mean(axis=0))
        by_sample = f"**{inside.mean():.3f}** ({', '.join(f'{v:.2f}' for v in inside.mean(axis=1))})"
    spent = f"{np.mean([c['fit_s'] for c in found]):.0f} | {np.mean([c['ms smooth'] for c in found]):.0f}"
    models = ", ".join(sorted({c.get("model", "–") for c in found}))
    shown = " · ".join(f"{e:.3f}" for e in errors)
    few = f" ({len(found)} sample)" if len(found) == 1 else ""
    return f"| {case} | {name}{few} | {shown} | {np.mean(errors):.3f} | {covers} | {by_sample} | {spent} | {models} |"


def _regret_row(case: str, means: dict[str, dict[int, float]]) -> list[str]:
    """Error of ``auto`` over that of the best family by name in each sample, mean of the four functions."""
    own = {n: m for n, m in means.items() if n not in ("auto", "shap", "shapiq", "shapiq-copula")}
    if "auto" not in means or not own:
        return []
    ratios, best = [], set()
    for seed, error in means["auto"].items():
        others = {n: m[seed] for n, m in own.items() if seed in m}
        first = min(others, key=lambda n: others[n])
        best.add(first)
        ratios.append(error / min(error, others[first]))
    told = ", ".join(f"{r:.2f}" for r in ratios)
    mean = float(np.mean(list(means["auto"].values())))
    return [f"| {case} | {mean:.3f} | {', '.join(sorted(best))} | {np.mean(ratios):.2f} | {told} |"]


INTRODUCTION = """# Attribution: measured results

Every table on this page is written by a script under `benchmarks/`; do not edit between the markers.

Conditional Shapley values of a non-linear energy function of seven correlated counters, against the exact values:
closed-form conditionals, at least 16,384 Sobol points for each of the 128 coalitions, exact Shapley weights. The score
is the mean absolute error divided by the mean absolute true value, so 0.05 is five per cent. `shap` attributes under
the marginal game, which is another question when counters are correlated: its error here is the price of that.

Command: `python benchmarks/conditional_shapley.py`
"""


def main() -> None:
    """Run the benchmark from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two seeds, 20 rows, nothing written")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--slow-seeds", type=int, default=5, help="seeds of the single networks")
    parser.add_argument("--large-seeds", type=int, default=5, help="seeds with 10,000 rows")
    parser.add_argument("--cache", type=Path, default=None, help="folder for finished cells")
    parser.add_argument("--finished", action="store_true", help="report what the cache holds, compute nothing new")
    parser.add_argument("--families", default=None, help="worlds, by commas, or 'all'")
    parser.add_argument("--samples", default="10,11", help="samples of each of them")
    parser.add_argument("--rows", type=int, default=12, help="test rows of each sample")
    parser.add_argument("--methods", default="auto", help="auto, shap, shapiq, empirical, or models of EmSHAP")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    import torch

    torch.set_num_threads(1)
    if options.families:
        cases = list(FAMILIES) if options.families == "all" else options.families.split(",")
        seeds = [int(seed) for seed in options.samples.split(",")]
        cells = Cells(options.cache, options.finished)
        text = run_families(cases, seeds, options.rows, options.methods, cells)
        print(text)
        if options.finished:
            write_section("families", text)
        return
    if options.quick:
        table = run(2, 0, 0, 20, 12, Cells(options.cache))
        print(report(table, 20))
        return
    table = run(options.seeds, options.slow_seeds, options.large_seeds, 50, 12, Cells(options.cache, options.finished))
    text = report(table, 50)
    print(text)
    write_section("conditional_shapley", text)


if __name__ == "__main__":
    main()
