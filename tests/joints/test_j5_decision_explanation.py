"""J5 decision → explanation: all weights of the policy shuffled; does the explanation of its decision notice?"""

import copy

import numpy as np
import pytest
import torch

from attribution_sched.attributor import as_attributor
from attribution_sched.explain.background import Background
from attribution_sched.explain.explainer import Explainer
from attribution_sched.explain.watch import Decided, perceived
from attribution_sched.scheduler.hi_ppo.checkpoint import SHIPPED, load
from attribution_sched.scheduler.hi_ppo.policy import HiPpo
from tests.small_world import small

from .measure import NO_DEADLINE_S, moments


def shuffled(network):
    """The same weights of the deciding network, each tensor in another order; what the demands head knows stays."""
    other = copy.deepcopy(network)
    source = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for name, weight in other.named_parameters():
            if not name.startswith("demands"):
                weight.copy_(weight.flatten()[torch.randperm(weight.numel(), generator=source)].reshape(weight.shape))
    return other


def unmoved(tell, count, asked):
    """Share of decisions whose explanation is the same to the last bit, and of which the decision is."""
    world, network = small().build_world(), load(SHIPPED)
    policy = HiPpo(network=network, deadline_s=NO_DEADLINE_S)
    decided = []
    for number, (_, said, _) in enumerate(moments(world, as_attributor(None, world), policy, count)):
        decided.append(Decided(str(number), said.view, said.plan, perceived(policy, said.view)))
    placed = [each for each in decided if each.plan is not None and not each.view.replanning][:asked]
    other = HiPpo(network=shuffled(network), deadline_s=NO_DEADLINE_S)
    background, options = Background.of(decided, "the same day"), {"rows": 300, "precision": None, "sure": False}
    told = [Explainer(policy, background, world=world).explain(each, **options).values for each in placed]
    untold = [Explainer(other, background, world=world).explain(each, **options).values for each in placed]
    policy.reset(0), other.reset(0)
    plans = [(policy.coordinate(each.view).plan, other.coordinate(each.view).plan) for each in placed]
    same = float(np.mean([np.array_equal(one, two) for one, two in zip(told, untold, strict=True)]))
    tell(
        "J5",
        decisions=len(placed),
        explanations_unmoved=same,
        plans_unmoved=float(np.mean([a == b for a, b in plans])),
        wanted=0.0,
    )
    assert placed and 0.0 <= same <= 1.0


def test_shuffled_weights_and_the_explanation(tell):
    unmoved(tell, 24, 3)


@pytest.mark.slow
def test_shuffled_weights_and_many_explanations(tell):
    unmoved(tell, 120, 20)
