"""How a system goes on: where its journal ends, from a snapshot of it, and after its cluster was left in motion."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from attribution_sched.cluster.decision import co_runners
from attribution_sched.cluster.live import Moment, PolicyAnswer, SimulatedCluster, weighted, with_weights
from attribution_sched.errors import JournalError
from attribution_sched.journal import DecisionRecord, EventRecord, OutcomeRecord
from attribution_sched.scheduler.policy import Appraiser, LinkWatcher, Recallable
from attribution_sched.system import operations
from attribution_sched.system.decision_records import outcome_record, plan_record, reward_of
from attribution_sched.system.fits import Admission
from attribution_sched.system.replay import replay
from attribution_sched.system.snapshots import (
    recall_from,
    recall_newest,
    record_snapshot,
    restore_snapshot,
    snapshot_before,
)
from attribution_sched.system.transaction import Entry
from attribution_sched.system.weight_versions import ORIGINAL
from attribution_sched.types import Outcome

if TYPE_CHECKING:
    from attribution_sched.system.system import System

AGAIN = 256
"""Decisions of a long journal that are lived through again on resuming, so that explanations have a background."""

log = logging.getLogger(__name__)


def go_on_with(system: System, *, rehearse: bool) -> None:
    """Go on with the journal where it ends.

    Of a short journal everything is lived through, of a long one the newest decisions, so that explanations have a
    background. Where that does not come out as recorded, because this release prices otherwise, the newest snapshot
    is taken as it is. A policy that remembers, and cannot say what, lives through all of it.
    """
    count = system.journal.count()
    recallable = not rehearse or isinstance(system.policy, Recallable)
    near = count - AGAIN if count > system.memory.most and recallable else 0
    try:
        _go_through(system, near, rehearse=rehearse)
    except JournalError as error:
        newest = system.journal.newest_snapshot()
        if newest is None or newest.sequence <= near or not recallable:
            raise
        log.warning("going on from the snapshot after %d decisions: %s", newest.sequence, error)
        system.set_up(
            system.settings,
            system.versions.policy(ORIGINAL),
            system.seed,
            system.explaining or False,
            system.task_source,
            system.attributor,
        )
        system.keep_in(system.journal)
        _go_through(system, newest.sequence, rehearse=rehearse)


def _go_through(system: System, near: int, *, rehearse: bool) -> None:
    """Go on from a snapshot: live through the decisions after it, and let take effect what was still pending.

    Args:
        system: Who.
        near: Decisions that the snapshot may include at most; 0 lives through all of them.
        rehearse: Ask the policy again, so that it remembers.
    """
    versions, reshaping, ring = system.versions, system.reward_feedback, system.ring
    count, carried_out, otherwise = system.journal.count(), 0, 0
    priced_otherwise: list[str] = []
    start: dict[str, Any] = {"sequence": 0, "tasks": 0}
    # One that says what it sees remembers by looking; any other that can say what it remembers is asked again only
    # from its newest memory on. Where all is lived through, neither is asked about what the newest memory includes.
    ask_from, kept = 0, None
    if near <= 0 and rehearse and isinstance(system.policy, Recallable):
        kept = snapshot_before(system.journal, count)
        ask_from = kept.sequence if kept else 0
    if near > 0:
        system.adopt(versions.due(near))
        looks = rehearse and isinstance(system.policy, Appraiser)
        start = restore_snapshot(system.journal.newest_snapshot(near), system.cluster, system.policy if looks else None)
        if looks:
            ask_from = count
        elif rehearse and start["sequence"]:
            ask_from = recall_newest(system.journal, system.policy)
    if start["sequence"]:
        ring.recorded = {int(slot): name for slot, name in start["recorded"].items()}
        deferred, *rest = start["asking"]
        ring.call.state = Moment(frozenset(deferred), *rest)
        ring.since, ring.waits_s = start["since"], start["waits_s"]
        system.snapshot_at = start["sequence"]

    def remember(number: int) -> None:
        if kept is not None and number == kept.sequence:
            recall_from(kept, system.policy)

    def before(cluster: SimulatedCluster, decision: DecisionRecord) -> None:
        nonlocal otherwise
        number = decision.sequence or 0
        system.adopt(versions.due(number))
        remember(number)
        system.reward = with_weights(reshaping.in_force(number, system.world.reward), decision.weights)
        if number < ask_from and isinstance(system.policy, LinkWatcher):
            seen = cluster.pending(background=True)
            system.policy.watch_links(replace(seen, co_runners=co_runners(cluster.engine)))
        if rehearse and number >= ask_from:
            asked = ring.call.ask(system.policy, cluster, system.reward)
            otherwise += plan_record(asked.plan, system.domains, replanning=asked.view.replanning) != decision.plan

    def after(decision: DecisionRecord, asked: PolicyAnswer, effect: Outcome, known: OutcomeRecord | None) -> None:
        nonlocal carried_out
        if known is None:
            reward = reward_of(effect, asked.view.reward).total
            system.journal.record_outcome(outcome_record(decision.id, effect, asked.view, reward))
            carried_out += 1
        ring.recorded[asked.view.slot] = system.cluster.residents[asked.view.slot].id
        ring.call.note(asked, decision.sequence)
        if (decision.sequence or 0) >= count - system.memory.most:
            # The journal keeps weights; what feedback did to the energy price is known here.
            system.memory.remember(
                decision.id, weighted(asked.view, system.reward), asked.plan, decision.sequence, decision.source
            )
        ring.since = 0 if effect.code == 1 else ring.since + 1

    replay(
        system.cluster, system.journal, system.seed, start=start, otherwise=priced_otherwise, before=before, after=after
    )
    for unfinished in operations.still_open(system.journal):
        system.journal.record_effect(int(unfinished.number or 0))
    system.adopt(versions.due(count))
    remember(count)
    if reshaping.set_at(count):
        system.reward = reshaping.in_force(count, system.reward)
    versions.anchored = versions.current if reshaping.anchored_weights is None else reshaping.anchored_weights
    facts = {
        "decisions": count, "carried_out": carried_out, "rehearsed": rehearse, "decided_otherwise": otherwise,
        "priced_otherwise": priced_otherwise[:100], "lived_through": count - start["sequence"],
    }  # fmt: skip
    if priced_otherwise:
        log.warning("%d decisions come out at other prices in this release", len(priced_otherwise))
    system.journal.record_event(EventRecord("resumed", facts, system.now_s))


def snapshot(system: System, every: int) -> None:
    """Keep the state if so many decisions were taken since it was last kept, always after a multiple of them."""
    count, ring = system.journal.count(), system.ring
    if count % every or count - system.snapshot_at < max(every, len(system.cluster.backlog) // 4):
        return
    deferred, *rest = ring.call.state
    facts = {
        "recorded": {str(slot): name for slot, name in ring.recorded.items()},
        "asking": [sorted(deferred), *rest],
        "since": ring.since,
        "waits_s": ring.waits_s,
    }
    record_snapshot(system.journal, system.cluster, system.policy, facts)
    system.snapshot_at = count


def rebuild(system: System) -> None:
    """Make the cluster anew from the journal: it was left while it moved, and nobody knows how far it had come."""
    cluster = system.new_cluster()
    replay(cluster, system.journal, system.seed, start=restore_snapshot(system.journal.newest_snapshot(), cluster))
    system.cluster, system.admission = cluster, Admission(cluster.engine)
    # What was recorded has happened by now, and a decision among it is booked and returned by who called this; a
    # task that was not recorded is handed in again by whoever was told so.
    if isinstance(system.transaction.work, Entry):
        system.transaction.work = None
    system.transaction.moving = False
