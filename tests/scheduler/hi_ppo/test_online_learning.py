"""Learning that goes on while the policy is in use."""

import pytest
import torch

from attribution_sched.errors import SettingsError
from attribution_sched.scheduler.hi_ppo.held_out import HeldOut
from attribution_sched.scheduler.hi_ppo.online_learning import learn_on

from .tiny_courses import HOW, small_network, small_world


def learnt(**changes):
    given = {"decisions": 96, "clusters": 4, "episodes": 4, "every": 1, "settings": HOW, "lr_share": 1.0} | changes
    network = small_network(5)
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    found = learn_on(network, small_world(), **given)
    assert all(torch.equal(before[name], tensor) for name, tensor in network.state_dict().items())
    return network, found


def test_it_never_gives_back_anything_worse_and_says_what_it_measured():
    network, found = learnt()
    held_out = HeldOut(small_world(), 4, network.attributions)
    assert held_out.measure(network) == found.before
    assert held_out.measure(found.network) == found.after
    assert found.after.mean >= found.before.mean
    assert found.decisions == 96
    same = all(
        torch.equal(a, b)
        for a, b in zip(network.state_dict().values(), found.network.state_dict().values(), strict=True)
    )
    assert same != found.improved


def test_the_same_seed_learns_the_same():
    _, first = learnt(seed=3)
    _, again = learnt(seed=3)
    assert first.after == again.after
    for one, other in zip(first.network.parameters(), again.network.parameters(), strict=True):
        assert torch.equal(one, other)


def test_it_stops_when_it_is_told_to_and_takes_few_decisions():
    _, found = learnt(decisions=3, clusters=8)
    assert found.decisions == 8
    _, stopped = learnt(stop=lambda: True)
    assert stopped.decisions == 0
    assert not stopped.improved


@pytest.mark.parametrize(
    ("changes", "rule"),
    [({"decisions": 0}, "decisions = 0"), ({"clusters": 0}, "clusters = 0"), ({"lr_share": 1.5}, "lr_share = 1.5")],
)
def test_numbers_out_of_range_are_refused(changes, rule):
    with pytest.raises(SettingsError, match=rule):
        learnt(**changes)
