"""Fuzz every door through which somebody else's data comes in; only the package's own errors may come out.

    python benchmarks/campaign_fuzz.py --cases 2000              # that many cases for each target
    python benchmarks/campaign_fuzz.py --only settings:1234      # one case again, with its traceback

Targets: settings as mappings, as YAML and for training; arrivals, bandwidth, signals and logs of other clusters as CSV;
recordings as CSV and Parquet, foreign and the package's own; Prometheus text; a Slurm's words and JSON; tasks with
counters; checkpoints of every learnt thing, damaged or forged with a right checksum; rows of journals edited by SQL;
command lines, whose work is left out.

A case is made from its seed, target and number alone, so it can be run again. Each target runs in a process of its own
with bounded memory, so a crash is a finding too, as is a case that takes longer than ``--limit`` seconds. A finding is
printed with its input; the exit code is then 1. What is found becomes a test of its own in the tests of its room.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import io
import json
import math
import mmap
import multiprocessing
import os
import random
import resource
import shutil
import signal
import struct
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attribution_sched.errors import AttributionSchedError
from attribution_sched.words.text import shown

MEMORY_BYTES = 8 * 2**30
"""Address space of a target's process, beyond which a size that nobody bounded is a finding."""

NUMBERS: tuple[Any, ...] = (
    0, 1, -1, 2, 7, 64, 0.5, -0.0, 1e-300, 1e-9, 1e9, 1e15, 1e16, 1e308, -1e308, math.inf, -math.inf, math.nan,
    2**31, 2**53 + 1, 2**63, 2**64, 10**9, 10**12, 10**20, 10**400, -(10**20), True, False,
)  # fmt: skip
WORDS: tuple[str, ...] = (
    "", " ", "x", "testbed", "cross-domain-easy", "hi_ppo", "large", "poisson", "diurnal", "trace", "uniform", "matrix",
    "regions", "A100-80", "H100-80", "bert-base", "llama-2-7b", "profiled:LLAMA-3-8", "aws:us-east-1", "gcp:us-west1-a",
    "a" * 201, "a" * 300, "a" * 5000, "a/" * 3000, "\0", "a\0b", "\x1b[2J", "\u202eabc", "\ud800", "\udcff", "\n",
    "a\nb", "=1+1",
    "![x](http://y)", "<script>", "../../etc/passwd", "/", ".", "..", "~", "/dev/null", "/proc/self/mem",
    "é" * 150, "任务", "\ufeff", "\u2028", "1e5", "0x10", "NaN", "null", "true", "{}", "[]", "*a", "&a", "!!python/x",
    "last", "d000000", "0", "-1", "1", "999999999999999999999", "--", "-", "-h", "a,b", ",", "utilisation_at_least=0.9",
    "utilisation_at_least=nan", "x=y", "=", "8x3", "8x3x", "0x0", "99999999x99999999", "4x4:int0", "os:getcwd",
    "os:nothing", "nothing:x", ":x", "x:", "cuda", "meta", "en", "zh", "sjf", "fcfs,sjf", "steady", "preset", "demo",
)  # fmt: skip


@dataclass(frozen=True)
class Target:
    """A door.

    Attributes:
        name: What it is called.
        make: Makes the input of a case.
        run: Takes the input in; raises what comes out.
        weight: Cases relative to ``--cases``; about as much processor time for every door.
    """

    name: str
    make: Callable[[random.Random], Any]
    run: Callable[[Any], None]
    weight: float = 1.0


# --- inputs -----------------------------------------------------------------------------------------------------------


def hostile(rng: random.Random, depth: int = 0) -> Any:
    """A value nobody expects."""
    kind = rng.randrange(12 if depth < 4 else 6)
    if kind < 3:
        return rng.choice(NUMBERS)
    if kind < 5:
        return rng.choice(WORDS)
    if kind == 5:
        return rng.choice([None, b"bytes", (), [], {}, 1j])
    if kind < 8:
        return [hostile(rng, depth + 1) for _ in range(rng.randrange(5))]
    if kind < 11:
        return {rng.choice(WORDS): hostile(rng, depth + 1) for _ in range(rng.randrange(4))}
    value: Any = ["x"]
    for _ in range(rng.choice([3, 20, 40])):
        value = [value, value]
    return value


def mutated(document: Any, rng: random.Random, keys: tuple[str, ...]) -> Any:
    """A copy of a document with one to four places changed."""
    changed = json.loads(json.dumps(document))
    for _ in range(rng.randint(1, 4)):
        places: list[tuple[Any, Any]] = []
        waiting: list[Any] = [changed]
        met: set[int] = set()
        while waiting:
            part = waiting.pop()
            if id(part) in met:  # a bomb that was put in before is one place, not thousands
                continue
            met.add(id(part))
            entries = part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ()
            for key, value in entries:
                places.append((part, key))
                waiting.append(value)
        if not places:
            return hostile(rng)
        part, key = rng.choice(places)
        match rng.randrange(6):
            case 0:
                del part[key]
            case 1 if isinstance(part, dict):
                part[rng.choice(keys + WORDS)] = part[key]
            case 2:
                other, there = rng.choice(places)
                with contextlib.suppress(KeyError, IndexError):
                    part[key] = other[there]
            case 3 if isinstance(part[key], int | float) and not isinstance(part[key], bool):
                with contextlib.suppress(OverflowError, ValueError):  # 10**400 is no float, and too long to be written
                    part[key] = rng.choice([part[key] * 10 ** rng.randint(-12, 12), -part[key], str(part[key])])
            case 4 if isinstance(part, list) and len(part) < 1000:
                part *= rng.choice([2, 100])
            case _:
                part[key] = hostile(rng)
    return changed


MOST_NODES = 20_000


def written(document: Any) -> str:
    """JSON of a document whatever is in it; of a bomb, as much as a file can hold."""
    left = [MOST_NODES]

    def plain(value: Any, depth: int = 0) -> Any:
        left[0] -= 1
        if left[0] < 0 or depth > 60:
            return None
        if isinstance(value, dict):
            return {str(key): plain(each, depth + 1) for key, each in value.items()}
        if isinstance(value, list | tuple):
            return [plain(each, depth + 1) for each in value]
        if isinstance(value, int) and abs(value) > 10**4000:
            return 10**4000
        return value if isinstance(value, str | int | float | None) else repr(value)

    return json.dumps(plain(document))


def mangled(data: bytes, rng: random.Random, tokens: tuple[bytes, ...]) -> bytes:
    """Bytes with one to eight places cut, flipped, doubled or replaced."""
    out = bytearray(data)
    for _ in range(rng.choice([1, 1, 1, 2, 4, 8])):
        at = rng.randrange(len(out) + 1)
        end = min(len(out), at + rng.choice([1, 2, 5, 20, 200]))
        match rng.randrange(7):
            case 0 if out:
                out[at % len(out)] ^= 1 << rng.randrange(8)
            case 1:
                del out[at:end]
            case 2:
                out[at:at] = out[at:end] * rng.choice([1, 2, 50])
            case 3:
                out[at:end] = rng.randbytes(rng.randrange(6))
            case 4:
                del out[at:]
            case _:
                out[at : rng.choice([at, end])] = rng.choice(tokens)
    return bytes(out[:1_000_000])


YAML_TOKENS = (
    b"&a ", b"*a", b"<<: *a\n", b"[", b"]", b"{", b"}", b": ", b"- ", b"\n", b"  ", b"\t", b"'", b'"', b"|\n", b">\n",
    b"? ", b"!!int ", b"!!binary ", b"!!set ", b"!!timestamp ", b"2001-99-99", b"0o7", b"1:2:3", b".inf", b".nan", b"~",
    b"---\n", b"...\n", b"%YAML 9.9\n", b"#", b'"\\0"', b'"\\ud800"', b"[" * 60, b"9" * 5000, b"extends: large\n", b"@",
)  # fmt: skip
CELLS = (
    b",", b"\n", b"\r", b'"', b"nan", b"inf", b"-1", b"1e400", b"1e308", b"9" * 400, b"1_0", b"\0", b"\xff",
    b"\xef\xbb\xbf", b"#", b"=1", b" ", b"training", b"inference", b"\xe2\x80\xae", b"a" * 300, b'"' * 3, b"0", b"0x1",
    b"True", b"\x1b[2J",
)  # fmt: skip
PROMETHEUS = (
    b"{", b"}", b'"', b"\\", b",", b"=", b" ", b"\n", b"\t", b"NaN", b"+Inf", b"1e999", b'gpu="0"', b"GPU_I_ID", b"#",
    b" " * 500, b"DCGM_FI_DEV_POWER_USAGE", b"\xff", b"\0", b"-", b"\x1b", b"\xe2\x80\xae", b"1700000000000",
)  # fmt: skip
ARRIVALS = (
    b"arrival_s,model,steps,batch_size,priority,tenant,mode\n0,bert-base,100,32,0,a,training\n"
    b"5.5,resnet-50,200,64,1,b,inference\n9,gpt2-small,7,8,-2,c,\n"
)
BANDWIDTH = b"time_s,src,dst,gbps\n0,a,b,5.0\n0,b,a,4.0\n60,a,b,2.5\n120,b,a,1e-3\n"
RECORDING = b"timestamp,kernel,watts,cycles\n1,a,10.5,1e9\n2,b,11,2e9\n3,c,,3e9\n4,d,12.5,4e9\n"
SCRAPE = (
    b'# HELP DCGM_FI_DEV_POWER_USAGE W\nDCGM_FI_DEV_POWER_USAGE{gpu="0",UUID="a"} 301.5 1700000000000\n'
    b'DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{gpu="0"} 1000\nDCGM_FI_PROF_SM_ACTIVE{gpu="1",GPU_I_ID="7"} 0.5\n'
    b'DCGM_FI_DEV_GPU_UTIL{gpu="1"} 75 # {t="1"} 1\ngo_goroutines 12\n'
)


# --- doors ------------------------------------------------------------------------------------------------------------


def targets(folder: Path) -> list[Target]:
    """Every door; files go into ``folder``."""
    return [
        *_settings(folder), *_tables(folder), *_logs(folder), _prometheus(), *_slurm(), _tasks(),
        *_checkpoints(folder), _journal_rows(folder), _commands(folder),
    ]  # fmt: skip


def _settings(folder: Path) -> list[Target]:
    from attribution_sched.config import Settings, TrainingSettings, load_settings, load_training_settings
    from attribution_sched.config.sources import _PRESETS

    worlds = [
        load_settings(name).model_dump(mode="json", exclude_none=True) for name in ("testbed", "cross-domain-easy")
    ]
    worlds.append({"extends": "testbed", "reward": {"w_eff": 1.0}, "episode": {"tick_s": 60.0}})
    course = load_training_settings("hi_ppo").model_dump(mode="json", exclude_none=True)
    texts = [(_PRESETS / f"{name}.yaml").read_bytes() for name in ("testbed", "cross-domain-easy")]
    keys, course_keys = tuple(Settings.model_fields), tuple(TrainingSettings.model_fields)
    path = folder / "settings.yaml"

    def parsed(data: bytes) -> None:
        path.write_bytes(data)
        load_settings(path)

    def built(document: Any) -> None:
        load_settings(document).build_world()

    return [
        Target("settings", lambda rng: mutated(rng.choice(worlds), rng, keys), built, 0.1),
        Target("settings-yaml", lambda rng: mangled(rng.choice(texts), rng, YAML_TOKENS), parsed, 0.1),
        Target(
            "training-settings", lambda rng: mutated(course, rng, course_keys), _nothing(load_training_settings), 0.1
        ),
    ]


def _tables(folder: Path) -> list[Target]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from attribution_sched.attribution.recorder import Recorder, load_recorded
    from attribution_sched.attribution.recordings import Column, ColumnMap, load_recording
    from attribution_sched.attribution.sources.reading import ReadingBuilder
    from attribution_sched.cluster.arrivals import TraceArrivals
    from attribution_sched.cluster.wan import BandwidthTrace

    meant = ColumnMap(
        {"watts": Column("watts", "W", missing_ok=True), "cycles": Column("cycles", "1/s", scale=1e-9)},
        timestamp="timestamp", labels=("kernel",),
    )  # fmt: skip

    def own(suffix: str) -> bytes:
        path = folder / f"own{suffix}"
        path.unlink(missing_ok=True)
        with Recorder(path) as recorder:
            for second in range(1, 5):
                builder = ReadingBuilder()
                builder.add("power_w", 10.0 * second, "W", cumulative=True)
                builder.missing("energy_j", "J", "no meter")
                recorder.write(builder.build(float(second)))
        return path.read_bytes()

    def parquet_bytes(table: pa.Table) -> bytes:
        sink = io.BytesIO()
        pq.write_table(table, sink)
        return sink.getvalue()

    plain = pa.table({"timestamp": [1.0, 2.0], "kernel": ["a", "b"], "watts": [1.0, None], "cycles": [1, 2]})
    parquets = [parquet_bytes(plain), own(".parquet")]
    csvs = [RECORDING, own(".csv")]

    def odd_table(rng: random.Random) -> bytes:
        """A whole Parquet file with columns of types that no counter has."""
        columns = [
            rng.choice([
                pa.array([1.0, 2.0]), pa.array(["a", "1"]), pa.array([None, None]), pa.array([[1], [2]]),
                pa.array([{"a": 1}, None]), pa.array([b"\xff", b"1"]), pa.array([True, False]),
                pa.array([2**62, -1]), pa.array([1, 2], pa.timestamp("ns")), pa.array([2**45, 1], pa.timestamp("s")),
                pa.array([1, 2], pa.date32()), pa.array([1, 2**62], pa.duration("s")), pa.array([math.nan, math.inf]),
                pa.array(["x", "y"]).dictionary_encode(), pa.array([1, 2], pa.decimal128(38, 2)),
                pa.array([1, 2], pa.decimal256(70, 2)), pa.array([1.0, 2.0], pa.float16()),
            ])
            for _ in range(4)
        ]  # fmt: skip
        names = [rng.choice(["timestamp", "kernel", "watts", "cycles", "", "x\0"]) for _ in range(4)]
        names = names if rng.random() < 0.3 else ["timestamp", "kernel", "watts", "cycles"]
        return parquet_bytes(pa.table(columns, names=names))

    def parquet(rng: random.Random) -> bytes:
        return (
            odd_table(rng) if rng.random() < 0.3 else mangled(rng.choice(parquets), rng, (b"\0", b"PAR1", b"\xff" * 8))
        )

    def through(name: str, load: Callable[[Path], Any]) -> Callable[[bytes], None]:
        def run(data: bytes) -> None:
            path = folder / name
            path.write_bytes(data)
            load(path)

        return run

    def both(path: Path) -> None:
        """A table of anybody's, and a recording of our own; a file can be right for one of them only."""
        refused: list[AttributionSchedError] = []
        for load in (lambda: load_recording(path, meant), lambda: load_recorded(path)):
            try:
                load()
            except AttributionSchedError as error:
                refused.append(error)
        if len(refused) == 2:
            raise refused[0]

    return [
        Target("arrivals-csv", lambda rng: mangled(ARRIVALS, rng, CELLS),
               through("a.csv", TraceArrivals.from_csv), 2.5),
        Target("bandwidth-csv", lambda rng: mangled(BANDWIDTH, rng, CELLS),
               through("b.csv", lambda path: BandwidthTrace.from_csv(path, ("a", "b"))), 2.5),
        Target("recordings-csv", lambda rng: mangled(rng.choice(csvs), rng, CELLS), through("r.csv", both), 2.0),
        Target("recordings-parquet", parquet, through("r.parquet", both), 0.7),
    ]  # fmt: skip


LOGS = {
    "philly": b"timestamp,duration,num_gpus,gpu_time,cluster\n2017-10-09 07:01:55,120.0,1,120.0,vc1\n"
    b"2017-10-09 07:05:00,900,4,3600,vc2\n2017-10-10 00:00:00,60,8,480,vc1\n",
    "pai": b"name,num_gpu,gpu_milli,qos,creation_time,deletion_time\na,1,1000,LS,0,500\nb,2,1000,BE,9,10000\n",
    "swf": b"; comment\n1 0 5 100 4 -1 -1 4 100 -1 1 7 1 1 1 -1 -1 -1\n2 9 5 60 -1 -1 -1 8 60 -1 1 8 1 1 1 -1 -1 -1\n",
    "slurm": b"JobID|Submit|ElapsedRaw|AllocTRES|Account\n1|2024-05-01T10:00:00|60|cpu=1,gres/gpu=2|a\n"
    b"2|2024-05-01T11:00:00|9|gres/gpu:a100=1|b\n",
}
LOG_CELLS = (*CELLS, b"|", b";", b"2017-13-09", b"0001-01-01 00:00:00", b"9999-12-31T23:59:59.999999", b"+25:00", b"Z")
SERIES = b"time_s,value\n0,10\n3600,11.5\n7200,9\n"


def _logs(folder: Path) -> list[Target]:
    from attribution_sched.cluster.signals import Series
    from attribution_sched.cluster.trace_import import import_log
    from attribution_sched.config import load_settings

    world = load_settings("testbed").build_world()
    names = sorted(LOGS)

    def imported(given: tuple[str, bytes]) -> None:
        form, data = given
        path = folder / f"log.{form}"
        path.write_bytes(data)
        import_log(form, path, world, folder / "imported.csv", drop_larger=True)

    def log(rng: random.Random) -> tuple[str, bytes]:
        form = rng.choice(names)
        return form, mangled(LOGS[form], rng, LOG_CELLS)

    def series(data: bytes) -> None:
        path = folder / "signal.csv"
        path.write_bytes(data)
        found = Series.from_csv(path)
        if not math.isfinite(found.at(1e6)):
            raise ArithmeticError(f"{found} has no value")

    return [
        Target("logs", log, imported, 1.0),
        Target("signals-csv", lambda rng: mangled(SERIES, rng, CELLS), series, 2.0),
    ]


def _slurm() -> list[Target]:
    from attribution_sched.executors.shadow import advise, read_json, read_live

    jobs = (
        b"JobId=11 JobName=a b UserId=ada(1000) Priority=4294901757 JobState=RUNNING Reason=None TimeLimit=00:02:00 "
        b"SubmitTime=999000 EligibleTime=999000 StartTime=999990 Partition=east NumNodes=1 TRES=cpu=1,gres/gpu=3\n"
        b"JobId=12 JobName=c UserId=bob(1) Priority=1 JobState=PENDING Reason=Resources TimeLimit=1-00:00:00 "
        b"SubmitTime=999001 EligibleTime=999001 StartTime=1000110 Partition=east ReqTRES=cpu=1,gres/gpu=2\n"
    )
    nodes = (
        b"NodeName=e-1 Gres=gpu:a100:4 State=MIXED Partitions=east,all CfgTRES=cpu=8,gres/gpu=4 AllocTRES=gres/gpu=3\n"
        b"NodeName=e-2 Gres=gpu:a100:4(S:0-1) GresUsed=gpu:a100:2 State=DOWN*+DRAIN Partitions=east\n"
    )
    past = b"COMPLETED|30|1\nTIMEOUT|60|2\nCOMPLETED|0|UNLIMITED\nCANCELLED by 0|9|1\n"
    tokens = (b"=", b" ", b",", b"|", b"JobId=", b"NodeName=", b"gres/gpu=", b"gres/gpu:", b"9" * 5000, b"-1", b"nan",
              b"inf", b"\0", b"\xff", b"UNLIMITED", b"1-00:00:00", b"(null)", b"\x1b", b"1e400")  # fmt: skip
    numbered = {"set": True, "infinite": False, "number": 10}
    queue = {"jobs": [
        {"job_id": 7, "partition": "east", "job_state": ["RUNNING"], "submit_time": 999_000, "start_time": 999_950,
         "time_limit": numbered, "priority": numbered, "user_name": "ada", "tres_req_str": "cpu=1,gres/gpu=4"},
        {"job_id": 8, "partition": "east", "job_state": "PENDING", "submit_time": numbered, "node_count": numbered,
         "time_limit": 10, "priority": 4, "state_reason": "Resources", "tres_per_node": "gres:gpu:2", "tasks": 1},
    ]}  # fmt: skip
    places = {"nodes": [{"name": "n1", "partitions": ["east"], "state": ["mixed"], "tres": "cpu=8,gres/gpu=4",
                         "tres_used": "gres/gpu=4"}]}  # fmt: skip
    kept = {"jobs": [{"time": {"elapsed": 60, "limit": numbered}}, {"time": {"elapsed": 5, "limit": {"set": False}}}]}
    documents = {"queue": queue, "nodes": places, "past": kept}
    keys = ("jobs", "nodes", "time", "number", "set", "infinite", "job_state", "partitions", "tres", "state")

    def words(rng: random.Random) -> list[str]:
        parts = [jobs, nodes, past]
        at = rng.randrange(3)
        parts[at] = mangled(parts[at], rng, tokens)
        return [each.decode("utf-8", errors="replace") for each in parts]

    def heard(told: list[str]) -> None:
        def ask(*command: str) -> str:
            return told[2] if command[0] == "sacct" else told["nodes" in command] if "show" in command else "slurm 22\n"

        advise(read_live(ask, 1_000_000.0), draws=2)

    def document(rng: random.Random) -> list[str]:
        changed = mutated(documents, rng, keys)
        parts = [changed.get(name) for name in documents] if isinstance(changed, dict) else [changed] * 3
        texts = [written(part) for part in parts]
        if rng.random() < 0.1:
            at = rng.randrange(3)
            texts[at] = mangled(texts[at].encode(), rng, (b"[" * 3000, b"{", b"}", b"9" * 5000, b"NaN")).decode(
                errors="replace"
            )
        return texts

    def recorded(texts: list[str]) -> None:
        advise(read_json(texts[0], texts[1], 1_000_000.0, texts[2]), draws=2)

    return [Target("slurm-text", words, heard, 0.5), Target("slurm-json", document, recorded, 0.5)]


def _checkpoints(folder: Path) -> list[Target]:
    import numpy as np

    import attribution_sched
    from attribution_sched import storage
    from attribution_sched.attribution.emshap import EmSHAP
    from attribution_sched.attribution.fitted import Fitted
    from attribution_sched.rivals.seq2seq import network as pointer
    from attribution_sched.scheduler.hi_ppo import checkpoint as hi_ppo
    from attribution_sched.scheduler.predictor import gru

    package = Path(attribution_sched.__file__).parent
    attributor = package / "attribution" / "shipped" / "testbed"
    loaders: dict[str, tuple[Path, Callable[[Path], Any], int]] = {
        "gru": (package / "scheduler" / "predictor" / "link_gru.safetensors", gru.load, 8),
        "emshap": (attributor.with_suffix(".safetensors"), EmSHAP.load, 8),
        "pointer": (package / "rivals" / "seq2seq" / "weights.safetensors", pointer.load, 2),
        "hi-ppo": (package / "scheduler" / "hi_ppo" / "weights.safetensors", hi_ppo.load, 1),
    }
    names = [name for name, (_, _, weight) in loaders.items() for _ in range(weight)]

    @functools.cache
    def opened(name: str) -> tuple[bytes, Any, dict[str, Any], dict[str, Any]]:
        content = loaders[name][0].read_bytes()
        found = storage._unpack(content, name)
        assert found is not None
        return content, *found

    def damaged(rng: random.Random) -> tuple[str, bytes]:
        name = rng.choice(names)
        return name, mangled(opened(name)[0], rng, (b"\0" * 8, b"{", b"}", b'"F32"', b'"I64"', b"[", b"9", b"\xff" * 8))

    def forged(rng: random.Random) -> tuple[str, bytes]:
        """Another header, other arrays, and the checksum that belongs to them."""
        name = rng.choice(names)
        _, mark, header, arrays = opened(name)
        changed = dict(arrays)
        if rng.random() < 0.7:
            header = mutated(header, rng, tuple(header))
        for _ in range(rng.choice([0, 1, 2])):
            which = rng.choice(sorted(changed)) if changed else "x"
            array = changed.get(which, np.zeros(2))
            match rng.randrange(7):
                case 0:
                    changed.pop(which, None)
                case 1:
                    changed[which] = array.reshape(-1)
                case 2:
                    changed[which] = np.atleast_1d(array)[..., :0]
                case 3:
                    changed[which] = array.astype(rng.choice(["int64", "float16", "bool", "uint8", "float64"]))
                case 4:
                    changed[which] = np.full_like(array, rng.choice([0, 1e30, -1]))
                case 5:
                    changed[rng.choice([*sorted(arrays), "x", ""])] = array
                case _:
                    changed[which] = np.array(rng.choice([math.nan, math.inf, 3.0]), dtype=np.float32)
        text = rng.choice([written(header)] * 9 + ["[]"])
        mark = rng.choice([mark] * 8 + [mark._replace(version=2), mark._replace(schema=None)])
        about = {"format": storage.FORMAT, **mark._asdict(), "header": text}
        about["sha256"] = storage._digest(mark, text, changed)
        return name, storage.pack(changed, {"checkpoint": json.dumps(about, default=str)})

    def load(given: tuple[str, bytes]) -> None:
        name, data = given
        path = folder / "weights.safetensors"
        path.write_bytes(data)
        loaders[name][1](path)

    told = json.loads(attributor.with_suffix(".json").read_text("utf-8"))
    shutil.copy(attributor.with_suffix(".safetensors"), folder / "fitted.safetensors")

    def fitted(document: Any) -> None:
        (folder / "fitted.json").write_text(written(document), encoding="utf-8", errors="replace")
        made, _ = Fitted.load(folder / "fitted")
        if made.missing is None:
            raise ArithmeticError("nothing is known of missing counters")

    return [
        Target("checkpoints-damaged", damaged, load, 0.3),
        Target("checkpoints-forged", forged, load, 0.1),
        Target("attributors", lambda rng: mutated(told, rng, tuple(told)), fitted, 0.02),
    ]


def _journal_rows(folder: Path) -> Target:
    if __package__:
        from benchmarks import campaign_journal
    else:
        import campaign_journal

    original, copy = folder / "rows.sqlite", folder / "edited.sqlite"

    @functools.cache
    def whole() -> list[Any]:
        original.unlink(missing_ok=True)
        campaign_journal.build(original, 6)
        with campaign_journal.Journal.read(original) as journal:
            return campaign_journal.everything(journal)

    def run(seed: int) -> None:
        expected = whole()
        for left in folder.glob(f"{copy.name}*"):
            left.unlink()
        shutil.copy(original, copy)
        rng = random.Random(seed)
        done = rng.choice([campaign_journal.flip, *[campaign_journal.edit_anything] * 4])(copy, rng)
        verdict, message = campaign_journal.judge(copy, expected)
        if verdict in ("unnoticed", "traceback"):
            raise ValueError(f"{verdict}: {done}: {message}")
        if verdict != "harmless":
            raise AttributionSchedError(message)

    return Target("journal-rows", lambda rng: rng.getrandbits(40), run, 0.1)


def _prometheus() -> Target:
    from attribution_sched.attribution.sources.dcgm import DcgmSource

    def run(data: bytes) -> None:
        DcgmSource(fetch=lambda: data.decode("utf-8", errors="replace")).read()

    return Target("prometheus", lambda rng: mangled(SCRAPE, rng, PROMETHEUS), run, 6.0)


def _tasks() -> Target:
    from attribution_sched import System
    from attribution_sched.cluster.counters import COUNTER_NAMES
    from attribution_sched.limits import COUNTER_BOUNDS
    from attribution_sched.system.admission import prepared

    @functools.cache
    def opened() -> System:  # in the process that asks: a journal belongs to the one that made it
        return System("testbed", "sjf", queue="empty")

    fields = ("kind", "steps", "batch", "training", "counters", "provenance", "id")
    words = ("measured", "estimated", "simulated", "unavailable")

    def make(rng: random.Random) -> Any:
        given: dict[Any, Any] = {"kind": rng.choice(["resnet-50", "bert-base"])}
        if rng.random() < 0.9:
            chosen = COUNTER_NAMES[: rng.choice([7, 7, 7, 12, 3])]
            given["counters"] = {
                name: COUNTER_BOUNDS[name].most * 10.0 ** rng.uniform(-12, 0.01) * rng.choice([0, 1, 1, 1])
                for name in chosen
            }
            given["provenance"] = {name: rng.choice(words) for name in chosen if rng.random() < 0.2}
            for name, word in given["provenance"].items():
                if word == "unavailable" and rng.random() < 0.8:
                    given["counters"][name] = None
        if rng.random() < 0.6:
            return mutated(given, rng, fields + COUNTER_NAMES)
        for _ in range(rng.randrange(3)):
            given[rng.choice(fields)] = hostile(rng)
        return given

    def run(given: Any) -> None:
        system = opened()
        record, made = prepared(given, {}, system.world, system.seed, system.journal, system.cluster)
        # Whoever is let in must be attributed, or every later decision would fail at it.
        vector = system.attribute(made.counters)
        if not all(math.isfinite(value) for value in vector.values):
            raise ArithmeticError(f"attribution of {record.counters} is not finite")

    return Target("tasks", make, run, 0.3)


class _Accepted(AttributionSchedError):
    """Raised in place of the work of a command whose words are all right."""


def _commands(folder: Path) -> Target:
    import typer
    from typer.testing import CliRunner

    from attribution_sched import System
    from attribution_sched.cli import app

    home = folder / "commands"

    def refuse(*_: Any, **__: Any) -> Any:
        raise _Accepted("accepted")

    def patch() -> None:
        import attribution_sched.cli.profile_measure
        import attribution_sched.cli.run
        import attribution_sched.cli.senses
        import attribution_sched.executors.probes
        import attribution_sched.journal.journal
        import attribution_sched.rivals.arena
        import attribution_sched.scheduler.episode
        import attribution_sched.scheduler.training

        attribution_sched.cli.run.RunRequest.open = refuse  # type: ignore[method-assign]
        attribution_sched.cli.profile_measure.measure = refuse
        attribution_sched.executors.probes.probe_link = refuse
        attribution_sched.executors.probes.probe_stages = refuse
        attribution_sched.executors.probes.serve_probes = refuse
        attribution_sched.rivals.arena.fingerprint = refuse
        attribution_sched.scheduler.episode.play = refuse
        attribution_sched.cli.senses.play = refuse
        attribution_sched.journal.journal.temporary_copy = refuse
        attribution_sched.scheduler.training.training_world = refuse
        home.mkdir(exist_ok=True)
        os.chdir(home)
        with System("testbed", "sjf", journal=home / "run.sqlite") as system:
            system.run(3)
        (home / "garbage.sqlite").write_bytes(b"SQLite format 3\0" + bytes(200))
        (home / "text.yaml").write_text("extends: testbed\n")
        (home / "deep").mkdir()

    root: Any = typer.main.get_command(app)
    commands: dict[tuple[str, ...], Any] = {}
    for name, command in root.commands.items():
        below = getattr(command, "commands", None)
        commands |= {(name, each): one for each, one in below.items()} if below else {(name,): command}
    del commands["doctor",]
    files = ("run.sqlite", "garbage.sqlite", "text.yaml", "deep", "new.html", "deep/new.json", "none/new.md", "new.csv")
    patched: list[bool] = []

    def make(rng: random.Random) -> list[str]:
        name = rng.choice(sorted(commands))
        words = list(name)
        for option in commands[name].params:
            flags = [each for each in option.opts if each.startswith("-")]
            if rng.random() < (0.3 if flags and not option.required else 0.9):
                value = rng.choice(rng.choice([files, WORDS, tuple(map(str, NUMBERS[:20]))]))
                words += [] if not flags else [rng.choice(flags)]
                words += [] if getattr(option, "is_flag", False) else [value]
        for _ in range(rng.choice([0, 0, 0, 1])):
            words.insert(rng.randrange(len(words) + 1), rng.choice(WORDS))
        return words

    def run(words: list[str]) -> None:
        if not patched:
            patch()
            patched.append(True)
        done = CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1"}).invoke(app, words)
        for each in ("out", "runs", "arena"):
            shutil.rmtree(home / each, ignore_errors=True)
        told = done.stderr.strip()
        if any(ord(each) < 32 and each != "\n" for each in done.stdout + done.stderr):
            raise ValueError(f"control characters in {done.stdout + done.stderr!r}")
        theirs = words[:1] == ["profile"] and done.exit_code == 1 and "ATTRIBUTION_SCHED_TRACEBACK" not in told
        if done.exit_code not in (0, 2) and not theirs:
            raise ValueError(f"exit code {done.exit_code}: {told or done.exception!r}")
        if done.exit_code == 2 and told:
            lines = [line for line in told.split("\n") if line.startswith(("error:", "failed:"))]
            if len(lines) != 1:
                raise ValueError(f"not one line: {told!r}")
            raise AttributionSchedError(lines[0])

    return Target("commands", make, run, 0.03)


def _nothing(load: Callable[[Any], Any]) -> Callable[[Any], None]:
    def run(given: Any) -> None:
        load(given)

    return run


# --- the campaign -----------------------------------------------------------------------------------------------------


class _TooLong(BaseException):
    """A case took longer than it may."""


@dataclass
class Count:
    """What became of the cases of a target.

    Attributes:
        accepted: Taken in.
        refused: Refused with an error of the package.
        findings: Number of a case → what came out instead.
        slowest_s: Longest time of a case, of the processor.
        spent_s: Of all of them.
    """

    accepted: int
    refused: int
    findings: dict[int, str]
    slowest_s: float
    spent_s: float = 0.0


def case(target: Target, seed: int, number: int) -> Any:
    """The input of one case."""
    return target.make(random.Random(f"{seed}/{target.name}/{number}"))


def play(target: Target, seed: int, numbers: range, limit_s: float, beat: Callable[[int], None]) -> Count:
    """Run cases of a target in this process."""
    count = Count(0, 0, {}, 0.0)
    seen: Counter[str] = Counter()
    with _alarm():
        for number in numbers:
            beat(number)
            given = case(target, seed, number)
            began = time.process_time()
            signal.setitimer(signal.ITIMER_REAL, 20 * limit_s)  # by the clock: others may use the machine
            try:
                target.run(given)
                count.accepted += 1
            except AttributionSchedError as error:
                count.refused += 1
                _check_message(str(error), number, count)
            except (Exception, _TooLong) as error:
                where = traceback.extract_tb(error.__traceback__)[-1]
                seen[f"{type(error).__name__} {where.filename}:{where.lineno}"] += 1
                # A thousand cases of one defect are one finding; three of them help to see what they share.
                if seen[f"{type(error).__name__} {where.filename}:{where.lineno}"] <= 3:
                    count.findings[number] = "".join(traceback.format_exception(error)[-6:])
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
            took_s = time.process_time() - began
            count.slowest_s, count.spent_s = max(count.slowest_s, took_s), count.spent_s + took_s
            if took_s > limit_s:
                count.findings.setdefault(number, f"took {took_s:.1f} s of the processor")
    return count


def _check_message(told: str, number: int, count: Count) -> None:
    if "\n" in told or any(ord(each) < 32 for each in told):
        count.findings[number] = f"the message has control characters or several lines: {told!r}"
    elif len(told) > 10_000:
        count.findings[number] = f"the message has {len(told)} characters"


@contextlib.contextmanager
def _alarm() -> Iterator[None]:
    def ring(*_: Any) -> None:
        raise _TooLong

    before = signal.signal(signal.SIGALRM, ring)
    try:
        yield
    finally:
        signal.signal(signal.SIGALRM, before)


def isolated(target: Target, seed: int, numbers: range, limit_s: float) -> Count:
    """Run cases of a target in a process of its own; one that dies is a finding, and the rest go on after it."""
    total = Count(0, 0, {}, 0.0)
    context = multiprocessing.get_context("fork")
    place = mmap.mmap(-1, 8)
    while numbers:
        receiving, sending = context.Pipe(duplex=False)

        def work(todo: range = numbers, send: Any = sending) -> None:
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
            send.send(play(target, seed, todo, limit_s, lambda number: struct.pack_into("q", place, 0, number)))

        child = context.Process(target=work)
        child.start()
        sending.close()
        try:
            found: Count | None = receiving.recv()
        except EOFError:
            found = None
        child.join()
        if found is not None:
            total.accepted += found.accepted
            total.refused += found.refused
            total.findings |= found.findings
            total.slowest_s, total.spent_s = max(total.slowest_s, found.slowest_s), total.spent_s + found.spent_s
            return total
        died = struct.unpack_from("q", place, 0)[0]
        total.findings[died] = f"the process died with {child.exitcode}; counts before it are lost"
        numbers = range(died + 1, numbers.stop)
    return total


def main(arguments: list[str] | None = None) -> int:
    """Run the campaign; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=1000, help="cases of a target of usual speed")
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=float, default=5.0, help="seconds of the processor a case may take")
    parser.add_argument("--targets", default="", help="names, separated by commas; all by default")
    parser.add_argument("--only", default="", metavar="TARGET:NUMBER", help="one case again, with its traceback")
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        doors = {target.name: target for target in targets(Path(folder))}
        if asked.only:
            name, _, number = asked.only.partition(":")
            given = case(doors[name], asked.seed, int(number))
            print(shown(given, 10_000))
            doors[name].run(given)
            return 0
        chosen = [name for name in asked.targets.split(",") if name] or list(doors)
        return _report(doors, chosen, asked)


def _report(doors: dict[str, Target], chosen: list[str], asked: argparse.Namespace) -> int:
    whole = Count(0, 0, {}, 0.0)
    print(f"{'target':20s} {'cases':>8s} {'accepted':>9s} {'refused':>8s} {'findings':>8s} {'slowest':>9s} {'all':>8s}")
    for name in chosen:
        target = doors[name]
        numbers = range(asked.first, asked.first + max(1, round(asked.cases * target.weight)))
        count = isolated(target, asked.seed, numbers, asked.limit)
        print(
            f"{name:20s} {len(numbers):8d} {count.accepted:9d} {count.refused:8d} {len(count.findings):8d} "
            f"{count.slowest_s:7.2f} s {count.spent_s:6.1f} s",
            flush=True,
        )
        for number, words in count.findings.items():
            print(f"\n== {name}:{number} (seed {asked.seed})")
            print(shown(case(target, asked.seed, number), 2000))
            print(words, flush=True)
        whole.accepted += count.accepted
        whole.refused += count.refused
        whole.findings |= {len(whole.findings) + at: words for at, words in enumerate(count.findings.values())}
    print(f"{whole.accepted + whole.refused} cases, {len(whole.findings)} findings")
    return 1 if whole.findings else 0


if __name__ == "__main__":
    sys.exit(main())
