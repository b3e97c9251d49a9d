"""Targets on the command line."""

import pytest

from attribution_sched.cli.targets import SEVERAL, SINGLE, measured, targets_of
from attribution_sched.errors import SettingsError
from attribution_sched.feedback.targets import Targets
from attribution_sched.journal import Journal


def test_words_become_targets():
    found = targets_of(["utilisation_at_least=0.8", " cost_ratio_at_most = 5e-1 "], 4)
    assert found == Targets(utilisation_at_least=0.8, cost_ratio_at_most=0.5)


def test_without_words_the_usual_ones_are_taken():
    assert targets_of([], 4).named() == SEVERAL
    assert targets_of([], 1).named() == SINGLE


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["utilisation_at_least"], "must be a name, an equals sign and a number"),
        (["utilization_at_least=0.8"], "Did you mean 'utilisation_at_least'?"),
        (["utilisation_at_least=much"], "'much': is not a number"),
        (["utilisation_at_least=0.8", "utilisation_at_least=0.9"], "is given twice"),
        (["utilisation_at_least=80"], "must be <= 1"),
        (["step_s_at_most=nan"], "must be finite"),
        (["step_s_at_most=-1"], "> 0"),
    ],
)
def test_wrong_words_are_refused(words, told):
    with pytest.raises(SettingsError) as caught:
        targets_of(words, 4)
    assert told in str(caught.value)


def test_figures_are_means_over_the_plans_put_in_force(written):
    with Journal.read(written) as journal:
        placed = [outcome for _, outcome in journal.entries() if outcome is not None and outcome.code > 0]
        wanted = Targets(utilisation_at_least=0.9, step_ratio_at_most=0.5)
        found = measured(journal, wanted)
        assert found["utilisation_at_least"] == pytest.approx(sum(each.r_util for each in placed) / len(placed))
        assert found["step_ratio_at_most"] == pytest.approx(1 - sum(each.r_eff for each in placed) / len(placed))
        assert measured(journal, wanted, journal.count()) == {
            "utilisation_at_least": None,
            "step_ratio_at_most": None,
        }
