"""Moved."""

from attribution_sched.cluster.decision_arrays import *  # noqa: F403
from attribution_sched.cluster.decision_arrays import Attributor, Decisions, from_view, gather  # noqa: F401
