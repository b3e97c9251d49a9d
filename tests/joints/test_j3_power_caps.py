"""J3 decision → world: a power cap per task, chosen by what its counters tell, saves joules at equal work."""

from dataclasses import replace

import numpy as np
from scipy.stats import t as student
from scipy.stats import wilcoxon

from attribution_sched.config import load_settings
from attribution_sched.planning.power_caps import with_cap
from attribution_sched.scheduler.episode import play
from attribution_sched.scheduler.hi_ppo.rule import Rule

SEEDS = range(3_197_000, 3_197_024)
"""Days that nothing was tuned on."""


def site():
    """A quarter of the shared site for a day; the queue holds whoever comes."""
    settings = load_settings("shared").model_dump(mode="json")
    settings["domain_defaults"]["devices"] = 16
    settings["arrivals"]["rate_per_hour"] = 4.0
    settings["episode"] |= {"horizon_s": 86_400.0, "pool_size": 512, "queue_capacity": 224, "max_running": 32}
    return load_settings(settings).build_world()


class Shuffled(Rule):
    """The rule whose caps are those of another task: what the counters tell is cut."""

    def reset(self, seed):
        super().reset(seed)
        self.levels, self.rng = [], np.random.default_rng(seed)

    def decide(self, view):
        plan = super().decide(view)
        if plan is None:
            return None
        self.levels.append(plan.segments[0].cap)
        return with_cap(plan, int(self.rng.choice(self.levels)))


def interval(differences):
    """Mean and 95 % interval of paired differences."""
    values = np.asarray(differences)
    half = student.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return values.mean(), values.mean() - half, values.mean() + half


def test_forbidding_caps_costs_joules_at_equal_work_and_reward(tell):
    world = site()
    cut = replace(world, cluster=replace(world.cluster, cap_levels=()))
    free, forbidden = ([play(each, Rule(), seed) for seed in SEEDS] for each in (world, cut))
    shuffled = [play(world, Shuffled(), seed) for seed in SEEDS[:12]]
    joules, slower, worth = [], [], []
    for on, off in zip(free, forbidden, strict=True):
        per_work = [day.task_energy_kwh / day.baseline_running_h for day in (on, off)]
        joules.append(np.log(per_work[1] / per_work[0]))
        slower.append(np.log(on.mean_completion_h / off.mean_completion_h))
        worth.append(on.reward - off.reward)
    blind = [on.reward - other.reward for on, other in zip(free, shuffled, strict=False)]
    found = {name: interval(values) for name, values in
             {"joules": joules, "completion": slower, "R": worth}.items()}  # fmt: skip
    tell("J3", preset="shared, 16 devices, load 0.9", days=len(SEEDS), freedom="power caps",
         better_than_shuffled=f"{sum(each > 0 for each in blind)} of {len(blind)} days",
         **{name: f"{m:+.3f} [{low:+.3f}, {high:+.3f}]" for name, (m, low, high) in found.items()})  # fmt: skip
    assert found["joules"][1] > 0.0, "caps forbidden: more joules for the same work"
    assert found["completion"][2] < 0.05, "tasks take hardly longer"
    assert found["R"][1] > 0.0
    # Days differ by orders of magnitude in what a wrong cap costs: by ranks.
    assert wilcoxon(blind, alternative="greater").pvalue < 0.05, "which task gets which cap matters: by its counters"
