"""A run, its explanations, its report and its feedback end well, however many decisions they take.

Decisions beyond the memory are lived through again, and what is not kept with them is missing in their explanations:
prices and carbon by the hour were, and the default command ended without a report for four of ten seeds.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from attribution_sched import System
from attribution_sched.config.sources import preset_names
from attribution_sched.explain.memory import Memory

SHORT = 60
"""Decisions that are remembered here, in place of a thousand."""


def forgetful(system: System) -> System:
    """A system that must live nearly everything through again."""
    system.memory.most = SHORT
    return system


@pytest.mark.parametrize(
    ("seed", "target"),
    [(8000201, None), (8000702, None), (8000706, None), (2, {"cost_ratio_at_most": 0.05})],
)
def test_decisions_beyond_the_memory_are_explained_reported_and_learnt_from(seed, target, tmp_path):
    with forgetful(System("cross-domain", "hi-ppo[quick]", seed=seed, targets=target)) as system:
        while system.journal.count() < 5 * SHORT:
            system.run(8)
        names = [each.id for each in system.journal.decisions()]
        told = system.explain_many(names[::19], rows=60, sure=False, tipping=False)
        assert told.failed == {} and len(told.explained) == len(names[::19])
        change = system.feedback(target or {"cost_ratio_at_most": 0.05}, explain=6, episodes=1, decisions=10)
        assert change is not None
        page = system.report(tmp_path / "run.html", explain=2, rivals=())
    assert page.stat().st_size > 10_000


def test_what_a_grid_asks_and_emits_is_in_every_view_that_is_lived_through_again():
    with forgetful(System("cross-domain", "rule", seed=8000201)) as system:
        while system.journal.count() < 3 * SHORT:
            system.run(8)
        old = system.questions.recall(system.journal.decision(next(iter(system.journal.decisions())).id).id)
        system.questions.recall([each.id for each in system.journal.decisions()][70])
        for seen in (old.view, *(each.view for window in [system.memory] for each in window)):
            assert seen.carbon_g_per_kwh.shape == seen.electricity_usd_per_kwh.shape == (4,)
            assert (seen.electricity_usd_per_kwh > 0).all()


def test_an_explanation_that_fails_is_counted_and_ends_nothing(monkeypatch, tmp_path):
    """One broken explanation is a line of the report: never the end of a decision, a run, feedback or the report."""
    explain = Memory.explain

    def broken(self, decided, **options):
        if decided.view.slot % 2:
            raise ValueError("a shape that nobody foresaw")
        return explain(self, decided, **options)

    monkeypatch.setattr(Memory, "explain", broken)
    with System("cross-domain", "hi-ppo[quick]", seed=4, explain=True) as system:
        results = [system.schedule_next_task() for _ in range(12)]
        assert all(result is not None for result in results)
        unexplained = [each for each in results if each.explanation is None]
        assert unexplained and "a shape that nobody foresaw" in unexplained[0].provenance["explanation"]
        told = system.explain_many(rows=60, sure=False, tipping=False)
        assert told.failed and any("a shape that nobody foresaw" in words for words in told.failed.values())
        assert system.feedback({"cost_ratio_at_most": 0.05}, explain=6, episodes=1, decisions=10) is not None
        page = system.report(tmp_path / "run.md", explain=2, rivals=())
    text = page.read_text("utf-8")
    assert re.search(r"\d+ of \d+ decisions that were asked about could not be explained", text)


LONG = 2_500


@pytest.mark.slow
@pytest.mark.parametrize("preset", preset_names())
def test_thousands_of_decisions_on_every_preset(preset, tmp_path):
    """2,500 decisions, all of them explained (every tenth outside the default), report, feedback, resumed, again.

    On ``large``, with 64 domains, one explanation takes half a minute: every two-hundredth is explained there.
    """
    path = tmp_path / "run.sqlite"
    policy = "rule" if preset == "large" else "hi-ppo[quick]"
    step = {"cross-domain": 1, "large": 200}.get(preset, 10)
    for number in range(2):
        system = System.resume(path) if number else System(preset, policy, seed=8000201, journal=path)
        with system:
            while system.journal.count() < LONG * (number + 1) and system.schedule_next_task() is not None:
                pass
            names = [each.id for each in system.journal.decisions()]
            told = system.explain_many(names[::step], rows=60, sure=False, tipping=False)
            assert dict(told.failed) == {}
            system.report(tmp_path / f"run-{number}.html", explain=2, rivals=())
            system.feedback({"cost_ratio_at_most": 0.05}, explain=8, episodes=1, decisions=10)
    assert np.isfinite(path.stat().st_size) and Path(tmp_path / "run-1.html").exists()
