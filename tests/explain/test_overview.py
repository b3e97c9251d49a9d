"""The global view over many decisions."""

from __future__ import annotations

import matplotlib
import numpy as np
import pytest

from attribution_sched.errors import ExplanationError
from attribution_sched.explain.overview import Overview
from tests.explain.factory import episode, explanation, log_odds, some

matplotlib.use("Agg")


def test_means_are_those_of_the_decisions():
    listed = episode(30)
    found = Overview.of(listed).shares("R_eff")
    for name, size, signed, count in zip(found.names, found.size, found.signed, found.count, strict=True):
        shares = [one.share(name, "R_eff") for one in listed if name in one.names]
        assert size == pytest.approx(np.abs(shares).mean())
        assert signed == pytest.approx(np.mean(shares))
        assert count == len(shares)
    assert (np.diff(found.size) <= 0).all()
    assert (found.size_low < found.size).all() and (found.size < found.size_high).all()
    assert (found.signed_low < found.signed).all() and (found.signed < found.signed_high).all()


def test_groups_add_up_their_players_within_each_decision():
    listed = episode(12)
    found = Overview.of(listed).shares("R_cost", by="group")
    load = found.names.index("load")
    sums = [sum(one.share(p.name, "R_cost") for p in one.players if p.group == "load") for one in listed]
    assert found.signed[load] == pytest.approx(np.mean(sums))
    assert found.size[load] == pytest.approx(np.abs(sums).mean())
    everything = Overview.of(listed)
    total = everything.shares("R_cost", by="group")
    parts = everything.shares("R_cost")
    # Groups with every decision present split the same mean.
    whole = float(np.mean([one.values[:, 2].sum() for one in listed]))
    assert float((total.signed * total.count).sum() / 12) == pytest.approx(whole)
    assert float((parts.signed * parts.count).sum() / 12) == pytest.approx(whole)


def test_top_drivers_are_counted_where_certain():
    one_sure = [some([[0.5, 0, 0], [0.9, 0, 0]], [[0.01] * 3, [2.0] * 3], decision=str(i)) for i in range(6)]
    found = Overview.of(one_sure).shares("R_eff")
    assert dict(zip(found.names, found.top, strict=True)) == {"input0q": 1.0, "input1q": 0.0}
    none_sure = [some([[0.5, 0, 0]], [[2.0] * 3], decision=str(i)) for i in range(6)]
    assert Overview.of(none_sure).shares("R_eff").top.sum() == 0.0


def test_labels_split_the_view():
    labels = ["gpt" if i % 2 else "bert" for i in range(20)]
    overview = Overview.of(episode(20), labels)
    parts = overview.split()
    assert list(parts) == ["bert", "gpt"]
    assert [len(part) for part in parts.values()] == [10, 10]
    frame = overview.to_frame()
    assert set(frame.index.get_level_values("label")) == {"all", "bert", "gpt"}
    assert frame.loc[("gpt", "R", "load us-east"), "mean φ"] == pytest.approx(
        np.mean([one.share("load us-east") for one in overview.explanations[1::2]])
    )
    assert set(overview.to_frame(by="group").index.names) == {"label", "output", "group"}


def test_the_same_seed_gives_the_same_intervals():
    one, other, third = (Overview.of(episode(15), seed=seed).shares().size_low for seed in (3, 3, 4))
    np.testing.assert_array_equal(one, other)
    assert not np.array_equal(one, third)


def test_one_decision_has_no_intervals():
    found = Overview.of([explanation()]).shares()
    assert np.isnan(found.size_low).all()
    assert np.isfinite(found.size).all()


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: Overview.of([]), "at least one"),
        (lambda: Overview.of([explanation(), log_odds()]), "one and the same"),
        (lambda: Overview.of(episode(3), ["a"]), "one per explanation"),
        (lambda: Overview.of(episode(3)).split(), "were not told"),
        (lambda: Overview.of(episode(3)).shares("R_eff2"), "Did you mean"),
        (lambda: Overview.of(episode(3)).shares(by="family"), "must be player or group"),
    ],
)
def test_mistakes_are_told(call, said):
    with pytest.raises(ExplanationError, match=said):
        call()


@pytest.mark.parametrize("name", ["plot", "timeline"])
def test_it_draws_itself(name):
    from matplotlib import pyplot as plt

    figure, ax = plt.subplots()
    assert getattr(Overview.of(episode(12)), name)(ax, output="R_util") is ax
    plt.close(figure)
