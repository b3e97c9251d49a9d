"""Training is the same under the same seed; levels learn when they should."""

from dataclasses import replace

import torch

from attribution_sched.scheduler.hi_ppo.cloning import watch
from attribution_sched.scheduler.hi_ppo.cluster_batch import ClusterBatch
from attribution_sched.scheduler.hi_ppo.constraints import DualAscent
from attribution_sched.scheduler.hi_ppo.evaluate import judge
from attribution_sched.scheduler.hi_ppo.rollout import collect
from attribution_sched.scheduler.hi_ppo.teachers import ShortestFirst

from .tiny_courses import HOW, small_trainer, small_world

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


def test_rehearsal_keeps_lessons_in_mind():
    lesson = watch(ClusterBatch(small_world(), 4, 500), ShortestFirst(), 12, 0.99)
    loose = replace(HOW, ppo=replace(HOW.ppo, lr=1e-2, target_kl=None), lr_end=1.0)
    losses = {}
    for coefficient in (0.0, 1.0):
        trainer = small_trainer(settings=replace(loose, rehearsal_coef=coefficient))
        trainer.rehearsal = [lesson]
        for _ in range(6):
            trainer.iterate(0.0)
        with torch.no_grad():
            found = judge(trainer.network, lesson.trace)
        losses[coefficient] = -float((found.upper + found.lower).mean())
    assert losses[1.0] < 0.8 * losses[0.0]


def test_an_end_for_good_is_worth_nothing_more():
    """Without bootstrapping, what follows the horizon does not enter the returns."""
    found = {}
    for bootstrap in (True, False):
        trainer = small_trainer(settings=HOW)
        with torch.no_grad():
            trainer.network.value[2].bias.fill_(50.0)
        prices = trainer.multipliers
        field = trainer.fields[0]
        told = collect(trainer.network, field, 400, torch.Generator().manual_seed(0), 0.99, 0.95, 0.0, prices,
                       bootstrap=bootstrap)  # fmt: skip
        found[bootstrap] = told.returns.mean()
    assert found[False] < found[True]
