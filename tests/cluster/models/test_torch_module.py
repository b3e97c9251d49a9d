"""A torch module on the meta device becomes a chain of layers."""

import pytest

from attribution_sched.cluster.models import TaskType
from attribution_sched.cluster.models.torch_module import from_torch
from attribution_sched.errors import TaskError

torch = pytest.importorskip("torch")


def net():
    with torch.device("meta"):
        return torch.nn.Sequential(
            torch.nn.Conv2d(3, 8, 3, padding=1, bias=False), torch.nn.ReLU(), torch.nn.Flatten(),
            torch.nn.Linear(8 * 16 * 16, 10),
        )  # fmt: skip


def test_parameters_flops_and_sizes_are_those_of_the_arithmetic():
    chain = from_torch(net(), torch.empty(1, 3, 16, 16, device="meta"), name="tiny", task_type=TaskType.VISION)
    assert [layer.params for layer in chain.layers] == [3 * 8 * 9, 0, 0, 8 * 256 * 10 + 10]
    assert chain.layers[0].conv_flops == 2 * 3 * 8 * 9 * 256
    assert chain.layers[3].fc_flops == 2 * 8 * 256 * 10
    assert [layer.output_elements for layer in chain.layers] == [2048, 2048, 2048, 10]
    assert chain.layers[0].kind == "conv" and chain.layers[3].tp_sharded


def test_a_module_that_cannot_run_is_one_error():
    with pytest.raises(TaskError, match="cannot run on the meta device"):
        from_torch(net(), torch.empty(1, 4, 16, 16, device="meta"))


def test_every_parameter_is_counted_once():
    """Positions and class tokens beside the children were lost, and tied ones counted twice: 144 of 10,144."""

    class Mine(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.head = torch.nn.Embedding(100, 8), torch.nn.Linear(8, 100, bias=False)
            self.head.weight = self.words.weight
            self.positions = torch.nn.Parameter(torch.zeros(20, 8))

        def forward(self, tokens):
            return self.head(self.words(tokens) + self.positions[: tokens.shape[1]])

    chain = from_torch(Mine(), torch.zeros(1, 12, dtype=torch.long))
    assert [layer.params for layer in chain.layers] == [100 * 8 + 20 * 8, 0]
    assert chain.params == chain.published_params == sum(p.numel() for p in Mine().parameters())


def test_a_layer_by_itself_is_a_chain_of_one_and_no_module_is_one_error():
    chain = from_torch(torch.nn.Linear(8, 4), torch.zeros(1, 8))
    assert (len(chain), chain.params, chain.forward_flops) == (1, 36, 64)
    with pytest.raises(TaskError, match="module = 'Identity': none of its children ran"):
        from_torch(torch.nn.Identity(), torch.zeros(1, 8))
    with pytest.raises(TaskError, match="module = 'str': must be a torch module"):
        from_torch("net", torch.zeros(1, 8))
