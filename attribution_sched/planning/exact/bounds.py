"""Lower bounds on the step time of a pipeline that is known only from some stage to its end.

The recurrence (``cluster/pipeline.py``) never finishes a pipeline of S stages and M microbatches before

- ``head + M·w_s + idle``: stage s (passes f + b = w) works on M microbatches. Before its first backward pass it can do
  only n forwards (n = stages from s on, at most M) and waits for the rest of the round trip R through the stages
  behind it; before its last one it can do only n backwards. ``idle = max(0, R−(n−1)f) + max(0, R−(n−1)b)``;
- ``head + ⌈M/n⌉·(w_s + R)``: forward m + n cannot start before backward m has ended (1F1B);
- ``w + R + (M−1)·max(c, c')``: a link takes one message at a time in each direction;
- ``w + c + f + M·(c' + c'')``: an interface that sends both ways takes one message at a time.

``head`` is one round through all earlier stages, whatever they will be. So a tail is summed up by the best bound Z over
its stages, its round trip R and its number of stages n, and a segment put before it gives a new (Z, R, n): the
labels of the search. A round trip is the sum, Z the bottleneck.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from attribution_sched.cluster.compute import TP_DEGREES
from attribution_sched.kernels import kernel
from attribution_sched.planning.exact.problem import Problem
from attribution_sched.planning.exact.profiles import (
    BEFORE_S,
    SLOWEST_BACKWARD_S,
    SLOWEST_FORWARD_S,
    SLOWEST_S,
    STAGES_AFTER,
    WORK_S,
)
from attribution_sched.types import BoolArray, FloatArray, IntArray


@kernel(allocates=True)
def bottleneck(
    segment: FloatArray,
    microbatches: int,
    training: bool,
    tail_s: float,
    round_s: float,
    stages: float,
    there_s: float,
    back_s: float,
) -> float:
    """Bound Z of a tail after a segment has been put before it.

    Args:
        segment: Profile of the segment.
        microbatches: Microbatches M.
        training: Whether there is a backward pass (and the schedule 1F1B).
        tail_s: Z of the tail; 0 for an empty one.
        round_s: Round trip R through the tail.
        stages: Stages of the tail.
        there_s: Sending a microbatch from the segment to the tail.
        back_s: Sending its gradient back.
    """
    m = float(microbatches)
    wait = there_s + round_s + back_s
    slowest, before = segment[SLOWEST_S], segment[BEFORE_S]
    behind = wait + segment[WORK_S] - before - slowest
    ahead = min(m, stages + segment[STAGES_AFTER] + 1.0) if training else m
    first = max(0.0, behind - (ahead - 1.0) * segment[SLOWEST_FORWARD_S])
    last = max(0.0, behind - (ahead - 1.0) * segment[SLOWEST_BACKWARD_S])
    idle = first + last if training and m - 1.0 >= ahead else max(first, last)
    bound = before + m * slowest + idle
    if training:
        bound = max(bound, before + np.ceil(m / ahead) * (slowest + behind))
    if stages > 0.0:
        bound = max(bound, segment[WORK_S] + wait + (m - 1.0) * max(there_s, back_s))
        bound = max(bound, segment[WORK_S] + there_s + back_s + tail_s)
    return float(bound)


class Floors(NamedTuple):
    """What the part of a model that is not placed yet will take at the least, per microbatch size.

    Attributes:
        work_s: Both passes of layers ``[0, i)`` on the best hardware, shape ``(N + 1,)``.
        share_s: The same, divided over the most stages a domain can have, shape ``(N + 1,)``.
        link_s: Slower direction of the best link into each domain at a cut before layer i, shape ``(K, N + 1)``.
        links_s: Both directions of the best link, shape ``(K, N + 1)``.
        bill_usd: Traffic of one microbatch over the cheapest link, shape ``(K, N + 1)``.
    """

    work_s: FloatArray
    share_s: FloatArray
    link_s: FloatArray
    links_s: FloatArray
    bill_usd: FloatArray


def floors(task: Problem, options: IntArray, allowed: BoolArray, micro: int) -> Floors:
    """Compute the floors of a task for one microbatch size."""
    cost, n, k = task.cost, task.n_layers, len(task.free_devices)
    tables, training = cost.tables, cost.training[task.model]
    work, share = np.full(n, np.inf), np.full(n, np.inf)
    # Domains with the same card and layouts give the same floor.
    alike = {(int(cost.domains.rows[d].gpu), allowed[d].tobytes()): d for d in range(k)}
    for (gpu, _), d in alike.items():
        for o in np.flatnonzero(allowed[d] & (micro % options[:, 0] == 0)):
            dp, tp, pp, q = (int(x) for x in options[o])
            times = np.diff(tables.times_s[task.model, gpu, q, TP_DEGREES.index(tp), :, : n + 1], axis=-1)
            per_sample, per_pass = times[0] + times[1], times[2]
            if training:
                per_sample, per_pass = per_sample + times[4] + times[5], per_pass + times[6]
            layer_s = micro / dp * per_sample + per_pass
            work, share = np.minimum(work, layer_s), np.minimum(share, layer_s / pp)
    element = 4.0 if (options[:, 3] == 0).all() else 2.0
    volume = micro * element * tables.boundary[task.model, : n + 1]
    prices = cost.domains.price_usd_per_byte
    link, links, bill = (np.full((k, n + 1), np.inf) for _ in range(3))
    usable = np.flatnonzero(task.free_devices > 0)
    for d in usable.tolist():
        for other in usable[usable != d].tolist():
            there = task.latency_s[other, d] + volume / task.bandwidth[other, d]
            back = (task.latency_s[d, other] + volume / task.bandwidth[d, other]) * training
            link[d] = np.minimum(link[d], np.maximum(there, back))
            links[d] = np.minimum(links[d], there + back)
            bill[d] = np.minimum(bill[d], volume * (prices[other, d] + prices[d, other] * training))
    return Floors(
        np.concatenate([[0.0], np.cumsum(work)]), np.concatenate([[0.0], np.cumsum(share)]), link, links, bill
    )
