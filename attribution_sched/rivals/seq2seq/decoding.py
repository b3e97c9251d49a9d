"""From network to plans: beam search over sequences of choices; plans come out well formed, memory is tested later."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from attribution_sched.cluster.decision import Decision
from attribution_sched.cluster.plan import FIRST, MICROBATCH, MICROBATCHES, PP, REPLICA, STOP, PlanBatch
from attribution_sched.kernels import one_thread
from attribution_sched.rivals.seq2seq.features import (
    DecisionFeatures,
    Prefixes,
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
from attribution_sched.rivals.seq2seq.network import PointerNetwork, log_probabilities
from attribution_sched.types import BoolArray, FloatArray, IntArray

MOST_DOMAINS = 16
MOST_LAYOUTS = 6
MOST_CUTS = 3
"""Choices of one kind that one unfinished plan is continued with, so that no plan fills the beam with its variants."""

CUT_SHIFTS = (-4, -3, -2, -1, 1, 2, 3, 4)
"""Layers by which cuts are moved before plans are priced."""


@dataclass(frozen=True, eq=False)
class Decoded:
    """Plans the network proposes.

    Attributes:
        batch: The plans, likeliest first.
        log_probability: Of each, shape ``(n,)``.
    """

    batch: PlanBatch
    log_probability: FloatArray


@dataclass(frozen=True, eq=False)
class _Beam:
    """Unfinished plans with the decoder's memory and the log-probability of each."""

    plans: Prefixes
    memory: Tensor
    score: FloatArray

    def take(self, index: IntArray, score: FloatArray) -> _Beam:
        return _Beam(self.plans.take(index), self.memory[index], score)


def decode(network: PointerNetwork, view: Decision, width: int = 32) -> Decoded:
    """List the likeliest plans of a decision.

    Args:
        network: A trained network.
        view: The decision; at least one domain must have a usable device.
        width: Unfinished plans kept; 1 is the greedy choice at every step.
    """
    task = features_of(view)
    with torch.inference_mode(), one_thread():
        rows, counts, score = _search(network, task, width)
    batch = PlanBatch(rows, counts, np.zeros(len(counts), dtype=np.int64))
    single = (rows[:, :, REPLICA].max(axis=1, initial=0) == 0)[:, None]
    whole = np.where(rows[:, :, MICROBATCH] > 0, task.batch_size // np.maximum(1, rows[:, :, MICROBATCH]), 0)
    shared = whole if single.all() else view.cost.microbatch_counts(view.kind_index, task.batch_size, batch)
    rows[:, :, MICROBATCHES] = np.where(single, whole, shared)
    return Decoded(batch, score)


def with_cuts_moved(batch: PlanBatch) -> PlanBatch:
    """Add to every plan those with one cut moved by a few layers: a cut is a number, and nearly right is often better.

    The plans themselves come first, in their order. A variant with fewer layers than stages in a segment is left out.
    """
    rows, counts = batch.segments, batch.counts
    wide = rows.shape[1]
    found, owners = [rows], [np.arange(len(rows))]
    for cut in range(wide - 1):
        inside = (counts > cut + 1) & (rows[:, cut, REPLICA] == rows[:, min(cut + 1, wide - 1), REPLICA])
        for shift in CUT_SHIFTS:
            index = np.flatnonzero(inside)
            moved = rows[index].copy()
            moved[:, cut, STOP] += shift
            moved[:, cut + 1, FIRST] += shift
            layers = moved[:, cut : cut + 2, STOP] - moved[:, cut : cut + 2, FIRST]
            sound = (layers >= moved[:, cut : cut + 2, PP]).all(axis=1)
            found.append(moved[sound])
            owners.append(index[sound])
    owner = np.concatenate(owners)
    return PlanBatch(np.concatenate(found), counts[owner], batch.schedules[owner])


def _search(network: PointerNetwork, task: DecisionFeatures, width: int) -> tuple[IntArray, IntArray, FloatArray]:
    nodes, edges, about = (torch.as_tensor(a, dtype=torch.float32)[None] for a in (task.nodes, task.edges, task.task))
    embedded, memory = network.encode(nodes, edges, about, torch.as_tensor(task.open)[None])
    beam = _Beam(empty(task), memory, np.zeros(1))
    finished: list[tuple[Prefixes, FloatArray]] = []
    for _ in range(task.max_segments + 1):
        step = _Step(network, task, embedded[0], about, width)
        ended, beam, state, domain = step.point(beam)
        finished.append(ended)
        if not len(beam.plans):
            break
        beam = step.write(beam, state, domain)
    rows = np.concatenate([plans.rows for plans, _ in finished])
    counts = np.concatenate([plans.counts for plans, _ in finished])
    score = np.concatenate([score for _, score in finished])
    best = np.argsort(-score, kind="stable")[: max(1, 2 * width)]
    return rows[best], counts[best], score[best]


class _Step:
    """One segment of all plans in the beam: where it runs, in which microbatch, how it is laid out, where it ends."""

    def __init__(
        self, network: PointerNetwork, task: DecisionFeatures, embedded: Tensor, about: Tensor, width: int
    ) -> None:
        self.network, self.task, self.embedded, self.about, self.width = network, task, embedded, about, width

    def point(self, beam: _Beam) -> tuple[tuple[Prefixes, FloatArray], _Beam, Tensor, IntArray]:
        """Let complete plans end and point the others at their next domain."""
        task, network = self.task, self.network
        about = self.about.expand(len(beam.plans), -1)
        state = network.state(beam.memory, _t(context(task, beam.plans)), about)
        looks, mask = domain_choices(task, beam.plans)
        embedded = self.embedded.expand(len(beam.plans), -1, -1)
        likely = _log(network.domain_scores(state, embedded, _t(looks)), mask)
        ends = np.flatnonzero(np.isfinite(likely[:, -1]))
        ended = beam.plans.take(ends), beam.score[ends] + likely[ends, -1]
        owner, domain, score = _best(beam.score, likely[:, :-1], self.width, MOST_DOMAINS)
        return ended, beam.take(owner, score), state[owner], domain

    def write(self, beam: _Beam, state: Tensor, domain: IntArray) -> _Beam:
        """Choose microbatch, layout and last layer of the segment in each plan's domain."""
        task, network = self.task, self.network
        looks, mask = micro_choices(task, beam.plans, domain)
        goes_on = ~begins(task, beam.plans)
        # Inside a replica the microbatch is given.
        mask = np.where(goes_on[:, None], np.arange(mask.shape[1]) == beam.plans.level[:, None], mask)
        here = self.embedded[domain]
        scores = network.micro_scores(state, here, _t(looks))
        beam, level, owner, micro = self._choose(beam, scores, looks, mask, len(task.microbatches))
        state, here, domain = state[owner], here[owner], domain[owner]

        looks, mask = option_choices(task, beam.plans, domain, level)
        scores = network.option_scores(state, here, micro, _t(looks))
        beam, option, owner, layout = self._choose(beam, scores, looks, mask, MOST_LAYOUTS)
        state, here, micro, domain, level = state[owner], here[owner], micro[owner], domain[owner], level[owner]

        looks, mask = cut_choices(task, beam.plans, domain, level, option)
        scores = network.cut_scores(state, here, layout, _t(looks))
        beam, last, owner, cut = self._choose(beam, scores, looks, mask, MOST_CUTS)
        memory = network.remember(beam.memory, here[owner], micro[owner], layout[owner], cut)
        plans = advance(task, beam.plans, domain[owner], level[owner], option[owner], last + 1)
        return _Beam(plans, memory, beam.score)

    def _choose(
        self, beam: _Beam, scores: Tensor, looks: FloatArray, mask: BoolArray, most: int
    ) -> tuple[_Beam, IntArray, IntArray, Tensor]:
        """Go on with the likeliest choices: the new beam, what each plan chose, whose it was, and how that looks."""
        owner, choice, score = _best(beam.score, _log(scores, mask), self.width, most)
        return beam.take(owner, score), choice, owner, _t(looks[owner, choice])


def _t(values: np.ndarray) -> Tensor:
    return torch.as_tensor(np.ascontiguousarray(values), dtype=torch.float32)


def _log(scores: Tensor, mask: np.ndarray) -> FloatArray:
    """Log-probabilities; a plan whose every choice is masked gets −∞ throughout."""
    allowed = torch.as_tensor(np.ascontiguousarray(mask))
    likely = log_probabilities(scores, allowed).masked_fill(~allowed, float("-inf"))
    found: FloatArray = likely.numpy().astype(np.float64)
    return found


def _best(score: FloatArray, likely: FloatArray, width: int, most: int) -> tuple[IntArray, IntArray, FloatArray]:
    """Keep the ``width`` likeliest continuations, at most ``most`` of each plan: owner, choice, log-probability."""
    total = score[:, None] + likely
    ranked = np.argsort(-total, axis=1, kind="stable")[:, :most]
    kept = np.take_along_axis(total, ranked, axis=1)
    order = np.argsort(-kept, axis=None, kind="stable")[:width]
    order = order[np.isfinite(kept.reshape(-1)[order])]
    owner, place = np.unravel_index(order, kept.shape)
    return owner, ranked[owner, place], kept[owner, place]
