"""Engines are found without being touched."""

import os

from attribution_sched.executors.engines import engines


def by_name():
    return {each.name: each for each in engines()}


def test_local_is_always_there():
    assert by_name()["local"].missing == ""


def test_a_slurm_that_is_there_says_its_version_and_one_without_controller_says_so(tmp_path, monkeypatch):
    for name, says in (("sinfo", "slurm-wlm 22.05.8"), ("sbatch", ""), ("scontrol", "Slurmctld(primary) at a is UP")):
        (tmp_path / name).write_text(f"#!/bin/sh\necho '{says}'\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert (by_name()["slurm"].version, by_name()["slurm"].missing) == ("22.05.8", "")
    (tmp_path / "scontrol").write_text("#!/bin/sh\necho 'is DOWN'\n")
    assert "does not answer" in by_name()["slurm"].missing


def test_an_engine_that_is_not_there_says_what_is_missing(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "not installed" in by_name()["slurm"].missing
