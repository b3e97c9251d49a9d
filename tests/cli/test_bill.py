"""``attribution-sched bill``."""

from __future__ import annotations

import csv
import gzip
import json

import pytest
from typer.testing import CliRunner

from attribution_sched import System
from attribution_sched.billing.games import EXACT_LIMIT
from attribution_sched.cli.app import app
from tests.docs_text import ROOT
from tests.small_world import small


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
    seen = run(journal, "--lang", "zh", "--device-price", "2").stdout
    assert all(words in seen for words in ("峰值所需", "能耗 (J)", "计量值", "未分摊", "次日"))
    assert not any(words in seen for words in ("energy", "meter", "unallocated", "per device-hour"))


def test_a_payer_sees_no_other_names(journal):
    names = {row["tenant"] for row in json.loads(run(journal, "--json").stdout)["lines"]} - {"(unallocated)"}
    one, *others = sorted(names)
    seen = run(journal, "--payer", one, "--compare").output
    assert "everybody else together" in seen and not any(other in seen for other in others)
    assert "max-request-use" in seen and "(others)" in seen  # the rules are compared, too


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--rule", "shapely"), "Did you mean 'shapley'"),
        (("--by", "user"), "by = 'user'"),
        (("--carbon-price", "-1"), "carbon_usd_per_kg = -1"),
        (("--electricity-price", "-1"), "electricity_usd_per_kwh = -1"),
        (("--electricity-price", "nan"), "electricity_usd_per_kwh = nan"),
        (("--payer", "nobody"), "has no line"),
        (("-o", "bill.xlsx"), "must end in .csv or .json"),
    ],
)
def test_bad_input_is_one_line(journal, words, told):
    found = run(journal, *words)
    assert found.exit_code == 2 and told in found.output.replace("\n", " ")


def test_a_journal_of_an_older_schema_is_named_with_what_to_do(tmp_path):
    path = tmp_path / "old.sqlite"
    path.write_bytes(gzip.decompress((ROOT / "tests" / "journal" / "journal_0_1.sqlite.gz").read_bytes()))
    found = run(path)
    told = found.output.replace("\n", " ")
    assert found.exit_code == 2 and "schema version 2" in told and "calibration/convert_journal.py" in told


def test_more_tenants_than_can_be_exact_are_sampled_and_told_so(tmp_path):
    path = tmp_path / "many.sqlite"
    with System(small(), "sjf", queue="empty", journal=path, seed=2) as system:
        for at in range(EXACT_LIMIT + 2):
            system.submit("bert-base", steps=60, tenant=f"tenant-{at:02d}")
        system.run(until="empty")
    told = json.loads(run(path, "--json").stdout)
    assert not told["exact"] and told["gap"] <= 1e-9
    assert "Shares of capacity are sampled" in run(path).output.replace("\n", " ")


def test_joules_stand_by_operator_in_both_languages_and_as_json(journal):
    assert "What the joules above idle power went into" in run(journal).output.replace("\n", " ")
    assert "卷积" in run(journal, "--lang", "zh").output
    told = json.loads(run(journal, "--json").stdout)
    own = sum(line["own"] for line in told["lines"] if line["part"] == "energy")
    assert sum(part["energy_j"] for part in told["operators"]) == pytest.approx(own)


def test_a_bill_of_a_moment_says_that_nothing_was_used_yet(tmp_path):
    path = tmp_path / "moment.sqlite"
    with System("testbed", "sjf", queue="demo", journal=path) as system:
        system.schedule_next_task()
    assert "No time has passed" in run(path).output and "尚无用量" in run(path, "--lang", "zh").output


def test_grams_of_a_grid_that_nobody_gave_are_named(journal):
    seen = run(journal).output
    assert "carbon (g)" not in seen and "No carbon intensity is known of node-0" in seen
