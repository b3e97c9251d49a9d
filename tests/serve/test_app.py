"""The application: pages and JSON over a journal, for readers only, whatever names are in it."""

import re

import pytest
from starlette.testclient import TestClient

from attribution_sched.serve.app import ENDPOINTS, HEADERS, POLICY, make_app, openapi
from attribution_sched.serve.source import Busy
from attribution_sched.words.say import say
from tests.serve.conftest import HOSTILE, Inline

TOKEN = "a token of nineteen"


class Told:
    """A source that shows what it is given."""

    version, stale = 1, ""

    def __init__(self, view=None, answer=None):
        self.view, self.answer, self.asked = view or {}, answer or {}, []

    async def start(self):
        pass

    async def stop(self):
        pass

    async def ask(self, question):
        self.asked.append(question)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def hostile(value):
    """A view with every word replaced."""
    if isinstance(value, dict):
        kept = ("result", "cluster_time_s", "recorded_at", "met")
        return {name: each if name in kept else hostile(each) for name, each in value.items()}
    if isinstance(value, list):
        return [hostile(each) for each in value]
    return HOSTILE if isinstance(value, str) else value


def test_the_page_shows_everything_in_both_languages(client):
    for lang in ("en", "zh"):
        text = client.get("/", params={"lang": lang}).text
        for name in ("queue", "gantt", "devices.title", "latest", "targets", "tenants", "ask"):
            assert say(f"serve.{name}", lang) in text
        assert "R&amp;D &lt;b&gt;" in text and "R&D <b>" not in text
        assert text.count("<svg") == 1 and "by-hand" in text
    assert 'lang="zh-CN"' in client.get("/", headers={"accept-language": "zh-CN,zh;q=0.9"}).text


def test_every_answer_has_a_strict_policy_and_no_inline_code(client):
    for path in ("/", "/part", "/api/status", "/metrics", "/static/live.js", "/nothing", "/why?task=by-hand"):
        found = client.get(path)
        assert {name: found.headers[name] for name in HEADERS} == dict(HEADERS), path
    assert "unsafe" not in POLICY and "http" not in POLICY
    text = client.get("/").text
    assert not re.search(r"<script(?! src=\"/static/)|<style|\sstyle=|\son\w+=|javascript:", text)
    assert not re.search(r"(src|href)=\"(https?:)?//", text)


def test_hostile_names_stay_words(written):
    view = hostile(Inline(written).view)
    with TestClient(make_app(Told(view), written), base_url="http://localhost") as client:
        for path in ("/", "/part", "/?lang=zh"):
            text = client.get(path).text
            assert "<img" not in text and "</script><" not in text
            assert "&lt;img" in text and "{{7*7}}" in text
        lines = client.get("/metrics").text.splitlines()
        assert all(re.fullmatch(r'(#.*|\w+(\{(\w+="(\\.|[^"\\])*",?)+\})? \S+)', line) for line in lines)
        assert client.get("/api/view").headers["content-type"] == "application/json"
        assert "<" not in client.get(f"/decision/{HOSTILE[:8]}").text.split('role="alert">')[1].split("</p>")[0]
        asked = client.get("/why", params={"task": HOSTILE})
        assert "<img" not in asked.text


def test_a_decision_is_a_card(client):
    newest = client.get("/api/view").json()["decisions"]
    placed = next(each for each in newest if each["result"] == "placed")
    text = client.get(f"/decision/{placed['id']}").text
    assert placed["plan"].split(",")[0].split(" ×")[0] in text and "J/sample" in text
    explained = client.get("/api/decisions", params={"limit": 5}).json()["decisions"]
    assert [each["id"] for each in explained] == [f"d{number:06d}" for number in range(5)]
    first = next(each for each in explained if each["result"] == "placed")
    assert client.get(f"/api/decisions/{first['id']}").json()["explanations"]
    assert "sjf placed" in client.get(f"/decision/{first['id']}").text
    assert client.get("/decision/d999999").status_code == 404
    assert client.get("/api/decisions/d999999").status_code == 404


def test_questions_are_answered_from_the_page_and_by_the_api(client):
    found = client.get("/api/why", params={"task": "by-hand"}).json()
    assert found["cause"] and found["words"].startswith("by-hand")
    page = client.get("/why", params={"task": "by-hand", "lang": "zh"})
    assert page.status_code == 200 and say("serve.answer.at", "zh", decisions=found["decisions"]) in page.text
    found = client.get("/api/why-not", params={"task": "by-hand", "domain": "west"}).json()
    assert found["domain"] == "west" and found["words"]
    for path in ("/why", "/api/why"):
        assert client.get(path, params={"task": "nobody"}).status_code == 404
        assert client.get(path).status_code == 400
        assert client.get(path, params={"task": "x" * 500}).status_code == 400


def test_too_many_questions_are_turned_away(written):
    with TestClient(make_app(Told(answer=Busy("8 questions are waiting")), written), base_url="http://localhost") as c:
        assert c.get("/api/why", params={"task": "a"}).status_code == 503
        assert "8 questions" in c.get("/why", params={"task": "a"}).text


def test_the_api_is_what_it_describes(client):
    described = client.get("/api/openapi.json").json()
    assert described == openapi() and described["openapi"].startswith("3.1")
    assert set(described["paths"]) == {path for path, _, _ in ENDPOINTS}
    for path, told in described["paths"].items():
        assert told["get"]["summary"]
        needed = {each["name"] for each in told["get"].get("parameters", ()) if each["required"]}
        given = {"task": "by-hand", "domain": "west", "change": "policy fcfs"}
        at = path.replace("{id}", "d000000")
        assert client.get(at, params={name: given[name] for name in needed & set(given)}).status_code == 200, path
    for bad in ({"start": "x"}, {"start": "-1"}, {"limit": "0"}, {"limit": "501"}, {"start": str(2**70)}):
        assert client.get("/api/decisions", params=bad).status_code == 400


def test_it_only_reads(client):
    for method in ("post", "put", "delete", "patch", "options"):
        assert getattr(client, method)("/api/status").status_code == 405


def test_without_a_token_only_names_of_this_machine_are_answered(written):
    app = make_app(Told(), written)
    with TestClient(app, base_url="http://localhost:7412") as client:
        assert client.get("/").status_code == 200
        assert client.get("/", headers={"host": "[::1]:7412"}).status_code == 200
        for name in ("evil.example", "localhost.evil.example", "127.0.0.1.evil.example:80", ""):
            assert client.get("/", headers={"host": name}).status_code == 421, name


def test_with_a_token_it_must_be_shown(written):
    app = make_app(Told(), written, token=TOKEN)
    with TestClient(app, base_url="http://box.example", follow_redirects=False) as client:
        for path in ("/", "/api/view", "/metrics", "/static/live.js"):
            assert client.get(path).status_code == 401
        wrong = {"authorization": "Bearer wrong"}
        assert client.get("/", headers=wrong).status_code == 401 and client.get("/?token=wrong").status_code == 401
        assert client.get("/", headers={"authorization": f"Bearer {TOKEN}"}).status_code == 200
        moved = client.get("/", params={"token": TOKEN, "lang": "zh"})
        assert moved.status_code == 303 and moved.headers["location"] == "/?lang=zh"
        cookie = moved.headers["set-cookie"].lower()
        assert "httponly" in cookie and "samesite=strict" in cookie
        assert client.get("/").status_code == 200
        assert TOKEN not in client.get("/").text


def test_before_the_first_look_the_page_says_so(written):
    with TestClient(make_app(Told(), written), base_url="http://localhost") as client:
        assert say("serve.starting") in client.get("/").text
        assert "attribution_sched_up 0.0" in client.get("/metrics").text
        assert client.get("/api/queue").json() == {"queue": [], "waiting": None}


def test_a_state_of_the_journal_is_drawn_once(written, monkeypatch):
    from attribution_sched.serve import page

    source, drawn = Inline(written), []
    monkeypatch.setattr(page, "render", lambda *a, _kept=page.render, **k: drawn.append(a) or _kept(*a, **k))
    with TestClient(make_app(source, written), base_url="http://localhost") as client:
        first = [client.get("/part").text for _ in range(5)]
        assert len(drawn) == 1 and len(set(first)) == 1
        source.version += 1
        client.get("/part")
        assert len(drawn) == 2


@pytest.mark.parametrize("path", ["/static/../app.py", "/static/%2e%2e/app.py", "/static/"])
def test_no_other_file_is_served(client, path):
    assert client.get(path).status_code == 404
