"""Who plays copies of a cluster on: the rule, compiled."""

from __future__ import annotations

import numpy as np

from attribution_sched.cluster.cost import CostModel
from attribution_sched.cluster.decision import Moment
from attribution_sched.cluster.engine import state as st
from attribution_sched.cluster.engine.state import StateArrays
from attribution_sched.cluster.fork import Copies
from attribution_sched.cluster.gpus import PRECISIONS
from attribution_sched.cluster.plan import Plan, PlanBatch, Replica, Segment, layout_table
from attribution_sched.cluster.reward import cost_usd, r_cost, samples, usd_per_g, usd_per_j
from attribution_sched.cluster.world import BATCH_LEVELS, Domain, World
from attribution_sched.errors import SettingsError, problem
from attribution_sched.planning.cut_table import cut_table, no_cuts
from attribution_sched.planning.memory_feasibility import FORMATS
from attribution_sched.planning.power_caps import Judge, best_levels, with_levels
from attribution_sched.scheduler.hi_ppo.decode import Planner
from attribution_sched.scheduler.hi_ppo.features import UTILISATION_SHARE
from attribution_sched.scheduler.hi_ppo.lower_agent import layout_table as layouts_by_size
from attribution_sched.scheduler.hi_ppo.partial_plans import LAYOUT_CHOICE, open_partial_plans
from attribution_sched.scheduler.hi_ppo.trees import NO_TREES, Trees
from attribution_sched.scheduler.hi_ppo.upper_agent import Agents, make_said, make_seen, rule_theta
from attribution_sched.scheduler.rule_kernel import Buffers, Learnt, RuleArrays, follow, plan_alone, value_at_end
from attribution_sched.types import FloatArray


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
        free, held = np.zeros((1, k), dtype=np.int64), np.zeros((1, k), dtype=np.bool_)
        self.buffers = Buffers(
            drafts=open_partial_plans(t, one, free, np.zeros((1, 4, k, k)), held, np.zeros((1, 3))),
            rows=one.copy(),
            domain=one.copy(),
            first=one.copy(),
            allowed=np.zeros(form, dtype=np.bool_),
            choices=np.zeros((1, n_layouts, LAYOUT_CHOICE), dtype=np.float32),
            seconds=np.zeros(form, dtype=np.float32),
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
        self.learnt = Learnt(
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

    def play(self, copies: Copies) -> int:
        """Play copies to their horizon; returns the decisions it took part in.

        Raises:
            SettingsError: If they are of another cluster than its tables.
        """
        own, theirs = self.rule.tables.domains.rows.devices, copies.world.domains.rows.devices
        if len(self.rule.nominal_s) != len(copies.world.kinds) or not np.array_equal(own, theirs):
            made = f"was made for {len(self.rule.nominal_s)} kinds of tasks on {np.asarray(own).tolist()} devices"
            rule = f"{made}; these copies have {len(copies.world.kinds)} on {np.asarray(theirs).tolist()}"
            raise SettingsError(problem("follower", self.name, rule, "Use RuleFollower.of(moment)"))
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
