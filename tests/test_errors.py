"""One shape for every message: one line, whatever stands in the file that is wrong."""

import pytest

from attribution_sched.attribution.recordings import Column, ColumnMap, load_recording
from attribution_sched.errors import MOST_WORDS, AttributionSchedError, problem
from attribution_sched.executors.shadow import read_live


def test_every_part_of_a_message_is_cut():
    told = problem("f" * 5000, "v" * 5000, "r" * 5000, "x" * 5000)
    assert len(told) < 3 * MOST_WORDS + 300 and told.count("…") == 4
    assert problem("steps", 0, "must be above 0", "Use 1") == "steps = 0: must be above 0. Use 1"


def test_names_out_of_a_file_do_not_fill_the_message(tmp_path):
    """Found by the fuzzer: columns of four hundred digits made a message of 10,000 characters."""
    path = tmp_path / "r.csv"
    path.write_text(",".join(f"{'9' * 400}{at}" for at in range(40)) + "\n" + ",".join("1" * 40) + "\n")
    with pytest.raises(AttributionSchedError) as raised:
        load_recording(path, ColumnMap({"watts": Column("watts", "W")}))
    assert len(str(raised.value)) < 6000


def test_a_number_that_a_slurm_wrote_without_end_is_one_short_error():
    """Found by the fuzzer: Python's own words repeat the whole of what is no number."""
    jobs = f"JobId=1 JobName=a Priority={'9' * 9000}x JobState=PENDING Partition=east\n"

    def ask(*command: str) -> str:
        return "" if command[0] == "sacct" or "nodes" in command else jobs if "show" in command else "slurm 22\n"

    with pytest.raises(AttributionSchedError) as raised:
        read_live(ask, 1_000_000.0)
    assert "scontrol show jobs" in str(raised.value) and len(str(raised.value)) < 6000
