"""The reasoning in Chinese, section by section; written for Chinese readers, not translated sentence by sentence."""

from __future__ import annotations

import math

from attribution_sched.explain import facts
from attribution_sched.explain.chinese import (
    NOTES,
    in_chinese,
    name_in_chinese,
    reading_in_chinese,
    spaced,
)
from attribution_sched.explain.digits import alike, apart, number, percent, share
from attribution_sched.explain.explanation import COMPONENTS, Explanation
from attribution_sched.explain.findings import Change, Player
from attribution_sched.explain.wording import KEEP, WAIT, output_name, quantity_of, task_and_plan, unit_of

METHODS: dict[str, str] = {
    "exact": "枚举全部联盟精确求得",
    "permutation": "对偶排列抽样估计",
    "kernel": "成对采样的核回归估计",
    "amortised": "摊销估计（由训练好的网络直接预测，并非逐次采样）",
}

TARGETS: dict[str, str] = {
    "terms": "策略所预期的方案自身奖励",
    "returns": "策略评论器所预期的集群后续收益",
    "simulator": "仿真器算出的方案自身奖励",
    "log_probability": "选中该方案的对数概率",
    "log_odds": "该方案相对另一方案的对数几率",
    "choice": "策略是否选中该方案（选中为 1，否则为 0）",
    "model": "模型的输出",
}


def decision(explanation: Explanation) -> str:
    """What was chosen, and how surely."""
    task, plan = task_and_plan(explanation.subject)
    text = f"决策 {explanation.decision}{f'（{task}）' if task else ''}：策略 {explanation.policy} "
    text += f"选择{_choice(plan)}" if plan else "作出决策"
    sure = explanation.confidence
    if sure is not None and math.isfinite(sure.probability):
        text += f"（概率 {_percent(sure.probability)}）"
    if explanation.against:
        text += f"，而非{_choice(explanation.against)}"
    if sure is None:
        return spaced(f"{text}。")
    chance = f"（概率 {_percent(sure.runner_up_probability)}）" if math.isfinite(sure.runner_up_probability) else ""
    if sure.runner_up and sure.runner_up == explanation.against:
        text += chance
    elif sure.runner_up:
        text += f"，所见其他选择中最可能的是{_choice(sure.runner_up)}{chance}"
    if math.isfinite(sure.agreement):
        text += f"；在相近的情形下，有 {_percent(sure.agreement)} 会作出同样的选择"
    return spaced(f"{text}。")


def worth(explanation: Explanation) -> str:
    """Outputs of the decision against the background's mean."""
    what = TARGETS[explanation.target]
    between = explanation.against and explanation.target not in facts.BEHAVIOUR
    lead = f"此处解释的是两个方案之间的差值（{what}）" if between else f"此处解释的是{what}"
    parts = [_against_usual(explanation, output) for output in facts.per_output(explanation)]
    text = f"{lead}：{parts[0]}"
    if len(parts) > 1:
        text += f"；其中，{'；'.join(parts[1:])}"
    if explanation.weights is not None and explanation.main == "R":
        eff, util, cost = (number(weight) for weight in explanation.weights)
        text += f"。总奖励按 R = {eff}·R_eff + {util}·R_util − {cost}·R_cost 合成"
    return spaced(f"{text}。")


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
            (idle if facts.idle(explanation, output) else without).append(_name(output))
        seen |= {driver.player.name for driver in found.named}
    if without:
        told.append(f"{'、'.join(without)}没有可以确认的驱动因素：所有输入的 95% 置信区间都包含 0。")
    if idle:
        told.append(f"{'、'.join(idle)}不受任何输入影响。")
    return spaced("".join(told))


def interaction(explanation: Explanation) -> str:
    """The strongest interaction that is certain."""
    found = facts.interaction(explanation)
    if found is None:
        return ""
    pair, half = found
    first, second = name_in_chinese(pair.first), name_in_chinese(pair.second)
    return spaced(
        f"{first}与{second}存在交互作用：在各自的影响之外，"
        f"两者共同使{_name(pair.output)}再变化 {share(pair.value, half)}。"
    )


def rule(explanation: Explanation) -> str:
    """Thresholds at which the choice flips, two at most."""
    told = []
    for found in explanation.rules[:2]:
        value, threshold = apart(found.value, found.threshold, unit_of(found.quantity, found.unit, "zh"))
        side, beyond = ("高于", "低于") if found.side == "above" else ("低于", "高于")
        told.append(
            f"其他条件不变时，只要{quantity_of(found.player, found.quantity, 'zh')}{side} {threshold}"
            f"（当时为 {value}），"
            f"就会维持这一选择；一旦{beyond}该阈值，策略会改选{_again(explanation, found.plan)}。"
        )
    return spaced("".join(told))


def counterfactual(explanation: Explanation) -> str:
    """The smallest change that flips the choice."""
    found = explanation.counterfactual
    if found is None:
        return ""
    checked = "已运行策略验证" if found.verified else "尚未运行策略验证"
    changes = "，同时".join(_change(change) for change in found.changes)
    return spaced(
        f"足以改变决策的最小改动是：{changes}（约为背景状态的 {number(found.size, 2)} 个标准差），"
        f"此时策略会选择{_again(explanation, found.plan)}（{checked}）。"
    )


def method(explanation: Explanation) -> str:
    """How the numbers were found, and what a reader must know."""
    text = f"各项份额为 Shapley 值，由{METHODS.get(explanation.method, explanation.method)}"
    if explanation.method == "amortised":
        text = f"各项份额是 Shapley 值的{METHODS['amortised']}"
    if explanation.rows:
        text += f"，共计算 {explanation.rows:,} 种情形"
    if explanation.background:
        source = f"（来自{name_in_chinese(explanation.background_name)}）" if explanation.background_name else ""
        text += f"，背景状态 {explanation.background:,} 个{source}"
    text += f"，随机种子 {explanation.seed}"
    text += "；± 为 95% 置信区间的半宽。" if explanation.standard_error.any() else "。"
    if not explanation.converged:
        text += "未达到所要求的精度。"
    if explanation.target in facts.BEHAVIOUR:
        text += "概率与对数几率不能拆分为各奖励分量。"
    text = spaced(text)
    text += "".join(NOTES.get(note, "") for note in explanation.notes)
    unknown = [note for note in explanation.notes if note not in NOTES]
    if unknown:
        text += f"附注（原文）：{'；'.join(f'“{note}”' for note in unknown)}。"
    return text


def _choice(plan: str) -> str:
    words = in_chinese(plan)
    return words if plan in (WAIT, KEEP) else f"方案「{words}」"


def _again(explanation: Explanation, plan: str) -> str:
    return "上述另一方案" if facts.told_before(explanation, plan) and plan not in (WAIT, KEEP) else _choice(plan)


def _against_usual(explanation: Explanation, output: str) -> str:
    c = explanation.column(output)
    value, base = float(explanation.value[c]), float(explanation.base[c])
    shown, usual = alike(value, base)
    if shown == usual:
        return f"{_name(output)}为 {shown}，与背景均值相同"
    gap = f"{'高' if value > base else '低'} {number(abs(value - base))}"
    text = f"{_name(output)}为 {shown}，比背景均值 {usual} {gap}"
    if output in COMPONENTS and not facts.direction(explanation, output):
        return f"{text}（权重为 0，不计入总奖励）"
    good = facts.direction(explanation, output) * (value - base)
    words = ("更可能被选中", "更不可能被选中") if explanation.target in facts.BEHAVIOUR else ("更优", "更差")
    return f"{text}（{words[0]}）" if good > 0 else f"{text}（{words[1]}）" if good < 0 else text


def _drivers(explanation: Explanation, found: facts.Drivers, seen: set[str]) -> str:
    good = facts.direction(explanation, found.output)
    name = _name(found.output)
    if good < 0:
        name = name.replace("）", "，越低越好）") if name.endswith("）") else f"{name}（越低越好）"
    elif good == 0 and found.output in COMPONENTS:
        name = name.replace("）", "，权重为 0）")
    heads = ("支持该选择的有", "不利的有") if good else ("使其升高的有", "使其降低的有")
    parts = []
    for sign, head in zip((1, -1), heads, strict=True):
        listed = [driver for driver in found.named if driver.share * sign * (good or 1) > 0]
        if listed:
            parts.append(f"{head}{'、'.join(_driver(driver, seen) for driver in listed)}")
    text = f"{name}方面，{'，'.join(parts)}"
    if found.others:
        text += f"；其余 {found.others} 个输入合计 {number(found.rest, 2, signed=True)}"
    return f"{text}。"


def _driver(driver: facts.Driver, seen: set[str]) -> str:
    reading = "" if driver.player.name in seen else _reading(driver.player)
    return f"{name_in_chinese(driver.player.name)}（{share(driver.share, driver.half)}{reading}）"


def _reading(player: Player) -> str:
    if not player.value:
        return ""
    now = f"；当前 {reading_in_chinese(player.value)}"
    return f"{now}，通常为 {reading_in_chinese(player.usual)}" if player.usual else now


def _change(change: Change) -> str:
    before, after = apart(change.before, change.after, unit_of(change.quantity, change.unit, "zh"))
    verb = "升至" if change.after > change.before else "降至"
    return f"{quantity_of(change.player, change.quantity, 'zh')}由 {before} {verb} {after}"


def _name(output: str) -> str:
    return output_name(output, "zh")


def _percent(value: float) -> str:
    return percent(value).replace(" %", "%")
