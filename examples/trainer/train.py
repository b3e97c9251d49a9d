"""A pipeline of transformer blocks: trains where it is told to, saves itself when asked to end, goes on elsewhere.

    attribution-sched … submit(..., command=["python", "examples/trainer/train.py", "--folder", "/shared/trainer"])

It takes its stage from the environment that executors set (``ATTR_STAGE``, ``ATTR_FIRST``, ``ATTR_STOP``, …), runs
torch's own pipeline schedule over gloo, reports every step to ``ATTR_REPORT`` (seconds, CPU-seconds, bytes, and now and
then what the link to the next stage carries), and on SIGTERM writes a file per layer, so that the next attempt may cut
the model elsewhere. An attempt that is not the newest writes nothing: its node may only have looked dead.

Without the environment it is one stage of one: ``python examples/trainer/train.py --folder /tmp/trainer --steps 3``.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from safetensors.torch import load_file, save_file
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

WIDTH, LENGTH, HEADS, LAYERS = 256, 64, 4, 8
PROBE_BYTES = 192 * 1024
PROBE_EVERY = 3
NOT_MINE = 75
"""Exit code of an attempt that found a newer one."""


def told(name: str, usual: str) -> str:
    """What the executor says; usual where it says nothing."""
    return os.environ.get(f"ATTR_{name}", "") or usual


class Checkpoints:
    """The task's folder: one file for each layer, the step they are of, and the newest attempt.

    Args:
        folder: Shared by all domains.
        task: Whose.
        attempt: Which start of it this is.
    """

    def __init__(self, folder: Path, task: str, attempt: int) -> None:
        self.folder, self.attempt = folder / task, attempt
        self.folder.mkdir(parents=True, exist_ok=True)
        if self.newest() < attempt:
            self._put("attempt", str(attempt))

    def _put(self, name: str, text: str) -> None:
        draft = self.folder / f".{name}.{os.getpid()}"
        draft.write_text(text)
        draft.replace(self.folder / name)

    def newest(self) -> int:
        """The newest attempt that has begun."""
        with contextlib.suppress(OSError, ValueError):
            return int((self.folder / "attempt").read_text())
        return -1

    def step(self) -> int:
        """Steps that are saved."""
        with contextlib.suppress(OSError, ValueError):
            return int((self.folder / "step").read_text())
        return 0

    def load(self, blocks: nn.Sequential, first: int) -> None:
        """Go on with layers that were saved, whichever stage saved them."""
        for at, block in enumerate(blocks):
            path = self.folder / f"layer-{first + at:03d}.{self.step()}.safetensors"
            block.load_state_dict(load_file(path))

    def save(self, blocks: nn.Sequential, first: int, step: int) -> None:
        """Write layers; they count once the step does.

        Raises:
            SystemExit: If a newer attempt has begun.
        """
        if self.newest() > self.attempt:
            sys.stderr.write(f"attempt {self.newest()} has begun; {self.attempt} writes nothing\n")
            raise SystemExit(NOT_MINE)
        for at, block in enumerate(blocks):
            save_file(block.state_dict(), self.folder / f"layer-{first + at:03d}.{step}.safetensors")

    def done(self, step: int) -> None:
        """All layers of a step are written."""
        self._put("step", str(step))


def make_blocks(first: int, stop: int) -> nn.Sequential:
    """Layers by their number: the same whoever makes them."""
    made = []
    for number in range(first, stop):
        torch.manual_seed(1000 + number)
        made.append(nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, dropout=0.0, batch_first=True))
    return nn.Sequential(*made)


def sent_bytes() -> int | None:
    """What this domain's interfaces have sent; None where only loopback is there."""
    found = None
    for each in Path("/sys/class/net").iterdir():
        if each.name.startswith("to-"):
            found = (found or 0) + int((each / "statistics" / "tx_bytes").read_text())
    return found


class Pipeline:
    """One stage of a pipeline, with its neighbours; or all of it.

    Args:
        stage: Which.
        stages: Of how many.
        blocks: Its layers.
        microbatches: In a step.
        schedule: ``one_f_one_b`` or ``gpipe``.
    """

    def __init__(self, stage: int, stages: int, blocks: nn.Sequential, microbatches: int, schedule: str) -> None:
        self.stage, self.stages, self.blocks = stage, stages, blocks
        self.optimiser = torch.optim.SGD(blocks.parameters(), lr=1e-3)
        self.schedule = None
        if stages > 1:
            made = PipelineStage(blocks, stage, stages, torch.device("cpu"))
            kind = ScheduleGPipe if schedule == "gpipe" else Schedule1F1B
            self.schedule = kind(made, n_microbatches=max(microbatches, stages), loss_fn=nn.functional.mse_loss)

    def step(self, batch: torch.Tensor, target: torch.Tensor) -> None:
        """Forward, backward, update."""
        self.optimiser.zero_grad()
        if self.schedule is None:
            nn.functional.mse_loss(self.blocks(batch), target).backward()
        elif self.stage == 0:
            self.schedule.step(batch)
        elif self.stage == self.stages - 1:
            self.schedule.step(target=target)
        else:
            self.schedule.step()
        self.optimiser.step()

    def link(self) -> float | None:
        """Bytes a second to the next stage, of one message that nothing else disturbs; None for the last."""
        found, small = None, torch.zeros(1)
        for at in range(self.stages - 1):
            if self.stage == at:
                began = time.perf_counter()
                dist.send(torch.zeros(PROBE_BYTES // 4), at + 1)
                dist.recv(small, at + 1)
                found = PROBE_BYTES / (time.perf_counter() - began)
            elif self.stage == at + 1:
                dist.recv(torch.zeros(PROBE_BYTES // 4), at)
                dist.send(small, at)
        return found

    def anybody(self, flag: bool) -> bool:
        """Whether any stage says so: all of them end at the same step."""
        if self.stages == 1:
            return flag
        all_flags = torch.tensor([float(flag)])
        dist.all_reduce(all_flags, dist.ReduceOp.MAX)
        return bool(all_flags.item())


def meet(stage: int, stages: int, folder: Path) -> None:
    """Find the other stages: by a file that all share where there is no common host, else at the address told."""
    wait = timedelta(seconds=120)
    if told("KEY", "") and os.environ.get("TRAINER_STORE"):
        store = dist.FileStore(str(folder / f"meet-{told('KEY', '')}-{told('ATTEMPT', '0')}"), stages)
        dist.init_process_group("gloo", store=store, rank=stage, world_size=stages, timeout=wait)
    else:
        address = f"tcp://{told('RENDEZVOUS', '127.0.0.1:29500')}"
        dist.init_process_group("gloo", init_method=address, rank=stage, world_size=stages, timeout=wait)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="for checkpoints; all domains share it")
    parser.add_argument("--steps", type=int, default=None, help="steps of the whole training; the task's by default")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    asked: list[bool] = []
    signal.signal(signal.SIGTERM, lambda *_: asked.append(True))
    stage, stages = int(told("STAGE", "0")), int(told("STAGES", "1"))
    first, stop = int(told("FIRST", "0")), int(told("STOP", str(LAYERS)))
    saved = Checkpoints(chosen.folder, told("TASK", "task"), int(told("ATTEMPT", "0")))
    blocks, begun = make_blocks(first, stop), saved.step()
    if begun:
        saved.load(blocks, first)
    steps = chosen.steps if chosen.steps is not None else begun + int(told("STEPS", "10"))
    if stages > 1:
        meet(stage, stages, saved.folder)
    microbatch, microbatches = int(told("MICROBATCH", "2")), int(told("MICROBATCHES", "4"))
    pipeline = Pipeline(stage, stages, blocks, microbatches, told("SCHEDULE", "one_f_one_b"))
    data = torch.Generator().manual_seed(7)
    report = Path(told("REPORT", os.devnull))
    for step in range(begun, steps):
        shape = (microbatch * max(microbatches, stages), LENGTH, WIDTH)
        batch, target = torch.randn(shape, generator=data), torch.randn(shape, generator=data)
        sent, cpu, began = sent_bytes(), time.process_time(), time.perf_counter()
        pipeline.step(batch, target)
        line = {"step": step, "step_s": time.perf_counter() - began, "cpu_s": time.process_time() - cpu}
        # What the link carried; between processes of one machine, what was handed to it.
        ends = (stage > 0) + (stage < stages - 1)
        now = sent_bytes()
        line["bytes"] = batch.nbytes * ends if now is None or sent is None else now - sent
        if stages > 1 and step % PROBE_EVERY == 0 and (rate := pipeline.link()) is not None:
            line["link_bytes_per_s"] = rate
        line |= {"done": (step + 1) / steps, "unix_s": time.time()}
        with report.open("a") as file:
            file.write(json.dumps(line) + "\n")
        if pipeline.anybody(bool(asked)) and step + 1 < steps:
            saved.save(blocks, first, step + 1)
            if stages > 1:
                dist.barrier()
            if stage == 0:
                saved.done(step + 1)
            return 143
    if stages > 1:
        dist.barrier()
        dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
