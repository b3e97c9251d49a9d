"""Plans and outputs in words, English and Chinese."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, get_args

from attribution_sched.errors import ExplanationError, nearest, problem

if TYPE_CHECKING:
    from attribution_sched.cluster.plan import Plan, Replica, Segment

Language = Literal["en", "zh"]

LANGUAGES: tuple[str, ...] = get_args(Language)

WAIT, KEEP = "wait", "keep the plan"
"""What None means for a task in the queue, and for one that runs."""

FAMILIES: tuple[str, ...] = ("link", "load", "queue", "task", "time", "attribution", "plan", "weights", "input")
"""Groups of players."""

_OUTPUTS: dict[str, dict[str, str]] = {
    "en": {
        "R_eff": "speed (R_eff)",
        "R_util": "utilisation (R_util)",
        "R_cost": "cost (R_cost)",
        "R": "reward (R)",
        "log_probability": "log-probability",
        "log_odds": "log-odds",
    },
    "zh": {
        "R_eff": "效率（R_eff）",
        "R_util": "利用率（R_util）",
        "R_cost": "成本（R_cost）",
        "R": "总奖励（R）",
        "log_probability": "对数概率",
        "log-probability": "对数概率",
        "log_odds": "对数几率",
        "log-odds": "对数几率",
        "choice": "选择结果",
        "probability": "概率",
        "output": "输出",
    },
}

_UNITS: dict[str, dict[str, str]] = {
    "en": {
        "R_eff": "share of the baseline's step time",
        "R_util": "compute time / step time",
        "R_cost": "× the baseline's bill",
        "R": "weighted reward",
        "returns": "weighted reward-hours",
        "log_probability": "nats",
        "log_odds": "nats",
        "choice": "share of choices",
    },
    "zh": {
        "R_eff": "占基线步长时间的比例",
        "R_util": "计算时间／步长时间",
        "R_cost": "相对基线费用的倍数",
        "R": "加权奖励",
        "returns": "奖励·小时",
        "log_probability": "nat",
        "log_odds": "nat",
        "choice": "选择比例",
    },
}


def check_language(lang: str) -> None:
    """Raise ``ExplanationError`` unless texts are written in this language."""
    if lang not in LANGUAGES:
        raise ExplanationError(problem("lang", lang, "is not written here", nearest(lang, LANGUAGES)))


def output_name(output: str, lang: str = "en") -> str:
    """An output in words; one that is no reward component keeps its name."""
    check_language(lang)
    return _OUTPUTS[lang].get(output, output)


def output_unit(output: str, target: str, lang: str = "en") -> str:
    """Unit of an output and of its shares; empty if it is not known."""
    check_language(lang)
    words = _UNITS[lang]
    if target == "returns":
        return words["returns"] if lang == "zh" or output == "R" else "reward-hours"
    return words.get(output) or words.get(target, "")


def task_and_plan(subject: str) -> tuple[str, str]:
    """Split a subject such as ``gpt-24: us-east ×8 GPUs …`` into task and plan; the task is empty if not named."""
    task, mark, plan = subject.partition(": ")
    return (task, plan) if mark and not re.fullmatch(r"\d+ replicas", task) else ("", subject)


def quantity_of(player: str, quantity: str, lang: str = "en") -> str:
    """A quantity of a player in words; the player alone where the quantity says no more than its family does."""
    check_language(lang)
    if lang == "zh":
        from attribution_sched.explain.chinese import name_in_chinese

        name = name_in_chinese(player)
        if quantity in FAMILIES or quantity == player:
            return name
        return f"{name}的{name_in_chinese(quantity)}".replace(" 负载的", " 的")
    return player if quantity in FAMILIES or quantity == player else f"{quantity} ({player})"


def unit_of(quantity: str, unit: str, lang: str = "en") -> str:
    """The unit to write after a number of a quantity; none where the quantity names what is counted."""
    check_language(lang)
    if unit and (unit == quantity or unit in quantity.split()):
        return ""
    if lang == "zh":
        from attribution_sched.explain.chinese import unit_in_chinese

        return unit_in_chinese(unit)
    return unit


def describe_plan(plan: Plan | None, domain_names: Sequence[str], lang: str = "en", *, replanning: bool = False) -> str:
    """A plan in words: domains, devices, layout, precision, layers (counted from 1, both ends included), microbatch.

    Args:
        plan: The plan; None leaves a task where it is.
        domain_names: Names of the cluster's domains.
        lang: ``en`` or ``zh``.
        replanning: Whether the task already runs, so that None keeps its plan rather than lets it wait.

    Raises:
        ExplanationError: If the language is not known or the plan names a domain that does not exist.
    """
    check_language(lang)
    if plan is None:
        from attribution_sched.explain.chinese import in_chinese

        words = KEEP if replanning else WAIT
        return words if lang == "en" else in_chinese(words)
    told = [_replica(replica, domain_names, lang) for replica in plan.replicas]
    parts = ", " if lang == "en" else "，"
    text = told[0]
    if len(told) > 1:
        text = f"{len(told)} replicas: " if lang == "en" else f"{len(told)} 个副本："
        text += (" + " if lang == "en" else " ＋ ").join(told)
    return text + (f"{parts}GPipe" if plan.schedule.name == "GPIPE" else "")


def _replica(replica: Replica, domain_names: Sequence[str], lang: str) -> str:
    alone = len(replica.segments) == 1
    chain = " → ".join(_segment(segment, domain_names, lang, alone) for segment in replica.segments)
    return f"{chain}, microbatch {replica.microbatch}" if lang == "en" else f"{chain}，微批 {replica.microbatch}"


def _segment(segment: Segment, domain_names: Sequence[str], lang: str, alone: bool) -> str:
    if not 0 <= segment.domain < len(domain_names):
        fix = "Pass the names of the plan's own cluster"
        raise ExplanationError(problem("domain", segment.domain, f"only {len(domain_names)} have names", fix))
    layout = " · ".join(f"{name} {getattr(segment, name)}" for name in ("dp", "tp", "pp") if getattr(segment, name) > 1)
    inside = [layout, segment.precision.value.upper()] if layout else [segment.precision.value.upper()]
    name, devices = domain_names[segment.domain], segment.device_count
    if lang == "en":
        return f"{name} ×{devices} GPU{'s' * (devices > 1)} ({', '.join(inside)}), {_layers(segment, alone)}"
    layers = f"全部 {segment.stop} 层" if alone else f"第 {layer_span(segment)} 层"
    return f"{name} {devices} 张 GPU（{'，'.join(inside)}）{layers}"


def _layers(segment: Segment, alone: bool) -> str:
    if alone:
        return f"all {segment.stop} layers" if segment.stop > 1 else "its only layer"
    return f"layer{'s' * (segment.stop - segment.first > 1)} {layer_span(segment)}"


def layer_span(segment: Segment) -> str:
    """Layers counted from 1, both ends included."""
    first, last = segment.first + 1, segment.stop
    return str(first) if first == last else f"{first}–{last}"
