"""A length of time, as people read a clock."""

from __future__ import annotations


def duration(seconds: float) -> str:
    """Seconds as days, hours, minutes and seconds, the two largest of them."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, hours, days = int(seconds // 60), int(seconds // 3600), int(seconds // 86400)
    if days:
        return f"{days} d {hours % 24} h"
    return f"{hours} h {minutes % 60} min" if hours else f"{minutes} min {int(seconds % 60)} s"
