"""Probes: real sockets, real layers."""

import socket
import threading
import time

import pytest

from attribution_sched.errors import NetworkError, SettingsError
from attribution_sched.executors import probes
from attribution_sched.executors.probes import listening, probe_link, probe_stages, serve_probes


def probed(**more):
    with listening() as (listener, port):
        server = threading.Thread(target=serve_probes, args=(listener,), kwargs={"once": True})
        server.start()
        found = probe_link("127.0.0.1", port, seconds=0.1, **more)
        server.join(timeout=10.0)
        assert not server.is_alive()
    return found


def test_a_link_is_measured_one_way_and_both_ways():
    found = probed()
    assert found.provenance == "measured"
    assert 1e6 < found.duplex_bytes_per_s <= found.one_way_bytes_per_s < 1e12
    assert 0.0 < found.latency_s < 1.0
    assert 0.0 < found.duplex_efficiency <= 1.0


def test_a_slow_link_is_seen_as_slow(monkeypatch):
    """A sender that takes its time stands for a shaped link."""

    def slowly(peer, size):
        while size > 0:
            time.sleep(0.01)
            size -= peer.send(probes.CHUNK[: min(size, 16_384)])

    monkeypatch.setattr(probes, "_write", slowly)
    assert probed().one_way_bytes_per_s < 16_384 / 0.01


def test_nobody_there_is_one_clear_error():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(NetworkError, match="cannot be listened on"), listening(port=port):
            pass
    with pytest.raises(NetworkError, match="does not answer"):
        probe_link("127.0.0.1", port)


def test_layers_are_measured_one_by_one():
    import torch

    wide = torch.nn.Linear(256, 256)
    module = torch.nn.Sequential(torch.nn.Linear(8, 256), torch.nn.Sequential(*[wide] * 40), torch.nn.Linear(256, 4))
    first, middle, last = probe_stages(module, torch.zeros(64, 8))
    assert middle.forward_s > first.forward_s and middle.forward_s > last.forward_s
    assert middle.backward_s > 0.0
    assert [each.output_bytes for each in (first, middle, last)] == [64 * 256 * 4, 64 * 256 * 4, 64 * 4 * 4]


def test_what_is_no_chain_of_layers_is_refused():
    import torch

    with pytest.raises(SettingsError, match="Sequential"):
        probe_stages(torch.nn.Linear(2, 2), torch.zeros(1, 2))
