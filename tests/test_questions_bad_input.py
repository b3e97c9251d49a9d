"""Questions that cannot be answered: one clear error each, and the journal and the clock as they were."""

import pytest

from attribution_sched import System
from attribution_sched.errors import JournalError, SettingsError, TaskError


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
}  # fmt: skip


@pytest.mark.parametrize("ask", CASES)
def test_one_clear_error_and_nothing_changed(system, ask):
    question, error, words = CASES[ask]
    before = (system.journal.count(), system.now_s, list(system.queue()["id"]))
    with pytest.raises(error, match=words) as told:
        question(system)
    assert len(str(told.value)) < 600
    assert before == (system.journal.count(), system.now_s, list(system.queue()["id"]))
