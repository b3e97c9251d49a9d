"""A table of metered runs: idle subtracted, sockets shared, parts that add up to the meter, one clear error each."""

from __future__ import annotations

import csv

import numpy as np
import pytest

from attribution_sched import System
from attribution_sched.attribution.measured_runs import load_runs
from attribution_sched.cli.attribute import account_runs
from attribution_sched.cluster.demands import DEMAND_NAMES
from attribution_sched.errors import ModelFitError, TraceError

WATTS = {"conv": 12.0, "fc": 20.0, "attention": 8.0}
IDLE_W = 30.0


def rows(count=60, seed=0, meter=True):
    rng = np.random.default_rng(seed)
    made = []
    for at in range(count):
        busy = dict(zip(WATTS, rng.dirichlet(np.ones(3)) * rng.uniform(0.3, 0.9), strict=True))
        seconds, pace = 10.0, float(rng.lognormal(3.0, 0.8))
        row = {"task": f"net {at % 5}", "machine": "node-7", "seconds": seconds, "samples": pace * seconds, **busy}
        row |= {"memory_bandwidth": 1e9 * rng.uniform(1, 2), "cpu_seconds": 8.0, "machine_cpu_seconds": 16.0}
        if meter:
            mine = sum(watts * busy[name] for name, watts in WATTS.items()) * seconds
            row["energy_j"] = 2.0 * mine + IDLE_W * seconds  # another process, alike, on the same socket
        made.append(row)
    if meter:
        made += [
            dict.fromkeys(made[0], "") | {"task": "idle", "machine": "node-7", "seconds": 5.0, "energy_j": 150.0}
        ] * 2
    return made


def write(path, table):
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, list(table[0]))
        writer.writeheader()
        writer.writerows(table)
    return path


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return load_runs(write(tmp_path_factory.mktemp("runs") / "runs.csv", rows()))


def test_idle_is_measured_and_a_shared_socket_is_split(runs):
    assert runs.idle_w == pytest.approx(IDLE_W) and runs.metered == "J" and len(runs.labels) == 60
    # Half of the socket's CPU-seconds: half of its joules, idle among them.
    np.testing.assert_allclose(runs.idle_j, 0.5 * IDLE_W / runs.samples_per_s)
    own = runs.counters[:, 4:7] @ np.array(list(WATTS.values())) / runs.samples_per_s
    np.testing.assert_allclose(runs.energy_j - runs.idle_j, own, rtol=1e-9)


def test_parts_idle_and_unattributed_are_the_meter_and_name_the_operator(runs):
    made = runs.fit()
    assert made.energy.median_error < 0.05
    vectors = account_runs(runs, made)
    parts = np.array([vector.values for vector in vectors])
    for vector, metered in zip(vectors, runs.energy_j, strict=True):
        assert float(vector.values.sum()) + vector.base + vector.unattributed == pytest.approx(metered)
    truth = runs.counters[:, 4:7] * np.array(list(WATTS.values()))
    assert np.mean(parts[:, 4:7].argmax(axis=1) == truth.argmax(axis=1)) > 0.9
    assert (parts[:, [DEMAND_NAMES.index("l3_misses")]] == 0.0).all(), "what the machine cannot read has no part"


def test_the_machines_attributor_runs_in_system(runs):
    with System("testbed", "greedy", seed=1, queue="empty", attributor=runs.fit()) as system:
        system.submit("bert-base", counters={"conv": 0.0, "fc": 0.6, "attention": 0.1, "memory_bandwidth": 1.5e9,
                      "cpu_cycles": 0.0, "l3_misses": 0.0, "pcie_bandwidth": 0.0}, samples_per_s=20.0)  # fmt: skip
        vector = system.schedule_next_task().attribution
    assert vector.provenance["source"] == "60 metered runs on node-7"
    assert vector["fc"] > vector["attention"] and vector["conv"] == 0.0


def test_without_a_meter_cpu_seconds_are_metered_and_it_says_so(tmp_path):
    runs = load_runs(write(tmp_path / "runs.csv", rows(meter=False)))
    assert runs.metered == "CPU-s" and "no joules are known" in runs.notes[0]
    np.testing.assert_allclose(runs.energy_j, 8.0 / (10.0 * runs.samples_per_s))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"energy_j": -3.0}, "must be at least 0.0 J.*counter wrapped"),
        ({"samples": 0.0}, "throughput of zero"),
        ({"fc": -0.1}, "must be at least"),
        ({"seconds": "soon"}, "not a number"),
        ({"machine": "node-8"}, "several machines"),
    ],
)
def test_what_is_wrong_is_said_once(tmp_path, change, words):
    table = rows()
    table[3] |= change
    with pytest.raises(TraceError, match=words):
        load_runs(write(tmp_path / "runs.csv", table))


def test_another_machine_is_refused(runs, tmp_path):
    table = [row | {"machine": "node-9"} for row in rows()]
    with pytest.raises(ModelFitError, match="fitted on node-7: another machine"):
        load_runs(write(tmp_path / "other.csv", table)).check_machine(runs.fit().source)


def test_the_command_prints_accounts_and_tasks(tmp_path):
    import json

    from typer.testing import CliRunner

    from attribution_sched.cli.app import app

    path = write(tmp_path / "runs.csv", rows())
    shown = CliRunner().invoke(app, ["attribute", str(path), "--json"])
    assert shown.exit_code == 0, shown.output
    assert len(json.loads(shown.stdout)["runs"]) == 60
    tasks = json.loads(CliRunner().invoke(app, ["attribute", str(path), "--tasks", "bert-base"]).stdout)
    assert tasks[0]["provenance"]["l3_misses"] == "unavailable" and tasks[0]["counters"]["fc"] > 0
