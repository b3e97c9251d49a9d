"""A real queue, read and never touched: jobs and nodes of a cluster at one moment, why each waits, when it may start.

Jobs are opaque here: what they asked for, where, since when. Three questions are answered from that alone:

* *why* a job waits: one cause of a closed list, in strict precedence, beside the engine's own word;
* *when* it starts: the queue is played on with run times drawn from what jobs used of their limits so far, most urgent
  first, smaller ones let past where they delay nobody before them (backfill, in cycles); the middle 80 % of the draws
  are the interval;
* *where* it would have started sooner, and what waiting that would have saved.
"""

from __future__ import annotations

import bisect
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from attribution_sched.errors import ExecutorError, problem
from attribution_sched.executors.slurm import CAUSES

HELD, BEGIN_TIME, DEPENDENCY, NEVER, NODE, DEVICES, PRIORITY, NEXT = PRECEDENCE = (
    "held", "begin time", "dependency", "never", "node not available", "devices", "priority", "next cycle",
)  # fmt: skip
"""Causes of waiting, the first that holds is the one: somebody holds it; its time has not come; it waits for another
job; its domain could not hold it if it were empty; only nodes that are down could; too few devices are free; devices
are free, and kept for more urgent jobs; nothing is in its way, and the engine has not looked yet."""

Told = TypeVar("Told")
Found = TypeVar("Found")

UNLIMITED_S = 30 * 86400.0
"""Limit that is assumed of a job without one."""

DRAWS = 128
"""Futures of a queue."""

BACKFILL_S = 30.0
"""Slurm's own ``bf_interval``, where a site says no other."""

MOST_BACKFILLED = 100
"""Jobs that a cycle looks at, as Slurm's ``bf_max_job_test``."""

MOST_PAST = 2000
"""Jobs of the past that are looked at."""

UNKNOWN_SHARES = (0.25, 0.5, 0.75, 1.0)
"""What jobs use of their limits where nothing is known of any."""

LONGEST_NUMBER = 12
"""Digits of a number of seconds, devices or tasks."""

DOWN = (
    "down",
    "drain",
    "drng",
    "draining",
    "drained",
    "fail",
    "maint",
    "not_responding",
    "unknown",
    "future",
    "planned_down",
)


@dataclass(frozen=True)
class ShadowJob:
    """A job as its engine tells of it.

    Attributes:
        id: The engine's name of it.
        domain: Partition or queue.
        devices: Devices that it asked for, in all; 0 for none.
        running: Whether it runs; else it waits.
        submitted_unix_s: When it came.
        started_unix_s: When it began; None while it waits.
        limit_s: Longest that it may run.
        priority: Larger is more urgent.
        user: Whose.
        reason: The engine's own word for why it waits.
        expected_start_unix_s: When the engine expects to start it; None if it does not say.
        begin_unix_s: Not to be started before.
    """

    id: str
    domain: str
    devices: int
    running: bool
    submitted_unix_s: float
    started_unix_s: float | None
    limit_s: float
    priority: float = 0.0
    user: str = ""
    reason: str = ""
    expected_start_unix_s: float | None = None
    begin_unix_s: float = 0.0


@dataclass(frozen=True)
class ShadowNode:
    """A node as its engine tells of it.

    Attributes:
        name: Its name.
        domains: Partitions it belongs to.
        devices: Devices it has.
        used: Devices that jobs hold.
        state: The engine's own word.
    """

    name: str
    domains: tuple[str, ...]
    devices: int
    used: int
    state: str

    @property
    def up(self) -> bool:
        """Whether it takes jobs."""
        words = re.split(r"[^a-z_]+", self.state.lower())
        return not any(word.startswith(DOWN) for word in words if word) and not self.state.endswith("*")


@dataclass(frozen=True)
class Shadow:
    """A cluster at one moment.

    Attributes:
        jobs: What runs and what waits.
        nodes: Where.
        unix_s: When.
        used_shares: Of jobs that ended: run time over limit.
        source: Where it was read, with version.
        turnarounds_s: Of jobs that had to wait: how long after the last end in their domain they began.
        backfill_s: Seconds between two looks of the engine at those that are not first in line.
    """

    jobs: tuple[ShadowJob, ...]
    nodes: tuple[ShadowNode, ...]
    unix_s: float
    used_shares: tuple[float, ...] = ()
    source: str = ""
    turnarounds_s: tuple[float, ...] = ()
    backfill_s: float = 0.0

    @property
    def domains(self) -> tuple[str, ...]:
        """Names of the domains."""
        return tuple(sorted({name for node in self.nodes for name in node.domains}))

    def devices(self, domain: str, *, up: bool = True) -> int:
        """Devices of a domain, on nodes that take jobs or on all."""
        return sum(node.devices for node in self.nodes if domain in node.domains and (node.up or not up))

    def free(self, domain: str) -> int:
        """Devices that nobody holds."""
        return sum(max(0, node.devices - node.used) for node in self.nodes if domain in node.domains and node.up)

    def waiting(self, domain: str | None = None) -> list[ShadowJob]:
        """Jobs that wait, the most urgent first, of those the oldest."""
        queued = [job for job in self.jobs if not job.running and domain in (None, job.domain)]
        return sorted(queued, key=lambda job: (-job.priority, job.submitted_unix_s, _number(job.id)))

    def job(self, name: str) -> ShadowJob:
        """A job by its id.

        Raises:
            ExecutorError: If there is none, or it has ended.
        """
        for job in self.jobs:
            if job.id == name:
                return job
        rule = "is not in the queue: it has ended, or never was"
        raise ExecutorError(problem("job", name, rule, f"{len(self.jobs)} jobs are; list them with shadow"))


# --- The questions ---


def why(shadow: Shadow, job: ShadowJob) -> str:
    """Why a job waits: the first cause of :data:`PRECEDENCE` that holds; empty if it runs."""
    if job.running:
        return ""
    if job.reason.startswith("JobHeld") or job.priority == 0.0:
        return HELD
    if job.reason.startswith("Dependency"):
        return DEPENDENCY
    if job.begin_unix_s > shadow.unix_s:
        return BEGIN_TIME
    if job.devices > shadow.devices(job.domain, up=False):
        return NEVER
    if job.devices > shadow.devices(job.domain):
        return NODE
    ahead = [other for other in shadow.waiting(job.domain) if _before(other, job) and _eligible(shadow, other)]
    if job.devices > shadow.free(job.domain):
        # Whoever is first waits for devices, all behind it wait for their turn.
        return PRIORITY if any(other.devices > shadow.free(job.domain) for other in ahead) else DEVICES
    return PRIORITY if ahead else NEXT


def _eligible(shadow: Shadow, job: ShadowJob) -> bool:
    on_hold = job.reason.startswith(("JobHeld", "Dependency")) or job.priority == 0.0
    return not on_hold and job.begin_unix_s <= shadow.unix_s and job.devices <= shadow.devices(job.domain)


def _before(one: ShadowJob, other: ShadowJob) -> bool:
    mine = (-one.priority, one.submitted_unix_s, _number(one.id))
    return mine < (-other.priority, other.submitted_unix_s, _number(other.id))


def agrees(cause: str, token: str) -> bool | None:
    """Whether our cause is what the engine's word means; None where the engine has no word for it."""
    expected = CAUSES.get(re.split(r"[,(]", token)[0].strip(), "")
    if not expected or expected not in PRECEDENCE:
        return None
    return cause == expected or (cause == NEXT and expected in (PRIORITY, DEVICES))


@dataclass(frozen=True)
class Start:
    """When a job may start.

    Attributes:
        middle_unix_s: The median.
        low_unix_s: One in ten starts sooner.
        high_unix_s: One in ten starts later.
        draws: Futures that were played.
    """

    middle_unix_s: float
    low_unix_s: float
    high_unix_s: float
    draws: int


def when(shadow: Shadow, domain: str, *, draws: int = DRAWS, seed: int = 0) -> dict[str, Start]:
    """When the waiting jobs of a domain start; those that cannot start at all are left out.

    Args:
        shadow: The queue.
        domain: Which domain.
        draws: Futures to play.
        seed: Of the run times.
    """
    starts: dict[str, list[float]] = {}
    for held_s in futures(shadow, domain, draws, seed):
        for name, at in play(shadow, domain, held_s).items():
            starts.setdefault(name, []).append(at)
    by_job = {}
    for name, times in starts.items():
        # Of exchangeable draws and the start to come, the latter lies between these in exactly four of five cases.
        low, middle, high = np.quantile(times, (0.1, 0.5, 0.9), method="weibull")
        by_job[name] = Start(float(middle), float(low), float(high), len(times))
    return by_job


def futures(shadow: Shadow, domain: str, draws: int, seed: int) -> Iterator[dict[str, float]]:
    """How long every job of a domain keeps its devices, drawn anew for each future; a running one longer than it has.

    That is its run time, and the turnaround until somebody else has them: where jobs are short, turnarounds are what a
    long queue waits for.

    What jobs use of their limits is known from few of them, and that it is known so badly moves all starts of a future
    together: every future first weighs the past anew (a Bayesian bootstrap). Jobs that still run count for what they
    have used so far (Kaplan and Meier): leaving them out would believe the short ones, which have ended already.
    """
    generator = np.random.default_rng(seed)
    jobs = [job for job in shadow.jobs if job.domain == domain]
    ran_s = np.array([max(0.0, shadow.unix_s - (job.started_unix_s or shadow.unix_s)) for job in jobs])
    limits_s = np.array([max(1.0, job.limit_s) for job in jobs])
    turnarounds = np.array(shadow.turnarounds_s or (0.0,))
    ended = np.sort(np.array(shadow.used_shares or UNKNOWN_SHARES))
    running = [
        (shadow.unix_s - job.started_unix_s) / max(1.0, job.limit_s)
        for job in shadow.jobs
        if job.running and job.started_unix_s is not None
    ]
    # How many of those that still run had used as much as each that has ended: they were at risk there too.
    open_shares = np.sort(np.clip(np.array(running if shadow.used_shares else []), 0.0, 1.0))
    still = np.searchsorted(open_shares, ended, side="left")
    shares = np.append(ended, 1.0)
    for _ in range(draws):
        weight, open_weight = generator.exponential(size=ended.size), generator.exponential(size=open_shares.size)
        beyond = np.append(np.cumsum(open_weight[::-1])[::-1], 0.0)[still]
        at_risk = np.cumsum(weight[::-1])[::-1] + beyond
        survived = np.concatenate([[1.0], np.cumprod(1.0 - weight / at_risk)])
        chance = np.append(survived[:-1] * weight / at_risk, survived[-1])
        # A job that runs is of those that use more than it has used: its place among them is uniform.
        upto = np.cumsum(chance)
        used = np.searchsorted(shares, ran_s / limits_s, side="right")
        before = np.where(used > 0, upto[np.maximum(used, 1) - 1], 0.0)
        at = np.searchsorted(upto, before + (upto[-1] - before) * generator.random(len(jobs)), side="right")
        drawn_s = np.maximum(shares[np.minimum(at, ended.size)] * limits_s, ran_s + 1.0)
        drawn_s += generator.choice(turnarounds, len(jobs))
        yield dict(zip((job.id for job in jobs), drawn_s.tolist(), strict=True))


def play(shadow: Shadow, domain: str, held_s: Mapping[str, float]) -> dict[str, float]:
    """Play the queue of a domain on: start of every job that waits, given how long each keeps its devices.

    The engine plans with limits and is surprised by run times, as real ones are.
    """
    busy = sum(job.devices for job in shadow.jobs if job.running and job.domain == domain)
    # What a node that takes no more jobs has given out is nobody's afterwards.
    now, free = shadow.unix_s, min(shadow.free(domain), shadow.devices(domain) - busy)
    running = [
        (began + held_s[job.id], began + job.limit_s, job.devices)
        for job in shadow.jobs
        if job.running and job.domain == domain
        for began in [float(job.started_unix_s or now)]
    ]
    queue = [job for job in shadow.waiting(domain) if _startable(shadow, job)]
    starts: dict[str, float] = {}
    cycle_s = now
    while queue:
        due = [job for job in queue if job.begin_unix_s <= now]
        # Whoever is first in line starts as soon as it fits; the others are looked at in the next cycle.
        first = 0
        while first < len(due) and due[first].devices <= free - sum(job.devices for job in due[:first]):
            first += 1
        chosen = due[:first]
        if now >= cycle_s:
            remaining = free - sum(job.devices for job in chosen)
            limits = [(limit, devices) for _, limit, devices in running]
            limits += [(now + job.limit_s, job.devices) for job in chosen]
            chosen += _backfilled(due[first : first + MOST_BACKFILLED], remaining, limits, now)
            cycle_s = math.inf
        for job in chosen:
            starts[job.id] = now
            free -= job.devices
            running.append((now + held_s[job.id], now + job.limit_s, job.devices))
        gone = {job.id for job in chosen}
        queue = [job for job in queue if job.id not in gone]
        later = [end for end, _, _ in running if end > now] + [
            job.begin_unix_s for job in queue if job.begin_unix_s > now
        ]
        if not queue or not later:
            break
        if math.isinf(cycle_s):
            # The next look that finds something changed: looks come at their own pace.
            cycle_s = shadow.unix_s + shadow.backfill_s * math.ceil(
                (min(later) - shadow.unix_s) / max(1e-9, shadow.backfill_s)
            )
            cycle_s = max(cycle_s, min(later))
        now = min(*later, cycle_s)
        free += sum(devices for end, _, devices in running if end <= now)
        running = [each for each in running if each[0] > now]
    return starts


def _backfilled(
    due: Sequence[ShadowJob], free: int, limits: Sequence[tuple[float, int]], now: float
) -> list[ShadowJob]:
    """Who starts now although others are before it: everybody is given the earliest place that delays nobody before.

    Planned with limits. Slurm does so (``sched/backfill``); to let past whoever delays only the first in line, as is
    simpler, starts the wrong ones.
    """
    times, room = [now], [free]
    for end, devices in sorted((max(limit, now + 1.0), devices) for limit, devices in limits):
        times.append(end)
        room.append(room[-1] + devices)
    chosen = []
    for job in due:
        if room[0] <= 0:
            break
        at, end = _earliest(times, room, job.devices, job.limit_s)
        if at == 0:
            chosen.append(job)
        if at < len(times):
            stop = bisect.bisect_left(times, end)
            if stop == len(times) or times[stop] != end:
                times.insert(stop, end)
                room.insert(stop, room[stop - 1])
            for each in range(at, stop):
                room[each] -= job.devices
    return chosen


def _earliest(times: Sequence[float], room: Sequence[int], devices: int, length_s: float) -> tuple[int, float]:
    """Where so many devices are first free for so long, and until when; one past the last place if nowhere."""
    at = 0
    while at < len(times):
        end, other = times[at] + length_s, at
        while other < len(times) and times[other] < end and room[other] >= devices:
            other += 1
        if other == len(times) or times[other] >= end:
            return at, end
        at = other + 1
    return at, math.inf


def _startable(shadow: Shadow, job: ShadowJob) -> bool:
    on_hold = job.reason.startswith(("JobHeld", "Dependency")) or job.priority == 0.0
    return not on_hold and job.devices <= shadow.devices(job.domain)


@dataclass(frozen=True)
class Advice:
    """What would have been decided for a job that waits.

    Attributes:
        job: Its id.
        domain: Where it waits.
        cause: Why.
        reason: The engine's own word.
        starts: When, where it waits; None if never.
        better: A domain in which it starts sooner; None if there is none.
        saved_s: Waiting that this saves, by the medians.
    """

    job: str
    domain: str
    cause: str
    reason: str
    starts: Start | None
    better: str | None = None
    saved_s: float = 0.0


def advise(shadow: Shadow, *, draws: int = DRAWS, seed: int = 0) -> list[Advice]:
    """Every waiting job: why, when, and where it would have started sooner; nothing is done about it."""
    by_domain = {domain: when(shadow, domain, draws=draws, seed=seed) for domain in shadow.domains}
    advice = []
    for job in shadow.waiting():
        current = by_domain.get(job.domain, {}).get(job.id)
        better, saved = None, 0.0
        for domain in shadow.domains:
            if domain == job.domain or job.devices > shadow.free(domain) or _kept_for_others(shadow, domain):
                continue
            gain = (
                (UNLIMITED_S if current is None else current.middle_unix_s - shadow.unix_s)
                if why(shadow, job) != HELD
                else 0.0
            )
            if gain > saved:
                better, saved = domain, gain
        advice.append(
            Advice(job.id, job.domain, why(shadow, job), job.reason, current, better, saved if current else 0.0)
        )
    return advice


def _kept_for_others(shadow: Shadow, domain: str) -> bool:
    return any(_eligible(shadow, job) for job in shadow.waiting(domain))


# --- Reading ---


def read_live(ask: Callable[..., str], now: float) -> Shadow:
    """Read a Slurm through its commands; nothing is changed, and no right is needed.

    Args:
        ask: Runs a command and gives what it says, with times as seconds.
        now: The time.
    """
    jobs = [
        _read("scontrol show jobs", line, lambda each: _text_job(_fields(each)))
        for line in ask("scontrol", "-o", "show", "jobs").splitlines()
        if "JobId=" in line
    ]
    nodes = [
        _read("scontrol show nodes", line, lambda each: _text_node(_fields(each)))
        for line in ask("scontrol", "-d", "-o", "show", "nodes").splitlines()
        if "NodeName=" in line
    ]
    past = _past(ask)
    return Shadow(
        tuple(filter(None, jobs)), tuple(nodes), now, _shares(past), ask("sinfo", "--version").strip(),
        _turnarounds(past), _backfill_s(ask),
    )  # fmt: skip


def _read(what: str, text: Told, read: Callable[[Told], Found]) -> Found:
    """Read one thing that a Slurm told; what cannot be read is one clear error that shows it."""
    try:
        return read(text)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        rule = f"cannot be read ({type(error).__name__}: {error})"
        raise ExecutorError(problem(what, text, rule, "Record it again, or leave this entry out")) from error


def _fields(line: str) -> dict[str, str]:
    """``Name=value`` pairs; a value may hold spaces, a name may not."""
    return {name: value.strip() for name, value in re.findall(r"(?:^| )([A-Z][\w/:]*)=(.*?)(?= [A-Z][\w/:]*=|$)", line)}


def _text_job(fields: Mapping[str, str]) -> ShadowJob | None:
    state = fields.get("JobState", "").split(" ")[0]
    if state not in ("PENDING", "RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED"):
        return None
    running = state != "PENDING"
    start, eligible = _seconds(fields.get("StartTime", "")), _seconds(fields.get("EligibleTime", ""))
    return ShadowJob(
        fields["JobId"], fields.get("Partition", "").split(",")[0],
        _asked(
            fields.get("ReqTRES") or fields.get("TRES", ""), fields.get("TresPerJob", ""),
            fields.get("TresPerNode", ""), fields.get("TresPerTask", ""), _first(fields.get("NumNodes", "1")),
            _first(fields.get("NumTasks", "1")),
        ),
        running, _seconds(fields.get("SubmitTime", "")) or 0.0,
        start if running else None, _limit_s(fields.get("TimeLimit", "")), float(fields.get("Priority") or 0),
        fields.get("UserId", "").split("(")[0], fields.get("Reason", ""), None if running else start,
        eligible or 0.0,
    )  # fmt: skip


def _text_node(fields: Mapping[str, str]) -> ShadowNode:
    # A site may leave GPUs out of what it accounts for; what a node has and gives is told all the same.
    has = _tres(fields.get("CfgTRES", "")) or _gres(fields.get("Gres", ""))
    used = _tres(fields.get("AllocTRES", "")) or _gres(fields.get("GresUsed", ""))
    domains = tuple(filter(None, fields.get("Partitions", "").split(",")))
    return ShadowNode(fields["NodeName"], domains, has, used, fields.get("State", "UNKNOWN"))


def read_json(queue: str, nodes: str, now: float, accounting: str = "", source: str = "recorded") -> Shadow:
    """Read what ``squeue --json``, ``scontrol show nodes --json`` (or ``sinfo --json``) and ``sacct --json`` said.

    The layout differs between versions of Slurm's data parser (0.0.38 writes numbers, 0.0.40 and later
    ``{"set": …, "infinite": …, "number": …}`` and states as lists, and ``sinfo`` rows of nodes that are alike); few
    fields are read, of either.

    Raises:
        ExecutorError: If one of them is no such JSON, or of a version whose fields are others.
    """
    jobs = [_read("squeue", each, _json_job) for each in _listed("squeue", queue, "jobs")]
    # A file that was copied is younger than what it says; newer versions tell when it was.
    now = _number_of(json.loads(queue).get("last_update")) or now
    places = [
        place for each in _listed("nodes", nodes, "nodes", "sinfo") for place in _read("nodes", each, _json_nodes)
    ]
    rows = _listed("sacct", accounting, "jobs") if accounting else []
    past = [_read("sacct", each, _json_ended) for each in rows]
    turns = _turnarounds(past)
    return Shadow(tuple(filter(None, jobs)), tuple(places), now, _shares(past), source, turns, BACKFILL_S)


def _json_ended(record: Mapping[str, Any]) -> _Ended:
    times = record.get("time", {})
    elapsed, minutes = _number_of(times.get("elapsed")), _number_of(times.get("limit"))
    eligible, start, end = (_number_of(times.get(name)) or None for name in ("eligible", "start", "end"))
    limit_s = 60.0 * minutes if minutes else None
    return _Ended(str(record.get("partition", "")), elapsed, limit_s, eligible, start, end, True)


def _listed(what: str, text: str, *keys: str) -> list[dict[str, Any]]:
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError) as error:
        rule = f"is no JSON ({error})"
        raise ExecutorError(problem(what, text[:60], rule, "Record it again with --json")) from error
    rows = next((parsed[key] for key in keys if key in parsed), None) if isinstance(parsed, dict) else None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        shape = sorted(parsed) if isinstance(parsed, dict) else type(parsed).__name__
        fix = "Record squeue --json, sinfo --Node --json and sacct --json"
        raise ExecutorError(problem(what, shape, f"has no list of {keys[0]}: of a version that is not known", fix))
    return rows


def _json_job(record: Mapping[str, Any]) -> ShadowJob | None:
    state = _words(record.get("job_state"))
    if state.split(" ")[0] not in ("PENDING", "RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED"):
        return None
    running = not state.startswith("PENDING")
    start, minutes = _number_of(record.get("start_time")) or None, _number_of(record.get("time_limit"))
    # JSON knows Infinity: a job without a limit, as Slurm says it in words.
    minutes = None if minutes is not None and math.isinf(minutes) else minutes
    return ShadowJob(
        str(record.get("job_id", "")), str(record.get("partition", "")).split(",")[0],
        _asked(
            str(record.get("tres_req_str") or record.get("tres_alloc_str") or ""),
            str(record.get("tres_per_job") or ""), str(record.get("tres_per_node") or ""),
            str(record.get("tres_per_task") or ""),
            int(_number_of(record.get("node_count")) or 1), int(_number_of(record.get("tasks")) or 1),
        ),
        running,
        _number_of(record.get("submit_time")) or 0.0, start if running else None,
        60.0 * minutes if minutes else UNLIMITED_S, _number_of(record.get("priority")) or 0.0,
        str(record.get("user_name", "")), str(record.get("state_reason", "")), None if running else start,
        _number_of(record.get("eligible_time")) or 0.0,
    )  # fmt: skip


def _json_nodes(answer: Mapping[str, Any]) -> list[ShadowNode]:
    """The node, or the nodes that a row of ``sinfo`` tells of."""
    if "partition" not in answer or not isinstance(answer.get("nodes"), dict):
        return [_json_node(answer)]
    gres = answer.get("gres") or {}
    has, used = _gres(str(gres.get("total") or "")), _gres(str(gres.get("used") or ""))
    names, state = answer["nodes"]["nodes"], _words(answer.get("node", {}).get("state"))
    return [ShadowNode(str(name), (str(answer["partition"]["name"]),), has, used, state) for name in names]


def _json_node(record: Mapping[str, Any]) -> ShadowNode:
    name, state = (
        str(record.get("name", "")),
        f"{_words(record.get('state'))} {_words(record.get('state_flags'))}".strip(),
    )
    has = _tres(str(record.get("tres", ""))) or _gres(str(record.get("gres", "")))
    used = _tres(str(record.get("tres_used", ""))) or _gres(str(record.get("gres_used", "")))
    return ShadowNode(name, tuple(map(str, record.get("partitions", ()))), has, used, state)


def _words(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value or "")


def _number_of(value: Any) -> float | None:
    """A number of either layout; None if it is unset or infinite."""
    if isinstance(value, dict):
        value = value.get("number") if value.get("set", True) and not value.get("infinite", False) else None
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0 else None


def _backfill_s(ask: Callable[..., str]) -> float:
    """Seconds between two cycles of the backfill scheduler, as the site has set them."""
    try:
        match = re.search(r"\bbf_interval=(\d{1,6})\b", ask("scontrol", "show", "config"))
    except ExecutorError:
        return BACKFILL_S
    return float(match[1]) if match else BACKFILL_S


@dataclass(frozen=True)
class _Ended:
    """A job of the past.

    Attributes:
        domain: Where it ran.
        elapsed_s: How long.
        limit_s: Its limit; None without one.
        eligible_unix_s: Since when it could have begun; None if it is not told.
        started_unix_s: When it began.
        ended_unix_s: When it ended.
        over: Whether it ran to an end of its own.
    """

    domain: str
    elapsed_s: float | None
    limit_s: float | None
    eligible_unix_s: float | None
    started_unix_s: float | None
    ended_unix_s: float | None
    over: bool


def _past(ask: Callable[..., str]) -> list[_Ended]:
    """The jobs that accounting remembers; none without accounting."""
    columns = "State,ElapsedRaw,TimelimitRaw,Partition,Eligible,Start,End"
    try:
        text = ask("sacct", "-n", "-P", "-X", "-a", "--starttime=now-7days", "-o", columns)
    except ExecutorError:
        return []
    jobs = []
    for line in text.splitlines():
        state, elapsed, minutes, domain, *rest = [*line.split("|"), "", "", "", "", "", ""][:7]
        over = state.split(" ")[0] in ("COMPLETED", "FAILED", "TIMEOUT")
        readable = elapsed.isdecimal() and len(elapsed) <= LONGEST_NUMBER
        limit = _seconds(minutes)
        limit_s = 60.0 * limit if limit else None
        eligible, start, end = (_seconds(each) for each in rest)
        jobs.append(_Ended(domain, float(elapsed) if readable else None, limit_s, eligible, start, end, over))
    return jobs


def _shares(past: Sequence[_Ended]) -> tuple[float, ...]:
    """Run time over limit of jobs that ended."""
    shares = [
        min(1.0, max(1.0, each.elapsed_s) / each.limit_s)
        for each in past
        if each.over and each.elapsed_s is not None and each.limit_s
    ]
    return tuple(shares[-MOST_PAST:])


def _turnarounds(past: Sequence[_Ended]) -> tuple[float, ...]:
    """Seconds between the last end in a domain and the start of a job that had waited for it."""
    gaps_s = []
    for domain in sorted({each.domain for each in past}):
        same_domain = [each for each in past if each.domain == domain]
        ends = sorted(each.ended_unix_s for each in same_domain if each.ended_unix_s is not None)
        for each in same_domain[-MOST_PAST:]:
            start, since = each.started_unix_s, each.eligible_unix_s
            at = bisect.bisect_right(ends, start) if start is not None else 0
            # One that began as soon as it could waited for nobody; an end before that was not what it waited for.
            if start is not None and since is not None and at and ends[at - 1] > since and start - since > 1.0:
                gaps_s.append(start - ends[at - 1])
    return tuple(gaps_s[-MOST_PAST:])


def _tres(words: str) -> int:
    """GPUs in ``cpu=2,node=1,gres/gpu=2,gres/gpu:a100=2``; 0 where no GPU was asked for."""
    resources = dict(re.findall(r"([\w/:.-]+)=(\d+)", words))
    typed = sum(_count(n) for name, n in resources.items() if name.startswith("gres/gpu:"))
    return _count(resources.get("gres/gpu", "0")) or typed


def _gres(words: str) -> int:
    """GPUs in ``gpu:a100:4(S:0-1)``, ``gres:gpu:2`` or ``gres/gpu:2``."""
    bare = re.sub(r"\([^)]*\)", "", words)
    return sum(_count(count) for count in re.findall(r"(?:^|[:/,])gpu(?::[A-Za-z][\w.-]*)?[:=](\d+)", bare))


def _asked(tres: str, per_job: str, per_node: str, per_task: str, nodes: int, tasks: int) -> int:
    """Devices that a job asked for in all, in whichever way it did."""
    return _tres(tres) or _gres(per_job) or nodes * _gres(per_node) or tasks * _gres(per_task)


def _first(words: str) -> int:
    digits = re.match(r"\d+", words)
    return _count(digits[0]) if digits else 1


def _count(digits: str) -> int:
    """A number of devices, nodes or tasks.

    Raises:
        ValueError: If no cluster has so many.
    """
    if len(digits) > LONGEST_NUMBER:
        raise ValueError(f"a number of {len(digits)} digits")
    return int(digits)


def _seconds(text: str) -> float | None:
    return float(text) or None if text.isdecimal() and len(text) <= LONGEST_NUMBER else None


def _limit_s(text: str) -> float:
    """Seconds in ``[days-]hours:minutes:seconds``; a month for none."""
    match = re.fullmatch(r"(?:(\d+)-)?(\d+):(\d+):(\d+)", text)
    if match is None:
        return UNLIMITED_S
    days, hours, minutes, seconds = (_count(part or "0") for part in match.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)


def _number(job: str) -> int:
    digits = re.match(r"\d{1,18}", job)
    return int(digits[0]) if digits else 0
