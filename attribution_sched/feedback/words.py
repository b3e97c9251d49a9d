"""Reasons in words, English and Chinese."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attribution_sched.explain.digits import alike, number, percent
from attribution_sched.explain.words import input_name
from attribution_sched.feedback.ascent import Miss
from attribution_sched.feedback.drivers import DriverEvidence
from attribution_sched.feedback.rollback import Verdict
from attribution_sched.feedback.targets import KINDS

Words = tuple[str, str]
"""English and Chinese."""


def standing(miss: Miss) -> Words:
    """Where a target stands."""
    kind = KINDS[miss.target]
    shown, limit = alike(miss.measured.value, miss.limit)
    ends = miss.measured.interval()
    low, high = (number(end) for end in ends)
    unit = f" {kind.unit}" if kind.unit else ""
    far = percent(abs(miss.violation))
    bound = ("at least", "至少") if kind.at_least else ("at most", "至多")
    state = ("missed by", "未达标，差") if miss.violation > 0 else ("met with", "已达标，余量")
    tail = "" if miss.violation > 0 else " to spare"
    chance = miss.violation > 0 and ends[0] <= miss.limit <= ends[1]
    doubt = (", which may be chance", "，可能只是偶然") if chance else ("", "")
    english = (
        f"{miss.target}: {kind.english} is {shown}{unit} (95 % {low} to {high}, {miss.measured.count} decisions), "
        f"asked for is {bound[0]} {limit}{unit}, {state[0]} {far}{tail}{doubt[0]}"
    )
    chinese = (
        f"{miss.target}：{kind.chinese}为 {shown}{unit}（95% 区间 {low} 至 {high}，{miss.measured.count} 个决策），"
        f"要求{bound[1]} {limit}{unit}，{state[1]} {_chinese(far)}{doubt[1]}"
    )
    return english, chinese


def moved(before: Mapping[str, float], after: Mapping[str, float]) -> str:
    """Weights before and after, the same in both languages."""
    return ", ".join("{} {} → {}".format(name, *alike(before[name], after[name])) for name in before)


def weights_reason(
    misses: Sequence[Miss], before: Mapping[str, float], after: Mapping[str, float], coupled: Sequence[Words]
) -> Words:
    """Why the weights moved."""
    english, chinese = [], []
    for miss in misses:
        said = standing(miss)
        pull = "λ {} → {}".format(*alike(miss.before, miss.after))
        english.append(f"{said[0]} ({pull})")
        chinese.append(f"{said[1]}（{pull}）")
    if not misses:
        english.append("no target is asked for any more")
        chinese.append("不再有任何目标")
    english.append(f"so {moved(before, after)}")
    chinese.append(f"因此 {moved(before, after)}")
    return (
        "; ".join([*english, *(one for one, _ in coupled)]) + ".",
        "；".join([*chinese, *(two for _, two in coupled)]) + "。",
    )


def coupling_words(own: str, other: str, strength: float, driver: str, part: float) -> Words:
    """What explanations say of two components."""
    with_it = strength > 0
    english = (
        f"explanations say that what is good for {own} is {'good' if with_it else 'bad'} for {other} "
        f"(coupling {number(strength, 2, signed=True)}, {percent(part)} of it by {driver})"
    )
    chinese = (
        f"解释表明，对 {own} 有利的因素对 {other} {'也有利' if with_it else '不利'}"
        f"（耦合 {number(strength, 2, signed=True)}，其中 {_chinese(percent(part))} 来自{_input(driver).rstrip()}）"
    )
    return english, chinese


def damping_reason(one: DriverEvidence, before: float, after: float) -> Words:
    """Why a driver is damped or trusted again."""
    claim, seen = number(one.claimed), number(one.measured, signed=True)
    chance = number(one.p_value, 2)
    trust = "{} → {}".format(*alike(before, after))
    if one.contradicted:
        return (
            f"{one.player} was explained to move {one.component} by {claim} on average where it is certain, up or "
            f"down, and measured outcomes show {seen} in the direction explained ({one.decisions} decisions, "
            f"p = {chance}): its trust goes {trust}.",
            f"解释称{_input(one.player)}在其影响确定的决策中平均使 {one.component} 升或降 {claim}，"
            f"实测沿该方向为 {seen}（{one.decisions} 个决策，p = {chance}）：其信任度 {trust}。",
        )
    return (
        f"{one.player}: measured outcomes bear out its share of {one.component} again, {seen} of {claim} explained "
        f"({one.decisions} decisions, p = {chance}): its trust goes {trust}.",
        f"{_input(one.player).strip()}：实测再次印证其对 {one.component} 的贡献，解释 {claim}，实测 {seen}"
        f"（{one.decisions} 个决策，p = {chance}）：其信任度 {trust}。",
    )


def blame_reason(player: str, component: str, before: float, after: float) -> Words:
    """Why the driver behind a rolled-back change is damped."""
    trust = "{} → {}".format(*alike(before, after))
    return (
        f"{player} argued through {component} for a change that had to be rolled back: its trust goes {trust}.",
        f"{_input(player).lstrip()}通过 {component} 支持了一次被回滚的修改：其信任度 {trust}。",
    )


def fall(verdict: Verdict) -> Words:
    """What became of the held-out return."""
    then, now = alike(verdict.before, verdict.now)
    limit = number(verdict.high, signed=True)
    sure = ("one number, no interval", "仅一个数值，无区间")
    if verdict.episodes > 1:
        sure = (
            f"upper {percent(verdict.level)} limit {limit}, {verdict.episodes} paired episodes",
            f"{_chinese(percent(verdict.level))} 上限 {limit}，{verdict.episodes} 个配对回合",
        )
    return (
        f"held-out return went from {then} to {now} ({number(verdict.change, signed=True)}; {sure[0]}), allowed is "
        f"a fall of {number(verdict.allowed)}",
        f"留出回报由 {then} 变为 {now}（{number(verdict.change, signed=True)}；{sure[1]}），"
        f"允许下降 {number(verdict.allowed)}",
    )


def rollback_reason(verdict: Verdict, undone: Sequence[int], what: str, cooldown: int) -> Words:
    """Why changes are taken back."""
    english, chinese = fall(verdict)
    listed, many = ", ".join(map(str, undone)), "s" if len(undone) > 1 else ""
    return (
        f"Rolled back change{many} {listed} of {what}: {english}. No change for {cooldown} steps.",
        f"回滚第 {listed} 号修改（{what}）：{chinese}。此后 {cooldown} 步内不再修改。",
    )


def price_reason(misses: Sequence[Miss], before: float, after: float) -> Words:
    """Why the energy price moved."""
    price = "{} → {}".format(*alike(before, after))
    said = [standing(miss) for miss in misses]
    return (
        "; ".join([*(one for one, _ in said), f"so energy inside R_cost is priced {price} USD/kWh"]) + ".",
        "；".join([*(two for _, two in said), f"因此 R_cost 中的电价 {price} USD/kWh"]) + "。",
    )


def joined(parts: Sequence[Words]) -> Words:
    """Sentences, one after the other."""
    return " ".join(one for one, _ in parts), "".join(two for _, two in parts)


def _chinese(share: str) -> str:
    """A share as Chinese writes it."""
    return share.replace(" %", "%")


def _input(name: str) -> str:
    """An input by name, set apart from Chinese text where it begins or ends in Latin letters."""
    words = input_name(name, "zh")
    return f"{' ' * words[0].isascii()}{words}{' ' * words[-1].isascii()}"
