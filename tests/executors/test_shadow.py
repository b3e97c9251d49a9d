"""A queue that is read and never touched: causes in precedence, starts by hand, recordings of two layouts."""

import json

import pytest

from attribution_sched.errors import ExecutorError
from attribution_sched.executors import shadow as sh
from attribution_sched.executors.shadow import (
    Shadow,
    ShadowJob,
    ShadowNode,
    advise,
    agrees,
    play,
    read_json,
    read_live,
    when,
    why,
)

NOW = 1_000_000.0


def job(number, devices=1, *, running=False, limit=100.0, priority=10.0, domain="east", **more):
    started = NOW - 50.0 if running else None
    return ShadowJob(str(number), domain, devices, running, NOW - 60.0 + number, started, limit, priority, **more)


def cluster(*jobs, devices=4, down=0, domains=("east",), shares=(1.0,)):
    used = {name: sum(each.devices for each in jobs if each.running and each.domain == name) for name in domains}
    nodes = [ShadowNode(f"{name}-1", (name,), devices, used[name], "MIXED") for name in domains]
    nodes += [ShadowNode(f"{name}-2", (name,), down, 0, "DOWN*") for name in domains if down]
    return Shadow(tuple(jobs), tuple(nodes), NOW, shares)


def test_causes_in_strict_precedence():
    full = job(1, 4, running=True)
    assert why(cluster(full), full) == ""
    assert why(cluster(full, held := job(2, reason="JobHeldUser")), held) == sh.HELD
    assert why(cluster(full, later := job(2, begin_unix_s=NOW + 9)), later) == sh.BEGIN_TIME
    assert why(cluster(full, behind := job(2, reason="Dependency")), behind) == sh.DEPENDENCY
    assert why(cluster(full, huge := job(2, 9)), huge) == sh.NEVER
    assert why(cluster(full, large := job(2, 8), down=4), large) == sh.NODE
    assert why(cluster(full, first := job(2)), first) == sh.DEVICES
    assert why(cluster(full, job(2), second := job(3)), second) == sh.PRIORITY
    assert why(cluster(job(1, 2, running=True), job(2, 4), small := job(3, 1)), small) == sh.PRIORITY
    assert why(cluster(job(1, 2, running=True), next_one := job(2, 2)), next_one) == sh.NEXT


def test_one_who_is_held_is_in_nobodys_way():
    queue = cluster(job(1, 4, running=True), job(2, reason="JobHeldUser"), mine := job(3))
    assert why(queue, mine) == sh.DEVICES


def test_our_cause_beside_slurms_word():
    assert agrees(sh.DEVICES, "Resources") is True
    assert agrees(sh.PRIORITY, "Resources") is False
    assert agrees(sh.NODE, "ReqNodeNotAvail, UnavailableNodes:east-2") is True
    assert agrees(sh.DEVICES, "None") is None
    assert agrees(sh.DEVICES, "SomethingNew") is None


def test_the_queue_is_played_on_by_hand():
    """4 devices; one job holds 3 until +50 by its limit. A needs 4, B fits beside and ends in time, C would delay A."""
    queue = cluster(
        job(1, 3, running=True),
        a := job(2, 4, priority=30),
        b := job(3, 1, limit=40, priority=20),
        c := job(4, 1, limit=60),
    )
    starts = play(queue, "east", {"1": 100.0, a.id: 100.0, b.id: 40.0, c.id: 60.0})
    assert {name: at - NOW for name, at in starts.items()} == {"3": 0.0, "2": 50.0, "4": 150.0}


def test_a_job_that_ends_early_lets_others_start_early():
    queue = cluster(job(1, 4, running=True, limit=1000.0), a := job(2, 4))
    assert play(queue, "east", {"1": 60.0, a.id: 1.0})[a.id] == NOW + 10.0


def test_what_can_never_start_has_no_start():
    queue = cluster(job(1, 4, running=True), job(2, 9), job(3, reason="JobHeldUser"))
    assert when(queue, "east") == {}


def test_intervals_hold_what_jobs_used_of_their_limits():
    queue = cluster(job(1, 4, running=True, limit=1000.0), job(2, 4), shares=(0.1, 0.2, 0.9))
    found = when(queue, "east", draws=200)["2"]
    assert found.low_unix_s == pytest.approx(NOW + 50.0) and found.high_unix_s == pytest.approx(NOW + 850.0)
    assert when(queue, "east", draws=200) == when(queue, "east", draws=200)


def test_advice_says_where_a_job_would_have_started_and_what_that_saves():
    queue = cluster(job(1, 4, running=True), job(2, 2), domains=("east", "west"))
    (advice,) = advise(queue)
    assert (advice.job, advice.cause, advice.better) == ("2", sh.DEVICES, "west")
    assert advice.saved_s == pytest.approx(50.0)
    busy = cluster(job(1, 4, running=True), job(2, 2), job(3, 4, domain="west"), domains=("east", "west"))
    assert advise(busy)[0].better is None


def numbered(value):
    return {"set": True, "infinite": False, "number": value}


def recorded(wrap, states):
    jobs = [
        {"job_id": 7, "partition": "east", "job_state": states("RUNNING"), "submit_time": wrap(999_000),
         "start_time": wrap(999_950), "time_limit": wrap(10), "priority": wrap(5), "user_name": "ada",
         "state_reason": "None", "tres_req_str": "cpu=1,mem=1G,node=1,billing=1,gres/gpu=4", "eligible_time": wrap(1)},
        {"job_id": 8, "partition": "east", "job_state": states("PENDING"), "submit_time": wrap(999_001),
         "start_time": wrap(0), "time_limit": wrap(10), "priority": wrap(4), "user_name": "<b>",
         "state_reason": "Resources", "tres_req_str": "cpu=1,gres/gpu:a100=2", "eligible_time": wrap(999_001)},
        {"job_id": 6, "partition": "east", "job_state": states("COMPLETED")},
    ]  # fmt: skip
    nodes = [{"name": "n1", "partitions": ["east"], "state": states("mixed"), "tres": "cpu=8,gres/gpu=4",
              "tres_used": "cpu=1,gres/gpu=4"}]  # fmt: skip
    past = [{"time": {"elapsed": 60, "limit": wrap(10)}}, {"time": {"elapsed": 5, "limit": {"set": False}}}]
    return json.dumps({"jobs": jobs}), json.dumps({"nodes": nodes}), json.dumps({"jobs": past})


@pytest.mark.parametrize(
    ("wrap", "states"), [(lambda value: value, str), (numbered, lambda word: [word])], ids=["v0.0.38", "v0.0.40"]
)
def test_recordings_of_both_layouts_say_the_same(wrap, states):
    queue, nodes, past = recorded(wrap, states)
    found = read_json(queue, nodes, NOW, past)
    assert [each.id for each in found.jobs] == ["7", "8"]
    running, waiting = found.jobs
    assert (running.devices, running.limit_s, running.started_unix_s) == (4, 600.0, 999_950.0)
    assert (waiting.devices, waiting.reason, waiting.started_unix_s) == (2, "Resources", None)
    assert (found.devices("east"), found.free("east")) == (4, 0)
    assert found.used_shares == (0.1,)
    assert why(found, waiting) == sh.DEVICES


def test_nodes_as_newer_versions_of_sinfo_tell_them():
    queue, nodes, past = recorded(numbered, lambda word: [word])
    row = {"partition": {"name": "east"}, "node": {"state": ["MIXED"]}, "nodes": {"nodes": ["n1"], "total": 1},
           "gres": {"total": "gpu:a100:4(S:0-1)", "used": "gpu:a100:4(IDX:0-3)"}}  # fmt: skip
    down = row | {"node": {"state": ["IDLE", "NOT_RESPONDING"]}, "nodes": {"nodes": ["n2", "n3"], "total": 2}}
    told = json.loads(queue) | {"last_update": numbered(NOW + 5)}
    found = read_json(json.dumps(told), json.dumps({"sinfo": [row, down]}), NOW, past)
    assert (found.devices("east"), found.devices("east", up=False), found.free("east")) == (4, 12, 0)
    # When it was recorded is told too, and not by the file's own time.
    assert found.unix_s == NOW + 5
    assert read_json(queue, nodes, NOW, past).unix_s == NOW
    with pytest.raises(ExecutorError, match=r"sinfo --Node --json"):
        read_json(queue, '{"hosts": []}', NOW)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"jobs": 3}', '{"jobs": [3]}', '{"meta": {"plugin": {"name": "v0.0.31"}}, "queue": []}']
)
def test_an_old_or_broken_recording_is_one_clear_error(text):
    with pytest.raises(ExecutorError, match="squeue"):
        read_json(text, '{"nodes": []}', NOW)


@pytest.mark.parametrize(
    ("jobs", "nodes", "message"),
    [
        ("XJobId=1 JobState=PENDING", "", "scontrol show jobs .*KeyError"),
        ("JobId=1 JobState=PENDING Priority=4-1", "", "could not convert"),
        (f"JobId=1 JobState=PENDING TresPerNode=gres:gpu:{'9' * 5000}", "", "a number of 5000 digits"),
        ("", "XNodeName=n1 State=IDLE", "scontrol show nodes .*KeyError"),
        ("", f"NodeName=n1 CfgTRES=gres/gpu={'9' * 5000}", "a number of 5000 digits"),
    ],
)
def test_what_slurm_cannot_have_said_is_one_clear_error(jobs, nodes, message):
    """Found by the fuzz campaign: each was a raw KeyError or ValueError."""

    def ask(*command):
        return {"jobs": jobs, "nodes": nodes}.get(command[-1], "")

    with pytest.raises(ExecutorError, match=message):
        read_live(ask, NOW)


@pytest.mark.parametrize("times", ["\u00b2|\u00b2", f"{'9' * 5000}|1", "5|0", "x|1"])
def test_accounting_that_makes_no_sense_is_left_out(times):
    assert read_live(lambda *command: f"COMPLETED|{times}" if command[0] == "sacct" else "", NOW).used_shares == ()


@pytest.mark.parametrize(
    ("queue", "nodes", "past"),
    [
        ("[" * 100_000, '{"nodes": []}', ""),
        ('{"jobs": [{"job_state": "PENDING", "node_count": 1e400}]}', '{"nodes": []}', ""),
        ('{"jobs": []}', '{"nodes": [{"partitions": 3}]}', ""),
        ('{"jobs": []}', '{"nodes": []}', '{"jobs": [{"time": []}]}'),
    ],
)
def test_a_recording_that_makes_no_sense_is_one_clear_error(queue, nodes, past):
    with pytest.raises(ExecutorError):
        read_json(queue, nodes, NOW, past)


TEXT_JOBS = """\
JobId=11 JobName=a b UserId=ada(1000) GroupId=x(1) Priority=4294901757 JobState=RUNNING Reason=None TimeLimit=00:02:00 \
SubmitTime=999000 EligibleTime=999000 StartTime=999990 EndTime=1000110 Partition=east NumNodes=1 \
TRES=cpu=1,node=1,billing=1,gres/gpu=3 Command=(null)
JobId=12 JobName=c UserId=bob(1001) Priority=4294901756 JobState=PENDING Reason=Resources TimeLimit=1-00:00:00 \
SubmitTime=999001 EligibleTime=999001 StartTime=1000110 Partition=east ReqTRES=cpu=1,gres/gpu=2 AllocTRES=(null)
JobId=9 JobState=COMPLETED Partition=east
"""
TEXT_NODES = """\
NodeName=east-1 Arch=x86_64 Gres=gpu:a100:4 State=MIXED ThreadsPerCore=1 Partitions=east,all CfgTRES=cpu=8,gres/gpu=4 \
AllocTRES=cpu=1,gres/gpu=3
NodeName=east-2 Gres=gpu:a100:4 State=DOWN*+DRAIN Partitions=east CfgTRES=cpu=8,gres/gpu=4 AllocTRES=
"""


@pytest.mark.parametrize(
    ("given", "devices"),
    [
        (("cpu=1,gres/gpu=3", "", "", "", 1, 1), 3),
        (("cpu=1", "gres:gpu:2", "", "", 1, 1), 2),
        (("cpu=1", "gres/gpu:a100:2", "", "", 1, 1), 2),
        (("cpu=1", "", "gres:gpu:a100:2", "", 3, 1), 6),
        (("cpu=1", "", "", "gres/gpu:1", 1, 4), 4),
        (("cpu=4,mem=1G", "", "", "", 1, 4), 0),
    ],
)
def test_devices_are_found_in_whichever_way_they_were_asked_for(given, devices):
    assert sh._asked(*given) == devices


def test_nodes_whose_gpus_are_not_accounted_for_are_read_too():
    found = sh._text_node(
        sh._fields(
            "NodeName=n1 Gres=gpu:a100:4(S:0-1) GresUsed=gpu:a100:2(IDX:0-1) State=IDLE+PLANNED Partitions=east "
            "CfgTRES=cpu=8,mem=1000M AllocTRES=cpu=1"
        )
    )
    assert (found.devices, found.used, found.up) == (4, 2, True)


def test_a_live_queue_is_read_and_nothing_else_is_asked():
    asked = []

    def ask(*command):
        asked.append(command[:4])
        told = {"jobs": TEXT_JOBS, "nodes": TEXT_NODES}
        if command[0] == "sacct":
            return "COMPLETED|30|1\nTIMEOUT|60|2\nCOMPLETED|0|UNLIMITED\nRUNNING|50|1\nCANCELLED by 0|9|1\n"
        return told.get(command[-1], "slurm-wlm 22.05.8\n")

    found = read_live(ask, NOW)
    assert {command[0] for command in asked} <= {"scontrol", "sinfo", "sacct"}
    assert all("show" in command for command in asked if command[0] == "scontrol")
    running, waiting = found.jobs
    assert (running.id, running.devices, running.limit_s, running.user) == ("11", 3, 120.0, "ada")
    assert (waiting.devices, waiting.limit_s, waiting.expected_start_unix_s) == (2, 86400.0, 1_000_110.0)
    assert (found.devices("east"), found.devices("east", up=False), found.free("east")) == (4, 8, 1)
    assert found.used_shares == (0.5, 0.5)
    with pytest.raises(ExecutorError, match="is not in the queue"):
        found.job("99")


@pytest.mark.parametrize("limit", ["Infinity", "NaN", "1e400", "-1"])
def test_a_limit_that_is_no_number_is_none(limit):
    job = (
        '{"job_id": 7, "partition": "east", "job_state": "%s", "submit_time": 1, "start_time": 5, "time_limit": %s, '
        '"priority": 4, "tres_req_str": "gres/gpu=4"}'
    )
    jobs = [job % ("RUNNING", limit), (job % ("PENDING", limit)).replace("7", "8", 1)]
    queue = f'{{"jobs": [{", ".join(jobs)}]}}'
    nodes = '{"nodes": [{"name": "n", "partitions": ["east"], "state": ["mixed"], "tres": "gres/gpu=4"}]}'
    assert len(advise(read_json(queue, nodes, 1e6), draws=2)) == 1
