"""Files: what is not a whole journal is refused with one clear error and left untouched."""

import random
import shutil
import sqlite3

import pytest

from attribution_sched.errors import JournalError
from attribution_sched.journal import Journal, JournalHeader, file
from benchmarks.campaign_journal import edit
from tests.journal.journal_records import HEADER, fill, killed


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "run.journal"
    with Journal.create(path, HEADER) as journal, journal.batch():
        fill(journal, 60)
    return path


def refused(path, words):
    """Neither reading nor writing accepts the file, and neither changes it or leaves a lock."""
    before = path.read_bytes()
    for attempt in (Journal.open, Journal.read):
        with pytest.raises(JournalError, match=words):
            attempt(path)
    assert path.read_bytes() == before
    assert not path.with_name(path.name + ".lock").exists()


@pytest.mark.parametrize(
    "content", [b"hello", b"x" * 5000, bytes(4096), b"SQLite format 3\x00", b"SQLite format 3\x00" + bytes(84)]
)
def test_what_is_no_database(tmp_path, content):
    path = tmp_path / "x"
    path.write_bytes(content)
    refused(path, "is damaged .file is not a database.")


def test_an_empty_file(tmp_path):
    path = tmp_path / "x"
    path.touch()
    refused(path, "is not a journal but a file of another application. Give the path of a journal")


@pytest.mark.parametrize("mode", ["WAL", "DELETE"])
def test_a_database_of_others(tmp_path, mode):
    path = tmp_path / "x.db"
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA journal_mode = {mode}")
    connection.execute("CREATE TABLE decisions (sequence INTEGER)")
    connection.close()
    refused(path, "is not a journal but a file of another application")


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.999])
def test_a_file_cut_off(path, share):
    with path.open("r+b") as file:
        file.truncate(int(path.stat().st_size * share))
    refused(path, "is damaged")


def test_holes_in_a_file(path):
    """Overwrite pages at random: found at once by a writer, and by a reader at the latest when it gets there."""
    whole = path.read_bytes()
    chance = random.Random(5)
    for _ in range(12):
        page = chance.randrange(1, len(whole) // 4096)
        path.write_bytes(whole[: page * 4096] + chance.randbytes(4096) + whole[(page + 1) * 4096 :])
        before = path.read_bytes()
        with pytest.raises(JournalError, match="is damaged"):
            Journal.open(path)
        assert path.read_bytes() == before


def test_a_page_that_breaks_while_it_is_open(path):
    with Journal.read(path) as journal:
        page = journal.row("SELECT rootpage FROM sqlite_master WHERE name = 'decisions'")[0]
    whole = path.read_bytes()
    path.write_bytes(whole[: (page - 1) * 4096] + b"\xff" * 4096 + whole[page * 4096 :])
    with pytest.raises(JournalError, match="is damaged"), Journal.read(path) as journal:
        list(journal.decisions())


@pytest.mark.parametrize(
    ("statements", "words"),
    [
        (("DELETE FROM header",), "has no header"),
        (("UPDATE header SET settings = '{'",), r"header\[cross-domain-easy\].settings = '{': is not JSON"),
        (("UPDATE header SET preset = 'other'",), r"header\[other\] = .*its digest does not fit"),
        (("DROP INDEX waits_after_decisions",), "has no index waits_after_decisions as it was made"),
        (("CREATE TRIGGER mine AFTER INSERT ON tasks BEGIN SELECT 1; END",), "has a trigger of others .mine."),
        (("DROP TABLE header",), "has no table header"),
        (("DROP TABLE events",), "has no table events"),
        (("ALTER TABLE decisions DROP COLUMN slot",), "has no table decisions as it was made"),
        (("DELETE FROM decisions WHERE sequence = 7",), "has 59 decisions numbered 0 to 59: some are missing"),
    ],
)
def test_parts_that_are_missing(path, statements, words):
    if statements[0].startswith(("DELETE", "UPDATE")):
        edit(path, *statements)
    else:
        connection = sqlite3.connect(path)
        for statement in statements:
            connection.execute(statement)
        connection.close()
    refused(path, words)


def test_a_journal_whose_guards_were_taken_out_is_refused(path):
    connection = sqlite3.connect(path)
    connection.execute("DROP TRIGGER decisions_no_update")
    connection.close()
    refused(path, "has no trigger decisions_no_update as it was made")


def test_a_damaged_text_is_named(path):
    edit(path, "UPDATE decisions SET action = '[[1,' WHERE sequence = 3")
    with Journal.read(path) as journal:
        assert len(list(journal.decisions(0, 3))) == 3
        with pytest.raises(JournalError, match=r"decisions\[3\].action = '\[\[1,': is not JSON"):
            journal.decision("d000003")


def test_paths_that_cannot_be(tmp_path, path):
    for given, words in (
        (tmp_path / "run.jurnal", "does not exist. Did you mean 'run.journal'"),
        (tmp_path / "nowhere" / "zzz", "does not exist. attribution-sched run writes one"),
        (tmp_path, "is not a file"),
        ("a\0b", "is no path"),
        (None, "is no path"),
    ):
        with pytest.raises(JournalError, match=words):
            Journal.open(given)
    with pytest.raises(JournalError, match=r"is there already. Go on with it by System.resume"):
        Journal.create(path, HEADER)
    with pytest.raises(JournalError, match="folder that exists"):
        Journal.create(tmp_path / "nowhere" / "run.journal", HEADER)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["run.journal"]


@pytest.mark.parametrize("name", ["what? 100%.db", "#1&mode=memory", "日记 é", ":memory:", "file:x?mode=ro"])
def test_odd_names(tmp_path, name):
    with Journal.create(tmp_path / name, HEADER) as journal:
        fill(journal, 1)
    with Journal.open(tmp_path / name) as journal, Journal.read(str(tmp_path / name)) as reader:
        assert journal.count() == reader.count() == 1
    assert name in {file.name for file in tmp_path.iterdir()}


@pytest.mark.parametrize(
    ("header", "words"),
    [
        (JournalHeader("", "p", {}, {}, "0"), "header.preset = '': must be a word"),
        (JournalHeader("a", "p", {"x": float("nan")}, {}, "0"), "header.settings"),
        (JournalHeader("a", "p", {}, {"cluster": 0.5}, "0"), "header.seeds.cluster = 0.5: must be a whole number"),
    ],
)
def test_a_wrong_header_makes_no_file(tmp_path, header, words):
    with pytest.raises(JournalError, match=words):
        Journal.create(tmp_path / "run.journal", header)
    assert list(tmp_path.iterdir()) == []


def test_making_a_journal_is_all_or_nothing(tmp_path, monkeypatch):
    path = tmp_path / "run.journal"

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(file, "sync", fail)
    with pytest.raises(JournalError, match=r"cannot be made .*No space left"):
        Journal.create(path, HEADER)
    assert list(tmp_path.iterdir()) == []
    monkeypatch.undo()
    # What a process killed meanwhile left behind is no obstacle.
    (tmp_path / f".run.journal.{2**22 + 1}.new").write_bytes(b"half")
    (tmp_path / f".run.journal.{2**22 + 1}.new-journal").write_bytes(b"half")
    with Journal.create(path, HEADER) as journal:
        fill(journal, 1)
    assert list(tmp_path.iterdir()) == [path]


def test_the_log_of_a_removed_journal_is_not_taken_for_the_new_ones(tmp_path, path):
    with Journal.open(path) as journal:
        fill(journal, 3)
        copy = killed(path, tmp_path / "copy")
    copy.unlink()
    with pytest.raises(JournalError, match=r"run.journal-wal': is there already"):
        Journal.create(copy, HEADER)
    copy.with_name("run.journal-wal").write_bytes(b"")
    Journal.create(copy, HEADER).close()


def test_a_log_torn_anywhere_leaves_all_decisions_up_to_some_point(tmp_path):
    """Cut the write-ahead log at random, or spoil its end: what is left is a prefix, whole and without doubles."""
    path = tmp_path / "run.journal"
    chance = random.Random(11)
    with Journal.create(path, HEADER) as journal:
        log, sizes = path.with_name("run.journal-wal"), []
        for _ in range(40):
            fill(journal, 1)
            sizes.append(log.stat().st_size)
        copy = killed(path, tmp_path / "copy")
    whole = copy.with_name("run.journal-wal").read_bytes()
    assert len(whole) == sizes[-1]
    for attempt in range(40):
        cut = chance.randrange(len(whole) + 1)
        torn = shutil.copy(copy, tmp_path / f"torn{attempt}")
        spoilt = chance.randbytes(chance.randrange(5000)) if attempt % 2 else b""
        torn.with_name(torn.name + "-wal").write_bytes(whole[:cut] + spoilt)
        with Journal.open(torn) as journal:
            count = journal.count()
            # Complete before the cut: there. A decision's outcome comes after it and may be lost alone.
            assert sum(size <= cut for size in sizes) <= count <= sum(size <= cut for size in sizes) + 1
            assert [each.id for each in journal.decisions()] == [f"d{n:06d}" for n in range(count)]
            assert len(journal.pending()) <= 1
            assert len(list(journal.tasks())) == count
            fill(journal, 2)
            assert journal.count() == count + 2


@pytest.mark.parametrize("version", [4, 99, -1])
def test_a_newer_journal_is_refused_and_left_alone(path, version):
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {version}")
    connection.close()
    refused(path, f"has schema version {version}, this package needs 3. Upgrade the package")
