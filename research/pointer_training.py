"""Learning by teacher forcing: the negative log-likelihood of the teacher's choices, by AdamW with a cosine rate."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from attribution_sched.errors import ModelFitError, problem
from attribution_sched.rivals.seq2seq.network import NetworkSize, PointerNetwork, log_probabilities
from research.pointer_examples import Choice, Example

HEADS = ("domain", "micro", "option", "cut")


@dataclass(frozen=True)
class TrainingSettings:
    """How the network is trained.

    Attributes:
        epochs: Passes over the examples.
        batch: Examples per step.
        rate: Largest learning rate.
        decay: Weight decay.
        noise: Standard deviation of the noise on what is read of domains and links, while learning.
        seed: Seed of first weights and order.
        size: How large the network is.
    """

    epochs: int = 30
    batch: int = 64
    rate: float = 2e-3
    decay: float = 1e-2
    noise: float = 0.03
    seed: int = 0
    size: NetworkSize = field(default_factory=NetworkSize)


@dataclass(frozen=True)
class EpochReport:
    """Mean loss per plan after an epoch, in nats.

    Attributes:
        epoch: From 1.
        train: On the examples learnt from.
        held: On those kept aside; NaN without any.
        heads: On those kept aside (else on the others), per kind of choice.
    """

    epoch: int
    train: float
    held: float
    heads: dict[str, float]


def loss_of(
    network: PointerNetwork, examples: Sequence[Example], noise: Noise | None = None
) -> tuple[Tensor, dict[str, float]]:
    """Mean negative log-likelihood of whole plans, and its parts per kind of choice."""
    nodes, edges, task, opened = _decisions(examples)
    if noise is not None:
        nodes, edges = noise(nodes), noise(edges)
    embedded, memory = network.encode(nodes, edges, task, opened)
    longest = max(example.segments for example in examples)
    rows = np.arange(len(examples))
    memories = [memory]
    owners: dict[str, list[np.ndarray]] = {name: [] for name in ("segment", "step")}
    for s in range(longest):
        going = rows[[example.segments > s for example in examples]]
        owners["segment"].append(going)
        owners["step"].append(np.full(len(going), s))
        chosen = [(examples[b], s) for b in going]
        here = embedded[going, [int(e.domains[s]) for e, _ in chosen]]
        parts = [_picked(chosen, name) for name in ("micro", "option", "cut")]
        after = memories[-1].clone()
        after[going] = network.remember(memories[-1][going], here, *parts)
        memories.append(after)
    stacked = torch.stack(memories, dim=1)
    losses: dict[str, Tensor] = {}
    # Next domain or end: one moment more than segments.
    owner = np.concatenate([np.full(e.segments + 1, b) for b, e in enumerate(examples)])
    step = np.concatenate([np.arange(e.segments + 1) for e in examples])
    contexts = _tensor(np.concatenate([e.context for e in examples]))
    state = network.state(stacked[owner, step], contexts, task[owner])
    looks, mask, target = _pad_domains([e.domain for e in examples], nodes.shape[1])
    losses["domain"] = _likelihood(network.domain_scores(state, embedded[owner], looks), mask, target)
    # The three choices of every segment share its state.
    inside = np.concatenate([np.append(np.ones(e.segments, dtype=bool), False) for e in examples])
    state, owner = state[inside], owner[inside]
    here = embedded[owner, np.concatenate([e.domains for e in examples])]
    micro, option, cut = (_pad([getattr(e, name) for e in examples]) for name in ("micro", "option", "cut"))
    losses["micro"] = _likelihood(network.micro_scores(state, here, micro[0]), *micro[1:])
    size = (micro[0] * micro[2][..., None]).sum(dim=1)
    losses["option"] = _likelihood(network.option_scores(state, here, size, option[0]), *option[1:])
    layout = (option[0] * option[2][..., None]).sum(dim=1)
    losses["cut"] = _likelihood(network.cut_scores(state, here, layout, cut[0]), *cut[1:])
    n = len(examples)
    total = sum(losses.values(), torch.zeros(())) / n
    return total, {name: float(part.detach()) / n for name, part in losses.items()}


def train(
    examples: Sequence[Example],
    settings: TrainingSettings | None = None,
    held: Sequence[Example] = (),
    report: Callable[[EpochReport], None] | None = None,
) -> PointerNetwork:
    """Train a network; the weights of the epoch with the least loss on ``held`` are kept, or the last ones.

    Args:
        examples: What to learn from.
        settings: How.
        held: Examples kept aside.
        report: Told after every epoch.

    Raises:
        ModelFitError: Without examples, or if the loss is no longer a number.
    """
    settings = settings or TrainingSettings()
    if not examples:
        raise ModelFitError(problem("examples", 0, "there must be at least one", "Give traces of the teacher"))
    network = fresh(settings.size, settings.seed)
    optimiser = torch.optim.AdamW(network.parameters(), lr=settings.rate, weight_decay=settings.decay)
    per_epoch = math.ceil(len(examples) / settings.batch)
    steps = settings.epochs * per_epoch
    rng = np.random.default_rng(settings.seed)
    noise = Noise(settings.noise, settings.seed)
    kept, least, done = copy.deepcopy(network.state_dict()), float("inf"), 0
    for epoch in range(1, settings.epochs + 1):
        order, total, parts = rng.permutation(len(examples)), 0.0, dict.fromkeys(HEADS, 0.0)
        for first in range(0, len(examples), settings.batch):
            batch = [examples[i] for i in order[first : first + settings.batch]]
            for group in optimiser.param_groups:
                group["lr"] = settings.rate * _schedule(done, steps)
            loss, heads = loss_of(network, batch, noise)
            if not torch.isfinite(loss):
                rule = "must stay a finite number"
                raise ModelFitError(problem("loss", float(loss), rule, "Lower the learning rate"))
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimiser.step()
            done += 1
            total += float(loss.detach()) * len(batch)
            parts = {name: parts[name] + heads[name] * len(batch) / len(examples) for name in HEADS}
        aside, parts = _evaluate(network, held, settings.batch) if held else (float("nan"), parts)
        if report:
            report(EpochReport(epoch, total / len(examples), aside, parts))
        if not held or aside < least:
            kept, least = copy.deepcopy(network.state_dict()), aside
    network.load_state_dict(kept)
    return network.eval()


class Noise:
    """Blurs what is read of a decision, so that links are not learnt by heart."""

    def __init__(self, spread: float, seed: int) -> None:
        self.spread = spread
        self.draws = torch.Generator().manual_seed(seed)

    def __call__(self, values: Tensor) -> Tensor:
        """Add noise to what is not 0."""
        blurred = values + self.spread * torch.randn(values.shape, generator=self.draws)
        return torch.where(values == 0.0, values, blurred)


def fresh(size: NetworkSize, seed: int) -> PointerNetwork:
    """Make an untrained network whose weights depend on the seed alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return PointerNetwork(size)


def _schedule(step: int, steps: int) -> float:
    warm = max(1, min(100, steps // 10))
    if step < warm:
        return (step + 1) / warm
    return 0.02 + 0.98 * 0.5 * (1.0 + math.cos(math.pi * (step - warm) / max(1, steps - warm)))


def _evaluate(network: PointerNetwork, examples: Sequence[Example], batch: int) -> tuple[float, dict[str, float]]:
    total, parts = 0.0, dict.fromkeys(HEADS, 0.0)
    with torch.no_grad():
        for first in range(0, len(examples), batch):
            some = examples[first : first + batch]
            loss, heads = loss_of(network, some)
            total += float(loss) * len(some) / len(examples)
            parts = {name: parts[name] + heads[name] * len(some) / len(examples) for name in HEADS}
    return total, parts


def _likelihood(scores: Tensor, mask: Tensor, target: Tensor) -> Tensor:
    """Negative log of the probability that one of the right choices is made, summed over moments."""
    likely = log_probabilities(scores, mask)
    return -torch.logsumexp(likely.masked_fill(~target, -1e9), dim=-1).sum()


def _tensor(values: np.ndarray) -> Tensor:
    return torch.as_tensor(values)


def _decisions(examples: Sequence[Example]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    n, k = len(examples), max(len(e.open) for e in examples)
    nodes = np.zeros((n, k, examples[0].nodes.shape[1]), dtype=np.float32)
    edges = np.zeros((n, k, k, examples[0].edges.shape[2]), dtype=np.float32)
    opened = np.zeros((n, k), dtype=bool)
    for b, example in enumerate(examples):
        own = len(example.open)
        nodes[b, :own], edges[b, :own, :own], opened[b, :own] = example.nodes, example.edges, example.open
    return _tensor(nodes), _tensor(edges), _tensor(np.stack([e.task for e in examples])), _tensor(opened)


def _picked(chosen: Sequence[tuple[Example, int]], name: str) -> Tensor:
    """Description of what the teacher chose at one step."""
    rows = []
    for example, s in chosen:
        choice: Choice = getattr(example, name)
        rows.append(choice.looks[s, int(np.argmax(choice.target[s]))])
    return _tensor(np.stack(rows))


def _pad(choices: Sequence[Choice]) -> tuple[Tensor, Tensor, Tensor]:
    """Join moments of several examples; choices that only others have are masked."""
    wide = max(choice.mask.shape[1] for choice in choices)
    looks, masks, targets = [], [], []
    for choice in choices:
        extra = wide - choice.mask.shape[1]
        looks.append(np.pad(choice.looks, ((0, 0), (0, extra), (0, 0))))
        masks.append(np.pad(choice.mask, ((0, 0), (0, extra))))
        targets.append(np.pad(choice.target, ((0, 0), (0, extra))))
    return _tensor(np.concatenate(looks)), _tensor(np.concatenate(masks)), _tensor(np.concatenate(targets))


def _pad_domains(choices: Sequence[Choice], k: int) -> tuple[Tensor, Tensor, Tensor]:
    """As :func:`_pad`, with the end kept in the last column."""
    moved = []
    for choice in choices:
        extra = k + 1 - choice.mask.shape[1]
        gap = ((0, 0), (0, extra))
        moved.append(
            Choice(
                np.pad(choice.looks, (*gap, (0, 0))),
                np.column_stack([np.pad(choice.mask[:, :-1], gap), choice.mask[:, -1]]),
                np.column_stack([np.pad(choice.target[:, :-1], gap), choice.target[:, -1]]),
            )
        )
    return _pad(moved)
