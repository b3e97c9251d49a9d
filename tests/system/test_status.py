"""The queue as a table, the whole as a record, a system in one line."""

import json

import pytest

from attribution_sched import System
from attribution_sched.errors import ExplanationError
from attribution_sched.system.status import QUEUE_COLUMNS
from tests.small_world import small


def test_the_queue_is_a_table_in_the_order_of_turns():
    system = System(small(), "greedy", queue="empty")
    assert system.queue().empty
    for at in range(5):
        system.submit("bert-base", id=f"b{at}", tenant="acme", deadline_s=90.0 if at == 2 else None)
    system.submit("gpt2-small", id="urgent", priority=4, devices=2)
    system.submit("resnet-50", id="held", hold=True)
    table = system.queue()
    assert tuple(table.columns) == QUEUE_COLUMNS
    assert table["id"].tolist() == ["urgent", "b0", "b1", "b2", "b3", "b4", "held"]
    assert table["state"].tolist() == ["window"] * 4 + ["backlog"] * 2 + ["held"]
    named = table.set_index("id")
    assert named.loc["b2", "deadline_s"] == 90.0
    assert named.loc["urgent", "devices"] == 2
    assert named.loc["b0", "tenant"] == "acme"
    assert "release" in named.loc["held", "reason"]


def test_the_queue_tells_the_throughput_that_was_measured():
    """Of an opaque task as profiled; of one that was handed in, as it said."""
    seen = []
    system = System("shared", lambda view: seen.append(view), seed=3)
    system.run(hours=0.2)
    told = system.queue()
    known = {task.id: task.samples_per_s for task in seen[-1].queue}
    assert {name: pace for name, pace in zip(told["id"], told["samples_per_s"], strict=True) if name in known} == known
    assert len(known) > 1 and (told["samples_per_s"] > 0).all()
    system = System(small(), "greedy", queue="empty")
    system.submit("bert-base", id="unmeasured")
    system.submit("bert-base", id="measured", counters={"cpu_cycles": 1e9}, samples_per_s=321.0)
    paces = system.queue().set_index("id")["samples_per_s"]
    assert paces["measured"] == 321.0


def test_a_task_that_was_left_waiting_says_when_it_is_asked_about_again():
    system = System(small(), lambda view: None, queue="empty")
    system.submit("bert-base")
    system.schedule_next_task()
    assert "left waiting; asked about again at" in system.queue()["reason"][0]


def test_status_says_how_all_of_it_stands(tmp_path):
    system = System(small(), "greedy", queue="empty", journal=tmp_path / "a.db")
    system.submit("bert-base", id="one")
    system.submit("bert-base", id="two")
    system.submit("bert-base", id="three", hold=True)
    system.reserve("west", 1, tenant="acme", hours=1)
    system.schedule_next_task()
    found = system.status()
    assert found.running == ("one",)
    assert (found.waiting, found.held, found.set_aside, found.decisions) == (1, ("three",), (), 1)
    assert found.free_devices["east"] + found.free_devices["west"] < 8
    assert found.devices == {"east": 4, "west": 4}
    assert found.policy == "greedy"
    assert found.journal == str(tmp_path / "a.db")
    assert json.loads(json.dumps(found.to_dict()))["reservations"][0]["tenant"] == "acme"
    text = str(found)
    assert "1 running, 1 waiting, 1 held, 0 set aside" in text
    assert "reserved r0000: 1 of west for acme until 1 h 0 min" in text
    assert "1 个运行，1 个等待，1 个暂停，0 个搁置" in found.told("zh")
    assert "暂停" in system.queue("zh").set_index("id").loc["three", "reason"]
    with pytest.raises(ExplanationError, match="is not written here"):
        system.queue("fr")
    assert repr(system) == "<System 'small', policy 'greedy', seed 0: 0 s, 1 running, 1 waiting, 1 held>"
