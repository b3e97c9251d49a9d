"""Realistic explanations for tests: a decision over four domains with links, loads, the task and its attributions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from attribution_sched.cluster.gpus import Precision
from attribution_sched.cluster.plan import Plan, Replica, Segment
from attribution_sched.explain.explanation import COMPONENTS, SIGNS, TOTAL, Explanation
from attribution_sched.explain.findings import Change, Confidence, Counterfactual, Interaction, Player, Rule
from attribution_sched.explain.wording import describe_plan
from attribution_sched.words.say import Phrase

DOMAINS = ("us-east", "us-west", "eu-west", "ap-tokyo")
PLAN = describe_plan(
    Plan((Replica((Segment(0, 0, 24, 2, 4, 1, Precision.BF16), Segment(2, 24, 48, 2, 4, 1, Precision.BF16)), 4, 8),)),
    DOMAINS,
)
OTHER = describe_plan(Plan((Replica((Segment(0, 0, 48, 4, 4, 1, Precision.BF16),), 8, 8),)), DOMAINS)
WEIGHTS = (1.0, 0.5, 0.3)


def _load(free: int, busy: float) -> Phrase:
    return Phrase("reading.load", free=free, busy=busy)


def _waiting(count: int) -> Phrase:
    return Phrase("reading.waiting", count=count)


def _steps(steps: float) -> Phrase:
    return Phrase("reading.steps", steps=steps)


def _link(gbps: str, latency_ms: float) -> Phrase:
    return Phrase("reading.link", gbps=gbps, latency_ms=latency_ms)


PLAYERS = (
    Player("link us-east–eu-west", "link", _link("9.1", 38), "3.4 Gb/s", 9.1, 3.4, "Gb/s"),
    Player("link us-east–us-west", "link", _link("4.0", 31), "4.2 Gb/s", 4.0, 4.2, "Gb/s"),
    Player("load us-east", "load", _load(24, 25), _load(14, 50), 24.0, 14.0, "free devices"),
    Player("load eu-west", "load", _load(9, 72), _load(16, 50), 9.0, 16.0, "free devices"),
    Player("load ap-tokyo", "load", _load(2, 94), _load(12, 50), 2.0, 12.0, "free devices"),
    Player("queue", "queue", _waiting(7), _waiting(2), 7.0, 2.1, "waiting"),
    Player("work left", "task", _steps(12_000), _steps(4_100), 12000.0, 4100.0, "steps"),
    Player("time of day", "time", "14:30", "11.8 h", 14.5, 11.8, "h"),
    Player("attribution memory_bandwidth", "attribution", "+0.61", "0.12", 0.61, 0.12),
    Player("attribution attention", "attribution", "+0.05", "0.11", 0.05, 0.11),
    Player("reward weights", "weights", "1 / 0.5 / 0.3", "1.8", 1.8, 1.8),
)

SHARES = np.array(
    [  #  R_eff   R_util  R_cost
        [0.182, 0.061, 0.031],
        [-0.004, 0.001, 0.002],
        [0.094, 0.042, -0.058],
        [-0.071, -0.035, 0.006],
        [-0.012, -0.004, -0.011],
        [-0.033, 0.018, 0.001],
        [0.021, 0.008, 0.014],
        [0.001, -0.002, 0.009],
        [0.052, -0.047, 0.002],
        [0.003, 0.002, -0.001],
        [0.0, 0.0, 0.0],
    ]
)


def explanation(
    decision: str = "d-0017",
    seed: int = 0,
    *,
    noise: float = 0.0,
    scale: float = 1.0,
    players: tuple[Player, ...] = PLAYERS,
    **changes: object,
) -> Explanation:
    """One decision's terms with their total; ``noise`` moves shares and readings with the seed."""
    rng = np.random.default_rng(seed)
    at = [PLAYERS.index(player) for player in players]
    values = scale * SHARES[at] + noise * rng.normal(size=(len(at), 3))
    base = np.asarray(changes.pop("base", [0.12, 0.48, 0.35]))
    given: dict[str, object] = {
        "decision": decision,
        "policy": "hi-ppo",
        "subject": PLAN,
        "target": "terms",
        "players": players,
        "outputs": COMPONENTS,
        "values": values,
        "standard_error": np.full(values.shape, 0.004) * (1.0 + (np.arange(len(at))[:, None] % 3) / 3),
        "base": base,
        "value": base + values.sum(axis=0),
        "weights": WEIGHTS,
        "method": "permutation",
        "degrees": 31,
        "rows": 12_288,
        "background": 512,
        "background_name": "journal",
        "seed": 7,
        "seconds": 0.042,
    }
    return with_total(Explanation(**{**given, **changes}))  # type: ignore[arg-type]


def full(**changes: object) -> Explanation:
    """An explanation with everything that can be found beside the shares."""
    return explanation(
        **{
            "confidence": Confidence(0.81, OTHER, 0.12, 0.92),
            "outcome": Phrase("outcome.measured", predicted="0.5 s", measured="0.6 s", off="+20 %", spent=""),
            "rules": (
                Rule("link us-east–eu-west", "bandwidth", "Gb/s", 9.1, 4.6, "above", OTHER),
                Rule("load eu-west", "free devices", "free devices", 9.0, 7.5, "above", OTHER),
            ),
            "counterfactual": Counterfactual(
                (
                    Change("link us-east–eu-west", "bandwidth", 9.1, 5.2, "Gb/s"),
                    Change("link us-east–eu-west", "latency", 38.0, 61.0, "ms"),
                ),
                0.83,
                OTHER,
                True,
            ),
            "interactions": (
                Interaction("link us-east–eu-west", "load eu-west", "R", 0.041, 0.006),
                Interaction("queue", "time of day", "R", 0.004, 0.006),
            ),
            **changes,
        }
    )


def contrast(**changes: object) -> Explanation:
    """Why the plan and not the other one."""
    return full(**{"against": OTHER, "base": np.array([0.02, -0.05, 0.11]), "decision": "d-0017b", **changes})


def log_odds(**changes: object) -> Explanation:
    """The behaviour of the policy: one output, in nats."""
    values = 8.0 * SHARES[:, :1]
    given: dict[str, object] = {
        "decision": "d-0017c",
        "policy": "hi-ppo",
        "subject": PLAN,
        "target": "log_odds",
        "players": PLAYERS,
        "outputs": ("log-odds",),
        "values": values,
        "standard_error": np.full(values.shape, 0.05),
        "base": np.array([-0.4]),
        "value": np.array([-0.4]) + values.sum(axis=0),
        "against": OTHER,
        "method": "kernel",
        "rows": 4096,
        "background": 200,
        "seed": 3,
        "confidence": Confidence(0.81, OTHER, 0.12),
    }
    return Explanation(**{**given, **changes})  # type: ignore[arg-type]


def episode(n: int = 40, seed: int = 0, *, noise: float = 0.012, start: int = 0) -> list[Explanation]:
    """Decisions of an episode: readings move, shares follow them; every third has no queue."""
    rng = np.random.default_rng([seed, 99])
    found = []
    for d in range(n):
        kept = tuple(player for player in PLAYERS if d % 3 or player.name != "queue")
        turn = float(np.cos(2 * np.pi * d / 24))
        made = explanation(f"d-{start + d:04d}", d + 1000 * seed, noise=noise, scale=0.7 + 0.5 * turn, players=kept)
        moved = tuple(
            Player(p.name, p.group, p.value, p.usual, p.usual_number * float(np.exp(0.5 * turn + 0.2 * z)),
                   p.usual_number, p.unit)
            for p, z in zip(kept, rng.normal(size=len(kept)), strict=True)
        )  # fmt: skip
        found.append(Explanation(**{**{k: getattr(made, k) for k in made.__dataclass_fields__}, "players": moved}))
    return found


def some(
    values: np.ndarray,
    errors: np.ndarray,
    *,
    outputs: tuple[str, ...] = COMPONENTS,
    target: str = "terms",
    weights: tuple[float, float, float] | None = WEIGHTS,
    **changes: object,
) -> Explanation:
    """An explanation of given shares and errors, players named ``input0q`` and so on; with total if it can have one."""
    values, errors = np.atleast_2d(values), np.atleast_2d(errors)
    base = np.linspace(0.1, 0.3, values.shape[1])
    players = tuple(Player(f"input{p}q", "input", f"{p}", f"{p + 1}", p, p + 1) for p in range(len(values)))
    made = Explanation(
        **{
            "decision": "d", "policy": "some", "subject": "a", "target": target, "players": players,
            "outputs": outputs, "values": values, "standard_error": errors, "base": base,
            "value": base + values.sum(axis=0), "weights": weights, "method": "permutation", **changes,
        }  # type: ignore[arg-type]
    )  # fmt: skip
    return with_total(made) if outputs == COMPONENTS and weights is not None else made


def with_total(made):
    """Add the output R, the components' sum with the frozen weights; its errors are bounded by adding theirs up."""
    scale = np.array(SIGNS) * np.array(made.weights)
    return replace(
        made,
        outputs=(*COMPONENTS, TOTAL),
        values=np.column_stack([made.values, made.values @ scale]),
        standard_error=np.column_stack([made.standard_error, made.standard_error @ np.abs(scale)]),
        base=np.append(made.base, made.base @ scale),
        value=np.append(made.value, made.value @ scale),
    )
