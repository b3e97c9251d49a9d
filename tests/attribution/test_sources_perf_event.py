import errno
import os

import pytest

from attribution_sched.attribution.sources.perf_event import LinuxPerf, PerfSource, explain_errno
from attribution_sched.attribution.sources.reading import Provenance
from attribution_sched.errors import CounterError


class FakeKernel:
    """Answers from a table: (kind, config, exclude_kernel) to a count, an OSError number, or a triple."""

    def __init__(self, table):
        self.table, self.open_handles, self.answers = table, set(), {}

    def open(self, kind, config, pid, exclude_kernel):
        answer = self.table.get((kind, config, exclude_kernel), errno.ENOENT)
        if isinstance(answer, int):
            raise OSError(answer, os.strerror(answer))
        handle = len(self.answers) + 100
        self.answers[handle] = answer
        self.open_handles.add(handle)
        return handle

    def read(self, handle):
        return self.answers[handle]

    def close(self, handle):
        self.open_handles.remove(handle)


LLC = (3, 2 | (1 << 16))


@pytest.fixture
def one_thread(monkeypatch):
    monkeypatch.setattr("attribution_sched.attribution.sources.perf_event._threads", lambda pid: (1,))


def source(table, tmp_path, msr=None, **kwargs):
    path = tmp_path / "type"
    if msr is not None:
        path.write_text(f"{msr}\n")
    kernel = FakeKernel(table)
    return PerfSource(kernel=kernel, msr_type_path=path, clock=lambda: 5.0, **kwargs), kernel


def test_bare_metal_is_measured(tmp_path, one_thread):
    table = {(0, 0, False): (900, 10, 10), (0, 1, False): (700, 10, 10), (*LLC, False): (5, 10, 10)}
    reading = source(table, tmp_path)[0].read()
    assert dict(reading.values) == {"cpu_cycles": 900, "cpu_instructions": 700, "llc_misses": 5}
    assert set(reading.provenance.values()) == {Provenance.MEASURED}
    assert reading.cumulative == set(reading.names)


def test_threads_are_summed(tmp_path, monkeypatch):
    monkeypatch.setattr("attribution_sched.attribution.sources.perf_event._threads", lambda pid: (1, 2, 3))
    reading = source({(0, 0, False): (100, 10, 10)}, tmp_path)[0].read()
    assert reading.values["cpu_cycles"] == 300


def test_multiplexing_is_scaled_and_called_estimated(tmp_path, one_thread):
    reading = source({(0, 0, False): (100, 40, 10)}, tmp_path)[0].read()
    assert reading.values["cpu_cycles"] == 400
    assert reading.provenance["cpu_cycles"] is Provenance.ESTIMATED
    assert "shared its hardware counter" in reading.notes["cpu_cycles"]


def test_an_event_that_never_ran_is_unavailable(tmp_path, one_thread):
    reading = source({(0, 1, False): (0, 40, 0)}, tmp_path, clock_hz=1e9)[0].read()
    assert reading.provenance["cpu_instructions"] is Provenance.UNAVAILABLE
    assert "never got a hardware counter" in reading.notes["cpu_instructions"]


def test_unprivileged_counts_user_space_and_says_so(tmp_path, one_thread):
    reading = source({(0, 0, False): errno.EACCES, (0, 0, True): (80, 1, 1)}, tmp_path)[0].read()
    assert reading.values["cpu_cycles"] == 80
    assert reading.provenance["cpu_cycles"] is Provenance.MEASURED
    assert "user space only" in reading.notes["cpu_cycles"]


def test_without_a_pmu_cycles_fall_back_to_the_time_stamp_counter(tmp_path, one_thread):
    reading = source({(9, 0, False): (2_595, 1, 1), (1, 1, False): (7, 1, 1)}, tmp_path, msr=9)[0].read()
    assert reading.values["cpu_cycles"] == 2595
    assert reading.provenance["cpu_cycles"] is Provenance.ESTIMATED
    assert "time-stamp" in reading.notes["cpu_cycles"]
    assert "ENOENT" in reading.notes["cpu_instructions"]


def test_then_to_task_clock_times_nominal_clock(tmp_path, one_thread):
    table = {(9, 0, False): errno.EACCES, (9, 0, True): errno.EACCES, (1, 1, True): (1_000_000, 1, 1)}
    reading = source(table, tmp_path, msr=9, clock_hz=2.5e9)[0].read()
    assert reading.values["cpu_cycles"] == pytest.approx(2_500_000)
    assert reading.provenance["cpu_cycles"] is Provenance.ESTIMATED
    assert "2.500 GHz" in reading.notes["cpu_cycles"]


def test_nothing_at_all_is_unavailable_with_the_first_reason(tmp_path, one_thread):
    table = {(0, 0, False): errno.EACCES, (0, 0, True): errno.EACCES}
    reading = source(table, tmp_path, clock_hz=1e9)[0].read()
    assert reading.available == ()
    assert "perf_event_paranoid" in reading.notes["cpu_cycles"]


def test_a_half_opened_event_is_closed_again(tmp_path, monkeypatch):
    monkeypatch.setattr("attribution_sched.attribution.sources.perf_event._threads", lambda pid: (1, 2))
    kernel = FakeKernel({})
    calls = []

    def open_once(kind, config, pid, exclude_kernel):
        calls.append(pid)
        if pid == 2:
            raise OSError(errno.EMFILE, "")
        kernel.open_handles.add(len(calls))
        return len(calls)

    kernel.open = open_once
    reading = PerfSource(kernel=kernel, msr_type_path=tmp_path / "x", clock_hz=1e9).read()
    assert kernel.open_handles == set()
    assert "ulimit" in reading.notes["cpu_cycles"]


def test_close_releases_everything(tmp_path, one_thread):
    perf, kernel = source({(0, 0, False): (1, 1, 1), (0, 1, False): (1, 1, 1)}, tmp_path)
    with perf:
        assert len(kernel.open_handles) == 2
    assert not kernel.open_handles
    assert "closed" in perf.read().notes["cpu_cycles"]


@pytest.mark.parametrize("code", [errno.EACCES, errno.ENOENT, errno.ENOSYS, errno.EMFILE, errno.EBUSY])
def test_every_errno_is_explained(code):
    assert len(explain_errno(code)) > 20


def test_a_process_that_is_not_there():
    with pytest.raises(CounterError, match="no process"):
        PerfSource(pid=2**22 + 1, kernel=FakeKernel({}))


def test_live_task_clock_counts_this_process():
    """Software events exist on every Linux that allows the call at all."""
    kernel = LinuxPerf()
    try:
        handle = kernel.open(1, 1, 0, True)
    except OSError as error:
        pytest.skip(f"perf_event_open is not allowed here: {error}")
    sum(i * i for i in range(200_000))
    count, enabled, running = kernel.read(handle)
    kernel.close(handle)
    assert count > 1_000_000  # nanoseconds
    assert enabled >= running > 0
