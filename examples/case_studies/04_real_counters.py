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
# # Attribution on real counters
#
# So far everything was simulated. Here numbers come from hardware: the recording of a server under load, if the folder
# of measurement tables is given by `ATTRIBUTION_SCHED_DATA`; else whatever this machine itself can measure.
#
# The recording is the Kepler model database, machine nx12 (Apache-2.0): counters and RAPL watts of one bare-metal
# server every 3 s, while a stress test sweeps kinds of work, numbers of workers and clock limits. Only aggregates and
# figures of it are shown here.

# %%
import itertools
import os
import time
from dataclasses import dataclass

import numpy as np
import torch
from matplotlib import pyplot as plt
from numpy.typing import NDArray
from telling import COLOURS, say, table

from attribution_sched import EmSHAP, EnergyModel, attribution, plots

torch.set_num_threads(1)
FloatArray = NDArray[np.float64]
REPEATS = 24

# %% [markdown]
# ## What this machine can be asked for
#
# Nothing is assumed to be there, and nothing missing is called 0. `attribution-sched doctor` prints the same with what
# to do about it.

# %%
able = attribution.detect()
table(
    {"source": one.source, "counter": one.counter, "numbers": str(one.provenance), "why": one.detail.split(":")[0]}
    for one in able
)


# %% [markdown]
# ## The readings


# %%
@dataclass(frozen=True)
class Readings:
    """Counters and what is to be explained by them."""

    title: str
    names: tuple[str, ...]
    counters: FloatArray
    target: FloatArray
    target_name: str
    unit: str
    timestamps_s: FloatArray


def recorded() -> Readings:
    """The server's recording: package watts from three counters."""
    found = attribution.kepler()
    names = attribution.KEPLER_COUNTERS
    x, y = found.select(names), found.column("package_power_w")
    return Readings("server under a stress sweep", names, x, y, "package power", "W", found.timestamps_s)


def measured_here(rows: int = 150) -> Readings:
    """This process at work: CPU milliseconds from the time of its three kinds of work.

    No meter of joules is needed for it. Batches grow and shrink together, so the parts are correlated, as counters are.
    The operating system counts a process's time in hundredths of a second, so every reading is of many repetitions.
    """
    rng = np.random.default_rng(0)
    conv, fc = torch.nn.Conv2d(8, 8, 3), torch.nn.Linear(256, 256)
    source, parts, spent, times = attribution.ProcessSource(), [], [], []
    with torch.no_grad():
        for _ in range(rows):
            scale = rng.integers(2, 12)
            images = torch.zeros(int(scale + rng.integers(0, 4)), 8, 48, 48)
            vectors = torch.zeros(int(60 * (scale + rng.integers(0, 4))), 256)
            blocks = np.zeros(int(150_000 * (scale + rng.integers(0, 4))))
            before, marks = source.read(), [time.process_time()]
            for work in (lambda x=images: conv(x), lambda x=vectors: fc(x), lambda x=blocks: x.copy()):
                for _ in range(REPEATS):
                    work()
                marks.append(time.process_time())
            spent.append(1e3 * attribution.difference(before, source.read()).values["cpu_time_s"])
            parts.append(1e3 * np.diff(marks))
            times.append(time.time())
    x, names = np.array(parts), ("convolution_ms", "fully_connected_ms", "copying_ms")
    return Readings("this process at work", names, x, np.array(spent), "CPU time", "ms", np.array(times))


has_data = bool(os.environ.get(attribution.DATA_VARIABLE))
readings = recorded() if has_data else measured_here()
x, y = readings.counters, readings.target
correlation = np.corrcoef(x.T)
pairs = list(itertools.combinations(range(len(readings.names)), 2))
say(
    f"**{readings.title}**: {len(x)} readings of {', '.join(readings.names)}; {readings.target_name} from "
    f"{y.min():.1f} to {y.max():.1f} {readings.unit}, {y.mean():.1f} on average. Counters move together: correlations "
    + ", ".join(f"{correlation[i, j]:.2f} ({readings.names[i]}, {readings.names[j]})" for i, j in pairs)
    + "."
)

# %% [markdown]
# ## From counters to energy
#
# Several models are fitted and judged on blocks of time they have not seen, since neighbouring seconds are nearly the
# same second.

# %%
model = EnergyModel(names=readings.names, unit=readings.unit).fit(x, y, readings.timestamps_s)
best = model.report.best
say(
    f"Chosen: {model.report.chosen}. On blocks of time it was not fitted on: mean absolute error "
    f"{best.blocked.mae:.2f} {readings.unit}, R² {best.blocked.r2:.3f}."
)

# %% [markdown]
# ## Whose watts? Two questions, two answers
#
# - *Marginal*: what does the model do when one counter is swapped for that of another moment, the rest staying put?
# - *Conditional* (EmSHAP): what does knowing this counter tell about the energy, given how counters move together?
#
# They agree where counters are independent. Where one stands in for another, credit moves.

# %%
some, learnt = x[:: max(1, len(x) // 150)], x[:: max(1, len(x) // 800)]
fits = {
    "conditional": EmSHAP(model="auto").fit(learnt, names=readings.names, units=readings.unit),
    "marginal": EmSHAP(model="marginal").fit(learnt, names=readings.names, units=readings.unit),
}
found = {kind: fit.attribute(model, some) for kind, fit in fits.items()}
size = {kind: np.abs(vector.values).mean(axis=0) for kind, vector in found.items()}

fig, ax = plt.subplots(figsize=(7.2, 3.2), layout="constrained")
places = np.arange(len(readings.names))
for shift, colour, kind in ((-0.2, COLOURS[0], "conditional"), (0.2, COLOURS[1], "marginal")):
    ax.bar(places + shift, size[kind], 0.38, color=colour, label=kind)
ax.set_xticks(places, readings.names)
ax.set(ylabel=f"mean size of the share [{readings.unit}]", title=f"shares of {readings.target_name}")
ax.spines[["top", "right"]].set_visible(False)
ax.legend(frameon=False)
plt.show()

# %%
share = {kind: 100 * amount / amount.sum() for kind, amount in size.items()}
say(
    f"Conditional model chosen by held-out likelihood: {found['conditional'].method}. Share of all credit, marginal → "
    "conditional: "
    + ", ".join(
        f"{name} {a:.0f} % → {b:.0f} %"
        for name, a, b in zip(readings.names, share["marginal"], share["conditional"], strict=True)
    )
    + f". Mean standard error of one share: {np.mean(found['marginal'].standard_error):.2f} {readings.unit} marginal, "
    f"{np.mean(found['conditional'].standard_error):.2f} {readings.unit} conditional. Largest gap between shares plus "
    "base and the prediction: "
    f"{max(np.abs(v.values.sum(axis=1) + v.base - model.predict(some)).max() for v in found.values()):.0e} "
    f"{readings.unit}."
)

# %% [markdown]
# ## The recording at a glance
#
# Readings in the order of time, in twelve blocks: mean share of each counter in what is above or below the average.

# %%
blocks = np.array_split(np.arange(len(some)), 12)
means = np.array([found["conditional"].values[rows].mean(axis=0) for rows in blocks])
labels = [f"block {number + 1}" for number in range(len(blocks))]
ax = plots.attributions(means, labels, names=readings.names, unit=readings.unit)
ax.set_title(f"mean share of {readings.target_name}, by block of time", loc="left", fontsize=10)

# %%
predicted = model.predict(x)
fig, ax = plt.subplots(figsize=(7.2, 3.0), layout="constrained")
hours = (readings.timestamps_s - readings.timestamps_s[0]) / 60
ax.plot(hours, y, color="#999999", linewidth=0.8, label="measured")
ax.plot(hours, predicted, color=COLOURS[0], linewidth=0.8, label="from counters")
ax.set(xlabel="minutes", ylabel=f"{readings.target_name} [{readings.unit}]")
ax.spines[["top", "right"]].set_visible(False)
ax.legend(frameon=False, ncols=2, loc="lower right", bbox_to_anchor=(1.0, 1.0))
plt.show()

# %% [markdown]
# ## A case with a known answer
#
# For a linear model of Gaussian counters both answers have closed forms, and they can be worked out from the readings
# without sampling anything. They must show the same shift of credit.


# %%
def conditional_shapley(beta: FloatArray, covariance: FloatArray, z: FloatArray) -> FloatArray:
    """Conditional Shapley values of ``beta · z`` under a Gaussian, over all orders of the counters."""
    d = len(beta)

    def value(known: tuple[int, ...]) -> FloatArray:
        k, hidden = list(known), [j for j in range(d) if j not in known]
        if not k:
            return np.zeros(len(z))
        guess = z[:, k] @ np.linalg.solve(covariance[np.ix_(k, k)], covariance[np.ix_(k, hidden)])
        return np.asarray(z[:, k] @ beta[k] + guess @ beta[hidden])

    phi, orders = np.zeros_like(z), list(itertools.permutations(range(d)))
    for order in orders:
        for place, j in enumerate(order):
            phi[:, j] += value(tuple(sorted(order[: place + 1]))) - value(tuple(sorted(order[:place])))
    return phi / len(orders)


z = (x - x.mean(axis=0)) / x.std(axis=0)
beta = np.linalg.lstsq(np.column_stack([z, np.ones(len(z))]), y, rcond=None)[0][: z.shape[1]]
closed = conditional_shapley(beta, np.cov(z.T), z)
exact = {"marginal": np.abs(beta * z).mean(axis=0), "conditional": np.abs(closed).mean(axis=0)}
table(
    {
        "counter": name,
        "marginal": f"{size['marginal'][j]:.2f}",
        "marginal, closed form": f"{exact['marginal'][j]:.2f}",
        "conditional": f"{size['conditional'][j]:.2f}",
        "conditional, closed form": f"{exact['conditional'][j]:.2f}",
        "unit": readings.unit,
    }
    for j, name in enumerate(readings.names)
)


# %% [markdown]
# The energy model is not linear and the counters are not Gaussian, so the figures differ; the direction must not.
# Which one to act on: to say which counter a cheap sensor must read, the conditional one; to say which term of the
# model made the watts, the marginal one.
#
# ## What this shows, checked

# %%
for vector in found.values():
    gap = np.abs(vector.values.sum(axis=1) + vector.base - model.predict(some)).max()
    assert gap < 1e-6 * np.abs(y).max(), "shares add up to the prediction"
assert np.allclose(closed.sum(axis=1), z @ beta, atol=1e-8), "so do those in closed form"


def evenness(amounts: FloatArray) -> float:
    """1 if credit is shared alike, near 0 if one counter has it all."""
    p = amounts / amounts.sum()
    return float(-(p * np.log(p + 1e-300)).sum() / np.log(len(p)))


assert np.abs(correlation[np.triu_indices(len(correlation), 1)]).max() > 0.3, "counters do stand in for one another"
assert evenness(exact["conditional"]) > evenness(exact["marginal"]), "conditioning spreads credit, in closed form"
assert evenness(size["conditional"]) > evenness(size["marginal"]), "and as EmSHAP finds it"
if has_data:
    assert best.blocked.r2 > 0.9, "three counters tell the server's power"
    cycles, instructions = (attribution.KEPLER_COUNTERS.index(name) for name in ("cpu_cycles", "cpu_instructions"))
    assert share["marginal"][cycles] > 60, "the model itself goes by cycles"
    assert share["conditional"][instructions] > 3 * share["marginal"][instructions], "instructions bear witness"
else:
    assert best.blocked.r2 > 0.5, "the parts tell the CPU time"
say("All claims hold.")
