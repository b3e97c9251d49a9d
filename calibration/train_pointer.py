"""Train the sequence-to-sequence scheduler on plans of optimisers: a local search, and the exact search.

Writes ``attribution_sched/rivals/seq2seq/weights.safetensors``. Run from the repository root;
traces of the teacher are kept in the folder that is given, so that a second run only trains::

    python calibration/train_pointer.py --traces DIR

The exact search takes about a second per decision, the local search a thirtieth of that; on decisions solved by both,
the local search finds the exact plan in nine cases of ten. The same traces, epochs and seed give the same file on the
same machine.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch

from attribution_sched.rivals.seq2seq.network import SHIPPED, save
from research.pointer_draws import Range, Trace
from research.pointer_examples import examples_of
from research.pointer_traces import cached_traces
from research.pointer_training import EpochReport, TrainingSettings, train

WIDE = Range(sizes=(0, 8, 16, 32, 64), size_odds=(0.15, 0.15, 0.4, 0.15, 0.15))
PARTS = {
    "search": (2900, 101, WIDE, 8, "search"),
    "exact-wide": (65, 7, Range(), 6, "exact"),
    "exact": (291, 1, Range(), 40, "exact"),
}
"""File of traces → how many, seed, from where they are drawn, decisions per world, teacher."""

EPOCHS = 14
VARIANTS = {"search": (0, 1), "exact-wide": (1, 3), "exact": (1, 3)}
"""Further examples per trace, of plans of one segment and of several, with devices taken away."""


def split(traces: list[Trace], share: float = 0.1) -> tuple[list[Trace], list[Trace]]:
    """Keep the last worlds aside, so that nothing of a world held out was seen."""
    aside = traces[int(len(traces) * (1.0 - share)) :]
    first = next((i for i, trace in enumerate(aside) if trace.world != aside[0].world), 0)
    aside = aside[first:]
    return traces[: len(traces) - len(aside)], aside


def told(report: EpochReport) -> None:
    """Print one epoch."""
    heads = "  ".join(f"{name} {loss:.3f}" for name, loss in report.heads.items())
    print(f"epoch {report.epoch:3d}: loss {report.train:.3f}, held out {report.held:.3f} ({heads})", flush=True)


def main() -> None:
    """Gather traces, train, write the weights."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=Path, required=True, help="folder of the teacher's traces")
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=SHIPPED)
    args = parser.parse_args()
    torch.set_num_threads(1)
    began = time.perf_counter()
    rng = np.random.default_rng(args.seed)
    examples, held = [], []
    for name, (count, *how) in PARTS.items():
        learnt, aside = cached_traces(args.traces / f"{name}.jsonl", count, *how), []
        if name == "search":
            learnt, aside = split(learnt)
        examples += examples_of(learnt, rng, VARIANTS[name])
        held += examples_of(aside, rng, (0, 0))
    print(f"{len(examples)} examples, {len(held)} held out, {time.perf_counter() - began:.0f} s", flush=True)
    settings = TrainingSettings(epochs=args.epochs, seed=args.seed)
    network = train(examples, settings, held, told)
    print(f"{time.perf_counter() - began:.0f} s")
    made = {
        "command": f"python calibration/train_pointer.py --traces DIR --epochs {args.epochs} --seed {args.seed}",
        "traces": {name: part[0] for name, part in PARTS.items()},
        "examples": len(examples),
        "settings": asdict(settings),
    }
    save(network, args.output, made)


if __name__ == "__main__":
    main()
