"""Bills: why a payer answers for what, and what stands beside the numbers."""

from __future__ import annotations

MESSAGES: dict[str, tuple[str, str]] = {
    "bill.shapley": (
        "answers for {devices:.1f} of the {peak:.0f} devices that were needed at the peak",
        "对应峰值所需 {peak:.0f} 台设备中的 {devices:.1f} 台",
    ),
    "bill.reservation": ("held {share:.1%} of all device-hours in use", "占用了已用设备时的 {share:.1%}"),
    "bill.usage": ("drew {share:.1%} of all joules of tasks", "消耗了任务总能耗的 {share:.1%}"),
    "bill.cpu-time": ("computed {share:.1%} of all busy device-hours", "占计算设备时的 {share:.1%}"),
    "bill.max-request-use": (
        "asked for or held {share:.1%} of all device-hours there were",
        "申请或占用了全部设备时的 {share:.1%}",
    ),
    "bill.egress": ("its own traffic between domains, moves included", "自身的跨域流量（含迁移）"),
    "bill.congestion": ("its part of the hours that tasks waited for each other", "任务相互等待时长中应承担的部分"),
    "bill.co-location": (
        "half of the hours that its tasks and others' cost each other on the same devices, all of those among its own",
        "与他方任务共用设备相互造成的时长损失各担一半；自身任务之间的全部承担",
    ),
    "bill.others": ("everybody else together", "其他各方合计"),
    "bill.domain": ("metered on its devices", "在该域设备上计量"),
    "bill.title": (
        "Bill by {by}, rule {rule}: {hours:.1f} h; numbers {provenance}",
        "按{by}计费，规则 {rule}：{hours:.1f} 小时；数据来源：{provenance}",
    ),
    "bill.part.energy": ("energy", "能耗"),
    "bill.part.idle": ("idle", "空闲"),
    "bill.part.CPU_time": ("CPU time", "CPU 时间"),
    "bill.part.electricity": ("electricity", "电费"),
    "bill.part.carbon": ("carbon", "碳"),
    "bill.part.device_time": ("device time", "设备时"),
    "bill.part.egress": ("egress", "跨域流量"),
    "bill.part.congestion": ("congestion", "拥塞"),
    "bill.part.co-location": ("co-location", "共置"),
    "bill.operators": (
        "What the joules above idle power went into, by the accounting of each task's attribution (kWh, ± half a 95 % "
        "interval); a row adds up to what the payer's tasks drew themselves.",
        "空闲功率以上的能量去向，按各任务归因的核算拆分（kWh，± 为 95% 区间半宽）；每行合计等于其任务自身消耗。",
    ),
    "bill.unattributed": ("not attributed", "未归因"),
    "bill.nobody": ("nobody (unallocated)", "未分摊"),
    "bill.smaller": ("smaller payers together", "其余较小付费方合计"),
    "bill.meter": ("meter", "计量值"),
    "bill.in_all": ("priced, USD", "计价合计（USD）"),
    "bill.column.part": ("part", "项目"),
    "bill.column.own": ("own", "自身"),
    "bill.column.shared": ("share of common", "分摊"),
    "bill.column.half_width": ("95 % interval", "95% 区间"),
    "bill.column.usd": ("USD", "USD"),
    "bill.column.reason": ("why", "原因"),
    "bill.column.hours": ("of device-hours", "设备时占比"),
    "bill.column.peak": ("of the peak", "峰值占比"),
    "bill.column.watts": ("W a device", "W／设备"),
    "bill.repeated": (
        "The recorded signal of {domain} ends after {hours:.0f} h, inside the period; it was begun again.",
        "{domain} 的信号记录在 {hours:.0f} 小时后结束，短于计费期；其后从头重复使用。",
    ),
    "bill.idle": (
        "Devices that held no task drew {share} of the energy; it is in the shares of the rule {rule}, or nobody's.",
        "无任务的设备耗用了 {share} 的能量，按规则 {rule} 分摊或计入未分摊。",
    ),
    "bill.differs": (
        "{payer}: {low} {unit} by {least}, {high} by {most}. {why}",
        "{payer}：按 {least} 为 {low} {unit}，按 {most} 为 {high} {unit}。{why}",
    ),
    "bill.differs.left": (
        "{rule} charges less than the others: {left} {unit} of devices that nobody asked for it leaves to nobody.",
        "{rule} 收费低于其他规则：无人申请的设备所耗 {left} {unit} 不分摊给任何人。",
    ),
    "bill.differs.peak": (
        "It holds {hours} of the device-hours but {peak} of the devices needed at the peak: it is there when all are.",
        "其设备时占 {hours}，但占峰值所需设备的 {peak}：它在高峰时段使用。",
    ),
    "bill.differs.offpeak": (
        "It holds {hours} of the device-hours but only {peak} of the devices needed at the peak: it is there when "
        "others are not.",
        "其设备时占 {hours}，但仅占峰值所需设备的 {peak}：它避开了高峰。",
    ),
    "bill.differs.hot": (
        "Its devices draw {watts} W each, the mean is {mean} W: rules by time let others pay for that.",
        "其设备平均功率 {watts} W，高于均值 {mean} W：按时间分摊的规则会让他人承担。",
    ),
    "bill.differs.cool": (
        "Its devices draw {watts} W each, the mean is {mean} W: rules by time let it pay for others.",
        "其设备平均功率 {watts} W，低于均值 {mean} W：按时间分摊的规则会让它替他人承担。",
    ),
    "bill.differs.same": (
        "It uses the cluster as the mean does; only the idle devices are shared otherwise.",
        "其使用方式与平均水平相近，差别只在空闲设备的分摊。",
    ),
    "report.bill.title": ("The bill", "账单"),
    "report.bill.none": ("There is no bill: {why}.", "没有账单：{why}。"),
    "report.bill.nothing": ("nothing was decided", "尚无决策"),
    "report.bill.lead": (
        "Who answers for what of {hours} h: {count} of the tenants by name, rule {rule}; numbers are {provenance}.",
        "{hours} 小时的费用由谁承担：列出 {count} 个租户，规则 {rule}；数据为{provenance}。",
    ),
    "report.bill.lines": ("Every line, with its interval and reason", "逐行明细（含区间与原因）"),
    "report.bill.rules": ("The same meter by every rule:", "同一计量值按各规则分摊："),
    "report.bill.rules_note": (
        "{part} in {unit}; on the right what makes the rules differ.",
        "{part}，单位 {unit}；右侧为规则差异的原因。",
    ),
    "bill.by.tenant": ("tenant", "租户"),
    "bill.by.task": ("task", "任务"),
    "bill.by.model": ("model", "模型"),
    "bill.by.domain": ("domain", "域"),
    "bill.sum": (
        "Lines and the unallocated rest add up to the meters (largest relative gap {gap:.0e}).",
        "各行与未分摊部分之和等于计量值（最大相对差 {gap:.0e}）。",
    ),
    "bill.core.in": (
        "No group of payers would have needed less by itself (the shares of capacity are in the core of every domain).",
        "没有任何一组付费方单独使用会更省（各域的容量份额均在核中）。",
    ),
    "bill.core.out": (
        "In {domain}, {who} together answer for {excess:.2f} devices more than they would have needed by themselves.",
        "在 {domain}，{who} 合计承担的设备比单独使用时多 {excess:.2f} 台。",
    ),
    "bill.sampled": (
        "Shares of capacity are sampled; ± is half a 95 % interval.",
        "容量份额为抽样估计；± 为 95% 区间半宽。",
    ),
    "bill.no_time": (
        "No time has passed between the first and the last decision: nothing was used yet. Let the run go on.",
        "首个与末个决策之间没有时间流逝，尚无用量；请让运行继续。",
    ),
    "bill.no_carbon": (
        "No carbon intensity is known of {domains}: grams there are not counted.",
        "{domains} 的碳强度未知，其碳排放未计入。",
    ),
    "bill.prices": (
        "USD per device-hour, next day (Shapley price of the hour)",
        "次日每设备时价格（USD，按小时的 Shapley 价格）",
    ),
    "bill.column.hour": ("hour", "时"),
    "bill.carbon": (
        "Carbon: location-based average intensity, accounted grams; idle devices included, embodied carbon not.",
        "碳：按所在地平均强度核算；含空闲设备，不含隐含碳。",
    ),
}
