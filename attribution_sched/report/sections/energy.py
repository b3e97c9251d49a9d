"""Where the joules go: tasks × counters."""

from __future__ import annotations

import re
from functools import partial

import numpy as np

from attribution_sched.explain import plots
from attribution_sched.explain.digits import number
from attribution_sched.explain.words import counter_name
from attribution_sched.report.data import Energy, Report, TaskEnergy
from attribution_sched.report.document import Block, Picture, Section, Table, Text
from attribution_sched.report.saying import listed, say, share

TITLE = ("Where the joules go", "能耗归因")
NONE = ("No task was placed, so there is nothing to attribute.", "尚未放置任何任务，没有可供归因的能耗。")
LEAD = (
    "Per sample, the typical task takes {typical} {unit}. Each cell is what a counter's reading adds to that (blue) or "
    "takes away (orange); typical and row add up to the task's predicted energy. Largest over all tasks: {largest}.",
    "典型任务每个样本耗能 {typical} {unit}。每个单元格表示某计数器读数在此基础上增加（蓝）或减少（橙）的能耗；"
    "典型值与一行之和即该任务的预测能耗。总体上影响最大的依次为：{largest}。",
)
SHARES = (
    "The attributor of this run gives shares without a unit; they are shown as they are.",
    "本次运行的归因器只给出无量纲份额，此处原样展示。",
)
CAPTION = (
    "Energy attribution of {shown}. Colours are logarithmic in both directions, so that small tasks can be seen beside "
    "large ones. Estimated by {method}{fit}; counters {counters}.",
    "{shown}的能耗归因。颜色按双向对数刻度，便于同时观察大小任务。由{method}估计{fit}；计数器为{counters}。",
)
ALL = ("the {count} placed tasks", "已放置的 {count} 个任务")
SOME = (
    "{count} of the {all} placed tasks, those with most predicted joules",
    "{all} 个已放置任务中预测能耗最高的 {count} 个",
)
FIT = (" (R² {r2}, fitted on {tasks} tasks)", "（R² {r2}，以 {tasks} 个任务拟合）")
METHODS = {"closed form": ("closed-form EmSHAP", "闭式 EmSHAP")}
ALT = (
    "Heatmap of {rows} tasks by {columns} counters. The largest entry is {value} {unit}, {counter} of {task}.",
    "{rows} 个任务 × {columns} 个计数器的热图。最大值为 {value} {unit}：{task} 的{counter}。",
)
MIXED = {"simulated": ("simulated", "仿真值"), "measured": ("measured", "实测值")}
TYPICAL, PREDICTED = ("typical", "典型值"), ("predicted", "预测值")
TASK, KIND = ("task", "任务"), ("model", "模型")
BY_KIND = ("Means by model, {unit}", "按模型平均（{unit}）")
IN_ALL = ("in all, MJ", "全程合计（MJ）")

MOST_ROWS = 24
"""Tasks in the picture."""


def section(report: Report, lang: str) -> Section:
    """The heatmap with its numbers, and means by model."""
    energy, title = report.energy, say(TITLE, lang)
    if energy is None or not energy.tasks:
        return Section("energy", title, (Text(say(NONE, lang), "note"),))
    blocks: list[Block] = [Text(_lead(energy, lang)), _picture(energy, lang), _by_kind(energy, lang)]
    return Section("energy", title, tuple(blocks))


def counter(name: str, lang: str) -> str:
    """A counter in words."""
    return counter_name(name, lang)


def _lead(energy: Energy, lang: str) -> str:
    if energy.unit == "share":
        return say(SHARES, lang)
    sizes = np.abs([task.parts for task in energy.tasks]).sum(axis=0)
    order = np.argsort(-sizes, kind="stable")[:3]
    told = [f"{counter(energy.counters[i], lang)} ({share(float(sizes[i] / sizes.sum()), lang)})" for i in order]
    if lang == "zh":
        told = [word.replace(" (", "（").replace(")", "）") for word in told]
    typical, unit = number(energy.tasks[-1].typical), energy.unit
    return say(LEAD, lang, typical=typical, unit=unit.removesuffix("/sample"), largest=listed(told, lang))


def _unit(unit: str, lang: str) -> str:
    return unit.replace("/sample", "／样本") if lang == "zh" else unit.replace("J/sample", "J")


def _label(task: TaskEnergy) -> str:
    """Model and task; of tasks without a name, their number."""
    numbered = re.fullmatch(r"t0*(\d+)", task.task)
    return f"{task.kind} #{numbered[1]}" if numbered else f"{task.kind} · {task.task}"


def _picture(energy: Energy, lang: str) -> Picture:
    by_size = sorted(energy.tasks, key=lambda task: -abs(task.predicted))[:MOST_ROWS]
    values = np.array([task.parts for task in by_size])
    unit = energy.unit.replace("/sample", " per sample") if lang == "en" else _unit(energy.unit, lang)
    draw = partial(
        plots.attributions, values, [_label(task) for task in by_size], names=energy.counters, unit=unit,
        scale="log", lang=lang,
    )  # fmt: skip
    all_ = len(energy.tasks) + energy.left_out
    shown = say(ALL if all_ == len(by_size) else SOME, lang, count=len(by_size), all=all_)
    fit = ""
    if energy.r_squared is not None:
        fit = say(FIT, lang, r2=number(energy.r_squared), tasks=energy.fitted_on)
    sorts = sorted({task.counters for task in by_size})
    caption = say(
        CAPTION, lang, shown=shown, fit=fit,
        method=say(METHODS[energy.method], lang) if energy.method in METHODS else energy.method,
        counters=listed([say(MIXED.get(sort, (sort, sort)), lang) for sort in sorts], lang),
    )  # fmt: skip
    at = np.unravel_index(int(np.abs(values).argmax()), values.shape)
    alt = say(
        ALT, lang, rows=len(by_size), columns=len(energy.counters), value=number(float(values[at])), unit=unit,
        counter=counter(energy.counters[at[1]], lang), task=_label(by_size[at[0]]),
    )  # fmt: skip
    return Picture("energy-heatmap", draw, alt, caption, _numbers(energy, by_size, lang))


def _numbers(energy: Energy, tasks: list[TaskEnergy], lang: str) -> Table:
    head = (say(TASK, lang), *(counter(name, lang) for name in energy.counters), say(PREDICTED, lang))
    rows = tuple(
        (_label(task), *(number(part, 3, signed=True) for part in task.parts), number(task.predicted)) for task in tasks
    )
    return Table(head, rows)


def _by_kind(energy: Energy, lang: str) -> Table:
    kinds: dict[str, list[TaskEnergy]] = {}
    for task in energy.tasks:
        mode = ("" if task.training else " (inference)") if lang == "en" else ("" if task.training else "（推理）")
        kinds.setdefault(f"{task.kind}{mode}", []).append(task)
    rows = []
    for kind, tasks in kinds.items():
        parts = np.mean([task.parts for task in tasks], axis=0)
        total = sum(task.predicted * task.samples for task in tasks) / 1e6
        cells = [number(float(part), 2, signed=True) for part in parts]
        whole = [number(float(np.mean([task.predicted for task in tasks])))]
        if energy.unit == "J/sample":
            whole.append(number(total))
        rows.append((total, (kind, str(len(tasks)), number(tasks[0].typical), *cells, *whole)))
    rows.sort(key=lambda row: -row[0])
    head = [say(KIND, lang), "n", say(TYPICAL, lang), *(counter(name, lang) for name in energy.counters)]
    head.append(say(PREDICTED, lang))
    if energy.unit == "J/sample":
        head.append(say(IN_ALL, lang))
    caption = say(BY_KIND, lang, unit=energy.unit if lang == "en" else _unit(energy.unit, lang))
    return Table(tuple(head), tuple(row for _, row in rows), caption)
