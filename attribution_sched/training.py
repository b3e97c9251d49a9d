"""Training of Hi-PPO: both agents on whole days, then the ranker by PPO with the fork as its advantage.

from attribution_sched import train

summary = train("hi_ppo", "runs/first")
print(summary.best, summary.gains)

A run leaves in its folder ``best.safetensors``, ``settings.yaml``, ``metrics.jsonl`` with TensorBoard's event files,
and what it needs to go on: ``agents.npz`` and the forked decisions. Training uses seeds below 900,000, held-out days
those from there on; the arena's begin at a million.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from attribution_sched.config import PpoSettings, TrainingSettings, load_training_settings
from attribution_sched.errors import CheckpointError, SettingsError, problem

if TYPE_CHECKING:
    from attribution_sched.cluster.world import World
    from attribution_sched.scheduler.hi_ppo.checkpoint import Weights
    from attribution_sched.scheduler.hi_ppo.forked_decisions import ForkedDecisions
    from attribution_sched.scheduler.hi_ppo.hi_ppo import Round
    from attribution_sched.scheduler.hi_ppo.policy_search import Search
    from attribution_sched.scheduler.ppo.flat import FlatAgent, Progress

DEFAULT_PRESET = "hi_ppo"
BEST, STATE, SETTINGS = "best.safetensors", "agents.npz", "settings.yaml"

TESTBED_PPO = PpoSettings(
    lr=5e-3, gamma=0.2, num_steps=2048, update_epochs=2, minibatch_size=512, target_kl=None, entropy_coef=0.01
)
"""How the testbed is learnt: what a placement earns is known within a few decisions."""

FORKED_SEED = 510_000
"""First seed of the days whose decisions are forked."""

JUDGED_SEED = 950_000
"""First seed of the days that judge the ranker."""

Source = str | Path | Mapping[str, Any] | TrainingSettings


@dataclass(frozen=True)
class TrainingSummary:
    """What came of a training run.

    Attributes:
        best: The checkpoint.
        gains: World → what the agents gain over the rule a day on held-out days, and the half-width of its interval.
        groups: Groups of corrections that were played.
        forked: Decisions that were forked for the ranker.
        ranker_gain: What the ranker gains over the agents a day on held-out days, and the half-width; None without one.
        ranker_kept: Whether it is in the checkpoint.
        minutes: Processor minutes, of this call.
        interrupted: Whether the run was stopped before its end; ``resume`` goes on.
    """

    best: Path
    gains: dict[str, tuple[float, float]]
    groups: int
    forked: int
    ranker_gain: tuple[float, float] | None
    ranker_kept: bool
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
    progress: Callable[[str, float, str], None] | None = None,
    log: Callable[[str], None] | None = None,
    start: str | Path | None = None,
    stop: Callable[[], bool] | None = None,
) -> TrainingSummary:
    """Train Hi-PPO.

    Ctrl-C (or SIGTERM) lets the group or the day under way end and leaves a state to resume from.

    Args:
        settings: As :func:`~attribution_sched.config.load_training_settings` takes them.
        output: Folder of the run; new or empty unless ``resume``.
        resume: Go on from the state in the folder. The settings must be the run's own.
        progress: Told the phase, the share of it that is done, and words.
        log: Told in words what is done.
        start: Checkpoint whose agents to start from instead of the rule.
        stop: Asked after every group and day; True ends the run as Ctrl-C does.

    Raises:
        SettingsError: If settings are wrong or the folder is not fit.
        CheckpointError: If the state or the start does not fit or is damaged.
    """
    from attribution_sched.scheduler.hi_ppo.checkpoint import load, save
    from attribution_sched.training_log import TrainingLog
    from attribution_sched.training_worlds import training_world

    chosen, folder = load_training_settings(settings), Path(output)
    say, show = log or (lambda words: None), progress or (lambda phase, share, words: None)
    _check_folder(folder, resume, start, chosen)
    first = untrained() if start is None else load(start)
    _prepare(folder, chosen)
    began = time.process_time()
    say(f"building {', '.join(chosen.agents.worlds)} (a first run compiles its kernels)")
    worlds = {name: training_world(name) for name in {**chosen.agents.worlds, **chosen.ranker.worlds}}
    notes = TrainingLog(folder, (10**9, 0) if resume else None)
    forked, judged, kept = 0, None, False
    try:
        with _asked_to_stop() as asked:

            def ends() -> bool:
                return asked() or (stop is not None and stop())

            weights, gains, groups = _learn_agents(chosen, worlds, first, folder, notes, show, ends)
            about = {"settings": chosen.model_dump(mode="json"), "gains": gains, "groups": groups}
            save(folder / BEST, weights, about)
            if chosen.ranker.rounds and not ends():
                data = _fork_days(chosen, worlds, folder, show, ends)
                forked = len(data) if data is not None else 0
                if data is not None and not ends():
                    say(f"learning from {forked:,} forked decisions")
                    weights, judged, kept = _learn_ranker(chosen, worlds, weights, data, notes, show)
                    save(folder / BEST, weights, {**about, "forked": forked, "ranker_gain": judged})
            interrupted = ends()
    finally:
        notes.close()
    minutes = (time.process_time() - began) / 60.0
    return TrainingSummary(folder / BEST, gains, groups, forked, judged, kept, minutes, interrupted)


def untrained() -> Weights:
    """The agents as the rule decides; attributions by the schema's closed form, as everywhere else."""
    from attribution_sched.attribution.schema import closed_form
    from attribution_sched.scheduler.hi_ppo.checkpoint import Weights
    from attribution_sched.scheduler.hi_ppo.upper_agent import rule_theta

    form = closed_form()
    return Weights(rule_theta(), form.unit, form.weight, form.bias)


_SEARCH = ("mean", "covariance", "path", "step_path", "step", "groups")


def _learn_agents(
    chosen: TrainingSettings, worlds: Mapping[str, World], first: Weights, folder: Path, notes: Any,
    show: Callable[[str, float, str], None], ends: Callable[[], bool],
) -> tuple[Weights, dict[str, tuple[float, float]], int]:  # fmt: skip
    from attribution_sched.scheduler.hi_ppo.hi_ppo import learn
    from attribution_sched.scheduler.hi_ppo.policy_search import Days, Search

    course = chosen.agents
    state: dict[str, Any] = {"gains": {}, "groups": 0, "best": first.theta}
    search: Search = Search.begun(first.theta)
    if (folder / STATE).is_file():
        search, state = _agents_state(folder / STATE)
    days = {name: Days(worlds[name], count, first) for name, count in course.worlds.items()}

    def told(one: Round, now: Search) -> None:
        if one.kept:
            state["best"] = now.theta
            state["gains"] = {name: (gain.mean, gain.half_width) for name, gain in one.gains.items()}
        state["groups"] = one.groups
        held: dict[str, Any] = {name: np.asarray(getattr(now, name)) for name in _SEARCH}
        held |= {"best": state["best"], "names": list(state["gains"])}
        np.savez(folder / STATE, gains=np.array(list(state["gains"].values())).reshape(-1, 2), **held)
        told_gains = {name: {"mean": gain.mean, "half_width": gain.half_width} for name, gain in one.gains.items()}
        notes.write("agents", one.groups, one.groups, {"kept": float(one.kept), **told_gains})
        words = ", ".join(f"{name} {gain.mean:+.1f} ± {gain.half_width:.1f}" for name, gain in one.gains.items())
        show("agents", one.groups / max(1, course.groups), words)

    if search.groups < course.groups:
        learn(
            days, course.groups, size=course.members, every=course.every, seed=chosen.seed, search=search, told=told,
            best=state["best"], stop=ends,
        )  # fmt: skip
    return first.with_agents(state["best"]), dict(state["gains"]), int(state["groups"])


def _agents_state(path: Path) -> tuple[Search, dict[str, Any]]:
    from attribution_sched.scheduler.hi_ppo.policy_search import Search

    try:
        with np.load(path) as held:
            arrays = {name: held[name] for name in _SEARCH}
            gains = {str(n): (float(m), float(h)) for n, (m, h) in zip(held["names"], held["gains"], strict=True)}
            best = held["best"]
        mean, covariance, path_, step_path = (arrays[name] for name in _SEARCH[:4])
        search = Search(mean, covariance, path_, step_path, float(arrays["step"]), int(arrays["groups"]))
    except (OSError, KeyError, ValueError) as error:
        rule = "is damaged"
        raise CheckpointError(problem("training state", str(path), rule, "Train again in another folder")) from error
    return search, {"gains": gains, "groups": search.groups, "best": best}


def _fork_days(
    chosen: TrainingSettings, worlds: Mapping[str, World], folder: Path, show: Callable[[str, float, str], None],
    ends: Callable[[], bool],
) -> ForkedDecisions | None:  # fmt: skip
    """Fork the decisions of the ranker's days, one file a day; those that are there are not played again."""
    from attribution_sched.scheduler.hi_ppo.forked_decisions import ForkedDecisions, collect

    days = [(name, FORKED_SEED + day) for name, count in chosen.ranker.worlds.items() for day in range(count)]
    files = [folder / f"forked-{name}-{seed}.npz" for name, seed in days]
    for done, ((name, seed), file) in enumerate(zip(days, files, strict=True)):
        if ends():
            break
        if not file.is_file():
            decisions = collect(worlds[name], range(seed, seed + 1), chosen.ranker.futures, weights=folder / BEST)
            part = file.with_suffix(".part.npz")
            decisions.save(part)
            part.replace(file)
        show("forking", (done + 1) / len(days), f"{name} {seed}")
    there = [file for file in files if file.is_file()]
    return ForkedDecisions.load(*there) if there else None


def _learn_ranker(
    chosen: TrainingSettings, worlds: Mapping[str, World], weights: Weights, data: ForkedDecisions, notes: Any,
    show: Callable[[str, float, str], None],
) -> tuple[Weights, tuple[float, float], bool]:  # fmt: skip
    """Let the ranker learn, and keep it if whole held-out days say so beyond their interval."""
    from dataclasses import replace

    from attribution_sched.scheduler.episode import play
    from attribution_sched.scheduler.hi_ppo.coordinator import HiPpo
    from attribution_sched.scheduler.hi_ppo.fork_ppo import ForkPpo, learn_ranker

    how = chosen.ranker
    settings = ForkPpo(
        rounds=how.rounds, epochs=how.epochs, batch=how.minibatch_size, clip=how.clip, temperature=how.temperature,
        learning_rate=how.lr,
    )  # fmt: skip
    ranked = replace(weights, ranker=learn_ranker(data, settings, chosen.seed))
    world, gain = worlds[next(iter(how.worlds))], []
    policies = [HiPpo(one, deadline_s=np.inf) for one in (weights, ranked)]
    for day in range(how.judged):
        without, with_it = (play(world, policy, JUDGED_SEED + day).reward for policy in policies)
        gain.append(with_it - without)
        show("judging", (day + 1) / how.judged, f"ranker {np.mean(gain):+.2f} a day")
    mean, half = float(np.mean(gain)), float(1.96 * np.std(gain, ddof=1) / np.sqrt(len(gain))) if len(gain) > 1 else 0.0
    kept = mean > half
    notes.write("ranker", 0, len(data), {"gain": mean, "half_width": half, "kept": float(kept)})
    return (ranked if kept else weights), (mean, half), kept


def train_testbed(
    decisions: int = 65_536,
    *,
    preset: Any = "testbed",
    clusters: int = 256,
    seed: int = 0,
    settings: PpoSettings | None = None,
    output: str | Path | None = None,
    progress: Callable[[Progress], bool | None] | None = None,
) -> FlatAgent:
    """Train a network over all 64 actions of ``attribution_sched/Testbed-v0`` by masked PPO.

    Args:
        decisions: Decisions to learn from, over all clusters.
        preset: A four-device preset, a YAML path or ``Settings``.
        clusters: How many run side by side.
        seed: Of weights, draws, minibatches and clusters.
        settings: Hyper-parameters; those tuned for this environment by default.
        output: Checkpoint to write at the end, ``*.safetensors``.
        progress: Called after every rollout; returning True ends the training.

    Raises:
        SettingsError: If a number is out of range.
        CheckpointError: If the checkpoint cannot be written.
    """
    for name, value in (("decisions", decisions), ("clusters", clusters)):
        if type(value) is not int or value < 1:
            raise SettingsError(problem(name, value, "must be a whole number >= 1", "Use for example 256"))
    from attribution_sched.registration import make_testbed_vector
    from attribution_sched.scheduler.ppo.flat import FlatAgent

    agent = FlatAgent(make_testbed_vector(clusters, preset), settings or TESTBED_PPO, seed)
    agent.train(decisions, progress)
    if output is not None:
        agent.save(output)
    return agent


def _check_folder(folder: Path, resume: bool, start: str | Path | None, chosen: TrainingSettings) -> None:
    if resume and start is not None:
        raise SettingsError(
            problem("start", str(start), "a resumed run has weights of its own", "Leave one of them out")
        )
    if folder.exists() and not folder.is_dir():
        raise SettingsError(problem("output", str(folder), "must be a folder", "Choose another name"))
    full = folder.is_dir() and any(folder.iterdir())
    if resume:
        if not (folder / SETTINGS).is_file():
            rule = "holds no training run to resume"
            raise SettingsError(problem("output", str(folder), rule, "Check the path, or train without resume"))
        stored = load_training_settings(folder / SETTINGS)
        odd = next((f for f in type(chosen).model_fields if getattr(stored, f) != getattr(chosen, f)), None)
        if odd is not None:
            rule = f"the run that was stopped had {getattr(stored, odd)!r}"
            fix = f"Resume with its own settings, {folder / SETTINGS}"
            raise CheckpointError(problem(odd, getattr(chosen, odd), rule, fix))
    elif full:
        rule = "must be a new or empty folder, so that no run overwrites another"
        raise SettingsError(problem("output", str(folder), rule, "Choose another, or resume the run that is there"))


def _prepare(folder: Path, settings: TrainingSettings) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / SETTINGS).write_text(settings.to_yaml(), encoding="utf-8")
    except OSError as error:
        rule = f"cannot be written to ({error.strerror or error})"
        raise SettingsError(problem("output", str(folder), rule, "Choose another folder")) from error


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
