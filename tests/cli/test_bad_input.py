"""What people typed and were misled by: each mistake has one line that leads on."""

import copy

import pytest
from typer.testing import CliRunner

from attribution_sched import System, load_settings
from attribution_sched.cli.app import app
from attribution_sched.errors import AttributionSchedError
from tests.small_world import SMALL, small


def typed(*words):
    done = CliRunner().invoke(app, list(words))
    return done.exit_code, " ".join(done.output.split())


@pytest.fixture(scope="module")
def journal(tmp_path_factory):
    path = tmp_path_factory.mktemp("bad") / "run.sqlite"
    with System(small(), "sjf", seed=3, journal=path) as system:
        system.run(6)
        task = system.journal.last().task_id
    return path, task


def test_explain_takes_the_task_that_people_know(journal):
    path, task = journal
    code, said = typed("explain", task, "-j", str(path), "--json")
    assert code == 0 and '"decision"' in said


def test_a_task_before_the_journal_is_told_so(journal):
    path, task = journal
    for verb in ("why", "when"):
        code, said = typed(verb, task, str(path))
        assert code == 2 and "the journal comes first" in said


def test_a_journal_that_is_not_there_is_not_to_be_made_by_hand(tmp_path):
    code, said = typed("why", str(tmp_path / "none.sqlite"), "t1")
    assert code == 2 and "attribution-sched run" in said and "Journal.create" not in said


def test_a_journal_that_is_there_already_is_gone_on_with(journal):
    with pytest.raises(AttributionSchedError, match=r"System\.resume"):
        System(small(), "sjf", journal=journal[0])


def test_a_cluster_that_is_not_known_is_answered_with_those_that_are():
    with pytest.raises(AttributionSchedError, match="'slurm', 'ray'"):
        System(small(), "sjf", cluster="kubernetes")


def test_a_model_that_the_preset_lacks_may_be_added():
    with pytest.raises(AttributionSchedError, match="models: of the preset"):
        System(small(), "sjf").submit("meta-llama/Llama-3-8B")


def changed(**domain):
    settings = copy.deepcopy(SMALL)
    settings["domain_defaults"] |= domain
    return settings


def test_a_device_that_the_catalogue_lacks_may_be_added():
    with pytest.raises(AttributionSchedError, match="gpus:") as raised:
        load_settings(changed(gpu="RTX4090")).build_world()
    assert "Did you mean" not in str(raised.value)


def test_gigabytes_where_bytes_are_meant_are_refused():
    with pytest.raises(AttributionSchedError, match="not gigabytes"):
        load_settings(SMALL | {"gpus": {"A100-80": {"bandwidth_bytes_per_s": 600.0}}})


def test_a_policy_in_capitals_is_known():
    with pytest.raises(AttributionSchedError, match="Did you mean 'sjf'"):
        System(small(), "SJF")


def test_one_microbatch_is_enough():
    settings = copy.deepcopy(SMALL)
    settings["kinds"][0]["microbatches"] = [8]
    world = load_settings(settings).build_world()
    assert world.kinds[0].microbatches == (8, 8, 8, 8)
    with System(settings, "sjf", seed=1) as system:
        assert all(system.schedule_next_task().placed for _ in range(4))
