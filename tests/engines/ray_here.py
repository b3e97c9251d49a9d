"""Starts and stops a Ray of three nodes on this machine, in a process of its own that is ended by its id.

    python -m tests.engines.ray_here       # prints the address, ends when its standard input does

Nodes carry the label ``domain``: two of ``east`` and one of ``west``, four CPUs each; the head has none.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import select
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass

NODES = {"east-1": "east", "east-2": "east", "west-1": "west"}
UP_S = 120.0


class Unavailable(Exception):
    """Ray cannot be had here; the message says why."""


@dataclass
class RayHere:
    """A cluster that runs.

    Attributes:
        address: Of its head.
        process: Who started its nodes.
    """

    address: str
    process: subprocess.Popen[str]

    def tell(self, word: str) -> str:
        """Ask for something: ``lose NAME`` or ``add NAME``."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()


@contextlib.contextmanager
def ray_here() -> Iterator[RayHere]:
    """A cluster for as long as the block lasts.

    Raises:
        Unavailable: If Ray is not installed, or does not come up.
    """
    if importlib.util.find_spec("ray") is None:
        raise Unavailable("it is not installed; pip install 'attribution-sched[ray]'")
    command = [sys.executable, "-m", "tests.engines.ray_here"]
    variables = {**os.environ, "RAY_health_check_failure_threshold": "3", "RAY_health_check_period_ms": "1000",
                 "RAY_DEDUP_LOGS": "0", "RAY_USAGE_STATS_ENABLED": "0"}  # fmt: skip
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, text=True, env=variables,
            start_new_session=True,
        )  # fmt: skip
        assert process.stdout is not None and process.stdin is not None
        try:
            ready, _, _ = select.select([process.stdout], [], [], UP_S)
            line = process.stdout.readline() if ready else ""
            if not line:
                said.seek(0)
                raise Unavailable(f"it did not come up: {said.read()[-300:]}")
            yield RayHere(json.loads(line)["address"], process)
        finally:
            process.stdin.close()
            process.stdout.close()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()


def main() -> int:
    """The command."""
    from ray.cluster_utils import Cluster

    # Ray writes to standard output as it likes: ours is kept for answers.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    nodes = {
        name: cluster.add_node(num_cpus=4, labels={"domain": domain}, wait=False) for name, domain in NODES.items()
    }
    cluster.wait_for_nodes()
    answers.write(json.dumps({"address": cluster.address}) + "\n")
    for line in sys.stdin:
        word, _, name = line.strip().partition(" ")
        if word == "lose":
            cluster.remove_node(nodes.pop(name), allow_graceful=False)
        elif word == "add":
            nodes[name] = cluster.add_node(num_cpus=4, labels={"domain": name.partition("-")[0]})
        answers.write("done\n")
    cluster.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main())
