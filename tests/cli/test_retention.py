"""`attribution-sched archive`, `compact` and `doctor --verify`: journals that have grown, and are they whole?"""

import json
import re
from dataclasses import replace

import numpy as np
import pytest

from attribution_sched import System
from attribution_sched.cli.files import find_decision
from attribution_sched.cluster.live import SimulatedCluster
from attribution_sched.errors import JournalError
from attribution_sched.journal import Journal, OutcomeRecord
from benchmarks.campaign_journal import build, edit
from tests.small_world import small

from .helpers import invoke, refused


@pytest.fixture
def grown(here):
    path = here / "day.sqlite"
    build(path, 40)
    with Journal.open(path) as journal:
        (last,) = journal.pending()
        journal.record_outcome(OutcomeRecord(last.id, 0.1, 0.2, 0.3, 0.4, 1.5, 0.0, 1e4, 1, "simulated"))
        journal.record_snapshot(35, {"state": np.zeros(20_000)}, {})
    return path


def test_verify_says_that_a_journal_is_whole_and_what_its_hash_is(grown):
    with Journal.read(grown) as journal:
        told = journal.verify()
    done = invoke("doctor", "--verify", grown)
    assert done.exit_code == 0, done.stderr
    assert f"is whole: {told.rows} rows from position 0 on, newest hash {told.head}" in " ".join(done.stdout.split())
    as_json = json.loads(invoke("doctor", "--verify", grown, "--json").stdout)
    assert (as_json["whole"], as_json["rows"], as_json["head"]) == (True, told.rows, told.head)


def test_verify_names_the_row_that_was_changed(grown):
    edit(grown, "UPDATE decisions SET slot = 2 WHERE sequence = 4")
    refused(invoke("doctor", "--verify", grown), "decisions[4]", "its digest does not fit")
    refused(invoke("doctor", "--verify", "none.sqlite"), "none.sqlite", "does not exist")


def test_archive_and_compact(grown, here):
    done = invoke("archive", "-j", grown, "-o", "old.sqlite", "--before", 35)
    assert done.exit_code == 0, done.stderr
    assert re.search("decisions 0 to 34 are in old.sqlite, up to [0-9a-f]{64}", " ".join(done.stdout.split()))
    assert "Earlier rows are in old.sqlite" in invoke("doctor", "--verify", grown).stdout
    assert "is whole" in invoke("doctor", "--verify", "old.sqlite").stdout
    size = grown.stat().st_size
    told = json.loads(invoke("compact", "-j", grown, "--json").stdout)
    assert told["bytes_before"] >= size > told["bytes_after"] == grown.stat().st_size
    assert "bytes before" in invoke("compact", "-j", grown).stdout
    with Journal.read(grown) as journal:
        assert journal.first() == 35
        journal.verify()
        for wanted in ("3", "d000003"):  # By its number as by its id.
            with pytest.raises(JournalError, match=r"archived to old\.sqlite"):
                find_decision(journal, wanted)
        with pytest.raises(JournalError, match="'²'"):  # A digit that is no number.
            find_decision(journal, "²")
    refused(invoke("archive", "-j", grown, "-o", "more.sqlite", "--before", 35), "before = 35", "decisions 35 to 39")
    refused(invoke("archive", "-j", "none.sqlite", "-o", "more.sqlite"), "none.sqlite", "does not exist")


def test_verify_lives_through_the_journal_of_a_system(tmp_path, monkeypatch):
    path = tmp_path / "run.journal"
    with System(small(), "sjf", seed=2, journal=path) as system:
        system.submit("resnet-50", steps=700)
        system.run(4)
    assert "every decision comes out as recorded" in " ".join(invoke("doctor", "--verify", path).stdout.split())
    effect = SimulatedCluster.effect
    monkeypatch.setattr(SimulatedCluster, "effect", lambda *given: replace(effect(*given), move_s=9.0))
    done = json.loads(invoke("doctor", "--verify", path, "--json").stdout)
    assert done["lived_through"]
    assert done["priced_otherwise"][0] == "d000000"
