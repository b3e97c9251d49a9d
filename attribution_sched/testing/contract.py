"""What a broken contract is told by."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from attribution_sched.errors import AttributionSchedError, problem


class ContractError(AttributionSchedError):
    """A part does not keep what whoever uses it relies on."""


def require(kept: object, field: str, value: object, rule: str, fix: str) -> None:
    """Raise ``ContractError`` unless a rule is kept."""
    if not kept:
        raise ContractError(problem(field, value, rule, fix))


@contextmanager
def asked(field: str) -> Iterator[None]:
    """A question to the part: whatever it raises is told as the broken contract that it is."""
    try:
        yield
    except AttributionSchedError:
        raise
    except Exception as error:
        rule = f"raised {type(error).__name__}: {error}"
        raise ContractError(
            problem(field, "an exception", rule, "Answer, or raise an AttributionSchedError")
        ) from error
