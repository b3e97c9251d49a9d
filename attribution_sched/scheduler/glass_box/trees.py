"""The glass-box twin: four decision trees in the place of both agents' learnt numbers, each readable on half a page.

    layout  lower agent: what 2^j devices of a domain are worth to a task     → domain and number of devices
    wait    upper agent: above 0 where a task had better wait for a release   → go now or wait
    task    upper agent: what speaks for a task                               → the highest of those that do not wait
    move    upper agent: above 0 where a running task is planned anew         → move or keep

A tree reads hours, numbers of devices and ratios (:data:`HEADS`), all of which a person can look up, and says what the
agents would say there, in their units; see :mod:`~attribution_sched.scheduler.glass_box.tree_distil`. They are weighed
in the same compiled days, forks and explanations as the numbers they stand for. Reward weights are no input of theirs:
those reach the search that settles a plan, not the trees.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from attribution_sched.errors import CheckpointError, problem
from attribution_sched.kernels import by_reference, kernel
from attribution_sched.scheduler.hi_ppo.action_masks import log2_floor
from attribution_sched.scheduler.hi_ppo.lower_agent import step_s
from attribution_sched.scheduler.hi_ppo.moment import NEVER_H, end_after_release, fastest_s, write_moment
from attribution_sched.storage import read, write
from attribution_sched.types import ATTRIBUTION_SCHEMA, FloatArray, IntArray

if TYPE_CHECKING:
    from attribution_sched.scheduler.hi_ppo.upper_agent import Agents, Said, Seen

LAYOUT: tuple[str, ...] = (
    "devices", "slower_than_fastest", "half_takes", "double_saves", "utilisation", "others_waiting", "hours",
    "free_share", "queue_hours", "running", "next_release_h", "left_share", "room_share", "released_before_end",
    "baseline_time", "device_share",
)  # fmt: skip
"""Of one domain and number of devices: time of a step over the fastest on offer, over that of half as many devices, and
of twice as many over it; what is left of the domain; time of a step over the baseline's."""

WAIT: tuple[str, ...] = (
    "hours_now", "sooner_if_waiting", "next_release_h", "others_waiting", "slowed", "free_share", "running",
    "large_waiting",
)  # fmt: skip
"""Of a task on the layout that is best now: share of its hours that waiting would save; time of a step over that in an
empty domain; models that no domain holds and that wait for room."""

TASK: tuple[str, ...] = (
    "hours", "baseline_hours", "hours_now", "devices", "slowed", "waited_h", "fills_domain", "pace", "device_share",
    "spans", "others_waiting", "free_share",
)  # fmt: skip
"""Of a task: hours in an empty domain as believed, on the baseline and on the layout that is best now."""

MOVE: tuple[str, ...] = (
    "faster_elsewhere", "hours_left", "others_waiting", "held_share", "spans", "free_share", "devices_held",
    "fewer_slower",
)  # fmt: skip
"""Of a running task: time of its step over the fastest on offer; that of the best on half its devices over its own."""

HEADS: Mapping[str, tuple[str, ...]] = {"layout": LAYOUT, "wait": WAIT, "task": TASK, "move": MOVE}
"""What each tree reads, by the tree's name, in the order in which trees are kept."""

H_LAYOUT, H_WAIT, H_TASK, H_MOVE = range(len(HEADS))

WIDEST = max(map(len, HEADS.values()))

LEAVES = 40
"""Of a tree at most."""

MUCH = 99.0
"""Ratio that stands for *cannot*."""

SLOWER, LATER = 1e-6, 1e-9
"""Between layouts of one leaf the faster is taken, between tasks of one leaf the shorter."""

KIND, _USUAL = "hi-ppo-tree", "usual."
SHIPPED = Path(__file__).with_name("trees.safetensors")
"""The trees that come with the package."""


@by_reference
class Trees(NamedTuple):
    """Trees in one row of nodes, as kernels read them.

    Attributes:
        roots: Root of each head's tree in the order of :data:`HEADS`; empty for no trees.
        feature: What a node compares, by its place in the head's inputs; −1 at a leaf.
        threshold: A row goes left where it is at most this.
        left: Left child, behind its parent.
        right: Right child, behind its parent.
        value: What is said at a node; at an inner one, the mean over what came there.
        cover: Lessons that came through a node.
    """

    roots: IntArray
    feature: IntArray
    threshold: FloatArray
    left: IntArray
    right: IntArray
    value: FloatArray
    cover: FloatArray


_DTYPES = {name: np.float64 if name in ("threshold", "value", "cover") else np.int64 for name in Trees._fields}
_EMPTY: dict[str, Any] = {name: np.zeros(0, dtype=dtype) for name, dtype in _DTYPES.items()}
NO_TREES = Trees(**_EMPTY)
"""For agents that decide by their numbers."""


@kernel
def tree_value(t: Trees, head: int, x: FloatArray) -> float:
    """What a head's tree says of its inputs."""
    node = t.roots[head]
    while t.feature[node] >= 0:
        node = t.left[node] if x[t.feature[node]] <= t.threshold[node] else t.right[node]
    return float(t.value[node])


@kernel
def layout_inputs(
    a: Agents, s: Seen, q: int, k: int, j: int, fastest: float, hours: float, z: FloatArray, x: FloatArray
) -> float:
    """Write what the layout tree reads of 2^j devices in a domain; returns the seconds of a step, infinite if none."""
    kind, c, room = s.kind[q], a.domain_class[k], log2_floor(s.free[k])
    seconds = step_s(a.table, kind, c, j, s.factors[q])
    if not np.isfinite(seconds):
        return np.inf
    x[0], x[1] = 2.0**j, seconds / fastest
    x[2] = min(MUCH, step_s(a.table, kind, c, j - 1, s.factors[q]) / seconds) if j > 0 else MUCH
    x[3] = 1.0
    if j < room and j + 1 < a.table.seconds.shape[2]:
        twice = step_s(a.table, kind, c, j + 1, s.factors[q])
        x[3] = seconds / twice if np.isfinite(twice) else 1.0
    x[4], x[5], x[6] = a.table.use[kind, c, j], max(0.0, s.moment[0] - 1.0), hours
    x[7], x[8], x[9], x[10] = z[1] / z[0], max(0.0, z[4] - hours), s.moment[3], z[2]
    x[11], x[12] = (s.free[k] - 2.0**j) / a.devices[k], 2.0**room / a.devices[k]
    x[13] = 1.0 if s.release_h[k] < hours else 0.0
    x[14], x[15] = seconds / a.base_s[kind], 2.0**j / z[0]
    return float(seconds)


@kernel
def wait_inputs(a: Agents, s: Seen, q: int, seconds: float, z: FloatArray, x: FloatArray) -> bool:
    """Write what the tree of waiting reads of a task whose best step now takes so long; False if nothing is released.

    Waiting is for the release that lets it end first, as the agents see it.
    """
    kind = s.kind[q]
    now_h = s.left[q] * seconds / 3600.0
    later_h, release_h = end_after_release(a, s, q)
    x[0], x[1], x[2] = now_h, max(-2.0, min(1.0, (now_h - later_h) / (now_h + 1e-6))), release_h
    x[3], x[4] = s.moment[0], seconds / (a.nominal_s[kind] * np.exp(s.pace[q]))
    x[5], x[6], x[7] = z[1] / z[0], s.moment[3], z[3]
    return bool(release_h < NEVER_H)


@kernel
def task_inputs(a: Agents, s: Seen, q: int, k: int, j: int, seconds: float, z: FloatArray, x: FloatArray) -> None:
    """Write what the tree of tasks reads; ``k`` is −1 where no single domain holds the task now."""
    kind = s.kind[q]
    pace = np.exp(s.pace[q])
    hours = s.left[q] * a.nominal_s[kind] * pace / 3600.0
    x[0], x[1] = hours, s.left[q] * a.base_s[kind] / 3600.0
    x[2], x[3], x[4], x[6], x[8] = hours, 0.0, 1.0, 0.0, 0.0
    if k >= 0:
        x[2], x[3], x[4] = s.left[q] * seconds / 3600.0, 2.0**j, seconds / (a.nominal_s[kind] * pace)
        x[6], x[8] = 1.0 if s.free[k] == 2.0**j else 0.0, 2.0**j / z[0]
    x[5], x[7] = s.waited_s[q] / 3600.0, pace
    x[9], x[10], x[11] = 1.0 if a.nominal_s[kind] == a.base_s[kind] else 0.0, s.moment[0], z[1] / z[0]


@kernel
def move_inputs(a: Agents, s: Seen, z: FloatArray, x: FloatArray) -> None:
    """Write what the tree of moves reads of the running task, candidate 0."""
    kind, own_s, held = s.kind[0], s.moment[4], s.moment[5]
    fewer = np.inf
    for k in range(s.free.size):
        if s.free[k] > 0:
            for j in range(min(log2_floor(s.free[k]), a.table.seconds.shape[2] - 1) + 1):
                if 2.0**j <= 0.5 * held:
                    fewer = min(fewer, step_s(a.table, kind, a.domain_class[k], j, s.factors[0]))
    x[0] = max(0.1, min(10.0, own_s / fastest_s(a, s, 0)))
    x[1], x[2], x[3] = s.left[0] * own_s / 3600.0, s.moment[0], held / z[0]
    x[4], x[5], x[6] = 1.0 if a.nominal_s[kind] == a.base_s[kind] else 0.0, z[1] / z[0], held
    x[7] = min(MUCH, fewer / own_s)


@kernel
def _place_by_tree(a: Agents, s: Seen, q: int, hours: float, out: Said) -> None:
    """Find domain and devices of a candidate."""
    out.domain[q], out.size[q] = -1, 0
    most, fastest = -np.inf, fastest_s(a, s, q)
    for k in range(s.free.size):
        for j in range(out.layout.shape[2]):
            out.layout[q, k, j] = -np.inf
        if s.free[k] <= 0:
            continue
        for j in range(min(log2_floor(s.free[k]), a.table.seconds.shape[2] - 1) + 1):
            seconds = layout_inputs(a, s, q, k, j, fastest, hours, out.z, out.x)
            if not np.isfinite(seconds):
                continue
            score = tree_value(a.trees, H_LAYOUT, out.x) - SLOWER * seconds / fastest
            out.layout[q, k, j] = score
            if score > most:
                most = score
                out.domain[q], out.size[q] = k, j
                out.best[0], out.best[1], out.best[2] = score, seconds, 2.0**j


@kernel
def weigh_by_trees(a: Agents, s: Seen, candidates: int, running: bool, out: Said) -> int:
    """As :func:`~attribution_sched.scheduler.hi_ppo.upper_agent.weigh` does, by the trees."""
    write_moment(a, s, candidates, running, out.z)
    out.move[0] = -1.0
    if running:
        out.score[0], out.patience[0], out.domain[0] = -np.inf, -1.0, -1
        if not s.fits[0]:
            return -1
        move_inputs(a, s, out.z, out.x)
        out.move[0] = tree_value(a.trees, H_MOVE, out.x)
        _place_by_tree(a, s, 0, s.left[0] * s.moment[4] / 3600.0, out)
        return 0 if out.move[0] > 0.0 else -1
    chosen, most = -1, -np.inf
    for q in range(candidates):
        out.score[q], out.patience[q], out.domain[q] = -np.inf, -1.0, -1
        if s.kind[q] < 0 or not s.fits[q]:
            continue
        kind = s.kind[q]
        hours = s.left[q] * a.nominal_s[kind] * np.exp(s.pace[q]) / 3600.0
        _place_by_tree(a, s, q, hours, out)
        k, j = out.domain[q], out.size[q]
        if k < 0 and a.nominal_s[kind] != a.base_s[kind]:
            # It only needs to wait for room in one domain.
            continue
        seconds = out.best[1] if k >= 0 else a.base_s[kind]
        if k >= 0 and wait_inputs(a, s, q, seconds, out.z, out.x):
            out.patience[q] = tree_value(a.trees, H_WAIT, out.x)
        task_inputs(a, s, q, k, j, seconds, out.z, out.x)
        out.score[q] = tree_value(a.trees, H_TASK, out.x) - LATER * hours
        if out.patience[q] <= 0.0 and out.score[q] > most:
            chosen, most = q, out.score[q]
    return chosen


@kernel
def write_inputs(
    a: Agents, s: Seen, out: Said, candidates: int, running: bool, layout: FloatArray, said_layout: FloatArray,
    wait: FloatArray, said_wait: FloatArray, task: FloatArray, said_task: FloatArray, move: FloatArray,
) -> tuple[int, int, int, bool]:  # fmt: skip
    """Write what each head's tree would read of a decision that the agents have weighed, and what they say.

    Returns:
        Rows of the layout, the wait and the task head, and whether ``move`` was written.
    """
    write_moment(a, s, candidates, running, out.z)
    n_layout, n_wait, n_task = 0, 0, 0
    for q in range(candidates):
        if s.kind[q] < 0 or not s.fits[q]:
            continue
        kind, k, j = s.kind[q], out.domain[q], out.size[q]
        hours = s.left[q] * a.nominal_s[kind] * np.exp(s.pace[q]) / 3600.0
        if running:
            hours = s.left[q] * s.moment[4] / 3600.0
        best_s = a.base_s[kind]
        if k >= 0:
            fastest, most = fastest_s(a, s, q), out.layout[q, k, j]
            for each in range(s.free.size):
                for size in range(out.layout.shape[2]):
                    if np.isfinite(out.layout[q, each, size]):
                        x = layout[n_layout]
                        seconds = layout_inputs(a, s, q, each, size, fastest, hours, out.z, x)
                        said_layout[n_layout] = out.layout[q, each, size] - most
                        n_layout += 1
                        if each == k and size == j:
                            best_s = seconds
        if running:
            continue
        if k >= 0 and wait_inputs(a, s, q, best_s, out.z, wait[n_wait]):
            said_wait[n_wait] = out.patience[q]
            n_wait += 1
        if np.isfinite(out.score[q]):
            task_inputs(a, s, q, k, j, best_s, out.z, task[n_task])
            said_task[n_task] = out.score[q]
            n_task += 1
    if running and s.fits[0]:
        move_inputs(a, s, out.z, move)
    return n_layout, n_wait, n_task, bool(running and s.fits[0])


def joined(grown: Mapping[str, Mapping[str, Any]]) -> Trees:
    """One row of nodes of trees by their heads; each as the arrays of a grown scikit-learn tree.

    Args:
        grown: Head → ``feature``, ``threshold``, ``left``, ``right``, ``value`` and ``cover``, children by their place.
    """
    roots, parts, begin = [], [], 0
    for head in HEADS:
        one = {name: np.asarray(grown[head][name]) for name in Trees._fields if name != "roots"}
        leaf = one["feature"] < 0
        here = np.arange(len(leaf))
        for side in ("left", "right"):
            one[side] = np.where(leaf, here, one[side]) + begin
        one["feature"] = np.where(leaf, -1, one["feature"])
        one["threshold"] = np.where(leaf, 0.0, one["threshold"])
        roots.append(begin)
        parts.append(one)
        begin += len(leaf)
    made = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    nodes: dict[str, Any] = {
        name: np.ascontiguousarray(made.get(name, roots), dtype=_DTYPES[name]) for name in Trees._fields
    }
    return Trees(**nodes)


def checked(trees: Trees) -> Trees:
    """Trees that no row can lead outside of, or round in circles.

    Raises:
        CheckpointError: If they are not.
    """
    n, here = len(trees.feature), np.arange(len(trees.feature))
    sound = trees.roots.shape == (len(HEADS),) and n > 0 and {len(each) for each in trees[1:]} == {n}
    sound = sound and bool(trees.roots[0] == 0 and (np.diff([*trees.roots, n]) > 0).all())
    if sound:
        owner = np.searchsorted(trees.roots, here, side="right") - 1
        widths, ends = np.array([len(names) for names in HEADS.values()]), np.append(trees.roots[1:], n)
        leaf = trees.feature < 0
        sound = bool((trees.feature < widths[owner]).all() and (trees.feature >= -1).all())
        for child in (trees.left, trees.right):
            # Children stand behind their parent, so every way down ends, and inside their own tree.
            sound = sound and bool(((child > here) | leaf).all() and (child < ends[owner]).all())
        sound = sound and all((leaf & (owner == head)).sum() <= LEAVES for head in range(len(HEADS)))
    if not sound:
        rule = f"must be {len(HEADS)} trees of at most {LEAVES} leaves whose nodes lead on to nodes of their own"
        raise CheckpointError(problem("trees", n, rule, "Use an untouched copy, or distil again"))
    return trees


@dataclass(frozen=True, eq=False)
class Distilled:
    """Trees, and what they are usually asked.

    Attributes:
        trees: The trees.
        usual: Head → inputs ``(n, inputs)`` drawn from the lessons: what a reading of a tree compares with.
    """

    trees: Trees
    usual: Mapping[str, FloatArray]


def save(path: str | Path, distilled: Distilled, about: Mapping[str, Any]) -> None:
    """Write trees, complete or not at all.

    Args:
        path: Target, ``*.safetensors``.
        distilled: What to write.
        about: How they were made, ready for JSON.
    """
    header = {"features": {head: list(names) for head, names in HEADS.items()}, "about": dict(about)}
    arrays = checked(distilled.trees)._asdict() | {_USUAL + head: rows for head, rows in distilled.usual.items()}
    write(path, KIND, header, arrays, attribution_schema=ATTRIBUTION_SCHEMA)


def load(path: str | Path = SHIPPED) -> Distilled:
    """Read trees back; nothing of a file is executed.

    Raises:
        CheckpointError: If the file is missing, changed, made for other inputs, or holds no sound trees.
    """
    header, arrays = read(path, KIND, attribution_schema=ATTRIBUTION_SCHEMA)
    if header.get("features") != {head: list(names) for head, names in HEADS.items()}:
        rule = "was made for other inputs than this release has"
        raise CheckpointError(problem("checkpoint features", str(path), rule, "Distil again with this release"))
    usual = {head: arrays.pop(_USUAL + head, np.zeros(0)) for head in HEADS}
    shapes = all(rows.ndim == 2 and len(rows) and rows.shape[1] == len(HEADS[head]) for head, rows in usual.items())
    if {name: array.dtype for name, array in arrays.items()} != _DTYPES or not shapes:
        rule = f"must hold {', '.join(Trees._fields)} and usual inputs of every head"
        raise CheckpointError(problem("checkpoint trees", sorted(arrays), rule, "Distil again with this release"))
    return Distilled(checked(Trees(**arrays)), usual)


def describe(path: str | Path = SHIPPED) -> dict[str, Any]:
    """How the trees of a file were made, as given to :func:`save`."""
    header, _ = read(path, KIND, attribution_schema=ATTRIBUTION_SCHEMA)
    about: dict[str, Any] = header["about"]
    return about


@dataclass(frozen=True)
class Step:
    """One comparison on the way down a tree: ``value`` of ``input`` was at most ``threshold``, or above it."""

    input: str
    value: float
    threshold: float

    @property
    def below(self) -> bool:
        """Whether it went left."""
        return self.value <= self.threshold

    def __str__(self) -> str:
        return f"{self.input} {self.value:.4g} {'≤' if self.below else '>'} {self.threshold:.4g}"


def path_of(trees: Trees, head: str, x: FloatArray) -> tuple[tuple[Step, ...], float]:
    """How a head's tree comes to what it says of inputs ``(len(HEADS[head]),)``, and what that is."""
    names, node = HEADS[head], int(trees.roots[list(HEADS).index(head)])
    steps = []
    while trees.feature[node] >= 0:
        at = int(trees.feature[node])
        steps.append(Step(names[at], float(x[at]), float(trees.threshold[node])))
        node = int((trees.left if steps[-1].below else trees.right)[node])
    return tuple(steps), float(trees.value[node])


VERDICTS = {"wait": ("go now", "wait"), "move": ("keep", "move")}
"""What is done where a tree says at most 0, and where more."""


def _said_below(trees: Trees, node: int) -> list[float]:
    """What the leaves of a branch say."""
    if trees.feature[node] < 0:
        return [float(trees.value[node])]
    return _said_below(trees, int(trees.left[node])) + _said_below(trees, int(trees.right[node]))


def text_of(trees: Trees, head: str) -> str:
    """A head's tree as a person reads it: one line a node, what is said at the leaves and by how many lessons.

    Where only the sign decides (``wait``, ``move``), branches whose leaves all have one are told as one.
    """
    names, lines, verdicts = HEADS[head], list[str](), VERDICTS.get(head)
    total = float(trees.cover[trees.roots[list(HEADS).index(head)]])

    def tell(node: int, depth: int, lead: str) -> None:
        indent, share = "│  " * depth, f"({trees.cover[node] / total:.1%})"
        if verdicts is not None:
            signs = {bool(value > 0.0) for value in _said_below(trees, node)}
            if len(signs) == 1:
                lines.append(f"{indent}{lead}→ {verdicts[signs.pop()]}  {share}")
                return
        if trees.feature[node] < 0:
            lines.append(f"{indent}{lead}→ {trees.value[node]:+.3f}  {share}")
            return
        name, limit = names[trees.feature[node]], trees.threshold[node]
        if lead:
            lines.append(f"{indent}{lead.rstrip()}")
            depth += 1
        tell(int(trees.left[node]), depth, f"{name} ≤ {limit:.4g} ")
        tell(int(trees.right[node]), depth, f"{name} > {limit:.4g} ")

    tell(int(trees.roots[list(HEADS).index(head)]), 0, "")
    return "\n".join(lines)


def leaves_of(trees: Trees, head: str) -> int:
    """Leaves of a head's tree."""
    return int((nodes_of(trees, head)["feature"] < 0).sum())


def nodes_of(trees: Trees, head: str) -> dict[str, Any]:
    """A head's tree by itself: arrays of its nodes, children by their place, the root at 0."""
    at = list(HEADS).index(head)
    begin, end = int(trees.roots[at]), int([*trees.roots, len(trees.feature)][at + 1])
    own = {name: getattr(trees, name)[begin:end] for name in Trees._fields if name != "roots"}
    return own | {side: own[side] - begin for side in ("left", "right")}
