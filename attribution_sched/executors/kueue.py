"""A Kueue queue as recorded objects: Workloads that wait or are admitted, ClusterQueues with their quota.

    kubectl get workloads -A -o json > workloads.json
    kubectl get clusterqueues,localqueues -A -o json > queues.json

A domain is a ClusterQueue; its devices are the quota of one resource over all flavours, without borrowing. Only objects
are read (API ``kueue.x-k8s.io`` v1beta1 and v1beta2): no cluster is asked, and nothing of admission is played but order
and room.
"""

from __future__ import annotations

import datetime
import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from attribution_sched.errors import ExecutorError, problem
from attribution_sched.executors.shadow import UNLIMITED_S, Shadow, ShadowJob, ShadowNode

RESOURCE = "nvidia.com/gpu"
URGENCY = 2.0**31
"""Added to priorities, which may be negative: 0 means held to whoever reads queues here."""

_SUFFIXES = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "m": 1e-3, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30}


def read_kueue(workloads: str, queues: str, now: float, *, resource: str = RESOURCE, source: str = "") -> Shadow:
    """Read recorded objects.

    Args:
        workloads: A list of Workload objects, as JSON.
        queues: A list of ClusterQueue objects, and of LocalQueues that lead to them, as JSON.
        now: When they were recorded.
        resource: What counts as a device.
        source: Where they came from.

    Raises:
        ExecutorError: If they are no such lists.
    """
    queue_items = list(_items(queues, "queues"))
    clusters = [each for each in queue_items if each["kind"] == "ClusterQueue"]
    if not clusters:
        rule, fix = "has no ClusterQueue", "Record: kubectl get clusterqueues,localqueues -A -o json"
        raise ExecutorError(problem("queues", f"{len(queue_items)} objects", rule, fix))
    local = {
        (_meta(each, "namespace"), _meta(each, "name")): str(each["spec"].get("clusterQueue", ""))
        for each in queue_items
        if each["kind"] == "LocalQueue"
    }
    names = {_meta(each, "name") for each in clusters}
    jobs = [_job(each, local, names, resource) for each in _items(workloads, "workloads") if each["kind"] == "Workload"]
    shadow_jobs = tuple(job for job in jobs if job is not None)
    nodes = tuple(_node(each, resource, shadow_jobs) for each in clusters)
    return Shadow(shadow_jobs, nodes, now, (), source or "recorded: Kueue objects")


def _items(text: str, name: str) -> Iterator[dict[str, Any]]:
    try:
        parsed = json.loads(text)
    except ValueError as error:
        raise ExecutorError(problem(name, text[:40], "is no JSON", "Record it with kubectl -o json")) from error
    items = parsed.get("items") if isinstance(parsed, dict) and "items" in parsed else [parsed]
    for at, each in enumerate(items if isinstance(items, list) else [items]):
        right = isinstance(each, dict) and isinstance(each.get("spec"), dict) and isinstance(each.get("metadata"), dict)
        if not right or not isinstance(each.get("kind"), str):
            rule = "is no Kubernetes object with kind, metadata and spec"
            raise ExecutorError(problem(f"{name}[{at}]", str(each)[:60], rule, "Record it with kubectl -o json"))
        yield each


def _meta(manifest: Mapping[str, Any], name: str) -> str:
    return str(manifest["metadata"].get(name, ""))


def _job(
    manifest: Mapping[str, Any], local: Mapping[tuple[str, str], str], clusters: set[str], resource: str
) -> ShadowJob | None:
    """A Workload; None if it has finished."""
    spec, status = manifest["spec"], manifest.get("status") or {}
    conditions = {str(each.get("type")): each for each in status.get("conditions") or () if isinstance(each, dict)}
    if _true(conditions, "Finished"):
        return None
    admission = status.get("admission") or {}
    queue = str(spec.get("queueName", ""))
    domain = str(admission.get("clusterQueue") or local.get((_meta(manifest, "namespace"), queue), ""))
    if not domain:
        domain = queue if queue in clusters else ""
    running = _true(conditions, "Admitted") or (_true(conditions, "QuotaReserved") and not _true(conditions, "Evicted"))
    since = conditions.get("Admitted" if _true(conditions, "Admitted") else "QuotaReserved", {})
    waits = conditions.get("QuotaReserved", {})
    on_hold = spec.get("active") is False or str(spec.get("stopPolicy", "")) not in ("", "None")
    word = "JobHeldUser" if on_hold else str(waits.get("message") or waits.get("reason") or "")
    limit = spec.get("maximumExecutionTimeSeconds")
    return ShadowJob(
        id=f"{_meta(manifest, 'namespace')}/{_meta(manifest, 'name')}",
        domain=domain,
        devices=_devices(spec, resource),
        running=running,
        submitted_unix_s=_time(_meta(manifest, "creationTimestamp")) or 0.0,
        started_unix_s=_time(str(since.get("lastTransitionTime", ""))) if running else None,
        limit_s=float(limit) if isinstance(limit, int | float) else UNLIMITED_S,
        priority=URGENCY + float(spec.get("priority") or 0),
        user=_meta(manifest, "namespace"),
        reason="" if running else word,
    )


def _devices(spec: Mapping[str, Any], resource: str) -> int:
    """Devices of all pods of all pod sets."""
    total = 0.0
    for part in spec.get("podSets") or ():
        pod = (part.get("template") or {}).get("spec") or {}
        each = 0.0
        for container in pod.get("containers") or ():
            resources = container.get("resources") or {}
            each += quantity(
                (resources.get("requests") or {}).get(resource, (resources.get("limits") or {}).get(resource, 0))
            )
        total += each * float(part.get("count", 1))
    return math.ceil(total)


def _node(manifest: Mapping[str, Any], resource: str, jobs: tuple[ShadowJob, ...]) -> ShadowNode:
    """A ClusterQueue as one place with the quota of all its flavours."""
    name, status = _meta(manifest, "name"), manifest.get("status") or {}
    quota = sum(
        quantity(each.get("nominalQuota", 0))
        for group in manifest["spec"].get("resourceGroups") or ()
        for flavor in group.get("flavors") or ()
        for each in flavor.get("resources") or ()
        if each.get("name") == resource
    )
    usage = status.get("flavorsReservation") or status.get("flavorsUsage")
    if usage:
        used = sum(
            quantity(each.get("total", 0))
            for flavor in usage
            for each in flavor.get("resources") or ()
            if each.get("name") == resource
        )
    else:
        used = sum(job.devices for job in jobs if job.running and job.domain == name)
    active = {str(each.get("type")): each for each in status.get("conditions") or () if isinstance(each, dict)}
    stopped = str(manifest["spec"].get("stopPolicy", "None")) != "None"
    up = not stopped and (not active.get("Active") or _true(active, "Active"))
    return ShadowNode(name, (name,), int(quota), math.ceil(used), "active" if up else "down")


def _true(conditions: Mapping[str, Any], name: str) -> bool:
    return str(conditions.get(name, {}).get("status", "")) == "True"


def quantity(value: Any) -> float:
    """A quantity of Kubernetes: ``4``, ``"500m"``, ``"2k"``, ``"1Gi"``.

    Raises:
        ExecutorError: If it is none.
    """
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    match = re.fullmatch(r"([0-9.]+)([A-Za-z]*)", str(value).strip())
    if match is None or match[2] not in _SUFFIXES or match[1].count(".") > 1 or match[1] == ".":
        raise ExecutorError(problem("quantity", str(value)[:40], "is none of Kubernetes", "For example 4 or 500m"))
    return float(match[1]) * _SUFFIXES[match[2]]


def _time(text: str) -> float | None:
    try:
        return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
    except ValueError:
        return None
