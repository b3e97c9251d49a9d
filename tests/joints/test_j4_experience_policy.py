"""J4 experience → policy: what the agents have learnt, against the rule they began as, without thinking time."""

from dataclasses import replace

import numpy as np
import pytest

from attribution_sched.cluster.gpus import gpu
from attribution_sched.config import load_settings
from attribution_sched.scheduler.episode import play
from attribution_sched.scheduler.hi_ppo.checkpoint import SHIPPED, load
from attribution_sched.scheduler.hi_ppo.coordinator import HiPpo
from attribution_sched.scheduler.hi_ppo.policy_search import Days
from attribution_sched.scheduler.hi_ppo.ranker import Ranker
from attribution_sched.scheduler.hi_ppo.rule import Rule
from attribution_sched.scheduler.hi_ppo.upper_agent import rule_theta
from attribution_sched.scheduler.registry import RANKED, make_policy
from attribution_sched.scheduler.training import training_world

OTHER_MIXTURE = (("H100-80", 8), ("A100-80", 16), ("A100-40", 32), ("V100-32", 32))

FIRST_SEED = 1_900_000
"""Days that nothing was tuned on."""


def error(gain):
    return float(gain.std(ddof=1) / np.sqrt(len(gain)))


def test_what_was_learnt_beats_the_rule_and_cutting_it_loses_the_gain(tell):
    weights, count = load(SHIPPED), 400
    days = Days(load_settings("cross-domain-easy").build_world(), count, weights)
    rule = days.returns(None, FIRST_SEED)
    gain, cut = days.returns(weights.theta, FIRST_SEED) - rule, days.returns(rule_theta(), FIRST_SEED) - rule
    tell("J4", days=count, gain=float(gain.mean()), error=error(gain), cut=float(cut.mean()), cut_error=error(cut))
    assert gain.mean() - 2.0 * error(gain) > 0.5
    assert cut.mean() + 2.0 * error(cut) < gain.mean() - 2.0 * error(gain)


@pytest.mark.parametrize(("name", "count"), [("mixed-other", 100), ("domains-8", 24), ("testbed", 60)])
def test_what_was_learnt_loses_nothing_in_other_worlds(name, count, tell):
    """Also where the GPUs are mixed otherwise than in training, with twice the domains, and on one node."""
    weights = load(SHIPPED)
    world = training_world("mixed" if name == "mixed-other" else name)
    if name == "mixed-other":
        domains = tuple(
            replace(domain, gpu=gpu(kind), devices=devices)
            for domain, (kind, devices) in zip(world.cluster.domains, OTHER_MIXTURE, strict=True)
        )
        world = replace(world, cluster=replace(world.cluster, domains=domains))
    days = Days(world, count, weights)
    gain = days.returns(weights.theta, FIRST_SEED) - days.returns(None, FIRST_SEED)
    tell("J4", world=name, days=count, gain=float(gain.mean()), error=error(gain))
    assert gain.mean() + 2.0 * error(gain) > 0.0


@pytest.mark.slow
def test_the_registered_policy_without_thinking_beats_the_rule_on_whole_days(tell):
    world = load_settings("cross-domain-easy").build_world()
    quick, rule = make_policy("hi-ppo[quick]"), Rule()
    seeds = range(FIRST_SEED, FIRST_SEED + 64)
    gain = np.array([play(world, quick, seed).reward - play(world, rule, seed).reward for seed in seeds])
    tell("J4", policy=quick.name, days=len(gain), gain=float(gain.mean()), error=error(gain))
    assert gain.mean() - 2.0 * error(gain) > 0.0


@pytest.mark.slow
def test_what_ppo_on_the_fork_taught_gains_and_shuffling_its_weights_loses_it(tell):
    """On one node, where many short tasks are placed: fresh days, without thinking, the same agents in all arms."""
    world, ranked = load_settings("testbed").build_world(), load(RANKED)
    rng = np.random.default_rng(0)
    shuffled = {
        name: array if name in ("centre", "scale", "kappa") else rng.permutation(array.ravel()).reshape(array.shape)
        for name, array in ranked.ranker.arrays.items()
    }
    cut = replace(ranked, ranker=Ranker(shuffled))
    returns = np.array([
        [play(world, policy, seed).reward for seed in range(FIRST_SEED + 8000, FIRST_SEED + 8024)]
        for policy in (HiPpo(replace(ranked, ranker=None)), HiPpo(ranked), HiPpo(cut))
    ])  # fmt: skip
    gain, lost = returns[1] - returns[0], returns[2] - returns[0]
    tell("J4", learnt_by="ppo on the fork", days=gain.size, gain=float(gain.mean()), error=error(gain),
         shuffled=float(lost.mean()), shuffled_error=error(lost))  # fmt: skip
    assert gain.mean() - 2.0 * error(gain) > 0.0
    assert lost.mean() < gain.mean() - 2.0 * error(gain - lost)
