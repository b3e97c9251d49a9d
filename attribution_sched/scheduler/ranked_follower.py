"""Who plays copies of a cluster on after a round of learning: both agents and the ranker, compiled.

    candidates = the agents' choice, what the rule would do, other tasks, waiting, another domain, fewer or more devices
    acts       = argmax of the ranker's log-odds over them, each described as ``candidate_features`` does

What the policy itself compares is larger and costs a hundred times as much: its plans go through a local search, cuts
of models that no domain holds are candidates, and so is leaving a running task where it is. Here moves, and decisions
at which a model that no domain holds would go next, are the agents' own. With quotas, limits of tasks or a share rule
the agents play on without the ranker. Plans are priced from a table of every kind, domain and number of devices at
nominal demands, scaled by how the time of that plan hangs on the task's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from attribution_sched.cluster.cost import CostModel, Scratch
from attribution_sched.cluster.decision import ATTRIBUTIONS
from attribution_sched.cluster.engine import state as st
from attribution_sched.cluster.engine.state import StateArrays, WorldArrays
from attribution_sched.cluster.fork import Copies, TenantLimits, begin_copy
from attribution_sched.cluster.gpus import PRECISIONS
from attribution_sched.cluster.plan import Plan, PlanBatch, Replica, Segment
from attribution_sched.cluster.reward import priced_terms
from attribution_sched.cluster.world import World
from attribution_sched.kernels import by_reference, kernel
from attribution_sched.scheduler.beliefs import AttributionBeliefs
from attribution_sched.scheduler.hi_ppo.candidate_features import AWAKE_H, EDGE, FEATURES, LEAST_ODDS, NODE
from attribution_sched.scheduler.hi_ppo.decode import Planner
from attribution_sched.scheduler.hi_ppo.lower_agent import FACTORS, SHORTEST_H, step_s
from attribution_sched.scheduler.hi_ppo.moment import NEVER_H
from attribution_sched.scheduler.hi_ppo.ranker import HIDDEN, WIDE, Ranker
from attribution_sched.scheduler.hi_ppo.upper_agent import (
    LAYOUT_ODDS,
    N_COSINE,
    N_RUNNING,
    N_SINE,
    N_WAITING,
    TASK_ODDS,
    WAIT_ODDS,
    Agents,
    Said,
    Seen,
    make_said,
    rule_theta,
    weigh,
)
from attribution_sched.scheduler.rule_follower import (
    AgentArrays,
    Buffers,
    RuleArrays,
    RuleFollower,
    agents_decide,
    agents_of,
    carry_out,
    go_on,
    pair_up,
    place_alone,
    value_at_end,
    weigh_pending,
)
from attribution_sched.types import FloatArray, IntArray, Task

MOST = 12
"""Candidates of a decision at most."""

STATES = ATTRIBUTIONS
"""Numbers of the EmSHAP vector."""

OTHERS = (0.118, 0.736, 0.972)
"""Which of the others is taken where another task or domain is listed, of those there are: fixed, as when thinking."""

WAITS, OWN, RULE, UPPER, LOWER, _ = range(6)
TASK = FEATURES.index("hours")
PLAN = FEATURES.index("devices")
APART = FEATURES.index("another_task")
MOMENT = FEATURES.index("waiting")
EFF, HOURS_HELD = PLAN + 6, PLAN + 9


@by_reference
class RankerArrays(NamedTuple):
    """The ranker's numbers, by the names of :data:`~attribution_sched.scheduler.hi_ppo.ranker.SHAPES`.

    Critics are left out: nobody asks what a candidate earns.
    """

    centre: FloatArray
    scale: FloatArray
    kappa: float
    node: FloatArray
    edge: FloatArray
    edge_bias: FloatArray
    conv: FloatArray
    conv_bias: FloatArray
    policy_1: FloatArray
    policy_1_bias: FloatArray
    policy_2: FloatArray
    policy_2_bias: FloatArray
    policy_3: FloatArray

    @classmethod
    def of(cls, ranker: Ranker) -> RankerArrays:
        """The same numbers, as kernels read them."""
        arrays = {name: np.ascontiguousarray(ranker.arrays[name], dtype=np.float64) for name in cls._fields}
        return cls(**{**arrays, "kappa": float(ranker.arrays["kappa"])})  # type: ignore[arg-type]


@by_reference
class Listed(NamedTuple):
    """Candidates of one decision; A of them at most, K domains.

    Attributes:
        ranker: Who orders them.
        rule: The agents with the rule's numbers: what the rule would do.
        told: What these say.
        terms: R_util and R_cost of every kind alone by domain and number of devices, shape ``(n_kinds, K, J, 2)``.
        x: Their numbers, shape ``(A, len(FEATURES))``.
        task: Candidate of the agents that each places, −1 for waiting, shape ``(A,)``.
        domain: Shape ``(A,)``.
        size: Logarithm of devices, shape ``(A,)``.
        trusted: 1 for what the rule would do and the agents would not, shape ``(A,)``.
        logits: Log-odds, shape ``(A,)``.
        nodes: Domains, shape ``(K, len(NODE))``.
        edges: Links, shape ``(K, K, len(EDGE))``.
        h: Domains encoded, shape ``(2, K, HIDDEN)``.
        y: Layers of the trunk, shape ``(3, WIDE)``.
    """

    ranker: RankerArrays
    rule: Agents
    told: Said
    terms: FloatArray
    x: FloatArray
    task: IntArray
    domain: IntArray
    size: IntArray
    trusted: FloatArray
    logits: FloatArray
    nodes: FloatArray
    edges: FloatArray
    h: FloatArray
    y: FloatArray


@kernel
def _offer(c: Listed, many: int, task: int, domain: int, size: int) -> int:
    """List a candidate if it is not there yet; returns how many there are."""
    if many >= c.task.size:
        return many
    for a in range(many):
        if c.task[a] == task and (task < 0 or (c.domain[a] == domain and c.size[a] == size)):
            return many
    c.task[many], c.domain[many], c.size[many] = task, domain, size
    return many + 1


@kernel
def _fitting(said: Said, q: int, k: int, j: int) -> bool:
    return bool(0 <= j < said.layout.shape[2] and np.isfinite(said.layout[q, k, j]))


@kernel
def _resized(c: Listed, many: int, said: Said, q: int, away: int) -> int:
    """List a task on so many doublings more (or fewer) devices, or as far as it goes that way."""
    k, own = said.domain[q], said.size[q]
    step = 1 if away > 0 else -1
    found = own
    for n in range(1, abs(away) + 1):
        if _fitting(said, q, k, own + step * n):
            found = own + step * n
    return _offer(c, many, q, k, found)  # type: ignore[no-any-return]


@kernel
def list_candidates(s: Seen, candidates: int, chosen: int, said: Said, c: Listed) -> int:
    """List the candidates of a placement, the agents' own choice first; returns how many there are.

    ``said`` is what the agents say; what the rule says is asked for.
    """
    own = max(chosen, 0)
    many: int = _offer(c, 0, chosen, -1 if chosen < 0 else said.domain[own], 0 if chosen < 0 else said.size[own])
    c.trusted[:] = 0.0
    first = weigh(c.rule, s, candidates, False, c.told)
    if first < 0:
        many = _offer(c, many, -1, -1, 0)
    elif c.told.domain[first] >= 0:
        many = _offer(c, many, first, c.told.domain[first], c.told.size[first])
    if many > 1:
        c.trusted[1] = 1.0
    others = 0
    for q in range(candidates):
        others += q != chosen and np.isfinite(said.score[q]) and said.domain[q] >= 0
    for at in range(2):
        wanted, place = int(OTHERS[at] * others), 0
        for q in range(candidates):
            if q == chosen or not np.isfinite(said.score[q]) or said.domain[q] < 0:
                continue
            if place == wanted:
                many = _offer(c, many, q, said.domain[q], said.size[q])
            place += 1
    many = _offer(c, many, -1, -1, 0)
    if chosen >= 0:
        k, j, places = said.domain[chosen], said.size[chosen], 0
        for other in range(s.free.size):
            places += other != k and _fitting(said, chosen, other, j)
        wanted, place = int(OTHERS[2] * places), 0
        for other in range(s.free.size):
            if other != k and _fitting(said, chosen, other, j):
                if place == wanted:
                    many = _offer(c, many, chosen, other, j)
                place += 1
        many = _resized(c, many, said, chosen, -1)
        many = _resized(c, many, said, chosen, -2)
        many = _resized(c, many, said, chosen, 2)
    return many


@kernel
def describe(
    world: WorldArrays, state: StateArrays, e: int, agents: Agents, believed: FloatArray, states: FloatArray, s: Seen,
    said: Said, slots: IntArray, candidates: int, many: int, c: Listed,
) -> None:  # fmt: skip
    """Write the listed candidates' numbers and the graph of the domains, as ``candidate_features`` has them."""
    domains = s.free.size
    total, free, soonest = 0.0, 0.0, NEVER_H
    for k in range(domains):
        total += agents.devices[k]
        free += s.free[k]
        soonest = min(soonest, s.release_h[k])
    queue_h, top = 0.0, -np.inf
    for q in range(candidates):
        kind, row = s.kind[q], state.slots[e, slots[q], st.POOL]
        share, pace = agents.nominal_shares[kind], 0.0
        for f in range(FACTORS):
            pace += share[f] * believed[row, 1 + f]
        queue_h += s.left[q] * agents.nominal_s[kind] * np.exp(pace) / 3600.0
        if np.isfinite(said.score[q]):
            top = max(top, TASK_ODDS * said.score[q])
    # Log π of every task and of nothing, as the agents have it.
    nothing, most = (top if np.isfinite(top) else 0.0), -np.inf
    for q in range(candidates):
        if np.isfinite(said.score[q]):
            nothing -= np.logaddexp(0.0, -WAIT_ODDS * said.patience[q])
            most = max(most, TASK_ODDS * said.score[q] - np.logaddexp(0.0, WAIT_ODDS * said.patience[q]))
    most = max(most, nothing)
    weight = np.exp(nothing - most)
    for q in range(candidates):
        if np.isfinite(said.score[q]):
            going = -np.logaddexp(0.0, WAIT_ODDS * said.patience[q])
            weight += np.exp(TASK_ODDS * said.score[q] + going - most)
    summed = most + np.log(weight)
    for a in range(many):
        x, q = c.x[a], c.task[a]
        x[:] = 0.0
        x[OWN], x[RULE] = 1.0 if a == 0 else 0.0, c.trusted[a]
        x[MOMENT], x[MOMENT + 1] = np.log1p(s.moment[N_WAITING]), free / total
        x[MOMENT + 2], x[MOMENT + 3] = np.log1p(s.moment[N_RUNNING]), np.log1p(soonest)
        x[MOMENT + 4] = np.log1p(8.0 * queue_h / total)
        x[MOMENT + 5], x[MOMENT + 6] = s.moment[N_SINE], s.moment[N_COSINE]
        x[MOMENT + 8], x[MOMENT + 9] = np.log2(total) / 4.0, np.log2(domains)
        if q < 0:
            x[WAITS], x[UPPER] = 1.0, max(LEAST_ODDS, nothing - summed)
            continue
        kind, slot, k, j = s.kind[q], slots[q], c.domain[a], c.size[a]
        row = state.slots[e, slot, st.POOL]
        going = -np.logaddexp(0.0, WAIT_ODDS * said.patience[q])
        x[UPPER] = max(LEAST_ODDS, TASK_ODDS * said.score[q] + going - summed)
        best, best_there = -np.inf, -np.inf
        for i in range(domains):
            for n in range(said.layout.shape[2]):
                best = max(best, said.layout[q, i, n])
            best_there = max(best_there, said.layout[q, i, j])
        layouts = 0.0
        for i in range(domains):
            for n in range(said.layout.shape[2]):
                layouts += np.exp(LAYOUT_ODDS * (said.layout[q, i, n] - best))
        if np.isfinite(best_there):
            x[LOWER] = max(LEAST_ODDS, LAYOUT_ODDS * (best_there - best) - np.log(layouts))
        share, pace = agents.nominal_shares[kind], 0.0
        for f in range(FACTORS):
            pace += share[f] * believed[row, 1 + f]
            x[TASK + 3 + f] = believed[row, 1 + f]
        hours = s.left[q] * agents.nominal_s[kind] * np.exp(pace) / 3600.0
        x[TASK] = np.log(hours + SHORTEST_H)
        x[TASK + 1] = np.log(s.left[q] * agents.base_s[kind] / 3600.0 + SHORTEST_H)
        x[TASK + 2] = np.log1p(s.waited_s[q] / 3600.0)
        for i in range(STATES):
            x[TASK + 6 + i] = states[row, i]
        held = 2.0**j
        seconds = step_s(agents.table, kind, agents.domain_class[k], j, believed[row, 1 : 1 + FACTORS])
        left = s.free[k] - held
        x[PLAN], x[PLAN + 1], x[PLAN + 2] = j, held / total, left / agents.devices[k]
        x[PLAN + 3], x[PLAN + 4], x[PLAN + 5] = 1.0 if left == 0 else 0.0, 1.0, np.log1p(s.release_h[k])
        slower = seconds / agents.table.seconds[kind, agents.domain_class[k], j]
        x[EFF] = max(-4.0, min(4.0, 1.0 - seconds / agents.base_s[kind]))
        x[EFF + 1] = max(-4.0, min(4.0, c.terms[kind, k, j, 0]))
        x[EFF + 2] = max(-4.0, min(4.0, c.terms[kind, k, j, 1] * slower))
        x[HOURS_HELD] = np.log(s.left[q] * min(seconds, 1e6) / 3600.0 + SHORTEST_H)
    own = c.x[0]
    for a in range(many):
        x = c.x[a]
        x[APART] = 1.0 if c.task[a] != c.task[0] or c.task[a] < 0 else 0.0
        x[APART + 1], x[APART + 5] = x[PLAN] - own[PLAN], x[TASK] - own[TASK]
        for i in range(3):
            x[APART + 2 + i] = x[EFF + i] - own[EFF + i]
    for k in range(domains):
        here = agents.devices[k]
        c.nodes[k, 0], c.nodes[k, 1] = s.free[k] / here, here / total
        c.nodes[k, 2] = np.log1p(s.release_h[k])
        c.nodes[k, 3] = (s.release_devices[k] - s.free[k]) / here
        c.nodes[k, 4] = 1.0 if s.release_h[k] < AWAKE_H else 0.0
        for i in range(domains):
            base = max(world.base[0, k, i] * 8e-9, 1e-6)
            c.edges[k, i, 0] = 0.0 if i == k else max(0.0, min(4.0, state.links[e, 1, k, i] * 8e-9 / base))
            c.edges[k, i, 1] = 0.0 if i == k else max(0.0, min(4.0, np.log1p(base) / 4.0))


@kernel
def weigh_candidates(many: int, c: Listed) -> int:
    """Write the ranker's log-odds of the listed candidates; returns the first of the largest."""
    w, domains = c.ranker, c.nodes.shape[0]
    h, out = c.h[0], c.h[1]
    for k in range(domains):
        for n in range(HIDDEN):
            total = 0.0
            for i in range(c.nodes.shape[1]):
                total += c.nodes[k, i] * w.node[i, n]
            h[k, n] = np.tanh(total)
    for k in range(domains):
        # One round of messages along the links, as ``ranker.encode``.
        for n in range(HIDDEN):
            total = 0.0
            for i in range(domains):
                if i != k:
                    said = h[i, n] + w.edge_bias[n]
                    for f in range(c.edges.shape[2]):
                        said += c.edges[i, k, f] * w.edge[f, n]
                    total += max(said, 0.0)
            c.y[2, n] = h[k, n] + (total / (domains - 1) if domains > 1 else 0.0)
        for n in range(HIDDEN):
            total = w.conv_bias[n]
            for i in range(HIDDEN):
                total += c.y[2, i] * w.conv[i, n]
            out[k, n] = max(total, 0.0)
    # What all candidates have in common goes through the first layer once.
    shared, features = c.y[0], c.x.shape[1]
    for n in range(WIDE):
        shared[n] = w.policy_1_bias[n]
    for i in range(HIDDEN):
        mean, largest = 0.0, -np.inf
        for k in range(domains):
            mean += out[k, i] / domains
            largest = max(largest, out[k, i])
        for n in range(WIDE):
            shared[n] += mean * w.policy_1[features + i, n] + largest * w.policy_1[features + HIDDEN + i, n]
    best = 0
    for a in range(many):
        y, z = c.y[1], c.y[2]
        for n in range(WIDE):
            y[n] = shared[n]
        for i in range(features):
            value = (c.x[a, i] - w.centre[i]) / w.scale[i]
            for n in range(WIDE):
                y[n] += value * w.policy_1[i, n]
        if c.task[a] >= 0:
            for i in range(HIDDEN):
                value = out[c.domain[a], i]
                for n in range(WIDE):
                    y[n] += value * w.policy_1[features + 2 * HIDDEN + i, n]
        for n in range(WIDE):
            y[n], z[n] = max(y[n], 0.0), w.policy_2_bias[n]
        for i in range(WIDE):
            for n in range(WIDE):
                z[n] += y[i] * w.policy_2[i, n]
        found = 0.0
        for n in range(WIDE):
            found += max(z[n], 0.0) * w.policy_3[n, 0]
        apart = (c.x[a, UPPER] + c.x[a, LOWER]) - (c.x[0, UPPER] + c.x[0, LOWER])
        c.logits[a] = found + w.kappa * min(apart, 0.0)
        if c.logits[a] > c.logits[best]:
            best = a
    return best


@kernel(allocates=True)
def rank_pending(
    world: WorldArrays, state: StateArrays, e: int, rule: RuleArrays, believed: FloatArray, states: FloatArray,
    learnt: AgentArrays, c: Listed, b: Buffers,
) -> tuple[int, int]:  # fmt: skip
    """List, describe and weigh the candidates of the pending placement of a cluster.

    Returns:
        How many there are, and the first of the best. None where the decision is the agents' own: a move, nothing that
        could be placed, a model that no domain holds.
    """
    s = learnt.seen
    if state.event[e, st.EVENT] != st.PLACE:
        return 0, 0
    chosen, candidates, possible = weigh_pending(world, state, e, rule, believed, learnt, b)
    if not possible or (chosen >= 0 and learnt.said.domain[chosen] < 0):
        return 0, 0
    many: int = list_candidates(s, candidates, chosen, learnt.said, c)
    if many < 2:
        return 0, 0
    # What the agents believe of models that no domain holds is blanked where they look: both read ``believed``.
    describe(world, state, e, learnt.agents, believed, states, s, learnt.said, learnt.slots, candidates, many, c)
    return many, weigh_candidates(many, c)


@kernel
def enter(
    world: WorldArrays, state: StateArrays, e: int, rule: RuleArrays, learnt: AgentArrays, c: Listed, a: int,
    action: IntArray,
) -> bool:  # fmt: skip
    """Write a listed candidate as the action of the pending decision; False if it waits."""
    action[:, :] = 0
    action[:, 0] = learnt.seen.free.size
    if c.task[a] < 0:
        return False
    place_alone(state, e, rule, learnt, c.task[a], c.domain[a], c.size[a], action)
    return True


@kernel(allocates=True)
def follow_ranked(
    world: WorldArrays, state: StateArrays, begin: IntArray, slot: IntArray, first: IntArray, rule: RuleArrays,
    believed: FloatArray, states: FloatArray, b: Buffers, learnt: AgentArrays, c: Listed, action: IntArray,
    paid_by_work: bool, ledger: FloatArray, ends: FloatArray, codes: IntArray, scratch: Scratch, decided: IntArray,
    limits: TenantLimits, partners: FloatArray,
) -> None:  # fmt: skip
    """Play every cluster to the horizon by the agents and the ranker; see ``rule_follower.follow``."""
    for e in range(state.clock.shape[0]):
        codes[e] = begin_copy(world, state, e, begin[e], slot[e], first[e], paid_by_work, ledger[e], scratch)
        while state.event[e, st.DONE] == 0:
            if state.event[e, st.EVENT] != st.NO_EVENT:
                state.outcome[e, st.INTEGRALS :] = 0.0
                many, best = rank_pending(world, state, e, rule, believed, states, learnt, c, b)
                if many > 0:
                    acts, possible = enter(world, state, e, rule, learnt, c, best, action), True
                else:
                    acts, possible = agents_decide(world, state, e, rule, believed, learnt, b, action)
                if not acts and partners.shape[0] > 0 and state.event[e, st.EVENT] == st.PLACE:
                    acts = pair_up(world, state, e, partners, believed, action)
                    possible |= acts
                decided[e] += possible
                carry_out(world, state, e, rule, acts, action, paid_by_work, ledger[e], scratch, partners)
            go_on(world, state, e, b, paid_by_work, ledger[e], scratch, limits)
        if paid_by_work:
            value_at_end(world, state, e, rule, believed, b, ends[e], limits)


class RankedFollower(RuleFollower):
    """Plays copies of a cluster on by the agents and the ranker; see :class:`~attribution_sched.cluster.fork.Follower`.

    Args:
        planner: Tables of the cluster.
        world: The cluster.
        theta: What both agents have learnt.
        ranker: What was learnt on top of them.
        beliefs: Of the tasks that may come: the ranker reads their attributions.
    """

    def __init__(
        self, planner: Planner, world: World, theta: FloatArray, ranker: Ranker, beliefs: AttributionBeliefs | None
    ) -> None:
        super().__init__(planner, world, theta)
        self.name, self.ranker, self.beliefs = "hi-ppo[ranked]", ranker, beliefs
        own, k = self.learnt.agents, len(world.cluster)
        sizes = own.table.seconds.shape[2]
        many = len(self.learnt.slots)
        self.listed = Listed(
            RankerArrays.of(ranker), agents_of(planner, self.rule.weights, rule_theta()),
            make_said(many, k, sizes), self._terms(world), np.zeros((MOST, len(FEATURES))),
            np.zeros(MOST, dtype=np.int64), np.zeros(MOST, dtype=np.int64), np.zeros(MOST, dtype=np.int64),
            np.zeros(MOST), np.zeros(MOST), np.zeros((k, len(NODE))), np.zeros((k, k, len(EDGE))),
            np.zeros((2, k, HIDDEN)), np.zeros((3, WIDE)),
        )  # fmt: skip
        self._coming: dict[bytes, FloatArray] = {}
        if beliefs is not None:
            rows = np.ascontiguousarray(beliefs.pool_believed[:, : 1 + FACTORS])
            self._coming = {row.tobytes(): state for row, state in zip(rows, beliefs.pool_states, strict=True)}

    def _terms(self, world: World) -> FloatArray:
        """R_util and R_cost of every kind by domain and number of devices at nominal demands."""
        t, table = self.planner.tables, self.learnt.agents.table
        cost = CostModel(world.cluster, [kind.model for kind in world.kinds], [kind.training for kind in world.kinds])
        found = np.zeros((len(world.kinds), len(world.cluster), table.seconds.shape[2], 2))
        for n, kind in enumerate(world.kinds):
            places, plans = list[tuple[int, int]](), list[Plan]()
            for k, hardware in enumerate(t.domain_class.tolist()):
                for j in range(table.seconds.shape[2]):
                    lay, precision, level = table.pick[n, hardware, j].tolist()
                    if lay < 0 or t.sizes[lay] > t.domains.rows[k].devices:
                        continue
                    dp, tp, pp = t.layouts[lay].tolist()
                    one = Segment(k, 0, int(t.cost.n_layers[n]), dp, tp, pp, PRECISIONS[precision])
                    micro = kind.microbatches[level]
                    plans.append(Plan((Replica((one,), micro, max(1, kind.batch_size // micro)),)))
                    places.append((k, j))
            if not plans:
                continue
            priced = cost.score(PlanBatch.of(plans), n, breakdown=False)
            base = float(t.base_step_s[n]), float(t.base_cost_usd[n])
            worth = priced_terms(
                world.reward, *base, priced.step_s, priced.utilisation, priced.bill_usd, priced.energy_j,
                priced.carbon_g,
            )  # fmt: skip
            for (k, j), terms in zip(places, worth, strict=True):
                found[n, k, j] = terms[1:]
        return found

    def states(self, believed: FloatArray, tasks: Mapping[int, Task]) -> FloatArray:
        """Attributions of every task of a future's pool, shape ``(T, 7)``; zeros where nothing was measured.

        Tasks that come are the law's own: what is believed of one names it.
        """
        found = np.zeros((len(believed), STATES))
        rows = np.ascontiguousarray(believed[:, : 1 + FACTORS])
        for i in range(len(found)):
            if i in tasks:
                vector = tasks[i].attribution
                if vector is not None and vector.state is not None:
                    found[i] = vector.state
            else:
                state = self._coming.get(rows[i].tobytes())
                if state is not None:
                    found[i] = state
        return found

    def play(self, copies: Copies) -> int:
        """Play copies to their horizon; returns the decisions it took part in."""
        if copies.limits.active:
            # Whoever is limited is passed over by the agents' own loop.
            return super().play(copies)
        self.check(copies)
        decided = np.zeros(len(copies.state.clock), dtype=np.int64)
        action = np.zeros((copies.state.plans.shape[2], 5), dtype=np.int64)
        follow_ranked(
            copies.world, copies.state, copies.begin, copies.slot, copies.action, self.rule, copies.believed,
            self.states(copies.believed, copies.tasks), self.buffers, self.learnt, self.listed, action,
            copies.paid_by_work, copies.ledger, copies.ends, copies.code, copies.scratch, decided, copies.limits,
            copies.partners,
        )  # fmt: skip
        return int(decided.sum())

    def elsewhere(self, world: World) -> RankedFollower:
        """The same in a cluster with other devices."""
        theta = self.learnt.agents.theta
        return RankedFollower(super().elsewhere(world).planner, world, theta, self.ranker, self.beliefs)
