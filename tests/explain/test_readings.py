"""Players that are put into words when somebody looks are the players."""

import copy

import numpy as np

from attribution_sched.attribution.vector import ACCOUNTING, AttributionVector, state_vectors
from attribution_sched.cluster.demands import DEMAND_NAMES
from attribution_sched.explain.background import Background
from attribution_sched.explain.explanation import Explanation
from attribution_sched.explain.players import LazyPlayers, Readings, in_joules, lineup

from .policies import Planted, decided_by, explainer


def readings():
    states = Background.of(decided_by(Planted)).states
    cast = lineup(states.take(np.array([0])), ("d0", "d1", "d2"))
    return Readings(cast, cast.usual(states), states), cast, states


def test_they_are_those_of_the_line_up():
    made, cast, states = readings()
    for row, players in enumerate(cast.players(states, cast.usual(states))[:5]):
        lazy = made.of(row)
        assert tuple(lazy) == players and lazy == players and lazy[2] == players[2] and lazy[:3] == players[:3]
        assert len(lazy) == len(players) and hash(lazy) == hash(players) and repr(lazy) == repr(players)
    assert made.of(0) != made.of(1) and made.of(0) != 3


def test_nothing_is_read_before_somebody_looks():
    made, _, _ = readings()
    lazy = made.of(1)
    assert len(lazy) == len(lazy.names) and "columns" not in vars(made)
    assert lazy[0].name == lazy.names[0] and "columns" in vars(made)


def test_copies_are_plain_tuples():
    lazy = readings()[0].of(2)
    found = copy.deepcopy(lazy)
    assert type(found) is tuple and lazy == found


def test_explanations_of_many_decisions_have_them_and_can_be_stored():
    made, decided = explainer(Planted())
    told = made.explain_many(decided[:3], rows=300, precision=None)
    alone = made.explain(decided[1], rows=300, precision=None, sure=False)
    assert repr(tuple(told[1].players)) == repr(alone.players) and told[1].names == alone.names
    back = Explanation.from_dict(told[1].to_dict())
    # repr: a number that is not known is NaN, which is not even equal to itself.
    assert repr(back.players) == repr(tuple(told[1].players))
    assert isinstance(copy.deepcopy(told[1]).players, tuple)
    assert not isinstance(alone.players, LazyPlayers)


def test_attributions_are_told_in_joules_with_their_interval():
    """A part of the task's energy first, what the policy reads second: a counter that costs nothing says 0 J."""
    made = readings()[0]
    values = np.array([0.5, 0.0, 120.0, 3.0, 0.0, 3391.0, 248.0])
    vector = AttributionVector(
        values, DEMAND_NAMES, 600.0, 600.0 + values.sum(), 0.1 * values, "J/sample", question=ACCOUNTING
    )
    plain = made.of(0)
    told = {p.name: p for p in Readings(made.cast, made.usual, made.seen, [vector]).of(0)}
    fc, conv = told["attribution fc"], told["attribution conv"]
    assert fc.value.startswith("3,391 ± 665 J/sample, read as ") and fc.value.endswith(
        next(p.value for p in plain if p.name == fc.name)
    )
    assert conv.value.startswith("0 J/sample, ") and "策略读作" in conv.value.say("zh")
    assert [p.number for p in plain] == [p.number for p in told.values()]
    others = [p for p in plain if p.group != "attribution"]
    assert others == [told[p.name] for p in others]
    # Numbers without a unit stay what they are.
    state = state_vectors(lambda rows: np.zeros((len(rows), 7)), DEMAND_NAMES)(np.zeros(12))
    assert in_joules(tuple(plain), state) == tuple(plain) == in_joules(tuple(plain), None)
