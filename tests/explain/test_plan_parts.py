"""Plans explained by their parts: shares and interactions are those of plans that exist, and add up."""

import re
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from attribution_sched.cluster.decision import view
from attribution_sched.cluster.gpus import Precision, gpu
from attribution_sched.cluster.pipeline import Schedule
from attribution_sched.cluster.plan import Plan, PlanBatch, Segment
from attribution_sched.cluster.reward import value
from attribution_sched.errors import ExplanationError, PlanError
from attribution_sched.explain.background import Background
from attribution_sched.explain.explainer import Explainer
from attribution_sched.explain.explanation import SIGNS
from attribution_sched.explain.plan_mixtures import COLUMNS, between, plans_of, rows_of
from attribution_sched.explain.plan_parts import PartsExplainer, from_menu, part_players
from attribution_sched.explain.plots import components, waterfall
from attribution_sched.explain.reasoning import reasoning
from attribution_sched.explain.recorder import Decided, perceived
from attribution_sched.rivals.greedy import Greedy

from ..cluster.engine_worlds import BERT, GPT2, act, begun, chain, random_plan, single, tiny_cluster, traced
from .policies import WORLD, Planted, decided_by

FP32, FP16, BF16 = Precision.FP32, Precision.FP16, Precision.BF16
LINK = "link d0–d1"
LATIN = {
    "greedy", "bert", "base", "tiny", "world", "d", "GPU", "dp", "tp", "pp", "FP", "BF", "F", "B", "GPipe", "Gb", "s",
    "ms", "R", "R_eff", "R_util", "R_cost", "Shapley",
}  # fmt: skip
"""Names, units and symbols: all that a Chinese text may hold in Latin letters."""


QUIET = tiny_cluster(motion={"spread": 0.0})


def placed(plan, kind=BERT, cluster=QUIET):
    """A decision on a quiet tiny cluster, alone in the world."""
    seen = view(begun(traced((0.0, kind), cluster=cluster, kinds=(kind,))))
    return Decided("0", seen, plan, perceived(Greedy(), seen))


def of_gpus(device):
    """The quiet cluster with other devices."""
    return replace(QUIET, domains=tuple(replace(domain, gpu=device) for domain in QUIET.domains))


def alone(one):
    return PartsExplainer(None, Background.of([one], "itself"))


def cut_plan(kind, layers=6, micro=None, **options):
    return Plan((chain(kind, (0, layers), (1, -1), micro=micro),), **options)


def restless_decision():
    """A decision among ninety, its links unlike theirs, with a plan across two domains."""
    one = next(d for d in decided_by(Greedy) if d.view.kind.model.name == BERT.model.name)
    return replace_plan(one, cut_plan(BERT, 4))


def replace_plan(one, plan):
    return Decided(one.id, one.view, plan, one.seen)


def explainer(policy=None, **options):
    return PartsExplainer(policy or Greedy(), Background.of(decided_by(Greedy), "tiny world"), **options)


def terms(view, *plans, links=None):
    """R_eff, R_util, R_cost and R of plans, one by one and by the definition."""
    if links is not None:
        view = replace(view, bandwidth_gbps=links[0], latency_s=links[1])
    found = value(view, PlanBatch.of(plans))
    return np.column_stack([found.r_eff, found.r_util, found.r_cost, found.reward])


def other(plan, precision=None, micro=None, kind=BERT):
    """The plan with another format or microbatch."""
    (copy,) = plan.replicas
    segments = tuple(replace(s, precision=precision or s.precision) for s in copy.segments)
    size = micro or copy.microbatch
    return Plan((replace(copy, segments=segments, microbatch=size, microbatches=kind.batch_size // size),))


def interaction(told, first, second, output="R"):
    return next(p for p in told.interactions if {p.first, p.second} == {first, second} and p.output == output)


def test_a_plan_on_one_device_has_two_parts_and_their_closed_form():
    one = placed(single(BERT, micro=8))
    told = alone(one).explain(one)
    # No cut inside one domain, no other layout of one device, no link.
    assert told.names == ["precision", "microbatch"] and {p.group for p in told.players} == {"part"}
    shares, pairs = [], []
    for fmt, micro in product((FP32, BF16), (4, 16, 32)):
        mixtures = [one.plan, other(one.plan, fmt), other(one.plan, micro=micro), other(one.plan, fmt, micro)]
        both, micro_only, fmt_only, none = terms(one.view, *mixtures)
        shares.append(0.5 * np.array([both - micro_only + fmt_only - none, both - fmt_only + micro_only - none]))
        pairs.append(both - micro_only - fmt_only + none)
    assert told.values == pytest.approx(np.mean(shares, axis=0), abs=1e-12)
    for c, output in enumerate(told.outputs):
        found = interaction(told, "precision", "microbatch", output)
        assert found.value == pytest.approx(np.mean(pairs, axis=0)[c], abs=1e-12)
    assert abs(interaction(told, "precision", "microbatch").value) > 1e-3
    # The menu is enumerated: nothing is a sample.
    assert told.method == "exact" and not told.standard_error.any() and told.background == 6


def test_shares_add_up_and_components_make_the_total():
    one = restless_decision()
    told = explainer(world=WORLD).explain(one)
    assert told.names == ["cut points", "precision", "microbatch", LINK]
    assert told.values.sum(axis=0) == pytest.approx(told.value - told.base, abs=1e-12)
    assert told.values[:, :3] @ (np.array(SIGNS) * told.weights) == pytest.approx(told.values[:, 3], abs=1e-12)
    # The simulator's word for the plan itself, the task's own demands included, is that of the other explainer.
    by_inputs = Explainer(Greedy(), Background.of(decided_by(Greedy)), world=WORLD)
    whole = by_inputs.explain(one, target="simulator", rows=400, precision=None)
    assert told.value == pytest.approx(whole.value, abs=1e-12)
    assert explainer().explain(one).value != pytest.approx(whole.value, abs=1e-6)


def test_link_and_cut_interact_unless_the_link_is_as_usual():
    one = restless_decision()
    told = explainer().explain(one)
    pair = interaction(told, LINK, "cut points")
    assert abs(pair.value) > 3 * pair.standard_error > 0 and told.share(LINK) != 0
    seen = [replace(d.seen, links=one.seen.links) for d in decided_by(Greedy)]
    usual = [Decided(d.id, d.view, d.plan, s) for d, s in zip(decided_by(Greedy), seen, strict=True)]
    still = PartsExplainer(Greedy(), Background.of(usual)).explain(one)
    assert abs(still.share(LINK)) < 1e-15 and abs(interaction(still, LINK, "cut points").value) < 1e-15
    assert interaction(still, "precision", "cut points").value != 0


def test_a_named_cut_and_the_link_have_their_closed_form():
    one = restless_decision()
    moved = cut_plan(BERT, 9)
    told = explainer().explain(one, against=moved)
    assert told.names == ["cut points", LINK] and told.against and told.base == pytest.approx(np.zeros(4), abs=1e-15)
    like = Background.of(decided_by(Greedy)).like(one.seen).states.links
    assert len(like) == told.background
    own, expected, together = one.seen.links[0], [], []
    for state in like:
        # Only this link is as in the state; the price of traffic is no matter of links here.
        links = own.copy()
        links[:, [0, 1], [1, 0]] = state[:, [0, 1], [1, 0]]
        here, there = (terms(one.view, one.plan, moved, links=at) for at in (own, links))
        gain = here[0] - here[1], there[0] - there[1]
        expected.append([0.5 * (gain[0] + gain[1]), 0.5 * (gain[0] - gain[1])])
        together.append(gain[0] - gain[1])
    assert told.values == pytest.approx(np.mean(expected, axis=0), abs=1e-12)
    assert interaction(told, LINK, "cut points").value == pytest.approx(np.mean(together, axis=0)[3], abs=1e-12)
    here = terms(one.view, one.plan, moved)[:, 3]
    assert told.share("cut points") + told.share(LINK) == pytest.approx(here[0] - here[1], abs=1e-12)


def test_interactions_do_not_depend_on_the_order_of_players():
    one = restless_decision()
    told = explainer().explain(one)
    listed = {(frozenset((p.first, p.second)), p.output) for p in told.interactions}
    d = len(told.names)
    assert len(listed) == len(told.interactions) == d * (d - 1) // 2 * len(told.outputs)
    game = explainer().game(one)
    from attribution_sched.shapley.interactions import interactions

    forth, back = interactions(game), interactions(game, game.players[::-1])
    other = {pair[::-1]: values for pair, values in zip(back.pairs, back.values, strict=True)}
    assert set(other) == set(forth.pairs)
    assert forth.values == pytest.approx(np.array([other[pair] for pair in forth.pairs]), abs=1e-14)


def test_what_fits_alone_but_not_together_is_not_drawn_together():
    plan = single(BERT, micro=8)
    cost = placed(plan).view.cost
    large, exact = other(plan, micro=32), other(plan, FP32)
    need = cost.score(PlanBatch.of([plan, large, exact, other(plan, FP32, 32)])).segment("memory_bytes")[:, 0]
    assert need.max() == need[3]
    room = 0.5 * (need[:3].max() + need[3])
    small = replace(gpu("A100-80"), memory_bytes=int(room))
    one = placed(plan, cluster=of_gpus(small))
    drawn = from_menu(one.view, plan)
    others = [drawn.others().plan(i) for i in range(drawn.draws)]
    assert {(p.segments[0].precision, p.replicas[0].microbatch) for p in others} == {
        (FP32, 4), (FP32, 16), (BF16, 4), (BF16, 16), (BF16, 32)
    }  # fmt: skip
    told = alone(one).explain(one)
    assert np.isfinite(told.values).all() and told.efficiency_gap().max() < 1e-12


def test_a_draw_changes_as_many_parts_as_can_change_together():
    kind = replace(BERT, microbatches=(1, 1, 1, 2))
    # Two ranks need two samples, and one layer cannot have two stages: layout and microbatch exclude each other.
    one = placed(Plan((chain(kind, (0, 1, 1, 2, 1), (1, -1), micro=2),)), kind)
    drawn = from_menu(one.view, one.plan)
    assert drawn.names == ("cut points", "layout", "precision", "microbatch")
    rows = [rows_of(drawn.others().plan(i)) for i in range(drawn.draws)]
    changed = {tuple(bool((r[:, at] != rows_of(one.plan)[:, at]).any()) for at in COLUMNS.values()) for r in rows}
    assert changed == {(False, True, True, True, False), (False, True, False, True, True)}
    told = alone(one).explain(one)
    assert np.isfinite(told.values).all() and told.efficiency_gap().max() < 1e-12
    assert abs(interaction(told, "layout", "microbatch").value) < 1e-15 < abs(told.share("layout"))


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10_000), st.sampled_from([BERT, GPT2]))
def test_every_mixture_can_run_and_the_full_one_is_the_plan(seed, kind):
    rng = np.random.default_rng(seed)
    world = traced((0.0, kind), kinds=(kind,))
    one = placed(random_plan(rng, world, kind), kind)
    try:
        one.view.cost.check(one.plan)
    except PlanError:
        assume(False)
    drawn = from_menu(one.view, one.plan, seed)
    size = 1 << len(drawn.blocks)
    some = rng.choice(len(drawn.plans), min(60, len(drawn.plans)), replace=False)
    for row in some:
        one.view.cost.check(drawn.plans.plan(int(row)))
    full = drawn.plans.segments[size - 1 :: size]
    assert (full == full[0]).all() and np.array_equal(full[0][:, :9], rows_of(one.plan)[:, :9])
    devices = drawn.plans.segments[:, :, 3:6].prod(axis=2)
    assert (devices == devices[0]).all()
    # Every player makes a difference in some draw.
    for bit in range(len(drawn.blocks)):
        without = drawn.plans.segments[size - 1 - (1 << bit) :: size]
        assert (without != full).any()


def test_replicas_share_the_batch_as_the_cluster_does():
    engine = begun(traced((0.0, BERT), cluster=QUIET, kinds=(BERT,)))
    seen = view(engine)
    for layers in (1, 4, 9):
        plan = Plan((chain(BERT, (0, -1, 4, 1, 1), micro=8), chain(BERT, (1, layers), (2, -1), micro=4)))
        real = engine.probe(0, act(engine, plan)[None])
        made = plans_of(seen, rows_of(plan)[None].copy(), np.zeros(1, dtype=np.int64))
        ours = terms(seen, made.plan(0))[0]
        assert ours[:3] == pytest.approx([real[name][0] for name in ("r_eff", "r_util", "r_cost")], rel=1e-9)
        fast, slow = (replica.microbatches for replica in made.plan(0).replicas)
        assert fast > slow and terms(seen, plan)[0] != pytest.approx(ours, rel=1e-3)


def test_parts_that_cannot_be_mixed_are_one_player():
    wide, narrow = single(GPT2, 0, 4, 1, 1, micro=16), single(GPT2, 0, 1, 2, 2, micro=2)
    one = placed(wide, GPT2)
    told = alone(one).explain(one, against=narrow)
    # Four ranks cannot share a microbatch of two.
    assert told.names == ["layout + microbatch"] and told.interactions == ()
    assert told.values[0] == pytest.approx(terms(one.view, wide)[0] - terms(one.view, narrow)[0], abs=1e-12)
    lower = other(narrow, BF16, kind=GPT2)
    assert alone(one).explain(one, against=lower).names == ["layout + microbatch", "precision"]


def test_plans_of_other_shapes_exchange_what_they_can():
    one = placed(cut_plan(BERT, micro=8))
    elsewhere = single(BERT, 2, 2, 1, 1, micro=16)
    told = alone(one).explain(one, against=elsewhere)
    assert told.names == ["domains and cuts", "layout", "microbatch", LINK]
    assert told.values.sum(axis=0) == pytest.approx((terms(one.view, one.plan) - terms(one.view, elsewhere))[0])
    assert told.players[0].value == "d0 1–6 → d1 7–14" and told.players[0].usual == "d2 1–14"
    # Layouts that differ from segment to segment stay with their segments.
    mixed = Plan((chain(BERT, (0, 6, 2, 1, 1), (1, -1), micro=8),))
    joined = alone(one).explain(replace_plan(one, mixed), against=elsewhere)
    assert joined.names == ["domains and cuts + layout", "microbatch", LINK]
    swapped = Plan((chain(BERT, (1, 6), (0, -1), micro=8),), schedule=Schedule.GPIPE)
    assert [p.name for p in part_players(between(one.view, one.plan, swapped), ("d0", "d1", "d2"))] == [
        "domains", "schedule"
    ]  # fmt: skip


def test_readings_are_in_words_and_units():
    plan = Plan((chain(BERT, (0, 6, 2, 2, 1), (1, 4, 4, 1, 1), (2, -1), micro=4),))
    one = placed(plan)
    told = {p.name: p for p in alone(one).explain(one).players}
    assert told["cut points"].value == "cuts after layers 6 · 10" and told["cut points"].usual.startswith("one of ")
    assert told["layout"].value == "dp 2 · tp 2 → dp 4 → 1 device"
    assert (told["precision"].value, told["precision"].usual) == ("FP16", "FP32 / BF16")
    assert (told["microbatch"].value, told["microbatch"].usual) == ("microbatch 4", "microbatch 8 / 16 / 32")
    assert told["microbatch"].number == 4.0 and told["precision"].unit == "bit"
    two = placed(cut_plan(BERT))
    reading = alone(two).explain(two).players[0]
    assert (reading.value, reading.usual, reading.number) == ("cut after layer 6", "cut after layer 1–13", 6.0)


def test_a_policy_that_reads_only_the_link_gives_its_parts_nothing():
    one = next(d for d in decided_by(Planted) if len(d.plan.segments) == 2 and d.view.kind == BERT)
    told = explainer(Planted()).explain(one, target="terms")
    parts = [i for i, p in enumerate(told.players) if p.group == "part"]
    assert len(parts) == 3 and np.abs(told.values[parts]).max() < 1e-12 < abs(told.share(LINK))
    next_best = explainer(Planted()).explain(one, target="terms", against="runner-up")
    assert "d0 ×1 GPU (FP16), all" in next_best.against and next_best.share("domains and cuts", "R_util") > 0


class Together(Planted):
    """The same, judging plans of many decisions at once."""

    def appraise_each(self, views, situations, owner, plans):
        said = self.appraise(views[0], situations, plans)
        rows = np.arange(len(owner))
        return replace(said, terms=said.terms[rows, owner][:, None])


def test_a_policy_that_judges_plans_together_says_the_same():
    one = restless_decision()
    each, together = (explainer(p).explain(one, target="terms", states=20) for p in (Planted(), Together()))
    assert np.array_equal(each.values, together.values) and each.values.any()


def test_the_same_seed_tells_the_same():
    one = restless_decision()
    first, again, differ = (explainer().explain(one, seed=seed, states=30) for seed in (3, 3, 4))
    assert np.array_equal(first.values, again.values) and first.interactions == again.interactions
    assert not np.array_equal(first.values, differ.values)


@pytest.mark.filterwarnings("ignore::attribution_sched.errors.MissingFontWarning")
def test_both_languages_and_the_plots_take_it():
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    one = restless_decision()
    three = Plan((chain(BERT, (0, 4, 2, 1, 1), (1, -1), micro=8), chain(BERT, (2, -1), micro=16)), Schedule.GPIPE)
    made = [
        explainer().explain(one),
        explainer().explain(one, against=single(BERT, 2, 2, 1, 1, micro=4)),
        explainer().explain(replace_plan(one, three)),
        explainer().explain(replace_plan(one, three), against=one.plan),
    ]
    for told in made:
        text = reasoning(told, "zh", most=9)
        assert not set(re.findall(r"[A-Za-z_]+", text)) - LATIN
        assert not re.search(r"[\u4e00-\u9fff][,;:()!?.]|[,;:()!?](?=[\u4e00-\u9fff\s])", text)
        assert not re.search(r"[\u4e00-\u9fff][A-Za-z0-9]|[A-Za-z0-9][\u4e00-\u9fff]", text)
        assert told.players[0].name in reasoning(told, most=9)
        for lang in ("en", "zh"):
            plt.close(waterfall(told, lang=lang).figure)
            plt.close(components(told, lang=lang).figure)
        assert type(told).from_dict(told.to_dict()).interactions == told.interactions
    assert "切分点" in reasoning(made[0], "zh", most=9) and "种其他组合，链路状态取自" in reasoning(made[0], "zh")


def test_what_cannot_be_explained_is_refused_with_one_clear_error():
    one = restless_decision()
    made = explainer()
    with pytest.raises(ExplanationError, match="no parts to explain"):
        made.explain(replace_plan(one, None))
    with pytest.raises(ExplanationError, match="at least one decision"):
        PartsExplainer(None, Background.of([]))
    with pytest.raises(ExplanationError, match="no part that differs"):
        made.explain(one, against=one.plan)
    with pytest.raises(ExplanationError, match="is not a plan"):
        made.explain(one, against="nothing")
    with pytest.raises(ExplanationError, match="Did you mean 'terms'"):
        made.explain(one, target="term")
    with pytest.raises(ExplanationError, match="no critics"):
        made.explain(one, target="terms")
    with pytest.raises(ExplanationError, match="states = 0"):
        made.explain(one, states=0)
    nobody = PartsExplainer(None, made.background)
    for ask in ({"target": "terms"}, {"against": "runner-up"}):
        with pytest.raises(ExplanationError, match="needs the policy"):
            nobody.explain(one, **ask)
    with pytest.raises(PlanError, match="layers"):
        made.explain(one, against=Plan((replace(one.plan.replicas[0], segments=(Segment(0, 0, 3),)),)))
    only = replace(gpu("A100-80"), peak_flops={FP32: gpu("A100-80").peak_flops[FP32]})
    fixed = replace(BERT, microbatches=(32, 32, 32, 32))
    lonely = placed(other(single(fixed), FP32, kind=fixed), fixed, of_gpus(only))
    with pytest.raises(ExplanationError, match="no other way to run it"):
        alone(lonely).explain(lonely)
