"""A server that is slow, broken or hostile: one clear error, in time."""

import contextlib
import socket
import threading
import time

import pytest

from attribution_sched.attribution.sources import dcgm
from attribution_sched.attribution.sources.dcgm import fetch_http
from attribution_sched.errors import CounterError

TIMEOUT_S = 0.6
BODY = b'DCGM_FI_DEV_POWER_USAGE{gpu="0"} 301.5\n'


@contextlib.contextmanager
def server(behave):
    """A server on this machine that answers every connection by ``behave(socket)``."""
    ended = threading.Event()

    def serve():
        while not ended.is_set():
            try:
                connected, _ = listening.accept()
            except OSError:
                return
            with connected, contextlib.suppress(OSError):
                connected.recv(65536)
                behave(connected)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/metrics"
        ended.set()
        listening.shutdown(socket.SHUT_RDWR)
    thread.join(5)


def saying(*pieces, pause_s=0.0):
    def behave(connected):
        for piece in pieces:
            connected.sendall(piece)
            time.sleep(pause_s)

    return behave


def answer(body=BODY, head=b"HTTP/1.1 200 OK", length=None):
    given = str(len(body) if length is None else length).encode()
    return head + b"\r\nContent-Length: " + given + b"\r\n\r\n" + body


def drops(text):
    return [bytes([each]) for each in text]


def test_a_whole_answer_is_read():
    with server(saying(answer())) as url:
        assert fetch_http(url, TIMEOUT_S) == BODY.decode()
    chunks = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY)
    with server(saying(chunks)) as url:
        assert fetch_http(url, TIMEOUT_S) == BODY.decode()
    with server(saying(*drops(answer()), pause_s=0.001)) as url:
        assert fetch_http(url, 5.0) == BODY.decode()


@pytest.mark.parametrize(
    "pieces",
    [
        drops(b"HTTP/1.1 200 OK\r\n" + b"X-A: b\r\n" * 1000),
        drops(answer(BODY * 100)),
        drops(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\na\r\n" * 1000),
        [b"HTTP/1.1 200 OK\r\n", *[b""] * 100],
    ],
    ids=["slow headers", "slow body", "slow chunks", "silence"],
)
def test_the_deadline_is_for_the_whole_answer(pieces):
    """A byte every 50 ms never exceeds the time of one read."""
    with server(saying(*pieces, pause_s=0.05)) as url:
        began = time.monotonic()
        with pytest.raises(CounterError, match=r"did not answer whole within 0\.6 s"):
            fetch_http(url, TIMEOUT_S)
        assert time.monotonic() - began < TIMEOUT_S + 1.0


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (b"nonsense\r\n\r\n", "could not be read: nonsense"),
        (b"", "could not be read"),
        (b"HTTP/1.1 abc OK\r\n\r\n", "could not be read"),
        (b"HTTP/1.1 99999 OK\r\n\r\n", "could not be read"),
        (b"HTTP/1.1 " + b"2" * 70_000 + b"\r\n", "could not be read"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"a" * 70_000 + b"\r\n\r\n", "could not be read"),
        (b"HTTP/1.1 200 OK\r\n" + b"X: a\r\n" * 200 + b"\r\n", "could not be read"),
        (answer(length=len(BODY) + 7), "could not be read: IncompleteRead"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\nshort", "could not be read: IncompleteRead"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "could not be read"),
        (answer(BODY[:-4]), "it may be cut off"),
        (b"HTTP/1.0 200 OK\r\n\r\n" + BODY[:-2], "it may be cut off"),
        (answer(head=b"HTTP/1.1 404 Not Found"), "404 Not Found"),
        (answer(head=b"HTTP/1.1 500 \x1b[2Jx"), "500 [2Jx"),
        (answer(head=b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.2:1/metrics"), "leads to another host"),
        (answer(head=b"HTTP/1.1 302 Found\r\nLocation: //elsewhere.example/"), "leads to another host"),
        (answer(head=b"HTTP/1.1 302 Found\r\nLocation: https:///x"), "only http and https"),
        (answer(head=b"HTTP/1.1 302 Found\r\nLocation: file:///etc/hostname"), "only http and https"),
        (answer(head=b"HTTP/1.1 302 Found\r\nLocation: http://[::1/"), "url ="),
        (answer(head=b"HTTP/1.1 302 Found\r\nLocation: /metrics"), "leads on more than 3 times"),
        (answer(head=b"HTTP/1.1 302 Found\r\nLocation: /a b\x01"), "could not be read"),
    ],
)
def test_a_broken_answer_is_one_error(said, words):
    with server(saying(said)) as url:
        began = time.monotonic()
        with pytest.raises(CounterError) as caught:
            fetch_http(url, 5.0)
        assert time.monotonic() - began < 2.0
    told = str(caught.value)
    assert words in told
    assert "\x1b" not in told
    assert len(told) < 1000


def test_a_redirect_on_the_same_host_is_followed():
    answers = iter([answer(head=b"HTTP/1.1 301 Moved\r\nLocation: ../other"), answer()])
    with server(lambda connected: connected.sendall(next(answers))) as url:
        assert fetch_http(url, 5.0) == BODY.decode()


def test_an_answer_without_end_is_refused(monkeypatch):
    monkeypatch.setattr(dcgm, "MAX_SCRAPE_BYTES", 10_000)
    with server(saying(b"HTTP/1.1 200 OK\r\n\r\n", *[BODY] * 1000)) as url, pytest.raises(CounterError) as caught:
        fetch_http(url, 5.0)
    assert "more than 10000 bytes" in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "", "metrics", "http://", "http:///x", "file:///etc/hostname", "ftp://host/", "http://[::1", "http://host:port/",
        "http://host:99999/", "http://a b/", "http://127.0.0.1:9/a b", "http://127.0.0.1:9/\x00", "http://\ud800/",
        "http://" + "a" * 300 + "/", "http://127.0.0.1:9/" + "a" * 100_000, 7, None, b"http://127.0.0.1:9/",
    ],
)  # fmt: skip
def test_an_address_that_is_none_is_one_error(url):
    with pytest.raises(CounterError, match=r"url = ") as caught:
        fetch_http(url, 0.5)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("timeout_s", [0, -1, float("nan"), float("inf"), 1e308, "5", None])
def test_a_timeout_is_a_number_of_seconds(timeout_s):
    with pytest.raises(CounterError, match=r"timeout_s = "):
        fetch_http("http://127.0.0.1:9/", timeout_s)
