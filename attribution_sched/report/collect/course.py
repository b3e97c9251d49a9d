"""What the cluster did over time, read off the record every bill is written from."""

from __future__ import annotations

import numpy as np

from attribution_sched.billing.usage import Usage
from attribution_sched.report.data import Course, Holding
from attribution_sched.types import FloatArray

MOST_HOLDINGS = 600
"""Holdings that are told one by one, the newest: more could not be seen in a picture."""

INTERVALS = 240
"""Intervals of the share in use and of the queue, all of one length."""


def course(usage: Usage) -> Course | None:
    """Who held what, how many devices were in use and how many tasks waited; None if no time passed."""
    first, last = float(usage.edges_s[0]), float(usage.edges_s[-1])
    if last <= first:
        return None
    holdings = _holdings(usage)
    edges = np.linspace(first, last, INTERVALS + 1)
    held = np.zeros(len(usage.lengths_s))
    np.add.at(held, usage.span_interval, usage.span_devices)
    # Devices held and tasks waiting change at few moments: means over equal intervals are differences of integrals.
    passed = np.concatenate([[0.0], np.cumsum(held * usage.lengths_s)])
    busy = np.diff(np.interp(edges, usage.edges_s, passed)) / (np.diff(edges) * max(1, int(usage.devices.sum())))
    return Course(
        holdings=tuple(holdings[-MOST_HOLDINGS:]),
        left_out=max(0, len(holdings) - MOST_HOLDINGS),
        edges_s=tuple(edges.tolist()),
        busy=tuple(busy.tolist()),
        waiting=tuple(_waiting(usage, edges).tolist()),
        provenance=usage.provenance,
    )


def _waiting(usage: Usage, edges: FloatArray) -> FloatArray:
    """Tasks that had come and had never run yet, on average over each interval."""
    came = np.array([task.submitted_s for task in usage.tasks])
    began = np.array([np.inf if task.started_s is None else task.started_s for task in usage.tasks])
    # Length of the part of each interval in which a task waits, added up over tasks one edge at a time.
    until = np.array([np.clip(edge - came, 0.0, np.maximum(began - came, 0.0)).sum() for edge in edges])
    return np.diff(until) / np.diff(edges)


def _holdings(usage: Usage) -> list[Holding]:
    """Rows of neighbouring intervals in which a task holds the same devices are one holding; by their start."""
    order = np.lexsort((usage.span_interval, usage.span_domain, usage.span_task))
    holdings: list[Holding] = []
    before = (-1, -1, -1.0, -2)
    for row in order.tolist():
        task, domain = int(usage.span_task[row]), int(usage.span_domain[row])
        devices, interval = float(usage.span_devices[row]), int(usage.span_interval[row])
        end_s = float(usage.edges_s[interval + 1])
        if before == (task, domain, devices, interval - 1):
            holdings[-1] = Holding(
                holdings[-1].task, holdings[-1].kind, domain, devices, holdings[-1].start_s, end_s
            )  # fmt: skip
        else:
            start_s = float(usage.edges_s[interval])
            holdings.append(Holding(usage.tasks[task].id, usage.tasks[task].model, domain, devices, start_s, end_s))
        before = (task, domain, devices, interval)
    return sorted(holdings, key=lambda each: (each.start_s, each.task, each.domain))
