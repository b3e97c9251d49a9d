"""``attribution-sched what-if``: what a change of the cluster, its prices, its policy or its queue would do."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from attribution_sched.cli.console import Stages, columns, examples, out, say_json
from attribution_sched.cli.files import rebuild_system

if TYPE_CHECKING:
    from attribution_sched.explain.what_if import WhatIf

EXAMPLES = examples(
    "attribution-sched what-if run.sqlite --add 8@aws:us-west-2",
    "attribution-sched what-if run.sqlite --link aws:us-east-1-azure:westus x2 --policy sjf",
    "attribution-sched what-if run.sqlite --task job.yaml --hours 12",
)


def what_if(
    journal: Annotated[Path, typer.Argument(help="Journal to read; another process may write it.")],
    link: Annotated[
        tuple[str, str] | None, typer.Option(help="Two domains with a dash between, and a factor: a-b x2.")
    ] = None,
    add: Annotated[str | None, typer.Option(help="Devices for a domain: 8@munich, 8xH100@munich, -8@munich.")] = None,
    drop: Annotated[str | None, typer.Option(help="A domain that is gone.")] = None,
    task: Annotated[Path | None, typer.Option(help="YAML file of one more task, as for submit.")] = None,
    without: Annotated[str | None, typer.Option(help="A task that is not there, by its id.")] = None,
    policy: Annotated[str | None, typer.Option(help="Another policy by name.")] = None,
    carbon_price: Annotated[float | None, typer.Option(help="USD per kg of carbon inside R_cost.")] = None,
    energy_price: Annotated[float | None, typer.Option(help="USD per kWh inside R_cost.")] = None,
    futures: Annotated[int, typer.Option(help="Futures to play.")] = 32,
    hours: Annotated[float | None, typer.Option(help="How far to play; at most a day by default.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of the futures; the journal's own by default.")] = None,
    lang: Annotated[str, typer.Option(help="Language of words: en or zh.")] = "en",
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Say what a change would do from now on, in absolute units with intervals; each change by itself.

    The journal is only read. Copies of the cluster at its end are played on with and without the change under the same
    futures.
    """
    from attribution_sched.config.sources import read_mapping
    from attribution_sched.explain.wording import check_language

    check_language(lang)
    request = None if task is None else read_mapping(task)
    with Stages() as stages, rebuild_system(journal, stages) as system:
        effects = system.what_if(
            link=link, add=add, drop=drop, task=request, without=without, policy=policy, carbon_price=carbon_price,
            energy_price=energy_price, futures=futures, hours=hours, seed=seed,
        )  # fmt: skip
    if as_json:
        say_json([as_dict(each, lang) for each in effects])
        return
    for each in effects:
        out().print(escape(each.say(lang)), width=columns())
        out().print(effects_table(each, lang))
        if shifts := each.say_shifts(lang):
            out().print(escape(shifts), width=columns())


def as_dict(effects: WhatIf, lang: str) -> dict[str, Any]:
    """Everything, for other programs."""
    return asdict(effects) | {"change": effects.change.say(lang), "sentence": effects.say(lang)}


def effects_table(effects: WhatIf, lang: str) -> Table:
    """What a change does, a quantity a row."""
    from attribution_sched.explain.digits import number
    from attribution_sched.words.say import say, say_all

    table = Table(*say_all("what_if.heading", lang), box=None, pad_edge=False)
    for each in effects.effects:
        unit = f" ({each.unit})" if each.unit else ""
        numbers = (number(each.without), number(each.changed), number(each.delta, signed=True))
        between = f"[{number(each.low, signed=True)}, {number(each.high, signed=True)}]"
        table.add_row(escape(say("what_if.quantity", lang, variant=each.quantity) + unit), *numbers, escape(between))
    return table
