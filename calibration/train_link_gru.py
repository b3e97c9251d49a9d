"""Train the recurrent link predictor on simulated links and write its weights.

Writes ``attribution_sched/scheduler/predictor/link_gru.safetensors``. Run from the repository
root::

    python calibration/train_link_gru.py

It takes about two minutes on one core. The same settings and seed give the same file on the same machine.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import time
from dataclasses import replace
from pathlib import Path

import torch

from attribution_sched.scheduler.predictor.gru import SHIPPED, save
from research.gru_training import GruTraining, train


def main() -> None:
    """Train and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=GruTraining.steps)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=SHIPPED)
    args = parser.parse_args()
    torch.set_num_threads(1)
    began = time.perf_counter()

    def told(step: int, loss: float) -> None:
        print(f"{step:5d} updates, {time.perf_counter() - began:4.0f} s: score {loss:.5f}", flush=True)

    weights = train(training=GruTraining(steps=args.steps, seed=args.seed), report=told)
    command = f"python calibration/train_link_gru.py --steps {args.steps} --seed {args.seed}"
    save(replace(weights, made={"command": command, **weights.made}), args.output)


if __name__ == "__main__":
    main()
