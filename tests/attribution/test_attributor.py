"""The attribution input in simulated worlds, and the ablation that asks what it is worth."""

from __future__ import annotations

import json
from dataclasses import replace

import attribution_ablation as ablation
import numpy as np
import pytest
from sklearn.ensemble import RandomForestRegressor

from attribution_sched import System
from attribution_sched.attribution.attributor import as_attributor
from attribution_sched.attribution.emshap import EmSHAP
from attribution_sched.attribution.fitted import Fitted
from attribution_sched.attribution.schema import ATTRIBUTION_SCHEMA, closed_form, encode
from attribution_sched.attribution.simulated_meter import task_energy_j
from attribution_sched.attribution.vector import ACCOUNTING, CONDITIONAL, STATE
from attribution_sched.cluster.decision import view
from attribution_sched.cluster.demands import DEMAND_NAMES, draw_demands
from attribution_sched.cluster.envs.env import CrossDomainVectorEnv, TestbedVectorEnv
from attribution_sched.cluster.world import build_pool
from attribution_sched.config import load_settings
from attribution_sched.errors import CounterError, SettingsError
from attribution_sched.types import Task


@pytest.fixture(scope="module")
def testbed():
    return load_settings("testbed").build_world()


def test_a_heavier_task_takes_more_joules_and_a_nominal_one_those_of_its_kind(testbed):
    kinds = np.arange(len(testbed.kinds))
    rng = np.random.default_rng(0)
    demands = draw_demands([kind.model for kind in testbed.kinds], rng, 0.0)
    usual = task_energy_j(testbed, kinds, demands)
    heavy = task_energy_j(testbed, kinds, replace(demands, values=1.5 * demands.values))
    assert (heavy > 1.2 * usual).all() and (heavy < 2.0 * usual).all()
    training = {k.model.name: usual[i] for i, k in enumerate(testbed.kinds) if k.training}
    serving = {k.model.name: usual[i] for i, k in enumerate(testbed.kinds) if not k.training}
    for name in training.keys() & serving.keys():
        # A trained sample is read forth and back; one that is served by a language model is written token by token.
        generated = next(k.model.output_tokens for k in testbed.kinds if k.model.name == name and not k.training)
        assert generated or 1.5 < training[name] / serving[name] < 5.0


@pytest.mark.parametrize(
    ("preset", "env"), [("testbed", TestbedVectorEnv), ("cross-domain-easy", CrossDomainVectorEnv)]
)
def test_environments_show_it(preset, env):
    world = load_settings(preset).build_world()
    fit = as_attributor(None, world)
    made = env(world, 3, fit)
    seen, _ = made.reset(seed=5)
    shown = seen[:, -7:] if preset == "testbed" else seen["attribution"]
    task = made.engine.pending_pool()
    np.testing.assert_allclose(shown, fit(made.engine.pool.counters.values)[task], rtol=1e-6)
    assert made.observation_space.contains(seen)


@pytest.fixture(scope="module")
def tasks(testbed):
    """Counters of a small world's tasks and what a meter recorded of them."""
    world = replace(testbed, pool_size=160)
    pool = build_pool(world)
    return world, pool.counters.values, task_energy_j(world, pool.kinds, pool.demands)


def given_attributors(world, counters, energy):
    """Everything that System takes, by name."""
    seven = counters[:, :7]
    emshap = EmSHAP("gaussian", n_draws=16, replicates=2).fit(seven, DEMAND_NAMES)
    fitted = Fitted.of_world(world)
    regressor = RandomForestRegressor(20, random_state=0).fit(seven, energy)
    return {
        "default": None, "fitted": fitted, "energy model": fitted.energy, "emshap": emshap,
        "emshap and regressor": (emshap, regressor),
        "function": lambda rows: np.tanh(np.log1p(rows[:, :7]) - 1.0),
    }  # fmt: skip


QUESTIONS = {
    "default": ACCOUNTING, "fitted": ACCOUNTING, "energy model": ACCOUNTING, "emshap": CONDITIONAL,
    "emshap and regressor": CONDITIONAL, "function": STATE,
}  # fmt: skip


@pytest.mark.parametrize("name", list(QUESTIONS))
def test_anything_that_knows_becomes_one_kind_of_attributor(tasks, name):
    world, counters, energy = tasks
    made = as_attributor(given_attributors(world, counters, energy)[name], world)
    assert as_attributor(made, world) is made
    vector = made.vector(Task(counters=counters[3], samples_per_s=100.0))
    assert vector.question == QUESTIONS[name] and vector.samples_per_s == 100.0
    assert vector.schema == made.schema == ATTRIBUTION_SCHEMA
    assert vector.state.dtype == np.float32 and (np.abs(vector.state) <= 1.0).all() and vector.state.std() > 0.0
    # One task or many, as a record or as numbers: the same to the last bit.
    assert made(counters[3:5]).astype(np.float32)[0].tobytes() == vector.state.tobytes()
    if QUESTIONS[name] == CONDITIONAL:
        assert encode(vector.values[None], vector.base)[0].tobytes() == vector.state.tobytes()
        assert float(vector.values.sum()) + vector.base == pytest.approx(float(vector.prediction))


def test_a_task_read_in_full_is_accounted_for_and_its_state_is_the_networks_own(testbed):
    made, pool = as_attributor(None, testbed), build_pool(testbed)
    for at in range(40):
        vector = made.vector(pool.task(at, testbed.kinds))
        assert vector.state.tobytes() == closed_form()(pool.counters.values[at][None])[0].astype(np.float32).tobytes()
        assert vector.missing == () and vector.method == "accounting" and vector.units == "J/sample"
        assert (vector.values >= 0.0).all() and 0.0 < vector.base < float(vector.prediction)
        assert (vector.values[pool.counters.seven[at] == 0.0] == 0.0).all()
        assert (vector.standard_error[vector.values > 0.0] > 0.0).all()


@pytest.mark.parametrize("reading", [-1.0, np.inf, -np.inf])
def test_a_counter_that_is_no_reading_is_refused_by_name(testbed, reading):
    counters = build_pool(testbed).counters.values[0].copy()
    counters[5] = reading
    with pytest.raises(CounterError, match=r"counters\['fc'\] = -?(1.0|inf): must be a finite number >= 0"):
        as_attributor(None, testbed).vector(Task(counters=counters, samples_per_s=10.0))


@pytest.mark.parametrize("preset", ["cross-domain-easy", "shared", "testbed"])
def test_no_name_enters_the_vector(preset):
    """Model, job and tenant called otherwise, the task of another row: the same bits, read in full or in part.

    What does enter is declared: mode, and the devices that the throughput is of.
    """
    world = load_settings(preset).build_world()
    made, pool = as_attributor(None, world), build_pool(world)
    for at in range(12):
        task = pool.task(at, world.kinds)
        for given in (task, replace(task, provenance={**task.provenance, "l3_misses": "unavailable"})):
            vector = made.vector(given)
            for name in ("opaque-8", "opaque-1", "bert-base", "nobody's"):
                other = replace(given, model=name, id=name, tenant=name, kind_index=0, batch_size=3, number=at + 1)
                assert made.vector(other).as_dict() == vector.as_dict()
            declared = replace(given, measured_devices=2 * given.measured_devices)
            assert made.vector(declared).values.tolist() != vector.values.tolist()


@pytest.mark.parametrize("unread", [("conv",), ("cpu_cycles", "l3_misses"), ("memory_bandwidth", "fc", "attention")])
def test_counters_that_were_not_read_are_carried_by_emshap(testbed, unread):
    """By provenance or as NaN, the same vector; what is not known makes the interval wider."""
    made, pool = as_attributor(None, testbed), build_pool(testbed)
    task = pool.task(7, testbed.kinds)
    full = made.vector(task)
    said = made.vector(replace(task, provenance={**task.provenance, **dict.fromkeys(unread, "unavailable")}))
    holes = task.counters.copy()
    holes[[DEMAND_NAMES.index(name) for name in unread]] = np.nan
    assert made.vector(replace(task, counters=holes)).as_dict() == said.as_dict()
    assert said.missing == unread and "EmSHAP" in said.method
    assert float(said.values.sum()) + said.base == pytest.approx(float(said.prediction))
    at = [DEMAND_NAMES.index(name) for name in unread]
    assert said.standard_error[at].sum() > full.standard_error[at].sum()
    # In the policy's own unit too, and through the journal; of a task read in full nothing is open.
    assert full.state_covariance is None and "state_covariance" not in full.as_dict()
    assert (np.linalg.eigvalsh(said.state_covariance) > -1e-12).all() and np.trace(said.state_covariance) > 0.0
    again = type(said).from_dict(json.loads(json.dumps(said.as_dict())))
    assert np.array_equal(again.state_covariance, said.state_covariance)
    low, high = said.interval(0.99)
    assert ((low <= full.values) & (full.values <= high)).all()
    assert (np.abs(said.state) <= 1.0).all()


def test_a_throughput_nobody_measured_is_carried_too(testbed):
    made, pool = as_attributor(None, testbed), build_pool(testbed)
    task = pool.task(2, testbed.kinds)
    vector = made.vector(replace(task, samples_per_s=0.0))
    assert vector.missing == ("samples_per_s",)
    assert vector.samples_per_s == pytest.approx(task.samples_per_s, rel=0.6)
    assert vector.state.tobytes() == pytest.approx(made.vector(task).state.tobytes())


@pytest.mark.parametrize(
    ("counters", "pace", "words"),
    [
        ({0: 1e18}, 50.0, r"cpu_cycles.*standard deviations from the nearest known task"),
        ({4: -0.1}, 50.0, r"must be a finite number >= 0"),
        ({}, -1.0, r"samples_per_s = -1.0: joules per sample need a throughput"),
        ({}, float("nan"), r"samples_per_s = nan"),
        ({3: float("nan")}, float("inf"), r"samples_per_s = inf"),
    ],
)
def test_what_no_machine_shows_is_refused(testbed, counters, pace, words):
    read = build_pool(testbed).counters.values[0].copy()
    for at, value in counters.items():
        read[at] = value
    with pytest.raises(CounterError, match=words):
        as_attributor(None, testbed).vector(Task(counters=read, samples_per_s=pace))


@pytest.mark.parametrize("wrong", [5, "emshap", EmSHAP, EmSHAP(), object(), (1, 2)])
def test_what_knows_nothing_is_refused(testbed, wrong):
    with pytest.raises(SettingsError, match=r"attributor = "):
        as_attributor(wrong, testbed)


def test_other_counters_than_the_seven_are_refused(testbed):
    rows = np.random.default_rng(0).normal(size=(60, 2))
    with pytest.raises(SettingsError, match=r"attributor\.names = .*must attribute to the seven counters"):
        as_attributor(EmSHAP("gaussian").fit(rows, ("a", "b")), testbed)


def test_training_environments_and_system_show_the_same_to_the_last_bit():
    """No skew: what the weights learnt from, what an environment shows, what a policy of System is given."""
    from attribution_sched.cluster.envs.registration import make_cross_domain
    from attribution_sched.scheduler.hi_ppo.checkpoint import load

    env = make_cross_domain("cross-domain-easy")
    shown, _ = env.reset(seed=3)
    counters = env.engine.pool.counters.values[env.engine.pending_pool()[0]]
    expected = closed_form()(counters[None])[0].astype(np.float32).tobytes()
    assert shown["attribution"].tobytes() == expected
    assert load().attributions(counters[None])[0].astype(np.float32).tobytes() == expected
    given = []

    def policy(decision):
        given.append(decision)
        return

    with System("cross-domain-easy", policy, seed=3) as system:
        system.cluster.advance()
        system.ring.decide()
    assert np.array_equal(given[0].counters, counters)
    assert given[0].attribution.state.tobytes() == expected
    assert given[0].queue[0].attribution is given[0].attribution
    # Outside System: an episode fills its decisions with what the policy has learnt from.
    env.engine.pool = env.engine.pool.attributed(as_attributor(None, env.engine.world).vector)
    assert view(env.engine).attribution.state.tobytes() == expected


def small(**changes):
    return replace(ablation.QUICK, **changes)


@pytest.fixture(scope="module")
def worlds():
    return ablation.Worlds.build(1.0, small(horizon_s=600.0))


def test_inputs_differ_in_what_they_tell(worlds):
    for world in (worlds.train, worlds.test):
        pool = build_pool(world)
        shown = {name: worlds.input(name, world)(pool.counters.values) for name in ablation.INPUTS[:3]}
        assert (shown[ablation.ZEROS] == 0).all()
        mean = shown[ablation.KIND]
        for k in np.unique(pool.kinds):
            rows = pool.kinds == k
            assert (mean[rows] == mean[rows][0]).all()
            if world is worlds.train:
                np.testing.assert_allclose(mean[rows][0], shown[ablation.EMSHAP][rows].mean(axis=0))
            assert (shown[ablation.EMSHAP][rows].std(axis=0) > 0).any()
    ranks = worlds.input(ablation.RANKS, worlds.train)(build_pool(worlds.train).counters.values)
    assert ranks.min() == 0.0 and ranks.max() == 1.0
    assert not np.array_equal(build_pool(worlds.test).steps, build_pool(worlds.train).steps)


def test_work_is_what_the_simulator_counted(worlds):
    env = TestbedVectorEnv(worlds.test, 3)
    rng = np.random.default_rng(0)
    found = ablation.play(env, lambda _e, _o, mask: (rng.random(mask.shape) * mask).argmax(axis=1), 11)
    assert found["steps"] == pytest.approx(found["counted_steps"], rel=1e-9)
    assert found["completed"] > 3 and found["work_s"] > 0
    assert found["joules"] == pytest.approx(found["task_j"] / found["work_s"])
    assert 10 < found["joules"] < 1000


def test_looking_with_the_truth_is_never_mistaken(worlds):
    found = ablation.look(worlds, small(looked=2))
    assert found[ablation.TRUE]["regret"] == 0 and found[ablation.TRUE]["tilt"] == 0
    assert found[ablation.NOMINAL]["shift"] > 0.01 and found[ablation.NOMINAL]["tilt"] > 0.001
    assert found[ablation.GUESSED]["shift"] < found[ablation.NOMINAL]["shift"]


def test_the_ablation_runs_and_reuses_what_it_kept(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(ablation, "QUICK", small(decisions=2048, seeds=2, held_out=2, looked=1, horizon_s=400.0))
    monkeypatch.setattr(ablation, "CLUSTERS", 32)
    kept = tmp_path / "runs.json"
    ablation.main(["--quick", "--output", str(kept)])
    first = capsys.readouterr().out
    assert "EmSHAP against zeros: return" in first and "| ranks |" in first
    assert "1/zeros/1" in first.split("Flat masked")[0]
    ablation.main(["--quick", "--output", str(kept)])
    second = capsys.readouterr().out
    assert second.strip() == first[first.index("Flat masked") :].strip()
