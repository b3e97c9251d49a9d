"""Traffic between domains, with the cut points of each plan."""

from __future__ import annotations

from functools import partial

import numpy as np

from attribution_sched.explain import plots
from attribution_sched.explain.digits import number
from attribution_sched.explain.plots.traffic import cuts
from attribution_sched.report.data import Report, Traffic
from attribution_sched.report.document import Block, Picture, Section, Table, Text
from attribution_sched.report.saying import listed, plural, recorded_plan, say
from attribution_sched.session.wording import plan_of

TITLE = ("Traffic between domains", "跨域流量")
ALONE = (
    "This world has one domain: there is nothing to send between domains, and plans are not cut.",
    "该环境只有一个域：不存在跨域流量，方案也无需切分。",
)
NOTHING = ("No plan was put in force, so nothing was sent.", "尚无方案生效，没有任何流量。")
LEAD = (
    "More than one domain is used by {crossing} of {plans} put in force. Shown are those that commit most "
    "device-hours, "
    "one per model before a second of any.",
    "已生效的 {all} 个方案中有 {crossing} 个跨越多个域。以下按占用设备时数由多到少展示，同一模型先取一个。",
)
AVOIDED = (
    "Of {plans} put in force none crosses domains, so nothing is sent between them and the bill is zero. For "
    "scale: this is what the static uniform split of the most consequential such task would send at that moment.",
    "已生效的 {all} 个方案均未跨域，域间流量与费用均为零。作为对照，"
    "下图为当时若对最重要的任务采用静态均匀切分所产生的流量。",
)
NONE_AVOIDED = (
    "Of {plans} put in force none crosses domains, so nothing is sent between them and the bill is zero.",
    "已生效的 {all} 个方案均未跨域，域间流量与费用均为零。",
)
TAKEN = ("Decision {id} ({kind}): {plan}.", "决策 {id}（{kind}）：{plan}。")
SPLIT = ("Not taken: {kind} of decision {id} as {plan}.", "未采用：决策 {id}（{kind}）若采用 {plan}。")
CAPTION = (
    "From row to column, GB per step. {cuts} {total} GB and {bill} USD per step{hours}; {provenance}.",
    "由行（发送方）至列（接收方），单位为 GB／步。{cuts}每步共 {total} GB，费用 {bill} USD{hours}；{provenance}。",
)
HOURS = (", for {hours} device-hours committed", "，占用 {hours} 设备时")
CUT = ("Framed: the model is cut {cuts}.", "加框处为切分点：{cuts}。")
ONE_CUT = ("after layer {layer} ({one} → {other})", "第 {layer} 层之后（{one} → {other}）")
UNCUT = ("The model is not cut; replicas exchange gradients.", "模型未切分；各副本之间交换梯度。")
ALT = (
    "Heatmap of the traffic between {count} domains; most goes from {one} to {other}, {value} GB per step. {cuts}",
    "{count} 个域之间的流量热图；流量最大的是 {one} 至 {other}，每步 {value} GB。{cuts}",
)
PROVENANCE = {
    "simulated": ("simulated, as the cluster carried it out", "仿真值，取自集群实际执行"),
    "estimated": ("estimated by the cost model for a nominal task of this kind", "由成本模型按该类标称任务估计"),
}
FROM, TO = ("from", "发送方"), ("to", "接收方")
GB = ("GB per step", "GB／步")


def section(report: Report, lang: str) -> Section:
    """Heatmaps, or a sentence that says why there are none."""
    title, all_ = say(TITLE, lang), len(report.timeline.moments) + report.timeline.left_out
    if len(report.run.domains) < 2:
        return Section("traffic", title, (Text(say(ALONE, lang), "note"),))
    if not all_:
        return Section("traffic", title, (Text(say(NOTHING, lang), "note"),))
    taken = [one for one in report.traffic if one.taken]
    lead = LEAD if report.cross_domain else AVOIDED if report.traffic else NONE_AVOIDED
    blocks: list[Block] = [
        Text(say(lead, lang, crossing=report.cross_domain, all=all_, plans=plural(all_, "plan", "plans")))
    ]
    for one in taken or report.traffic:
        words = TAKEN if one.taken else SPLIT
        plan = recorded_plan(one.plan, report.run.domains, lang)
        blocks.append(Text(say(words, lang, id=one.decision, kind=one.kind, plan=plan)))
        blocks.append(_picture(one, report.run.domains, lang))
    return Section("traffic", title, tuple(blocks))


def _picture(one: Traffic, domains: tuple[str, ...], lang: str) -> Picture:
    made, gb = plan_of(one.plan, domains), np.array(one.bytes_per_step) / 1e9
    draw = partial(plots.traffic, np.array(one.bytes_per_step), domains, made, lang=lang)
    found = [] if made is None else cuts(made)
    told = [say(ONE_CUT, lang, layer=layer, one=domains[i], other=domains[j]) for i, j, layer in found]
    cut = say(CUT, lang, cuts=listed(told, lang)) if told else say(UNCUT, lang)
    hours = "" if one.device_hours is None or not one.taken else say(HOURS, lang, hours=number(one.device_hours))
    caption = say(
        CAPTION, lang, cuts=cut, total=number(float(gb.sum())), bill=number(one.bill_usd_per_step), hours=hours,
        provenance=say(PROVENANCE[one.provenance], lang),
    )  # fmt: skip
    i, j = np.unravel_index(int(gb.argmax()), gb.shape)
    alt = say(ALT, lang, count=len(domains), one=domains[i], other=domains[j], value=number(float(gb[i, j])), cuts=cut)
    rows = tuple(
        (domains[a], domains[b], number(float(gb[a, b])))
        for a in range(len(domains))
        for b in range(len(domains))
        if gb[a, b] > 0
    )
    numbers = Table((say(FROM, lang), say(TO, lang), say(GB, lang)), rows, text_columns=2)
    return Picture(f"traffic-{one.decision}", draw, alt, caption, numbers)
