"""Thirty seconds that fill a preset: what a link carries one way and both ways at once, what a layer takes.

A link is probed between two machines: one listens, the other asks. Messages have the size of a microbatch's
activations. Stages are probed by running the children of a torch module one by one, forward and backward.
"""

from __future__ import annotations

import contextlib
import socket
import statistics
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from attribution_sched.cluster.rendezvous import LinkProfile
from attribution_sched.errors import NetworkError, SettingsError, problem

MESSAGE_BYTES = 262_144
"""Of one message: a microbatch of four sequences of 64 tokens, 256 wide, in 32 bits."""

CHUNK = bytes(65_536)
ONE_WAY, BOTH_WAYS, PING, END = range(4)
_HEAD = struct.Struct("!BQ")
WAIT_S = 60.0


def serve_probes(listener: socket.socket, *, once: bool = False) -> None:
    """Answer probes of links until the socket is closed.

    Args:
        listener: A listening socket.
        once: End after the first who asks.
    """
    while True:
        try:
            peer, _ = listener.accept()
        except OSError:
            return
        with peer, contextlib.suppress(OSError, struct.error):
            _answer(peer)
        if once:
            return


def _answer(peer: socket.socket) -> None:
    peer.settimeout(WAIT_S)
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while True:
        kind, size = _HEAD.unpack(_read(peer, _HEAD.size))
        if kind == END:
            return
        if kind == PING:
            peer.sendall(b"p")
            continue
        back = threading.Thread(target=_write, args=(peer, size), daemon=True) if kind == BOTH_WAYS else None
        if back is not None:
            back.start()
        _drop(peer, size)
        if back is not None:
            back.join()
        peer.sendall(b"d")


def probe_link(host: str, port: int, *, seconds: float = 8.0, message_bytes: int = MESSAGE_BYTES) -> LinkProfile:
    """Measure a link to a machine that answers with :func:`serve_probes`.

    Args:
        host: Its name or address.
        port: Where it listens.
        seconds: About how long each of the two ways is measured.
        message_bytes: Size of a message.

    Raises:
        NetworkError: If nobody answers there, or the link breaks.
    """
    try:
        with socket.create_connection((host, port), timeout=WAIT_S) as peer:
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            pings = [_timed(lambda: _ask(peer, PING, 0)) for _ in range(20)]
            one_way = _rate(peer, ONE_WAY, seconds, message_bytes)
            both = _rate(peer, BOTH_WAYS, seconds, message_bytes)
            peer.sendall(_HEAD.pack(END, 0))
    except OSError as error:
        rule = f"does not answer ({error})"
        fix = "Start `attribution-sched profile links --listen` on the other machine, and see whether its port is open"
        raise NetworkError(problem("link", f"{host}:{port}", rule, fix)) from error
    # What a busy machine adds may make two ways look quicker than one.
    return LinkProfile(one_way, min(one_way, both), 0.5 * min(pings))


def _rate(peer: socket.socket, kind: int, seconds: float, message_bytes: int) -> float:
    """Bytes per second of each direction; the median over messages."""
    rates: list[float] = []
    until = time.perf_counter() + seconds
    while len(rates) < 3 or time.perf_counter() < until:
        rates.append(message_bytes / _timed(lambda: _ask(peer, kind, message_bytes)))
    return statistics.median(rates)


def _ask(peer: socket.socket, kind: int, size: int) -> None:
    peer.sendall(_HEAD.pack(kind, size))
    if kind == PING:
        _read(peer, 1)
        return
    sender = threading.Thread(target=_write, args=(peer, size), daemon=True)
    sender.start()
    if kind == BOTH_WAYS:
        _drop(peer, size)
    sender.join()
    _read(peer, 1)


def _timed(work: Callable[[], None]) -> float:
    began = time.perf_counter()
    work()
    return max(1e-9, time.perf_counter() - began)


def _write(peer: socket.socket, size: int) -> None:
    with contextlib.suppress(OSError):
        while size > 0:
            size -= peer.send(CHUNK[: min(size, len(CHUNK))])


def _read(peer: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = peer.recv(size - len(data))
        if not part:
            raise ConnectionError("the other side ended")
        data += part
    return data


def _drop(peer: socket.socket, size: int) -> None:
    while size > 0:
        part = peer.recv(min(size, 1 << 16))
        if not part:
            raise ConnectionError("the other side ended")
        size -= len(part)


@contextlib.contextmanager
def listening(host: str = "127.0.0.1", port: int = 0) -> Iterator[tuple[socket.socket, int]]:
    """A socket on which probes are answered, and its port.

    Raises:
        NetworkError: If the port cannot be had.
    """
    try:
        listener = socket.create_server((host, port))
    except OSError as error:
        rule = f"cannot be listened on ({error.strerror})"
        raise NetworkError(problem("address", f"{host}:{port}", rule, "Choose another port")) from error
    with listener:
        yield listener, int(listener.getsockname()[1])


@dataclass(frozen=True)
class LayerTimes:
    """What one child of a module takes, for one microbatch.

    Attributes:
        name: Of the child.
        forward_s: Median seconds forward.
        backward_s: Median seconds backward.
        output_bytes: Size of what it hands on.
    """

    name: str
    forward_s: float
    backward_s: float
    output_bytes: int


def probe_stages(module: Any, inputs: Any, *, repeats: int = 5) -> list[LayerTimes]:
    """Run the children of a sequential torch module one by one.

    Args:
        module: A ``torch.nn.Sequential``; each child takes what the one before gives.
        inputs: A tensor, one microbatch.
        repeats: Measured runs of each, after one that is not.

    Raises:
        SettingsError: If it is not such a module.
    """
    import torch

    if not isinstance(module, torch.nn.Sequential) or not len(module):
        rule = "must be a torch.nn.Sequential with one child or more"
        raise SettingsError(problem("module", type(module).__name__, rule, "Wrap the stages in one"))
    layer_times, activation = [], inputs
    for name, child in module.named_children():
        times = [_layer(child, activation) for _ in range(repeats + 1)][1:]
        output = child(activation).detach()
        layer_times.append(
            LayerTimes(
                name,
                statistics.median(forward for forward, _ in times),
                statistics.median(backward for _, backward in times),
                output.numel() * output.element_size(),
            )
        )
        activation = output
    return layer_times


def _layer(child: Any, inputs: Any) -> tuple[float, float]:
    leaf = inputs.detach()
    if leaf.is_floating_point():
        leaf.requires_grad_(True)
    began = time.perf_counter()
    output = child(leaf)
    between = time.perf_counter()
    if output.requires_grad:
        output.sum().backward()
    return between - began, time.perf_counter() - between
