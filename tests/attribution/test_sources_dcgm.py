import http.server
import threading

import pytest

from attribution_sched.attribution.sources.dcgm import DcgmSource, fetch_http
from attribution_sched.attribution.sources.reading import Provenance
from attribution_sched.errors import CounterError

SCRAPE = """# HELP DCGM_FI_DEV_POWER_USAGE Power draw (in W).
# TYPE DCGM_FI_DEV_POWER_USAGE gauge
DCGM_FI_DEV_POWER_USAGE{gpu="0",UUID="GPU-a",modelName="NVIDIA H100"} 301.5
DCGM_FI_DEV_POWER_USAGE{gpu="1",UUID="GPU-b",modelName="NVIDIA H100"} 99.5
DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{gpu="0",UUID="GPU-a"} %d
DCGM_FI_DEV_GPU_UTIL{gpu="0"} 75
DCGM_FI_PROF_DRAM_ACTIVE{gpu="0"} 0.25
DCGM_FI_PROF_PCIE_TX_BYTES{gpu="0"} 123456
DCGM_FI_PROF_GR_ENGINE_ACTIVE{gpu="0",GPU_I_PROFILE="1g.10gb",GPU_I_ID="7"} 0.5
go_goroutines 12
"""


def test_several_gpus_units_and_running_energy():
    answers = iter([SCRAPE % 1000, SCRAPE % 6000])
    source = DcgmSource(fetch=lambda: next(answers), clock=lambda: 3.0)
    assert source.read().values["gpu0/energy_j"] == 0.0
    reading = source.read()
    assert reading.values["gpu0/energy_j"] == pytest.approx(5.0)
    assert reading.values["gpu0/power_w"] == 301.5
    assert reading.values["gpu1/power_w"] == 99.5
    assert reading.values["gpu0/utilisation"] == pytest.approx(0.75)
    assert reading.values["gpu0/mig7/graphics_active"] == 0.5
    assert reading.units["gpu0/pcie_tx_bytes_per_s"] == "bytes/s"
    assert "gpu0/energy_j" in reading.cumulative
    assert "gpu0/power_w" not in reading.cumulative


def test_time_sliced_pods_are_not_added():
    text = 'DCGM_FI_DEV_POWER_USAGE{gpu="0",pod="a"} 300\nDCGM_FI_DEV_POWER_USAGE{gpu="0",pod="b"} 300\n'
    assert DcgmSource(fetch=lambda: text).read().values["gpu0/power_w"] == 300.0


def test_lines_that_disagree_are_unavailable():
    text = 'DCGM_FI_DEV_POWER_USAGE{gpu="0",pod="a"} 300\nDCGM_FI_DEV_POWER_USAGE{gpu="0",pod="b"} 1\n'
    reading = DcgmSource(fetch=lambda: text).read()
    assert reading.provenance["gpu0/power_w"] is Provenance.UNAVAILABLE
    assert "disagree" in reading.notes["gpu0/power_w"]


def test_nan_and_a_reset_are_unavailable():
    reading = DcgmSource(fetch=lambda: 'DCGM_FI_DEV_POWER_USAGE{gpu="0"} NaN').read()
    assert reading.provenance["gpu0/power_w"] is Provenance.UNAVAILABLE
    answers = iter([SCRAPE % 6000, SCRAPE % 10])
    source = DcgmSource(fetch=lambda: next(answers))
    source.read()
    assert "reloaded" in source.read().notes["gpu0/energy_j"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("DCGM_FI_DEV_POWER_USAGE 300", "needs the label gpu"),
        ("go_goroutines 12", "serves no DCGM field"),
        ("", "serves no DCGM field"),
        ('DCGM_FI_DEV_POWER_USAGE{gpu="0" 300', "line 1"),
        ('DCGM_FI_DEV_POWER_USAGE{gpu="\x1b[2J"} 300', r"label gpu = .*not U\+001B"),
        ('DCGM_FI_DEV_POWER_USAGE{gpu="0",GPU_I_ID="\u202e"} 300', r"label GPU_I_ID = .*not U\+202E"),
    ],
)
def test_bad_scrapes(text, words):
    with pytest.raises(CounterError, match=words):
        DcgmSource(fetch=lambda: text).read()


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        good = self.path == "/metrics"
        self.send_response(200 if good else 404)
        self.end_headers()
        self.wfile.write((SCRAPE % 1000).encode() if good else b"no")

    def log_message(self, *args):
        pass


@pytest.fixture
def server():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as httpd:
        thread = threading.Thread(target=httpd.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{httpd.server_address[1]}"
        httpd.shutdown()
        thread.join()


def test_over_http(server):
    assert DcgmSource(f"{server}/metrics").read().values["gpu0/power_w"] == 301.5
    with pytest.raises(CounterError, match="Not Found"):
        DcgmSource(f"{server}/elsewhere").read()


def test_addresses():
    with pytest.raises(CounterError, match="only http and https"):
        fetch_http("file:///etc/hostname")
    with pytest.raises(CounterError, match="could not be read"):
        fetch_http("http://127.0.0.1:9/metrics", timeout_s=0.5)
    with pytest.raises(CounterError, match="exactly one"):
        DcgmSource()
