"""``python -m attribution_sched.cli`` is the command too."""

from __future__ import annotations

from attribution_sched.cli.app import main

main()
