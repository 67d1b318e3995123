"""`python -m tidelog`: the same as the command `tidelog`."""

from __future__ import annotations

import sys

from tidelog.cli.entry import main

sys.exit(main())
