"""J5: does an explanation hang on the policy, and does the decision hang on what it names?

    python benchmarks/explain_joint.py [--seed 41000] [--placements 40] [--others 20] [--presets cross-domain,testbed]
        [--runs explain_joint.jsonl] [--seconds 300] [--brought] [--quick]

Decisions of fresh days of each preset, without thinking; the background are earlier days of the same world. All of it
is about the default explanation: the decision of the policy against the best other choice. A line per decision is kept
in ``--runs``, so a run that was ended goes on where it was.

- *shuffled*: every weight of the network in another order, the same decisions explained again with the same budget;
  Spearman's ρ of the shares over all players, mean over decisions; and with intact weights and another sampling seed.
  Each decision has one of ``SHUFFLES`` orders: by one order alone all decisions are compared with one and the same
  other policy, and what that one happens to share with ours is no matter of chance over decisions. Three readings:
  over the *drivers* (players with a share on either side); over all players, where those that neither explanation
  gives a share agree by being nothing in both; and over the drivers of the agents' own odds, the search switched off
  on both sides, which is the part of the log-odds that weights enter.
- *costs* (``--costs``): placements over several domains, only to see whether ΔR_cost has a certain driver.
- *flips*: the driver that speaks most for the choice is put back to its value in each state of the reference group,
  everything else stays, and the whole deployed policy (network and search) decides again. Counted are only resets after
  which the chosen plan still fits; their share is printed. The same for an input drawn at random, and both with values
  of any earlier state, beside *everything* but the room put back to it, beyond which no input can go.
- *forced*: decisions at which nothing else was on offer (nobody else could start, and waiting was out of the question).
  No weight has a say in these, so shuffling weights cannot change what decided them; ρ is printed with and without.
- *outside*: placements with a certain driver (interval excludes 0) that is no attribution.
- *explained*: waits and keeps with a certain driver, or of which it is known that no earlier situation would have
  changed them.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from functools import cache
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from attribution_sched.attribution.attributor import as_attributor
from attribution_sched.cluster.live import PolicyCall, SimulatedCluster
from attribution_sched.cluster.world import World
from attribution_sched.config import load_settings
from attribution_sched.explain.background import Background
from attribution_sched.explain.batch import Prepared
from attribution_sched.explain.decision_table import decision_table
from attribution_sched.explain.explainer import FORCED, STEADFAST, Explainer
from attribution_sched.explain.explanation import Explanation
from attribution_sched.explain.preference import devices_needed, redecided, where
from attribution_sched.explain.quality import rank_correlation
from attribution_sched.explain.recorder import Decided, noted, perceived
from attribution_sched.scheduler.hi_ppo.coordinator import HiPpo
from attribution_sched.scheduler.policy import Policy
from attribution_sched.scheduler.registry import make_policy

NO_DEADLINE_S = 1e9
USUAL = 40_000
"""First seed of the background's days."""

SHUFFLES = 20
"""Orders that the weights are put into."""

RESETS = 8
"""States that an input is put back to, per decision."""


def days(world: World, policy: Policy, seed: int, count: int, per_day: int = 200) -> list[Decided]:
    """So many decisions of a policy, day after day."""
    attribute, found = as_attributor(None, world).vector, []
    while len(found) < count:
        cluster, asking = SimulatedCluster(world, seed, attribute=attribute), PolicyCall()
        if hasattr(policy, "reset"):
            policy.reset(0)
        for _ in range(per_day):
            if not cluster.advance():
                break
            asked = asking.ask(policy, cluster)
            found.append(
                Decided(f"{seed}-{len(found)}", asked.view, asked.plan, perceived(policy, asked.view), noted(policy))
            )
            cluster.carry_out(cluster.encode(asked.plan, asked.view.kind_index))
            asking.note(asked)
        seed += 1
    return found[:count]


def spread(decisions: Sequence[Decided], count: int) -> list[Decided]:
    """So many of them, evenly over all."""
    at = np.linspace(0, len(decisions) - 1, min(count, len(decisions))).astype(int)
    return [decisions[i] for i in at]


def flips(policy: Policy, ready: Prepared, player: int | list[int], states: np.ndarray) -> tuple[int, int]:
    """Resets of one player (or some) after which the plan fits, and how many of these flip the deployed decision."""
    if len(states) == 0:
        return 0, 0
    coalition = np.ones((len(states), len(ready.cast.names)), dtype=bool)
    coalition[:, player] = False
    situations = ready.blend(coalition, states, np.zeros(len(states), dtype=np.int64))
    plan = ready.decided.plan
    fits = np.flatnonzero((situations.free >= devices_needed(plan, situations.free.shape[1])).all(axis=1))
    if len(fits) == 0:
        return 0, 0
    made = redecided(policy, ready.decided.view, situations.take(fits))
    return len(fits), sum(where(one) != where(plan) for one in made)


def flip_rates(explainer: Explainer, one: Decided, told: Explanation, rng: np.random.Generator) -> dict[str, tuple]:
    """Fitting resets and flips: of the top driver, of random inputs, and of everything but the room."""
    policy = explainer.policy
    group, anywhere = explainer._prepare(one, "decision", None), explainer._prepare(one, "choice", None)
    top = int(np.argmax(told.values[: len(group.cast.names), 0]))
    others = [int(i) for i in anywhere.game.seats if i != top]
    found = {}
    for name, ready in (("group", group), ("any", anywhere)):
        pool = np.arange(len(ready.background))
        states = rng.choice(pool, min(RESETS, len(pool)), replace=False)
        found[f"{name}: top"] = flips(policy, ready, top, states)
        chance = [flips(policy, ready, int(rng.choice(others)), states[i : i + 1]) for i in range(len(states))]
        found[f"{name}: random"] = tuple(np.sum(chance, axis=0))
        found[f"{name}: tried"] = (len(states), 0)
        if name == "any":
            free = [i for i, family in enumerate(ready.cast.groups) if family != "load"]
            found["any: everything"] = flips(policy, ready, free, states)
    return found


def interval(values: Sequence[float]) -> str:
    """Mean and its 95 % bootstrap interval over decisions."""
    known = np.array([v for v in values if np.isfinite(v)])
    if len(known) == 0:
        return "–"
    rng = np.random.default_rng(0)
    means = known[rng.integers(0, len(known), (2000, len(known)))].mean(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    return f"{known.mean():.3f} [{low:.3f}, {high:.3f}] (n {len(known)})"


def rate(pairs: Sequence[tuple[int, int]]) -> list[float]:
    """Share of flips per decision; NaN where no reset leaves the plan fitting."""
    return [flipped / fits if fits else float("nan") for fits, flipped in pairs]


def shuffled_policy(policy: Policy, seed: int) -> Policy | None:
    """The policy with every weight in another place; None if it has none that could be shuffled."""
    if not isinstance(policy, HiPpo):
        return None
    forgot = policy.learnt.with_agents(np.random.default_rng(seed).permutation(policy.learnt.theta))
    return HiPpo(forgot, deadline_s=NO_DEADLINE_S)


def drawn(taken: Sequence[Decided], placements: int, others: int) -> dict[str, list[Decided]]:
    """Decisions of each sort, evenly over the days."""
    return {
        "placements": spread([d for d in taken if d.plan is not None and not d.view.replanning], placements),
        "waits": spread([d for d in taken if d.plan is None and not d.view.replanning], others),
        "keeps": spread([d for d in taken if d.plan is None and d.view.replanning], others),
        "moves": spread([d for d in taken if d.plan is not None and d.view.replanning], others),
    }


def measure_preset(args: argparse.Namespace, preset: str, known: set[str]) -> None:
    """Explain decisions of one world and write a line for each that is not known yet."""
    policy = HiPpo(deadline_s=NO_DEADLINE_S) if args.policy == "hi-ppo" else make_policy(args.policy)
    world = load_settings(preset).build_world()
    background = Background.of(days(world, policy, USUAL, 600), "earlier days")
    taken = days(world, policy, args.seed, max(400, 6 * max(args.placements, args.others), 30 * args.costs))
    explainer = Explainer(policy, background)
    blanks: dict[int, Explainer | None] = {}

    def blank_of(number: int) -> Explainer | None:
        order = number % SHUFFLES
        if order not in blanks:
            forgetful = shuffled_policy(policy, args.seed + order)
            blanks[order] = None if forgetful is None else Explainer(forgetful, background)
        return blanks[order]

    # In turn, so that a run that is ended early has some of each sort.
    groups = drawn(taken, args.placements, args.others)
    turns = [(name, one) for row in zip_longest(*groups.values()) for name, one in zip(groups, row, strict=True) if one]
    if args.costs:
        crossing = [d for d in taken if d.plan is not None and not d.view.replanning and len(set(d.plan.domains)) > 1]
        turns = [("costs", one) for one in spread(crossing, args.costs)]
    for number, (name, one) in enumerate(turns):
        key = f"{preset} {one.id}" + (" costs" if args.costs else "")
        if key in known:
            continue
        if time.process_time() > args.seconds:
            return
        found = cost_driver(explainer, one, args) if args.costs else of_one(explainer, blank_of(number), one, args)
        line = {"key": key, "preset": preset, "sort": name, **found}
        with args.runs.open("a") as file:
            file.write(json.dumps(line, default=float) + "\n")


def of_one(explainer: Explainer, blank: Explainer | None, one: Decided, args: argparse.Namespace) -> dict[str, Any]:
    """All figures of one decision."""
    rng = np.random.default_rng([args.seed, int(one.id.rpartition("-")[2])])
    began = time.process_time()
    told = explainer.explain(one)
    took = time.process_time() - began
    sure = told.significant()
    other = explainer.explain(one, seed=1, sure=False)
    line: dict[str, Any] = {
        "took": took, "again": rank_correlation(*(without_rounding(each.values[:, 0]) for each in (told, other))),
        "outside": bool(any(sure[i] and p.group != "attribution" for i, p in enumerate(told.players))),
        "explained": bool(sure.any() or STEADFAST in told.notes), "names": list(told.names),
        "groups": [p.group for p in told.players], "values": told.values.tolist(), "outputs": list(told.outputs),
        "steadfast": STEADFAST in told.notes, "forced": FORCED in told.notes,
    }  # fmt: skip
    if blank is not None:
        empty = blank.explain(one, sure=False)
        line |= {"shuffled_values": empty.values.tolist(), "shuffled_names": list(empty.names)}
        agents, forgot = (searchless(each).explain(one, sure=False) for each in (explainer, blank))
        line["agents_shuffled"] = correlation(shares_of(agents), shares_of(forgot), drivers=True)
    line["flips"] = flip_rates(explainer, one, told, rng)
    return line | (cost_driver(explainer, one, args) if args.brought else {})


def cost_driver(explainer: Explainer, one: Decided, args: argparse.Namespace) -> dict[str, Any]:
    """Whether what a choice brought in R_cost has a certain driver; None if there was nothing to compare with."""
    began = time.process_time()
    gain = decision_table(explainer.policy, one, seed=args.seed, drivers=True).brought
    return {
        "cost_driver": None if gain is None else any(d.spans[2].certain for d in gain.drivers),
        "cost_change": None if gain is None else [gain.total[2].mean, gain.total[2].low, gain.total[2].high],
        "crossing": one.plan is not None and len(set(one.plan.domains)) > 1,
        "brought_s": time.process_time() - began,
    }


def without_rounding(shares: np.ndarray) -> np.ndarray:
    """Shares with those at 0 that are only rounding: their order would be chance."""
    return np.where(np.abs(shares) > 1e-9 * np.abs(shares).max(initial=0.0), shares, 0.0)


@cache
def searchless(explainer: Explainer) -> Explainer:
    """Explains what the agents alone would do."""
    policy = explainer.policy
    assert isinstance(policy, HiPpo)
    return Explainer(HiPpo(policy.learnt, deadline_s=NO_DEADLINE_S, search=False), explainer.background)


def shares_of(told: Explanation) -> dict[str, float]:
    """Share of each player in the odds, rounding left out."""
    return dict(zip(told.names, without_rounding(told.values[:, 0]).tolist(), strict=True))


def correlation(ours: dict[str, float], theirs: dict[str, float], *, drivers: bool) -> float:
    """ρ of shares over all players, or over those with a share on either side; 0 if there is nothing to compare."""
    names = [name for name in ours if name in theirs and (not drivers or ours[name] != 0.0 or theirs[name] != 0.0)]
    if len(names) < 3:
        return 0.0
    return float(
        np.nan_to_num(rank_correlation(np.array([ours[n] for n in names]), np.array([theirs[n] for n in names])))
    )


def shuffled_correlation(line: dict[str, Any], *, drivers: bool = False) -> float:
    """ρ of the shares of an intact and a shuffled policy."""
    ours, theirs = (
        dict(zip(line[f"{which}names"], without_rounding(np.array(line[f"{which}values"])[:, 0]), strict=True))
        for which in ("", "shuffled_")
    )
    return correlation(ours, theirs, drivers=drivers)


def table(lines: Sequence[dict[str, Any]]) -> list[str]:
    """The figures of all decisions that were measured, by sort."""
    rows = ["| decisions | figure | measured |", "|---|---|---|"]
    costs = [line for line in lines if line["sort"] == "costs" and line["cost_driver"] is not None]
    if costs:
        took = [line["brought_s"] for line in costs]
        clear = [float(line["cost_driver"]) for line in costs if line["cost_change"][1] * line["cost_change"][2] > 0.0]
        figures = (
            ("a certain driver of ΔR_cost", interval([float(line["cost_driver"]) for line in costs])),
            ("the same where ΔR_cost itself is certain", interval(clear)),
            ("CPU ms, median and p95", f"{1e3 * np.median(took):.0f}, {1e3 * np.quantile(took, 0.95):.0f}"),
        )
        rows += [f"| {len(costs)} over several domains | {what} | {figure} |" for what, figure in figures]
    for name in ("placements", "waits", "keeps", "moves"):
        group = [line for line in lines if line["sort"] == name]
        if not group:
            continue
        told = [("another sampling seed, ρ", interval([line["again"] for line in group]))]
        blind = [line for line in group if "shuffled_values" in line]
        if blind:
            free = [shuffled_correlation(line) for line in blind if not line["forced"]]
            forced = sum(line["forced"] for line in blind)
            told += [
                ("all weights shuffled, ρ of the drivers", interval([shuffled_correlation(line, drivers=True)
                                                                     for line in blind])),
                ("all weights shuffled, ρ of all players", interval([shuffled_correlation(line) for line in blind])),
                (f"the same without the {forced} at which nothing else was on offer", interval(free)),
            ]  # fmt: skip
            alone = [line["agents_shuffled"] for line in blind if "agents_shuffled" in line]
            told.append(("all weights shuffled, ρ of the drivers of the agents' own odds", interval(alone)))
        told += [
            ("a certain driver that is no attribution", interval([float(line["outside"]) for line in group])),
            ("a certain driver, or known to be steadfast", interval([float(line["explained"]) for line in group])),
        ]
        costs = [float(line["cost_driver"]) for line in group if line.get("cost_driver") is not None]
        if costs:
            told.append(("a certain driver of ΔR_cost", interval(costs)))
            known = [line for line in group if line.get("cost_driver") is not None and line.get("crossing")]
            told.append(
                ("the same where the plan crosses domains", interval([float(line["cost_driver"]) for line in known]))
            )
        for place, words in (
            ("group", "values of the reference group"),
            ("any", "values of any earlier state"),
        ):
            flips = [line["flips"] for line in group]
            tops = [one[f"{place}: top"] for one in flips]
            tried = sum(one[f"{place}: tried"][0] for one in flips)
            top, chance = rate(tops), rate([one[f"{place}: random"] for one in flips])
            times = np.nanmean(top) / max(np.nanmean(chance), 1e-9) if np.isfinite(top).any() else float("nan")
            told += [
                (f"top driver put back to {words}: flips", interval(top)),
                (f"a random input put back to {words}: flips", f"{interval(chance)}; ratio {times:.0f}"),
                (f"resets to {words} after which the plan fits", f"{sum(f for f, _ in tops) / max(1, tried):.2f}"),
            ]
        everything = interval(rate([line["flips"]["any: everything"] for line in group]))
        told.append(("everything but the room put back to any earlier state (ceiling): flips", everything))
        took = [line["took"] for line in group]
        told.append(("CPU ms, median and p95", f"{1e3 * np.median(took):.0f}, {1e3 * np.quantile(took, 0.95):.0f}"))
        rows += [f"| {len(group)} {name} | {what} | {figure} |" for what, figure in told]
    return rows


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=41_000, help="first day that is explained")
    parser.add_argument("--placements", type=int, default=40, help="in each world")
    parser.add_argument("--others", type=int, default=20, help="waits, keeps and moves, each, in each world")
    parser.add_argument("--policy", default="hi-ppo")
    parser.add_argument("--presets", default="cross-domain,cross-domain-easy,testbed")
    parser.add_argument(
        "--seconds", type=float, default=1e9, help="CPU seconds at most; what is left is for a next run"
    )
    parser.add_argument("--costs", type=int, default=0, help="placements over several domains, for ΔR_cost alone")
    parser.add_argument("--brought", action="store_true", help="share out what each choice brought, too")
    parser.add_argument("--runs", type=Path, default=Path("explain_joint.jsonl"), help="a line per decision")
    parser.add_argument("--quick", action="store_true", help="a few decisions only")
    args = parser.parse_args()
    if args.quick:
        args.placements, args.others = 4, 2
    known = [json.loads(line) for line in args.runs.read_text().splitlines()] if args.runs.exists() else []
    for preset in args.presets.split(","):
        measure_preset(args, preset, {line["key"] for line in known})
    lines = [json.loads(line) for line in args.runs.read_text().splitlines()] if args.runs.exists() else []
    for preset in (*args.presets.split(","), None):
        chosen = [line for line in lines if preset in (None, line["preset"])]
        print(f"\n{preset or 'all'}: {len(chosen)} decisions")
        print("\n".join(table(chosen)), flush=True)


if __name__ == "__main__":
    main()
