"""The glass-box twin: trees that are small, safe to load, decide by themselves, and say how they came there."""

import sys

import numpy as np
import pytest

from attribution_sched import System
from attribution_sched.errors import CheckpointError, SettingsError
from attribution_sched.explain.flat import reading_words
from attribution_sched.scheduler.episode import play
from attribution_sched.scheduler.glass_box.tree_distil import grow, lessons_of, together, usual_of
from attribution_sched.scheduler.glass_box.tree_policy import HiPpoTree
from attribution_sched.scheduler.glass_box.trees import (
    HEADS,
    LEAVES,
    VERDICTS,
    Distilled,
    checked,
    leaves_of,
    load,
    nodes_of,
    path_of,
    save,
    text_of,
    tree_value,
)
from attribution_sched.scheduler.hi_ppo.coordinator import HiPpo
from attribution_sched.scheduler.registry import make_policy
from attribution_sched.shapley.tree import FlatTree
from tests.docs_text import ROOT
from tests.small_world import small


@pytest.fixture(scope="module")
def shipped():
    return load()


@pytest.mark.parametrize("head", HEADS)
def test_each_tree_is_read_as_it_is_weighed(shipped, head):
    assert 1 < leaves_of(shipped.trees, head) <= LEAVES
    nodes = {name: nodes_of(shipped.trees, head)[name] for name in ("feature", "threshold", "left", "right", "value")}
    flat, number = FlatTree(**nodes), list(HEADS).index(head)
    for x in shipped.usual[head][:20]:
        steps, value = path_of(shipped.trees, head, x)
        assert value == flat(x[None])[0] == tree_value(shipped.trees, number, x) and len(steps) >= 1
    told = text_of(shipped.trees, head).count("→")
    assert (
        told == leaves_of(shipped.trees, head) if head not in VERDICTS else 1 < told <= leaves_of(shipped.trees, head)
    )


def test_the_page_shows_the_trees_that_are_shipped(shipped):
    page = (ROOT / "docs/glass_box.md").read_text(encoding="utf-8")
    assert all(text_of(shipped.trees, head) in page for head in HEADS)


def test_a_file_comes_back_and_a_tampered_one_is_refused(shipped, tmp_path):
    path = tmp_path / "t.safetensors"
    save(path, shipped, {"command": "test"})
    again = load(path)
    assert all(np.array_equal(a, b) for a, b in zip(shipped.trees, again.trees, strict=True))
    content = bytearray(path.read_bytes())
    content[-20] ^= 1
    path.write_bytes(content)
    with pytest.raises(CheckpointError):
        load(path)


@pytest.mark.parametrize("wrong", ["circle", "outside", "feature", "many leaves"])
def test_trees_that_lead_astray_are_refused(shipped, wrong):
    trees = shipped.trees._replace(**{name: array.copy() for name, array in shipped.trees._asdict().items()})
    if wrong == "circle":
        trees.left[1 if trees.feature[1] >= 0 else 0] = 0
    elif wrong == "outside":
        trees.right[0] = len(trees.feature)
    elif wrong == "feature":
        trees.feature[0] = 99
    else:
        trees = trees._replace(roots=np.array([0, 1, 2, 3]))
    with pytest.raises(CheckpointError, match="trees"):
        checked(trees)


def test_it_plays_without_scikit_learn(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    summary = play(small().build_world(), make_policy("hi-ppo-tree"), 3)
    assert summary.completed > 0 and summary.refused_plans == 0


def test_its_decisions_are_the_trees_own(shipped):
    """The cut: other numbers at the leaves, other decisions."""
    world, seeds = small().build_world(), range(3)
    other = shipped.trees._replace(value=-shipped.trees.value)
    own = [play(world, HiPpoTree(shipped), seed).reward for seed in seeds]
    assert own == [play(world, HiPpoTree(shipped), seed).reward for seed in seeds]
    assert own != [play(world, HiPpoTree(Distilled(other, shipped.usual)), seed).reward for seed in seeds]


def test_it_is_nearer_to_its_teacher_than_upside_down(shipped):
    """Distilled from a few days of a small world, trees choose layouts as the teacher does."""
    world, teacher = small().build_world(), HiPpo()
    lessons = lessons_of([world], 1, 50, teacher)
    trees = grow(lessons)
    more = lessons_of([world], 1, 60, teacher, trees)
    assert all(len(x) for x, _ in more.values())
    trees = grow(together(lessons, more))
    x, said = more["layout"]
    grown = {name: nodes_of(trees, "layout")[name] for name in ("feature", "threshold", "left", "right", "value")}
    assert np.corrcoef(FlatTree(**grown)(x), np.clip(said, -0.4, 0.4))[0, 1] > 0.9
    assert set(usual_of(lessons)) == set(HEADS)
    twin = HiPpoTree.distilled_from(teacher, [(world, 1)], 50)
    assert play(world, twin, 60).completed > 0
    with pytest.raises(SettingsError, match="worlds"):
        HiPpoTree.distilled_from(teacher, [], 50)


def test_a_decision_is_read_in_words_and_exact_shares():
    with System(small(), "hi-ppo-tree", seed=4) as system:
        system.run(6)
        placed = [each.id for each in system.journal.decisions() if each.plan is not None][-1]
        readings = system.tree_readings(placed)
        assert {each.outputs[0] for each in readings} >= {"task", "layout"}
        for each in readings:
            assert each.method == "exact" and not each.standard_error.any()
            assert np.allclose(each.values.sum(axis=0), each.value - each.base)
            assert "≤" in each.subject or ">" in each.subject
            assert each.outputs[0] and reading_words(each, "zh") != reading_words(each)
        explained = system.explain(placed)
        assert explained.policy == "hi-ppo-tree"
    with System(small(), "sjf", seed=4) as system:
        system.run(2)
        assert system.tree_readings(next(iter(system.journal.decisions())).id) == ()
