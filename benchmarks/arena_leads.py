"""How far one policy is ahead of others over all days that both have played, from folders that the arena wrote.

    play="attribution-sched bench schedulers --preset cross-domain-easy --scenarios ou30,burst --episodes 42"
    $play --policies hi-ppo,sjf --output days
    $play --policies exact-switch,exact --output exact
    python benchmarks/arena_leads.py days exact

Slow policies can so be played on fewer days, or another time, than quick ones: days are paired by their seeds, and a
lead is taken over those that both have. Intervals: 95 %, paired bootstrap, as wide as Student's for few days; in
brackets the number of days. A later folder replaces episodes of an earlier one. The last table has the means of the
first six days, and how much less than ``exact-resolve`` the policy earns by day (regret).
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from attribution_sched.rivals.arena.records import FILE_NAME, EpisodeRecord, Key
from attribution_sched.scheduler.episode import EpisodeSummary
from attribution_sched.stats.bootstrap import PairedBootstrap

FEW = 6
RESOLVED = "exact-resolve"


def read(folders: list[Path]) -> dict[Key, EpisodeSummary]:
    """All episodes of some folders."""
    found: dict[Key, EpisodeSummary] = {}
    for folder in folders:
        for line in (folder / FILE_NAME).read_text(encoding="utf-8").splitlines():
            record = EpisodeRecord.parse(line)
            found[record.key] = record.summary
    return found


def paired(played: dict[Key, EpisodeSummary], scenario: str, one: str, other: str) -> np.ndarray:
    """Returns of two policies on the days that both have, shape ``(n, 2)``, in order of their seeds."""
    seeds = sorted({seed for s, p, seed in played if (s, p) == (scenario, one)})
    both = [seed for seed in seeds if (scenario, other, seed) in played]
    return np.array(
        [[played[scenario, policy, seed].reward for policy in (one, other)] for seed in both]
    ).reshape(-1, 2)  # fmt: skip


def lead(returns: np.ndarray) -> str:
    """Mean difference with its interval and the number of days."""
    if len(returns) == 0:
        return "–"
    apart = returns[:, 0] - returns[:, 1]
    draws = PairedBootstrap(len(apart), seed=0)
    found = draws.estimate(draws.means(apart))
    words = f"{found.value:+.1f} [{found.low:+.1f}, {found.high:+.1f}]"
    return f"**{words}** ({len(apart)})" if found.low > 0 else f"{words} ({len(apart)})"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+", help="what the arena was told as --output")
    parser.add_argument("--policy", default="hi-ppo", help="whose leads")
    given = parser.parse_args()
    played = read(given.folders)
    scenarios = list(dict.fromkeys(s for s, p, _ in played if p == given.policy))
    rivals = sorted({p for s, p, _ in played if s in scenarios} - {given.policy})
    head = " | ".join(f"`{name}`" for name in scenarios)
    print(f"| lead of {given.policy} over | {head} |\n|---|{'---:|' * len(scenarios)}")
    for rival in rivals:
        cells = [lead(paired(played, scenario, given.policy, rival)) for scenario in scenarios]
        print(f"| {rival} | {' | '.join(cells)} |")
    own = [[x.reward for (s, p, _), x in played.items() if (s, p) == (name, given.policy)] for name in scenarios]
    print(f"| return of {given.policy} | {' | '.join(f'{np.mean(each):.1f} ({len(each)})' for each in own)} |")
    print(f"\n| return, first {FEW} days | {head} |\n|---|{'---:|' * len(scenarios)}")
    for policy in (given.policy, *rivals):
        cells = []
        for scenario in scenarios:
            both = paired(played, scenario, given.policy, policy)[:FEW]
            if len(both) < 2:
                cells.append("–")
                continue
            apart = both[:, 0] - both[:, 1]
            error = f" ({apart.mean():+.1f} ± {apart.std(ddof=1) / np.sqrt(len(apart)):.1f})"
            cells.append(f"{both[:, 1].mean():.1f}{error if policy != given.policy else ''}")
        print(f"| {policy} | {' | '.join(cells)} |")
    print()
    for scenario in scenarios:
        both = paired(played, scenario, given.policy, RESOLVED)
        if len(both):
            regret = 100.0 * (both[:, 1] - both[:, 0]) / np.abs(both[:, 1])
            print(f"regret by day, {scenario}: {len(both)} days, mean {regret.mean():.2f} %, max {regret.max():.2f} %")


if __name__ == "__main__":
    main()
