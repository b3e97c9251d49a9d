"""``attribution-sched init``: a preset of one's own cluster, from a live inventory or from questions."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attribution_sched.cli.console import examples, notes
from attribution_sched.errors import ExecutorError, SettingsError, nearest, problem

if TYPE_CHECKING:
    from collections.abc import Iterable

EXAMPLES = examples(
    "attribution-sched init -o mine.yaml",
    "attribution-sched init -o mine.yaml --slurm",
    "attribution-sched init -o mine.yaml --ray auto --gpu L40S-48 --gbps 10",
    "attribution-sched init -o mine.yaml --domain east=8xA100-80 --domain west=4xH100-80/4",
)
FROM, LINKS = "Where the figures come from", "What an inventory does not tell"


@dataclass(frozen=True)
class Site:
    """A domain of a preset.

    Attributes:
        name: Its name.
        devices: Devices in all.
        node_devices: Devices of a node.
        gpu: Name in the catalogue; empty if the inventory does not tell it.
    """

    name: str
    devices: int
    node_devices: int
    gpu: str = ""


def init(
    output: Annotated[Path, typer.Option("--output", "-o", help="New YAML file.")],
    slurm: Annotated[bool, typer.Option("--slurm", help="This machine's Slurm.", rich_help_panel=FROM)] = False,
    ray: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="A Ray cluster, or auto.", rich_help_panel=FROM)
    ] = None,
    domain: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=NxGPU[/PER_NODE]", help="A domain, instead of questions.", rich_help_panel=FROM),
    ] = None,
    gpu: Annotated[
        str | None, typer.Option(help="GPU where the inventory does not tell.", rich_help_panel=LINKS)
    ] = None,
    gbps: Annotated[
        float | None, typer.Option(help="Gb/s between domains; `profile links` measures it.", rich_help_panel=LINKS)
    ] = None,
    latency_ms: Annotated[float, typer.Option(help="One way, between domains.", rich_help_panel=LINKS)] = 20.0,
    extends: Annotated[
        str, typer.Option(help="Preset whose tasks, arrivals and rewards it takes over.", rich_help_panel=LINKS)
    ] = "cross-domain-easy",
) -> None:
    """Write a preset of your own cluster: domains and devices as an engine tells them, or as you answer.

    What no inventory knows (links, prices, which models are trained) is taken over from another preset and marked.
    """
    from attribution_sched.config import load_settings

    if sum((slurm, ray is not None, bool(domain))) > 1:
        raise SettingsError(problem("init", "several sources", "one must be chosen", "Give --slurm, --ray or --domain"))
    if output.exists():
        raise SettingsError(problem("--output", str(output), "is there already", "Choose another name"))
    if slurm:
        sites, source = slurm_sites(), "Slurm"
    elif ray is not None:
        sites, source = ray_sites(ray), "Ray"
    elif domain:
        sites, source = [parsed(each) for each in domain], "--domain"
    else:
        sites, source = asked_sites(), "questions"
    text = preset(output.stem, sites, source, gpu=gpu, gbps=gbps, latency_s=latency_ms / 1e3, extends=extends)
    made = None
    try:
        output.write_text(text, encoding="utf-8")
        made = load_settings(str(output)).build_world()
    except OSError as error:
        rule = f"cannot be written ({error.strerror})"
        raise SettingsError(problem("--output", str(output), rule, "Choose another file")) from error
    finally:
        if made is None:
            # What cannot be loaded is not left behind.
            output.unlink(missing_ok=True)
    notes().print(f"{len(made.cluster)} domains, {made.cluster.devices} devices")
    typer.echo(str(output))


def preset(
    name: str, sites: list[Site], source: str, *, gpu: str | None, gbps: float | None, latency_s: float, extends: str
) -> str:
    """The YAML of a preset.

    Raises:
        SettingsError: If there is no domain, or a GPU is not known.
    """
    import yaml

    from attribution_sched.cluster.gpus import GPUS

    if not sites:
        raise SettingsError(problem("domains", 0, "none was found", "Name them: --domain east=8xA100-80"))
    rows: list[dict[str, Any]] = []
    for site in sites:
        chip = site.gpu or gpu or ""
        if chip not in GPUS:
            rule = f"GPU of {site.name} is not in the catalogue"
            raise SettingsError(problem("--gpu", chip or None, rule, nearest(chip, GPUS)))
        rows.append({
            "name": site.name, "gpu": chip, "devices": site.devices, "node_devices": site.node_devices,
        })  # fmt: skip
    settings: dict[str, Any] = {"extends": extends, "name": name, "description": f"made by init from {source}"}
    links = {"kind": "uniform", "gbps": float(gbps or 10.0), "latency_s": latency_s, "usd_per_gb": 0.0}
    settings |= {"network": {"links": links}, "domains": rows}
    head = f"# Domains and devices: {source}. Tasks, arrivals and rewards: the preset {extends}.\n"
    kinds, left_out = fitting(settings, extends)
    if left_out:
        settings["kinds"] = kinds
        head += f"# Left out, because these domains do not hold them: {', '.join(left_out)}.\n"
    if len(rows) > 1:
        how = "as given" if gbps is not None else "NOT MEASURED, a guess; run `attribution-sched profile links`"
        head += f"# Links: {how}. Latency and prices between domains are for you to set.\n"
    return head + yaml.safe_dump(settings, sort_keys=False)


def fitting(settings: dict[str, Any], extends: str) -> tuple[list[dict[str, Any]], list[str]]:
    """Kinds of tasks of a preset that a cluster can hold, and models of those that it cannot.

    Raises:
        SettingsError: If it can hold none.
    """
    from attribution_sched.config import load_settings

    fits, left_out, last = [], [], None
    for kind in load_settings(extends).kinds:
        given = {
            each.name: getattr(kind, each.name) for each in fields(kind) if getattr(kind, each.name) != each.default
        }
        row = {name: list(value) if isinstance(value, tuple) else value for name, value in given.items()}
        try:
            load_settings({**settings, "kinds": [row]}).build_world()
            fits.append(row)
        except SettingsError as error:
            left_out.append(str(row["model"]))
            last = error
    if not fits:
        raise last or SettingsError(problem("--extends", extends, "has no kinds of tasks", "Use another preset"))
    return fits, left_out


def catalogued(words: Iterable[str]) -> str:
    """The catalogue's GPU of an engine's word for it (``a100``, ``nvidia_h100_80gb``); empty if there is none."""
    from attribution_sched.cluster.gpus import GPUS

    for word in words:
        plain = word.lower().replace("_", "-")
        fits = [name for name in GPUS if name.lower().split("-")[0] in plain.split("-")]
        sized = [name for name in fits if name.split("-")[-1] in plain.replace("gb", "").split("-")]
        if sized or fits:
            return (sized or sorted(fits))[-1]
    return ""


def parsed(text: str) -> Site:
    """A domain in a word: ``east=8xA100-80`` or ``east=8xA100-80/4``.

    Raises:
        SettingsError: If it is not of that form.
    """
    name, equals, rest = text.partition("=")
    count, cross, chip = rest.partition("x")
    chip, _, per = chip.partition("/")
    if not (name and equals and cross and chip and count.isdecimal() and (per or "1").isdecimal()):
        raise SettingsError(problem("--domain", text, "must be NAME=NxGPU[/PER_NODE]", "For example east=8xA100-80/4"))
    return Site(name, int(count), int(per) if per else min(8, int(count)), chip)


def slurm_sites() -> list[Site]:
    """Partitions with GPUs; nothing is changed, and no right is needed."""
    import re
    import time

    from attribution_sched.executors.shadow import read_live
    from attribution_sched.executors.slurm import ask_slurm

    seen = read_live(lambda *command: ask_slurm(command), time.time())
    kinds = re.findall(r"gpu:([A-Za-z][\w.-]*)", ask_slurm(("sinfo", "-h", "-o", "%G")))
    sites = []
    for name in seen.domains:
        nodes = [node for node in seen.nodes if name in node.domains and node.devices > 0]
        if nodes:
            models = re.findall(r"gpu:([A-Za-z][\w.-]*)", ask_slurm(("sinfo", "-h", "-p", name, "-o", "%G")))
            most = max(node.devices for node in nodes)
            sites.append(Site(name, sum(node.devices for node in nodes), most, catalogued(models or kinds)))
    if not sites:
        raise ExecutorError(problem("slurm", "partitions", "no partition has GPUs", "Name domains with --domain"))
    return sites


def ray_sites(address: str) -> list[Site]:
    """Labels ``domain`` of a Ray cluster's nodes."""
    from attribution_sched.executors.ray import LABEL, connect, device_of

    groups: dict[str, list[dict[str, Any]]] = {}
    kind = device_of(address)
    for node in connect(address).nodes():
        label = (node.get("Labels") or {}).get(LABEL)
        if node["Alive"] and label:
            groups.setdefault(str(label), []).append(node)
    sites = []
    for name, nodes in sorted(groups.items()):
        sizes = [int(node["Resources"].get(kind, 0)) for node in nodes]
        words = [word for node in nodes for word in node["Resources"] if word.startswith("accelerator_")]
        chips = [word.partition(":")[2] for word in words]
        if sum(sizes):
            sites.append(Site(name, sum(sizes), max(sizes), catalogued(chips)))
    if not sites:
        rule, fix = f"no node has the label {LABEL}", f"Start nodes with: ray start --labels {LABEL}=NAME"
        raise ExecutorError(problem("ray", address, rule, fix))
    return sites


def asked_sites() -> list[Site]:
    """Domains, one question after the other."""
    from attribution_sched.cluster.gpus import GPUS

    sites: list[Site] = []
    count = typer.prompt("How many domains (clusters, sites)", type=int, default=2, err=True)
    if not 1 <= count <= 64:
        raise SettingsError(problem("domains", count, "must be from 1 to 64", "Answer for example 2"))
    for number in range(1, count + 1):
        name = typer.prompt(f"Name of domain {number}", default=f"site-{number}", err=True)
        chip = typer.prompt(
            f"GPU in {name} ({', '.join(GPUS)})", default=sites[-1].gpu if sites else "A100-80", err=True
        )
        devices = typer.prompt(f"GPUs in {name}", type=int, default=8, err=True)
        per = typer.prompt("of them in a node", type=int, default=min(8, devices), err=True)
        sites.append(Site(name, devices, per, chip))
    return sites
