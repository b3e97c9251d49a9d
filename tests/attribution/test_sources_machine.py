"""A machine's sources side by side, recorded, and the recording attributed."""

import time

import numpy as np
import pytest
from typer.testing import CliRunner

from attribution_sched.attribution.measured_runs import load_runs, recorded_runs
from attribution_sched.attribution.recorder import Recorder
from attribution_sched.attribution.sources import MachineSource
from attribution_sched.attribution.sources.reading import Provenance, ReadingBuilder
from attribution_sched.cli.app import app
from attribution_sched.cluster.gpus import gpu
from attribution_sched.errors import TraceError

IDLE_W, CYCLE_J, BYTE_J = 50.0, 2e-8, 1e-10


class Fake:
    """A source whose totals the test sets."""

    def __init__(self, totals=(), levels=(), missing=()):
        self.totals, self.levels, self.missing = dict(totals), dict(levels), missing

    def read(self):
        out = ReadingBuilder()
        for name, value in self.totals.items():
            out.add(name, value, "1", cumulative=True)
        for name, value in self.levels.items():
            out.add(name, value, "1")
        for name in self.missing:
            out.missing(name, "J", "no meter here", cumulative=True)
        return out.build(0.0)


def record(path, *, windows=80, meter=True, share=1.0, backwards=None, seed=0):
    """Windows of work and, every fifth, of nothing; joules by cycles and bytes over an idle draw."""
    rng = np.random.default_rng(seed)
    clock = [1000.0]
    process, perf = Fake({"cpu_time_s": 0.0}), Fake({"cpu_cycles": 0.0, "llc_misses": 0.0})
    rapl = Fake({"energy_j": 0.0}) if meter else Fake(missing=("energy_j",))
    dcgm = Fake(levels={"gpu0/dram_active": 0.0, "gpu0/sm_active": 0.0})
    sources = {"process": process, "perf": perf, "rapl": rapl, "dcgm": dcgm}
    machine = MachineSource(sources, clock=lambda: clock[0])
    busy, previous = [0.0], 0.0
    with pytest.MonkeyPatch.context() as patch, Recorder(path) as recorder:
        patch.setattr("attribution_sched.attribution.sources.machine._machine_cpu_s", lambda: busy[0])
        recorder.write(machine.read())
        for window in range(windows):
            clock[0] += 2.0
            idle = window % 5 == 4
            cycles, active = (0.0, 0.0) if idle else (rng.uniform(1e9, 4e9), rng.uniform(0.1, 0.8))
            dcgm.levels = {"gpu0/dram_active": active, "gpu0/sm_active": active}
            perf.totals["cpu_cycles"] += 2.0 * cycles
            perf.totals["llc_misses"] += 2e-3 * cycles
            process.totals["cpu_time_s"] += 0.0 if idle else 1.0
            busy[0] += 0.0 if idle else 1.0 / share
            if meter:
                level = (active + previous) / 2.0
                traffic = level * gpu("A100-80").bandwidth_bytes_per_s
                rapl.totals["energy_j"] += 2.0 * (IDLE_W + CYCLE_J * cycles + BYTE_J * traffic * (not idle))
            previous = active
            if backwards == window:
                rapl.totals["energy_j"] -= 1e6
            machine.samples += 0 if idle else 64
            recorder.write(machine.read())
    return path


def test_every_source_is_read_under_its_name_with_its_provenance():
    machine = MachineSource({"rapl": Fake(missing=("energy_j",)), "perf": Fake({"cpu_cycles": 5.0})})
    machine.samples = 7
    reading = machine.read()
    assert reading.values["samples"] == 7.0 and reading.values["perf/cpu_cycles"] == 5.0
    assert reading.provenance["rapl/energy_j"] is Provenance.UNAVAILABLE
    assert {"samples", "perf/cpu_cycles", "rapl/energy_j"} <= set(reading.cumulative)


def test_what_opens_on_this_machine_can_be_recorded(tmp_path):
    with MachineSource() as machine, Recorder(tmp_path / "own.csv") as recorder:
        recorder.write(machine.read())
        # Several ticks of the clock by which the system counts processor time.
        began = time.process_time()
        while time.process_time() - began < 0.2:
            sum(range(10_000))
        machine.samples += 4
        recorder.write(machine.read())
    columns = recorded_runs(tmp_path / "own.csv")
    assert columns["samples"] == [4.0] and columns["cpu_seconds"][0] > 0.0
    assert columns["machine_cpu_seconds"][0] > 0.0


def test_a_raw_series_becomes_runs_idle_measured_and_memory_from_how_busy_it_was(tmp_path):
    runs = load_runs(record(tmp_path / "raw.csv"), gpu="A100-80")
    assert len(runs.labels) == 64 and runs.metered == "J"
    assert runs.idle_w == pytest.approx(IDLE_W)
    assert np.isnan(runs.counters[:, 4:]).all(), "no profiler ran: operators were not read"
    assert (runs.counters[:, 2] > 1e10).all()
    made = runs.fit()
    parts = made.energy.parts(np.nan_to_num(runs.counters) / runs.samples_per_s[:, None], runs.samples_per_s,
                              runs.training)  # fmt: skip
    assert made.energy.median_error < 0.05
    own = CYCLE_J * runs.counters[:, 0] / runs.samples_per_s
    # Misses go with cycles here: together they have the cycles' joules.
    assert np.median(np.abs(parts[:, :2].sum(axis=1) / own - 1.0)) < 0.2


def test_joules_of_a_shared_socket_are_split_by_cpu_seconds(tmp_path):
    alone, beside = (load_runs(record(tmp_path / f"{s}.csv", share=s)) for s in (1.0, 0.25))
    assert beside.energy_j == pytest.approx(0.25 * alone.energy_j)


def test_without_a_meter_cpu_seconds_are_metered(tmp_path):
    runs = load_runs(record(tmp_path / "raw.csv", meter=False))
    assert runs.metered == "CPU-s" and any("no meter" in note for note in runs.notes)


def test_the_command_takes_a_raw_series(tmp_path):
    path = record(tmp_path / "raw.csv")
    done = CliRunner().invoke(app, ["attribute", str(path), "--gpu", "A100-80"])
    assert done.exit_code == 0, done.output
    assert "Idle 50 W" in done.output


def test_what_is_wrong_with_a_series_is_said_once(tmp_path):
    with pytest.raises(TraceError, match=r"'rapl/energy_j' row 5.*ran backwards"):
        load_runs(record(tmp_path / "back.csv", backwards=3))
    with Recorder(tmp_path / "one.csv") as recorder:
        recorder.write(MachineSource({}).read())
    with pytest.raises(TraceError, match="two readings"):
        load_runs(tmp_path / "one.csv")
    fake, clock = Fake({"cpu_cycles": 1.0}), iter((1.0, 2.0))
    with Recorder(tmp_path / "bare.csv") as recorder:
        for _ in range(2):
            reading = fake.read()
            recorder.write(type(reading)(**{**reading.__dict__, "timestamp_s": next(clock)}))
    with pytest.raises(TraceError, match=r"samples.*is missing"):
        load_runs(tmp_path / "bare.csv")
