"""A machine without fonts, made on any machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import matplotlib
import pytest
from matplotlib import font_manager

from attribution_sched.explain.plots import style


@contextmanager
def bare_machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Hide every font that does not come with matplotlib, and forget what was found out about fonts before."""
    own = Path(matplotlib.get_data_path())
    kept = [font for font in font_manager.fontManager.ttflist if own in Path(font.fname).parents]
    # The font of last resort has a box for every character there is: with it nothing would ever be missing.
    kept = [font for font in kept if "Last Resort" not in font.name]
    with monkeypatch.context() as patch:
        patch.setattr(font_manager.fontManager, "ttflist", kept)
        font_manager.fontManager._findfont_cached.cache_clear()
        style.chinese_font.cache_clear()
        style._say_that_no_font_is_there.cache_clear()
        yield
    font_manager.fontManager._findfont_cached.cache_clear()
    style.chinese_font.cache_clear()
    style._say_that_no_font_is_there.cache_clear()


@contextmanager
def machine_with_chinese() -> Iterator[None]:
    """Believe that a Chinese font is there: for what is said, not for what is drawn."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(style, "chinese_font", lambda: "a Chinese font")
        yield
