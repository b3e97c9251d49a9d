"""Contracts for other people's parts: ours keep them, and each rule is seen to be broken."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from attribution_sched.attribution.sources.process import ProcessSource
from attribution_sched.attribution.sources.reading import Provenance, Reading
from attribution_sched.cluster.signals import Constant, Forecast, Grid
from attribution_sched.errors import AttributionSchedError
from attribution_sched.executors.local import LocalExecutor
from attribution_sched.scheduler.registry import POLICIES, make_policy
from attribution_sched.testing import (
    ContractError,
    check_attributor,
    check_executor,
    check_policy,
    check_signal,
    check_source,
)
from tests.small_world import SMALL


@pytest.mark.parametrize("name", [name for name in POLICIES if name != "seq2seq"])
def test_every_registered_policy_keeps_the_contract(name):
    check_policy(make_policy(name), SMALL, decisions=24)


class Wrong:
    """A policy with one fault, by name."""

    name = "wrong"

    def __init__(self, fault):
        self.fault, self.calls, self.rule = fault, 0, make_policy("sjf")
        if fault == "name":
            self.name = ""

    def decide(self, view):
        self.calls += 1
        if self.fault == "raises":
            raise ZeroDivisionError("by mistake")
        if self.fault == "never":
            return None
        if self.fault == "writes":
            view.free_devices[:] = 0
        plan = self.rule.decide(view)
        if self.fault == "forgetful" and self.calls > 30:
            return None
        if self.fault == "greedy" and plan is not None:
            segment = plan.replicas[0].segments[0]
            return replace(plan, replicas=(replace(plan.replicas[0], segments=(replace(segment, dp=8, tp=1, pp=1),)),))
        return plan


@pytest.mark.parametrize(
    ("fault", "field"),
    [("name", "policy.name"), ("raises", "policy.decide"), ("never", "policy.decide"), ("writes", "view"),
     ("forgetful", "policy.decide"), ("greedy", "policy.decide")],
)  # fmt: skip
def test_a_policy_with_a_fault_is_told_which(fault, field):
    with pytest.raises(ContractError, match=rf"^{field}"):
        check_policy(Wrong(fault), SMALL, decisions=24)


def test_local_jobs_keep_the_contract(tmp_path):
    check_executor(LocalExecutor("east", 1, tmp_path, grace_s=1.0))


class Doubling(LocalExecutor):
    """Says another job's name each time a key is launched."""

    launches = 0

    def launch(self, key, job):
        self.launches += 1
        return replace(super().launch(key, job), id=str(self.launches))


def test_an_executor_that_starts_a_key_twice_is_told_so(tmp_path):
    with pytest.raises(ContractError, match="must start a key once"):
        check_executor(Doubling("east", 1, tmp_path, grace_s=1.0), wait_s=5.0)


@pytest.mark.parametrize("signal", [Constant(0.1), Grid("CISO", seed=3)])
def test_signals_keep_the_contract(signal):
    check_signal(signal)


class Faulty:
    """A signal with one fault."""

    persistence = 0.5

    def __init__(self, fault):
        self.fault, self.rng = fault, np.random.default_rng(0)

    def at(self, time_s):
        return {"nan": math.nan, "noise": self.rng.random(), "negative": -1.0}.get(self.fault, 1.0)

    def forecast(self, time_s, horizon_s):
        return Forecast(1.0, -1.0 if self.fault == "error" else 0.1)


@pytest.mark.parametrize(
    ("fault", "field"),
    [("nan", "signal.at"), ("noise", "signal.at"), ("negative", "signal.at"), ("error", "signal.forecast")],
)
def test_a_signal_with_a_fault_is_told_which(fault, field):
    check_signal(Faulty("none"))
    with pytest.raises(ContractError, match=rf"^{field}"):
        check_signal(Faulty(fault))


def test_this_process_as_a_source_keeps_the_contract():
    check_source(ProcessSource())


class Source:
    """A source whose next readings are given."""

    def __init__(self, *readings):
        self.readings = list(readings)

    def read(self):
        return self.readings.pop(0)


def reading(**values):
    names = dict.fromkeys(values)
    return Reading(
        values, dict.fromkeys(names, "J"), dict.fromkeys(names, Provenance.MEASURED), cumulative=frozenset(names)
    )


@pytest.mark.parametrize(
    ("readings", "rule"),
    [
        ((reading(a=2.0), reading(a=1.0)), "counts up"),
        ((reading(a=1.0), reading(a=1.0, b=1.0)), "same counters"),
        (({"a": 1.0},), "must give a Reading"),
        ((), "raised IndexError"),
    ],
)
def test_a_source_with_a_fault_is_told_which(readings, rule):
    check_source(Source(reading(a=1.0), reading(a=2.0)), reads=2)
    with pytest.raises(ContractError, match=rule):
        check_source(Source(*readings), reads=2)


def test_the_default_attributor_keeps_the_contract():
    check_attributor(None)


@pytest.mark.parametrize(
    ("function", "rule"),
    [
        (lambda counters: np.full((len(counters), 7), 2.0), r"in \[-1, 1\]"),
        (lambda counters: np.zeros((len(counters), 6)), "7 shares"),
        (lambda counters: np.random.default_rng().uniform(-1, 1, (len(counters), 7)), "same again"),
        (lambda counters: np.clip((counters[:, :7] - counters[:, :7].mean(axis=0)) / 1e12, -1, 1), "among others"),
    ],
)
def test_an_attributor_with_a_fault_is_told_which(function, rule):
    with pytest.raises(AttributionSchedError, match=rule):
        check_attributor(function)
