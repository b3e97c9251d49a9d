"""How joint tests say what they measured; nothing is written to disk."""

from collections.abc import Callable

import pytest


@pytest.fixture
def tell(record_property: Callable[[str, object], None]) -> Callable[..., None]:
    """Say what a joint measured; it is printed after all tests, whether they passed or not."""

    def say(joint: str, **values: object) -> None:
        told = [
            f"{name} {value:.3g}" if isinstance(value, float) else f"{name} {value}" for name, value in values.items()
        ]
        record_property("joint", f"{joint}  {' · '.join(told)}".replace("_", " "))

    return say
