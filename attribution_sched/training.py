"""Training of Hi-PPO: a teacher is imitated, choices are compared, both levels learn by trial; the best are kept.

from attribution_sched import train

summary = train("hi_ppo_tuned", "runs/first")
print(summary.best, summary.best_return)

A run leaves in its folder ``best.safetensors`` (highest held-out return), ``last.safetensors``, ``state.safetensors``
(everything needed to go on), ``settings.yaml``, ``metrics.jsonl`` and TensorBoard's event files. Training uses seeds
below 900,000, the held-out episodes those from there on; the arena's begin at a million.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attribution_sched.config import PpoSettings, TrainingSettings, load_training_settings
from attribution_sched.errors import CheckpointError, SettingsError, nearest, problem
from attribution_sched.training_phases import (
    attribute,
    build_worlds,
    course_fields,
    first_seed,
    imitate,
    improve,
    learn_agents,
    recorded,
    spread,
)

if TYPE_CHECKING:
    from attribution_sched.cluster.world import World
    from attribution_sched.scheduler.hi_ppo.cloning import Lesson
    from attribution_sched.scheduler.hi_ppo.learning import Report
    from attribution_sched.scheduler.hi_ppo.network import HiPpoNetwork, NetworkSize
    from attribution_sched.scheduler.hi_ppo.online_learning import Continued
    from attribution_sched.scheduler.hi_ppo.rollout import Collector
    from attribution_sched.scheduler.hi_ppo.trainer import HiPpoSettings
    from attribution_sched.scheduler.ppo.flat import FlatAgent, Progress

DEFAULT_PRESET = "hi_ppo_tuned"
BEST, LAST, STATE, SETTINGS = "best.safetensors", "last.safetensors", "state.safetensors", "settings.yaml"

TESTBED_PPO = PpoSettings(
    lr=5e-3, gamma=0.2, num_steps=2048, update_epochs=2, minibatch_size=512, target_kl=None, entropy_coef=0.01
)
"""How the testbed is learnt: what a placement earns is known within a few decisions."""

Source = str | Path | Mapping[str, Any] | TrainingSettings


@dataclass(frozen=True)
class TrainingSummary:
    """What came of a training run.

    Attributes:
        best: Checkpoint with the highest held-out return.
        best_return: That return, mean over the held-out episodes.
        best_standard_error: Its standard error.
        best_iteration: When it was reached; 0 is before the first iteration.
        start_return: Held-out return before the first iteration.
        iterations: Rounds of collecting and learning.
        decisions: Decisions taken in them.
        agent_steps: Choices of agents in them, upper and lower.
        minutes: Minutes spent in them, on the clock of the settings.
        interrupted: Whether the run was stopped before its time; ``resume`` goes on.
    """

    best: Path
    best_return: float
    best_standard_error: float
    best_iteration: int
    start_return: float
    iterations: int
    decisions: int
    agent_steps: int
    minutes: float
    interrupted: bool

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {**asdict(self), "best": str(self.best)}


def train(
    settings: Source,
    output: str | Path,
    *,
    resume: bool = False,
    progress: Callable[[Report], None] | None = None,
    log: Callable[[str], None] | None = None,
    start: str | Path | None = None,
    lessons: Sequence[Lesson] = (),
    device: str = "cpu",
    workers: str | None = None,
    stop: Callable[[], bool] | None = None,
) -> TrainingSummary:
    """Train Hi-PPO.

    Ctrl-C (or SIGTERM) lets the iteration under way end and leaves a state to resume from; a second one ends at once
    and leaves the state of the iteration before.

    Args:
        settings: As :func:`~attribution_sched.config.load_training_settings` takes them.
        output: Folder of the run; new or empty unless ``resume``.
        resume: Go on from the state in the folder. The settings must be the run's own, except its length.
        progress: Told after every step how far it has come.
        log: Told in words what is done.
        start: Checkpoint to start from instead of cloning a teacher.
        lessons: More decisions to imitate, beside those of the rule that is watched; they are rehearsed while learning.
        device: Where the network lives.
        workers: ``ray``, or the address of a Ray cluster, lets its workers play the worlds of the course while
            learning, to the same weights; this process by default.
        stop: Asked after every iteration; True ends the run as Ctrl-C does.

    Raises:
        SettingsError: If settings are wrong or the folder is not fit.
        CheckpointError: If the state or the start does not fit or is damaged.
        ModelFitError: If learning went astray; the folder holds the last good state.
    """
    chosen, folder = load_training_settings(settings), Path(output)
    say = log or (lambda words: None)
    _check_folder(folder, resume, start)
    collector = _collector(workers, device)
    course = chosen.course
    network = _first_network(chosen, start, device)
    worlds = build_worlds(chosen)
    say(f"building {', '.join(worlds)} (a first run compiles its kernels)")
    from attribution_sched.scheduler.hi_ppo.checkpoint import save, save_training
    from attribution_sched.scheduler.hi_ppo.demand_head import fit_reward_terms
    from attribution_sched.scheduler.hi_ppo.held_out import FIRST_SEED, HeldOut
    from attribution_sched.scheduler.hi_ppo.learning import Budget, Learning
    from attribution_sched.scheduler.hi_ppo.trainer import Trainer
    from attribution_sched.training_log import TrainingLog

    if start is None:
        attribute(network)
        if course.demand_tasks and not resume:
            say(f"reading demands off attributions of {course.demand_tasks:,} simulated tasks")
            fit_reward_terms(network, list(worlds.values()), course.demand_tasks, course.seed)
    known_lessons = [*lessons, *recorded(chosen, say)]
    fields = course_fields(chosen, worlds, network, 0)
    trainer = Trainer(network, fields, trainer_settings(chosen), course.seed, known_lessons, collector)
    held_out = HeldOut(worlds[course.evaluation_world.label], course.evaluation.episodes, network.attributions)
    known = _known_state(folder, trainer, chosen) if resume else None
    # What a run that goes on had read off attributions comes back with its weights.
    for one in (*fields, held_out):
        one.read_hours(network)
    _prepare(folder, chosen)
    notes = TrainingLog(folder, None if known is None else (trainer.number, trainer.decisions))
    budget = Budget(course.decisions, 60.0 * course.minutes, course.clock)
    origin = {"started_from": None if start is None else Path(start).name, "extra_lessons": len(lessons)}
    if known is not None:
        origin |= {"started_from": known["origin"].get("started_from")}
        if known["origin"] != origin:
            rule = f"the run that was stopped had {known['origin'].get('extra_lessons')}"
            raise SettingsError(problem("lessons", len(lessons), rule, "Give the same lessons again"))

    def about() -> dict[str, Any]:
        where, measured = course.evaluation_world, learning.last if learning.measured_now else None
        held = {"preset": where.preset, "scenario": where.scenario, "first_seed": FIRST_SEED}
        return {
            **origin,
            "settings": chosen.model_dump(mode="json"),
            "iteration": trainer.number,
            "decisions": trainer.decisions,
            "agent_steps": trainer.agent_steps,
            "minutes": learning.spent_s / 60.0,
            "held_out": None if measured is None else {**held, "returns": list(measured.returns)},
        }

    def keep() -> None:
        save(folder / BEST, trainer.network, about())

    def kept() -> None:
        if trainer.number % course.upper_every:
            return
        extra = {"learning": learning.to_json(), "origin": origin, "settings": _fixed(chosen)}
        save_training(folder / STATE, trainer, extra)

    learning = Learning(
        trainer, held_out, budget, course.evaluation.every, keep=keep, kept=kept, note=notes.write, progress=progress
    )
    try:
        if known is not None:
            learning.restore(known["learning"])
            say(f"going on after iteration {trainer.number}, {trainer.decisions:,} decisions")
        else:
            if start is None:
                watched = imitate(chosen, worlds, learning, list(known_lessons), notes, say)
                improve(chosen, worlds, learning, watched, held_out, notes, say)
                learn_agents(chosen, worlds, network, notes, say)
            spread(chosen, learning, say)
        with _asked_to_stop() as asked:
            say("learning")
            begun, best = learning.run(lambda: asked() or (stop is not None and stop()))
        save(folder / LAST, trainer.network, about())
    finally:
        notes.close()
    return TrainingSummary(
        best=folder / BEST,
        best_return=best.measured.mean,
        best_standard_error=best.measured.standard_error,
        best_iteration=best.iteration,
        start_return=begun.mean,
        iterations=trainer.number,
        decisions=trainer.decisions,
        agent_steps=trainer.agent_steps,
        minutes=learning.spent_s / 60.0,
        interrupted=learning.share < 1.0,
    )


def continue_learning(
    network: HiPpoNetwork,
    world: World,
    decisions: int,
    settings: Source = DEFAULT_PRESET,
    *,
    lr_share: float = 0.1,
    clusters: int = 32,
    seed: int = 0,
    progress: Callable[[Report], None] | None = None,
    stop: Callable[[], bool] | None = None,
) -> Continued:
    """Let weights that are in use learn on in a world; see :mod:`attribution_sched.scheduler.hi_ppo.online_learning`.

    Args:
        network: What decides now; it is not touched.
        world: Where it decides.
        decisions: Decisions to learn from.
        settings: Hyper-parameters; of the course only ``evaluation`` and the coefficients are used.
        lr_share: Learning rate as a share of that of the settings.
        clusters: Simulated clusters side by side.
        seed: Of choices, minibatches and clusters.
        progress: Told how far it has come.
        stop: Asked after every iteration; True ends it.
    """
    from attribution_sched.scheduler.hi_ppo.online_learning import learn_on

    chosen = load_training_settings(settings)
    evaluation = chosen.course.evaluation
    return learn_on(
        network, world, decisions, trainer_settings(chosen), lr_share=lr_share, clusters=clusters, seed=seed,
        first_seed=first_seed(seed), episodes=evaluation.episodes, every=evaluation.every, progress=progress,
        stop=stop,
    )  # fmt: skip


TESTBED_AGENTS: tuple[str, ...] = ("ppo", "lower-agent")
"""Who can learn the four-device environment: a flat network over its 64 actions, or the lower agent of Hi-PPO alone."""


def train_testbed(
    agent: str = "ppo",
    decisions: int = 65_536,
    *,
    preset: Any = "testbed",
    clusters: int = 256,
    seed: int = 0,
    settings: PpoSettings | None = None,
    output: str | Path | None = None,
    progress: Callable[[Progress], bool | None] | None = None,
) -> FlatAgent:
    """Train an agent by masked PPO on ``attribution_sched/Testbed-v0``.

    Args:
        agent: ``ppo``, one network over all 64 actions, or ``lower-agent``, Hi-PPO's lower agent by itself: device,
            numeric format and microbatch level in turn.
        decisions: Decisions to learn from, over all clusters.
        preset: A four-device preset, a YAML path or ``Settings``.
        clusters: How many run side by side.
        seed: Of weights, draws, minibatches and clusters.
        settings: Hyper-parameters; those tuned for this environment by default.
        output: Checkpoint to write at the end, ``*.safetensors``.
        progress: Called after every rollout; returning True ends the training.

    Raises:
        SettingsError: If the agent is not known or a number is out of range.
        CheckpointError: If the checkpoint cannot be written.
    """
    if agent not in TESTBED_AGENTS:
        rule = f"must be one of {', '.join(TESTBED_AGENTS)}"
        raise SettingsError(problem("agent", agent, rule, nearest(str(agent), TESTBED_AGENTS)))
    for name, value in (("decisions", decisions), ("clusters", clusters)):
        if type(value) is not int or value < 1:
            raise SettingsError(problem(name, value, "must be a whole number >= 1", "Use for example 256"))
    import torch

    from attribution_sched.registration import make_testbed_vector
    from attribution_sched.scheduler.hi_ppo.testbed import TestbedPolicy
    from attribution_sched.scheduler.ppo.flat import FlatAgent

    lower = TestbedPolicy(torch.Generator().manual_seed(seed)) if agent == "lower-agent" else None
    found = FlatAgent(make_testbed_vector(clusters, preset), settings or TESTBED_PPO, seed, policy=lower)
    found.train(decisions, progress)
    if output is not None:
        found.save(output)
    return found


def network_size(settings: TrainingSettings) -> NetworkSize:
    """How large the networks of some settings are."""
    from attribution_sched.scheduler.hi_ppo.network import NetworkSize

    gnn = settings.gnn
    return NetworkSize(gnn.out_dim, settings.course.head_dim, gnn.num_layers, gnn.conv, gnn.aggregation)


def trainer_settings(settings: TrainingSettings) -> HiPpoSettings:
    """The part of some settings that the trainer takes."""
    from attribution_sched.scheduler.hi_ppo.trainer import HiPpoSettings

    course = settings.course
    return HiPpoSettings(
        ppo=settings.ppo,
        upper_every=course.upper_every,
        low_coef=course.low_coef,
        action_value_coef=course.action_value_coef,
        lr_end=course.lr_end,
        bootstrap=course.bootstrap,
        rehearsal_coef=course.rehearsal_coef,
    )


def _collector(workers: str | None, device: str) -> Collector | None:
    """Who collects experience; None for this process.

    Raises:
        SettingsError: If it is no Ray cluster, or the network lives elsewhere than its workers.
        ExecutorError: If the cluster does not answer.
    """
    if workers is None:
        return None
    from attribution_sched.executors.ray import connect
    from attribution_sched.executors.workers import check_workers
    from attribution_sched.scheduler.hi_ppo.rollout import RayRollouts

    address = check_workers(workers)
    if isinstance(address, int):
        rule = "clusters of one process learn side by side already"
        raise SettingsError(problem("workers", workers, rule, "Use 'ray' or the address of a Ray cluster, or nothing"))
    if device != "cpu":
        rule = "workers of a Ray cluster decide on their processors, and would decide otherwise"
        raise SettingsError(problem("device", device, rule, "Use device='cpu' with workers="))
    connect(address)
    return RayRollouts(address)


def _check_folder(folder: Path, resume: bool, start: str | Path | None) -> None:
    if resume and start is not None:
        raise SettingsError(
            problem("start", str(start), "a resumed run has weights of its own", "Leave one of them out")
        )
    if folder.exists() and not folder.is_dir():
        raise SettingsError(problem("output", str(folder), "must be a folder", "Choose another name"))
    full = folder.is_dir() and any(folder.iterdir())
    if resume and not (folder / SETTINGS).is_file():
        rule = "holds no training run to resume"
        raise SettingsError(problem("output", str(folder), rule, "Check the path, or train without resume"))
    if full and not resume:
        rule = "must be a new or empty folder, so that no run overwrites another"
        raise SettingsError(problem("output", str(folder), rule, "Choose another, or resume the run that is there"))


def _prepare(folder: Path, settings: TrainingSettings) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / SETTINGS).write_text(settings.to_yaml(), encoding="utf-8")
    except OSError as error:
        rule = f"cannot be written to ({error.strerror or error})"
        raise SettingsError(problem("output", str(folder), rule, "Choose another folder")) from error


def _first_network(settings: TrainingSettings, start: str | Path | None, device: str) -> HiPpoNetwork:
    from attribution_sched.scheduler.hi_ppo.checkpoint import load

    loaded = None if start is None else load(start)
    import torch

    from attribution_sched.scheduler.hi_ppo.network import HiPpoNetwork

    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise SettingsError(problem("device", device, "is not there", "Use cpu")) from error
    size = network_size(settings)
    if loaded is None:
        return HiPpoNetwork(size, torch.Generator().manual_seed(settings.course.seed)).to(device)
    if loaded.size != size:
        given, own = loaded.size.to_json(), size.to_json()
        odd = next(name for name in own if own[name] != given[name])
        rule = f"the settings ask for {own[odd]!r}"
        raise CheckpointError(problem(f"start {odd}", given[odd], rule, "Set gnn and course.head_dim as it was made"))
    return loaded.to(device).train()


def _fixed(settings: TrainingSettings) -> dict[str, Any]:
    """What must stay as it is when a run is resumed: everything but its length."""
    found = settings.model_dump(mode="json")
    for name in ("minutes", "decisions", "clock"):
        del found["course"][name]
    return found


def _known_state(folder: Path, trainer: Any, settings: TrainingSettings) -> dict[str, Any] | None:
    """Restore the trainer and return what was stored beside it; None if the run was stopped before it began."""
    from attribution_sched.scheduler.hi_ppo.checkpoint import first_difference, resume_training

    if not (folder / STATE).is_file():
        return None
    extra = resume_training(folder / STATE, trainer)
    fixed, stored_settings = _fixed(settings), extra.get("settings")
    if isinstance(stored_settings, dict) and isinstance(stored_settings.get("ppo"), dict):
        # Runs of 0.1 did not write what a settings file could not say yet; it was as it is by default.
        stored_settings["ppo"] = asdict(PpoSettings()) | stored_settings["ppo"]
    if extra.get("settings") != fixed:
        key, stored, given = first_difference("settings", extra.get("settings"), fixed)
        rule = f"the run that was stopped had {stored!r}"
        fix = f"Resume with its own settings, {folder / SETTINGS}"
        raise CheckpointError(problem(key.removeprefix("settings."), given, rule, fix))
    if not {"learning", "origin"} <= set(extra):
        raise CheckpointError(problem("training state", sorted(extra), "lacks a part", "Use an untouched copy"))
    if not (folder / BEST).is_file():
        fix = "Put it back, or start a new run"
        raise CheckpointError(problem("best weights", str(folder / BEST), "are no longer there", fix))
    return extra


@contextmanager
def _asked_to_stop() -> Iterator[Callable[[], bool]]:
    """Ctrl-C and SIGTERM ask for the end of the run; the second time they end it."""
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked.is_set
        return

    def ask(number: int, frame: object) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked.is_set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
