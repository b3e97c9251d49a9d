"""`attribution-sched report`: the report of a journal."""

import hashlib
import json

import pytest

from .helpers import invoke, refused


def test_a_report_is_written_from_a_journal_that_is_only_read(written, here):
    before = hashlib.sha256(written.read_bytes()).hexdigest()
    done = invoke("report", "--journal", written, "-o", "r.html", "--explain", "1", "--json")
    assert done.exit_code == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["path"] == "r.html"
    assert told["bytes"] == (here / "r.html").stat().st_size
    assert "testbed" in (here / "r.html").read_text(encoding="utf-8")
    assert hashlib.sha256(written.read_bytes()).hexdigest() == before


def test_the_ending_decides_the_form(written, here):
    done = invoke("report", "-j", written, "-o", "r.md", "--lang", "zh", "--explain", "0")
    assert done.exit_code == 0, done.stderr
    assert done.stdout == "r.md\n"
    assert any("\u4e00" <= letter <= "\u9fff" for letter in (here / "r.md").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("-o", "r.pdf"), ("--output = 'r.pdf'", ".html")),
        (("-o", "no/r.html"), ("mkdir -p no",)),
        (("--lang", "fr"), ("lang = 'fr'",)),
        (("--explain", "-1"), ("--explain = -1", "from 0 to 50")),
        (("--explain", "500"), ("--explain = 500", "from 0 to 50")),
    ],
)
def test_a_mistake_is_one_line_and_code_2(written, here, arguments, words):
    refused(invoke("report", "-j", written, *arguments), *words)
    assert list(here.iterdir()) == []
