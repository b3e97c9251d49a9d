"""The headline: what was run, what it came to, what drove it."""

from __future__ import annotations

from attribution_sched.explain.wording import output_name
from attribution_sched.feedback.targets import KINDS
from attribution_sched.report.data import Report, Standing
from attribution_sched.report.document import Block, Section, Text, Tile, Tiles, Tone
from attribution_sched.report.saying import (
    amount,
    clock,
    count,
    hours,
    listed,
    player,
    plural,
    say,
    seconds,
    share,
    signed,
)

TITLE = ("Summary", "摘要")
RAN = (
    "{policy} scheduled the tasks of preset {preset} (seed {seed}) for {span} on the cluster's clock: {decided}, "
    "{placed} of {tasks} placed, {completed} finished.",
    "策略 {policy} 在预设 {preset}（随机种子 {seed}）上调度了 {span}（集群时钟）：共 {decisions} 次决策，"
    "到达 {arrived} 个任务，放置 {placed} 个，完成 {completed} 个。",
)
EMPTY = (
    "Nothing has been decided yet: the run of {policy} on preset {preset} (seed {seed}) holds no decision. Schedule "
    "some tasks and write the report again.",
    "尚无任何决策：策略 {policy} 在预设 {preset}（随机种子 {seed}）上还没有作出决策。请先调度若干任务，"
    "再重新生成报告。",
)
WORTH = (
    "On average a placement's steps take {faster} time than on the baseline (the static uniform split), devices "
    "compute for {util} of a step, and the cost (traffic, and energy or carbon where priced) is {cost} of the "
    "baseline's. The mean reward is R = {reward}.",
    "与基线（静态均匀切分）相比，放置方案的单步时间平均{faster}；单步中 {util} 的时间用于计算；"
    "成本（流量费，以及计价的能耗与碳排放）为基线的 {cost}；平均奖励 R = {reward}。",
)
FASTER = ("{share} less", "缩短 {share}")
SLOWER = ("{share} more", "延长 {share}")
SPENT = (
    "Tasks kept {busy} of all device time busy. The devices drew {energy} ({idle} of it idle), and traffic between "
    "domains "
    "cost {bill}.",
    "任务占用了全部设备时间的 {busy}。设备共耗电 {energy}（其中空闲耗电 {idle}），跨域流量费用 {bill}。",
)
SPENT_ALONE = (
    "Tasks kept {busy} of all device time busy. The devices drew {energy}, {idle} of it while idle.",
    "任务占用了全部设备时间的 {busy}。设备共耗电 {energy}，其中空闲耗电 {idle}。",
)
DRIVEN = (
    "Of the {count} placements explained, the certain driver of {output} was most often {drivers}.",
    "在所解释的 {count} 次放置决策中，{output}最常见的可确认驱动因素依次为{drivers}。",
)
ONE_DRIVER = ("{name} ({share} of them)", "{name}（占 {share}）")
NO_DRIVER = (
    "In none of the {count} placements explained is a single input certain to have driven {output}.",
    "在所解释的 {count} 次放置决策中，没有任何单个输入可以确认为{output}的驱动因素。",
)
MET = ("Targets met: {met} of {all}.", "{all} 项目标中已达成 {met} 项。")
OPEN = (
    "At the end {running_en} running and {waiting_en} waiting; the cluster refused {refused_en}.",
    "结束时有 {running} 个任务在运行，{waiting} 个在等待；集群拒绝了 {refused} 个方案。",
)
MISSED = ("missed: {name}", "未达成：{name}")
TILES = {
    "tasks": ("placed / finished", "放置／完成"),
    "arrived": ("of {tasks} that came", "共到达 {count} 个任务"),
    "busy": ("device time busy", "设备忙碌时间占比"),
    "busy_note": ("of {devices}", "共 {count} 块设备"),
    "finish": ("time to finish", "平均完成用时"),
    "finish_note": ("mean, from arrival", "自到达起，平均"),
    "waited": ("waiting", "排队等待"),
    "waited_note": ("all tasks together", "所有任务合计"),
    "energy": ("energy", "能耗"),
    "bill": ("traffic bill", "流量费用"),
    "carbon": ("{amount} of the tasks", "任务碳排放 {amount}"),
    "no_carbon": ("carbon intensity not given", "未给出碳强度"),
    "cross": ("{plans} across domains", "{count} 个跨域方案"),
    "reward": ("mean reward R", "平均奖励 R"),
    "reward_note": ("speed {eff} · use {util} · cost {cost}", "效率 {eff} · 利用率 {util} · 成本 {cost}"),
    "time": ("time per decision", "单次决策用时"),
    "time_note": ("median; 99 of 100 below {p99}", "中位数；99% 低于 {p99}"),
    "targets": ("targets met", "达成目标"),
    "targets_none": ("none was set", "未设定目标"),
}


def section(report: Report, lang: str) -> Section:
    """Words first, then the headline numbers."""
    run, totals = report.run, report.run.totals
    name = {"policy": run.policy, "preset": run.preset, "seed": run.seed}
    if not totals["decisions"].value:
        return Section("summary", say(TITLE, lang), (Text(say(EMPTY, lang, **name), "lead"),))
    ran = say(
        RAN, lang, **name, span=clock(3600.0 * (totals["cluster_h"].value or 0.0), lang),
        decisions=count(totals["decisions"]), decided=plural(totals["decisions"], "decision", "decisions"),
        tasks=plural(totals["arrived"], "task", "tasks"), placed=count(totals["placed"]),
        arrived=count(totals["arrived"]), completed=count(totals["completed"]),
    )  # fmt: skip
    words = [ran, _worth(report, lang)]
    spent = SPENT if len(run.domains) > 1 else SPENT_ALONE
    idle, energy = totals["idle_energy_kwh"].value or 0.0, totals["energy_kwh"].value or 0.0
    rest = [
        say(
            spent, lang, busy=share(totals["utilisation"], lang), energy=amount(totals["energy_kwh"]),
            idle=share(idle / energy if energy else 0.0, lang), bill=amount(totals["traffic_usd"]),
        ),
        say(OPEN, lang, running=count(totals["running"]), waiting=count(totals["waiting"]),
            refused=count(totals["refused"]), running_en=plural(totals["running"], "task is", "tasks are"),
            waiting_en=plural(totals["waiting"], "is", "are"), refused_en=plural(totals["refused"], "plan", "plans")),
        _drivers(report, lang),
    ]  # fmt: skip
    if report.targets:
        met = sum(one.violation is not None and one.violation <= 0 for one in report.targets)
        rest.append(say(MET, lang, met=met, all=len(report.targets)))
    gap = " " if lang == "en" else ""
    blocks: tuple[Block, ...] = (
        Text(gap.join(word for word in words if word), "lead"),
        _tiles(report, lang),
        Text(gap.join(word for word in rest if word)),
    )
    return Section("summary", say(TITLE, lang), blocks)


def _worth(report: Report, lang: str) -> str:
    totals = report.run.totals
    eff = totals["mean_r_eff"].value
    if eff is None:
        return ""
    faster = say(FASTER if eff >= 0 else SLOWER, lang, share=share(abs(eff), lang))
    return say(
        WORTH, lang, faster=faster, util=share(totals["mean_r_util"], lang), cost=share(totals["mean_r_cost"], lang),
        reward=signed(totals["mean_reward"]),
    )  # fmt: skip


def _drivers(report: Report, lang: str) -> str:
    why = report.reasons
    explained = sum(one.explanation is not None for one in why.sample)
    if not explained:
        return ""
    name = output_name(why.output, lang)
    leading = [driver for driver in why.drivers if driver.top > 0][:3]
    if not leading:
        return say(NO_DRIVER, lang, count=explained, output=name)
    told = [say(ONE_DRIVER, lang, name=player(one.name, lang), share=share(one.top, lang)) for one in leading]
    return say(DRIVEN, lang, count=explained, output=name, drivers=listed(told, lang))


def _short(one: Standing, lang: str) -> str:
    kind = KINDS[one.target]
    return kind.chinese if lang == "zh" else kind.english


def _tiles(report: Report, lang: str) -> Tiles:
    run, totals = report.run, report.run.totals

    def word(key: str, **values: object) -> str:
        return say(TILES[key], lang, **values)

    # Energy without any carbon means that the preset gives no intensity, not that there is none.
    carbon_kg, energy_kwh = totals["carbon_kg"], totals["energy_kwh"].value
    unknown = energy_kwh and not carbon_kg.value
    carbon = word("no_carbon") if unknown else word("carbon", amount=amount(carbon_kg))
    tiles = [
        Tile(
            word("tasks"), f"{count(totals['placed'])} / {count(totals['completed'])}",
            word("arrived", count=count(totals["arrived"]), tasks=plural(totals["arrived"], "task", "tasks")),
        ),
        Tile(
            word("busy"), share(totals["utilisation"], lang),
            word("busy_note", count=sum(run.devices), devices=plural(sum(run.devices), "device", "devices")),
        ),
        Tile(word("energy"), amount(totals["energy_kwh"]), carbon),
        Tile(
            word("reward"), signed(totals["mean_reward"]),
            word("reward_note", eff=signed(totals["mean_r_eff"], 2), util=signed(totals["mean_r_util"], 2),
                 cost=amount(totals["mean_r_cost"], lang, 2)),
        ),
        Tile(
            word("time"), seconds(totals["decision_p50_s"].value),
            word("time_note", p99=seconds(totals["decision_p99_s"].value)),
        ),
    ]  # fmt: skip
    if len(run.domains) > 1:
        crossing = word("cross", count=report.cross_domain, plans=plural(report.cross_domain, "plan", "plans"))
        tiles.insert(3, Tile(word("bill"), amount(totals["traffic_usd"]), crossing))
    else:
        tiles.insert(3, Tile(word("waited"), hours(totals["waiting_h"], lang), word("waited_note")))
    tiles.insert(5, Tile(word("finish"), hours(totals["completion_h"], lang), word("finish_note")))
    met = sum(one.violation is not None and one.violation <= 0 for one in report.targets)
    if report.targets:
        tone: Tone = "good" if met == len(report.targets) else "bad"
        missed = [say(MISSED, lang, name=_short(one, lang)) for one in report.targets if (one.violation or 0.0) > 0]
        tiles.append(
            Tile(word("targets"), f"{met} / {len(report.targets)}", ("；" if lang == "zh" else "; ").join(missed), tone)
        )
    else:
        tiles.append(Tile(word("targets"), "–", word("targets_none")))
    return Tiles(tuple(tiles))
