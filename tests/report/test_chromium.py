"""The page in a real browser: no error, pictures painted, nothing wider than the screen, whole on paper."""

import base64
import io
import json
import re
import shutil
import subprocess
import zlib

import pytest
from PIL import Image, ImageStat

from attribution_sched.report.build import document
from attribution_sched.report.html import to_html
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
  const told = {width: innerWidth, scroll: document.documentElement.scrollWidth, images: [], wide: [], cut: []};
  for (const picture of document.querySelectorAll("figure svg")) {
    const box = picture.getBoundingClientRect();
    if (!box.width) continue;
    const out = [];
    for (const text of picture.querySelectorAll("text")) {
      const line = text.getBoundingClientRect();
      const cut = line.left < box.left - 1 || line.right > box.right + 1 || line.bottom > box.bottom + 1;
      if (cut) out.push(text.textContent);
    }
    told.images.push([picture.getAttribute("class"), Math.round(box.width), Math.round(box.height), out]);
  }
  for (const element of document.querySelectorAll("main *")) {
    const box = element.getBoundingClientRect();
    if (!element.closest(".scroll, pre, details, svg") && box.right > innerWidth + 1) told.wide.push(element.tagName);
  }
  for (const table of document.querySelectorAll(".scroll")) {
    if (table.clientWidth && table.scrollWidth > table.clientWidth + 1) told.cut.push(table.closest("section").id);
  }
  for (const table of document.querySelectorAll("details .scroll")) table.closest("details").open = true;
  const head = ["main p", "main .tiles", "#course .paper"].map(name => document.querySelector(name));
  told.headline = head.map(each => each ? Math.round(each.getBoundingClientRect().bottom) : null);
  for (const name of ["main", "nav"]) {
    const box = document.querySelector(name).getBoundingClientRect();
    told[name] = {left: box.left, right: box.right, top: box.top, bottom: box.bottom};
  }
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


def marks(found):
    """A picture emptied, with a few pixels across its first and its last line."""
    wide, high = found[2].split()[2:]
    held = io.BytesIO()
    Image.new("RGB", (2, 2), "red").save(held, format="png")
    data = base64.b64encode(held.getvalue()).decode()
    ends = (
        f'<image width="{wide}" height="2" y="{y}" href="data:image/png;base64,{data}"/>' for y in (0, float(high) - 2)
    )
    return f"{found[1]}{''.join(ends)}</svg>"


def run(folder, *given, page):
    """Start the browser on a page; what it wrote to its two outputs."""
    command = [BROWSER, *FLAGS, f"--user-data-dir={folder / 'profile'}", *given, page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout, done.stderr


@pytest.fixture(
    scope="module", params=[("learnt", "en"), ("learnt", "zh"), ("alone", "zh"), ("empty", "en")], ids="-".join
)
def page(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    text = to_html(document(report(request.param[0]), request.param[1]))
    path = folder / "report.html"
    path.write_text(text, encoding="utf-8")
    probed = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", text).replace("</body>", f"{PROBE}</body>")
    (folder / "probed.html").write_text(probed, encoding="utf-8")
    # For paper: pictures of the same size with nothing in them but a mark at the top and one at the bottom.
    marked = re.sub(r'(<svg class="wide" viewBox="([^"]+)"[^>]*>).*?</svg>', marks, text, flags=re.DOTALL)
    (folder / "marked.html").write_text(marked, encoding="utf-8")
    return folder, path, len(re.findall('<svg class="wide"', text))


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
    assert told["cut"] == []
    assert len(told["images"]) == pictures
    for kind, wide, high, outside in told["images"]:
        assert kind == ("wide" if width == 1280 else "narrow")
        assert outside == []
        assert 250 < wide <= width
        assert high > 100


@pytest.mark.parametrize("width", [1280, 390])
def test_verdict_three_numbers_and_the_cluster_are_seen_without_scrolling(page, width):
    folder, path, _ = page
    if 'id="course"' not in path.read_text("utf-8"):
        pytest.skip("no time passed on this cluster, so there is nothing to draw")
    frame = folder / f"headline{width}.html"
    frame.write_text(FRAME.format(page="probed.html", width=width, height=900), encoding="utf-8")
    out, _ = run(
        folder, "--virtual-time-budget=20000", f"--window-size={max(width, 600)},900", "--dump-dom", page=frame
    )
    told = json.loads(re.search(r'<pre id="told">(.*?)</pre>', out, re.DOTALL)[1])
    verdict, numbers, picture = told["headline"]
    assert 0 < verdict < numbers < picture <= 900
    # Contents stand beside the text where there is room, and behind it where there is none.
    assert (
        told["nav"]["right"] <= told["main"]["left"] if width == 1280 else told["nav"]["top"] >= told["main"]["bottom"]
    )


def test_the_page_itself_shows_something(page):
    folder, path, _ = page
    shot = folder / "shot.png"
    _, log = run(folder, "--window-size=1280,1600", f"--screenshot={shot}", page=path)
    assert ":CONSOLE" not in log, log
    image = Image.open(shot).convert("L")
    assert image.size == (1280, 1600)
    assert ImageStat.Stat(image).stddev[0] > 5


def test_on_paper_no_figure_is_cut(page):
    folder, _, pictures = page
    pdf = folder / "report.pdf"
    # Marks are decoded after loading: a busy machine would print before they are there.
    run(
        folder,
        "--no-pdf-header-footer",
        "--virtual-time-budget=20000",
        f"--print-to-pdf={pdf}",
        page=folder / "marked.html",
    )
    data = pdf.read_bytes()
    streams = re.findall(rb"stream\r?\n(.*?)\r?\nendstream", data, re.DOTALL)
    found = [len(re.findall(rb"/X\d+ Do", text)) for text in map(inflated, streams) if text]
    assert sum(found) == 2 * pictures
    # A picture that is broken over two pages has one of its marks on each.
    assert all(on_page % 2 == 0 for on_page in found)
    assert len(re.findall(rb"/Type\s*/Page\b", data)) >= 1


def inflated(stream):
    """A stream of a PDF as text; nothing if it is not deflated."""
    try:
        return zlib.decompress(stream)
    except zlib.error:
        return b""
