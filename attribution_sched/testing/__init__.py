"""Contracts that other people's parts are held to, as ours are: one call a part, one clear error for what is broken.

from attribution_sched.testing import check_policy

def test_my_policy():
    check_policy(MyPolicy())

A part that passes can be handed to :class:`~attribution_sched.system.system.System`. Nothing is written outside a
temporary folder, nothing takes longer than seconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from attribution_sched import lazy_names

if TYPE_CHECKING:
    from attribution_sched.testing.attributor import check_attributor
    from attribution_sched.testing.contract import ContractError
    from attribution_sched.testing.executor import check_executor
    from attribution_sched.testing.policy import check_policy
    from attribution_sched.testing.signal import check_signal
    from attribution_sched.testing.source import check_source

__all__ = ["ContractError", "check_attributor", "check_executor", "check_policy", "check_signal", "check_source"]

_HOMES = {
    "ContractError": "attribution_sched.testing.contract",
    "check_attributor": "attribution_sched.testing.attributor",
    "check_executor": "attribution_sched.testing.executor",
    "check_policy": "attribution_sched.testing.policy",
    "check_signal": "attribution_sched.testing.signal",
    "check_source": "attribution_sched.testing.source",
}

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
