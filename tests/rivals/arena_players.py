"""Policies and worlds that the tests of the arena play with."""

from attribution_sched.cluster.models import model
from attribution_sched.cluster.plan import Plan
from attribution_sched.cluster.world import TaskKind

from ..cluster.engine_worlds import chain, single, tiny_cluster, tiny_world

HUGE = TaskKind(model("gpt3-13b"), 8, (1, 2, 4, 8), (10, 10), 10)


class Lone:
    """Every task on one device of the first domain that has one free."""

    def __init__(self, name="lone", prefer_last=False):
        self.name = name
        self.prefer_last = prefer_last
        self._played = []

    def reset(self, seed):
        self._played.append(seed)

    @property
    def played(self):
        return self._played

    def decide(self, view):
        order = range(len(view.free_devices))
        for domain in reversed(order) if self.prefer_last else order:
            if view.free_devices[domain] and not view.replanning:
                return single(view.kind, domain)
        return None


class Waiter:
    """Never places anything."""

    def __init__(self, name="static-uniform"):
        self.name = name

    def decide(self, view):
        return None


class Clumsy:
    """Proposes the same domain twice, which the cluster refuses."""

    name = "clumsy"

    def decide(self, view):
        return Plan((chain(view.kind, (0, 2), (0, -1)),)) if not view.replanning else None


class Broken:
    """Fails at the third decision."""

    name = "broken"

    def __init__(self):
        self._count = 0

    def decide(self, view):
        self._count += 1
        if self._count > 2:
            raise ZeroDivisionError("three is too many")


def small_world(**changes):
    return tiny_world(tiny_cluster(motion={"spread": 0.2}), **({"horizon_s": 1200.0} | changes))
