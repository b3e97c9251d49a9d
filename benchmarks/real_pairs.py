"""Real torch nets alone and in pairs on this machine: does what is measured of each alone tell how pairs will do?

    python benchmarks/real_pairs.py --seconds 240      # goes on where it stopped; every pair is one line of the output
    python benchmarks/real_pairs.py --table            # what was measured so far

Fourteen nets of different character, each in a process of its own, pinned: two beside each other on the two cores
(``cores``: they share the last-level cache and the memory), or both on one core (``core``: they also share its own
caches and take turns). For every pair six slices in turn: first alone, second alone, both, and again; so other load of
the machine hits all three alike. A net's speed beside another is its steps per second *of its own processor time* over
the same alone: processor time does not count what others on the machine take away.

Predicted from each net alone, nothing fitted to pairs: the memory demand is what its operators read and write (tensor
sizes, every operator of a step) per second, over the bandwidth of a plain copy; the law of interference of the cluster
makes slow-downs of two such demands. Scored by Spearman's rank correlation of the summed speed, with an interval by
resampling *nets* (pairs share nets), beside the correlation of the measurement with its own repetition, which no
prediction can much exceed.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import contextlib
import json
import multiprocessing as mp
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import spearmanr

SLICE_S, WARM_STEPS = 0.16, 3


def nets() -> dict[str, Callable[[], tuple[Any, Any]]]:
    """Fourteen nets, each with its batch, made when asked for."""
    import torch
    from torch import nn

    torch.manual_seed(0)

    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cells = nn.LSTM(256, 256, batch_first=True)

        def forward(self, x: Any) -> Any:
            return self.cells(x)[0]

    class Attention(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.project = nn.Linear(width, 3 * width)

        def forward(self, x: Any) -> Any:
            b, s, w = x.shape
            q, k, v = self.project(x).view(b, s, 3, 4, w // 4).permute(2, 0, 3, 1, 4)
            return nn.functional.scaled_dot_product_attention(q, k, v)

    class Elementwise(nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.tanh(x * 1.01 + 0.1)

    class Stream(nn.Module):
        def forward(self, x: Any) -> Any:
            return x + 1.0

    class Transposed(nn.Module):
        def forward(self, x: Any) -> Any:
            return x.transpose(0, 1).contiguous()

    class Lookup(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.EmbeddingBag(500_000, 64, mode="sum")

        def forward(self, x: Any) -> Any:
            return self.table(x)

    def conv(inside: int, outside: int, **more: Any) -> Any:
        return nn.Sequential(nn.Conv2d(inside, outside, 3, padding=1, **more), nn.ReLU())

    return {
        "convolution, small": lambda: (conv(3, 32), torch.randn(4, 3, 48, 48)),
        "convolution, deep": lambda: (nn.Sequential(*(conv(64, 64) for _ in range(3))), torch.randn(2, 64, 28, 28)),
        "convolution, depthwise": lambda: (conv(128, 128, groups=128), torch.randn(8, 128, 56, 56)),
        "perceptron, in cache": lambda: (nn.Sequential(nn.Linear(256, 256), nn.ReLU()), torch.randn(64, 256)),
        "perceptron, one sample": lambda: (nn.Linear(8192, 4096), torch.randn(1, 8192)),
        "perceptron, large batch": lambda: (nn.Linear(2048, 2048), torch.randn(256, 2048)),
        "attention": lambda: (Attention(128), torch.randn(4, 256, 128)),
        "encoder layer": lambda: (nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True), torch.randn(4, 64, 256)),
        "recurrent": lambda: (Recurrent(), torch.randn(4, 32, 256)),
        "elementwise, in cache": lambda: (Elementwise(), torch.randn(128, 512)),
        "elementwise, from memory": lambda: (Elementwise(), torch.randn(2048, 4096)),
        "stream": lambda: (Stream(), torch.randn(4096, 4096)),
        "transpose": lambda: (Transposed(), torch.randn(4096, 2048)),
        "lookups": lambda: (Lookup(), torch.randint(0, 500_000, (256, 64))),
    }  # fmt: skip


def touched_bytes(net: Any, batch: Any) -> float:
    """Bytes that the operators of a step read and write, by the sizes of their tensors; a lookup reads its rows."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    class Count(TorchDispatchMode):
        total = 0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            out = func(*args, **(kwargs or {}))
            if "embedding" in str(func):
                self.total += args[1].numel() * args[0].shape[1] * args[0].element_size()
            elif not any(word in str(func) for word in ("view", "transpose", "permute", "select", "split", ".t.")):
                for each in tree_leaves((args, kwargs, out)):
                    if isinstance(each, torch.Tensor):
                        self.total += each.numel() * each.element_size()
            return out

    with torch.no_grad(), Count() as counted:
        net(batch)
    return float(counted.total)


def _worker(name: str, pipe: Any) -> None:
    """Runs one net when told: ``(core, seconds)`` → steps and processor seconds."""
    import torch

    torch.set_num_threads(1)
    net, batch = nets()[name]()
    net.eval()
    pipe.send(touched_bytes(net, batch))
    with torch.no_grad(), contextlib.suppress(EOFError):
        while True:
            core, seconds = pipe.recv()
            os.sched_setaffinity(0, {core})
            for _ in range(WARM_STEPS):
                net(batch)
            steps, began, cpu = 0, time.perf_counter(), time.process_time()
            while time.perf_counter() - began < seconds:
                net(batch)
                steps += 1
            pipe.send((steps, time.process_time() - cpu))


class Workers:
    """A process for each net that is asked for, kept."""

    def __init__(self) -> None:
        self._context, self._known = mp.get_context("fork"), {}  # type: ignore[var-annotated]

    def of(self, key: tuple[str, int]) -> tuple[Any, float]:
        """The pipe of a net and the bytes of its step; a second copy of a net has another number."""
        if key not in self._known:
            ours, theirs = self._context.Pipe()
            process = self._context.Process(target=_worker, args=(key[0], theirs), daemon=True)
            process.start()
            self._known[key] = (ours, ours.recv(), process)
        return self._known[key][0], self._known[key][1]

    def run(self, tasks: list[tuple[tuple[str, int], int]], seconds: float) -> list[float]:
        """Nets on cores at the same time → steps per second of processor time."""
        pipes = [self.of(key)[0] for key, _ in tasks]
        for pipe, (_, core) in zip(pipes, tasks, strict=True):
            pipe.send((core, seconds))
        found = [pipe.recv() for pipe in pipes]
        return [steps / max(cpu, 1e-9) for steps, cpu in found]


def copy_bandwidth() -> float:
    """Bytes read and written a second by a plain copy of arrays far larger than the caches, in processor time."""
    source, target = np.ones(2**24), np.empty(2**24)
    best = np.inf
    for _ in range(5):
        began = time.process_time()
        np.copyto(target, source)
        best = min(best, time.process_time() - began)
    return 2.0 * source.nbytes / best


def measure(path: Path, seconds: float, places: tuple[str, ...]) -> None:
    """Pairs that are missing, while time is left."""
    import torch

    torch.set_num_threads(1)
    began, names, workers = time.perf_counter(), list(nets()), Workers()
    done = {(row["first"], row["second"], row["place"]) for row in read(path)}
    bandwidth = copy_bandwidth()
    for place in places:
        for i, first in enumerate(names):
            for second in names[i:]:
                if (first, second, place) in done:
                    continue
                if time.perf_counter() - began > seconds:
                    return
                a, b = (first, 0), (second, 1 if second == first else 0)
                here, there = (0, 1) if place == "cores" else (1, 1)
                rounds = []
                for _ in range(2):
                    (alone_a,) = workers.run([(a, here)], SLICE_S)
                    (alone_b,) = workers.run([(b, there)], SLICE_S)
                    both = workers.run([(a, here), (b, there)], SLICE_S * (1 if place == "cores" else 2))
                    rounds.append([alone_a, alone_b, *both])
                row = {"first": first, "second": second, "place": place, "bytes": [workers.of(a)[1], workers.of(b)[1]],
                       "copy_bytes_per_s": bandwidth, "rounds": rounds}  # fmt: skip
                with path.open("a") as file:
                    file.write(json.dumps(row) + "\n")


def read(path: Path) -> list[dict[str, Any]]:
    """What was measured so far."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def scores(rows: list[dict[str, Any]]) -> str:
    """Rank correlations of one placement."""
    from attribution_sched.cluster.interference import RESOURCES, slowdown

    memory = RESOURCES.index("memory")
    rounds = np.array([row["rounds"] for row in rows])  # (pairs, rounds, alone a, alone b, a beside b, b beside a)
    speeds = rounds[:, :, 2:] / rounds[:, :, :2]
    together = speeds.sum(axis=2)
    alone = rounds[:, :, :2].mean(axis=1)
    bandwidth = np.median([row["copy_bytes_per_s"] for row in rows])
    demand = np.zeros((len(rows), 2, len(RESOURCES)))
    demand[:, :, memory] = np.clip(alone * np.array([row["bytes"] for row in rows]) / bandwidth, 0.0, 1.0)
    believed = np.column_stack([1 / slowdown(demand[:, 0], demand[:, 1]), 1 / slowdown(demand[:, 1], demand[:, 0])])
    predicted, seen = believed.sum(axis=1), together.mean(axis=1)
    first, second = [row["first"] for row in rows], [row["second"] for row in rows]
    names = sorted({*first, *second})

    def correlation(pick: np.ndarray, a: np.ndarray, b: np.ndarray) -> float:
        return float(spearmanr(a[pick], b[pick]).statistic)

    everyone = np.arange(len(rows))
    rng, draws = np.random.default_rng(0), []
    for _ in range(1000):
        times = dict.fromkeys(names, 0)
        for name in rng.choice(names, len(names)):
            times[name] += 1
        pick = np.repeat(everyone, [times[a] * times[b] for a, b in zip(first, second, strict=True)])
        if len(set(pick.tolist())) > 3:
            draws.append(correlation(pick, predicted, seen))
    low, high = np.quantile(draws or [np.nan], [0.025, 0.975])
    own = np.concatenate([believed[:, 0], believed[:, 1]]), speeds.mean(axis=1).T.ravel()
    lines = [
        f"{len(rows)} pairs of {len(names)} nets; summed speed {seen.min():.2f} to {seen.max():.2f}, "
        f"median {np.median(seen):.2f}",
        f"  summed speed, predicted against measured: rank correlation {correlation(everyone, predicted, seen):.2f} "
        f"[{low:.2f}, {high:.2f}] (nets resampled)",
        f"  speed of each beside the other: {float(spearmanr(*own).statistic):.2f}",
        f"  the measurement against its own repetition: {correlation(everyone, together[:, 0], together[:, 1]):.2f}",
        f"  median error of the summed speed: {np.median(np.abs(predicted - seen)):.2f}",
    ]
    by = {name: (0.0, list[float]()) for name in names}
    for i, row in enumerate(rows):
        for side, name in enumerate((row["first"], row["second"])):
            by[name] = (float(demand[i, side, memory]), [*by[name][1], float(speeds[i, :, side].mean())])
    lines += [
        f"    {name:28} memory demand {d:.2f}   mean speed beside the others {np.mean(s):.2f}"
        for name, (d, s) in sorted(by.items(), key=lambda each: -each[1][0])
    ]
    return "\n".join(lines)


def main() -> None:
    """Measure for a while, print what there is."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=240.0)
    parser.add_argument("--places", default="cores,core")
    parser.add_argument("--output", default="arena/real_pairs.jsonl")
    parser.add_argument("--table", action="store_true")
    asked = parser.parse_args()
    path, places = Path(asked.output), tuple(asked.places.split(","))
    if not asked.table:
        measure(path, asked.seconds, places)
    said: dict[str, Callable[[list[dict[str, Any]]], str]] = {"cores": scores, "core": scores}
    for place in places:
        rows = [row for row in read(path) if row["place"] == place]
        if rows:
            print(f"{'on two cores' if place == 'cores' else 'on one core'}: {said[place](rows)}")


if __name__ == "__main__":
    main()
