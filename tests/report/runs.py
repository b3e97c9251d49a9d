"""Runs that tests of reports share; each is made once."""

import functools

from attribution_sched import System
from attribution_sched.report.collect.gather import gather
from tests.small_world import small

RIVALS = ("greedy", "sjf", "static-uniform")
TARGETS = {"utilisation_at_least": 0.5, "step_ratio_at_most": 0.01, "bill_usd_per_day_at_most": 1e9}


@functools.cache
def learnt():
    """Hi-PPO on the small world."""
    system = System(small(), "hi-ppo", seed=2, targets=TARGETS)
    system.run(9)
    return system


@functools.cache
def ruled():
    """A rule that cuts models over both domains."""
    system = System(small(), "static-uniform", seed=2)
    system.run(6)
    return system


@functools.cache
def alone():
    """The three demonstration tasks on one domain, to their end."""
    system = System.demo(policy="sjf")
    system.run(until="empty")
    return system


@functools.cache
def empty():
    """Nothing was decided."""
    return System("testbed", "sjf", queue="empty")


SYSTEMS = {"learnt": learnt, "ruled": ruled, "alone": alone, "empty": empty}


@functools.cache
def report(name):
    """What is gathered of one of them."""
    return gather(SYSTEMS[name](), explain=2, against=RIVALS)
