"""The command `tidelog` as a file, for spark-submit: `spark-submit … tidelog_main.py run shop.yaml`."""

from __future__ import annotations

import sys

if __name__ == "__main__":
    from tidelog.cli.entry import main

    sys.exit(main())
