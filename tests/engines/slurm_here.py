"""Starts and stops a whole Slurm on this machine: munge, accounting in MariaDB, two controllers, several nodes each.

    python -m tests.engines.slurm_here --install      # apt, as root
    python -m tests.engines.slurm_here --try          # start, show the nodes, stop

Everything lies in one folder and is ended by its process id. Where it cannot be had (no root, no packages, a daemon
that does not come up), the reason is given and tests skip with it.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

PACKAGES = ("slurm-wlm", "slurmdbd", "munge", "mariadb-server")
COMMANDS = ("slurmctld", "slurmd", "slurmdbd", "munged", "mariadbd", "mariadb-install-db", "sbatch", "sacctmgr")
CLUSTERS = ("east", "west")
NODES, GPUS = 2, 4
UP_S = 60.0


class Unavailable(Exception):
    """Slurm cannot be had here; the message says why."""


def missing() -> list[str]:
    """Commands that are not installed."""
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    return [name for name in COMMANDS if shutil.which(name, path=path) is None]


def install() -> None:
    """Install the packages, where that is allowed.

    Raises:
        Unavailable: If it is not, or does not work.
    """
    if not missing():
        return
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise Unavailable(f"not installed ({', '.join(missing())}), and this is not root with apt-get")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (
        ["apt-get", "update", "-qq"],
        ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *PACKAGES],
    ):
        try:
            done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=240, check=False)
        except subprocess.TimeoutExpired:
            raise Unavailable(f"{' '.join(command[:2])} did not end in time") from None
        if done.returncode != 0 and command[1] == "install":
            raise Unavailable(f"apt-get install failed: {done.stderr.strip()[-200:]}")
    if missing():
        raise Unavailable(f"still missing after apt-get install: {', '.join(missing())}")


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class SlurmHere:
    """Two controllers with their nodes.

    Attributes:
        folder: Where everything lies.
        running: Name of a daemon → its process.
    """

    folder: Path
    running: dict[str, subprocess.Popen] = field(default_factory=dict)
    accounting: bool = True

    def conf(self, cluster: str) -> Path:
        """Configuration of a controller."""
        return self.folder / cluster / "slurm.conf"

    def environment(self, cluster: str) -> dict[str, str]:
        """For Slurm's commands."""
        return {**os.environ, "SLURM_CONF": str(self.conf(cluster)), "PATH": os.environ.get("PATH", "") + ":/usr/sbin"}

    def spawn(self, name: str, *command: str, cluster: str = "east", **variables: str) -> None:
        """Start a daemon in the foreground of its own session."""
        log = (self.folder / f"{name}.log").open("ab")
        self.running[name] = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.environment(cluster) | variables,
            start_new_session=True,
        )  # fmt: skip
        log.close()

    def ask(self, cluster: str, *command: str, timeout: float = 30.0) -> subprocess.CompletedProcess:
        """Run one of Slurm's commands."""
        return subprocess.run(
            command, capture_output=True, text=True, env=self.environment(cluster), timeout=timeout, check=False
        )

    def until(self, what: str, condition, seconds: float = UP_S) -> None:
        """Wait for something.

        Raises:
            Unavailable: If it does not come.
        """
        limit = time.monotonic() + seconds
        while time.monotonic() < limit:
            with contextlib.suppress(subprocess.TimeoutExpired):
                if condition():
                    return
            dead = [name for name, process in self.running.items() if process.poll() is not None]
            if dead:
                log = (self.folder / f"{dead[0]}.log").read_text(errors="replace")[-400:]
                raise Unavailable(f"{dead[0]} ended while {what} was waited for: {' '.join(log.split())}")
            time.sleep(0.1)
        raise Unavailable(f"{what} did not come within {seconds:g} s")

    def start(self) -> None:
        """Bring everything up.

        Raises:
            Unavailable: If something does not come up; what was started is ended again.
        """
        try:
            self._munge()
            database = self._database()
            for cluster in CLUSTERS:
                self._configure(cluster, database)
            if self.accounting:
                self._accounting(database)
            for cluster in CLUSTERS:
                self.spawn(f"{cluster}-ctld", "slurmctld", "-D", "-f", str(self.conf(cluster)), cluster=cluster)
                for number in range(1, NODES + 1):
                    self.start_node(cluster, number)
            for cluster in CLUSTERS:
                self.until(f"the nodes of {cluster}", lambda c=cluster: self.idle(c) == NODES)
        except Unavailable:
            self.stop()
            raise
        except (OSError, subprocess.SubprocessError) as error:
            self.stop()
            raise Unavailable(f"{type(error).__name__}: {error}") from error

    def start_node(self, cluster: str, number: int) -> None:
        """Start a node's daemon."""
        name = f"{cluster}-{number}"
        self.spawn(name, "slurmd", "-D", "-N", name, "-f", str(self.conf(cluster)), cluster=cluster)

    def idle(self, cluster: str) -> int:
        """Nodes that wait for work."""
        return self.ask(cluster, "sinfo", "-h", "-N", "-o", "%T").stdout.split().count("idle")

    def _munge(self) -> None:
        place = self.folder / "munge"
        place.mkdir()
        key = place / "key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o600)
        self.spawn(
            "munged", "munged", "--foreground", "--force", f"--socket={place}/socket", f"--key-file={key}",
            f"--pid-file={place}/pid", f"--log-file={place}/log", f"--seed-file={place}/seed", "--num-threads=4",
        )  # fmt: skip
        self.until("munge", (place / "socket").exists, 20.0)

    def _database(self) -> int:
        if not self.accounting:
            return 0
        place, port = self.folder / "database", free_port()
        place.mkdir()
        shutil.chown(place, "mysql", "mysql")
        made = subprocess.run(
            ["mariadb-install-db", "--user=mysql", f"--datadir={place}", "--skip-test-db",
             "--auth-root-authentication-method=normal"],
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        if made.returncode != 0:
            raise Unavailable(f"mariadb-install-db failed: {made.stderr.strip()[-200:]}")
        self.spawn(
            "mariadbd", "mariadbd", "--no-defaults", f"--datadir={place}", "--user=mysql", f"--socket={place}/socket",
            f"--port={port}", "--bind-address=127.0.0.1", "--skip-grant-tables", "--innodb-buffer-pool-size=64M",
            "--innodb-flush-log-at-trx-commit=2", "--innodb-lock-wait-timeout=900",
        )  # fmt: skip
        self.until("the database", lambda: _listens(port))
        return port

    def _accounting(self, database: int) -> None:
        conf = self.folder / "slurmdbd.conf"
        conf.write_text(
            f"AuthType=auth/munge\nAuthInfo=socket={self.folder}/munge/socket\nDbdHost=localhost\n"
            f"DbdPort={self.dbd_port}\nSlurmUser=root\nStorageType=accounting_storage/mysql\nStorageHost=127.0.0.1\n"
            f"StoragePort={database}\nStorageUser=root\nStorageLoc=slurm_acct_db\nPidFile={self.folder}/dbd.pid\n"
            f"LogFile={self.folder}/dbd.log\n"
        )
        conf.chmod(0o600)
        # It takes its settings from beside the file that this variable names.
        self.spawn("slurmdbd", "slurmdbd", "-D", SLURM_CONF=str(self.folder / "slurm.conf"))
        self.until("accounting", lambda: _listens(self.dbd_port))
        for cluster in CLUSTERS:
            self.until(
                f"cluster {cluster} in accounting",
                lambda c=cluster: self.ask(c, "sacctmgr", "-i", "add", "cluster", c).returncode in (0, 1),
            )

    def _configure(self, cluster: str, database: int) -> None:
        place = self.folder / cluster
        place.mkdir()
        for name in ("state", "spool", "gpus"):
            (place / name).mkdir()
        for number in range(GPUS):
            (place / "gpus" / f"gpu{number}").touch()
        if not hasattr(self, "dbd_port"):
            self.dbd_port = free_port()
        host, ports = socket.gethostname(), [free_port() for _ in range(NODES)]
        nodes = "\n".join(
            f"NodeName={cluster}-{number + 1} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=8 "
            f"RealMemory=1000 Gres=gpu:a100:{GPUS} Feature=domain_{cluster} State=UNKNOWN"
            for number, port in enumerate(ports)
        )
        accounts = (
            f"AccountingStorageType=accounting_storage/slurmdbd\nAccountingStorageHost=127.0.0.1\n"
            f"AccountingStoragePort={self.dbd_port}\nAccountingStoragePass={self.folder}/munge/socket\nAccountingStoreFlags=job_comment\n"
            "JobAcctGatherType=jobacct_gather/linux\nJobAcctGatherFrequency=5\n"
            if self.accounting
            else "AccountingStorageType=accounting_storage/none\n"
        )
        self.conf(cluster).write_text(
            f"ClusterName={cluster}\nSlurmctldHost={host}(127.0.0.1)\nSlurmctldPort={free_port()}\n"
            f"AuthType=auth/munge\nAuthInfo=socket={self.folder}/munge/socket\nCredType=cred/munge\nSlurmUser=root\n"
            f"SlurmdUser=root\nStateSaveLocation={place}/state\nSlurmdSpoolDir={place}/spool/%n\n"
            f"SlurmctldPidFile={place}/ctld.pid\nSlurmdPidFile={place}/%n.pid\nSlurmctldLogFile={place}/ctld.log\n"
            f"SlurmdLogFile={place}/%n.log\nProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\n"
            "SchedulerType=sched/backfill\nSchedulerParameters=bf_interval=2,sched_min_interval=0\n"
            "SelectType=select/cons_tres\nSelectTypeParameters=CR_Core\nGresTypes=gpu\nReturnToService=2\n"
            "SlurmdTimeout=10\nSlurmctldTimeout=10\nKillWait=3\nMinJobAge=5\nMailProg=/bin/true\nSwitchType=switch/none\n"
            f"SlurmdParameters=config_overrides\nMpiDefault=none\n{accounts}{nodes}\n"
            f"PartitionName={cluster} Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n"
        )
        (place / "gres.conf").write_text(
            f"NodeName={cluster}-[1-{NODES}] Name=gpu Type=a100 File={place}/gpus/gpu[0-{GPUS - 1}]\n"
        )

    def kill_node(self, cluster: str, number: int) -> None:
        """A node is lost: its daemon and all it started are gone at once."""
        process = self.running.pop(f"{cluster}-{number}")
        for child in _descendants(process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        process.kill()
        process.wait()
        for keeper in _named(f"{cluster}-{number}"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(keeper, signal.SIGKILL)

    def stop(self) -> None:
        """End everything that was started, by process id."""
        for cluster in CLUSTERS:
            if f"{cluster}-ctld" in self.running and self.running[f"{cluster}-ctld"].poll() is None:
                with contextlib.suppress(subprocess.SubprocessError):
                    self.ask(cluster, "scancel", "-u", "root", timeout=10.0)
        for name in reversed(list(self.running)):
            process = self.running.pop(name)
            if process.poll() is None:
                process.terminate()
                try:
                    process.wait(timeout=8.0)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _descendants(pid: int) -> list[int]:
    import psutil

    with contextlib.suppress(psutil.NoSuchProcess):
        return [child.pid for child in psutil.Process(pid).children(recursive=True)]
    return []


def _named(node: str) -> list[int]:
    """Step daemons of a node, which leave their parent, with what they run."""
    import psutil

    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            keeps = process.children(recursive=True) if process.name().startswith("slurmstepd") else []
            if any(each.environ().get("SLURMD_NODENAME") == node for each in (process, *keeps)):
                found.append(process.pid)
    return found


@contextlib.contextmanager
def slurm_here(*, accounting: bool = True) -> Iterator[SlurmHere]:
    """A Slurm for as long as the block lasts.

    Raises:
        Unavailable: If it cannot be had.
    """
    install()
    if os.geteuid() != 0:
        raise Unavailable("the daemons need root")
    with tempfile.TemporaryDirectory(prefix="slurm-") as name:
        Path(name).chmod(0o755)
        made = SlurmHere(Path(name), accounting=accounting)
        made.start()
        try:
            yield made
        finally:
            made.stop()


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--install", action="store_true")
    parser.add_argument("--try", dest="attempt", action="store_true")
    chosen = parser.parse_args()
    try:
        if chosen.install:
            install()
        if chosen.attempt:
            began = time.monotonic()
            with slurm_here() as slurm:
                sys.stdout.write(f"up after {time.monotonic() - began:.1f} s\n")
                for cluster in CLUSTERS:
                    sys.stdout.write(slurm.ask(cluster, "sinfo", "-N", "-o", "%N %T %G").stdout)
    except Unavailable as error:
        sys.stdout.write(f"Slurm cannot be had here: {error}\n")
        return 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
