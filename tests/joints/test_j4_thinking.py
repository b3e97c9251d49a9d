"""J4 experience → policy, with thinking time: against the teacher, on the same days, one setting for all."""

from dataclasses import replace

import numpy as np
import pytest

from attribution_sched.config import load_settings
from attribution_sched.scheduler.episode import play
from attribution_sched.scheduler.hi_ppo.coordinator import HiPpo
from attribution_sched.scheduler.hi_ppo.rule import Rule, RuleFork

FIRST_SEED = 1_905_000
"""Days that nothing was tuned on."""


def gains(world, policies, seeds):
    """Return of each policy on each day, the teacher's taken off, shape ``(policies, days)``."""
    teacher = np.array([play(world, Rule(), seed).reward for seed in seeds])
    return np.array([[play(world, policy, seed).reward for seed in seeds] for policy in policies]) - teacher


def test_thinking_changes_what_is_done_and_costs_nothing_on_a_short_day(tell):
    """A day of eight hours that was looked at: thinking finds better choices than its teacher took."""
    world = replace(load_settings("cross-domain-easy").build_world(), horizon_s=8 * 3600.0)
    gain = gains(world, [RuleFork()], [702_000, 702_002])[0]
    tell("J4", days=2, hours=8, looked_at=1, gain=float(gain.mean()))
    assert gain.mean() > 0.0


@pytest.mark.slow
def test_thinking_beats_the_teacher_beyond_the_interval(tell):
    world = load_settings("cross-domain-easy").build_world()
    seeds = range(FIRST_SEED, FIRST_SEED + 24)
    for name, gain in zip(("rule+fork", "hi-ppo"), gains(world, [RuleFork(), HiPpo(think=True)], seeds), strict=True):
        error = float(gain.std(ddof=1) / np.sqrt(len(gain)))
        tell("J4", policy=name, days=len(gain), gain=float(gain.mean()), error=error)
        assert gain.mean() - 2.0 * error > 0.0, name


@pytest.mark.slow
def test_thinking_pays_where_models_must_be_cut(tell):
    """Copies that cut models worse than the policy itself does made thinking level with none here."""
    world, seeds = load_settings("cross-domain").build_world(), range(3_800_000, 3_800_024)
    alone, thinking = ([play(world, HiPpo(think=think), seed).reward for seed in seeds] for think in (False, True))
    gain = np.array(thinking) - np.array(alone)
    error = float(gain.std(ddof=1) / np.sqrt(len(gain)))
    tell("J4", policy="hi-ppo over itself without thinking", days=len(gain), gain=float(gain.mean()), error=error)
    assert gain.mean() - 2.0 * error > 0.0
