"""A network comes to choose as its teacher does."""

import pytest
import torch

from attribution_sched.errors import ModelFitError
from attribution_sched.scheduler.hi_ppo.cloning import clone, watch
from attribution_sched.scheduler.hi_ppo.cluster_batch import ClusterBatch
from attribution_sched.scheduler.hi_ppo.teachers import ShortestFirst

from . import worlds
from .tiny_courses import small_world


def test_cloning_lowers_the_loss():
    lesson = watch(ClusterBatch(small_world(), 6, 0), ShortestFirst(), 15, 0.99)
    assert lesson.returns.shape == (90, 3)
    losses = clone(worlds.network(0), [lesson], 40, 1e-2, 32, torch.Generator().manual_seed(0))
    assert losses[-1] < 0.6 * losses[0]


def test_no_lesson_is_an_error():
    with pytest.raises(ModelFitError, match="lessons"):
        clone(worlds.network(0), [], 1, 1e-3, 8, torch.Generator())
