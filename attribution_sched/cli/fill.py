"""What ``profile``, ``profile links`` and ``profile stages`` measured, written into a preset.

A preset says nothing of seconds: a layer has operations, a device a peak. So a chain that was timed on a domain gives
that domain a device type of its own, whose peak and bandwidth are scaled until the twin takes as long for the chain as
the machine did.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attribution_sched.errors import SettingsError, nearest, problem

if TYPE_CHECKING:
    from attribution_sched.cluster.models import Layer, Model
    from attribution_sched.cluster.rendezvous import LinkProfile
    from attribution_sched.config.schema import Settings
    from attribution_sched.executors.probes import LayerTimes

NEAR = 0.02
"""Relative error of a chain's seconds at which the device is right."""
ROUNDS = 30
FASTEST = 1e3
"""No device is so many times quicker than the one that a domain had."""
LIKE = ("V100", "A100", "H100")
"""Chips with fitted shares of their peak."""


def links_into(path: Path, pair: str | None, profile: LinkProfile) -> str:
    """Write a measured link into a preset: all links of it, or the one between two domains.

    Args:
        path: The preset, a YAML file of one's own.
        pair: Two domains with a dash between; None for all links.
        profile: What was measured.

    Returns:
        What was filled in, in words.

    Raises:
        SettingsError: If the file is no preset, or has no such domains.
    """
    settings, names = _read(path)
    gbps, latency_s = profile.one_way_bytes_per_s * 8e-9, profile.latency_s
    network = settings.setdefault("network", {})
    links = network.get("links")
    if pair is None:
        kept = {name: value for name, value in (links or {}).items() if name != "kind"} if _uniform(links) else {}
        network["links"] = {"kind": "uniform", **kept, "gbps": gbps, "latency_s": latency_s}
    else:
        i, j = _ends(pair, names)
        network["links"] = links = _matrix(path, links)
        for a, b in ((i, j), (j, i)):
            links["bandwidth_gbps"][a][b], links["latency_s"][a][b] = gbps, latency_s
    share = min(1.0, round(profile.duplex_efficiency, 3))
    # One figure for all links: that of the most hindered one.
    before = network.get("duplex_efficiency")
    network["duplex_efficiency"] = share if before is None or pair is None else min(share, float(before))
    _write(path, settings, f"# Links: {'all' if pair is None else pair} measured by `profile links`.")
    return f"{path}: {'all links' if pair is None else pair} {gbps:.4g} Gb/s, duplex {network['duplex_efficiency']:g}"


def _uniform(links: Any) -> bool:
    return isinstance(links, dict) and links.get("kind") == "uniform"


def _ends(pair: str, names: Sequence[str]) -> tuple[int, int]:
    """Two domains of ``a-b``, whose names may have dashes too."""
    for at, letter in enumerate(pair):
        if letter == "-" and pair[:at] in names and pair[at + 1 :] in names and pair[:at] != pair[at + 1 :]:
            return names.index(pair[:at]), names.index(pair[at + 1 :])
    fix = f"For example --link {'-'.join(names[:2])}" if len(names) > 1 else "The preset has one domain only"
    raise SettingsError(problem("--link", pair, "must be two domains of the preset with a dash between", fix))


def _matrix(path: Path, links: Any) -> dict[str, Any]:
    """The links of a preset, every one by itself."""
    if isinstance(links, dict) and links.get("kind") == "matrix":
        return links
    from attribution_sched.config import load_settings

    settings = load_settings(path)
    plain = settings.model_copy(update={"network": settings.network.model_copy(update={"duplex_efficiency": None})})
    wan = plain.build_world().cluster.wan
    return {
        "kind": "matrix",
        "bandwidth_gbps": wan.bandwidth_gbps.tolist(),
        "latency_s": wan.latency_s.tolist(),
        "price_usd_per_gb": wan.price_usd_per_gb.tolist(),
    }


def stages_into(path: Path, domain: str, model: Model, times: Sequence[LayerTimes], samples: int) -> str:
    """Write a chain that was timed on a domain into a preset: the model, the domain's device, a kind of task.

    Args:
        path: The preset, a YAML file of one's own.
        domain: Where it was timed.
        model: The chain's layers, as many as were timed.
        times: Seconds of each.
        samples: In the microbatch that was timed.

    Returns:
        What was filled in, in words.

    Raises:
        SettingsError: If the file is no preset, has no such domain, or no device is that slow or quick.
    """
    from attribution_sched.config import load_settings

    told, names = _read(path)
    if domain not in names:
        raise SettingsError(problem("--domain", domain, "is not in the preset", nearest(domain, names)))
    at, device = names.index(domain), f"{domain}-measured"
    settings = load_settings(path)
    gpu = settings.build_world().cluster.domains[at].gpu
    _add_kind(told, settings, model, [samples << n for n in range(4)], training=True)
    rows = told.get("domains") or [{"name": each} for each in names]
    rows[at] = {**rows[at], "gpu": device}
    told["domains"] = rows
    figures = {
        name: float(getattr(gpu, name))
        for name in ("memory_bytes", "tdp_w", "min_cap_w", "idle_w", "nvlink_bytes_per_s")
    }
    like = gpu.chip if gpu.chip in LIKE else gpu.like or "A100"
    wanted_s, scale = sum(each.forward_s + each.backward_s for each in times), 1.0
    for _ in range(ROUNDS):
        own = {"peak_tflops": {"fp32": scale * _peak(gpu)}, "bandwidth_bytes_per_s": scale * gpu.bandwidth_bytes_per_s}
        told.setdefault("gpus", {})[device] = {**figures, **own, "like": like}
        takes_s = chain_s(told, at, model.name, len(model.layers), samples)
        if abs(takes_s / wanted_s - 1.0) < NEAR:
            break
        scale *= takes_s / wanted_s
        if not 1e-9 < scale < FASTEST:
            takes_s = math.inf
            break
    if not abs(takes_s / wanted_s - 1.0) < NEAR:
        rule = f"no device takes {wanted_s:.3g} s for this chain: launching alone takes longer on a {like}"
        raise SettingsError(problem("stages", f"{wanted_s:.3g} s", rule, "Time a larger microbatch (--input)"))
    _write(path, told, f"# Device of {domain}: measured by `profile stages` with {model.name}.")
    peak = told["gpus"][device]["peak_tflops"]["fp32"]
    return (
        f"{path}: {domain} has {device}, {peak:.3g} TFLOP/s; {model.name} takes {takes_s:.3g} s there ({wanted_s:.3g})"
    )


def model_into(path: Path, model: Model, samples: int, *, training: bool, extends: str) -> str:
    """Write a model into a preset as a kind of task of its own.

    Args:
        path: The preset; one that extends ``extends`` is begun where no file is.
        model: What it is.
        samples: Of the steps that were measured.
        training: Whether they trained.
        extends: Preset that a new file begins with.

    Returns:
        What was filled in, in words.

    Raises:
        SettingsError: If the file is no preset.
    """
    from attribution_sched.config import load_settings

    told = _read(path)[0] if path.exists() else {"extends": extends}
    levels = [max(1, samples >> 2), max(1, samples >> 1), samples, samples << 1]
    _add_kind(told, load_settings(path if path.exists() else extends), model, levels, training=training)
    _write(path, told, f"# Model {model.name}: from its module, by `profile`.")
    return f"{path}: {model.name} is a kind of task, {len(model.layers)} layers, {model.params:.4g} parameters"


def _add_kind(
    told: dict[str, Any], settings: Settings, model: Model, microbatches: list[int], *, training: bool
) -> None:
    """Put a model among the models of a preset, and a kind of task of it among the kinds if there is none."""
    told.setdefault("models", {})[model.name] = {"layers": _layers(model.layers), "sequence_length": 1}
    if any(kind.model == model.name for kind in settings.kinds):
        return
    kind = {
        "model": model.name, "batch_size": microbatches[-1], "microbatches": microbatches, "steps": [100, 1000],
        "epoch_steps": 100,
    } | ({} if training else {"training": False})  # fmt: skip
    kinds = told.get("kinds") or [
        {
            each.name: list(value) if isinstance(value := getattr(row, each.name), tuple) else value
            for each in fields(row)
            if getattr(row, each.name) != each.default
        }
        for row in settings.kinds
    ]
    told["kinds"] = [*kinds, kind]


def _peak(gpu: Any) -> float:
    return float(max(gpu.peak_flops.values())) / 1e12


def chain_s(settings: dict[str, Any], domain: int, model: str, layers: int, samples: int) -> float:
    """Seconds of a whole chain on one device of a domain, for one microbatch, by the twin."""
    from attribution_sched.cluster.cost import CostModel
    from attribution_sched.cluster.gpus import Precision
    from attribution_sched.cluster.plan import Plan, PlanBatch, Replica, Segment
    from attribution_sched.config import load_settings

    world = load_settings(settings).build_world()
    kind = next(each for each in world.kinds if each.model.name == model)
    plan = Plan((Replica((Segment(domain, 0, layers, precision=Precision.FP32),), samples, 1),))
    scored = CostModel(world.cluster, [kind.model]).score(PlanBatch.of([plan]), breakdown=False)
    return float(scored.step_s[0])


def _layers(layers: Sequence[Layer]) -> list[dict[str, Any]]:
    """Layers as a preset has them; like ones that follow each other are counted."""
    rows: list[dict[str, Any]] = []
    for each in layers:
        parts = {"conv": each.conv_flops, "fc": each.fc_flops, "attention": each.attention_flops}
        row: dict[str, Any] = {
            "flops": sum(parts.values()), "params": each.params, "activations": max(1.0, each.activation_elements),
            "outputs": each.output_elements, "operator": max(parts, key=lambda name: parts[name]), "kind": each.kind,
        }  # fmt: skip
        if each.attention_flops and row["operator"] != "attention":
            row |= {"flops": row["flops"] - each.attention_flops, "attention_flops": each.attention_flops}
        if rows and {name: rows[-1][name] for name in row} == row:
            rows[-1]["count"] += 1
        else:
            rows.append({"count": 1, **row})
    return rows


def _read(path: Path) -> tuple[dict[str, Any], list[str]]:
    """A preset of one's own as it is written, and the names of its domains.

    Raises:
        SettingsError: If it is none.
    """
    import yaml

    from attribution_sched.config import load_settings

    settings = load_settings(path)
    told = yaml.safe_load(path.read_text("utf-8"))
    return told, [each.name for each in settings.build_world().cluster.domains]


def _write(path: Path, settings: dict[str, Any], note: str) -> None:
    """Put a preset in its place, if it is one; comments at its head stay, but what they say of guesses is over."""
    import yaml

    from attribution_sched.config import load_settings
    from attribution_sched.report.files import write_whole

    load_settings(settings).build_world()
    subject = note.partition(":")[0]
    before = path.read_text("utf-8").splitlines() if path.exists() else []
    head = [line for line in before if line.startswith("#")]
    head = [line for line in head if not line.startswith(f"{subject}: NOT MEASURED") and line != note]
    write_whole(path, "\n".join([*head, note]) + "\n" + yaml.safe_dump(settings, sort_keys=False), "--into")
