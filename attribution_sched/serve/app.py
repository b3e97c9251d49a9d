"""The application: pages, JSON and metrics over a source, for readers only.

Every answer carries a strict content security policy. Without a token only this machine is answered, under a name of
its own, so that no page of another site can read it through a browser; with a token it must be shown, as a bearer or,
once, in the address, which becomes a cookie.
"""

from __future__ import annotations

import contextlib
import functools
import hmac
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from attribution_sched import __version__
from attribution_sched.errors import AttributionSchedError
from attribution_sched.journal import Journal
from attribution_sched.serve import page
from attribution_sched.serve.metrics import metrics
from attribution_sched.serve.questions import NEEDS
from attribution_sched.serve.rows import decision_row, measured_of, side_by_side
from attribution_sched.serve.source import Busy, Source
from attribution_sched.words.say import LANGUAGES, say

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": POLICY, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "DENY", "Cache-Control": "no-store",
}  # fmt: skip
COOKIE = "attribution_sched_token"
OWN_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]", "::1"})
MOST = 500
"""Decisions in one answer of the API."""
LONGEST = 200
"""Characters of a task's or domain's name in a question."""
FUTURES = 24

Handler = Callable[[Request], Awaitable[Response]]


class Guard:
    """Before everything else: who asks, by which method and name; and the headers of every answer.

    Args:
        app: What is guarded.
        token: To be shown; None where only this machine is answered.
        names: Names of this machine that may be asked for without a token.
    """

    def __init__(self, app: ASGIApp, token: str | None, names: frozenset[str]) -> None:
        self.app, self.token, self.names = app, token, names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or refuse."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
            await send(message)

        refusal = self._refusal(Request(scope))
        await (self.app if refusal is None else refusal)(scope, receive, sending)

    def _refusal(self, request: Request) -> Response | None:
        if request.method not in ("GET", "HEAD"):
            return PlainTextResponse("this page only reads: use GET\n", 405, {"Allow": "GET, HEAD"})
        if self.token is None:
            host = request.headers.get("host", "")
            name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
            if name not in self.names:
                return PlainTextResponse("ask for it as localhost, or start it with --token\n", 421)
            return None
        shown = request.query_params.get("token")
        if shown is not None:
            if not self._right(shown):
                return PlainTextResponse("that is not the token\n", 401)
            rest = [(name, value) for name, value in request.query_params.multi_items() if name != "token"]
            answer = RedirectResponse(request.url.path + (f"?{urlencode(rest)}" if rest else ""), 303)
            answer.set_cookie(COOKIE, shown, httponly=True, samesite="strict", secure=request.url.scheme == "https")
            return answer
        kind, _, word = request.headers.get("authorization", "").partition(" ")
        if (kind.lower() == "bearer" and self._right(word)) or self._right(request.cookies.get(COOKIE, "")):
            return None
        return PlainTextResponse(
            "show the token: Authorization: Bearer …, or ?token=… once\n", 401, {"WWW-Authenticate": "Bearer"}
        )

    def _right(self, word: str) -> bool:
        return self.token is not None and hmac.compare_digest(word.encode(), self.token.encode())


class Site:
    """The handlers.

    Args:
        source: What is shown.
        path: The journal, for single decisions.
    """

    def __init__(self, source: Source, path: str | Path) -> None:
        self.source, self.path = source, Path(path)
        self._drawn: dict[tuple[str, str], tuple[int, bytes]] = {}

    # --- Pages ---

    async def index(self, request: Request) -> Response:
        """The page."""
        lang = language(request)
        return self._cached("page.html", lang, request)

    async def part(self, request: Request) -> Response:
        """The middle of the page, by which a script renews it."""
        return self._cached("part.html", language(request), request)

    def _cached(self, template: str, lang: str, request: Request) -> Response:
        # All readers of one state of the journal are given the same bytes: drawn once, however many they are.
        version = self.source.version
        known = self._drawn.get((template, lang))
        if known is None or known[0] != version:
            view = self.source.view
            journal = view.get("journal") or {"name": self.path.name, "policy": "", "preset": "", "cluster": ""}
            subtitle = say("serve.subtitle", lang, **{k: journal[k] for k in ("policy", "preset", "cluster")})
            empty: dict[str, Any] = {"domains": [], "queue": [], "running": [], "bars": []}
            text = page.render(
                template, lang, view=view or empty, version=version, stale=self.source.stale, futures=FUTURES,
                title=say("serve.title", lang, name=journal["name"]), subtitle=subtitle if view else "",
                gantt=page.gantt(view, lang) if view else "", other=f"/?lang={other(lang)}",
            )  # fmt: skip
            known = self._drawn[template, lang] = version, text.encode()
        return HTMLResponse(known[1])

    async def decision(self, request: Request) -> Response:
        """One decision as a card."""
        lang, name = language(request), request.path_params["id"]
        known = await run_in_threadpool(self._decision, name, lang)
        if known is None:
            return self._failed(lang, f"there is no decision {name!r} in this journal", 404, request)
        figures, words = known
        text = page.render(
            "decision.html", lang, d=figures, explanations=words, figures=side_by_side(figures),
            title=say("serve.decision", lang, id=figures["id"]),
            bars=page.attribution_bars(figures["attribution"]), other=f"{request.url.path}?lang={other(lang)}",
        )  # fmt: skip
        return HTMLResponse(text)

    def _decision(self, name: str, lang: str) -> tuple[dict[str, Any], list[str]] | None:
        try:
            with Journal.read(self.path) as journal, journal.one_moment():
                record = journal.decision(name)
                key = journal.key(record.id)
                figures = decision_row(record, journal.outcome(record.id), key)
                figures["measured"] = measured_of(journal, key)
                figures["explanations"] = [each.target for each in journal.explanations(record.id)]
                words = [_in_words(each.explanation, lang) for each in journal.explanations(record.id)]
        except AttributionSchedError:
            return None
        return figures, [each for each in words if each]

    async def why(self, request: Request) -> Response:
        """Why a task waits."""
        return await self._answered(request, "why", "serve.ask.why")

    async def why_not(self, request: Request) -> Response:
        """Why a task is not in a domain."""
        return await self._answered(request, "why-not", "serve.ask.why_not")

    async def when(self, request: Request) -> Response:
        """When a waiting task starts and ends."""
        return await self._answered(request, "when", "serve.ask.when")

    async def what_if(self, request: Request) -> Response:
        """What a change would do."""
        return await self._answered(request, "what-if", "serve.ask.what_if")

    async def _answered(self, request: Request, kind: str, title: str) -> Response:
        lang = language(request)
        status, answered = await self._ask(request, kind, lang)
        about = " ".join(request.query_params.get(name, "")[:LONGEST] for name in ("task", "domain", "change")).strip()
        again = urlencode([(k, v) for k, v in request.query_params.multi_items() if k != "lang"])
        text = page.render(
            "answer.html", lang, title=say("serve.answer", lang), question=f"{say(title, lang)} {about}",
            error=answered.get("error", ""), words=answered.get("words", ""), decisions=answered.get("decisions", 0),
            other=f"{request.url.path}?{again}&lang={other(lang)}",
        )  # fmt: skip
        return HTMLResponse(text, status)

    async def bill(self, request: Request) -> Response:
        """The bill; with ``payer``, as that one may see it."""
        lang = language(request)
        status, answered = await self._ask(request, "bill", lang)
        payer = request.query_params.get("payer", "")[:LONGEST]
        again = urlencode({"payer": payer} if payer else {})
        text = page.render(
            "bill.html", lang, title=answered.get("title") or say("report.bill.title", lang),
            error=answered.get("error", ""), blocks=answered.get("blocks", []),
            decisions=answered.get("decisions", 0), payer=payer,
            payers=[each["tenant"] for each in self.source.view.get("tenants", []) if each.get("tenant")],
            other=f"{request.url.path}?{again}&lang={other(lang)}",
        )  # fmt: skip
        return HTMLResponse(text, status)

    async def _ask(self, request: Request, kind: str, lang: str) -> tuple[int, dict[str, Any]]:
        question = {"kind": kind, "lang": lang}
        for name in NEEDS[kind]:
            value = request.query_params.get(name, "")
            if not value or len(value) > LONGEST:
                return 400, {"error": f"{name} must be given, with at most {LONGEST} characters"}
            question[name] = value
        if kind == "bill" and (payer := request.query_params.get("payer", "")):
            question["payer"] = payer[:LONGEST]
        try:
            answered = await self.source.ask(question)
        except Busy as busy:
            return 503, {"error": str(busy)}
        return (404 if "error" in answered else 200), answered

    def _failed(self, lang: str, why: str, status: int, request: Request) -> Response:
        text = page.render(
            "answer.html", lang, title=say("serve.error", lang), question="", error=why,
            other=f"{request.url.path}?lang={other(lang)}",
        )  # fmt: skip
        return HTMLResponse(text, status)

    # --- JSON ---

    async def version(self, _: Request) -> Response:
        """A number that changes when there is something new."""
        return answer({"version": self.source.version, "stale": self.source.stale})

    async def whole(self, _: Request) -> Response:
        """Everything that the page shows."""
        return answer(dict(self.source.view))

    async def status(self, _: Request) -> Response:
        """The clock, counts and totals."""
        view = self.source.view
        names = ("journal", "cluster_time_s", "recorded_at", "decisions_total", "tasks_total", "waiting", "counts",
                 "totals", "domains", "links", "trouble", "provenance")  # fmt: skip
        return answer({name: view.get(name) for name in names} | {"running": len(view.get("running", ()))})

    async def queue(self, _: Request) -> Response:
        """Tasks that wait, with reasons and start intervals."""
        return answer({"queue": self.source.view.get("queue", []), "waiting": self.source.view.get("waiting")})

    async def running(self, _: Request) -> Response:
        """Tasks that run."""
        return answer({"running": self.source.view.get("running", [])})

    async def targets(self, _: Request) -> Response:
        """Where targets stand."""
        return answer({"targets": self.source.view.get("targets", [])})

    async def tenants(self, _: Request) -> Response:
        """Joules by tenant."""
        view = self.source.view
        return answer({"tenants": view.get("tenants", []), "provenance": view.get("provenance", "")})

    async def decisions(self, request: Request) -> Response:
        """Decisions from a number on."""
        try:
            start = int(request.query_params.get("start", "0"))
            limit = int(request.query_params.get("limit", "100"))
        except ValueError:
            return answer({"error": "start and limit must be whole numbers"}, 400)
        if not (0 <= start < 2**62 and 1 <= limit <= MOST):
            return answer({"error": f"start must be >= 0, limit from 1 to {MOST}"}, 400)
        return answer({"start": start, "decisions": await run_in_threadpool(self._decisions, start, limit)})

    def _decisions(self, start: int, limit: int) -> list[dict[str, Any]]:
        with Journal.read(self.path) as journal:
            entries = journal.entries(start, start + limit)
            return [decision_row(decision, outcome, journal.key(decision.id)) for decision, outcome in entries]

    async def one_decision(self, request: Request) -> Response:
        """One decision, measured figures included."""
        known = await run_in_threadpool(self._decision, request.path_params["id"], "en")
        return answer({"error": "there is no such decision"}, 404) if known is None else answer(known[0])

    async def api_why(self, request: Request) -> Response:
        """Why a task waits."""
        status, answered = await self._ask(request, "why", language(request))
        return answer(answered, status)

    async def api_why_not(self, request: Request) -> Response:
        """Why a task is not in a domain."""
        status, answered = await self._ask(request, "why-not", language(request))
        return answer(answered, status)

    async def api_when(self, request: Request) -> Response:
        """When a waiting task starts and ends, as 80 % intervals."""
        status, answered = await self._ask(request, "when", language(request))
        return answer(answered, status)

    async def api_what_if(self, request: Request) -> Response:
        """What a change would do, in paired futures."""
        status, answered = await self._ask(request, "what-if", language(request))
        return answer(answered, status)

    async def api_bill(self, request: Request) -> Response:
        """The bill by tenant; with payer, as that one may see it."""
        status, answered = await self._ask(request, "bill", language(request))
        return answer({name: answered[name] for name in ("bill", "decisions", "error") if name in answered}, status)

    async def description(self, _: Request) -> Response:
        """What can be asked, for programs that read such a description."""
        return answer(openapi())

    async def prometheus(self, _: Request) -> Response:
        """For Prometheus."""
        return PlainTextResponse(metrics(self.source.view), media_type="text/plain; version=0.0.4")


TASK = ("task", "query", "string", "Id of the task")
DOMAIN = ("domain", "query", "string", "Name of the domain")
CHANGE = ("change", "query", "string", "drop DOMAIN, add 8@DOMAIN, link A-B x2, policy sjf, …")
LANG = ("lang", "query", "string", "en or zh")
ID = ("id", "path", "string", "Id of the decision")
ENDPOINTS: tuple[tuple[str, str, tuple[tuple[str, str, str, str], ...]], ...] = (
    ("/api/version", "version", ()),
    ("/api/view", "whole", ()),
    ("/api/status", "status", ()),
    ("/api/queue", "queue", ()),
    ("/api/running", "running", ()),
    ("/api/targets", "targets", ()),
    ("/api/tenants", "tenants", ()),
    ("/api/decisions", "decisions", (("start", "query", "integer", "Number of the first"),
                                     ("limit", "query", "integer", f"How many, at most {MOST}"))),
    ("/api/decisions/{id}", "one_decision", (ID,)),
    ("/api/why", "api_why", (TASK, LANG)),
    ("/api/why-not", "api_why_not", (TASK, DOMAIN, LANG)),
    ("/api/when", "api_when", (TASK, LANG)),
    ("/api/what-if", "api_what_if", (CHANGE, LANG)),
    ("/api/bill", "api_bill", (("payer", "query", "string", "Tenant; the others are told in sum"), LANG)),
    ("/api/openapi.json", "description", ()),
)  # fmt: skip
"""Path, handler and parameters of the JSON API: routes and description are both made of this."""


@functools.cache
def openapi() -> dict[str, Any]:
    """The API as OpenAPI 3.1 describes such things."""
    paths: dict[str, Any] = {}
    for path, name, parameters in ENDPOINTS:
        document: dict[str, Any] = {
            "summary": (getattr(Site, name).__doc__ or "").strip(),
            "operationId": name,
            "responses": {
                "200": {"description": "As asked", "content": {"application/json": {"schema": {"type": "object"}}}}
            },
        }
        if parameters:
            document["parameters"] = [
                {"name": each, "in": where, "required": where == "path" or each in ("task", "domain", "change"),
                 "schema": {"type": kind}, "description": about}
                for each, where, kind, about in parameters
            ]  # fmt: skip
            document["responses"] |= {"400": {"description": "Wrongly asked"}, "404": {"description": "Not there"}}
        if name in ("api_why", "api_why_not", "api_when", "api_what_if", "api_bill"):
            document["responses"]["503"] = {"description": "Too many questions at once"}
        paths[path] = {"get": document}
    info = {"title": "attribution-sched", "version": __version__, "description": "A journal, read-only."}
    bearer = {"type": "http", "scheme": "bearer"}
    return {"openapi": "3.1.0", "info": info, "paths": paths, "components": {"securitySchemes": {"token": bearer}}}


def make_app(
    source: Source, path: str | Path, *, token: str | None = None, names: frozenset[str] = OWN_NAMES
) -> ASGIApp:
    """The application over a source.

    Args:
        source: What is shown; it is started and stopped with the application.
        path: The journal.
        token: To be shown by every reader; None answers readers of this machine only.
        names: Names under which this machine may be asked without a token.
    """
    site = Site(source, path)

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        await source.start()
        try:
            yield
        finally:
            await source.stop()

    async def failed(request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 500
        why = error.detail if isinstance(error, HTTPException) else "something failed; see what the server printed"
        if request.url.path.startswith("/api/"):
            return answer({"error": why}, status)
        return site._failed(language(request), why, status, request)

    pages: list[tuple[str, Handler]] = [
        ("/", site.index), ("/part", site.part), ("/decision/{id}", site.decision), ("/why", site.why),
        ("/why-not", site.why_not), ("/when", site.when), ("/what-if", site.what_if), ("/bill", site.bill),
        ("/metrics", site.prometheus),
    ]  # fmt: skip
    routes: list[Any] = [Route(at, handler) for at, handler in pages]
    routes += [Route(at, getattr(site, name)) for at, name, _ in ENDPOINTS]
    routes.append(Mount("/static", StaticFiles(directory=page.FOLDER / "static")))
    app = Starlette(routes=routes, lifespan=lifespan, exception_handlers={HTTPException: failed, 500: failed})
    return Guard(app, token, names)


def language(request: Request) -> str:
    """As asked for, else as the browser prefers."""
    asked = request.query_params.get("lang", "")
    if asked in LANGUAGES:
        return asked
    return "zh" if request.headers.get("accept-language", "").lower().startswith("zh") else "en"


def other(lang: str) -> str:
    """The other language."""
    return "en" if lang == "zh" else "zh"


def answer(body: Mapping[str, Any], status: int = 200) -> Response:
    """JSON that no browser takes for a page."""
    text = json.dumps(body, allow_nan=False, ensure_ascii=True)
    return Response(text, status, media_type="application/json")


def _in_words(body: Mapping[str, Any], lang: str) -> str:
    """A recorded explanation in a few sentences; empty if this release does not know its form."""
    from attribution_sched.explain.explanation import from_dict
    from attribution_sched.explain.reasoning import reasoning

    try:
        return reasoning(from_dict(body), lang=lang)
    except (AttributionSchedError, KeyError, TypeError, ValueError):
        return ""
