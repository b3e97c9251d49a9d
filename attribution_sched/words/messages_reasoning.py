"""The reasoning of a decision, sentence by sentence; the Chinese is written for Chinese readers, not word by word."""

from __future__ import annotations

MESSAGES: dict[str, tuple[str, str]] = {
    "end": ("{text}.", "{text}。"),
    # What can be explained.
    "target.decision": (
        "why the policy did this rather than the best other choice",
        "策略为何如此决定，而非其最佳的另一选择",
    ),
    "target.terms": ("the plan's own reward terms, as the policy expects them", "策略所预期的方案自身奖励"),
    "target.simulator": ("the plan's own reward terms, as the simulator works them out", "仿真器算出的方案自身奖励"),
    "target.log_probability": ("the log-probability of choosing this plan", "选中该方案的对数概率"),
    "target.log_odds": ("the log-odds of this plan against the other", "该方案相对另一方案的对数几率"),
    "target.choice": (
        "whether the policy chooses this plan (1) or not (0)",
        "策略是否选中该方案（选中为 1，否则为 0）",
    ),
    "target.model": ("the output of a model on a vector of numbers", "模型的输出"),
    # What was chosen, and how surely.
    "choice.to": ("to {plan}", "{plan}"),
    "choice.plan": ("{plan}", "方案「{plan}」"),
    "choice.again": ("that other plan", "上述另一方案"),
    "decision.head": ("Decision {decision}: {policy} {chose}", "决策 {decision}：策略 {policy} {chose}"),
    "decision.head_task": (
        "Decision {decision} ({task}): {policy} {chose}",
        "决策 {decision}（{task}）：策略 {policy} {chose}",
    ),
    "decision.chose": ("chose {choice}", "选择{choice}"),
    "decision.decided": ("decided", "作出决策"),
    "decision.probability": (" (probability {share})", "（概率 {share}）"),
    "decision.against": (", rather than {choice}", "，而非{choice}"),
    "decision.chance": (" ({share})", "（概率 {share}）"),
    "decision.runner_up": (
        "; the likeliest other choice that was met is {choice}{chance}",
        "，所见其他选择中最可能的是{choice}{chance}",
    ),
    # The default explanation, in sentences that can be forwarded.
    "did.place": ("{policy} placed {task} on {plan} ({decision}).", "{policy} 将 {task} 部署到 {plan}（{decision}）。"),
    "did.move": ("{policy} moved {task} to {plan} ({decision}).", "{policy} 将 {task} 迁移到 {plan}（{decision}）。"),
    "did.wait": ("{policy} let {task} wait ({decision}).", "{policy} 让 {task} 继续等待（{decision}）。"),
    "did.keep": ("{policy} left {task} where it runs ({decision}).", "{policy} 让 {task} 留在原处运行（{decision}）。"),
    "did.because": ("What decided it: {inputs:; }.", "决定因素：{inputs:；}。"),
    "did.despite": ("Against it: {inputs:; }.", "不利因素：{inputs:；}。"),
    "did.unclear": (
        "No single input decided it for certain; in other situations it would have {instead}.",
        "没有哪个输入单独起决定作用；在其他情形下它会{instead}。",
    ),
    "did.else": ("Otherwise it would have {instead}.", "否则它会{instead}。"),
    "did.else.another": ("let another task go first", "让另一任务先行"),
    "did.else.wait": ("let the task wait", "让该任务等待"),
    "did.else.keep": ("left the task where it ran", "让该任务留在原处"),
    "did.else.plan": ("chosen {plan}", "选择 {plan}"),
    "did.steadfast": (
        "It would have chosen the same in every earlier situation looked at.",
        "在所查看的每一个早先情形中，它都会作出同样的选择。",
    ),
    "did.thought": (
        "Thinking decided it: the agents would have {instead}. In {futures} copies of the cluster what was done came "
        "out {gain} ± {error} better in R.",
        "由推演决定：智能体原本会{instead}；在集群的 {futures} 个副本中，本决策的 R 高出 {gain} ± {error}。",
    ),
    "did.thought_level": (
        "Thinking tipped the scale: the agents would have {instead}. In {futures} copies of the cluster what was done "
        "differs by {gain} ± {error} in R, within the error.",
        "推演促成了这一决定：智能体原本会{instead}；在集群的 {futures} 个副本中，R 相差 {gain} ± {error}（在误差内）。",
    ),
    "did.experience": (
        "Experience decided it: the agents would have {instead}. What PPO learnt from forked decisions adds {added} "
        "to its log-odds.",
        "由经验决定：智能体原本会{instead}；在分叉决策上以 PPO 学得的偏好使本决策的对数几率高出 {added}。",
    ),
    "did.agents_for": ("To the agents, in its favour: {inputs:; }.", "在智能体看来，有利因素：{inputs:；}。"),
    "did.room": ("The plan fits thanks to {inputs:; }.", "方案之所以放得下：{inputs:；}。"),
    "did.no_room": ("No plan fits now: {inputs:; }.", "目前没有任何方案放得下：{inputs:；}。"),
    "did.no_room_plain": ("No plan fits the devices that are free now.", "目前空闲的设备放不下任何方案。"),
    "did.free": ("{free} free in {domain} instead of {other}", "{domain} 空闲 {free} 块（而非 {other} 块）"),
    "did.free_only": ("{free} free in {domain}", "{domain} 空闲 {free} 块"),
    "did.busy": (
        "{domain} {busy} % busy instead of {other} %",
        "{domain} 占用率 {busy}%（而非 {other}%）",
    ),
    "did.queue": ("{count} waiting instead of {other}", "{count} 个任务在等待（而非 {other} 个）"),
    "did.steps": ("{steps} steps left instead of {other}", "剩余 {steps} 步（而非 {other} 步）"),
    "did.step": ("{step_s} s per step so far instead of {other} s", "目前每步 {step_s} s（而非 {other} s）"),
    "did.link": ("{name} at {gbps} Gb/s instead of {other}", "{name}为 {gbps} Gb/s（而非 {other}）"),
    "did.joules.more": (
        "its {what} energy of {amount} {units}, above that of others",
        "其{what}能耗 {amount} {units}，高于其他任务",
    ),
    "did.joules.less": (
        "its {what} energy of {amount} {units}, below that of others",
        "其{what}能耗 {amount} {units}，低于其他任务",
    ),
    "did.reading": ("{name} {value}", "{name} {value}"),
    "did.reading_other": ("{name} {value} instead of {other}", "{name} {value}（而非 {other}）"),
    "count.earlier.one": ("1 earlier decision", "1 个早先决策"),
    "count.earlier.many": ("{count:,} earlier decisions", "{count:,} 个早先决策"),
    "did.method": (
        "Found with {rows:,} situations against {count}; a driver is named if its 95 % interval excludes 0.",
        "依据：计算 {rows:,} 种情形，与 {count}对照；95% 置信区间不含 0 的驱动因素才会列出。",
    ),
    # What came of it on a real cluster.
    "outcome.none": (
        "Predicted was a step of {predicted}; nothing has been measured of it.",
        "预测步时为 {predicted}；尚无实测。",
    ),
    "outcome.measured": (
        "Predicted was a step of {predicted}, measured were {measured} ({off}){spent}.",
        "预测步时为 {predicted}，实测为 {measured}（{off}）{spent}。",
    ),
    "outcome.changed": (
        "Predicted was a step of {predicted}, measured were {measured} at first ({off}) and {last} at last{spent}.",
        "预测步时为 {predicted}，实测起初为 {measured}（{off}），最后为 {last}{spent}。",
    ),
    "outcome.spent": (
        "; its job took {cpu} CPU-seconds, which stand for energy where there is no meter",
        "；作业耗用 {cpu} CPU 秒（无电表时以此代替能耗）",
    ),
    # Outputs against the background's mean.
    "worth.lead": ("Explained is {what}", "此处解释的是{what}"),
    "worth.lead_between": (
        "Explained is {what}, as the difference between the two plans",
        "此处解释的是两个方案之间的差值（{what}）",
    ),
    "worth.one": ("{lead}: {first}", "{lead}：{first}"),
    "worth.many": ("{lead}: {first}; {rest}", "{lead}：{first}；其中，{rest}"),
    "worth.weights": (
        "{text}; R = {eff}·R_eff + {util}·R_util − {cost}·R_cost",
        "{text}。总奖励按 R = {eff}·R_eff + {util}·R_util − {cost}·R_cost 合成",
    ),
    "worth.same": (
        "{name} is {shown}, as it is on average over the background",
        "{name}为 {shown}，与背景均值相同",
    ),
    "worth.higher": (
        "{name} is {shown} against {usual} on average (+{gap}{verdict})",
        "{name}为 {shown}，比背景均值 {usual} 高 {gap}{verdict}",
    ),
    "worth.lower": (
        "{name} is {shown} against {usual} on average (−{gap}{verdict})",
        "{name}为 {shown}，比背景均值 {usual} 低 {gap}{verdict}",
    ),
    "verdict.unweighted": ("; of weight 0", "（权重为 0，不计入总奖励）"),
    "verdict.better": (", better", "（更优）"),
    "verdict.worse": (", worse", "（更差）"),
    "verdict.likelier": (", likelier", "（更可能被选中）"),
    "verdict.less_likely": (", less likely", "（更不可能被选中）"),
    # Drivers.
    "drivers.none": (
        "No input can be named as a driver of {outputs}: every 95 % interval includes 0.",
        "{outputs}没有可以确认的驱动因素：所有输入的 95% 置信区间都包含 0。",
    ),
    "drivers.idle": ("No input moves {outputs} at all.", "{outputs}不受任何输入影响。"),
    "drivers.less_is_better": ("where less is better", "越低越好"),
    "drivers.unweighted": ("of weight 0", "权重为 0"),
    "drivers.for.one": ("for the choice speaks {inputs}", "支持该选择的有{inputs}"),
    "drivers.for.many": ("for the choice speak {inputs}", "支持该选择的有{inputs}"),
    "drivers.against.one": ("against the choice speaks {inputs}", "不利的有{inputs}"),
    "drivers.against.many": ("against the choice speak {inputs}", "不利的有{inputs}"),
    "drivers.against.then": ("against it {inputs}", "不利的有{inputs}"),
    "drivers.raised": ("raised by {inputs}", "使其升高的有{inputs}"),
    "drivers.lowered": ("lowered by {inputs}", "使其降低的有{inputs}"),
    "drivers.of": ("{name}: {parts:, }", "{name}方面，{parts:，}"),
    "drivers.rest.one": ("{text}; the other input comes to {rest}", "{text}；其余 1 个输入合计 {rest}"),
    "drivers.rest.many": (
        "{text}; the other {count} inputs come to {rest}",
        "{text}；其余 {count} 个输入合计 {rest}",
    ),
    "driver": ("{name} ({share}{reading})", "{name}（{share}{reading}）"),
    "driver.now": ("; {value}", "；当前 {value}"),
    "driver.now_usually": ("; {value}, usually {usual}", "；当前 {value}，通常为 {usual}"),
    # What was found beside the shares.
    "interaction": (
        "Together, {first} and {second} change {output} by {share} beyond what each does alone.",
        "{first}与{second}存在交互作用：在各自的影响之外，两者共同使{output}再变化 {share}。",
    ),
    "rule.above": (
        "The choice holds while {quantity} stays above {threshold} (it was {value}); below that, all else being equal, "
        "the policy would choose {plan}.",
        "其他条件不变时，只要{quantity}高于 {threshold}（当时为 {value}），就会维持这一选择；"
        "一旦低于该阈值，策略会改选{plan}。",
    ),
    "rule.below": (
        "The choice holds while {quantity} stays below {threshold} (it was {value}); above that, all else being equal, "
        "the policy would choose {plan}.",
        "其他条件不变时，只要{quantity}低于 {threshold}（当时为 {value}），就会维持这一选择；"
        "一旦高于该阈值，策略会改选{plan}。",
    ),
    "flip": (
        "The smallest change found that flips it: {changes} ({size}); then the policy chooses {plan} ({checked}).",
        "足以改变决策的最小改动是：{changes}（{size}），此时策略会选择{plan}（{checked}）。",
    ),
    "flip.size.one": ("{size} standard deviation of the background", "约为背景状态的 {size} 个标准差"),
    "flip.size.many": ("{size} standard deviations of the background", "约为背景状态的 {size} 个标准差"),
    "flip.rises": ("{quantity} from {before} to {after}", "{quantity}由 {before} 升至 {after}"),
    "flip.falls": ("{quantity} from {before} to {after}", "{quantity}由 {before} 降至 {after}"),
    "flip.checked": ("checked by running the policy", "已运行策略验证"),
    "flip.unchecked": ("not yet checked by running the policy", "尚未运行策略验证"),
    # The table of alternatives and its sentence.
    "table.needs": ("needs {need}, {free} free", "需 {need}，空闲 {free} 块"),
    "table.needs_in": ("{need} devices needed in {domain} ({free} free)", "{domain} 需 {need} 块（空闲 {free} 块）"),
    "table.any_alone": ("any one domain alone", "任一单独的域"),
    "table.alone": ("{domains: or } alone", "单独使用 {domains:、}"),
    "table.cap": ("the same under a power cap of {watts} W", "同一方案，功率上限 {watts} W"),
    "table.no_cap": ("the same without a power cap", "同一方案，不设功率上限"),
    "table.cut_at": ("{plan}, cut after layer {layer}", "{plan}（在第 {layer} 层后切分）"),
    "table.change_link": ("{link}: {before} → {after} Gb/s", "{link} 由 {before} 降至 {after} Gb/s"),
    "table.too_small": ("too small for the model even when empty", "即使全空也容纳不下该模型"),
    "table.change": ("{domain}: {before} → {after} free", "{domain} 空闲 {before} → {after}"),
    "table.what": ("Instead", "可选方案"),
    "table.wins": ("wins if {change}", "若 {change} 则胜出"),
    "table.hours": ("Δh", "Δ小时"),
    "table.start": ("Δstart, h", "Δ启动（小时）"),
    "table.note_played": (
        "Δ against what was done, all tasks together, {futures} paired futures of {hours} h, played on by {follower}, "
        "± half a 95 % interval; what would win was tried.",
        "Δ 为相对所做决策之差（所有任务合计，{futures} 个配对未来、各 {hours} 小时，其后由{follower}决策，"
        "± 为 95 % 区间半宽）；"
        "胜出条件均已实际试过。",
    ),
    "table.note": (
        "Δ against what was done, by the cost model, for the steps left; what would win was tried.",
        "Δ 为相对所做决策之差（按成本模型、剩余步数计）；胜出条件均已实际试过。",
    ),
    "sentence.task": ("{model} ({id})", "{model}（{id}）"),
    "sentence.only": (
        "{task} goes to {domain} ×{devices}: no other domain has room for it ({free} free there).",
        "{task} 部署到 {domain}（{devices} 块设备）：只有该域还容得下它（空闲 {free} 块）。",
    ),
    "sentence.only_delay": (
        "{task} goes to {domain} ×{devices}: no other domain has room, and waiting would start it {delay} later.",
        "{task} 部署到 {domain}（{devices} 块设备）：其他域都没有空间，而等待会使其推迟 {delay} 启动。",
    ),
    "sentence.waiting": ("waiting", "等待"),
    "sentence.staying": ("staying", "留在原处"),
    "sentence.preferred": (
        "{task} goes to {domain} ×{devices}: {verdict}.",
        "{task} 部署到 {domain}（{devices} 块设备）：{verdict}。",
    ),
    "sentence.cut": (
        "{task} is cut over {domains: + } ({devices} devices): {verdict}.",
        "{task} 切分到 {domains:、}（共 {devices} 块设备）：{verdict}。",
    ),
    "sentence.less": ("{what} would bring {reward} less R", "{what} 的 R 会低 {reward}"),
    "sentence.more": ("though {what} would bring {reward} more R by the fork", "尽管按演算 {what} 的 R 会高 {reward}"),
    "sentence.level": ("{what} would do about as well, within the error", "{what} 在误差范围内相当"),
    "sentence.unplayed": ("the policy likes it better than {what}", "策略认为优于 {what}"),
    "sentence.nothing_else": ("nothing else has room for it", "其他选择都容纳不下它"),
    "sentence.waits_room": (
        "{task} waits: it needs {need} free in one domain; the most free is {free}, in {domain}.",
        "{task} 在等待：单个域内至少需要空闲 {need}，目前最多的是 {domain}，仅 {free} 块。",
    ),
    "sentence.waits_span": (
        "{task} waits: no single domain holds it, and {free} free now are too few.",
        "{task} 在等待：单个域容纳不下，目前空闲的 {free} 合起来也不够。",
    ),
    "sentence.waits_choice": (
        "{task} waits although it fits in {domain}: {verdict}.",
        "{task} 虽可放入 {domain}，仍在等待：{verdict}。",
    ),
    "sentence.keeps_one": (
        "{task} stays where it runs: there is no other domain.",
        "{task} 留在原处运行：没有其他域。",
    ),
    "sentence.keeps": ("{task} stays where it runs: {verdict}.", "{task} 留在原处运行：{verdict}。"),
    # What a choice brought, and by whose being there.
    "brought.head": ("Brought over {what}, by", "相对 {what} 的收益来源"),
    "brought.waiting": ("tasks that wait", "等待中的任务"),
    "brought.running": ("tasks that run", "运行中的任务"),
    "brought.coming": ("tasks to come", "将到来的任务"),
    "brought.links": ("links", "链路"),
    "brought.prices": ("prices (traffic, energy, carbon)", "价格（流量、能源、碳）"),
    "brought.measured": ("what was measured of it", "任务的实测信息"),
    "brought.own": ("the two plans by themselves", "两个方案本身"),
    "brought.note": (
        "Shapley shares from {futures} paired futures of {hours} h, with players coming in an order of its own and its "
        "reverse in each; ± half a 95 % interval, grey: it includes 0. A cost that is higher counts against R.",
        "Shapley 份额：{futures} 个配对未来，各 {hours} 小时，每个未来按一个随机次序及其逆序加入；± 为 95 % 区间半宽，"
        "灰色表示区间含 0。成本越高 R 越低。",
    ),
    # Why a task waits.
    "count.go_first.one": ("the policy puts 1 waiting task first", "策略把 1 个等待任务排在它前面"),
    "count.go_first.many": ("the policy puts {count} waiting tasks first", "策略把 {count} 个等待任务排在它前面"),
    "count.kept_for.one": ("the policy keeps it for 1 other waiting task", "策略把它留给另 1 个等待任务"),
    "count.kept_for.many": ("the policy keeps it for {count} other waiting tasks", "策略把它留给另 {count} 个等待任务"),
    "why.misconfigured": (
        "{task} waits: it asks for {asked}, and no domain holds it on fewer than {need}.",
        "{task} 在等待：它只申请了 {asked}，而任何域至少需要 {need} 才能容纳它。",
    ),
    "why.fits_nowhere": (
        "{task} waits: not even the empty cluster of {devices} devices holds it.",
        "{task} 在等待：即使整个集群（{devices} 块设备）全空也容纳不下它。",
    ),
    "why.quota": ("{task} waits: {what}.", "{task} 在等待：{what}。"),
    "why.on_hold": ("it is on hold until it is released", "已被挂起，须先释放"),
    "why.reserved": ("{devices} free devices are reserved for others", "有 {devices} 块空闲设备已预留给他人"),
    "why.spent": (
        "{tenant} has used {used:.4g} of {limit:.4g} {what}; its budget begins again in {again_h:.1f} h",
        "租户 {tenant} 已用 {used:.4g}，限额 {limit:.4g} {what}；{again_h:.1f} 小时后重新计算",
    ),
    "why.quota_devices": (
        "the quota of {tenant} leaves it {left} devices now",
        "租户 {tenant} 的配额目前只剩 {left} 块设备",
    ),
    "why.passed_over": (
        "by the share rule {rule} tenants below their share go first; {tenant} holds {held} devices, its share is "
        "{share:.1f}",
        "按共享规则 {rule}，未达份额的租户优先；租户 {tenant} 已占 {held} 块设备，其份额为 {share:.1f} 块",
    ),
    "why.share_none": (
        "No share rule is in force: the policy alone decides whose turn it is.",
        "未启用共享规则：轮到谁完全由策略决定。",
    ),
    "why.share_above": (
        "Share rule {rule}: {tenant} holds {held} devices, an equal share among {count} tenants is {share:.1f}; "
        "whoever holds less is asked about first.",
        "共享规则 {rule}：租户 {tenant} 已占 {held} 块设备，{count} 个租户的均等份额为 {share:.1f} 块；占用少者优先。",
    ),
    "why.share_below": (
        "Share rule {rule}: {tenant} holds {held} devices, below the equal share of {share:.1f} among {count} tenants, "
        "so it is asked about before those above theirs.",
        "共享规则 {rule}：租户 {tenant} 仅占 {held} 块设备，低于 {count} 个租户的均等份额 {share:.1f} 块，优先处理。",
    ),
    "quota.device_hours": ("device-hours", "设备小时"),
    "quota.energy_kwh": ("kWh", "千瓦时"),
    "quota.usd": ("USD", "美元"),
    "quota.carbon_kg": ("kg CO2e", "千克 CO2e"),
    "why.no_room": (
        "{task} waits: it needs {need} in one domain, and the most free is {free} in {domain}; the room is held by "
        "{who:, }.",
        "{task} 在等待：单个域内需要 {need}，目前最多的 {domain} 仅空闲 {free} 块；占用者：{who:、}。",
    ),
    "why.no_room_behind": (
        "{task} waits: it needs {need} in one domain, and the most free is {free} in {domain}; the room is held by "
        "{who:, }, and {ahead}{first}.",
        "{task} 在等待：单个域内需要 {need}，目前最多的 {domain} 仅空闲 {free} 块；占用者：{who:、}，"
        "且{ahead}{first}。",
    ),
    "why.no_room_unwilling": (
        "{task} waits: there is no room for it now ({all} free), and with room the policy would still wait.",
        "{task} 在等待：目前没有空间（共空闲 {all}），且即使有空间，策略仍会等待。",
    ),
    "why.misconfigured_several": (
        "{task} waits: it asks for {asked}; no domain holds it by itself, and several together only on more.",
        "{task} 在等待：它只申请了 {asked}；没有任何域能单独容纳它，跨域也需要更多设备。",
    ),
    "why.no_room_several": (
        "{task} waits: no domain holds it by itself, and {all} free everywhere are too few; the "
        "room is held by {who:, }.",
        "{task} 在等待：没有任何域能单独容纳它，而目前各域共空闲 {all}，仍不够；占用者：{who:、}。",
    ),
    "why.no_room_behind_several": (
        "{task} waits: no domain holds it by itself, and {all} free everywhere are too few; the "
        "room is held by {who:, }, and {ahead}{first}.",
        "{task} 在等待：没有任何域能单独容纳它，而目前各域共空闲 {all}，仍不够；占用者：{who:、}，且{ahead}{first}。",
    ),
    "why.held_for_another": (
        "{task} waits: there is room for it, but {ahead}{first}.",
        "{task} 在等待：虽有空间，但{ahead}{first}。",
    ),
    "why.link_or_price": (
        "{task} waits: there is room for it, but {reason}.",
        "{task} 在等待：虽有空间，但{reason}。",
    ),
    "why.slow_links": (
        "the links are too slow now; ten times faster, it would start",
        "目前链路太慢；若快十倍即可启动",
    ),
    "why.high_price": (
        "it costs too much now; if cost did not count, it would start",
        "目前成本太高；若不计成本即可启动",
    ),
    "why.such_as": (" ({who:, })", "（{who:、}）"),
    "why.next": (
        "{task} waits only for its turn: asked about it now, the policy starts it.",
        "{task} 只是在等轮到它：此刻问到它，策略就会启动它。",
    ),
    "why.cleaner_hour": (
        "a cleaner hour comes in {hours} h: {kg} ± {error} kg of accounted carbon and {usd} USD of electricity less "
        "are expected, for {hours} h of delay",
        "{hours} 小时后电力更清洁：预计核算碳排放少 {kg} ± {error} 千克、电费少 {usd} 美元，代价是推迟 {hours} 小时",
    ),
    "why.policy_waits": (
        "{task} waits: there is room for it, and the policy prefers to wait even with nobody else in the queue.",
        "{task} 在等待：虽有空间且无人竞争，策略仍倾向等待。",
    ),
    "why.behind": (
        "{task} waits: {count} tasks are before it, and the policy does not look at it yet.",
        "{task} 在等待：前面还有 {count} 个任务，策略尚未轮到它。",
    ),
    "table.carbon_less": (
        "Accounted carbon of its steps: {own} kg, {kg} kg less than {what}.",
        "其步数的核算碳排放：{own} 千克，比 {what} 少 {kg} 千克。",
    ),
    "table.carbon_more": (
        "Accounted carbon of its steps: {own} kg, {kg} kg more than {what}.",
        "其步数的核算碳排放：{own} 千克，比 {what} 多 {kg} 千克。",
    ),
    "why.somebody": ("a task of somebody else", "他人的任务"),
    "why.nobody": ("several tasks together", "多个任务共同"),
    "why.advice_devices": (
        "Asking for {devices}, it would start now (tried).",
        "若申请 {devices}，它现在就能启动（已试过）。",
    ),
    # Whose being there makes it wait.
    "delay": (
        "{task} still has {hours} h to wait on average: {parts:, } (Shapley shares, ± half a 95 % interval; {futures} "
        "futures, decided by {follower}).",
        "{task} 平均还需等待 {hours} 小时：{parts:，}（Shapley 份额，± 为 95 % 区间半宽；"
        "{futures} 个未来，由{follower}决策）。",
    ),
    "delay.nobody": (
        "Nobody here delays {task} from now on: it still has {hours} h to wait on average ({futures} futures, decided "
        "by {follower}).",
        "此后没有任务延误 {task}：平均还需等待 {hours} 小时（{futures} 个未来，由{follower}决策）。",
    ),
    "delay.past": (
        "{task} has waited {hours} h: {parts:, } (Shapley shares, ± half a 95 % interval; {futures} futures from its "
        "submission on with the tasks that really came, decided by {follower}).",
        "{task} 已等待 {hours} 小时：{parts:，}（Shapley 份额，± 为 95 % 区间半宽；自提交起按实际到来的任务推演 "
        "{futures} 个未来，由{follower}决策）。",
    ),
    "delay.alone": ("even with nobody else {hours} h", "即使没有他人也要 {hours} 小时"),
    "delay.left": ("not given by the copies {hours} h", "副本未能重现 {hours} 小时"),
    "delay.tenant": ("{who} ({tasks})", "{who}（{tasks}）"),
    "delay.others": ("others together", "其余合计"),
    "delay.part": ("{who} {hours} h", "{who} {hours} 小时"),
    # How a tree came to what it said.
    "tree.layout": ("devices", "设备数"),
    "tree.wait": ("go now or wait", "现在启动或等待"),
    "tree.task": ("which task first", "先启动哪个任务"),
    "tree.move": ("move or keep", "迁移或保持"),
    "tree.reading": (
        "Tree “{head}” says {value} (usually {usual}): {path:, }. Exact shares: {shares:, }.",
        "决策树“{head}”给出 {value}（通常 {usual}）：{path:，}。精确份额：{shares:，}。",
    ),
    "tree.none": ("no input moves it", "没有输入影响它"),
    # One decision, several agents.
    "agents.alike": (
        "{decision}: all {count} agents decide alike: {what}.",
        "{decision}：{count} 个智能体的决定相同：{what}。",
    ),
    "agents.differ": ("{decision}: the agents differ.", "{decision}：各智能体的决定不同。"),
    "agents.right": (
        "In the copies {who} was right: {gain} R over the next best choice (95 % interval excludes 0).",
        "在副本中 {who} 是对的：比次优选择多 {gain} R（95 % 区间不含 0）。",
    ),
    "agents.level": ("In the copies none of the choices is better for certain.", "在副本中没有哪个选择确定更好。"),
    "agents.unplayed": ("The choices cannot be played in copies here.", "此处无法在副本中推演这些选择。"),
    "agents.row": ("{agent}: {what}; because of {drivers:, }", "{agent}：{what}；原因：{drivers:，}"),
    "agents.bare": ("{agent}: {what}", "{agent}：{what}"),
    "agents.column": ("agent", "智能体"),
    "agents.choice": ("choice", "选择"),
    "agents.drivers": ("because of", "原因"),
    "agents.delta": ("ΔR in copies", "副本中的 ΔR"),
    # Which earlier decisions made it wait.
    "blame.head": (
        "{task} waited {waited} h. Earlier decisions, each replaced by its runner-up ({count} made a difference, at "
        "{single} nothing else fitted, {left_out} older ones not looked at):",
        "{task} 等待了 {waited} 小时。逐一把先前的决策换成其次优选择（{count} 个有影响，{single} 个别无选择，"
        "更早的 {left_out} 个未检查）：",
    ),
    "blame.day": (
        "The day's decisions, each replaced by its runner-up ({count} made a difference, at {single} nothing else "
        "fitted, {left_out} older ones not looked at):",
        "逐一把当日的决策换成其次优选择（{count} 个有影响，{single} 个别无选择，更早的 {left_out} 个未检查）：",
    ),
    "blame.entry": (
        "  {decision} ({task}: {what}): {by} against {instead}",
        "  {decision}（{task}：{what}）：相对于 {instead}，{by}",
    ),
    "blame.hours": ("start {value} ± {half} h", "启动时间 {value} ± {half} 小时"),
    "blame.reward": ("R lost {value} ± {half}", "损失 R {value} ± {half}"),
    "blame.nobody": (
        "  none of them is to blame: no runner-up would have been better beyond its 95 % interval",
        "  没有可归责的决策：没有哪个次优选择在 95 % 区间之外更好",
    ),
    "blame.left": (
        "All of them together: {total} h; {left} h of the wait is left that no single decision accounts for.",
        "合计：{total} 小时；其余 {left} 小时的等待不归于任何单个决策。",
    ),
    "blame.sum": (
        "All of them together: R {total}; each is replaced by itself, so that this is no day that could have been.",
        "合计：R {total}；每个决策单独替换，因此这不是一个可能出现的整日结果。",
    ),
    # When a task starts.
    "when.both": (
        "{task} starts {start} ({level} % interval, median {middle}) and ends {end}; {futures} futures, decided by "
        "{follower}.",
        "{task} 预计 {start}启动（{level} % 区间，中位数 {middle}），{end}结束；"
        "共推演 {futures} 个未来，由{follower}决策。",
    ),
    "when.start": (
        "{task} starts {start} ({level} % interval, median {middle}); it may still run after {horizon}; {futures} "
        "futures, decided by {follower}.",
        "{task} 预计 {start}启动（{level} % 区间，中位数 {middle}），{horizon}后可能仍在运行；"
        "共推演 {futures} 个未来，由{follower}决策。",
    ),
    "when.open": (
        "{task} may start {low} at the earliest ({level} % interval); in {unstarted} of {futures} futures it still "
        "waits after {horizon}, decided by {follower}.",
        "{task} 最早可能{low}启动（{level} % 区间）；{futures} 个未来中有 {unstarted} 个在 {horizon}后仍在等待；"
        "由{follower}决策。",
    ),
    "when.nobody": ("Nothing waits.", "没有等待的任务。"),
    "when.never": (
        "{task} still waits after {horizon} in nearly all of {futures} futures, decided by {follower}.",
        "{task} 在 {futures} 个未来的绝大多数中，{horizon}后仍在等待；由{follower}决策。",
    ),
    "when.at": ("in {time}", "{time}后"),
    "when.between": ("in {low} to {high}", "{low}至 {high}后"),
    "when.within": ("within {time}", "{time}内"),
    "when.at_once": ("at once", "立即"),
    "when.now": ("under a minute", "不到 1 分钟"),
    "follower.agents": ("hi-ppo's agents, without its search", " hi-ppo 的智能体（不经搜索）"),
    "follower.policy": ("{name}", " {name} "),
    "when.span": ("{value} {unit}", "{value} {unit}"),
    # What if.
    "what_if": (
        "With {change}: {parts:, } (paired, 95 %; {futures} futures of {hours} h, decided by {follower}).",
        "若{change}：{parts:，}（配对 95 % 区间；{futures} 个未来，各 {hours} 小时，由{follower}决策）。",
    ),
    "what_if.uncertain": (
        "With {change} nothing changes for certain ({futures} futures of {hours} h, decided by {follower}).",
        "若{change}：没有确定的变化（{futures} 个未来，各 {hours} 小时，由{follower}决策）。",
    ),
    "what_if.same": (
        "With {change} nothing differs, to the last digit ({decisions} decisions in {futures} futures of {hours} h, "
        "decided by {follower}).",
        "若{change}：分毫不差（{futures} 个未来，各 {hours} 小时，共 {decisions} 次决策，由{follower}决策）。",
    ),
    "what_if.repriced": (
        " R and its baseline are then counted at the new price, so the difference in R is not an effect of the change.",
        " R 及其基线此时均按新价格计量，因此 R 的差值并非该改变的效果。",
    ),
    "what_if.shifts": ("Tasks here now: {parts:; }.", "现有任务：{parts:；}。"),
    "what_if.shifts_more": (
        "Tasks here now: {parts:; }; {more} more with `--json`.",
        "现有任务：{parts:；}；另有 {more} 个见 `--json`。",
    ),
    "what_if.shift": ("{task} {parts: and } (in {share} of futures)", "{task} {parts:、}（{share} 的未来）"),
    "what_if.shift.start.later": ("starts {span} later", "晚 {span}启动"),
    "what_if.shift.start.sooner": ("starts {span} sooner", "早 {span}启动"),
    "what_if.shift.end.later": ("ends {span} later", "晚 {span}结束"),
    "what_if.shift.end.sooner": ("ends {span} sooner", "早 {span}结束"),
    "what_if.shift.even": ("differs, on average by less than a minute", "有变化，平均不到 1 分钟"),
    "what_if.part": ("{quantity} {delta}{unit} [{low}, {high}]", "{quantity} {delta}{unit} [{low}, {high}]"),
    "what_if.heading.quantity": ("quantity", "指标"),
    "what_if.heading.without": ("as it is", "现状"),
    "what_if.heading.changed": ("changed", "改变后"),
    "what_if.heading.delta": ("difference", "差值"),
    "what_if.heading.interval": ("95 % interval", "95 % 区间"),
    "what_if.unchanged": ("nothing changed", "什么都不变"),
    "what_if.wait": ("wait per task", "每任务等待"),
    "what_if.completion": ("time to the end per task", "每任务完成时间"),
    "what_if.finished": ("tasks finished", "完成任务数"),
    "what_if.energy": ("energy", "能耗"),
    "what_if.bill": ("traffic bill", "流量费用"),
    "what_if.carbon": ("carbon", "碳排放"),
    "what_if.reward": ("R", "R"),
    "what_if.r_eff": ("R_eff", "R_eff"),
    "what_if.r_util": ("R_util", "R_util"),
    "what_if.r_cost": ("R_cost", "R_cost"),
    "what_if.change.link": ("link {link} × {factor}", "链路 {link} × {factor}"),
    "what_if.change.devices": ("{count} {gpu} in {domain}", "{domain} 的 {gpu} {count} 块"),
    "what_if.change.devices_budget": (
        "{count} {gpu} in {domain} (its power budget still {watts} W)",
        "{domain} 的 {gpu} {count} 块（功率预算仍为 {watts} W）",
    ),
    "what_if.change.lose": ("{domain} gone", "{domain} 下线"),
    "what_if.change.carbon": ("carbon at {price} USD/kg", "碳价为 {price} 美元/千克"),
    "what_if.change.energy": ("energy at {price} USD/kWh", "电价为 {price} 美元/千瓦时"),
    "what_if.change.policy": ("{policy} in place of {own}", "改由 {policy} 取代{own}决策"),
    "what_if.change.task": ("one more task, {task}", "增加任务 {task}"),
    "what_if.change.without": ("{task} not there", "没有任务 {task}"),
    "what_if.started": ("jobs that start", "能启动的作业数"),
    "queue_if.first": ("{job} the most urgent", "{job} 优先级最高"),
    "queue_if.move": ("{job} in {domain}", "{job} 改投 {domain}"),
    "queue_if.devices": ("{job} asking for {count} devices", "{job} 只申请 {count} 个设备"),
    "queue_if.limit": ("{job} asking for at most {limit}", "{job} 的时限为 {limit}"),
    "queue_if.add": ("{count} devices in {domain}", "{domain} 的设备 {count}"),
    "queue_if.later": (
        "job {job} starts {minutes} min later (in {share} of futures)",
        "作业 {job} 晚 {minutes} 分钟启动（{share} 的未来）",
    ),
    "queue_if.sooner": (
        "job {job} starts {minutes} min sooner (in {share} of futures)",
        "作业 {job} 早 {minutes} 分钟启动（{share} 的未来）",
    ),
    "why_not": ("{task} is not on {what}: {parts:; }.", "{task} 不在 {what}：{parts:；}。"),
    "why_not.done": ("{task} is on {what}: that is what was done.", "{task} 就在 {what}：这正是所做的决定。"),
    "why_not.less": ("R would be {reward} lower ({terms})", "R 会低 {reward}（{terms}）"),
    "why_not.more": ("R would be {reward} higher ({terms})", "R 会高 {reward}（{terms}）"),
    "why_not.level": ("R would be about the same ({reward}; {terms})", "R 大致相同（{reward}；{terms}）"),
    "why_not.terms": (
        "R_eff {eff}, R_util {util}, R_cost {cost}; by the cost model",
        "R_eff {eff}、R_util {util}、R_cost {cost}；按成本模型",
    ),
    "why_not.terms_played": (
        "R_eff {eff}, R_util {util}, R_cost {cost}; {futures} futures of {hours} h",
        "R_eff {eff}、R_util {util}、R_cost {cost}；{futures} 个未来，各 {hours} 小时",
    ),
    "why_not.wins": ("it would win if {change} (tried)", "若 {change} 则会胜出（已试过）"),
    "why_not.no_change": (
        "no single change of room or link that was tried makes it win",
        "所试过的空位或链路单项改变都不能使它胜出",
    ),
    "why_not.invalid": ("the cluster refuses this plan", "集群拒绝该方案"),
    # How the numbers were found.
    "method.exact": (
        "The shares are exact Shapley values (all coalitions)",
        "各项份额为 Shapley 值，由枚举全部联盟精确求得",
    ),
    "method.permutation": (
        "The shares are Shapley values estimated from antithetic permutations",
        "各项份额为 Shapley 值，由对偶排列抽样估计",
    ),
    "method.kernel": (
        "The shares are Shapley values estimated by paired kernel regression",
        "各项份额为 Shapley 值，由成对采样的核回归估计",
    ),
    "method.other": ("The shares are {how}", "各项份额为 Shapley 值，由{how}"),
    "method.rows": (", {rows:,} situations", "，共计算 {rows:,} 种情形"),
    "method.background.one": (" over {count:,} background state{source}", "，背景状态 {count:,} 个{source}"),
    "method.background.many": (" over {count:,} background states{source}", "，背景状态 {count:,} 个{source}"),
    "method.source": (" ({source})", "（来自{source}）"),
    "method.seed": (", seed {seed}", "，随机种子 {seed}"),
    "method.interval": ("; ± is half a 95 % interval.", "；± 为 95% 置信区间的半宽。"),
    "method.not_reached": ("The precision asked for was not reached.", "未达到所要求的精度。"),
    "method.behaviour": (
        "Probabilities and log-odds do not split into reward components.",
        "概率与对数几率不能拆分为各奖励分量。",
    ),
    "method.notes_as_written": ("{notes: }", "附注（原文）：{notes:；}。"),
}
"""Message id → English, Chinese."""
