"""The words that stand in explanation records (plans, inputs, readings, quantities) in Chinese.

Records are written in English once, when a decision is explained. What is not known here is a name, and stays.
"""

from __future__ import annotations

import re

COUNTERS: dict[str, str] = {
    "cpu_cycles": "CPU 周期",
    "l3_misses": "L3 缓存未命中",
    "memory_bandwidth": "内存带宽",
    "pcie_bandwidth": "PCIe 带宽",
    "conv": "卷积算子",
    "fc": "全连接算子",
    "attention": "注意力算子",
}
"""The seven attribution dimensions."""

_PLAN: tuple[tuple[str, str], ...] = (
    (r"^(\d+) replicas: ", r"\1 个副本："),
    (r" \+ ", " ＋ "),
    (r" ×(\d+) GPUs? \(([^()]*)\), its only layer", r" \1 张 GPU（\2）全部 1 层"),
    (r" ×(\d+) GPUs? \(([^()]*)\), all (\d+) layers", r" \1 张 GPU（\2）全部 \3 层"),
    (r" ×(\d+) GPUs? \(([^()]*)\), layers? ([\d–]+)", r" \1 张 GPU（\2）第 \3 层"),
    (r"（([^（）]*), ([^（）]*)）", r"（\1，\2）"),
    (r", microbatch (\d+)", r"，微批 \1"),
    (r", GPipe$", "，GPipe"),
)

_WHOLE: dict[str, str] = {
    "wait": "等待",
    "keep the plan": "维持现有方案",
    "links": "全部链路",
    "queue": "队列",
    "work left": "剩余工作量",
    "waited": "已等待时间",
    "time of day": "时刻",
    "plan in force": "现行方案",
    "reward weights": "奖励权重",
    "link": "链路",
    "load": "负载",
    "task": "任务",
    "time": "时间",
    "attribution": "归因",
    "plan": "方案",
    "weights": "权重",
    "input": "输入",
    "journal": "决策日志",
    "environment": "仿真环境",
    "episode": "回合",
    "bandwidth": "带宽",
    "latency": "时延",
    "free devices": "空闲设备数",
    "utilisation": "利用率",
    "queue length": "队列长度",
    "steps left": "剩余步数",
    "waiting": "等待任务数",
    "tasks waiting": "等待任务数",
    "waiting time": "等待时间",
    "time waited": "时长",
    "step time": "步长时间",
    "share": "份额",
    "value": "数值",
    "part": "方案组成部分",
    "cut points": "切分点",
    "layout": "并行布局",
    "precision": "数值精度",
    "microbatch": "微批大小",
    "domains": "所用域",
    "domains and cuts": "所用域与切分点",
    "schedule": "流水线调度",
}

_PLAYERS: tuple[tuple[str, str], ...] = (
    (r"link (.+)", r"链路 \1"),
    (r"links of (.+)", r"\1 出站链路"),
    (r"load (.+)", r"\1 负载"),
    (r"(\d+) decisions", r"\1 次决策"),
    (r"the last (\d+) decisions", r"最近 \1 次决策"),
    (r"a warm-up of (\d+) decisions in the same world, seed (\d+)", r"同一环境下 \1 次预热决策（随机种子 \2）"),
    (
        r"a warm-up of (\d+) decisions in the same world, seed (\d+), and (\d+) decisions so far",
        r"同一环境下 \1 次预热决策（随机种子 \2）及至今 \3 次决策",
    ),
    (r"(\d+) inputs", r"\1 个输入样本"),
)

_UNITS: dict[str, str] = {
    "free devices": "块空闲设备",
    "devices": "块设备",
    "GPUs": "张 GPU",
    "waiting": "个等待任务",
    "tasks": "个任务",
    "steps": "步",
    "s per step": "s／步",
    "samples": "个样本",
    "layer": "层",
    "bit": "位",
}

_READINGS: tuple[tuple[str, str], ...] = (
    (r"([\d.,]+) free devices", r"\1 块空闲设备"),
    (r"([\d.]+) % busy", r"占用率 \1%"),
    (r"([\d.,]+) waiting", r"\1 个任务在等待"),
    (r"([\d.,]+) steps", r"\1 步"),
    (r"([\d.,e+-]+) s per step on (\d+) devices", r"每步 \1 s（\2 块设备）"),
    (r"([\d.,e+-]+) s per step", r"每步 \1 s"),
    (r"microbatch (\d+)", r"微批 \1"),
    (r"cut after layer ([\d–]+)", r"第 \1 层后切分"),
    (r"cuts after layers ([\d ·]+)", r"第 \1 层后切分"),
    (r"whole", "不切分"),
    (r"1 device", "单设备"),
    (r"one of (\d+) others", r"其他 \1 种之一"),
)

_MARKS: tuple[str, ...] = (" / ", " + ", " → ")
"""What sets alternatives, replicas and segments apart in a reading."""


def in_chinese(plan: str) -> str:
    """A plan as :func:`~attribution_sched.explain.wording.describe_plan` says it in English, in Chinese."""
    if plan in _WHOLE:
        return _WHOLE[plan]
    text = plan
    for pattern, words in _PLAN:
        if pattern == r" \+ " and "个副本：" not in text:
            continue
        text = re.sub(pattern, words, text)
    return text


def name_in_chinese(name: str) -> str:
    """Name of a player, a group, a quantity or a background."""
    if name in _WHOLE:
        return _WHOLE[name]
    if name.startswith("attribution "):
        counter = name.removeprefix("attribution ")
        return f"归因·{COUNTERS.get(counter, counter)}"
    kept = re.fullmatch(r"(.+): (\d+) (placement|re-planning) decisions (.+)", name)
    if kept:
        source, count, event, kinds = kept.groups()
        same = "同类任务" if "same" in kinds else "各类任务"
        return f"{name_in_chinese(source)}，其中{same}的{'放置' if event == 'placement' else '重规划'}决策 {count} 次"
    if " + " in name and all(part in _WHOLE for part in name.split(" + ")):
        return "＋".join(_WHOLE[part] for part in name.split(" + "))
    drawn = re.fullmatch(r"(\d+) other combinations of parts(?:, links of (.+))?", name)
    if drawn:
        links = f"，链路状态取自{name_in_chinese(drawn[2])}" if drawn[2] else ""
        return f"{drawn[1]} 种其他组合{links}"
    for pattern, words in _PLAYERS:
        if re.fullmatch(pattern, name):
            return re.sub(pattern, words, name)
    return name


def unit_in_chinese(unit: str) -> str:
    """Unit of a quantity; symbols such as Gb/s stay."""
    return _UNITS.get(unit, unit)


def reading_in_chinese(reading: str) -> str:
    """A reading such as ``12 free devices, 40 % busy``."""
    return "、".join(_part(part) for part in reading.split(", "))


def spaced(text: str) -> str:
    """Set Latin letters and digits apart from Chinese characters by a space, as typesetters do."""
    text = re.sub(r"([\u4e00-\u9fff])([A-Za-z0-9])", r"\1 \2", text)
    return re.sub(r"([A-Za-z0-9%])([\u4e00-\u9fff])", r"\1 \2", text)


def _part(part: str) -> str:
    for pattern, words in _READINGS:
        if re.fullmatch(pattern, part):
            return re.sub(pattern, words, part)
    for mark in _MARKS:
        if mark in part:
            return mark.join(_part(piece) for piece in part.split(mark))
    return part


NOTES: dict[str, str] = {
    "The probability is that of the policy's own proposal; a search settled the plan.": (
        "所述概率属于策略自身提出的方案，最终方案由搜索确定。"
    ),
    "The choice explained is the policy's own when asked anew; what was decided differs from it.": (
        "所解释的是重新询问时策略自身的选择，与实际决策不同。"
    ),
    "Where the policy makes the plan compared with, its choice counts as −1.": (
        "若策略选择用于比较的方案，则该选择记为 −1。"
    ),
    "Intervals are about these very background states, not about what else they might have been.": (
        "置信区间只针对所用的这些背景状态，不涵盖背景本身的抽样误差。"
    ),
}
"""Notes of explanations."""
