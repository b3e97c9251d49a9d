"""`attribution-sched doctor`: does the product work here?"""

import json

from attribution_sched import kernels
from attribution_sched.cli import doctor

from .helpers import invoke


def test_it_works_here_and_says_what_can_be_measured(here):
    done = invoke("doctor", columns=80)
    assert done.exit_code == 0, done.stderr
    for words in ("numba", "torch", "Hi-PPO", "cross-domain-easy", "SQLite", "cpu_time_s", "measured", "works here"):
        assert words in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_json_says_the_same(here):
    told = json.loads(invoke("doctor", "--json").stdout)
    assert told["works"] is True
    checks = {each["name"]: each for each in told["checks"]}
    known = {"python", "packages", "threads", "kernels", "presets", "model", "journal", "folder", "engines"}
    assert known == set(checks)
    assert checks["model"]["good"] is True
    assert any(each["source"] == "process" and each["available"] for each in told["counters"])


def test_something_essential_that_is_broken_is_code_1(here, monkeypatch):
    from attribution_sched.scheduler.hi_ppo import coordinator

    def broken(*_, **__):
        raise OSError("weights.safetensors:\n not found")

    monkeypatch.setattr(coordinator, "HiPpo", broken)
    done = invoke("doctor", "--json")
    assert done.exit_code == 1
    told = json.loads(done.stdout)
    assert told["works"] is False
    model = next(each for each in told["checks"] if each["name"] == "model")
    assert model["good"] is False
    assert model["found"] == "OSError: weights.safetensors: not found"
    assert "essential is broken" in invoke("doctor").stdout


def test_a_package_that_is_missing_is_named(monkeypatch):
    monkeypatch.setattr(doctor, "PACKAGES", ("numpy", "no-such-package"))
    found = doctor._packages()
    assert found.good is False
    assert "missing: no-such-package" in found.found
    assert found.fix == "Install: pip install no-such-package"


def test_kernels_that_are_not_compiled_yet_are_no_fault(monkeypatch, tmp_path):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    assert doctor._kernels().good is None
    kernels.folder().mkdir(parents=True)
    (kernels.folder() / "x.nbi").touch()
    assert doctor._kernels().good is True
