import subprocess
import sys
import time

import pytest

from attribution_sched.attribution.sources.process import ProcessSource
from attribution_sched.attribution.sources.reading import Provenance
from attribution_sched.errors import CounterError


def burn(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        sum(range(1000))


def test_own_cpu_time():
    source = ProcessSource()
    start = time.process_time()
    burn(0.2)
    spent = time.process_time() - start
    reading = source.read()
    assert reading.values["cpu_time_s"] == pytest.approx(spent, abs=0.06)  # the kernel's tick is 10 ms
    assert reading.provenance["cpu_time_s"] is Provenance.MEASURED
    assert "cpu_time_s" in reading.cumulative


def test_children_count_while_they_live_and_after():
    code = "import time\nwhile time.process_time() < 0.4: sum(range(1000))\nprint('x', flush=True)\ninput()"
    source = ProcessSource()
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    child.stdout.read(1)
    alive = source.read().values["cpu_time_s"]
    child.communicate(b"\n")
    after = source.read().values["cpu_time_s"]
    assert 0.35 <= alive <= after + 1e-9
    assert after - alive < 0.3


def test_a_process_that_ends_becomes_unavailable():
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    source = ProcessSource(child.pid)
    child.communicate(b"\n")
    reading = source.read()
    assert reading.available == ()
    assert "has ended" in reading.notes["cpu_time_s"]
    with pytest.raises(CounterError, match="no process"):
        ProcessSource(child.pid)
