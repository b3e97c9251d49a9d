"""The page in a real browser: no error, pictures painted, nothing wider than the screen, whole on paper."""

import json
import re
import shutil
import subprocess
import zlib

import pytest
from PIL import Image, ImageStat

from attribution_sched.report.html import to_html
from attribution_sched.report.telling import document
from tests.report.runs import report

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking",     "--disable-component-update", "--disable-sync",
    "--hide-scrollbars", "--allow-file-access-from-files",
    "--enable-logging=stderr", "--v=0",
)  # fmt: skip

PROBE = """
<script>
addEventListener("load", () => {
  const told = {width: innerWidth, scroll: document.documentElement.scrollWidth, images: [], wide: []};
  for (const image of document.images) {
    const canvas = document.createElement("canvas");
    canvas.width = 200; canvas.height = 200;
    const context = canvas.getContext("2d");
    context.drawImage(image, 0, 0, 200, 200);
    const colours = new Set(new Uint32Array(context.getImageData(0, 0, 200, 200).data.buffer));
    const box = image.getBoundingClientRect();
    told.images.push([image.naturalWidth, Math.round(box.width), Math.round(box.height), colours.size]);
  }
  for (const element of document.querySelectorAll("main *")) {
    const box = element.getBoundingClientRect();
    if (!element.closest(".scroll, pre, details") && box.right > innerWidth + 1) told.wide.push(element.tagName);
  }
  for (const table of document.querySelectorAll("details .scroll")) table.closest("details").open = true;
  told.opened = document.documentElement.scrollWidth;
  document.title = "done";
  parent.postMessage(JSON.stringify(told), "*");
});
</script>
"""
"""What the browser is asked to measure; only in the tests' copy of the page, which may run scripts."""

FRAME = """<!DOCTYPE html><meta charset="utf-8"><body style="margin:0">
<iframe src="{page}" style="border:0;width:{width}px;height:{height}px"></iframe><pre id="told"></pre><script>
addEventListener("message", event => {{ document.getElementById("told").textContent = event.data; }});</script>"""

pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed, so pages cannot be looked at")


def run(folder, *given, page):
    """Start the browser on a page; what it wrote to its two outputs."""
    command = [BROWSER, *FLAGS, f"--user-data-dir={folder / 'profile'}", *given, page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout, done.stderr


@pytest.fixture(scope="module", params=[("learnt", "en"), ("alone", "zh"), ("empty", "en")], ids="-".join)
def page(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    text = to_html(document(report(request.param[0]), request.param[1]))
    path = folder / "report.html"
    path.write_text(text, encoding="utf-8")
    probed = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", text).replace("</body>", f"{PROBE}</body>")
    (folder / "probed.html").write_text(probed, encoding="utf-8")
    return folder, path, len(re.findall("<img ", text))


@pytest.mark.parametrize("width", [1280, 390])
def test_it_is_painted_without_errors_and_fits(page, width):
    folder, _, pictures = page
    frame = folder / f"frame{width}.html"
    frame.write_text(FRAME.format(page="probed.html", width=width, height=900), encoding="utf-8")
    out, log = run(
        folder, "--virtual-time-budget=20000", f"--window-size={max(width, 600)},900", "--dump-dom", page=frame
    )
    assert ":CONSOLE" not in log, log
    told = json.loads(re.search(r'<pre id="told">(.*?)</pre>', out, re.DOTALL)[1])
    assert told["width"] == width
    assert told["scroll"] <= width
    assert told["opened"] <= width
    assert told["wide"] == []
    assert len(told["images"]) == pictures
    for natural, wide, high, colours in told["images"]:
        assert colours > 10
        assert natural >= 1.9 * wide or width == 1280
        assert 250 < wide <= width
        assert high > 100


def test_the_page_itself_shows_something(page):
    folder, path, _ = page
    shot = folder / "shot.png"
    _, log = run(folder, "--window-size=1280,1600", f"--screenshot={shot}", page=path)
    assert ":CONSOLE" not in log, log
    image = Image.open(shot).convert("L")
    assert image.size == (1280, 1600)
    assert ImageStat.Stat(image).stddev[0] > 5


def test_on_paper_no_figure_is_cut(page):
    folder, path, pictures = page
    pdf = folder / "report.pdf"
    run(folder, "--no-pdf-header-footer", f"--print-to-pdf={pdf}", page=path)
    data = pdf.read_bytes()
    streams = re.findall(rb"stream\r?\n(.*?)\r?\nendstream", data, re.DOTALL)
    pages = [text for text in map(inflated, streams) if text]
    # A picture that is broken over two pages is painted on both.
    assert sum(len(re.findall(rb"/X\d+ Do", text)) for text in pages) == pictures
    assert len(re.findall(rb"/Type\s*/Page\b", data)) >= 1


def inflated(stream):
    """A stream of a PDF as text; nothing if it is not deflated."""
    try:
        return zlib.decompress(stream)
    except zlib.error:
        return b""
