"""The loop of a run, with a trainer and a measure whose numbers are known."""

from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from attribution_sched.errors import CheckpointError
from attribution_sched.scheduler.hi_ppo.constraints import Multipliers
from attribution_sched.scheduler.hi_ppo.held_out import Measured
from attribution_sched.scheduler.hi_ppo.learning import Best, Budget, Learning
from attribution_sched.scheduler.hi_ppo.trainer import Iteration
from attribution_sched.scheduler.ppo.ppo import UpdateStats

STATS = UpdateStats(0.1, 0.2, 0.3, 0.01, 0.05, (0.5, float("nan"), 0.7), 4, False)
PRICES = Multipliers.start(("balance",), value=0.5)


@dataclass
class Counter:
    """Takes ten decisions per iteration and remembers how far it was told to be."""

    number: int = 0
    decisions: int = 0
    network: None = None
    told: list = field(default_factory=list)
    fields: tuple = (SimpleNamespace(name="w"),)
    optimiser: SimpleNamespace = field(default_factory=lambda: SimpleNamespace(param_groups=[{"lr": 0.25}]))

    def iterate(self, progress):
        self.told.append(progress)
        self.number += 1
        self.decisions += 10
        returns = {"w": float("nan") if self.number == 2 else -float(self.number)}
        return Iteration(self.number, self.decisions, 3 * self.decisions, returns, STATS, PRICES)


class Figures:
    """Held-out returns given in advance."""

    def __init__(self, *means):
        self.means = list(means)

    def measure(self, network):
        return Measured((self.means.pop(0),))


def learning(trainer, figures, budget, every=2, **hooks):
    events = []
    made = Learning(
        trainer, figures, budget, every,
        keep=lambda: events.append(("keep", trainer.number)),
        kept=lambda: events.append(("kept", trainer.number)),
        note=lambda kind, iteration, decisions, numbers: events.append((kind, iteration, numbers)),
        **hooks,
    )  # fmt: skip
    return made, events


def test_it_measures_at_the_start_now_and_then_and_at_the_end():
    trainer = Counter()
    run, events = learning(trainer, Figures(1.0, 0.5, 2.0, 1.5), Budget(50, 0.0))
    start, best = run.run(lambda: False)
    assert (start.mean, best) == (1.0, Best(4, Measured((2.0,))))
    assert trainer.told == pytest.approx([0.0, 0.2, 0.4, 0.6, 0.8])
    assert [number for kind, number, *_ in events if kind == "held_out"] == [0, 2, 4, 5]
    assert [event for event in events if event[0] == "keep"] == [("keep", 0), ("keep", 4)]
    # Whatever is saved after an iteration already has its measurement.
    order = [event[:2] for event in events]
    assert order.index(("held_out", 4)) < order.index(("kept", 4))
    assert order[-2:] == [("held_out", 5), ("kept", 5)]
    assert run.share == 1.0


def test_numbers_are_told_by_name():
    told = []
    run, events = learning(Counter(), Figures(1.0, 3.0), Budget(20, 0.0), progress=told.append)
    run.run(lambda: False)
    _, _, numbers = next(event for event in events if event[0] == "iteration")
    assert numbers["return"] == {"w": -1.0}
    assert numbers["lr"] == 0.25
    assert numbers["kl"] == 0.01
    assert numbers["multiplier"] == {"balance": 0.5}
    assert numbers["explained_variance"]["r_cost"] == 0.7
    last = told[-1]
    assert (last.phase, last.share, last.iteration, last.decisions) == ("learning", 1.0, 2, 20)
    assert (last.episode_return, last.held_out, last.best) == (-1.0, 3.0, 3.0)


def test_a_stop_leaves_a_state_that_goes_on_in_the_same_steps():
    means = (1.0, 0.5, 2.0, 1.5)
    straight = Counter()
    learning(straight, Figures(*means), Budget(50, 0.0))[0].run(lambda: False)
    trainer = Counter()
    first, _ = learning(trainer, Figures(*means[:2]), Budget(50, 0.0))
    first.run(lambda: trainer.number >= 3)
    assert trainer.number == 3
    assert first.share == pytest.approx(0.6)
    second, events = learning(trainer, Figures(*means[2:]), Budget(50, 0.0))
    second.restore(first.to_json())
    assert second.spent_s == first.spent_s
    start, best = second.run(lambda: False)
    assert (start.mean, best.iteration, best.measured.mean) == (1.0, 4, 2.0)
    assert trainer.told == straight.told
    assert ("keep", 0) not in events


def test_time_is_a_budget_too(monkeypatch):
    now = [100.0]

    class Slow(Counter):
        def iterate(self, progress):
            now[0] += 3.0
            return super().iterate(progress)

    budget = Budget(None, 10.0, "wall")
    monkeypatch.setattr("attribution_sched.scheduler.hi_ppo.learning.time.monotonic", lambda: now[0])
    trainer, told = Slow(), []
    run, _ = learning(trainer, Figures(*range(9)), budget, progress=told.append)
    run.run(lambda: False)
    assert trainer.told == pytest.approx([0.0, 0.3, 0.6, 0.9])
    assert run.spent_s == pytest.approx(12.0)
    assert told[1].eta_s == pytest.approx(7.0)


def test_a_finished_run_does_nothing_more_unless_it_gets_more_time():
    trainer = Counter()
    first, _ = learning(trainer, Figures(1.0, 2.0), Budget(20, 0.0))
    first.run(lambda: False)
    again, events = learning(trainer, Figures(), Budget(20, 0.0))
    again.restore(first.to_json())
    assert again.run(lambda: False)[1] == Best(2, Measured((2.0,)))
    assert events == []
    more, _ = learning(trainer, Figures(3.0), Budget(30, 0.0))
    more.restore(first.to_json())
    assert more.run(lambda: False)[1] == Best(3, Measured((3.0,)))


@pytest.mark.parametrize("part", ["spent_s", "start", "best", "measured_at"])
def test_a_state_that_lacks_a_part_is_refused(part):
    run, _ = learning(Counter(), Figures(1.0, 2.0), Budget(20, 0.0))
    run.run(lambda: False)
    stored = {name: value for name, value in run.to_json().items() if name != part}
    with pytest.raises(CheckpointError, match="lacks a part"):
        learning(Counter(), Figures(), Budget(20, 0.0))[0].restore(stored)
