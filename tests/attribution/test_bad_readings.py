"""Readings that no machine shows, once each on the running product: ``submit`` and ``attribute`` say it in a line."""

from __future__ import annotations

import math

import pytest

from attribution_sched import System
from attribution_sched.attribution.recorder import Recorder
from attribution_sched.attribution.sources.reading import ReadingBuilder
from attribution_sched.errors import AttributionSchedError, TraceError
from tests.attribution.test_measured_runs import rows, write
from tests.cli.helpers import errors, invoke


def fails(*arguments):
    """The one line that a command ends with."""
    told = invoke(*arguments)
    assert told.exit_code == 2 and told.stdout == "", told.output
    (line,) = errors(told)
    return line


READ = {
    "cpu_cycles": 2e9, "l3_misses": 3e6, "memory_bandwidth": 2e11, "pcie_bandwidth": 1e9, "conv": 0.0, "fc": 0.5,
    "attention": 0.2,
}  # fmt: skip


@pytest.fixture(scope="module")
def system():
    with System("testbed", "greedy", seed=1, queue="empty") as made:
        yield made


@pytest.mark.parametrize(
    ("change", "pace", "words"),
    [
        ({"fc": math.nan}, 30.0, r"counters\['fc'\] = nan: must be a finite number >= 0"),
        ({"fc": -0.1}, 30.0, r"counters\['fc'\] = -0.1: must be a finite number >= 0"),
        ({"pcie_bandwidth": 9e12}, 30.0, r"pcie_bandwidth.*lies \d+ standard deviations from the nearest known task, "
                                           r"[a-z0-9-]+"),
        ({"memory_bandwidth": 1e22}, 30.0, r"must be at most 1e\+15"),
        ({}, 0.0, r"samples_per_s = 0.0: must be a number of samples a second, above 0"),
        ({}, math.nan, r"samples_per_s = nan"),
    ],
)  # fmt: skip
def test_submit_refuses(system, change, pace, words):
    waiting = len(system.queue())
    with pytest.raises(AttributionSchedError, match=words):
        system.submit("bert-base", counters=READ | change, samples_per_s=pace)
    assert len(system.queue()) == waiting


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    from attribution_sched.attribution.measured_runs import load_runs

    folder = tmp_path_factory.mktemp("node")
    load_runs(write(folder / "runs.csv", rows(80))).fit().save(folder / "node-7")
    return folder / "node-7"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"energy_j": "nan"}, "column 'energy_j' row 4 = 'nan': is empty"),
        ({"fc": -0.1}, "column 'fc' row 4 = '-0.1': must be at least 0.0"),
        ({"fc": 4e9}, "counters['fc'] = 4000000000.0: lies"),
        ({"fc": 4e9}, "standard deviations from the nearest known task, net"),
        ({"samples": 0.0}, "column 'samples' row 4 = 0.0: a throughput of zero"),
        ({"energy_j": -3.0}, "column 'energy_j' row 4 = '-3.0': must be at least 0.0 J. A counter wrapped"),
    ],
)
def test_attribute_refuses(tmp_path, fitted, change, words):
    table = rows(80)
    table[3] |= change
    path = write(tmp_path / "runs.csv", table)
    assert words in fails("attribute", str(path), "--fitted", str(fitted))


def test_attribute_refuses_another_machine(tmp_path, fitted):
    path = write(tmp_path / "runs.csv", [row | {"machine": "node-9"} for row in rows(80)])
    told = fails("attribute", str(path), "--fitted", str(fitted))
    assert "machine = 'node-9': the attributor was fitted on node-7" in told


def recorded(path, machine, joules=(0.0, 50.0, 120.0, 200.0)):
    with Recorder(path, machine=machine) as recorder:
        for at, total in enumerate(joules):
            out = ReadingBuilder()
            out.add("rapl/energy_j", total, "J", cumulative=True)
            out.add("samples", 100.0 * at, "1", cumulative=True)
            recorder.write(out.build(10.0 * at + 1.0))
    return path


def test_attribute_refuses_a_recorders_file_of_another_machine(tmp_path, fitted):
    told = fails("attribute", str(recorded(tmp_path / "raw.csv", "node-9")), "--fitted", str(fitted))
    assert "machine = 'node-9': the attributor was fitted on node-7" in told
    with pytest.raises(TraceError, match=r"machine = 'node-7': was recorded on node-9"):
        Recorder(tmp_path / "raw.csv", append=True, machine="node-7")


def test_attribute_refuses_a_meter_that_runs_backwards(tmp_path, fitted):
    path = recorded(tmp_path / "raw.csv", "node-7", (0.0, 50.0, 40.0, 200.0))
    told = fails("attribute", str(path), "--fitted", str(fitted))
    assert "column 'rapl/energy_j' row 3 = 40.0: a running total fell: the meter ran backwards or wrapped" in told


def test_few_runs_are_kept_without_emshap_and_say_so_when_a_counter_is_missing(tmp_path):
    from attribution_sched.attribution.fitted import Fitted
    from attribution_sched.attribution.measured_runs import load_runs

    load_runs(write(tmp_path / "runs.csv", rows(40))).fit().save(tmp_path / "node-7")
    again, _ = Fitted.load(tmp_path / "node-7")
    assert again.energy.rows == 40 and not (tmp_path / "node-7.safetensors").exists()
    with pytest.raises(AttributionSchedError, match="metered tasks = 40: tasks are too few to stand in"):
        _ = again.missing
