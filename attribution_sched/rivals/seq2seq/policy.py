"""The supervised sequence-to-sequence scheduler: plans written by the network, priced, the best feasible one taken."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from attribution_sched.cluster.decision import Decision
from attribution_sched.cluster.plan import Plan
from attribution_sched.cluster.reward import value
from attribution_sched.errors import SettingsError, problem
from attribution_sched.planning.candidates import best_of
from attribution_sched.planning.instance import Instance, usable_devices
from attribution_sched.planning.segment_table import first_twins, plans_inside
from attribution_sched.rivals.exact_policy import switching_gain
from attribution_sched.rivals.splits import SpeedProportional

if TYPE_CHECKING:
    from attribution_sched.rivals.seq2seq.network import PointerNetwork

BEAM_WIDTH = 64
"""Unfinished plans kept: the best of many is nearer to the optimum than the likeliest alone, for some milliseconds."""


@dataclass(frozen=True, eq=False)
class Proposal:
    """How the last plan came about.

    Attributes:
        plan: The plan; None if nothing fits.
        source: ``network``, or what was done where no plan of the network fits memory: ``moved-cut``, ``one-domain``
            or ``proportional``; ``none`` if nothing fits.
        proposed: Plans the network proposed.
        feasible: How many of them fit memory.
        likeliest_fits: Whether the likeliest of them does.
    """

    plan: Plan | None
    source: str
    proposed: int
    feasible: int
    likeliest_fits: bool


class SupervisedPointer:
    """A network that learnt from the exact optimum writes plans; the best that fits is taken.

    One batched call prices all plans of the beam. If none fits memory, the best plan inside one domain is
    taken, else the best speed-proportional split; ``last`` says so. A running task moves only if that pays.

    Args:
        weights: A network saved by ``checkpoint.save``; the one that comes with the package by default.
        width: Width of the beam.
        network: A network to use instead of saved weights.
        move_cuts: Also price every proposed plan with one cut moved by a few layers.
    """

    name = "seq2seq"

    def __init__(
        self,
        weights: str | Path | None = None,
        width: int = BEAM_WIDTH,
        network: PointerNetwork | None = None,
        *,
        move_cuts: bool = True,
    ) -> None:
        if width < 1:
            raise SettingsError(problem("width", width, "must be >= 1", "Keep at least one plan"))
        self.weights = weights
        self.width = width
        self.move_cuts = move_cuts
        self.last: Proposal | None = None
        self._network = network
        self._split = SpeedProportional()

    @property
    def network(self) -> PointerNetwork:
        """The network, loaded on first use."""
        if self._network is None:
            from attribution_sched.rivals.seq2seq.network import SHIPPED, load

            self._network = load(self.weights or SHIPPED)
        return self._network

    def decide(self, view: Decision) -> Plan | None:
        """Place on the best proposed plan; move a running task if what that earns exceeds its cost."""
        self.last = self.propose(view)
        plan = self.last.plan
        if plan is None or view.current_plan is None:
            return plan
        if plan == view.current_plan or not switching_gain(view, plan) > 0.0:
            return None
        return plan

    def propose(self, view: Decision) -> Proposal:
        """Write, price and choose; the plan in force is not looked at."""
        from attribution_sched.rivals.seq2seq.decoding import decode, with_cuts_moved

        if not (usable_devices(view) > 0).any():
            return Proposal(None, "none", 0, 0, False)
        batch = decode(self.network, view, self.width).batch
        proposed = len(batch)
        if self.move_cuts:
            batch = with_cuts_moved(batch)
        reward = value(view, batch).reward
        fits = np.isfinite(reward)
        if fits.any():
            own = int(fits[:proposed].sum())
            best = batch.plan(int(np.argmax(reward)))
            return Proposal(best, "network" if own else "moved-cut", proposed, own, bool(fits[0]))
        plan, source = self._fallback(view)
        return Proposal(plan, source, proposed, 0, False)

    def _fallback(self, view: Decision) -> tuple[Plan | None, str]:
        instance = Instance.of(view)
        plan = best_of(view, plans_inside(instance, first_twins(instance)))
        if plan is not None:
            return plan, "one-domain"
        plan = best_of(view, self._split.candidates(view))
        return plan, "none" if plan is None else "proportional"
