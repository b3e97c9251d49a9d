"""Explanations in notebooks: self-contained, escaped, telling what is certain."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
from hypothesis import given, settings

from attribution_sched.errors import ExplanationError
from attribution_sched.explain import facts
from attribution_sched.explain.findings import Confidence, Counterfactual, Rule
from attribution_sched.explain.notebook import to_html
from attribution_sched.explain.reasoning import sections
from tests.explain.factory import PLAYERS, contrast, explanation, full, log_odds, some
from tests.explain.strategies import explanations

HOSTILE = '<script>alert("x")</script>&\'<img src=http://evil>'


class Reader(HTMLParser):
    """Collects tags, attributes and text, and checks that tags close in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("make", [explanation, full, contrast, log_odds])
def test_a_fragment_stands_alone(make, lang):
    text = to_html(make(), lang)
    page = Reader(text)
    assert {tag for tag, _ in page.tags} <= {"div", "style", "p", "table", "thead", "tbody", "tr", "th", "td", "span"}
    assert not re.search(r"https?:|//|url\(|@import|<script|javascript|\son\w+=", text)
    for tag, attributes in page.tags:
        assert set(attributes) <= {"class", "style", "lang"}
        for name in (attributes.get("class") or "").split():
            assert name == "atx" or name.startswith("atx-"), tag
    assert text.startswith('<div class="atx"')


def test_rules_of_style_touch_nothing_else():
    style = re.search(r"<style>(.*?)</style>", to_html(full()), re.S)[1]
    for selectors in re.findall(r"([^{}]+)\{", style):
        assert all(selector.strip().startswith(".atx") for selector in selectors.split(","))


def test_all_that_was_found_is_there():
    words = " ".join(Reader(to_html(full())).words)
    for text in sections(full()).values():
        assert text in words
    assert "+0.203 ± 0.015" in words
    assert "0.255 → 0.511" in words
    assert "4 others" in words


def test_everything_given_is_escaped():
    players = tuple(replace(p, name=p.name + HOSTILE, value=HOSTILE, usual=HOSTILE) for p in PLAYERS)
    made = replace(
        full(),
        decision=HOSTILE, policy=HOSTILE, subject=HOSTILE, against=HOSTILE, players=players, notes=(HOSTILE,),
        background_name=HOSTILE, confidence=Confidence(0.5, HOSTILE),
        rules=(Rule(HOSTILE, HOSTILE, HOSTILE, 1.0, 2.0, "below", HOSTILE),),
        counterfactual=Counterfactual(full().counterfactual.changes, 1.0, HOSTILE, True),
    )  # fmt: skip
    for lang in ("en", "zh"):
        page = Reader(to_html(made, lang))
        assert {tag for tag, _ in page.tags} <= {
            "div",
            "style",
            "p",
            "table",
            "thead",
            "tbody",
            "tr",
            "th",
            "td",
            "span",
        }
        assert any(HOSTILE in part for part in page.words)
    outputs = some([[1.0]], [[0.1]], outputs=(HOSTILE,), target="model", weights=None)
    assert "<script" not in to_html(outputs)


@settings(deadline=None, max_examples=25)
@given(explanations())
def test_bars_show_certainty_and_side(made):
    page = Reader(to_html(made, most=20))
    bars = [a for tag, a in page.tags if tag == "span" and "atx-bar" in (a.get("class") or "")]
    order = [made.main, *(o for o in made.outputs if o != made.main)]
    rows = facts.shown(made, made.main, 20)
    assert len(bars) == len(rows) * len(order)
    at = 0
    for i in rows:
        for output in order:
            grey = "atx-grey" in bars[at]["class"]
            share = made.share(made.names[i], output)
            assert grey or bool(made.significant(output)[i])
            left, width = (float(n) for n in re.findall(r"[\d.]+", bars[at]["style"]))
            assert left >= 0 and left + width <= 100.01
            if abs(share) > 0 and width > 0.05:
                assert (left + width / 2 > 50) == (share > 0)
            at += 1


def test_cost_is_orange_where_it_rises():
    made = some(np.array([[0.2, 0.1, 0.3]]), np.full((1, 3), 1e-3))
    bars = [a["class"] for tag, a in Reader(to_html(made)).tags if "atx-bar" in (a.get("class") or "")]
    assert [("good" if "good" in tone else "bad") for tone in bars] == ["good", "good", "good", "bad"]


def test_notebooks_show_it_by_themselves():
    assert full()._repr_html_() == to_html(full())
    with pytest.raises(ExplanationError, match="lang"):
        to_html(full(), "xx")
