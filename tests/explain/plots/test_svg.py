"""Text stays text: no font is needed, nothing is cut off, nothing a name says can leave its place."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import matplotlib
import pytest

from attribution_sched.explain import plots
from attribution_sched.explain.plots import style
from attribution_sched.explain.plots.svg import drawable, to_svg
from tests.explain.plots.fonts import bare_machine
from tests.explain.plots.gallery import GALLERY

HOSTILE = "a\"><script>alert('x')</script>&'--]]>"


def texts(markup: str) -> list[str]:
    return ["".join(element.itertext()) for element in ElementTree.fromstring(markup).iter("text")]


@pytest.mark.parametrize("inches", [6.6, 3.7])
@pytest.mark.parametrize("name", [name for name in GALLERY if "long" not in name])
@pytest.mark.usefixtures("no_chinese_font")
def test_chinese_is_written_without_any_chinese_font(name, inches):
    before = dict(matplotlib.rcParams)
    made = to_svg(lambda: GALLERY[name](lang="zh"), inches, "fig")
    assert re.search(r"[\u4e00-\u9fff]", " ".join(texts(made.markup)))
    assert "□" not in made.markup
    assert dict(matplotlib.rcParams) == before


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("name", GALLERY)
def test_no_line_leaves_the_picture(name, lang):
    made = to_svg(lambda: GALLERY[name](lang=lang), 3.7, "fig")
    root = ElementTree.fromstring(made.markup)
    wide, high = (float(size) for size in root.get("viewBox").split()[2:])
    for text in root.iter("text"):
        turned = re.search(r"rotate\((-?[\d.]+)", text.get("transform", ""))
        if text.get("x") is None or " " in text.get("x") or (turned and float(turned[1])):
            continue
        size = float(re.search(r"font-size:\s*([\d.]+)px", text.get("style"))[1])
        # DejaVu's letters are at most this wide on average; those of other fonts are narrower.
        long = sum(size if ord(letter) > 0x2E80 else 0.52 * size for letter in text.text or "")
        at = {"start": 0.0, "middle": 0.5, "end": 1.0}[re.search(r"text-anchor:\s*(\w+)", text.get("style"))[1]]
        left = float(text.get("x")) - at * long
        assert left > -0.15 * long and left + long < wide + 0.15 * long, text.text
        assert 0.0 < float(text.get("y")) < high + 1.0


def test_lines_of_one_label_end_at_the_same_place():
    made = to_svg(lambda: GALLERY["waterfall"](), 6.6, "fig")
    found = list(ElementTree.fromstring(made.markup).iter("text"))
    name = next(text for text in found if "us-east–eu-west" in (text.text or ""))
    reading = next(text for text in found if (text.text or "").startswith("9.1"))
    assert "text-anchor: end" in name.get("style")
    assert "text-anchor: end" in reading.get("style")
    assert float(reading.get("x")) == pytest.approx(float(name.get("x")), abs=0.6)


def test_no_script_no_address_no_font_and_only_own_ids():
    made = to_svg(lambda: GALLERY["components"](), 6.6, "one", label=HOSTILE, kind="wide")
    root = ElementTree.fromstring(made.markup)
    assert {element.tag for element in root.iter()} <= {
        "svg", "g", "path", "defs", "use", "text", "tspan", "clipPath", "rect", "image", "pattern", "linearGradient",
    }  # fmt: skip
    assert not re.search(r"https?:|font-family|<style|<script|\son\w+=", made.markup)
    assert root.get("aria-label") == HOSTILE
    ids = [element.get("id") for element in root.iter() if element.get("id")]
    assert ids and len(set(ids)) == len(ids)
    assert all(one.startswith("one-") for one in ids)
    pointed = re.findall(r"url\(#([^)]+)\)", made.markup) + re.findall(r'href="#([^"]+)"', made.markup)
    assert set(pointed) == set(ids)
    other = to_svg(lambda: GALLERY["components"](), 6.6, "two")
    assert not set(ids) & set(re.findall(r'id="([^"]+)"', other.markup))


def test_hostile_names_are_text():
    made = to_svg(lambda: plots.contenders({HOSTILE: [1.0]}, [HOSTILE], title=HOSTILE), 6.6, "fig")
    assert "<script" not in made.markup
    assert texts(made.markup).count(HOSTILE) >= 2


def test_the_same_figure_is_the_same_bytes_with_and_without_fonts(monkeypatch):
    def made():
        return to_svg(lambda: GALLERY["waterfall"](lang="zh"), 6.6, "fig")

    with bare_machine(monkeypatch):
        bare = made()
    assert made() == bare
    monkeypatch.setattr(style, "chinese_font", lambda: "Last Resort High-Efficiency")
    assert made() == bare


def test_missing_glyphs_are_measured_by_others_as_wide():
    assert drawable("plain", lambda _: True) == "plain"
    assert drawable("内存ab", lambda letter: letter in "内存") == "——ab"
    assert drawable("ab\u0e01", lambda letter: letter == "\u0e01") == "abn"
