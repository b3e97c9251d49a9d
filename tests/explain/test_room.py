"""Room for a task: the table says what asking anew for every constellation of free devices says."""

from dataclasses import replace

import numpy as np

from attribution_sched.explain import room
from attribution_sched.explain.room import RoomTable, fits_at_all

from .policies import views


def test_the_table_says_what_asking_says_and_asks_each_domain_once_a_number(monkeypatch):
    view = next(one for one in views() if not one.replanning)
    whole = np.asarray(view.cost.domains.rows.devices)
    rng, asked, inside = np.random.default_rng(2), [], room.best_inside
    state = from_views(view, [rng.integers(0, whole + 1) for _ in range(60)])
    wanted = [fits_at_all(replace(view, free_devices=row)) for row in state.free]

    def counting(there, domain, **options):
        asked.append((domain, int(there.free_devices[domain])))
        return inside(there, domain, **options)

    monkeypatch.setattr(room, "best_inside", counting)
    assert RoomTable(view)(state).tolist() == wanted and 0 < sum(wanted) < len(wanted)
    assert len(asked) == len(set(asked))


def from_views(view, rows):
    from attribution_sched.cluster.decision import from_view

    from .policies import attributor

    seen = from_view(view, attributor).take(np.zeros(len(rows), dtype=np.int64))
    seen.free[:] = rows
    return seen
