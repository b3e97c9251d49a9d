"""``attribution-sched serve``: what it refuses, and a server that is really started and ended."""

import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request

import pytest

from attribution_sched import System
from attribution_sched.cli.serve import check, listening, own
from attribution_sched.errors import SettingsError
from tests.small_world import small


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "localhost", "::1", "[::1]"])
def test_an_address_of_this_machine_needs_no_token(host):
    assert own(host)
    check(host, 7412, None)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.4", "box.example", ""])
def test_any_other_does(host):
    with pytest.raises(SettingsError, match="Give --token too"):
        check(host, 7412, None)
    check(host, 7412, "sixteen-characters")


@pytest.mark.parametrize("token", ["", "short", "sechzehn Zeichen ä", "tab\tis not printable"])
def test_a_weak_token_is_refused_and_not_printed(token):
    with pytest.raises(SettingsError) as refused:
        check("127.0.0.1", 7412, token)
    assert not token or token not in str(refused.value)


def test_a_port_that_is_taken_is_said_so():
    with listening("127.0.0.1", 0) as first, pytest.raises(SettingsError, match="Choose another --port"):
        listening("127.0.0.1", first.getsockname()[1])
    with pytest.raises(SettingsError, match="0 to 65535"):
        check("127.0.0.1", 70000, None)


def test_it_serves_until_it_is_interrupted(tmp_path):
    path = tmp_path / "j.sqlite"
    with System(small(), "sjf", journal=path) as system:
        system.schedule_next_task()
    command = [sys.executable, "-m", "attribution_sched.cli", "serve", str(path), "--port", "0"]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        address = re.search(r"http://127\.0\.0\.1:\d+/", server.stderr.readline())[0]
        with urllib.request.urlopen(address, timeout=30) as answer:
            assert answer.status == 200 and b"<!DOCTYPE html>" in answer.read()
        server.send_signal(signal.SIGINT)
        server.communicate(timeout=30)
    finally:
        server.kill()
        server.communicate()


def status(address, **headers):
    try:
        with urllib.request.urlopen(urllib.request.Request(address, headers=headers), timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode()


def test_where_others_can_ask_every_reader_shows_the_token_and_nobody_is_told_it(tmp_path):
    """A real server that listens on all addresses, asked over loopback: missing, wrong and right."""
    token, path = "s3cret-" + os.urandom(9).hex(), tmp_path / "j.sqlite"
    with System(small(), "sjf", journal=path) as system:
        system.schedule_next_task()
    command = [sys.executable, "-m", "attribution_sched.cli", "serve", str(path), "--port", "0", "--host", "0.0.0.0"]
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert refused.returncode == 2 and "Give --token too" in refused.stderr
    given = {**os.environ, "ATTRIBUTION_SCHED_TOKEN": token}
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=given)
    said = []
    try:
        said.append(server.stderr.readline())
        address = "http://127.0.0.1:" + re.search(r"0\.0\.0\.0:(\d+)/", said[0])[1]
        answers = [
            status(address),
            status(f"{address}/api/view"),
            status(f"{address}/metrics"),
            status(f"{address}/?token=wrong-but-long-enough"),
            status(address, Authorization="Bearer wrong-but-long-enough"),
            status(address, Authorization="Basic " + token),
            status(address, Cookie="attribution_sched_token=wrong"),
            status(f"{address}/api/status", Authorization=f"Bearer {token}"),
            status(f"{address}/?lang=en", Cookie=f"attribution_sched_token={token}"),
            # In the address once: it becomes a cookie, and is not in where one is sent.
            status(f"{address}/metrics?token={token}"),
        ]
        assert [code for code, _ in answers] == [401] * 7 + [200, 200, 401]
        server.send_signal(signal.SIGINT)
        said += server.communicate(timeout=30)
    finally:
        server.kill()
        server.communicate()
    assert all(token not in text for text in [*said, refused.stderr, *(text for _, text in answers)])


def test_a_missing_journal_is_one_clear_line(tmp_path):
    command = [sys.executable, "-m", "attribution_sched.cli", "serve", str(tmp_path / "no.sqlite")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode in (1, 2) and "no.sqlite" in done.stderr and "Traceback" not in done.stderr
