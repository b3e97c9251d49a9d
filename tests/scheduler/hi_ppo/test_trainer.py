"""Training is the same under the same seed; levels learn when they should."""

from dataclasses import replace

import torch

from attribution_sched.scheduler.hi_ppo.constraints import DualAscent

from .tiny_courses import HOW, small_trainer

HEADS = ("upper.task", "upper.nothing", "upper.domain", "upper.end", "upper.cut")


def weights_of(trainer, prefixes=("",)):
    return {n: p.detach().clone() for n, p in trainer.network.named_parameters() if n.startswith(prefixes)}


def same(one, other):
    return all(torch.equal(one[name], other[name]) for name in one)


def test_the_same_seed_gives_the_same_weights():
    found = []
    for seed in (0, 0, 1):
        trainer = small_trainer(seed)
        trainer.iterate(0.0)
        found.append(weights_of(trainer))
    assert same(found[0], found[1]) and not same(found[0], found[2])


def test_the_upper_agent_learns_in_every_second_iteration_and_the_lower_in_all():
    loose = replace(HOW.ppo, target_kl=None)
    trainer = small_trainer(settings=replace(HOW, ppo=loose, upper_every=2))
    for number in range(1, 5):
        upper, lower = weights_of(trainer, HEADS), weights_of(trainer, ("lower.",))
        trainer.iterate(0.0)
        assert same(upper, weights_of(trainer, HEADS)) == (number % 2 == 1)
        assert not same(lower, weights_of(trainer, ("lower.",)))


def test_multipliers_rise_while_a_constraint_is_broken():
    limits = {"bandwidth": -1.0, "balance": 1e9}
    trainer = small_trainer(settings=replace(HOW, limits=limits, ascent=DualAscent(rate=0.1, cap=1.0)))
    first = trainer.iterate(0.0).multipliers
    second = trainer.iterate(0.0).multipliers
    assert 0.0 < first.values[0] < second.values[0]
    assert second.values[1] == 0.0
