"""What a campaign is not about costs little: Hi-PPO thinks and searches, explanations look around, but not for long."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from unittest import mock

from attribution_sched.planning import local_search
from attribution_sched.scheduler.hi_ppo import coordinator as hi_ppo_policy
from attribution_sched.scheduler.thinking import Think
from attribution_sched.system import learn as learn_module
from attribution_sched.system import moments

LITTLE = partial(Think, screen=1, keep=1, confirm=2, hours=1.0, changes=3)
"""All parts of thinking, few copies of the cluster."""

SEARCH = {"LOOKS": 60}
"""All parts of the wide search, few plans."""


@contextmanager
def thinking_little() -> Iterator[None]:
    """Systems that are made in here decide and explain in a fifth of the time; what they go through is the same."""
    with ExitStack() as patches:
        patches.enter_context(mock.patch.object(hi_ppo_policy, "Think", LITTLE))
        patches.enter_context(mock.patch.object(moments, "WARM_UP", 12))
        patches.enter_context(mock.patch.object(learn_module, "QUICK", {"rows": 60}))
        for name, value in SEARCH.items():
            patches.enter_context(mock.patch.object(local_search, name, value))
        yield
