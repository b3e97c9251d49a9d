"""What if, asked of a real queue that is only read: the queue played on with and without a change, run times the same.

Jobs of a real queue are opaque (devices, limit, since when), so what plays them on is the queue itself
(:func:`~attribution_sched.executors.shadow.play`): the most urgent first, smaller ones let past where they delay
nobody. Every future draws how long each job keeps its devices once, for both copies: what is common to them cancels.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from attribution_sched.errors import SettingsError, nearest, problem
from attribution_sched.executors.shadow import Shadow, ShadowJob, ShadowNode, futures, play
from attribution_sched.explain.digits import number
from attribution_sched.explain.what_if import FUTURES, Effect, Shift, WhatIf
from attribution_sched.stats.interval import mean_interval
from attribution_sched.words.say import Phrase

FOLLOWER = "backfill"
"""Who decides in the futures."""

CHANGES = ("drop", "add", "without", "move", "devices", "limit", "first")
UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


@dataclass(frozen=True)
class QueueChange:
    """A change of a queue.

    Attributes:
        words: It in words.
        make: The queue with it.
        job: The job it is about; empty if it is about none.
    """

    words: Phrase
    make: Callable[[Shadow], Shadow]
    job: str = ""


def read_queue_change(shadow: Shadow, text: str) -> QueueChange:
    """A change in one line: ``drop east-1``, ``add 4@east``, ``without 12``, ``limit 12 30m``; see :data:`CHANGES`.

    Raises:
        SettingsError: If it is none, or names what is not there.
        ExecutorError: If there is no such job.
    """
    name, *rest = text.split() or [""]
    wanted = 2 if name in ("move", "devices", "limit") else 1
    if name not in CHANGES or len(rest) != wanted:
        rule = f"must be one of {', '.join(CHANGES)}, and what of it"
        fix = "Write drop NODE, add 4@DOMAIN, without JOB, move JOB DOMAIN, devices JOB 2, limit JOB 30m or first JOB"
        raise SettingsError(problem("--what-if", text, rule, fix))
    if name == "drop":
        return _dropped(shadow, rest[0])
    if name == "add":
        return _added(shadow, rest[0])
    job = shadow.job(rest[0])
    if name == "without":
        return QueueChange(Phrase("what_if.change.without", task=job.id), lambda given: _without(given, job))
    if job.running:
        rule = "runs already, so its request cannot be another"
        raise SettingsError(problem("job", job.id, rule, "Ask about one that waits, or write without JOB"))
    if name == "first":
        most = max(each.priority for each in shadow.jobs) + 1.0
        return _asked(job, Phrase("queue_if.first", job=job.id), priority=most)
    if name == "move":
        _known_domain(shadow, rest[1])
        return _asked(job, Phrase("queue_if.move", job=job.id, domain=rest[1]), domain=rest[1])
    if name == "devices":
        count = _whole(rest[1])
        return _asked(job, Phrase("queue_if.devices", job=job.id, count=count), devices=count)
    seconds = _span(rest[1])
    return _asked(job, Phrase("queue_if.limit", job=job.id, limit=rest[1]), limit_s=seconds)


def queue_what_if(shadow: Shadow, change: QueueChange, *, draws: int = FUTURES, seed: int = 0) -> WhatIf:
    """Play a queue with and without a change.

    Args:
        shadow: The queue.
        change: What is changed.
        draws: Futures to play.
        seed: Of the run times.

    Returns:
        Minutes waited and minutes to the end per job that starts either way, jobs that start at all, and whose start
        differs. A job with another number of devices, or elsewhere, is taken to run as long; one with a shorter limit
        ends there.
    """
    changed = change.make(shadow)
    limits_s = {job.id: job.limit_s for job in changed.jobs}
    waiting = [job.id for job in shadow.waiting() if job.id in limits_s]
    starts = np.full((2, draws, len(waiting)), np.nan)
    ran_s = np.zeros((2, draws, len(waiting)))
    drawn = [list(futures(shadow, domain, draws, seed)) for domain in shadow.domains]
    for at in range(draws):
        held_s = {name: each for domain in drawn for name, each in domain[at].items()}
        cut_s = {name: min(each, limits_s.get(name, each)) for name, each in held_s.items()}
        for copy, (queue, kept_s) in enumerate(((shadow, held_s), (changed, cut_s))):
            began = {name: start for domain in queue.domains for name, start in play(queue, domain, kept_s).items()}
            starts[copy, at] = [began.get(name, math.nan) for name in waiting]
            ran_s[copy, at] = [kept_s[name] for name in waiting]
    return _told(shadow, change, waiting, starts - shadow.unix_s, ran_s, seed)


def _told(
    shadow: Shadow, change: QueueChange, waiting: list[str], starts: np.ndarray, ran_s: np.ndarray, seed: int
) -> WhatIf:
    both = np.isfinite(starts).all(axis=0)
    count = np.maximum(1, both.sum(axis=1))
    waited = np.where(both, starts, 0.0).sum(axis=2) / count / 60.0
    stayed = np.where(both, starts + ran_s, 0.0).sum(axis=2) / count / 60.0
    columns = {
        "wait": ("min", waited), "completion": ("min", stayed), "started": ("", np.isfinite(starts).sum(axis=2) * 1.0),
    }  # fmt: skip
    effects = []
    for name, (unit, values) in columns.items():
        by, without, with_it = mean_interval(values[1] - values[0]), float(values[0].mean()), float(values[1].mean())
        effects.append(Effect(name, unit, without, with_it, by.mean, by.low, by.high))
    shifts = []
    for at, name in enumerate(waiting):
        known = both[:, at]
        apart_s, end_s = (starts[1] - starts[0])[known, at], (starts + ran_s)[1][known, at]
        share = float((apart_s != 0.0).mean()) if known.any() else 0.0
        if share > 0.0:
            ends_s = float((end_s - (starts + ran_s)[0][known, at]).mean())
            shifts.append(Shift(name, float(apart_s.mean()), ends_s, share))
    # The job that was asked about first, then whoever is moved most.
    shifts.sort(key=lambda each: (each.task != change.job, -abs(each.start_s)))
    last_s = float(np.nanmax(starts)) if np.isfinite(starts).any() else 0.0
    played = int(np.isfinite(starts).sum())
    return WhatIf(change.words, tuple(effects), tuple(shifts), starts.shape[1], last_s / 3600.0, FOLLOWER, played, seed)


def _asked(job: ShadowJob, words: Phrase, **fields: object) -> QueueChange:
    """A job that had asked for something else."""

    def make(given: Shadow) -> Shadow:
        jobs = tuple(replace(each, **fields) if each.id == job.id else each for each in given.jobs)  # type: ignore[arg-type]
        return replace(given, jobs=jobs)

    return QueueChange(words, make, job.id)


def _without(given: Shadow, job: ShadowJob) -> Shadow:
    """A queue without a job; what it held is free."""
    left, nodes = job.devices if job.running else 0, []
    for node in given.nodes:
        freed = min(left, node.used) if job.domain in node.domains else 0
        left -= freed
        nodes.append(replace(node, used=node.used - freed))
    return replace(given, jobs=tuple(each for each in given.jobs if each.id != job.id), nodes=tuple(nodes))


def _dropped(shadow: Shadow, name: str) -> QueueChange:
    """A node, or all nodes of a domain, that take no more jobs; what runs there ends first."""
    hit = {node.name for node in shadow.nodes if name == node.name or name in node.domains}
    if not hit:
        known = [*shadow.domains, *(node.name for node in shadow.nodes)]
        raise SettingsError(problem("drop", name, "is neither a node nor a domain", nearest(name, known)))

    def make(given: Shadow) -> Shadow:
        nodes = tuple(replace(node, state="DRAIN") if node.name in hit else node for node in given.nodes)
        return replace(given, nodes=nodes)

    return QueueChange(Phrase("what_if.change.lose", domain=name), make)


def _added(shadow: Shadow, text: str) -> QueueChange:
    """So many devices more in a domain, on a node of their own; or fewer, of those that are free."""
    count, at, domain = text.partition("@")
    sign = -1 if count.startswith("-") else 1
    if not at:
        raise SettingsError(problem("add", text, "is not COUNT@DOMAIN", "Write add 4@DOMAIN, or add -4@DOMAIN"))
    devices = sign * _whole(count.lstrip("+-"))
    _known_domain(shadow, domain)
    if devices < 0 and -devices > shadow.devices(domain):
        raise SettingsError(problem("add", text, f"{domain} has {shadow.devices(domain)} devices", "Take fewer away"))
    more = ShadowNode("what-if", (domain,), devices, 0, "IDLE")
    words = Phrase("queue_if.add", count=f"{devices:+d}".replace("-", "−"), domain=domain)
    return QueueChange(words, lambda given: replace(given, nodes=(*given.nodes, more)))


def _known_domain(shadow: Shadow, name: str) -> None:
    if name not in shadow.domains:
        raise SettingsError(problem("domain", name, "does not exist", nearest(name, shadow.domains)))


def _whole(text: str) -> int:
    if not text.isdecimal() or not 1 <= len(text) <= 6 or int(text) < 1:
        raise SettingsError(problem("devices", text, "must be a whole number >= 1", "Use for example 2"))
    return int(text)


def _span(text: str) -> float:
    """Seconds in ``30m``, ``2h`` or ``1d``."""
    value, unit = text[:-1], text[-1:]
    try:
        seconds = float(value) * UNITS_S[unit]
    except (KeyError, ValueError):
        seconds = math.nan
    if not (math.isfinite(seconds) and seconds > 0.0):
        raise SettingsError(problem("limit", text, "must be a number and s, m, h or d", "Write 30m"))
    return seconds


def shift_words(shift: Shift) -> Phrase:
    """How far a job's start moves, in words."""
    key = "queue_if.later" if shift.start_s > 0.0 else "queue_if.sooner"
    return Phrase(key, job=shift.task, minutes=number(abs(shift.start_s) / 60.0, 2), share=f"{shift.share:.0%}")
