"""One file that stands alone, in both languages, for every shape of run."""

import re
import warnings
from html.parser import HTMLParser

import pytest

from attribution_sched.report.build import document
from attribution_sched.report.html import to_html
from tests.explain.plots.fonts import bare_machine
from tests.report.runs import SYSTEMS, report

VOID = {"meta", "link", "img", "source"}


class Outline(HTMLParser):
    """Tags as they open and close, addresses, ids, pictures."""

    def __init__(self):
        super().__init__()
        self.open, self.ids, self.addresses, self.pictures, self.tags = [], [], [], [], set()

    def handle_starttag(self, tag, attributes):
        told = dict(attributes)
        self.tags.add(tag)
        if tag not in VOID:
            self.open.append(tag)
        if "id" in told:
            self.ids.append(told["id"])
        self.addresses += [told[name] for name in ("src", "srcset", "href", "action", "data") if name in told]
        if tag == "svg":
            self.pictures.append(told)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.fixture(scope="module", params=[(name, lang) for name in SYSTEMS for lang in ("en", "zh")], ids="-".join)
def page(request):
    name, lang = request.param
    made = report(name)
    # A page needs no font to be written: on no machine, in no language.
    with pytest.MonkeyPatch.context() as patch, bare_machine(patch), warnings.catch_warnings():
        warnings.simplefilter("error")
        text = to_html(document(made, lang))
    outline = Outline()
    outline.feed(text)
    return name, lang, text, outline


def test_tags_are_closed_and_ids_are_unique(page):
    outline = page[3]
    assert outline.open == []
    assert len(set(outline.ids)) == len(outline.ids)


def test_nothing_is_loaded_from_elsewhere(page):
    _, _, text, outline = page
    assert not re.search(r"https?:|//[a-z]", re.sub(r"data:image/png;base64,[^\"]+", "", text))
    assert not {"script", "foreignobject", "a"} & set(
        re.findall(r"<(\w+)", "".join(re.findall(r"<svg.*?</svg>", text)))
    )
    assert not {"script", "foreignobject", "iframe", "object"} & outline.tags
    assert text.count("<style") == 1
    assert not re.search(r"\son\w+=", re.sub(r">[^<]*<", "><", text))
    for address in outline.addresses:
        assert address.startswith(("data:", "#"))
        assert not address.startswith("#") or address[1:] in outline.ids


def test_pictures_are_text_in_the_language_of_the_page(page):
    name, lang, text, outline = page
    assert (len(outline.pictures) == 0) == (name == "empty")
    assert [told["class"] for told in outline.pictures] == ["wide", "narrow"] * (len(outline.pictures) // 2)
    for told in outline.pictures:
        assert len(told["aria-label"]) > 12
        assert int(told["width"]) > 300
    for picture in re.findall(r"<svg.*?</svg>", text, re.DOTALL):
        words = " ".join(re.findall(r"<text[^>]*>([^<]*)</text>", picture))
        assert len(words) > 20
        assert picture.count("<path") > 5
        assert bool(re.search(r"[\u4e00-\u9fff]", words)) == (lang == "zh")
        assert "□" not in words


def test_it_is_small(page):
    assert len(page[2].encode()) < 600_000


def test_every_section_is_there_in_its_language(page):
    _, lang, text, outline = page
    names = [
        "summary", "decisions", "targets", "energy", "traffic", "timeline", "drivers", "feedback", "rivals", "quality",
        "provenance", "reproduce",
    ]  # fmt: skip
    assert [name for name in outline.ids if name in names] == names
    assert f'<html lang="{"zh-CN" if lang == "zh" else "en"}">' in text
    body = re.sub(r"<(style|pre).*?</\1>", "", text, flags=re.DOTALL)
    words = re.sub(r"<[^>]*>", " ", body)
    if lang == "en":
        assert not re.search(r"[\u4e00-\u9fff]", words)
    else:
        # Names stay; a run of four plain English words is a sentence that was forgotten.
        found = re.search(r"(?:\b[a-z]{2,}\b ){4,}", words)
        assert not found, found
