"""J1 counters → attribution: the joules shown by ``System`` against the task's own energy, within a kind."""

import numpy as np
import pytest

from attribution_sched.attributor import as_attributor, task_energy_j
from attribution_sched.cluster.pool import build_pool
from attribution_sched.config import load_settings


def within_kind_r2(preset, most):
    """R² per kind of the joules shown against the tasks' own, and joules of convolution shown to LLaMAs."""
    world = load_settings(preset).build_world()
    pool = build_pool(world)
    kept = np.sort(np.argsort(pool.kinds, kind="stable")[:: max(1, len(pool) // most)])
    attributor = as_attributor(None, world)
    shown = np.array([float(attributor.vector(pool.counters.values[i]).prediction) for i in kept])
    own = task_energy_j(world, pool.kinds[kept], pool.demands.take(kept))
    found = []
    for kind in np.unique(pool.kinds[kept]):
        mine = pool.kinds[kept] == kind
        if mine.sum() >= 5:
            found.append(1.0 - np.square(shown[mine] - own[mine]).sum() / np.square(own[mine] - own[mine].mean()).sum())
    language = [i for i in kept if "llama" in world.kinds[pool.kinds[i]].model.name]
    conv = [float(attributor.vector(pool.counters.values[i])["conv"]) for i in language]
    return np.array(found), conv


def measured(tell, preset, most):
    r2, conv = within_kind_r2(preset, most)
    assert len(r2) and np.isfinite(r2).all()
    tell(
        "J1", preset=preset, kinds=len(r2), r2_median=float(np.median(r2)), r2_worst=float(r2.min()), wanted=0.7,
        convolution_of_a_llama_j=max(map(abs, conv), default=0.0), wanted_j=0.0,
    )  # fmt: skip


def test_joules_shown_against_a_tasks_own_energy(tell):
    measured(tell, "testbed", 120)


@pytest.mark.slow
@pytest.mark.parametrize("preset", ["testbed", "cross-domain", "large"])
def test_joules_shown_against_every_tasks_own_energy(preset, tell):
    measured(tell, preset, 100_000)
