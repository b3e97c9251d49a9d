"""``make bench-quick``: every results page has a figure that can be measured again, and one that is off is noticed."""

import re

import pytest

from tests.docs_text import ROOT, script

quick = script("benchmarks/quick.py")


def test_every_results_page_has_its_figure():
    pages = {path.name for path in (ROOT / "docs").glob("results_*.md")}
    assert {check.page for check in quick.CHECKS} == pages


@pytest.mark.parametrize("check", quick.CHECKS, ids=lambda check: check.page)
def test_the_published_figure_is_found_and_the_script_exists(check):
    assert quick.published(check) >= 0.0 and check.tolerance >= 0.0
    named = re.match(r"(benchmarks/\w+\.py)|-m ([\w.]+)", check.command)
    path = named[1] or named[2].replace(".", "/") + ".py"
    assert (ROOT / path).is_file() or (ROOT / path.removesuffix(".py")).is_dir()


def test_a_figure_that_moved_is_off(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["quick.py", "--only", "results_system"])
    check = next(check for check in quick.CHECKS if check.page == "results_system.md")
    for value, wrong in ((quick.published(check), 0), (quick.published(check) + 2 * check.tolerance, 1)):
        monkeypatch.setattr(quick, "run", lambda *_, value=value: (value, 1.0))
        assert quick.main() == wrong
        assert ("**off**" in capsys.readouterr().out) == bool(wrong)
