"""The headline: ahead of whom, three numbers, what the cluster did; then what it came to and what drove it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from attribution_sched.explain import plots
from attribution_sched.explain.digits import number
from attribution_sched.explain.plots.gantt import Bar
from attribution_sched.explain.wording import output_name
from attribution_sched.feedback.targets import KINDS
from attribution_sched.report.data import Contender, Number, Report, Standing
from attribution_sched.report.document import Block, Picture, Section, Text, Tile, Tiles, Tone
from attribution_sched.report.format import amount, clock, count, counted, hours, listed, player, seconds, share, signed
from attribution_sched.stats.interval import mean_interval
from attribution_sched.words.say import say


def _word(key: str, lang: str, **values: object) -> str:
    return say("report.summary.tiles", lang, variant=key, **values)


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
        decided=counted("count.decisions", totals["decisions"]),
        tasks=counted("count.tasks", totals["arrived"]),
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
            running=counted("count.tasks_are", totals["running"]),
            waiting=counted("count.are", totals["waiting"]),
            refused=counted("count.plans", totals["refused"]),
        ),
        _drivers(report, lang),
    ]
    if report.targets:
        met = sum(one.violation is not None and one.violation <= 0 for one in report.targets)
        rest.append(say("report.summary.met", lang, met=met, all=len(report.targets)))
    gap = " " if lang == "en" else ""
    picture = _picture(report, lang)
    blocks: tuple[Block, ...] = (
        _verdict(report, lang),
        _headline(report, lang),
        *([picture] if picture else []),
        Text(gap.join(word for word in words if word)),
        _tiles(report, lang),
        Text(gap.join(word for word in rest if word)),
    )
    return Section("summary", say("report.summary.title", lang), blocks)


def best_rival(report: Report) -> tuple[Contender, Contender] | None:
    """The run itself and the rival that earned most over the same span; None if nobody could be compared."""
    played = [one for one in report.rivals.contenders if not one.missing]
    own = next((one for one in played if one.own), None)
    others = [one for one in played if not one.own]
    if own is None or not others:
        return None
    return own, max(others, key=lambda one: one.figures["earned"].value or 0.0)


def _verdict(report: Report, lang: str) -> Text:
    """One line: ahead of the best rival, level with it, or behind it."""
    both = best_rival(report)
    if both is None:
        totals = report.run.totals
        placed, tasks = count(totals["placed"]), counted("count.tasks", totals["arrived"])
        return Text(
            say("report.summary.verdict.alone", lang, policy=report.run.policy, placed=placed, tasks=tasks), "lead"
        )
    own, rival = (one.figures["earned"].value or 0.0 for one in both)
    # Blocks of one run stand for runs: level unless the interval of their paired differences excludes 0.
    apart = np.subtract(both[0].blocks, both[1].blocks)
    a_block = mean_interval(apart)
    low, high = len(apart) * a_block.low, len(apart) * a_block.high
    result = "level" if not a_block.certain else "ahead" if low > 0.0 else "behind"
    tone: Tone = {"level": "plain", "ahead": "good", "behind": "bad"}[result]  # type: ignore[assignment]
    words = say(
        "report.summary.verdict",
        lang,
        variant=result,
        policy=both[0].policy,
        rival=both[1].policy,
        own=signed(own),
        other=signed(rival),
        difference=signed(own - rival),
        half=number((high - low) / 2.0, 3),
        rivals=counted("count.rivals", sum(not one.own and not one.missing for one in report.rivals.contenders)),
        span=clock(report.rivals.span_s, lang),
    )
    return Text(words, tone)


def _headline(report: Report, lang: str) -> Tiles:
    """Three numbers, each beside the best rival's."""
    both, totals = best_rival(report), report.run.totals

    def beside(name: str, tell: Callable[[Number], str], otherwise: str) -> str:
        if both is None or both[1].figures[name].value is None:
            return otherwise
        return _word("rival", lang, rival=both[1].policy, value=tell(both[1].figures[name]))

    devices = counted("count.devices", sum(report.run.devices))
    return Tiles(
        (
            Tile(
                _word("finish", lang),
                hours(totals["completion_h"], lang),
                beside("completion_h", lambda value: hours(value, lang), _word("finish_note", lang)),
            ),
            Tile(
                _word("busy", lang),
                share(totals["utilisation"], lang),
                beside("utilisation", lambda value: share(value, lang), _word("busy_note", lang, devices=devices)),
            ),
            Tile(
                _word("energy", lang), amount(totals["energy_kwh"]), beside("energy_kwh", amount, _word("meters", lang))
            ),
        )
    )


def _picture(report: Report, lang: str) -> Picture | None:
    """Who held which devices, how many were in use, who waited."""
    course = report.course
    if course is None or not course.holdings:
        return None
    bars = [Bar(one.kind, one.domain, one.devices, one.start_s / 3600.0, one.end_s / 3600.0) for one in course.holdings]
    series = ([edge / 3600.0 for edge in course.edges_s], course.busy, course.waiting)
    domains = list(zip(report.run.domains, report.run.devices, strict=True))
    draw = partial(plots.gantt, bars, domains, series, lang=lang)
    figures = {
        "tasks": counted("count.tasks", len({one.task for one in course.holdings})),
        "busy": share(sum(course.busy) / len(course.busy), lang),
        "waiting": number(max(course.waiting), 3),
    }
    alt = say("report.summary.course.alt", lang, domains=counted("count.domains", len(domains)), **figures)
    caption = say("report.summary.course.caption", lang)
    if course.left_out:
        caption += say("report.summary.course.older", lang, count=course.left_out)
    return Picture("course", draw, alt, caption)


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
    named = [
        say("report.summary.one_driver", lang, name=player(one.name, lang), share=share(one.top, lang))
        for one in leading
    ]
    chosen = report.reasons.output in ("log_odds", "choice")
    message = "report.summary.decided" if chosen else "report.summary.driven"
    return say(message, lang, count=explained, output=name, drivers=listed(named, lang))


def _short(one: Standing, lang: str) -> str:
    kind = KINDS[one.target]
    return kind.chinese if lang == "zh" else kind.english


def _tiles(report: Report, lang: str) -> Tiles:
    """What else one looks for."""
    run, totals = report.run, report.run.totals
    tiles = [
        Tile(
            _word("tasks", lang),
            f"{count(totals['placed'])} / {count(totals['completed'])}",
            _word("arrived", lang, tasks=counted("count.tasks", totals["arrived"])),
        ),
        Tile(
            _word("reward", lang),
            signed(totals["mean_reward"]),
            _word(
                "reward_note",
                lang,
                eff=signed(totals["mean_r_eff"], 2),
                util=signed(totals["mean_r_util"], 2),
                cost=amount(totals["mean_r_cost"], lang, 2),
            ),
        ),
        Tile(
            _word("time", lang),
            seconds(totals["decision_p50_s"].value),
            _word("time_note", lang, p99=seconds(totals["decision_p99_s"].value)),
        ),
    ]
    if len(run.domains) > 1:
        crossing = _word("cross", lang, plans=counted("count.plans_across", report.cross_domain))
        tiles.insert(1, Tile(_word("bill", lang), amount(totals["traffic_usd"]), crossing))
    else:
        tiles.insert(1, Tile(_word("waited", lang), hours(totals["waiting_h"], lang), _word("waited_note", lang)))
    # Energy without any carbon means that the preset gives no intensity, not that there is none.
    unknown = totals["energy_kwh"].value and not (totals["carbon_kg"].value or totals["idle_carbon_kg"].value)
    grams = "–" if unknown else amount(totals["carbon_kg"])
    many, beside_it = len(run.domains) > 1, {"idle": amount(totals["idle_carbon_kg"])}
    if many:
        beside_it["network"] = amount(totals["network_carbon_kg"])
    note = _word("emissions_both" if many else "emissions_note", lang, **beside_it)
    note = _word("no_carbon", lang) if unknown else note
    tiles.insert(2, Tile(_word("emissions", lang), grams, note))
    met = sum(one.violation is not None and one.violation <= 0 for one in report.targets)
    if report.targets:
        tone: Tone = "good" if met == len(report.targets) else "bad"
        missed = [
            say("report.summary.missed", lang, name=_short(one, lang))
            for one in report.targets
            if (one.violation or 0.0) > 0
        ]
        mark = "；" if lang == "zh" else "; "
        tiles.append(Tile(_word("targets", lang), f"{met} / {len(report.targets)}", mark.join(missed), tone))
    else:
        tiles.append(Tile(_word("targets", lang), "–", _word("targets_none", lang)))
    return Tiles(tuple(tiles))
