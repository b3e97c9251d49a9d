"""``shadow`` and ``probe`` as a user types them."""

import json

from tests.cli.helpers import invoke
from tests.executors.test_shadow import numbered, recorded


def files(folder):
    queue, nodes, past = recorded(numbered, lambda word: [word])
    paths = [folder / name for name in ("squeue.json", "nodes.json", "sacct.json")]
    for path, text in zip(paths, (queue, nodes, past), strict=True):
        path.write_text(text)
    return ["--squeue", paths[0], "--nodes", paths[1], "--sacct", paths[2]]


def test_a_recorded_queue_is_told(tmp_path):
    done = invoke("shadow", *files(tmp_path))
    assert done.exit_code == 0, done.output
    assert "0 of 4 devices free, 1 jobs wait" in done.stdout
    assert "Resources" in done.stdout and "devices" in done.stdout and "Nothing was touched" in done.stdout


def test_one_job_as_json(tmp_path):
    done = invoke("shadow", *files(tmp_path), "--job", "8", "--json")
    told = json.loads(done.stdout)
    assert [each["job"] for each in told["jobs"]] == ["8"]
    assert told["jobs"][0]["cause"] == "devices"


def test_what_if_of_a_recorded_queue(tmp_path):
    done = invoke("shadow", *files(tmp_path), "--what-if", "without 7")
    assert done.exit_code == 0, done.output
    assert "7 not there" in done.stdout and "job 8 starts" in done.stdout and "wait per task" in done.stdout
    told = json.loads(invoke("shadow", *files(tmp_path), "--what-if", "add 4@east", "--lang", "zh", "--json").stdout)
    wait = next(each for each in told["what_if"]["effects"] if each["quantity"] == "wait")
    assert wait["delta"] < 0.0 and wait["unit"] == "min"
    assert "设备" in told["what_if"]["change"]


def test_bad_input_is_one_clear_error(tmp_path):
    given = files(tmp_path)
    for arguments in (
        ["shadow", *given, "--what-if", "fly"], ["shadow", *given, "--what-if", "without 99"],
        ["shadow", *given, "--what-if", "without 7", "--lang", "xx"],
        ["shadow"], ["shadow", "--slurm", *given], ["shadow", *given[:2]], ["shadow", *given, "--job", "99"],
        ["shadow", "--squeue", tmp_path / "none", "--nodes", given[3]], ["probe", "links", "nowhere:port"],
        ["probe", "links", "127.0.0.1:1"], ["probe", "links", "--seconds", "0"],
    ):  # fmt: skip
        done = invoke(*arguments)
        assert done.exit_code in (1, 2), arguments
        assert sum(line.startswith(("error:", "failed:")) for line in done.stderr.splitlines()) == 1, done.output


def test_a_link_and_stages_are_probed(tmp_path, monkeypatch):
    done = invoke("probe", "links", "--seconds", "0.05", "--json")
    assert 0.0 < json.loads(done.stdout)["duplex_efficiency"] <= 1.0
    (tmp_path / "chain.py").write_text(
        "import torch\n\n\ndef make():\n    return torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU())\n"
    )
    done = invoke("probe", "stages", f"{tmp_path}/chain.py:make", "--input", "4x8", "--json")
    assert [each["output_bytes"] for each in json.loads(done.stdout)["layers"]] == [128, 128]
