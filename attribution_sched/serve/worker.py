"""The two processes beside the one that serves; they speak JSON, a line at a time.

    python -m attribution_sched.serve.worker follow JOURNAL      # writes a line whenever the journal has grown
    python -m attribution_sched.serve.worker answer JOURNAL      # reads a question, writes an answer

They end when their standard input does: nothing is left behind when whoever started them is killed.
"""

from __future__ import annotations

import json
import os
import select
import sys
import time
from typing import Any

from attribution_sched.errors import AttributionSchedError
from attribution_sched.serve.follow import Following
from attribution_sched.serve.questions import JournalQuestions

PAUSE_S = 0.25
"""Between two looks at the journal."""
SHARE = 0.25
"""Most of the time that may go into estimating starts, so that a busy machine keeps its breath for the scheduler."""


def tell(message: dict[str, Any]) -> None:
    """Write one line."""
    sys.stdout.write(json.dumps(message, allow_nan=False, separators=(",", ":")) + "\n")
    sys.stdout.flush()


def follow(path: str) -> None:
    """Say how the journal stands whenever it has changed."""
    following, due, stale = Following(path), 0.0, False
    while True:
        changed = following.look() is not None
        stale = stale or changed
        if changed:
            tell(following.view())
        if stale and time.monotonic() >= due:
            began = time.process_time()
            try:
                estimated = following.estimate_starts()
            except AttributionSchedError:
                estimated = False
            due, stale = time.monotonic() + (time.process_time() - began) / SHARE, False
            if estimated:
                tell(following.view())
        ready, _, _ = select.select([sys.stdin], [], [], PAUSE_S)
        if ready and not os.read(0, 4096):
            return


def answer(path: str) -> None:
    """Answer questions, one after the other."""
    questions = JournalQuestions(path)
    for line in sys.stdin:
        tell(questions.ask(json.loads(line)))
    questions.close()


def main() -> int:
    """The command."""
    what, path = sys.argv[1], sys.argv[2]
    try:
        {"follow": follow, "answer": answer}[what](path)
    except AttributionSchedError as error:
        tell({"error": str(error)})
        return 1
    except BrokenPipeError:
        pass
    return 0


if __name__ == "__main__":
    sys.exit(main())
