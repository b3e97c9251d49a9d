"""Chakra traces, byte by byte, and what is made of ASTRA-sim's words."""

import hashlib
import stat

import pytest

from attribution_sched.cluster import chakra
from attribution_sched.cluster.chakra import PipelineProgram, finished_s, operations, program, run_astra, traces, varint
from attribution_sched.cluster.pipeline import Schedule
from attribution_sched.errors import ExecutorError, SettingsError

SMALL = PipelineProgram(Schedule.ONE_F_ONE_B, 2, (100, 200), (150, 300), (1000, 1), (1, 2000))
SAID = "[statistics] sys[0] finished, 1050 cycles, exposed communication 3 cycles.\nsys[1] finished, 900 cycles, ...\n"


def read(data):
    """Messages of a trace: fields in order, nested ones as bytes."""

    def number(at):
        value = shift = 0
        while True:
            value |= (data[at] & 0x7F) << shift
            at, shift = at + 1, shift + 7
            if not data[at - 1] & 0x80:
                return value, at

    at, found = 0, []
    while at < len(data):
        size, at = number(at)
        stop, fields = at + size, []
        while at < stop:
            key, at = number(at)
            if key & 7 == 0:
                value, at = number(at)
            else:
                length, at = number(at)
                value, at = data[at : at + length], at + length
            fields.append((key >> 3, value))
        found.append(fields)
    return found


def test_varints():
    assert [varint(value).hex() for value in (0, 1, 127, 128, 300)] == ["00", "01", "7f", "8001", "ac02"]


def test_the_first_bytes_by_hand():
    data = traces(SMALL)[0]
    # GlobalMetadata{version: "0.0.4"}: field 1, 5 bytes.
    assert data[:8].hex() == "070a05302e302e34"
    # Node{id 0, name "F0", type COMP, duration_micros 100, attr{is_cpu_op: bool_val false}}.
    attribute = bytes([0x0A, 9]) + b"is_cpu_op" + bytes.fromhex("d80100")
    body = bytes.fromhex("08001202463018043864") + bytes([0x52, len(attribute)]) + attribute
    assert data[8:].startswith(bytes([len(body)]) + body)


def test_golden_bytes():
    digests = [hashlib.sha256(trace).hexdigest()[:16] for trace in traces(SMALL)]
    assert digests == ["8fb28e4deca2a8b4", "dea52185269e94ef"]


@pytest.mark.parametrize("schedule", list(Schedule))
@pytest.mark.parametrize(("stages", "microbatches"), [(2, 2), (4, 3), (4, 8)])
def test_every_message_is_sent_and_received_once_with_the_same_words(schedule, stages, microbatches):
    made = program(schedule, microbatches, [1e-3] * stages, [2e-3] * stages, [1e-4] * stages, [2e-4] * stages)
    sent, received = [], []
    for trace in traces(made):
        nodes = read(trace)[1:]
        numbers = [dict(node)[1] for node in nodes]
        assert numbers == list(range(len(nodes)))
        for node in nodes:
            fields = dict(node)
            assert all(each < fields[1] for each in fields.get(5, b""))
            if fields[3] in (chakra.SEND, chakra.RECV):
                words = tuple(value for key, value in node if key == 10)
                (sent if fields[3] == chakra.SEND else received).append(words)
        assert sum(dict(node)[3] == chakra.COMP for node in nodes) == 2 * microbatches
    assert sorted(sent) == sorted(received) and len(sent) == 2 * (stages - 1) * microbatches == len(set(sent))


def test_the_order_of_passes():
    assert operations(Schedule.ONE_F_ONE_B, 0, 3, 4) == [0, 1, 2, -1, 3, -2, -3, -4]
    assert operations(Schedule.ONE_F_ONE_B, 2, 3, 4) == [0, -1, 1, -2, 2, -3, 3, -4]
    assert operations(Schedule.GPIPE, 1, 3, 2) == [0, 1, -1, -2]


def test_links_are_folded_into_sizes():
    made = program(Schedule.GPIPE, 2, [1e-3, 1e-3], [1e-3, 1e-3], [0.01, 0.0], [0.0, 0.02])
    plain = program(Schedule.GPIPE, 2, [1e-3, 1e-3], [1e-3, 1e-3], [0.0, 0.0], [0.0, 0.0])
    # Two forward sends of 10 ms one after the other, two backward ones of 20 ms.
    assert made.step_s == pytest.approx(1e-3 + 0.02 + 1e-3 + 1e-3 + 0.04 + 1e-3, rel=1e-3)
    assert plain.step_s < 0.01


def astra(folder, said, code=0):
    path = folder / "AstraSim_Analytical_Congestion_Unaware"
    path.write_text(f"#!/bin/sh\nfor a in \"$@\"; do echo $a >> {folder}/asked; done\nprintf '{said}'\nexit {code}\n")
    path.chmod(path.stat().st_mode | stat.S_IEXEC)
    return path


def test_a_binary_is_called_with_all_it_needs_and_its_answer_read(tmp_path):
    binary = astra(tmp_path, SAID.replace("\n", "\\n"))
    work = tmp_path / "work"
    work.mkdir()
    assert run_astra(binary, SMALL, work) == pytest.approx(1.05e-6)
    asked = dict(line.lstrip("-").split("=") for line in (tmp_path / "asked").read_text().split())
    assert {path.name for path in work.glob("*.et")} == {"pipeline.0.et", "pipeline.1.et"}
    assert asked["workload-configuration"] == str(work / "pipeline")
    for name in ("system", "remote-memory", "network"):
        assert (tmp_path / asked[f"{name}-configuration"]).is_file()


def test_a_binary_that_says_too_little_is_an_error(tmp_path):
    with pytest.raises(ExecutorError, match="1 of 2 stages finished"):
        finished_s("sys[0] finished, 5 cycles", 2)
    with pytest.raises(ExecutorError, match="0 of 2 stages finished"):
        run_astra(astra(tmp_path, "no such file", 1), SMALL, tmp_path)


def test_where_the_binary_is_looked_for(tmp_path, monkeypatch):
    monkeypatch.delenv(chakra.VARIABLE, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SettingsError, match="Build ASTRA-sim"):
        chakra.find_binary()
    made = astra(tmp_path, SAID)
    assert chakra.find_binary() == made.resolve()
    with pytest.raises(SettingsError, match="no programme that can be run"):
        chakra.find_binary(tmp_path / "none")
    monkeypatch.setenv(chakra.VARIABLE, str(tmp_path / "none"))
    with pytest.raises(SettingsError):
        chakra.find_binary()
