"""One set of weights for any number of domains; renaming the domains renames the choice."""

import numpy as np
import pytest
import torch

from attribution_sched.scheduler.hi_ppo.decode import decode
from attribution_sched.scheduler.hi_ppo.evaluate import look
from attribution_sched.scheduler.hi_ppo.features import State

from ...cluster.engine_worlds import BERT, GPT2, tiny_cluster, tiny_world
from . import worlds


@pytest.mark.parametrize("domains", [2, 5, 16])
def test_one_set_of_weights_runs_for_any_number_of_domains_and_layers(domains):
    world = tiny_world(tiny_cluster(domains, 4, motion=worlds.MOVING), (BERT, GPT2, worlds.TALL))
    engine = worlds.begun(world, 4)
    found = decode(worlds.planner_of(engine), worlds.gathered(engine), worlds.chooser(0, must_act=True))
    assert (found.batch.counts > 0).all()


def test_renaming_domains_renames_what_the_network_sees():
    engine = worlds.begun(worlds.worlds()["mixed"], 3, 2)
    state = decode(worlds.planner_of(engine), worlds.gathered(engine), worlds.chooser()).trace.state
    order = np.array([2, 0, 1])
    turned = State(
        state.nodes[:, order], state.edges[:, order][:, :, order], state.globals, state.candidates, state.mask,
        state.present,
    )  # fmt: skip
    net = worlds.network(3)
    with torch.no_grad():
        one, other = look(net, state), look(net, turned)
    assert torch.allclose(one.embeddings[:, torch.from_numpy(order)], other.embeddings, atol=1e-5)
    assert torch.allclose(one.shared, other.shared, atol=1e-5)
    assert not torch.allclose(one.embeddings, other.embeddings, atol=1e-3)


def test_the_same_seed_gives_the_same_weights():
    one, other, third = worlds.network(1), worlds.network(1), worlds.network(2)
    same = [torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True)]
    assert all(same)
    assert not all(torch.equal(a, b) for a, b in zip(one.parameters(), third.parameters(), strict=True))
