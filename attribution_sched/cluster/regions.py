"""Real cloud regions: the network between ``aws:us-east-1``, ``gcp:europe-west4-a`` and some eighty others.

Bandwidth, round-trip time and egress price were measured or listed per ordered pair. Where a pair has no
figure, the nearest one is taken in this order, and the network's ``provenance`` says which:

1. the reverse direction (bandwidth and latency only; a price belongs to its source);
2. for a GCP zone, the figures of the zone of its region that was measured, forward then reverse;
3. for two zones of one region, the usual figures between zones of one region;
4. for a price, the median of what its source charges toward the other provider;
5. the median over all pairs of the two providers.

``fallback_error`` in the constants file gives the error each of them makes on pairs that were measured.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Unpack

from attribution_sched.cluster.constants import load_constants
from attribution_sched.errors import NetworkError, nearest, problem

if TYPE_CHECKING:
    from attribution_sched.cluster.wan import Wan, WanMotion

_FIELDS = {"gbps": "bandwidth", "rtt_ms": "latency", "usd_per_gb": "price"}
_MEASURED = "measured"


def region_names() -> tuple[str, ...]:
    """Return the names of all places that have figures of their own, sorted.

    A GCP region without its zone letter (``gcp:europe-west4``) and any further zone of such a region are
    understood too; they stand for the zone that was measured.
    """
    return tuple(load_constants("regions")["names"])


def carbon_g_per_kwh(name: str) -> float | None:
    """Return the carbon intensity of the grid of a region or zone, or None where no figure is known.

    Raises:
        NetworkError: If the place is unknown.
    """
    carbon: dict[str, float] = load_constants("regions")["carbon_g_per_kwh"]
    region = _region(name)
    if region not in carbon:
        _canonical(name)
    return carbon.get(region)


def wan_between(
    names: Sequence[str],
    *,
    intra_gbps: float = 100.0,
    intra_latency_s: float = 1e-4,
    **motion: Unpack[WanMotion],
) -> Wan:
    """Build the network between real places.

    Args:
        names: Region or zone names, see :func:`region_names`.
        intra_gbps: Assumed bandwidth between the machines of one place, Gb/s.
        intra_latency_s: Assumed latency between the machines of one place.
        **motion: Fields of :class:`~attribution_sched.cluster.wan.Wan` that say how it moves:
            ``reversion_per_s``, ``spread``, ``bound``, ``correlation``, ``congestion``, ``trace``. The
            defaults of the first two are assumptions: two campaigns cannot identify a reversion rate.

    Returns:
        A network whose latency is half the round trip and whose ``provenance`` covers every ordered pair:
        ``measured``, ``estimated: …`` or, inside a place, ``assumed: …``.

    Raises:
        NetworkError: If a place is unknown; the message names the nearest known one.
    """
    # numba loads with the network's kernels; names and carbon figures should not wait for it.
    import numpy as np

    from attribution_sched.cluster.wan import Wan

    places = [_canonical(name) for name in names]
    inside = {"gbps": intra_gbps, "rtt_ms": 2e3 * intra_latency_s, "usd_per_gb": 0.0}
    matrices = {field: np.full((len(places), len(places)), inside[field]) for field in _FIELDS}
    provenance = {}
    for i, src in enumerate(places):
        for j, dst in enumerate(places):
            link = names[i], names[j]
            if i == j:
                provenance[link] = "assumed: a link inside one place"
                continue
            how = {}
            for field, matrix in matrices.items():
                matrix[i, j], how[field] = _figure(field, src, dst)
            provenance[link] = _describe(how, "" if (src, dst) == link else f"{src} to {dst}")
    return Wan(
        names=tuple(names),
        bandwidth_gbps=matrices["gbps"],
        latency_s=matrices["rtt_ms"] / 2e3,
        price_usd_per_gb=matrices["usd_per_gb"],
        provenance=provenance,
        **motion,
    )


def _figure(field: str, src: str, dst: str) -> tuple[float, str]:
    """Return one figure of an ordered pair of places, and how it was got."""
    table = load_constants("regions")
    stand_in = _stand_in(src), _stand_in(dst)
    for a, b in ((src, dst), stand_in):
        direct = _cell(field, a, b)
        if direct is not None:
            return direct, _MEASURED if (a, b) == (src, dst) else f"that of {a} to {b}"
        reverse = None if field == "usd_per_gb" else _cell(field, b, a)
        if reverse is not None:
            return reverse, f"that of {b} to {a}, the reverse direction"
    if _region(src) == _region(dst):
        kind = "assumed" if field == "rtt_ms" else "usual"
        return table["inter_zone"][field], f"{kind} between zones of one region"
    providers = src.split(":")[0], dst.split(":")[0]
    if field == "usd_per_gb":
        row = [_cell(field, stand_in[0], b) for b in table["names"] if b.startswith(providers[1] + ":")]
        charged = [price for price in row if price is not None]
        if charged:
            return statistics.median(charged), f"median of {stand_in[0]} to {providers[1]}"
    return table["provider_pair_median"][" > ".join(providers)][field], "median of " + " to ".join(providers)


def _describe(how: dict[str, str], stands_for: str) -> str:
    """Join the origins of the figures of one link into one sentence."""
    fields: dict[str, list[str]] = {}
    for field, origin in how.items():
        if origin != _MEASURED:
            fields.setdefault(origin, []).append(_FIELDS[field])
    if fields:
        return "estimated: " + "; ".join(f"{', '.join(which)} = {origin}" for origin, which in fields.items())
    return f"{_MEASURED}: {stands_for}" if stands_for else _MEASURED


def _cell(field: str, src: str, dst: str) -> float | None:
    table, index = load_constants("regions"), _index()
    if src == dst or src not in index or dst not in index:
        return None
    value: float | None = table[field][index[src]][index[dst]]
    return value


@cache
def _index() -> dict[str, int]:
    return {name: i for i, name in enumerate(region_names())}


def _region(name: str) -> str:
    """Strip the zone letter of a GCP zone; other names are regions already."""
    return re.sub(r"-[a-f]$", "", name) if name.startswith("gcp:") else name


def _stand_in(name: str) -> str:
    """Return the place whose figures describe the region of ``name``."""
    zones: dict[str, str] = load_constants("regions")["zone_of_region"]
    return zones.get(_region(name), name)


def _canonical(name: str) -> str:
    """Return the zone a GCP region stands for, or the name itself if it is a known place."""
    zones: dict[str, str] = load_constants("regions")["zone_of_region"]
    if name in zones:
        return zones[name]
    if name in _index() or _region(name) in zones:
        return name
    fix = nearest(name, region_names())
    raise NetworkError(problem("region", name, "is not in the table of cloud regions", fix))
