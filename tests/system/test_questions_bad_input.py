"""Questions that cannot be answered: one clear error each, and the journal and the clock as they were."""

import pytest

from attribution_sched import System
from attribution_sched.errors import AttributionSchedError, JournalError, SettingsError, TaskError
from attribution_sched.scheduler.rules import ShortestJobFirst
from tests.cli.helpers import invoke


class Raises:
    """Fails whenever it is asked."""

    name = "raises"

    def decide(self, view):
        raise RuntimeError("boom")


@pytest.fixture(scope="module")
def system():
    with System("cross-domain-easy", policy="sjf", seed=3) as made:
        while made.queue().empty:
            made.schedule_next_task()
        yield made


def first(system):
    return system.queue()["id"].iloc[0]


def ran(system):
    return next(each.task_id for each in system.journal.decisions() if each.plan is not None)


CASES = {
    "why, unknown task": (lambda s: s.why("nope"), TaskError, "'nope'.*Valid"),
    "why, a task that runs or ran": (lambda s: s.why(ran(s)), TaskError, "does not wait|runs already"),
    "when, unknown task": (lambda s: s.when("nope"), TaskError, "'nope'.*Valid"),
    "when, a task that runs or ran": (lambda s: s.when(ran(s)), TaskError, "does not wait|runs already"),
    "when, zero futures": (lambda s: s.when(first(s), futures=0), SettingsError, "futures = 0.*Use"),
    "why not, unknown domain": (lambda s: s.why_not(first(s), "mars"), SettingsError, "'mars': does not exist"),
    "why not, unknown task": (lambda s: s.why_not("nope", s.domains[0]), TaskError, "'nope'"),
    "what if, zero futures": (lambda s: s.what_if(drop=s.domains[0], futures=0), SettingsError, "futures = 0"),
    "what if, unknown domain": (lambda s: s.what_if(drop="mars"), SettingsError, "'mars': does not exist"),
    "what if, a link of three": (lambda s: s.what_if(link=("a", "b", 2.0)), SettingsError, "must be two domains"),
    "what if, devices as numbers": (lambda s: s.what_if(add=("a", 8)), SettingsError, "COUNT"),
    "what if, unknown policy": (lambda s: s.what_if(policy="nosuch"), SettingsError, "is not a known policy"),
    "what if, a policy that raises": (
        lambda s: s.what_if(policy=Raises(), futures=2, hours=1), SettingsError, "RuntimeError: boom",
    ),
    "explain, unknown decision": (lambda s: s.explain("d999999"), JournalError, "is not in the journal"),
    "what if, more devices taken away than there are": (
        lambda s: s.what_if(add=f"-999@{s.domains[0]}"), SettingsError, "devices.*must be >= 1",
    ),
    "what if, a task of no known model": (lambda s: s.what_if(task="nosuch"), AttributionSchedError, "nosuch"),
    "what if, without an unknown task": (lambda s: s.what_if(without="nope"), AttributionSchedError, "'nope'"),
    "what if, no time": (lambda s: s.what_if(drop=s.domains[0], hours=0.0), SettingsError, "hours = 0.0"),
    "delay, unknown task": (lambda s: s.delay("nope"), TaskError, "'nope'"),
    "delay, zero futures": (lambda s: s.delay(first(s), futures=0), SettingsError, "futures = 0"),
    "blame, unknown task": (lambda s: s.blame("nope"), TaskError, "'nope'"),
    "blame, zero futures": (lambda s: s.blame(ran(s), futures=0), SettingsError, "futures = 0"),
    "explain many, unknown decision": (lambda s: s.explain_many(["d999999"]), JournalError, "is not in the journal"),
    "trees, unknown decision": (lambda s: s.tree_readings("d999999"), JournalError, "is not in the journal"),
}  # fmt: skip


@pytest.mark.parametrize("ask", CASES)
def test_one_clear_error_and_nothing_changed(system, ask):
    question, error, words = CASES[ask]
    before = (system.journal.count(), system.now_s, list(system.queue()["id"]))
    with pytest.raises(error, match=words) as told:
        question(system)
    assert len(str(told.value)) < 600
    assert before == (system.journal.count(), system.now_s, list(system.queue()["id"]))


def test_tasks_that_are_listed_as_valid_are_those_that_can_be_asked_about(system):
    runs = next(name for name in system.cluster.names() if system.cluster.place_of(name) == "running")
    for name in ("nope", runs):
        with pytest.raises(TaskError, match="Valid: ") as told:
            system.why(name)
        valid = str(told.value).partition("Valid: ")[2].split(", ")
        assert runs not in valid
        assert set(valid) <= set(system.queue()["id"])


class Breaks(ShortestJobFirst):
    """Decides well until it is told to break: then it fails wherever it is asked, in copies too."""

    name = "breaks"
    broken = False

    def decide(self, view):
        if Breaks.broken:
            raise RuntimeError("boom")
        return super().decide(view)


@pytest.mark.parametrize(
    "ask", [lambda s, task: s.when(task, futures=20), lambda s, task: s.why(task)], ids=["when", "why"]
)
def test_a_policy_that_breaks_inside_a_copy_is_named_and_nothing_changed(ask):
    Breaks.broken = False
    with System("cross-domain-easy", policy=Breaks(), seed=3) as system:
        while system.queue().empty:
            system.schedule_next_task()
        task = first(system)
        before = (system.journal.count(), system.now_s, list(system.queue()["id"]))
        Breaks.broken = True
        try:
            with pytest.raises(AttributionSchedError, match="RuntimeError: boom"):
                ask(system, task)
        finally:
            Breaks.broken = False
        assert before == (system.journal.count(), system.now_s, list(system.queue()["id"]))
        assert system.schedule_next_task() is not None


def test_typed_at_a_terminal_they_are_one_line_and_the_journal_stays(tmp_path):
    path = tmp_path / "j.sqlite"
    with System("cross-domain-easy", policy="sjf", seed=3, journal=path) as system:
        while system.queue().empty:
            system.schedule_next_task()
        waits, runs, domain = first(system), ran(system), system.domains[0]
    content = path.read_bytes()
    for words in (
        ("why", path, "nope"), ("why", path, runs), ("when", path, "nope"), ("when", path, runs),
        ("when", path, waits, "--futures", "0"), ("why-not", path, waits, "mars"), ("blame", path, "nope"),
        ("what-if", path, "--drop", "mars"), ("what-if", path, "--add", f"-999@{domain}"),
        ("what-if", path, "--drop", domain, "--futures", "0"), ("explain", "d999999", "-j", path),
    ):  # fmt: skip
        done = invoke(*words)
        errors = [line for line in done.stderr.splitlines() if line.startswith(("error:", "failed:"))]
        assert done.exit_code in (1, 2) and len(errors) == 1 and "Traceback" not in done.output, (words, done.output)
    assert path.read_bytes() == content
