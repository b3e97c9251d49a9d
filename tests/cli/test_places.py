"""Where a run writes."""

from pathlib import Path

import pytest

from attribution_sched.cli import places
from attribution_sched.errors import SettingsError


def test_a_folder_of_its_own_is_never_one_that_is_there(here):
    first, second = (places.make("short", 3, None, None) for _ in range(2))
    assert first.folder == Path("runs/short-3-1")
    assert second.folder == Path("runs/short-3-2")
    assert first.journal == Path("runs/short-3-1/journal.sqlite")
    assert first.report == Path("runs/short-3-1/report.html")
    assert first.folder.is_dir()


def test_what_the_user_names_needs_no_folder(here):
    found = places.make("short", 3, Path("a.sqlite"), None)
    assert (found.journal, found.report, found.folder) == (Path("a.sqlite"), Path("a.html"), None)
    assert list(here.iterdir()) == []
    Path("a.html").touch()
    assert places.make("short", 3, Path("a.sqlite"), None).report == Path("a-2.html")


def test_an_empty_folder_is_taken_away_again_and_a_full_one_is_kept(here):
    found = places.make("short", 3, None, None)
    found.discard()
    assert list(here.iterdir()) == []
    found = places.make("short", 3, None, None)
    found.journal.touch()
    found.discard()
    assert found.journal.exists()


def test_a_file_where_the_folder_should_be_is_said(here):
    Path("runs").touch()
    with pytest.raises(SettingsError, match="'runs'"):
        places.make("short", 3, None, None)


@pytest.mark.parametrize(
    ("journal", "report", "words"),
    [
        ("old.sqlite", None, "is there already"),
        (None, "old.html", "is there already"),
        ("no/where.sqlite", None, "mkdir -p no"),
        (None, "report.pdf", "must end in .html, .json, .md"),
    ],
)
def test_paths_are_looked_at_first(here, journal, report, words):
    for name in ("old.sqlite", "old.html"):
        Path(name).touch()
    with pytest.raises(SettingsError) as caught:
        places.check(journal and Path(journal), report and Path(report))
    assert words in str(caught.value)
