"""Every command of the pages about real clusters, typed as it stands there; names and addresses are the reader's.

A command that is not run here is named in ``LEFT_OUT`` with the reason.
"""

import json
import os
import re
import shlex
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.executors.test_kueue import FULL, condition, queues, workload

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "how_to"
LEFT_OUT = {
    "pip install": "installs the package itself",
    "ray start": "the nodes of this Ray are started by tests/engines/ray_here.py",
    "attribution-sched train": "learns for hours; tests/engines/test_ray_workers.py trains in small",
}
FEWER = {"bench": ("--preset", "testbed", "--episodes", "1", "--scenarios", "steady")}
"""Options that keep a command short."""
MODEL = """
from torch import nn

def make_model():
    return nn.Sequential(*[nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True) for _ in range(4)])
"""
ASTRA = """#!/bin/sh
for a in "$@"; do case $a in --workload-configuration=*) traces=${a#*=};; esac; done
i=0
for each in "$traces".*.et; do echo "sys[$i] finished, 1000 cycles, exposed communication 10 cycles."; i=$((i+1)); done
"""
"""Says that every stage whose trace it is given has finished."""


def commands(page):
    """Lines of a page's console blocks, comments left out."""
    text = (PAGES / page).read_text("utf-8")
    lines = [line for block in re.findall(r"```console\n(.*?)```", text, re.DOTALL) for line in block.splitlines()]
    found = [line for line in lines if line.strip() and not line.startswith(tuple(LEFT_OUT))]
    assert found
    return found


@pytest.fixture
def type_(tmp_path):
    """Type a command; what it said."""
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}

    def typed(line, own=None, variables=None, answers=""):
        for word, mine in (own or {}).items():
            line = line.replace(word, mine)
        words = [*shlex.split(line, comments=True), *FEWER.get(line.split()[1], ())]
        done = subprocess.run(
            words, cwd=tmp_path, env=environment | (variables or {}), input=answers, capture_output=True, text=True,
            timeout=300, check=False,
        )  # fmt: skip
        assert done.returncode == 0, (line, done.stdout[-1500:], done.stderr[-1500:])
        return done.stdout

    typed.environment = environment
    return typed


@pytest.fixture
def journal(type_, tmp_path):
    """A journal of a run on local processes, and of one with a plan that is cut."""
    type_(
        "attribution-sched run --preset testbed --demo --cluster local --tasks 3 --journal run.sqlite -q --no-feedback"
    )
    return tmp_path / "run.sqlite"


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


def listens(port, seconds=60.0):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise AssertionError("nobody listens")


def test_watch_a_real_queue(slurm, type_, tmp_path):
    own = {}
    for name, devices in (("runs", 8), ("4711", 4)):
        command = ("sbatch", "--parsable", "-J", name, "-t", "5", f"--gpus={devices}", "--wrap", "sleep 60")
        own[name] = slurm.ask("east", *command).stdout.strip()
    variables = slurm.environment("east")
    for file, command in {"squeue": ("squeue",), "nodes": ("sinfo", "--Node"), "sacct": ("sacct",)}.items():
        (tmp_path / f"{file}.json").write_text(slurm.ask("east", *command, "--json").stdout)
    waits = workload("waits", 6, condition("QuotaReserved", "False", FULL))
    (tmp_path / "workloads.json").write_text(json.dumps({"items": [waits]}))
    (tmp_path / "queues.json").write_text(queues())
    variables["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{variables['PATH']}"
    before = slurm.ask("east", "squeue", "-h").stdout.count("\n")
    said = [type_(line, {"4711": own["4711"]}, variables) for line in commands("shadow.md")]
    assert len(said) == 5 and all(own["4711"] in each for each in said[:4]) and "waits" in said[4]
    # Nothing was touched.
    assert slurm.ask("east", "squeue", "-h").stdout.count("\n") == before
    slurm.ask("east", "scancel", "-u", "root")


def test_a_preset_of_ones_own_cluster(slurm, ray_nodes, type_, tmp_path):
    variables = slurm.environment("east") | {"RAY_ADDRESS": ray_nodes.address}
    variables["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{variables['PATH']}"
    (tmp_path / "train.py").write_text(MODEL)
    # A stand-in for a build of one's own.
    (tmp_path / "astra").write_text(ASTRA)
    (tmp_path / "astra").chmod(stat.S_IRWXU)
    port = free_port()
    run = (
        "attribution-sched run --preset cross-domain-easy --tasks 2 --journal run.sqlite -q --no-feedback --no-explain"
    )
    type_(run, variables=variables)
    own = {"0.0.0.0:7411": f"127.0.0.1:{port}", "west.example.org:7411": f"127.0.0.1:{port} --seconds 0.2",
           "d000042": "d000000", "~/astra-sim/AstraSim_Analytical_Congestion_Unaware": str(tmp_path / "astra"),
           "--ray auto": "--ray auto --gpu A100-80"}  # fmt: skip
    for line in commands("own_cluster.md"):
        if "--listen" in line:
            words = shlex.split(line.replace("0.0.0.0:7411", f"127.0.0.1:{port}"), comments=True)
            listener = subprocess.Popen(words, cwd=tmp_path, env=type_.environment, stderr=subprocess.DEVNULL)
            listens(port)
            continue
        if " init " in line:
            (tmp_path / "mine.yaml").unlink(missing_ok=True)
        type_(line, own, variables, answers="2\neast\nA100-80\n8\n8\nwest\nA100-80\n4\n4\n")
    listener.terminate()
    listener.wait(10)
    assert list((tmp_path / "traces").glob("*.et"))


def test_run_on_a_real_cluster(journal, type_, tmp_path):
    (tmp_path / "train.py").write_text(MODEL)
    port = free_port()
    own = {"d000042": "d000000", "0.0.0.0:7411": f"127.0.0.1:{port}",
           "west.example.org:7411": f"127.0.0.1:{port} --seconds 0.2"}  # fmt: skip
    for line in commands("real_clusters.md"):
        if "--listen" in line:
            words = shlex.split(line.replace("0.0.0.0:7411", f"127.0.0.1:{port}"), comments=True)
            listener = subprocess.Popen(words, cwd=tmp_path, env=type_.environment, stderr=subprocess.DEVNULL)
            listens(port)
            continue
        type_(line, own)
    listener.terminate()
    listener.wait(10)
    assert "kind: Job" in (tmp_path / "jobs.yaml").read_text()


def test_our_own_work_on_ray(journal, ray_nodes, type_):
    said = [type_(line, variables={"RAY_ADDRESS": ray_nodes.address}) for line in commands("ray.md")]
    assert len(said) == 2 and "sjf" in said[0] and "explained" in said[1]


def test_watch_a_run_on_a_live_page(journal, type_, tmp_path):
    variables, serving = {}, None
    try:
        for line in commands("live_page.md"):
            if line.startswith("export "):
                name, _, value = line.removeprefix("export ").partition("=")
                said = subprocess.run(["sh", "-c", f"echo {value}"], capture_output=True, text=True, check=True,
                                      env=type_.environment)  # fmt: skip
                variables[name] = said.stdout.strip()
                assert len(variables[name]) > 30
            elif " serve " in line:
                if serving is not None:
                    serving.terminate()
                    serving.wait(20)
                port = free_port()
                words = shlex.split(line, comments=True)
                words = [str(journal) if word.endswith(".sqlite") else word for word in words]
                serving = subprocess.Popen(
                    [*words, "--port", str(port)], env=type_.environment | variables, stderr=subprocess.DEVNULL
                )
                listens(port)
            else:
                own = {"localhost:7412": f"127.0.0.1:{port}", "t000042": "ResNet50"}
                told = json.loads(type_(line, own))
                assert told, line
        import urllib.error
        import urllib.request

        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/api/queue", timeout=20)
        asked = urllib.request.Request(
            f"http://127.0.0.1:{port}/api/status",
            headers={"Authorization": f"Bearer {variables['ATTRIBUTION_SCHED_TOKEN']}"},
        )
        with urllib.request.urlopen(asked, timeout=60) as answer:
            assert json.load(answer)
    finally:
        if serving is not None:
            serving.terminate()
            serving.wait(20)
