"""J6 explanation → reward: decisions to a target, by outcomes, with explanations, and with explanations shuffled."""

import numpy as np
import pytest

from attribution_sched import System
from attribution_sched.feedback.targets import KINDS, Targets
from attribution_sched.feedback.window import Window

USED = "cross-domain-easy", "utilisation_at_least", 0.94
SAVED = "shared", "cost_ratio_at_most", 0.92
"""Preset, target and limit: busy devices where speed speaks against them, and energy by power caps."""


def cut(system, arm, seed):
    """Give the true answers to the wrong weights."""
    if arm == "shuffled":
        rng, answers = np.random.default_rng(seed), system.learn.revisit
        system.learn.revisit = lambda names, rewards: [
            [row[i] for i in rng.permutation(len(row))] for row in answers(names, rewards)
        ]


def run(arm, seed, windows, tasks, case=USED):
    """Placements until a window meets the target, and the share of the weight that serves it after each step."""
    preset, target, limit = case
    system = System(preset, policy="rule", seed=seed)
    cut(system, arm, seed)
    placements, met, seen, shares = 0, False, 0, []
    for _ in range(windows):
        system.run(tasks)
        window = Window.of([o for _, o in system.journal.entries(seen) if o is not None and o.code > 0])
        seen = system.journal.count()
        placements += 0 if met else len(window)
        met = met or Targets.of({target: limit}).violation(target, window.measure(target).value) <= 0.0
        system.feedback({target: limit}, explain=0 if arm == "outcomes" else 24, episodes=0, decisions=1)
        reward = system.reward
        shares.append(getattr(reward, KINDS[target].weight) / (reward.w_eff + reward.w_util + reward.w_cost))
    return placements, shares


@pytest.mark.parametrize(("case", "seeds", "windows"), [(USED, (11, 17), 1), (SAVED, (12,), 3)])
def test_explanations_tell_how_far_to_turn_and_shuffled_ones_say_nothing(tell, case, seeds, windows):
    arms = ("outcomes", "drivers", "shuffled")
    first = {arm: [run(arm, seed, windows, 30, case)[1][-1] for seed in seeds] for arm in arms}
    tell("J6", **{f"weight_{arm}_{case[0]}": float(np.mean(shares)) for arm, shares in first.items()})
    for outcomes, drivers, shuffled in zip(*first.values(), strict=True):
        assert drivers > outcomes + 0.05
        # True answers given to the wrong weights do not rise from turn to turn: outcomes decide.
        assert shuffled == outcomes


@pytest.mark.slow
def test_the_target_is_met_sooner_with_explanations_and_not_with_shuffled_ones(tell):
    seeds = range(93_000, 93_006)
    counts = {arm: [run(arm, seed, 8, 30, SAVED)[0] for seed in seeds] for arm in ("outcomes", "drivers", "shuffled")}
    means = {arm: float(np.mean(each)) for arm, each in counts.items()}
    tell("J6", runs=len(seeds), **means)
    assert means["drivers"] < 0.8 * means["outcomes"]
    assert means["shuffled"] > 0.85 * means["outcomes"]
