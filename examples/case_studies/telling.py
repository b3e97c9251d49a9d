"""How the case studies show things: as rich output in a notebook, as plain text on a terminal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import matplotlib as mpl
import pandas as pd

from attribution_sched import Explanation, reasoning

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#B3548A", "#56B4E9", "#E69F00")
"""Okabe and Ito's palette, as the package's own plots use it."""


mpl.rcParams["figure.dpi"] = 120


def in_notebook() -> bool:
    """Whether a kernel runs this."""
    try:
        from IPython import get_ipython
    except ImportError:
        return False
    return bool(getattr(get_ipython(), "kernel", None))


def say(text: str) -> None:
    """Show a sentence or a list in Markdown; its numbers are computed, so it is put together where they are."""
    if in_notebook():
        from IPython.display import Markdown, display

        display(Markdown(text))
    else:
        print(text + "\n")


def show(thing: Any) -> None:
    """Show a result as it shows itself: ``_repr_html_`` in a notebook, words elsewhere."""
    if in_notebook():
        from IPython.display import display

        display(thing)
    elif isinstance(thing, Explanation):
        print(reasoning(thing) + "\n")
    else:
        print(f"{thing.to_string(index=False) if isinstance(thing, pd.DataFrame) else thing}\n")


def table(rows: Iterable[dict[str, Any]]) -> None:
    """Show records as a table, without row numbers."""
    frame = pd.DataFrame(list(rows))
    show(frame.style.hide(axis="index") if in_notebook() else frame)
