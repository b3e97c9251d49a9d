"""Plans of the exact search are retold as Hi-PPO's own choices."""

from itertools import islice

import numpy as np

from attribution_sched.scheduler.hi_ppo.cloning import retell
from attribution_sched.scheduler.seq2seq.traces import Range, teach


def test_most_plans_are_kept_and_every_kept_choice_was_on_offer():
    among = Range(domains=(3, 3), models=("gpt3-6.7b", "bert-large"), large=1, sizes=(8,), size_odds=(1.0,))
    traces = list(islice(teach(1, among, per_world=6, teacher="search"), 12))
    lessons, kept, left_out = retell(traces)
    assert kept + left_out == 12 and kept >= 6
    assert sum(len(lesson.trace.task) for lesson in lessons) == kept
    for lesson in lessons:
        for steps in lesson.trace.steps.values():
            assert steps.offer.mask[np.arange(len(steps.taken)), steps.taken].all()
