"""One pipeline step played out event by event with SimPy: the independent check of the recurrence.

Every stage is a process with a compute unit and a network interface, each a queue that serves one at a time::

    stage:  wait for the input → hold the compute unit → hand the result to the interface
    send:   hold the sender's interface → the message is there (receives are never queued)

Nothing here knows of max-plus algebra: waiting is what the event queue does. It is some hundred times slower
than :mod:`attribution_sched.cluster.pipeline`, which it is there to check.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import Any, Literal

import numpy as np
import simpy
from numpy.typing import ArrayLike, NDArray

from attribution_sched.cluster.pipeline import Schedule
from attribution_sched.errors import PlanError, problem

FloatArray = NDArray[np.float64]
Pass = Literal["forward", "backward"]
Process = Generator[Any, Any, None]


def one_forward_one_backward(stage: int, stages: int, microbatches: int) -> Iterator[tuple[Pass, int]]:
    """Passes of one stage under 1F1B: fill the stages behind it, alternate, drain."""
    ahead = min(stages - stage - 1, microbatches)
    for microbatch in range(ahead):
        yield "forward", microbatch
    for microbatch in range(microbatches):
        if ahead + microbatch < microbatches:
            yield "forward", ahead + microbatch
        yield "backward", microbatch


def all_forward_all_backward(microbatches: int) -> Iterator[tuple[Pass, int]]:
    """Passes of one stage under GPipe: every forward pass, then every backward pass."""
    yield from (("forward", microbatch) for microbatch in range(microbatches))
    yield from (("backward", microbatch) for microbatch in range(microbatches))


class _Stage:
    """A stage's two resources and the messages it waits for."""

    def __init__(self, env: simpy.Environment, microbatches: int) -> None:
        self.compute = simpy.Resource(env, capacity=1)
        self.interface = simpy.Resource(env, capacity=1)
        self.arrived = {
            (kind, microbatch): env.event() for kind in ("forward", "backward") for microbatch in range(microbatches)
        }  # fmt: skip
        self.finish_s = 0.0


def simulate_pipeline(
    schedule: Schedule,
    microbatches: int,
    forward_s: ArrayLike,
    backward_s: ArrayLike,
    send_forward_s: ArrayLike,
    send_backward_s: ArrayLike,
    blocking: bool = False,
) -> FloatArray:
    """Simulate one training step of a pipeline.

    Args:
        schedule: 1F1B or GPipe.
        microbatches: Number of microbatches, at least 1.
        forward_s: Forward seconds per microbatch of each of the S stages.
        backward_s: Backward seconds per microbatch of each stage.
        send_forward_s: Seconds a message over boundary i (stage i to i + 1) holds the sender's interface,
            S − 1 numbers.
        send_backward_s: Seconds a gradient over boundary i (stage i + 1 to i) holds the sender's interface,
            S − 1 numbers.
        blocking: Whether a stage waits for its own send before it computes again.

    Returns:
        When each stage was done, shape ``(S,)``; the step ends with the latest.

    Raises:
        PlanError: A count does not match or a time is negative or not finite.
    """
    forward, backward = _times("forward_s", forward_s), _times("backward_s", backward_s, len(np.ravel(forward_s)))
    stages = len(forward)
    onward = _times("send_forward_s", send_forward_s, stages - 1)
    back = _times("send_backward_s", send_backward_s, stages - 1)
    if microbatches < 1 or stages < 1:
        given = (microbatches, stages)
        raise PlanError(problem("(microbatches, stages)", given, "both must be >= 1", "Use positive integers"))
    env = simpy.Environment()
    line = [_Stage(env, microbatches) for _ in range(stages)]
    for microbatch in range(microbatches):
        line[0].arrived["forward", microbatch].succeed()
        line[-1].arrived["backward", microbatch].succeed()

    def send(sender: _Stage, message: Any, seconds: float) -> Process:
        with sender.interface.request() as turn:
            yield turn
            yield env.timeout(seconds)
        message.succeed()

    def work(index: int, order: Iterator[tuple[Pass, int]]) -> Process:
        own = line[index]
        for kind, microbatch in order:
            yield own.arrived[kind, microbatch]
            with own.compute.request() as turn:
                yield turn
                yield env.timeout(forward[index] if kind == "forward" else backward[index])
            to = index + 1 if kind == "forward" else index - 1
            if 0 <= to < stages:
                seconds = onward[index] if kind == "forward" else back[to]
                sent = env.process(send(own, line[to].arrived[kind, microbatch], seconds))
                if blocking:
                    yield sent
        own.finish_s = env.now

    for index in range(stages):
        order = (
            all_forward_all_backward(microbatches)
            if schedule is Schedule.GPIPE
            else one_forward_one_backward(index, stages, microbatches)
        )
        env.process(work(index, order))
    env.run()
    return np.array([stage.finish_s for stage in line])


def _times(name: str, given: ArrayLike, count: int | None = None) -> Sequence[float]:
    values = np.asarray(given, dtype=np.float64)
    if values.ndim != 1 or (count is not None and len(values) != count):
        rule = f"needs {count if count is not None else 'one number per stage, so'} numbers in one row"
        raise PlanError(problem(f"{name}.shape", values.shape, rule, "Give one number per stage or boundary"))
    if not np.isfinite(values).all() or (values < 0).any():
        raise PlanError(problem(name, values.tolist(), "must be finite and >= 0", "Use seconds"))
    return [float(value) for value in values]
