"""What an attributor must keep: seven finite numbers in [−1, 1] for every task, and the same for the same counters."""

from __future__ import annotations

from typing import Any

import numpy as np

from attribution_sched.attribution.attributor import as_attributor
from attribution_sched.cluster.demands import DEMAND_NAMES
from attribution_sched.cluster.world import build_pool
from attribution_sched.config import load_settings
from attribution_sched.testing.contract import asked, require

TASKS = 12
"""Tasks of a check."""


def check_attributor(attributor: Any, preset: Any = "cross-domain-easy") -> None:
    """Attribute tasks of a preset and hold what comes out to the contract.

    Vectors add up: base and parts are the prediction. The state that policies read is seven numbers in [−1, 1], the
    same for a task alone as among others, and the same when asked again.

    Args:
        attributor: As for ``System``: fitted, a pair, a model, a function.
        preset: Whose tasks.

    Raises:
        ContractError: Field, value, rule and fix of the first thing it does not keep.
    """
    world = load_settings(preset).build_world()
    given = as_attributor(attributor, world)
    counters = build_pool(world).counters.values[:TASKS]
    with asked("attributor(counters)"):
        states, again = np.asarray(given(counters)), np.asarray(given(counters))
    wanted = len(counters), len(DEMAND_NAMES)
    rule = f"must be {wanted}: {len(DEMAND_NAMES)} numbers a task"
    require(states.shape == wanted, "attributor(counters).shape", states.shape, rule, "One row a task")
    inside = np.isfinite(states).all() and (np.abs(states) <= 1.0).all()
    worst = float(np.abs(states).max()) if np.isfinite(states).all() else float("nan")
    require(inside, "attributor(counters)", worst, "must be finite and in [-1, 1]", "Scale joules, as schema does")
    fix = "Draw with a seed of its own"
    require(np.array_equal(states, again), "attributor(counters)", "asked twice", "must be the same again", fix)
    for row, one in zip(states, counters, strict=True):
        with asked("attributor.vector"):
            vector = given.vector(one)
        state = np.asarray(vector.state)
        close = vector.state is not None and np.allclose(state, row, atol=1e-6)
        fix = "A task's attribution hangs on the task alone"
        require(close, "attributor.vector(task).state", state, "must be the task's row among others", fix)
        total = float(vector.base + vector.values.sum())
        sums = np.isclose(total, float(vector.prediction), rtol=1e-6, atol=1e-9)
        require(
            sums, "attributor.vector(task)", total, f"must add up to {float(vector.prediction)}", "Share all of it out"
        )
