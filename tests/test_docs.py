"""The pages: links lead somewhere, every page has its place, names and commands exist, the Python in them runs."""

from __future__ import annotations

import ast
import importlib
import json
import re
import subprocess
import sys
from importlib.util import find_spec

import pytest
import yaml

from tests.docs_text import PAGES, ROOT, TEXTS, blocks, named, script

NAV = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))["nav"]
FROM_ROOT = ("CHANGELOG.md", "CONTRIBUTING.md")
ALL_BLOCKS = [block for path in TEXTS for block in blocks(path)]
SLOW = ("explain.md", "read_a_report.md", "train.md")
"""Pages whose Python takes more than seconds."""


def prose(path):
    """A text without its blocks of code."""
    return re.sub(r"```.*?```", "", path.read_text("utf-8"), flags=re.DOTALL)


def slug(heading):
    """The anchor of a heading, as Python-Markdown makes it."""
    plain = re.sub(r"[`*]|\]\([^)]*\)|\[", "", heading)
    return re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", plain).strip().lower())


def pages_of(nav):
    """Files of a navigation, in order."""
    for entry in nav:
        for value in entry.values():
            if isinstance(value, str):
                yield value
            else:
                yield from pages_of(value)


@pytest.mark.parametrize("path", TEXTS, ids=named)
def test_links_lead_somewhere(path):
    text = prose(path)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith(("http://", "https://")):
            continue
        file, _, anchor = target.partition("#")
        found = (path.parent / file).resolve() if file else path
        assert found.exists(), f"{named(path)}: {target}"
        assert found.is_relative_to(ROOT), f"{named(path)}: {target} leaves the repository"
        if anchor:
            headings = re.findall(r"^#+ (.+)$", prose(found), re.MULTILINE)
            assert anchor in map(slug, headings), f"{named(path)}: {target}"


def test_every_page_has_its_place_and_every_place_its_page():
    listed = list(pages_of(NAV))
    assert len(listed) == len(set(listed))
    for file in listed:
        assert (ROOT / file if file in FROM_ROOT else ROOT / "docs" / file).is_file(), file
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in PAGES}
    assert pages == set(listed) - set(FROM_ROOT)


@pytest.mark.parametrize("path", TEXTS, ids=named)
def test_a_page_begins_with_one_heading(path):
    assert len(re.findall(r"^# ", prose(path), re.MULTILINE)) == 1


@pytest.mark.parametrize("block", ALL_BLOCKS, ids=[block.where for block in ALL_BLOCKS])
def test_python_compiles_and_its_imports_exist(block):
    for node in ast.walk(ast.parse(block.code, block.where)):
        if isinstance(node, ast.Import):
            for name in node.names:
                importlib.import_module(name.name)
        elif isinstance(node, ast.ImportFrom):
            module = importlib.import_module(node.module)
            for name in node.names:
                if not hasattr(module, name.name):
                    importlib.import_module(f"{node.module}.{name.name}")


def resolve(name):
    """What a dotted name of the package means."""
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for part in parts[cut:]:
            found = getattr(found, part)
        return found
    raise ModuleNotFoundError(name)


@pytest.mark.parametrize("path", TEXTS, ids=named)
def test_names_and_files_exist(path):
    text = path.read_text("utf-8")
    dotted = re.findall(r"`(attribution_sched(?:\.\w+)+)`", text) + re.findall(r"^::: (\S+)", text, re.MULTILINE)
    for name in dotted:
        assert resolve(name) is not None, f"{named(path)}: {name}"
    for file in re.findall(r"\b(?:benchmarks|calibration|examples|docs|tests|attribution_sched)/[\w/.-]+\.\w+", text):
        if "/<" not in file and not file.startswith(("docs/results_*", "attribution_sched/CrossDomain")):
            assert (ROOT / file).exists(), f"{named(path)}: {file}"


def test_the_public_names_of_attribution_are_documented():
    import attribution_sched.attribution as room

    page = (ROOT / "docs" / "attribution.md").read_text("utf-8") + (ROOT / "docs/api/attribution.md").read_text("utf-8")
    rivals = {"LinearCounters", "cpu_time_share", "load_times_tdp", "sm_utilisation_share"}
    helpers = {"Column", "OperatorProfile"}
    assert {name for name in room.__all__ if name not in page} <= rivals | helpers


@pytest.mark.parametrize("path", TEXTS, ids=named)
def test_commands_and_options_exist(path):
    import typer.main

    from attribution_sched.cli import app
    from attribution_sched.cli.console import spelled

    root = typer.main.get_command(app)
    lines = re.findall(r"\battribution-sched ((?:[a-z-]+)[^`\n#]*)", path.read_text("utf-8"))
    for line in lines:
        words = spelled(line.split())
        command = root
        while words and hasattr(command, "commands") and words[0] in command.commands:
            command = command.commands[words.pop(0)]
        assert command is not root or words[0].startswith("-"), f"{named(path)}: attribution-sched {line}"
        known = {option for param in command.params for option in (*param.opts, *param.secondary_opts)}
        given = {word.split("=")[0].rstrip(").,;:") for word in words if re.match(r"--?[a-z]", word)}
        assert given <= known | {"--help"}, f"{named(path)}: attribution-sched {line}"


RUNNABLE = [path for path in PAGES if any(not block.unrun for block in blocks(path))]
PARAMS = [pytest.param(path, id=named(path), marks=pytest.mark.slow if path.name in SLOW else ()) for path in RUNNABLE]


@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")  # shap's own, on import
@pytest.mark.parametrize("path", PARAMS)
def test_the_python_of_a_page_runs(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    namespace = {}
    try:
        for block in blocks(path):
            if not block.unrun:
                exec(compile(block.code, block.where, "exec"), namespace)
    finally:
        system = namespace.get("system")
        if system is not None:
            system.close()
        if "matplotlib.pyplot" in sys.modules:
            sys.modules["matplotlib.pyplot"].close("all")


def test_every_plot_is_in_the_gallery_and_in_the_api():
    from attribution_sched.explain import plots

    gallery = (ROOT / "docs" / "explanations_gallery.md").read_text("utf-8")
    api = (ROOT / "docs" / "api" / "explain.md").read_text("utf-8")
    assert set(plots.__all__) == set(re.findall(r"^\| `plots\.(\w+)\(", gallery, re.MULTILINE))
    assert set(plots.__all__) == set(
        re.findall(r"^::: attribution_sched\.explain\.plots\.\w+\.(\w+)", api, re.MULTILINE)
    )


def test_every_policy_is_told_about():
    from attribution_sched.scheduler.registry import POLICIES

    page = (ROOT / "docs" / "schedulers.md").read_text("utf-8")
    assert not [name for name in POLICIES if f"`{name}`" not in page]
    # Every policy states which freedoms it uses; hi-ppo's rows did not.
    for cell, told in re.findall(r"^\| (`[^|]*) \| (.*) \|$", page, re.MULTILINE):
        for spec in (POLICIES[name] for name in re.findall(r"`([^`]+)`", cell)):
            assert (spec.pairs, spec.caps) == ("**pairs**" in told, "**caps**" in told), spec.name


def test_every_section_of_a_report_is_told_about_in_its_order():
    from attribution_sched.report.build import ORDER
    from attribution_sched.words.say import say

    titles = [say(f"report.{section.__name__.rpartition('.')[2]}.title", "en") for section in ORDER]
    told = (ROOT / "docs" / "how_to" / "read_a_report.md").read_text("utf-8")
    assert re.findall(r"^\| \*\*(.+?)\*\*", told, re.MULTILINE) == titles


def test_settings_in_yaml_are_valid(tmp_path):
    from attribution_sched.cluster.models.huggingface import EXAMPLES
    from attribution_sched.config import load_settings

    (tmp_path / "config.json").write_text(
        json.dumps(EXAMPLES["qwen-2.5-7b"][0]), encoding="utf-8"
    )  # as the pages name it
    found = 0
    for path in PAGES:
        for text in re.findall(r"```yaml\n(.*?)```", path.read_text("utf-8"), re.DOTALL):
            file = tmp_path / f"{found}.yaml"
            file.write_text(text, encoding="utf-8")
            load_settings(file).build_world()
            found += 1
    assert found


def test_sources_are_in_step():
    sources = script("docs/make_sources.py")
    assert sources.PAGE.read_text("utf-8") == sources.page(), "run: python docs/make_sources.py"


def test_sources_cover_every_file_of_constants():
    sources = script("docs/make_sources.py")
    page = sources.PAGE.read_text("utf-8")
    package = ROOT / "attribution_sched"
    shipped = {path for path in package.rglob("*") if path.suffix in (".json", ".yaml", ".safetensors")}
    # Sentences hold no figures.
    shipped -= set((package / "words").glob("*.yaml"))
    told = {*sources.constant_files(), *sources.preset_files(), *sources.weight_files()}
    assert shipped <= told, sorted(map(named, shipped - told))
    for path in told:
        assert path.name in page
    for file in sources.constant_files():
        section = page.split(f"### `{file.name}`")[1].split("###")[0]
        assert re.search(r"@ [0-9a-f]{8}|arXiv", section), file.name


def test_a_constant_without_words_is_refused(monkeypatch):
    sources = script("docs/make_sources.py")
    assert {"REFERENCE_BATCH", "NOISE", "SIGMA"} <= {name for _, name, _, _ in sources.world_constants()}
    monkeypatch.delitem(sources.WORDS, "REFERENCE_BATCH")
    with pytest.raises(ValueError, match="REFERENCE_BATCH has no words"):
        list(sources.world_constants())


@pytest.mark.slow
@pytest.mark.skipif(find_spec("mkdocstrings") is None, reason="the extra `docs` is not installed")
def test_the_site_builds_without_a_warning_and_fetches_nothing(tmp_path):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, env={"NO_MKDOCS_2_WARNING": "1", "PATH": ""}
    )
    assert done.returncode == 0, done.stderr
    built = sorted((tmp_path / "site").rglob("*.html"))
    assert len(built) > len(PAGES)
    for page in built:
        text = page.read_text("utf-8")
        assert not re.search(r"<(?:script|link|img|iframe)[^>]*(?:src|href)=[\"']?(?:https?:)?//", text), page.name
        assert ":class:" not in text and ":meth:" not in text
