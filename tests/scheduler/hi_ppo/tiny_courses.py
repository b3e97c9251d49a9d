"""Tiny worlds, networks and trainers on which a whole run takes a second."""

import torch

from attribution_sched.scheduler.hi_ppo.cluster_batch import ClusterBatch
from attribution_sched.scheduler.hi_ppo.network import HiPpoNetwork, NetworkSize
from attribution_sched.scheduler.hi_ppo.trainer import HiPpoSettings, Trainer
from attribution_sched.scheduler.ppo.settings import PpoSettings
from tests.cluster.engine_worlds import BERT, GPT2, restless, tiny_world

SIZE = NetworkSize(width=16, hidden=8, rounds=1)
HOW = HiPpoSettings(ppo=PpoSettings(num_steps=32, minibatch_size=16, update_epochs=2))


def small_world(**changes):
    return tiny_world(restless(domains=2), kinds=(BERT, GPT2), **({"horizon_s": 1200.0} | changes))


def small_network(seed=0, size=SIZE):
    return HiPpoNetwork(size, torch.Generator().manual_seed(seed))


def small_trainer(seed=0, clusters=(4, 2), settings=HOW, size=SIZE):
    worlds = (small_world(), small_world(horizon_s=600.0))
    fields = [ClusterBatch(w, n, 100 * i, name=f"w{i}") for i, (w, n) in enumerate(zip(worlds, clusters, strict=False))]
    return Trainer(small_network(seed, size), fields, settings, seed)
