"""One system, many threads: every decision is taken once, and no task is placed twice."""

import threading
from concurrent.futures import ThreadPoolExecutor

from attribution_sched import System
from tests.small_world import small
from tests.system.test_system import BUSY, repeatable

THREADS, CALLS = 8, 6


def test_threads_share_the_decisions():
    system = System(small(arrivals=BUSY), "sjf", seed=4)
    start = threading.Barrier(THREADS)

    def place(number):
        start.wait()
        return [system.schedule_next_task() for _ in range(CALLS)]

    with ThreadPoolExecutor(THREADS) as pool:
        results = [result for found in pool.map(place, range(THREADS)) for result in found]
    assert len({result.id for result in results}) == THREADS * CALLS
    assert len({result.task.id for result in results}) == THREADS * CALLS
    alone = System(small(arrivals=BUSY), "sjf", seed=4)
    alone.run(THREADS * CALLS)
    assert repeatable(system).equals(repeatable(alone))


def test_threads_hand_in_and_place_at_once():
    system = System(small(), "greedy", queue="empty")
    names, results, lock = [], [], threading.Lock()
    start = threading.Barrier(4)

    def serve(number):
        start.wait()
        for _ in range(5):
            name = system.submit("bert-base", steps=100 + number)
            result = system.schedule_next_task()
            with lock:
                names.append(name)
                results.extend([] if result is None else [result.task.id])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(serve, range(4)))
    while (result := system.schedule_next_task()) is not None:
        results.append(result.task.id)
    assert sorted(results) == sorted(names)
    assert len(set(names)) == 20
