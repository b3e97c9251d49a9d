"""Copies of policies: the original does not notice, and where it would, a warning says so."""

import logging
import threading

from attribution_sched.scheduler.policy import twin


class Remembering:
    name = "remembering"

    def __init__(self, held=None):
        self.seen, self.held = [], held

    def decide(self, view):
        self.seen.append(view)


def test_a_copy_is_asked_without_the_original_noticing(caplog):
    policy = Remembering()
    with caplog.at_level(logging.WARNING):
        twin(policy).decide("view")
    assert policy.seen == []
    assert caplog.text == ""


def test_what_cannot_be_copied_is_shared_and_said(caplog):
    policy = Remembering(threading.Lock())
    with caplog.at_level(logging.WARNING):
        twin(policy).decide("view")
    assert "policy remembering cannot be copied" in caplog.text
    assert "__deepcopy__" in caplog.text
