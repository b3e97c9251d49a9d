"""What fits in one domain: options against the rule book, equal hardware, stages against the cost model."""

import ast
from dataclasses import replace
from pathlib import Path

import numpy as np

import attribution_sched
from attribution_sched.cluster.cost import CostModel, gradient_reduce_s, stage_cost
from attribution_sched.cluster.plan import (
    DOMAIN,
    DP,
    MAX_PP,
    MICROBATCH,
    MICROBATCHES,
    PRECISION,
    SEGMENT_FIELDS,
    STOP,
    layout_table,
    layouts_within,
)
from attribution_sched.cluster.validity import VALID, limits_of, validity
from attribution_sched.planning import segment_table as table
from tests.cluster.engine_worlds import tiny_cluster

from .test_domain_orders import instance_of, mixed_cluster

ROOT = Path(attribution_sched.__file__).parent


def test_options_are_all_layouts_in_all_formats_that_a_microbatch_allows():
    found = table.options(16, 4, (1, 2), 3, (6, 12))
    assert {tuple(row) for row in found.tolist()} == {
        (dp, tp, pp, q)
        for dp in (1, 2, 4) for tp in (1, 2, 4) for pp in (1, 2) for q in (1, 2)
        if dp * tp * pp <= 16
    }  # fmt: skip
    assert table.options(0, 4, (1,), 3).shape == (0, 4)
    assert (table.options(64, 8, (0,), 64)[:, table.O_PP] <= MAX_PP).all()


def test_the_engine_offers_the_layouts_of_its_largest_domain():
    cluster = mixed_cluster()
    largest, node = max(d.devices for d in cluster.domains), max(d.node_devices for d in cluster.domains)
    assert [tuple(row[:3]) for row in layout_table(cluster, sharing=False).tolist()] == list(
        layouts_within(largest, node)
    )
    twice = layout_table(cluster, sharing=True)
    assert len(twice) == 2 * len(layouts_within(largest, node)) and set(twice[:, 3].tolist()) == {0, 1}


def test_an_option_is_usable_exactly_where_the_rule_book_says_so():
    instance = instance_of(cluster=mixed_cluster())
    cost, free = instance.cost, instance.free_devices
    options = table.options(int(free.max()), 8, range(4), instance.n_layers)
    usable = table.usable_options(cost, free, options)
    limits = limits_of(cost, instance.model, free)._replace(trained=False)
    for domain in range(len(free)):
        rows = np.zeros((len(options), 1, len(SEGMENT_FIELDS)), dtype=np.int64)
        rows[:, 0, DOMAIN], rows[:, 0, STOP] = domain, instance.n_layers
        rows[:, 0, DP : PRECISION + 1] = options
        rows[:, 0, MICROBATCH], rows[:, 0, MICROBATCHES] = 64, 1
        valid = validity(limits, rows, np.ones(len(rows), dtype=np.int64)) == VALID
        assert np.array_equal(usable[domain], valid)
    assert usable.any() and not usable.all()


def test_domains_are_alike_by_hardware_and_by_what_else_is_asked():
    cost = CostModel(tiny_cluster(), instance_of().cost.models)
    classes, first = table.hardware_classes(cost)
    assert classes.tolist() == [0] * len(classes) and first.tolist() == [0]
    apart, _ = table.hardware_classes(cost, table.NOT_HARDWARE, np.arange(len(classes)))
    assert len(set(apart.tolist())) == len(classes)
    mixed, first = table.hardware_classes(instance_of(cluster=mixed_cluster()).cost)
    assert len(first) > 1 and (mixed[first] == np.arange(len(first))).all()


def test_a_stage_takes_what_the_cost_model_says():
    cost = instance_of().cost
    arrays = (cost.domains, cost.runtime, cost.power_law, cost.tables, cost.workload(0))
    out = np.full(len(table.STAGE_COLUMNS), np.nan)
    table.write_stage(*arrays, 0, 1, 5, 2, 2, 2, 8, 4, out)
    stage = stage_cost(*arrays, 0, 1, 5, 2, 2, 2, 0, 8, 1.0)
    assert stage.reduce_s > 0.0
    again = 2.0 if cost.runtime.recompute else 1.0
    reduce_s = gradient_reduce_s(cost.domains, cost.runtime, cost.tables, 0, 0, 1, 5, 2, 2, 2, 4)
    assert out[table.FORWARD_S] == stage.forward_s + stage.reduce_s
    assert out[table.BACKWARD_S] == stage.backward_s + again * stage.reduce_s
    assert out[table.END_S] == stage.update_s + reduce_s > 0.0
    assert (out[table.FIXED_BYTES], out[table.HELD_BYTES]) == (stage.fixed_bytes, stage.held_bytes)
    assert out[table.STAGE_BUSY_S] == stage.forward_s + stage.backward_s


def test_twins_have_the_same_hardware_and_as_many_free_devices():
    instance = instance_of()
    assert len(set(table.twins(instance).tolist())) == 1 and table.first_twins(instance) == [0]
    fewer = replace(instance, free_devices=np.array([4, 2, 4]))
    assert table.first_twins(fewer) == [0, 1]


def test_the_most_stages_are_said_once():
    said = [
        path.relative_to(ROOT).as_posix()
        for path in ROOT.rglob("*.py")
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "MAX_PP" for t in node.targets)
    ]
    assert said == ["cluster/plan.py"]
