"""Where every kind of number comes from, and how to get this report again."""

from __future__ import annotations

from attribution_sched.explain.digits import number
from attribution_sched.report.data import Report
from attribution_sched.report.document import Block, Code, Section, Table, Text
from attribution_sched.report.saying import say

TITLE = ("Where the numbers come from", "数字的来源")
HEAD = (("number", "unit", "provenance", "how"), ("数字", "单位", "来源", "方法"))
KINDS = {
    "simulated": ("simulated", "仿真"), "estimated": ("estimated", "估计"), "measured": ("measured", "实测"),
    "given": ("given", "给定"),
}  # fmt: skip
ROWS: tuple[tuple[tuple[str, str], str, str, tuple[str, str]], ...] = (
    (("counters of tasks", "任务计数器"), "1/s, B/s, s/s", "{counters}",
     ("drawn from the preset's tasks with noise, or measured if they were submitted",
      "由预设任务加噪声生成；若随任务提交则为实测")),
    (("energy attribution", "能耗归因"), "{joules}", "estimated",
     ("closed-form EmSHAP of an energy model fitted on simulated tasks; conditional on the other counters",
      "对仿真任务拟合能耗模型后以闭式 EmSHAP 求得，以其余计数器为条件")),
    (("step time, energy, bill, utilisation, reward terms", "单步时间、能耗、费用、利用率、奖励分量"),
     "s, J, USD, 1", "simulated",
     ("what the simulated cluster made of the plan, recorded in the journal",
      "仿真集群执行方案的结果，记录于决策日志")),
    (("totals: tasks, energy, traffic, carbon", "合计：任务、能耗、流量、碳排放"), "1, kWh, USD, kg", "simulated",
     ("meters of the simulated cluster since the start", "仿真集群自启动以来的计量")),
    (("targets", "目标"), "–", "given", ("set by the user; what was reached is simulated", "由用户设定；达成值为仿真")),
    (("traffic between domains", "跨域流量"), "GB", "simulated",
     ("the cluster rebuilt up to the decision; a split that was not taken is estimated by the cost model",
      "将集群重建至该决策时刻；未采用的切分由成本模型估计")),
    (("shares, intervals, drivers", "份额、区间、驱动因素"), "R", "estimated",
     ("Shapley values by sampling the policy's own expectation over background states",
      "在背景状态上对策略自身的预期抽样求得的 Shapley 值")),
    (("thresholds, flips", "阈值、翻转"), "{own}", "estimated",
     ("found by asking a copy of the policy; the smallest flip is verified by it",
      "通过询问策略副本找到；最小翻转经其验证")),
    (("rivals' figures", "其他策略的指标"), "1, kWh, USD, h", "simulated",
     ("the same span played again from the start", "从头重新执行同一时段")),
    (("times of decisions and explanations", "决策与解释用时"), "s", "measured",
     ("on the machine that ran it", "于运行所在机器实测")),
    (("weights, prices, carbon intensity, hardware", "权重、价格、碳强度、硬件"), "–", "given", ("the preset", "预设")),
)  # fmt: skip
OWN = ("each its own", "各自单位")

AGAIN = ("How to get this report again", "如何复现本报告")
FACTS_HEAD = (("what", "value"), ("项目", "值"))
FACTS = {
    "version": ("package version", "软件版本"), "preset": ("preset", "预设"), "seed": ("seed", "随机种子"),
    "policy": ("policy", "策略"), "queue": ("tasks from", "任务来源"),
    "weights": ("weights at the end", "结束时的权重"),
    "journal": ("journal", "决策日志"), "begun": ("begun", "起始时间（UTC）"),
    "print": ("fingerprint of decisions", "决策指纹"),
    "resumed": ("resumed", "恢复次数"), "learnt": ("learnt weights took over", "采用学得权重次数"),
}  # fmt: skip
MEMORY = ("in memory", "内存中")
OTHER = (" (written by {version})", "（由 {version} 写入）")
SAME = (
    "The same version, preset, seed and calls give the same decisions, and so the same fingerprint; only measured "
    "times "
    "differ.",
    "版本、预设、随机种子与调用相同，则决策与指纹相同；仅实测用时不同。",
)
FROM_JOURNAL = (
    "This run had submitted tasks, changed weights, or a preset or policy of its own; only its journal tells it in "
    "full.",
    "本次运行包含提交的任务、修改过的权重，或自定义的预设、策略；只有决策日志能完整复现。",
)
LOST = (
    "It was kept in memory and cannot be repeated by a command; give System a journal= to keep the next one.",
    "日志仅存于内存，无法用命令复现；下次请为 System 指定 journal=。",
)


def section(report: Report, lang: str) -> Section:
    """A table over all kinds of numbers."""
    energy = report.energy
    counters = sorted({task.counters for task in energy.tasks}) if energy else ["simulated"]
    fill = {
        "{joules}": "J／样本" if lang == "zh" else "J/sample" if energy is None else energy.unit,
        "{own}": say(OWN, lang),
        "{counters}": ", ".join(say(KINDS[name], lang) if name in KINDS else name for name in counters),
    }
    rows = tuple(
        (say(name, lang), fill.get(unit, unit), fill.get(kind) or say(KINDS[kind], lang), say(how, lang))
        for name, unit, kind, how in ROWS
    )
    blocks: list[Block] = [Table(HEAD[lang == "zh"], rows, text_columns=4, wide=False)]
    return Section("provenance", say(TITLE, lang), tuple(blocks))


def footer(report: Report, lang: str) -> Section:
    """What the run needs to be repeated, and the lines that do it."""
    run = report.run
    journal = run.journal or say(MEMORY, lang)
    if run.journal_version != run.version:
        journal += say(OTHER, lang, version=run.journal_version)
    values = {
        "version": run.version, "preset": run.preset, "seed": str(run.seed), "policy": run.policy, "queue": run.queue,
        "weights": ", ".join(f"{name} {number(weight)}" for name, weight in
                             zip(("w_eff", "w_util", "w_cost"), run.weights, strict=True)),
        "journal": journal, "begun": run.created_at[:19].replace("T", " "), "print": run.fingerprint or "–",
        "resumed": str(run.resumed), "learnt": str(run.learnt),
    }  # fmt: skip
    rows = tuple((say(FACTS[name], lang), value) for name, value in values.items())
    plain = (
        run.shipped and not (run.submitted and run.queue != "demo") and not report.changes.changes and not run.learnt
    )
    blocks: list[Block] = [Table(FACTS_HEAD[lang == "zh"], rows, text_columns=2, wide=False)]
    suffix = f', lang="{lang}"' if lang != "en" else ""
    if plain:
        blocks += [Code(_command(report, suffix)), Text(say(SAME, lang), "note")]
    else:
        blocks.append(Text(say(FROM_JOURNAL, lang), "note"))
        if run.journal:
            lines = [
                "from attribution_sched import System",
                "",
                f'System.resume("{run.journal}").report("report.html"{suffix})',
            ]
            blocks.append(Code("\n".join(lines)))
        else:
            blocks.append(Text(say(LOST, lang), "note"))
    return Section("reproduce", say(AGAIN, lang), tuple(blocks))


def _targets(report: Report) -> str:
    """The targets as an argument of ``System``; nothing where there are none."""
    asked = ", ".join(f'"{one.target}": {one.limit.value!r}' for one in report.targets)
    return f", targets={{{asked}}}" if asked else ""


def _command(report: Report, suffix: str) -> str:
    run = report.run
    queue = "" if run.queue == "preset" else f', queue="{run.queue}"'
    lines = ["from attribution_sched import System", ""]
    lines.append(f'system = System("{run.preset}", "{run.policy}", seed={run.seed}{queue}{_targets(report)})')
    hours, placed = run.totals["cluster_h"].value or 0.0, round(run.totals["placed"].value or 0.0)
    if run.last_placed:
        lines.append(f"system.run({placed})")
    elif hours:
        lines.append(f"system.run(hours={hours!r})" if run.queue == "preset" else 'system.run(until="empty")')
    lines.append(f'system.report("report.html"{suffix})')
    return "\n".join(lines)
