"""Every registered policy can be made, bears its name, and decides."""

import pytest

from attribution_sched.errors import SettingsError
from attribution_sched.scheduler.episode import play
from attribution_sched.scheduler.registry import LIMIT, POLICIES, UNIFORM, make_policy
from tests.rivals.arena_players import small_world


@pytest.mark.parametrize("name", POLICIES)
def test_it_bears_its_name_and_plays_without_a_refusal(name):
    policy = make_policy(name)
    assert policy.name == name
    assert make_policy(name) is not policy
    found = play(small_world(), policy, 0)
    assert found.refused_plans == 0
    assert found.placed > 0


def test_descriptions_are_one_line():
    for spec in POLICIES.values():
        assert spec.description
        assert len(spec.description) <= 100
        assert "\n" not in spec.description


def test_the_ends_of_the_scale_are_registered():
    assert UNIFORM in POLICIES
    assert LIMIT in POLICIES


def test_an_unknown_name_gets_the_nearest():
    with pytest.raises(SettingsError, match=r"policy = 'round-robbin'.*Did you mean 'round-robin'"):
        make_policy("round-robbin")
