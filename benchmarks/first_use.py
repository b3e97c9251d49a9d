"""What the first decision of a machine that has never run the package costs, and the first of every later process.

    python benchmarks/first_use.py                     this checkout
    python benchmarks/first_use.py OTHER_CHECKOUT      and another one, side by side

Each checkout gets an empty cache of kernels of its own. CPU seconds of the process, compilation included, from before
the import to after ``System().schedule_next_task()`` (preset cross-domain, hi-ppo, seed 0); the decision's own
latency as the result tells it, which must not contain any compilation; and the placement, which must not depend on it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parents[1]
FIVE_LINES = """
import json, time
began = time.process_time()
from attribution_sched import System
result = System().schedule_next_task()
spent = time.process_time() - began
decision_ms = 1e3 * result.latencies_s["decision"]
print(json.dumps({"cpu_s": spent, "decision_ms": decision_ms, "plan": str(result.decision.plan)}))
"""
LIMIT_RATIO, LIMIT_WARM_S = 0.45, 3.0


def first_decision(checkout: Path, cache: str) -> dict[str, float | str]:
    """Figures of one process that schedules one task."""
    one_thread = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    environment = os.environ | one_thread | {"PYTHONPATH": str(checkout), "NUMBA_CACHE_DIR": cache}
    done = subprocess.run(
        [sys.executable, "-c", FIVE_LINES], cwd=checkout, env=environment, capture_output=True, text=True, check=True
    )
    told: dict[str, float | str] = json.loads(done.stdout.splitlines()[-1])
    return told


def main() -> None:
    """Measure the checkouts and print a table."""
    checkouts = [HERE, *(Path(given).resolve() for given in sys.argv[1:])]
    print(f"{'checkout':30} {'empty cache':>12} {'warm cache':>12} {'decision, empty':>16} {'warm':>10}  same plan")
    cold_s, warm_s = [], []
    for checkout in checkouts:
        with tempfile.TemporaryDirectory() as cache:
            cold, warm = first_decision(checkout, cache), first_decision(checkout, cache)
        cold_s.append(float(cold["cpu_s"]))
        warm_s.append(float(warm["cpu_s"]))
        same = "yes" if cold["plan"] == warm["plan"] else "no"
        print(
            f"{checkout.name:30} {cold_s[-1]:10.1f} s {warm_s[-1]:10.1f} s {cold['decision_ms']:13.1f} ms "
            f"{warm['decision_ms']:7.1f} ms  {same}"
        )
    if len(checkouts) > 1:
        ratio = cold_s[0] / cold_s[1]
        print(f"first use: {ratio:.2f} of the other's; {_judged(ratio, LIMIT_RATIO)}")
    print(f"later processes: {warm_s[0]:.1f} s; {_judged(warm_s[0], LIMIT_WARM_S)}")


def _judged(value: float, limit: float) -> str:
    return f"at most {limit}: {'met' if value <= limit else 'missed'}"


if __name__ == "__main__":
    main()
