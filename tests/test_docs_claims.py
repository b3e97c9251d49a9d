"""What pages say twice they say alike: figures, defaults, options, names and files, held to the code and each other."""

from __future__ import annotations

import importlib
import inspect
import re
from importlib.util import find_spec

import pytest

from tests.docs_text import PAGES, ROOT, TEXTS, named

RESULTS = [path for path in PAGES if path.name.startswith("results_")]
NUMBER = re.compile(r"(?<![\w.,])[−+-]?\d[\d,]*(?:\.\d+)?")
SCRIPTS = re.compile(r"python (?P<module>-m )?(?P<script>(?:benchmarks|calibration|docs|examples|tests)[\w/.]+)")


def page(name):
    """A page under ``docs/``."""
    return (ROOT / "docs" / name).read_text("utf-8")


def size(number):
    """Its absolute value: pages write a loss with its sign or in words."""
    return abs(float(number.replace("−", "-").replace(",", "")))


def summary(text):
    """The five lines of a results page, and the page without them."""
    found = re.match(r"# [^\n]+\n\nFive lines:\s(?P<lines>.+?)\n\n(?!- )", text, re.DOTALL)
    return found and (found["lines"], text[found.end() :])


def told_of(number, others):
    """Whether a number is one of others, to its own last digit."""
    digits = len(number.partition(".")[2])
    return any(abs(other - size(number)) <= 0.5 * 10.0**-digits + 1e-9 for other in others)


@pytest.mark.parametrize("path", RESULTS, ids=named)
def test_a_results_page_begins_with_five_lines_whose_figures_stand_below(path):
    found = summary(path.read_text("utf-8"))
    assert found, f"{named(path)}: no 'Five lines:' below the heading"
    lines, rest = found
    below = [size(number) for number in NUMBER.findall(rest)]
    figures = [number for number in NUMBER.findall(lines) if "." in number or size(number) >= 10]
    assert len(figures) >= 3
    assert [number for number in figures if not told_of(number, below)] == [], named(path)


def test_figures_of_the_readme_stand_on_the_page_that_their_row_links():
    table = (ROOT / "README.md").read_text("utf-8").split("<!-- results -->")[1].split("<!-- /results -->")[0]
    rows = [line for line in table.splitlines() if "](docs/" in line]
    assert len(rows) >= 9
    for row in rows:
        told, _, source = re.sub(r"^\| J\d · ", "| ", row).rpartition(" | ")
        linked = page(re.search(r"\]\(docs/([\w.]+)\)", source)[1])
        there = {size(number) for number in NUMBER.findall(linked)}
        assert [number for number in NUMBER.findall(told) if size(number) not in there] == [], row


@pytest.mark.parametrize("path", TEXTS, ids=named)
def test_options_of_scripts_exist(path):
    text = path.read_text("utf-8")
    for match in SCRIPTS.finditer(text):
        script = match["script"].rstrip(".")
        file = ROOT / (script.replace(".", "/") + ".py" if match["module"] else script)
        assert file.is_file(), f"{named(path)}: {match[0]}"
        given = re.findall(r"(?<![\w-])--[a-z][\w-]*", text[match.end() :].partition("`")[0].partition("```")[0])
        source = file.read_text("utf-8")
        assert [option for option in given if f'"{option}"' not in source] == [], f"{named(path)}: {match[0]}"


HOMES = ("attribution_sched", "research", "benchmarks", "calibration", "tests", "docs")
MADE_BY_THE_READER = {"train.py", "runs"}


@pytest.mark.parametrize("path", [path for path in TEXTS if not path.name.startswith("upgrade_")], ids=named)
def test_files_and_folders_of_python_exist_where_they_are_said_to_be(path):
    there = [file.relative_to(ROOT).as_posix() for home in HOMES for file in (ROOT / home).rglob("*.py")]
    ends = {"/".join(parts[at:]) for parts in (file.split("/") for file in there) for at in range(len(parts))}
    folders = {end.rpartition("/")[0] for end in ends} - {""}
    folders |= {"/".join(folder.split("/")[:at]) for folder in folders for at in range(1, folder.count("/") + 1)}
    text = path.read_text("utf-8")
    for file in re.findall(r"`((?:\w+/)*\w+\.py)`", text):
        assert file in ends | MADE_BY_THE_READER or (ROOT / file).is_file(), f"{named(path)}: {file}"
    for folder in re.findall(r"`((?:\w+/)+)`", text):
        assert folder.rstrip("/") in folders | MADE_BY_THE_READER or (ROOT / folder).is_dir(), (
            f"{named(path)}: {folder}"
        )


def test_modules_that_the_upgrade_page_names_exist():
    moved = page("upgrade_0_2.md").split("## Modules that moved")[1].split("## Checkpoints")[0]
    targets = [
        name
        for line in moved.splitlines()
        if line.startswith("| `") and "not installed" not in line
        for name in re.findall(r"`([a-z_][\w.{},]*)`", line.split("|")[2])
        if "." in name or (ROOT / "attribution_sched" / f"{name}.py").is_file()
    ]
    assert len(targets) > 50
    later = page("upgrade_0_3.md").split("## Modules that moved")[1]
    again = dict(re.findall(r"^\| `([\w.]+)` \| `([\w.]+)` \|$", later, re.MULTILINE))
    assert len(again) > 20
    for target in again.values():
        homes = (f"attribution_sched.{target}", f"attribution_sched.{target.rpartition('.')[0]}")
        assert any(home.rpartition(".")[2] and _found(home) for home in homes), target

    def now(name):
        """Where a module of 0.2 stands now."""
        for old in sorted(again, key=len, reverse=True):
            if name == old or name.startswith(f"{old}."):
                return again[old] + name.removeprefix(old)
        return name

    for target in targets:
        head, _, rest = target.partition("{")
        for name in [head + tail for tail in rest.rstrip("}").split(",")] if rest else [target]:
            homes = ("attribution_sched", "attribution_sched.scheduler", "attribution_sched.cli")
            tried = [f"{home}.{name}".removeprefix("attribution_sched.") for home in homes]
            assert any(_resolves(f"attribution_sched.{now(each)}") for each in tried), name


def _found(name):
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def _resolves(name):
    """Whether a dotted name is a module, or something in one."""
    module, _, last = name.rpartition(".")
    try:
        importlib.import_module(name)
    except ModuleNotFoundError:
        try:
            return hasattr(importlib.import_module(module), last)
        except ModuleNotFoundError:
            return False
    return True


def rows_of(text, heading):
    """First two cells of a table's rows, below a heading, code marks taken off."""
    below = text.split(heading, 1)[1]
    return dict(re.findall(r"^\| `([^`|]+)` \| ([^|]*?) ?\|", below.split("\n## ", 1)[0], re.MULTILINE))


def test_defaults_of_system_are_those_of_its_page():
    from attribution_sched import System

    told = rows_of(page("system.md"), "## What a system is made of")
    given = {name: each.default for name, each in inspect.signature(System.__init__).parameters.items()}
    assert set(told) == set(given) - {"self"}
    for name in ("preset", "policy", "queue", "cluster"):
        assert told[name] == f'`"{given[name]}"`'
    for name in ("journal", "seed", "explain", "targets"):
        assert told[name].partition(":")[0] == str(given[name])


def test_defaults_of_run_are_those_of_its_page():
    from attribution_sched.cli import run

    text = page("cli.md")
    told = rows_of(text, "| option | default | what it is |")
    assert told["--preset"] == f"`{run.PRESET}`"
    assert told["--policy"] == f"`{run.POLICY}`"
    assert told["--cluster"] == f"`{run.CLUSTERS[0]}`"
    assert f"(`--tasks`, {run.TASKS} in all by default" in text
    assert run.EXPLAINED == 6 and "The six decisions that commit most" in text


def test_every_command_stands_in_the_table_of_commands():
    import typer.main

    from attribution_sched.cli import app

    table = page("cli.md").split("| command |")[1].split("\n\n")[0]
    told = {word.split()[0] for cell in re.findall(r"^\| (.+?) \|", table, re.MULTILINE) for word in _coded(cell)}
    commands = typer.main.get_command(app).commands
    assert told == {name for name, command in commands.items() if not command.hidden}


def _coded(cell):
    """What is set as code in a cell."""
    return re.findall(r"`([^`]+)`", cell)


def test_targets_of_the_presets_are_those_of_the_page():
    from attribution_sched.cli.run import USUAL
    from attribution_sched.config import load_settings

    table = page("cli.md").split("| preset | utilisation at least |")[1].split("\n\n")[0]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines()[2:]]
    told = {name: cells for cells in rows for name in _coded(cells[0]) or [cells[0]]}
    asked = {preset: load_settings(preset).targets for preset in told if preset != "without targets"}
    assert set(asked) == {path.stem for path in (ROOT / "attribution_sched/presets").glob("*.yaml")} - {"hi_ppo"}
    for preset, targets in {**asked, "without targets": USUAL}.items():
        figures = targets if isinstance(targets, dict) else targets.named()
        wanted = [figures[name] for name in ("utilisation_at_least", "step_ratio_at_most", "cost_ratio_at_most")]
        assert [float(cell.split()[0]) for cell in told[preset][1:]] == wanted, preset


def test_the_readme_names_every_preset_and_its_devices():
    from attribution_sched.config import load_settings

    text = (ROOT / "README.md").read_text("utf-8")
    told = re.search(r"Presets: (.+?)\. A YAML file", text, re.DOTALL)[1]
    presets = {path.stem for path in (ROOT / "attribution_sched/presets").glob("*.yaml")} - {"hi_ppo"}
    assert set(_coded(told)) == presets
    devices = {
        name: sum(each.devices for each in load_settings(name).build_world().cluster.domains) for name in presets
    }
    assert devices == {"testbed": 4, "shared": 64, "cross-domain-easy": 64, "cross-domain": 32, "large": 64 * 64}
    for preset, words in {"testbed": "four GPUs", "shared": "64 V100", "cross-domain-easy": "64 GPUs"}.items():
        assert words in told.split(f"`{preset}` (", 1)[1].split(")")[0]
    assert "(`cross-domain`: four cloud regions, 32 GPUs," in page("how_to/first_run.md")


def test_numbers_of_hi_ppo_are_those_of_the_code():
    from attribution_sched.scheduler.glass_box.trees import LEAVES
    from attribution_sched.scheduler.hi_ppo.upper_agent import SIZE
    from attribution_sched.scheduler.thinking import Think

    text, think = page("hi_ppo.md"), Think()
    assert f"{SIZE} numbers with names" in text
    assert f"with {SIZE} learnt numbers" in (ROOT / "CHANGELOG.md").read_text("utf-8")
    assert f"of {SIZE} learnt numbers" in page("upgrade_0_2.md")
    assert f"all of them in {think.screen} futures, the best three in {think.confirm} fresh ones" in text
    assert (think.keep, think.changes, think.hours, think.beta) == (3, 11, 6.0, 100.0)
    assert "up to eleven others" in text and "played 6 hours on" in text and "β = 100" in text
    for name in ("glass_box.md", "schedulers.md", "results_explain.md"):
        assert f"at most {LEAVES} leaves" in page(name)


def test_causes_of_waiting_are_told_in_their_order():
    from attribution_sched.explain.why import Cause

    told = re.search(r"`explain/why\.py`: ([^)]+)\)", page("explain.md"))[1]
    assert re.split(r",\s+", told) == [cause.value.replace("_", " ") for cause in Cause]


def test_numbers_of_futures_are_those_of_the_code():
    from attribution_sched.executors.shadow import DRAWS
    from attribution_sched.explain import brought, when
    from attribution_sched.serve import follow

    text = page("explain.md")
    assert f"command line; {brought.FUTURES} futures)" in text
    assert f"under {when.FUTURES} drawn futures" in text and f"fewer futures are played ({when.FEWER_FUTURES})" in text
    assert f"the middle 80 % of {DRAWS} futures" in page("how_to/shadow.md")
    assert f"the middle 80 % of {follow.FUTURES} futures" in page("how_to/live_page.md")


def test_changes_of_the_fork_are_all_told():
    from typing import get_args

    from attribution_sched.cluster.fork import Change

    assert [each.__name__ for each in get_args(Change) if f"`{each.__name__}(" not in page("fork.md")] == []


def test_rules_of_the_bill_are_all_told():
    from attribution_sched.billing.games import EXACT_LIMIT
    from attribution_sched.billing.rules import RULES

    text = page("billing.md")
    assert tuple(rows_of(text, "## Rules")) == RULES
    assert f"up to {EXACT_LIMIT} players all coalitions are valued" in text


@pytest.mark.parametrize("path", TEXTS, ids=named)
def test_calls_of_system_and_journal_exist(path):
    from attribution_sched import Journal, System

    # What older releases had is history.
    text = path.read_text("utf-8").split("\n## [0.2.0]")[0]
    text = re.sub(r"### Removed\n.*?(?=\n### |\Z)", "", text, flags=re.DOTALL)
    for owner in (System, Journal):
        told = re.findall(rf"`{owner.__name__}\.(\w+)", text)
        assert [name for name in told if not hasattr(owner, name)] == [], named(path)


def test_rooms_are_told_in_the_order_that_lint_holds():
    import tomllib

    layers = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"][0][
        "layers"
    ]
    level = {name.strip(): at for at, layer in enumerate(layers) for name in layer.split("|")}
    chain = (ROOT / "CONTRIBUTING.md").read_text("utf-8").split("## Rooms\n\n")[1].split("\n\n")[0]
    told = [level[name] for name in re.split(r"\s*→\s*", chain.strip())]
    assert told == sorted(set(told)) and len(told) > 15


def test_a_plot_stands_in_the_gallery_once():
    told = re.findall(r"^\| `plots\.(\w+)\(", page("explanations_gallery.md"), re.MULTILINE)
    assert len(told) == len(set(told))


def test_a_wrong_figure_is_noticed():
    text = page("results_carbon.md")
    lines, rest = summary(text.replace("accounts 10.1 %", "accounts 12.7 %"))
    below = [size(number) for number in NUMBER.findall(rest)]
    assert [number for number in NUMBER.findall(lines) if "." in number and not told_of(number, below)] == ["12.7"]
