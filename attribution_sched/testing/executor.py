"""What an executor must keep: a key starts once, is found again, ends, and is harmless to cancel twice."""

from __future__ import annotations

import sys
import time
from dataclasses import replace

from attribution_sched.errors import ExecutorError
from attribution_sched.executors.executor import Executor
from attribution_sched.executors.records import Component, Handle, JobSpec
from attribution_sched.testing.contract import asked, require

KEY = "check-d00000"


def check_executor(executor: Executor, *, key: str = KEY, wait_s: float = 60.0) -> None:
    """Run three short jobs of one device and hold the executor to the contract.

    Args:
        executor: Of a domain with one free device; its engine is really used.
        key: Beginning of the keys; other ones for every check of one engine.
        wait_s: How long a job may take to end.

    Raises:
        ContractError: Field, value, rule and fix of the first thing it does not keep.
    """
    with asked("executor.inventory"):
        there = executor.inventory()
    require(there.devices >= 1, "executor.inventory().devices", there.devices, "must be at least 1", "Give it a device")
    nobody = f"{key}-nobody"
    with asked("executor.find"):
        unknown = executor.find(nobody)
    fix = "Ask the engine by the key"
    require(unknown is None, "executor.find", unknown, "must be None for a key that never was", fix)
    with asked("executor.cancel"):
        executor.cancel(nobody)
    _runs_once(executor, f"{key}-1", wait_s)
    _tells_failure(executor, f"{key}-2", wait_s)
    _can_be_stopped(executor, f"{key}-3", wait_s)
    wrong = replace(_job(executor, "True"), component=replace(_job(executor, "True").component, domain="elsewhere"))
    try:
        executor.launch(f"{key}-4", wrong)
    except ExecutorError:
        return
    require(False, "executor.launch", "elsewhere", "must refuse a job of another domain", "Call check_job first")


def _job(executor: Executor, code: str) -> JobSpec:
    part = Component(executor.domain, 0, 1, 0, 1, 0, 1, dp=1, precision="fp32")
    return JobSpec("check", (sys.executable, "-c", code), part, steps=1)


def _runs_once(executor: Executor, key: str, wait_s: float) -> None:
    with asked("executor.launch"):
        first, second = executor.launch(key, _job(executor, "pass")), executor.launch(key, _job(executor, "pass"))
    fix = "Ask find(key) before anything is started"
    require(first.id == second.id, "executor.launch", (first.id, second.id), "must start a key once", fix)
    ended = _end(executor, key, wait_s)
    require(ended.exit_code == 0, "handle.exit_code", ended.exit_code, "must be 0 for a job that ended well", "Read it")
    kinds = [event.kind for event in executor.observe({key: None}).events if event.key == key]
    require(
        "finished" in kinds, "executor.observe", kinds, "must tell the end of a key asked for by name", "Look it up"
    )


def _tells_failure(executor: Executor, key: str, wait_s: float) -> None:
    with asked("executor.launch"):
        executor.launch(key, _job(executor, "raise SystemExit(3)"))
    ended = _end(executor, key, wait_s)
    rule = "must be failed, with the job's own exit code 3"
    told = ended.state == "failed" and ended.exit_code == 3
    require(told, "handle", (ended.state, ended.exit_code), rule, "Keep what the job returned")


def _can_be_stopped(executor: Executor, key: str, wait_s: float) -> None:
    with asked("executor.launch"):
        executor.launch(key, _job(executor, "import time; time.sleep(600)"))
    with asked("executor.cancel"):
        executor.cancel(key)
        ended = _end(executor, key, wait_s)
        executor.cancel(key)
    require(ended.state != "finished", "handle.state", ended.state, "must not be finished after cancel", "Stop the job")


def _end(executor: Executor, key: str, wait_s: float) -> Handle:
    limit = time.monotonic() + wait_s
    while True:
        with asked("executor.find"):
            handle = executor.find(key)
        require(handle is not None, "executor.find", None, f"must find {key}, which was launched", "Ask by the key")
        assert handle is not None
        if handle.ended:
            return handle
        require(
            time.monotonic() < limit, "handle.state", handle.state, f"must end within {wait_s:g} s", "Look at its log"
        )
        time.sleep(0.02)
