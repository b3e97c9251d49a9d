"""Many decisions explained: the same bytes as one by one, in processes too; what is there already is left alone."""

import json

import pytest

from attribution_sched import System
from attribution_sched.errors import ExplanationError, JournalError, SettingsError
from attribution_sched.journal import Journal
from tests.cli.helpers import invoke
from tests.small_world import small

HOW = {"rows": 400, "precision": None}


def stored(path):
    with Journal.read(path) as journal:
        found = {each.id: journal.explanations(each.id) for each in journal.decisions()}
    # How long it took is the only thing in it that is not the explanation's own.
    return {name: [(e.target, json.dumps(e.explanation, sort_keys=True)) for e in some] for name, some in found.items()}


def run(path):
    with System(small(), "sjf", journal=path, seed=4) as system:
        system.run(8)


@pytest.fixture(scope="module")
def one_by_one(tmp_path_factory):
    path = tmp_path_factory.mktemp("serial") / "j.sqlite"
    run(path)
    with System.resume(path) as system:
        for decision in list(system.journal.decisions()):
            system.explain(decision.id, **HOW)
    return stored(path)


def test_in_this_process_they_are_the_same_and_a_second_time_nothing_is_done(tmp_path, one_by_one):
    path, told = tmp_path / "j.sqlite", []
    run(path)
    with System.resume(path) as system:
        names = [each.id for each in system.journal.decisions()]
        first = system.explain_many(names[:2], **HOW)
        assert (first.explained, first.known, first.failed) == (tuple(names[:2]), (), {})
        rest = system.explain_many(progress=lambda done, of: told.append((done, of)), **HOW)
        assert rest.known == tuple(names[:2]) and rest.explained == tuple(names[2:])
        assert told[-1] == (len(names) - 2, len(names) - 2)
        again = system.explain_many(**HOW)
        assert again.explained == () and len(again.known) == len(names)
    assert stored(path) == one_by_one


def test_in_processes_they_are_the_same_and_a_run_goes_on_where_it_was_stopped(tmp_path, one_by_one):
    path = tmp_path / "j.sqlite"
    run(path)
    with System.resume(path) as system:
        names = [each.id for each in system.journal.decisions()]
        system.explain(names[1], **HOW)
        before = system.journal.explanations(names[1])
        found = system.explain_many(workers=2, **HOW)
        assert names[1] in found.known and set(found.explained) == set(names) - {names[1]}
        assert system.journal.explanations(names[1]) == before
    assert stored(path) == one_by_one


def test_as_a_user_types_it(tmp_path):
    path = tmp_path / "j.sqlite"
    run(path)
    done = invoke("explain", "--all", "-j", path, "--rows", "400", "--no-tipping", "--json")
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert len(told["explained"]) == len(stored(path)) and told["failed"] == {}
    again = invoke("explain", "--all", "-j", path)
    assert again.exit_code == 0 and f"explained 0 decisions; {len(told['explained'])} had been before" in again.stdout
    for wrong in (["explain", "-j", path], ["explain", "last", "--all", "-j", path],
                  ["explain", "--all", "-j", path, "--workers", "many"]):  # fmt: skip
        done = invoke(*wrong)
        assert done.exit_code in (1, 2), wrong
        assert sum(line.startswith(("error:", "failed:")) for line in done.stderr.splitlines()) == 1, done.output


def test_bad_input_is_one_clear_error(tmp_path):
    with System(small(), "sjf", queue="empty") as system:
        with pytest.raises(JournalError, match="no worker can read it"):
            system.explain_many(workers=2)
        with pytest.raises(JournalError):
            system.explain_many(["d999999"])
        with pytest.raises(ExplanationError, match="does not exist"):
            system.explain_many(row=3)
    with System(small(), "sjf", queue="empty", journal=tmp_path / "j") as system:
        for workers in (0, "many", 1.5, True):
            with pytest.raises(SettingsError, match="workers"):
                system.explain_many(workers=workers)
