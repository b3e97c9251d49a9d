"""GPUs, models and carbon of one's own in YAML."""

import json

import pytest

from attribution_sched.cluster.models.huggingface import EXAMPLES
from attribution_sched.cluster.world import hourly_ratios
from attribution_sched.config import load_settings
from attribution_sched.errors import SettingsError

BASE = """
name: own
domains: [{{name: here, gpu: {gpu}, devices: 8{carbon}}}]
network: {{links: {{kind: uniform, gbps: 10.0, latency_s: 0.01}}}}
gpus:
  B9000: {{peak_tflops: {{fp32: 500, fp16: 1000}}, memory_bytes: 1.0e+11, bandwidth_bytes_per_s: 4.0e+12, tdp_w: 600,
          min_cap_w: 200, idle_w: 60, nvlink_bytes_per_s: 4.0e+11{like}}}
models:
  mine: {model}
kinds:
  - {{model: mine, batch_size: 8, microbatches: [1, 2, 4, 8], steps: [1, 2], epoch_steps: 2{kind}}}
arrivals: {{kind: poisson, rate_per_hour: 1.0}}
"""
LAYERS = "{layers: [{count: 4, flops: 1.0e+9, params: 1.0e+6, activations: 1.0e+5}], params: 4.0e+6}"


def world(tmp_path, model=LAYERS, gpu="B9000", like="", kind="", carbon=""):
    path = tmp_path / "own.yaml"
    path.write_text(BASE.format(model=model, gpu=gpu, like=like, kind=kind, carbon=carbon))
    return load_settings(path).build_world()


def test_any_gpu_is_figures(tmp_path):
    device = world(tmp_path, like=", like: H100").cluster.domains[0].gpu
    assert (device.name, device.like, device.memory_bytes) == ("B9000", "H100", 1e11)
    assert [p.value for p in device.peak_flops] == ["fp32", "fp16"]
    with pytest.raises(SettingsError, match="figures lack"):
        path = tmp_path / "bad.yaml"
        path.write_text(BASE.format(model=LAYERS, gpu="B9000", like="", kind="", carbon="").replace("tdp_w: 600,", ""))
        load_settings(path)
    with pytest.raises(SettingsError, match="is not in the GPU catalogue"):
        world(tmp_path, gpu="B9001")


def test_a_model_is_layers_a_configuration_or_a_base_with_adapters(tmp_path):
    assert len(world(tmp_path).kinds[0].model) == 4
    (tmp_path / "config.json").write_text(json.dumps(EXAMPLES["qwen-2.5-7b"][0]))
    chain = world(tmp_path, "{config: config.json, sequence_length: 1024}").kinds[0].model
    assert chain.sequence_length == 1024 and chain.params == pytest.approx(7.6156e9, rel=1e-3)
    tuned = world(tmp_path, "{base: gpt2-small, lora_rank: 8}").kinds[0].model
    assert tuned.name == "mine" and sum(layer.frozen_params for layer in tuned.layers) == pytest.approx(
        124.4e6, rel=0.01
    )
    served = world(tmp_path, "{base: gpt2-small}", kind=", training: false, output_tokens: 100").kinds[0].model
    assert served.output_tokens == 100


EXPERTS = (
    "{layers: [{count: 4, flops: 1.0e+9, params: 1.0e+6, activations: 1.0e+5, experts: 8, top_k: 2,"
    " expert_params: 5.0e+5, expert_flops: 1.0e+8}], params: 2.0e+7}"
)


def test_layers_may_have_experts(tmp_path):
    """Parameters of all of them, arithmetic of those that a token visits."""
    layer = world(tmp_path, EXPERTS).kinds[0].model.layers[0]
    assert layer.params == 1.0e6 + 8 * 5.0e5
    assert layer.fc_flops == 1.0e9 + 2 * 1.0e8
    own = world(tmp_path, EXPERTS.replace("activations: 1.0e+5,", "activations: 1.0e+5, operator: attention,"))
    layer = own.kinds[0].model.layers[0]
    assert (layer.attention_flops, layer.fc_flops) == (1.0e9, 2.0e8)


@pytest.mark.parametrize(
    ("model", "match"),
    [
        (EXPERTS.replace("top_k: 2", "top_k: 9"), r"top_k = 9: must lie between 1 and experts = 8"),
        (EXPERTS.replace("top_k: 2,", ""), r"top_k = 0: must lie between 1 and experts = 8"),
        (EXPERTS.replace("experts: 8, top_k: 2,", ""), r"expert_params = 500000.0: stands without experts"),
        (EXPERTS.replace("experts: 8", "experts: 6"), r"add up to 1.6e\+07"),
        (LAYERS.replace("params: 4.0e+6", "params: 5.0e+6"), r"add up to 4e\+06"),
        ("{lora_rank: 4}", "exactly one of config, layers and base"),
        ("{base: gpt9}", "is not in the model zoo"),
        ("{config: nothing.json}", "cannot be read"),
    ],
)
def test_a_model_that_does_not_add_up_is_one_clear_error(tmp_path, model, match):
    with pytest.raises(SettingsError, match=match):
        world(tmp_path, model)


def test_a_model_that_no_kind_uses_is_checked_too(tmp_path):
    path = tmp_path / "own.yaml"
    spare = LAYERS.replace("params: 4.0e+6", "params: 5.0e+6")
    text = BASE.format(model=LAYERS, gpu="B9000", like="", kind="", carbon="")
    path.write_text(text.replace("kinds:", f"  spare: {spare}\nkinds:"))
    with pytest.raises(SettingsError, match=r"models\.spare: .*add up to 4e\+06"):
        load_settings(path).build_world()


def test_carbon_may_be_a_signal(tmp_path):
    grid = world(tmp_path, carbon=", carbon: {kind: grid, grid: CISO}").cluster.domains[0].carbon_g_per_kwh
    assert 150 < grid < 400
    (tmp_path / "co2.csv").write_text("time_s,carbon_g_per_kwh\n0,100\n3600,300\n")
    mean = world(tmp_path, carbon=", carbon: {kind: series, path: co2.csv}").cluster.domains[0].carbon_g_per_kwh
    assert mean == pytest.approx(200.0)
    with pytest.raises(SettingsError, match="says the same"):
        world(tmp_path, carbon=", carbon_g_per_kwh: 3.0, carbon: {kind: grid, grid: PJM}")
    (tmp_path / "co2.csv").write_text("time_s,carbon_g_per_kwh\n0,100\n3600,nan\n")
    with pytest.raises(SettingsError, match="finite"):
        world(tmp_path, carbon=", carbon: {kind: series, path: co2.csv}")


def test_a_domain_may_have_a_price_of_its_own_at_all_hours(tmp_path):
    """Only a file, 24 numbers or a live source could say it."""
    priced = load_settings("cross-domain").model_dump(mode="json", exclude_none=True)
    priced["domains"][0]["electricity"] = {"kind": "constant", "value": 0.3}
    built = load_settings(priced).build_world()
    signal = built.cluster.domains[0].electricity
    assert signal.at(5e5) == 0.3 and signal.forecast(0.0, 7200.0) == (0.3, 0.0)
    assert hourly_ratios(built)[0, :, 0] == pytest.approx(3.0)
    with pytest.raises(SettingsError, match=r"electricity\.value = -1: must be >= 0"):
        priced["domains"][0]["electricity"]["value"] = -1
        load_settings(priced)


def test_a_tariff_by_the_hour_needs_a_usual_price(tmp_path):
    tariff = f", electricity: {{kind: day, values: [{', '.join(['0.05'] * 12 + ['0.15'] * 12)}]}}"
    with pytest.raises(SettingsError, match=r"reward.energy_usd_per_kwh.*usual price"):
        world(tmp_path, carbon=tariff)
    with pytest.raises(SettingsError, match="24"):
        world(tmp_path, carbon=", electricity: {kind: day, values: [0.1]}")


@pytest.mark.parametrize(("signal", "column"), [("carbon", "carbon_g_per_kwh"), ("electricity", "usd_per_kwh")])
def test_a_bad_signal_names_its_domain(tmp_path, signal, column):
    (tmp_path / "gap.csv").write_text(f"time_s,{column}\n0,1\n3600,nan\n")
    with pytest.raises(SettingsError, match=rf"{signal} of here: .*gap.csv, line 3: {column} = 'nan'.*Fill the gap"):
        world(tmp_path, carbon=f", {signal}: {{kind: series, path: gap.csv}}")
