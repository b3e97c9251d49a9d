"""The bottleneck ablation: its truth is the world's own, its answers repeat, and its robust findings hold."""

import numpy as np
import pytest

from attribution_sched.cluster.demands import DEMAND_NAMES, draw_demands
from attribution_sched.config import load_settings
from benchmarks import bottleneck_ablation as ablation

TINY = ablation.Budget(fit=200, read=120, test=80, seeds=1, model="gaussian", n_draws=8)


@pytest.fixture(scope="module")
def quick():
    return ablation.run(ablation.QUICK)


def nominal(model_name, n=1):
    kinds = {kind.model.name: kind.model for kind in load_settings("testbed").build_world().kinds}
    return draw_demands([kinds[model_name]] * n, np.random.default_rng(0), spread=0.0)


def test_watts_lie_between_idle_and_full_and_rise_with_a_busier_device():
    device = ablation.gpu(ablation.REFERENCE_GPU)
    waits, works = (float(ablation.true_watts(nominal(name))[0]) for name in ("efficientnet-b0", "bert-large"))
    assert device.idle_w < waits < works < device.tdp_w + ablation.HOST_MAX_W


def test_tasks_carry_the_bottleneck_of_their_latent_demands():
    tasks = ablation.draw_tasks(400, np.random.default_rng(3))
    assert set(tasks.preset) == set(ablation.PRESETS)
    large = tasks.truth[tasks.kind == "llama-2-70b"]
    assert len(large) and (large == DEMAND_NAMES.index("fc")).all()
    assert len(set(tasks.truth[tasks.kind == "resnet-50"])) > 1


def test_same_seed_same_answers():
    first, again = (ablation.run(TINY, 4)[0][0] for _ in range(2))
    assert first.answers.keys() == again.answers.keys()
    for key, answer in first.answers.items():
        np.testing.assert_array_equal(answer, again.answers[key])


@pytest.mark.slow
def test_the_type_alone_is_right_exactly_on_typical_tasks(quick):
    _, tally = quick
    assert tally.accuracy(ablation.TYPE, ablation.ARGMAX, "atypical") == 0
    assert tally.accuracy(ablation.TYPE, ablation.ARGMAX, "typical") == 1


@pytest.mark.slow
def test_intervals_hold_the_accuracy_and_a_gain_is_a_difference(quick):
    _, tally = quick
    for method, readout in tally.keys:
        low, high = tally.interval(method, readout)
        assert low <= tally.accuracy(method, readout) <= high
    one, two = (ablation.MARGINAL, ablation.LOGISTIC), (ablation.TYPE, ablation.ARGMAX)
    gain, low, high = tally.gain(one, two)
    assert gain == pytest.approx(tally.accuracy(*one) - tally.accuracy(*two))
    assert low < gain < high


@pytest.mark.slow
def test_attribution_with_the_type_beats_the_type_alone(quick):
    _, tally = quick
    alone = (ablation.TYPE, ablation.ARGMAX)
    for method in (ablation.TYPE_EMSHAP, ablation.WITHIN_EMSHAP, ablation.MARGINAL):
        gain, low, _ = tally.gain((method, ablation.LOGISTIC), alone, "contested")
        assert gain > 0.05
        assert low > 0
        assert tally.accuracy(method, ablation.LOGISTIC, "atypical") > 0.4
        assert tally.accuracy(method, ablation.LOGISTIC, "typical") > 0.93


@pytest.mark.slow
def test_attribution_with_the_type_beats_the_share_rules(quick):
    _, tally = quick
    for rule in (ablation.CPU, ablation.SM):
        for method in (ablation.TYPE_EMSHAP, ablation.MARGINAL):
            _, low, _ = tally.gain((method, ablation.LOGISTIC), (rule, ablation.LOGISTIC))
            assert low > 0


@pytest.mark.slow
def test_an_uncalibrated_argmax_is_worse_than_the_type(quick):
    _, tally = quick
    for method in (ablation.EMSHAP, ablation.MARGINAL, ablation.LINEAR):
        _, _, high = tally.gain((method, ablation.ARGMAX), (ablation.TYPE, ablation.ARGMAX))
        assert high < 0


def test_shuffled_truth_leaves_nothing_to_read_out():
    rng = np.random.default_rng(0)
    features, truth = rng.normal(size=(600, 7)), rng.integers(0, 4, 600)
    answer = ablation.calibrated_answers({"noise": features}, truth, 400)["noise", ablation.LOGISTIC]
    assert np.mean(answer == truth[400:]) < 0.4


@pytest.mark.slow
def test_page_names_every_method_and_words_follow_the_intervals(quick):
    outcomes, tally = quick
    text = "\n".join(ablation.page(ablation.QUICK, outcomes, tally, 1.0))
    for method in {method for method, _ in tally.keys}:
        assert f"| {method} |" in text
    _, _, high = tally.gain((ablation.EMSHAP, ablation.LOGISTIC), (ablation.MARGINAL, ablation.LOGISTIC))
    line = next(row for row in text.splitlines() if row.startswith("- EmSHAP against marginal"))
    assert ("lower" in line.split("on all tasks")[0]) == (high < 0)
