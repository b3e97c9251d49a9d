"""What an operator reads: the queue, how a system stands, what a decision passed over."""

from __future__ import annotations

MESSAGES: dict[str, tuple[str, str]] = {
    # What tasks asked for and did not get.
    "breach.refused": ("refused: {why}", "方案未执行：{why}"),
    "breach.devices": (
        "the plan uses {used} devices, the task asked for at most {most}",
        "方案使用 {used} 个设备，任务最多要求 {most} 个",
    ),
    "breach.reserved": (
        "the plan uses {used} devices of {domain}, {reserved} are reserved for others",
        "方案使用 {domain} 的 {used} 个设备，其中 {reserved} 个已为他人预留",
    ),
    "breach.quota": (
        "the plan uses {used} devices, the quota of {tenant} leaves {left}",
        "方案使用 {used} 个设备，租户 {tenant} 的配额只剩 {left} 个",
    ),
    "breach.passed": (
        "placed before {tasks}, more urgent than priority {own}",
        "先于 {tasks} 放置，后者比优先级 {own} 更紧急",
    ),
    "breach.left": (
        "placed while {tasks}, more urgent than priority {own}, was asked about and left waiting",
        "放置时 {tasks}（比优先级 {own} 更紧急）已被询问而仍在等待",
    ),
    "breach.behind": (
        "placed before {tasks} behind the window, more urgent than priority {own}",
        "先于窗口之外的 {tasks} 放置，后者比优先级 {own} 更紧急",
    ),
    "breach.late": ("expected to finish {late_s:.0f} s after its deadline", "预计在截止时间之后 {late_s:.0f} 秒完成"),
    "breach.task": ("{id} (priority {priority})", "{id}（优先级 {priority}）"),
    "breach.tasks": ("{tasks:, }", "{tasks:、}"),
    "breach.tasks and more": ("{tasks:, } and {more} more", "{tasks:、} 等另外 {more} 个任务"),
    # Why a task waits, as the queue's table tells it.
    "queue.left": (
        "left waiting; asked about again at {clock} or when devices fall free",
        "留待等待；于 {clock} 或有设备空出时再次询问",
    ),
    "queue.turn": ("its turn has not come", "尚未轮到"),
    "queue.behind": ("behind the {capacity} tasks that the policy compares", "排在策略所比较的 {capacity} 个任务之后"),
    "queue.held": ("held: let in again with release", "已暂停，等待提交者恢复"),
    # How a system stands.
    "status.head": (
        "{clock} on the cluster's clock, {decisions} decisions by {policy}",
        "集群时钟 {clock}，{policy} 已作 {decisions} 个决策",
    ),
    "status.free": ("  free     {domains:, }", "  空闲     {domains:，}"),
    "status.domain": ("{name} {free} of {devices}", "{name} {free}/{devices}"),
    "status.tasks": (
        "  tasks    {running} running, {waiting} waiting, {held} held, {aside} set aside",
        "  任务     {running} 个运行，{waiting} 个等待，{held} 个暂停，{aside} 个搁置",
    ),
    "status.weights": (
        "  weights  {w_eff:g} R_eff + {w_util:g} R_util − {w_cost:g} R_cost",
        "  权重     {w_eff:g} R_eff + {w_util:g} R_util − {w_cost:g} R_cost",
    ),
    "status.journal": ("  journal  {where}", "  日志     {where}"),
    "status.in memory": ("in memory", "内存中"),
    "status.reserved": (
        "  reserved {id}: {devices} of {domain} for {tenant} until {clock}",
        "  预留     {id}：{domain} 的 {devices} 个设备归 {tenant}，至 {clock}",
    ),
}
