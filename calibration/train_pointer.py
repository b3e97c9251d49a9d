"""Train the sequence-to-sequence scheduler on plans of the exact search.

Writes ``attribution_sched/scheduler/pointer/weights.safetensors`` and ``weights.json``. Run from the repository root;
traces of the teacher are kept in the folder that is given, so that a second run only trains::

    python calibration/train_pointer.py --traces DIR

The same numbers of traces and epochs and the same seed give the same file on the same machine.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import time
from pathlib import Path

import numpy as np
import torch

from attribution_sched.scheduler.pointer.checkpoint import SHIPPED, save
from attribution_sched.scheduler.pointer.examples import examples_of
from attribution_sched.scheduler.pointer.traces import Trace, cached_traces
from attribution_sched.scheduler.pointer.training import EpochReport, TrainingSettings, train

TRACES = 500
PER_WORLD = 40
TRACE_SEED = 1
EPOCHS = 30
VARIANTS = (1, 4)


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
    parser.add_argument("--count", type=int, default=TRACES, help="traces to learn from")
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=SHIPPED)
    args = parser.parse_args()
    torch.set_num_threads(1)
    traces = cached_traces(args.traces / "train.jsonl", args.count, TRACE_SEED, per_world=PER_WORLD)
    learnt, aside = split(traces)
    began = time.perf_counter()
    rng = np.random.default_rng(args.seed)
    examples, held = examples_of(learnt, rng, VARIANTS), examples_of(aside, rng, (0, 0))
    print(f"{len(learnt)} traces, {len(examples)} examples, {len(held)} held out", flush=True)
    settings = TrainingSettings(epochs=args.epochs, seed=args.seed)
    network = train(examples, settings, held, told)
    print(f"{time.perf_counter() - began:.0f} s")
    made = {
        "command": f"python calibration/train_pointer.py --traces DIR --count {args.count} --epochs {args.epochs}",
        "teacher": "exact search, see scheduler/pointer/traces.py",
        "traces": len(learnt),
        "examples": len(examples),
        "trace_seed": TRACE_SEED,
        "seed": args.seed,
    }
    save(network, args.output, made)


if __name__ == "__main__":
    main()
