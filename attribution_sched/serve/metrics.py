"""A view in the text format of Prometheus."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

PREFIX = "attribution_sched"
Sample = tuple[Mapping[str, str], Any]


def label(value: object) -> str:
    """The value of a label, escaped as the format asks."""
    return str(value).replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def family(name: str, kind: str, about: str, samples: Sequence[Sample]) -> str:
    """One metric with its samples; those that are not known are left out."""
    lines = [f"# HELP {PREFIX}_{name} {about}", f"# TYPE {PREFIX}_{name} {kind}"]
    for labels, value in samples:
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        inside = ",".join(f'{key}="{label(word)}"' for key, word in labels.items())
        lines.append(f"{PREFIX}_{name}{f'{{{inside}}}' if inside else ''} {float(value)!r}")
    return "\n".join(lines) + "\n" if len(lines) > 2 else ""


def metrics(view: Mapping[str, Any]) -> str:
    """Everything that a view tells in numbers."""
    if not view.get("journal"):
        return family("up", "gauge", "Whether the journal was read.", [({}, 0)])
    totals, counts = view["totals"], view["counts"]
    one: list[tuple[str, str, str, Any]] = [
        ("up", "gauge", "Whether the journal was read.", 1),
        ("cluster_shown", "gauge", "Whether the cluster could be lived through.", int(not view["trouble"])),
        ("decisions_total", "counter", "Decisions in the journal.", view["decisions_total"]),
        ("tasks_total", "counter", "Tasks in the journal.", view["tasks_total"]),
        ("waiting_tasks", "gauge", "Tasks that wait.", view["waiting"]),
        ("running_tasks", "gauge", "Tasks that run.", len(view["running"])),
        ("completed_tasks_total", "counter", "Tasks that were completed.", totals.get("completed")),
        ("deadline_misses_total", "counter", "Deadlines that were missed.", totals.get("deadline_misses")),
        ("energy_joules_total", "counter", "Energy of all devices, idle ones included.", totals.get("energy_j")),
        ("idle_energy_joules_total", "counter", "Energy of devices that hold no task.", totals.get("idle_j")),
        ("carbon_grams_total", "counter", "Carbon of the tasks.", totals.get("carbon_g")),
        ("traffic_usd_total", "counter", "Bill of the traffic between domains.", totals.get("traffic_usd")),
        ("utilisation_ratio", "gauge", "Device time that was computing.", totals.get("utilisation")),
        ("cluster_time_seconds", "gauge", "The cluster's clock.", view["cluster_time_s"]),
        ("looked_timestamp_seconds", "gauge", "When the journal was last read.", view["looked_unix_s"]),
    ]
    by: list[tuple[str, str, str, list[Sample]]] = [
        ("results_total", "counter", "Decisions by what they came to.",
         [({"result": name}, value) for name, value in counts.items()]),
        ("devices", "gauge", "Devices of a domain.", [({"domain": d["name"]}, d["devices"]) for d in view["domains"]]),
        ("free_devices", "gauge", "Free devices of a domain.",
         [({"domain": d["name"]}, d["free"]) for d in view["domains"]]),
        ("link_gbps", "gauge", "Bandwidth of a link now.",
         [({"source": each["source"], "target": each["target"]}, each["gbps"]) for each in view["links"]]),
        ("tenant_energy_joules_total", "counter", "Energy by tenant; idle devices have none.",
         [({"tenant": each["tenant"]}, each["energy_j"]) for each in view["tenants"]]),
        ("target_value", "gauge", "Where a target stands.",
         [({"target": each["name"]}, each["value"]) for each in view["targets"]]),
        ("target_limit", "gauge", "What a target asks for.",
         [({"target": each["name"]}, each["limit"]) for each in view["targets"]]),
    ]  # fmt: skip
    text = [family(name, kind, about, [({}, value)]) for name, kind, about, value in one]
    return "".join([*text, *(family(name, kind, about, samples) for name, kind, about, samples in by)])
