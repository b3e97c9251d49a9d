"""GPU counters scraped from dcgm-exporter (or any Prometheus endpoint that serves DCGM field names)."""

from __future__ import annotations

import http.client
import io
import math
import re
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any
from urllib.parse import SplitResult, urljoin, urlsplit

from attribution_sched.attribution.sources.reading import Reading, ReadingBuilder
from attribution_sched.errors import CounterError, problem
from attribution_sched.limits import check_name

# ------ The Prometheus text format: lines of ``name{label="value"} number [milliseconds]``

# Each pattern takes what only it can take, so that a line is read once from left to right, however long it is.
_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_KEY = re.compile(r"\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*")
_QUOTED = re.compile(r'"([^"\\]*(?:\\.[^"\\]*)*)"\s*')
_SPACE = re.compile(r"\s*")
_TIME = re.compile(r"-?\d+(?:\.\d+)?")
_ESCAPE = {r"\\": "\\", r"\"": '"', r"\n": "\n"}


@dataclass(frozen=True)
class Sample:
    """One line of the format.

    Attributes:
        name: Metric name.
        labels: Label name to value.
        value: The number; may be NaN or infinite.
        line: Line number in the text, from 1.
    """

    name: str
    labels: Mapping[str, str]
    value: float
    line: int


def _fail(source: str, line: int, text: str, rule: str) -> CounterError:
    fix = "Check that the address serves Prometheus text (dcgm-exporter: http://<host>:9400/metrics)"
    return CounterError(problem(f"{source} line {line}", text[:120], rule, fix))


def parse_prometheus(text: str, source: str = "metrics") -> tuple[Sample, ...]:
    """Parse a whole scrape.

    Args:
        text: The scrape.
        source: Named in errors.

    Raises:
        CounterError: A line is not of the format; the message gives the line.
    """
    samples: list[Sample] = []
    for number, raw in enumerate(text.split("\n"), start=1):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        samples.append(_sample(line, source, number))
    return tuple(samples)


def _sample(line: str, source: str, number: int) -> Sample:
    name = _NAME.match(line)
    if name is None:
        raise _fail(source, number, line, 'must read name{label="value"} number')
    position = _after(_SPACE, line, name.end())
    labels: Mapping[str, str] = MappingProxyType({})
    if line.startswith("{", position):
        labels, end = _labels(line, position + 1, source, number)
    else:
        end = name.end()
    fields = line[end:].split(None, 2)
    if not fields or not line[end].isspace() or not _is_tail(fields[1:]):
        raise _fail(source, number, line, 'must read name{label="value"} number')
    try:
        value = float(fields[0])
    except ValueError as error:
        raise _fail(source, number, line, f"{fields[0][:40]!r} is not a number") from error
    return Sample(name[0], labels, value, number)


def _is_tail(fields: Sequence[str]) -> bool:
    """Whether what follows a value may: nothing, a time, an exemplar, or both."""
    if not fields or fields[0].startswith("#"):
        return True
    return _TIME.fullmatch(fields[0]) is not None and (len(fields) == 1 or fields[1].startswith("#"))


def _labels(line: str, position: int, source: str, number: int) -> tuple[Mapping[str, str], int]:
    """Labels from behind the opening brace on, and where the closing one ends."""
    labels: dict[str, str] = {}
    while True:
        position = _after(_SPACE, line, position)
        if line.startswith("}", position):
            return MappingProxyType(labels), position + 1
        key = _KEY.match(line, position)
        quoted = None if key is None else _QUOTED.match(line, key.end())
        if key is None or quoted is None:
            raise _fail(source, number, line, 'labels must read key="value", separated by commas')
        if key[1] in labels:
            raise _fail(source, number, line, f"label {key[1][:40]!r} appears twice")
        labels[key[1]] = re.sub(r"\\.", lambda m: _ESCAPE.get(m[0], m[0]), quoted[1])
        position = quoted.end()
        if line.startswith(",", position):
            position += 1
        elif not line.startswith("}", position):
            raise _fail(source, number, line, 'labels must read key="value", separated by commas')


def _after(pattern: re.Pattern[str], line: str, position: int) -> int:
    matched = pattern.match(line, position)
    return position if matched is None else matched.end()


# ------ A scrape over HTTP from a server that may be slow, broken or hostile
#
# One deadline holds for everything: connecting, headers and body, however small the pieces in which they come. An
# answer that is cut off is refused, because a scrape without its last lines is a machine without its last GPUs.
# Proxies of the environment are not used: exporters are neighbours.

MAX_SCRAPE_BYTES = 32 * 1024 * 1024
MOST_REDIRECTS = 3
LONGEST_TIMEOUT_S = 3600.0
_MOVED = (301, 302, 303, 307, 308)
_FIX = "Start dcgm-exporter or correct the address"


def fetch_http(url: str, timeout_s: float = 5.0) -> str:
    """Download a scrape.

    Args:
        url: An ``http`` or ``https`` address.
        timeout_s: Give up after this long in all.

    Raises:
        CounterError: If the address cannot be read in time and whole.
    """
    if not isinstance(timeout_s, int | float) or not 0 < timeout_s <= LONGEST_TIMEOUT_S:
        rule = f"must be seconds > 0, at most {LONGEST_TIMEOUT_S:g}"
        raise CounterError(problem("timeout_s", timeout_s, rule, "Use for example 5.0"))
    end_s = time.monotonic() + timeout_s
    place = _place(url, url)
    for _ in range(MOST_REDIRECTS + 1):
        try:
            moved, body = _get(place, end_s)
        except TimeoutError:
            rule = f"did not answer whole within {timeout_s:g} s"
            raise CounterError(problem("url", url, rule, _FIX)) from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            reason = str(getattr(error, "strerror", None) or error) or type(error).__name__
            rule = f"could not be read: {reason[:200]}"
            raise CounterError(problem("url", url, rule, _FIX)) from error
        if moved is None:
            return _whole(url, body)
        new = _place(moved, url, place.geturl())
        if (new.hostname, _port(new)) != (place.hostname, _port(place)):
            rule = f"leads to another host, {new.geturl()[:200]!r}"
            raise CounterError(problem("url", url, rule, "Give that address itself if you trust it"))
        place = new
    raise CounterError(problem("url", url, f"leads on more than {MOST_REDIRECTS} times", _FIX))


def _place(url: Any, given: Any, base: str = "") -> SplitResult:
    """The parts of an address, which may be relative to another."""
    try:
        place: SplitResult = urlsplit(urljoin(base, url))
        if place.scheme in ("http", "https") and place.hostname:
            _port(place)
            return place
    except (ValueError, AttributeError, TypeError):
        pass
    fix = "Use http://<host>:9400/metrics, or pass fetch="
    raise CounterError(problem("url", given, "only http and https addresses are read", fix))


def _port(place: SplitResult) -> int:
    return place.port or (443 if place.scheme == "https" else 80)


def _get(place: SplitResult, end_s: float) -> tuple[str | None, bytes]:
    """Where the address leads on to, if it does, and else what it holds.

    Raises:
        OSError: As sockets do; TimeoutError once the time is over.
        http.client.HTTPException: If the answer is no HTTP, or shorter than it says.
    """
    kind = _Https if place.scheme == "https" else _Http
    connection = kind(str(place.hostname), _port(place), timeout=max(1e-3, end_s - time.monotonic()))
    connection.end_s = end_s
    path = place.path or "/"
    try:
        connection.request("GET", f"{path}?{place.query}" if place.query else path, headers={"Connection": "close"})
        with connection.getresponse() as answer:
            moved = answer.getheader("Location") if answer.status in _MOVED else None
            if moved is not None:
                return moved, b""
            if answer.status != 200:
                raise http.client.HTTPException(f"{answer.status} {answer.reason}")
            body = answer.read(MAX_SCRAPE_BYTES + 1)
            if answer.length and len(body) <= MAX_SCRAPE_BYTES:
                raise http.client.IncompleteRead(b"", answer.length)
            return None, body
    finally:
        connection.close()


def _whole(url: str, body: bytes) -> str:
    if len(body) > MAX_SCRAPE_BYTES:
        rule = f"answered more than {MAX_SCRAPE_BYTES} bytes"
        raise CounterError(problem("url", url, rule, "Point it at dcgm-exporter alone"))
    if body and not body.endswith(b"\n"):
        # The format asks for it; without it 301.5 W that were cut after two digits would read as 30 W.
        rule = "answered text whose last line does not end: it may be cut off"
        raise CounterError(problem("url", url, rule, "Scrape again, or correct the exporter"))
    return body.decode("utf-8", errors="replace")


class _InTime(io.RawIOBase):
    """Bytes of a socket until a moment; every read has only the time that is left."""

    def __init__(self, sock: socket.socket, end_s: float) -> None:
        super().__init__()
        self._sock = sock
        self._end_s = end_s
        self._raw = sock.makefile("rb", buffering=0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left_s = self._end_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        self._sock.settimeout(left_s)
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Socket:
    """A connected socket whose file is read in time."""

    def __init__(self, sock: socket.socket, end_s: float) -> None:
        self._sock = sock
        self._end_s = end_s

    def makefile(self, mode: str, *_: Any) -> io.BufferedReader:
        return io.BufferedReader(_InTime(self._sock, self._end_s))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)


class _Http(http.client.HTTPConnection):
    end_s = math.inf

    def connect(self) -> None:
        super().connect()
        self.sock: Any = _Socket(self.sock, self.end_s)


class _Https(http.client.HTTPSConnection):
    end_s = math.inf

    def connect(self) -> None:
        super().connect()
        self.sock: Any = _Socket(self.sock, self.end_s)


# ------ GPU counters scraped from dcgm-exporter (or any Prometheus endpoint that serves DCGM field names)

# Field: (our name, unit, scale, running total)
DCGM_FIELDS: Mapping[str, tuple[str, str, float, bool]] = MappingProxyType(
    {
        "DCGM_FI_DEV_POWER_USAGE": ("power_w", "W", 1.0, False),
        "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": ("energy_j", "J", 1e-3, True),
        "DCGM_FI_DEV_GPU_UTIL": ("utilisation", "ratio", 1e-2, False),
        "DCGM_FI_PROF_GR_ENGINE_ACTIVE": ("graphics_active", "ratio", 1.0, False),
        "DCGM_FI_PROF_SM_ACTIVE": ("sm_active", "ratio", 1.0, False),
        "DCGM_FI_PROF_SM_OCCUPANCY": ("sm_occupancy", "ratio", 1.0, False),
        "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": ("tensor_active", "ratio", 1.0, False),
        "DCGM_FI_PROF_DRAM_ACTIVE": ("dram_active", "ratio", 1.0, False),
        "DCGM_FI_PROF_PIPE_FP64_ACTIVE": ("fp64_active", "ratio", 1.0, False),
        "DCGM_FI_PROF_PIPE_FP32_ACTIVE": ("fp32_active", "ratio", 1.0, False),
        "DCGM_FI_PROF_PIPE_FP16_ACTIVE": ("fp16_active", "ratio", 1.0, False),
        "DCGM_FI_PROF_PCIE_TX_BYTES": ("pcie_tx_bytes_per_s", "bytes/s", 1.0, False),
        "DCGM_FI_PROF_PCIE_RX_BYTES": ("pcie_rx_bytes_per_s", "bytes/s", 1.0, False),
        "DCGM_FI_PROF_NVLINK_TX_BYTES": ("nvlink_tx_bytes_per_s", "bytes/s", 1.0, False),
        "DCGM_FI_PROF_NVLINK_RX_BYTES": ("nvlink_rx_bytes_per_s", "bytes/s", 1.0, False),
    }
)


class DcgmSource:
    """Per GPU (``gpu0/``) or MIG instance (``gpu0/mig7/``): power, energy, utilisation, pipes, traffic.

    dcgm-exporter repeats a GPU's line once per pod when pods share it by time slicing. The repeats carry the
    same number and are read once, never added; where they disagree the counter is unavailable and says so.
    """

    def __init__(
        self,
        url: str | None = None,
        fetch: Callable[[], str] | None = None,
        timeout_s: float = 5.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Choose where the text comes from.

        Args:
            url: Address of the exporter.
            fetch: Returns the text; instead of ``url``.
            timeout_s: Give up on the address after this long, whatever has arrived by then.
            clock: Gives the Unix time of a reading.
        """
        if (url is None) == (fetch is None):
            raise CounterError(problem("url", url, "give either url or fetch", "Pass exactly one of the two"))
        self._name = url or "scrape"
        self._fetch = fetch if fetch is not None else (lambda: fetch_http(str(url), timeout_s))
        self._clock = clock
        self._start: dict[str, float] = {}

    def read(self) -> Reading:
        """Scrape once."""
        groups: dict[tuple[str, str], list[Sample]] = {}
        for sample in parse_prometheus(self._fetch(), self._name):
            if sample.name in DCGM_FIELDS:
                groups.setdefault((self._device(sample), sample.name), []).append(sample)
        if not groups:
            raise CounterError(
                problem(self._name, "no DCGM_FI_ line", "serves no DCGM field", "Check the exporter's field list")
            )
        out = ReadingBuilder()
        for (device, field), samples in sorted(groups.items()):
            self._add(out, device, field, samples)
        return out.build(self._clock())

    def _device(self, sample: Sample) -> str:
        gpu = sample.labels.get("gpu")
        if gpu is None:
            raise CounterError(
                problem(
                    f"{self._name} line {sample.line}",
                    sample.name,
                    "a DCGM line needs the label gpu",
                    "Scrape dcgm-exporter itself, not an aggregate of it",
                )
            )
        instance = sample.labels.get("GPU_I_ID", "")
        for label, value in (("gpu", gpu), ("GPU_I_ID", instance)):
            if value:
                check_name(f"{self._name} line {sample.line}: label {label}", value, CounterError)
        return f"gpu{gpu}/mig{instance}/" if instance else f"gpu{gpu}/"

    def _add(self, out: ReadingBuilder, device: str, field: str, samples: list[Sample]) -> None:
        short, unit, scale, running = DCGM_FIELDS[field]
        name = device + short
        values = {s.value for s in samples}
        value = samples[0].value * scale
        if len(values) > 1 and not all(math.isnan(v) for v in values):
            reason = f"{len(samples)} lines of {field} disagree for one device"
            out.missing(name, unit, reason, cumulative=running)
        elif not math.isfinite(value):
            out.missing(name, unit, f"the exporter answered {samples[0].value}", cumulative=running)
        elif not running:
            out.add(name, value, unit)
        elif value < self._start.setdefault(name, value):
            out.missing(name, unit, "the counter fell: the driver was reloaded", cumulative=True)
        else:
            out.add(name, value - self._start[name], unit, cumulative=True)
