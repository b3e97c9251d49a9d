"""A training run as a whole: what it leaves behind, how it goes on, and what it refuses."""

import json
import os
import shutil
import signal
import threading

import pytest
import torch

from attribution_sched.config import PpoSettings, load_training_settings
from attribution_sched.errors import CheckpointError, SettingsError
from attribution_sched.registration import make_testbed_vector
from attribution_sched.scheduler.hi_ppo import cloning, expert_iteration
from attribution_sched.scheduler.hi_ppo.checkpoint import describe, load, save
from attribution_sched.scheduler.hi_ppo.held_out import FIRST_SEED, HeldOut
from attribution_sched.scheduler.hi_ppo.network import HiPpoNetwork, NetworkSize
from attribution_sched.scheduler.hi_ppo.teachers import ShortestFirst
from attribution_sched.training import (
    BEST,
    LAST,
    SETTINGS,
    STATE,
    continue_learning,
    network_size,
    train,
    train_testbed,
    trainer_settings,
)
from attribution_sched.training_log import METRICS, read_metrics
from attribution_sched.training_phases import build_worlds, course_fields

TINY = """\
name: tiny
domains: [{name: a}, {name: b}]
domain_defaults: {gpu: A100-80, devices: 4, node_devices: 2}
network: {links: {kind: uniform, gbps: 5.0, latency_s: 0.02, usd_per_gb: 0.08}}
kinds: [{model: bert-base, batch_size: 32, microbatches: [4, 8, 16, 32], steps: [400, 1200], epoch_steps: 500}]
arrivals: {kind: poisson, rate_per_hour: 60.0}
episode: {horizon_s: 1200.0, max_running: 6, queue_capacity: 4, max_segments: 2}
"""

COURSE = """\
extends: hi_ppo
ppo: {num_steps: 32, minibatch_size: 16, update_epochs: 2}
gnn: {hidden_dim: 16, out_dim: 16, num_layers: 1}
course:
  worlds:
    - {preset: tiny.yaml, scenario: ou30, clusters: 4}
    - {preset: tiny.yaml, scenario: load+20, clusters: 2}
  decisions: 90
  head_dim: 8
  cloning: {decisions: 16, epochs: 2, minibatch_size: 16}
  evaluation: {episodes: 3, every: 2}
"""


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    folder = tmp_path_factory.mktemp("course")
    (folder / "tiny.yaml").write_text(TINY)
    (folder / "course.yaml").write_text(COURSE)
    return folder / "course.yaml"


@pytest.fixture(scope="module")
def finished(course, tmp_path_factory):
    """A run of three iterations, told step by step."""
    folder, reports, words = tmp_path_factory.mktemp("runs") / "deep" / "run", [], []
    summary = train(course, folder, progress=reports.append, log=words.append)
    return folder, summary, reports, words


def weights(path):
    return load(path).state_dict()


def equal(one, other):
    return set(one) == set(other) and all(torch.equal(one[name], other[name]) for name in one)


def changed(course, **changes):
    loaded = load_training_settings(course)
    return load_training_settings({**loaded.model_dump(), "course": loaded.course.model_dump() | changes})


def test_a_run_leaves_everything_behind(finished, course):
    folder, summary, reports, words = finished
    assert {path.name for path in folder.iterdir()} == {BEST, LAST, STATE, SETTINGS, METRICS, "tensorboard"}
    assert (summary.iterations, summary.decisions, summary.interrupted) == (3, 90, False)
    assert summary.agent_steps > summary.decisions
    assert summary.best == folder / BEST
    assert load_training_settings(folder / SETTINGS) == load_training_settings(course)
    assert json.loads(json.dumps(summary.to_dict()))["best"] == str(folder / BEST)
    assert {report.phase for report in reports} == {"cloning", "staggering", "measuring", "learning"}
    assert [report.share for report in reports] == sorted(report.share for report in reports)
    assert reports[-1].share == 1.0
    assert any("imitating" in line for line in words)


def test_the_best_weights_are_those_that_were_measured(finished, course):
    folder, summary, _, _ = finished
    made = describe(folder / BEST)
    assert made["iteration"] == summary.best_iteration
    assert made["held_out"]["first_seed"] == FIRST_SEED
    assert made["held_out"]["scenario"] == "ou30"
    settings = load_training_settings(course)
    world = build_worlds(settings)[settings.course.evaluation_world.label]
    best = load(folder / BEST)
    found = HeldOut(world, 3, best.attributions).measure(best)
    assert list(found.returns) == made["held_out"]["returns"]
    assert summary.best_return == found.mean
    measured = [row["return"] for row in read_metrics(folder / METRICS) if row["kind"] == "held_out"]
    assert max(measured) == summary.best_return
    assert measured[0] == summary.start_return


def test_metrics_and_tensorboard_say_the_same(finished):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    folder = finished[0]
    rows = read_metrics(folder / METRICS)
    assert [(row["kind"], row["iteration"]) for row in rows] == [
        ("cloning", 0), ("cloning", 0), ("held_out", 0), ("iteration", 1), ("iteration", 2), ("held_out", 2),
        ("iteration", 3), ("held_out", 3),
    ]  # fmt: skip
    events = EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    for tag, kind, name in (
        ("iteration/entropy", "iteration", "entropy"),
        ("iteration/explained_variance/r_eff", "iteration", "explained_variance/r_eff"),
        ("held_out/return", "held_out", "return"),
        ("cloning/loss", "cloning", "loss"),
    ):
        told = [(row["decisions"], row[name]) for row in rows if row["kind"] == kind and row[name] is not None]
        seen = [(event.step, event.value) for event in events.Scalars(tag)]
        assert [step for step, _ in seen] == [step for step, _ in told]
        assert [value for _, value in seen] == pytest.approx([value for _, value in told], rel=1e-5)


def stable(rows):
    """What a log says apart from how long things took."""
    return [{name: value for name, value in row.items() if name != "seconds"} for row in rows]


def test_a_run_that_was_stopped_ends_like_one_that_was_not(finished, course, tmp_path):
    folder, summary, _, _ = finished
    asked = iter([False, True])
    first = train(course, tmp_path / "run", stop=lambda: next(asked))
    assert first.interrupted
    assert first.iterations == 1
    assert describe(tmp_path / "run" / LAST)["held_out"] is None
    with (tmp_path / "run" / METRICS).open("a") as file:
        file.write('{"kind": "iteration", "iteration": 2, "decisions": 60}\n{"kind": "iter')
    words = []
    second = train(tmp_path / "run" / SETTINGS, tmp_path / "run", resume=True, log=words.append)
    assert not second.interrupted
    assert any("after iteration 1" in line for line in words)
    for name in (BEST, LAST):
        assert equal(weights(tmp_path / "run" / name), weights(folder / name))
    assert stable(read_metrics(tmp_path / "run" / METRICS)) == stable(read_metrics(folder / METRICS))
    told = ("best_return", "best_iteration", "start_return", "iterations", "decisions", "agent_steps")
    assert [getattr(second, name) for name in told] == [getattr(summary, name) for name in told]


def test_a_finished_run_can_be_given_more_time(finished, course, tmp_path):
    shutil.copytree(finished[0], tmp_path / "run")
    more = train(changed(course, decisions=110), tmp_path / "run", resume=True)
    assert (more.iterations, more.decisions) == (4, 120)
    assert more.best_return >= finished[1].best_return


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_iteration_first(course, tmp_path, number):
    before = signal.getsignal(number)

    def once(report):
        if report.phase == "learning" and report.iteration == 1:
            os.kill(os.getpid(), number)

    summary = train(changed(course, cloning={"decisions": 0}), tmp_path / "run", progress=once)
    assert summary.interrupted
    assert summary.iterations == 1
    assert (tmp_path / "run" / STATE).is_file()
    assert signal.getsignal(number) is before


def test_it_can_be_stopped_while_it_imitates(course, tmp_path, monkeypatch):
    def impatient(*arguments):
        raise KeyboardInterrupt

    settings = changed(course, decisions=30)
    with monkeypatch.context() as patched:
        patched.setattr(cloning, "clone", impatient)
        with pytest.raises(KeyboardInterrupt):
            train(settings, tmp_path / "run")
    assert not (tmp_path / "run" / STATE).exists()
    again = train(settings, tmp_path / "run", resume=True)
    straight = train(settings, tmp_path / "straight")
    assert again.best_return == straight.best_return
    assert equal(weights(tmp_path / "run" / LAST), weights(tmp_path / "straight" / LAST))


def test_it_runs_in_a_thread_too(course, tmp_path):
    found = []
    settings = changed(course, decisions=20, cloning={"decisions": 0})
    thread = threading.Thread(target=lambda: found.append(train(settings, tmp_path / "run")))
    thread.start()
    thread.join()
    assert found[0].iterations == 1


def test_it_starts_from_weights_or_lessons_if_there_are_any(finished, course, tmp_path):
    folder = finished[0]
    settings = changed(course, decisions=30)
    started = train(settings, tmp_path / "start", start=folder / BEST)
    assert started.start_return == pytest.approx(finished[1].best_return)
    assert describe(tmp_path / "start" / BEST)["started_from"] == BEST
    assert all(row["kind"] != "cloning" for row in read_metrics(tmp_path / "start" / METRICS))
    field = course_fields(settings, build_worlds(settings), load(folder / BEST), 50)[0]
    lesson = cloning.watch(field, ShortestFirst(), 4, 0.99)
    taught = train(changed(course, decisions=30, cloning={"decisions": 0}), tmp_path / "lesson", lessons=[lesson])
    assert taught.iterations == 1
    assert describe(tmp_path / "lesson" / BEST)["extra_lessons"] == 1
    assert [row["kind"] for row in read_metrics(tmp_path / "lesson" / METRICS)][:2] == ["cloning", "cloning"]


def test_other_weights_or_settings_are_refused_and_nothing_is_written(finished, course, tmp_path):
    save(tmp_path / "wide.safetensors", HiPpoNetwork(NetworkSize(32, 8, 1, pooling="mean")), {})
    with pytest.raises(CheckpointError, match="start width = 32: the settings ask for 16"):
        train(course, tmp_path / "run", start=tmp_path / "wide.safetensors")
    assert not (tmp_path / "run").exists()
    with pytest.raises(SettingsError, match="device = 'cuda:99': is not there"):
        train(course, tmp_path / "run", device="cuda:99")
    with pytest.raises(SettingsError, match="scenario = 'ou3'"):
        train(changed(course, worlds=[{"preset": "testbed", "scenario": "ou3", "clusters": 2}]), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    log = (finished[0] / METRICS).read_bytes()
    with pytest.raises(CheckpointError, match=r"course\.seed = 4: the run that was stopped had 0"):
        train(changed(course, seed=4), finished[0], resume=True)
    with pytest.raises(CheckpointError, match=r"settings\.lr_end = 0\.5: the run that was stopped had 0\.1"):
        train(changed(course, lr_end=0.5), finished[0], resume=True)
    assert (finished[0] / METRICS).read_bytes() == log
    assert load_training_settings(finished[0] / SETTINGS) == load_training_settings(course)


def test_a_run_without_its_best_weights_is_refused(finished, course, tmp_path):
    shutil.copytree(finished[0], tmp_path / "run")
    (tmp_path / "run" / BEST).unlink()
    with pytest.raises(CheckpointError, match="are no longer there"):
        train(course, tmp_path / "run", resume=True)


def test_a_folder_that_is_not_fit_is_refused(finished, course, tmp_path):
    with pytest.raises(SettingsError, match="must be a new or empty folder"):
        train(course, finished[0])
    with pytest.raises(SettingsError, match="holds no training run to resume"):
        train(course, tmp_path, resume=True)
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingsError, match="a resumed run has weights of its own"):
        train(course, finished[0], resume=True, start=finished[0] / BEST)
    with pytest.raises(SettingsError, match="must be a folder"):
        train(course, tmp_path / "file")


def test_clusters_never_share_a_seed_nor_reach_the_held_out_ones(course, monkeypatch):
    seeds = []

    class Noted:
        def __init__(self, world, clusters, seed, *rest, **options):
            seeds.extend(range(seed, seed + clusters))

        def read_hours(self, network):
            pass

    monkeypatch.setattr("attribution_sched.scheduler.hi_ppo.cluster_batch.ClusterBatch", Noted)
    for seed in (0, 79, 1234):
        settings = changed(course, seed=seed)
        worlds = dict.fromkeys(one.label for one in settings.course.worlds)
        network = HiPpoNetwork(NetworkSize(16, 8, 1))
        course_fields(settings, worlds, network, 0)
        course_fields(settings, worlds, network, sum(one.clusters for one in settings.course.worlds))
    assert len(set(seeds)) == len(seeds)
    assert max(seeds) < FIRST_SEED


@pytest.mark.parametrize(("kind", "conv"), [("GraphSAGE", "edge-sage"), ("GAT", "gatv2"), ("GINE", "gine")])
def test_settings_reach_network_and_trainer(kind, conv):
    settings = load_training_settings({"extends": "hi_ppo_tuned", "gnn": {"type": kind}, "course": {"head_dim": 24}})
    assert network_size(settings) == NetworkSize(128, 24, 2, conv, "mean+max")
    how = trainer_settings(settings)
    assert (
        (how.ppo.num_steps, how.ppo.entropy_coef) == (settings.ppo.num_steps, settings.ppo.entropy_coef) != (2048, 0.01)
    )
    assert (how.upper_every, how.lr_end, how.bootstrap) == (1, 0.1, True)


def test_weights_in_use_learn_on(finished, course):
    settings = changed(course)
    world = build_worlds(settings)["tiny/ou30"]
    network = load(finished[0] / BEST)
    found = continue_learning(network, world, 32, settings, clusters=4)
    assert found.decisions == 32
    assert found.after.mean >= found.before.mean == pytest.approx(finished[1].best_return)


def test_choices_are_compared_between_the_teacher_and_learning_by_trial(course, tmp_path, monkeypatch):
    monkeypatch.setattr(expert_iteration, "COPIES", 8)
    reports, words = [], []
    settings = changed(course, decisions=30, comparing={"rounds": 1, "decisions": 4, "epochs": 1}, demand_tasks=500)
    train(settings, tmp_path / "run", progress=reports.append, log=words.append)
    kinds = [row["kind"] for row in read_metrics(tmp_path / "run" / METRICS)]
    assert kinds[:4] == ["cloning", "cloning", "comparing", "held_out"]
    row = next(row for row in read_metrics(tmp_path / "run" / METRICS) if row["kind"] == "comparing")
    start = next(row for row in read_metrics(tmp_path / "run" / METRICS) if row["kind"] == "held_out")
    assert start["return"] == max(row["before"], row["after"]) and row["kept"] == (row["after"] >= row["before"])
    assert "comparing" in {report.phase for report in reports}
    assert any("round 1" in line for line in words)
    assert load(tmp_path / "run" / BEST).demands.fitted


@pytest.mark.parametrize("agent", ["ppo", "lower-agent"])
def test_the_testbed_is_learnt_by_a_flat_network_or_by_the_lower_agent_alone(tmp_path, agent):
    settings = PpoSettings(num_steps=64, minibatch_size=32, update_epochs=1)
    seen = []
    path = tmp_path / "agent.safetensors"
    found = train_testbed(agent, 128, clusters=8, settings=settings, output=path, progress=seen.append)
    assert [each.steps for each in seen] == [64, 128]
    assert type(found.policy).__name__ == {"ppo": "FlatPolicy", "lower-agent": "TestbedPolicy"}[agent]
    env = make_testbed_vector(8)
    obs, info = env.reset(seed=5)
    actions = found.act(obs, info["action_mask"])
    assert info["action_mask"][range(8), actions].all()
    again = type(found).load(path, env, type(found.policy)(torch.Generator()) if agent == "lower-agent" else None)
    assert (again.act(obs, info["action_mask"]) == actions).all()


def test_a_learner_of_the_testbed_that_does_not_exist_is_refused():
    with pytest.raises(SettingsError, match=r"agent = 'lower'.*Did you mean 'lower-agent'"):
        train_testbed("lower")
    with pytest.raises(SettingsError, match="clusters = 0: must be a whole number >= 1"):
        train_testbed(clusters=0)
