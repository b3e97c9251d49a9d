"""Models written down as layers, and models with adapters."""

import pytest

from attribution_sched.cluster.compute import PARAMS_SHARDED, build_tables
from attribution_sched.cluster.gpus import Precision, gpu
from attribution_sched.cluster.models import model
from attribution_sched.cluster.models.declared import LayerFigures, declared_model, with_adapters
from attribution_sched.cluster.world import Runtime
from attribution_sched.errors import TaskError


def test_layers_add_up_or_are_refused():
    parts = [LayerFigures(1, 0.0, 1e6, 1e5, kind="embedding"), LayerFigures(10, 2e9, 5e6, 1e5)]
    chain = declared_model("own", parts, total_params=51e6)
    assert (len(chain), chain.params, chain.forward_flops) == (11, 51e6, 2e10)
    with pytest.raises(TaskError, match=r"add up to 5.1e\+07"):
        declared_model("own", parts, total_params=60e6)


def test_adapters_train_few_weights_and_remember_all():
    base = model("llama-2-7b@2048")
    tuned = with_adapters(base, 16)
    added = tuned.params - base.params
    # Peft's count at rank 16 on every linear product of LLaMA-2 7B is 40.0e6.
    assert added == pytest.approx(40.0e6, rel=0.35)
    times = {
        name: build_tables([chain], [gpu("A100-80")], Runtime(zero_stage=0))
        for name, chain in (("full", base), ("lora", tuned))
    }
    half = Precision.FP16.index
    full, lora = (times[name].times_s[0, 0, half, 0] for name in ("full", "lora"))
    assert lora[4, -1] / lora[0, -1] == pytest.approx(1.0, abs=0.05)  # no gradients of frozen weights
    assert full[4, -1] / full[0, -1] == pytest.approx(2.0)
    states = {name: tables.sizes[0, PARAMS_SHARDED, -1] for name, tables in times.items()}
    assert states["lora"] < 0.2 * states["full"]
    assert lora[2, -1] >= full[2, -1]  # all weights are still read
    with pytest.raises(TaskError, match="lora_rank"):
        with_adapters(base, 0)
