"""``attribution-sched serve``: a live page over a journal."""

from __future__ import annotations

import ipaddress
import os
import socket
from pathlib import Path
from typing import Annotated

import typer

from attribution_sched.cli.console import examples
from attribution_sched.errors import SettingsError, problem

EXAMPLES = examples(
    "attribution-sched serve runs/cross-domain-0-1/journal.sqlite",
    "ATTRIBUTION_SCHED_TOKEN=$(cat token) attribution-sched serve run.sqlite --host 0.0.0.0",
)
SHORTEST_TOKEN = 16
PORT = 7412


def serve(
    journal: Annotated[Path, typer.Argument(help="Journal to read; another process may write it.")],
    host: Annotated[str, typer.Option(help="Address to listen on; one of another machine needs --token.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(help="Port; 0 takes any that is free.")] = PORT,
    token: Annotated[
        str | None,
        typer.Option(
            help=f"What every reader must show, at least {SHORTEST_TOKEN} characters; better given in the variable, "
            "where no list of processes shows it.",
            envvar="ATTRIBUTION_SCHED_TOKEN",
            show_envvar=True,
        ),
    ] = None,
) -> None:
    """Serve a page that follows a journal: queue, reasons, starts, devices, decisions, targets, joules, questions.

    Only reads; whoever writes the journal is never held up. JSON under /api, for Prometheus /metrics. Ctrl-C ends.
    """
    from attribution_sched.journal import Journal

    check(host, port, token)
    try:
        import uvicorn

        from attribution_sched.serve.app import make_app
        from attribution_sched.serve.source import Workers
    except ModuleNotFoundError as error:
        fix = "pip install 'attribution-sched[serve]'"
        raise SettingsError(problem("serve", str(error.name), "is not installed", fix)) from error
    with Journal.read(journal) as recording:
        path = recording.path or journal
    listener = listening(host, port)
    at = listener.getsockname()[1]
    shown = f"[{host}]" if ":" in host else host
    typer.echo(f"http://{shown}:{at}/  (Ctrl-C ends)", err=True)
    app = make_app(Workers(path), path, token=token)
    config = uvicorn.Config(app, log_level="warning", server_header=False, date_header=False, limit_concurrency=1000)
    uvicorn.Server(config).run(sockets=[listener])


def check(host: str, port: int, token: str | None) -> None:
    """What was asked for, before anything is opened.

    Raises:
        SettingsError: If it is wrong, or would show the journal to others without a token.
    """
    if not 0 <= port < 65536:
        raise SettingsError(problem("--port", port, "must be from 0 to 65535", f"Use {PORT}"))
    if token is not None and (len(token) < SHORTEST_TOKEN or not token.isascii() or not token.isprintable()):
        rule = f"must be at least {SHORTEST_TOKEN} printable ASCII characters"
        fix = "For example: python -c 'import secrets; print(secrets.token_urlsafe())'"
        raise SettingsError(problem("--token", f"{len(token)} characters", rule, fix))
    if token is None and not own(host):
        rule = "would show the journal to other machines"
        raise SettingsError(problem("--host", host, rule, "Give --token too, or use 127.0.0.1"))


def own(host: str) -> bool:
    """Whether an address is this machine's own, reachable by nobody else."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def listening(host: str, port: int) -> socket.socket:
    """A listening socket.

    Raises:
        SettingsError: If the address cannot be had.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host.strip("[]"), port))
        # Before the address is printed: whoever reads it may come at once.
        made.listen(128)
    except OSError as error:
        made.close()
        rule = f"cannot be listened on ({os.strerror(error.errno or 0)})"
        raise SettingsError(problem("address", f"{host}:{port}", rule, "Choose another --port")) from error
    return made
