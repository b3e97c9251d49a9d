"""How Hi-PPO learns, as ``presets/hi_ppo.yaml`` holds it."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from attribution_sched.config.fields import Count, Name, Record, Seed, between, broken_rule
from attribution_sched.limits import Rationale

MOST_DAYS = 10_000
"""Days of all worlds of a group together: all are played side by side."""

MOST_WORLDS = 100
FromZero = Annotated[int, between(0, 1_000_000), Rationale("more would never end")]
Members = Annotated[int, between(4, 1_000), Rationale("each is played on every day of its group")]
Futures = Annotated[int, between(4, 256), Rationale("each candidate of each decision meets all of them")]
Passes = Annotated[int, between(1, 1_000), Rationale("more passes learn the noise")]
Positive = Annotated[float, between(0.0, 1e3, "(]"), Rationale("it is a rate or a ratio")]
Judged = Annotated[int, between(2, 5_000), Rationale("one day has no interval; every round has its own days")]
Rounds = Annotated[
    int, between(0, 9),
    Rationale("each forks days of its own; how often PPO replaces its old policy is ranker.updates"),
]  # fmt: skip


def _few_days(worlds: dict[str, int]) -> dict[str, int]:
    days = sum(worlds.values())
    if days > MOST_DAYS:
        raise broken_rule(f"all days together must be at most {MOST_DAYS}", "Use fewer", value=days)
    return worlds


Worlds = Annotated[
    dict[Name, Count], Field(min_length=1, max_length=MOST_WORLDS), AfterValidator(_few_days),
    Rationale("all of them are built at once"),
]  # fmt: skip


class AgentsSettings(Record):
    """How the numbers of both agents are found: groups of corrections on the same whole days.

    Attributes:
        worlds: Scenario of ``cross-domain-easy``, preset or ``mixed`` → days of each group there.
        groups: Groups that are played.
        members: Corrections of a group, half of them mirror images.
        every: Groups between two looks at held-out days.
    """

    worlds: Worlds = Field(
        default={"ou30": 90, "burst": 45, "load+20": 24, "domains-8": 10, "mixed": 60, "testbed": 45},
        validate_default=True,
    )
    groups: FromZero = 80
    members: Members = 20
    every: Count = 10

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.members % 2:
            raise broken_rule("must be even: half are mirror images", "Use 20", key=("members",), value=self.members)
        return self


class RankerSettings(Record):
    """How the ranker learns by PPO on the fork, round by round.

    Attributes:
        worlds: World → days whose decisions are forked, others in every round.
        futures: That every candidate meets.
        rounds: How often days are forked and learnt from: from the second round on, copies are played on by what the
            last one has taught. A round that does not help on held-out days is undone, and is the last. 0 leaves the
            ranker out.
        updates: How often PPO replaces its old policy by the new one, in each round.
        epochs: Passes over the decisions in each of these.
        minibatch_size: Decisions per step.
        clip: ε of the clipped objective.
        temperature: At which policies are compared.
        lr: Learning rate.
        judged: Held-out days of each of its worlds, two at least, others in every round. A round is kept if it gains
            beyond its interval over what was before somewhere, and loses beyond it nowhere.
    """

    worlds: Worlds = Field(default={"testbed": 40, "ou30": 40, "cross-domain": 40}, validate_default=True)
    futures: Futures = 16
    rounds: Rounds = 1
    updates: Passes = 30
    epochs: Passes = 2
    minibatch_size: Count = 512
    clip: Positive = 0.2
    temperature: Positive = 4.0
    lr: Positive = 3.0e-3
    judged: Judged = 40


class TrainingSettings(Record):
    """Everything that decides how Hi-PPO learns.

    Attributes:
        seed: Of draws, days and first numbers.
        agents: The first phase.
        ranker: The second phase.
    """

    seed: Seed = 0
    agents: AgentsSettings = AgentsSettings()
    ranker: RankerSettings = RankerSettings()
