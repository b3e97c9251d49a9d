"""What a run came to, for people at a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.markup import escape

from attribution_sched.cli.console import columns, out

if TYPE_CHECKING:
    from attribution_sched.cli.run_loop import Told
    from attribution_sched.system import System

ROWS: tuple[tuple[str, str, str], ...] = (
    ("placed", "Tasks placed", "{:d}"),
    ("completed", "Tasks completed", "{:d}"),
    ("moved", "Running tasks moved", "{:d}"),
    ("decisions", "Decisions, re-planning included", "{:d}"),
    ("cluster_h", "Time on the cluster", "{:.1f} h"),
    ("energy_kwh", "Energy on the meters", "{:,.1f} kWh"),
    ("traffic_usd", "Traffic between domains", "{:,.2f} USD"),
    ("mean_r_eff", "Mean R_eff of placements", "{:+.3f}"),
    ("mean_r_util", "Mean R_util", "{:+.3f}"),
    ("mean_r_cost", "Mean R_cost", "{:+.3f}"),
    ("mean_reward", "Mean reward, weights in force", "{:+.3f}"),
)
"""Field of a run's summary, what to call it, how to print it."""


KINDS_OF_STEP = {"changed": "weights changed", "rolled back": "changes taken back", "still": "nothing changed"}


def opening(system: System) -> str:
    """One line on what is about to run."""
    world = system.world
    kinds = len(world.kinds)
    return (
        f"[bold]{escape(system.settings.name)}[/bold]: {_count(len(world.cluster), 'domain')}, "
        f"{world.cluster.devices} GPUs, {_count(kinds, 'kind')} of tasks; "
        f"policy [bold]{escape(system.policy.name)}[/bold], seed {system.seed}"
    )


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def show(told: Told) -> None:
    """Print tables, the reason of the feedback, and the most consequential decision."""
    console = out()
    console.print(_happened(told))
    if told.figures and told.targets is not None:
        console.print(_targets(told))
    width = columns()
    if len(told.summaries) > 1:
        console.print("Other tasks came after than before: the columns differ by that too.\n", style="dim")
    if told.change is not None:
        reason = told.change.reason_zh if told.lang == "zh" else told.change.reason
        console.print(f"[bold]Feedback ({KINDS_OF_STEP[told.change.kind]})[/bold]: {escape(reason)}", width=width)
    if told.explained:
        from attribution_sched.explain.reasoning import headline

        first = told.explained[0]
        console.print(f"\n[bold]Most at stake[/bold]: {escape(headline(first, told.lang))}", width=width)
        console.print(
            f"Why? attribution-sched explain {first.decision} --journal {told.journal}", style="dim", soft_wrap=True
        )
    console.print("\n[bold]Report[/bold]:")


def _happened(told: Told) -> Any:
    from rich.table import Table

    table = Table(title=f"{told.preset}, {told.policy}, seed {told.seed} (figures simulated)", title_justify="left")
    table.add_column("What happened")
    heads = ("Before feedback", "After") if len(told.summaries) > 1 else ("How much",)
    for head in heads:
        table.add_column(head, justify="right")
    for field, label, form in ROWS:
        table.add_row(label, *(_number(getattr(each, field), form) for each in told.summaries))
    times = [each.decision_p99_s for each in told.summaries]
    table.add_row("99 of 100 decisions within (measured)", *(_number(s and 1e3 * s, "{:.0f} ms") for s in times))
    return table


def _targets(told: Told) -> Any:
    from rich.table import Table

    from attribution_sched.feedback.targets import KINDS

    if told.targets is None:
        return ""
    table = Table(title="Targets", title_justify="left")
    table.add_column("Target")
    table.add_column("Wanted", justify="right")
    for head in ("Before feedback", "After") if len(told.figures) > 1 else ("Found",):
        table.add_column(head, justify="right")
    for name, wanted in told.targets.named().items():
        kind = KINDS[name]
        sign = "≥" if kind.at_least else "≤"
        cells = []
        for found in told.figures:
            value = found[name]
            if value is None:
                cells.append("not known")
                continue
            met = told.targets.violation(name, value) <= 0
            cells.append(f"{value:.3g} {'[green]met[/green]' if met else '[yellow]missed[/yellow]'}")
        words = kind.chinese if told.lang == "zh" else kind.english
        table.add_row(words, f"{sign} {wanted:g} {kind.unit}".strip(), *cells)
    return table


def _number(value: float | None, form: str) -> str:
    return "–" if value is None else form.format(value)
