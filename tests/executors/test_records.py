"""A plan as jobs."""

from attribution_sched.cluster.gpus import Precision
from attribution_sched.cluster.pipeline import Schedule
from attribution_sched.cluster.plan import Plan, Replica, Segment
from attribution_sched.executors.records import jobs_of


def test_a_plan_in_one_domain_is_one_job_that_nobody_holds():
    plan = Plan((Replica((Segment(1, 0, 14, dp=2, tp=2, precision=Precision.BF16),), 8, 4),))
    (job,) = jobs_of("j-d1", "t1", plan, ("east", "west"), ["train"], steps=9)
    assert (job.component.domain, job.component.devices, job.held, job.rendezvous) == ("west", 4, False, "")
    assert job.variables("j-d1")["ATTR_MICROBATCH"] == "8"


def test_a_plan_over_domains_is_a_gang_that_meets_at_one_place():
    plan = Plan(
        (Replica((Segment(1, 0, 6, pp=2), Segment(0, 6, 14, cap=2)), 4, 8), Replica((Segment(2, 0, 14),), 4, 4)),
        Schedule.GPIPE,
    )
    jobs = jobs_of("j-d1", "t1", plan, ("a", "b", "c"), ["train"], attempt=2, partner="t0",
                   cap_w=lambda domain, level: 100.0 * level)  # fmt: skip
    assert [job.component.domain for job in jobs] == ["b", "a", "c"]
    assert all(job.held for job in jobs)
    assert len({job.rendezvous for job in jobs}) == 1 and jobs[0].rendezvous.startswith("127.0.0.1:")
    assert [(job.component.stage, job.component.stages, job.component.replica) for job in jobs] == [
        (0, 2, 0), (1, 2, 0), (0, 1, 1),
    ]  # fmt: skip
    told = jobs[1].variables("j-d1")
    assert (told["ATTR_FIRST"], told["ATTR_STOP"], told["ATTR_SCHEDULE"]) == ("6", "14", "gpipe")
    assert (told["ATTR_ATTEMPT"], told["ATTR_PARTNER"], told["ATTR_POWER_CAP_W"]) == ("2", "t0", "200")
    assert jobs[0].variables("j-d1")["ATTR_POWER_CAP_W"] == ""
    assert jobs_of("j-d2", "t1", plan, ("a", "b", "c"), ["train"])[0].rendezvous != jobs[0].rendezvous
