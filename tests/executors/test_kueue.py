"""Kueue objects as a queue. The objects are written after the API's documentation; no Kueue has made them."""

import json

import pytest

from attribution_sched.errors import ExecutorError
from attribution_sched.executors.kueue import quantity, read_kueue
from attribution_sched.executors.shadow import advise, why

NOW = 1_790_000_000.0


def condition(kind, status="True", message="", at="2026-09-21T13:00:00Z"):
    return {"type": kind, "status": status, "message": message, "reason": kind, "lastTransitionTime": at}


def workload(name, gpus, *conditions, queue="team-a", pods=1, priority=0, **more):
    container = {"name": "main", "resources": {"requests": {"nvidia.com/gpu": str(gpus), "cpu": "500m"}}}
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "Workload",
        "metadata": {"name": name, "namespace": "ml", "creationTimestamp": "2026-09-21T12:00:00Z"},
        "spec": {"queueName": queue, "priority": priority, "podSets": [
            {"name": "main", "count": pods, "template": {"spec": {"containers": [container]}}},
        ], **more},
        "status": {"conditions": list(conditions)},
    }  # fmt: skip


def queues(used=4, **more):
    return json.dumps({"kind": "List", "items": [
        {"kind": "LocalQueue", "metadata": {"name": "team-a", "namespace": "ml"}, "spec": {"clusterQueue": "east"}},
        {"kind": "LocalQueue", "metadata": {"name": "team-b", "namespace": "ml"}, "spec": {"clusterQueue": "west"}},
        {"kind": "ClusterQueue", "metadata": {"name": "east"}, "spec": {"resourceGroups": [{"flavors": [
            {"name": "a100", "resources": [{"name": "nvidia.com/gpu", "nominalQuota": 4},
                                           {"name": "cpu", "nominalQuota": "64"}]},
            {"name": "h100", "resources": [{"name": "nvidia.com/gpu", "nominalQuota": "4"}]},
        ]}], **more},
         "status": {"flavorsReservation": [{"name": "a100", "resources": [{"name": "nvidia.com/gpu", "total": used}]}],
                    "conditions": [condition("Active")]}},
        {"kind": "ClusterQueue", "metadata": {"name": "west"}, "spec": {"resourceGroups": [
            {"flavors": [{"name": "l4", "resources": [{"name": "nvidia.com/gpu", "nominalQuota": 8}]}]}]}},
    ]})  # fmt: skip


FULL = "couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu in flavor a100"


def recorded(*objects, **more):
    return read_kueue(json.dumps({"items": list(objects)}), queues(**more), NOW)


def test_what_runs_what_waits_and_what_has_ended():
    found = recorded(
        workload("runs", 2, condition("QuotaReserved"), condition("Admitted"), pods=2),
        workload("waits", 6, condition("QuotaReserved", "False", FULL)),
        workload("done", 2, condition("Admitted"), condition("Finished")),
        workload("held", 1, active=False),
    )
    assert {job.id: (job.running, job.devices, job.domain) for job in found.jobs} == {
        "ml/runs": (True, 4, "east"), "ml/waits": (False, 6, "east"), "ml/held": (False, 1, "east"),
    }  # fmt: skip
    assert found.domains == ("east", "west") and (found.devices("east"), found.free("east")) == (8, 4)
    assert found.free("west") == 8
    assert found.job("ml/runs").started_unix_s == 1_790_000_000.0 - 4400.0
    assert found.job("ml/waits").reason == FULL


def test_why_it_waits_and_where_it_would_start_sooner():
    found = recorded(
        workload("first", 6, condition("QuotaReserved", "False", FULL), priority=5),
        workload("second", 5, condition("QuotaReserved", "False", FULL), priority=-3),
        workload("huge", 9, condition("QuotaReserved", "False", FULL), priority=-4),
        workload("held", 1, active=False),
    )
    causes = {job.id.partition("/")[2]: why(found, job) for job in found.jobs}
    assert causes == {"first": "devices", "second": "priority", "huge": "never", "held": "held"}
    advice = {each.job: each for each in advise(found)}
    assert advice["ml/first"].better == "west" and advice["ml/held"].better is None


def test_a_queue_that_is_stopped_takes_nothing():
    found = recorded(workload("waits", 2), stopPolicy="Hold")
    assert why(found, found.jobs[0]) == "node not available"


def test_use_is_counted_from_workloads_where_the_queue_does_not_tell():
    ran = workload("runs", 3, condition("Admitted"), queue="team-b")
    assert recorded(ran).free("west") == 5


def test_quantities():
    assert [quantity(each) for each in (4, "4", "500m", "2k", "1Gi", "0.5")] == [4, 4, 0.5, 2000, 2**30, 0.5]
    for wrong in ("four", "1Qi", "", "1.2.3", None, True):
        with pytest.raises(ExecutorError, match="is none of Kubernetes"):
            quantity(wrong)


@pytest.mark.parametrize(
    ("workloads", "given", "words"),
    [("no json", None, "is no JSON"), ('{"items": [3]}', None, "no Kubernetes object"),
     ('{"items": []}', '{"items": []}', "has no ClusterQueue"), ("[]", None, "no Kubernetes object")],
)  # fmt: skip
def test_anything_else_is_one_clear_error(workloads, given, words):
    with pytest.raises(ExecutorError, match=words):
        read_kueue(workloads, given or queues(), NOW)
