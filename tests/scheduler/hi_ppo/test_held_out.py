"""Held-out episodes: always the same, one per seed, whoever is through first."""

import numpy as np
import pytest

from attribution_sched.errors import SettingsError
from attribution_sched.scheduler.arena.play import held_out_seeds
from attribution_sched.scheduler.hi_ppo.cluster_batch import ClusterBatch
from attribution_sched.scheduler.hi_ppo.evaluate import NetworkActor
from attribution_sched.scheduler.hi_ppo.held_out import FIRST_SEED, MOST_EPISODES, HeldOut, Measured

from .tiny_courses import small_network, small_world


@pytest.fixture(scope="module")
def held_out():
    return HeldOut(small_world(), 5)


def test_episodes_are_those_of_their_seeds_played_alone(held_out):
    network = small_network(1)
    found = held_out.measure(network)
    alone = []
    for i in (0, 3):
        field = ClusterBatch(small_world(), 1, FIRST_SEED + i)
        while not field.returns:
            field.step(NetworkActor(network, None))
        alone.append(field.returns[0])
    assert [found.returns[0], found.returns[3]] == pytest.approx(alone, rel=1e-4)
    assert len(set(found.returns)) == 5


def test_measuring_twice_gives_the_same(held_out):
    first = held_out.measure(small_network(1))
    other = held_out.measure(small_network(2))
    assert other != first
    assert held_out.measure(small_network(1)) == first


def test_a_second_episode_of_a_quick_cluster_does_not_count():
    class Move:
        def __init__(self, ended):
            self.ended = np.array(ended)

    class Quick:
        """Cluster 0 ends an episode in every step, cluster 1 in the third."""

        def __init__(self, like):
            self.engine, self.forecast, self._running = like.engine, like.forecast, np.zeros(2)
            self.returns, self.steps = [], 0

        def step(self, chooser):
            self.steps += 1
            ended = [True, self.steps == 3]
            self.returns.extend(10.0 * self.steps + i for i in range(2) if ended[i])
            return Move(ended)

    held_out = HeldOut(small_world(), 2)
    held_out._field = Quick(held_out._field)
    assert held_out.play(None).returns == (10.0, 31.0)


def test_mean_and_standard_error():
    found = Measured((1.0, 2.0, 6.0))
    assert found.mean == pytest.approx(3.0)
    assert found.standard_error == pytest.approx(np.sqrt(7.0 / 3.0))
    assert Measured((4.0,)).standard_error == 0.0


def test_seeds_do_not_meet_those_of_the_arena():
    assert min(held_out_seeds(1, 0)) >= FIRST_SEED + MOST_EPISODES


@pytest.mark.parametrize("episodes", [0, MOST_EPISODES + 1])
def test_numbers_out_of_range_are_refused(episodes):
    with pytest.raises(SettingsError, match=f"held-out episodes = {episodes}"):
        HeldOut(small_world(), episodes)
