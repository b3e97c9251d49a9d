"""The command that runs where nobody gave one: real work of a fixed size for each step, reported as it is done.

    ATTR_STEPS=20 python -I -S stand_in.py

It hashes, so that a step takes CPU time and nothing else, and does :data:`MOST_STEPS` steps at most, however many its
task has: it stands for a training, it is none. On SIGTERM it writes down how far it came and ends.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
import time

MOST_STEPS = 20
ROUNDS = 40
BLOCK = bytes(1 << 15)


def main() -> int:
    """The command."""
    steps = min(MOST_STEPS, int(os.environ.get("ATTR_STEPS", "1")))
    report = os.environ.get("ATTR_REPORT", os.devnull)
    answers = []
    signal.signal(signal.SIGTERM, lambda *_: answers.append(True))
    for number in range(steps):
        began, cpu = time.perf_counter(), time.process_time()
        for _ in range(ROUNDS):
            hashlib.sha256(BLOCK).digest()
        line = {
            "step": number, "step_s": time.perf_counter() - began, "cpu_s": time.process_time() - cpu, "bytes": 0,
            "done": (number + 1) / steps, "unix_s": time.time(),
        }  # fmt: skip
        with open(report, "a") as file:  # noqa: PTH123
            file.write(json.dumps(line) + "\n")
        if answers:
            return 143
    return 0


if __name__ == "__main__":
    sys.exit(main())
