"""Files appear whole or not at all, and every mistake is one clear error."""

import json

import pytest

from attribution_sched import System
from attribution_sched.errors import SettingsError
from attribution_sched.report import write
from attribution_sched.report.source import STEPS
from attribution_sched.report.write import plain
from tests.report.runs import RIVALS, alone, empty, report
from tests.small_world import small


def there(folder):
    return sorted(path.name for path in folder.iterdir())


def test_the_ending_decides(tmp_path):
    made = [alone().report(tmp_path / f"r{ending}", explain=0, rivals=()) for ending in (".html", ".json", ".md")]
    texts = [path.read_text(encoding="utf-8") for path in made]
    assert texts[0].startswith("<!DOCTYPE html>")
    assert json.loads(texts[1])["run"]["preset"] == "testbed"
    assert texts[2].startswith("# What sjf decided on testbed")
    assert there(tmp_path) == ["r.html", "r.json", "r.md"]


def test_json_is_what_was_gathered(tmp_path):
    path = alone().report(tmp_path / "r.json", explain=2, rivals=RIVALS)
    found, known = json.loads(path.read_text(encoding="utf-8")), report("alone")
    assert found["run"] == plain(known.run)
    assert found["energy"] == plain(known.energy)
    told = [one["figures"]["earned"] for one in found["rivals"]["contenders"]]
    assert told == [plain(one.figures["earned"]) for one in known.rivals.contenders]


@pytest.mark.parametrize(
    ("path", "given", "words"),
    [
        ("r.pdf", {}, "Use .html, .json or .md"),
        ("r", {}, "ending ''"),
        ("nowhere/r.html", {}, "does not exist"),
        ("folder.html", {}, "is a folder"),
        ("r.html", {"lang": "de"}, "lang = 'de'"),
        ("r.html", {"explain": -1}, "explain = -1"),
        ("r.html", {"explain": True}, "explain = True"),
        ("r.html", {"rivals": "greedy"}, "rivals = 'greedy'"),
        ("r.html", {"rivals": ["gredy"]}, "Did you mean 'greedy'"),
    ],
)
def test_mistakes_write_nothing(tmp_path, path, given, words):
    (tmp_path / "folder.html").mkdir()
    with pytest.raises(SettingsError, match=None) as error:
        empty().report(tmp_path / path, **given)
    assert words in str(error.value)
    assert there(tmp_path) == ["folder.html"]


def test_no_path_at_all():
    with pytest.raises(SettingsError, match="is no path"):
        empty().report(None)


def test_a_failure_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "r.html"
    path.write_text("old", encoding="utf-8")

    def breaks(report, lang):
        raise RuntimeError("drawing failed")

    monkeypatch.setitem(write.WRITERS, ".html", breaks)
    with pytest.raises(RuntimeError):
        empty().report(path)
    assert path.read_text(encoding="utf-8") == "old"
    assert there(tmp_path) == ["r.html"]


def test_a_full_disk_is_one_clear_error(tmp_path, monkeypatch):
    def full(self, *given, **named):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(write.Path, "write_text", full)
    with pytest.raises(SettingsError, match="No space left on device"):
        empty().report(tmp_path / "r.md")
    assert there(tmp_path) == []


def test_progress_names_every_step_in_order(tmp_path):
    told = []
    empty().report(tmp_path / "r.md", progress=lambda *step: told.append(step))
    assert told == [(name, at, len(STEPS)) for at, name in enumerate(STEPS)]


def test_a_resumed_journal_gives_the_same_report(tmp_path):
    with System(small(), "sjf", seed=4, journal=tmp_path / "run.db") as system:
        system.run(4)
        first = json.loads(system.report(tmp_path / "a.json", explain=0, rivals=()).read_text(encoding="utf-8"))
    with System.resume(tmp_path / "run.db") as system:
        again = json.loads(system.report(tmp_path / "b.json", explain=0, rivals=()).read_text(encoding="utf-8"))
        system.run(1)
        later = json.loads(system.report(tmp_path / "c.json", explain=0, rivals=()).read_text(encoding="utf-8"))
    assert again == first
    assert first["run"]["resumed"] == 0
    assert later["run"]["resumed"] == 1, "it was resumed, and went on"
    assert first["run"]["journal"] == "run.db"
    assert len(first["run"]["fingerprint"]) == 12
