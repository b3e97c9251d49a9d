"""Where the joules go: tasks × counters."""

from __future__ import annotations

import re
from functools import partial

import numpy as np

from attribution_sched.explain import plots
from attribution_sched.explain.digits import number
from attribution_sched.report.data import Energy, Report, TaskEnergy
from attribution_sched.report.document import Block, Picture, Section, Table, Text
from attribution_sched.report.format import listed, share
from attribution_sched.words.names import counter_name
from attribution_sched.words.say import say, say_name

ACCOUNT = "accounting"

MOST_ROWS = 24
"""Tasks in the picture."""


def section(report: Report, lang: str) -> Section:
    """The heatmap with its numbers, and means by model."""
    energy, title = report.energy, say("report.energy.title", lang)
    if energy is None or not energy.tasks:
        return Section("energy", title, (Text(say("report.energy.none", lang), "note"),))
    blocks: list[Block] = [Text(_lead(energy, lang)), _picture(energy, lang), _by_kind(energy, lang)]
    return Section("energy", title, tuple(blocks))


def counter(name: str, lang: str) -> str:
    """A counter in words."""
    return counter_name(name, lang)


def _lead(energy: Energy, lang: str) -> str:
    if energy.unit == "share":
        return say("report.energy.shares", lang)
    sizes = np.abs([task.parts for task in energy.tasks]).sum(axis=0)
    order = np.argsort(-sizes, kind="stable")[:3]
    largest = [
        say(
            "report.energy.one_counter",
            lang,
            name=counter(energy.counters[i], lang),
            share=share(float(sizes[i] / sizes.sum()), lang),
        )
        for i in order
    ]
    if energy.question == ACCOUNT:
        return say("report.energy.lead", lang, largest=listed(largest, lang))
    mean, unit = number(energy.tasks[-1].base), energy.unit
    return say(
        "report.energy.lead_mean", lang, typical=mean, unit=unit.removesuffix("/sample"), largest=listed(largest, lang)
    )


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
    labels = [_label(task) for task in by_size]
    idle, errors = np.array([task.base for task in by_size]), np.array([task.errors for task in by_size])
    account = partial(plots.accounts, values, idle, errors, labels, names=energy.counters, unit=unit, lang=lang)
    mean = partial(
        plots.attributions,
        values,
        labels,
        names=energy.counters,
        unit=unit,
        scale="log",
        lang=lang,
    )
    all_ = len(energy.tasks) + energy.left_out
    shown = say(
        "report.energy.all" if all_ == len(by_size) else "report.energy.some", lang, count=len(by_size), all=all_
    )
    fit = ""
    if energy.median_error is not None:
        fit = say("report.energy.error", lang, error=share(energy.median_error, lang), tasks=energy.fitted_on)
    sorts = sorted({task.counters for task in by_size})
    caption = say(
        "report.energy.caption_account" if energy.question == ACCOUNT else "report.energy.caption",
        lang,
        shown=shown,
        fit=fit,
        method=say_name("report.energy.method", energy.method, lang),
        counters=listed([say_name("report.energy.mixed", sort, lang) for sort in sorts], lang),
    )
    at = np.unravel_index(int(np.abs(values).argmax()), values.shape)
    alt = say(
        "report.energy.alt",
        lang,
        rows=len(by_size),
        columns=len(energy.counters),
        value=number(float(values[at])),
        unit=unit,
        counter=counter(energy.counters[at[1]], lang),
        task=_label(by_size[at[0]]),
    )
    draw = account if energy.question == ACCOUNT else mean
    return Picture("energy-heatmap", draw, alt, caption, _numbers(energy, by_size, lang))


def _numbers(energy: Energy, tasks: list[TaskEnergy], lang: str) -> Table:
    head = (
        say("report.energy.task", lang),
        *(counter(name, lang) for name in energy.counters),
        say("report.energy.predicted", lang),
    )
    rows = tuple(
        (
            _label(task),
            *(number(part, 3, signed=energy.question != ACCOUNT) for part in task.parts),
            number(task.predicted),
        )
        for task in tasks
    )
    return Table(head, rows)


def _by_kind(energy: Energy, lang: str) -> Table:
    kinds: dict[str, list[TaskEnergy]] = {}
    for task in energy.tasks:
        name = task.kind if task.training else say("report.energy.inference", lang, kind=task.kind)
        kinds.setdefault(name, []).append(task)
    rows = []
    for kind, tasks in kinds.items():
        parts = np.mean([task.parts for task in tasks], axis=0)
        total = sum(task.predicted * task.samples for task in tasks) / 1e6
        cells = [number(float(part), 2, signed=energy.question != ACCOUNT) for part in parts]
        whole = [number(float(np.mean([task.predicted for task in tasks])))]
        if energy.unit == "J/sample":
            whole.append(number(total))
        rows.append(
            (total, (kind, str(len(tasks)), number(float(np.mean([task.base for task in tasks]))), *cells, *whole))
        )
    rows.sort(key=lambda row: -row[0])
    head = [
        say("report.energy.kind", lang),
        "n",
        say("report.energy.idle" if energy.question == ACCOUNT else "report.energy.typical", lang),
        *(counter(name, lang) for name in energy.counters),
    ]
    head.append(say("report.energy.predicted", lang))
    if energy.unit == "J/sample":
        head.append(say("report.energy.in_all", lang))
    caption = say("report.energy.by_kind", lang, unit=energy.unit if lang == "en" else _unit(energy.unit, lang))
    return Table(tuple(head), tuple(row for _, row in rows), caption)
