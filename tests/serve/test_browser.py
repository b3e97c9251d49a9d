"""The page in a real browser: Debian's Chromium, headless. Where there is none, these tests skip and say so."""

import re
import shutil
import socket
import subprocess
import threading
import time

import matplotlib.image
import pytest
import uvicorn

from attribution_sched.serve.app import make_app
from tests.serve.conftest import Inline
from tests.serve.test_app import Told, hostile

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here; on Debian: apt-get install chromium"),
]


@pytest.fixture
def served():
    """Serve an application on a free port; its address."""
    running = []

    def start(app):
        listener = socket.create_server(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(app, log_level="error"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        running.append((server, thread))
        while not server.started:
            time.sleep(0.01)
        return f"http://127.0.0.1:{listener.getsockname()[1]}"

    yield start
    for server, thread in running:
        server.should_exit = True
        thread.join(20)


def browse(folder, *options):
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}/profile",
               "--enable-logging=stderr", "--log-level=0", *options]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-500:]
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


def test_it_runs_its_script_without_a_complaint_of_the_policy(written, served, tmp_path):
    address = served(make_app(Inline(written), written))
    page, complaints = browse(tmp_path, "--virtual-time-budget=3000", "--dump-dom", f"{address}/?lang=en")
    assert complaints == []
    # Without the script the button stays hidden.
    assert re.search(r'<button type="button" id="pause" aria-pressed="false">', page)
    assert "by-hand" in page and "<svg" in page


def test_hostile_names_do_nothing(written, served, tmp_path):
    address = served(make_app(Told(hostile(Inline(written).view)), written))
    page, complaints = browse(tmp_path, "--virtual-time-budget=3000", "--dump-dom", f"{address}/?lang=zh")
    assert complaints == [] and "<img" not in page


class Growing(Told):
    """A source whose version grows whenever it is asked for."""

    asked_for = 0

    @property
    def version(self):
        Growing.asked_for += 1
        return Growing.asked_for


def test_the_page_renews_itself(written, served, tmp_path):
    address = served(make_app(Growing(Inline(written).view), written))
    page, _ = browse(tmp_path, "--virtual-time-budget=7000", "--dump-dom", f"{address}/?lang=en")
    assert 'class="renewed"' in page


@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_is_wider_than_the_window(written, served, tmp_path, width):
    address = served(make_app(Inline(written), written))
    shot = tmp_path / "shot.png"
    browse(tmp_path, f"--window-size={width},1400", "--hide-scrollbars", f"--screenshot={shot}", f"{address}/?lang=en")
    assert shot.stat().st_size > 20_000
    picture = matplotlib.image.imread(shot)
    assert picture.shape[1] == width
    # At the right edge nothing is cut off: the margin of the page is one colour.
    edge = picture[200:1300, -6:, :3]
    assert float(edge.std(axis=(0, 1)).max()) < 0.02
