"""Moments of the small world for tests of the fork."""

from attribution_sched.cluster.decision import encode, view
from attribution_sched.cluster.engine import state as st
from attribution_sched.cluster.engine.engine import Engine
from attribution_sched.scheduler.rules import FirstComeFirstServed
from tests.small_world import small


def engine_at(decisions=12, seed=3, **changes):
    """A cluster of the small world with a decision pending, some tasks running and some waiting."""
    world = small(**changes).build_world()
    engine = Engine(world)
    engine.seed([seed])
    engine.reset()
    policy = FirstComeFirstServed()
    for number in range(200):
        seen = view(engine)
        busy = int((engine.state.slots[0, :, st.STATUS] == st.RUNNING).sum())
        if number >= decisions and (decisions == 0 or (not seen.replanning and busy > 1)):
            break
        engine.step(encode(engine, policy.decide(seen), seen.kind_index)[None])
    return engine
