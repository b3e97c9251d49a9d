"""Jobs of a Ray cluster: a domain is the nodes with one label, a job a placement group and an actor that keeps it.

The placement group's name is the key, and Ray makes a name once: two that launch the same key share one job, without
looking first. The group and its actor are detached, so that they outlive whoever launched them. The actor claims the
job's folder, which nodes and this machine share, and keeps the command there as a local job is kept; what Ray forgets
when an actor has ended, the folder remembers. A command ends with its actor, and the actor with its node.

Ray's token authentication is left as it is: it is read by Ray itself, never switched off, never printed.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from attribution_sched.errors import ExecutorError, LaunchRefused, problem
from attribution_sched.executors import local_job
from attribution_sched.executors.executor import check_job, check_key
from attribution_sched.executors.job_folder import JobFolder, locked
from attribution_sched.executors.records import CANCELLED, LOST, QUEUED, Handle, Inventory, JobSpec, Reason

NAMESPACE = "attribution-sched"
LABEL = "domain"
"""Label of a node that says which domain it belongs to: ``ray start --labels domain=east``."""
PATIENCE_S = 10.0
"""How long a job may be without an actor before it counts as lost: names appear a little after groups do."""


def connect(address: str = "auto") -> Any:
    """Ray itself, connected to a cluster; once in a process.

    Raises:
        ExecutorError: If Ray is not installed, the cluster does not answer, or does not let us in.
    """
    try:
        import ray
    except ModuleNotFoundError as error:
        fix = "pip install 'attribution-sched[ray]'"
        raise ExecutorError(problem("ray", "import ray", "is not installed here", fix)) from error
    if ray.is_initialized():
        return ray
    _reachable(os.environ.get("RAY_ADDRESS", address) if address == "auto" else address)
    try:
        ray.init(address=address, namespace=NAMESPACE, log_to_driver=False, logging_level="error")
    except (ConnectionError, OSError, RuntimeError, ValueError) as error:
        # Words of the error are not passed on: nobody knows what of an address or a token is in them.
        kind = type(error).__name__
        if "auth" in kind.lower() or "token" in str(error).lower():
            rule, fix = f"does not let us in ({kind})", "Give this process the cluster's token, as RAY_AUTH_TOKEN_PATH"
        else:
            rule, fix = f"does not answer ({kind})", "See whether `ray status` works from here"
        raise ExecutorError(problem("ray", address, rule, fix)) from None
    return ray


def _reachable(address: str) -> None:
    """Whether somebody listens at an address: Ray ends the process that asks where nobody does."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        return
    try:
        with socket.create_connection((host.rpartition("/")[2].strip("[]"), int(port)), timeout=5.0):
            return
    except OSError as error:
        rule = f"does not answer ({error.strerror or type(error).__name__})"
        fix = "See whether `ray status` works from here"
        raise ExecutorError(problem("ray", address, rule, fix)) from None


def device_of(address: str = "auto") -> str:
    """What of a labelled node is a device: a GPU where any has one, else a CPU."""
    nodes = [node for node in connect(address).nodes() if LABEL in (node.get("Labels") or {})]
    return "GPU" if any(node["Resources"].get("GPU") for node in nodes) else "CPU"


class RayExecutor(JobFolder):
    """Runs the jobs of one domain on the nodes of a Ray cluster that carry its label.

    Args:
        domain: Name of the domain, and value of the nodes' label ``domain``.
        folder: Where jobs are kept; nodes and this machine must share it.
        address: Of the cluster; ``auto`` takes the one that this machine belongs to.
        resource: What of a node is a device: ``GPU``, ``CPU``, or a resource of your own.
        grace_s: Seconds between asking a job to end and ending it.
    """

    name = "ray"
    missing = "its actor is gone, and its node may be"

    def __init__(
        self,
        domain: str,
        *,
        folder: str | os.PathLike[str],
        address: str = "auto",
        resource: str = "GPU",
        grace_s: float = 10.0,
    ) -> None:
        super().__init__(domain, folder, grace_s)
        self.address, self.resource = address, resource
        self._missing: dict[str, float] = {}

    # --- Ray's side ---

    @property
    def _ray(self) -> Any:
        return connect(self.address)

    def _name(self, key: str) -> str:
        return f"{check_key(key)}.{self.domain}"

    def _nodes(self) -> list[dict[str, Any]]:
        return [node for node in self._ray.nodes() if (node.get("Labels") or {}).get(LABEL) == self.domain]

    def _group(self, key: str) -> dict[str, Any] | None:
        """What Ray knows of a placement group; None if there is none, or it was removed."""
        util = self._ray.util
        try:
            group = util.get_placement_group(self._name(key))
        except ValueError:
            return None
        table: dict[str, Any] = util.placement_group_table(group)
        return None if table.get("state") == "REMOVED" else {**table, "group": group}

    def _actor(self, key: str) -> Any | None:
        try:
            return self._ray.get_actor(self._name(key), namespace=NAMESPACE)
        except ValueError:
            return None

    def _over(self, key: str) -> None:
        """Give the devices of a job back, if it still has some."""
        actor, group = self._actor(key), self._group(key)
        with contextlib.suppress(Exception):
            if actor is not None:
                self._ray.kill(actor, no_restart=True)
        if group is not None:
            self._ray.util.remove_placement_group(group["group"])

    # --- The protocol ---

    def inventory(self) -> Inventory:
        """Nodes with the domain's label, their devices, and those that nobody holds."""
        ray = self._ray
        nodes = self._nodes()
        if not nodes:
            rule = f"no node has the label {LABEL}={self.domain}"
            fix = f"Start nodes with: ray start --labels {LABEL}={self.domain}"
            raise ExecutorError(problem("domain", self.domain, rule, fix))
        alive = [node for node in nodes if node["Alive"]]
        devices = int(sum(node["Resources"].get(self.resource, 0.0) for node in alive))
        reserved = 0.0
        ours = {node["NodeID"] for node in alive}
        for group in ray.util.placement_group_table().values():
            if group.get("state") == "CREATED":
                for at, node in group.get("bundles_to_node_id", {}).items():
                    reserved += group["bundles"][at].get(self.resource, 0.0) if node in ours else 0.0
        names = {node["NodeName"] + ":" + node["NodeID"][:8]: "alive" if node["Alive"] else "dead" for node in nodes}
        version = f"ray {ray.__version__}"
        return Inventory(self.domain, devices, max(0, devices - int(reserved)), names, version, time.time())

    def launch(self, key: str, job: JobSpec) -> Handle:
        """Start a job under a key, once; see :meth:`~attribution_sched.executors.executor.Executor.launch`."""
        check_job(self, job)
        earlier = super().find(key)
        if earlier is not None:
            return earlier
        self._make_group(key, self._bundles(job.component.devices))
        self._make_actor(key, job)
        handle = self.find(key)
        if handle is None:
            rule = "was handed in, and is not known to Ray"
            raise ExecutorError(problem("job", key, rule, "See whether `ray status` works from here"))
        return handle

    def _bundles(self, wanted: int) -> list[int]:
        """Devices of each node that a job needs: one node where one has them all, else the largest first.

        Raises:
            LaunchRefused: If the domain has not as many.
        """
        sizes = sorted((int(node["Resources"].get(self.resource, 0.0)) for node in self._nodes()), reverse=True)
        bundles: list[int] = []
        for size in sizes:
            bundles.append(min(size, wanted - sum(bundles)))
            if sum(bundles) == wanted:
                return bundles
        rule = f"the nodes of domain {self.domain} have {sum(sizes)} {self.resource} in all"
        raise LaunchRefused(problem("job.devices", wanted, rule, "Place it on fewer devices, or start more nodes"))

    def _make_group(self, key: str, bundles: Sequence[int]) -> None:
        name = self._name(key)
        if self._group(key) is not None:
            return
        try:
            self._ray.util.placement_group(
                [{self.resource: float(devices)} for devices in bundles],
                name=name,
                strategy="PACK" if len(bundles) == 1 else "STRICT_SPREAD",
                lifetime="detached",
                bundle_label_selector=[{LABEL: self.domain}] * len(bundles),
            )
        except Exception:
            # Somebody else made it in between: that is what its name is for.
            if self._group(key) is None:
                raise

    def _make_actor(self, key: str, job: JobSpec) -> None:
        ray, group = self._ray, self._group(key)
        if group is None:
            return
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        strategy = PlacementGroupSchedulingStrategy(group["group"], placement_group_bundle_index=0)
        needs: dict[str, Any] = {"num_cpus": 0}
        # The command begins on the first of its nodes, as a batch script does.
        devices = float(next(iter(group["bundles"].values()))[self.resource])
        if self.resource == "CPU":
            needs["num_cpus"] = devices
        elif self.resource == "GPU":
            needs["num_gpus"] = devices
        else:
            needs["resources"] = {self.resource: devices}
        spec = self._spec(key, job, 0)
        name = self._name(key)
        options = {"name": name, "namespace": NAMESPACE, "lifetime": "detached", "get_if_exists": True,
                   "max_restarts": 0, "scheduling_strategy": strategy, **needs}  # fmt: skip
        source = Path(local_job.__file__).read_text("utf-8")
        ray.remote(_stage_class()).options(**options).remote(source, str(self.root), key, name, spec)

    def _unkept(self, key: str) -> bool:
        """Whether nobody keeps a job that has not ended; a name that is not there yet is waited for."""
        if not self._folder(key).is_dir():
            # Asked for by its key, and it has neither a folder nor a group with an actor.
            handle = self.find(key)
            return handle is None or handle.state == LOST
        if self._actor(key) is not None:
            self._missing.pop(key, None)
            return False
        since = self._missing.setdefault(key, time.monotonic())
        # An actor whose lock is gone has ended for certain; else its name may only be late.
        return not locked(self._folder(key) / "alive") or time.monotonic() - since > PATIENCE_S

    def find(self, key: str) -> Handle | None:
        """The job's folder, or else the placement group of its name; None if Ray never had one."""
        handle = super().find(key)
        if handle is not None:
            return handle
        group = self._group(key)
        if group is None:
            # It may have begun and ended between the two questions.
            return super().find(key)
        if self._actor(key) is None:
            since = self._missing.setdefault(key, time.monotonic())
            if time.monotonic() - since > PATIENCE_S:
                lost = Handle(key, self.domain, self._name(key), LOST, reason="it has no actor")
                return super().find(key) or lost
        return Handle(key, self.domain, self._name(key), QUEUED, reason=str(group.get("state", "")))

    def _known(self, since: Mapping[str, Any]) -> list[str]:
        """Those that are asked for by their key too: an actor may not have begun."""
        return sorted({*super()._known(since), *since})

    def cancel(self, key: str) -> None:
        """Ask a job to end (TERM), and end it after the grace; one that has not begun never will."""
        if self._claimed(key):
            self._over(key)
        elif (handle := super().find(key)) is not None and handle.state == LOST:
            local_job.write_event(str(self._folder(key)), CANCELLED, reason="its actor is gone")
            self._over(key)
        else:
            super().cancel(key)

    def _claimed(self, key: str) -> bool:
        """Take the folder of a job that has not begun, so that its actor finds it taken."""
        if self._group(key) is None and not (self.root / "jobs" / check_key(key)).is_dir():
            return False
        draft = self.root / "jobs" / f".{key}.{os.getpid()}"
        draft.mkdir(exist_ok=True)
        local_job.write_event(str(draft), CANCELLED, reason="cancelled before it began")
        try:
            draft.rename(self.root / "jobs" / key)
        except OSError:
            (draft / "events.jsonl").unlink(missing_ok=True)
            draft.rmdir()
            return False
        return True

    def _queued(self, key: str) -> Reason:
        """A job waits for devices, or for a node of its domain."""
        word = str((self._group(key) or {}).get("state", "PENDING"))
        if not any(node["Alive"] for node in self._nodes()):
            return Reason(word, "node not available", f"no node with {LABEL}={self.domain} is alive")
        return replace(super()._queued(key), token=word)


def _stage_class() -> type:
    """The actor of one stage; its class is sent to the nodes, which need nothing of this package."""

    class Stage:
        """Keeps one job from its claim to its end."""

        def __init__(self, source: str, root: str, key: str, name: str, spec: dict[str, Any]) -> None:
            import threading

            # Begun here and not by a call: what creates an actor is Ray's to keep, a call dies with its caller.
            threading.Thread(target=self.keep, args=(source, root, key, name, spec), daemon=True).start()

        def keep(self, source: str, root: str, key: str, name: str, spec: dict[str, Any]) -> None:
            """Run the keeper, then give the devices back."""
            import json
            import os
            import subprocess
            import sys

            import ray

            with subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", source, root, key, "-1", "stay"], stdin=subprocess.PIPE
            ) as keeper:
                keeper.communicate(json.dumps(spec).encode())
            try:
                ray.util.remove_placement_group(ray.util.get_placement_group(name))
            except Exception:
                os._exit(0)

        def ready(self) -> bool:
            """Whether it runs."""
            return True

    Stage.__module__ = "__main__"
    return Stage


def executor_of(domain: str, devices: int, folder: Path) -> RayExecutor:
    """The executor of a domain whose nodes carry its label; how many devices there are the nodes say."""
    return RayExecutor(domain, folder=folder, resource=device_of())
