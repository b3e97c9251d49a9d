"""Traces as training examples: the teacher's plan retold choice by choice, with masks and targets.

A teacher's plan stays the best one if devices it does not use are taken away, so every trace gives several examples.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from attribution_sched.cluster.decision import Decision
from attribution_sched.cluster.plan import DOMAIN, DP, MICROBATCH, PP, PRECISION, STOP, TP
from attribution_sched.errors import TraceError, problem
from attribution_sched.rivals.seq2seq.features import (
    DecisionFeatures,
    advance,
    begins,
    context,
    cut_choices,
    domain_choices,
    empty,
    features_of,
    micro_choices,
    option_choices,
)
from attribution_sched.types import BoolArray, IntArray
from research.pointer_draws import Trace, views_of

FloatArray = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Choice:
    """All moments of one kind of choice along a plan.

    Attributes:
        looks: Descriptions of the choices, shape ``(S, C, F)``.
        mask: Which are possible, shape ``(S, C)``.
        target: Which are right, shape ``(S, C)``; several where they are worth the same.
    """

    looks: FloatArray
    mask: BoolArray
    target: BoolArray


@dataclass(frozen=True, eq=False)
class Example:
    """One decision and the teacher's plan of S segments.

    Attributes:
        nodes: Shape ``(K, 9)``.
        edges: Shape ``(K, K, 5)``.
        task: Shape ``(10,)``.
        open: Shape ``(K,)``.
        context: The unfinished plan before every segment and before the end, shape ``(S + 1, 9)``.
        domain: Next domain or end, S + 1 moments.
        micro: Microbatch sizes, S moments; those inside a replica have one possible choice.
        option: Layouts, S moments.
        cut: Last layers, S moments.
        domains: The domain of every segment, shape ``(S,)``.
    """

    nodes: FloatArray
    edges: FloatArray
    task: FloatArray
    open: BoolArray
    context: FloatArray
    domain: Choice
    micro: Choice
    option: Choice
    cut: Choice
    domains: IntArray

    @property
    def segments(self) -> int:
        """Segments of the plan."""
        return len(self.domains)


def example_of(view: Decision, rows: NDArray[np.int64]) -> Example:
    """Retell a plan as choices.

    Args:
        view: The decision.
        rows: Segments of the plan, shape ``(S, 11)``.

    Raises:
        TraceError: If the plan asks for what the decision does not offer.
    """
    task = features_of(view)
    state = empty(task)
    moments: dict[str, list[tuple[np.ndarray, np.ndarray, np.ndarray]]] = {
        "domain": [], "micro": [], "option": [], "cut": []
    }  # fmt: skip
    contexts = []
    for row in rows:
        contexts.append(context(task, state)[0])
        domain = np.array([row[DOMAIN]])
        level = _index(task.microbatches == row[MICROBATCH], "microbatch", row[MICROBATCH])
        option = _index((task.options == row[[DP, TP, PP, PRECISION]]).all(axis=1), "layout", row[3:7])
        looks, mask = domain_choices(task, state)
        right = _twins(task, int(row[DOMAIN])) if len(rows) == 1 else np.arange(len(task.open)) == row[DOMAIN]
        moments["domain"].append((looks[0], mask[0], np.append(right, False) & mask[0]))
        looks, mask = micro_choices(task, state, domain)
        right = np.arange(len(task.microbatches)) == level
        moments["micro"].append((looks[0], mask[0] if begins(task, state)[0] else right, right))
        looks, mask = option_choices(task, state, domain, level)
        moments["option"].append((looks[0], mask[0], np.arange(len(task.options)) == option))
        looks, mask = cut_choices(task, state, domain, level, option)
        moments["cut"].append((looks[0], mask[0], np.arange(1, task.n_layers + 1) == row[STOP]))
        state = advance(task, state, domain, level, option, np.array([row[STOP]]))
    contexts.append(context(task, state)[0])
    looks, mask = domain_choices(task, state)
    moments["domain"].append((looks[0], mask[0], np.arange(len(task.open) + 1) == len(task.open)))
    _check(moments)
    return Example(
        nodes=_f32(task.nodes),
        edges=_f32(task.edges),
        task=_f32(task.task),
        open=task.open,
        context=_f32(np.stack(contexts)),
        domain=_choice(moments["domain"]),
        micro=_choice(moments["micro"]),
        option=_choice(moments["option"]),
        cut=_choice(moments["cut"]),
        domains=rows[:, DOMAIN].copy(),
    )


def _f32(values: np.ndarray) -> FloatArray:
    return values.astype(np.float32)


def _choice(moments: list[tuple[np.ndarray, np.ndarray, np.ndarray]]) -> Choice:
    looks, masks, targets = zip(*moments, strict=True)
    return Choice(_f32(np.stack(looks)), np.stack(masks), np.stack(targets))


def _index(matches: np.ndarray, name: str, value: object) -> IntArray:
    found = np.flatnonzero(matches)
    if len(found) != 1:
        raise TraceError(problem(f"trace {name}", value, "is not among the choices of its decision", "Write it again"))
    return found


def _check(moments: dict[str, list[tuple[np.ndarray, np.ndarray, np.ndarray]]]) -> None:
    for name, listed in moments.items():
        for _, mask, target in listed:
            if not target.any() or (target & ~mask).any():
                rule = "the teacher chose what the masks rule out"
                raise TraceError(problem(f"trace {name}", np.flatnonzero(target).tolist(), rule, "Write it again"))


def _twins(task: DecisionFeatures, domain: int) -> BoolArray:
    """Domains in which a plan of one segment is worth the same."""
    same: BoolArray = (task.nodes == task.nodes[domain]).all(axis=1)
    return same


def shrunk(rng: np.random.Generator, view: Decision, rows: NDArray[np.int64]) -> Decision:
    """Take away devices that a plan does not use: what was the best plan stays the best."""
    free = np.array(view.free_devices)
    needed = np.zeros_like(free)
    np.add.at(needed, rows[:, DOMAIN], rows[:, DP] * rows[:, TP] * rows[:, PP])
    for k in range(len(free)):
        how = rng.random()
        if needed[k] == 0 and how < 0.3:
            free[k] = 0
        elif how < 0.7 and free[k] > 0:
            free[k] = rng.integers(max(1, needed[k]), free[k] + 1)
    return replace(view, free_devices=free)


def examples_of(traces: Iterable[Trace], rng: np.random.Generator, variants: tuple[int, int] = (1, 4)) -> list[Example]:
    """Make examples of traces: each as it is, and with devices taken away.

    Args:
        traces: What the teacher did.
        rng: Which devices are taken away.
        variants: Further examples of a plan of one segment, and of several.
    """
    found = []
    for trace, view in views_of(traces):
        found.append(example_of(view, trace.rows))
        count = variants[len(trace.rows) > 1]
        found += [example_of(shrunk(rng, view, trace.rows), trace.rows) for _ in range(count)]
    return found
