"""The command ``attribution-sched``; one module for each of its commands."""

from __future__ import annotations

from attribution_sched.cli.app import app, main

__all__ = ["app", "main"]
