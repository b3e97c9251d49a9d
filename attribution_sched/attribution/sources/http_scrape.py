"""A scrape over HTTP from a server that may be slow, broken or hostile.

One deadline holds for everything: connecting, headers and body, however small the pieces in which they come. An answer
that is cut off is refused, because a scrape without its last lines is a machine without its last GPUs. Proxies of the
environment are not used: exporters are neighbours.
"""

from __future__ import annotations

import http.client
import io
import math
import socket
import time
from typing import Any
from urllib.parse import SplitResult, urljoin, urlsplit

from attribution_sched.errors import CounterError, problem

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
