"""Hi-PPO on a page: how both levels decide, and how they learn from whole days.

    Algorithm Hi-PPO (specification, section 4)
    Input: state s_t        Output: a_t = {a_high, a_low}
    1: h_topo ← what is free and next released in every domain; what links carry now prices plans over several domains
    2: a_high ← π_high(s_high, h_topo)            task or waiting, and the domains       upper_agent.py
    3: for each domain k:
    4:     a_low_k ← π_low_k(s_low_k | a_high)    devices and layout, or a partner       lower_agent.py, partners.py
    5: execute a_t in the simulator or the cluster                                       coordinator.py
    6: observe T_step, U_k, C_comm
    7: compute R = w₁·R_eff + w₂·R_util − w₃·R_cost
    8: update both policies                                                      policy_search.py, then fork_ppo.py

    s_high   free devices, next release, hour, tasks that wait (hours as believed by attributions and pace, waited)
    a_high   wait | (task, domain) | (task, domains and cuts) | move a running task. Which task of several that no
             domain holds, and whether others leave it whole domains, is learnt; where it is cut is searched for
    R_high   −α·T_step − β·C_comm with α = w₁/T_base, β = w₃/C_base: R without utilisation, up to a constant
    s_low    free devices of the domain, hours of the task, who waits, what pairs of this cluster were seen to do whose
             attributions and pace are like theirs
    a_low    devices, (dp, tp, pp), format, microbatch | beside j, where no devices are free and s_ij + s_ji > 1
             (tasks whose model is known: where copies say that it pays)
    R_low    −λ₁·Frag − λ₂·T_comm inside a domain. T_comm is in T_step already; fragmentation is a potential Φ(s) of the
             state: with F = γ·Φ(s') − Φ(s) added, no policy's order changes (Ng, Harada and Russell, 1999). So neither
             is paid: both levels learn from R, and devices left over too few to be of use are a number of the agents

What acts is one formula over the candidates of a decision, q̂ = 0 where nothing was thought:

    π'(a|s) ∝ exp(log π_high(a) + log π_low(a) + β·q̂(a)),   q̂ the shrunk gain of a in copies of the cluster

The most probable acts. Log-odds are over what both agents and the search settled on, and at most 0: nothing is likelier
before it was thought about. q̂ is above 0 only where a gain was confirmed in fresh futures, beyond its noise; of what
the rule would do at least half of a gain counts, whatever its noise.

Candidates are what both agents settled on (after a local search of the details), what the rule would do, single changes
of either (another task, nothing, another domain, fewer or more devices, another cut, one more replica), the best cut
over every set of domains, and partners (thinking.py, candidates.py; planning.domain_orders.best_by_domains).

So both levels serve the one R, and line 8 can be about whole days of it, in two phases. First, the numbers of both
agents move by how groups of them did on the same days (:mod:`~attribution_sched.scheduler.hi_ppo.policy_search`): days
differ by 41, one choice by 2, and what all have in common cancels. Then PPO, clipped, with the fork as its advantage
(:mod:`~attribution_sched.scheduler.hi_ppo.fork_ppo`): a decision's candidates are played on under the same futures,

    Â_high(g) = Q(g) − Σ π_high·Q,   Â_low(a) = Q(a) − Q(g),

and a ranker over the candidates learns from it; its log-odds take the place of the agents' in π'. Then agents and
ranker play the copies on, and it begins again. What does not help on days of its own is undone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from attribution_sched.scheduler.hi_ppo.policy_search import Days, Gain, Search, gains, next_group, spreads
from attribution_sched.scheduler.hi_ppo.upper_agent import rule_theta
from attribution_sched.types import FloatArray

HELD_OUT = 900_000
"""First seed of the days by which what was learnt is judged; no group is played on them."""

FAR = 1_000
"""Seeds from one group's days to the next."""


@dataclass(frozen=True, eq=False)
class Round:
    """What some groups came to.

    Attributes:
        groups: Groups so far.
        gains: What the agents gain over the rule a day, per world, on held-out days.
        kept: Whether they are the best so far: the sum of gains, each over its world's spread.
    """

    groups: int
    gains: Mapping[str, Gain]
    kept: bool


def learn(
    days: Mapping[str, Days], groups: int, *, size: int = 20, every: int = 10, seed: int = 0,
    search: Search | None = None, told: Callable[[Round, Search], None] | None = None,
    best: FloatArray | None = None, stop: Callable[[], bool] | None = None,
) -> FloatArray:  # fmt: skip
    """Let both agents learn; returns their numbers, those that did best on held-out days.

    Args:
        days: Worlds by name; all count alike, in units of how much a change of the agents moves their days.
        groups: Groups to play in all.
        size: Members of a group.
        every: Groups between two looks at the held-out days.
        seed: Of draws, and of the days.
        search: Where an earlier run stopped.
        told: Told after every look, with the state to go on from.
        best: Best numbers of an earlier run; what is not better on the held-out days does not replace them.
        stop: Asked after every group; True ends it.
    """
    found = search or Search.begun()
    unit = spreads(list(days.values()), HELD_OUT - FAR)
    kept_numbers, most = rule_theta() if best is None else best, 0.0
    if best is not None:
        most = _worth(gains(days, best, HELD_OUT), unit)
    while found.groups < groups and not (stop is not None and stop()):
        first = FAR * (1 + (100 * seed + found.groups) % 800)

        def worth(theta: FloatArray, first: int = first) -> float:
            # Lines 1 to 7: whole days, decided by both agents, in the compiled simulator.
            earned = [one.returns(theta, first).mean() for one in days.values()]
            return float((np.array(earned) / unit).sum())

        found = next_group(found, worth, size, seed)  # Line 8.
        if found.groups % every == 0 or found.groups == groups:
            gained = gains(days, found.theta, HELD_OUT)
            total = _worth(gained, unit)
            kept = total > most
            if kept:
                kept_numbers, most = found.theta, total
            if told is not None:
                told(Round(found.groups, gained, kept), found)
    return kept_numbers


def _worth(gained: Mapping[str, Gain], unit: FloatArray) -> float:
    """Gains of all worlds, each in units of how much a change of the agents moves its days."""
    return float(sum(gain.mean / x for gain, x in zip(gained.values(), unit, strict=True)))
