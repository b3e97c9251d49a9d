"""CPU and memory energy from RAPL, read through the kernel's powercap files.

    root/intel-rapl:0/            name = package-0         energy_uj, max_energy_range_uj
    root/intel-rapl:0/intel-rapl:0:0   name = core         (part of its package)
    root/intel-rapl:0/intel-rapl:0:1   name = dram         (NOT part of its package)
    root/intel-rapl:1/            name = psys              (whole platform, contains the packages)

AMD processors appear in the same tree under the same names. ``energy_j`` is packages plus dram: psys is shown
on its own and never added, and a package listed a second time through ``intel-rapl-mmio`` is counted once.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from attribution_sched.attribution.sources.reading import Reading, ReadingBuilder
from attribution_sched.errors import CounterError, problem

POWERCAP_ROOT = Path("/sys/class/powercap")

ABSENT = (
    "no RAPL zone: this kernel has no powercap driver loaded, or the machine is a virtual machine or "
    "container that hides it"
)
ABSENT_FIX = "On bare metal run `modprobe intel_rapl_msr`; in a virtual machine read the host or use a recording"
DENIED = "permission denied: energy_uj is readable by root only since Linux 5.10 (CVE-2020-8694)"
DENIED_FIX = "Run as root, or have root run `chmod a+r /sys/class/powercap/*/energy_uj` after each boot"

_KINDS = ("package", "dram", "core", "uncore", "platform")


@dataclass(frozen=True)
class RaplZone:
    """One energy counter of the tree.

    Attributes:
        path: Directory of the zone.
        kind: ``package``, ``dram``, ``core``, ``uncore`` or ``platform``.
        label: Unique readable name, for example ``package-0-die-1`` or ``package-0/dram``.
        max_energy_range_uj: Value at which the counter wraps to zero; 0 where the kernel does not say.
    """

    path: Path
    kind: str
    label: str
    max_energy_range_uj: int


def _text(path: Path) -> str:
    return path.read_text(encoding="ascii", errors="replace").strip()


def _integer(path: Path) -> int:
    text = _text(path)
    if not text.isdecimal():
        raise CounterError(
            problem(str(path), text, "must hold one non-negative integer", "Check the driver; exclude this zone")
        )
    return int(text)


def _kind(name: str) -> str | None:
    if name.startswith("package"):
        return "package"
    return {"dram": "dram", "core": "core", "uncore": "uncore", "psys": "platform"}.get(name)


def find_zones(root: Path = POWERCAP_ROOT) -> tuple[RaplZone, ...]:
    """List the RAPL zones below ``root``, each counter once.

    Args:
        root: Directory that stands for ``/sys/class/powercap``.
    """
    zone_folders = {p.name: p for pattern in ("*:*", "*:*/*:*") for p in root.glob(pattern) if (p / "name").is_file()}
    names = {key: _text(path / "name") for key, path in zone_folders.items()}
    zones: dict[str, RaplZone] = {}
    # "intel-rapl:" sorts after "intel-rapl-mmio:"; visiting it first makes the register route the one kept.
    for key in sorted(zone_folders, key=lambda k: (k.split(":")[0] != "intel-rapl", k)):
        kind = _kind(names[key])
        if kind is None:
            continue
        parent = key.rsplit(":", 1)[0] if key.count(":") > 1 else None
        label = f"{names.get(parent, parent)}/{names[key]}" if parent else names[key]
        try:
            wrap = _integer(zone_folders[key] / "max_energy_range_uj")
        except OSError:
            wrap = 0
        zones.setdefault(label, RaplZone(zone_folders[key], kind, label, wrap))
    return tuple(zones[label] for label in sorted(zones))


class RaplSource:
    """Joules since the source was opened, per zone kind, per zone, and in total.

    Counters: ``energy_j`` (packages + dram), ``package_energy_j``, ``dram_energy_j``, ``core_energy_j``,
    ``uncore_energy_j``, ``platform_energy_j`` and ``rapl/<zone>_j`` for each zone. A counter that
    wrapped once between two reads is unrolled; read more often than `max_interval_s` so that it
    cannot wrap twice.
    """

    def __init__(self, root: Path = POWERCAP_ROOT, clock: Callable[[], float] = time.time) -> None:
        """Find the zones and take their present values as zero.

        Args:
            root: Directory that stands for ``/sys/class/powercap``.
            clock: Gives the Unix time of a reading.
        """
        self._clock = clock
        self.zones = find_zones(root)
        if not self.zones:
            raise CounterError(problem("RAPL", str(root), ABSENT, ABSENT_FIX))
        self._total_uj = dict.fromkeys((z.label for z in self.zones), 0)
        self._last_uj: dict[str, int] = {}
        self._lost: dict[str, str] = {}
        for zone in self.zones:
            self._advance(zone)

    def max_interval_s(self, power_w: float) -> float:
        """Longest safe time between two reads if no zone draws more than ``power_w``."""
        ranges = [z.max_energy_range_uj for z in self.zones if z.max_energy_range_uj]
        return min(ranges, default=0) * 1e-6 / power_w

    def read(self) -> Reading:
        """Read every zone once."""
        for zone in self.zones:
            self._advance(zone)
        out = ReadingBuilder()
        totals: dict[str, float] = {}
        for kind in _KINDS:
            self._add_kind(out, kind, totals)
        self._add_total(out, totals)
        for zone in self.zones:
            name = f"rapl/{zone.label}_j"
            if zone.label in self._lost:
                out.missing(name, "J", self._lost[zone.label], cumulative=True)
            else:
                out.add(name, self._total_uj[zone.label] * 1e-6, "J", cumulative=True)
        return out.build(self._clock())

    def _add_kind(self, out: ReadingBuilder, kind: str, totals: dict[str, float]) -> None:
        zones = [z for z in self.zones if z.kind == kind]
        lost = [self._lost[z.label] for z in zones if z.label in self._lost]
        name = f"{kind}_energy_j"
        if not zones:
            out.missing(name, "J", f"this processor has no RAPL {kind} zone", cumulative=True)
        elif lost:
            out.missing(name, "J", lost[0], cumulative=True)
        else:
            totals[kind] = sum(self._total_uj[z.label] for z in zones) * 1e-6
            out.add(name, totals[kind], "J", cumulative=True)

    def _add_total(self, out: ReadingBuilder, totals: dict[str, float]) -> None:
        has_dram = any(z.kind == "dram" for z in self.zones)
        if "package" not in totals or (has_dram and "dram" not in totals):
            reason = next(iter(self._lost.values()), "this processor has no RAPL package zone")
            out.missing("energy_j", "J", reason, cumulative=True)
            return
        note = "" if has_dram else "packages only: this processor has no dram zone"
        out.add("energy_j", totals["package"] + totals.get("dram", 0.0), "J", note=note, cumulative=True)

    def _advance(self, zone: RaplZone) -> None:
        """Add what a zone counted since the last look; a zone that lost count once stays lost."""
        if zone.label in self._lost:
            return
        try:
            now = _integer(zone.path / "energy_uj")
        except PermissionError:
            self._lost[zone.label] = f"{DENIED}. {DENIED_FIX}"
            return
        except OSError as error:
            self._lost[zone.label] = f"{zone.path.name}/energy_uj cannot be read: {error.strerror}"
            return
        step = now - self._last_uj.get(zone.label, now)
        if step < 0 and zone.max_energy_range_uj <= 0:
            self._lost[zone.label] = (
                "the counter fell and the kernel gives no max_energy_range_uj to unroll the wrap with"
            )
            return
        self._total_uj[zone.label] += step if step >= 0 else step + zone.max_energy_range_uj
        self._last_uj[zone.label] = now
