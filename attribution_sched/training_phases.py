"""The phases of a training run: a teacher is imitated, choices are compared, clusters are spread over the day."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from attribution_sched.config import TrainingSettings

if TYPE_CHECKING:
    from attribution_sched.cluster.world import World
    from attribution_sched.scheduler.hi_ppo.cloning import Lesson
    from attribution_sched.scheduler.hi_ppo.held_out import HeldOut
    from attribution_sched.scheduler.hi_ppo.learning import Learning
    from attribution_sched.scheduler.hi_ppo.network import HiPpoNetwork
    from attribution_sched.training_log import TrainingLog

SEEDS_PER_RUN = 10_000
RUNS = 80
"""Clusters of run s begin at seed ``SEEDS_PER_RUN · (s mod RUNS)``, always below the held-out seeds."""


def first_seed(seed: int) -> int:
    """Where the seeds of a run's clusters begin."""
    return SEEDS_PER_RUN * (seed % RUNS)


def build_worlds(settings: TrainingSettings) -> dict[str, World]:
    """Every world of the course and that of the held-out episodes, by label."""
    from attribution_sched.config.scenarios import build_scenario

    listed = [*settings.course.worlds, settings.course.evaluation_world]
    return {one.label: build_scenario(one.preset, one.scenario) for one in listed}


def attribute(network: HiPpoNetwork) -> None:
    """Fix how counters become attributions: as in ``System`` and the environments, by the schema's closed form."""
    from attribution_sched.attribution.schema import closed_form

    form = closed_form()
    network.set_attribution(form.unit, form.weight, form.bias)


def recorded(settings: TrainingSettings, say: Callable[[str], None]) -> list[Lesson]:
    """Single decisions of random clusters, solved and retold as Hi-PPO's own choices; the same for the same seed."""
    from itertools import islice

    from attribution_sched.scheduler.hi_ppo.cloning import retell
    from attribution_sched.scheduler.seq2seq.traces import Range, teach

    lessons: list[Lesson] = []
    cloning = settings.course.cloning
    for teacher, count in (("search", cloning.searched), ("exact", cloning.solved)):
        if count:
            say(f"solving {count} single decisions by {teacher}")
            traces = islice(teach(settings.course.seed, Range(domains=(3, 8)), teacher=teacher), count)
            lessons += retell(list(traces))[0]
    return lessons


def course_fields(
    settings: TrainingSettings, worlds: Mapping[str, World], network: HiPpoNetwork, offset: int
) -> list[Any]:
    """The clusters of the course; no two have the same seed."""
    from attribution_sched.scheduler.hi_ppo.cluster_batch import ClusterBatch

    fields, seed = [], first_seed(settings.course.seed) + offset
    for one in settings.course.worlds:
        fields.append(
            ClusterBatch(worlds[one.label], one.clusters, seed, network.attributions, one.label, pareto=one.pareto)
        )
        fields[-1].read_hours(network)
        seed += one.clusters
    return fields


def imitate(
    settings: TrainingSettings,
    worlds: Mapping[str, World],
    learning: Learning,
    lessons: list[Lesson],
    notes: TrainingLog,
    say: Callable[[str], None],
) -> list[Lesson]:
    """Phase one: watch the rule in every world, learn its choices and those of the lessons given; returns them all."""
    import torch

    from attribution_sched.scheduler.hi_ppo.cloning import clone, watch
    from attribution_sched.scheduler.hi_ppo.teachers import ShortestFirst

    course = settings.course
    cloning, clusters = course.cloning, sum(one.clusters for one in course.worlds)
    learning.tell("cloning")
    if cloning.decisions:
        say(f"watching {cloning.decisions:,} decisions of a rule in each world")
        for field in course_fields(settings, worlds, learning.trainer.network, clusters):
            steps = math.ceil(cloning.decisions / field.clusters)
            lessons.append(watch(field, ShortestFirst(), steps, settings.ppo.gamma))
    if not lessons:
        return lessons
    say(f"imitating {sum(len(lesson.trace.task) for lesson in lessons):,} decisions, {cloning.epochs} epochs")
    network = learning.trainer.network
    generator = torch.Generator(next(network.parameters()).device).manual_seed(course.seed)
    losses = clone(network, lessons, cloning.epochs, cloning.lr, cloning.minibatch_size, generator)
    for epoch, loss in enumerate(losses, 1):
        notes.write("cloning", 0, epoch, {"loss": loss})
    return lessons


def improve(
    settings: TrainingSettings,
    worlds: Mapping[str, World],
    learning: Learning,
    lessons: list[Lesson],
    held_out: HeldOut,
    notes: TrainingLog,
    say: Callable[[str], None],
) -> None:
    """Phase two: other choices are tried side by side, and the better ones preferred."""
    from attribution_sched.scheduler.hi_ppo import expert_iteration
    from attribution_sched.scheduler.hi_ppo.teachers import ShortestFirst

    course = settings.course
    comparing, clusters = course.comparing, sum(one.clusters for one in course.worlds)
    if not comparing.rounds:
        return
    say(f"comparing choices, {comparing.decisions:,} decisions in each world and round")
    learning.tell("comparing")

    def told(one: expert_iteration.Round) -> None:
        words = "kept" if one.kept else "undone"
        say(f"round {one.number}: held-out return {one.before:.2f} -> {one.after:.2f}, {words}")
        numbers = {"worth": one.worth, "before": one.before, "after": one.after, "kept": int(one.kept)}
        notes.write("comparing", 0, one.number, numbers)

    network = learning.trainer.network
    expert_iteration.improve(
        network, course_fields(settings, worlds, network, 2 * clusters), lessons, held_out, ShortestFirst(),
        rounds=comparing.rounds, decisions=comparing.decisions, epochs=comparing.epochs,
        lr=comparing.lr, hold=comparing.hold, seed=course.seed, told=told,
    )  # fmt: skip


def learn_agents(
    settings: TrainingSettings,
    worlds: Mapping[str, World],
    network: HiPpoNetwork,
    notes: TrainingLog,
    say: Callable[[str], None],
) -> None:
    """Phase three: both agents learn on whole days of every world; what does not help on held-out days is undone."""
    from attribution_sched.scheduler.hi_ppo.hi_ppo import Round, learn
    from attribution_sched.scheduler.hi_ppo.policy_search import Days

    course = settings.course
    if not course.agents.groups:
        return
    say(f"learning from whole days, {course.agents.groups} groups")

    def told(one: Round, search: object) -> None:
        words = ", ".join(f"{name} {gain.mean:+.2f} ± {gain.half_width:.2f}" for name, gain in one.gains.items())
        say(f"group {one.groups}: over the rule {words}, {'kept' if one.kept else 'undone'}")
        notes.write("agents", 0, one.groups, {name: gain.mean for name, gain in one.gains.items()})

    days = {one.label: Days(worlds[one.label], one.clusters, network) for one in course.worlds if not one.pareto}
    size = 2 * course.agents.pairs
    network.set_agents(learn(days, course.agents.groups, size=size, seed=course.seed, told=told))


def spread(settings: TrainingSettings, learning: Learning, say: Callable[[str], None]) -> None:
    """Bring the clusters to different hours, by the network as it is after imitating."""
    from attribution_sched.scheduler.hi_ppo.cluster_batch import stagger
    from attribution_sched.scheduler.hi_ppo.evaluate import NetworkActor

    if settings.course.stagger:
        say("spreading the clusters over the hours of an episode")
        learning.tell("staggering")
        for field in learning.trainer.fields:
            stagger(field, NetworkActor(learning.trainer.network, learning.trainer.generator))
