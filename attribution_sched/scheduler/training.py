"""Training of Hi-PPO: both agents on whole days, then the ranker by PPO with the fork as its advantage.

from attribution_sched import train

summary = train("hi_ppo", "runs/first")
print(summary.best, summary.gains)

A run leaves in its folder ``best.safetensors``, ``settings.yaml``, ``metrics.jsonl`` with TensorBoard's event files,
and what it needs to go on: ``agents.npz``, the forked decisions, and what stood after every round of the ranker
(``round-1.safetensors`` …). Training uses seeds below 900,000, held-out days
those from there on; the arena's begin at a million.
"""

from __future__ import annotations

import json
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from attribution_sched.cluster.gpus import gpu
from attribution_sched.cluster.world import World
from attribution_sched.config import PpoSettings, TrainingSettings, load_settings, load_training_settings
from attribution_sched.config.scenarios import build_scenario, scenario_names
from attribution_sched.errors import CheckpointError, SettingsError, problem

if TYPE_CHECKING:
    from attribution_sched.cluster.world import World
    from attribution_sched.scheduler.hi_ppo.checkpoint import Weights
    from attribution_sched.scheduler.hi_ppo.forked_decisions import ForkedDecisions
    from attribution_sched.scheduler.hi_ppo.hi_ppo import Round
    from attribution_sched.scheduler.hi_ppo.policy_search import Search
    from attribution_sched.scheduler.ppo.flat import FlatAgent, Progress

# ------ What a training run writes on its way: one JSON line per event, and the same numbers for TensorBoard

METRICS = "metrics.jsonl"
EVENTS = "tensorboard"


class TrainingLog:
    """Metrics of a run that may have been stopped before.

    Args:
        folder: Where ``metrics.jsonl`` and ``tensorboard/`` go.
        after: Iteration and decisions that the run goes on from; what was logged beyond them is forgotten, so the
            log of a resumed run is that of one that never stopped. None begins anew.
    """

    def __init__(self, folder: Path, after: tuple[int, int] | None = None) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.path = folder / METRICS
        kept = [] if after is None else [row for row in read_metrics(self.path) if row["iteration"] <= after[0]]
        self.path.write_text("".join(_line(row) for row in kept), encoding="utf-8")
        self._file = self.path.open("a", encoding="utf-8")
        purge = 0 if after is None else after[1] + 1
        self._writer: Any = SummaryWriter(str(folder / EVENTS), purge_step=purge)

    def write(self, kind: str, iteration: int, decisions: int, numbers: Mapping[str, Any]) -> None:
        """Log one event.

        Args:
            kind: ``cloning``, ``comparing``, ``agents``, ``iteration`` or ``held_out``.
            iteration: Iterations done.
            decisions: Decisions taken, the axis of the plots.
            numbers: Name → number, or name → such a mapping.
        """
        flat = _flat(numbers)
        for name, value in flat.items():
            if value is not None:
                self._writer.add_scalar(f"{kind}/{name}", value, decisions)
        self._file.write(_line({"kind": kind, "iteration": iteration, "decisions": decisions, **flat}))
        self._file.flush()

    def close(self) -> None:
        """Write what is still held back."""
        self._file.close()
        self._writer.close()


def read_metrics(path: str | Path) -> list[dict[str, Any]]:
    """Read the lines of ``metrics.jsonl``; one that a killed process left unfinished ends the list."""
    rows: list[dict[str, Any]] = []
    file = Path(path)
    if not file.is_file():
        return rows
    for line in file.read_text(encoding="utf-8").splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            break
        if not isinstance(row, dict) or not isinstance(row.get("iteration"), int):
            break
        rows.append(row)
    return rows


def _flat(numbers: Mapping[str, Any], prefix: str = "") -> dict[str, float | int | None]:
    """Nested names joined by slashes; numbers that are not finite are None, as JSON has no word for them."""
    flat: dict[str, float | int | None] = {}
    for name, value in numbers.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{name}/")
        else:
            flat[prefix + name] = value if value is not None and math.isfinite(value) else None
    return flat


def _line(row: Mapping[str, Any]) -> str:
    return json.dumps(row, allow_nan=False) + "\n"


# ------ The worlds that Hi-PPO's agents learn in, by name: scenarios of ``cross-domain-easy``, presets, and mixed GPUs

MIXED: tuple[tuple[str, int], ...] = (("A100-80", 8), ("V100-32", 16), ("H100-80", 16), ("A100-40", 32))
"""GPUs and devices of the four domains of ``mixed``; other mixtures are left to judge by."""


def training_world(name: str) -> World:
    """A world by its name.

    Raises:
        SettingsError: If there is neither a scenario nor a preset of that name.
    """
    if name in scenario_names():
        return build_scenario("cross-domain-easy", name)
    if name != "mixed":
        return load_settings(name).build_world()
    world = load_settings("cross-domain-easy").build_world()
    domains = tuple(
        replace(domain, gpu=gpu(kind), devices=devices)
        for domain, (kind, devices) in zip(world.cluster.domains, MIXED, strict=True)
    )
    return replace(world, cluster=replace(world.cluster, domains=domains))


# ------ Training of Hi-PPO: both agents on whole days, then the ranker by PPO with the fork as its advantage

DEFAULT_PRESET = "hi_ppo"
BEST, STATE, SETTINGS, ROUND = "best.safetensors", "agents.npz", "settings.yaml", "round-{}.safetensors"

TESTBED_PPO = PpoSettings(
    lr=5e-3, gamma=0.2, num_steps=2048, update_epochs=2, minibatch_size=512, target_kl=None, entropy_coef=0.01
)
"""How the testbed is learnt: what a placement earns is known within a few decisions."""

FORKED_SEED, FORKED_APART = 510_000, 10_000
"""First seed of the days whose decisions are forked, and how far the next round's lie from them."""

JUDGED_SEED, JUDGED_APART = 950_000, 5_000
"""First seed of the days that judge a round of the ranker, and how far the next round's lie from them."""

Source = str | Path | Mapping[str, Any] | TrainingSettings


@dataclass(frozen=True)
class RankerRound:
    """What a round of the ranker came to.

    Attributes:
        follower: Who played the copies on: ``hi-ppo`` for the agents, ``hi-ppo[ranked]`` for agents and ranker.
        forked: Decisions that were learnt from, those of the rounds before included.
        gains: World → what it gains a day over the policy before it on held-out days, and the half-width.
        kept: Whether it helped, and stands.
    """

    follower: str
    forked: int
    gains: dict[str, tuple[float, float]]
    kept: bool


@dataclass(frozen=True)
class TrainingSummary:
    """What came of a training run.

    Attributes:
        best: The checkpoint.
        gains: World → what the agents gain over the rule a day on held-out days, and the half-width of its interval.
        groups: Groups of corrections that were played.
        rounds: Of the ranker.
        minutes: Processor minutes, of this call.
        interrupted: Whether the run was stopped before its end; ``resume`` goes on.
    """

    best: Path
    gains: dict[str, tuple[float, float]]
    groups: int
    rounds: tuple[RankerRound, ...]
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

    chosen, folder = load_training_settings(settings), Path(output)
    say, show = log or (lambda words: None), progress or (lambda phase, share, words: None)
    _check_folder(folder, resume, start, chosen)
    first = untrained() if start is None else load(start)
    _prepare(folder, chosen)
    began = time.process_time()
    say(f"building {', '.join(chosen.agents.worlds)} (a first run compiles its kernels)")
    worlds = {name: training_world(name) for name in {**chosen.agents.worlds, **chosen.ranker.worlds}}
    notes = TrainingLog(folder, (10**9, 0) if resume else None)
    rounds: list[RankerRound] = []
    try:
        with _asked_to_stop() as asked:

            def ends() -> bool:
                return asked() or (stop is not None and stop())

            weights, gains, groups = _learn_agents(chosen, worlds, first, folder, notes, show, ends)
            about = {"settings": chosen.model_dump(mode="json"), "gains": gains, "groups": groups}
            save(folder / BEST, weights, about)
            for one, stands in _learn_ranker(chosen, worlds, weights, about, folder, notes, show, say, ends):
                rounds.append(one)
                told = {"forked": one.forked, "ranker_gains": rounds[0].gains, "rounds": [asdict(r) for r in rounds]}
                save(folder / BEST, stands, {**about, **told})
            interrupted = ends()
    finally:
        notes.close()
    minutes = (time.process_time() - began) / 60.0
    return TrainingSummary(folder / BEST, gains, groups, tuple(rounds), minutes, interrupted)


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
    else:
        # Before the first look too: a run that is stopped earlier goes on from the same agents.
        _keep_state(folder / STATE, search, state)
    days = {name: Days(worlds[name], count, first) for name, count in course.worlds.items()}

    def told(one: Round, now: Search) -> None:
        if one.kept:
            state["best"] = now.theta
            state["gains"] = {name: (gain.mean, gain.half_width) for name, gain in one.gains.items()}
        state["groups"] = one.groups
        _keep_state(folder / STATE, now, state)
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


def _keep_state(path: Path, search: Search, state: Mapping[str, Any]) -> None:
    """Write where the search stands."""
    held: dict[str, Any] = {name: np.asarray(getattr(search, name)) for name in _SEARCH}
    held |= {"best": state["best"], "names": list(state["gains"])}
    part = path.with_suffix(".part.npz")
    np.savez(part, gains=np.array(list(state["gains"].values())).reshape(-1, 2), **held)
    part.replace(path)


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


def _learn_ranker(
    chosen: TrainingSettings, worlds: Mapping[str, World], weights: Weights, about: Mapping[str, Any], folder: Path,
    notes: Any, show: Callable[[str, float, str], None], say: Callable[[str], None], ends: Callable[[], bool],
) -> Iterator[tuple[RankerRound, Weights]]:  # fmt: skip
    """Round by round: fork days, learn, and keep what helps; each finished round with what stands after it.

    What stands plays the days and the copies of the next round. Rounds that were finished before are read.
    """
    from attribution_sched.scheduler.hi_ppo.checkpoint import describe, load, save
    from attribution_sched.scheduler.hi_ppo.fork_ppo import ForkPpo, learn_ranker

    how = chosen.ranker
    settings = ForkPpo(
        rounds=how.updates, epochs=how.epochs, batch=how.minibatch_size, clip=how.clip, temperature=how.temperature,
        learning_rate=how.lr,
    )  # fmt: skip
    for number in range(how.rounds):
        file = folder / ROUND.format(number + 1)
        if file.is_file():
            told = describe(file)["round"]
            gains = {str(name): (float(mean), float(half)) for name, (mean, half) in told["gains"].items()}
            one = RankerRound(str(told["follower"]), int(told["forked"]), gains, bool(told["kept"]))
            weights = load(file)
        elif ends():
            return
        else:
            follower = "hi-ppo" if weights.ranker is None else "hi-ppo[ranked]"
            say(f"round {number + 1} of the ranker: {_speeds(worlds[next(iter(how.worlds))], weights)}")
            data = _fork_days(chosen, worlds, weights, number, folder, show, ends)
            if data is None or ends():
                return
            say(f"learning from {len(data):,} forked decisions")
            ranked = replace(weights, ranker=learn_ranker(data, settings, chosen.seed))
            found = _judge(chosen, worlds, (weights, ranked), number, show, ends)
            if found is None:
                return
            one = RankerRound(follower, len(data), found, helps(found))
            weights = ranked if one.kept else weights
            seen = {name: {"gain": mean, "half_width": half} for name, (mean, half) in found.items()}
            notes.write("ranker", number + 1, len(data), {"kept": float(one.kept), **seen})
            save(file, weights, {**about, "round": asdict(one)})
        yield one, weights
        if not one.kept:
            return


def _speeds(world: World, weights: Weights) -> str:
    """Who plays copies on, and how many decisions a CPU-second that is, beside the rule's."""
    from attribution_sched.scheduler.hi_ppo.policy_search import Days
    from attribution_sched.scheduler.ranked_follower import RankedFollower

    days = Days(world, 8, weights)
    who, own = "the agents", days.agents
    own.learnt.agents.theta[:] = weights.theta
    if weights.ranker is not None:
        who, own = "agents and ranker", RankedFollower(days.planner, world, weights.theta, weights.ranker, None)
    found = []
    for follower in (own, days.rule):
        days.played(follower, FORKED_SEED)  # Tables are made as they are asked for.
        since, before = time.process_time(), days.decided
        days.played(follower, FORKED_SEED)
        found.append((days.decided - before) / max(1e-9, time.process_time() - since))
    return f"copies are played on by {who}, {found[0]:,.0f} decisions a CPU-second (the rule {found[1]:,.0f})"


def _fork_days(
    chosen: TrainingSettings, worlds: Mapping[str, World], weights: Weights, number: int, folder: Path,
    show: Callable[[str, float, str], None], ends: Callable[[], bool],
) -> ForkedDecisions | None:  # fmt: skip
    """Fork the decisions of a round's days, one file a day; those that are there are not played again.

    Those of earlier rounds are learnt from too: their copies were played on by what stood then.
    """
    from attribution_sched.scheduler.hi_ppo.forked_decisions import ForkedDecisions, ForkingHiPpo, collect_by

    how = chosen.ranker
    days = [(name, day) for name, count in how.worlds.items() for day in range(count)]
    numbers = {name: at for at, name in enumerate(how.worlds)}
    files = [
        folder / f"forked-{name}-{FORKED_SEED + FORKED_APART * earlier + day}.npz"
        for earlier in range(number + 1)
        for name, day in days
    ]
    first = FORKED_SEED + FORKED_APART * number
    policies = {name: ForkingHiPpo(how.futures, weights=weights) for name in how.worlds}
    for done, ((name, day), file) in enumerate(zip(days, files[-len(days) :], strict=True)):
        if ends():
            break
        if not file.is_file():
            decisions = collect_by(policies[name], worlds[name], range(first + day, first + day + 1), numbers[name])
            part = file.with_suffix(".part.npz")
            decisions.save(part)
            part.replace(file)
        show("forking", (done + 1) / len(days), f"{name} {first + day}")
    there = [file for file in files if file.is_file()]
    return ForkedDecisions.load(*there) if there else None


def _judge(
    chosen: TrainingSettings, worlds: Mapping[str, World], rivals: tuple[Weights, Weights], number: int,
    show: Callable[[str, float, str], None], ends: Callable[[], bool],
) -> dict[str, tuple[float, float]] | None:  # fmt: skip
    """World → what the second gains over the first on whole held-out days, and the half-width; None if stopped."""
    from attribution_sched.scheduler.episode import play
    from attribution_sched.scheduler.hi_ppo.coordinator import HiPpo

    how, policies = chosen.ranker, [HiPpo(one, deadline_s=np.inf) for one in rivals]
    gains: dict[str, tuple[float, float]] = {}
    for at, name in enumerate(how.worlds):
        gain = []
        for day in range(how.judged):
            if ends():
                return None
            seed = JUDGED_SEED + JUDGED_APART * number + day
            before, after = (play(worlds[name], policy, seed).reward for policy in policies)
            gain.append(after - before)
            done = (at + (day + 1) / how.judged) / len(how.worlds)
            show("judging", done, f"ranker {np.mean(gain):+.2f} a day, {name}")
        gains[name] = float(np.mean(gain)), float(1.96 * np.std(gain, ddof=1) / np.sqrt(len(gain)))
    return gains


def helps(gains: Mapping[str, tuple[float, float]]) -> bool:
    """Whether gains a day, each with its half-width, are beyond their interval somewhere and below it nowhere."""
    return any(mean > half for mean, half in gains.values()) and all(mean > -half for mean, half in gains.values())


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
    from attribution_sched.cluster.envs.registration import make_testbed_vector
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
