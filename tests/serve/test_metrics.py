"""Metrics in the text format of Prometheus."""

import re

from attribution_sched.serve.follow import Following
from attribution_sched.serve.metrics import label, metrics

LINE = re.compile(r'([a-z_]+)(?:\{((?:\w+="(?:\\.|[^"\\\n])*",?)+)\})? (\S+)')


def parsed(text):
    found, kinds = {}, {}
    for line in text.splitlines():
        if line.startswith("# TYPE"):
            _, _, name, kind = line.split()
            assert name not in kinds, "a family stands twice"
            kinds[name] = kind
        elif not line.startswith("#"):
            name, labels, value = LINE.fullmatch(line).groups()
            assert name in kinds
            assert (name, labels) not in found
            found[name, labels] = float(value)
    return found, kinds


def test_everything_is_there_once_with_a_type(written):
    following = Following(written)
    view = following.look()
    found, kinds = parsed(metrics(view))
    assert found["attribution_sched_decisions_total", None] == view["decisions_total"]
    assert found["attribution_sched_free_devices", 'domain="east"'] == view["domains"][0]["free"]
    assert found["attribution_sched_tenant_energy_joules_total", 'tenant=""'] > 0.0
    assert all(name.endswith("_total") == (kind == "counter") for name, kind in kinds.items())
    following.close()


def test_labels_are_escaped():
    assert label('a"b\\c\nd') == 'a\\"b\\\\c\\nd'


def test_nothing_read_yet_is_down():
    assert parsed(metrics({}))[0] == {("attribution_sched_up", None): 0.0}
