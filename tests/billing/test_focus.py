"""Export of bills under FOCUS's column names."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace

import pytest

from attribution_sched.billing.bill import make_bill
from attribution_sched.billing.focus import COLUMNS, focus_csv, focus_json
from tests.billing.usages import random_usage


def test_every_line_is_a_row_and_sums_stay():
    bill = make_bill(random_usage(3))
    rows = list(csv.DictReader(io.StringIO(focus_csv(bill, "acct"))))
    assert tuple(rows[0]) == COLUMNS
    energy = sum(float(row["ConsumedQuantity"]) for row in rows if row["ServiceName"] == "energy")
    assert energy == pytest.approx(bill.meter["energy"], rel=1e-9)
    assert json.loads(focus_json(bill, "acct"))[0]["BillingAccountId"] == "acct"


def test_a_name_is_never_a_formula():
    usage = random_usage(3)
    tasks = tuple(replace(task, tenant="=HYPERLINK(1)") for task in usage.tasks)
    text = focus_csv(make_bill(replace(usage, tasks=tasks)), "acct")
    assert "=HYPERLINK" in text and ",=HYPERLINK" not in text
