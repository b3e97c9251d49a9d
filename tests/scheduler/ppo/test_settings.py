"""The defaults are the preset's, and impossible settings are refused by name."""

import pytest

from attribution_sched.config import PpoSettings as Preset
from attribution_sched.config import load_training_settings
from attribution_sched.errors import SettingsError
from attribution_sched.scheduler.ppo.settings import PpoSettings


def test_settings_files_and_learners_share_one_record():
    assert Preset is PpoSettings
    assert load_training_settings("hi_ppo").ppo == PpoSettings()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lr": 0.0}, r"ppo\.lr = 0\.0: must be > 0\. Give a value > 0, or leave it out for 0\.0003"),
        ({"lr": "3e-4"}, r"ppo\.lr = '3e-4': must be a number\. Write it without quotes and with a decimal point"),
        ({"lrr": 0.1}, r"ppo\.lrr = 0\.1: is not a setting\. Did you mean 'lr'\?"),
        ({"num_steps": 2048.5}, r"ppo\.num_steps = 2048\.5: must be a whole number"),
        ({"minibatch_size": 4096}, r"ppo\.minibatch_size = 4096: must be at most num_steps, 2048"),
        ({"normalise_advantage": 1}, r"ppo\.normalise_advantage = 1: must be true or false"),
    ],
)
def test_a_settings_file_is_held_to_the_same_limits(change, message):
    with pytest.raises(SettingsError, match=message):
        load_training_settings({"ppo": change})


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
