"""What people do to a running system: hand tasks in, withdraw, cancel, hold and release them, reserve devices.

Everything is recorded before it takes effect, and done once, see :mod:`attribution_sched.system.operations`.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from attribution_sched.errors import SettingsError, TaskError, nearest, problem
from attribution_sched.system import operations
from attribution_sched.system.admission import handed_in, prepared
from attribution_sched.system.transaction import Entry

if TYPE_CHECKING:
    from attribution_sched.cluster.demands import Demands
    from attribution_sched.system.system import System


class Operate:
    """Tasks and devices of a system, by hand.

    Args:
        system: Whose.
    """

    def __init__(self, system: System) -> None:
        self.system = system

    def submit(self, /, task: Any, **fields: Any) -> str:
        """Put a task into the queue, at the present moment of the cluster.

        Args:
            task: A kind of task of the preset by name, a mapping, or a
                :class:`~attribution_sched.system.admission.TaskRequest`.
            **fields: Its fields: ``steps``, ``batch``, ``training``, ``counters``, ``provenance``, ``id``, ``tenant``,
                ``priority``, ``deadline_s``, ``devices``, ``hold``, ``command``.

        Returns:
            Its id.

        Raises:
            TaskError: If it is not a task of the preset, fits nowhere, or the queue is full.
            CounterError: If a counter is wrong, or the attributor cannot say where the task's joules go.
        """
        with self.system.call():
            record, made = prepared(
                task, fields, self.system.world, self.system.seed, self.system.journal, self.system.cluster
            )
            self.system.admission.check(made.kind, made.task.devices)
            self.enter(Entry(record, made))
            return record.id

    def withdraw(self, task: str) -> None:
        """Take a task out of the queue that waits or is held, for good.

        Args:
            task: Its id.

        Raises:
            TaskError: If there is no such task, or it has finished, or it is running.
        """
        self._on_task(operations.WITHDRAW, task)

    def cancel(self, task: str) -> None:
        """Stop a task that is running, which frees its devices; one that waits is withdrawn.

        Args:
            task: Its id.

        Raises:
            TaskError: If there is no such task, or it has finished.
        """
        self._on_task(operations.CANCEL, task)

    def hold(self, task: str) -> None:
        """Ask nobody about a waiting task, until :meth:`release`.

        Args:
            task: Its id.

        Raises:
            TaskError: If it does not wait.
        """
        self._on_task(operations.HOLD, task)

    def release(self, task: str) -> None:
        """Let a task wait again that was held, or set aside because the policy failed on it.

        Args:
            task: Its id.

        Raises:
            TaskError: If it is not held.
        """
        self._on_task(operations.RELEASE, task)

    def _on_task(self, kind: str, task: Any) -> None:
        cluster = self.system.cluster
        with self.system.call():
            name = operations.check_task(cluster, self.system.journal, kind, task)
            self.carry_out(operations.operation(cluster, kind, name))

    def reserve(self, domain: str, devices: int, *, tenant: str, hours: float) -> str:
        """Keep devices of a domain for a tenant, from now on and as they fall free.

        Decisions on tasks of other tenants do not see them as free.

        Args:
            domain: Name of the domain.
            devices: How many.
            tenant: For whom.
            hours: For how long, on the cluster's clock.

        Returns:
            Its id, for :meth:`unreserve`.

        Raises:
            SettingsError: If an argument is wrong, or others have reserved too many.
        """
        cluster = self.system.cluster
        with self.system.call():
            made = operations.check_reservation(cluster, domain, devices, tenant, hours)
            more = {name: value for name, value in asdict(made).items() if name != "id"}
            self.carry_out(operations.operation(cluster, operations.RESERVE, made.id, **more))
            return made.id

    def unreserve(self, reservation: str) -> None:
        """End a reservation before its time.

        Args:
            reservation: Its id.

        Raises:
            SettingsError: If there is none of that id.
        """
        cluster = self.system.cluster
        with self.system.call():
            if reservation not in cluster.reservations:
                rule, known = "is no reservation in force", list(cluster.reservations)
                fix = nearest(reservation, known) if known else "System.status() lists reservations; there are none"
                raise SettingsError(problem("reservation", reservation, rule, fix))
            self.carry_out(operations.operation(cluster, operations.UNRESERVE, reservation))

    def carry_out(self, what: operations.Operation, *, again: bool = False) -> None:
        """Record an operation, let it take effect, record that it did; each once."""
        cluster, journal, transaction = self.system.cluster, self.system.journal, self.system.transaction
        transaction.work = what
        pending = operations.still_open(journal) if again else []
        if again and not pending:
            # It never reached the journal, or is done with: there is nothing to finish.
            transaction.work = None
            return
        number = pending[-1].number if pending else journal.record_intent(what.kind, what.details())
        if not (again and operations.happened(cluster, replace(what, number=number))):
            with transaction.moves():
                operations.happen(cluster, replace(what, number=number), live=True)
        journal.record_effect(int(number or 0))
        transaction.work = None

    def enter(self, entry: Entry, *, again: bool = False) -> None:
        """Record a task, then let it wait in the cluster; each once."""
        cluster, journal = self.system.cluster, self.system.journal
        transaction, record = self.system.transaction, entry.record
        transaction.work = entry
        if not again:
            journal.record_task(record)
        elif not journal.knows_task(record.id):
            # It never reached the journal: whoever handed it in was told so by the exception.
            transaction.work = None
            return
        if not (again and cluster.holds(record.id)):
            with transaction.moves():
                cluster.hand_in(entry.made, record.id)
        transaction.work = None

    def true_demands(self, task: str) -> Demands:
        """What a task that was handed in to a simulation really demands, for studies; no policy is told.

        Args:
            task: Its id.

        Raises:
            JournalError: If the journal has no such task.
            TaskError: If nobody handed it in: the simulation sent it, and keeps its demands.
        """
        found = handed_in(self.system.world, self.system.journal.task(task), self.system.seed)
        if found is None:
            raise TaskError(problem("task", task, "was not handed in", "Ask for one of submit() or of a demo"))
        return found.demands
