"""The command line: tables of an explanation and of a run."""

from __future__ import annotations

MESSAGES: dict[str, tuple[str, str]] = {
    "cli.driver": ("Driver (reading; usually)", "驱动因素（读数；通常）"),
    "cli.others": ("{count} other inputs", "其余 {count} 个输入"),
    "cli.sum": ("Together", "合计"),
    "cli.key": (
        "± is half a 95 % interval; grey: the interval includes 0. Green speaks for the choice, red against it.",
        "± 为 95% 置信区间的半宽；灰色表示区间包含 0。绿色支持该选择，红色不利于该选择。",
    ),
    "cli.usual": ("usually {value}", "通常为 {value}"),
    "cli.reading": ("{parts:; }", "{parts:；}"),
    "cli.confidence": ("How sure", "把握"),
    "cli.probability": ("probability {share}", "概率 {share}"),
    "cli.runner_up": ("Runner-up", "次优方案"),
    "cli.runner_up.probability": ("{plan} (probability {share})", "{plan}（概率 {share}）"),
    "cli.against": ("Compared with", "对照方案"),
    "cli.thresholds": ("Holds while", "成立条件"),
    "cli.quantity": ("{player}: {quantity}", "{player}的{quantity}"),
    "cli.rule.above": (
        "{quantity} stays above {limit} (is {value}); else {plan}",
        "{quantity}高于 {limit}（当前为 {value}）；否则选择 {plan}",
    ),
    "cli.rule.below": (
        "{quantity} stays below {limit} (is {value}); else {plan}",
        "{quantity}低于 {limit}（当前为 {value}）；否则选择 {plan}",
    ),
    "cli.more": ("and {count} more, with {option}", "另有 {count} 项，见 {option}"),
    "cli.counterfactual": ("Smallest flip", "最小翻转"),
    "cli.counterfactual.changes": ("{parts:, }; then {plan}", "{parts:、}；则选择 {plan}"),
    "cli.why": ("Why", "原因"),
    "cli.why.sentences": ("{parts: }", "{parts:}"),
    "cli.method": ("How found", "方法"),
}
