"""Impossible settings are refused by name."""

import pytest

from attribution_sched.errors import SettingsError
from attribution_sched.scheduler.ppo.settings import PpoSettings


def test_two_stops_can_be_switched_off():
    assert PpoSettings(target_kl=None, value_clip=None).target_kl is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lr": 0.0}, r"ppo\.lr = 0\.0: must be finite and > 0"),
        ({"gamma": 1.01}, r"ppo\.gamma = 1\.01: must be finite and > 0 and <= 1"),
        ({"gae_lambda": -0.1}, r"ppo\.gae_lambda"),
        ({"entropy_coef": float("nan")}, r"ppo\.entropy_coef = nan"),
        ({"update_epochs": 0}, r"ppo\.update_epochs = 0: must be a whole number and >= 1"),
        ({"num_steps": 2048.0}, r"ppo\.num_steps"),
        ({"target_kl": -1.0}, r"ppo\.target_kl"),
        ({"minibatch_size": 4096}, r"ppo\.minibatch_size = 4096: must be at most num_steps, 2048"),
    ],
)
def test_impossible_settings_are_refused(change, message):
    with pytest.raises(SettingsError, match=message):
        PpoSettings(**change)
