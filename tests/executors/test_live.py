"""The ring on real processes: launched once, corrected by what is measured, the same when gone through again."""

import json
import time
from dataclasses import replace as changed

import numpy as np
import pytest

from attribution_sched import System
from attribution_sched.cluster.decision import capture, view
from attribution_sched.cluster.engine import state as st
from attribution_sched.cluster.fork import PriorBeliefs, draw_futures
from attribution_sched.cluster.live_state import restore_cluster, save_cluster
from attribution_sched.cluster.plan import Plan, Replica, Segment
from attribution_sched.config import load_settings
from attribution_sched.errors import ExecutorError, LaunchRefused, SettingsError, TaskError
from attribution_sched.executors.live import Launched, Live, Twin, twin_of
from attribution_sched.executors.local import LocalExecutor
from attribution_sched.explain.explanation import Explanation
from attribution_sched.explain.reasoning import reasoning
from attribution_sched.journal import Journal
from attribution_sched.system import operations
from attribution_sched.system.replay import live_through, replay
from tests.campaigns.executor_kills import LAYERS, SETTINGS, Mixed
from tests.executors.test_local import job

LINE = '{\\"step_s\\": 0.5, \\"cpu_s\\": 0.01, \\"bytes\\": 7, \\"done\\": 0.$i}'
STEPS = f'for i in 1 2 3 4 5; do echo "{LINE}" >> $ATTR_REPORT; done; '


def machines(folder, **more):
    executors = {name: LocalExecutor(name, 4, folder / "jobs", grace_s=1.0) for name in ("east", "west")}
    return Live(executors, **({"tick_s": 0.25, "poll_s": 0.01, "gang_s": 10.0, "kind": "test"} | more))


def began(folder, live=None, policy=None):
    live = live or machines(folder)
    return System(SETTINGS, policy or Mixed(), journal=folder / "j.sqlite", queue="empty", cluster=live)


def resumed(folder, live=None, policy=None):
    return System.resume(folder / "j.sqlite", policy=policy or Mixed(), cluster=live or machines(folder))


def sh(script):
    return ["sh", "-c", script]


def kinds(system):
    return [intent.kind for intent in system.journal.intents()]


def state_of(system):
    return {name: array.copy() for name, array in system.cluster.engine.state._asdict().items()}


def test_nobody_is_shown_neighbours_that_an_engine_would_not_let_share(tmp_path):
    with began(tmp_path) as system:
        for name in ("one", "two"):
            system.submit("bert-base", steps=20, id=name, command=sh("sleep 5"))
        system.schedule_next_task()
        cluster = system.cluster
        slot = next(slot for slot, task in cluster.residents.items() if task.id == "two")
        cluster.engine.state.event[0, [st.EVENT, st.SLOT]] = st.PLACE, slot
        assert view(cluster.engine).neighbours and cluster.pending().neighbours == ()


def test_a_task_is_run_and_its_outcome_has_predicted_and_measured(tmp_path):
    with began(tmp_path) as system:
        system.submit("bert-base", steps=20, id="one", command=sh(STEPS + "sleep 0.5"))
        result = system.schedule_next_task()
        before = system.outcome(result)
        assert before.predicted.step_s > 0.0 and before.predicted.provenance == "estimated"
        assert before.observed.provenance == "unavailable" and before.observed.step_s is None
        summary = system.run(until="empty")
        assert summary.completed == 1
        after = system.outcome(result.id)
        assert after.observed.provenance == "measured"
        assert after.observed.step_s == 0.5 and after.observed.traffic_bytes == 14.0  # of both parts
        assert after.predicted == before.predicted
        # What happened between two looks of a busy machine is told with the end.
        assert kinds(system)[-1] == "finished" and set(kinds(system)) <= {"started", "measured", "finished"}


class Forgetful(LocalExecutor):
    """Speaks only of jobs that it is asked for, as a queue does that has forgotten those that ended."""

    def observe(self, since):
        found = super().observe(since)
        return changed(found, events=tuple(each for each in found.events if each.key in since))


def test_a_job_that_was_forgotten_before_it_was_first_looked_at_is_not_waited_for_in_vain(tmp_path):
    live = Live({name: Forgetful(name, 4, tmp_path / "jobs") for name in ("east", "west")}, tick_s=0.25, kind="test")
    with began(tmp_path, live) as system:
        for number in range(2):
            system.submit("bert-base", steps=20, id=f"task-{number}", command=["true"])
        system.run(2)
        with pytest.raises(TimeoutError):
            wait_for(system, lambda: kinds(system).count("finished") == 2)


def test_an_explanation_quotes_what_was_predicted_and_what_was_measured(tmp_path):
    with began(tmp_path, policy="sjf") as system:
        system.submit("bert-base", steps=20, id="one", command=sh(STEPS + "sleep 0.2"))
        result = system.schedule_next_task()
        early = system.explain(result, tipping=False)
        assert f"{early.outcome}".endswith("nothing has been measured of it.")
        system.run(until="empty")
        late = system.explain(result, tipping=False)
        step_s = system.outcome(result).predicted.step_s
        assert f"a step of {step_s:.3g}" in late.outcome and "measured were 0.5 s" in late.outcome
        assert "CPU-seconds" in late.outcome and late.outcome in reasoning(late)
        assert "实测为 0.5 s" in reasoning(late, "zh")
        # As the journal kept it, in both languages.
        kept = Explanation.from_dict(system.journal.explanations(result.id)[0].explanation)
        assert reasoning(kept, "zh") == reasoning(late, "zh")
    with resumed(tmp_path, policy="sjf") as again:
        assert again.explain(result.id, tipping=False).outcome == late.outcome


def test_the_twin_believes_what_was_measured(tmp_path):
    with began(tmp_path) as system:
        system.submit("bert-base", steps=20, id="one", command=sh(STEPS + "sleep 30"))
        system.schedule_next_task()
        slot = system.cluster.slot_of("one")
        expected = float(system.cluster.engine.state.tasks[0, slot, 2])
        assert expected < 0.4
        with pytest.raises(TimeoutError):
            wait_for(system, lambda: "measured" in kinds(system), then=TimeoutError)
        assert float(system.cluster.engine.state.tasks[0, slot, 2]) == pytest.approx(0.5, rel=0.01)
        system.cancel("one")
        assert system.cluster.running == 0
        assert system.journal.handles()[-1].handle["phase"] == "gone"


def wait_for(system, condition, then=TimeoutError, seconds=20.0):
    """Drive the ring until something holds; ends by raising, as the ring itself ends only with its tasks."""
    live, until = system.live, time.monotonic() + seconds
    while time.monotonic() < until:
        live.drive(system, live.now_s)
        if condition():
            raise then
        time.sleep(0.01)
    raise AssertionError("it never came")


def test_going_through_the_journal_again_moves_the_twin_only_and_to_the_bit(tmp_path):
    with began(tmp_path) as system:
        for number in range(4):
            command = sh(f"echo $ATTR_KEY >> {tmp_path}/ran; {STEPS}")
            system.submit("bert-base", steps=20, id=f"task-{number}", command=command)
        system.run(until="empty")
        expected, count = state_of(system), system.journal.count()
    ran = (tmp_path / "ran").read_text()
    live = machines(tmp_path)
    for executor in live.executors.values():
        executor.launch = None  # Whoever launches now raises.
    with resumed(tmp_path, live) as again:
        assert again.journal.count() == count
        for name, array in state_of(again).items():
            np.testing.assert_array_equal(array, expected[name], err_msg=name)
        # From the very beginning too, not only from the snapshot that closing left.
        twin = Twin(again.world, again.seed, arrivals=False)
        replay(twin, again.journal, again.seed)
        for name, array in twin.engine.state._asdict().items():
            np.testing.assert_array_equal(array, expected[name], err_msg=name)
        # As `doctor --verify` does; without its twin it is not gone through at all.
        assert live_through(again.journal, *twin_of(again.journal.header))[1] == []
        assert live_through(again.journal) is None
    assert (tmp_path / "ran").read_text() == ran
    assert len(ran.split()) == 4 + 2  # two of the four are gangs of two


def test_a_gang_is_let_go_when_all_parts_have_their_devices(tmp_path):
    with began(tmp_path) as system:
        system.submit(
            "bert-base", steps=20, id="gang", command=sh(f"echo $ATTR_STAGE $ATTR_RENDEZVOUS >> {tmp_path}/ran")
        )
        system.run(until="empty")
        phases = [
            json.loads(row[0])["phase"] for row in system.journal.rows("SELECT handle FROM handles ORDER BY position")
        ]
        assert phases == ["held", "releasing", "released", "gone"]
    parts = sorted(line.split() for line in (tmp_path / "ran").read_text().splitlines())
    assert [part[0] for part in parts] == ["0", "1"] and parts[0][1] == parts[1][1] != ""


def test_a_gang_that_does_not_get_all_its_devices_is_cancelled_everywhere_in_time(tmp_path):
    live = machines(tmp_path, gang_s=0.5)
    west = live.executors["west"]
    part = job("sleep", "3", devices=4)
    west.launch("someone-else", changed(part, component=changed(part.component, domain="west")))
    with began(tmp_path, live) as system:
        system.submit("bert-base", steps=20, id="gang", command=sh(f"echo ran >> {tmp_path}/ran"))
        system.schedule_next_task()
        key = system.journal.handles()[0].key
        with pytest.raises(TimeoutError):
            wait_for(system, lambda: "failed" in kinds(system))
        assert {executor.find(key).state for executor in live.executors.values()} == {"cancelled"}
        assert not (tmp_path / "ran").exists()
        told = next(intent.details for intent in system.journal.intents() if intent.kind == "failed")
        assert "1 of 2 parts had their devices within 0.5 s" in told["reason"]
        assert system.cluster.place_of("gang") in ("window", "running")
        live.gang_s = 20.0
        system.run(until="empty")
    assert (tmp_path / "ran").read_text() == "ran\nran\n"


def test_a_job_that_fails_is_tried_again_and_set_aside_in_the_end(tmp_path):
    with began(tmp_path) as system:
        system.submit("bert-base", id="one", command=sh("exit 0"))
        system.submit("bert-base", id="bad", command=sh("exit 5"))
        system.run(until="empty")
        assert kinds(system).count("failed") == 3
        assert "exit code 5" in system.cluster.held["bad"].reason
    with resumed(tmp_path) as again:
        assert "exit code 5" in again.cluster.held["bad"].reason


def test_a_launch_that_is_refused_for_good_leaves_nothing_behind(tmp_path):
    live = machines(tmp_path)

    def refuse(key, job):
        raise LaunchRefused("no such partition")

    live.executors["west"].launch = refuse
    with began(tmp_path, live) as system:
        system.submit("bert-base", id="gang", command=sh(f"echo ran >> {tmp_path}/ran"))
        system.run(until="empty")
        assert "no such partition" in system.cluster.held["gang"].reason
    assert not (tmp_path / "ran").exists()
    assert live.executors["east"].inventory().free == 4


def test_an_engine_that_does_not_answer_is_told_and_the_decision_is_finished_later(tmp_path):
    live = machines(tmp_path)
    launch, down = live.executors["east"].launch, [True]

    def flaky(key, job):
        if down.pop():
            raise ExecutorError("the controller does not answer")
        down.append(False)
        return launch(key, job)

    down[:] = [False, True]
    live.executors["east"].launch = flaky
    with began(tmp_path, live) as system:
        system.submit("bert-base", id="gang", command=sh(f"echo ran >> {tmp_path}/ran"))
        with pytest.raises(ExecutorError, match="does not answer"):
            system.schedule_next_task()
        system.run(until="empty")
    assert (tmp_path / "ran").read_text() == "ran\nran\n"


def move_once(view):
    """Place on east, and move to west at the first question about a running task."""
    if not view.replanning:
        return Plan((Replica((Segment(0, 0, LAYERS),), 4, 8),))
    return Plan((Replica((Segment(1, 0, LAYERS),), 4, 8),))


def test_a_move_stops_the_old_job_before_the_new_one_starts(tmp_path):
    script = (
        f"trap 'echo saved >> {tmp_path}/ran; exit 0' TERM; echo $ATTR_DOMAIN $ATTR_ATTEMPT >> {tmp_path}/ran; "
        + (f"[ $ATTR_ATTEMPT = 1 ] && exit 0; {STEPS} while :; do sleep 0.02; done")
    )
    with began(tmp_path, policy=move_once) as system:
        system.submit("gpt2-small", steps=400, id="one", command=sh(script))
        system.run(until="empty")
        # The job that was moved away was metered too: its handle has what it spent.
        first, second = (each.handle for each in system.journal.handles())
        assert first["spent"]["cpu_by_domain"]["east"] > 0.0 and "spent" not in second
        ended = next(each.more for each in operations.recorded(system.journal) if each.kind == "finished")
        spent_s = first["spent"]["cpu_by_domain"]["east"] + ended["job_cpu_s"]
        bill = system.bill(by="domain")
        assert bill.meter["CPU time"] == pytest.approx(spent_s, rel=1e-9) and bill.gap() < 1e-9
    assert (tmp_path / "ran").read_text().splitlines() == ["east 0", "saved", "west 1"]


def test_a_job_that_is_cancelled_has_ended_and_is_metered(tmp_path):
    with began(tmp_path) as system:
        command = sh(f"touch {tmp_path}/on; i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; sleep 60")
        system.submit("bert-base", steps=20, id="one", command=command)
        system.schedule_next_task()
        with pytest.raises(TimeoutError):
            wait_for(system, lambda: "started" in kinds(system))
        system.cancel("one")
        key = system.journal.handles()[0].key
        ended = [each.find(key) for each in system.live.executors.values()]
        assert all(each is None or each.ended for each in ended)
        spent_s = sum(system.journal.handles()[0].handle["spent"]["cpu_by_domain"].values())
        assert system.bill(by="domain").meter["CPU time"] == pytest.approx(spent_s) and spent_s > 0.0


def gang(system, name="one"):
    """A task that runs over both domains in the twin, without machines."""
    system.submit("bert-base", steps=20, id=name)
    system.schedule_next_task()
    return system.cluster.slot_of(name)


def twin_step(system, slot):
    return float(system.cluster.engine.state.tasks[0, slot, 2])


def told(system, **more):
    system.cluster.observed("measured", "one", {"steps": 3, "done": 0.1, "bytes": 1.0, **more})


def test_a_step_over_a_slower_link_corrects_the_link_and_not_the_task(tmp_path):
    """Fitted to the task's demands instead, it would be expected to fly wherever it goes next."""
    with began(tmp_path) as system:
        slot = gang(system)
        place = system.cluster._arrays.pool[slot]
        fast = [["east", "west", 2e8, 1e8]]
        told(system, step_s=0.5, cpu_s=0.4, links=fast, about="demands")
        assert twin_step(system, slot) == pytest.approx(0.5, rel=1e-3)
        fitted = place.copy()
        slow = [["east", "west", 2e6, 1e6]]
        told(system, step_s=3.0 * (before := 0.5), cpu_s=0.4, links=slow, about="links")
        np.testing.assert_array_equal(place, fitted)
        carried = float(system.cluster._arrays.base[0, 0, 1])
        assert carried <= 2e6
        # Back at the first link, what was predicted is what was measured there.
        told(system, step_s=None, cpu_s=0.4, links=fast)
        assert twin_step(system, slot) == pytest.approx(before, rel=1e-2)
        system.cancel("one")


def test_what_one_task_needed_is_expected_of_the_next_of_its_kind(tmp_path):
    with began(tmp_path) as system:
        slot = gang(system)
        told(system, step_s=4.0 * twin_step(system, slot), cpu_s=0.4)
        ratio = system.cluster.learnt[system.cluster.residents[slot].kind_index]["one"]
        assert ratio > 2.0
        other = system.submit("bert-base", steps=20, id="two")
        row = system.cluster._arrays.pool[system.cluster.slot_of(other), 2:5]
        np.testing.assert_allclose(row, ratio)
        system.cancel("one")
        system.withdraw("two")
        # What was learnt comes back with the rest.
        arrays, facts = save_cluster(system.cluster)
        again = Twin(system.world, system.seed, arrivals=False)
        restore_cluster(again, arrays, json.loads(json.dumps(facts)))
        assert again.learnt == system.cluster.learnt


def steps(*seconds, every=3, rate=None):
    lines = [{"step_s": each, "cpu_s": 0.2, "bytes": 1.0} for each in seconds]
    for at in range(0, len(lines), every):
        lines[at]["link_bytes_per_s"] = rate[at // every] if rate else 1e6
    return lines


def test_steps_and_links_are_told_as_they_are_now_and_not_as_a_mean_of_before_and_after():
    made = Launched("k", "one", {"east": "1", "west": "2"}, "released", 0.0, next={"east": "west"}, duplex=0.5)
    made.steps = {"east": steps(0.5, 0.5, 0.5), "west": steps(0.5, 0.5, 0.5)}
    first = made.measured()
    assert (first["step_s"], first["about"], first["links"]) == (0.5, "demands", [["east", "west", 1e6, 5e5]])
    made.told_step_s, made.told_cpu_s = 0.5, 0.4
    # The link was throttled after its last look: steps are slow, and nobody knows yet why.
    slow = (0.5, 0.5, 0.5, 0.5, 3.0, 3.1)
    made.steps = {"east": steps(*slow, rate=(1e6, 1e6)), "west": steps(*slow)}
    assert made.measured() is None
    slow += (3.1,)
    made.steps = {"east": steps(*slow, rate=(1e6, 1e6, 1e5)), "west": steps(*slow)}
    found = made.measured()
    assert (found["step_s"], found["about"]) == (3.1, "links")
    assert found["links"] == [["east", "west", 1e5, 5e4]]
    # With other CPU-seconds it is the task that changed.
    for lines in made.steps.values():
        for each in lines[-3:]:
            each["cpu_s"] = 1.2
    assert made.measured()["about"] == "demands"


def test_local_is_asked_for_by_its_name_and_known_again(tmp_path):
    path = tmp_path / "run.sqlite"
    with System(SETTINGS, "sjf", journal=path, queue="empty", cluster="local") as system:
        system.submit("bert-base", steps=20)
        system.run(until="empty")
        assert system.cluster.totals()["completed"] == 1
        report = system.report(tmp_path / "report.md", explain=0).read_text()
        assert "its jobs are not run again for others" in report
    with System.resume(path) as again:
        assert again.live is not None and again.journal.header.settings["cluster"] == "local"
    with Journal.read(path) as journal:
        assert journal.handles()[0].key == f"{journal.header.journal_id}-d000000"


def test_a_task_without_a_tenant_is_billed_to_that_of_its_kind(tmp_path):
    kinds = [changed(kind, tenant="of-its-kind") for kind in SETTINGS.kinds]
    settings = SETTINGS.model_copy(update={"kinds": tuple(kinds)})
    with System(settings, "sjf", journal=tmp_path / "run.sqlite", queue="empty", cluster="local") as system:
        system.submit("bert-base", steps=20)
        system.submit("bert-base", steps=20, tenant="own")
        system.run(until="empty")
        assert set(system.bill().payers) == {"of-its-kind", "own"}


def test_bad_input_is_one_clear_error(tmp_path):
    with pytest.raises(SettingsError, match="journal"):
        System(SETTINGS, "sjf", cluster="local")
    with pytest.raises(SettingsError, match="no executor was given for west"):
        System(SETTINGS, "sjf", journal=tmp_path / "a", cluster={"east": LocalExecutor("east", 4, tmp_path)})
    with pytest.raises(SettingsError, match="Executor"):
        System(SETTINGS, "sjf", journal=tmp_path / "a", cluster={"east": "slurm"})
    assert not (tmp_path / "a").exists()
    with System(SETTINGS, "sjf", queue="empty") as system, pytest.raises(TaskError, match=r"task\.command"):
        system.submit("bert-base", command="rm -rf")


def test_a_clock_that_was_set_back_is_told(tmp_path, monkeypatch):
    with began(tmp_path) as system:
        system.submit("bert-base", command=sh("true"))
        system.run(until="empty")
    now = time.time
    monkeypatch.setattr("attribution_sched.executors.live.time.time", lambda: now() - 1000.0)
    with pytest.raises(ExecutorError, match="behind what the journal last recorded"):
        resumed(tmp_path)


def test_a_bill_of_real_processes_adds_up_to_their_cpu_seconds(tmp_path):
    spin = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; "
    with began(tmp_path) as system:
        for number, tenant in enumerate(("vision", "speech", "vision")):
            name = f"task-{number}"
            system.submit("bert-base", steps=20, id=name, tenant=tenant, command=sh(STEPS + spin + "sleep 0.2"))
        system.run(until="empty")
        ended = [each.more for each in operations.recorded(system.journal) if each.kind == "finished"]
        metered_s = sum(more["job_cpu_s"] for more in ended)
        for rule in ("shapley", "usage", "reservation"):
            bill = system.bill(rule=rule)
            assert set(bill.meter) == {"CPU time", "device time", "egress"} and bill.provenance == "measured"
            assert bill.meter["CPU time"] == pytest.approx(metered_s, rel=1e-9) and bill.gap() < 1e-9
        by_domain = system.bill(by="domain")
        assert by_domain.gap() < 1e-9 and by_domain.meter["CPU time"] == pytest.approx(metered_s, rel=1e-9)
        own = sum(more["job_cpu_s"] for more in ended[1:2])
        assert metered_s > own > 0.0
        units = {row["part"]: row["unit"] for row in system.bill().rows()}
        assert units["CPU time"] == "s" and "energy" not in units


def grids(folder):
    """The same two domains; what the grids of one and the prices of the other are is read from files."""
    (folder / "east.txt").write_text("500\n")
    (folder / "west.txt").write_text("0.3\n")
    plain = SETTINGS.model_dump(mode="json", exclude_none=True)
    for domain in plain["domains"]:
        name = domain["name"]
        what, usual = ("carbon", 250.0) if name == "east" else ("electricity", 0.1)
        if what == "carbon":
            domain.pop("carbon_g_per_kwh", None)
        domain[what] = {"kind": "live", "path": str(folder / f"{name}.txt"), "usual": usual}
    plain["reward"]["energy_usd_per_kwh"] = 0.1
    return load_settings(plain)


def signals_of(system):
    return system.cluster.engine.arrays.signals[:, :3].copy()


def test_a_live_source_is_asked_while_the_clock_of_the_twin_stands(tmp_path):
    """Nothing runs for hours: the next task is priced, and its copies begin, by what the source says then."""
    settings, live = grids(tmp_path), machines(tmp_path)
    with System(settings, Mixed(), journal=tmp_path / "j.sqlite", queue="empty", cluster=live) as system:
        system.submit("bert-base", id="one", command=sh("exit 0"))
        system.run(until="empty")
        before_s = system.cluster.now_s
        (tmp_path / "east.txt").write_text("125\n")
        live._origin_s -= 5 * 3600.0
        for what in live.poll(system.cluster):
            system.operate.carry_out(what)
        assert system.cluster.now_s == before_s and signals_of(system)[st.CARBON, 0, 0] == 0.5
        moment = capture(system.cluster.engine)
        drawn = draw_futures(moment, PriorBeliefs(moment.world), 2, moment.now_s + 7200.0, 1)
        assert all(future.signals[st.CARBON, 0, 0] == 0.5 for future in drawn)
        assert list(live.poll(system.cluster)) == []


def test_live_sources_of_a_real_cluster_are_asked_by_the_hour_and_the_journal_keeps_what_they_said(tmp_path, caplog):
    settings, live = grids(tmp_path), machines(tmp_path)
    with System(settings, Mixed(), journal=tmp_path / "j.sqlite", queue="empty", cluster=live) as system:
        assert signals_of(system).tolist() == np.ones((2, 3, 2)).tolist()
        at_first = save_cluster(system.cluster)
        system.submit("bert-base", steps=400, id="one", command=sh("sleep 30"))
        system.schedule_next_task()
        heard = [intent for intent in system.journal.intents() if intent.kind == "signal"]
        told = sorted((each.details["name"], each.details["signal"], each.details["value"]) for each in heard)
        assert told == [("east", "carbon", 500.0), ("west", "electricity", 0.3)]
        assert signals_of(system)[:, 0].tolist() == [[1.0, pytest.approx(3.0)], [2.0, 1.0]]
        # Another hour, another reading; the file of the other domain is gone and its last value stays.
        (tmp_path / "east.txt").write_text("500\n125\n")
        (tmp_path / "west.txt").unlink()
        live._heard.clear()
        for what in live.poll(system.cluster):
            system.operate.carry_out(what)
        assert "electricity of west: no news this hour, the last value stays" in caplog.text
        assert signals_of(system)[:, 0].tolist() == [[1.0, pytest.approx(3.0)], [0.5, 1.0]]
        known, state = signals_of(system), state_of(system)
        arrays, facts = save_cluster(system.cluster)
        fresh = type(system.cluster)(system.cluster.world, 0, arrivals=False, live=live)
        for _ in range(2):
            restore_cluster(fresh, arrays, facts)
            assert fresh.heard == system.cluster.heard
        assert np.array_equal(fresh.engine.arrays.signals[:, :3], known)
        # What runs is priced by it at once: grams a second of a task on both domains are linear in one's intensity.
        rates = []
        for value in (125.0, 500.0, 312.5):
            fresh.hear("east", "carbon", value)
            rates.append(fresh.engine.state.tasks[0, 0, st.CARBON_RATE])
        assert rates[0] < rates[1] and rates[2] == pytest.approx((rates[0] + rates[1]) / 2.0)
        # Put back to before anything was heard or measured, it knows nothing of it.
        fresh._correct_links([["east", "west", 1e6, 1e6]])
        restore_cluster(fresh, *at_first)
        assert (fresh.engine.arrays.signals == 1.0).all() and fresh.heard == ()
        assert np.array_equal(fresh._arrays.base, system.cluster._arrays.base) and not fresh.corrected
    with resumed(tmp_path, live=machines(tmp_path)) as again:
        assert np.array_equal(signals_of(again), known)
        assert all(np.array_equal(state[name], array) for name, array in state_of(again).items())
        again.cancel("one")
