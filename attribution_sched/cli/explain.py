"""``attribution-sched explain``: why a decision of a journal was made."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attribution_sched.cli.console import Stages, examples, notes, say_json
from attribution_sched.cli.journals import decision_of, rebuilt
from attribution_sched.cli.places import check_folder
from attribution_sched.errors import ExplanationError, JournalError, SettingsError, nearest, problem

if TYPE_CHECKING:
    from attribution_sched.explain.explanation import Explanation
    from attribution_sched.journal import Journal

EXAMPLES = examples(
    "attribution-sched explain last --journal runs/cross-domain-0-1/journal.sqlite",
    "attribution-sched explain d000012 -j run.sqlite --target returns --against runner-up",
    "attribution-sched explain 12 -j run.sqlite --lang zh --html why.html",
)

AGAINST: tuple[str, ...] = ("runner-up", "nothing")
QUESTION, RESULT = "What is asked", "What is printed"


def explain(
    decision: Annotated[
        str,
        typer.Argument(
            metavar="ID",
            help="A decision: its id, a prefix no other has, its number, or `last` (the newest plan put in force).",
        ),
    ],
    journal: Annotated[Path, typer.Option("--journal", "-j", help="Journal to read; another process may write it.")],
    target: Annotated[
        str | None,
        typer.Option(
            help="terms, returns, simulator, choice or log_probability; by default what the plan itself is worth.",
            show_default=False,
            rich_help_panel=QUESTION,
        ),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            help="Compare with runner-up (the next choice) or nothing (to wait).",
            show_default=False,
            rich_help_panel=QUESTION,
        ),
    ] = None,
    tipping: Annotated[
        bool, typer.Option(help="Look for thresholds and the smallest flip.", rich_help_panel=QUESTION)
    ] = True,
    recorded: Annotated[
        bool,
        typer.Option(
            "--recorded", help="Show what the journal holds, without asking the policy again.", rich_help_panel=QUESTION
        ),
    ] = False,
    most: Annotated[int, typer.Option(help="Drivers to show.", rich_help_panel=RESULT)] = 8,
    lang: Annotated[str, typer.Option(help="Language of words: en or zh.", rich_help_panel=RESULT)] = "en",
    html: Annotated[
        Path | None, typer.Option(help="Write it as a page too.", show_default=False, rich_help_panel=RESULT)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.", rich_help_panel=RESULT)] = False,
) -> None:
    """Say why a decision was made: drivers with intervals, how sure, and what would have changed it.

    The journal is only read. The cluster is built again from it up to the newest decision, and a copy of the policy is
    asked.
    """
    from attribution_sched.explain.wording import check_language

    check_language(lang)
    if most < 1:
        raise SettingsError(problem("--most", most, "must be a whole number >= 1", "Use for example --most 8"))
    options = _options(target, against, tipping)
    if html is not None:
        _check_page(html)
    from attribution_sched.journal import Journal

    with Journal.read(journal) as found:
        name = decision_of(found, decision)
        told = _recorded(found, name, options) if recorded else None
    if told is None:
        told = _asked(journal, name, options)
    if html is not None:
        from attribution_sched.cli.explain_view import page
        from attribution_sched.report.files import write_whole

        write_whole(html, page(told, lang), "--html")
        notes().print(f"written: {html}", soft_wrap=True)
    if as_json:
        from attribution_sched.explain.reasoning import reasoning

        say_json({"reasoning": reasoning(told, lang), **told.to_dict()})
        return
    from attribution_sched.cli.explain_view import show

    show(told, lang, most)


def _options(target: str | None, against: str | None, tipping: bool) -> dict[str, Any]:
    from attribution_sched.explain.explanation import TARGETS

    valid = [name for name in TARGETS if name not in ("model", "log_odds")]
    if target is not None and target not in valid:
        raise ExplanationError(problem("--target", target, "cannot be explained", nearest(target, valid)))
    if against is not None and against not in AGAINST:
        raise ExplanationError(problem("--against", against, "is not known", nearest(against, AGAINST)))
    named = {"target": target, "against": against}
    return {**{name: value for name, value in named.items() if value is not None}, "tipping": tipping}


def _check_page(html: Path) -> None:
    if html.suffix.lower() not in (".html", ".htm"):
        raise SettingsError(problem("--html", str(html), "must end in .html", "For example --html why.html"))
    if html.is_dir():
        raise SettingsError(problem("--html", str(html), "is a folder", "Give the name of a file"))
    check_folder(html, "--html")


def _asked(journal: Path, name: str, options: dict[str, Any]) -> Explanation:
    try:
        with Stages() as stages, rebuilt(journal, stages) as system, stages.stage(f"explaining {name}"):
            return system.explain(name, **options)
    except JournalError as error:
        from attribution_sched.journal import Journal

        with Journal.read(journal) as found:
            if not found.explanations(name):
                raise
        raise JournalError(f"{error}. What was recorded of {name} can be shown with --recorded") from error


def _recorded(journal: Journal, name: str, options: dict[str, Any]) -> Explanation:
    from attribution_sched.explain.explanation import Explanation

    found = journal.explanations(name)
    target = options.get("target")
    fitting = [each for each in found if target in (None, each.target)]
    if not fitting:
        has = ", ".join(each.target for each in found) or "none"
        rule = f"has no recorded explanation{f' of {target!r}' if target else ''} (recorded: {has})"
        raise JournalError(problem("decision", name, rule, "Leave out --recorded to have it explained now"))
    return Explanation.from_dict(fitting[0].explanation)
