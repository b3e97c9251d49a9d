"""How probable a given plan is: the choices that lead to it, asked again in many situations.

What may be chosen is what could be chosen at the decision itself; a situation changes what the choices look like (its
links, what is wanted, which domains are held) and what the network sees beside them. So a plan that was on offer has
a probability above 0 in every situation.

The local search may settle on a plan that no choices lead to: the masks leave out what takes longer for nothing, and
cuts that only another order of filling completes. Such a plan is judged by the nearest one that is on offer: the same
domains in the same order, each cut, layout, format and microbatch as close as the offer allows. Where not even these
domains can be filled in this order by choices on offer, a plan has no probability, and an error says so.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from attribution_sched.cluster.decision import Decisions
from attribution_sched.cluster.gpus import PRECISIONS
from attribution_sched.cluster.plan import Plan
from attribution_sched.cluster.world import BATCH_LEVELS
from attribution_sched.errors import ExplanationError, problem
from attribution_sched.planning.memory_feasibility import FORMATS, PlannerTables
from attribution_sched.scheduler.hi_ppo.action_masks import LARGEST, cut_choices, domain_choices, segment_choices
from attribution_sched.scheduler.hi_ppo.decode import UPPER, Choices, Planner, decode
from attribution_sched.scheduler.hi_ppo.evaluate import Seen, logits
from attribution_sched.scheduler.hi_ppo.features import State, wishes_of
from attribution_sched.scheduler.hi_ppo.network import HiPpoNetwork
from attribution_sched.scheduler.hi_ppo.partial_plans import D_DOMAIN, DONE, LAYOUT_CHOICE, PartialPlans
from attribution_sched.scheduler.ppo.policy import chosen, masked_log_softmax

FloatArray = NDArray[np.float64]
Float32Array = NDArray[np.float32]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

LAYOUT_WORTH, FORMAT_WORTH, LEVEL_WORTH = 12, 6, 4
"""Columns of the lower agents' choices that tell their worth: all that depends on a situation there."""


@dataclass(frozen=True, eq=False)
class Step:
    """One choice on the way to a plan.

    Attributes:
        head: Whose.
        offer: What was on offer at the decision itself, one row.
        taken: What was taken.
        drafts: The plan so far, one row.
        first: First layer of the segment, for choices of the lower agents.
        layout: Its layout, where it is chosen already.
        precision: Its format, where it is chosen already.
    """

    head: str
    offer: Choices
    taken: int
    drafts: PartialPlans
    first: int = -1
    layout: int = -1
    precision: int = -1


class _Looks(NamedTuple):
    """What choices look like in n situations, g of which differ in it.

    Attributes:
        links: Shape ``(g, 4, K, K)``.
        held: Shape ``(g, K)``.
        wishes: Shape ``(g, 3)``.
        at: Which of the g each situation has, shape ``(n,)``.
    """

    links: FloatArray
    held: BoolArray
    wishes: FloatArray
    at: IntArray


class Follower:
    """Leads a decode of one decision to (nearly) a given plan, and writes down its choices.

    Args:
        planner: The cluster.
        plan: Where to.
    """

    def __init__(self, planner: Planner, plan: Plan) -> None:
        self._tables = planner.tables
        self._nearest = Nearest(planner.tables, plan)
        self._segment: dict[str, int] = {}
        self._at = -1
        self.steps: list[Step] = []

    def task(self, state: State) -> IntArray:
        """The first candidate."""
        if not state.mask[0, 0]:
            rule = "cannot be placed at this decision, so no plan has a probability"
            raise ExplanationError(problem("task", 0, rule, "Explain None, which lets it wait"))
        return np.zeros(1, dtype=np.int64)

    def choose(self, head: str, offer: Choices, drafts: PartialPlans, rows: IntArray) -> IntArray:
        """What leads nearest to the plan."""
        if self._at != drafts.written[0]:
            self._at, self._segment = int(drafts.written[0]), {}
        wanted = self._nearest.choose(head, offer.mask[0], drafts)
        snapshot = drafts._replace(**{name: getattr(drafts, name).copy() for name in PartialPlans._fields})
        step = Step(head, offer, wanted, snapshot)
        if head not in UPPER:
            if "cut" not in self._segment:
                self._segment["cut"] = self._only_cut(snapshot, offer.domain)
            step = replace(
                step, first=self._segment["cut"], layout=self._segment.get("layout", -1),
                precision=self._segment.get("format", -1),
            )  # fmt: skip
        self._segment[head] = wanted
        self.steps.append(step)
        return np.array([wanted])

    def _only_cut(self, drafts: PartialPlans, domain: IntArray) -> int:
        """The first layer of a segment where there was no choice of it."""
        layers = self._tables.reach.shape[3] - 1
        mask = np.zeros((1, layers), dtype=np.bool_)
        out = np.zeros((1, layers, 9), dtype=np.float32)
        cut_choices(self._tables, drafts, np.zeros(1, dtype=np.int64), domain, mask, out)
        return int(mask[0].argmax())

    def check(self, drafts: PartialPlans) -> None:
        """Raise ``ExplanationError`` unless the decode ended in a plan over the same domains."""
        self._nearest.check(drafts.rows[0, : drafts.written[0]] if drafts.status[0] == DONE else None)


class Retracer:
    """Log-probabilities of plans for the first candidate of a decision.

    Args:
        planner: The cluster.
        decision: The decision itself, one row.
        plans: The plans; None does nothing.
        network: Who is asked.
    """

    def __init__(self, planner: Planner, decision: Decisions, plans: list[Plan | None], network: HiPpoNetwork) -> None:
        self._planner, self._network = planner, network
        self._wishes = wishes_of(planner.tables, decision)[0]
        self._fits = _fitting_kinds(planner, decision)
        self._paths: list[list[Step] | None] = []
        for plan in plans:
            if plan is None:
                self._paths.append(None)
                continue
            follower = Follower(planner, plan)
            follower.check(decode(planner, decision, follower).drafts)
            self._paths.append(follower.steps)

    def log_probability(self, situations: Decisions, seen: Seen) -> FloatArray:
        """Log-probabilities ``(n, plans)`` in situations that were seen with candidate 0 as the task."""
        n, q = situations.kind.shape
        allowed = np.ones((n, q + 1), dtype=np.bool_)
        allowed[:, :-1] = np.where(situations.kind >= 0, self._fits[situations.kind], False)
        scores = self._network.upper.task_logits(seen.shared, seen.each)
        tasks = masked_log_softmax(scores, torch.from_numpy(allowed).to(scores.device))
        wishes = wishes_of(self._planner.tables, situations)
        links, held = situations.links, np.ascontiguousarray(situations.held)
        # Choices look alike in neighbours that differ in something else.
        fresh = np.zeros(n, dtype=np.bool_)
        fresh[0] = True
        for given in (links, held, wishes):
            fresh[1:] |= (given[1:] != given[:-1]).any(axis=tuple(range(1, given.ndim)))
        looks = _Looks(links[fresh], held[fresh], wishes[fresh], np.cumsum(fresh) - 1)
        found = np.zeros((n, len(self._paths)))
        at = torch.arange(n, device=scores.device)
        for p, path in enumerate(self._paths):
            total = tasks[:, q if path is None else 0].double()
            for step in path or ():
                # Of a single choice nothing is left to say.
                if step.offer.mask.sum() > 1:
                    offer, taken = self._offer(step, looks)
                    mask = torch.from_numpy(offer.mask).to(scores.device)
                    said = masked_log_softmax(logits(self._network, step.head, seen, offer, at), mask)
                    total = total + chosen(said, torch.full_like(at, taken)).double()
            found[:, p] = total.cpu().numpy()
        return found

    def _offer(self, step: Step, looks: _Looks) -> tuple[Choices, int]:
        """The step's choices as they look in the situations, only those allowed at the decision, and the one taken."""
        n, one = len(looks.at), step.offer
        domain = np.repeat(one.domain, n)
        if step.head in UPPER:
            choices = self._upper(step, looks)
        elif (looks.wishes != self._wishes).any():
            choices = np.repeat(one.choices, len(looks.wishes), axis=0)
            self._tell_worth(step, looks.wishes, choices)
        else:
            choices = one.choices
        allowed = np.flatnonzero(one.mask[0])
        taken = int(np.searchsorted(allowed, step.taken))
        if step.head == "domain":
            # The network scores all domains, and the end, at once.
            allowed, taken = np.arange(one.mask.shape[1]), step.taken
        else:
            choices = np.ascontiguousarray(choices[:, allowed])
        if len(choices) > 1 or n == 1:
            choices = choices[looks.at]
        mask = np.repeat(one.mask[:, allowed], n, axis=0)
        return Choices(np.arange(n), choices, mask, np.repeat(one.context, n, axis=0), domain), taken

    def _upper(self, step: Step, looks: _Looks) -> Float32Array:
        """Choices of the upper agent as they look over other links, with other wishes."""
        t, n = self._planner.tables, len(looks.links)
        rows, one = np.arange(n), step.offer
        same = {name: np.repeat(getattr(step.drafts, name), n, axis=0) for name in PartialPlans._fields}
        arrays: dict[str, Any] = {**same, "links": looks.links, "held": looks.held, "wishes": looks.wishes}
        drafts = PartialPlans(**arrays)
        choices = np.zeros((n, *one.choices.shape[1:]), dtype=np.float32)
        ignored = np.zeros((n, one.mask.shape[1]), dtype=np.bool_)
        if step.head == "domain":
            domain_choices(t, drafts, rows, ignored, choices)
        else:
            cut_choices(t, drafts, rows, np.repeat(one.domain, n), ignored, choices)
        return choices

    def _tell_worth(self, step: Step, wishes: FloatArray, choices: Float32Array) -> None:
        """Write what the choices of a lower agent are worth by other wishes."""
        t, one = self._planner.tables, np.zeros(1, dtype=np.int64)
        n_layouts = len(t.sizes)
        allowed = np.zeros((1, n_layouts, FORMATS, BATCH_LEVELS), dtype=np.bool_)
        buffers = [np.zeros(allowed.shape, dtype=np.float32) for _ in range(2)]
        layouts = np.zeros((1, n_layouts, LAYOUT_CHOICE), dtype=np.float32)
        segment_choices(t, step.drafts, one, step.offer.domain, np.array([step.first]), allowed, layouts, *buffers)
        kind, stop = int(step.drafts.kind[0]), int(step.drafts.stop[0])
        c = t.domain_class[step.offer.domain[0]]
        flops = t.cost.sizes[kind, 8]
        work = (flops[stop] - flops[step.first]) / flops[t.cost.n_layers[kind]]
        may = allowed[0]
        time = np.where(may, t.whole_s[kind, c], 1.0) * work / t.base_step_s[kind]
        w_time, w_use, crowding = (wishes[:, i, None, None, None] for i in range(3))
        crowded = 1.0 + crowding * t.sizes[:, None, None]
        worth = np.maximum(-LARGEST, w_use * t.whole_use[kind, c] - w_time * time * crowded)
        worth = np.where(may, worth, -LARGEST)
        layout = step.layout if step.layout >= 0 else int(may.any(axis=(1, 2)).argmax())
        if step.head == "layout":
            best, some = worth.max(axis=(2, 3)), may.any(axis=(1, 2))
            told = np.maximum(-4.0, 8.0 * (best - best[:, some].max(axis=1, keepdims=True)))
            choices[:, :, LAYOUT_WORTH] = np.where(some, told, 0.0)
            return
        if step.head == "format":
            best, column = worth[:, layout].max(axis=2), FORMAT_WORTH
        else:
            precision = step.precision if step.precision >= 0 else int(may[layout].any(axis=1).argmax())
            best, column = worth[:, layout, precision], LEVEL_WORTH
        choices[:, :, column] = np.clip(8.0 * (best - best.max(axis=1, keepdims=True)), -4.0, 0.0)


def _fitting_kinds(planner: Planner, decision: Decisions) -> BoolArray:
    """Which kinds of tasks could be placed at a decision, shape ``(n_kinds,)``."""
    n = len(planner.task_features)
    listed = replace(
        decision, kind=np.arange(n)[None], slot=np.zeros((1, n), dtype=np.int64), left=np.ones((1, n)),
        waited_s=np.zeros((1, n)), attribution=np.zeros((1, n, 7), dtype=np.float32),
    )  # fmt: skip
    state, _ = planner.describe(listed)
    found: BoolArray = state.mask[0, :-1]
    return found


# ------ Which choice leads nearest to a given plan, where its own is not on offer

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

    def choose(self, head: str, mask: BoolArray, drafts: PartialPlans) -> int:
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
