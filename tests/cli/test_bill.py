"""``attribution-sched bill``."""

from __future__ import annotations

import csv
import json

import pytest
from typer.testing import CliRunner

from attribution_sched import System
from attribution_sched.cli.app import app


@pytest.fixture(scope="module")
def journal(tmp_path_factory):
    path = tmp_path_factory.mktemp("bill") / "journal.sqlite"
    with System("testbed", policy="sjf", journal=path, seed=2) as system:
        for _ in range(6):
            system.schedule_next_task()
    return path


def run(*words):
    return CliRunner().invoke(app, ["bill", *map(str, words)])


def test_lines_add_up_and_say_why(journal):
    found = run(journal, "--compare", "--device-price", "2")
    assert found.exit_code == 0, found.output
    for words in ("(unallocated)", "meter", "needed at the peak", "add up to the meters", "max-request-use", "23"):
        assert words in found.output


def test_json_and_focus(journal, tmp_path):
    found = run(journal, "--json", "--electricity-price", "0.2", "-o", tmp_path / "focus.csv")
    told = json.loads(found.stdout)
    assert told["gap"] <= 1e-9 and told["exact"]
    rows = list(csv.DictReader((tmp_path / "focus.csv").read_text().splitlines()))
    assert len(rows) == len(told["lines"])


def test_words_are_chinese_too(journal):
    assert "峰值所需" in run(journal, "--lang", "zh").output


def test_a_payer_sees_no_other_names(journal):
    names = {row["tenant"] for row in json.loads(run(journal, "--json").stdout)["lines"]} - {"(unallocated)"}
    one, *others = sorted(names)
    seen = run(journal, "--payer", one).output
    assert "(others)" in seen and not any(other in seen for other in others)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--rule", "shapely"), "Did you mean 'shapley'"),
        (("--by", "user"), "by = 'user'"),
        (("--carbon-price", "-1"), "carbon_usd_per_kg = -1"),
        (("--electricity-price", "-1"), "--electricity-price = -1"),
        (("--payer", "nobody"), "has no line"),
        (("-o", "bill.xlsx"), "must end in .csv or .json"),
    ],
)
def test_bad_input_is_one_line(journal, words, told):
    found = run(journal, *words)
    assert found.exit_code == 2 and told in found.output.replace("\n", " ")
