"""What decision trees said at a decision: the way down each, and exact Shapley shares of its inputs.

A policy that decides by trees (:class:`~attribution_sched.scheduler.policy.TreeReader`) needs no sampling: what a tree
says is shared out leaf by leaf, against the inputs that it is usually asked about, which are kept beside it.
"""

from __future__ import annotations

import numpy as np

from attribution_sched.explain.digits import number
from attribution_sched.explain.explanation import Explanation
from attribution_sched.explain.flat import FlatExplainer
from attribution_sched.explain.recorder import Decided
from attribution_sched.explain.shapley.tree import FlatTree
from attribution_sched.explain.words import Phrase, in_language, say
from attribution_sched.scheduler.policy import Policy, TreeReader

SHOWN = 4
"""Shares that are told."""


def tree_readings(policy: Policy, decided: Decided) -> tuple[Explanation, ...]:
    """An explanation of each tree that had a say, exact; none for a policy without trees.

    Args:
        policy: Who decided.
        decided: The decision.
    """
    if not isinstance(policy, TreeReader):
        return ()
    found = []
    for reading in policy.readings(decided.view, decided.plan):
        nodes = {name: np.asarray(reading.nodes[name]) for name in ("feature", "threshold", "left", "right", "value")}
        explainer = FlatExplainer(
            FlatTree(**nodes), reading.usual, reading.inputs, outputs=(reading.head,), policy=policy.name
        )
        way = " · ".join(
            f"{name} {number(value)} {'≤' if value <= limit else '>'} {number(limit)}"
            for name, value, limit in reading.path
        )
        found.append(explainer.explain(reading.x, decision=decided.id, subject=way))
    return tuple(found)


def reading_words(reading: Explanation, lang: str = "en") -> str:
    """A tree's reading in one sentence: what it says, its way down, and the largest shares."""
    head = reading.outputs[0]
    shares = reading.values[:, 0]
    order = np.argsort(-np.abs(shares), kind="stable")[:SHOWN]
    told = tuple(
        f"{reading.players[i].name} {number(float(shares[i]), 2, signed=True)}" for i in order if shares[i] != 0.0
    )
    return in_language(
        Phrase(
            "tree.reading",
            head=say(f"tree.{head}", lang),
            value=number(float(reading.value[0]), 3, signed=True),
            usual=number(float(reading.base[0]), 3, signed=True),
            path=tuple(str(reading.subject).split(" · ")),
            shares=told or (say("tree.none", lang),),
        ),
        lang,
    )
