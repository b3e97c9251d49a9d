"""The reasoning in English, section by section."""

from __future__ import annotations

import math
from collections.abc import Sequence

from attribution_sched.explain import facts
from attribution_sched.explain.digits import alike, apart, number, percent, share
from attribution_sched.explain.explanation import COMPONENTS, TARGETS, Explanation
from attribution_sched.explain.findings import Change, Player
from attribution_sched.explain.wording import KEEP, WAIT, output_name, quantity_of, task_and_plan, unit_of

METHODS: dict[str, str] = {
    "exact": "exact Shapley values (all coalitions)",
    "permutation": "Shapley values estimated from antithetic permutations",
    "kernel": "Shapley values estimated by paired kernel regression",
    "amortised": "an amortised estimate of Shapley values (predicted by a network, not sampled)",
}


def decision(explanation: Explanation) -> str:
    """What was chosen, and how surely."""
    task, plan = task_and_plan(explanation.subject)
    text = f"Decision {explanation.decision}{f' ({task})' if task else ''}: {explanation.policy} "
    text += f"chose {_choice(plan)}" if plan else "decided"
    sure = explanation.confidence
    if sure is not None and math.isfinite(sure.probability):
        text += f" (probability {percent(sure.probability)})"
    if explanation.against:
        text += f", rather than {_choice(explanation.against)}"
    if sure is None:
        return f"{text}."
    chance = f" ({percent(sure.runner_up_probability)})" if math.isfinite(sure.runner_up_probability) else ""
    if sure.runner_up and sure.runner_up == explanation.against:
        text += f"{chance}"
    elif sure.runner_up:
        text += f"; the likeliest other choice that was met is {_choice(sure.runner_up)}{chance}"
    text += "."
    if math.isfinite(sure.agreement):
        text += f" In {percent(sure.agreement)} of like situations it makes the same choice."
    return text


def worth(explanation: Explanation) -> str:
    """Outputs of the decision against the background's mean."""
    lead = f"Explained is {TARGETS[explanation.target]}"
    if explanation.against and explanation.target not in facts.BEHAVIOUR:
        lead += ", as the difference between the two plans"
    parts = [_against_usual(explanation, output) for output in facts.per_output(explanation)]
    text = f"{lead}: {parts[0]}"
    if len(parts) > 1:
        text += f"; {_list(parts[1:])}"
    if explanation.weights is not None and explanation.main == "R":
        eff, util, cost = (number(weight) for weight in explanation.weights)
        text += f"; R = {eff}·R_eff + {util}·R_util − {cost}·R_cost"
    return f"{text}."


def drivers(explanation: Explanation, most: int) -> str:
    """The certain drivers of every output."""
    seen: set[str] = set()
    told: list[str] = []
    without: list[str] = []
    idle: list[str] = []
    for output in facts.per_output(explanation):
        found = facts.drivers(explanation, output, most)
        if found.named:
            told.append(_drivers(explanation, found, seen))
        else:
            (idle if facts.idle(explanation, output) else without).append(output_name(output))
        seen |= {driver.player.name for driver in found.named}
    if without:
        outputs = _list(without, "or")
        told.append(f"No input can be named as a driver of {outputs}: every 95 % interval includes 0.")
    if idle:
        told.append(f"No input moves {_list(idle, 'or')} at all.")
    return " ".join(told)


def interaction(explanation: Explanation) -> str:
    """The strongest interaction that is certain."""
    found = facts.interaction(explanation)
    if found is None:
        return ""
    pair, half = found
    return (
        f"Together, {pair.first} and {pair.second} change {output_name(pair.output)} by {share(pair.value, half)} "
        "beyond what each does alone."
    )


def rule(explanation: Explanation) -> str:
    """Thresholds at which the choice flips, two at most."""
    told = []
    for found in explanation.rules[:2]:
        value, threshold = apart(found.value, found.threshold, unit_of(found.quantity, found.unit))
        beyond = "below" if found.side == "above" else "above"
        told.append(
            f"The choice holds while {quantity_of(found.player, found.quantity)} stays {found.side} {threshold} "
            f"(it was {value}); "
            f"{beyond} that, all else being equal, the policy would choose {_again(explanation, found.plan)}."
        )
    return " ".join(told)


def counterfactual(explanation: Explanation) -> str:
    """The smallest change that flips the choice."""
    found = explanation.counterfactual
    if found is None:
        return ""
    checked = "checked by running the policy" if found.verified else "not yet checked by running the policy"
    size = f"{number(found.size, 2)} standard deviation{'' if found.size == 1.0 else 's'} of the background"
    return (
        f"The smallest change found that flips it: {_list([_change(change) for change in found.changes])} "
        f"({size}); then the policy chooses {_again(explanation, found.plan)} ({checked})."
    )


def method(explanation: Explanation) -> str:
    """How the numbers were found, and what a reader must know."""
    how = METHODS.get(explanation.method, explanation.method)
    text = f"The shares are {how}"
    if explanation.rows:
        text += f", {explanation.rows:,} situations"
    if explanation.background:
        source = f" ({explanation.background_name})" if explanation.background_name else ""
        text += f" over {explanation.background:,} background state{'s' * (explanation.background != 1)}{source}"
    text += f", seed {explanation.seed}"
    text += "; ± is half a 95 % interval." if explanation.standard_error.any() else "."
    if not explanation.converged:
        text += " The precision asked for was not reached."
    if explanation.target in facts.BEHAVIOUR:
        text += " Probabilities and log-odds do not split into reward components."
    for note in explanation.notes:
        text += f" {note[:1].upper()}{note[1:].rstrip('.')}."
    return text


def _choice(plan: str) -> str:
    return f"to {plan}" if plan in (WAIT, KEEP) else plan


def _again(explanation: Explanation, plan: str) -> str:
    return "that other plan" if facts.told_before(explanation, plan) and plan not in (WAIT, KEEP) else _choice(plan)


def _against_usual(explanation: Explanation, output: str) -> str:
    c = explanation.column(output)
    value, base = float(explanation.value[c]), float(explanation.base[c])
    shown, usual = alike(value, base)
    if shown == usual:
        return f"{output_name(output)} is {shown}, as it is on average over the background"
    text = f"{output_name(output)} is {shown} against {usual} on average ({number(value - base, signed=True)}"
    if output in COMPONENTS and not facts.direction(explanation, output):
        return f"{text}; of weight 0)"
    good = facts.direction(explanation, output) * (value - base)
    words = ("likelier", "less likely") if explanation.target in facts.BEHAVIOUR else ("better", "worse")
    return f"{text}, {words[0]})" if good > 0 else f"{text}, {words[1]})" if good < 0 else f"{text})"


def _drivers(explanation: Explanation, found: facts.Drivers, seen: set[str]) -> str:
    good = facts.direction(explanation, found.output)
    name = output_name(found.output)
    text = f"{name[:1].upper()}{name[1:]}"
    if good < 0:
        text += ", where less is better"
    elif good == 0 and found.output in COMPONENTS:
        text += ", of weight 0"
    heads = ("for the choice speak", "against it") if good else ("raised by", "lowered by")
    parts: list[str] = []
    for sign, head in zip((1, -1), heads, strict=True):
        listed = [driver for driver in found.named if driver.share * sign * (good or 1) > 0]
        if listed:
            lead = "against the choice speak" if head == "against it" and not parts else head
            lead = lead.replace("speak", "speaks") if len(listed) == 1 else lead
            parts.append(f"{lead} {_list([_driver(driver, seen) for driver in listed])}")
    text = f"{text}: {', '.join(parts)}"
    if found.others:
        inputs = "the other input comes to" if found.others == 1 else f"the other {found.others} inputs come to"
        text += f"; {inputs} {number(found.rest, 2, signed=True)}"
    return f"{text}."


def _driver(driver: facts.Driver, seen: set[str]) -> str:
    reading = "" if driver.player.name in seen else _reading(driver.player)
    return f"{driver.player.name} ({share(driver.share, driver.half)}{reading})"


def _reading(player: Player) -> str:
    if not player.value:
        return ""
    return f"; {player.value}, usually {player.usual}" if player.usual else f"; {player.value}"


def _change(change: Change) -> str:
    before, after = apart(change.before, change.after, unit_of(change.quantity, change.unit))
    return f"{quantity_of(change.player, change.quantity)} from {before} to {after}"


def _list(parts: Sequence[str], word: str = "and") -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} {word} {parts[-1]}"
