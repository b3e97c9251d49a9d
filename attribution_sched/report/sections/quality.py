"""How good the explanations are."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from attribution_sched.explain import facts
from attribution_sched.explain.digits import number
from attribution_sched.explain.explanation import Explanation
from attribution_sched.report.data import Report
from attribution_sched.report.document import Block, Section, Table, Text
from attribution_sched.report.saying import Pair, say, seconds, share

TITLE = ("How good the explanations are", "解释的质量")
NONE = ("Nothing was explained.", "没有任何解释。")
LEAD = (
    "Shares of all inputs must add up to the decision's value less the background's mean. Over {count} explanations "
    "the "
    "largest gap is {gap} of what is explained. The median 95 % interval is {half} of the largest "
    "share; {converged} reached the precision asked for.",
    "所有输入的份额之和应等于决策值减去背景均值。在 {count} 个解释中，最大缺口为所解释量的 {gap}。"
    "95% 区间宽度的中位数为最大份额的 {half}；{converged} 达到了所要求的精度。",
)
HEAD = (
    ("decision", "explained", "method", "situations", "background", "gap", "half-width / largest", "certain", "time"),
    ("决策", "对象", "方法", "情形数", "背景数", "缺口", "半宽／最大份额", "可确认", "用时"),
)
EXPLAINED = {
    "terms": ("reward terms", "奖励分量"), "choice": ("choice", "选择"),
    "returns": ("return", "回报"), "simulator": ("reward terms, simulated", "奖励分量（仿真）"),
    "log_probability": ("log-probability", "对数概率"), "log_odds": ("log-odds", "对数几率"),
}  # fmt: skip
METHODS = {
    "exact": ("exact", "精确"), "permutation": ("permutations", "排列抽样"), "kernel": ("kernel", "核回归"),
    "amortised": ("amortised", "摊销估计"),
}  # fmt: skip
CERTAIN = ("{some} of {all}", "{some}／{all}")
CAPTION = (
    "The consequential decisions. Gap: relative efficiency gap; half-width: median over inputs; certain: inputs whose "
    "interval excludes 0.",
    "影响最大的决策。缺口：相对效率缺口；半宽：各输入的中位数；可确认：区间不含 0 的输入数。",
)
FOUND = (
    "The sum rule holds by construction for sampled Shapley values, so a small gap says that nothing was lost, not "
    "that "
    "the shares are true; the intervals say how far sampling and the choice of background may move them.",
    "对抽样 Shapley 值而言，求和性质由构造保证：缺口小仅说明没有遗漏，并不证明份额本身为真；"
    "区间反映抽样与背景选择可能带来的偏差。",
)


def section(report: Report, lang: str) -> Section:
    """A sentence over all explanations, a table of the deep ones."""
    why, title = report.reasons, say(TITLE, lang)
    deep = [Explanation.from_dict(one.explanation) for one in why.consequential if one.explanation is not None]
    quick = [Explanation.from_dict(one.explanation) for one in why.sample if one.explanation is not None]
    told = [*deep, *quick]
    if not told:
        return Section("quality", title, (Text(say(NONE, lang), "note"),))
    gaps = [float(one.efficiency_gap().max()) for one in told]
    half = float(np.median([_half(one) for one in told]))
    lead = say(
        LEAD, lang, count=len(told), gap=number(max(gaps), 2), half=share(2.0 * half, lang),
        converged=share(sum(one.converged for one in told) / len(told), lang),
    )  # fmt: skip
    blocks: list[Block] = [Text(lead)]
    if deep:
        rows = tuple(_row(one, lang) for one in deep)
        blocks.append(Table(HEAD[lang == "zh"], rows, say(CAPTION, lang), text_columns=3))
    blocks.append(Text(say(FOUND, lang), "note"))
    return Section("quality", title, tuple(blocks))


def _half(one: Explanation) -> float:
    """Median half-width over its largest share, of the inputs that move the main output at all."""
    c = one.column(one.main)
    half = facts.half_widths(one)[:, c]
    largest = float(np.abs(one.values[:, c]).max(initial=0.0)) or 1.0
    moving = half[half > 0.0]
    return float(np.median(moving)) / largest if len(moving) else 0.0


def _row(one: Explanation, lang: str) -> tuple[str, ...]:
    certain = say(CERTAIN, lang, some=int(one.significant().sum()), all=len(one.players))
    return (
        one.decision, _word(EXPLAINED, one.target, lang), _word(METHODS, one.method, lang),
        f"{one.rows:,}", f"{one.background:,}", number(float(one.efficiency_gap().max()), 2), share(_half(one), lang),
        certain, seconds(one.seconds),
    )  # fmt: skip


def _word(words: Mapping[str, Pair], name: str, lang: str) -> str:
    return say(words[name], lang) if name in words else name
