"""What a report says, before any words: frozen records in which every number has its unit and how it was got."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from attribution_sched.billing.bill import Line, OperatorPart

SCHEMA = 5
"""Version of the JSON form."""

PROVENANCES: tuple[str, ...] = ("measured", "estimated", "simulated", "given")
"""How a number was got: read off this machine or a sensor; worked out by a model; an outcome of the simulated cluster;
set by the user or the preset."""


@dataclass(frozen=True)
class Number:
    """One number.

    Attributes:
        value: It; None if it is not known.
        unit: Its unit; empty for shares, ratios and counts.
        provenance: One of :data:`PROVENANCES`.
        low: Lower end of its 95 % interval; None if it has none.
        high: Upper end.
    """

    value: float | None
    unit: str
    provenance: str
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Run:
    """What was run, and what it came to in all.

    Attributes:
        preset: Name of the preset.
        description: What the preset says of itself.
        policy: Who decided.
        seed: Of arrivals, network and tasks.
        queue: Where tasks came from.
        domains: Names of the domains.
        devices: Devices of each.
        gpus: Sort of device in each.
        weights: w_eff, w_util and w_cost in force at the end.
        version: Of the package that writes the report.
        journal: Name of the journal's file; empty in memory.
        journal_version: Of the package that wrote the journal.
        created_at: When the journal was begun, UTC.
        fingerprint: Of all decisions: the same run has the same.
        resumed: How often the run was resumed and went on.
        learnt: How often learnt weights took over.
        submitted: Tasks that were handed in by somebody.
        shipped: Whether preset and policy can be made again by their names.
        last_placed: Whether the last decision placed a task.
        totals: Name → number.
    """

    preset: str
    description: str
    policy: str
    seed: int
    queue: str
    domains: tuple[str, ...]
    devices: tuple[int, ...]
    gpus: tuple[str, ...]
    weights: tuple[float, float, float]
    version: str
    journal: str
    journal_version: str
    created_at: str
    fingerprint: str
    resumed: int
    learnt: int
    submitted: int
    shipped: bool
    last_placed: bool
    totals: Mapping[str, Number]


@dataclass(frozen=True)
class Standing:
    """A target and where the run stands.

    Attributes:
        target: Its name.
        limit: What is asked for.
        measured: What the run came to; without value if it cannot be told.
        decisions: Plans put in force behind it.
        violation: By how much of the target it is missed; negative if it is met; None if it cannot be told.
        english: The same in words.
        chinese: The same.
    """

    target: str
    limit: Number
    measured: Number
    decisions: int
    violation: float | None
    english: str
    chinese: str


@dataclass(frozen=True)
class TaskEnergy:
    """Where the joules of one task go.

    Attributes:
        task: Its id.
        kind: Name of its model.
        training: False for inference.
        samples: Samples it works through in all.
        base: Joules of the idle machine; of the mean task, where the vectors are no accounts.
        predicted: What this one takes; base and parts add up to it.
        parts: What each counter adds to the base, in the order of ``Energy.counters``.
        errors: Standard errors of the parts.
        counters: How its counters were got.
    """

    task: str
    kind: str
    training: bool
    samples: float
    base: float
    predicted: float
    parts: tuple[float, ...]
    errors: tuple[float, ...]
    counters: str


@dataclass(frozen=True)
class Energy:
    """Attribution of the placed tasks' energy.

    Attributes:
        counters: Names of the counters.
        unit: Of all values.
        provenance: Of all values.
        method: How they were found.
        question: Which question the vectors answer; ``accounting`` by default.
        median_error: Of the energy model on held-out tasks; None if it does not say.
        fitted_on: Tasks it was fitted on; None if it does not say.
        tasks: One each, in the order they were placed.
        left_out: Placed tasks without a place here, because the run is long.
    """

    counters: tuple[str, ...]
    unit: str
    provenance: str
    method: str
    question: str
    median_error: float | None
    fitted_on: int | None
    tasks: tuple[TaskEnergy, ...]
    left_out: int


@dataclass(frozen=True)
class Moment:
    """A plan that was put in force.

    Attributes:
        decision: Its id.
        task: Whose.
        kind: Name of the task's model.
        time_s: When, on the cluster's clock.
        moved: Whether the task ran before; else it was placed.
        words: The plan in words.
        plan: The plan as plain numbers and names.
        source: How it was decided.
        devices: Devices it occupies.
        domains: Domains it uses.
        steps: Steps that were left to do.
        step_s: Time of one step.
        base_step_s: Time of one step on the baseline.
        bill_usd: Traffic bill of one step.
        energy_j: Energy of one step.
        terms: R_eff, R_util and R_cost.
        weights: w_eff, w_util and w_cost then.
        reward: R.
        device_hours: Devices × time the steps take: what the decision commits.
        busy_share: Part of the devices that hold a task, after it.
    """

    decision: str
    task: str
    kind: str
    time_s: float
    moved: bool
    words: str
    plan: Mapping[str, Any]
    source: str
    devices: int
    domains: tuple[str, ...]
    steps: float | None
    step_s: float
    base_step_s: float | None
    bill_usd: float
    energy_j: float
    terms: tuple[float, float, float]
    weights: tuple[float, float, float]
    reward: float
    device_hours: float | None
    busy_share: float | None


@dataclass(frozen=True)
class Timeline:
    """Plans put in force, in order.

    Attributes:
        moments: They; the newest if there are too many.
        left_out: Older ones without a place here.
        provenance: Of their numbers.
    """

    moments: tuple[Moment, ...]
    left_out: int
    provenance: str = "simulated"


@dataclass(frozen=True)
class Holding:
    """Devices that a task held in a domain.

    Attributes:
        task: Its id.
        kind: Name of its model.
        domain: Which, counted from 0.
        devices: How many; two tasks on one device hold half of it each.
        start_s: From when, on the cluster's clock.
        end_s: Until when.
    """

    task: str
    kind: str
    domain: int
    devices: float
    start_s: float
    end_s: float


@dataclass(frozen=True)
class Course:
    """What the cluster did over time.

    Attributes:
        holdings: Who held what; the newest if there are too many.
        left_out: Older ones without a place here.
        edges_s: Edges of intervals.
        busy: Share of the devices that were held in each interval.
        waiting: Tasks that waited in each, on average.
        provenance: Of the numbers.
    """

    holdings: tuple[Holding, ...]
    left_out: int
    edges_s: tuple[float, ...]
    busy: tuple[float, ...]
    waiting: tuple[float, ...]
    provenance: str


@dataclass(frozen=True)
class Traffic:
    """What a plan sends between domains.

    Attributes:
        decision: Whose.
        task: Id of the task.
        kind: Name of its model.
        words: The plan in words.
        plan: The plan as plain numbers and names.
        bytes_per_step: From row to column.
        bill_usd_per_step: What it costs.
        device_hours: What the decision commits.
        taken: Whether this plan was put in force; else it is the static uniform split, for comparison.
        provenance: Of the numbers.
    """

    decision: str
    task: str
    kind: str
    words: str
    plan: Mapping[str, Any]
    bytes_per_step: tuple[tuple[float, ...], ...]
    bill_usd_per_step: float
    device_hours: float | None
    taken: bool
    provenance: str


@dataclass(frozen=True)
class Why:
    """Why a decision was made.

    Attributes:
        decision: Its id.
        explanation: As ``Explanation.to_dict`` gives it; None if there is none.
        missing: Why there is none.
        flips_sought: Whether thresholds and flips were looked for; not where the policy takes too long to be asked.
        instead: What else could have been done, in each language: sentence, heads, rows and note; None if not asked.
    """

    decision: str
    explanation: Mapping[str, Any] | None
    missing: str = ""
    flips_sought: bool = False
    instead: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Driver:
    """An input over many decisions.

    Attributes:
        name: It.
        decisions: Decisions that have it.
        top: Part of the explained decisions in which it is the largest certain driver.
        certain: Part of them in which it is certain.
        mean_size: Mean size of its share.
        mean: Mean share.
    """

    name: str
    decisions: int
    top: float
    certain: float
    mean_size: Number
    mean: Number


@dataclass(frozen=True)
class Reasons:
    """Explanations.

    Attributes:
        consequential: Of the decisions that commit most, with thresholds and flips.
        sample: Of placements spread over the run, quick ones.
        placements: Placements the sample is drawn from.
        output: What the drivers are drivers of.
        drivers: Inputs by how often they lead; empty if nothing could be explained.
    """

    consequential: tuple[Why, ...]
    sample: tuple[Why, ...]
    placements: int
    output: str
    drivers: tuple[Driver, ...]


@dataclass(frozen=True)
class FeedbackStep:
    """A change that feedback made.

    Attributes:
        number: Of the change.
        after_decisions: Decisions taken before it.
        changed: What.
        before: Its value before.
        after: Its value since.
        english: Why.
        chinese: The same; empty if it was recorded in English only.
        undoes: Number of the change it takes back.
        rolled_back: Whether a later one took it back.
    """

    number: int
    after_decisions: int
    changed: str
    before: Any
    after: Any
    english: str
    chinese: str
    undoes: int | None
    rolled_back: bool


@dataclass(frozen=True)
class Changes:
    """What feedback did.

    Attributes:
        steps: How often feedback looked.
        changes: What it changed, oldest first.
        verdicts: Of the steps that changed nothing: after how many decisions, and why, in English and Chinese.
    """

    steps: int
    changes: tuple[FeedbackStep, ...]
    verdicts: tuple[tuple[int, str, str], ...]


@dataclass(frozen=True)
class Contender:
    """A policy over the compared span.

    Attributes:
        policy: Its name.
        own: Whether it is the run itself, replayed.
        figures: Name → number.
        blocks: Reward earned in equal parts of the span, in order; they add up to ``earned``.
        missing: Why it could not be compared; empty if it was.
    """

    policy: str
    own: bool
    figures: Mapping[str, Number]
    blocks: tuple[float, ...] = ()
    missing: str = ""


@dataclass(frozen=True)
class Rivals:
    """Policies on the same cluster, the same seed and the same span of its clock.

    Attributes:
        span_s: How long.
        tick_s: The span ends on a multiple of it.
        continued: Decisions of the run's own policy after the journal's last one, up to the end of the span.
        contenders: The run itself first.
        missing: Why there is no comparison; empty if there is one.
    """

    span_s: float
    tick_s: float
    continued: int
    contenders: tuple[Contender, ...]
    missing: str = ""


@dataclass(frozen=True)
class Objection:
    """Payers of a domain that would have needed fewer devices by themselves than they answer for, and how many."""

    domain: str
    payers: tuple[str, ...]
    excess: float


@dataclass(frozen=True)
class RuleRow:
    """What each rule charges a payer, and what makes them differ.

    Attributes:
        payer: Who.
        amounts: Of the first part of the bill, in the order of the rules.
        of_hours: Its part of the device-hours held; None for what nobody answers for.
        of_peak: Its part of the common peak.
        watts: What a device of its draws.
    """

    payer: str
    amounts: tuple[float, ...]
    of_hours: float | None
    of_peak: float | None
    watts: float | None


@dataclass(frozen=True)
class Billing:
    """Who answers for what of a run; lines and rest add up to the meters.

    Attributes:
        by: Who is billed.
        rule: By which rule.
        hours: Length of the period.
        provenance: How the numbers were got.
        exact: Whether no share was sampled.
        lines: All lines.
        units: Part → its unit.
        unallocated: Part → what nobody answers for.
        meter: Part → what the meter reads.
        gap: Largest relative difference between a meter and what should add up to it.
        idle: What devices that held no task drew, in the unit of the first part.
        devices: Devices there are.
        in_core: Whether no group would have needed less by itself; None if that is not known.
        objections: Groups that would.
        rules: The rules side by side.
        missing: Why there is no bill; empty if there is one.
        repeated: Domain and hours of every recorded signal that ends inside the period and was begun again.
        operators: What the payers' joules above idle power went into.
        no_carbon: Domains of whose grid no carbon intensity is known.
    """

    by: str
    rule: str
    hours: float
    provenance: str
    exact: bool
    lines: tuple[Line, ...]
    units: Mapping[str, str]
    unallocated: Mapping[str, float]
    meter: Mapping[str, float]
    gap: float
    idle: float
    devices: float
    in_core: bool | None
    objections: tuple[Objection, ...]
    rules: tuple[RuleRow, ...]
    missing: str = ""
    repeated: tuple[tuple[str, float], ...] = ()
    operators: tuple[OperatorPart, ...] = ()
    no_carbon: tuple[str, ...] = ()


@dataclass(frozen=True)
class Report:
    """All of it.

    Attributes:
        schema: Version of this form.
        run: What was run.
        targets: Targets; empty if none was set.
        energy: Where the joules go; None if nothing was placed.
        course: What the cluster did over time; None if that cannot be told.
        timeline: Plans put in force.
        traffic: Plans across domains, or what was avoided.
        cross_domain: Plans put in force that use more than one domain.
        reasons: Explanations.
        changes: What feedback did.
        rivals: Comparison.
        bill: Who answers for what; None if nothing was decided.
    """

    schema: int
    run: Run
    targets: tuple[Standing, ...]
    energy: Energy | None
    course: Course | None
    timeline: Timeline
    traffic: tuple[Traffic, ...]
    cross_domain: int
    reasons: Reasons
    changes: Changes
    rivals: Rivals
    bill: Billing | None
