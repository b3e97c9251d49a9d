"""One decision as a search problem: where a task may go, how it may be laid out, what is to be minimised."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from attribution_sched.cluster.cost import BYTES_PER_GBIT, CostModel
from attribution_sched.cluster.decision import Decision
from attribution_sched.cluster.gpus import PRECISIONS, Precision
from attribution_sched.cluster.reward import rates
from attribution_sched.errors import PlanError, problem
from attribution_sched.planning.segment_table import Pricing, options, usable_options
from attribution_sched.types import BoolArray, FloatArray, IntArray

MAX_DOMAINS = 16
"""Most domains with free devices: the search grows as 2^K."""


@dataclass(frozen=True)
class Objective:
    """What is minimised per global batch, under a cap on the bill.

    ``J = time·step_s·(1 + queue_pressure·devices) − utilisation·U + dollar·bill_usd + joule·energy_j + gram·carbon_g``

    The default is the step time alone. :func:`reward_objective` gives minus the reward R, up to a constant.

    Attributes:
        time: Weight of a second.
        utilisation: Weight of the mean utilisation.
        dollar: Weight of a dollar of cross-domain traffic.
        joule: Weight of a joule.
        gram: Weight of a gram of CO2-equivalent.
        queue_pressure: What holding a device costs others, as a share of the time it is held.
        max_bill_usd: Plans with a larger bill are left out.
    """

    time: float = 1.0
    utilisation: float = 0.0
    dollar: float = 0.0
    joule: float = 0.0
    gram: float = 0.0
    queue_pressure: float = 0.0
    max_bill_usd: float = np.inf

    @property
    def time_and_bill_only(self) -> bool:
        """Whether faster is always better: neither utilisation, energy nor devices count."""
        return self.utilisation == self.joule == self.gram == self.queue_pressure == 0.0


@dataclass(frozen=True)
class Problem:
    """A task to place.

    Attributes:
        cost: Prices plans.
        model: Row of the task in the cost model.
        batch_size: Samples per step.
        microbatches: Microbatch sizes to choose from.
        free_devices: Devices per domain that may be used, shape ``(K,)``.
        bandwidth: WAN bytes per second, shape ``(K, K)``.
        latency_s: WAN one-way latency, shape ``(K, K)``.
        max_segments: Most domains a plan may use.
        objective: What is minimised.
        replicate: Whether the model may be replicated across domains.
    """

    cost: CostModel
    model: int
    batch_size: int
    microbatches: tuple[int, ...]
    free_devices: IntArray
    bandwidth: FloatArray
    latency_s: FloatArray
    max_segments: int
    objective: Objective = Objective()
    replicate: bool = True

    def __post_init__(self) -> None:
        k = len(self.cost.cluster)
        usable = int((self.free_devices > 0).sum())
        if usable > MAX_DOMAINS:
            fix = "Give candidates only, for instance those with the best links, and 0 free devices for the rest"
            raise PlanError(problem("domains with free devices", usable, f"must be at most {MAX_DOMAINS}", fix))
        if self.free_devices.shape != (k,) or not (self.free_devices > 0).any():
            rule = f"must give a count per domain ({k}), at least one of them above 0"
            fix = "Wait until devices are free, or add a domain with devices"
            raise PlanError(problem("free_devices", self.free_devices.tolist(), rule, fix))
        if self.max_segments < 1:
            raise PlanError(problem("max_segments", self.max_segments, "must be >= 1", "Allow one domain"))
        wrong = [m for m in self.microbatches if m < 1 or self.batch_size % m]
        if not self.microbatches or wrong:
            rule = f"must divide the batch of {self.batch_size}"
            raise PlanError(problem("microbatches", self.microbatches, rule, "Use divisors of the batch"))

    @property
    def n_layers(self) -> int:
        """Layers of the model."""
        return len(self.cost.models[self.model])

    def options(self, *, complete: bool = False) -> IntArray:
        """Layouts any domain could use, shape ``(O, 4)``: dp, tp, pp, precision.

        Args:
            complete: Include formats that another beats in a single pipeline.
        """
        node = max(domain.node_devices for domain in self.cost.cluster.domains)
        formats = [precision.index for precision in self.precisions(complete=complete)]
        return options(int(self.free_devices.max()), node, formats, self.n_layers, self.microbatches)

    def precisions(self, *, complete: bool = False) -> list[Precision]:
        """Formats worth trying: INT8 is for inference only, and what another format beats everywhere is left out.

        Where utilisation or energy count, slower may be better, so only a format that equals another is left out.
        """
        time_only = self.objective.time_and_bill_only and not complete
        training = self.cost.training[self.model]
        tables = self.cost.tables
        usable = [
            q for q in PRECISIONS
            if not (training and q is Precision.INT8) and any(g.supports(q) for g in self.cost.cluster.gpus)
        ]  # fmt: skip

        def beats(better: Precision, worse: Precision) -> bool:
            ours = np.diff(tables.times_s[self.model, :, better.index], axis=-1)
            theirs = np.diff(tables.times_s[self.model, :, worse.index], axis=-1)
            n, missing = self.n_layers, np.isnan(theirs)
            as_good = ours <= theirs if time_only else ours == theirs
            smaller = better.element_bytes <= worse.element_bytes
            return smaller and bool((missing | as_good)[..., :n].all())

        formats: list[Precision] = []
        for q in sorted(usable, key=lambda q: (q.element_bytes, q is not Precision.BF16)):
            if not any(beats(other, q) for other in formats):
                formats.append(q)
        return formats

    def allowed(self, table: IntArray) -> BoolArray:
        """Which options each domain has devices and hardware for, shape ``(K, O)``."""
        return usable_options(self.cost, self.free_devices, table)

    def pricing(self) -> Pricing:
        """The task as the compiled code wants it."""
        return Pricing.of(self.cost, self.model, self.bandwidth, self.latency_s)

    def with_objective(self, objective: Objective) -> Problem:
        """The same task under another objective."""
        return replace(self, objective=objective)


def problem_of(view: Decision, objective: Objective | None = None, *, replicate: bool = True) -> Problem:
    """Read the pending decision of a view as a search problem; the reward is the objective by default."""
    return Problem(
        cost=view.cost,
        model=view.kind_index,
        batch_size=view.kind.batch_size,
        microbatches=view.kind.microbatches,
        free_devices=np.asarray(view.free_devices, dtype=np.int64),
        bandwidth=view.bandwidth_gbps * BYTES_PER_GBIT,
        latency_s=np.array(view.latency_s),
        max_segments=view.max_segments,
        objective=objective or reward_objective(view),
        replicate=replicate,
    )


def reward_objective(view: Decision, *, queue_pressure: bool = False) -> Objective:
    """Minus the reward R of the view's task, up to a constant.

    Args:
        view: The decision.
        queue_pressure: Charge a plan for the devices it keeps from other waiting tasks: with q others in the queue and
            D devices in the cluster, a device held for a second makes them wait q/D seconds together.
    """
    others = sum(task.slot != view.slot for task in view.queue)
    devices = sum(domain.devices for domain in view.cost.cluster.domains)
    line = rates(view.reward, float(view.base_step_s[view.kind_index]), float(view.base_cost_usd[view.kind_index]))
    return Objective(
        time=line.alpha,
        utilisation=line.utilisation,
        dollar=line.beta,
        joule=line.per_j,
        gram=line.per_g,
        queue_pressure=others / devices if queue_pressure else 0.0,
    )
