"""``attribution-sched profile links`` and ``profile stages``: half a minute of measuring that fills a preset."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from attribution_sched.cli.console import examples, notes, out, say_json
from attribution_sched.errors import SettingsError, problem

EXAMPLES = examples(
    "attribution-sched profile links --listen 0.0.0.0:7411",
    "attribution-sched profile links west.example.org:7411 --into mine.yaml --link east-west",
    "attribution-sched profile stages ./train.py:make_model --input 4x64x256 --into mine.yaml --domain east",
)
PORT = 7411

probe = typer.Typer(name="probe", help="Measure links and stages for a preset.", no_args_is_help=True, epilog=EXAMPLES)


@probe.callback()
def _group() -> None:
    """Measure links and stages for a preset."""


@probe.command(epilog=EXAMPLES)
def links(
    address: Annotated[
        str | None,
        typer.Argument(metavar="HOST:PORT", help="A machine that listens; this one's own loopback by default."),
    ] = None,
    listen: Annotated[
        str | None, typer.Option(metavar="ADDRESS:PORT", help="Answer probes of others until Ctrl-C.")
    ] = None,
    seconds: Annotated[float, typer.Option(help="About how long each of the two ways is measured.")] = 8.0,
    into: Annotated[Path | None, typer.Option(metavar="PRESET", help="YAML file that is filled with it.")] = None,
    link: Annotated[
        str | None, typer.Option(metavar="A-B", help="Domains whose link it is; all links by default.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    """Measure what a link carries one way and both ways at once, and its latency."""
    import threading

    from attribution_sched.executors.probes import listening, probe_link, serve_probes

    if not 0.0 < seconds <= 600.0:
        raise SettingsError(problem("--seconds", seconds, "must be above 0, at most 600", "Use for example 8"))
    if link is not None and into is None:
        raise SettingsError(problem("--link", link, "says where in a preset it goes", "Give --into mine.yaml too"))
    if listen is not None:
        with listening(*address_of(listen)) as (listener, port):
            notes().print(f"listening on port {port}; Ctrl-C ends")
            serve_probes(listener)
        return
    if address is not None:
        profile = probe_link(*address_of(address), seconds=seconds)
    else:
        with listening() as (listener, port):
            threading.Thread(target=serve_probes, args=(listener,), kwargs={"once": True}, daemon=True).start()
            profile = probe_link("127.0.0.1", port, seconds=seconds)
    filled = None
    if into is not None:
        from attribution_sched.cli.fill import links_into

        filled = links_into(into, link, profile)
    figures: dict[str, Any] = {
        "gbps": profile.one_way_bytes_per_s * 8e-9,
        "duplex_gbps": profile.duplex_bytes_per_s * 8e-9,
        "duplex_efficiency": profile.duplex_efficiency,
        "latency_s": profile.latency_s,
        "provenance": profile.provenance,
    }
    if as_json:
        say_json(figures)
        return
    console = out()
    console.print(f"one way       {figures['gbps']:.4g} Gb/s")
    console.print(f"both at once  {figures['duplex_gbps']:.4g} Gb/s each ({profile.duplex_efficiency:.0%})")
    console.print(f"latency       {1e3 * profile.latency_s:.3g} ms")
    share = min(1.0, round(profile.duplex_efficiency, 3))
    console.print(
        f"in a preset   network: {{duplex_efficiency: {share:g}}}" if filled is None else f"written       {filled}"
    )


@probe.command(epilog=EXAMPLES)
def stages(
    spec: Annotated[str, typer.Argument(metavar="MODULE:FACTORY", help="What returns a torch.nn.Sequential.")],
    shape: Annotated[
        str | None, typer.Option("--input", metavar="SHAPE", help="One microbatch: 4x64x256, or 4x128:int30522.")
    ] = None,
    repeats: Annotated[int, typer.Option(help="Measured runs of each layer.")] = 5,
    into: Annotated[Path | None, typer.Option(metavar="PRESET", help="YAML file that is filled with it.")] = None,
    domain: Annotated[str | None, typer.Option(help="Domain of the preset that this machine belongs to.")] = None,
    name: Annotated[str | None, typer.Option(help="What to call the model there; the factory's name.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    """Measure the seconds of every layer of a chain, forward and backward, for one microbatch."""
    from dataclasses import asdict

    from attribution_sched.cli.profile_measure import load
    from attribution_sched.executors.probes import probe_stages

    if repeats < 1:
        raise SettingsError(problem("--repeats", repeats, "must be a whole number >= 1", "Use for example 5"))
    if (into is None) != (domain is None):
        rule = "a preset is filled for the domain that this machine belongs to"
        raise SettingsError(problem("--into", str(into), rule, "Give --into mine.yaml and --domain east"))
    subject = load(spec, shape)
    inputs: Any = subject.inputs[0] if isinstance(subject.inputs, tuple | list) else subject.inputs
    profile = probe_stages(subject.model, inputs, repeats=repeats)
    filled = None
    if into is not None and domain is not None:
        from attribution_sched.cli.fill import stages_into
        from attribution_sched.cluster.models.torch_module import from_torch

        model = from_torch(subject.model, inputs[:1], name=name or spec.rpartition(":")[2])
        filled = stages_into(into, domain, model, profile, len(inputs))
    if as_json:
        say_json({"layers": [asdict(each) for each in profile]})
        return
    console = out()
    console.print(f"{'layer':24} {'forward ms':>11} {'backward ms':>12} {'hands on kB':>12}")
    for each in profile:
        line = (
            f"{each.name:24} {1e3 * each.forward_s:11.3f} {1e3 * each.backward_s:12.3f} {each.output_bytes / 1e3:12.1f}"
        )
        console.print(line, markup=False)
    if filled is not None:
        console.print(f"written: {filled}", markup=False, soft_wrap=True)


def address_of(text: str) -> tuple[str, int]:
    """Host and port.

    Raises:
        SettingsError: If it is not of that form.
    """
    host, colon, port = text.rpartition(":")
    if not colon:
        host, port = text, str(PORT)
    if not host or not port.isdecimal() or not 0 <= int(port) < 65536:
        raise SettingsError(problem("address", text, "must be HOST:PORT", f"For example west.example.org:{PORT}"))
    return host.strip("[]"), int(port)
