"""One figure of each results page, measured again in small, within a stated tolerance: ``make bench-quick``.

    python benchmarks/quick.py                   # all, two at a time; at most 15 minutes on two cores
    python benchmarks/quick.py --only carbon     # pages whose name holds a word

A check runs a benchmark's own command, smaller where it is long, reads the figure off what it prints and the published
one off the page. Smaller runs differ by their sample, so each has its tolerance; figures that hang on no sample are
compared to their last printed digit. What needs recorded data is named and left out without ``ATTRIBUTION_SCHED_DATA``.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
N = r"([−+-]?[\d,]+(?:\.\d+)?)"
"""A number."""


@dataclass(frozen=True)
class Check:
    """One figure.

    Attributes:
        page: Page under ``docs/`` that has it.
        what: What it is.
        command: What measures it, arguments of Python.
        measured: Pattern of what the command prints; the first counts.
        published: Pattern of the page.
        tolerance: Largest difference allowed, in the figure's unit.
        data: Whether recorded data are needed.
        mean: Whether the mean of all matches counts, as of several seeds.
    """

    page: str
    what: str
    command: str
    measured: str
    published: str
    tolerance: float
    data: bool = False
    mean: bool = False


CHECKS = (
    Check("results_accounts.md", "median error of J/sample, cross-domain-easy, %",
          "benchmarks/attribution_accounts.py --quick",
          rf"^\| cross-domain-easy \| {N} ?% \| 0\.\d", rf"^\| cross-domain-easy \| {N} %", 1.0),
    Check("results_attribution.md", "EmSHAP's error, Gaussian counters",
          "benchmarks/conditional_shapley.py --families gaussian --samples 10 --rows 6 --methods auto",
          rf"^gaussian 10 auto: .*[, ]smooth {N}", rf"^\| \*\*EmSHAP auto\*\* \| {N} ", 0.02),
    Check("results_bottleneck.md", "bottleneck named by EmSHAP's vector, %",
          "benchmarks/bottleneck_ablation.py --quick",
          rf"^\| EmSHAP conditional \| {N} ", rf"^\| EmSHAP conditional \| {N} ", 8.0),
    Check("results_carbon.md", "sjf: kg of carbon per 1,000 baseline hours",
          "benchmarks/carbon_days.py --quick",
          rf"^sjf +{N} kg/kh", rf"`sjf` {N} kg per 1,000 baseline hours", 0.1),
    Check("results_executors.md", "tasks lost, doubled or half-released after kills of local processes",
          "-m tests.campaigns.executor_kills --kills 4",
          rf"tasks, \d+ gangs, {N} wrong", rf"within 0.9 s \| {N[1:-1]} \| [^|]*\| {N}", 0.0),
    Check("results_explain.md", "named blockers removed, the task is placed, share",
          "benchmarks/why_waiting.py --preset cross-domain-easy --days 1 --per-day 80 --runs {scratch}/why.jsonl",
          r"^\| (?!world)(?:[^|]*\|){4} (?P<part>\d+) of (?P<all>\d+)",
          r"\| together \|(?:[^|]*\|){3} (?P<part>[\d,]+) of (?P<all>[\d,]+) \|", 0.05),
    Check("results_feedback.md", "utilisation under fixed weights", "benchmarks/feedback_loop.py --only fixed --quick",
          rf"^fixed/\d+ .*utilisation {N}", rf"^\| fixed weights \|[^|]*\|[^|]*\| {N} ", 0.02, mean=True),
    Check("results_hi_ppo.md", "what the agents gain over the rule a day on the testbed, no thinking",
          "benchmarks/vector_worth.py testbed:150 --seed 3600000",
          rf"^  both +over rule \+{N} ", rf"^\| `testbed` \| pace and vector \| \+{N} ", 1.0),
    Check("results_real_counters.md", "error of package watts on a real server, W",
          "benchmarks/real_counters.py --quick",
          rf"out-of-block MAE {N} W", rf"out-of-block MAE {N} W", 0.3, data=True),
    Check("results_senses.md", "baseline hours that the rule works off a day, models that no region holds",
          "-m attribution_sched.cli bench senses cross-domain --days 20 --seed 4910000 --only rule --output {scratch}",
          rf"^baseline_running_h[^\n]*\n  rule +20 +{N}", rf"^baseline_running_h[^\n]*\n  rule +20 +{N}", 0.02),
    Check("results_schedulers.md", "exact plans that differ from brute force",
          "benchmarks/exact_optimum.py --only-brute-force --seeds 20", rf": {N} mismatches", rf": {N} mismatches", 0.0),
    Check("results_system.md", "kB a placement keeps with 1,000 waiting",
          "benchmarks/long_queue.py --policies sjf --lengths 1000 --placements 20",
          rf"^\| sjf \| 1,000 \| [\d.]+ \| {N} ", rf"^\| sjf \| 1,000 \| [\d.]+ \| {N} ", 0.3),
    Check("results_world.md", "GPU allocation of ours on openb, %", "benchmarks/openb.py --quick",
          rf"^  ours +{N} %", rf"^default: [^\n]*\n(?:  [^\n]*\n)*?  ours +{N} %", 0.2, data=True),
    Check("results_world.md", "ours, mean completion time of Pollux's workloads, s",
          "benchmarks/pollux.py --output {scratch}/pollux.jsonl",
          rf"^  ours +{N} s", rf"^  ours +{N} s", 1.0, data=True),
    Check("results_world.md", "mean error of measured step times, %", "benchmarks/measured_steps.py",
          rf"^time: mean error {N}%", rf"^time: mean error {N}%", 0.1, data=True),
)  # fmt: skip


def number(text: str, pattern: str, *, mean: bool = False) -> float:
    """What a pattern finds first, or the mean of all; a part over its whole if it names both.

    Raises:
        LookupError: If it finds nothing.
    """
    found = list(re.finditer(pattern, text, re.MULTILINE))
    if not found:
        raise LookupError(f"nothing matches {pattern!r}")
    if "part" in found[0].groupdict():
        return _float(found[0]["part"]) / _float(found[0]["all"])
    values = [_float(match[1]) for match in found]
    return sum(values) / len(values) if mean else values[0]


def _float(word: str) -> float:
    return float(word.replace(",", "").replace("−", "-"))


def published(check: Check) -> float:
    """The page's figure: the first that matches."""
    text = (ROOT / "docs" / check.page).read_text("utf-8")
    match = re.search(check.published, text, re.MULTILINE)
    if match is None:
        raise LookupError(f"docs/{check.page}: nothing matches {check.published!r}")
    return number(match[0], check.published)


def run(check: Check, scratch: str) -> tuple[float, float]:
    """Measure a figure again; also the CPU seconds that took, of which nobody else's work is a part.

    Raises:
        LookupError: If the command fails or does not print it.
    """
    command = [sys.executable, *check.command.format(scratch=scratch).split()]
    environment = os.environ | {"COLUMNS": "200", "PYTHONPATH": str(ROOT)}
    with tempfile.TemporaryFile("w+") as printed, tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=printed, stderr=errors)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        printed.seek(0)
        errors.seek(0)
        if process.returncode:
            raise LookupError(f"{check.command} failed: {errors.read().strip()[-300:]}")
        return number(printed.read(), check.measured, mean=check.mean), used.ru_utime + used.ru_stime


def row(check: Check, scratch: str) -> tuple[str, bool, float]:
    """A check's line of the table, whether it is off, and its CPU seconds."""
    was, spent = published(check), 0.0
    if check.data and "ATTRIBUTION_SCHED_DATA" not in os.environ:
        off, now = False, "left out: needs recorded data"
    else:
        try:
            value, spent = run(check, scratch)
            off = abs(value - was) > check.tolerance * (1 + 1e-9)
            now = f"{value:g}" + (" **off**" if off else "")
        except LookupError as error:
            off, now = True, f"**{error}**"
    line = f"| {check.page} | {check.what} | {was:g} | {now} | ±{check.tolerance:g} | {spent:.0f} |"
    return line, off, spent


def main() -> int:
    """Measure, compare, print; the number of figures that are off is the exit code."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--only", default="", help="pages whose name holds one of these, comma-separated")
    asked.add_argument("--jobs", type=int, default=2, help="checks at a time")
    args = asked.parse_args()
    began, lines = time.monotonic(), []
    checks = [check for check in CHECKS if any(word in check.page for word in args.only.split(","))]
    print("| page | figure | published | measured now | tolerance | CPU s |\n|---|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(args.jobs) as pool:
        folders = [tempfile.mkdtemp(dir=scratch) for _ in checks]
        for line, off, spent in pool.map(row, checks, folders):
            lines.append((off, spent))
            print(line, flush=True)
    wrong, cpu_min = sum(off for off, _ in lines), sum(spent for _, spent in lines) / 60
    print(f"\n{wrong} off; {cpu_min:.1f} CPU min, {(time.monotonic() - began) / 60:.1f} min by the clock", flush=True)
    return wrong


if __name__ == "__main__":
    sys.exit(main())
