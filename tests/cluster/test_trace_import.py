"""Logs of other systems become traces: GPU count, duration and tenant are kept; bad lines are one error each."""

from dataclasses import replace

import pytest

from attribution_sched.cluster.arrivals import TraceArrivals
from attribution_sched.cluster.trace_import import import_log, read_log
from attribution_sched.cluster.world import build_pool
from attribution_sched.config import load_settings
from attribution_sched.errors import SettingsError, TraceError
from attribution_sched.scheduler.episode import play
from attribution_sched.scheduler.registry import make_policy
from tests.cluster.engine_worlds import tiny_world

PHILLY = """timestamp,duration,num_gpus,gpu_time,cluster
2017-10-09 07:01:55,66.0,1,66.0,11cb48
2017-10-09 06:13:03,2951.0,2,5902.0,6214e9
2017-10-09 09:00:00,0.0,1,0.0,6214e9
"""
PAI = """name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time
openb-pod-0000,12000,16384,1,1000,,LS,Running,0,1000,0
openb-pod-0001,6000,12288,2,460,,BE,Running,500,1700,500
"""
SWF = """; a comment
1 0 5 120 4 -1 -1 4 -1 -1 1 7 1 1 1 -1 -1 -1
2 60 0 30 -1 -1 -1 2 -1 -1 1 8 1 1 1 -1 -1 -1
"""
SLURM = """JobID|Submit|ElapsedRaw|AllocTRES|Account
1|2024-03-01T10:00:00|600|billing=8,cpu=8,gres/gpu=2,node=1|vision
2|2024-03-01T10:05:00|60|cpu=1,gres/gpu:a100=1|speech
3|2024-03-01T10:06:00|60|cpu=1,node=1|speech
"""


def written(tmp_path, form, text, **options):
    log, trace = tmp_path / "log", tmp_path / "trace.csv"
    log.write_text(text)
    found = import_log(form, log, tiny_world(), trace, **options)
    return found, TraceArrivals.from_csv(trace).rows


@pytest.mark.parametrize(
    ("form", "text", "jobs"),
    [
        ("philly", PHILLY, [(0.0, 2951.0, 2, "6214e9"), (2932.0, 66.0, 1, "11cb48")]),
        ("pai", PAI, [(0.0, 1000.0, 1, "LS"), (500.0, 1200.0, 2, "BE")]),
        ("swf", SWF, [(0.0, 120.0, 4, "user7"), (60.0, 30.0, 2, "user8")]),
        ("slurm", SLURM, [(0.0, 600.0, 2, "vision"), (300.0, 60.0, 1, "speech")]),
    ],
)
def test_gpus_duration_and_tenant_are_kept(tmp_path, form, text, jobs):
    found, rows = written(tmp_path, form, text)
    assert [(row.arrival_s, row.duration_s, row.gpus, row.tenant) for row in rows] == jobs
    assert found.gpu_hours == pytest.approx(sum(d * g for _, d, g, _ in jobs) / 3600)
    assert sum(found.drawn.values()) == found.jobs == len(jobs)
    assert all(row.steps >= 1 for row in rows)


def test_more_gpus_make_a_job_of_the_same_length_more_work(tmp_path):
    one = "1 0 0 36000 1 -1 -1 1 -1 -1 1 7 1 1 1 -1 -1 -1\n"
    (few,), (many,) = (written(tmp_path, "swf", text)[1] for text in (one, one.replace("36000 1 ", "36000 4 ")))
    assert few.model == many.model and many.steps > 1.5 * few.steps


def test_an_opaque_job_stays_on_the_devices_it_asked_for(tmp_path):
    """The kind was once drawn whatever the job asked for: eight GPUs became one."""
    line = "{n} {n} 0 3600 {gpus} -1 -1 {gpus} -1 -1 1 7 1 1 1 -1 -1 -1"
    asked = [1, 2, 3, 4, 8, 16, 1, 8]
    log, trace = tmp_path / "log", tmp_path / "trace.csv"
    log.write_text("\n".join(line.format(n=n, gpus=gpus) for n, gpus in enumerate(asked)))
    found = import_log("swf", log, load_settings("shared").build_world(), trace)
    rows = TraceArrivals.from_csv(trace).rows
    assert [row.model for row in rows] == [f"opaque-{n}" for n in (1, 2, 2, 4, 8, 8, 1, 8)]
    assert [row.gpus for row in rows] == asked
    assert found.rounded == 2 and all(row.steps == 3600 for row in rows)


def test_the_same_seed_draws_the_same_models(tmp_path):
    assert written(tmp_path, "philly", PHILLY, seed=4)[1] == written(tmp_path, "philly", PHILLY, seed=4)[1]


def test_a_job_larger_than_the_cluster_is_an_error_or_left_out(tmp_path):
    large = PHILLY.replace("2951.0,2,", "2951.0,200,")
    with pytest.raises(TraceError, match=r"GPUs of the job = 200: is more than the cluster has.*--drop-larger"):
        written(tmp_path, "philly", large)
    found, rows = written(tmp_path, "philly", large, drop_larger=True)
    assert found.skipped["larger than the cluster"] == 1 and len(rows) == 1


@pytest.mark.parametrize(
    ("form", "text", "match"),
    [
        ("philly", PHILLY.replace("2951.0,2,", "-5,2,"), "line 3: duration"),
        ("swf", SWF.replace("\n2 60 ", "\n2 -60 "), "line 3: submission"),
        ("philly", PHILLY.replace("2017-10-09 06:13:03", "monday"), "date and time"),
        ("philly", PHILLY.replace("num_gpus", "gpus"), "must name the column 'num_gpus'"),
        ("pai", PAI.replace("500,1700", "500,100"), "must not lie before creation_time"),
        ("swf", "1 2 3\n", "must be 18"),
        ("slurm", SLURM.replace("ElapsedRaw", "Elapsed"), "must name the column 'ElapsedRaw'"),
        # Found by the fuzz campaign: a line that was cut off raised a TypeError.
        ("slurm", SLURM + "9|2024-05-01T10:00:00\n", "must have 5 fields like the header"),
        ("slurm", SLURM + "9\n", "must have 5 fields like the header"),
        ("lsf", PHILLY, "is not one that can be read"),
    ],
)
def test_a_bad_log_is_one_clear_error(tmp_path, form, text, match):
    log = tmp_path / "log"
    log.write_text(text)
    with pytest.raises(TraceError, match=match):
        read_log(form, log)


@pytest.mark.parametrize(
    ("form", "text", "field"),
    [
        ("philly", PHILLY.replace("2951.0,2,", "2951.0,1.5,"), "line 3: num_gpus = '1.5': must be a whole number"),
        ("philly", PHILLY.replace("2951.0,2,", "2951.0,-3,"), "line 3: num_gpus = '-3'"),
        ("pai", PAI.replace("12288,2,", "12288,0.5,"), "line 3: num_gpu = '0.5'"),
        ("swf", SWF.replace("30 -1 -1 -1 2", "30 -1 -1 -1 2.5"), "line 3: processors = 2.5"),
    ],
)
def test_a_number_of_gpus_is_never_rounded_in_silence(tmp_path, form, text, field):
    log = tmp_path / "log"
    log.write_text(text)
    with pytest.raises(TraceError, match=field):
        read_log(form, log)


def test_a_field_that_swf_does_not_know_leaves_the_job_out_and_not_the_log(tmp_path):
    found, rows = written(tmp_path, "swf", SWF.replace("60 0 30", "60 0 -1"))
    assert found.skipped == {"no GPU or no time": 1} and len(rows) == 1


def test_gpus_of_several_types_are_counted_together(tmp_path):
    for tres, gpus in (("gres/gpu:a100=1,gres/gpu:l4=2", 3), ("gres/gpu:a100=1,gres/gpu:l4=2,gres/gpu=3", 3)):
        log = tmp_path / "log"
        log.write_text(SLURM.replace("gres/gpu=2", tres))
        assert read_log("slurm", log)[0].gpus == gpus


def test_a_trace_that_cannot_be_written_is_one_clear_error(tmp_path):
    log = tmp_path / "log"
    log.write_text(SWF)
    with pytest.raises(TraceError, match=r"output = .*cannot be written"):
        import_log("swf", log, tiny_world(), tmp_path / "nowhere" / "trace.csv")


def settings_of(tmp_path, rows, **more):
    head = "arrival_s,model,steps,batch_size,priority,tenant,mode,gpus,duration_s\n"
    (tmp_path / "trace.csv").write_text(head + rows)
    return load_settings(
        {"extends": "shared", "arrivals": {"kind": "trace", "path": str(tmp_path / "trace.csv")}} | more
    )


def test_opaque_jobs_of_a_log_stay_opaque(tmp_path):
    """Who decides is told the tenant's history, never the duration of the log; pairs are those of a measured job."""
    rows = "0,opaque-2,7000,2,0,ours,training,2,7000\n5,opaque-1,50,1,0,theirs,training,1,50\n"
    world = settings_of(tmp_path, rows).build_world()
    pool = build_pool(world)
    assert pool.steps.tolist() == [7000.0, 50.0] and (pool.jobs >= 0).all()
    tasks = [pool.task(i, world.kinds) for i in range(2)]
    assert [task.tenant for task in tasks] == ["ours", "theirs"]
    assert [task.measured_devices for task in tasks] == [2, 1]
    assert tasks[0].steps == tasks[1].steps not in (7000.0, 50.0)
    assert play(world, make_policy("rule"), 0).completed == 2


def test_a_task_of_a_trace_belongs_to_the_tenant_of_its_row(tmp_path):
    _, rows = written(tmp_path, "philly", PHILLY)
    pool = build_pool(replace(tiny_world(), arrivals=TraceArrivals(tuple(rows))))
    assert pool.tenants == tuple(row.tenant for row in rows)


def test_what_is_larger_than_the_cluster_is_told_when_the_world_is_made(tmp_path):
    with pytest.raises(
        SettingsError, match=r"gpus of task 0 of the trace = 128: is larger than the cluster, which has 64"
    ):
        settings_of(tmp_path, "0,opaque-8,10,8,0,a,training,128,10\n").build_world()
    with pytest.raises(
        SettingsError, match=r"task kind = 'opaque-8': is larger than the cluster, whose largest domain"
    ):
        settings_of(tmp_path, "0,opaque-1,10,1,0,a,training,1,10\n", domain_defaults={"devices": 4}).build_world()


def test_a_trace_refuses_unknown_columns_and_negative_durations(tmp_path):
    head = "arrival_s,model,steps,batch_size,priority,tenant"
    for extra, value, match in (("gpu", "1", "no column of a trace"), ("duration_s", "-1", "duration_s")):
        path = tmp_path / "trace.csv"
        path.write_text(f"{head},{extra}\n0,bert-base,1,32,0,a,{value}\n")
        with pytest.raises(TraceError, match=match):
            TraceArrivals.from_csv(path)


def test_a_tenant_of_a_log_is_no_formula_in_the_trace(tmp_path):
    log, trace = tmp_path / "log", tmp_path / "trace.csv"
    log.write_text(SLURM.replace("|vision", "|=cmd()").replace("gres/gpu=2", f"gres/gpu=2,gres/gpu:x={'9' * 5000}"))
    import_log("slurm", log, tiny_world(), trace, drop_larger=True)
    assert ",'=cmd()," in trace.read_text()
