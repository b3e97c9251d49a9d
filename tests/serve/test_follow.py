"""Following a journal: the same cluster as the writer's, at every look, without holding the writer up."""

import json
import time

import pytest

from attribution_sched import System
from attribution_sched.billing.metering import usage_of
from attribution_sched.errors import JournalError
from attribution_sched.journal import Journal, JournalHeader
from attribution_sched.rivals.greedy import Greedy
from attribution_sched.serve import follow
from attribution_sched.serve.follow import Following
from tests.campaigns.executor_kills import SETTINGS, Mixed
from tests.executors.test_live import STEPS, began, sh
from tests.small_world import small


def same(view, system):
    status = system.status()
    assert view["cluster_time_s"] == status.cluster_time_s
    assert {each["name"]: each["free"] for each in view["domains"]} == status.free_devices
    assert {each["id"] for each in view["running"]} == set(status.running)
    assert view["waiting"] == status.waiting + len(status.held) + len(status.set_aside)
    assert view["decisions_total"] == status.decisions
    totals = system.cluster.totals()
    assert view["totals"]["energy_j"] == pytest.approx(totals["meter_j"], rel=1e-12)
    assert sum(each["energy_j"] for each in view["tenants"]) == pytest.approx(totals["meter_j"], rel=1e-9)


def test_at_every_look_it_is_where_the_writer_is(tmp_path):
    path = tmp_path / "j.sqlite"
    with System(small(), "sjf", journal=path, seed=2) as system:
        following = Following(path)
        for round_ in range(6):
            for _ in range(1 + round_):
                system.schedule_next_task()
            view = following.look()
            same(view, system)
            assert following.look() is None
            json.dumps(following.view(), allow_nan=False)
        if round_ == 3:
            system.submit("gpt2-small", steps=200, id="by-hand")
        newest = following.view()["decisions"][0]
        assert newest["id"] == system.journal.last().id
    following.close()


class Patient:
    """Places the first task and waits with all others."""

    name = "patient"

    def decide(self, view):
        return None if view.replanning or view.task.id != "job-0" else Greedy().decide(view)


def test_a_task_that_waits_is_told_once_and_placements_stay_in_sight(tmp_path):
    path = tmp_path / "j.sqlite"
    with System(small(), Patient(), journal=path, queue="empty") as system:
        for number in range(3):
            system.submit("bert-base", steps=20, id=f"job-{number}")
        system.run(hours=2.0)
        assert system.journal.count() > 2 * follow.SHOWN
        following = Following(path)
        shown = [(row["task"], row["result"]) for row in following.look()["decisions"]]
        following.close()
    assert ("job-0", "placed") in shown and len(shown) == len(set(shown))


def test_every_pair_of_domains_has_a_link_each_way_and_none_to_itself(written):
    following = Following(written)
    following.look()
    page = following.view()
    following.close()
    names = [each["name"] for each in page["domains"]]
    told = [(link["source"], link["target"]) for link in page["links"]]
    assert sorted(told) == sorted((a, b) for a in names for b in names if a != b)
    assert all(link["gbps"] > 0.0 and link["base_gbps"] > 0.0 for link in page["links"])


def test_joules_by_tenant_are_those_of_the_bill(written):
    following = Following(written)
    following.look()
    with Journal.read(written) as journal:
        usage = usage_of(journal)
    names, groups = usage.groups("tenant")
    booked = usage.total(usage.span_dynamic_j + usage.span_static_j, groups, len(names)).sum(axis=1)
    shown = {each["tenant"]: each["energy_j"] for each in following.view()["tenants"]}
    for name, joules in zip(names, booked, strict=True):
        assert shown.get(name, 0.0) == pytest.approx(joules, rel=1e-9)
    assert shown[""] == pytest.approx(usage.idle_j.sum(), rel=1e-9)
    following.close()


def test_bars_end_when_tasks_do_and_never_overfill_a_domain(written):
    following = Following(written)
    view = following.look()
    running = {each["id"] for each in view["running"]}
    assert {bar["task"] for bar in view["bars"] if bar["end_s"] is None} == running
    devices = {each["name"]: each["devices"] for each in view["domains"]}
    for at in {bar["start_s"] for bar in view["bars"]}:
        for name, most in devices.items():
            held = sum(
                bar["devices"]
                for bar in view["bars"]
                if bar["domain"] == name and bar["start_s"] <= at and (bar["end_s"] is None or bar["end_s"] > at)
            )
            assert held <= most
    following.close()


def test_whoever_waits_has_a_reason_and_an_interval(written):
    following = Following(written)
    view = following.look()
    assert view["waiting"] >= 3
    assert following.estimate_starts()
    rows = following.view()["queue"]
    assert all(row["reason"] for row in rows)
    assert all(row["reason_zh"] and not row["reason_zh"].isascii() for row in rows)
    told = [row["starts"] for row in rows if row["starts"]]
    assert told
    for each in told:
        if each["high_s"] is not None:
            assert 0.0 <= each["low_s"] <= each["middle_s"] <= each["high_s"]
    first = dict(following.starts)
    following.estimate_starts()
    assert following.starts == first
    following.close()


def test_targets_stand_as_the_window_says(written):
    following = Following(written)
    (row,) = following.look()["targets"]
    assert row["name"] == "utilisation_at_least" and row["met"] is (row["value"] >= 0.5)
    following.close()


def test_a_real_clusters_journal_is_followed_and_nothing_is_launched(tmp_path):
    with began(tmp_path) as system:
        system.submit("bert-base", steps=20, id="one", command=sh(STEPS + "sleep 0.4"))
        system.schedule_next_task()
        following = Following(tmp_path / "j.sqlite")
        view = following.look()
        assert not following.trouble, following.trouble
        assert [each["id"] for each in view["running"]] == ["one"] and view["provenance"] == "estimated"
        system.run(until="empty")
        view = following.look()
        assert view["running"] == [] and view["bars"][0]["end_s"] is not None
        assert view["decisions"][0]["measured"]["step_s"] == pytest.approx(0.5)
        assert view["decisions"][0]["measured"]["state"] == "finished"
        following.close()
    assert len(list((tmp_path / "jobs").rglob("events.jsonl"))) == 2  # a gang of two


def test_a_journal_that_no_system_wrote_shows_its_rows(tmp_path):
    path = tmp_path / "j.sqlite"
    with Journal.create(path, JournalHeader("mine", "me", {}, {}, "0.1")):
        following = Following(path)
        view = following.look()
    assert "No system wrote this journal" in view["trouble"] and view["domains"] == [] and view["decisions"] == []
    following.close()


def test_a_long_journal_is_followed_from_its_newest_snapshot(tmp_path, monkeypatch):
    monkeypatch.setattr(follow, "WHOLE", 20)
    path = tmp_path / "j.sqlite"
    with System(small(), "sjf", journal=path, seed=2) as system:
        system.run(tasks=80)
        following = Following(path)
        view = following.look()
        status = system.status()
        assert view["since_decision"] >= 64 and view["cluster_time_s"] == status.cluster_time_s
        assert {each["id"] for each in view["running"]} == set(status.running)
    following.close()


def test_the_writer_is_not_held_up_by_somebody_who_looks(tmp_path):
    path = tmp_path / "j.sqlite"
    with System(SETTINGS, Mixed(), journal=path, queue="empty") as system:
        reading = Journal.read(path)
        with reading.one_moment():
            before = reading.task_count()
            began_s = time.monotonic()
            system.submit("bert-base", steps=20, id="meanwhile")
            assert time.monotonic() - began_s < 2.0
            assert reading.task_count() == before
        assert reading.task_count() == before + 1
        reading.close()
        with pytest.raises(JournalError, match="open for writing"), system.journal.one_moment():
            pass
