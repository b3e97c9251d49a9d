"""How Chinese is set."""

from __future__ import annotations

import re


def spaced(text: str) -> str:
    """Set Latin letters and digits apart from Chinese characters by a space, as typesetters do."""
    text = re.sub(r"([\u4e00-\u9fff])([A-Za-z0-9])", r"\1 \2", text)
    return re.sub(r"([A-Za-z0-9%])([\u4e00-\u9fff])", r"\1 \2", text)
