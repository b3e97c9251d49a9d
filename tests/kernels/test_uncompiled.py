"""With ``NUMBA_DISABLE_JIT=1`` kernels are Python functions, and decide as compiled ones do."""

import pytest

from tests.kernels.installed import PACKAGE, run

TEN = """
from attribution_sched import System
from attribution_sched.cluster.streams import normal
from attribution_sched.kernels import Kernel
from tests.small_world import small

with System(small(), policy="rule", seed=3, explain=False) as system:
    for _ in range(10):
        result = system.schedule_next_task()
        print(result.decision.words, result.decision.source, repr(result.reward))
print(isinstance(normal, Kernel))
"""

THINKING = """
import math
from attribution_sched import System
from attribution_sched.scheduler.hi_ppo.coordinator import HiPpo
from attribution_sched.scheduler.thinking import Think
from tests.small_world import small

policy = HiPpo(think=Think(screen=1, keep=1, confirm=2, changes=2, hours=0.2), deadline_s=math.inf)
with System(small(), policy=policy, seed=3, explain=False) as system:
    result = system.schedule_next_task()
    print(result.decision.words, result.decision.source)
    print(policy.last.thought.gain, policy.last.thought.chosen)
"""


def both(script: str) -> tuple[list[str], list[str]]:
    """What is printed by compiled kernels, and by Python functions."""
    import os

    kept = {name: os.environ[name] for name in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME") if name in os.environ}
    return run(PACKAGE.parent, script, **kept)[0], run(PACKAGE.parent, script, NUMBA_DISABLE_JIT="1")[0]


def test_ten_tasks_are_decided_alike():
    compiled, plain = both(TEN)
    assert (compiled.pop(), plain.pop()) == ("True", "False")
    assert len(plain) == 10 and plain == compiled


@pytest.mark.slow
def test_a_task_is_thought_about_alike():
    compiled, plain = both(THINKING)
    assert plain == compiled
