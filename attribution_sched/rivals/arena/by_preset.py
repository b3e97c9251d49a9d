"""The arena by name: policies of the registry over scenarios of a preset.

from attribution_sched.rivals.arena.by_preset import evaluate

print(evaluate(["greedy", "static-uniform"], "cross-domain", episodes=20, seed=0).table())
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attribution_sched.errors import SettingsError, problem

if TYPE_CHECKING:
    from attribution_sched.config import Settings
    from attribution_sched.rivals.arena.play import Tick
    from attribution_sched.rivals.arena.report import ArenaResult
    from attribution_sched.scheduler.policy import Policy

DEFAULT_SCENARIOS = ("ou30",)


def evaluate(
    policies: Sequence[str | Policy],
    preset: str | Path | Mapping[str, Any] | Settings = "cross-domain",
    episodes: int = 20,
    seed: int = 0,
    *,
    scenarios: Sequence[str] = DEFAULT_SCENARIOS,
    limit: str | None = None,
    bounds: Mapping[str, Sequence[float]] | None = None,
    folder: str | Path | None = None,
    replay: bool = False,
    workers: int | str = 1,
    tick: Tick | None = None,
) -> ArenaResult:
    """Play policies over the same held-out episodes of a preset, and compare them pair by pair.

    Args:
        policies: Names of :mod:`attribution_sched.scheduler.registry`, or policies themselves.
        preset: Name of a preset, path of a YAML file, a mapping or settings.
        episodes: Episodes per policy and scenario.
        seed: Picks the held-out episodes and the bootstrap resamples.
        scenarios: Names of :mod:`attribution_sched.config.scenarios`.
        limit: Policy that stands for the limit; see :func:`attribution_sched.rivals.arena.play.evaluate`.
        bounds: Scenario → highest possible return of each episode.
        folder: Where played episodes are kept and found again.
        replay: Play stale episodes of the folder again.
        workers: Processes that play side by side; ``ray``, or the address of a Ray cluster, lets its workers play.
        tick: Told how far it has come.

    Raises:
        SettingsError: If a name is unknown or a number is out of range.
        PolicyError: If a policy fails.
        CheckpointError: If the folder holds damaged or stale episodes.
    """
    from attribution_sched.config.scenarios import build_scenario
    from attribution_sched.rivals.arena.play import evaluate as play_all

    if isinstance(scenarios, str) or not scenarios:
        rule = "must be a list of at least one scenario"
        raise SettingsError(problem("scenarios", scenarios, rule, "For example ['steady', 'ou30']"))
    worlds = {name: build_scenario(preset, name) for name in scenarios}
    return play_all(
        policies,
        worlds,
        episodes,
        seed,
        limit=limit,
        bounds=bounds,
        folder=None if folder is None else Path(folder),
        replay=replay,
        workers=workers,
        tick=tick,
    )
