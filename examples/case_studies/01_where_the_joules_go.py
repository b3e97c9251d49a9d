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
# # Where the joules go, and why each task got its precision
#
# Three tasks wait for one node of four A100: a ResNet-50 and a BERT to be trained, an EfficientNet to be served. Each
# is attributed (which counters its joules follow), placed by Hi-PPO, and explained.
#
# Everything below is computed here; sentences with numbers are put together from the results. The cluster is simulated
# from measured speed and power curves, and every table says which numbers are simulated, estimated or measured.

# %%
from dataclasses import replace

import numpy as np
from matplotlib import pyplot as plt
from telling import COLOURS, say, show, table

from attribution_sched import Plan, System, cluster, plots, reasoning

system = System.demo()
results = {}
while (result := system.schedule_next_task()) is not None:
    results[result.task.id] = result
say(
    f"{len(results)} tasks placed, in this order: "
    + ", ".join(f"**{name}** at {result.cluster_time_s:.0f} s" for name, result in results.items())
    + "."
)

# %% [markdown]
# ## One decision, whole
#
# A result shows itself: plan, outcome, reward terms, joules by counter, times, and how each number was got. The first
# decision of a process also loads or compiles the simulation's kernels; its time here holds that too.

# %%
show(results["BERT"])

# %% [markdown]
# ## Where the joules go
#
# The energy model predicts joules per sample from a task's counters and throughput; its account starts from the idle
# machine and shares what the task draws beyond it out over the seven counters. An operator it does not have gets 0 J.

# %%
names = list(results)
vectors = [results[name].attribution for name in names]
drawn, unsure = (np.array([getattr(v, what) for v in vectors]) for what in ("values", "standard_error"))
ax = plots.accounts(drawn, [v.base for v in vectors], unsure, names, names=vectors[0].names, unit="J/sample")

# %%
for name, vector in zip(names, vectors, strict=True):
    first = vector.ranking()[0]
    say(
        f"**{name}**: {float(vector.prediction):.3f} J per sample expected, {float(vector.base):.3f} of them idle. "
        f"The largest part is {first} ({float(vector[first]):.3f} J)."
    )

# %% [markdown]
# What the simulated meters of the devices then read, for the whole of each task. The expectation from counters alone is
# for one GPU at 16 bits and knows nothing of the plan: it ranks the tasks as the meters do, no more is claimed for it.

# %%
rows = []
for name, result in results.items():
    steps, batch, joules = result.task.steps_left, result.task.batch_size, result.outcome.energy_j_per_step
    rows.append({
        "task": name,
        "work": f"{'training' if result.task.training else 'serving'}, {steps:,.0f} steps of {batch}",
        "precision": "/".join(result.decision.precisions),
        "GPUs": result.decision.devices,
        "J/sample expected": f"{float(result.attribution.prediction):.3f}",
        "J/sample metered": f"{joules / batch:.3f}",
        "kJ in all": f"{joules * steps / 1e3:.1f}",
        "seconds": f"{result.outcome.step_s * steps:.0f}",
    })  # fmt: skip
table(rows)

# %% [markdown]
# ## The same plan in every precision
#
# Only the numeric format is exchanged; devices, layout and microbatch stay. Each variant is priced by the cost model
# with the task's own demands, so the chosen one must come out exactly as the cluster reported it.


# %%
def in_format(plan: Plan, precision: cluster.Precision) -> Plan:
    """The plan with another numeric format everywhere."""
    changed = [
        replace(one, segments=tuple(replace(part, precision=precision) for part in one.segments))
        for one in plan.replicas
    ]
    return replace(plan, replicas=tuple(changed))


kinds = {(kind.model.name, kind.training): row for row, kind in enumerate(system.world.kinds)}
cost = system.cluster.engine.cost
priced = {}
for name, result in results.items():
    kind = kinds[result.task.kind, result.task.training]
    variants = [in_format(result.decision.plan, precision) for precision in cluster.PRECISIONS]
    costs = cost.score(variants, kind, factors=system.true_demands(name).factors)
    priced[name] = {
        precision: (step_s * 1e3, energy_j / result.task.batch_size)
        for precision, step_s, energy_j in zip(cluster.PRECISIONS, costs.step_s, costs.energy_j, strict=True)
    }
chosen = {name: result.decision.plan.segments[0].precision for name, result in results.items()}

fig, axes = plt.subplots(2, len(results), figsize=(9.2, 4.2), layout="constrained")
for column, (name, variants) in enumerate(priced.items()):
    labels = [precision.value.upper() for precision in variants]
    banned = [results[name].task.training and precision is cluster.Precision.INT8 for precision in variants]
    for ax, quantity, which in ((axes[0, column], "energy [J per sample]", 1), (axes[1, column], "step [ms]", 0)):
        for place, (precision, numbers) in enumerate(variants.items()):
            ours = precision is chosen[name]
            how = {"hatch": "///", "facecolor": "white"} if banned[place] else {"alpha": 1.0 if ours else 0.35}
            ax.barh(place, numbers[which], color=COLOURS[1 - which], edgecolor=COLOURS[1 - which], **how)
            ax.text(numbers[which], place, f" {numbers[which]:.3g}", va="center", fontsize=8)
        ax.set_yticks(range(len(labels)), labels)
        for text, precision in zip(ax.get_yticklabels(), variants, strict=True):
            text.set_fontweight("bold" if precision is chosen[name] else "normal")
        ax.set(xlabel=quantity, title=name if which else "")
        ax.margins(x=0.2)
        ax.invert_yaxis()
        ax.spines[["top", "right"]].set_visible(False)
fig.suptitle(
    "the same plan in every precision: chosen in full colour, hatched is not offered for training", fontsize=10
)
plt.show()

# %%
for name, variants in priced.items():
    ms, joules = variants[chosen[name]]
    lines = []
    for precision, (other_ms, other_joules) in variants.items():
        if precision is chosen[name]:
            continue
        if (other_ms, other_joules) == (ms, joules):
            lines.append(f"{precision.value.upper()}: the same time and energy")
            continue
        time, energy = 100 * (other_ms / ms - 1), 100 * (other_joules / joules - 1)
        banned = results[name].task.training and precision is cluster.Precision.INT8
        allowed = " — not offered for training" if banned else ""
        lines.append(f"{precision.value.upper()}: {time:+.0f} % time, {energy:+.0f} % energy{allowed}")
    say(f"**{name}** runs in {chosen[name].value.upper()}. Instead of it:\n\n- " + "\n- ".join(lines))

# %% [markdown]
# ## Which choice in the plan earns what
#
# Precision is one choice among others. Taken apart by its parts, a plan says what layout, precision and microbatch each
# add to the reward, against everything else the menu offers on the same devices. These shares are exact.

# %%
parts = {name: system.explain(result, parts=True) for name, result in results.items()}
show(parts["EfficientNet"])

# %%
fig, axes = plt.subplots(1, len(parts), figsize=(9.5, 2.6), layout="constrained", sharex=True)
for ax, (name, told) in zip(axes, parts.items(), strict=True):
    # On one GPU there is one layout, and nothing to share out.
    shares = {player: told.share(player) for player in ("microbatch", "precision", "layout") if player in told.names}
    shades = [COLOURS[0] if value >= 0 else COLOURS[1] for value in shares.values()]
    ax.barh(list(shares), list(shares.values()), color=shades)
    ax.set(title=name, xlabel="share of the reward R")
    ax.axvline(0, color="black", linewidth=0.8)
    ax.spines[["top", "right"]].set_visible(False)
plt.show()

# %% [markdown]
# ## Why this precision: what the scheduler itself goes by
#
# Hi-PPO does not see true demands; it sees attributions and pace. Asked why its format and not FP32, all else equal, it
# answers with the inputs that make the difference in the reward it expects.

# %%
against = {
    name: system.explain(result, against=in_format(result.decision.plan, cluster.Precision.FP32))
    for name, result in results.items()
}
plots.waterfall(against["EfficientNet"])
show(against["EfficientNet"])

# %%
for name, told in against.items():
    say(f"**{name}**. {reasoning(told)}")

# %% [markdown]
# ## What this shows
#
# - Training: 16 bits save both time and energy against FP32. FP16 and BF16 cost the same here, so nothing in time or
#   joules decides between them.
# - Serving EfficientNet: eight bits on one GPU save a little time and more than a third of the joules against 16 bits,
#   about half of the time and two thirds of the joules against FP32. It goes first, while the two others wait and all
#   four GPUs are free; they would step 3 % faster than one, for twice the joules.
#
# The cell below fails if any of this stops being true.

# %%
for name, result in results.items():
    ms, joules = priced[name][chosen[name]]
    # The priced plan is the plan that ran, to the last digit.
    assert np.isclose(ms, 1e3 * result.outcome.step_s, rtol=1e-9)
    assert np.isclose(joules, result.outcome.energy_j_per_step / result.task.batch_size, rtol=1e-9)
    offered = [p for p in cluster.PRECISIONS if not (result.task.training and p is cluster.Precision.INT8)]
    assert joules == min(priced[name][p][1] for p in offered), "no precision on offer takes fewer joules"
    # Shares add up, and what is explained is what the cluster paid.
    for told in (parts[name], against[name]):
        assert (told.efficiency_gap() < 1e-6).all()
    assert np.isclose(parts[name].value[-1], result.reward.total, atol=1e-9)
    assert parts[name].share("precision") > 0, "precision speaks for the plan"
    vector = result.attribution
    assert np.isclose(vector.values.sum() + vector.base, vector.prediction), "joules add up"
for name in ("ResNet50", "BERT"):
    assert chosen[name] in (cluster.Precision.FP16, cluster.Precision.BF16)
    assert priced[name][cluster.Precision.FP16] == priced[name][cluster.Precision.BF16]
    fp32_ms, fp32_joules = priced[name][cluster.Precision.FP32]
    assert fp32_ms > 1.2 * priced[name][chosen[name]][0]
    assert fp32_joules > 1.5 * priced[name][chosen[name]][1]
assert chosen["EfficientNet"] is cluster.Precision.INT8
ms, joules = priced["EfficientNet"][cluster.Precision.INT8]
half_ms, half_joules = priced["EfficientNet"][cluster.Precision.FP16]
assert 0.8 * half_ms < ms < half_ms and joules < 0.66 * half_joules, "a little time, a third of the joules"
fp32_ms, fp32_joules = priced["EfficientNet"][cluster.Precision.FP32]
assert fp32_ms > 1.8 * ms and fp32_joules > 2.8 * joules, "half of the time, two thirds of the joules"
assert next(iter(results)) == "EfficientNet", "it goes first"
assert results["EfficientNet"].decision.devices == 1
four = replace(
    results["EfficientNet"].decision.plan,
    replicas=tuple(
        replace(one, segments=tuple(replace(part, dp=4) for part in one.segments))
        for one in results["EfficientNet"].decision.plan.replicas
    ),
)
demands = system.true_demands("EfficientNet")
four_gpus = cost.score([four], kinds[results["EfficientNet"].task.kind, False], factors=demands.factors)
assert 0.95 * ms < 1e3 * four_gpus.step_s[0] < ms, "four GPUs are hardly faster"
assert four_gpus.energy_j[0] / results["EfficientNet"].task.batch_size > 1.9 * joules, "for twice the joules"
metered = {name: result.outcome.energy_j_per_step / result.task.batch_size for name, result in results.items()}
expected = {name: float(result.attribution.prediction) for name, result in results.items()}
assert sorted(metered, key=metered.get) == sorted(expected, key=expected.get), "counters rank the tasks as meters do"
say("All claims hold.")
