"""Plots and the notebook's table: titles, axes, keys."""

from __future__ import annotations

MESSAGES: dict[str, tuple[str, str]] = {
    "plot.with_unit": ("{name} [{unit}]", "{name}（{unit}）"),
    "plot.share_of": ("share of {name}", "{name}的份额"),
    "plot.share_of_total": ("share of R", "R 的份额"),
    "plot.others": ("{count} others", "其余 {count} 个输入"),
    "plot.decision": ("decision {decision}: {what}", "决策 {decision}：{what}"),
    "plot.decisions.one": ("{count} decision", "{count} 次决策"),
    "plot.decisions.many": ("{count} decisions", "{count} 次决策"),
    # Who held which devices.
    "gantt.title": ("who held which devices", "各任务占用的设备"),
    "gantt.time": ("time", "时间"),
    "gantt.busy": ("held", "设备占用"),
    "gantt.mean": ("{share} %\nmean", "平均\n{share}%"),
    "gantt.waiting": ("waiting", "排队"),
    "gantt.most": ("{count} at\nmost", "最多\n{count}"),
    # Waterfall.
    "waterfall.background": ("background mean", "背景均值"),
    "waterfall.decision": ("this decision", "本次决策"),
    "waterfall.difference": ("difference", "本次决策"),
    "waterfall.key.choice": (
        "blue: for the choice · orange: against · grey: not certain",
        "蓝：支持 · 橙：不利 · 灰：不能确认",
    ),
    "waterfall.key.plain": ("blue: raises · orange: lowers · grey: not certain", "蓝：升高 · 橙：降低 · 灰：不能确认"),
    "waterfall.title": ("drivers of {name}", "{name}的驱动因素"),
    "waterfall.title_against": ("drivers of {name}, rather than {plan}", "{name}的驱动因素（相对于{plan}）"),
    # Components.
    "components.title": ("R by input and component", "各输入对 R 的贡献，按分量拆分"),
    # Where a choice flips.
    "counterfactual.key": (
        "● as it was · ❙ threshold, all else equal · ➤ change that flips · each row has a scale of its own",
        "● 当时 · ❙ 阈值（其他条件不变） · ➤ 使决策翻转的改动 · 各行刻度独立",
    ),
    "counterfactual.title": ("where it flips", "翻转阈值"),
    "counterfactual.title_nearest": (
        "{size} standard deviations away from {plan}",
        "最小翻转改动为 {size} 个标准差，改选：{plan}",
    ),
    # Influence over many decisions.
    "influence.top": ("top driver", "居首"),
    "influence.key": (
        "bar: mean size · ◆ mean · whiskers: 95 % intervals",
        "条：平均绝对值 · ◆ 平均值 · 须线：95% 区间",
    ),
    "influence.key.choice": ("blue: for the choices, orange: against", "蓝：支持，橙：不利"),
    "influence.title": ("what drives {name} over {decisions}", "{decisions}中{name}的驱动因素"),
    # Before and after.
    "changes.axis": ("mean size of the share of {name}", "{name}份额的平均绝对值"),
    "changes.key": (
        "○ before · ● after, with the 95 % interval of the change · blue: gained, orange: lost, grey: not certain",
        "○ 之前 · ● 之后，浅色带为变化量的 95% 区间 · 蓝：增强，橙：减弱，灰：不能确认",
    ),
    "changes.title": ("what changed in the drivers of {name}", "{name}的驱动因素变化"),
    # Beeswarm.
    "beeswarm.title": ("drivers of {name} in {count} decisions", "{count} 次决策中{name}的驱动因素"),
    "beeswarm.reading": ("reading of the input", "输入读数"),
    "beeswarm.low": ("low", "偏低"),
    "beeswarm.usual": ("usual", "通常"),
    "beeswarm.high": ("high", "偏高"),
    # Rewards over a run.
    "rewards.axis": ("decision in order, labelled by hour on the cluster", "决策（按先后次序，标注集群时刻，h）"),
    "rewards.each": ("each bar: mean of {count} decisions", "每条为 {count} 次决策的均值"),
    "rewards.changed": ("dashed: feedback changed the reward", "虚线：反馈修改了奖励"),
    "rewards.weighted": ("weighted reward", "加权奖励"),
    "rewards.title": ("what each plan was worth", "各次决策的奖励构成"),
    # Drivers over time.
    "timeline.order": ("decision, in order", "决策（按先后次序）"),
    "timeline.time": ("time", "时间"),
    "timeline.key": ("white: interval includes 0 · grey: no such input", "白：区间包含 0 · 灰：无此输入"),
    "timeline.title": ("drivers of {name} over decisions", "{name}的驱动因素随决策的变化"),
    "timeline.title_lines": (
        "drivers of {name} (dots: interval excludes 0)",
        "{name}的驱动因素（圆点：区间不含 0）",
    ),
    # Attributions.
    "attributions.share": ("share of the task's attributions", "占任务归因总量的份额"),
    "attributions.value": ("attribution", "归因"),
    "attributions.title": ("where the energy of each task goes", "各任务的能耗归因"),
    "accounts.idle": ("idle", "空闲功耗"),
    "accounts.share": ("share of its joules; whiskers: 95 %", "能耗份额；误差线：95 %"),
    "accounts.title": ("where the joules of each task go", "各任务的能耗去向"),
    # Traffic.
    "traffic.key": ("✂ n: the model is cut after layer n", "✂ n：在第 n 层之后切分"),
    "traffic.to": ("to", "接收方"),
    "traffic.from": ("from", "发送方"),
    "traffic.per_step": ("traffic per step", "每步流量"),
    "traffic.cut": ("cut after {layer}", "第 {layer} 层后切分"),
    "traffic.layers": ("layers {span}", "第 {span} 层"),
    "traffic.title": ("{total} GB cross domains per step", "每步跨域流量 {total} GB"),
    "traffic.title_plan": (
        "{total} GB cross domains per step: {replicas}, {cuts}",
        "每步跨域流量 {total} GB：{replicas}，{cuts}",
    ),
    "traffic.replicas.one": ("{count} replica", "{count} 个副本"),
    "traffic.replicas.many": ("{count} replicas", "{count} 个副本"),
    "traffic.cuts.one": ("{count} cut", "{count} 处切分"),
    "traffic.cuts.many": ("{count} cuts", "{count} 处切分"),
    # The table in a notebook.
    "table.input": ("input", "输入"),
    "table.sum": ("value − background mean", "决策值 − 背景均值"),
    "table.usual": ("usually {reading}", "通常为 {reading}"),
    "table.readings": ("{readings:, }", "{readings:，}"),
    "table.key.choice": (
        "Blue speaks for the choice, orange against it; grey: the 95 % interval includes 0, so the input is not "
        "claimed as a driver. ± is half a 95 % interval.",
        "蓝色支持该选择，橙色不利于该选择；灰色表示 95% 置信区间包含 0，不作为驱动因素。± 为 95% 置信区间的半宽。",
    ),
    "table.key.plain": (
        "Blue raises, orange lowers; grey: the 95 % interval includes 0, so the input is not claimed as a driver. ± is "
        "half a 95 % interval.",
        "蓝色使其升高，橙色使其降低；灰色表示 95% 置信区间包含 0，不作为驱动因素。± 为 95% 置信区间的半宽。",
    ),
    # Before and after, in a sentence.
    "comparison.paired": ("{before} decisions explained before and after", "对同样的 {before} 次决策前后比较"),
    "comparison.unpaired": (
        "{before} decisions before and {after} after",
        "比较之前的 {before} 次决策与之后的 {after} 次决策",
    ),
    "comparison.nothing": (
        "Over {over}, no input's influence on {name} changed for certain: every 95 % interval includes 0.",
        "{over}，各输入对{name}的影响没有可以确认的变化：所有差值的 95% 置信区间都包含 0。",
    ),
    "comparison.gained": (
        "{player} gained influence (mean size {old} → {new}; change {low} to {high})",
        "{player}的影响增强（平均绝对份额由 {old} 变为 {new}，变化量的 95% 置信区间为 {low} 至 {high}）",
    ),
    "comparison.lost": (
        "{player} lost influence (mean size {old} → {new}; change {low} to {high})",
        "{player}的影响减弱（平均绝对份额由 {old} 变为 {new}，变化量的 95% 置信区间为 {low} 至 {high}）",
    ),
    "comparison.more": ("; {count} more changed for certain", "；另有 {count} 个输入的变化也可以确认"),
    "comparison.sentence": (
        "Over {over}, of the drivers of {name}: {parts:; }{more}. Limits are 95 % bootstrap intervals.",
        "{over}，在{name}的驱动因素中，{parts:；}{more}。",
    ),
}
"""Message id → English, Chinese."""
