"""The head of demands learns what simulated counters can tell, and nothing else of the network changes."""

import numpy as np
import pytest
import torch

from attribution_sched.cluster.counters import counters, sample_time_s, throughput, true_rates
from attribution_sched.cluster.demands import Demands, draw_demands, nominal_demands
from attribution_sched.errors import SettingsError
from attribution_sched.scheduler.hi_ppo.checkpoint import ATTRIBUTION_SCHEMA, load, save
from attribution_sched.scheduler.hi_ppo.demand_head import DemandHead, DemandReader, NominalTask, fit_reward_terms
from attribution_sched.storage import read, write
from research.appraisal_measure import measure_reward_terms

from . import worlds


def read_plainly(network):
    """Attributions that are the logarithms of the counters, near enough."""
    unit = np.array([1e6, 1e3, 1e9, 1e5, 0.01, 0.01, 0.01])
    network.set_attribution(unit, 0.3 * np.eye(7), np.full(7, -1.0))
    return network


@pytest.fixture(scope="module")
def fitted():
    network = read_plainly(worlds.network())
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    world = worlds.worlds()["mixed"]
    return network, before, world, fit_reward_terms(network, [world], 12_000, 1, epochs=25)


def test_only_the_head_changes(fitted):
    network, before, _, _ = fitted
    for name, tensor in network.state_dict().items():
        assert torch.equal(tensor, before[name]) == (not name.startswith("demands.")), name
    assert network.demands.fitted and not DemandHead().fitted


def test_demands_of_other_tasks_are_known_better_than_not_at_all(fitted):
    told = fitted[3]
    assert told.loss < 0.75
    assert min(told.ratio[i] for i in (0, 1, 2)) > 0.4 and min(told.factors) > 0.25


def test_terms_come_nearer_to_those_of_engines(fitted):
    network, _, world, _ = fitted
    found = measure_reward_terms(network, world, 150, 5)
    assert found.decisions >= 150 and found.crossing > 0
    assert found.removed[0] > 0.2 and found.expected[0] > found.nominal[0]
    assert found.expected[2] == pytest.approx(1.0)


def test_an_unfitted_head_is_the_cost_model(fitted):
    found = measure_reward_terms(read_plainly(worlds.network()), fitted[2], 60, 5)
    assert found.expected == pytest.approx(found.nominal) and found.removed[0] == pytest.approx(0.0)


def test_a_task_of_which_nothing_is_known_is_nearly_nominal(fitted):
    network, _, world, _ = fitted
    task = NominalTask.of(world.kinds[0], network.attributions)
    none = np.zeros(7, dtype=np.float32)
    assert np.allclose(DemandReader.of(network.demands, task).ratios(none, none[None]), 1.0, atol=0.1)


def test_an_attribution_tells_of_its_own_demand_in_the_right_direction(fitted):
    """A task that does more of one thing than usual is expected to, whether all of it is known or only that."""
    network, _, world, _ = fitted
    kind = world.kinds[0]
    task, rng = NominalTask.of(kind, network.attributions), np.random.default_rng(3)
    demands = draw_demands([kind.model] * 600, rng)
    seen = network.attributions(counters(demands, rng).values).astype(np.float32)
    whole = np.concatenate([DemandReader.of(network.demands, task).ratios(one, one[None]) for one in seen])
    parts = DemandReader.of(network.demands, task).ratios(np.full(7, 2.0, dtype=np.float32), seen)
    for j in (0, 1, 2):
        assert np.corrcoef(np.log(demands.ratio[:, j]), np.log(whole[:, j]))[0, 1] > 0.6
        assert np.corrcoef(np.log(demands.ratio[:, j]), np.log(parts[:, j]))[0, 1] > 0.3


def test_the_same_seed_fits_the_same_head():
    made = [read_plainly(worlds.network()) for _ in range(3)]
    world = worlds.worlds()["equal"]
    for network, seed in zip(made, (1, 1, 2), strict=True):
        fit_reward_terms(network, [world], 3000, seed, epochs=1)
    first, again, other = (network.demands.state_dict() for network in made)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not all(torch.equal(first[name], other[name]) for name in first)


def test_the_head_is_saved_and_files_without_it_are_read(fitted, tmp_path):
    network = fitted[0]
    save(tmp_path / "w.safetensors", network, {})
    assert load(tmp_path / "w.safetensors").demands.fitted
    header, arrays = read(tmp_path / "w.safetensors", "hi-ppo", attribution_schema=ATTRIBUTION_SCHEMA)
    old = {name: array for name, array in arrays.items() if not name.startswith("demands.")}
    write(tmp_path / "old.safetensors", "hi-ppo", header, old, attribution_schema=ATTRIBUTION_SCHEMA)
    found = load(tmp_path / "old.safetensors")
    assert not found.demands.fitted
    assert all(torch.equal(a, b) for a, b in zip(found.parameters(), network.parameters(), strict=True))


@pytest.mark.parametrize(("given", "rule"), [({"worlds": []}, "at least one"), ({"tasks": 3}, "tasks must lie")])
def test_nothing_to_learn_from_is_refused(given, rule):
    with pytest.raises(SettingsError, match=rule):
        fit_reward_terms(**({"network": worlds.network(), "worlds": [worlds.worlds()["equal"]]} | given))


def test_too_few_decisions_are_refused():
    with pytest.raises(SettingsError, match="must be >= 2"):
        measure_reward_terms(worlds.network(), worlds.worlds()["equal"], 1)


def test_throughput_tells_the_scale_that_rates_cannot(fitted):
    """A task that asks for more of everything has the rates of a nominal one, and fewer samples per second."""
    network, _, world, told = fitted
    # The kind's own demands, all of them scaled alike, change no rate.
    kind = world.kinds[0]
    task = NominalTask.of(kind, network.attributions)
    nominal, seconds = nominal_demands(kind.model)
    scale = np.array([0.8, 1.0, 1.25])[:, None]
    demands = Demands(nominal * scale, np.tile(nominal, (3, 1)), np.tile(seconds, (3, 1)))
    seen = network.attributions(true_rates(demands)).astype(np.float32)
    assert np.allclose(seen[0], seen[2], atol=1e-6)
    reader = DemandReader.of(network.demands, task)
    own = np.column_stack([seen, 1.0 / sample_time_s(demands)])
    timed, untimed = (reader.ratios(one, seen, np.arange(3)) for one in (own, seen))
    some = np.flatnonzero(nominal[:3] > 0.0)
    assert np.allclose(untimed[0], untimed[2], atol=1e-5)
    assert (timed[0, some] < 0.93 * timed[1, some]).all() and (timed[2, some] > 1.07 * timed[1, some]).all()
    assert np.allclose(reader.ratios(np.column_stack([seen, np.zeros(3)]), seen, np.arange(3)), untimed)
    assert np.mean(told.ratio[:3]) > np.mean(told.untimed[:3]) + 0.05


def test_replaced_attributions_do_not_feel_the_throughput(fitted):
    """It belongs to the task itself; what another task's attribution tells is told without it."""
    network, _, world, _ = fitted
    reader = DemandReader.of(network.demands, NominalTask.of(world.kinds[0], network.attributions))
    rng = np.random.default_rng(4)
    demands = draw_demands([world.kinds[0].model] * 2, rng)
    mine, other = network.attributions(counters(demands, rng).values).astype(np.float32)
    given = np.where(np.eye(7, dtype=bool), other, mine)
    slow, fast = (
        reader.ratios(np.append(mine, speed), given) for speed in throughput(demands, rng)[:1] * [[0.7], [1.4]]
    )
    changed = np.eye(7, dtype=bool) & ~np.isclose(other, mine)
    assert np.array_equal(slow[changed], fast[changed])
    assert not np.isclose(slow[~changed & (slow != 1.0)], fast[~changed & (slow != 1.0)]).all()


def test_a_head_from_before_throughput_is_read_and_says_the_same(fitted, tmp_path):
    network = fitted[0]
    save(tmp_path / "w.safetensors", network, {})
    header, arrays = read(tmp_path / "w.safetensors", "hi-ppo", attribution_schema=ATTRIBUTION_SCHEMA)
    old = {**arrays, "demands.weight0": np.ascontiguousarray(arrays["demands.weight0"][:, :-2])}
    write(tmp_path / "old.safetensors", "hi-ppo", header, old, attribution_schema=ATTRIBUTION_SCHEMA)
    found = load(tmp_path / "old.safetensors").demands
    inputs = torch.randn(5, 23, generator=torch.Generator().manual_seed(0))
    inputs[:, -2:] = 0.0
    assert torch.equal(found(inputs), network.demands(inputs))
    inputs[:, -2:] = 1.0
    assert not torch.equal(found(inputs), network.demands(inputs))


def test_the_shipped_head_reads_throughput():
    network = load()
    assert network.demands.fitted and network.demands.weight0[:, -2:].any()
