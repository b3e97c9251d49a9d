"""Domains of this machine with a network of their own: a namespace each, a shaped link for each pair, a share of CPU.

Root only, with ``ip`` and ``tc``. Everything carries a name of this process and is taken away at the end.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path

CPU = Path("/sys/fs/cgroup/cpu")
BURST = "16kb"


class Unavailable(Exception):
    """It cannot be had here; the message says why."""


def run(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Unavailable(f"{' '.join(words)}: {done.stderr.strip()[:200]}")
    return done.stdout


@dataclass
class Network:
    """Domains that are connected.

    Attributes:
        domains: Their names.
        prefix: Of everything that was made.
        quotas: Whether CPU shares are in force.
    """

    domains: Sequence[str]
    prefix: str
    quotas: bool = False
    made: list[str] = field(default_factory=list)

    def space(self, domain: str) -> str:
        """Namespace of a domain."""
        return f"{self.prefix}-{domain}"

    def command(self, *words: str) -> list[str]:
        """A command that runs in the domain that it is told, with its share of CPU."""
        join = f"echo $$ > {CPU}/{self.prefix}-$ATTR_DOMAIN/cgroup.procs; " if self.quotas else ""
        # Gloo takes its address from the interface that is named here.
        script = (
            f'{join}export GLOO_SOCKET_IFNAME=here TRAINER_STORE=1; exec ip netns exec {self.prefix}-$ATTR_DOMAIN "$@"'
        )
        return ["sh", "-c", script, "in-domain", *words]

    def shape(self, one: str, other: str, mbit_s: float) -> None:
        """Let the link between two domains carry so much, each way, from now on."""
        for a, b in ((one, other), (other, one)):
            words = ["qdisc", "replace", "dev", f"to-{b}", "root", "tbf", "rate", f"{mbit_s}mbit", "burst", BURST,
                     "latency", "4s"]  # fmt: skip
            run("ip", "netns", "exec", self.space(a), "tc", *words)


@contextlib.contextmanager
def network_here(domains: Sequence[str], mbit_s: float, cpu_share: float | None = None) -> Iterator[Network]:
    """Connected domains for as long as the block lasts.

    Raises:
        Unavailable: If this is not root, or the kernel or the tools do not allow it.
    """
    if os.geteuid() != 0:
        raise Unavailable("network namespaces need root")
    if shutil.which("ip") is None or shutil.which("tc") is None:
        raise Unavailable("ip and tc are not installed")
    network = Network(tuple(domains), f"at{os.getpid() % 100000}")
    groups: list[Path] = []
    try:
        for at, name in enumerate(domains):
            space = network.space(name)
            run("ip", "netns", "add", space)
            network.made.append(space)
            inside = ("ip", "-n", space)
            run(*inside, "link", "set", "lo", "up")
            # An address that belongs to no single link.
            run(*inside, "link", "add", "here", "type", "bridge")
            run(*inside, "address", "add", f"10.77.0.{at + 1}/32", "dev", "here")
            run(*inside, "link", "set", "here", "up")
        for number, (i, j) in enumerate(combinations(range(len(domains)), 2)):
            a, b = domains[i], domains[j]
            end, peer = f"{network.prefix}v{number}a", f"{network.prefix}v{number}b"
            run("ip", "link", "add", end, "type", "veth", "peer", "name", peer)
            for own, other, interface, to in ((a, b, end, j), (b, a, peer, i)):
                inside = ("ip", "-n", network.space(own))
                run("ip", "link", "set", interface, "netns", network.space(own))
                run(*inside, "link", "set", interface, "name", f"to-{other}")
                run(*inside, "link", "set", f"to-{other}", "up")
                own_address = f"10.77.0.{domains.index(own) + 1}"
                run(*inside, "route", "add", f"10.77.0.{to + 1}/32", "dev", f"to-{other}", "src", own_address)
            network.shape(a, b, mbit_s)
        if cpu_share is not None and (CPU / "cpu.cfs_quota_us").exists():
            for name in domains:
                group = CPU / network.space(name)
                group.mkdir()
                groups.append(group)
                (group / "cpu.cfs_period_us").write_text("20000")
                (group / "cpu.cfs_quota_us").write_text(str(int(20000 * cpu_share)))
            network.quotas = True
        yield network
    finally:
        for space in network.made:
            subprocess.run(["ip", "netns", "delete", space], capture_output=True, check=False)
        for group in groups:
            with contextlib.suppress(OSError):
                group.rmdir()
