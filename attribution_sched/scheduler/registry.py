"""Every policy by name: a line that says what it does, and how to make one. Each is imported when asked for."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from attribution_sched.errors import SettingsError, nearest, problem
from attribution_sched.scheduler.policy import Policy


@dataclass(frozen=True)
class PolicySpec:
    """How to make a policy.

    Attributes:
        name: What tables call it.
        description: One line for people.
        module: Dotted name of the module that holds it.
        factory: Class or function there.
        settings: Arguments of the factory that differ from its defaults.
        pairs: Whether it puts two tasks on one device; the others use empty devices only.
        caps: Whether it gives tasks power caps where a cluster has cap levels; the others leave devices at their own.
    """

    name: str
    description: str
    module: str
    factory: str
    settings: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    pairs: bool = False
    caps: bool = False

    @property
    def freedoms(self) -> str:
        """What it does beyond placing tasks, in words; empty for nothing."""
        return ", ".join(word for word, has in (("pairs tasks", self.pairs), ("sets power caps", self.caps)) if has)

    def make(self) -> Policy:
        """Import the module and make a fresh policy."""
        module = importlib.import_module(self.module)
        made: Any = getattr(module, self.factory)(**self.settings)
        if self.name.endswith("]"):
            # Tables and journals must tell it from the policy it is a variant of.
            made.name = self.name
        found: Policy = made
        return found


_SPECS = (
    PolicySpec(
        "fcfs",
        "first come, first served; best free layout inside one domain",
        "attribution_sched.scheduler.rules",
        "FirstComeFirstServed",
    ),
    PolicySpec(
        "sjf",
        "shortest job first; best free layout inside one domain",
        "attribution_sched.scheduler.rules",
        "ShortestJobFirst",
    ),
    PolicySpec(
        "cleanest-first",
        "shortest job first, into the cleanest grid by annual mean that holds it",
        "attribution_sched.scheduler.rules",
        "CleanestFirst",
    ),
    PolicySpec(
        "round-robin", "domains in turn, whatever they carry", "attribution_sched.scheduler.rules", "RoundRobin"
    ),
    PolicySpec("least-loaded", "the domain with most free devices", "attribution_sched.scheduler.rules", "LeastLoaded"),
    PolicySpec(
        "greedy-bandwidth",
        "the domains with the fastest links first",
        "attribution_sched.scheduler.rules",
        "GreedyBandwidth",
    ),
    PolicySpec(
        "greedy",
        "best plan of the moment inside one domain or over a pair, traffic priced in",
        "attribution_sched.rivals.greedy",
        "Greedy",
    ),
    PolicySpec(
        "static-uniform",
        "layers dealt evenly over all domains; the baseline of R_eff",
        "attribution_sched.rivals.splits",
        "StaticUniform",
    ),
    PolicySpec(
        "speed-proportional",
        "layers dealt in proportion to speed",
        "attribution_sched.rivals.splits",
        "SpeedProportional",
    ),
    PolicySpec(
        "mast",
        "job-level heuristic on static bandwidth, in the manner of MAST",
        "attribution_sched.rivals.mast",
        "Mast",
    ),
    PolicySpec(
        "sailor",
        "single-level search with pruning, in the manner of Sailor",
        "attribution_sched.rivals.sailor",
        "Sailor",
    ),
    PolicySpec(
        "integer-programme",
        "tasks to resources by mixed-integer programme (HiGHS)",
        "attribution_sched.rivals.assignment_policy",
        "IntegerProgramme",
    ),
    PolicySpec(
        "dual-smoothing",
        "tasks to resources by smoothed dual ascent and repair",
        "attribution_sched.rivals.assignment_policy",
        "DualSmoothing",
    ),
    PolicySpec(
        "exact",
        "exact plan of the snapshot, kept until the task ends",
        "attribution_sched.rivals.exact_policy",
        "Exact",
    ),
    PolicySpec(
        "exact-resolve",
        "exact plan, solved again at every event",
        "attribution_sched.rivals.exact_policy",
        "ExactResolve",
    ),
    PolicySpec(
        "exact-switch",
        "exact plan, changed only when the gain exceeds the cost of moving",
        "attribution_sched.rivals.exact_policy",
        "ExactSwitch",
    ),
    PolicySpec(
        "seq2seq",
        "pointer network trained on optimal plans; prices its beam",
        "attribution_sched.rivals.seq2seq.policy",
        "SupervisedPointer",
    ),
    PolicySpec(
        "hi-ppo",
        "hierarchical PPO: who, where and how by learnt policies; searched, then thought through in copies",
        "attribution_sched.scheduler.hi_ppo.coordinator",
        "HiPpo",
        MappingProxyType({"think": True}),
        pairs=True,
        caps=True,
    ),
    PolicySpec(
        "hi-ppo-tree",
        "glass-box twin of hi-ppo: four decision trees of at most 40 leaves, distilled from it; searched",
        "attribution_sched.scheduler.glass_box.tree_policy",
        "HiPpoTree",
        pairs=True,
        caps=True,
    ),
    PolicySpec(
        "rule",
        "the rule that hi-ppo has learnt from: shortest first, where it is worth most; details searched",
        "attribution_sched.scheduler.hi_ppo.rule",
        "Rule",
        caps=True,
    ),
    PolicySpec(
        "packing",
        "shortest believed first; beside a neighbour when nothing is free, by the law on the counters",
        "attribution_sched.scheduler.pairing",
        "Packing",
        pairs=True,
    ),
    PolicySpec(
        "lucid",
        "glass-box packing by sharing scores, in the manner of Lucid",
        "attribution_sched.rivals.lucid",
        "Lucid",
        pairs=True,
    ),
    PolicySpec(
        "pair-learner",
        "packing by what pairs of this cluster were seen to do; no table, no model's name",
        "attribution_sched.scheduler.pairing",
        "PairLearner",
        pairs=True,
    ),
    PolicySpec(
        "gavel-sharing",
        "space sharing by the measured table of the nearest reference job, in the manner of Gavel",
        "attribution_sched.rivals.gavel",
        "GavelSharing",
        pairs=True,
    ),
    PolicySpec(
        "matching",
        "all waiting tasks to neighbours by maximum-weight matching, by the law on the counters",
        "attribution_sched.rivals.gavel",
        "Matching",
        pairs=True,
    ),
    PolicySpec(
        "rule+fork",
        "the rule, its choice compared with single changes of it in copies of the cluster",
        "attribution_sched.scheduler.hi_ppo.rule",
        "RuleFork",
        pairs=True,
        caps=True,
    ),
    PolicySpec(
        "sjf+correct",
        "shortest job first, each plan corrected by small changes",
        "attribution_sched.rivals.hybrid",
        "corrected_sjf",
    ),
)


RANKED = Path(__file__).parent / "hi_ppo" / "ranked.safetensors"
"""The shipped agents and the ranker that PPO on the fork has taught."""


def _hi_ppo(option: str, description: str, **settings: Any) -> PolicySpec:
    """Hi-PPO with an option, by the name ``hi-ppo[option]``."""
    home = "attribution_sched.scheduler.hi_ppo.coordinator"
    own = MappingProxyType(settings)
    return PolicySpec(f"hi-ppo[{option}]", f"hi-ppo, {description}", home, "HiPpo", own, pairs=True, caps=True)


_VARIANTS = (
    PolicySpec(
        "matching[reference]",
        "matching, by the measured table of the nearest reference job",
        "attribution_sched.rivals.gavel",
        "Matching",
        MappingProxyType({"reference": True}),
        pairs=True,
    ),
    _hi_ppo("quick", "without thinking: agents and search", think=False),
    _hi_ppo("ranked", "with experience instead of thinking: a ranker learnt by PPO on the fork", weights=RANKED),
    _hi_ppo("gru", "without thinking; told what a recurrent network forecasts of the links", predict="gru"),
    _hi_ppo("persistence", "without thinking; told that links stay as they were read", predict="persistence"),
    _hi_ppo("adaptive", "without thinking; its weight of cost follows the state of the network", wishes="adaptive"),
    _hi_ppo("pareto", "without thinking; its reward weights are drawn anew at every decision", wishes="pareto"),
    _hi_ppo("propose", "as the agents propose, without search or thinking", search=False),
)

POLICIES: Mapping[str, PolicySpec] = MappingProxyType({spec.name: spec for spec in (*_SPECS, *_VARIANTS)})
"""Name → how to make it."""

UNIFORM = "static-uniform"
"""The policy that stands for zero in the share of the limit."""

LIMIT = "exact-resolve"
"""The policy that stands for one in the share of the limit unless a bound is given."""


def policy_spec(name: str) -> PolicySpec:
    """Return how to make a policy.

    Raises:
        SettingsError: If no policy has this name; the message gives the nearest one.
    """
    if name not in POLICIES:
        raise SettingsError(problem("policy", name, "is not a known policy", nearest(name, POLICIES)))
    return POLICIES[name]


def make_policy(name: str) -> Policy:
    """Make a fresh policy by its name.

    Raises:
        SettingsError: If no policy has this name; the message gives the nearest one.
    """
    return policy_spec(name).make()
