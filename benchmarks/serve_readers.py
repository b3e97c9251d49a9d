"""The live page under readers: latency of answers while a journal is written, and whether the writer is held up.

    python benchmarks/serve_readers.py [--readers 50] [--seconds 20] [--pace 20]

A writer takes decisions at a steady pace on a small world; the page is served by the command itself; readers ask as the
page's own script does, for the version and, when it has changed, for the page's middle, with a pause of two seconds
between. Wall-clock figures, so they depend on what else the machine does: its load is printed beside them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

WRITER = """
import json, sys, time
from attribution_sched import System
from tests.small_world import small
path, pace, seconds = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
system = System(small(episode={"horizon_s": 1e7, "max_segments": 2, "max_running": 6, "queue_capacity": 4,
                               "pool_size": 64, "retry_s": 300.0}), "sjf", journal=path, seed=1)
system.schedule_next_task()
print("ready", flush=True)
sys.stdin.readline()
took, began = [], time.perf_counter()
while time.perf_counter() - began < seconds:
    at = time.perf_counter()
    before = system.journal.count()
    system.schedule_next_task()
    took.append((time.perf_counter() - at) / max(1, system.journal.count() - before))
    time.sleep(max(0.0, began + system.journal.count() / pace - time.perf_counter()))
print(json.dumps({"decisions": system.journal.count(), "seconds": time.perf_counter() - began,
                  "p50_ms": 1e3 * sorted(took)[len(took) // 2], "p99_ms": 1e3 * sorted(took)[int(0.99 * len(took))]}))
"""


async def get(port: int, path: str) -> tuple[int, bytes, float]:
    """One answer: status, body, seconds."""
    began = time.perf_counter()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
    told = await reader.read()
    writer.close()
    head, _, body = told.partition(b"\r\n\r\n")
    return int(head.split()[1]), body, time.perf_counter() - began


async def read(port: int, number: int, until: float, took: dict[str, list[float]]) -> None:
    """One reader."""
    version = ""
    await asyncio.sleep(2.0 * (number % 17) / 17)
    while time.perf_counter() < until:
        status, body, seconds = await get(port, "/api/version")
        took["/api/version"].append(seconds)
        newest = str(json.loads(body)["version"])
        if status == 200 and newest != version:
            version = newest
            status, body, seconds = await get(port, "/part?lang=en")
            took["/part"].append(seconds)
        assert status == 200
        await asyncio.sleep(2.0)


async def readers(port: int, count: int, seconds: float) -> dict[str, list[float]]:
    """All of them at once."""
    took: dict[str, list[float]] = {"/api/version": [], "/part": []}
    until = time.perf_counter() + seconds
    await asyncio.gather(*(read(port, number, until, took) for number in range(count)))
    return took


def measured(path: Path, count: int, seconds: float, pace: float) -> tuple[dict, dict]:
    """One run: what the writer says, and what readers met."""
    command = [sys.executable, "-c", WRITER, str(path), str(pace), str(seconds)]
    writer = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert writer.stdin and writer.stdout
    writer.stdout.readline()
    took: dict[str, list[float]] = {}
    server = None
    try:
        if count:
            serve = [sys.executable, "-m", "attribution_sched.cli", "serve", str(path), "--port", "0"]
            server = subprocess.Popen(serve, stderr=subprocess.PIPE, text=True)
            assert server.stderr
            port = int(re.search(r":(\d+)/", server.stderr.readline())[1])
            while not asyncio.run(get(port, "/api/status"))[1].startswith(b'{"journal": {'):
                time.sleep(0.2)
        writer.stdin.write("go\n")
        writer.stdin.flush()
        if count:
            took = asyncio.run(readers(port, count, seconds))
        told = json.loads(writer.stdout.readline())
    finally:
        for each in (server, writer):
            if each is not None:
                each.terminate()
                each.wait()
    return told, took


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--readers", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--pace", type=float, default=20.0, help="decisions a second")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for count in (0, chosen.readers):
            told, took = measured(Path(folder) / f"j{count}.sqlite", count, chosen.seconds, chosen.pace)
            rate = told["decisions"] / told["seconds"]
            print(f"{count:3d} readers: {rate:.1f} decisions/s; a decision p50 {told['p50_ms']:.1f} ms, "
                  f"p99 {told['p99_ms']:.1f} ms")  # fmt: skip
            for name, values in took.items():
                ranked = sorted(values)
                p99 = ranked[min(len(ranked) - 1, int(0.99 * len(ranked)))]
                print(f"    {name:13} {len(values):5d} answers  p50 {1e3 * statistics.median(values):.1f} ms  "
                      f"p99 {1e3 * p99:.1f} ms")  # fmt: skip
    print(f"load of this machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
