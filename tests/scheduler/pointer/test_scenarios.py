import numpy as np
import pytest

from attribution_sched.cluster.models import model
from attribution_sched.scheduler.pointer.scenarios import (
    MOTION,
    Range,
    at,
    build_view,
    draw_decision,
    draw_world,
    named_model,
)


def test_the_same_seed_draws_the_same_world():
    first, second = (draw_world(np.random.default_rng(4)) for _ in range(2))
    assert first == second
    assert first != draw_world(np.random.default_rng(5))


@pytest.mark.parametrize("domains", [(3, 6), (8, 8)])
def test_worlds_keep_to_their_range(domains):
    rng = np.random.default_rng(0)
    for _ in range(5):
        drawn = draw_world(rng, Range(domains=domains))
        assert domains[0] <= len(drawn.regions) <= domains[1]
        assert len(drawn.gpus) == len(drawn.devices) == len(drawn.regions)
        assert 1 <= drawn.max_segments <= len(drawn.regions)
        assert all(24 <= len(model(name)) <= 84 for name, _, _ in drawn.kinds)


def test_a_decision_sets_the_moment():
    rng = np.random.default_rng(1)
    drawn = draw_world(rng)
    view = build_view(drawn)
    for _ in range(20):
        decision = draw_decision(rng, drawn, view.bandwidth_gbps)
        seen = at(view, decision)
        assert seen.kind is view.kinds[decision.kind]
        assert seen.free_devices.sum() > 0 and (seen.free_devices <= drawn.devices).all()
        ratio = seen.bandwidth_gbps / view.bandwidth_gbps
        assert (np.abs(ratio - 1.0) <= MOTION + 1e-3).all() and (np.diag(ratio) == 1.0).all()
        assert (seen.reward.w_eff, seen.reward.w_util, seen.reward.w_cost) == decision.weights


def test_a_stretched_model_repeats_blocks():
    base, long = model("gpt3-13b"), named_model("stretched:gpt3-13b:128")
    block = next(layer for layer in base.layers if layer.kind == "block")
    assert len(long) == 128
    assert long.params == pytest.approx(base.params + (128 - len(base)) * block.params)
    assert long.layers[0] == base.layers[0] and long.layers[-1] == base.layers[-1]
