"""The arena on real weeks: whose runs count, who did the same, and how far two orders agree."""

from tests.docs_text import script

weeks = script("benchmarks/philly_weeks.py")
LOG = [("2017-10-30", 0), ("2017-11-06", 0)]
OWN = [("synthetic", 0), ("synthetic", 1)]


def rows_of(policy, hours, pairs):
    """Runs of a policy, all figures of each alike."""
    return [
        {"policy": policy, "week": week, "draw": draw} | dict.fromkeys(weeks.FIGURES, hour)
        for (week, draw), hour in zip(pairs, hours, strict=True)
    ]


def test_two_orders_agree_are_opposite_or_too_few():
    names = ("a", "b", "c", "d")
    real = [row for i, name in enumerate(names) for row in rows_of(name, (i, i + 0.5), LOG)]
    for sign, tau in ((1, "+1.00 [+1.00, +1.00]"), (-1, "-1.00 [-1.00, -1.00]")):
        made = [row for i, name in enumerate(names) for row in rows_of(name, (sign * i, sign * i), OWN)]
        told = weeks.order_agrees(weeks.played_by_all(real, set(LOG)), weeks.played_by_all(made, set(OWN)))
        assert "order of 4 policies" in told
        assert f"mean_completion_h: Kendall's tau {tau}" in told and f"reward: Kendall's tau {tau}" in told
    two = weeks.played_by_all(real[:4], set(LOG))
    assert "no order to compare" in weeks.order_agrees(two, two)


def test_who_has_not_played_everything_is_in_no_table():
    rows = rows_of("a", (1.0, 2.0), LOG) + rows_of("b", (3.0,), LOG[:1])
    assert set(weeks.played_by_all(rows, set(LOG))) == {"a"}
    assert "\na " in weeks.table(weeks.played_by_all(rows, set(LOG)), "a")
    assert weeks.table({}, "a") == "no policy has played all pairs of week and draw"


def test_policies_that_did_the_same_count_once():
    rows = rows_of("a", (1.0, 2.0), LOG) + rows_of("b", (1.0, 2.0), LOG) + rows_of("c", (1.0, 2.5), LOG)
    assert weeks.merged(rows, set(LOG)) == [("a", "b"), ("c",)]
