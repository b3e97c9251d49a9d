"""Logs of other systems become traces: GPU count, duration and tenant are kept; bad lines are one error each."""

import pytest

from attribution_sched.cluster.arrivals import TraceArrivals
from attribution_sched.cluster.trace_import import import_log, read_log
from attribution_sched.config import load_settings
from attribution_sched.errors import TraceError
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
    with pytest.raises(TraceError, match=r"line 3: GPUs of the job = 200: the cluster has \d+ devices"):
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
