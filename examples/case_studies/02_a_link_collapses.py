# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # A wide-area link collapses during a 70B run
#
# Your incident as YAML: which preset (or your own settings file), which link, when, how much of it is left. Here a
# LLaMA-2-70B training run was launched under a quota of eight GPUs a region, so the exact solver cut it over three
# regions. An hour later the quota is gone, and the link between two of them falls to a tenth of its bandwidth.
#
# What does Hi-PPO do, why, and what does it cost? It is set beside staying put and beside the exact solver, which finds
# the best plan of the moment again at every event, with and without asking whether the move pays. Launch, network and
# task are the same for all; everything is simulated.

# %%
from dataclasses import replace
from typing import Any

import numpy as np
import yaml
from matplotlib import pyplot as plt
from telling import COLOURS, say

from attribution_sched import Background, Explainer, HiPpo, Plan, System, explain, load_settings, make_policy, plots

INCIDENT = """
extends: cross-domain-easy
incidents: [{kind: link_cut, source: "aws:us-west-2", target: "azure:westus", factor: 0.1, start_h: 1, end_h: 48}]
"""
MODEL, STEPS, QUOTA = "llama-2-70b", 240, 8

collapse, calm_day = load_settings(yaml.safe_load(INCIDENT)), load_settings("cross-domain-easy")
names, cut = [domain.name for domain in collapse.build_world().cluster.domains], collapse.incidents[0]

# %% [markdown]
# ## The launch, and who looks after the run
#
# A supervisor is asked at every event: an epoch ended, or a link the run uses moved by 15 % or more. Rivals take over
# when the link collapses, so that all begin from the same place; Hi-PPO is asked from the start.


# %%
class Run:
    """The task, launched by the exact solver under the quota, and looked after by somebody from a moment on."""

    def __init__(self, name: str, then: Any, settings: Any = collapse, since_h: float = 0.0, seed: int = 0) -> None:
        self.name, self.since_h, self.then, self.course = name, since_h, explain.Watch(then), [(0.0, 0)]
        self.reset = self.then.reset
        self.system = System(settings, self, queue="empty", seed=seed)
        self.system.submit(MODEL, steps=STEPS, id="the run")
        self.bill_usd = self.system.run(until="empty").traffic_usd
        finished_s, moved = self.system.cluster.totals()["completion_s"], self.system.history().query("code == 2")
        self.finish_h, self.pauses_h = finished_s / 3600, [told["move_s"] / 3600 for told in moved["outcome_details"]]
        for at_h, pause_h in zip(moved["cluster_time_s"] / 3600, self.pauses_h, strict=True):
            self.course.append((at_h + pause_h, max(done for hour, done in self.course if hour <= at_h + 1e-9)))
        self.course = [*sorted(self.course), (self.finish_h, STEPS)]

    def decide(self, view: Any) -> Plan | None:
        """Launch it, then note how far it is and ask who looks after it."""
        if not view.replanning:
            quota = replace(view, free_devices=np.minimum(view.free_devices, QUOTA))
            self.launch = make_policy("exact").decide(quota)
            return self.launch
        self.course.append((view.time_s / 3600, STEPS - view.steps_left))
        return self.then.decide(view) if view.time_s >= 3600 * self.since_h else None


hi_ppo = HiPpo()
calm, ours = Run("ordinary day", hi_ppo, calm_day), Run("hi-ppo", hi_ppo)
stay = Run("stay put", make_policy("exact"), since_h=np.inf)
switch, resolve = (Run(name, make_policy(name), since_h=cut.start_h) for name in ("exact-switch", "exact-resolve"))
runs, decided = (ours, stay, switch, resolve, calm), next(one for one in ours.then if one.plan is not None)
launched = calm.system.cluster.engine.cost.score(calm.launch, decided.view.kind_index)
ax = plots.traffic(launched.traffic_bytes[0], names, calm.launch)

# %% [markdown]
# Above, what one step of the launched plan sends between regions; the framed cells are the cuts.
#
# ## What happens, and what it cost

# %%
say(f"At {decided.view.time_s / 3600:.2f} h Hi-PPO decides: **{explain.describe_plan(decided.plan, names)}**.")
_, ax = plt.subplots(figsize=(8.6, 3.6), layout="constrained")
for colour, run in zip(COLOURS, runs, strict=False):
    ax.plot(*zip(*run.course, strict=True), color=colour, linewidth=2, label=f"{run.name}: {run.finish_h:.1f} h")
ax.axvline(cut.start_h, color="#999999", linestyle="--")
ax.set(xlabel="hours since the launch", ylabel="steps done", title="progress of the run; flat: the state is moving")
ax.legend(frameon=False, loc="lower right", fontsize=8)
ax = plots.contenders({
    "finished after [h]": [run.finish_h for run in runs],
    "of it paused [h]": [sum(run.pauses_h) for run in runs],
    "moves": [len(run.pauses_h) for run in runs],
    "traffic bill [USD]": [run.bill_usd for run in runs],
}, [run.name for run in runs])  # fmt: skip

# %% [markdown]
# The one move saves hours and dollars against staying put. Following every new optimum moves the run again and again,
# and most of its time is pauses. The exact solver that first asks whether a move pays ends before Hi-PPO, for a higher
# bill.
#
# ## Why: what the policy goes by, and what really made the difference
#
# The decision to move is compared with the same run on ordinary days, when links only wander. First question: the
# log-odds of this move against keeping the plan. Second, asked of the simulator: what the new plan earns per step
# beyond the old one. A link is one input with both its directions.

# %%
days = [one for seed in range(1, 7) for one in Run("ordinary day", hi_ppo, calm_day, seed=seed).then]
background = Background.of([*calm.then, *days], "the same run on seven ordinary days")
explainer = Explainer(hi_ppo, background, world=ours.system.world)
why = explainer.explain(decided, target="log_probability", against="nothing")
truth = explainer.explain(decided, target="simulator", against=decided.view.current_plan)
lead = {told.target: told.names[int(np.argmax(np.abs(told.values[:, -1])))] for told in (why, truth)}
plots.waterfall(why)
plots.waterfall(truth)
say(f"The policy goes by **{lead[why.target]}**, the symptom; the cause is **{lead['simulator']}**.")

# %% [markdown]
# ## What this shows, checked

# %%
before = [one for one in ours.then if one.view.time_s < decided.view.time_s]
assert all(one.plan is None for one in (*calm.then, *days)), "no move on ordinary days"
assert len(before) >= 3, "it was asked before the collapse, and kept the plan"
assert np.isclose(decided.view.time_s / 3600, cut.start_h, atol=0.1), "it moves at once"
assert decided.view.running_step_s > 1.5 * max(one.view.running_step_s for one in before), "the collapse hurt"
assert len(set(ours.launch.domains)) > 1 == len(decided.plan.segments), "cut over regions, it is gathered in one"
assert ours.system.history()["bill_usd"].iloc[-1] == 0, "and sends nothing from then on"
assert len(ours.pauses_h) == 1, "one move is enough"
assert ours.finish_h < stay.finish_h - 2 and ours.bill_usd < stay.bill_usd, "hours earlier than staying, and cheaper"
assert resolve.finish_h > ours.finish_h and resolve.bill_usd > 2 * ours.bill_usd, "every optimum: slower and dearer"
assert sum(resolve.pauses_h) > resolve.finish_h / 2, "most of it pauses"
assert switch.finish_h < ours.finish_h and switch.bill_usd > ours.bill_usd, "asking whether it pays: faster, dearer"
assert lead[why.target] == "plan in force", "the policy reads the symptom"
assert lead["simulator"] == f"link {cut.source}–{cut.target}", "the cause is the link"
assert all((told.efficiency_gap() < 1e-6).all() for told in (why, truth)), "shares add up"
say("All claims hold.")
