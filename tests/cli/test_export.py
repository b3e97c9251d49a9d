"""`attribution-sched export`: a journal for other tools."""

import json

import pandas as pd
import pytest

from attribution_sched.journal import Journal

from .helpers import invoke, refused


@pytest.mark.parametrize("ending", ["parquet", "csv", "json", "jsonl"])
def test_every_format_has_every_decision(written, here, ending):
    done = invoke("export", "--journal", written, "-o", f"out.{ending}")
    assert done.exit_code == 0, done.stderr
    assert done.stdout == f"out.{ending}\n"
    with Journal.read(written) as journal:
        ids = [each.id for each in journal.decisions()]
    path = here / f"out.{ending}"
    if ending == "json":
        found = [each["id"] for each in json.loads(path.read_text())["decisions"]]
    elif ending == "jsonl":
        found = [json.loads(line)["id"] for line in path.read_text().splitlines()]
    else:
        found = (pd.read_parquet if ending == "parquet" else pd.read_csv)(path)["decision_id"].tolist()
    assert found == ids


def test_json_tells_what_was_written(written, here):
    done = invoke("export", "-j", written, "-o", "out.csv", "--json")
    told = json.loads(done.stdout)
    assert told["path"] == "out.csv"
    assert told["bytes"] == (here / "out.csv").stat().st_size
    with Journal.read(written) as journal:
        assert told["decisions"] == journal.count()


def test_a_mistake_is_one_line_and_code_2(written, here):
    refused(invoke("export", "-j", written, "-o", "out.xlsx"), "out.xlsx", ".csv")
    refused(invoke("export", "-j", "none.sqlite", "-o", "out.csv"), "none.sqlite", "does not exist")
    refused(invoke("export", "-j", written, "-o", "no/out.csv"), "no/out.csv", "cannot be written")
    assert list(here.iterdir()) == []
