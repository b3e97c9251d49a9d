"""A journal of a small run, a source in this process, and the application over both."""

import pytest
from starlette.testclient import TestClient

from attribution_sched import System
from attribution_sched.serve.app import make_app
from attribution_sched.serve.follow import Following
from attribution_sched.serve.questions import JournalQuestions
from tests.small_world import small

HOSTILE = "</script><img src=x onerror=alert(1)>'\"&{{7*7}}\u202e"


class Inline:
    """A source without processes: it looks when it is asked."""

    def __init__(self, path):
        self.following, self.questions, self.version, self.stale = Following(path), JournalQuestions(path), 0, ""
        self.renew()

    def renew(self):
        if self.following.look() is not None:
            self.following.estimate_starts()
            self.version += 1

    async def start(self):
        pass

    async def stop(self):
        self.following.close()
        self.questions.close()

    @property
    def view(self):
        return self.following.view()

    async def ask(self, question):
        return self.questions.ask(dict(question))


@pytest.fixture(scope="session")
def written(tmp_path_factory):
    """A journal with tasks that run and wait, one of them with a hostile tenant, and an explanation."""
    path = tmp_path_factory.mktemp("served") / "run.sqlite"
    crowded = small(arrivals={"kind": "poisson", "rate_per_hour": 900.0})
    with System(crowded, "sjf", journal=path, seed=1, targets={"utilisation_at_least": 0.5}) as system:
        results = [system.schedule_next_task() for _ in range(15)]
        system.submit("bert-base", steps=400, id="by-hand", tenant="R&D <b>", devices=4)
        system.explain(results[0])
    return path


@pytest.fixture
def client(written):
    with TestClient(make_app(Inline(written), written), base_url="http://localhost") as made:
        yield made
