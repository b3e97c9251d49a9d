"""A bill for other people's tools: FOCUS columns (the FinOps Foundation's open billing format, 1.2) as CSV or JSON.

Only columns that a cluster of one's own can fill are written. Names of payers and tasks are somebody's words: a cell
that a spreadsheet would take for a formula is written with an apostrophe before it, as journals are exported.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from attribution_sched.billing.bill import NOBODY, PARTS, Bill
from attribution_sched.words.text import csv_text

COLUMNS: tuple[str, ...] = (
    "BilledCost", "EffectiveCost", "BillingAccountId", "BillingCurrency", "BillingPeriodStart", "BillingPeriodEnd",
    "ChargeCategory", "ChargeDescription", "ChargePeriodStart", "ChargePeriodEnd", "ConsumedQuantity", "ConsumedUnit",
    "ProviderName", "ServiceCategory", "ServiceName", "SubAccountId", "SkuId", "x_AllocationRule", "x_HalfWidth95",
    "x_Provenance",
)  # fmt: skip
"""In order; those that begin with ``x_`` are ours, as the format asks for."""


def focus_rows(bill: Bill, account: str, began: datetime | None = None) -> Iterator[dict[str, object]]:
    """Rows of a bill under FOCUS's names.

    Args:
        bill: The bill.
        account: Id of who runs the cluster, for example the journal's.
        began: What the cluster's clock read 0 at; the first second of 1970 by default, so that times are seconds.
    """
    zero = began or datetime(1970, 1, 1, tzinfo=UTC)
    start = zero + timedelta(seconds=bill.start_s)
    end = start + timedelta(hours=bill.hours)
    period = (start.isoformat(), end.isoformat())
    for row in bill.rows():
        payer = str(row[bill.by])
        yield dict(
            zip(
                COLUMNS,
                (
                    row["usd"] or 0.0, row["usd"] or 0.0, account, "USD", *period, "Usage",
                    f"{row['part']} by the rule {bill.rule}", *period, row["quantity"], PARTS[str(row["part"])],
                    "attribution_sched", "Compute", row["part"], "" if payer == NOBODY else payer,
                    f"{row['part']}/{bill.by}", bill.rule, row["half_width"], bill.provenance,
                ),
                strict=True,
            )
        )  # fmt: skip


def focus_csv(bill: Bill, account: str, began: datetime | None = None) -> str:
    """The rows as CSV; see :func:`focus_rows`."""
    out = io.StringIO()
    writer = csv.DictWriter(out, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for row in focus_rows(bill, account, began):
        writer.writerow({name: csv_text(value) if isinstance(value, str) else value for name, value in row.items()})
    return out.getvalue()


def focus_json(bill: Bill, account: str, began: datetime | None = None) -> str:
    """The rows as JSON; see :func:`focus_rows`."""
    return json.dumps(list(focus_rows(bill, account, began)), ensure_ascii=False, indent=1)
