"""The README: its Python runs as printed, its table is what the results pages say, its picture is there."""

from __future__ import annotations

import re
import struct

import pytest

from tests.docs_text import ROOT, blocks, script

README = (ROOT / "README.md").read_text("utf-8")
BLOCKS = blocks(ROOT / "README.md")


@pytest.mark.parametrize("block", BLOCKS, ids=[block.where for block in BLOCKS])
def test_the_python_of_the_readme_runs(block, capsys):
    exec(compile(block.code, block.where, "exec"), {})
    assert capsys.readouterr().out.strip()


def test_the_four_answers_are_those_that_are_printed(capsys):
    block = next(block for block in BLOCKS if "system.why(task)" in block.code)
    exec(compile(block.code, block.where, "exec"), {})
    shown = README.split("```text\n", 1)[1].split("```", 1)[0]
    assert capsys.readouterr().out.split() == shown.split()


def test_there_are_blocks_and_all_run():
    assert len(BLOCKS) >= 2
    assert not [block.where for block in BLOCKS if block.unrun]


def test_the_readme_is_short():
    assert README.count("\n") <= 140


def test_the_table_is_what_the_results_pages_say():
    results = script("benchmarks/write_readme_results.py")
    assert results.written(README) == README, "run: python benchmarks/write_readme_results.py"


def test_the_table_has_figures_commands_and_misses():
    results = script("benchmarks/write_readme_results.py")
    assert len(results.ROWS) >= 9
    for row in results.ROWS:
        assert re.search(r"\d", row.line((ROOT / "docs" / row.page).read_text("utf-8")))
        for path in re.findall(r"benchmarks/\w+\.py", row.command):
            assert (ROOT / path).is_file()
    assert "missed" in results.table()


def test_the_table_follows_the_pages():
    results = script("benchmarks/write_readme_results.py")
    row = next(row for row in results.ROWS if "measured_steps" in row.command)
    page = (ROOT / "docs" / row.page).read_text("utf-8")
    figure = re.search(r"^time: mean error ([\d.]+)%", page, re.MULTILINE)[1]
    changed = page.replace(f"time: mean error {figure}%", "time: mean error 77.7%")
    assert "77.7 %" in row.line(changed)
    assert "77.7 %" not in row.line(page)
    with pytest.raises(LookupError, match=r"results_world\.md.*adapt the row"):
        row.line(page.replace("time: mean error", "time, mean error"))


def test_a_readme_without_markers_is_refused():
    results = script("benchmarks/write_readme_results.py")
    with pytest.raises(LookupError, match="once each"):
        results.written("# nothing")


def test_the_picture_is_small_and_wide():
    assert "docs/images/front.png" in README
    data = (ROOT / "docs" / "images" / "front.png").read_bytes()
    width, height = struct.unpack(">II", data[16:24])
    assert len(data) < 300_000
    assert width > 2 * height > 600
