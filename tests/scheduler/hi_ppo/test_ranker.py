"""The ranker: nothing learnt is the agents' order, both levels factor it, its encoder is torch-geometric's."""

import numpy as np
import pytest

from attribution_sched.config import load_settings
from attribution_sched.errors import ModelFitError
from attribution_sched.scheduler.episode import play
from attribution_sched.scheduler.hi_ppo.candidate_features import EDGE, FEATURES, NODE, Described
from attribution_sched.scheduler.hi_ppo.ranker import HIDDEN, LOWER, SHAPES, UPPER, Ranker, encode, levels
from attribution_sched.scheduler.registry import make_policy


def described(seed=0, many=5, domains=4):
    rng = np.random.default_rng(seed)
    candidates = rng.normal(size=(many, len(FEATURES))).astype(np.float32)
    return Described(
        candidates, np.array([1, 1, 2, 2, -1])[:many], np.array([0, 0, 2, 2, -1])[:many],
        rng.random((domains, len(NODE)), dtype=np.float32), rng.random((domains, domains, len(EDGE)), dtype=np.float32),
    )  # fmt: skip


def random_arrays(seed=0):
    rng = np.random.default_rng(seed)
    return {name: rng.normal(size=shape) * 0.3 + (name == "scale") for name, shape in SHAPES.items()}


def test_where_nothing_was_learnt_the_agents_decide():
    seen, arrays = described(), random_arrays()
    arrays["policy_3"], arrays["kappa"] = np.zeros(SHAPES["policy_3"]), np.array(1.0)
    odds = seen.candidates[:, UPPER] + seen.candidates[:, LOWER]
    logits = Ranker(arrays).logits(seen)
    np.testing.assert_allclose(logits, np.minimum(odds - odds[0], 0.0), rtol=1e-6)
    assert logits.argmax() == 0


def test_both_levels_factor_the_policy():
    seen = described(1)
    logits = Ranker(random_arrays(1)).logits(seen)
    upper, lower = levels(logits, seen.group)
    whole = np.exp(logits - logits.max())
    np.testing.assert_allclose(np.exp(upper + lower), whole / whole.sum(), rtol=1e-9)
    np.testing.assert_allclose([np.exp(lower[seen.group == g]).sum() for g in (1, 2, -1)], 1.0, rtol=1e-9)


def test_the_own_choice_earns_nothing_over_itself():
    assert (Ranker(random_arrays(2)).components(described(2))[0] == 0.0).all()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("domains", [1, 2, 5])
def test_the_encoder_is_gine_of_torch_geometric(domains):
    torch = pytest.importorskip("torch")
    from torch_geometric.nn import GINEConv

    seen, w = described(3, domains=domains), random_arrays(3)
    linear = torch.nn.Linear(HIDDEN, HIDDEN)
    conv = GINEConv(linear, eps=0.0, edge_dim=len(EDGE), aggr="mean")
    with torch.no_grad():
        linear.weight.copy_(torch.tensor(w["conv"].T))
        linear.bias.copy_(torch.tensor(w["conv_bias"]))
        conv.lin.weight.copy_(torch.tensor(w["edge"].T))
        conv.lin.bias.copy_(torch.tensor(w["edge_bias"]))
        h = torch.tanh(torch.tensor(seen.nodes) @ torch.tensor(w["node"], dtype=torch.float32))
        pairs = [(i, j) for i in range(domains) for j in range(domains) if i != j]
        index = torch.tensor(pairs, dtype=torch.long).reshape(-1, 2).T
        edges = torch.tensor(np.array([seen.edges[i, j] for i, j in pairs]).reshape(-1, len(EDGE)))
        wanted = torch.relu(conv(h, index, edges.float())).numpy()
    found = encode(seen, w["node"], w["edge"], w["edge_bias"], w["conv"], w["conv_bias"])
    np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_other_shapes_and_numbers_are_refused():
    arrays = random_arrays()
    for name, wrong in (("policy_1", np.zeros((2, 2))), ("kappa", np.array(np.nan))):
        with pytest.raises(ModelFitError, match=f"ranker.{name}"):
            Ranker({**arrays, name: wrong})


def test_where_jobs_are_opaque_the_agents_decide_alone():
    """It is taught where models are known; beside each other it met nobody, and took what harms."""
    settings = load_settings("shared").model_dump(mode="json")
    settings["domain_defaults"]["devices"] = 8
    settings["arrivals"]["rate_per_hour"] = 9.0
    settings["episode"] |= {"horizon_s": 6 * 3600.0, "pool_size": 128, "max_running": 16}
    world = load_settings(settings).build_world()
    ranked, agents = (play(world, make_policy(name), seed=3) for name in ("hi-ppo[ranked]", "hi-ppo[quick]"))
    assert (
        ranked.placed > 20 and ranked.reward == agents.reward and ranked.baseline_running_h == agents.baseline_running_h
    )
