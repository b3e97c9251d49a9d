"""A plan as Kubernetes Jobs or a JobSet: a part for each domain, named after the decision, so that it is created once.

This is a translation and nothing more: no cluster is asked. The API server refuses a second object of the same name
(409), which is what makes a launch idempotent there. The parts of a gang are ``suspend``-ed: whoever admits them
(Kueue, or a person) lets all go together.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from attribution_sched.errors import SettingsError, problem
from attribution_sched.executors.executor import check_key
from attribution_sched.executors.records import JobSpec

LONGEST_NAME = 63
"""Characters of the name of an object: pods carry it as a label."""

DOMAIN_LABEL = "topology.kubernetes.io/region"
"""Label of nodes that says which domain they are of."""


def manifests(
    key: str,
    jobs: Sequence[JobSpec],
    *,
    image: str,
    namespace: str = "default",
    domain_label: str = DOMAIN_LABEL,
    resource: str = "nvidia.com/gpu",
    queue: str = "",
) -> list[dict[str, Any]]:
    """The Jobs of a decision.

    Args:
        key: Of the decision.
        jobs: Its parts, as :func:`~attribution_sched.executors.records.jobs_of` gives them.
        image: Container image in which the command runs.
        namespace: Where they are created.
        domain_label: Label of nodes that says their domain.
        resource: What a device is called.
        queue: Kueue's local queue; empty without Kueue.

    Raises:
        SettingsError: If there is no image.
    """
    check_key(key)
    if not image.strip() or any(each.isspace() for each in image.strip()):
        raise SettingsError(problem("image", image, "must name a container image", "For example pytorch/pytorch:2.4.0"))
    return [_manifest(key, job, image.strip(), namespace, domain_label, resource, queue) for job in jobs]


def jobset(key: str, jobs: Sequence[JobSpec], *, image: str, queue: str = "", **more: Any) -> dict[str, Any]:
    """The parts of a decision as one JobSet, which starts and fails as a whole; for domains of one Kubernetes.

    The parts meet at the first one's pod, by the name that a JobSet gives it.

    Args:
        key: Of the decision.
        jobs: Its parts.
        image: Container image in which the command runs.
        queue: Kueue's local queue; empty without Kueue.
        **more: As for :func:`manifests`.

    Raises:
        SettingsError: If there is no image.
    """
    objects, name = manifests(key, jobs, image=image, queue=queue, **more), object_name(key, "set")
    parts = []
    for job, each in zip(jobs, objects, strict=True):
        spec = {field: value for field, value in each["spec"].items() if field != "suspend"}
        for variable in spec["template"]["spec"]["containers"][0]["env"]:
            if variable["name"] == "ATTR_RENDEZVOUS" and variable["value"]:
                variable["value"] = f"{name}-{_part(jobs[0])}-0-0.{name}:{variable['value'].rpartition(':')[2]}"
        template = {"metadata": {"labels": each["metadata"]["labels"]}, "spec": spec}
        parts.append({"name": _part(job), "replicas": 1, "template": template})
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {**objects[0]["metadata"], "name": name},
        "spec": {
            "suspend": bool(queue),
            "failurePolicy": {"maxRestarts": 0},
            "successPolicy": {"operator": "All"},
            "network": {"enableDNSHostnames": True},
            "replicatedJobs": parts,
        },
    }


def _part(job: JobSpec) -> str:
    return f"r{job.component.replica}-s{job.component.stage}"


def _manifest(
    key: str, job: JobSpec, image: str, namespace: str, domain_label: str, resource: str, queue: str
) -> dict[str, Any]:
    part = job.component
    labels = {"attribution-sched/key": _label(key), "attribution-sched/task": _label(job.task)}
    if queue:
        labels["kueue.x-k8s.io/queue-name"] = queue
    wanted = {"key": domain_label, "operator": "In", "values": [part.domain]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": object_name(key, part.domain), "namespace": namespace, "labels": labels},
        "spec": {
            # What failed is decided on again, by a decision with a name of its own.
            "backoffLimit": 0,
            "suspend": job.held or bool(queue),
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "restartPolicy": "Never",
                    "affinity": {
                        "nodeAffinity": {
                            "requiredDuringSchedulingIgnoredDuringExecution": {
                                "nodeSelectorTerms": [{"matchExpressions": [wanted]}]
                            }
                        }
                    },
                    "containers": [
                        {
                            "name": "stage",
                            "image": image,
                            "command": list(job.command),
                            "env": [{"name": n, "value": value} for n, value in sorted(job.variables(key).items())],
                            "resources": {"limits": {resource: str(part.devices)}},
                        }
                    ],
                },
            },
        },
    }


def object_name(key: str, domain: str) -> str:
    """A name that Kubernetes takes, the same for the same decision and domain, and another for any other."""
    name = re.sub(r"[^a-z0-9-]+", "-", f"{key}-{domain}".lower()).strip("-")
    if len(name) <= LONGEST_NAME and name == f"{key}-{domain}".lower():
        return name
    import hashlib

    digest = hashlib.sha256(f"{key}/{domain}".encode()).hexdigest()[:10]
    return f"{name[: LONGEST_NAME - 11].rstrip('-')}-{digest}"


def _label(text: str) -> str:
    label = re.sub(r"[^A-Za-z0-9_.-]+", "-", text)[:LONGEST_NAME].strip("-_.")
    return label or "unnamed"
