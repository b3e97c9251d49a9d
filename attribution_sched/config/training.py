"""How the learning scheduler learns, as ``presets/hi_ppo.yaml`` and ``presets/hi_ppo_tuned.yaml`` hold it."""

from __future__ import annotations

from pathlib import PurePath
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from attribution_sched.config.schema import (
    Count,
    FilePath,
    Fraction,
    Name,
    NonNegative,
    Record,
    Seed,
    broken_rule,
)
from attribution_sched.limits import Why
from attribution_sched.scheduler.ppo.settings import Kept, LearningRate, Passes, PpoSettings, Switch

MOST_CLUSTERS = 5_000
"""Clusters of all worlds of a course together; each has a seed of its own."""

_KEPT = Why("all of them are kept in memory at once")
MOST_WORLDS = 1_000
FromZero = Annotated[int, Field(strict=True, ge=0, le=10_000_000), _KEPT]
Width = Annotated[int, Field(strict=True, ge=1, le=8_192), Why("a layer has its square in weights")]
Layers = Annotated[int, Field(strict=True, ge=1, le=64), Why("messages of further rounds come from everywhere")]
Minutes = Annotated[float, Field(strict=True, gt=0, le=1e6, allow_inf_nan=False), Why("that is two years")]
Episodes = Annotated[int, Field(strict=True, ge=1, le=10_000), Why("each is played to its end at every measurement")]


class GnnSettings(Record):
    """The encoder of the topology.

    Attributes:
        type: ``GraphSAGE``, ``GAT`` or ``GINE``.
        num_layers: Rounds of message passing.
        hidden_dim: Width between them.
        out_dim: Width of the embedding; the encoder keeps one width, so equal to ``hidden_dim``.
        aggregation: How nodes are pooled.
    """

    type: Literal["GraphSAGE", "GAT", "GINE"] = "GraphSAGE"
    num_layers: Layers = 2
    hidden_dim: Width = 128
    out_dim: Width = 128
    aggregation: Literal["mean", "max", "mean+max"] = "mean"

    @model_validator(mode="after")
    def _one_width(self) -> Self:
        if self.out_dim != self.hidden_dim:
            rule = f"must equal hidden_dim, {self.hidden_dim}: the encoder keeps one width"
            raise broken_rule(rule, "Change one of the two", key=("out_dim",), value=self.out_dim)
        return self

    @property
    def conv(self) -> Literal["edge-sage", "gatv2", "gine"]:
        """The convolution that stands for ``type``: the variant of it that uses the features of the links."""
        return _CONVS[self.type]


_CONVS: dict[str, Literal["edge-sage", "gatv2", "gine"]] = {"GraphSAGE": "edge-sage", "GAT": "gatv2", "GINE": "gine"}


class CourseWorld(Record):
    """Clusters of one world to learn in.

    Attributes:
        preset: Name of a preset or path of a YAML file.
        scenario: What is changed in it, a name of :mod:`attribution_sched.config.scenarios`.
        clusters: How many run side by side.
        pareto: Whether every episode draws its own reward weights.
    """

    preset: FilePath = "cross-domain"
    scenario: Name = "ou30"
    clusters: Count = 64
    pareto: Switch = False

    @property
    def label(self) -> str:
        """What logs call it; a file goes by its name alone."""
        named = PurePath(self.preset).stem if self.preset.endswith((".yaml", ".yml")) else self.preset
        return f"{named}/{self.scenario}" + ("/pareto" if self.pareto else "")


class CloningSettings(Record):
    """What is learnt from a teacher before learning by trial.

    Attributes:
        decisions: Decisions of the teacher that are watched in each world; 0 leaves the phase out.
        searched: Single decisions of random clusters that a local search solves, to be imitated and kept in mind.
        solved: The same, solved by the exact search, which takes longer.
        epochs: Passes over them.
        lr: Learning rate at the start; it falls to a tenth.
        minibatch_size: Decisions per gradient step.
    """

    decisions: FromZero = 19_200
    searched: FromZero = 0
    solved: FromZero = 0
    epochs: Passes = 3
    lr: LearningRate = 1.0e-3
    minibatch_size: Kept = 256


class ComparingSettings(Record):
    """What is learnt from choices that are tried side by side, between the teacher and learning by trial.

    Attributes:
        rounds: Rounds of comparing and learning; 0 leaves the phase out.
        decisions: Decisions that are compared in each world per round.
        epochs: Passes over all comparisons so far, per round.
        lr: Learning rate of a round at its start.
        hold: How much a change has to be worth, in fifths of an average task.
    """

    rounds: FromZero = 0
    decisions: Kept = 480
    epochs: Passes = 4
    lr: LearningRate = 3.0e-4
    hold: NonNegative = 0.3


class AgentsSettings(Record):
    """How both agents learn on whole days of the course's worlds, between comparing and learning by trial.

    Attributes:
        groups: Groups of corrections that are played; 0 leaves the phase out.
        pairs: Corrections of a group, each with its mirror image.
    """

    groups: FromZero = 0
    pairs: Annotated[int, Field(strict=True, ge=2, le=1_000), Why("each is played on every day of its group")] = 10


class EvaluationSettings(Record):
    """How progress is measured, in episodes that are never learnt from.

    Attributes:
        preset: Where; the first world of the course by default.
        scenario: The scenario there; that of the first world by default.
        episodes: How many.
        every: Iterations between two measurements.
    """

    preset: FilePath | None = None
    scenario: Name | None = None
    episodes: Episodes = 32
    every: Count = 25


class CourseSettings(Record):
    """Where, how long and in which steps Hi-PPO learns.

    Attributes:
        worlds: Where it learns, all at once.
        minutes: Length of the learning by trial, measured by ``clock``.
        decisions: Length in decisions; where it is given, minutes do not count.
        clock: Minutes of the processor or of the wall.
        seed: Of first weights, choices, minibatches and clusters.
        head_dim: Units of a policy head.
        stagger: Whether clusters begin at different hours, so that every update sees the whole day.
        upper_every: The upper agent learns in every so many-th iteration, the lower agents in each.
        low_coef: Weight of the lower agents' own reward in their advantage.
        action_value_coef: Weight of the loss of the critics that see the plan.
        lr_end: Learning rate at the end as a share of that at the start.
        bootstrap: Whether what follows the horizon counts (its value is estimated), or an episode ends there for good,
            as the arena scores it.
        rehearsal_coef: Weight of the imitation of given lessons that runs beside the learning by trial.
        demand_tasks: Simulated tasks from which the reading of demands learns that explanations price plans by; 0 takes
            every task for a nominal one.
        cloning: The first phase.
        comparing: The second phase, before learning by trial.
        agents: The third phase: both agents on whole days.
        evaluation: How progress is measured.
    """

    worlds: Annotated[
        tuple[CourseWorld, ...], Field(min_length=1, max_length=MOST_WORLDS), Why("all of them are built at once")
    ] = (CourseWorld(),)
    minutes: Minutes = 20.0
    decisions: Count | None = None
    clock: Literal["cpu", "wall"] = "cpu"
    seed: Seed = 0
    head_dim: Width = 64
    stagger: Switch = True
    upper_every: Count = 1
    low_coef: NonNegative = 0.02
    action_value_coef: NonNegative = 0.25
    lr_end: Fraction = 0.1
    bootstrap: Switch = True
    rehearsal_coef: NonNegative = 0.02
    demand_tasks: FromZero = 0
    cloning: CloningSettings = CloningSettings()
    comparing: ComparingSettings = ComparingSettings()
    agents: AgentsSettings = AgentsSettings()
    evaluation: EvaluationSettings = EvaluationSettings()

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        labels = [world.label for world in self.worlds]
        twice = next((label for label in labels if labels.count(label) > 1), None)
        if twice is not None:
            raise broken_rule("is listed twice", "Raise its clusters, or rename a file", key=("worlds",), value=twice)
        total = sum(world.clusters for world in self.worlds)
        if total > MOST_CLUSTERS:
            rule = f"all clusters together must be at most {MOST_CLUSTERS}"
            raise broken_rule(rule, "Use fewer clusters", key=("worlds",), value=total)
        return self

    @property
    def evaluation_world(self) -> CourseWorld:
        """Where progress is measured."""
        chosen, first = self.evaluation, self.worlds[0]
        return CourseWorld(
            preset=chosen.preset or first.preset,
            scenario=chosen.scenario or first.scenario,
            clusters=chosen.episodes,
        )


class TrainingSettings(Record):
    """Everything that decides how Hi-PPO learns.

    Attributes:
        ppo: The optimiser of both levels.
        gnn: The topology encoder.
        course: Where, how long and in which steps.
    """

    ppo: PpoSettings = PpoSettings()
    gnn: GnnSettings = GnnSettings()
    course: CourseSettings = CourseSettings()

    @model_validator(mode="after")
    def _enough_steps(self) -> Self:
        clusters = sum(world.clusters for world in self.course.worlds)
        if clusters > self.ppo.num_steps:
            rule = f"must be at least the {clusters} clusters of the course: each decides once or more per update"
            raise broken_rule(
                rule, "Raise it or use fewer clusters", key=("ppo", "num_steps"), value=self.ppo.num_steps
            )
        return self
