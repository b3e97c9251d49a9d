"""Write ``docs/sources.md``: every constant the package ships, and what it rests on.

    python docs/make_sources.py

Everything is read from the package: the files of fitted constants with the sources they name, the GPU catalogue, the
named models, the numbers in the modules of the world with the words beneath them, the comments of the presets, and what
is kept beside trained weights. A constant without words about it is an error.
"""

from __future__ import annotations

import ast
import hashlib
import json
import math
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "attribution_sched"
PAGE = ROOT / "docs" / "sources.md"

UNITS = frozenset({
    "BYTES_PER_GB", "BYTES_PER_GBIT", "DAY_S", "GB", "GIGA", "GRAMS_PER_KG", "HOUR_S", "JOULES_PER_KWH", "TERA",
})  # fmt: skip
"""Conversions of units: they need no source."""

QUANTILE = "Wichura's algorithm AS 241 (PPND16) for the normal quantile"
WORDS = {
    "ATTRIBUTIONS": "Counters that joules are attributed to.",
    "INT8": "Position of INT8 among the numeric formats.",
    "OPTIMISER_BYTES_FULL": "Adam in full precision: two moments beside fp32 weights, bytes per parameter.",
    "OPTIMISER_BYTES_MIXED": "Adam in mixed precision: fp32 master copy and two moments, bytes per parameter.",
    "REFERENCE_BATCH": "Batch at which demands of a task are stated.",
    "VALID": "Code of a plan that may be placed; refusals are below it.",
    "_CLASSES": "Classes of ImageNet-1k.",
    "_PADDED_VOCABULARY": "Vocabulary of the profiled models, padded as in the profiles of Sailor.",
    "_RGB": "Channels of an image.",
    "_SIGNS": "Signs of the three terms in the reward.",
    "_ULP": "Spacing of double-precision numbers just above 1.",
} | dict.fromkeys(
    ("_CENTRE_NUM", "_CENTRE_DEN", "_MIDDLE_NUM", "_MIDDLE_DEN", "_TAIL_NUM", "_TAIL_DEN"), f"{QUANTILE}."
)  # fmt: skip
"""Words for constants of the world whose module has none beneath them."""

FIELDS = {
    "memory_bytes": ("memory, GB", 1e9), "bandwidth_bytes_per_s": ("memory bandwidth, GB/s", 1e9),
    "tdp_w": ("power limit, W", 1.0), "min_cap_w": ("lowest cap, W", 1.0), "idle_w": ("idle, W", 1.0),
    "nvlink_bytes_per_s": ("NVLink, one direction, GB/s", 1e9),
}  # fmt: skip


def constant_files() -> list[Path]:
    """Files of fitted constants."""
    return sorted((PACKAGE / "cluster" / "constants").glob("*.json"))


def weight_files() -> list[Path]:
    """Trained weights that come with the package."""
    shipped = (PACKAGE / "attribution" / "shipped").glob("*.json")
    return sorted([*PACKAGE.rglob("*.safetensors"), PACKAGE / "attribution" / "closed_form.json", *shipped])


def preset_files() -> list[Path]:
    """Presets that come with the package."""
    return sorted((PACKAGE / "presets").glob("*.yaml"))


def world_constants() -> Iterator[tuple[str, str, str, str]]:
    """Numbers in the modules of the world: module, name, value, words.

    Raises:
        ValueError: If one has no words.
    """
    for path in sorted((PACKAGE / "cluster").rglob("*.py")):
        body = ast.parse(path.read_text("utf-8")).body
        for at, statement in enumerate(body):
            name, value = _number(statement)
            if not name or name in UNITS:
                continue
            words = _words(body[at + 1]) if at + 1 < len(body) else ""
            words = words or WORDS.get(name, "")
            if not words:
                raise ValueError(f"{path}: {name} has no words; say beneath it, or in WORDS, what it rests on")
            yield path.relative_to(PACKAGE).as_posix(), name, value, " ".join(words.split())


def page() -> str:
    """The whole page."""
    parts = [OPENING]
    parts += [_constants(path) for path in constant_files()]
    parts += [GPU_OPENING, _gpus(), MODEL_OPENING, _models(), CODE_OPENING, _code()]
    parts += [PRESET_OPENING, *(_preset(path) for path in preset_files()), WEIGHT_OPENING, _weights()]
    return "\n\n".join(part.strip() for part in parts) + "\n"


OPENING = """
# Sources of every shipped constant

Written by `python docs/make_sources.py` from the package itself; do not edit. Measurements are not shipped, only what
was fitted to them; licences are collected in NOTICE. Scripts under `calibration/` make the files again from the
tables in `ATTRIBUTION_SCHED_DATA`. *Assumed* and *estimated* mark figures that no measurement stands behind.

## Fitted constants

Errors are relative unless a unit is given; a range runs over the fits of a group.
"""

GPU_OPENING = """
## GPU catalogue

`attribution_sched/cluster/gpus.py`; peaks are dense, in units of 10¹² operations a second. `gpus:` in a settings file
replaces single figures.
"""

MODEL_OPENING = """
## Models

Layers are computed from the published sizes (`attribution_sched/cluster/models/catalogue.py`). Parameters are counted
from these layers; beside them stands what the authors publish.
"""

CODE_OPENING = """
## Numbers in the code of the world

Constants of the modules under `attribution_sched/cluster`, conversions of units left out. Constants of other rooms are
budgets, sizes and tolerances of algorithms: choices, not measurements.
"""

PRESET_OPENING = """
## Presets

What the comments of the shipped settings say about their figures. Everything in a preset can be replaced.
"""

WEIGHT_OPENING = """
## Trained weights

Learnt in simulation, from nothing but the constants above.
"""


def _number(statement: ast.stmt) -> tuple[str, str]:
    """Name and value of a module's numeric constant; empty if the statement is none."""
    target = statement.targets[0] if isinstance(statement, ast.Assign) else getattr(statement, "target", None)
    value = getattr(statement, "value", None)
    if not isinstance(target, ast.Name) or not isinstance(value, ast.expr):
        return "", ""
    if isinstance(value, ast.Call) and ast.unparse(value.func) == "np.array":
        value = value.args[0]
    plain = (ast.Constant, ast.Tuple, ast.List, ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop, ast.expr_context)
    if not all(isinstance(node, plain) for node in ast.walk(value)):
        return "", ""
    found = eval(compile(ast.Expression(value), "constant", "eval"), {"__builtins__": {}})  # noqa: S307 (numbers only)
    flat = found if isinstance(found, tuple | list) else (found,)
    if not flat or not all(isinstance(each, int | float) and not isinstance(each, bool) for each in flat):
        return "", ""
    shown = ", ".join(f"{each:.6g}" for each in flat) if len(flat) < 8 else f"{len(flat)} coefficients"
    return target.id, shown


def _words(statement: ast.stmt) -> str:
    held = statement.value if isinstance(statement, ast.Expr) else None
    return held.value if isinstance(held, ast.Constant) and isinstance(held.value, str) else ""


def _constants(path: Path) -> str:
    data = json.loads(path.read_text("utf-8"))
    writers = [s.name for s in sorted((ROOT / "calibration").glob("*.py")) if path.name in s.read_text("utf-8")]
    if len(writers) != 1:
        raise ValueError(f"{path.name}: must be written by one script of calibration/, found {writers}")
    head = f"### `{path.name}`\n\nMade by `calibration/{writers[0]}`."
    if "sources" in data:
        rows = [(f"`{name}`", _sources(told), "", "") for name, told in data["sources"].items()]
        drift, guess = data["drift"], data["fallback_error"]
        more = (
            f"{len(data['names'])} regions. Over ten months {drift['pairs']:,} pairs moved by a factor of "
            f"{drift['ratio_p5']} to {drift['ratio_p95']} (5th to 95th percentile). A link that was not measured "
            "takes the median of its pair of providers; median error of that, on links that were: "
            + ", ".join(f"{name} {each['provider_pair_median']['median']:.0%}" for name, each in guess.items())
            + "."
        )
        return f"{head} {more}\n\n{_table(('constant', 'fitted to', 'rows, error', 'said about it'), rows)}"
    groups = {"all": data} if "source" in data else data
    rows = []
    for name, group in groups.items():
        held = group if isinstance(group, dict) else {}
        told = [each for key, each in held.items() if re.search(r"(^|_)source(_|$)", key)]
        rows.append((f"`{name}`", "; ".join(map(_sources, told)) or "derived from the groups above and below",
                     _errors(held), _said(held)))  # fmt: skip
    return f"{head}\n\n{_table(('group', 'fitted to', 'rows, error', 'said about it'), rows)}"


def _sources(told: Any) -> str:
    if isinstance(told, list):
        return "; ".join(dict.fromkeys(_sources(each) for each in told))
    if "repository" not in told and "paper" not in told and "what" not in told:
        return "; ".join(f"{name}: {_sources(each)}" for name, each in told.items())
    where = re.sub(r"^(https://)?github\.com/", "", told.get("repository", ""))
    commits = ", ".join(each.strip()[:8] for each in told.get("commit", "").split(",") if each)
    parts = [
        told.get("dataset", ""), told.get("paper", ""), f"{where} @ {commits}" if where else "",
        told.get("licence", ""), told.get("date", ""), told.get("what", ""),
    ]  # fmt: skip
    return ", ".join(part for part in parts if part)


def _errors(group: dict[str, Any]) -> str:
    """Rows and errors of a group, as ranges over its fits."""
    found: dict[str, list[float]] = {}
    for path, value in _leaves(group):
        kind = next((word for word in ("held_out", "in_sample", "fitted", "error_mean", "rows") if word in path), "")
        if "guess" not in path and kind and isinstance(value, int | float):
            found.setdefault(kind, []).append(float(value))
    said = {"rows": "rows", "in_sample": "in sample", "fitted": "in sample", "held_out": "held out",
            "error_mean": "mean error"}  # fmt: skip
    shown = [f"{said[kind]} {_range(found[kind], whole=kind == 'rows')}" for kind in said if kind in found]
    unit = next((value for path, value in _leaves(group) if path.endswith("error_unit")), "")
    return "; ".join(shown) + (f" ({unit})" if unit else "")


def _said(group: dict[str, Any]) -> str:
    """What a group says about itself: laws, notes, what was assumed, what was estimated."""
    notes = []
    for path, value in _leaves(group):
        key = path.rsplit("/", 1)[-1]
        if isinstance(value, str) and (key in ("note", "law", "assumed") or key.startswith("how") or key.endswith(
            ("_how", "_note"))):  # fmt: skip
            about = re.sub(r"_?(how|note)_?", "", key).replace("_", " ")
            notes.append(f"{about + ': ' if about not in ('', 'law') else ''}{value}")
    return "; ".join(dict.fromkeys(notes))


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, each in value.items():
            yield from _leaves(each, f"{path}/{key}")
    elif isinstance(value, list):
        for each in value:
            yield from _leaves(each, path)
    elif value is not None:
        yield path, value


def _range(values: list[float], *, whole: bool) -> str:
    low, high = min(values), max(values)
    form = "{:,.0f}" if whole else "{:.3f}"
    return form.format(low) if math.isclose(low, high) else f"{form.format(low)}–{form.format(high)}"


def _gpus() -> str:
    from attribution_sched.cluster.gpus import GPUS

    rows = []
    for gpu in GPUS.values():
        peaks = ", ".join(f"{precision.name} {value / 1e12:g}" for precision, value in gpu.peak_flops.items())
        rows.append((f"`{gpu.name}`", peaks, *(f"{getattr(gpu, key) / unit:g}" for key, (_, unit) in FIELDS.items())))
    figures = _table(("GPU", "peaks", *(words for words, _ in FIELDS.values())), rows)
    told: dict[tuple[str, str], list[str]] = {}
    for gpu in GPUS.values():
        for field, source in gpu.sources.items():
            told.setdefault((field, source), []).append(gpu.name)
    names = {"peak_flops": "peaks"} | {key: words for key, (words, _) in FIELDS.items()}
    cards = [(names[field], ", ".join(found), source) for (field, source), found in told.items()]
    return f"{figures}\n\n{_table(('figure', 'GPUs', 'source'), cards)}"


def _models() -> str:
    from attribution_sched.cluster.models import MODELS

    opening = ast.get_docstring(ast.parse((PACKAGE / "cluster/models/catalogue.py").read_text("utf-8"))) or ""
    rows = []
    for name in MODELS:
        model = MODELS[name]
        counted = sum(layer.params for layer in model.layers)
        rows.append((f"`{name}`", model.family, f"{len(model.layers)}", f"{counted / 1e6:,.1f}",
                     f"{model.published_params / 1e6:,.1f}" if model.published_params else "none"))  # fmt: skip
    told = " ".join(opening.split("\n\n", 1)[1].split())
    return f"{told}\n\n{_table(('model', 'family', 'layers', 'parameters counted, M', 'published, M'), rows)}"


def _code() -> str:
    rows = [(f"`{name}`", value, f"`{module}`", words) for module, name, value, words in world_constants()]
    return _table(("constant", "value", "module", "what it rests on"), rows)


def _preset(path: Path) -> str:
    blocks: list[str] = []
    fresh = True
    for line in path.read_text("utf-8").splitlines():
        whole, inline = re.match(r"\s*#\s?(.*)", line), re.match(r"(\s*-?\s*\S.*?)\s+#\s(.*)", line)
        if whole:
            if fresh or not blocks:
                blocks.append(whole[1])
            else:
                blocks[-1] += f" {whole[1]}"
            fresh = False
        else:
            fresh = True
            if inline:
                blocks.append(f"`{inline[1].strip().lstrip('- ')}`: {inline[2]}")
    return f"### `{path.name}`\n\n" + "\n".join(f"- {block}" for block in blocks)


def _weights() -> str:
    rows = []
    for path in weight_files():
        where = path.relative_to(PACKAGE).as_posix()
        digest = hashlib.sha256(path.read_bytes()).hexdigest()[:12]
        rows.append((f"`{where}`", f"{path.stat().st_size / 1e3:,.0f} kB", f"`{digest}`", _made(path)))
    return _table(("file", "size", "SHA-256 begins", "made by"), rows)


def _made(path: Path) -> str:
    if path.suffix == ".json":
        return str(json.loads(path.read_text("utf-8"))["source"])
    if path.parent.name == "shipped":
        return "`python calibration/fit_attribution.py`, 6,000 simulated tasks of the preset, seed 20"
    if path.parent.name == "seq2seq":
        from attribution_sched.rivals.seq2seq.network import describe as describe_seq2seq

        return f"`{describe_seq2seq(path)['made']['command']}`"
    if path.parent.name == "predictor":
        from attribution_sched.scheduler.predictor.gru import load

        return f"`{load(path).made['command']}`"
    if path.name == "trees.safetensors":
        from attribution_sched.scheduler.glass_box.trees import describe as describe_trees

        return f"`{describe_trees(path)['command']}`"
    from attribution_sched.scheduler.hi_ppo.checkpoint import describe

    about = describe(path)
    if about.get("ranker_gains"):
        gains = ", ".join(f"{name} {mean:+.1f} ± {half:.1f}" for name, (mean, half) in about["ranker_gains"].items())
        return (
            "the shipped agents and a ranker (`attribution-sched train`, second phase, seed "
            f"{about['settings']['seed']}): PPO on {about['forked']:,} forked decisions; over the agents a day on "
            f"held-out days: {gains}"
        )
    gains = ", ".join(f"{name} {mean:+.1f}" for name, (mean, _) in about["gains"].items())
    made = about.get("made", f"`attribution-sched train`, {about['groups']} groups of days")
    return f"{made}; over the rule a day on held-out days: {gains}"


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head, rows = list(head), [list(row) for row in rows]
    kept = [i for i in range(len(head)) if any(row[i] for row in rows)]
    lines = [
        [head[i] for i in kept],
        ["---"] * len(kept),
        *([row[i].replace("|", "\\|") for i in kept] for row in rows),
    ]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
