"""What Slurm writes, read without a Slurm: times, states, ends."""

import pytest

from attribution_sched.executors.slurm import _cpu_s


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("00:03.250", 3.25), ("02:03.5", 123.5), ("01:00:00", 3600.0), ("1-02:03:04", 93784.0), (" 10:00 ", 600.0),
        ("", None), ("UNLIMITED", None),
    ],
)  # fmt: skip
def test_cpu_time_is_read_as_sacct_writes_it(text, seconds):
    assert _cpu_s(text) == seconds
