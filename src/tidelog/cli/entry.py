"""The process `tidelog`: a signal ends it properly from its first moment on, and it leaves no process behind."""

from __future__ import annotations

from tidelog.cli import shutdown


def main() -> int:
    shutdown.end_on_signals()
    from tidelog.core.lazy_pandas import skip_pandas_here_and_below  # these imports take a moment

    skip_pandas_here_and_below()
    from tidelog.cli.main import main as run_command

    try:
        return run_command()
    finally:
        shutdown.end_descendants()
