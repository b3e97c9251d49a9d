"""The worlds of training, by name."""

import pytest

from attribution_sched.errors import SettingsError
from attribution_sched.scheduler.training import MIXED, training_world


@pytest.mark.parametrize(("name", "domains"), [("ou30", 4), ("domains-8", 8), ("testbed", 1)])
def test_scenarios_and_presets(name, domains):
    assert len(training_world(name).cluster) == domains


def test_mixed_gpus():
    assert [(d.gpu.name, d.devices) for d in training_world("mixed").cluster.domains] == list(MIXED)


def test_an_unknown_name_is_refused():
    with pytest.raises(SettingsError):
        training_world("no such world")
