"""What a machine's attributor is made of, fitted once: the energy model, EmSHAP's distribution, the tasks it knows.

Fitted.of_world(world)      # shipped for the presets, fitted on simulated metered tasks (a second) for others
Fitted.fit(...)             # from metered tasks of one's own
fitted.save(path)           # path.json (energy model, settings) and path.safetensors (EmSHAP)
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from attribution_sched.attribution.energy_model import EnergyModel
from attribution_sched.cluster.demands import DEMAND_NAMES
from attribution_sched.errors import CheckpointError, CounterError, ModelFitError, problem
from attribution_sched.kernels import one_thread
from attribution_sched.types import BoolArray, FloatArray

if TYPE_CHECKING:
    from attribution_sched.attribution.missing import MissingCounters
    from attribution_sched.cluster.world import World

SCHEMA = 1
"""Edition of the JSON file."""

TASKS = 2000
"""Simulated tasks that a world's attributor is fitted on; more where it has many kinds."""

TASKS_PER_KIND = 24

FARTHEST = 17.0
"""Standard deviations from every known task beyond which a counter is no reading of such a machine: thousands
of times what was ever seen. Tasks of one preset lie up to 16 from those of another."""

UNKNOWN = 1e12
"""Spread of a counter that was never read."""

LEAST_SPREAD, MOST_SPREAD = 0.5, 0.75
"""Of the logarithm of a counter within a kind: kinds that hardly vary must not make everything far, nor those that vary
by orders of magnitude everything near."""


@dataclass(frozen=True, eq=False)
class KnownTasks:
    """Tasks that an attributor was fitted on, by name, to say what a reading is like.

    Attributes:
        names: (k,) of the kinds of tasks.
        centres: (k, d) mean logarithms of their counters.
        spread: (d,) standard deviation of the logarithms within a kind.
        unit: (d,) counters that count as one under the logarithm.
    """

    names: tuple[str, ...]
    centres: FloatArray
    spread: FloatArray
    unit: FloatArray

    @classmethod
    def of(cls, counters: FloatArray, labels: list[str]) -> Self:
        """From counters per second ``(n, d)`` and a name for each row."""
        positive = counters > 0
        usual = np.where(positive, counters, 0.0).sum(0) / np.maximum(positive.sum(0), 1)
        unit = 0.01 * np.where(usual > 0, usual, 1.0)
        logs, each = np.log1p(counters / unit), np.array(labels)
        names = tuple(dict.fromkeys(labels))
        centres = np.array([logs[each == name].mean(axis=0) for name in names])
        within = np.concatenate([logs[each == name] - centre for name, centre in zip(names, centres, strict=True)])
        # Of a counter that such a machine never showed nothing is known, so nothing is far from it.
        spread = np.where(positive.any(axis=0), np.clip(within.std(axis=0), LEAST_SPREAD, MOST_SPREAD), UNKNOWN)
        return cls(names, centres, spread, unit)

    def nearest(self, counters: FloatArray) -> tuple[str, float, int]:
        """Name of the task most alike, its distance in standard deviations, and the counter that is farthest off.

        Args:
            counters: (d,) counters per second; NaN where one was not read.
        """
        apart = np.abs(np.log1p(counters / self.unit) - self.centres) / self.spread
        apart = np.where(np.isfinite(apart), apart, 0.0)
        far = apart.max(axis=1)
        kind = int(far.argmin())
        return self.names[kind], float(far[kind]), int(apart[kind].argmax())


@dataclass(frozen=True, eq=False)
class Fitted:
    """An attributor's parts.

    Attributes:
        energy: The energy model.
        known: Tasks it was fitted on.
        source: What it was fitted on, in words.
        shipped: Whether it came with the package.
    """

    energy: EnergyModel
    known: KnownTasks
    source: str
    shipped: bool = False
    _missing: dict[str, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def fit(
        cls,
        counters: FloatArray,
        samples_per_s: FloatArray,
        energy_j: FloatArray,
        *,
        idle_j: FloatArray | float,
        idle_w: float,
        training: BoolArray,
        labels: list[str],
        source: str,
        names: tuple[str, ...] = DEMAND_NAMES,
        metered: str = "J",
        family: str = "mixture",
    ) -> Self:
        """Fit on metered tasks; EmSHAP's distribution waits until a counter is missing.

        Args:
            counters: (n, d) counters per second.
            samples_per_s: (n,) throughput.
            energy_j: (n,) joules per sample.
            idle_j: (n,) or one for all: joules per sample of the idle machine.
            idle_w: Watts of the idle machine.
            training: (n,) mode.
            labels: A name for each task, by which a reading is told what it is like.
            source: What these tasks are.
            names: Of the counters.
            metered: What was metered.
            family: Conditional model of EmSHAP.
        """
        energy = EnergyModel.fit(
            counters, samples_per_s, energy_j, idle_j=idle_j, idle_w=idle_w, training=training, names=names,
            metered=metered,
        )  # fmt: skip
        fitted = cls(energy, KnownTasks.of(counters, labels), source)
        fitted._missing["fit"] = (counters, samples_per_s, training, energy, family)
        return fitted

    @classmethod
    def of_world(cls, world: World) -> Fitted:
        """The attributor of a simulated world: shipped, if its tasks and machines are a preset's; else fitted."""
        from attribution_sched.attribution.simulated_meter import nominal_readings

        readings = nominal_readings(world)
        for name in shipped_names():
            nominal, fitted = _shipped(name)
            if nominal.shape == readings.shape and np.allclose(nominal, readings, rtol=1e-6, atol=0.0):
                return fitted
        key = np.round(readings, 12).tobytes() + np.float64(world.idiosyncrasy).tobytes()
        if key not in _FITTED:
            while len(_FITTED) >= 32:
                _FITTED.pop(next(iter(_FITTED)))
            # Sums are added up in another order by several threads, and a journal keeps every bit of a vector.
            with one_thread():
                _FITTED[key] = cls.on_simulated_tasks(world)
        return _FITTED[key]

    @classmethod
    def on_simulated_tasks(cls, world: World, *, tasks: int = TASKS, seed: int = 0, family: str = "mixture") -> Self:
        """Fit on metered tasks that a world simulates."""
        from attribution_sched.attribution.simulated_meter import metered_tasks

        count = max(tasks, TASKS_PER_KIND * len(world.kinds))
        past = metered_tasks(world, count, seed)
        labels = list(past.labels)
        return cls.fit(
            past.counters, past.samples_per_s, past.energy_j, idle_j=past.idle_j, idle_w=past.idle_w,
            training=past.training, labels=labels, source=f"{count} simulated tasks, metered", family=family,
        )  # fmt: skip

    @property
    def missing(self) -> MissingCounters:
        """EmSHAP's distribution of the counters; fitted or read when it is first needed.

        Raises:
            ModelFitError: If there were too few tasks to learn how the counters move together.
        """
        from attribution_sched.attribution.missing import LEAST_RUNS, MissingCounters

        if not self.carries_missing:
            rule = f"tasks are too few to stand in for a counter that was not read (at least {LEAST_RUNS})"
            fix = "Record more, or read every counter of the task"
            raise ModelFitError(problem("metered tasks", self.energy.rows, rule, fix))
        if "ready" not in self._missing:
            if "file" in self._missing:
                path, payload = self._missing["file"]
                self._missing["ready"] = MissingCounters.load(path, payload)
            else:
                counters, pace, training, energy, family = self._missing["fit"]
                with one_thread():
                    self._missing["ready"] = MissingCounters.fit(counters, pace, training, energy, family=family)
        ready: MissingCounters = self._missing["ready"]
        return ready

    @property
    def carries_missing(self) -> bool:
        """Whether there were tasks enough to say what a counter is that was not read."""
        from attribution_sched.attribution.missing import LEAST_RUNS

        return "file" in self._missing or "ready" in self._missing or len(self._missing["fit"][0]) >= LEAST_RUNS

    def check(self, counters: FloatArray) -> tuple[str, float]:
        """The known task most alike and its distance; counters that are like none are refused.

        Raises:
            CounterError: If a counter is farther than any reading of such a machine.
        """
        name, distance, worst = self.known.nearest(counters)
        if distance > FARTHEST:
            rule = f"lies {distance:.0f} standard deviations from the nearest known task, {name} (at most {FARTHEST:g})"
            fix = f"Is it in the unit of {self.energy.names[worst]} per second, and from this kind of machine?"
            raise CounterError(problem(f"counters[{self.energy.names[worst]!r}]", float(counters[worst]), rule, fix))
        return name, distance

    def save(self, path: str | Path, **more: Any) -> None:
        """Write ``path.json`` and ``path.safetensors``; of few tasks only the first, without EmSHAP's distribution.

        Args:
            path: Without an ending.
            **more: Further facts for the JSON file.
        """
        target = Path(path)
        hidden = self.missing if self.carries_missing else None
        if hidden is not None:
            hidden.save(target.with_name(target.name + ".safetensors"))
        payload = {
            "schema": SCHEMA, "source": self.source, "energy": self.energy.as_dict(),
            "missing": None if hidden is None else hidden.as_dict(),
            "known": {"names": list(self.known.names)} | {k: getattr(self.known, k).tolist() for k in _KNOWN}, **more,
        }  # fmt: skip
        text = json.dumps(payload, separators=(",", ":"), allow_nan=False)
        target.with_name(target.name + ".json").write_text(text + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path, *, shipped: bool = False) -> tuple[Self, dict[str, Any]]:
        """Read what :meth:`save` wrote, and all of its JSON file.

        Raises:
            CheckpointError: If the file is not one of those.
        """
        target = Path(path)
        payload = _json(target.with_name(target.name + ".json"))
        try:
            if payload["schema"] != SCHEMA:
                raise ValueError(f"edition {payload['schema']} instead of {SCHEMA}")
            tasks = payload["known"]
            arrays = {name: np.array(tasks[name], dtype=np.float64) for name in _KNOWN}
            fitted = cls(
                EnergyModel.from_dict(payload["energy"]), KnownTasks(tuple(tasks["names"]), **arrays),
                str(payload["source"]), shipped,
            )  # fmt: skip
            if payload["missing"] is None:
                fitted._missing["fit"] = ((),)
            else:
                fitted._missing["file"] = (target.with_name(target.name + ".safetensors"), payload["missing"])
        except (KeyError, TypeError, ValueError) as error:
            rule = f"is no fitted attributor ({error})"
            raise CheckpointError(problem("file", f"{target.name}.json", rule, "Fit and save it again")) from error
        return fitted, payload


_KNOWN = ("centres", "spread", "unit")

_FITTED: dict[bytes, Fitted] = {}
"""Attributors of worlds beyond the presets that this process has fitted."""


def shipped_names() -> tuple[str, ...]:
    """Presets whose attributor comes with the package."""
    folder = files("attribution_sched.attribution") / "shipped"
    return tuple(sorted(entry.name.removesuffix(".json") for entry in folder.iterdir() if entry.name.endswith(".json")))


@cache
def _shipped(name: str) -> tuple[FloatArray, Fitted]:
    fitted, payload = Fitted.load(Path(str(files("attribution_sched.attribution") / "shipped")) / name, shipped=True)
    return np.array(payload["nominal"], dtype=np.float64), fitted


def _json(path: Path) -> dict[str, Any]:
    try:
        payload = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        rule = f"cannot be read ({error})"
        raise CheckpointError(problem("file", path.name, rule, "Fit and save it again")) from error
    if not isinstance(payload, dict):
        raise CheckpointError(problem("file", path.name, "is no fitted attributor", "Fit and save it again"))
    return payload
