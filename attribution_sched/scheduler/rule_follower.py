"""Who plays copies of a cluster on: the rule, compiled."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from attribution_sched.cluster.cost import CostModel, Scratch
from attribution_sched.cluster.counters import LEAST_WORKING
from attribution_sched.cluster.decision import Moment
from attribution_sched.cluster.engine import state as st
from attribution_sched.cluster.engine.engine import (
    PRICE_NETWORK,
    SETTLED,
    advance,
    book_decision,
    close_page,
    conclude,
    enact,
    free_devices,
    kind_of,
    open_page,
    reprice,
    shares_devices,
)
from attribution_sched.cluster.engine.state import StateArrays, WorldArrays
from attribution_sched.cluster.fork import (
    Copies,
    TenantLimits,
    begin_copy,
    believed_left,
    close_budgets,
    devices_left,
    devices_taken,
    mask,
    open_budgets,
    pass_over,
    unmask,
)
from attribution_sched.cluster.gpus import PRECISIONS
from attribution_sched.cluster.plan import (
    DOMAIN,
    DP,
    PP,
    PRECISION,
    TP,
    Plan,
    PlanBatch,
    Replica,
    Segment,
    layout_table,
)
from attribution_sched.cluster.reward import cost_usd, r_cost, samples, usd_per_g, usd_per_j
from attribution_sched.cluster.world import BATCH_LEVELS, Domain, World
from attribution_sched.errors import SettingsError, problem
from attribution_sched.kernels import by_reference, kernel
from attribution_sched.planning.cut_table import CutTable, cut_table, no_cuts
from attribution_sched.planning.memory_feasibility import FORMATS, STAGE_CHOICES, PlannerTables, fill
from attribution_sched.planning.power_caps import BUSY, PAIR, SINGLE, Judge, best_levels, opaque_level, with_levels
from attribution_sched.scheduler.glass_box.trees import NO_TREES, Trees
from attribution_sched.scheduler.hi_ppo.action_masks import (
    DEAD,
    L_SIZE,
    L_TIME,
    L_USE,
    L_WORTH,
    LAYOUT_CHOICE,
    PartialPlans,
    bounded_log,
    can_begin,
    can_complete,
    domain_allowed,
    fastest_inside,
    log2_floor,
    open_partial_plans,
    segment_choices,
    worthiest,
    write_segments,
)
from attribution_sched.scheduler.hi_ppo.decode import (
    CROWD,
    EARNING,
    FEW,
    LARGE,
    LONG_HOURS,
    MANY,
    MUCH,
    NOWHERE,
    SOME_HOURS,
    SOON,
    USE,
    Planner,
)
from attribution_sched.scheduler.hi_ppo.features import UTILISATION_SHARE
from attribution_sched.scheduler.hi_ppo.lower_agent import layout_table as layouts_by_size
from attribution_sched.scheduler.hi_ppo.upper_agent import (
    Agents,
    Said,
    Seen,
    make_said,
    make_seen,
    rule_theta,
    see_cluster,
    weigh,
)
from attribution_sched.types import BoolArray, Float32Array, FloatArray, IntArray

# ------ The rule in compiled form: thousands of decisions a second, for whoever plays copies of a cluster on
#
# The same choices as :class:`~attribution_sched.scheduler.hi_ppo.decode.ShortestFirst` takes through ``decode``, and
# nothing is described that nobody reads. A model that one domain holds is placed by table: layout, format and
# microbatch depend on its kind, the hardware, the free devices and how many wait, and are worked out when first
# asked for.


@by_reference
class RuleArrays(NamedTuple):
    """What the compiled rule looks things up in; n kinds, C classes of hardware, D devices, W waiting tasks.

    Attributes:
        tables: What fits where.
        nominal_s: Step time of every kind alone in an empty domain, shape ``(n_kinds,)``.
        awake: Devices of a domain that its power budget lets work, shape ``(K,)``.
        layout_rows: Row of every layout in the engine's table, shape ``(L,)``.
        weights: w_eff and what counts of w_util, shape ``(2,)``.
        quickest: Least seconds of a step by kind, class and free devices, shape ``(n_kinds, C, D + 1)``; NaN until
            asked for.
        picks: Layout, format and level by kind, class, free devices and others that wait, shape
            ``(n_kinds, C, D + 1, W, 3)``; −1 until asked for.
        worth: What the best layout adds to R, by the same but the last axis; NaN until asked for.
        empty: Seconds of a step, devices, utilisation and R_cost of every kind as the rule places it in the empty
            cluster, shape ``(n_kinds, 4)``: what a task that still waits can expect.
        caps: Cap level of every kind by class, as in the empty cluster, shape ``(n_kinds, C)``; opaque tasks have
            their own.
        w_cost: Weight of cost.
        cuts: Cuts of models that no domain holds, as a search would about find them; the rule's own where none fits.
    """

    tables: PlannerTables
    nominal_s: FloatArray
    awake: IntArray
    layout_rows: IntArray
    weights: FloatArray
    quickest: FloatArray
    picks: IntArray
    worth: FloatArray
    empty: FloatArray
    caps: IntArray
    w_cost: float
    cuts: CutTable


@by_reference
class Buffers(NamedTuple):
    """Arrays that a call of the rule writes to and nobody reads afterwards."""

    drafts: PartialPlans
    rows: IntArray
    domain: IntArray
    first: IntArray
    allowed: BoolArray
    choices: Float32Array
    worth: Float32Array
    layout: IntArray
    precision: IntArray
    level: IntArray
    fits: IntArray
    best: FloatArray
    slots: IntArray
    tasks: FloatArray


@kernel(allocates=True)
def _quickest(rule: RuleArrays, kind: int, k: int, free: int) -> float:
    c = rule.tables.domain_class[k]
    known = rule.quickest[kind, c, free]
    if np.isnan(known):
        known = fastest_inside(rule.tables, kind, k, free, 0, 0, rule.tables.cost.n_layers[kind])
        rule.quickest[kind, c, free] = known
    return float(known)


@kernel(allocates=True)
def _pick(rule: RuleArrays, b: Buffers, k: int, first: int) -> tuple[int, int, int]:
    """Layout, format and level of a segment, as the rule weighs them; −1 if there is none."""
    t, d = rule.tables, b.drafts
    b.domain[0], b.first[0] = k, first
    segment_choices(t, d, b.rows, b.domain, b.first, b.allowed, b.choices, b.worth)
    found, most = -1, -np.inf
    for lay in range(t.sizes.size):
        offered = False
        for q in range(FORMATS):
            for v in range(BATCH_LEVELS):
                offered |= b.allowed[0, lay, q, v]
        if not offered:
            continue
        row = b.choices[0, lay]
        crowded = 1.0 + (CROWD * d.wishes[0, 2] + SOON) * float(np.float32(2.0) ** (np.float32(4.0) * row[L_SIZE]))
        time = float(np.exp(np.float32(2.0) * row[L_TIME]))
        score = USE * d.wishes[0, 1] * row[L_USE] - d.wishes[0, 0] * time * crowded + np.float32(1e-3) * row[L_WORTH]
        if score > most:
            found, most = lay, score
    if found < 0:
        return -1, -1, -1
    precision, level = -1, -1
    best = -np.inf
    for q in range(FORMATS):
        here = -np.inf
        for v in range(BATCH_LEVELS):
            if b.allowed[0, found, q, v]:
                here = max(here, float(b.worth[0, found, q, v]))
        if here > best:
            precision, best = q, here
    best = -np.inf
    for v in range(BATCH_LEVELS):
        if b.allowed[0, found, precision, v] and b.worth[0, found, precision, v] > best:
            level, best = v, float(b.worth[0, found, precision, v])
    return found, precision, level


@kernel(allocates=True)
def _whole(rule: RuleArrays, b: Buffers, k: int, others: int) -> float:
    """Look up (or work out) how a domain would hold all of the drafted model; returns what that is worth."""
    t, d = rule.tables, b.drafts
    kind, c, free = d.kind[0], t.domain_class[k], d.free[0, k]
    if np.isnan(rule.worth[kind, c, free, others]):
        rule.worth[kind, c, free, others] = worthiest(t, d, 0, k, 0, 1.0)
        lay, q, v = _pick(rule, b, k, 0)
        rule.picks[kind, c, free, others, 0] = lay
        rule.picks[kind, c, free, others, 1] = q
        rule.picks[kind, c, free, others, 2] = v
    return float(rule.worth[kind, c, free, others])


@kernel(allocates=True)
def _cut(rule: RuleArrays, b: Buffers) -> bool:
    """Write a plan over several domains into the draft, from the last layer backwards; False if it cannot be done."""
    t, d = rule.tables, b.drafts
    kind = d.kind[0]
    n = t.cost.n_layers[kind]
    flops = t.cost.sizes[kind, 8]
    taken = d.used[0].copy()
    while d.written[0] == 0 or d.stop[0] != n:
        if d.written[0] >= t.max_segments:
            return False
        stop, after = d.stop[0], d.after[0]
        left = t.max_segments - d.written[0] - 1
        for j in range(taken.size):
            taken[j] = d.used[0, j]
        chosen, most = -1, -np.inf
        for k in range(taken.size):
            if taken[k] or d.free[0, k] == 0 or not domain_allowed(t, d, 0, k, taken):
                continue
            c, room = t.domain_class[k], log2_floor(d.free[0, k])
            first = stop
            for v in range(BATCH_LEVELS):
                if d.level[0] < 0 or d.level[0] == v:
                    for depth in range(STAGE_CHOICES):
                        first = min(first, t.best[kind, c, after, stop, room, v, depth])
            worth = max(-4.0, min(4.0, 4.0 * worthiest(t, d, 0, k, first, flops[stop] / flops[n])))
            score = float(2.0 * np.float32(worth) + np.float32((stop - first) / n))
            score += (20.0 if first == 0 else 0.0) - float(0.1 * np.float32(2.0**room / t.domains.rows[k].devices))
            if score > most:
                chosen, most = k, score
        if chosen < 0:
            return False
        c, room = t.domain_class[chosen], log2_floor(d.free[0, chosen])
        if not t.filled[kind, c, after, stop]:
            fill(t, kind, c, after, stop)
        earliest = stop
        taken[chosen] = True
        for v in range(BATCH_LEVELS):
            if d.level[0] >= 0 and d.level[0] != v:
                continue
            for depth in range(STAGE_CHOICES):
                first = int(t.best[kind, c, after, stop, room, v, depth])
                if first >= earliest:
                    continue
                if first == 0 or (
                    left > 0 and can_complete(t, kind, d.free[0], taken, first, after + 2**depth, v, left)
                ):
                    earliest = first
        if earliest == stop:
            return False
        lay, q, v = _pick(rule, b, chosen, earliest)
        if lay < 0:
            return False
        b.layout[0], b.precision[0], b.level[0] = lay, q, v
        write_segments(t, d, b.rows, b.domain, b.first, b.layout, b.precision, b.level)
        if d.status[0] == DEAD:
            return False
    return True


@kernel
def _known_cut(cuts: CutTable, free: IntArray, kind: int, price: float, action: IntArray) -> bool:
    """Write the cut that is worth most among those for which there is room, devices charged; False if there is none."""
    chosen, most = -1, -np.inf
    for m in range(cuts.counts[kind]):
        fits = True
        for k in range(free.size):
            fits &= cuts.needs[kind, m, k] <= free[k]
        worth = cuts.worth[kind, m] - price * cuts.held[kind, m]
        if fits and worth > most:
            chosen, most = m, worth
    for p in range(action.shape[0] if chosen >= 0 else 0):
        for column in range(action.shape[1]):
            action[p, column] = cuts.action[kind, chosen, p, column]
    return chosen >= 0


@kernel(allocates=True)
def plan_alone(rule: RuleArrays, b: Buffers, kind: int, others: int, action: IntArray) -> bool:
    """Write the rule's plan of one task as an action of the engine; False if none works out."""
    t, d = rule.tables, b.drafts
    domains = d.free.shape[1]
    action[:, :] = 0
    action[:, 0] = domains
    devices = 0
    for k in range(domains):
        devices += t.domains.rows[k].devices
    d.kind[0], d.stop[0] = kind, t.cost.n_layers[kind]
    d.wishes[0, 0], d.wishes[0, 1], d.wishes[0, 2] = rule.weights[0], rule.weights[1], others / devices
    chosen, most = -1, -np.inf
    for k in range(domains):
        if d.free[0, k] > 0 and np.isfinite(_quickest(rule, kind, k, d.free[0, k])):
            worth = max(-4.0, min(4.0, 4.0 * _whole(rule, b, k, others)))
            room = 2.0 ** log2_floor(d.free[0, k]) / t.domains.rows[k].devices
            score = float(2.0 * np.float32(worth) - 0.1 * np.float32(room))
            if score > most:
                chosen, most = k, score
    if chosen >= 0:
        pick = rule.picks[kind, t.domain_class[chosen], d.free[0, chosen], others]
        if pick[0] < 0:
            return False
        action[0, 0], action[0, 1] = chosen, t.cost.n_layers[kind]
        action[0, 2], action[0, 3], action[0, 4] = rule.layout_rows[pick[0]], pick[1], pick[2]
        return True
    if _known_cut(rule.cuts, d.free[0], kind, rule.weights[0] * others / devices, action):
        return True
    for k in range(domains):
        d.used[0, k] = False
    d.after[0], d.level[0], d.written[0], d.replica[0], d.status[0], d.devices[0] = 0, -1, 0, 0, 0, 0
    done: bool = _cut(rule, b)
    count = d.written[0]
    for p in range(count if done else 0):
        segment = d.rows[0, count - 1 - p]
        action[p, 0], action[p, 1], action[p, 2] = segment[0], segment[2], rule.layout_rows[segment[3]]
        action[p, 3], action[p, 4] = segment[4], segment[5]
    for k in range(domains):
        d.used[0, k] = False
    d.after[0], d.level[0], d.written[0], d.replica[0], d.status[0], d.devices[0] = 0, -1, 0, 0, 0, 0
    return done


@kernel(allocates=True)
def note_fits(rule: RuleArrays, b: Buffers, kind: int) -> None:
    """Whether a plan of a kind can be begun now (``b.fits``), and its least seconds inside one domain (``b.best``)."""
    if b.fits[kind] >= 0:
        return
    d = b.drafts
    best = np.inf
    for k in range(d.free.shape[1]):
        if d.free[0, k] > 0:
            best = min(best, _quickest(rule, kind, k, d.free[0, k]))
    b.best[kind] = best
    d.kind[0], d.stop[0] = kind, rule.tables.cost.n_layers[kind]
    b.fits[kind] = 1 if np.isfinite(best) or can_begin(rule.tables, d, 0) else 0


@kernel(allocates=True)
def rule_decides(
    world: WorldArrays, state: StateArrays, e: int, rule: RuleArrays, believed: FloatArray, b: Buffers, action: IntArray
) -> tuple[bool, bool]:
    """Let the rule answer the pending decision of a cluster: the event's slot and the action are written.

    Args:
        world: Constants.
        state: State; a placement's slot becomes the chosen task's.
        e: Cluster.
        rule: Tables.
        believed: What is believed of the tasks of the pool, see :class:`~attribution_sched.cluster.fork.Copies`.
        b: Buffers.
        action: Output, shape ``(P, 5)``.

    Returns:
        Whether it acts, and whether it could have.
    """
    t, d = rule.tables, b.drafts
    domains = d.free.shape[1]
    running = state.event[e, st.EVENT] == st.REPLAN
    own = state.event[e, st.SLOT]
    devices = 0
    for k in range(domains):
        many = t.domains.rows[k].devices
        devices += many
        free = free_devices(world, state, e, k, False, own if running else -1)
        d.free[0, k] = max(0, min(free, rule.awake[k] - (many - free)))
    action[:, :] = 0
    action[:, 0] = domains
    b.fits[:] = -1
    waiting = 0
    for slot in range(state.slots.shape[1]):
        if state.slots[e, slot, st.STATUS] == st.QUEUED:
            waiting += 1
    if running:
        kind = kind_of(world, state, e, own)
        note_fits(rule, b, kind)
        if b.fits[kind] == 0:
            return False, False
        base, task = t.base_step_s[kind], state.tasks[e, own]
        slower = believed[state.slots[e, own, st.POOL], 0] if rule.nominal_s[kind] != base else 0.0
        gain = max(-2.0, min(2.0, bounded_log(task[st.STEP] / b.best[kind]) - slower))
        left = believed_left(world, state, e, own, believed)
        hours = np.exp(bounded_log(left * base / 3600.0) + bounded_log(task[st.STEP] / base))
        holding = 0
        for p in range(state.slots[e, own, st.SEGMENTS]):
            segment = state.plans[e, own, p]
            holding += segment[DP] * segment[TP] * segment[PP]
        held_up = gain > MUCH and hours > SOME_HOURS and waiting <= FEW
        in_the_way = holding / devices >= LARGE and hours > LONG_HOURS and waiting >= MANY
        # A model that no domain holds would hold as many devices after it was moved.
        in_the_way &= rule.nominal_s[kind] != base
        if not (held_up or in_the_way):
            return False, True
        return plan_alone(rule, b, kind, min(waiting, rule.worth.shape[3] - 1), action), True
    chosen, shortest, serial = -1, np.float32(np.inf), 0
    possible = False
    for slot in range(state.slots.shape[1]):
        if state.slots[e, slot, st.STATUS] != st.QUEUED:
            continue
        kind = kind_of(world, state, e, slot)
        note_fits(rule, b, kind)
        if b.fits[kind] == 0:
            continue
        possible = True
        base, nominal = t.base_step_s[kind], rule.nominal_s[kind]
        left = believed_left(world, state, e, slot, believed)
        slower = believed[state.slots[e, slot, st.POOL], 0] if nominal != base else 0.0
        hours = np.float32(bounded_log(left * nominal * np.exp(slower) / 3600.0) / 4.0)
        on_base = np.float32(bounded_log(left * base / 3600.0) / 4.0)
        slowed = np.float32(min(4.0, bounded_log(b.best[kind] / nominal)) / 2.0)
        if slowed > np.float32(NOWHERE) and hours != on_base:
            # It only needs to wait for room in one domain.
            continue
        size = hours - np.float32(EARNING) * on_base
        number = state.slots[e, slot, st.SERIAL]
        if chosen < 0 or size < shortest or (size == shortest and number < serial):
            chosen, shortest, serial = slot, size, number
    if chosen < 0:
        return False, possible
    kind = kind_of(world, state, e, chosen)
    if not plan_alone(rule, b, kind, min(max(0, waiting - 1), rule.worth.shape[3] - 1), action):
        return False, possible
    state.event[e, st.SLOT] = chosen
    return True, possible


@by_reference
class AgentArrays(NamedTuple):
    """The learnt agents in the rule's place.

    Attributes:
        agents: Both of them.
        seen: What they see.
        said: What they say.
        slots: Slots of the candidates, shape ``(Q,)``.
    """

    agents: Agents
    seen: Seen
    said: Said
    slots: IntArray


@kernel(allocates=True)
def weigh_pending(
    world: WorldArrays,
    state: StateArrays,
    e: int,
    rule: RuleArrays,
    believed: FloatArray,
    learnt: AgentArrays,
    b: Buffers,
) -> tuple[int, int, bool]:
    """Let the agents weigh the pending decision of a cluster.

    Returns:
        The candidate they choose, −1 for none; how many there are; whether a plan of any can be begun.
    """
    s = learnt.seen
    candidates: int = see_cluster(world, state, e, rule.awake, believed, s, learnt.slots)
    b.fits[:] = -1
    for k in range(s.free.size):
        b.drafts.free[0, k] = s.free[k]
    possible = False
    s.weights[0], s.weights[1] = rule.weights[0], rule.weights[1]
    for q in range(candidates):
        note_fits(rule, b, s.kind[q])
        s.fits[q] = b.fits[s.kind[q]] == 1
        possible |= s.fits[q]
    running = state.event[e, st.EVENT] == st.REPLAN
    chosen: int = weigh(learnt.agents, s, candidates, running, learnt.said)
    return chosen, candidates, possible


@kernel
def place_alone(state: StateArrays, e: int, rule: RuleArrays, learnt: AgentArrays, q: int, k: int, size: int,
                action: IntArray) -> None:  # fmt: skip
    """Write that a candidate of the pending decision gets 2^size devices of a domain to itself."""
    kind = learnt.seen.kind[q]
    pick = learnt.agents.table.pick[kind, rule.tables.domain_class[k], size]
    action[0, 0], action[0, 1] = k, rule.tables.cost.n_layers[kind]
    action[0, 2], action[0, 3], action[0, 4] = rule.layout_rows[pick[0]], pick[1], pick[2]
    state.event[e, st.SLOT] = learnt.slots[q]


@kernel(allocates=True)
def agents_decide(
    world: WorldArrays, state: StateArrays, e: int, rule: RuleArrays, believed: FloatArray, learnt: AgentArrays,
    b: Buffers, action: IntArray,
) -> tuple[bool, bool]:  # fmt: skip
    """Let the learnt agents answer the pending decision of a cluster; see :func:`rule_decides`."""
    chosen, _, possible = weigh_pending(world, state, e, rule, believed, learnt, b)
    action[:, :] = 0
    action[:, 0] = learnt.seen.free.size
    if chosen < 0:
        return False, possible
    if learnt.said.domain[chosen] >= 0:
        place_alone(state, e, rule, learnt, chosen, learnt.said.domain[chosen], learnt.said.size[chosen], action)
        return True, possible
    waiting = int(learnt.seen.moment[0]) - (0 if state.event[e, st.EVENT] == st.REPLAN else 1)
    others = min(max(0, waiting), rule.worth.shape[3] - 1)
    if not plan_alone(rule, b, learnt.seen.kind[chosen], others, action):
        return False, possible
    state.event[e, st.SLOT] = learnt.slots[chosen]
    return True, possible


INSTANT_S = 1e-6
"""Less than passes between two instants."""

LEAST_WORK = 1.05
"""Work of a pair, over one task's, from which two tasks are put together."""


@kernel
def pair_up(
    world: WorldArrays, state: StateArrays, e: int, partners: FloatArray, believed: FloatArray, action: IntArray
) -> bool:  # fmt: skip
    """Put the shortest waiting task that has one beside the neighbour with which most work is believed to be done.

    The event's slot and the action are written; False if nobody has a neighbour worth it.
    """
    slots, now = state.slots.shape[1], state.clock[e, st.NOW]
    layouts = world.layouts.shape[0]
    last_left, last_serial = -1.0, -1
    while True:
        # In order of what is left, as the queue is worked off; not sorted, because mostly the first finds somebody.
        chosen, left, serial = -1, np.inf, 0
        for slot in range(slots):
            if state.slots[e, slot, st.STATUS] != st.QUEUED or state.tasks[e, slot, st.OFFERED] > now:
                continue
            own, number = believed_left(world, state, e, slot, believed), state.slots[e, slot, st.SERIAL]
            later = own > last_left or (own == last_left and number > last_serial)
            if later and (own < left or (own == left and number < serial)):
                chosen, left, serial = slot, own, number
        if chosen < 0:
            return False
        last_left, last_serial = left, serial
        row = state.slots[e, chosen, st.POOL]
        kind = kind_of(world, state, e, chosen)
        asked = int(world.kinds[kind, st.K_BATCH])
        best, beside = LEAST_WORK, -1
        for other in range(slots):
            if state.slots[e, other, st.STATUS] != st.RUNNING or state.tasks[e, other, st.SHARED] > 0.0:
                continue
            theirs = state.slots[e, other, st.POOL]
            one, two = partners[row, theirs], partners[theirs, row]
            if one <= 0.0 or two <= 0.0 or one + two <= best:
                continue
            segment = state.plans[e, other, 0]
            if segment[DP] * segment[TP] * segment[PP] < asked or shares_devices(world, state, e, other):
                continue
            best, beside = one + two, other
        if beside < 0:
            continue
        for at in range(layouts):
            if (
                world.layouts[at, 0] == asked and world.layouts[at, 1] == 1
                and world.layouts[at, 2] == 1 and world.layouts[at, 3] == 1
            ):  # fmt: skip
                action[:, :] = 0
                action[:, 0] = world.domains.rows.size
                action[0, 0], action[0, 1] = state.plans[e, beside, 0, DOMAIN], world.tables.n_layers[kind]
                action[0, 2], action[0, 3] = at + layouts * (beside + 1), state.plans[e, beside, 0, PRECISION]
                state.event[e, st.SLOT] = chosen
                return True
        return False


@kernel
def cap_action(
    world: WorldArrays, state: StateArrays, e: int, rule: RuleArrays, partners: FloatArray, action: IntArray
) -> None:
    """Give every segment of an action the power cap by which it is worth most; see ``planning.power_caps``."""
    slot, layouts = state.event[e, st.SLOT], world.layouts.shape[0]
    own = state.slots[e, slot, st.POOL]
    kind = kind_of(world, state, e, slot)
    waiting, devices, in_use = 0, 0, 0
    for other in range(state.slots.shape[1]):
        waiting += state.slots[e, other, st.STATUS] == st.QUEUED and other != slot
    for k in range(world.domains.rows.size):
        devices += world.domains.rows[k].devices
        in_use += world.domains.rows[k].devices - free_devices(world, state, e, k, False, slot)
    for p in range(action.shape[0]):
        domain = action[p, 0]
        if domain >= world.domains.rows.size:
            return
        precision = action[p, 3] % FORMATS
        working = world.pool[own, st.P_WORKING]
        level = rule.caps[kind, rule.tables.domain_class[domain]]
        if working > 0.0:
            beside, slowed = action[p, 2] // layouts - 1, SINGLE
            if beside >= 0 and partners.shape[0] > 0:
                slowed, theirs = PAIR, state.slots[e, beside, st.POOL]
                working = working * partners[own, theirs] + world.pool[theirs, st.P_WORKING] * partners[theirs, own]
                working = min(1.0, max(working, LEAST_WORKING))
            layout = world.layouts[action[p, 2] % layouts]
            held = (waiting * layout[0] * layout[1] * layout[2] + BUSY * in_use) / devices
            level = opaque_level(
                world.domains,
                world.power_law,
                domain,
                precision,
                working,
                rule.weights[0] * (slowed + held),
                rule.w_cost,
            )
        action[p, 3] = precision + FORMATS * level


@kernel
def _defer_all(world: WorldArrays, state: StateArrays, e: int) -> None:
    now = state.clock[e, st.NOW]
    for slot in range(state.slots.shape[1]):
        if state.slots[e, slot, st.STATUS] == st.QUEUED and state.tasks[e, slot, st.OFFERED] <= now:
            state.tasks[e, slot, st.OFFERED] = now + world.retry_s


E_SECONDS, E_DEVICES, E_USE, E_COST = range(4)
"""Columns of ``RuleArrays.empty``."""


@kernel(allocates=True)
def value_at_end(
    world: WorldArrays, state: StateArrays, e: int, rule: RuleArrays, believed: FloatArray, b: Buffers,
    ends: FloatArray, limits: TenantLimits,
) -> None:  # fmt: skip
    """Write what the tasks still present can expect: running ones go on as they are, waiting ones drain.

    A waiting task is expected to run as the rule would place it in an empty domain, after the device time of all that
    runs and of all that is shorter has been worked off by the whole cluster.
    """
    t, d = rule.tables, b.drafts
    domains = d.free.shape[1]
    devices, largest = 0, 0
    for k in range(domains):
        devices += t.domains.rows[k].devices
        if t.domains.rows[k].devices > t.domains.rows[largest].devices:
            largest = k
    now = state.clock[e, st.NOW]
    ahead = 0.0
    waiting = 0
    for slot in range(state.slots.shape[1]):
        if state.slots[e, slot, st.STATUS] == st.QUEUED:
            waiting += 1
        if state.slots[e, slot, st.STATUS] != st.RUNNING:
            continue
        task = state.tasks[e, slot]
        base = world.kinds[kind_of(world, state, e, slot), st.K_BASE_STEP] / world.interval_s
        pause = max(0.0, task[st.PAUSED] - now)
        ends[0] += task[st.T_EFF] * task[st.LEFT] * base + world.waiting_r_eff * pause / world.interval_s
        ends[1] += task[st.T_UTIL] * task[st.LEFT] * base
        ends[2] += task[st.T_COST] * task[st.LEFT] * base
        holding = 0
        for p in range(state.slots[e, slot, st.SEGMENTS]):
            segment = state.plans[e, slot, p]
            holding += segment[DP] * segment[TP] * segment[PP]
        # Devices that two tasks share are worked off by both at once.
        share = 0.5 if shares_devices(world, state, e, slot) else 1.0
        ahead += share * holding * (task[st.LEFT] * task[st.STEP] + pause)
    others = min(max(0, waiting - 1), rule.worth.shape[3] - 1)
    # Shortest first: whoever is shorter is worked off before.
    last_s, last_serial = -1.0, -1
    for _ in range(waiting):
        chosen, alone_s, serial, size, use = -1, np.inf, 0, 0, 0.0
        for slot in range(state.slots.shape[1]):
            if state.slots[e, slot, st.STATUS] != st.QUEUED:
                continue
            kind = kind_of(world, state, e, slot)
            left = state.tasks[e, slot, st.LEFT]
            room = t.domains.rows[largest].devices
            if limits.active:
                room = min(room, limits.most[state.slots[e, slot, st.POOL]])
            if np.isfinite(_quickest(rule, kind, largest, room)):
                d.kind[0], d.stop[0] = kind, t.cost.n_layers[kind]
                d.free[0, largest] = room
                d.wishes[0, 0], d.wishes[0, 1], d.wishes[0, 2] = rule.weights[0], rule.weights[1], others / devices
                _whole(rule, b, largest, others)
                c = t.domain_class[largest]
                lay, q, v = rule.picks[kind, c, d.free[0, largest], others]
                own_s = left * t.whole_s[kind, c, lay, q, v] * np.exp(believed[state.slots[e, slot, st.POOL], 0])
                own_size, own_use = t.sizes[lay], t.whole_use[kind, c, lay, q, v]
            else:
                own = rule.empty[kind]
                own_s, own_size, own_use = left * own[E_SECONDS], int(own[E_DEVICES]), own[E_USE]
            number = state.slots[e, slot, st.SERIAL]
            later = own_s > last_s or (own_s == last_s and number > last_serial)
            if later and (own_s < alone_s or (own_s == alone_s and number < serial)):
                chosen, alone_s, serial, size, use = slot, own_s, number, own_size, own_use
        if chosen < 0:
            break
        last_s, last_serial = alone_s, serial
        kind = kind_of(world, state, e, chosen)
        work = state.tasks[e, chosen, st.LEFT] * t.base_step_s[kind]
        ends[0] += (work - alone_s + world.waiting_r_eff * ahead / devices) / world.interval_s
        ends[1] += use * work / world.interval_s
        # Whoever runs pays for the rest of its work; whoever waits will, or waiting would look cheap.
        ends[2] += rule.empty[kind, E_COST] * work / world.interval_s
        ahead += alone_s * size


@kernel(allocates=True)
def _decide(
    world: WorldArrays, state: StateArrays, e: int, rule: RuleArrays, believed: FloatArray, b: Buffers,
    learnt: AgentArrays, asks_agents: bool, action: IntArray,
) -> tuple[bool, bool]:  # fmt: skip
    """By the rule or by the agents; see :func:`rule_decides`."""
    if asks_agents:
        acts, possible = agents_decide(world, state, e, rule, believed, learnt, b, action)
    else:
        acts, possible = rule_decides(world, state, e, rule, believed, b, action)
    return acts, possible


@kernel(allocates=True)
def _decide_within(
    world: WorldArrays, state: StateArrays, e: int, rule: RuleArrays, believed: FloatArray, b: Buffers,
    learnt: AgentArrays, asks_agents: bool, action: IntArray, limits: TenantLimits,
) -> tuple[bool, bool]:  # fmt: skip
    """The same within what tenants may use; a plan beyond a quota is asked for once more within it."""
    mask(state, e, limits, -1)
    acts, possible = _decide(world, state, e, rule, believed, b, learnt, asks_agents, action)
    unmask(state, e)
    if not acts:
        return acts, possible
    chosen = state.event[e, st.SLOT]
    moving = state.event[e, st.EVENT] == st.REPLAN
    row = state.slots[e, chosen, st.POOL]
    left = devices_left(state, e, limits, limits.tenant[row])
    for p in range(state.slots[e, chosen, st.SEGMENTS] if moving else 0):
        segment = state.plans[e, chosen, p]
        left += segment[DP] * segment[TP] * segment[PP]
    left = min(left, limits.most[row])
    if devices_taken(world, action) <= left:
        return acts, possible
    # Both read free devices through ``awake``: no domain shows more of them than the quota leaves.
    awake = rule.awake.copy()
    for k in range(awake.size):
        many = world.domains.rows[k].devices
        rule.awake[k] = min(awake[k], many - free_devices(world, state, e, k, False, chosen if moving else -1) + left)
    mask(state, e, limits, -1 if moving else chosen)
    acts, possible = _decide(world, state, e, rule, believed, b, learnt, asks_agents, action)
    unmask(state, e)
    rule.awake[:] = awake
    if acts and devices_taken(world, action) > left:
        acts = False
        action[:, :] = 0
        action[:, 0] = world.domains.rows.size
    if not acts and not moving:
        # Whoever is shortest is chosen again and again: at this instant it is not looked at any more.
        limits.not_before_s[e, row] = max(limits.not_before_s[e, row], state.clock[e, st.NOW] + INSTANT_S)
    # It alone waits on: others are asked about, so nobody else is deferred.
    state.event[e, st.SLOT] = chosen
    return True, possible


@kernel(allocates=True)
def carry_out(
    world: WorldArrays, state: StateArrays, e: int, rule: RuleArrays, acts: bool, action: IntArray, paid_by_work: bool,
    ledger: FloatArray, scratch: Scratch, partners: FloatArray,
) -> None:  # fmt: skip
    """Do what was decided at the pending decision of a cluster, and book it; whoever waits is deferred."""
    if acts and world.domains.caps_w.shape[1] > 1:
        cap_action(world, state, e, rule, partners, action)
    if not acts and state.event[e, st.EVENT] == st.PLACE:
        _defer_all(world, state, e)
    code = enact(world, state, e, action, -1, scratch)
    conclude(world, state, e, code)
    book_decision(world, state, e, code, paid_by_work, ledger[state.slots[e, state.event[e, st.SLOT], st.SERIAL]])
    if code > 0:
        reprice(world, state, e, False, scratch)


@kernel(allocates=True)
def go_on(
    world: WorldArrays, state: StateArrays, e: int, b: Buffers, paid_by_work: bool, ledger: FloatArray,
    scratch: Scratch, limits: TenantLimits,
) -> None:  # fmt: skip
    """Let time pass in a cluster until somebody is to decide again, or to its end."""
    while True:
        since_s = open_page(state, e, b.slots, b.tasks)
        if limits.active:
            open_budgets(world, state, e, limits)
        wanted = advance(world, state, e)
        if limits.active:
            close_budgets(limits, e, since_s, state.clock[e, st.NOW])
        close_page(world, state, e, since_s, b.slots, b.tasks, paid_by_work, ledger)
        if wanted == SETTLED:
            break
        reprice(world, state, e, wanted == PRICE_NETWORK, scratch)


@kernel(allocates=True)
def follow(
    world: WorldArrays, state: StateArrays, begin: IntArray, slot: IntArray, first: IntArray, rule: RuleArrays,
    believed: FloatArray, b: Buffers, learnt: AgentArrays, asks_agents: bool, action: IntArray, paid_by_work: bool,
    ledger: FloatArray, ends: FloatArray, codes: IntArray, scratch: Scratch, decided: IntArray, limits: TenantLimits,
    partners: FloatArray,
) -> None:  # fmt: skip
    """Play every cluster to the horizon by the rule or by the agents; where pairs are believed in, they are made.

    ``decided`` counts the decisions at which something could be done.
    """
    for e in range(state.clock.shape[0]):
        codes[e] = begin_copy(world, state, e, begin[e], slot[e], first[e], paid_by_work, ledger[e], scratch)
        while state.event[e, st.DONE] == 0:
            if limits.active and state.event[e, st.EVENT] != st.NO_EVENT:
                pass_over(world, state, e, limits)
            if state.event[e, st.EVENT] != st.NO_EVENT:
                state.outcome[e, st.INTEGRALS :] = 0.0
                if limits.active:
                    acts, possible = _decide_within(
                        world, state, e, rule, believed, b, learnt, asks_agents, action, limits
                    )
                else:
                    acts, possible = _decide(world, state, e, rule, believed, b, learnt, asks_agents, action)
                if not acts and partners.shape[0] > 0 and state.event[e, st.EVENT] == st.PLACE:
                    acts = pair_up(world, state, e, partners, believed, action)
                    possible |= acts
                decided[e] += possible
                carry_out(world, state, e, rule, acts, action, paid_by_work, ledger[e], scratch, partners)
            go_on(world, state, e, b, paid_by_work, ledger[e], scratch, limits)
        if paid_by_work:
            value_at_end(world, state, e, rule, believed, b, ends[e], limits)


# ------ Who plays copies of a cluster on: the rule, compiled


class RuleFollower:
    """Plays copies of a cluster on by the rule; see :class:`~attribution_sched.cluster.fork.Follower`.

    Args:
        planner: Tables of the cluster.
        world: The cluster.
        theta: What Hi-PPO's agents have learnt, to play by them instead; see
            :data:`~attribution_sched.scheduler.hi_ppo.upper_agent.HEADS`.
        trees: Trees to play by instead.
        search: Whether models that no domain holds are cut about as the policies' search does it; else as the rule
            proposes.
    """

    def __init__(
        self, planner: Planner, world: World, theta: FloatArray | None = None, trees: Trees = NO_TREES,
        *, search: bool = True,
    ) -> None:  # fmt: skip
        self.name = "hi-ppo-tree" if trees.roots.size else "rule" if theta is None else "hi-ppo"
        t = planner.tables
        k, devices = len(t.domain_class), int(np.max(t.domains.rows.devices))
        kinds, classes = len(t.batch), len(t.class_domain)
        waits = world.queue_capacity + world.max_running + 1
        listed = layout_table(world.cluster, world.share_limit > 1).tolist()
        awake = np.array([_awake(domain) for domain in world.cluster.domains], dtype=np.int64)
        self.planner, self.search = planner, search
        self.rule = RuleArrays(
            tables=t,
            nominal_s=planner.nominal_s,
            awake=awake,
            layout_rows=np.array([listed.index([*row, 0]) for row in t.layouts.tolist()]),
            weights=np.array([world.reward.w_eff, UTILISATION_SHARE * world.reward.w_util]),
            quickest=np.full((kinds, classes, devices + 1), np.nan),
            picks=np.full((kinds, classes, devices + 1, waits, 3), -1, dtype=np.int64),
            worth=np.full((kinds, classes, devices + 1, waits), np.nan),
            empty=np.zeros((kinds, 4)),
            caps=np.zeros((kinds, classes), dtype=np.int64),
            w_cost=world.reward.w_cost,
            cuts=cut_table(world, planner.spanning, t.base_step_s, t.base_cost_usd) if search else no_cuts(world),
        )
        one = np.zeros(1, dtype=np.int64)
        n_layouts, slots = len(t.sizes), world.max_running + world.queue_capacity
        form = (1, n_layouts, FORMATS, BATCH_LEVELS)
        self.buffers = Buffers(
            drafts=open_partial_plans(t, one, np.zeros((1, k), dtype=np.int64), np.zeros((1, 3))),
            rows=one.copy(),
            domain=one.copy(),
            first=one.copy(),
            allowed=np.zeros(form, dtype=np.bool_),
            choices=np.zeros((1, n_layouts, LAYOUT_CHOICE), dtype=np.float32),
            worth=np.zeros(form, dtype=np.float32),
            layout=one.copy(),
            precision=one.copy(),
            level=one.copy(),
            fits=np.zeros(kinds, dtype=np.int64),
            best=np.zeros(kinds),
            slots=np.zeros((slots, 4), dtype=np.int64),
            tasks=np.zeros((slots, len(st.TASK_COLUMNS))),
        )
        self.rule.empty[:] = self._in_the_empty_cluster(world)
        self.asks_agents = theta is not None or trees.roots.size > 0
        self.learnt = AgentArrays(
            agents_of(planner, self.rule.weights, theta, trees), make_seen(slots, k),
            make_said(slots, k, _sizes(planner)), np.zeros(slots, dtype=np.int64),
        )  # fmt: skip

    def _in_the_empty_cluster(self, world: World) -> FloatArray:
        """What every kind can expect once placed, see ``RuleArrays.empty``; its baseline if it fits nowhere."""
        t, reward = self.planner.tables, world.reward
        cost = CostModel(world.cluster, [kind.model for kind in world.kinds], [kind.training for kind in world.kinds])
        action = np.zeros((world.max_segments, 5), dtype=np.int64)
        self.buffers.drafts.free[0] = t.domains.rows.devices
        found = np.zeros((len(world.kinds), 4))
        for k, kind in enumerate(world.kinds):
            found[k] = t.base_step_s[k], world.cluster.devices, 0.0, 1.0
            if not plan_alone(self.rule, self.buffers, k, 0, action):
                continue
            segments, first = [], 0
            for domain, stop, row, precision, _ in action[action[:, 0] < len(world.cluster)].tolist():
                dp, tp, pp = t.layouts[self.rule.layout_rows.tolist().index(row)].tolist()
                segments.append(Segment(domain, first, stop, dp, tp, pp, PRECISIONS[precision]))
                first = stop
            micro = kind.microbatches[int(action[0, 4])]
            plan = Plan((Replica(tuple(segments), micro, max(1, kind.batch_size // micro)),))
            if world.cluster.cap_levels and not kind.opaque:
                base = float(t.base_step_s[k]), float(t.base_cost_usd[k])
                levels = best_levels(Judge(cost, k, kind.batch_size, reward, *base), plan)
                plan = with_levels(plan, levels)
                self.rule.caps[k] = levels[0]
                self.rule.caps[k, t.domain_class[list(plan.domains)]] = levels
            priced = cost.score(PlanBatch.of([plan]), k, breakdown=False)
            norm = kind.batch_size / float(samples(PlanBatch.of([plan]))[0])
            usd = cost_usd(priced.bill_usd, priced.energy_j, priced.carbon_g, usd_per_j(reward), usd_per_g(reward))
            expected = r_cost(norm * float(usd[0]), float(t.base_cost_usd[k]))
            devices = sum(segment.device_count for segment in segments)
            found[k] = norm * float(priced.step_s[0]), devices, float(priced.utilisation[0]), expected
        return found

    @classmethod
    def of(cls, moment: Moment, paces: FloatArray | None = None) -> RuleFollower:
        """The rule for the cluster of a moment; what attributions say of a task's time is not read by default."""
        world, kinds = moment.world, moment.arrays.kinds
        base = kinds[:, st.K_BASE_STEP].copy(), kinds[:, st.K_BASE_COST].copy()
        return cls(Planner.of(moment.cost, world.kinds, *base, world.max_segments, paces), world)

    def check(self, copies: Copies) -> None:
        """Refuse copies of another cluster than its tables.

        Raises:
            SettingsError: If they are.
        """
        own, theirs = self.rule.tables.domains.rows.devices, copies.world.domains.rows.devices
        if len(self.rule.nominal_s) != len(copies.world.kinds) or not np.array_equal(own, theirs):
            made = f"was made for {len(self.rule.nominal_s)} kinds of tasks on {np.asarray(own).tolist()} devices"
            rule = f"{made}; these copies have {len(copies.world.kinds)} on {np.asarray(theirs).tolist()}"
            raise SettingsError(problem("follower", self.name, rule, "Use RuleFollower.of(moment)"))

    def play(self, copies: Copies) -> int:
        """Play copies to their horizon; returns the decisions it took part in.

        Raises:
            SettingsError: If they are of another cluster than its tables.
        """
        self.check(copies)
        decided = np.zeros(len(copies.state.clock), dtype=np.int64)
        action = np.zeros((copies.state.plans.shape[2], 5), dtype=np.int64)
        follow(
            copies.world, copies.state, copies.begin, copies.slot, copies.action, self.rule, copies.believed,
            self.buffers, self.learnt, self.asks_agents, action, copies.paid_by_work, copies.ledger, copies.ends,
            copies.code, copies.scratch, decided, copies.limits, copies.partners,
        )  # fmt: skip
        return int(decided.sum())

    def value(self, copies: Copies, state: StateArrays, e: int) -> None:
        """Write what the tasks of one copy can expect beyond the horizon."""
        value_at_end(copies.world, state, 0, self.rule, copies.believed, self.buffers, copies.ends[e], copies.limits)

    def elsewhere(self, world: World) -> RuleFollower:
        """The rule in a cluster with other devices; what attributions mean stays."""
        cost = CostModel(world.cluster, [kind.model for kind in world.kinds], [kind.training for kind in world.kinds])
        t = self.planner.tables
        planner = Planner.of(cost, world.kinds, t.base_step_s, t.base_cost_usd, t.max_segments, self.planner.paces)
        own = self.learnt.agents
        return RuleFollower(planner, world, own.theta if self.asks_agents else None, own.trees, search=self.search)


def _sizes(planner: Planner) -> int:
    return int(np.log2(max(1, int(planner.tables.sizes.max())))) + 1


def agents_of(
    planner: Planner, weights: FloatArray, theta: FloatArray | None = None, trees: Trees = NO_TREES
) -> Agents:
    """Hi-PPO's agents in a cluster; as the rule decides if nothing was learnt.

    Args:
        planner: Tables of the cluster.
        weights: w_eff and what counts of w_util, by which layouts of the same number of devices are told apart.
        theta: What was learnt.
        trees: What decides in its place.
    """
    t = planner.tables
    learnt = rule_theta() if theta is None else np.array(theta, dtype=np.float64)
    devices = np.array(t.domains.rows.devices, dtype=np.int64)
    table = layouts_by_size(t, weights)
    quickest = table.seconds.reshape(len(table.seconds), -1).argmin(axis=1)
    shares = table.shares.reshape(len(quickest), -1, table.shares.shape[-1])[np.arange(len(quickest)), quickest]
    return Agents(learnt, table, planner.nominal_s, shares, np.array(t.base_step_s), t.domain_class, devices, trees)


def _awake(domain: Domain) -> int:
    """Devices of a domain that its power budget lets work; see ``within_budgets``."""
    if domain.power_budget_w is None or domain.cap_w <= domain.gpu.idle_w:
        return domain.devices
    spare_w = domain.power_budget_w - domain.devices * domain.gpu.idle_w
    return int(spare_w / (domain.cap_w - domain.gpu.idle_w) + 1e-9)
