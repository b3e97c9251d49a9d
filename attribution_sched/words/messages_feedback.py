"""Feedback: where targets stand, and why weights, prices and trust in drivers changed or were taken back."""

from __future__ import annotations

MESSAGES: dict[str, tuple[str, str]] = {
    "feedback.list": ("{parts:; }.", "{parts:；}。"),
    "feedback.sentence": ("{words}.", "{words}。"),
    # Targets.
    "feedback.standing": (
        "{target}: {what} is {shown}{unit} (95 % {low} to {high}, {count} decisions), "
        "asked for is {bound} {limit}{unit}, {state}{doubt}",
        "{target}：{what}为 {shown}{unit}（95% 区间 {low} 至 {high}，{count} 个决策），"
        "要求{bound} {limit}{unit}，{state}{doubt}",
    ),
    "feedback.bound.least": ("at least", "至少"),
    "feedback.bound.most": ("at most", "至多"),
    "feedback.state.missed": ("missed by {far}", "未达标，差 {far}"),
    "feedback.state.met": ("met with {far} to spare", "已达标，余量 {far}"),
    "feedback.chance": (", which may be chance", "，可能只是偶然"),
    # Weights and the price of energy.
    "feedback.pursued": ("{standing} ({pull})", "{standing}（{pull}）"),
    "feedback.no_target": ("no target is asked for any more", "不再有任何目标"),
    "feedback.weights": ("so {moved}", "因此 {moved}"),
    "feedback.price": ("so energy inside R_cost is priced {price} USD/kWh", "因此 R_cost 中的电价 {price} USD/kWh"),
    "feedback.carbon": (
        "so carbon inside R_cost is priced {price} USD/kg",
        "因此 R_cost 中的碳价 {price} USD/kg",
    ),
    # Explanations.
    "feedback.coupling": (
        "explanations say that what is good for {component} is {effect} for {other} "
        "(coupling {strength}, {part} of it by {driver})",
        "解释表明，对 {component} 有利的因素对 {other} {effect}（耦合 {strength}，其中 {part} 来自{driver}）",
    ),
    "feedback.foreseen": (
        "asked again with these weights, the policy would have decided {changed} of {count} explained decisions "
        "otherwise; expected {what}: {value}{unit}",
        "以这些权重重新询问，策略会改变 {count} 个已解释决策中的 {changed} 个；预期{what}为 {value}{unit}",
    ),
    "feedback.effect.good": ("good", "也有利"),
    "feedback.effect.bad": ("bad", "不利"),
    "feedback.contradicted": (
        "{driver} was explained to move {component} by {claim} on average where it is certain, up or down, and "
        "measured outcomes show {measured} in the direction explained ({count} decisions, p = {chance}): "
        "its trust goes {trust}.",
        "解释称{driver}在其影响确定的决策中平均使 {component} 升或降 {claim}，"
        "实测沿该方向为 {measured}（{count} 个决策，p = {chance}）：其信任度 {trust}。",
    ),
    "feedback.supported": (
        "{driver}: measured outcomes bear out its share of {component} again, {measured} of {claim} explained "
        "({count} decisions, p = {chance}): its trust goes {trust}.",
        "{driver}：实测再次印证其对 {component} 的贡献，解释 {claim}，实测 {measured}"
        "（{count} 个决策，p = {chance}）：其信任度 {trust}。",
    ),
    "feedback.blamed": (
        "{driver} argued through {component} for a change that had to be rolled back: its trust goes {trust}.",
        "{driver}通过 {component} 支持了一次被回滚的修改：其信任度 {trust}。",
    ),
    # Held-out returns.
    "feedback.fall": (
        "held-out return went from {before} to {now} ({change}; {certainty}), allowed is a fall of {allowed}",
        "留出回报由 {before} 变为 {now}（{change}；{certainty}），允许下降 {allowed}",
    ),
    "feedback.certainty.single": ("one number, no interval", "仅一个数值，无区间"),
    "feedback.certainty.paired": (
        "upper {level} limit {limit}, {episodes} paired episodes",
        "{level} 上限 {limit}，{episodes} 个配对回合",
    ),
    "feedback.rollback.one": (
        "Rolled back change {numbers} of {what}: {fall}. No change for {cooldown} steps.",
        "回滚第 {numbers} 号修改（{what}）：{fall}。此后 {cooldown} 步内不再修改。",
    ),
    "feedback.rollback.many": (
        "Rolled back changes {numbers} of {what}: {fall}. No change for {cooldown} steps.",
        "回滚第 {numbers} 号修改（{what}）：{fall}。此后 {cooldown} 步内不再修改。",
    ),
    # Steps without a change.
    "feedback.another_look": ("Weights wait for another look: {fall}.", "权重暂缓，待再次确认：{fall}。"),
    "feedback.none_pending": ("No change is pending, yet {fall}.", "没有待定的修改，但{fall}。"),
    "feedback.cooldown": (
        "Cooling down after a rollback; steps still to wait: {left}.",
        "回滚后冷却中，还剩 {left} 步。",
    ),
    "feedback.too_few": (
        "Weights stay: {count} decisions are too few to act on ({fewest}).",
        "权重不变：仅 {count} 个决策，少于 {fewest} 个，不足以行动。",
    ),
    "feedback.nothing": ("Nothing is changed.", "未作修改。"),
}
