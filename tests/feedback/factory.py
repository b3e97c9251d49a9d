"""Windows for tests: decisions whose outcomes follow their explanations, but for a planted driver."""

from __future__ import annotations

import numpy as np

from attribution_sched.cluster.world import Reward
from attribution_sched.explain.explanation import COMPONENTS, Explanation
from attribution_sched.explain.findings import Player
from attribution_sched.feedback.window import DecisionOutcome, Window

PLAYERS = ("link a–b", "load a", "task", "queue")
REWARD = Reward(w_eff=1.0, w_util=0.6, w_cost=0.4, energy_usd_per_kwh=0.12)


def told(values, error=0.001, decision="d", base=(0.1, 0.6, 1.0), names=PLAYERS, **changes) -> Explanation:
    """An explanation of the three terms with shares ``(P, 3)``."""
    shares = np.asarray(values, dtype=float)
    given = {
        "decision": decision,
        "policy": "test",
        "subject": "a task",
        "target": "terms",
        "players": tuple(Player(name, "load") for name in names),
        "outputs": COMPONENTS,
        "values": shares,
        "standard_error": np.broadcast_to(error, shares.shape),
        "base": np.array(base),
        "value": np.array(base) + shares.sum(axis=0),
        "weights": (1.0, 0.6, 0.4),
        "degrees": 100,
    } | changes
    return Explanation(**given)


def explained(n=60, seed=0, *, planted=None, truth=0.0, noise=0.02, base=(0.1, 0.6, 1.0), error=0.001) -> Window:
    """Decisions with honest shares; ``planted = (player, component, size)`` claims what is ``truth`` times true.

    A planted driver speaks up in every other decision.
    """
    rng = np.random.default_rng(seed)
    outcomes, explanations = [], []
    for i in range(n):
        shares = 0.1 * rng.normal(size=(len(PLAYERS), 3))
        real = np.array(base) + shares.sum(axis=0)
        if planted is not None and i % 2 == 0:
            p, c = PLAYERS.index(planted[0]), COMPONENTS.index(planted[1])
            shares[p, c] += planted[2]
            real[c] += truth * planted[2]
        outcomes.append(outcome(*(real + noise * rng.normal(size=3))))
        explanations.append(told(shares, error, decision=f"d{i}", base=base))
    return Window(tuple(outcomes), tuple(explanations), span_s=3600.0)


def outcome(r_eff=0.1, r_util=0.6, r_cost=1.0, **changes) -> DecisionOutcome:
    """A decision of 100 steps of a second on the baseline, 200 J each."""
    given = {"step_s": 1.0, "base_step_s": 1.0, "bill_usd": 0.0, "energy_j": 200.0, "steps": 100.0} | changes
    return DecisionOutcome(float(r_eff), float(r_util), float(r_cost), **given)


def plain(n=40, seed=0, noise=0.01, **levels) -> Window:
    """Decisions around given levels, not explained."""
    rng = np.random.default_rng(seed)
    drawn = [{name: level * (1 + noise * rng.normal()) for name, level in levels.items()} for _ in range(n)]
    return Window(tuple(outcome(**one) for one in drawn), span_s=3600.0)
