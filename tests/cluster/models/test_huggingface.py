"""Models from configurations: counts of the shipped examples, experts, latent attention, bad input."""

import json

import pytest

from attribution_sched.cluster.models import model
from attribution_sched.cluster.models.huggingface import EXAMPLES, Shape, from_config, read_config
from attribution_sched.errors import TaskError

# Stated by the authors, apart from the table in the module.
PUBLISHED = {
    "mixtral-8x7b": 46.7e9, "deepseek-v3": 671e9, "qwen-2.5-7b": 7.616e9, "qwen-2.5-72b": 72.7e9,
    "whisper-large-v3": 1.543e9, "dit-xl-2": 675e6, "sdxl-unet": 2.567e9,
}  # fmt: skip


@pytest.mark.parametrize("name", list(EXAMPLES))
def test_parameters_are_within_two_percent_of_the_published(name):
    assert model(name).params == pytest.approx(PUBLISHED[name], rel=0.02)


RELEASED = {
    "gemma-2b": ({
        "model_type": "gemma", "hidden_size": 2048, "intermediate_size": 16384, "num_attention_heads": 8,
        "num_hidden_layers": 18, "num_key_value_heads": 1, "head_dim": 256, "vocab_size": 256000,
    }, 2.506e9),
    "gemma-2-2b": ({
        "model_type": "gemma2", "hidden_size": 2304, "intermediate_size": 9216, "num_attention_heads": 8,
        "num_hidden_layers": 26, "num_key_value_heads": 4, "head_dim": 256, "vocab_size": 256000,
    }, 2.614e9),
    "command-r": ({
        "model_type": "cohere", "hidden_size": 8192, "intermediate_size": 22528, "num_attention_heads": 64,
        "num_hidden_layers": 40, "num_key_value_heads": 64, "hidden_act": "silu", "vocab_size": 256000,
    }, 34.98e9),
    "falcon-7b": ({
        "model_type": "falcon", "hidden_size": 4544, "num_attention_heads": 71, "num_hidden_layers": 32,
        "multi_query": True, "parallel_attn": True, "bias": False, "vocab_size": 65024,
    }, 6.92e9),
    "qwen1.5-moe-a2.7b": ({
        "model_type": "qwen2_moe", "hidden_size": 2048, "intermediate_size": 5632, "moe_intermediate_size": 1408,
        "shared_expert_intermediate_size": 5632, "num_attention_heads": 16, "num_hidden_layers": 24,
        "num_key_value_heads": 16, "num_experts": 60, "num_experts_per_tok": 4, "vocab_size": 151936,
        "tie_word_embeddings": False,
    }, 14.3e9),
    "starcoder2-3b": ({
        "model_type": "starcoder2", "hidden_size": 3072, "intermediate_size": 12288, "num_attention_heads": 24,
        "num_hidden_layers": 30, "num_key_value_heads": 2, "max_position_embeddings": 16384, "use_bias": True,
        "vocab_size": 49152,
    }, 3.03e9),
    "pythia-1.4b": ({
        "model_type": "gpt_neox", "hidden_size": 2048, "intermediate_size": 8192, "num_attention_heads": 16,
        "num_hidden_layers": 24, "max_position_embeddings": 2048, "vocab_size": 50304, "tie_word_embeddings": False,
    }, 1.4146e9),
    "gpt2-xl": ({
        "model_type": "gpt2", "n_embd": 1600, "n_head": 25, "n_layer": 48, "n_positions": 1024, "vocab_size": 50257,
    }, 1.5576e9),
}  # fmt: skip
"""Sizes as released, what the family's own defaults say left out; parameters as counted by their authors."""


@pytest.mark.parametrize("name", RELEASED)
def test_what_a_configuration_leaves_out_is_its_family_s_own(name):
    config, published = RELEASED[name]
    assert from_config(config, Shape(name)).params == pytest.approx(published, rel=0.01)


def test_a_family_that_was_never_counted_needs_its_parameters():
    config = RELEASED["gpt2-xl"][0] | {"model_type": "brandnew"}
    with pytest.raises(TaskError, match=r"model_type = 'brandnew': is no family .* State params.* torch module"):
        from_config(config, Shape("x"))
    assert from_config(config, Shape("x", published_params=1.5576e9)).params == pytest.approx(1.5576e9, rel=0.01)
    narrow = RELEASED["gpt2-xl"][0] | {"word_embed_proj_dim": 512}
    with pytest.raises(TaskError, match=r"word_embed_proj_dim = 512: must be hidden_size = 1600"):
        from_config(narrow, Shape("x"))


def test_a_token_visits_some_experts_only():
    """Mixtral: 12.9e9 of 46.7e9 parameters are active; FLOPs per token are twice that, attention products apart."""
    chain = model("mixtral-8x7b@128")
    products = sum(layer.fc_flops for layer in chain.layers) / 128
    assert products == pytest.approx(2 * 12.7e9, rel=0.02)
    deep = model("deepseek-v3@128")
    assert sum(layer.fc_flops for layer in deep.layers) / 128 == pytest.approx(2 * 37e9, rel=0.05)


def test_latent_attention_keeps_a_small_cache():
    """576 numbers per token and layer, where 128 full heads would keep 32,768."""
    chain = model("deepseek-v3@1000")
    assert chain.layers[10].kv_elements == 1000 * 576


def test_a_dense_configuration_equals_the_zoo():
    config = {
        "model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
        "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256, "tie_word_embeddings": False,
    }  # fmt: skip
    assert from_config(config, Shape("own", 8192)).layers == model("llama-3-8b").layers


def test_a_u_net_hands_every_skip_back_and_halves_and_doubles_its_picture():
    """To the parameter as released; what enters a residual block on the way up is what came below and one skip."""
    chain = model("sdxl-unet")
    assert chain.params == 2_567_463_684
    assert chain.layers[0].input_elements == chain.layers[-1].output_elements == 4 * 128 * 128
    sizes = [layer.output_elements for layer in chain.layers]
    assert [layer.input_elements for layer in chain.layers[1:]] == sizes[:-1]
    # In the middle all nine skips wait: of 128² three, of 64² and of 32² three each.
    waiting = 3 * 320 * 128**2 + (320 + 2 * 640) * 64**2 + (640 + 2 * 1280) * 32**2
    middle = next(layer for layer in chain.layers if layer.name == "middle transformer")
    assert middle.output_elements == waiting + 1280 * 32**2
    assert chain.column("conv_flops").sum() + chain.column("fc_flops").sum() == pytest.approx(5.98e12, rel=0.01)
    config = dict(EXAMPLES["sdxl-unet"][0])
    with pytest.raises(TaskError, match=r"transformer_layers_per_block.*each of 3 levels"):
        from_config(config | {"transformer_layers_per_block": [1, 2]}, Shape("x"))
    with pytest.raises(TaskError, match=r"block_out_channels = None"):
        from_config({"_class_name": "UNet2DConditionModel"}, Shape("x"))
    with pytest.raises(TaskError, match=r"sample_size = 0"):
        from_config(config | {"sample_size": 0}, Shape("x"))


def test_one_clear_error_each(tmp_path):
    config = dict(EXAMPLES["mixtral-8x7b"][0])
    with pytest.raises(TaskError, match="num_experts_per_tok"):
        from_config(config | {"num_experts_per_tok": 9}, Shape("x"))
    with pytest.raises(TaskError, match="must be a whole number"):
        from_config(config | {"hidden_size": 4096.5}, Shape("x"))
    with pytest.raises(TaskError, match="first_k_dense_replace = 'one': must be a whole number"):
        from_config(config | {"first_k_dense_replace": "one"}, Shape("x"))
    # A row for each of them filled the memory.
    for name, key in (
        ("mixtral-8x7b", "num_hidden_layers"),
        ("whisper-large-v3", "encoder_layers"),
        ("dit-xl-2", "num_layers"),
    ):
        with pytest.raises(TaskError, match=f"{key} = 1000000000: must be at most 10,000"):
            from_config(EXAMPLES[name][0] | {key: 10**9}, Shape("x"))
    with pytest.raises(TaskError, match="layers_per_block = 1000000000: must be a whole number from 1 to 10,000"):
        from_config(EXAMPLES["sdxl-unet"][0] | {"layers_per_block": 10**9}, Shape("x"))
    with pytest.raises(TaskError, match="no vocab_size"):
        from_config({k: v for k, v in config.items() if k != "vocab_size"}, Shape("x"))
    with pytest.raises(TaskError, match="cannot be read"):
        read_config(tmp_path / "none.json")
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(TaskError, match="is no JSON"):
        read_config(tmp_path / "bad.json")
    (tmp_path / "list.json").write_text(json.dumps([1]))
    with pytest.raises(TaskError, match="must be a JSON object"):
        read_config(tmp_path / "list.json")
