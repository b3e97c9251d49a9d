"""J5: does an explanation hang on the policy, and does the decision hang on what it names?

    python benchmarks/explain_joint.py [--seed 41000] [--placements 120] [--others 60] [--policy hi-ppo] [--quick]

Decisions of fresh days of the ``cross-domain`` preset; the background are earlier days of the same world. All of it is
about the default explanation: the decision of the policy against the best other choice.

- *shuffled*: every weight of the network in another order, the same decisions explained again with the same budget;
  Spearman's ρ of the shares over all players, mean over decisions; and with intact weights and another sampling seed.
- *flips*: the driver that speaks most for the choice is put back to its value in each state of the reference group,
  everything else stays, and the whole deployed policy (network and search) decides again. Counted are only resets after
  which the chosen plan still fits; their share is printed. The same for an input drawn at random. The same with values
  of every earlier state in which the policy would have chosen otherwise, near or not; and with values of any earlier
  state, beside the best that any single input could have done there (an oracle that tries all) and beside *everything*
  but the room put back to it, beyond which no input can go.
- *outside*: placements with a certain driver (interval excludes 0) that is no attribution.
- *explained*: waits and keeps with a certain driver, or of which it is known that no earlier situation would have
  changed them.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

import numpy as np

from attribution_sched.attribution.attributor import as_attributor
from attribution_sched.cluster.world import World
from attribution_sched.config import load_settings
from attribution_sched.explain.background import Background
from attribution_sched.explain.batch import Prepared
from attribution_sched.explain.explainer import STEADFAST, Explainer
from attribution_sched.explain.explanation import Explanation
from attribution_sched.explain.preference import devices_needed, redecided, where
from attribution_sched.explain.quality import rank_correlation
from attribution_sched.explain.recorder import Decided, perceived
from attribution_sched.live_cluster import PolicyCall, SimulatedCluster
from attribution_sched.scheduler.hi_ppo.coordinator import HiPpo
from attribution_sched.scheduler.policy import Policy
from attribution_sched.scheduler.registry import make_policy

NO_DEADLINE_S = 1e9
USUAL = 40_000
"""First seed of the background's days."""

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
            found.append(Decided(f"{seed}-{len(found)}", asked.view, asked.plan, perceived(policy, asked.view)))
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


def flip_rates(
    explainer: Explainer, one: Decided, told: Explanation, rng: np.random.Generator, *, oracle: bool
) -> dict[str, tuple]:
    """Fitting resets and flips: of the top driver, of random inputs, of these against any state, of the best input."""
    policy = explainer.policy
    group, anywhere = explainer._prepare(one, "decision", None), explainer._prepare(one, "choice", None)
    top = int(np.argmax(told.values[: len(group.cast.names), 0]))
    others = [int(i) for i in anywhere.game.seats if i != top]
    found = {}
    otherwise = contrasts(group, anywhere)
    for name, ready, pool in (
        ("group", group, np.arange(len(group.background))),
        ("contrast", anywhere, otherwise),
        ("any", anywhere, np.arange(len(anywhere.background))),
    ):
        states = rng.choice(pool, min(RESETS, len(pool)), replace=False)
        found[f"{name}: top"] = flips(policy, ready, top, states)
        chance = [flips(policy, ready, int(rng.choice(others)), states[i : i + 1]) for i in range(len(states))]
        found[f"{name}: random"] = tuple(np.sum(chance, axis=0))
        found[f"{name}: tried"] = (len(states), 0)
        if name == "any" and oracle:
            each = [flips(policy, ready, int(i), states) for i in ready.game.seats]
            found["any: oracle"] = max((pair for pair in each if pair[0]), key=lambda pair: pair[1] / pair[0])
            free = [i for i, family in enumerate(ready.cast.groups) if family != "load"]
            found["any: everything"] = flips(policy, ready, free, states)
    return found


def contrasts(group: Prepared, anywhere: Prepared) -> np.ndarray:
    """Earlier states in which, with all of its inputs and room for the plan, the policy chooses otherwise."""
    states = np.arange(len(anywhere.background))
    nobody = np.ones((len(states), len(anywhere.cast.names)), dtype=bool)
    nobody[:, anywhere.game.seats] = False
    aim = group.game.target
    scores = aim.score(aim.roomy(anywhere.blend(nobody, states, 0 * states))[0])
    return np.flatnonzero(scores <= 0.0)


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


def measure(policy: Policy, seed: int, placements: int, others: int, seconds: float) -> list[str]:
    """The table; each group of decisions is left when its time is up."""
    world = load_settings("cross-domain").build_world()
    background = Background.of(days(world, policy, USUAL, 600), "earlier days")
    taken = days(world, policy, seed, max(400, 6 * max(placements, others)))
    groups = {
        "placements": spread([d for d in taken if d.plan is not None and not d.view.replanning], placements),
        "waits": spread([d for d in taken if d.plan is None and not d.view.replanning], others),
        "keeps": spread([d for d in taken if d.plan is None and d.view.replanning], others),
        "moves": spread([d for d in taken if d.plan is not None and d.view.replanning], others),
    }
    explainer = Explainer(policy, background)
    blank = None
    if isinstance(policy, HiPpo):
        forgot = policy.learnt.with_agents(np.random.default_rng(seed).permutation(policy.learnt.theta))
        blank = Explainer(HiPpo(forgot, deadline_s=NO_DEADLINE_S), background)
    rng = np.random.default_rng(seed)
    lines = ["| decisions | figure | measured |", "|---|---|---|"]
    for name, group in groups.items():
        if not group:
            continue
        shuffled, again, outside, explained, took, resets = [], [], [], [], [], []
        started = time.process_time()
        for one in group:
            began = time.process_time()
            told = explainer.explain(one)
            took.append(time.process_time() - began)
            sure = told.significant()
            outside.append(float(any(sure[i] and p.group != "attribution" for i, p in enumerate(told.players))))
            explained.append(float(bool(sure.any()) or STEADFAST in told.notes))
            other = explainer.explain(one, seed=1, sure=False)
            again.append(rank_correlation(told.values[:, 0], other.values[:, 0]))
            if blank is not None:
                empty = blank.explain(one, sure=False)
                # One that has no shares at all agrees with nothing.
                shuffled.append(float(np.nan_to_num(rank_correlation(told.values[:, 0], empty.values[:, 0]))))
            # Trying all inputs takes most of the time, and a quarter of the decisions tells as much.
            resets.append(flip_rates(explainer, one, told, rng, oracle=len(resets) % 4 == 0))
            if time.process_time() - started > seconds:
                break
        rows = [("another sampling seed, ρ", interval(again))]
        if shuffled:
            rows.append(("all weights shuffled, ρ", interval(shuffled)))
        rows += [
            ("a certain driver that is no attribution", interval(outside)),
            ("a certain driver, or known to be steadfast", interval(explained)),
        ]
        for place, words in (
            ("group", "values of the reference group"),
            ("contrast", "values of any earlier state in which it chooses otherwise"),
            ("any", "values of any earlier state"),
        ):
            tops = [one[f"{place}: top"] for one in resets]
            tried = sum(one[f"{place}: tried"][0] for one in resets)
            top, chance = rate(tops), rate([one[f"{place}: random"] for one in resets])
            times = np.nanmean(top) / max(np.nanmean(chance), 1e-9) if np.isfinite(top).any() else float("nan")
            rows += [
                (f"top driver put back to {words}: flips", interval(top)),
                (f"a random input put back to {words}: flips", f"{interval(chance)}; ratio {times:.0f}"),
                (f"resets to {words} after which the plan fits", f"{sum(f for f, _ in tops) / max(1, tried):.2f}"),
            ]
        rows.append(
            (
                "best single input, any earlier state (oracle)",
                interval(rate([o["any: oracle"] for o in resets if "any: oracle" in o])),
            )
        )
        everything = interval(rate([o["any: everything"] for o in resets if "any: everything" in o]))
        rows.append(("everything but the room, any earlier state (ceiling)", everything))
        rows.append(("CPU ms, median and p95", f"{1e3 * np.median(took):.0f}, {1e3 * np.quantile(took, 0.95):.0f}"))
        lines += [f"| {len(took)} {name} | {what} | {figure} |" for what, figure in rows]
        print("\n".join(lines[-len(rows) :]), flush=True)
    return lines


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=41_000, help="first day that is explained")
    parser.add_argument("--placements", type=int, default=120)
    parser.add_argument("--others", type=int, default=60, help="waits, keeps and moves, each")
    parser.add_argument("--policy", default="hi-ppo")
    parser.add_argument("--seconds", type=float, default=1e9, help="CPU seconds for each group of decisions at most")
    parser.add_argument("--quick", action="store_true", help="a few decisions only")
    args = parser.parse_args()
    policy = HiPpo(deadline_s=NO_DEADLINE_S) if args.policy == "hi-ppo" else make_policy(args.policy)
    few = (8, 4) if args.quick else (args.placements, args.others)
    measure(policy, args.seed, *few, args.seconds)


if __name__ == "__main__":
    main()
