"""Episodes on disk: found again, never mixed up, mended when cut off."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from attribution_sched.cluster.arrivals import Poisson
from attribution_sched.errors import CheckpointError
from attribution_sched.rivals.arena.records import EpisodeRecord, EpisodeStore, files_behind, fingerprint
from attribution_sched.rivals.exact_policy import Exact, ExactResolve
from attribution_sched.rivals.greedy import Greedy
from attribution_sched.scheduler.episode import play
from tests.rivals.arena_players import Lone, small_world

SUMMARY = play(small_world(), Lone(), 7)


def record(seed=7, digest="abc"):
    return EpisodeRecord("tiny", "lone", seed, digest, replace(SUMMARY, seed=seed), (12, 30), (1,))


def test_a_record_survives_the_file(tmp_path):
    store = EpisodeStore(tmp_path / "deep" / "folder")
    store.append(record(7))
    store.append(record(8))
    found = store.load({("tiny", "lone", 7): "abc", ("tiny", "lone", 9): "abc"})
    assert found == {("tiny", "lone", 7): record(7)}


@pytest.mark.parametrize("cut", [1, 20, -2, -1])
def test_a_half_written_line_is_cut_off(tmp_path, cut):
    store = EpisodeStore(tmp_path)
    store.append(record(7))
    whole = store.path.read_bytes()
    store.path.write_bytes(whole + record(8).line().encode()[:cut])
    wanted = {("tiny", "lone", 7): "abc", ("tiny", "lone", 8): "abc"}
    assert list(store.load(wanted)) == [("tiny", "lone", 7)]
    assert store.path.read_bytes() == whole
    store.append(record(8))
    assert len(store.load(wanted)) == 2


@pytest.mark.parametrize(
    "line",
    [b"{}\n", b"not json\n", b"\xff\xfe\n", b"[1]\n", record().line().replace('"format":1', '"format":9').encode()],
)
def test_a_damaged_line_is_named(tmp_path, line):
    store = EpisodeStore(tmp_path)
    store.append(record(7))
    with store.path.open("ab") as file:
        file.write(line)
    with pytest.raises(CheckpointError, match=r"line 2.*Delete the line"):
        store.load({})


def test_an_episode_of_other_settings_is_refused_or_replayed(tmp_path):
    store = EpisodeStore(tmp_path)
    store.append(record(7, "old"))
    wanted = {("tiny", "lone", 7): "new"}
    with pytest.raises(CheckpointError, match=r"\('tiny', 'lone', 7\).*--replay-stale"):
        store.load(wanted)
    assert store.load(wanted, replay=True) == {}
    store.append(record(7, "new"))
    assert store.load(wanted)["tiny", "lone", 7].fingerprint == "new"


def test_every_change_shows_in_the_fingerprint():
    world = small_world()
    wan = replace(world.cluster.wan, spread=0.1)
    digests = [
        fingerprint(world, Greedy()),
        fingerprint(world, Greedy(seconds_per_usd=2.0)),
        fingerprint(world, Lone()),
        fingerprint(world, Lone(prefer_last=True)),
        fingerprint(replace(world, horizon_s=1201.0), Greedy()),
        fingerprint(replace(world, arrivals=Poisson(61.0)), Greedy()),
        fingerprint(replace(world, kinds=world.kinds[:2]), Greedy()),
        fingerprint(replace(world, cluster=replace(world.cluster, wan=wan)), Greedy()),
    ]
    assert len(set(digests)) == len(digests)
    assert fingerprint(small_world(), Greedy()) == digests[0]


def test_settings_inside_a_policy_show_too():
    world = small_world()
    policies = [Exact(), Exact(budget=7), ExactResolve()]
    assert len({fingerprint(world, policy) for policy in policies}) == 3


def test_the_code_behind_a_policy_is_what_it_imports():
    names = {path.name for path in files_behind("attribution_sched.rivals.exact_policy")}
    assert {"exact_policy.py", "solver.py", "held_karp.py"} <= names
    assert not {"arena.py", "greedy.py", "world.py"} & names
    assert {path.name for path in files_behind(Lone.__module__)} >= {"arena_players.py"}
    assert files_behind("no.such.module") == ()


def test_the_fingerprint_is_the_same_in_another_process():
    code = (
        "from tests.rivals.arena_players import *\n"
        "from attribution_sched.rivals.arena.records import fingerprint\n"
        "print(fingerprint(small_world(), Lone()))"
    )
    root = Path(__file__).parents[3]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=root)
    assert done.stdout.strip() == fingerprint(small_world(), Lone())
