"""What a system may be told, checked before anything is made."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Mapping
from typing import Any

from attribution_sched.cluster.live import SimulatedCluster
from attribution_sched.cluster.world import World
from attribution_sched.config import Settings, load_settings
from attribution_sched.errors import ExplanationError, JournalError, SettingsError, nearest, problem
from attribution_sched.executors.registry import EXECUTORS
from attribution_sched.explain.memory import QUICK
from attribution_sched.journal import JournalHeader

QUEUES: tuple[str, ...] = ("preset", "demo", "empty")
"""Where tasks come from: the preset's simulated arrivals; the three demonstration tasks; only what is submitted."""


def seed_of(seed: Any) -> int:
    """A seed.

    Raises:
        SettingsError: If it is none.
    """
    try:
        number = -1 if isinstance(seed, bool) else operator.index(seed)
    except TypeError:
        number = -1
    if not 0 <= number < 2**62:
        raise SettingsError(problem("seed", seed, "must be a whole number >= 0, below 2**62", "Use for example seed=0"))
    return number


def queue_of(queue: Any) -> str:
    """Where tasks come from.

    Raises:
        SettingsError: If it is not known.
    """
    if queue not in QUEUES:
        raise SettingsError(problem("queue", queue, "is not known", nearest(str(queue), QUEUES)))
    return str(queue)


def cluster_of(cluster: Any) -> Callable[..., SimulatedCluster]:
    """What makes the cluster of a world.

    Raises:
        SettingsError: If it is not known.
    """
    if cluster == "simulated":
        return SimulatedCluster
    if not callable(cluster):
        rule = "is no cluster that tasks can run on"
        named = ", ".join(repr(name) for name in ("simulated", *EXECUTORS))
        fix = f"Use one of {named}, executors by domain, or a subclass of SimulatedCluster"
        raise SettingsError(problem("cluster", cluster, rule, fix))

    def made(world: World, seed: int, *, arrivals: bool) -> SimulatedCluster:
        built = cluster(world, seed, arrivals=arrivals)
        if not isinstance(built, SimulatedCluster):
            raise SettingsError(
                problem("cluster", built, "must be a SimulatedCluster or of a subclass", "Derive yours from it")
            )
        return built

    return made


def explaining(explain: Any) -> dict[str, Any] | None:
    """How decisions are explained as they are taken; None if they are not.

    Raises:
        ExplanationError: If an option does not exist.
    """
    if isinstance(explain, bool):
        return dict(QUICK) if explain else None
    if not isinstance(explain, Mapping):
        fix = "For example explain=True or explain={'target': 'terms'}"
        raise ExplanationError(problem("explain", explain, "must be True, False or a mapping of options", fix))
    return QUICK | explain_options(explain)


def explain_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options of an explanation.

    Args:
        options: Those of ``Explainer.explain``.

    Raises:
        ExplanationError: If one does not exist.
    """
    from attribution_sched.explain.explainer import Explainer
    from attribution_sched.explain.explanation import TARGETS

    signature = inspect.signature(Explainer.explain)
    option_names = [name for name, each in signature.parameters.items() if each.kind is inspect.Parameter.KEYWORD_ONLY]
    for name in options:
        if name not in option_names:
            raise ExplanationError(problem("explain option", name, "does not exist", nearest(str(name), option_names)))
    target = options.get("target")
    valid = [name for name in TARGETS if name not in ("model", "log_odds")]
    if target is not None and target not in valid:
        raise ExplanationError(problem("target", target, "cannot be explained", nearest(str(target), valid)))
    return dict(options)


def known_options(what: str, function: Callable[..., Any], options: Mapping[str, Any]) -> None:
    """Refuse an option that a function does not have.

    Args:
        what: Whose option, for the message.
        function: What takes them.
        options: Options by name.

    Raises:
        SettingsError: If there is one.
    """
    parameters = inspect.signature(function).parameters.values()
    option_names = [each.name for each in parameters if each.default is not inspect.Parameter.empty]
    for name in options:
        if name not in option_names:
            raise SettingsError(problem(f"{what} option", name, "does not exist", nearest(name, option_names)))


def run_of(count: Any, until: Any, hours: Any) -> str:
    """When a run ends: by ``count``, ``empty`` or ``hours``.

    Raises:
        SettingsError: If not exactly one is given, or it is out of range.
    """
    limits = {"tasks": count, "until": until, "hours": hours}
    named = [name for name, value in limits.items() if value is not None]
    if len(named) != 1:
        rule = "exactly one of tasks, until and hours must be given"
        raise SettingsError(problem("run", limits, rule, "For example run(10), run(until='empty') or run(hours=2)"))
    if until is not None:
        if until != "empty":
            raise SettingsError(problem("until", until, "is not known", nearest(str(until), ["empty"])))
        return "empty"
    if hours is not None:
        real = isinstance(hours, int | float) and not isinstance(hours, bool)
        if not real or not 0 < hours <= MOST_HOURS:
            rule = f"must be a number > 0 and <= {MOST_HOURS:,}, a century"
            raise SettingsError(problem("hours", hours, rule, "Use for example hours=2"))
        return "hours"
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MOST_TASKS:
        rule = f"must be a whole number >= 1 and <= {MOST_TASKS:,}: each is a record in the journal"
        raise SettingsError(problem("tasks", count, rule, "Use for example run(10)"))
    return "count"


MOST_TASKS, MOST_HOURS, MOST_COUNTED = 10_000_000, 1_000_000, 1_000_000_000
"""What may be asked for in one call: a typing error should not run until somebody notices."""


def counted(name: str, value: Any, least: int = 0) -> int:
    """A number of things.

    Raises:
        SettingsError: If it is none.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MOST_COUNTED:
        rule = f"must be a whole number >= {least} and <= {MOST_COUNTED:,}, more than a machine does in a month"
        raise SettingsError(problem(name, value, rule, f"Use for example {least + 4}"))
    return value


def header_of(
    settings: Settings, queue: str, policy: str, seed: int, version: str, targets: Mapping[str, float]
) -> JournalHeader:
    """What a journal begins with: all that the run needs to be repeated."""
    written = {"world": settings.model_dump(mode="json", exclude_none=True), "queue": queue, "targets": dict(targets)}
    return JournalHeader(settings.name, policy, written, {"cluster": seed}, version)


def settings_of(header: JournalHeader, asked: Settings | None) -> Settings:
    """The settings a journal was written with.

    Args:
        header: Of the journal.
        asked: What the user expects them to be; None takes them as they are.

    Raises:
        JournalError: If the journal is not a system's, or was written with other settings.
    """
    if "world" not in header.settings or "cluster" not in header.seeds:
        rule = "was not written by a System: it holds no settings of a world"
        raise JournalError(problem("journal", header.preset, rule, "Give the journal of a System"))
    written = header.settings["world"]
    if asked is not None:
        expected = asked.model_dump(mode="json", exclude_none=True)
        for name in {**written, **expected}:
            if written.get(name) != expected.get(name):
                rule = f"the journal is of preset {header.preset!r}, whose {name} differs"
                fix = "Resume without preset=, or begin a new journal for the other preset"
                raise JournalError(problem("preset", asked.name, rule, fix))
    return load_settings(written)


def policy_of(header: JournalHeader, asked: Any) -> Any:
    """The policy to go on with: the journal's, or the same one handed in.

    Raises:
        JournalError: If another one is handed in, or the journal's is not one that can be made by its name.
    """
    from attribution_sched.cluster.live import as_policy
    from attribution_sched.scheduler.registry import POLICIES

    if asked is None:
        if header.policy not in POLICIES:
            rule = "is not a policy that can be made by its name"
            raise JournalError(problem("policy", header.policy, rule, "Pass it: System.resume(path, policy=...)"))
        return as_policy(header.policy)
    as_given = as_policy(asked)
    if as_given.name != header.policy:
        rule = f"the journal is of policy {header.policy!r}"
        fix = "Resume without policy=, or begin a new journal for the other policy"
        raise JournalError(problem("policy", as_given.name, rule, fix))
    return as_given
