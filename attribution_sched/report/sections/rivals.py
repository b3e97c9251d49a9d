"""The same day played by others."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from attribution_sched.explain import plots
from attribution_sched.explain.plots.style import drawn_language
from attribution_sched.report.data import Contender, Report
from attribution_sched.report.document import Block, Picture, Section, Table, Text
from attribution_sched.report.gathering.rivals import NO_RIVAL, NOTHING_DECIDED
from attribution_sched.report.saying import amount, clock, count, hours, say, seconds, share, signed

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TITLE = ("Against rivals", "与其他策略的比较")
NONE = ("There is no comparison: {why}.", "没有比较：{why}。")
REASONS = {
    NOTHING_DECIDED: (NOTHING_DECIDED, "尚无任何决策"),
    NO_RIVAL: (NO_RIVAL, "未指定其他策略"),
}
LEAD = (
    "Compared: the same cluster, seed {seed}, the same arrivals, link bandwidths and tasks, and the first {span} of "
    "the "
    "cluster's clock (up to the first network tick at or after the run's last moment). {policy} is the run itself, its "
    "recorded decisions replayed{continued}; every rival decides for itself from the start. One stretch of one "
    "world: differences may be luck, and benchmarks over many days are the place to judge a policy.",
    "比较条件：同一集群、随机种子 {seed}、相同的任务到达、链路带宽与任务，时间为集群时钟的前 {span}"
    "（至本次运行结束后的第一个网络刻度）。{policy} 为本次运行，重放其已记录的决策{continued}；其他策略均从头自行决策。"
    "仅为一个环境中的一段时间：差异可能出于偶然，评判策略应以多日基准测试为准。",
)
CONTINUED = (", then continued by a copy of its policy for {count} decisions", "，其后由策略副本续作 {count} 次决策")
BETTER = (
    "By reward earned over the span {policy} ranks {rank} of {all}; best is {best} with {value}.",
    "按时段内累计奖励，{policy} 在 {all} 个策略中排名第 {rank}；最佳为 {best}（{value}）。",
)
CAPTION = (
    "Four figures of every policy, each on its own scale; the run itself is dark. More is better for reward and "
    "finished "
    "tasks, less for energy and bill. Simulated.",
    "各策略的四项指标，刻度各自独立；深色为本次运行。奖励与完成任务数越高越好，能耗与费用越低越好。仿真值。",
)
CAPTION_ALONE = (
    "Three figures of every policy, each on its own scale; the run itself is dark. More is better for reward and "
    "finished "
    "tasks, less for energy. Simulated.",
    "各策略的三项指标，刻度各自独立；深色为本次运行。奖励与完成任务数越高越好，能耗越低越好。仿真值。",
)
ALT = ("Bars of {count} policies: {words}.", "{count} 个策略的条形图：{words}。")
ONE_ALT = ("{policy} earned {earned} and finished {completed}", "{policy} 累计奖励 {earned}、完成 {completed} 个")
HEADING = ("the same span, played by each policy", "同一时段由各策略分别执行")
CHART = {
    "earned": ("reward earned", "累计奖励"),
    "completed": ("tasks finished", "完成任务数"),
    "energy_kwh": ("energy, kWh", "能耗，kWh"),
    "traffic_usd": ("bill, USD", "流量费，USD"),
}
HEAD = {
    "policy": ("policy", "策略"), "earned": ("reward earned", "累计奖励"), "mean_reward": ("mean R", "平均 R"),
    "placed": ("placed", "放置"), "completed": ("finished", "完成"),
    "completion_h": ("time to finish, mean", "平均完成用时"),
    "waiting_h": ("waiting, all tasks", "等待合计"), "utilisation": ("devices busy", "设备忙碌"),
    "energy_kwh": ("energy", "能耗"), "traffic_usd": ("bill", "流量费"), "decision_s": ("per decision", "决策用时"),
}  # fmt: skip
EARNED = (
    "Reward earned is what the cluster pays as work gets done: every step pays R in units of {interval} of baseline "
    "work, "
    "every task that waits or moves costs as much as it stands still. Times to finish count from arrival; decision "
    "times are medians, measured on this machine; the rest is simulated.",
    "累计奖励随工作完成而支付：每一步按相当于基线 {interval}工作量的单位支付 R，等待或迁移中的任务按停滞时间扣除。"
    "完成用时自到达起计；决策用时为本机实测中位数；其余为仿真值。",
)
WEIGHED = (
    " Reward earned and mean R take the weights at the end of the run for every policy, {policy} too, on one scale: "
    "its mean R here differs from the summary's, where each plan counts by the weights of its time.",
    "各策略（包括 {policy}）的累计奖励与平均 R 均按运行结束时的权重计算，以统一尺度；因此这里的平均 R 可能与摘要不同，"
    "摘要中每个方案按当时的权重计算。",
)
LEFT_OUT = ("Left out: {name} ({why}).", "未参与比较：{name}（{why}）。")


def section(report: Report, lang: str) -> Section:
    """What was compared, a picture, a table, and who could not take part."""
    rivals, title = report.rivals, say(TITLE, lang)
    if rivals.missing:
        why = say(REASONS[rivals.missing], lang) if rivals.missing in REASONS else rivals.missing
        return Section("rivals", title, (Text(say(NONE, lang, why=why), "note"),))
    played = [one for one in rivals.contenders if not one.missing]
    own = next(one for one in played if one.own)
    continued = say(CONTINUED, lang, count=rivals.continued) if rivals.continued else ""
    span = clock(rivals.span_s, lang)
    lead = say(LEAD, lang, seed=report.run.seed, span=span, policy=own.policy, continued=continued)
    blocks: list[Block] = [Text(lead)]
    if len(played) > 1:
        ranked = sorted(played, key=_earned, reverse=True)
        best = {"best": ranked[0].policy, "value": signed(ranked[0].figures["earned"])}
        words = say(BETTER, lang, policy=own.policy, rank=ranked.index(own) + 1, all=len(ranked), **best)
        blocks += [Text(words), _picture(ranked, lang, len(report.run.domains) > 1)]
        blocks += [_table(ranked, lang, len(report.run.domains) > 1), Text(_earned_how(report, lang), "note")]
    blocks += [
        Text(say(LEFT_OUT, lang, name=one.policy, why=one.missing), "note") for one in rivals.contenders if one.missing
    ]
    return Section("rivals", title, tuple(blocks))


def _earned(one: Contender) -> float:
    return one.figures["earned"].value or 0.0


def _earned_how(report: Report, lang: str) -> str:
    how = say(EARNED, lang, interval=clock(report.run.totals["reward_interval_s"].value or 0.0, lang))
    return how + say(WEIGHED, lang, policy=report.run.policy) if report.changes.changes else how


def _picture(ranked: list[Contender], lang: str, many: bool) -> Picture:
    draw = partial(_draw, ranked, lang, many)
    words = ("; " if lang == "en" else "；").join(
        say(ONE_ALT, lang, policy=one.policy, earned=signed(one.figures["earned"]),
            completed=count(one.figures["completed"]))
        for one in ranked
    )  # fmt: skip
    alt = say(ALT, lang, count=len(ranked), words=words)
    return Picture("rivals-figures", draw, alt, say(CAPTION if many else CAPTION_ALONE, lang))


def _draw(ranked: list[Contender], lang: str, many: bool) -> Axes:
    # What words the picture is drawn in is known only where it is drawn.
    lang = drawn_language(lang)
    names = [name for name in CHART if many or name != "traffic_usd"]
    values = {say(CHART[name], lang): [_value(one, name) for one in ranked] for name in names}
    own = next(at for at, one in enumerate(ranked) if one.own)
    policies = [one.policy for one in ranked]
    return plots.contenders(values, policies, own=own, title=say(HEADING, lang), lang=lang)


def _value(one: Contender, name: str) -> float:
    value = one.figures[name].value
    return float("nan") if value is None else value


def _table(ranked: list[Contender], lang: str, many: bool) -> Table:
    names = [name for name in HEAD if many or name != "traffic_usd"]
    rows = []
    for one in ranked:
        told = {
            "policy": one.policy, "earned": signed(one.figures["earned"]), "placed": count(one.figures["placed"]),
            "mean_reward": signed(one.figures["mean_reward"]), "completed": count(one.figures["completed"]),
            "utilisation": share(one.figures["utilisation"], lang), "energy_kwh": amount(one.figures["energy_kwh"]),
            "traffic_usd": amount(one.figures["traffic_usd"]), "waiting_h": hours(one.figures["waiting_h"], lang),
            "completion_h": hours(one.figures["completion_h"], lang),
            "decision_s": seconds(one.figures["decision_s"].value),
        }  # fmt: skip
        rows.append(tuple(told[name] for name in names))
    strong = frozenset(at for at, one in enumerate(ranked) if one.own)
    return Table(tuple(say(HEAD[name], lang) for name in names), tuple(rows), strong=strong)
