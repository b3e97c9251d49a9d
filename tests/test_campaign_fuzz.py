"""The fuzz campaign in small: every door, fixed seeds, no finding; and a campaign that can find something."""

import campaign_fuzz
import pytest
from campaign_fuzz import Target, case, isolated, play

from attribution_sched.words.text import shown

CASES = {
    "settings": 120, "settings-yaml": 40, "training-settings": 60, "arrivals-csv": 300, "bandwidth-csv": 300,
    "recordings-csv": 300, "recordings-parquet": 150, "prometheus": 500, "tasks": 300, "commands": 40, "logs": 200,
    "signals-csv": 200, "slurm-text": 100, "slurm-json": 100, "checkpoints-damaged": 100, "checkpoints-forged": 60,
    "attributors": 40, "journal-rows": 60,
}  # fmt: skip


@pytest.fixture(scope="module")
def doors(tmp_path_factory):
    return {each.name: each for each in campaign_fuzz.targets(tmp_path_factory.mktemp("fuzz"))}


def test_every_door_has_its_cases(doors):
    assert set(doors) == set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_only_errors_of_the_package_come_out(doors, name):
    # A command does real work, and here it may be the first to compile the kernels it needs.
    count = isolated(doors[name], 17, range(CASES[name]), 60.0 if name == "commands" else 5.0)
    assert count.findings == {}
    assert count.accepted + count.refused == CASES[name]
    # A fuzzer whose every input is refused at the first look, or taken as it is, tries nothing.
    assert (
        count.refused > CASES[name] / 4 or name == "slurm-text"
    )  # of a queue that is only watched, lines are left out
    assert (count.accepted > 0) == (name != "checkpoints-damaged")  # no damage passes a checksum


def test_a_case_is_made_from_its_number_alone(doors):
    for name in ("settings", "prometheus", "commands"):
        first, again, other = (shown(case(doors[name], 3, number), 10_000) for number in (5, 5, 6))
        assert first == again
        assert first != other


def _raising(number):
    if number % 2:
        raise KeyError("raw")


def test_a_raw_error_is_a_finding_told_three_times():
    count = play(Target("raw", lambda rng: rng.randrange(1000), _raising), 0, range(50), 5.0, lambda number: None)
    assert len(count.findings) == 3
    assert all("KeyError" in words for words in count.findings.values())
    assert 0 < count.accepted < 50


def _spinning(number):
    while number == 0:
        pass


def test_a_case_that_does_not_end_is_a_finding():
    count = play(Target("spin", lambda rng: 0, _spinning), 0, range(1), 0.05, lambda number: None)
    assert list(count.findings) == [0]


def _dying(number):
    if number == 1:
        import os

        os._exit(3)


def test_a_case_that_ends_the_process_is_a_finding_and_the_rest_go_on():
    numbers = iter([0, 1, 0, 0])
    made = {}

    def make(rng):
        key = rng.random()
        return made.setdefault(key, next(numbers, 0))

    for number in range(4):
        made_now = case(Target("die", make, _dying), 0, number)
        assert made_now in (0, 1)
    count = isolated(Target("die", make, _dying), 0, range(4), 5.0)
    assert list(count.findings) == [1]
    assert "died" in count.findings[1]
    assert count.accepted == 2
