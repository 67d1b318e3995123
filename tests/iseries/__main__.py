"""Replay one seed, step by step: `python -m tests.iseries 7`, and with a known mistake: `… 7 no-undo`."""

from __future__ import annotations

import sys

from tests.iseries.run import run

run(int(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "", print)
