"""Pairs of jobs whose families nobody has measured: by a law, and by a law that learns from the pairs it tries.

    python benchmarks/pair_trials.py                  # V100, 60 draws

Twenty-four jobs of the measured table on twelve GPUs, drawn with replacement. The law is a Gaussian process of the
speed of one job beside another over three numbers of each that its arithmetic and its throughput alone give (share of
memory traffic, of the input path, how throughput grows to eight devices), fitted to the pairs of other families only:
**both** families of a pair are left out of what predicts it. Then jobs are matched, every pair is tried, and undone if
it does less than its jobs one after the other; a second and a third round match again, by what is now known: the law
carries what was seen over to jobs like those that were tried (*law + trials*), *name* and *trial* only remember the
pairs themselves. *law + history* has seen one round of the twelve sets of jobs before (a cluster that has run 288
jobs), and matches once. Scored by the table. Nothing of the table but the tried pairs is shown.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import networkx as nx
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "calibration"))
from fit_interference import arithmetic, family, load, scaling

JOBS, ROUNDS, EARLIER = 24, 3, 12
LENGTH, NOISE, OWN = 8.0, 0.05, 0.3
"""Of the law: length of likeness in standard deviations (nearly a plane with products), noise, and a job's own part."""

LEARN = (1.0, 0.3, 0.05, 0.0005)
"""Of learning from trials: length, a job's own part, variance of each term, variance of a speed that was seen."""


class Table:
    """Measured speeds of jobs beside each other on one kind of GPU; 0 where two do not fit."""

    def __init__(self, worker: str) -> None:
        jobs, pairs, throughput, alone = load(worker)
        self.families = np.array([family(job) for job in jobs])
        self.count = len(jobs)
        self.speed = np.zeros((self.count, self.count))
        told = np.where((throughput > 0).all(1)[:, None], np.minimum(1.0, throughput), 0.0)
        self.speed[pairs[:, 0], pairs[:, 1]], self.speed[pairs[:, 1], pairs[:, 0]] = told[:, 0], told[:, 1]
        self.work = self.speed + self.speed.T
        shares = arithmetic(alone, worker)
        self.features = np.column_stack([shares[:, 2], shares[:, 3], scaling(alone, worker)])
        self.likeness = np.column_stack([shares[:, 1], self.features])

    def name(self) -> np.ndarray:
        """Mean work of the two families."""
        f = self.families
        return np.array([[self.work[np.ix_(f == a, f == b)].mean() for b in f] for a in f])

    def law(self) -> np.ndarray:
        """Speeds of row beside column, each predicted from pairs of neither's family, shape ``(n, n)``."""
        found = np.zeros_like(self.speed)
        names = list(dict.fromkeys(self.families))
        for at, one in enumerate(names):
            for other in names[at:]:
                known = (self.families != one) & (self.families != other)
                asked = (self.families == one)[:, None] & (self.families == other)[None]
                guess = self._fitted(known)
                found[asked], found[asked.T] = guess[asked], guess[asked.T]
        return found

    def _fitted(self, known: np.ndarray) -> np.ndarray:
        z = (self.features - self.features[known].mean(0)) / (self.features[known].std(0) + 1e-9)
        like = _likeness(z, LENGTH) + OWN * np.eye(self.count)
        own, other = np.nonzero((self.speed > 0) & known[:, None] & known[None])
        seen = self.speed[own, other]

        def covariance(a: np.ndarray, b: np.ndarray) -> np.ndarray:
            left, right = like[np.ix_(a, own)], like[np.ix_(b, other)]
            return 1.0 + left + right + left * right

        weights = np.linalg.solve(covariance(own, other) + NOISE * np.eye(len(seen)), seen - seen.mean())
        rows, columns = (each.ravel() for each in np.indices(self.speed.shape))
        told = seen.mean() + covariance(rows, columns) @ weights
        return np.clip(told, 0.05, 1.0).reshape(self.speed.shape)


def _likeness(z: np.ndarray, length: float) -> np.ndarray:
    return np.exp(-((z[:, None] - z[None]) ** 2).sum(-1) / (2.0 * length**2))


Seen = list[tuple[int, int, float]]
"""Job, the one beside it, and the speed it was seen to run at."""


def learnt(law: np.ndarray, like: np.ndarray, seen: Seen) -> np.ndarray:
    """Work of pairs by the law and by what pairs did beside what it said, shape ``(n, n)``.

    Args:
        law: Speeds of row beside column.
        like: Covariance of jobs, shape ``(n, n)``; 1 for the same job.
        seen: Speeds of pairs that ran.
    """
    _, _, variance, noise = LEARN
    guess = law
    if seen:
        own, other = np.array([each[0] for each in seen]), np.array([each[1] for each in seen])
        gap = np.array([each[2] for each in seen]) - law[own, other]

        def covariance(a: np.ndarray, b: np.ndarray) -> np.ndarray:
            left, right = like[np.ix_(a, own)], like[np.ix_(b, other)]
            return variance * (left + right + left * right)

        weights = np.linalg.solve(covariance(own, other) + noise * np.eye(len(gap)), gap)
        rows, columns = (each.ravel() for each in np.indices(law.shape))
        guess = law + (covariance(rows, columns) @ weights).reshape(law.shape)
    guess = np.clip(guess, 0.05, 1.0)
    return guess + guess.T


def both_ways(tried: dict[tuple[int, int], tuple[float, float]]) -> Seen:
    """What was seen of both jobs of the pairs that ran."""
    ran = [(pair, speeds) for pair, speeds in tried.items() if min(speeds) > 0]
    return [each for (a, b), (s, t) in ran for each in ((a, b, s), (b, a, t))]


def matched(guess: np.ndarray) -> np.ndarray:
    """Best perfect matching by guessed work; a bad pair takes turns, so no edge is worth less than 1."""
    graph, n = nx.Graph(), len(guess)
    graph.add_weighted_edges_from((a, b, max(1.0, guess[a, b])) for a in range(n) for b in range(a + 1, n))
    return np.array(sorted(tuple(sorted(pair)) for pair in nx.max_weight_matching(graph, maxcardinality=True)))


def kept(tried: dict[tuple[int, int], tuple[float, float]]) -> list[tuple[int, int]]:
    """The pairs of those tried that stay together: the best matching of those that do more than one job."""
    graph = nx.Graph()
    graph.add_weighted_edges_from((a, b, s + t - 1.0) for (a, b), (s, t) in tried.items() if s + t > 1.0)
    return [(min(pair), max(pair)) for pair in nx.max_weight_matching(graph)]


def play(table: Table, draws: int, seed: int) -> dict[tuple[str, int], np.ndarray]:
    """Work per GPU and share of jobs below half speed, by chooser and round, shape ``(draws, 2)``."""
    rng = np.random.default_rng(seed)
    name, law, like = table.name(), table.law(), _likeness(_standard(table.likeness), LEARN[0])
    own_part = LEARN[1]
    found: dict[tuple[str, int], list[tuple[float, float]]] = {}
    history: list[Seen] = []
    for _ in range(draws + EARLIER):
        drawn = rng.choice(table.count, JOBS)
        here = np.ix_(drawn, drawn)
        speed, work = table.speed[here], table.work[here]
        orders = [rng.permutation(JOBS) for _ in range(ROUNDS)]
        # Jobs of one kind are alike, but only a job itself is the same one.
        near = like[here] / (1.0 + own_part) + own_part / (1.0 + own_part) * np.eye(JOBS)
        counts = len(history) == EARLIER
        choosers = ("trial", "name", "law + trials", "law + history", "truth") if counts else ("law + history",)
        for key in choosers:
            tried: dict[tuple[int, int], tuple[float, float]] = {}
            for turn in range(ROUNDS if key in ("trial", "name", "law + trials") else 1):
                if key == "trial":
                    taken = {job for pair in kept(tried) for job in pair}
                    rest = [int(job) for job in orders[turn] if job not in taken]
                    pairs = np.sort(np.array(rest).reshape(-1, 2), axis=1) if rest else np.zeros((0, 2), dtype=int)
                else:
                    guess = {"name": name[here], "truth": work}.get(key)
                    if key == "law + trials":
                        guess = learnt(law[here], near, both_ways(tried))
                    elif key == "law + history":
                        guess = learnt(law, like, [each for one in history for each in one])[here]
                    assert guess is not None
                    guess = np.where(work == 0, 0.0, guess)  # whether two fit is arithmetic of what each took alone
                    for (a, b), speeds in tried.items():
                        guess[a, b] = guess[b, a] = sum(speeds)
                    pairs = matched(guess)
                tried |= {(int(a), int(b)): (float(speed[a, b]), float(speed[b, a])) for a, b in pairs}
                stay = kept(tried)
                both = np.array([each for pair in stay for each in tried[pair]])
                done = 1.0 + sum(sum(tried[pair]) - 1.0 for pair in stay) / (JOBS / 2)
                slow = float((both < 0.5).mean()) if len(both) else 0.0
                if counts:
                    found.setdefault((key, turn + 1), []).append((done, slow))
            if key == "law + history":
                history.append([(int(drawn[a]), int(drawn[b]), speed) for a, b, speed in both_ways(tried)])
                history = history[-EARLIER:]
    return {key: np.array(rows) for key, rows in found.items()}


def _standard(x: np.ndarray) -> np.ndarray:
    told: np.ndarray = (x - x.mean(0)) / (x.std(0) + 1e-9)
    return told


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=60)
    parser.add_argument("--seed", type=int, default=23)
    parser.add_argument("--worker", choices=("v100", "p100"), default="v100")
    asked = parser.parse_args()
    table = Table(asked.worker)
    told, fits = table.law(), np.triu(table.work > 0)
    error = np.abs((told + told.T) - table.work)[fits]
    print(
        f"{asked.worker}: summed throughput, both families left out: median error {np.median(error):.3f} (target 0.12)"
    )
    found = play(table, asked.draws, asked.seed)
    name, trial = found["name", 1][:, 0], found["trial", 1][:, 0]
    print(f"work per GPU, {JOBS} jobs on {JOBS // 2}, {asked.draws} draws, seed {asked.seed}; rounds of trying")
    print(f"  {'':14} round   work            over name            over trial           below half speed")
    for (key, turn), rows in found.items():
        work = rows[:, 0]
        gaps = "   ".join(
            f"{gap.mean():+.3f} [{gap.mean() - half:+.3f}, {gap.mean() + half:+.3f}]"
            for gap in (work - name, work - trial)
            for half in [1.96 * gap.std() / len(gap) ** 0.5]
        )
        half = 1.96 * work.std() / len(work) ** 0.5
        print(f"  {key:14} {turn}       {work.mean():.3f} ± {half:.3f}   {gaps}   {100 * rows[:, 1].mean():.0f} %")


if __name__ == "__main__":
    main()
