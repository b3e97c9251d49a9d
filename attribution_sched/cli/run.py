"""``attribution-sched run``: the whole loop, from counters to a report.

What is asked for is checked before anything is written; then place, explain, feed back, place on, report.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from attribution_sched.cli.console import STOPPED, RunTimeError, Stages, columns, examples, notes, out, say_json
from attribution_sched.cli.files import RunFiles, check_new_files, make_run_files, report_beside
from attribution_sched.errors import AttributionSchedError, SettingsError, nearest, problem
from attribution_sched.executors.registry import EXECUTORS

if TYPE_CHECKING:
    from attribution_sched.config.schema import Settings
    from attribution_sched.explain.decision_table import DecisionTable
    from attribution_sched.explain.explanation import Explanation
    from attribution_sched.feedback.loop import FeedbackChange
    from attribution_sched.feedback.targets import Targets
    from attribution_sched.journal import Journal
    from attribution_sched.system.results import RunSummary
    from attribution_sched.system.system import System


EXAMPLES = examples(
    "attribution-sched run",
    "attribution-sched run --preset testbed --demo",
    "attribution-sched run --tasks 100 --target utilisation_at_least=0.9 --target cost_ratio_at_most=0.5",
    "attribution-sched run --policy sjf --journal sjf.sqlite --report sjf.html",
    "attribution-sched run --preset testbed --queue demo --cluster local --tasks 3",
    "attribution-sched run --resume runs/cross-domain-0-1/journal.sqlite --tasks 20",
)

TASKS = 80
CLUSTERS = ("simulated", *EXECUTORS)
PRESET, POLICY = "cross-domain", "hi-ppo"
WORLD, LOOP, FILES, TELLING = "What runs", "The loop", "Files", "What is printed"


def run(
    preset: Annotated[
        str | None,
        typer.Option(help=f"Preset name or path of a YAML file. \\[default: {PRESET}]", rich_help_panel=WORLD),
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(help=f"Who decides; see `bench policies`. \\[default: {POLICY}]", rich_help_panel=WORLD),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(help="Of arrivals, network and tasks. \\[default: 0]", rich_help_panel=WORLD),
    ] = None,
    queue: Annotated[
        str | None,
        typer.Option(
            help="Where tasks come from: preset (simulated arrivals) or demo. \\[default: preset]",
            rich_help_panel=WORLD,
        ),
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(
            help="Where tasks run: simulated, or by the wall clock: local (processes of this machine), slurm (a "
            "partition for each domain) or ray (nodes with the label domain=NAME). "
            "\\[default: simulated]",
            rich_help_panel=WORLD,
        ),
    ] = None,
    demo: Annotated[
        bool,
        typer.Option("--demo", help="Three tasks on four GPUs: --preset testbed --queue demo.", rich_help_panel=WORLD),
    ] = False,
    tasks: Annotated[
        int | None,
        typer.Option(help=f"Tasks to place, feedback in the middle. \\[default: {TASKS}]", rich_help_panel=LOOP),
    ] = None,
    hours: Annotated[
        float | None,
        typer.Option(help="Hours on the cluster's clock, instead of --tasks.", rich_help_panel=LOOP),
    ] = None,
    target: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=NUMBER",
            help="What feedback works toward; may be repeated. The preset's own by default.",
            rich_help_panel=LOOP,
        ),
    ] = None,
    no_explain: Annotated[bool, typer.Option("--no-explain", help="Explain nothing.", rich_help_panel=LOOP)] = False,
    no_feedback: Annotated[
        bool, typer.Option("--no-feedback", help="Leave the reward's weights alone.", rich_help_panel=LOOP)
    ] = False,
    journal: Annotated[
        Path | None,
        typer.Option(help="New file for decisions; a folder under runs/ by default.", rich_help_panel=FILES),
    ] = None,
    report: Annotated[
        Path | None, typer.Option(help="New file: .html, .json or .md; beside the journal.", rich_help_panel=FILES)
    ] = None,
    resume: Annotated[
        Path | None, typer.Option(metavar="JOURNAL", help="Go on with this journal.", rich_help_panel=FILES)
    ] = None,
    lang: Annotated[str, typer.Option(help="Language of words: en or zh.", rich_help_panel=TELLING)] = "en",
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print the report's path only.", rich_help_panel=TELLING)
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.", rich_help_panel=TELLING)] = False,
) -> None:
    """Run the whole loop: attribute, decide, explain, learn from it, run on, and write a report.

    Half of the tasks are placed, the consequential decisions are explained, one step of feedback moves the reward's
    weights toward the targets, and the other half is placed under the new weights. The last line is the report's path.
    """
    if demo:
        preset, queue = preset or "testbed", queue or "demo"
    request: RunRequest | None = None
    try:
        with Stages(quiet=quiet) as stages:
            with stages.stage("getting ready"):
                request = check_request(
                    preset=preset, policy=policy, seed=seed, queue=queue, tasks=tasks, hours=hours,
                    targets=target or [], journal=journal, report=report, resume=resume, lang=lang,
                    feedback=not no_feedback, explain=not no_explain, cluster=cluster,
                )  # fmt: skip
                from attribution_sched import kernels

                kernels.announce_with(notes(quiet=quiet).print)
                system = request.open()
            with system:
                notes(quiet=quiet).print(headline_of(system))
                for why in system.admission.unplaceable_kinds() if system.task_source == "preset" else ():
                    notes(quiet=quiet).print(f"[yellow]warning:[/yellow] {escape(why)}", soft_wrap=True)
                result = go_round_the_loop(system, request, stages)
                if told := getattr(system.policy, "told", ""):
                    notes(quiet=quiet).print(escape(told))
    except KeyboardInterrupt:
        written = None if request is None else request.written
        words = f"go on with: attribution-sched run --resume {written}" if written else "nothing was written"
        notes().print(f"stopped; {words}", soft_wrap=True)
        raise typer.Exit(STOPPED) from None
    if as_json:
        say_json(result.to_dict())
        return
    if not quiet:
        show(result)
    typer.echo(str(result.report))


@dataclass
class RunRequest:
    """A run as the user wants it, checked.

    Attributes:
        settings: Of the preset; None if a journal is gone on with.
        policy: Who decides.
        seed: Seed.
        queue: Where tasks come from.
        targets: What feedback works toward; None for those of the journal.
        tasks: Tasks to place; None if hours count.
        hours: Hours on the cluster's clock.
        journal: Path the user gave.
        report: Path the user gave.
        resume: Journal to go on with.
        lang: Language of the report.
        feedback: Whether a step of feedback is taken.
        explain: Whether anything is explained.
        cluster: Where tasks run.
        files: Where it is written, once that is made.
    """

    settings: Any
    policy: Any
    seed: int
    queue: str
    targets: Targets | None
    tasks: int | None
    hours: float | None
    journal: Path | None
    report: Path | None
    resume: Path | None
    lang: str
    feedback: bool
    explain: bool
    cluster: str = "simulated"
    files: RunFiles | None = None

    @property
    def written(self) -> Path | None:
        """The journal, if there is one by now."""
        return self.files.journal if self.files is not None and self.files.journal.exists() else None

    def open(self) -> System:
        """Make the system; what was made for it is taken away again if that fails.

        Raises:
            AttributionSchedError: If the input is wrong after all.
        """
        from attribution_sched.config import load_settings
        from attribution_sched.system.system import System

        if self.resume is not None:
            system = System.resume(self.resume)
            self.files = RunFiles(self.resume, self.report or report_beside(self.resume))
            if self.targets is not None:
                system.targets = self.targets
            elif system.targets is None:
                system.targets = targets_of([], load_settings(system.journal.header.settings["world"]))
            return system
        self.files = make_run_files(self.settings.name, self.seed, self.journal, self.report)
        try:
            return System(
                self.settings, self.policy, journal=self.files.journal, seed=self.seed, queue=self.queue,
                targets=self.targets, cluster=self.cluster,
            )  # fmt: skip
        except BaseException:
            self.files.discard()
            raise


def check_request(
    *,
    preset: str | None,
    policy: str | None,
    seed: int | None,
    queue: str | None,
    tasks: int | None,
    hours: float | None,
    targets: Sequence[str],
    journal: Path | None,
    report: Path | None,
    resume: Path | None,
    lang: str,
    feedback: bool,
    explain: bool,
    cluster: str | None = None,
) -> RunRequest:
    """Check everything that can be checked without writing anything; arguments as the command has them.

    Raises:
        AttributionSchedError: If something is wrong.
    """
    from attribution_sched.config import load_settings
    from attribution_sched.explain.wording import check_language

    check_language(lang)
    check_new_files(journal, report)
    if resume is not None:
        new_run_only = {
            "--preset": preset,
            "--policy": policy,
            "--seed": seed,
            "--queue": queue,
            "--journal": journal,
            "--cluster": cluster,
        }
        for option, value in new_run_only.items():
            if value is not None:
                fix = "Leave it out, or leave out --resume"
                raise SettingsError(problem(option, str(value), "the journal of --resume has its own", fix))
    settings = None if resume is not None else load_settings(preset or PRESET)
    wanted = None if resume is not None and not targets else targets_of(targets, settings)
    from attribution_sched.cluster.live import as_policy
    from attribution_sched.system import arguments

    if queue == "empty":
        rule = "nobody could hand in tasks while the command runs"
        raise SettingsError(problem("queue", queue, rule, "Use preset or demo, or System(queue='empty') in Python"))
    tasks = TASKS if tasks is None and hours is None else tasks
    if tasks is not None and not 1 <= tasks <= arguments.MOST_TASKS:
        rule = f"must be a whole number >= 1 and <= {arguments.MOST_TASKS:,}"
        raise SettingsError(problem("--tasks", tasks, rule, "Use for example --tasks 40"))
    arguments.run_of(tasks, None, hours)
    if cluster not in (None, *CLUSTERS):
        fix = nearest(cluster, CLUSTERS) + "; other machines are given to System(cluster=...) in Python"
        raise SettingsError(problem("--cluster", cluster, "is not known", fix))
    return RunRequest(
        settings, None if resume is not None else as_policy(policy or POLICY), arguments.seed_of(seed or 0),
        arguments.queue_of(queue or "preset"), wanted, tasks, hours, journal, report, resume, lang, feedback, explain,
        cluster or "simulated",
    )  # fmt: skip


USUAL: dict[str, float] = {"utilisation_at_least": 0.85, "step_ratio_at_most": 1.0, "cost_ratio_at_most": 1.0}
"""For presets without targets of their own: devices busy, and neither slower nor dearer than the baseline."""


def targets_of(words: Sequence[str], settings: Settings | None = None) -> Targets:
    """Targets from ``NAME=NUMBER``, the preset's own if there are none.

    Args:
        words: One word for each target.
        settings: The preset; those for presets without targets by default.

    Raises:
        SettingsError: If a word is not of that form, or a target does not exist, is there twice or out of range.
    """
    from attribution_sched.feedback.targets import KINDS, Targets

    if not words:
        return Targets.of((settings.targets if settings is not None else {}) or USUAL)
    targets: dict[str, float] = {}
    for word in words:
        name, equals, text = (part.strip() for part in word.partition("="))
        if not equals:
            rule = "must be a name, an equals sign and a number"
            raise SettingsError(problem("--target", word, rule, "For example --target utilisation_at_least=0.85"))
        if name not in KINDS:
            raise SettingsError(problem("--target", name, "is not a target", nearest(name, KINDS)))
        if name in targets:
            raise SettingsError(problem("--target", name, "is given twice", "Give each target once"))
        try:
            targets[name] = float(text)
        except ValueError:
            fix = f"For example --target {name}=0.8"
            raise SettingsError(problem(f"--target {name}", text, "is not a number", fix)) from None
    return Targets.of(targets)


def measured(journal: Journal, targets: Targets, start: int = 0, stop: int | None = None) -> dict[str, float | None]:
    """What the decisions of a part of a journal came to, target by target; None where outcomes do not tell.

    Args:
        journal: The journal.
        targets: Which figures.
        start: Number of the first decision.
        stop: Number after the last one; the newest by default.
    """
    from attribution_sched.errors import ModelFitError
    from attribution_sched.feedback.window import Window

    outcomes, times = [], []
    for decision, outcome in journal.entries(start, stop):
        times.append(decision.cluster_time_s)
        if outcome is not None and outcome.code > 0:
            outcomes.append(outcome)
    figures: dict[str, float | None] = {}
    for name in targets.named():
        try:
            figures[name] = (
                Window.of(outcomes, None, (times[-1] - times[0] or None) if times else None).measure(name).value
            )
        except ModelFitError:
            figures[name] = None
    return figures


EXPLAINED = 6
"""Decisions that are explained, those that commit most device-hours."""


REPORTED = 4
"""Decisions the report explains in depth."""


@dataclass(frozen=True, eq=False)
class RunResult:
    """What came of a run.

    Attributes:
        preset: Name of the preset.
        policy: Name of the policy.
        seed: Seed.
        lang: Language of words.
        summaries: What happened before the step of feedback, and after it if there was one.
        targets: What was to be reached.
        figures: What the targets are held against, for each summary.
        explained: Explanations, the most consequential first.
        change: The step of feedback; None if there was none.
        journal: Path of the journal.
        report: Path of the report.
        table: What else could have been done at the most consequential decision; None if nothing was explained.
        cluster: Where tasks ran.
        steps: On a real cluster, each placed task with its predicted step and the measured one, if it is known.
        failures: On a real cluster, tasks whose launch or job failed, and why.
    """

    preset: str
    policy: str
    seed: int
    lang: str
    summaries: tuple[RunSummary, ...]
    targets: Targets | None
    figures: tuple[dict[str, float | None], ...]
    explained: tuple[Explanation, ...]
    change: FeedbackChange | None
    journal: Path
    report: Path
    table: DecisionTable | None = None
    cluster: str = "simulated"
    steps: tuple[tuple[str, float, float | None], ...] = ()
    failures: tuple[tuple[str, str], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        names = ("before_feedback", "after_feedback")
        total = {
            name: sum(getattr(each, name) for each in self.summaries)
            for name in ("decisions", "placed", "moved", "refused", "completed", "energy_kwh", "traffic_usd", "wall_s")
        }
        parts = {name: each.to_dict() for name, each in zip(names, self.summaries, strict=False)}
        wanted = {} if self.targets is None else self.targets.named()
        return {
            "preset": self.preset,
            "policy": self.policy,
            "seed": self.seed,
            "summary": {**total, **parts},
            "targets": {
                name: {
                    "wanted": value,
                    **{part: figures[name] for part, figures in zip(names, self.figures, strict=False)},
                }
                for name, value in wanted.items()
            },
            "explained": [each.decision for each in self.explained],
            "feedback": None if self.change is None else _feedback(self.change, self.lang),
            "cluster": self.cluster,
            "steps": [dict(zip(("task", "predicted_s", "measured_s"), each, strict=True)) for each in self.steps],
            "failures": [{"task": task, "reason": reason} for task, reason in self.failures],
            "paths": {"journal": str(self.journal), "report": str(self.report)},
        }


def _feedback(change: FeedbackChange, lang: str) -> dict[str, Any]:
    weights = {name: getattr(change.reward, name) for name in ("w_eff", "w_util", "w_cost")}
    reason = change.reason_zh if lang == "zh" else change.reason
    return {"kind": change.kind, "reason": reason, "weights": weights, "changes": change.records()}


def go_round_the_loop(system: System, request: RunRequest, stages: Stages) -> RunResult:
    """Place tasks, explain, feed back, place on under the changed weights, and write the report.

    Raises:
        RunTimeError: If something fails on the way; the message says where the journal is.
    """
    if request.files is None:
        raise RunTimeError("the system was not opened by this run")
    try:
        return _round(system, request, stages, request.files.journal, request.files.report)
    except AttributionSchedError as error:
        where = f"What was decided is in {request.files.journal}"
        raise RunTimeError(f"{error}. {where}") from error


def _round(system: System, request: RunRequest, stages: Stages, journal: Path, report: Path) -> RunResult:
    began, failed_before = system.journal.count(), len(_failures(system))
    summaries = [_place(system, request, stages, "placing tasks", first=True)]
    explained: tuple[Explanation, ...] = ()
    table: DecisionTable | None = None
    if request.explain:
        explained = _explain(system, stages, _consequential(system.journal, began))
        # Of those that commit most, the one whose choice made most difference is shown.
        tables = [system.alternatives(each.decision) for each in explained[:COMPARED]]
        table = max(tables, key=lambda each: each.clearness, default=None)
    change, middle = None, system.journal.count()
    wanted = system.targets
    if request.feedback and wanted is not None and wanted.named() and summaries[0].placed:
        with stages.stage("feedback") as tell:
            change = system.feedback(explain=24 if request.explain else 0, progress=tell)
        words = "placing on" if change.kind == "still" else "placing under new weights"
        after = _place(system, request, stages, words, first=False)
        # A column in which nothing was decided compares nothing.
        summaries += [after] if after.decisions else []
    if system.cluster.running and not system.cluster.expecting:
        # Nothing more comes: what the last placements come to is part of what came of the run.
        with stages.stage("waiting for jobs to end"):
            waited = system.run(until="empty")
        last = summaries[-1]
        more = {name: getattr(last, name) + getattr(waited, name) for name in WAITED_FOR}
        summaries[-1] = replace(last, running=waited.running, **more)
    figures = []
    if wanted is not None:
        figures = [measured(system.journal, wanted, began, middle)]
        figures += [measured(system.journal, wanted, middle)] if len(summaries) > 1 else []
    with stages.stage("writing the report") as tell:
        written = system.report(
            report,
            lang=request.lang,
            explain=REPORTED if request.explain else 0,
            progress=lambda _, step, of: tell(step, of),
        )
    return RunResult(
        system.settings.name, system.policy.name, system.seed, request.lang, tuple(summaries), wanted, tuple(figures),
        explained, change, journal, Path(written), table, system.cluster_kind, _steps(system, began),
        _failures(system)[failed_before:],
    )  # fmt: skip


COMPARED = 3
"""Decisions whose alternatives are played, to show one of them."""

WAITED_FOR = (
    "completed", "cluster_h", "energy_kwh", "traffic_usd", "carbon_kg", "completions_h", "waiting_h", "gpu_h",
    "electricity_usd", "idle_carbon_kg", "network_carbon_kg",
)  # fmt: skip
"""What goes on while a run waits for its last tasks to end."""


def _steps(system: System, start: int) -> tuple[tuple[str, float, float | None], ...]:
    """Tasks that were placed on a real cluster since a decision: predicted and measured step."""
    if not system.is_real:
        return ()
    rows = []
    for decision, outcome in system.journal.entries(start):
        if outcome is not None and outcome.code in (1, 2) and outcome.step_s is not None:
            rows.append((str(decision.task_id), outcome.step_s, system.outcome(decision.id).observed.step_s))
    return tuple(rows)


def _failures(system: System) -> tuple[tuple[str, str], ...]:
    """Tasks whose launch or job failed on machines, and why."""
    from attribution_sched.system import operations

    records = operations.recorded(system.journal) if system.is_real else ()
    return tuple((each.name, str(each.more.get("reason", ""))) for each in records if each.kind == operations.FAILED)


def _place(system: System, request: RunRequest, stages: Stages, words: str, *, first: bool) -> RunSummary:
    whole = not request.feedback
    if request.hours is not None:
        with stages.stage(words) as tell:
            return system.run(hours=request.hours if whole else request.hours / 2, progress=lambda done, _: tell(done))
    tasks = request.tasks or 1
    count = tasks if whole else math.ceil(tasks / 2) if first else max(1, tasks // 2)
    with stages.stage(words, count) as tell:
        return system.run(count, progress=tell)


def _explain(system: System, stages: Stages, names: list[str]) -> tuple[Explanation, ...]:
    explanations = []
    with stages.stage("explaining", len(names)) as tell:
        for number, name in enumerate(names):
            tell(number)
            try:
                explanations.append(system.explain(name))
            except AttributionSchedError:
                # One decision that cannot be explained must not end the run; the report says which have reasons.
                continue
        tell(len(names))
    return tuple(explanations)


def _consequential(journal: Journal, start: int) -> list[str]:
    """Decisions since a number that commit most device-hours, as the report ranks them."""
    from attribution_sched.report.collect.passing import consequential, passed

    recorded = passed(journal)
    since = [moment for moment in recorded.moments if recorded.sequences[moment.decision] >= start]
    return [moment.decision for moment in consequential(since, EXPLAINED)]


ROWS: tuple[tuple[str, str, str], ...] = (
    ("placed", "Tasks placed", "{:d}"),
    ("completed", "Tasks completed", "{:d}"),
    ("moved", "Running tasks moved", "{:d}"),
    ("decisions", "Decisions, re-planning included", "{:d}"),
    ("cluster_h", "Time on the cluster", "{:.2f} h"),
    ("mean_completion_h", "Mean time from arrival to finish", "{:.2f} h"),
    ("p95_completion_h", "  95th percentile", "{:.2f} h"),
    ("mean_queue_h", "Mean time in the queue", "{:.2f} h"),
    ("gpu_h", "Device-hours of computing", "{:,.1f} h"),
    ("energy_kwh", "Energy on the meters", "{:,.2f} kWh"),
    ("traffic_usd", "Traffic between domains", "{:,.2f} USD"),
    ("electricity_usd", "Electricity at the preset's prices", "{:,.2f} USD"),
    ("carbon_kg", "Carbon of the tasks, location-based", "{:,.2f} kg CO2e"),
    ("idle_carbon_kg", "  of idle devices beside them", "{:,.2f} kg CO2e"),
    ("network_carbon_kg", "  of the network between domains", "{:,.2f} kg CO2e"),
    ("mean_r_eff", "Mean R_eff of placements", "{:+.3f}"),
    ("mean_r_util", "Mean R_util", "{:+.3f}"),
    ("mean_r_cost", "Mean R_cost", "{:+.3f}"),
    ("mean_reward", "Mean reward, weights in force", "{:+.3f}"),
)
"""Field of a run's summary, what to call it, how to print it."""


KINDS_OF_STEP = {"changed": "weights changed", "rolled back": "changes taken back", "still": "nothing changed"}


def headline_of(system: System) -> str:
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


def show(result: RunResult) -> None:
    """Print tables, the reason of the feedback, and the most consequential decision."""
    console = out()
    console.print(_happened(result))
    if result.steps:
        console.print(_measured_steps(result))
        console.print("Tasks of a preset bring no command: a stand-in ran, whose step is no model's.", style="dim")
    for (task, reason), times in Counter(result.failures).items():
        words = f"{task} failed{'' if times == 1 else f' {times} times'}: {reason}"
        console.print(f"[red]{escape(words)}[/red]", soft_wrap=True)
    if result.figures and result.targets is not None:
        console.print(_targets(result))
    width = columns()
    if len(result.summaries) > 1:
        console.print("Other tasks came after than before: the columns differ by that too.\n", style="dim")
    if result.change is not None:
        reason = result.change.reason_zh if result.lang == "zh" else result.change.reason
        console.print(f"[bold]Feedback ({KINDS_OF_STEP[result.change.kind]})[/bold]: {escape(reason)}", width=width)
    if result.explained:
        from attribution_sched.explain.reasoning import headline

        shown = {each.decision: each for each in result.explained}
        first = result.explained[0] if result.table is None else shown[result.table.decision]
        console.print(f"\n[bold]Most at stake[/bold]  {escape(headline(first, result.lang))}", width=width)
        if result.table is not None:
            from attribution_sched.cli.explain import show_alternatives

            show_alternatives(result.table, result.lang)
        console.print(
            f"Why? attribution-sched explain {first.decision} --journal {result.journal}", style="dim", soft_wrap=True
        )
    if result.cluster != "simulated" and result.summaries[-1].running:
        words = f"{_count(result.summaries[-1].running, 'job')} still at work; go on with them: attribution-sched run"
        console.print(f"\n{words} --resume {result.journal}", soft_wrap=True)
    console.print("\n[bold]Report[/bold]:")


def _happened(result: RunResult) -> Any:
    from rich.table import Table

    simulated = result.cluster == "simulated"
    how = "figures simulated" if simulated else f"run on {result.cluster}; figures are the twin's estimates"
    table = Table(title=f"{result.preset}, {result.policy}, seed {result.seed} ({how})", title_justify="left")
    table.add_column("What happened")
    heads = ("Before feedback", "After") if len(result.summaries) > 1 else ("How much",)
    for head in heads:
        table.add_column(head, justify="right")
    for field, label, form in ROWS:
        label = label if simulated or field != "energy_kwh" else "Energy, estimated"
        values = [None if "carbon" in field and not s.carbon_known else getattr(s, field) for s in result.summaries]
        table.add_row(label, *(_number(value, form) for value in values))
    times = [each.decision_p99_s for each in result.summaries]
    table.add_row("99 of 100 decisions within (measured)", *(_number(s and 1e3 * s, "{:.0f} ms") for s in times))
    return table


MOST_STEPS = 12
"""Tasks whose steps are shown."""


def _measured_steps(result: RunResult) -> Any:
    from rich.table import Table

    from attribution_sched.explain.digits import amount

    table = Table(title="Steps, predicted and measured", title_justify="left")
    table.add_column("Task")
    for head in ("Predicted", "Measured"):
        table.add_column(head, justify="right")
    for task, predicted_s, measured_s in result.steps[-MOST_STEPS:]:
        known = "not yet" if measured_s is None else amount(measured_s, "s")
        table.add_row(escape(task), amount(predicted_s, "s"), known)
    return table


def _targets(result: RunResult) -> Any:
    from rich.table import Table

    from attribution_sched.feedback.targets import KINDS

    if result.targets is None:
        return ""
    table = Table(title="Targets", title_justify="left")
    table.add_column("Target")
    table.add_column("Wanted", justify="right")
    for head in ("Before feedback", "After") if len(result.figures) > 1 else ("Found",):
        table.add_column(head, justify="right")
    for name, wanted in result.targets.named().items():
        kind = KINDS[name]
        sign = "≥" if kind.at_least else "≤"
        cells = []
        for figures in result.figures:
            value = figures[name]
            if value is None:
                cells.append("not known")
                continue
            met = result.targets.violation(name, value) <= 0
            cells.append(f"{value:.3g} {'[green]met[/green]' if met else '[yellow]missed[/yellow]'}")
        words = kind.chinese if result.lang == "zh" else kind.english
        table.add_row(words, f"{sign} {wanted:g} {kind.unit}".strip(), *cells)
    return table


def _number(value: float | None, form: str) -> str:
    return "–" if value is None else form.format(value)
