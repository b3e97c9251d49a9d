"""The number of torch threads, for a while.

With a busy neighbour two threads wait for each other far longer than one thread works: the decision path uses one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def torch_threads(number: int) -> Iterator[None]:
    """Run the body with so many torch threads; the old number comes back on exit."""
    import torch

    before = torch.get_num_threads()
    if before != number:
        torch.set_num_threads(number)
    try:
        yield
    finally:
        if before != number:
            torch.set_num_threads(before)
