"""Which choice leads nearest to a given plan, where its own is not on offer."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from attribution_sched.cluster.gpus import PRECISIONS
from attribution_sched.cluster.plan import Plan
from attribution_sched.errors import ExplanationError, problem
from attribution_sched.planning.memory_feasibility import PlannerTables
from attribution_sched.scheduler.hi_ppo.drafts import D_DOMAIN, Drafts

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

_BITS = np.log2([float(precision.element_bytes) for precision in PRECISIONS])
_FIX = "Ask for its terms and returns only, or explain a plan that the policy could have written"


class Nearest:
    """Choices towards a plan, from its last layer backwards.

    Args:
        tables: The cluster.
        plan: The plan.
    """

    def __init__(self, tables: PlannerTables, plan: Plan) -> None:
        self._tables = tables
        self._wanted = [
            (segment, replica.microbatch) for replica in plan.replicas for segment in reversed(replica.segments)
        ]

    def choose(self, head: str, mask: BoolArray, drafts: Drafts) -> int:
        """The choice on offer that is nearest to the plan's own.

        Args:
            head: What is chosen.
            mask: What is on offer.
            drafts: The plan so far, one row.

        Raises:
            ExplanationError: If the domain is not on offer, or the model cannot be begun (or cut) there.
        """
        written = int(drafts.written[0])
        if head == "domain":
            wanted = len(mask) - 1 if written == len(self._wanted) else self._wanted[written][0].domain
            if not mask[wanted]:
                what = "an end" if wanted == len(mask) - 1 else f"domain {wanted}"
                rule = f"the plan needs {what} after {written} segments, which is not on offer at this decision"
                raise ExplanationError(problem("plan", written, rule, _FIX))
            return wanted
        segment, microbatch = self._wanted[min(written, len(self._wanted) - 1)]
        t, kind = self._tables, int(drafts.kind[0])
        apart: FloatArray
        if head == "cut":
            # A cut where the plan has none, or none where it has one, would be another plan altogether.
            apart = np.abs(np.arange(len(mask)) - segment.first).astype(np.float64)
            mask = mask & ((np.arange(len(mask)) == 0) == (segment.first == 0))
            if not mask.any():
                rule = f"no segment of domain {segment.domain} can begin like it at this decision"
                raise ExplanationError(problem("plan's first layer", segment.first, rule, _FIX))
        elif head == "layout":
            own = np.log2([segment.dp, segment.tp, segment.pp])
            each = np.log2(t.layouts)
            apart = 100.0 * np.abs(each.sum(axis=1) - own.sum()) + np.abs(each - own).sum(axis=1)
        elif head == "format":
            apart = np.abs(_BITS - _BITS[segment.precision.index])
            apart[segment.precision.index] = -1.0
        else:
            apart = np.abs(np.log2(t.micro[kind]) - np.log2(microbatch))
        return int(np.where(mask, apart, np.inf).argmin())

    def check(self, rows: IntArray | None) -> None:
        """Raise ``ExplanationError`` unless a finished draft uses the plan's domains in the plan's order."""
        domains = [segment.domain for segment, _ in self._wanted]
        written = None if rows is None else [int(domain) for domain in rows[:, D_DOMAIN]]
        if written != domains:
            rule = f"choices towards it end with {written}"
            raise ExplanationError(problem("domains of the plan, last layer first", domains, rule, _FIX))
