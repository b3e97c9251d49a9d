"""The arena: every policy plays the same held-out episodes of the same worlds, and is compared pair by pair.

Episode i of an evaluation with seed s has the seed ``1,000,000 + 10,000·s + i``. Seeds below a million are for
training, so whatever a policy learnt from, it has not met these arrivals and this network.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from attribution_sched.cluster.decision import view
from attribution_sched.cluster.engine.engine import Engine
from attribution_sched.cluster.world import World
from attribution_sched.errors import PolicyError, SettingsError, nearest, problem
from attribution_sched.executors.workers import check_workers, spread
from attribution_sched.limits import check_name
from attribution_sched.rivals.arena.records import EpisodeRecord, EpisodeStore, Key, fingerprint
from attribution_sched.rivals.arena.report import ArenaResult, summarise
from attribution_sched.scheduler.episode import play
from attribution_sched.scheduler.policy import Episodic, Policy, QueueOrder
from attribution_sched.scheduler.registry import LIMIT, policy_spec
from attribution_sched.stats.bootstrap import RESAMPLES

HELD_OUT_SEED = 1_000_000
"""Seeds from here on are never trained on."""

MOST_EPISODES = 10_000
"""Episodes of one evaluation; seeds of different evaluations do not meet."""

Tick = Callable[[float, int, str], None]
"""Called with episodes played so far (the present one in part), episodes in all, and what is being played."""


@dataclass(frozen=True)
class Job:
    """An episode to play.

    Attributes:
        scenario: Name of the world.
        policy: Name of the policy.
        seed: Seed of the episode.
        fingerprint: What its record will carry.
    """

    scenario: str
    policy: str
    seed: int
    fingerprint: str


def held_out_seeds(episodes: int, seed: int = 0) -> tuple[int, ...]:
    """Seeds of the episodes of an evaluation; more episodes only add seeds at the end.

    Raises:
        SettingsError: If either number is out of range.
    """
    if not 1 <= episodes <= MOST_EPISODES:
        fix = "Intervals want 20 or more"
        raise SettingsError(problem("episodes", episodes, f"must lie in 1..{MOST_EPISODES}", fix))
    if seed < 0:
        raise SettingsError(problem("seed", seed, "must be >= 0", "Use 0"))
    first = HELD_OUT_SEED + MOST_EPISODES * seed
    return tuple(range(first, first + episodes))


def evaluate(
    policies: Sequence[str | Policy],
    worlds: World | Mapping[str, World],
    episodes: int,
    seed: int = 0,
    *,
    limit: str | None = None,
    bounds: Mapping[str, Sequence[float]] | None = None,
    folder: Path | None = None,
    replay: bool = False,
    workers: int | str = 1,
    resamples: int = RESAMPLES,
    tick: Tick | None = None,
) -> ArenaResult:
    """Play every policy through the same episodes of every world.

    Args:
        policies: Names of the registry, or policies themselves.
        worlds: A world, or scenarios by name.
        episodes: Episodes per policy and scenario.
        seed: Picks the held-out episodes and the bootstrap resamples.
        limit: Policy that stands for the limit; ``exact-resolve`` if it plays by default.
        bounds: Scenario → highest possible return of each episode, in place of a limit policy.
        folder: Where played episodes are kept and found again; nothing is kept by default.
        replay: Play episodes again that the folder has from other settings or code, instead of raising.
        workers: Processes that play side by side; decision latencies are cleanest with one. ``ray``, or the address of
            a Ray cluster, lets its workers play. Policies that are handed over, not named, must be picklable then.
        resamples: Bootstrap resamples.
        tick: Told how far it has come.

    Raises:
        SettingsError: If there is nothing to play, a name is unknown or given twice, or a number is out of range.
        PolicyError: If a policy raises, or returns a plan that cannot be written as an action; episodes played
            so far stay in the folder. A plan that the cluster refuses is counted instead.
        CheckpointError: If the folder holds damaged episodes or such of other settings or code.
    """
    named = {"world": worlds} if isinstance(worlds, World) else dict(worlds)
    players = _players(policies)
    seeds = held_out_seeds(episodes, seed)
    _check(named, players, limit, bounds, episodes)
    who = check_workers(workers)
    jobs = [
        Job(scenario, name, one, digest)
        for scenario, world in named.items()
        for digests in [{name: fingerprint(world, make()) for name, make in players.items()}]
        for one in seeds
        for name, digest in digests.items()
    ]
    found: dict[Key, EpisodeRecord] = {}
    store = None
    if folder is not None:
        store = EpisodeStore(folder)
        found = store.load({(job.scenario, job.policy, job.seed): job.fingerprint for job in jobs}, replay=replay)
    todo = [job for job in jobs if (job.scenario, job.policy, job.seed) not in found]
    counted = _Counter(len(jobs), len(found), tick)
    played: Iterator[EpisodeRecord]
    if todo and (isinstance(who, str) or (who > 1 and len(todo) > 1)):
        # An episode depends on its seed alone: who plays it, and when, changes nothing but latencies.
        played = (record for _, record in spread(who, _play, (dict(named), list(policies)), todo))
    else:
        played = _in_turn(todo, named, players, counted)
    for record in played:
        found[record.key] = record
        if store is not None:
            store.append(record)
        counted.done(record)
    results = [
        summarise(
            scenario,
            {name: [found[scenario, name, one] for one in seeds] for name in players},
            seed=seed,
            limit=limit or LIMIT,
            bound=None if bounds is None else bounds.get(scenario),
            resamples=resamples,
        )
        for scenario in named
    ]
    records = tuple(found[scenario, name, one] for scenario in named for name in players for one in seeds)
    return ArenaResult(seed, seeds, resamples, tuple(results), records)


class _Counter:
    """Tells the listener how many episodes are over."""

    def __init__(self, total: int, finished: int, tick: Tick | None) -> None:
        self.total, self.finished, self.tick = total, finished, tick
        self.within(0.0, "")

    def within(self, share: float, label: str) -> None:
        if self.tick:
            self.tick(self.finished + share, self.total, label)

    def done(self, record: EpisodeRecord) -> None:
        self.finished += 1
        self.within(0.0, f"{record.scenario}, {record.policy}")


def _players(policies: Sequence[str | Policy]) -> dict[str, Callable[[], Policy]]:
    """Policy name → how to get one; a policy that was handed over is used as it is."""
    if isinstance(policies, str) or not policies:
        rule = "must be a list of at least one policy"
        raise SettingsError(problem("policies", policies, rule, "For example ['greedy', 'static-uniform']"))
    players: dict[str, Callable[[], Policy]] = {}
    for policy in policies:
        name = policy if isinstance(policy, str) else getattr(policy, "name", None)
        if not isinstance(name, str) or not (isinstance(policy, str) or callable(getattr(policy, "decide", None))):
            rule = "must be the name of a policy, or an object with a name and decide(view)"
            fix = "Wrap it in a class that has both, see docs/how_to/add_a_policy.md"
            raise SettingsError(problem("policies", policy, rule, fix))
        check_name("policies", name)
        if name in players:
            raise SettingsError(problem("policies", name, "is given twice", "Give every policy its own name"))
        players[name] = _maker(policy)
    return players


def _maker(policy: str | Policy) -> Callable[[], Policy]:
    if isinstance(policy, str):
        return policy_spec(policy).make
    return lambda: policy


def _check(
    worlds: Mapping[str, World],
    players: Mapping[str, object],
    limit: str | None,
    bounds: Mapping[str, Sequence[float]] | None,
    episodes: int,
) -> None:
    if not worlds:
        raise SettingsError(problem("worlds", {}, "must hold at least one scenario", "Add one"))
    if limit and limit not in players:
        raise SettingsError(problem("limit", limit, "is not among the policies", nearest(limit, players)))
    for scenario, bound in (bounds or {}).items():
        if scenario not in worlds:
            raise SettingsError(problem("bounds", scenario, "is not among the scenarios", nearest(scenario, worlds)))
        if len(bound) != episodes:
            rule = f"must have one number for each of the {episodes} episodes"
            raise SettingsError(problem(f"bounds[{scenario!r}]", len(bound), rule, "Bound the same episodes"))


def _in_turn(
    jobs: Sequence[Job], worlds: Mapping[str, World], players: Mapping[str, Callable[[], Policy]], counted: _Counter
) -> Iterator[EpisodeRecord]:
    table = _Table(worlds, players)
    for job in jobs:
        label = f"{job.scenario}, {job.policy}"
        yield table.play(job, lambda share, label=label: counted.within(share, label))  # type: ignore[misc]


class _Table:
    """Policies at the table of one process: each is made once per scenario, and warmed up before it is timed."""

    def __init__(self, worlds: Mapping[str, World], players: Mapping[str, Callable[[], Policy]]) -> None:
        self.worlds, self.players = worlds, players
        self.seated: dict[tuple[str, str], Policy] = {}

    def play(self, job: Job, progress: Callable[[float], None] | None = None) -> EpisodeRecord:
        world, seat = self.worlds[job.scenario], (job.scenario, job.policy)
        times_us: dict[bool, list[int]] = {True: [], False: []}

        def timer(seconds: float, planned: bool) -> None:
            times_us[planned].append(round(1e6 * seconds))

        try:
            if seat not in self.seated:
                _warm_up(world, self.players[job.policy]())
                self.seated[seat] = self.players[job.policy]()
            summary = play(world, self.seated[seat], job.seed, progress, timer)
        except Exception as error:
            given = f"{type(error).__name__}: {error}"
            rule = f"a policy must decide without raising (scenario {job.scenario!r}, seed {job.seed})"
            fix = "Mend the policy or leave it out; episodes that were played are kept"
            raise PolicyError(problem(f"policy {job.policy!r}", given, rule, fix)) from error
        return EpisodeRecord(
            job.scenario, job.policy, job.seed, job.fingerprint, summary, tuple(times_us[True]), tuple(times_us[False])
        )


def _warm_up(world: World, policy: Policy) -> None:
    """Decide once and forget it: compiling kernels and loading libraries is not decision time."""
    engine = Engine(world)
    engine.seed([0])
    engine.reset()
    seen = view(engine)
    if seen is None:
        return
    if isinstance(policy, Episodic):
        policy.reset(0)
    if isinstance(policy, QueueOrder):
        policy.select(seen)
    policy.decide(seen)


_tables: dict[str, _Table] = {}


def _play(run: str, shared: tuple[Mapping[str, World], Sequence[str | Policy]], job: Job) -> EpisodeRecord:
    """Play one episode in a worker, which keeps its worlds and policies from one to the next."""
    if run not in _tables:
        _tables.clear()
        _tables[run] = _Table(shared[0], _players(shared[1]))
    return _tables[run].play(job)
