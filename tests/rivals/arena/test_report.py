"""What people read: the table, the JSON, the plot."""

import json
import math
from dataclasses import replace

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from attribution_sched.rivals.arena.play import evaluate
from attribution_sched.rivals.arena.report import (
    COLOURS,
    absolute,
    cells,
    draw,
    draw_scenario,
    far_below,
    headings,
    interval,
    place_labels,
    styles_of,
    write_report,
)
from attribution_sched.stats.bootstrap import UNKNOWN, BootstrapInterval
from tests.rivals.arena_players import Lone, Waiter, small_world


@pytest.fixture(scope="module")
def result():
    worlds = {"one": small_world(), "two": small_world(horizon_s=900.0)}
    players = [Lone("near"), Lone("far", prefer_last=True), Waiter("idle"), Waiter()]
    return evaluate(players, worlds, 3, limit="near", resamples=200)


def test_the_table_has_one_row_per_policy_and_scenario(result):
    text = result.table()
    assert text.count("\n## ") == 2
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    titles, _ = absolute(result.scenario("one"))
    assert len(rows) == 2 * 2 * (1 + 4)
    assert {row.count("|") for row in rows} == {len(headings()) + 1, len(titles) + 1}
    found = result.scenario("one")
    assert "| " + " | ".join(cells(found, found.row("far"))) + " |" in rows
    assert "ms" in text
    assert "ms" not in result.table(latency=False)


def test_comparisons_across_worlds_stand_beside_the_reward(result):
    """Time, queue, devices, joules, dollars and grams of every policy, as means of its episodes."""
    titles, rows = absolute(result.scenario("one"))
    assert titles[1:] == [
        "completed", "completion, h", "95th percentile, h", "in the queue, h", "device-hours", "energy, kWh",
        "electricity, USD", "traffic, USD", "carbon, kg",
    ]  # fmt: skip
    far = next(row for row in rows if row[0] == "far")
    days = [record.summary for record in result.records if (record.policy, record.scenario) == ("far", "one")]
    mean = {name: sum(getattr(day, name) for day in days) / len(days) for name in ("mean_completion_h", "gpu_h")}
    assert far[2] == f"{mean['mean_completion_h']:.2f}" != "0.00" and far[5] == f"{mean['gpu_h']:,.0f}"
    waited = sum(day.waiting_h for day in days) / sum(day.arrived for day in days)
    assert far[4] == f"{waited:.2f}"
    assert "comparisons across worlds use these" in result.table()


def test_figures_are_printed_with_what_is_known():
    assert interval(BootstrapInterval(1.234, 1.0, 1.5), "{:+.1f}") == "+1.2 [+1.0, +1.5]"
    assert interval(BootstrapInterval(1.234, math.nan, math.nan), "{:+.1f}") == "+1.2"
    assert interval(UNKNOWN, "{:+.1f}") == "n/a"


def test_the_json_is_strict_and_says_everything(result, tmp_path):
    files = write_report(result, tmp_path / "new")
    read = json.loads(files[0].read_text(), parse_constant=lambda word: pytest.fail(word))
    assert read == json.loads(json.dumps(result.to_dict()))
    far = read["scenarios"]["two"]["policies"]["far"]
    assert far["metrics"]["return"]["value"] == result.scenario("two").row("far").metrics["return"].value
    assert set(far["minus"]) == {"static-uniform", result.scenario("two").best} - {"far"}
    assert read["scenarios"]["one"]["policies"]["idle"]["latency"]["plan_p50_ms"] is None
    assert files[1].read_text() == result.table()
    assert files[2].read_bytes().startswith(b"\x89PNG")
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == sorted(path.name for path in files)


def test_labels_meet_neither_each_other_nor_the_frame(result):
    scenario = result.scenario("one")
    figure = Figure(figsize=(6, 4.5))
    FigureCanvasAgg(figure)
    ax = figure.subplots()
    ax.set_xscale("log")
    ax.set_xlim(1e-4, 10)
    styles = styles_of({row.policy: None for row in scenario.rows})
    assert draw_scenario(ax, scenario, styles) is ax
    figure.draw_without_rendering()
    labels = place_labels(ax, scenario, styles)
    assert {label.get_text().split(" ")[0] for label in labels} == {row.policy for row in scenario.rows}
    figure.draw_without_rendering()
    # An annotation's own extent would take its line in.
    boxes = [Text.get_window_extent(label) for label in labels]
    frame = ax.get_window_extent()
    for i, box in enumerate(boxes):
        assert frame.x0 <= box.x0
        assert box.x1 <= frame.x1
        assert not any(box.overlaps(other) for other in boxes[:i])


def test_policies_keep_their_colour_and_more_than_eight_get_another_marker():
    styles = styles_of({f"p{i}": None for i in range(20)})
    assert len(set(styles.values())) == 20
    assert styles["p0"][0] == styles[f"p{len(COLOURS)}"][0]


def test_only_what_is_far_below_is_drawn_off_the_scale(result):
    row = result.scenario("one").rows[0]

    def standing(*returns):
        return [replace(row, policy=str(v), metrics={"return": BootstrapInterval(v, v, v)}) for v in returns]

    assert far_below(standing(10.0, 9.0, 8.0, -50.0)) == ("-50.0",)
    assert far_below(standing(10.0, 9.0, 8.0, 7.0)) == ()
    assert far_below(standing(10.0, 9.9, -50.0, -51.0, -52.0, -53.0)) == ()
    assert far_below(standing(10.0, -50.0)) == ()


def test_one_scenario_and_one_policy_can_be_drawn():
    alone = evaluate([Waiter()], small_world(), 1, resamples=10)
    assert draw(alone).startswith(b"\x89PNG")
