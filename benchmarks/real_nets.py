"""Which operators take the joules of real torch nets run on this machine, where the joules are known?

    python benchmarks/real_nets.py                # half a minute of one core

Twelve nets at six batches are run and profiled here (thread time of convolutions, fully connected, attention, all
else). Their joules are made, so that the truth is known: a price for every second of each kind of operator that rises
or falls with how long it works, a draw of two kinds together, an idle machine, and four per cent of noise on the
meter. Every method sees seconds by operator, pace and the noisy meter, and is asked about nets it was not fitted on;
the score is how often its largest part is the operator that took most.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("KINETO_LOG_LEVEL", "99")

import argparse
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import nnls

from attribution_sched.attribution.emshap import EmSHAP
from attribution_sched.attribution.energy_model import EnergyModel
from attribution_sched.attribution.sources import profile

GROUPS = ("conv", "fc", "attention", "other")
BATCHES = (2, 4, 8, 12, 16, 24)
PRICES_W = np.array([12.0, 20.0, 8.0, 30.0])
"""Watts of each kind of operator while it works for a usual time."""

BENDS = np.array([0.2, -0.15, 0.1, -0.1])
"""Powers of its time by which its price rises or falls."""

TOGETHER_W = 6.0
"""Drawn by products with weights and all else together, by the geometric mean of their times."""

IDLE_W = 15.0
NOISE = 0.04


def nets() -> dict[str, tuple[Any, Callable[[int], Any]]]:
    """Twelve nets and what a batch is for each."""
    import torch
    from torch import nn

    torch.manual_seed(0)

    class Attention(nn.Module):
        def __init__(self, width: int, plain: bool) -> None:
            super().__init__()
            self.plain, self.project = plain, nn.Linear(width, 3 * width)

        def forward(self, x: Any) -> Any:
            b, s, w = x.shape
            q, k, v = self.project(x).view(b, s, 3, 4, w // 4).permute(2, 0, 3, 1, 4)
            if self.plain:
                mixed = torch.softmax(q @ k.transpose(-1, -2) / 4.0, -1) @ v
            else:
                mixed = nn.functional.scaled_dot_product_attention(q, k, v)
            return mixed.transpose(1, 2).reshape(b, s, w)

    class Unnamed(Attention):
        """Attention that does not say so."""

    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cells = nn.LSTM(64, 96, batch_first=True)

        def forward(self, x: Any) -> Any:
            return self.cells(x)[0]

    class Elementwise(nn.Module):
        def forward(self, x: Any) -> Any:
            for _ in range(4):
                x = torch.tanh(x * 1.01 + 0.1).transpose(-1, -2).contiguous()
            return x

    def picture(channels: int = 3, size: int = 48) -> Callable[[int], Any]:
        return lambda b: torch.randn(b, channels, size, size)

    def words(length: int, width: int) -> Callable[[int], Any]:
        return lambda b: torch.randn(b, length, width)

    conv = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1), nn.ReLU())
    depth = nn.Sequential(nn.Conv2d(32, 32, 5, padding=2, groups=32), nn.Conv2d(32, 64, 1), nn.ReLU())
    line = nn.Sequential(nn.Conv1d(16, 64, 9, padding=4), nn.ReLU(), nn.Conv1d(64, 64, 9, padding=4))
    dense = nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 128))
    mixed = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 48 * 48, 64))
    encoder = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
    normed = nn.Sequential(nn.Conv2d(3, 24, 3, padding=1), nn.BatchNorm2d(24), nn.ReLU(), nn.MaxPool2d(2))
    wide = nn.Sequential(Attention(64, False), nn.Linear(64, 512), nn.GELU(), nn.Linear(512, 64))
    return {
        "two convolutions": (conv, picture()), "depthwise and pointwise": (depth, picture(32, 40)),
        "one-dimensional": (line, lambda b: torch.randn(b, 16, 512)),
        "perceptron": (dense, lambda b: torch.randn(b, 512)),
        "attention, fused": (Attention(64, False), words(256, 64)),
        "attention, products": (Unnamed(64, True), words(192, 64)),
        "recurrent": (Recurrent(), words(48, 64)), "elementwise": (Elementwise(), words(256, 256)),
        "convolution and product": (mixed, picture()), "encoder layer": (encoder, words(96, 64)),
        "convolution, norm, pool": (normed, picture(3, 64)), "attention and perceptron": (wide, words(128, 64)),
    }  # fmt: skip


def measured(cache: Path | None) -> tuple[np.ndarray, list[str], np.ndarray]:
    """Seconds per sample by operator (n, 4), net of each row, samples per second (n,)."""
    if cache is not None and cache.exists():
        told = json.loads(cache.read_text())
        return np.array(told["seconds"]), told["nets"], np.array(told["pace"])
    import torch

    torch.set_num_threads(1)
    seconds, names, pace = [], [], []
    for name, (net, batch) in nets().items():
        for size in BATCHES:
            found = profile(net, batch(size), steps=8)
            seconds.append([found.time_s[group] / size for group in GROUPS])
            names.append(name)
            pace.append(size / max(found.thread_s, 1e-9))
    if cache is not None:
        cache.write_text(json.dumps({"seconds": seconds, "nets": names, "pace": pace}))
    return np.array(seconds), names, np.array(pace)


def known_joules(seconds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Joules per sample of every operator (n, 4), idle not among them, and of the idle machine (n,)."""
    usual = np.exp(np.log(np.maximum(seconds, 1e-9)).mean())
    each = PRICES_W * seconds * np.power(np.maximum(seconds, 1e-12) / usual, BENDS)
    both = TOGETHER_W * np.sqrt(seconds[:, 1] * seconds[:, 3])
    each[:, 1] += 0.5 * both
    each[:, 3] += 0.5 * both
    return each, IDLE_W * seconds.sum(axis=1)


def linear(x: np.ndarray, y: np.ndarray, asked: np.ndarray) -> np.ndarray:
    """Least squares of joules on seconds; parts are price times seconds."""
    slope = np.linalg.lstsq(np.column_stack([x / y[:, None], 1.0 / y]), np.ones(len(y)), rcond=None)[0]
    return asked * slope[:-1]


def methods() -> dict[str, Callable[..., np.ndarray]]:
    """Parts (m, 4) of rows that were asked about, from rows that were metered."""

    def ours(x: np.ndarray, pace: np.ndarray, y: np.ndarray, idle: np.ndarray, a: np.ndarray, s: np.ndarray) -> Any:
        made = EnergyModel.fit(x * pace[:, None], pace, y, idle_j=np.minimum(idle, y), idle_w=IDLE_W, names=GROUPS)
        return made.parts(a, s, np.ones(len(a), dtype=bool))

    def prices(x: Any, pace: Any, y: Any, idle: Any, a: Any, s: Any) -> Any:
        return a * nnls(x / y[:, None], np.maximum(y - idle, 0.0) / y)[0]

    def explained(model: str) -> Callable[..., np.ndarray]:
        def attribute(x: Any, pace: Any, y: Any, idle: Any, a: Any, s: Any) -> Any:
            from sklearn.ensemble import GradientBoostingRegressor

            forest = GradientBoostingRegressor(random_state=0).fit(x, y)
            return EmSHAP(model, bootstrap=0).fit(x, GROUPS).attribute(forest.predict, a).values

        return attribute

    def shap_exact(x: Any, pace: Any, y: Any, idle: Any, a: Any, s: Any) -> Any:
        import shap
        from sklearn.ensemble import GradientBoostingRegressor

        forest = GradientBoostingRegressor(random_state=0).fit(x, y)
        return np.asarray(shap.explainers.Exact(forest.predict, shap.maskers.Independent(x))(a, silent=True).values)

    return {
        "accounting from idle": ours,
        "prices by non-negative least squares": prices,
        "linear counters": lambda x, pace, y, idle, a, s: linear(x, y, a),
        "share of CPU time": lambda x, pace, y, idle, a, s: a,
        "shap, exact, marginal": shap_exact,
        "EmSHAP marginal": explained("marginal"),
        "EmSHAP conditional (auto)": explained("auto"),
        "empirical kernel": explained("empirical"),
    }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, default=None, help="keep the measured profiles here")
    parser.add_argument("--seeds", type=int, default=3, help="draws of the meter's noise")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    seconds, names, pace = measured(options.cache)
    each, idle = known_joules(seconds)
    top = each.argmax(axis=1)
    print(f"{len(seconds)} runs of {len(set(names))} nets; most joules in",
          {group: int((top == at).sum()) for at, group in enumerate(GROUPS)})  # fmt: skip
    print("\n| parts by | operator with most joules named, nets left out | same rows | error of the parts |")
    print("|---|---|---|---|")
    for method, parts_of in methods().items():
        named, same, off = [], [], []
        for seed in range(options.seeds):
            noise = np.exp(NOISE * np.random.default_rng(seed).standard_normal(len(seconds)))
            metered = (each.sum(axis=1) + idle) * noise
            left_out = np.empty_like(each)
            for net in dict.fromkeys(names):
                mine = np.array([name == net for name in names])
                left_out[mine] = parts_of(
                    seconds[~mine], pace[~mine], metered[~mine], idle[~mine], seconds[mine], pace[mine]
                )
            own = parts_of(seconds, pace, metered, idle, seconds, pace)
            named.append(float(np.mean(left_out.argmax(axis=1) == top)))
            same.append(float(np.mean(own.argmax(axis=1) == top)))
            off.append(float(np.median(np.abs(own - each).sum(axis=1) / each.sum(axis=1))))
        error = "–" if "CPU" in method else f"{np.mean(off):.0%}"
        print(
            f"| {method} | {np.mean(named):.0%} ({min(named):.0%}–{max(named):.0%}) | {np.mean(same):.0%} | {error} |"
        )


if __name__ == "__main__":
    main()
