"""Step time of a pipeline as torch really runs it: sends are waited for, receives are posted late, links are shared.

The recurrence of ``pipeline`` gives every stage an interface that sends while it computes, and both directions of a
link all of it. ``torch.distributed.pipelining`` over gloo does neither. Its programme is followed here operation by
operation (``Schedule1F1B`` and ``ScheduleGPipe`` of torch 2.13), with properties of a link that a probe measures:

* a transfer goes on at ``one_way`` while the other direction is silent, at ``duplex`` while both are busy;
* it begins when the send was fired and the receive was posted. Before that, ``eager_bytes`` of it get as far as the
  receiver's socket buffer, and no further;
* its last byte arrives ``latency_s`` after it was sent.

Transfers are fluids: rates change only when a transfer or an operation begins or ends, so the step is exact for them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from attribution_sched.errors import NetworkError, SettingsError, nearest, problem

FORWARD, BACKWARD = 0, 1

Message = tuple[int, int, int]
"""Boundary (between stage b and b + 1), direction, microbatch."""

Operation = tuple[str, Any]
"""``("compute", direction)``, ``("send", message)`` or ``("wait", ((message, receives), …))``."""

ONE_WAY_SHARE, DUPLEX_SHARE = 0.97, 0.62
"""Share of a shaped link's nominal rate that gloo gets of 256 KiB messages: one way alone, each way when both are busy.
Measured at 20 Mbit/s between two network namespaces with a token bucket at both ends. A real WAN is to be probed."""

EAGER_BYTES = 98_304
"""Bytes that reach a receiver before it has posted its receive: what Linux's default receive buffer of 131,072 bytes
holds, less the quarter that its own bookkeeping takes."""


@dataclass(frozen=True)
class LinkProfile:
    """What a probe measured of a link.

    Attributes:
        one_way_bytes_per_s: Rate of one direction while the other is silent.
        duplex_bytes_per_s: Rate of each direction while both are busy.
        latency_s: One-way latency.
        eager_bytes: Bytes that arrive before the receive was posted.
        provenance: How it was got.
    """

    one_way_bytes_per_s: float
    duplex_bytes_per_s: float
    latency_s: float = 0.0
    eager_bytes: float = EAGER_BYTES
    provenance: str = "measured"

    def __post_init__(self) -> None:
        if not 0.0 < self.duplex_bytes_per_s <= self.one_way_bytes_per_s < math.inf:
            given = (self.one_way_bytes_per_s, self.duplex_bytes_per_s)
            rule = "must be finite rates, above 0, duplex at most one-way"
            raise NetworkError(problem("link (one-way, duplex)", given, rule, "Probe the link again"))
        if not (0.0 <= self.latency_s < math.inf and self.eager_bytes >= 0.0):
            given = (self.latency_s, self.eager_bytes)
            raise NetworkError(problem("link (latency_s, eager_bytes)", given, "must be >= 0", "Use seconds and bytes"))

    @property
    def duplex_efficiency(self) -> float:
        """What is left of a direction while the other is busy."""
        return self.duplex_bytes_per_s / self.one_way_bytes_per_s

    @classmethod
    def nominal(cls, bytes_per_s: float, latency_s: float = 0.0) -> LinkProfile:
        """A link of which only the nominal rate is known; the shares are those that were measured elsewhere."""
        return cls(ONE_WAY_SHARE * bytes_per_s, DUPLEX_SHARE * bytes_per_s, latency_s, provenance="estimated")


# --- What a stage does, operation by operation ---


def torch_1f1b(stage: int, stages: int, microbatches: int) -> list[Operation]:
    """``Schedule1F1B``: sends of the steady state are fused with the receive after them, and both are waited for."""
    ahead = min(microbatches, stages - stage)
    done: list[Operation] = []
    fired: Message | None = None
    last: Message | None = None

    def wait(*messages: tuple[Message | None, bool]) -> None:
        listed = tuple((message, receives) for message, receives in messages if message is not None)
        if listed:
            done.append(("wait", listed))

    def send(message: Message | None) -> None:
        if message is not None:
            done.append(("send", message))

    def messages(m: int) -> tuple[Message | None, Message | None, Message | None, Message | None]:
        """Of a microbatch: activations in and out, gradients in and out."""
        first, final = stage == 0, stage == stages - 1
        return (
            None if first else (stage - 1, FORWARD, m),
            None if final else (stage, FORWARD, m),
            None if final else (stage, BACKWARD, m),
            None if first else (stage - 1, BACKWARD, m),
        )

    for m in range(ahead):
        received, sent, _, _ = messages(m)
        wait((received, True))
        done.append(("compute", FORWARD))
        wait((fired, False))
        last = sent
        if m != ahead - 1:
            send(sent)
            fired = sent
    forwards, backwards = ahead, 0
    while True:
        _, _, received, sent = messages(backwards)
        send(last)
        wait((last, False), (received, True))
        done.append(("compute", BACKWARD))
        backwards += 1
        if forwards == microbatches:
            break
        activations, last, _, _ = messages(forwards)
        send(sent)
        wait((sent, False), (activations, True))
        done.append(("compute", FORWARD))
        forwards += 1
    send(sent)
    while backwards < microbatches:
        _, _, received, following = messages(backwards)
        wait((received, True))
        done.append(("compute", BACKWARD))
        wait((sent, False))
        send(following)
        sent, backwards = following, backwards + 1
    wait((sent, False))
    return done


def torch_gpipe(stage: int, stages: int, microbatches: int) -> list[Operation]:
    """``ScheduleGPipe``: all forwards, then all backwards; sends are waited for at the end of either."""
    done: list[Operation] = []
    for direction, enters, leaves in ((FORWARD, stage - 1, stage), (BACKWARD, stage, stage - 1)):
        fired = []
        for m in range(microbatches):
            if 0 <= enters < stages - 1:
                done.append(("wait", (((enters, direction, m), True),)))
            done.append(("compute", direction))
            if 0 <= leaves < stages - 1:
                done.append(("send", (leaves, direction, m)))
                fired.append(((leaves, direction, m), False))
        if fired:
            done.append(("wait", tuple(fired)))
    return done


RUNTIMES: dict[str, Callable[[int, int, int], list[Operation]]] = {"torch-1f1b": torch_1f1b, "torch-gpipe": torch_gpipe}
"""Runtimes whose programmes are known, by name."""


# --- The clockwork ---


class _Pipeline:
    """All stages and links of one step."""

    def __init__(
        self,
        programmes: Sequence[list[Operation]],
        seconds: Sequence[tuple[float, float]],
        message_bytes: Sequence[float],
        links: Sequence[LinkProfile],
    ) -> None:
        self.programmes, self.seconds, self.bytes, self.links = programmes, seconds, message_bytes, links
        self.at = [0] * len(programmes)
        self.busy_until: list[float | None] = [None] * len(programmes)
        self.queues: dict[tuple[int, int], list[Message]] = {
            (boundary, way): [] for boundary in range(len(links)) for way in (FORWARD, BACKWARD)
        }
        self.left: dict[Message, float] = {}
        self.posted: set[Message] = set()
        self.sent: set[Message] = set()
        self.arrives_s: dict[Message, float] = {}
        self.now_s = 0.0

    def run(self) -> float:
        """Seconds until every stage is through its programme."""
        while True:
            self._start_what_can()
            if all(at == len(own) for at, own in zip(self.at, self.programmes, strict=True)) and not any(
                until is not None for until in self.busy_until
            ):
                return self.now_s
            rates = self._rates()
            self._pass_time(self._next_s(rates), rates)

    def _start_what_can(self) -> None:
        moved = True
        while moved:
            moved = False
            for stage, own in enumerate(self.programmes):
                while self.busy_until[stage] is None and self.at[stage] < len(own):
                    kind, what = own[self.at[stage]]
                    if kind == "compute":
                        self.busy_until[stage] = self.now_s + self.seconds[stage][what]
                    elif kind == "send":
                        boundary, way, _ = what
                        self.queues[boundary, way].append(what)
                        self.left[what] = self.bytes[boundary]
                    elif not self._over(what):
                        break
                    self.at[stage] += 1
                    moved = True

    def _over(self, waited: Sequence[tuple[Message, bool]]) -> bool:
        self.posted.update(message for message, receives in waited if receives)
        return all(
            self.arrives_s.get(message, math.inf) <= self.now_s if receives else message in self.sent
            for message, receives in waited
        )

    def _rates(self) -> dict[tuple[int, int], float]:
        """Directions in which something flows now, and how fast."""
        flowing = {}
        for (boundary, way), queue in self.queues.items():
            if queue:
                sent = self.bytes[boundary] - self.left[queue[0]]
                if queue[0] in self.posted or sent < self._eager(boundary) * (1.0 - 1e-9):
                    flowing[boundary, way] = 0.0
        for boundary, way in flowing:
            link = self.links[boundary]
            both = (boundary, 1 - way) in flowing
            flowing[boundary, way] = link.duplex_bytes_per_s if both else link.one_way_bytes_per_s
        return flowing

    def _eager(self, boundary: int) -> float:
        return min(self.links[boundary].eager_bytes, self.bytes[boundary])

    def _next_s(self, rates: dict[tuple[int, int], float]) -> float:
        """When something begins or ends next."""
        moments = [until for until in self.busy_until if until is not None]
        moments += [at for at in self.arrives_s.values() if at > self.now_s]
        for (boundary, way), rate in rates.items():
            message = self.queues[boundary, way][0]
            left = self.left[message]
            if message not in self.posted:
                left -= self.bytes[boundary] - self._eager(boundary)
            moments.append(self.now_s + left / rate)
        return min(moments)

    def _pass_time(self, until_s: float, rates: dict[tuple[int, int], float]) -> None:
        for (boundary, way), rate in rates.items():
            message = self.queues[boundary, way][0]
            self.left[message] -= rate * (until_s - self.now_s)
            if self.left[message] <= 1e-9 * self.bytes[boundary]:
                self.queues[boundary, way].pop(0)
                self.sent.add(message)
                self.arrives_s[message] = until_s + self.links[boundary].latency_s
        self.now_s = until_s
        for stage, until in enumerate(self.busy_until):
            if until is not None and until <= until_s:
                self.busy_until[stage] = None


def measured_step_s(
    runtime: str,
    forward_s: Sequence[float],
    backward_s: Sequence[float],
    message_bytes: float | Sequence[float],
    links: Sequence[LinkProfile],
    microbatches: int,
) -> float:
    """Seconds of one training step.

    Args:
        runtime: ``torch-1f1b`` or ``torch-gpipe``.
        forward_s: Seconds of a forward pass of one microbatch, stage by stage.
        backward_s: The same of a backward pass.
        message_bytes: What a microbatch sends over a boundary, each way; one number for all boundaries, or one each.
        links: The link of every boundary.
        microbatches: In one step.

    Raises:
        SettingsError: If the runtime is not known, or the figures do not belong together.
    """
    if runtime not in RUNTIMES:
        raise SettingsError(problem("runtime", runtime, "is not known", nearest(runtime, RUNTIMES)))
    stages = len(forward_s)
    sizes = [float(message_bytes)] * (stages - 1) if isinstance(message_bytes, int | float) else list(message_bytes)
    if not stages or not stages == len(backward_s) == len(links) + 1 == len(sizes) + 1:
        given = (stages, len(backward_s), len(links), len(sizes))
        rule = "must be as many as stages, the last two one fewer"
        raise SettingsError(problem("forward, backward, links, bytes", given, rule, "Give one figure each"))
    numbers = [*forward_s, *backward_s, *sizes]
    if microbatches < 1 or not all(math.isfinite(each) and each > 0.0 for each in numbers):
        given_too = (microbatches, min(numbers))
        rule = "must be whole and >= 1; seconds and bytes must be above 0"
        raise SettingsError(problem("microbatches, least figure", given_too, rule, "Measure them again"))
    if runtime == "torch-1f1b" and microbatches < stages:
        rule = f"torch's 1F1B takes no fewer than its {stages} stages"
        raise SettingsError(problem("microbatches", microbatches, rule, "Use more microbatches, or torch-gpipe"))
    programmes = [RUNTIMES[runtime](stage, stages, microbatches) for stage in range(stages)]
    return _Pipeline(programmes, list(zip(forward_s, backward_s, strict=True)), sizes, links).run()
