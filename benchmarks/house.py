"""How large the house is, how far one decision walks through it, and how much of it a tour through every door uses.

    python benchmarks/house.py             # files of a warm decision, lines, files, unreachable modules: half a minute
    python benchmarks/house.py --tour      # and the tour: some minutes
    python benchmarks/house.py --tour --doors policies,arena --keep LINES.json    # a part of it, added to what is kept

*Files of a decision*: package files whose functions run in one ``schedule_next_task()`` of a system that has decided
a few times before (``sys.setprofile``). *The tour* goes through every door briefly: policies of the registry in two
worlds, all targets of explanations, feedback, learning, reports, resuming, the arena, both environments and their
batched twins, every command of the command line, operations, real processes, served pages, the profiler, and some
mistakes a user makes. Printed is the share of
statements in function bodies that ran outside four rooms that are rebuilt by themselves (attribution, scheduler/hi_ppo,
explain, report).
Compiled kernels cannot be followed and are left out of the count, as are stubs of protocols. A function is followed in
its first calls and then in ever fewer of them, and no more once all its lines ran, so that the tour ends; the share is
a lower bound.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MPLBACKEND", "Agg")

import argparse
import ast
import json
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import chdir
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "attribution_sched"
REBUILT = ("attribution/", "scheduler/hi_ppo/", "explain/", "report/")
"""Rooms that are not counted in the tour."""

SMALL = """\
name: small
domains: [{name: a}, {name: b}]
domain_defaults: {gpu: A100-80, devices: 4, node_devices: 2}
network: {links: {kind: uniform, gbps: 5.0, latency_s: 0.02, usd_per_gb: 0.08}}
kinds: [{model: bert-base, batch_size: 32, microbatches: [4, 8, 16, 32], steps: [400, 1200], epoch_steps: 500}]
arrivals: {kind: poisson, rate_per_hour: 60.0}
episode: {horizon_s: 1200.0, max_running: 6, queue_capacity: 4, max_segments: 2}
"""

COURSE = """\
agents: {worlds: {testbed: 2}, groups: 2, members: 4, every: 1}
ranker: {rounds: 0}
"""

MODEL = """\
import torch
from torch import nn


def small():
    layers = nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 14 * 14, 4)
    return nn.Sequential(*layers), torch.randn(2, 3, 16, 16)
"""


# One decision ------


def files_of_a_decision(policy: str = "hi-ppo", before: int = 5) -> dict[str, int]:
    """Package files that one warm ``schedule_next_task()`` passes → calls of functions there."""
    from attribution_sched import System

    found: dict[str, int] = defaultdict(int)
    prefix = str(PACKAGE) + os.sep

    def called(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(prefix) and frame.f_code.co_name != "<module>":
            found[frame.f_code.co_filename.removeprefix(prefix)] += 1

    with System(policy=policy) as system:
        for _ in range(before):
            system.schedule_next_task()
        sys.setprofile(called)
        try:
            system.schedule_next_task()
        finally:
            sys.setprofile(None)
    return dict(found)


# The tour ------


@dataclass
class Followed:
    """Which lines of the package ran."""

    lines: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    calls: dict[CodeType, int] = field(default_factory=lambda: defaultdict(int))
    whole: set[CodeType] = field(default_factory=set)

    def __enter__(self) -> Followed:
        prefix = str(PACKAGE) + os.sep
        lines, calls, whole = self.lines, self.calls, self.whole

        def inside(frame: FrameType, event: str, _: Any) -> Any:
            if event == "line":
                lines[frame.f_code.co_filename].add(frame.f_lineno)
            return inside

        def entered(frame: FrameType, event: str, _: Any) -> Any:
            code = frame.f_code
            if code in whole or not code.co_filename.startswith(prefix):
                return None
            calls[code] += 1
            n = calls[code]
            # The first calls, and then those whose number is a power of two.
            if n > 24 and n & (n - 1):
                return None
            if n > 1 and lines[code.co_filename].issuperset(_lines_of(code)):
                whole.add(code)
                return None
            return inside

        threading.settrace(entered)  # pages are answered by a thread of their own
        sys.settrace(entered)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)
        threading.settrace(None)  # type: ignore[arg-type]


def _lines_of(code: CodeType) -> set[int]:
    """Lines of a function that can run; its first one is its head."""
    return {line for _, _, line in code.co_lines() if line is not None and line != code.co_firstlineno}


def body_lines(path: Path) -> Iterator[tuple[str, set[int]]]:
    """Name and first lines of the statements of every function of a file that can be followed."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if any(word in ast.unparse(one) for one in node.decorator_list for word in ("jit", "kernel", "overload")):
            continue
        lines = {one.lineno for one in _statements(node.body)}
        if lines:
            yield node.name, lines


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    for one in body:
        told = isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant)  # docstrings and ...
        # Names declared global, and imports for the type checker, run nothing.
        if not told and not isinstance(one, ast.Global | ast.Nonlocal | ast.Pass):
            yield one
        if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        for part in ("body", "orelse", "finalbody"):
            yield from _statements(getattr(one, part, []))
        for handler in getattr(one, "handlers", []):
            yield from _statements(handler.body)
        for case in getattr(one, "cases", []):
            yield from _statements(case.body)


def shares(followed: Followed) -> dict[str, tuple[int, int, int, int]]:
    """Room → statements that ran, all statements, functions entered, all functions."""
    found: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for path in sorted(PACKAGE.rglob("*.py")):
        where = path.relative_to(PACKAGE).as_posix()
        room = next((room for room in REBUILT if where.startswith(room)), where.split("/")[0])
        ran = followed.lines.get(str(path), set())
        for _, lines in body_lines(path):
            sums = found[room]
            sums[0] += len(lines & ran)
            sums[1] += len(lines)
            sums[2] += bool(lines & ran)
            sums[3] += 1
    return {room: (sums[0], sums[1], sums[2], sums[3]) for room, sums in found.items()}


class Tour:
    """A walk through every door.

    Args:
        folder: Where its files go.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.journal = folder / "tour.sqlite"
        for name, text in (("small.yaml", SMALL), ("course.yaml", COURSE), ("their_model.py", MODEL)):
            (folder / name).write_text(text, encoding="utf-8")

    def steps(self) -> list[tuple[str, Callable[[], object]]]:
        """Doors, in order."""
        return [
            ("system", self.system),
            ("system with targets", self.feedback),
            ("resume", self.resume),
            ("policies", self.policies),
            ("arena", self.arena),
            ("gymnasium", self.environments),
            ("training", self.training),
            ("commands", self.commands),
            ("simulators", self.simulators),
            ("operations", self.operations),
            ("questions", self.questions),
            ("machines", self.machines),
            ("pages", self.pages),
            ("logs", self.logs),
            ("formats", self.formats),
            ("mistakes", self.mistakes),
        ]

    def system(self) -> None:
        """Submit, decide, run, explain by every target, report."""
        from attribution_sched import System, reasoning

        with System("testbed", journal=self.journal, explain=False) as system:
            repr(system)
            system.submit("resnet-50", steps=400)
            result = system.schedule_next_task()
            assert result is not None
            str(result), result.to_dict(), result._repr_html_(), result.reasoning("zh")
            str(system.run(6))
            for target in ("reward", "choice", "simulator"):
                _try(lambda target=target: reasoning(system.explain(result, target=target, rows=256, precision=None)))
            system.history()
            for lang, name in (("en", "report.html"), ("zh", "report.md")):
                system.report(self.folder / name, lang=lang, rivals=())
        with System(self.folder / "small.yaml") as small:  # held-out episodes of twenty minutes
            small.train(days=2)

    def feedback(self) -> None:
        """Work toward a target."""
        from attribution_sched import System

        with System("testbed", policy="sjf", targets={"utilisation_at_least": 0.9}) as system:
            system.run(24)
            _try(lambda: system.feedback())

    def resume(self) -> None:
        """Go on after the process ended."""
        from attribution_sched import System

        with System.resume(self.journal) as system:
            system.run(2)
        with System.demo() as demo:
            demo.run(3)

    def policies(self) -> None:
        """Every policy of the registry in two small worlds."""
        from attribution_sched import config, load_settings, make_policy, play
        from attribution_sched.scheduler.registry import POLICIES

        worlds = [
            replace(load_settings("testbed").build_world(), horizon_s=900.0),
            replace(config.build_scenario("cross-domain-easy", "ou30"), horizon_s=1.5 * 3600.0),
        ]
        for name in POLICIES:
            for world in worlds:
                play(world, make_policy(name), 3)

    def arena(self) -> None:
        """Policies side by side, kept, read again, drawn."""
        from attribution_sched import config, evaluate

        names, worlds = ["sjf", "greedy", "static-uniform"], str(self.folder / "small.yaml")
        for _ in range(2):
            result = evaluate(names, worlds, episodes=2, limit="sjf", folder=self.folder / "arena")
        str(result), result.table()
        for scenario in config.scenario_names():
            config.build_scenario("cross-domain-easy", scenario)

    def environments(self) -> None:
        """Both environments, one by one and batched."""
        import gymnasium as gym
        import numpy as np

        from attribution_sched import registration

        gym.register_envs(registration)
        for name in (registration.TESTBED, registration.CROSS_DOMAIN):
            env = gym.make(name)
            _, info = env.reset(seed=1)
            for _ in range(30):
                mask = info.get("action_mask")
                action = int(np.flatnonzero(mask)[0]) if np.ndim(mask) == 1 and name.endswith("Testbed-v0") else None
                _, _, _, over, info = env.step(env.action_space.sample() if action is None else action)
                if over:
                    break
            many = gym.make_vec(name, num_envs=2, vectorization_mode="vector_entry_point")
            many.reset(seed=1)
            for _ in range(10):
                many.step(many.action_space.sample())

    def training(self) -> None:
        """Hi-PPO on a short course, stopped and resumed; learners of the testbed."""
        from attribution_sched import config, train, train_testbed

        with chdir(self.folder):
            train("course.yaml", "run", stop=lambda: True)
            train("course.yaml", "run", resume=True)
        short = config.PpoSettings(num_steps=64, minibatch_size=32, update_epochs=1)
        train_testbed(64, clusters=8, settings=short, output=self.folder / "flat.safetensors")

    def commands(self) -> None:
        """Every command, in this process."""
        from typer.testing import CliRunner

        from attribution_sched.cli.app import app

        runner, kept = CliRunner(), ("--journal", "run.sqlite")
        with chdir(self.folder):
            for line in (
                ("--help",),
                ("version",),
                ("run", "--preset", "testbed", "--tasks", "4", *kept),
                ("run", "--preset", "testbed", "--tasks", "2", "--json"),
                ("explain", "last", *kept),
                ("explain", "last", "--lang", "zh", "--json", *kept),
                ("report", *kept, "--output", "cli.html"),
                ("export", *kept, "--output", "rows.csv"),
                ("export", *kept, "--output", "all.json"),
                ("doctor",),
                ("doctor", "--verify", "run.sqlite"),
                ("archive", *kept, "--output", "old.sqlite"),
                ("compact", *kept),
                ("bench", "policies"),
                ("bench", "scenarios"),
                ("bench", "schedulers", "--preset", "small.yaml", "--policies", "sjf,greedy", "--episodes", "1"),
                ("simulate", "--preset", "small.yaml"),
                ("simulate", "--preset", "small.yaml", "--engine", "simpy", "--mtbf-h", "1"),
                ("profile", "their_model:small"),
                ("train", "--preset", "course.yaml", "--output", "cli_run"),
                ("simulate", "--policy", "gredy"),
                ("explain", "nobody", *kept),
            ):
                _invoke(runner, app, line)

    def simulators(self) -> None:
        """The event simulator with failures and preemption."""
        from attribution_sched import cluster, load_settings, make_policy, simulate

        world = load_settings(self.folder / "small.yaml").build_world()
        simulate(
            world, make_policy("greedy"), 1, failures=cluster.Failures(0.5), preemption=cluster.Preemption(enabled=True)
        )

    def operations(self) -> None:
        """What an operator does and sees; a journal that is cut short, archived, verified, exported."""
        from attribution_sched import System
        from attribution_sched.journal import Journal

        path = self.folder / "operations.sqlite"
        with System(self.folder / "small.yaml", "greedy", queue="empty", journal=path) as system:
            for at in range(9):
                wishes: dict[str, Any] = {"tenant": f"t{at % 2}", "priority": at % 3, "deadline_s": 3600.0 * (at + 1)}
                system.submit("bert-base", id=f"own-{at}", devices=2 if at % 2 else None, hold=at == 5, **wishes)
            kept = system.reserve("a", 1, tenant="t1", hours=1)
            system.run(3)
            waiting = [str(each) for each, how in zip(*(system.queue()[name] for name in ("id", "state")), strict=True)
                       if how != "held"]  # fmt: skip
            system.hold(waiting[-1])
            system.release("own-5")
            system.withdraw(waiting[-2])
            system.cancel(system.status().running[0])
            system.unreserve(kept)
            str(system.status()), system.status().told("zh"), system.queue("zh")
            system.run(until="empty")
            for ending in ("csv", "parquet", "jsonl", "json"):
                system.journal.export(self.folder / f"operations.{ending}")
        with Journal.open(path) as journal:
            journal.verify()

    def questions(self) -> None:
        """Why a task waits, why it is not elsewhere, when it starts, what a change would do, who pays."""
        from typer.testing import CliRunner

        from attribution_sched import System
        from attribution_sched.cli.app import app

        path = self.folder / "questions.sqlite"
        with System("testbed", "sjf", seed=3, journal=path) as system:
            system.run(12)
            while not len(queue := system.queue()):
                system.run(1)
            task = str(queue["id"][0])
            domain = system.settings.domains[0].name
        runner, at = CliRunner(), str(path)
        (self.folder / "job.yaml").write_text("kind: resnet-50\nsteps: 400\n", encoding="utf-8")
        for line in (
            ("why", at, task), ("why", at, task, "--private", "--lang", "zh"), ("why", at, task, "--json"),
            ("why-not", at, task, domain), ("when", at, task, "--futures", "9", "--hours", "1"),
            ("what-if", at, "--add", f"2@{domain}", "--futures", "2", "--hours", "1"),
            ("what-if", at, "--task", str(self.folder / "job.yaml"), "--futures", "2", "--hours", "1", "--json"),
            ("bill", at), ("bill", at, "--compare", "--lang", "zh"), ("bill", at, "--by", "model", "--json"),
            ("bill", at, "--rule", "usage", "-o", str(self.folder / "focus.csv"), "--device-price", "2"),
            ("doctor", "--verify", at, "--json"),
        ):  # fmt: skip
            _invoke(runner, app, line)

    def machines(self) -> None:
        """Real processes behind the ring, resumed and billed."""
        from typer.testing import CliRunner

        from attribution_sched import System
        from attribution_sched.cli.app import app
        from attribution_sched.executors.live import Live
        from attribution_sched.executors.local import LocalExecutor

        path = self.folder / "machines.sqlite"

        def made() -> Live:
            executors = {name: LocalExecutor(name, 4, self.folder / "jobs", grace_s=1.0) for name in ("a", "b")}
            return Live(executors, tick_s=0.25, poll_s=0.01, gang_s=10.0, kind="tour")

        step = '{\\"step_s\\": 0.5, \\"cpu_s\\": 0.01, \\"bytes\\": 7, \\"done\\": 0.$i}'
        script = f'for i in 1 2 3 4 5; do echo "{step}" >> $ATTR_REPORT; done; sleep 0.3'
        with System(
            self.folder / "small.yaml", "greedy", queue="empty", journal=path, cluster=made()
        ) as system:  # fmt: skip
            for at in range(3):
                system.submit("bert-base", steps=20, id=f"own-{at}", command=["sh", "-c", script])
            first = system.schedule_next_task()
            system.submit("bert-base", steps=20, id="long", command=["sh", "-c", "sleep 60"])
            system.schedule_next_task()
        with System.resume(path, cluster=made()) as system:
            _try(lambda: system.cancel("long"))
            system.run(until="empty")
            if first is not None:
                system.outcome(first.id)
        _invoke(CliRunner(), app, ("bill", str(path)))

    def pages(self) -> None:
        """Pages and JSON over the journal of the first door."""
        sys.path.insert(0, str(ROOT))
        from starlette.testclient import TestClient

        from attribution_sched import System
        from attribution_sched.serve.app import ENDPOINTS, make_app
        from tests.serve.conftest import Inline

        path = self.folder / "pages.sqlite"
        with System("cross-domain-easy", "rule", seed=3, journal=path) as system:
            for _ in range(60):
                system.run(2)
                if not system.queue().empty:
                    break
            waiting = [str(each) for each in system.queue()["id"]] or ["nobody"]
            domain = system.settings.domains[0].name
        # Pages are for this machine alone unless a token is set.
        with TestClient(make_app(Inline(path), path), base_url="http://localhost") as client:
            paths = [path.replace("{id}", "d000001") for path, _, _ in ENDPOINTS]
            for lang in ("en", "zh"):
                for one in ("/", "/decision/d000001", "/metrics", *paths):
                    asked = {"lang": lang, "task": waiting[0], "domain": domain, "change": f"drop {domain}"}
                    answer = client.get(one, params=asked)
                    if answer.status_code != 200:
                        raise SystemExit(f"{one}: {answer.status_code} {answer.text[:200]}")

    def logs(self) -> None:
        """Logs and queues of other schedulers; a preset from words; links and stages measured."""
        sys.path.insert(0, str(ROOT))
        from typer.testing import CliRunner

        from attribution_sched.cli.app import app
        from tests.executors.test_shadow import numbered, recorded

        runner, here = CliRunner(), self.folder
        rows = (f"{at} {60 * at} 5 {300 + 10 * at} 2 -1 -1 2 600 -1 1 1 1 1 1 1 -1 -1" for at in range(1, 30))
        (here / "log.swf").write_text("; a log\n" + "\n".join(rows) + "\n", encoding="utf-8")
        for name, text in zip(("queue", "nodes", "past"), recorded(numbered, lambda word: [word]), strict=True):
            (here / f"{name}.json").write_text(text, encoding="utf-8")
        queue = ("--squeue", f"{here}/queue.json", "--nodes", f"{here}/nodes.json", "--sacct", f"{here}/past.json")
        (here / "chain.py").write_text(
            "import torch\n\n\ndef make():\n    return torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU())\n",
            encoding="utf-8",
        )
        for line in (
            ("import", "swf", f"{here}/log.swf", "-o", f"{here}/trace.csv", "--preset", "testbed"),
            ("shadow", *queue), ("shadow", *queue, "--job", "8", "--json"),
            ("init", "-o", f"{here}/mine.yaml", "--domain", "east=8xA100-80", "--domain", "west=4xH100-80/4"),
            ("profile", "links", "--seconds", "0.05", "--json"),
            ("profile", "stages", f"{here}/chain.py:make", "--input", "4x8", "--json"),
        ):  # fmt: skip
            _invoke(runner, app, line)

    def formats(self) -> None:
        """What other engines read: Jobs and a JobSet; half an hour of opaque jobs; measured links in a preset."""
        from typer.testing import CliRunner

        from attribution_sched import System, load_settings, make_policy, play
        from attribution_sched.cli.app import app

        here, path = self.folder, self.folder / "formats.sqlite"
        with System("testbed", "sjf", seed=3, journal=path) as system:
            placed = system.schedule_next_task()
        assert placed is not None
        play(replace(load_settings("shared").build_world(), horizon_s=1800.0), make_policy("sjf"), 1)
        runner, kept = CliRunner(), ("export", "-j", str(path))
        for line in (
            (*kept, "-o", f"{here}/jobs.yaml", "--kubernetes", placed.id, "--image", "pytorch"),
            (*kept, "-o", f"{here}/set.yaml", "--kubernetes", placed.id, "--image", "pytorch", "--jobset"),
            (*kept, "-o", f"{here}/rows.jsonl", "--json"),
            ("profile", "links", "--seconds", "0.05", "--into", f"{here}/small.yaml"),
        ):  # fmt: skip
            _invoke(runner, app, line)

    def mistakes(self) -> None:
        """What users get wrong."""
        from attribution_sched import System, load_settings, make_policy, train

        for wrong in (
            lambda: load_settings("testbad"),
            lambda: load_settings({"extends": "testbed", "episode": {"horizn_s": 1.0}}),
            lambda: load_settings({"extends": "testbed", "episode": {"horizon_s": -1.0}}),
            lambda: make_policy("gredy"),
            lambda: System("testbed", policy=7),
            lambda: System("testbed").submit("resnet-51"),
            lambda: System("testbed").submit("resnet-50", steps=-1),
            lambda: System.resume(self.folder / "nobody.sqlite"),
            lambda: train("course.yaml", self.folder),
        ):
            _try(wrong)


def _invoke(runner: Any, app: Any, line: tuple[str, ...]) -> None:
    done = runner.invoke(app, list(line))
    # A line that is refused opens no door: two of them are mistakes on purpose.
    if done.exit_code != (2 if {"gredy", "nobody"} & set(line) else 0):
        told = done.stderr.strip()[-200:]
        print(f"  attribution-sched {' '.join(line)}: exit {done.exit_code} {told}", file=sys.stderr)


def _try(action: Callable[[], object]) -> None:
    """Do something that may be refused; anything but a refusal is a defect and ends the tour."""
    from attribution_sched import AttributionSchedError

    try:
        action()
    except AttributionSchedError:
        return


# The count ------


def unreachable() -> list[str]:
    """Modules that no door leads to, as the test counts them."""
    sys.path.insert(0, str(ROOT))
    from tests.test_reachable import unreachable as count

    return list(count(ROOT))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tour", action="store_true", help="go through every door")
    parser.add_argument("--files", action="store_true", help="list the files of a decision")
    parser.add_argument("--doors", help="of the tour, those with these names, by commas; all by default")
    parser.add_argument("--keep", type=Path, help="file of the lines that ran; those already there count too")
    args = parser.parse_args()
    if args.tour:
        tour_and_print(args.doors.split(",") if args.doors else None, args.keep)
        return
    passed = files_of_a_decision()
    outside = sorted(name for name in passed if not name.startswith(("scheduler/", "explain/")))
    print(f"one warm schedule_next_task(): {len(passed)} files, {len(outside)} outside scheduler/ and explain/")
    if args.files:
        print(*(f"  {passed[name]:5d} {name}" for name in sorted(passed)), sep="\n")
    files = sorted(PACKAGE.rglob("*.py"))
    lines = sum(len(path.read_text("utf-8").splitlines()) for path in files)
    print(f"{len(files)} files, {lines:,} lines, {len(unreachable())} unreachable modules")


def tour_and_print(doors: list[str] | None, keep: Path | None) -> None:
    """Go through the doors and print what ran.

    Args:
        doors: Their names; all by default.
        keep: Where the lines that ran are kept, and were kept before.
    """
    began = time.perf_counter()
    followed, failed = Followed(), list[str]()
    if keep is not None and keep.exists():
        for name, ran in json.loads(keep.read_text("utf-8")).items():
            followed.lines[str(PACKAGE / name)].update(ran)
    with tempfile.TemporaryDirectory() as folder:
        sys.path.insert(0, folder)
        tour = Tour(Path(folder))
        for name, step in tour.steps():
            if doors is not None and name not in doors:
                continue
            since = time.perf_counter()
            try:
                with followed:
                    step()
            except Exception as error:  # what is broken is shown, and the other doors are still tried
                failed.append(name)
                print(f"  {name}: {type(error).__name__}: {error}")
            print(f"  {name:20s} {time.perf_counter() - since:6.1f} s", flush=True)
    if keep is not None:
        told = {Path(name).relative_to(PACKAGE).as_posix(): sorted(ran) for name, ran in followed.lines.items()}
        keep.write_text(json.dumps(told), encoding="utf-8")
    found = shares(followed)
    print(f"tour of {time.perf_counter() - began:.0f} s; statements of function bodies that ran, functions entered:")
    for room, (ran, all_, entered, functions) in sorted(found.items(), key=lambda one: -one[1][1]):
        aside = " (not counted)" if room in REBUILT else ""
        print(f"  {room:24s} {ran:6d} of {all_:6d} = {ran / all_:4.0%}   {entered:5d} of {functions:5d}{aside}")
    for label, rooms in (
        ("outside the four rooms", [r for r in found if r not in REBUILT]),
        ("in all", list(found)),
    ):
        ran, all_ = (sum(found[room][i] for room in rooms) for i in (0, 1))
        entered, functions = (sum(found[room][i] for room in rooms) for i in (2, 3))
        print(f"{label}: {ran / all_:.1%} of {all_:,} statements, {entered / functions:.1%} of {functions:,} functions")
    if failed:
        sys.exit(f"doors that did not open: {', '.join(failed)}")


if __name__ == "__main__":
    main()
