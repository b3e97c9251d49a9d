"""The two processes beside the one that serves: they follow, answer, and end with it."""

import asyncio

import pytest

from attribution_sched import System
from attribution_sched.serve import source
from attribution_sched.serve.source import Busy, Workers
from tests.small_world import small


async def until(condition, seconds=90.0):
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.05)


def test_they_follow_answer_and_end(tmp_path):
    path = tmp_path / "j.sqlite"
    system = System(small(), "sjf", journal=path, seed=1)
    system.schedule_next_task()

    async def watched():
        workers = Workers(path)
        await workers.start()
        await until(lambda: workers.view)
        assert workers.view["decisions_total"] == system.journal.count()
        version = workers.version
        for _ in range(5):
            system.schedule_next_task()
        await until(lambda: workers.view["decisions_total"] == system.journal.count())
        assert workers.version > version
        told = await workers.ask({"kind": "why", "task": "nobody", "lang": "en"})
        assert "does not wait here" in told["error"]
        processes = [workers._following, workers._answering]
        await workers.stop()
        assert all(each.returncode == 0 for each in processes)
        assert workers.stale

    asyncio.run(watched())
    system.close()


def test_a_journal_that_cannot_be_read_is_told(tmp_path):
    (tmp_path / "j.sqlite").write_text("not a journal")

    async def watched():
        workers = Workers(tmp_path / "j.sqlite")
        await workers.start()
        await until(lambda: workers.stale)
        await workers.stop()
        return workers.stale

    assert "j.sqlite" in asyncio.run(watched())


class Slow(Workers):
    """Never answers."""

    async def _asked(self, question):
        await asyncio.sleep(3600)


def test_questions_in_line_are_bounded_in_number_and_time(tmp_path, monkeypatch):
    monkeypatch.setattr(source, "ANSWER_S", 0.05)

    async def asked():
        slow = Slow(tmp_path / "j.sqlite")
        found = await asyncio.gather(*(slow.ask({}) for _ in range(10)), return_exceptions=True)
        assert all(isinstance(each, Busy) for each in found)
        assert sum("are waiting already" in str(each) for each in found) == 10 - source.IN_LINE
        with pytest.raises(Busy, match="no answer within"):
            await slow.ask({})

    asyncio.run(asked())
