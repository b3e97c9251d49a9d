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
# Your readings as a table: `readings.csv` with a column per counter, one of watts and one of time; the names are below.
# Without it, the recording of a server under load is read, if the folder of measurement tables is given by
# `ATTRIBUTION_SCHED_DATA`; else whatever this machine itself can measure.
#
# The recording is the Kepler model database, machine nx12 (Apache-2.0): counters and RAPL watts of one bare-metal
# server every 3 s, while a stress test sweeps kinds of work, numbers of workers and clock limits. Only aggregates and
# figures of it are shown here.

# %%
import os
import time
from pathlib import Path

import numpy as np
import torch
from matplotlib import pyplot as plt
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.model_selection import KFold, cross_val_predict
from telling import COLOURS, say

from attribution_sched import EmSHAP, attribution, plots

torch.set_num_threads(1)
MINE, COUNTERS, POWER, TIME = Path("readings.csv"), attribution.KEPLER_COUNTERS, "package_power_w", "timestamp"


def measured_here(rows: int = 150, repeats: int = 24) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """This process at work: CPU milliseconds of three kinds of work, in all, and when; no meter of joules is needed."""
    rng, source, readings = np.random.default_rng(0), attribution.ProcessSource(), []
    conv, fc = torch.nn.Conv2d(8, 8, 3).requires_grad_(False), torch.nn.Linear(256, 256).requires_grad_(False)
    works = (
        lambda size: conv(torch.zeros(int(size), 8, 48, 48)),
        lambda size: fc(torch.zeros(int(60 * size), 256)),
        lambda size: np.zeros(int(150_000 * size)).copy(),
    )
    for _ in range(rows):
        # Batches grow and shrink together, so the parts are correlated, as counters are.
        sizes, before, marks = rng.integers(2, 12) + rng.integers(0, 4, 3), source.read(), [time.process_time()]
        for work, size in zip(works, sizes, strict=True):
            for _ in range(repeats):
                work(size)
            marks.append(time.process_time())
        spent = attribution.difference(before, source.read()).values["cpu_time_s"]
        readings.append([*1e3 * np.diff(marks), 1e3 * spent, time.time()])
    return np.array(readings)[:, :3], np.array(readings)[:, 3], np.array(readings)[:, 4]


names, target, unit = COUNTERS, "package power", "W"
if recorded := MINE.is_file() or bool(os.environ.get(attribution.DATA_VARIABLE)):
    columns = {name: attribution.Column(name, "1/s") for name in COUNTERS} | {POWER: attribution.Column(POWER, "W")}
    mine = attribution.ColumnMap(columns, timestamp=TIME)
    recording = attribution.load_recording(MINE, mine) if MINE.is_file() else attribution.kepler()
    title = "your readings" if MINE.is_file() else "server under a stress sweep"
    x, y, when_s = recording.select(names), recording.column(POWER), recording.timestamps_s
else:
    names, target, unit = ("convolution_ms", "fully_connected_ms", "copying_ms"), "CPU time", "ms"
    title, (x, y, when_s) = "this process at work", measured_here()
correlations = np.corrcoef(x.T)[np.triu_indices(len(names), 1)]
say(
    f"**{title}**: {len(x)} readings of {', '.join(names)}; {target} from {y.min():.1f} to {y.max():.1f} {unit}. "
    f"Counters move together: correlations from {correlations.min():.2f} to {correlations.max():.2f}."
)

# %% [markdown]
# ## From counters to energy
#
# Any regressor or function of rows will do. It is judged on blocks of time it has not seen, since neighbouring seconds
# are nearly the same second.

# %%
model = HistGradientBoostingRegressor(learning_rate=0.05, max_iter=150, max_leaf_nodes=12, random_state=0).fit(x, y)
off = cross_val_predict(model, x[order := np.argsort(when_s)], y[order], cv=KFold(5)) - y[order]
r2 = 1.0 - np.var(off) / np.var(y)
say(f"On blocks of time not fitted on: off by {np.abs(off).mean():.2f} {unit}, R² {r2:.3f}.")
_, ax = plt.subplots(figsize=(7.2, 3.0), layout="constrained")
ax.plot((when_s - when_s[0]) / 60, y, color="#999999", linewidth=0.8, label="measured")
ax.plot((when_s - when_s[0]) / 60, model.predict(x), color=COLOURS[0], linewidth=0.8, label="from counters")
ax.set(xlabel="minutes", ylabel=f"{target} [{unit}]")
_ = ax.legend(frameon=False, ncols=2, loc="lower right", bbox_to_anchor=(1.0, 1.0))

# %% [markdown]
# ## Whose watts? Two questions, two answers
#
# - *Marginal*: what does the model do when one counter is swapped for that of another moment, the rest staying put?
# - *Conditional* (EmSHAP): what does knowing this counter tell about the energy, given how counters move together?
#
# They agree where counters are independent. Where one stands in for another, credit moves. To say which term of the
# model made the watts, act on the marginal one; to say which counter a cheap sensor must read, on the conditional one.

# %%
some, learnt = x[:: max(1, len(x) // 150)], x[:: max(1, len(x) // 800)]
fits = {kind: EmSHAP(model=how).fit(learnt, names=names, units=unit)
        for kind, how in (("marginal", "marginal"), ("conditional", "auto"))}  # fmt: skip
found = {kind: fit.attribute(model, some) for kind, fit in fits.items()}
size = {kind: np.abs(vector.values).mean(axis=0) for kind, vector in found.items()}
plots.contenders({f"{name} [{unit}]": [each[j] for each in size.values()] for j, name in enumerate(names)}, list(size),
                 own=1, title=f"mean size of the shares of {target}")  # fmt: skip
share = {kind: 100 * amount / amount.sum() for kind, amount in size.items()}
shift = zip(names, share["marginal"], share["conditional"], strict=True)
say("Share of credit, marginal → conditional: " + ", ".join(f"{name} {a:.0f} % → {b:.0f} %" for name, a, b in shift))

# %% [markdown]
# ## The recording at a glance
#
# Readings in the order of time, in twelve blocks: mean share of each counter in what is above or below the average.

# %%
blocks = np.array([rows.mean(axis=0) for rows in np.array_split(found["conditional"].values, 12)])
ax = plots.attributions(blocks, [f"block {number + 1}" for number in range(12)], names=names, unit=unit)
_ = ax.set_title(f"mean share of {target}, by block of time", loc="left", fontsize=10)

# %% [markdown]
# ## What this shows, checked

# %%
evenness = {kind: -(part / 100 * np.log(part / 100 + 1e-300)).sum() for kind, part in share.items()}
for vector in found.values():
    gap = np.abs(vector.values.sum(axis=1) + vector.base - model.predict(some)).max()
    assert gap < 1e-6 * np.abs(y).max(), "shares add up to the prediction"
assert np.abs(correlations).max() > 0.3, "counters do stand in for one another"
assert evenness["conditional"] > evenness["marginal"], "conditioning spreads credit"
assert r2 > (0.9 if recorded else 0.5), "three counters tell the watts, parts tell the CPU time"
if title == "server under a stress sweep":
    assert share["marginal"][0] > 60, "the model itself goes by cycles"
    assert share["conditional"][1] > 3 * share["marginal"][1], "instructions bear witness"
    assert share["conditional"][0] < share["marginal"][0] - 10, "of what cycles had"
    assert share["conditional"][0] == max(share["conditional"]), "which still lead"
say("All claims hold.")
