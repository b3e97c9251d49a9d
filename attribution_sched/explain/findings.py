"""What is found beside the shares of a decision: readings, thresholds, flips, interactions, confidence."""

from __future__ import annotations

from dataclasses import dataclass

OTHERS = "other inputs"
"""Name of the player that the others are together."""

THINKING = "thinking"
"""Name and family of the player that thinking is."""

EXPERIENCE = "experience"
"""Name and family of the player that is what PPO on the fork learnt over the agents."""


@dataclass(frozen=True)
class Player:
    """A named input, or a group of inputs that belong together.

    Attributes:
        name: Unique and short, such as ``link us-east–eu-west``.
        group: Family it belongs to: link, load, queue, task, time, attribution, plan, part, weights or input.
        value: What it is in the decision, with units, such as ``3.2 Gb/s, 41 ms``.
        usual: What it is in the background on average, in the same words.
        number: Its main number in the decision, for axes and colours; NaN if it has none.
        usual_number: The same on average in the background.
        unit: Unit of these numbers; empty for shares.
    """

    name: str
    group: str
    value: str = ""
    usual: str = ""
    number: float = float("nan")
    usual_number: float = float("nan")
    unit: str = ""


@dataclass(frozen=True)
class Change:
    """One quantity moved: where from, where to."""

    player: str
    quantity: str
    before: float
    after: float
    unit: str


@dataclass(frozen=True)
class Counterfactual:
    """The smallest change found that flips the decision.

    Attributes:
        changes: What is moved.
        size: How far, in units of what the background usually shows (1 = one standard deviation).
        plan: What the policy does then, in words.
        verified: Whether the policy was run on the changed decision and did flip; False only while searching.
    """

    changes: tuple[Change, ...]
    size: float
    plan: str
    verified: bool


@dataclass(frozen=True)
class Rule:
    """A threshold of one quantity at which the policy changes its mind, everything else being as it was.

    Attributes:
        player: The input.
        quantity: What of it, such as ``bandwidth``.
        unit: Its unit.
        value: What it was.
        threshold: Where the choice flips; the choice made holds on the value's side of it.
        side: ``above`` or ``below``: where of the threshold the value lies.
        plan: The choice on the other side, in words.
    """

    player: str
    quantity: str
    unit: str
    value: float
    threshold: float
    side: str
    plan: str


@dataclass(frozen=True)
class Interaction:
    """How much two inputs do together beyond what each does alone.

    Attributes:
        first: One input.
        second: The other.
        output: What they act on.
        value: How much.
        standard_error: Its standard error.
        degrees: Independent estimates behind it; 0 if nothing is random.
    """

    first: str
    second: str
    output: str
    value: float
    standard_error: float
    degrees: int = 0


@dataclass(frozen=True)
class Confidence:
    """How sure the policy was.

    Attributes:
        probability: Of the plan it chose; NaN if the policy has none to tell.
        runner_up: The next plan, in words; empty if there is none.
        runner_up_probability: Its probability.
        agreement: Share of like situations (inputs as they vary in the background) with the same choice; NaN if not
            asked for.
    """

    probability: float
    runner_up: str = ""
    runner_up_probability: float = float("nan")
    agreement: float = float("nan")
