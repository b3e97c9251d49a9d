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
    "bill.others": ("everybody else together", "其他各方合计"),
    "bill.domain": ("metered on its devices", "在该域设备上计量"),
    "bill.title": (
        "Bill by {by}, rule {rule}: {hours:.1f} h; numbers {provenance}",
        "按{by}计费，规则 {rule}：{hours:.1f} 小时；数据来源：{provenance}",
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
    "bill.carbon": (
        "Carbon: location-based average intensity, accounted grams; idle devices included, embodied carbon not.",
        "碳：按所在地平均强度核算；含空闲设备，不含隐含碳。",
    ),
}
