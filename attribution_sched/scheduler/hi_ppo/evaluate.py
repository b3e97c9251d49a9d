"""What a network says: it chooses during a decode, or judges a decode that somebody took."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attribution_sched.scheduler.hi_ppo.decode import HEADS, UPPER, Choices, Steps, Trace
from attribution_sched.scheduler.hi_ppo.features import ATTRIBUTION_AT, TASK_AT, State
from attribution_sched.scheduler.hi_ppo.network import HiPpoNetwork, sparse
from attribution_sched.scheduler.hi_ppo.partial_plans import PartialPlans
from attribution_sched.scheduler.ppo.policy import chosen, entropy, masked_log_softmax, sample

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

SYSTEM = 20
"""The first numbers of a domain are its 20 system numbers."""


class Places(NamedTuple):
    """Where candidates stand that were put one after the other.

    Attributes:
        owner: Decision of each, shape ``(M,)``.
        column: Its place among the candidates of that decision, shape ``(M,)``.
        at: Number of every candidate in that order, shape ``(B, Q)``; 0 where there is none.
    """

    owner: Tensor
    column: Tensor
    at: IntArray


class Seen(NamedTuple):
    """A batch of decisions as the shared part of the network sees it.

    Attributes:
        embeddings: Domains, shape ``(B, K, W)``.
        nodes: What the domain head needs of them, shape ``(B, K, H)``.
        shared: The state, shape ``(B, W)``.
        each: Candidates, shape ``(B, Q, H)``.
        context: The state once a task is chosen, shape ``(B, W)``.
        own: The 32 numbers of every lower agent, shape ``(B, K, 32)``.
        places: Where the candidates stand if those of all decisions were put one after the other; ``each`` is then of
            shape ``(M, H)``.
    """

    embeddings: Tensor
    nodes: Tensor
    shared: Tensor
    each: Tensor
    context: Tensor
    own: Tensor
    places: Places | None = None


class Judgement(NamedTuple):
    """What the network says of B decisions, each of shape ``(B,)`` except the values.

    Attributes:
        upper: Log-probability of the upper agent's choices.
        lower: Log-probability of the lower agents' choices.
        upper_entropy: In nats, summed over choices.
        lower_entropy: In nats, summed over choices.
        values: V_c(s), shape ``(B, 3)``.
        action_values: Q_c(s, a), shape ``(B, 3)``.
    """

    upper: Tensor
    lower: Tensor
    upper_entropy: Tensor
    lower_entropy: Tensor
    values: Tensor
    action_values: Tensor


def look(network: HiPpoNetwork, state: State, task: IntArray | None = None, *, only_present: bool = False) -> Seen:
    """Encode decisions once for all heads; without a task the context is not there yet.

    Args:
        network: Who looks.
        state: The decisions.
        task: Candidate chosen in each, shape ``(B,)``.
        only_present: Where most places of the queue are empty, candidates of all decisions may be put one after the
            other, ``Seen.each`` of shape ``(M, H)``.
    """
    device = next(network.parameters()).device
    nodes = torch.from_numpy(state.nodes).to(device)
    everywhere = torch.ones(nodes.shape[:2], dtype=torch.bool, device=device)
    embeddings, pooled = network.encoder(nodes, torch.from_numpy(state.edges).to(device), everywhere)
    general = torch.from_numpy(state.globals).to(device)
    places = None
    if only_present and sparse(state.present) and state.present[:, 0].all():
        row, column = np.nonzero(state.present)
        numbers = (state.present.ravel().cumsum() - 1).reshape(state.present.shape)
        places = Places(
            torch.from_numpy(row).to(device), torch.from_numpy(column).to(device), np.where(state.present, numbers, 0)
        )
        some = torch.from_numpy(state.candidates[row, column]).to(device)
        shared, each = network.upper.see_some(pooled, general, some, places.owner)
    else:
        candidates, present = (torch.from_numpy(part).to(device) for part in (state.candidates, state.present))
        shared, each = network.upper.see(pooled, general, candidates, present)
    seen = Seen(embeddings, network.upper.node(embeddings), shared, each, shared, nodes[:, :, :SYSTEM], places)
    return seen if task is None else with_task(network, seen, state, task)


def with_task(network: HiPpoNetwork, seen: Seen, state: State, task: IntArray) -> Seen:
    """Add what the choice of a task tells; where nothing is done, the first candidate stands in."""
    device = seen.shared.device
    row, at = np.arange(len(task)), np.where(task < state.candidates.shape[1], task, 0)
    told = state.candidates[row, at]
    numbers = np.concatenate([told[:, TASK_AT : TASK_AT + 5], told[:, ATTRIBUTION_AT:]], axis=1)
    k = seen.own.shape[1]
    own = torch.cat([seen.own, torch.from_numpy(numbers).to(device)[:, None, :].expand(-1, k, -1)], dim=-1)
    if seen.places is None:
        chosen_one = seen.each[torch.from_numpy(row).to(device), torch.from_numpy(at).to(device)]
    else:
        chosen_one = seen.each.index_select(0, torch.from_numpy(seen.places.at[row, at]).to(device))
    return seen._replace(context=network.upper.context(seen.shared, chosen_one), own=own)


def task_scores(network: HiPpoNetwork, seen: Seen, most: int) -> Tensor:
    """Scores of the candidates and of doing nothing, ``(B, Q + 1)``; those that are not there may get any."""
    if seen.places is None:
        return network.upper.task_logits(seen.shared, seen.each)
    return network.upper.some_task_logits(seen.shared, seen.each, (seen.places.owner, seen.places.column), most)


def logits(
    network: HiPpoNetwork, head: str, seen: Seen, offer: Choices, at: Tensor, *, only_allowed: bool = False
) -> Tensor:
    """Scores of what is offered; ``at`` gives the row of each offer's decision in ``seen``.

    Args:
        network: Who is asked.
        head: Which head.
        seen: What it sees.
        offer: What is offered.
        at: Row of each offer's decision in ``seen``.
        only_allowed: What the mask forbids may get any score; saves time where most is forbidden.
    """
    device = seen.shared.device
    told = torch.from_numpy(offer.context).to(device)
    context = seen.context[at]
    few = only_allowed and head != "domain" and sparse(offer.mask)
    choices = torch.from_numpy(offer.choices[offer.mask] if few else offer.choices).to(device)
    if head == "domain":
        return network.upper.domain_logits(seen.nodes[at], choices, context, told)
    domain = torch.from_numpy(offer.domain).to(device)
    node = seen.embeddings[at, domain]
    lower = network.lower
    if head == "cut":
        pointer, all_told = network.upper.cut, torch.cat([node, context, told], dim=-1)
    else:
        pointer = {"layout": lower.layout, "format": lower.format, "level": lower.level}[head]
        stage = told[:, : told.shape[1] - _extra(network, head)]
        z = lower.see(torch.cat([seen.own[at, domain], node, context, stage], dim=-1))
        all_told = torch.cat([z, told[:, stage.shape[1] :]], dim=-1)
    if few:
        return pointer.only(choices, all_told, _places(offer.mask, device), offer.mask.shape[1])
    found: Tensor = pointer(choices, all_told)
    return found


def _places(allowed: BoolArray, device: torch.device) -> tuple[Tensor, Tensor]:
    row, column = np.nonzero(allowed)
    return torch.from_numpy(row).to(device), torch.from_numpy(column).to(device)


def _extra(network: HiPpoNetwork, head: str) -> int:
    """Numbers of the choices before it that a lower head is told."""
    layout = network.lower.layout.choice.in_features
    return {"layout": 0, "format": layout, "level": layout + network.lower.format.choice.in_features}[head]


class NetworkActor:
    """Chooses by a network.

    Args:
        network: Who chooses.
        generator: Source of randomness; None takes the most probable choice everywhere.
        must_act: Whether doing nothing is out of the question where something can be done.
    """

    def __init__(self, network: HiPpoNetwork, generator: torch.Generator | None, *, must_act: bool = False) -> None:
        self.network = network
        self.generator = generator
        self.must_act = must_act
        self.seen: Seen | None = None
        self.upper: Tensor = torch.zeros(0)
        self.lower: Tensor = torch.zeros(0)
        self.values: Tensor = torch.zeros(0)

    @torch.no_grad()
    def task(self, state: State) -> IntArray:
        """Choose a task, and remember the encoding."""
        seen = look(self.network, state, only_present=True)
        mask = torch.from_numpy(state.mask).to(seen.shared.device)
        if self.must_act:
            mask = mask.clone()
            mask[:, -1] &= ~mask[:, :-1].any(dim=-1)
        log_probs = masked_log_softmax(task_scores(self.network, seen, state.present.shape[1]), mask)
        taken = sample(log_probs, self.generator)
        self.upper = chosen(log_probs, taken)
        self.lower = torch.zeros_like(self.upper)
        self.values = self.network.value(seen.shared)
        found: IntArray = taken.cpu().numpy()
        self.seen = with_task(self.network, seen, state, found)
        return found

    @torch.no_grad()
    def choose(self, head: str, offer: Choices, drafts: PartialPlans, rows: IntArray) -> IntArray:
        """Choose by a head, and add up log-probabilities per level."""
        if self.seen is None:
            raise RuntimeError("choose() before task()")
        at = torch.from_numpy(offer.decision).to(self.upper.device)
        mask = torch.from_numpy(offer.mask).to(self.upper.device)
        log_probs = masked_log_softmax(logits(self.network, head, self.seen, offer, at, only_allowed=True), mask)
        taken = sample(log_probs, self.generator)
        total = self.upper if head in UPPER else self.lower
        total.index_add_(0, at, chosen(log_probs, taken))
        found: IntArray = taken.cpu().numpy()
        return found

    @torch.no_grad()
    def retask(self, state: State, task: IntArray) -> None:
        """Look at the cluster as it is for other tasks."""
        if self.seen is not None:
            bare = self.seen._replace(own=self.seen.own[:, :, :SYSTEM])
            self.seen = with_task(self.network, bare, state, task)

    @torch.no_grad()
    def log_probability(self, trace: Trace) -> NDArray[np.float64]:
        """Of what was chosen, at the upper and at the lower level, shape ``(B, 2)``."""
        found = judge(self.network, trace)
        return np.column_stack([found.upper.cpu().numpy(), found.lower.cpu().numpy()]).astype(np.float64)


def judge(network: HiPpoNetwork, trace: Trace) -> Judgement:
    """Ask a network about decisions that were taken, with gradients."""
    seen = look(network, trace.state, trace.task, only_present=True)
    device = seen.shared.device
    mask = torch.from_numpy(trace.state.mask).to(device)
    log_probs = masked_log_softmax(task_scores(network, seen, trace.state.present.shape[1]), mask)
    totals = {
        True: chosen(log_probs, torch.from_numpy(trace.task).to(device)),
        False: torch.zeros(len(mask), device=device),
    }
    spread = {True: entropy(log_probs), False: torch.zeros(len(mask), device=device)}
    for head in HEADS:
        steps = trace.steps[head]
        if len(steps.taken) == 0:
            continue
        at = torch.from_numpy(steps.offer.decision).to(device)
        allowed = torch.from_numpy(steps.offer.mask).to(device)
        found = masked_log_softmax(logits(network, head, seen, steps.offer, at, only_allowed=True), allowed)
        level = head in UPPER
        totals[level] = totals[level].index_add(0, at, chosen(found, torch.from_numpy(steps.taken).to(device)))
        spread[level] = spread[level].index_add(0, at, entropy(found))
    plans = torch.from_numpy(trace.plans).to(device)
    quality = network.action_value(torch.cat([seen.shared, seen.context, plans], dim=-1))
    return Judgement(totals[True], totals[False], spread[True], spread[False], network.value(seen.shared), quality)


def take_trace(trace: Trace, index: IntArray, offsets: dict[str, IntArray]) -> Trace:
    """Some decisions of a trace; ``offsets`` is what :func:`trace_offsets` gave for it."""
    state = trace.state
    part = State(
        state.nodes[index], state.edges[index], state.globals[index], state.candidates[index], state.mask[index],
        state.present[index],
    )  # fmt: skip
    steps = {}
    for head in HEADS:
        begin, end = offsets[head][index], offsets[head][index + 1]
        count = end - begin
        at = np.repeat(np.arange(len(index)), count)
        rows = np.repeat(begin - np.concatenate([[0], np.cumsum(count)[:-1]]), count) + np.arange(count.sum())
        whole = trace.steps[head]
        offer = Choices(
            at, whole.offer.choices[rows], whole.offer.mask[rows], whole.offer.context[rows], whole.offer.domain[rows]
        )
        steps[head] = Steps(offer, whole.taken[rows])
    return Trace(part, trace.task[index], steps, trace.plans[index])


def trace_offsets(trace: Trace) -> dict[str, IntArray]:
    """Where the offers of each decision begin, per head, shape ``(B + 1,)``."""
    b = len(trace.task)
    return {head: np.searchsorted(trace.steps[head].offer.decision, np.arange(b + 1)) for head in HEADS}
