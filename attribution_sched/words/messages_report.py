"""Reports, section by section, and the counts they are full of."""

from __future__ import annotations

MESSAGES: dict[str, tuple[str, str]] = {
    "report.changes.title": ("What feedback changed", "反馈所作的修改"),
    "report.changes.nothing": (
        "No changes were made: feedback was not asked to look at this run, and the weights are the preset's own.",
        "没有任何修改：本次运行未调用反馈，奖励权重即预设权重。",
    ),
    "report.changes.left": (
        "Feedback looked {times} and left everything as it was.",
        "反馈检查了 {times}，未作任何修改。",
    ),
    "report.changes.lead": (
        "Feedback looked {times} and made {made}, {undone} taken back.",
        "反馈检查了 {times}，作出 {made}，其中 {undone}被撤回。",
    ),
    "report.changes.head.0": ("no.", "编号"),
    "report.changes.head.1": ("after decisions", "此前决策数"),
    "report.changes.head.2": ("what", "内容"),
    "report.changes.head.3": ("from", "修改前"),
    "report.changes.head.4": ("to", "修改后"),
    "report.changes.head.5": ("state", "状态"),
    "report.changes.state.force": ("in force", "生效中"),
    "report.changes.state.undone": ("rolled back", "已撤回"),
    "report.changes.state.undoes": ("takes back no. {number}", "撤回第 {number} 号"),
    "report.changes.why": ("No. {number}: {reason}", "第 {number} 号：{reason}"),
    "report.changes.still": (
        "After {count} decisions, nothing: {reason}",
        "第 {count} 次决策之后，未作修改：{reason}",
    ),
    "report.changes.changed.reward weights": ("reward weights", "奖励权重"),
    "report.changes.changed.reward.energy_usd_per_kwh": ("energy price", "电价"),
    "report.changes.english": ("{reason} (recorded in English)", "{reason}（日志仅存英文原文）"),
    "report.decisions.title": ("The decisions that matter most", "影响最大的决策"),
    "report.decisions.none": (
        "No plan was put in force, so there is none to explain.",
        "尚无方案生效，没有可供解释的决策。",
    ),
    "report.decisions.unasked": ("No explanation was asked for (explain=0).", "未要求解释（explain=0）。"),
    "report.decisions.lead": (
        "Decisions are ranked by the device-hours they commit: devices × step time × steps left, as "
        "simulated when the plan was put in force. One per model is shown before a second of any; "
        "decisions to wait or to stay commit nothing and are not ranked.",
        "按决策所占用的设备时数排序：设备数 × 单步时间 × 剩余步数（方案生效时的仿真值）。同一模型先取一个；"
        "等待或维持现状的决策不占用设备，不参与排序。",
    ),
    "report.decisions.head.0": ("decision", "决策"),
    "report.decisions.head.1": ("model", "模型"),
    "report.decisions.head.2": ("at", "时刻"),
    "report.decisions.head.3": ("device-hours", "设备时"),
    "report.decisions.head.4": ("step vs baseline", "单步时间／基线"),
    "report.decisions.head.5": ("R", "R"),
    "report.decisions.name": ("{id}: {kind}, {hours} device-hours", "{id}：{kind}，{hours} 设备时"),
    "report.decisions.facts": (
        "{verb} {task} at {at} on {devices} devices: {plan}. A step takes {step} s{base} and {energy} J"
        "{bill}. Decided by {source}.",
        "第 {at}{verb}任务 {task}，使用 {devices} 块设备：{plan}。单步 {step} s{base}，耗能 {energy} J"
        "{bill}。决策来源：{source}。",
    ),
    "report.decisions.base": (" ({ratio} of the baseline's)", "（为基线的 {ratio}）"),
    "report.decisions.bill": (", with {bill} USD of traffic", "，流量费用 {bill} USD"),
    "report.decisions.sources.policy": ("the policy itself", "策略自身"),
    "report.decisions.sources.policy+search": ("the policy, its details settled by a search", "策略，细节由搜索确定"),
    "report.decisions.sources.search": (
        "a wide search, because waiting would not help this task",
        "广域搜索（等待对该任务无益）",
    ),
    "report.decisions.sources.ranker": (
        "experience, which preferred this to the agents' choice",
        "经验（相对智能体的选择更倾向于此）",
    ),
    "report.decisions.sources.thinking": (
        "thinking, which compared choices in copies of the cluster",
        "推演（在集群副本中比较了各种选择）",
    ),
    "report.decisions.sources.partner": ("which task it shares devices with", "与哪个任务共享设备"),
    "report.decisions.fallback": ("the fallback {name}: {why}", "后备策略 {name}：{why}"),
    "report.decisions.placed": ("Placed", "放置"),
    "report.decisions.moved": ("Moved", "迁移"),
    "report.decisions.missing": ("This decision could not be explained: {why}", "该决策无法解释：{why}"),
    "report.decisions.caption": (
        "Waterfall of {output}: from the mean over the background ({base}) to this decision ({value}), one "
        "input after the other; below each name is what it read{scale}. Whiskers are 95 % intervals; grey "
        "inputs cannot be told from 0. Estimated.",
        "{output}的瀑布图：从背景均值（{base}）到本次决策（{value}），逐一加上各输入的份额；名称下方为当时"
        "读数{scale}。须线为 95% 区间；灰色输入与 0 无法区分。估计值。",
    ),
    "report.decisions.scale": (
        " (attributions: the task's joules by counter with 95 % intervals; the policy reads them from −1 to +1)",
        "（归因：任务能耗按计数器的归因，附 95% 区间；策略以 −1 至 +1 的尺度读取）",
    ),
    "report.decisions.alt": (
        "Waterfall from {base} to {value}; {drivers}.",
        "从 {base} 到 {value} 的瀑布图；{drivers}。",
    ),
    "report.decisions.largest": (
        "the largest certain driver is {name} with {share}",
        "最大的可确认驱动因素为{name}（{share}）",
    ),
    "report.decisions.no_driver": ("no input is certain to drive it", "没有可以确认的驱动因素"),
    "report.decisions.flips": (
        "Where the choice flips. Blue is where it holds, orange where the policy chooses otherwise, all "
        "else being equal.{arrow} Thresholds come from asking the policy anew{verified}.",
        "决策翻转之处。其他条件不变时，蓝色区域维持该选择，橙色区域策略会改选{arrow}。阈值由重新询问策略得"
        "到{verified}。",
    ),
    "report.decisions.arrow": (" The arrow is the smallest change found.", "；箭头为所找到的最小改动"),
    "report.decisions.verified": ("; the smallest change was verified by it", "；最小改动已由策略验证"),
    "report.decisions.flip_alt": (
        "{count} thresholds and flips of decision {id}. {words}",
        "决策 {id} 的 {count} 处阈值与翻转。{words}",
    ),
    "report.decisions.no_flip": (
        "No single quantity, turned up or down within what the background shows, and no combination that "
        "was tried flips this choice.",
        "在背景状态的变动范围内，任何单一数量的增减以及所尝试的组合都不会改变该选择。",
    ),
    "report.decisions.unsought": (
        "Thresholds and flips of this one were not looked for: this policy takes too long to be asked so often.",
        "未对该决策查找阈值与翻转：该策略单次决策耗时较长，无法反复询问。",
    ),
    "report.decisions.input.0": ("input", "输入"),
    "report.decisions.input.1": ("reading", "当前"),
    "report.decisions.input.2": ("usually", "通常"),
    "report.decisions.input.3": ("share", "份额"),
    "report.decisions.quantity.0": ("quantity", "数量"),
    "report.decisions.quantity.1": ("was", "当时"),
    "report.decisions.quantity.2": ("flips at", "翻转于"),
    "report.decisions.quantity.3": ("then", "改选"),
    "report.decisions.smallest": ("smallest change", "最小改动"),
    "report.drivers.title": ("What drives placements", "放置决策的驱动因素"),
    "report.drivers.none": ("No placement was explained{why}", "没有已解释的放置决策{why}"),
    "report.drivers.lead": (
        "{count} of {all} placements, spread evenly over the run, were explained quickly; explained is "
        "{target}. An input counts as a driver only where its 95 % interval excludes 0.",
        "在 {all} 次放置决策中均匀抽取 {count} 次作快速解释，解释对象为{target}。仅当某输入份额的 95% 置信"
        "区间不含 0 时，才视为驱动因素。",
    ),
    "report.drivers.caption": (
        "Mean size of each input's share of {output} (bars), mean share (diamonds), and how often it is "
        "the largest certain driver (right). Intervals are bootstrapped over decisions. Estimated.",
        "各输入对{output}份额的平均绝对值（条）、平均值（菱形）以及作为最大可确认驱动因素的比例（右列）。区"
        "间由决策自助抽样得到。估计值。",
    ),
    "report.drivers.alt": (
        "Bar chart of {count} inputs; the largest on average is {name} ({size}).",
        "{count} 个输入的条形图；平均最大的是{name}（{size}）。",
    ),
    "report.drivers.over_time": (
        "The same shares decision by decision: blue raises {output}, orange lowers it, white is not certain.",
        "逐次决策的份额：蓝色提高{output}，橙色降低，白色表示不能确认。",
    ),
    "report.drivers.time_alt": (
        "Heatmap of the strongest inputs over {count} decisions.",
        "最强输入在 {count} 次决策中的热图。",
    ),
    "report.drivers.head.0": ("input", "输入"),
    "report.drivers.head.1": ("leads in", "居首"),
    "report.drivers.head.2": ("certain in", "可确认"),
    "report.drivers.head.3": ("mean size", "平均绝对值"),
    "report.drivers.head.4": ("95 % interval", "95% 区间"),
    "report.drivers.head.5": ("mean share", "平均份额"),
    "report.energy.title": ("Where the joules go", "能耗归因"),
    "report.energy.none": (
        "No task was placed, so there is nothing to attribute.",
        "尚未放置任何任务，没有可供归因的能耗。",
    ),
    "report.energy.lead": (
        "Joules per sample of each task from the idle machine up: idle draw, then what each counter stands for. They "
        "add up to the task's energy, and an operator that a task does not have takes nothing. "
        "Largest over all tasks: {largest}.",
        "各任务每个样本的能耗，自空闲机器起算：先是空闲功耗，再是各计数器所代表的能耗，合计即为该任务的能耗；任务中不存在的算子能耗为零。"
        "全部任务中最大的是：{largest}。",
    ),
    "report.energy.lead_mean": (
        "Per sample, the mean task takes {typical} {unit}. Each cell is what a counter's reading tells above "
        "that (blue) or below (orange); mean and row add up to the task's predicted energy. "
        "Largest over all tasks: {largest}.",
        "平均任务每个样本耗能 {typical} {unit}。每个单元格表示某计数器读数说明高出（蓝）或低于（橙）的部分；"
        "平均值与整行之和即为该任务的预测能耗。全部任务中最大的是：{largest}。",
    ),
    "report.energy.shares": (
        "The attributor of this run gives shares without a unit; they are shown as they are.",
        "本次运行的归因器只给出无量纲份额，此处原样展示。",
    ),
    "report.energy.caption_account": (
        "Shares of {shown}, each of its own joules; whiskers are 95 % intervals of the parts. By {method}{fit}; "
        "counters {counters}.",
        "{shown}的能耗构成，以各任务自身能耗为 100 %；误差线为各部分的 95 % 区间。"
        "方法：{method}{fit}；计数器为{counters}。",
    ),
    "report.energy.error": (
        " (median error {error} of held-out tasks, fitted on {tasks})",
        "（留出任务的中位误差 {error}，以 {tasks} 个任务拟合）",
    ),
    "report.energy.methods.accounting": ("accounting from the idle machine", "自空闲机器起算的能耗核算"),
    "report.energy.idle": ("idle", "空闲"),
    "report.energy.caption": (
        "Energy attribution of {shown}. Colours are logarithmic in both directions, so that small tasks "
        "can be seen beside large ones. Estimated by {method}{fit}; counters {counters}.",
        "{shown}的能耗归因。颜色按双向对数刻度，便于同时观察大小任务。由{method}估计{fit}；计数器为{counters}。",
    ),
    "report.energy.all": ("the {count} placed tasks", "已放置的 {count} 个任务"),
    "report.energy.some": (
        "{count} of the {all} placed tasks, those with most predicted joules",
        "{all} 个已放置任务中预测能耗最高的 {count} 个",
    ),
    "report.energy.alt": (
        "Heatmap of {rows} tasks by {columns} counters. The largest entry is {value} {unit}, {counter} of {task}.",
        "{rows} 个任务 × {columns} 个计数器的热图。最大值为 {value} {unit}：{task} 的{counter}。",
    ),
    "report.energy.mixed.simulated": ("simulated", "仿真值"),
    "report.energy.mixed.measured": ("measured", "实测值"),
    "report.energy.typical": ("mean task", "平均任务"),
    "report.energy.predicted": ("predicted", "预测值"),
    "report.energy.task": ("task", "任务"),
    "report.energy.kind": ("model", "模型"),
    "report.energy.by_kind": ("Means by model, {unit}", "按模型平均（{unit}）"),
    "report.energy.in_all": ("in all, MJ", "全程合计（MJ）"),
    "report.provenance.title": ("Where the numbers come from", "数字的来源"),
    "report.provenance.head.0": ("number", "数字"),
    "report.provenance.head.1": ("unit", "单位"),
    "report.provenance.head.2": ("provenance", "来源"),
    "report.provenance.head.3": ("how", "方法"),
    "report.provenance.kinds.simulated": ("simulated", "仿真"),
    "report.provenance.kinds.estimated": ("estimated", "估计"),
    "report.provenance.kinds.measured": ("measured", "实测"),
    "report.provenance.kinds.given": ("given", "给定"),
    "report.provenance.own": ("each its own", "各自单位"),
    "report.provenance.again": ("How to get this report again", "如何复现本报告"),
    "report.provenance.facts_head.0": ("what", "项目"),
    "report.provenance.facts_head.1": ("value", "值"),
    "report.provenance.facts.version": ("package version", "软件版本"),
    "report.provenance.facts.preset": ("preset", "预设"),
    "report.provenance.facts.seed": ("seed", "随机种子"),
    "report.provenance.facts.policy": ("policy", "策略"),
    "report.provenance.facts.queue": ("tasks from", "任务来源"),
    "report.provenance.facts.weights": ("weights at the end", "结束时的权重"),
    "report.provenance.facts.journal": ("journal", "决策日志"),
    "report.provenance.facts.begun": ("begun", "起始时间（UTC）"),
    "report.provenance.facts.print": ("fingerprint of decisions", "决策指纹"),
    "report.provenance.facts.resumed": ("resumed", "恢复次数"),
    "report.provenance.facts.learnt": ("learnt weights took over", "采用学得权重次数"),
    "report.provenance.memory": ("in memory", "内存中"),
    "report.provenance.other": (" (written by {version})", "（由 {version} 写入）"),
    "report.provenance.same": (
        "The same version, preset, seed and calls give the same decisions, and so the same fingerprint; "
        "only measured times differ.",
        "版本、预设、随机种子与调用相同，则决策与指纹相同；仅实测用时不同。",
    ),
    "report.provenance.from_journal": (
        "This run had submitted tasks, changed weights, or a preset or policy of its own; only its journal "
        "tells it in full.",
        "本次运行包含提交的任务、修改过的权重，或自定义的预设、策略；只有决策日志能完整复现。",
    ),
    "report.provenance.lost": (
        "It was kept in memory and cannot be repeated by a command; give System a journal= to keep the next one.",
        "日志仅存于内存，无法用命令复现；下次请为 System 指定 journal=。",
    ),
    "report.quality.title": ("How good the explanations are", "解释的质量"),
    "report.quality.none": ("Nothing was explained.", "没有任何解释。"),
    "report.quality.lead": (
        "Shares of all inputs must add up to the decision's value less the background's mean. Over {count} "
        "explanations the largest gap is {gap} of what is explained. The median 95 % interval is {half} of "
        "the largest share; {converged} reached the precision asked for.",
        "所有输入的份额之和应等于决策值减去背景均值。在 {count} 个解释中，最大缺口为所解释量的 {gap}。95% "
        "区间宽度的中位数为最大份额的 {half}；{converged} 达到了所要求的精度。",
    ),
    "report.quality.head.0": ("decision", "决策"),
    "report.quality.head.1": ("explained", "对象"),
    "report.quality.head.2": ("method", "方法"),
    "report.quality.head.3": ("situations", "情形数"),
    "report.quality.head.4": ("background", "背景数"),
    "report.quality.head.5": ("gap", "缺口"),
    "report.quality.head.6": ("half-width / largest", "半宽／最大份额"),
    "report.quality.head.7": ("certain", "可确认"),
    "report.quality.explained.decision": ("the decision", "决策本身"),
    "report.quality.explained.terms": ("reward terms", "奖励分量"),
    "report.quality.explained.choice": ("choice", "选择"),
    "report.quality.explained.simulator": ("reward terms, simulated", "奖励分量（仿真）"),
    "report.quality.explained.log_probability": ("log-probability", "对数概率"),
    "report.quality.explained.log_odds": ("log-odds", "对数几率"),
    "report.quality.methods.exact": ("exact", "精确"),
    "report.quality.methods.permutation": ("permutations", "排列抽样"),
    "report.quality.methods.kernel": ("kernel", "核回归"),
    "report.quality.certain": ("{some} of {all}", "{some}／{all}"),
    "report.quality.caption": (
        "The consequential decisions. Gap: relative efficiency gap; half-width: median over inputs; "
        "certain: inputs whose interval excludes 0.",
        "影响最大的决策。缺口：相对效率缺口；半宽：各输入的中位数；可确认：区间不含 0 的输入数。",
    ),
    "report.quality.found": (
        "The sum rule holds by construction for sampled Shapley values, so a small gap says that nothing "
        "was lost, not that the shares are true; the intervals say how far sampling and the choice of "
        "background may move them.",
        "对抽样 Shapley 值而言，求和性质由构造保证：缺口小仅说明没有遗漏，并不证明份额本身为真；区间反映抽"
        "样与背景选择可能带来的偏差。",
    ),
    "report.rivals.title": ("Against rivals", "与其他策略的比较"),
    "report.rivals.none": ("There is no comparison: {why}.", "没有比较：{why}。"),
    "report.rivals.lead": (
        "Compared: the same cluster, seed {seed}, the same arrivals, link bandwidths and tasks, and the "
        "first {span} of the cluster's clock (up to the first network tick at or after the run's last "
        "moment). {policy} is the run itself, its recorded decisions replayed{continued}; every rival "
        "decides for itself from the start. One stretch of one world: differences may be luck, and "
        "benchmarks over many days are the place to judge a policy.",
        "比较条件：同一集群、随机种子 {seed}、相同的任务到达、链路带宽与任务，时间为集群时钟的前 {span}（至"
        "本次运行结束后的第一个网络刻度）。{policy} 为本次运行，重放其已记录的决策{continued}；其他策略均从"
        "头自行决策。仅为一个环境中的一段时间：差异可能出于偶然，评判策略应以多日基准测试为准。",
    ),
    "report.rivals.continued": (
        ", then continued by a copy of its policy for {count} decisions",
        "，其后由策略副本续作 {count} 次决策",
    ),
    "report.rivals.better": (
        "By reward earned over the span {policy} ranks {rank} of {all}; best is {best} with {value}.",
        "按时段内累计奖励，{policy} 在 {all} 个策略中排名第 {rank}；最佳为 {best}（{value}）。",
    ),
    "report.rivals.caption": (
        "Four figures of every policy, each on its own scale; the run itself is dark. More is better for "
        "reward and finished tasks, less for energy and bill. Simulated.",
        "各策略的四项指标，刻度各自独立；深色为本次运行。奖励与完成任务数越高越好，能耗与费用越低越好。仿真值。",
    ),
    "report.rivals.caption_alone": (
        "Three figures of every policy, each on its own scale; the run itself is dark. More is better for "
        "reward and finished tasks, less for energy. Simulated.",
        "各策略的三项指标，刻度各自独立；深色为本次运行。奖励与完成任务数越高越好，能耗越低越好。仿真值。",
    ),
    "report.rivals.alt": ("Bars of {count} policies: {words}.", "{count} 个策略的条形图：{words}。"),
    "report.rivals.one_alt": (
        "{policy} earned {earned} and finished {completed}",
        "{policy} 累计奖励 {earned}、完成 {completed} 个",
    ),
    "report.rivals.heading": ("the same span, played by each policy", "同一时段由各策略分别执行"),
    "report.rivals.chart.earned": ("reward earned", "累计奖励"),
    "report.rivals.chart.completed": ("tasks finished", "完成任务数"),
    "report.rivals.chart.energy_kwh": ("energy, kWh", "能耗，kWh"),
    "report.rivals.chart.traffic_usd": ("bill, USD", "流量费，USD"),
    "report.rivals.head.policy": ("policy", "策略"),
    "report.rivals.head.earned": ("reward earned", "累计奖励"),
    "report.rivals.head.mean_reward": ("mean R", "平均 R"),
    "report.rivals.head.placed": ("placed", "放置"),
    "report.rivals.head.completed": ("finished", "完成"),
    "report.rivals.head.completion_h": ("time to finish, mean", "平均完成用时"),
    "report.rivals.head.waiting_h": ("waiting, all tasks", "等待合计"),
    "report.rivals.head.utilisation": ("devices busy", "设备忙碌"),
    "report.rivals.head.energy_kwh": ("energy", "能耗"),
    "report.rivals.head.traffic_usd": ("bill", "流量费"),
    "report.rivals.head.decision_s": ("per decision", "决策用时"),
    "report.rivals.earned": (
        "Reward earned is what the cluster pays as work gets done: every step pays R in units of {interval}"
        " of baseline work, every task that waits or moves costs as much as it stands still. Times to "
        "finish count from arrival; decision times are medians, measured on this machine; the rest is "
        "simulated.",
        "累计奖励随工作完成而支付：每一步按相当于基线 {interval}工作量的单位支付 R，等待或迁移中的任务按停"
        "滞时间扣除。完成用时自到达起计；决策用时为本机实测中位数；其余为仿真值。",
    ),
    "report.rivals.weighed": (
        " Reward earned and mean R take the weights at the end of the run for every policy, {policy} too, "
        "on one scale: its mean R here differs from the summary's, where each plan counts by the weights "
        "of its time.",
        "各策略（包括 {policy}）的累计奖励与平均 R 均按运行结束时的权重计算，以统一尺度；因此这里的平均 R "
        "可能与摘要不同，摘要中每个方案按当时的权重计算。",
    ),
    "report.rivals.left_out": ("Left out: {name} ({why}).", "未参与比较：{name}（{why}）。"),
    "report.summary.title": ("Summary", "摘要"),
    "report.summary.verdict.ahead": (
        "{policy} is ahead of {rival}, the best of {rivals}: return {own} to {other} over {span} "
        "({difference} ± {half}; one run).",
        "{policy} 领先 {rivals}中最好的 {rival}：{span}内回报 {own}，对方 {other}"
        "（差 {difference} ± {half}；单次运行）。",
    ),
    "report.summary.verdict.behind": (
        "{policy} is behind {rival}, the best of {rivals}: return {own} to {other} over {span} "
        "({difference} ± {half}; one run).",
        "{policy} 落后于 {rivals}中最好的 {rival}：{span}内回报 {own}，对方 {other}"
        "（差 {difference} ± {half}；单次运行）。",
    ),
    "report.summary.verdict.level": (
        "{policy} and {rival}, the best of {rivals}, are level within chance: return {own} to {other} over {span} "
        "({difference} ± {half}; one run).",
        "{policy} 与 {rivals}中最好的 {rival} 在误差范围内持平：{span}内回报 {own}，对方 {other}"
        "（差 {difference} ± {half}；单次运行）。",
    ),
    "report.summary.verdict.alone": (
        "{policy} placed {placed} of {tasks}; no rival was played for comparison.",
        "{policy} 放置了 {tasks}中的 {placed} 个；没有对照策略。",
    ),
    "report.summary.course.alt": (
        "{tasks} on {domains} over time: {busy} of the devices held on average, at most {waiting} tasks waiting.",
        "{tasks}在 {domains}上的时间分布：平均 {busy} 的设备在用，最多 {waiting} 个任务排队。",
    ),
    "report.summary.course.caption": (
        "Bars are tasks, as high as the devices they hold; below, the share of devices held and the queue.",
        "条形为任务，高度为所占设备数；下方为设备占用比例和排队任务数。",
    ),
    "report.summary.course.older": (" {count} older bars are left out.", "另有 {count} 个较早的条形未画出。"),
    "report.summary.ran": (
        "{policy} scheduled the tasks of preset {preset} (seed {seed}) for {span} on the cluster's clock: "
        "{decided}, {placed} of {tasks} placed, {completed} finished.",
        "策略 {policy} 在预设 {preset}（随机种子 {seed}）上调度了 {span}（集群时钟）：共 {decided}，到达 "
        "{tasks}，放置 {placed} 个，完成 {completed} 个。",
    ),
    "report.summary.empty": (
        "Nothing has been decided yet: the run of {policy} on preset {preset} (seed {seed}) holds no "
        "decision. Schedule some tasks and write the report again.",
        "尚无任何决策：策略 {policy} 在预设 {preset}（随机种子 {seed}）上还没有作出决策。请先调度若干任务，"
        "再重新生成报告。",
    ),
    "report.summary.worth": (
        "On average a placement's steps take {faster} time than on the baseline (the static uniform "
        "split), devices compute for {util} of a step, and the cost (traffic, and energy or carbon where "
        "priced) is {cost} of the baseline's. The mean reward is R = {reward}.",
        "与基线（静态均匀切分）相比，放置方案的单步时间平均{faster}；单步中 {util} 的时间用于计算；成本（流"
        "量费，以及计价的能耗与碳排放）为基线的 {cost}；平均奖励 R = {reward}。",
    ),
    "report.summary.faster": ("{share} less", "缩短 {share}"),
    "report.summary.slower": ("{share} more", "延长 {share}"),
    "report.summary.spent": (
        "Tasks kept {busy} of all device time busy. The devices drew {energy} ({idle} of it idle), and "
        "traffic between domains cost {bill}.",
        "任务占用了全部设备时间的 {busy}。设备共耗电 {energy}（其中空闲耗电 {idle}），跨域流量费用 {bill}。",
    ),
    "report.summary.spent_alone": (
        "Tasks kept {busy} of all device time busy. The devices drew {energy}, {idle} of it while idle.",
        "任务占用了全部设备时间的 {busy}。设备共耗电 {energy}，其中空闲耗电 {idle}。",
    ),
    "report.summary.driven": (
        "Of the {count} placements explained, the certain driver of {output} was most often {drivers}.",
        "在所解释的 {count} 次放置决策中，{output}最常见的可确认驱动因素依次为{drivers}。",
    ),
    "report.summary.decided": (
        "Of the {count} placements explained, what decided was most often {drivers}.",
        "在所解释的 {count} 次放置决策中，最常起决定作用的依次为{drivers}。",
    ),
    "report.summary.one_driver": ("{name} ({share} of them)", "{name}（占 {share}）"),
    "report.summary.no_driver": (
        "In none of the {count} placements explained is a single input certain to have driven {output}.",
        "在所解释的 {count} 次放置决策中，没有任何单个输入可以确认为{output}的驱动因素。",
    ),
    "report.summary.met": ("Targets met: {met} of {all}.", "{all} 项目标中已达成 {met} 项。"),
    "report.summary.open": (
        "At the end {running} running and {waiting} waiting; the cluster refused {refused}.",
        "结束时有 {running}在运行，{waiting}在等待；集群拒绝了 {refused}。",
    ),
    "report.summary.missed": ("missed: {name}", "未达成：{name}"),
    "report.summary.tiles.rival": ("{rival}: {value}", "{rival}：{value}"),
    "report.summary.tiles.emissions": ("carbon", "碳排放"),
    "report.summary.tiles.emissions_note": (
        "of the tasks, accounted by the location-based average; beside it idle devices' {idle}",
        "任务排放，按所在地平均强度核算；另有空闲设备 {idle}",
    ),
    "report.summary.tiles.emissions_both": (
        "of the tasks, accounted by the location-based average; beside it idle devices' {idle} and the network's "
        "{network}",
        "任务排放，按所在地平均强度核算；另有空闲设备 {idle}、网络 {network}",
    ),
    "report.summary.tiles.tasks": ("placed / finished", "放置／完成"),
    "report.summary.tiles.arrived": ("of {tasks} that came", "共到达 {tasks}"),
    "report.summary.tiles.busy": ("device time computing", "设备计算时间占比"),
    "report.summary.tiles.busy_note": ("of {devices}", "共 {devices}"),
    "report.summary.tiles.finish": ("time to finish", "平均完成用时"),
    "report.summary.tiles.finish_note": ("mean, from arrival", "自到达起，平均"),
    "report.summary.tiles.waited": ("waiting", "排队等待"),
    "report.summary.tiles.waited_note": ("all tasks together", "所有任务合计"),
    "report.summary.tiles.energy": ("energy", "能耗"),
    "report.summary.tiles.bill": ("traffic bill", "流量费用"),
    "report.summary.tiles.meters": ("all devices, idle ones too", "全部设备，含空闲"),
    "report.summary.tiles.no_carbon": ("carbon intensity not given", "未给出碳强度"),
    "report.summary.tiles.cross": ("{plans}", "{plans}"),
    "report.summary.tiles.reward": ("mean reward R", "平均奖励 R"),
    "report.summary.tiles.reward_note": (
        "speed {eff} · use {util} · cost {cost}",
        "效率 {eff} · 利用率 {util} · 成本 {cost}",
    ),
    "report.summary.tiles.time": ("time per decision", "单次决策用时"),
    "report.summary.tiles.time_note": ("median; 99 of 100 below {p99}", "中位数；99% 低于 {p99}"),
    "report.summary.tiles.targets": ("targets met", "达成目标"),
    "report.summary.tiles.targets_none": ("none was set", "未设定目标"),
    "report.targets.title": ("Targets", "目标"),
    "report.targets.none": (
        "No targets were set. Give some, for example System(targets={{'utilisation_at_least': 0.85}}), and "
        "the report says whether they are met.",
        "未设定目标。可在创建系统时给出，例如 System(targets={{'utilisation_at_least': 0.85}})，报告即会说明是否达成。",
    ),
    "report.targets.how": (
        "Taken over {plans} put in force (placements and moves), simulated; intervals are 95 %, decisions "
        "taken as independent.",
        "按已生效的 {plans}（放置与迁移）统计，为仿真值；区间为 95% 置信区间，视各次决策相互独立。",
    ),
    "report.targets.head.0": ("target", "目标"),
    "report.targets.head.1": ("verdict", "结论"),
    "report.targets.head.2": ("asked for", "要求"),
    "report.targets.head.3": ("reached", "实际"),
    "report.targets.head.4": ("95 % interval", "95% 区间"),
    "report.targets.met": ("✓ met, {far} to spare", "✓ 达成，余量 {far}"),
    "report.targets.missed": ("✗ missed by {far}", "✗ 未达成，差 {far}"),
    "report.targets.maybe": (" (may be chance)", "（可能只是偶然）"),
    "report.targets.unknown": ("cannot be told", "无法判断"),
    "report.timeline.title": ("Reward over time", "奖励随时间的变化"),
    "report.timeline.none": ("No plan was put in force yet.", "尚无方案生效。"),
    "report.timeline.lead": (
        "R = w_eff·R_eff + w_util·R_util − w_cost·R_cost of every plan put in force. R_eff is the share of "
        "the baseline's step time that is saved, R_util compute time over step time, R_cost the cost over "
        "the baseline's. The best was {best} ({best_kind}, {best_r}), the worst {worst} ({worst_kind}, "
        "{worst_r}).",
        "每个生效方案的 R = w_eff·R_eff + w_util·R_util − w_cost·R_cost。R_eff 为相对基线节省的单步时间比"
        "例，R_util 为计算时间占单步时间的比例，R_cost 为相对基线的成本。最佳为 {best}（{best_kind}，"
        "{best_r}），最差为 {worst}（{worst_kind}，{worst_r}）。",
    ),
    "report.timeline.caption": (
        "{plans} ({moved} of them moves of running tasks). A bar is stacked from the weighted components, "
        "the diamond is their sum R. Simulated.",
        "{plans}（其中 {moved} 个为运行中任务的迁移）。每条由加权分量堆叠而成，菱形为其总和 R。仿真值。",
    ),
    "report.timeline.older": (" {count} older ones are left out.", "较早的 {count} 个未列出。"),
    "report.timeline.alt": (
        "Stacked bars of {count} decisions over {hours} hours. R lies between {low} and {high}, with mean {mean}.",
        "{hours} 小时内 {count} 次决策的堆叠条形图。R 介于 {low} 与 {high} 之间，均值 {mean}。",
    ),
    "report.timeline.head.0": ("decision", "决策"),
    "report.timeline.head.1": ("model", "模型"),
    "report.timeline.head.2": ("hour", "时刻（h）"),
    "report.timeline.head.3": ("R_eff", "R_eff"),
    "report.timeline.head.4": ("R_util", "R_util"),
    "report.timeline.head.5": ("R_cost", "R_cost"),
    "report.timeline.head.6": ("R", "R"),
    "report.traffic.title": ("Traffic between domains", "跨域流量"),
    "report.traffic.alone": (
        "This world has one domain: there is nothing to send between domains, and plans are not cut.",
        "该环境只有一个域：不存在跨域流量，方案也无需切分。",
    ),
    "report.traffic.nothing": ("No plan was put in force, so nothing was sent.", "尚无方案生效，没有任何流量。"),
    "report.traffic.lead": (
        "More than one domain is used by {crossing} of {plans} put in force. Shown are those that commit "
        "most device-hours, one per model before a second of any.",
        "已生效的 {plans}中有 {crossing} 个跨越多个域。以下按占用设备时数由多到少展示，同一模型先取一个。",
    ),
    "report.traffic.avoided": (
        "Of {plans} put in force none crosses domains, so nothing is sent between them and the bill is "
        "zero. For scale: this is what the static uniform split of the most consequential such task would "
        "send at that moment.",
        "已生效的 {plans}均未跨域，域间流量与费用均为零。作为对照，下图为当时若对最重要的任务采用静态均匀切"
        "分所产生的流量。",
    ),
    "report.traffic.none_avoided": (
        "Of {plans} put in force none crosses domains, so nothing is sent between them and the bill is zero.",
        "已生效的 {plans}均未跨域，域间流量与费用均为零。",
    ),
    "report.traffic.taken": ("Decision {id} ({kind}): {plan}.", "决策 {id}（{kind}）：{plan}。"),
    "report.traffic.split": (
        "Not taken: {kind} of decision {id} as {plan}.",
        "未采用：决策 {id}（{kind}）若采用 {plan}。",
    ),
    "report.traffic.caption": (
        "From row to column, GB per step. {cuts} {total} GB and {bill} USD per step{hours}; {provenance}.",
        "由行（发送方）至列（接收方），单位为 GB／步。{cuts}每步共 {total} GB，费用 {bill} USD{hours}；{provenance}。",
    ),
    "report.traffic.hours": (", for {hours} device-hours committed", "，占用 {hours} 设备时"),
    "report.traffic.cut": ("Framed: the model is cut {cuts}.", "加框处为切分点：{cuts}。"),
    "report.traffic.one_cut": ("after layer {layer} ({one} → {other})", "第 {layer} 层之后（{one} → {other}）"),
    "report.traffic.uncut": (
        "The model is not cut; replicas exchange gradients.",
        "模型未切分；各副本之间交换梯度。",
    ),
    "report.traffic.alt": (
        "Heatmap of the traffic between {count} domains; most goes from {one} to {other}, {value} GB per step. {cuts}",
        "{count} 个域之间的流量热图；流量最大的是 {one} 至 {other}，每步 {value} GB。{cuts}",
    ),
    "report.traffic.provenance.simulated": ("simulated, as the cluster carried it out", "仿真值，取自集群实际执行"),
    "report.traffic.provenance.estimated": (
        "estimated by the cost model for a nominal task of this kind",
        "由成本模型按该类标称任务估计",
    ),
    "report.traffic.from": ("from", "发送方"),
    "report.traffic.to": ("to", "接收方"),
    "report.traffic.gb": ("GB per step", "GB／步"),
    "report.title": ("What {policy} decided on {preset}, and why", "{policy} 在 {preset} 上的决策及其原因"),
    "report.subtitle": (
        "{decisions} decisions over {span} on a simulated cluster: {devices} devices, {domains}",
        "{domains}、{devices} 块设备的仿真集群，{span}内 {decisions} 次决策",
    ),
    "report.contents": ("Contents", "目录"),
    "report.numbers": ("The numbers behind this picture", "图中数据"),
    "report.decisions.fallback_because.all_wait": (
        "all tasks were left waiting, none runs",
        "所有任务都被搁置等待，且没有任务在运行",
    ),
    "report.decisions.fallback_because.too_slow": ("coordination took too long", "两级协调超过时限"),
    "count.decisions.one": ("{count} decision", "{count} 次决策"),
    "count.decisions.many": ("{count} decisions", "{count} 次决策"),
    "count.rivals.one": ("{count} rival", "{count} 个对照策略"),
    "count.rivals.many": ("{count} rivals", "{count} 个对照策略"),
    "count.tasks.one": ("{count} task", "{count} 个任务"),
    "count.tasks.many": ("{count} tasks", "{count} 个任务"),
    "count.tasks_are.one": ("{count} task is", "{count} 个任务"),
    "count.tasks_are.many": ("{count} tasks are", "{count} 个任务"),
    "count.are.one": ("{count} is", "{count} 个"),
    "count.are.many": ("{count} are", "{count} 个"),
    "count.plans.one": ("{count} plan", "{count} 个方案"),
    "count.plans.many": ("{count} plans", "{count} 个方案"),
    "count.plans_in_force.one": ("{count} plan put in force", "{count} 个生效方案"),
    "count.plans_in_force.many": ("{count} plans put in force", "{count} 个生效方案"),
    "count.plans_across.one": ("{count} plan across domains", "{count} 个跨域方案"),
    "count.plans_across.many": ("{count} plans across domains", "{count} 个跨域方案"),
    "count.devices.one": ("{count} device", "{count} 块设备"),
    "count.devices.many": ("{count} devices", "{count} 块设备"),
    "count.domains.one": ("{count} domain", "{count} 个域"),
    "count.domains.many": ("{count} domains", "{count} 个域"),
    "count.changes.one": ("{count} change", "{count} 项修改"),
    "count.changes.many": ("{count} changes", "{count} 项修改"),
    "count.times.one": ("once", "1 次"),
    "count.times.many": ("{count} times", "{count} 次"),
    "count.undone.none": ("none", "0 项"),
    "count.undone.some": ("{count}", "{count} 项"),
    "time_unit.day": ("d", "天"),
    "time_unit.hour": ("h", "小时"),
    "time_unit.minute": ("min", "分钟"),
    "time_unit.second": ("s", "秒"),
    "report.energy.inference": ("{kind} (inference)", "{kind}（推理）"),
    "report.energy.one_counter": ("{name} ({share})", "{name}（{share}）"),
    "report.rivals.missing.nothing_decided": ("nothing was decided", "尚无任何决策"),
    "report.rivals.missing.no_rival": ("no rival was named", "未指定其他策略"),
    "report.rivals.missing.real": (
        "the run was on a real cluster, and its jobs are not run again for others",
        "本次运行在真实集群上进行，其作业不会为其他策略重新运行",
    ),
    "report.provenance.rows.counters": ("counters of tasks", "任务计数器"),
    "report.provenance.rows.counters.how": (
        "drawn from the preset's tasks with noise, or measured if they were submitted",
        "由预设任务加噪声生成；若随任务提交则为实测",
    ),
    "report.provenance.rows.attribution": ("energy attribution", "能耗归因"),
    "report.provenance.rows.attribution.how": (
        "closed-form EmSHAP of an energy model fitted on simulated tasks; conditional on the other counters",
        "对仿真任务拟合能耗模型后以闭式 EmSHAP 求得，以其余计数器为条件",
    ),
    "report.provenance.rows.outcomes": (
        "step time, energy, bill, utilisation, reward terms",
        "单步时间、能耗、费用、利用率、奖励分量",
    ),
    "report.provenance.rows.outcomes.how": (
        "what the simulated cluster made of the plan, recorded in the journal",
        "仿真集群执行方案的结果，记录于决策日志",
    ),
    "report.provenance.rows.totals": ("totals: tasks, energy, traffic, carbon", "合计：任务、能耗、流量、碳排放"),
    "report.provenance.rows.totals.how": (
        "meters of the simulated cluster since the start",
        "仿真集群自启动以来的计量",
    ),
    "report.provenance.rows.targets": ("targets", "目标"),
    "report.provenance.rows.targets.how": (
        "set by the user; what was reached is simulated",
        "由用户设定；达成值为仿真",
    ),
    "report.provenance.rows.traffic": ("traffic between domains", "跨域流量"),
    "report.provenance.rows.traffic.how": (
        "the cluster rebuilt up to the decision; a split that was not taken is estimated by the cost model",
        "将集群重建至该决策时刻；未采用的切分由成本模型估计",
    ),
    "report.provenance.rows.shares": ("shares, intervals, drivers", "份额、区间、驱动因素"),
    "report.provenance.rows.shares.how": (
        "Shapley values by sampling the policy's own expectation over background states",
        "在背景状态上对策略自身的预期抽样求得的 Shapley 值",
    ),
    "report.provenance.rows.thresholds": ("thresholds, flips", "阈值、翻转"),
    "report.provenance.rows.thresholds.how": (
        "found by asking a copy of the policy; the smallest flip is verified by it",
        "通过询问策略副本找到；最小翻转经其验证",
    ),
    "report.provenance.rows.rivals": ("rivals' figures", "其他策略的指标"),
    "report.provenance.rows.rivals.how": ("the same span played again from the start", "从头重新执行同一时段"),
    "report.provenance.rows.times": ("times of decisions and explanations", "决策与解释用时"),
    "report.provenance.rows.times.how": ("on the machine that ran it", "于运行所在机器实测"),
    "report.provenance.rows.given": ("weights, prices, carbon intensity, hardware", "权重、价格、碳强度、硬件"),
    "report.provenance.rows.given.how": ("the preset", "预设"),
}
"""Message id → English, Chinese."""
