"""The headline: what was run, what it came to, what drove it."""

from __future__ import annotations

from attribution_sched.explain.wording import output_name
from attribution_sched.explain.words import say
from attribution_sched.feedback.targets import KINDS
from attribution_sched.report.data import Report, Standing
from attribution_sched.report.document import Block, Section, Text, Tile, Tiles, Tone
from attribution_sched.report.format import amount, clock, count, counted, hours, listed, player, seconds, share, signed

TILES = {
    name: f"report.summary.tiles.{name}"
    for name in (
        "tasks",
        "arrived",
        "busy",
        "busy_note",
        "finish",
        "finish_note",
        "waited",
        "waited_note",
        "energy",
        "bill",
        "carbon",
        "no_carbon",
        "cross",
        "reward",
        "reward_note",
        "time",
        "time_note",
        "targets",
        "targets_none",
    )
}


def section(report: Report, lang: str) -> Section:
    """Words first, then the headline numbers."""
    run, totals = report.run, report.run.totals
    name = {"policy": run.policy, "preset": run.preset, "seed": run.seed}
    if not totals["decisions"].value:
        return Section(
            "summary", say("report.summary.title", lang), (Text(say("report.summary.empty", lang, **name), "lead"),)
        )
    ran = say(
        "report.summary.ran",
        lang,
        **name,
        span=clock(3600.0 * (totals["cluster_h"].value or 0.0), lang),
        decided=counted("decisions", totals["decisions"]),
        tasks=counted("tasks", totals["arrived"]),
        placed=count(totals["placed"]),
        completed=count(totals["completed"]),
    )
    words = [ran, _worth(report, lang)]
    spent = "report.summary.spent" if len(run.domains) > 1 else "report.summary.spent_alone"
    idle, energy = totals["idle_energy_kwh"].value or 0.0, totals["energy_kwh"].value or 0.0
    rest = [
        say(
            spent,
            lang,
            busy=share(totals["utilisation"], lang),
            energy=amount(totals["energy_kwh"]),
            idle=share(idle / energy if energy else 0.0, lang),
            bill=amount(totals["traffic_usd"]),
        ),
        say(
            "report.summary.open",
            lang,
            running=counted("tasks_are", totals["running"]),
            waiting=counted("are", totals["waiting"]),
            refused=counted("plans", totals["refused"]),
        ),
        _drivers(report, lang),
    ]
    if report.targets:
        met = sum(one.violation is not None and one.violation <= 0 for one in report.targets)
        rest.append(say("report.summary.met", lang, met=met, all=len(report.targets)))
    gap = " " if lang == "en" else ""
    blocks: tuple[Block, ...] = (
        Text(gap.join(word for word in words if word), "lead"),
        _tiles(report, lang),
        Text(gap.join(word for word in rest if word)),
    )
    return Section("summary", say("report.summary.title", lang), blocks)


def _worth(report: Report, lang: str) -> str:
    totals = report.run.totals
    eff = totals["mean_r_eff"].value
    if eff is None:
        return ""
    faster = say("report.summary.faster" if eff >= 0 else "report.summary.slower", lang, share=share(abs(eff), lang))
    return say(
        "report.summary.worth",
        lang,
        faster=faster,
        util=share(totals["mean_r_util"], lang),
        cost=share(totals["mean_r_cost"], lang),
        reward=signed(totals["mean_reward"]),
    )


def _drivers(report: Report, lang: str) -> str:
    why = report.reasons
    explained = sum(one.explanation is not None for one in why.sample)
    if not explained:
        return ""
    name = output_name(why.output, lang)
    leading = [driver for driver in why.drivers if driver.top > 0][:3]
    if not leading:
        return say("report.summary.no_driver", lang, count=explained, output=name)
    told = [
        say("report.summary.one_driver", lang, name=player(one.name, lang), share=share(one.top, lang))
        for one in leading
    ]
    return say("report.summary.driven", lang, count=explained, output=name, drivers=listed(told, lang))


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
            word("tasks"),
            f"{count(totals['placed'])} / {count(totals['completed'])}",
            word("arrived", tasks=counted("tasks", totals["arrived"])),
        ),
        Tile(
            word("busy"),
            share(totals["utilisation"], lang),
            word("busy_note", devices=counted("devices", sum(run.devices))),
        ),
        Tile(word("energy"), amount(totals["energy_kwh"]), carbon),
        Tile(
            word("reward"),
            signed(totals["mean_reward"]),
            word(
                "reward_note",
                eff=signed(totals["mean_r_eff"], 2),
                util=signed(totals["mean_r_util"], 2),
                cost=amount(totals["mean_r_cost"], lang, 2),
            ),
        ),
        Tile(
            word("time"),
            seconds(totals["decision_p50_s"].value),
            word("time_note", p99=seconds(totals["decision_p99_s"].value)),
        ),
    ]
    if len(run.domains) > 1:
        crossing = word("cross", plans=counted("plans_across", report.cross_domain))
        tiles.insert(3, Tile(word("bill"), amount(totals["traffic_usd"]), crossing))
    else:
        tiles.insert(3, Tile(word("waited"), hours(totals["waiting_h"], lang), word("waited_note")))
    tiles.insert(5, Tile(word("finish"), hours(totals["completion_h"], lang), word("finish_note")))
    met = sum(one.violation is not None and one.violation <= 0 for one in report.targets)
    if report.targets:
        tone: Tone = "good" if met == len(report.targets) else "bad"
        missed = [
            say("report.summary.missed", lang, name=_short(one, lang))
            for one in report.targets
            if (one.violation or 0.0) > 0
        ]
        tiles.append(
            Tile(word("targets"), f"{met} / {len(report.targets)}", ("；" if lang == "zh" else "; ").join(missed), tone)
        )
    else:
        tiles.append(Tile(word("targets"), "–", word("targets_none")))
    return Tiles(tuple(tiles))
