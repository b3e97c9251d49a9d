"""Translation of plans to Kubernetes objects; no API server is asked, so none of this says that one admits them."""

import json
import re

import pytest

from attribution_sched.cluster.plan import Plan, Replica, Segment
from attribution_sched.errors import ExecutorError, SettingsError
from attribution_sched.executors.kubernetes import jobset, manifests, object_name
from attribution_sched.executors.records import jobs_of

KEY = "0123456789ab-d000042"
PLAN = Plan((Replica((Segment(0, 0, 6, dp=2), Segment(1, 6, 14, tp=2, pp=2)), 4, 8),))
DOMAINS = ("us-east-1", "eu-west-1")


def made(plan=PLAN, **more):
    jobs = jobs_of(KEY, "task <1>", plan, DOMAINS, ["python", "train.py"], steps=9)
    return manifests(KEY, jobs, image="pytorch/pytorch:2.4.0", **more)


def test_a_gang_is_a_suspended_job_in_each_domain():
    first, second = made()
    assert [each["metadata"]["name"] for each in (first, second)] == [f"{KEY}-us-east-1", f"{KEY}-eu-west-1"]
    assert first["spec"]["suspend"] is second["spec"]["suspend"] is True
    pod = second["spec"]["template"]["spec"]
    term = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term[0]["matchExpressions"][0]["values"] == ["eu-west-1"]
    (container,) = pod["containers"]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": "4"}
    told = {each["name"]: each["value"] for each in container["env"]}
    assert (told["ATTR_FIRST"], told["ATTR_STOP"], told["ATTR_STAGE"], told["ATTR_STEPS"]) == ("6", "14", "1", "9")
    assert first["spec"]["backoffLimit"] == 0


def test_one_domain_starts_at_once_unless_a_queue_admits_it():
    plan = Plan((Replica((Segment(1, 0, 14),), 4, 8),))
    assert made(plan)[0]["spec"]["suspend"] is False
    queued = made(plan, queue="team")[0]
    assert queued["spec"]["suspend"] is True
    assert queued["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "team"


def test_a_gang_as_one_jobset_that_starts_and_fails_as_a_whole():
    jobs = jobs_of(KEY, "task", PLAN, DOMAINS, ["python", "train.py"], steps=9)
    made_set = jobset(KEY, jobs, image="pytorch/pytorch:2.4.0")
    assert made_set["metadata"]["name"] == f"{KEY}-set" and made_set["spec"]["failurePolicy"] == {"maxRestarts": 0}
    parts = made_set["spec"]["replicatedJobs"]
    assert [each["name"] for each in parts] == ["r0-s0", "r0-s1"] and made_set["spec"]["suspend"] is False
    pods = [each["template"]["spec"]["template"]["spec"] for each in parts]
    assert "suspend" not in parts[0]["template"]["spec"]
    meet = [{told["name"]: told["value"] for told in pod["containers"][0]["env"]}["ATTR_RENDEZVOUS"] for pod in pods]
    # Both meet at the pod of the first, by the name that a JobSet gives it.
    assert meet[0] == meet[1] and re.fullmatch(rf"{KEY}-set-r0-s0-0-0\.{KEY}-set:\d+", meet[0])
    term = pods[1]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term[0]["matchExpressions"][0]["values"] == ["eu-west-1"]
    assert jobset(KEY, jobs, image="a", queue="team")["spec"]["suspend"] is True


def test_the_same_decision_gives_the_same_bytes():
    assert json.dumps(made()) == json.dumps(made())


def test_names_and_labels_are_what_kubernetes_takes():
    names = {object_name(KEY, domain) for domain in ("A B", "a-b", "a_b", "x" * 80, "x" * 81)}
    assert len(names) == 5
    assert all(re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", name) for name in names)
    label = made()[0]["metadata"]["labels"]["attribution-sched/task"]
    assert re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?", label)


def test_bad_input_is_one_clear_error():
    with pytest.raises(SettingsError, match="image"):
        manifests(KEY, (), image=" ")
    with pytest.raises(ExecutorError, match="key"):
        manifests("../x", (), image="a")
