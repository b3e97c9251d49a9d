"""The state of a running system, kept in its journal now and then.

Going on takes a bounded time however long the history is. Nothing here is pickled: arrays are saved as they are, the
rest is JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from attribution_sched.cluster.live import (
    SimulatedCluster,
)
from attribution_sched.cluster.live_state import restore_cluster, save_cluster
from attribution_sched.explain.memory import BLOCK
from attribution_sched.journal import Journal, SnapshotRecord
from attribution_sched.scheduler.policy import Policy, Recallable
from attribution_sched.storage import take

EVERY = BLOCK
"""Decisions between two snapshots: small beside them, and each stands where a block of explanations begins."""

FORMAT = 2
"""Of what is written here; a snapshot of another one is passed over, and the journal gone through instead."""


def record_snapshot(journal: Journal, cluster: SimulatedCluster, policy: Policy, facts: Mapping[str, Any]) -> None:
    """Keep a system as it is between two decisions.

    Args:
        journal: Where.
        cluster: The cluster.
        policy: Who decides; one that can say what it remembers is kept with it.
        facts: What else it needs to go on.
    """
    arrays, details = save_cluster(cluster)
    if isinstance(policy, Recallable):
        arrays |= {f"policy.{name}": np.asarray(array) for name, array in policy.memory().items()}
    details |= {"tasks": journal.task_count(), "remembers": isinstance(policy, Recallable), **facts}
    # The longest part of it; as bytes it is compressed with the rest.
    arrays["facts"] = np.frombuffer(json.dumps(details).encode(), dtype=np.uint8)
    journal.record_snapshot(journal.count(), arrays, {"format": FORMAT})


def restore_snapshot(
    snapshot: SnapshotRecord | None, cluster: SimulatedCluster, policy: Policy | None = None
) -> dict[str, Any]:
    """Bring a fresh cluster to where a snapshot was taken.

    Args:
        snapshot: The snapshot; None if a journal has none that is old enough.
        cluster: A fresh cluster of the journal's world and seed.
        policy: Who decides; it remembers again what it did then, if it can.

    Returns:
        The facts that were kept, with ``sequence``: the decisions that are not to be lived through again. With 0 of
        them there was no snapshot to begin from.
    """
    if snapshot is None or not _readable(snapshot):
        return {"sequence": 0, "tasks": 0}
    details: dict[str, Any] = json.loads(snapshot.arrays["facts"].tobytes())
    restore_cluster(cluster, snapshot.arrays, details)
    if policy is not None:
        recall_from(snapshot, policy)
    return details | {"sequence": snapshot.sequence}


def _readable(snapshot: SnapshotRecord) -> bool:
    return snapshot.facts.get("format") == FORMAT and "facts" in snapshot.arrays


def snapshot_before(journal: Journal, at: int) -> SnapshotRecord | None:
    """The newest snapshot of a system that includes so many decisions at most; None if there is none."""
    snapshot = journal.newest_snapshot(at)
    return snapshot if snapshot is not None and _readable(snapshot) else None


def recall_from(snapshot: SnapshotRecord, policy: Policy) -> None:
    """Let a policy remember what it did at a snapshot, if it can."""
    if isinstance(policy, Recallable):
        policy.recall(take(snapshot.arrays, "policy."))


def recall_newest(journal: Journal, policy: Policy) -> int:
    """Let a policy remember what it did at the newest snapshot; returns the decisions that this includes."""
    snapshot = journal.newest_snapshot()
    if snapshot is None or not isinstance(policy, Recallable):
        return 0
    recall_from(snapshot, policy)
    return snapshot.sequence
