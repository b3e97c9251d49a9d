"""Which engines this machine can reach, and in which version."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version


@dataclass(frozen=True)
class Engine:
    """Something that can run jobs.

    Attributes:
        name: Its name.
        version: What it says of itself; empty if it is not there.
        missing: What is missing, and what to do about it; empty if it is there.
    """

    name: str
    version: str
    missing: str = ""


def engines() -> tuple[Engine, ...]:
    """All engines that are known here; none of them is started or asked for anything but its version."""
    python = f"Python {sys.version_info.major}.{sys.version_info.minor}"
    return Engine("local", f"processes of this machine, {python}"), _slurm(), _ray()


def _slurm() -> Engine:
    if shutil.which("sinfo") is None or shutil.which("sbatch") is None:
        return Engine("slurm", "", "sinfo and sbatch are not installed; run where they are")
    try:
        sinfo = subprocess.run(["sinfo", "-V"], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Engine("slurm", "", f"sinfo does not answer ({type(error).__name__})")
    release = next((word for word in sinfo.stdout.split() if word[:1].isdigit()), "")
    if not release:
        return Engine("slurm", "installed", "no controller is configured here; name one with SLURM_CONF")
    try:
        ping = subprocess.run(["scontrol", "ping"], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        ping = None
    up = ping is not None and "UP" in ping.stdout
    return Engine("slurm", release, "" if up else "its controller does not answer; see whether slurmctld runs")


def _ray() -> Engine:
    try:
        return Engine("ray", version("ray"))
    except PackageNotFoundError:
        return Engine("ray", "", "is not installed; pip install 'attribution-sched[ray]'")
