"""Bad input: one clear error with field, value, rule and fix, and nothing half-written."""

import math

import pytest

from attribution_sched import System
from attribution_sched.cluster.counters import COUNTER_NAMES
from attribution_sched.cluster.gpus import Precision
from attribution_sched.cluster.live import SimulatedCluster
from attribution_sched.cluster.plan import Plan, Replica, Segment
from attribution_sched.errors import (
    AttributionSchedError,
    CounterError,
    ExplanationError,
    JournalError,
    PolicyError,
    SettingsError,
    TaskError,
)
from tests.small_world import SMALL, small

NAN = {name: math.nan if name == "fc" else 1.0 for name in COUNTER_NAMES[:7]}


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"preset": "cross-domian"}, SettingsError, ("cross-domian", "Did you mean 'cross-domain'?")),
        ({"preset": 7}, SettingsError, ("source = 7",)),
        ({"preset": SMALL | {"kinds": []}}, SettingsError, ("kinds",)),
        ({"policy": "greeedy"}, SettingsError, ("policy = 'greeedy'", "Did you mean 'greedy'?")),
        ({"policy": 3}, SettingsError, ("policy = 3", "must be")),
        ({"seed": -1}, SettingsError, ("seed = -1", ">= 0")),
        ({"seed": 1.5}, SettingsError, ("seed = 1.5",)),
        ({"queue": "ful"}, SettingsError, ("queue = 'ful'", "preset")),
        ({"attributor": 5}, SettingsError, ("attributor = 5", "Leave it out")),
        ({"explain": "yes"}, ExplanationError, ("explain = 'yes'", "explain=True")),
        ({"explain": {"targt": "terms"}}, ExplanationError, ("targt", "Did you mean 'target'?")),
        ({"explain": {"target": "term"}}, ExplanationError, ("target = 'term'", "Did you mean 'terms'?")),
        ({"targets": {"step_s_at_most": "soon"}}, SettingsError, ("targets.step_s_at_most = 'soon'", "Leave it out")),
    ],
)
def test_a_system_that_cannot_be_made_leaves_no_journal(tmp_path, given, error, words):
    path = tmp_path / "run.journal"
    with pytest.raises(error) as caught:
        System(**({"preset": SMALL, "policy": "greedy", "journal": path} | given))
    assert all(word in str(caught.value) for word in words)
    assert list(tmp_path.iterdir()) == []


def test_a_journal_that_is_there_is_not_overwritten(tmp_path):
    path = tmp_path / "run.journal"
    System(SMALL, "greedy", journal=path).close()
    before = path.read_bytes()
    with pytest.raises(JournalError, match="is there already"):
        System(SMALL, "greedy", journal=path)
    assert path.read_bytes() == before
    with pytest.raises(JournalError, match="Use a folder that exists"):
        System(SMALL, "greedy", journal=tmp_path / "none" / "run.journal")


@pytest.mark.parametrize(
    ("task", "given", "error", "words"),
    [
        ("bert-bas", {}, TaskError, "Did you mean 'bert-base'"),
        ("bert-base", {"steps": -3}, TaskError, r"task\.steps = -3"),
        ("bert-base", {"batch": 31}, TaskError, r"task\.batch = 31.*batch=32"),
        ("bert-base", {"stesp": 3}, TaskError, "Did you mean 'steps'"),
        ("bert-base", {"counters": NAN}, CounterError, r"counters\['fc'\] = nan"),
        ("bert-base", {"counters": 3}, CounterError, r"counters = 3: must be a mapping"),
        ({"kind": None}, {}, TaskError, r"task\.kind = None: is not a kind"),
        ("bert-base", {"id": "t000001"}, TaskError, r"task\.id = 't000001'"),
        ("bert-base", {"id": "mine"}, TaskError, "is another task's"),
        (None, {}, TaskError, "must be a kind of task"),
    ],
)
def test_a_task_that_is_wrong_changes_nothing(task, given, error, words):
    system = System(SMALL, "greedy", queue="empty")
    system.submit("bert-base", id="mine")
    before = [each.id for each in system.journal.tasks()]
    with pytest.raises(error, match=words):
        system.submit(task, **given)
    assert [each.id for each in system.journal.tasks()] == before
    assert system.cluster.waiting == 1


def test_a_full_queue_says_so(monkeypatch):
    system = System(SMALL, "greedy", queue="empty")
    for _ in range(9):
        system.submit("bert-base")
    monkeypatch.setattr(SimulatedCluster, "accepts", False)
    with pytest.raises(TaskError, match=r"9 tasks wait already.*schedule_next_task"):
        system.submit("bert-base")
    assert len(list(system.journal.tasks())) == 9


def test_a_task_that_fits_nowhere_is_refused_with_what_would_make_it_fit():
    levels = [2048, 4096, 8192, 16384]
    giant = {"model": "gpt2-xl", "batch_size": 16384, "microbatches": levels, "steps": [10, 20], "epoch_steps": 9}
    system = System(small(kinds=[*SMALL["kinds"], giant]), "greedy", queue="empty")
    with pytest.raises(TaskError, match=r"gpt2-xl.*fits nowhere.*times the memory of 4 × A100-80.*such devices"):
        system.submit("gpt2-xl")
    assert list(system.journal.tasks()) == []
    system.submit("bert-base")


def test_a_task_that_only_fits_over_several_domains_is_taken():
    system = System("cross-domain-easy", "greedy", queue="empty")
    assert system.submit("llama-2-70b") == "t000000"


def test_a_plan_the_cluster_cannot_read_takes_no_effect():
    def nonsense(view):
        layers = len(view.kind.model)
        return Plan((Replica((Segment(0, 0, layers, 3, 1, 1),), 4, 8),))

    system = System(SMALL, nonsense)
    with pytest.raises(PolicyError, match=r"failed on t000000, t000001, t000002.*Use powers of two"):
        system.schedule_next_task()
    assert len(system.history()) == 0
    assert system.cluster.running == 0


def test_a_refused_plan_is_journaled_with_its_reason(monkeypatch):
    monkeypatch.setattr("attribution_sched.system.system.PATIENCE", 3)

    def too_coarse(view):
        layers = len(view.kind.model)
        return Plan((Replica((Segment(0, 0, layers, 1, 1, 1, Precision.INT8),), 4, 8),))

    system = System(SMALL, too_coarse, queue="empty")
    system.submit("bert-base")
    result = system.schedule_next_task()
    assert result.outcome.says == "INT8 is for inference only"
    assert result.outcome.step_s == 0.0
    assert list(system.history()["code"]) == [-9, -9, -9]


def test_an_unknown_decision_has_the_nearest():
    system = System(SMALL, "greedy")
    system.run(3)
    with pytest.raises(JournalError, match=r"d00001.*is not in the journal.*Did you mean 'd00000"):
        system.explain("d00001")
    with pytest.raises(ExplanationError, match="Did you mean 'target'"):
        system.explain("d000001", targe="terms")


@pytest.mark.parametrize("given", [{}, {"tasks": 3, "hours": 1}, {"tasks": 0}, {"until": "full"}, {"hours": -1.0}])
def test_a_run_has_one_end(given):
    with pytest.raises(SettingsError, match=r"run|tasks|until|hours"):
        System(SMALL, "greedy").run(**given)


def test_only_a_learner_learns():
    with pytest.raises(SettingsError, match="policy = 'greedy': does not learn"):
        System(SMALL, "greedy").train(64)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"decisions": "many"}, "decisions = 'many': must be a whole number >= 1"),
        ({"decisions": 1.5}, r"decisions = 1\.5: must be a whole number >= 1"),
        ({"seed": -1}, "seed = -1: must be a whole number >= 0"),
        ({"sede": 1}, "train option = 'sede': does not exist. Did you mean 'seed'"),
    ],
)
def test_learning_that_is_asked_for_wrongly(given, words):
    with pytest.raises(SettingsError, match=words):
        System(SMALL).train(**given)


def test_an_option_of_a_report_that_does_not_exist(tmp_path):
    with pytest.raises(SettingsError, match=r"report option = 'explian': does not exist\. Did you mean 'explain'"):
        System(SMALL, "greedy").report(tmp_path / "x.html", explian=3)
    assert list(tmp_path.iterdir()) == []


def test_after_closing_one_clear_error():
    system = System(SMALL, "greedy")
    system.close()
    with pytest.raises(AttributionSchedError, match="is closed"):
        system.schedule_next_task()
